"""Modes of a waveguide in a plane: waves along an axis whose profile across it stays the same, on Yee's own grid."""

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from simjax.solvers.dense import eigenvectors, inverse


class Section(NamedTuple):
    """The medium on a line across the guide, (n,) each, of the scalar field f = Ez ("tm") or Hz ("te").

    own: permittivity or permeability, where f is. across: the inverse of the other one where the component along the
    guide is, half a cell off; of faces number k between the cells k - 1 and k. along: the same inverse where the
    component across it is, beside f.
    """

    own: Array
    across: Array
    along: Array


class Window(NamedTuple):
    """The part of a line that a mode has.

    at_faces: whether f has its values on faces ("tm"). first, last: numbers of the faces that are its ends, conductors
    both; None of a periodic line as a whole.
    """

    at_faces: bool
    first: int | None
    last: int | None

    def holds(self, n: int) -> list[bool]:
        """The cells of a line in which f is free."""
        if self.first is None or self.last is None:
            return [True] * n
        return [self.first + self.at_faces <= k < self.last for k in range(n)]

    def passes(self, n: int) -> list[bool]:
        """The values of `Section.across` that count: none is on or beyond a conductor."""
        if self.at_faces or self.first is None or self.last is None:
            return [True] * n
        return [self.first < k < self.last for k in range(n)]


class GuidedMode(eqx.Module):
    """A mode at one frequency.

    electric, magnetic: components of E and H in the plane across the guide, (n,), both positive in a wave that goes on
    where E is; the largest |E| is 1. square: of 2/h sin(k h/2) with the wavenumber k, negative of a mode that does not
    go on. wavenumber: k, zero of such a mode.
    """

    electric: Array
    magnetic: Array
    square: Array
    wavenumber: Array


def guided_mode(
    section: Section, window: Window, spacing: tuple[float, float], frequency: float, number: int
) -> GuidedMode:
    """The mode of the `number`-th largest wavenumber, from 0 on, that the semi-discrete scheme has.

    With f = F(y) exp(i (w t - k x)) it solves d(across dF) + w^2 own F = (2/h sin(k h/2))^2 along F. Its derivatives by
    the medium are those of one eigenvector, also beside others of the same wavenumber; second ones are not right.

    spacing: along the guide and across. frequency: w / (2 pi).
    """
    h, across = spacing
    w, n = 2 * math.pi * frequency, len(section.own)
    free = jnp.asarray(window.holds(n))
    passed = jnp.where(jnp.asarray(window.passes(n)), section.across, 0) / across**2
    step = 1 if window.at_faces else -1
    # Differences of f lie at the places of `across`: beyond those on faces, in front of those at centres.
    identity = jnp.eye(n, dtype=passed.dtype)
    difference = jnp.where(free[None, :], jnp.roll(identity, step, axis=1) - identity, 0)
    matrix = jnp.diag(w**2 * section.own) - difference.T @ (passed[:, None] * difference)
    root = jnp.sqrt(section.along)
    matrix = matrix / (root[:, None] * root[None, :])
    # Values that are held do not go on: their own eigenvalues are the lowest ones.
    lowest = -2 * jnp.max(lax.stop_gradient(passed / section.along)) - w**2
    matrix = jnp.where(free[:, None] & free[None, :], matrix, jnp.diag(jnp.full(n, lowest)))
    square, vector = _eigenpair(matrix, n - 1 - number)
    profile = vector / root
    smooth = jnp.sqrt(jnp.maximum(square, jnp.finfo(square.dtype).tiny))
    beside = section.along * profile * (smooth / w)
    electric, magnetic = (profile, beside) if window.at_faces else (beside, profile)
    size = jnp.abs(lax.stop_gradient(electric))
    first = jnp.argmax(size >= 0.5 * jnp.max(size))  # of the two ends of an odd mode always the same
    scale = 1 / (jnp.sign(electric[first]) * jnp.max(jnp.abs(electric)))
    wavenumber = 2 / h * jnp.arcsin(jnp.minimum(0.5 * h * smooth, 1.0))
    return GuidedMode(electric * scale, magnetic * scale, square, jnp.where(square > 0, wavenumber, 0))


def _eigenpair(matrix: Array, number: int) -> tuple[Array, Array]:
    """An eigenvalue of a symmetric matrix, by its number in rising order, and its eigenvector, with first derivatives.

    These are those of a step of Newton's method for A v = l v, |v| = 1 from the solution.
    """
    values, vectors = eigenvectors(lax.stop_gradient(matrix))
    value, vector = values[number], vectors[:, number]
    n = len(values)
    shifted = lax.stop_gradient(matrix) - value * jnp.eye(n, dtype=matrix.dtype)
    bordered = jnp.block([[shifted, -vector[:, None]], [vector[None, :], jnp.zeros((1, 1), matrix.dtype)]])
    error = jnp.append(matrix @ vector - value * vector, jnp.zeros((), matrix.dtype))
    step = lax.stop_gradient(inverse(bordered)) @ error
    return value - step[-1], vector - step[:-1]
