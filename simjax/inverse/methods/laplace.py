"""Laplace's approximation: how certain an estimate is, from the curvature of the loss there."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.sparse.linalg import cg

from simjax.inverse.methods.least_squares import LeastSquares, dot, norm

TOLERANCE, ITERATIONS = 1e-6, 200
# Of draws: it leaves about 1e-3 of one at most (curvatures of 1 to 1600, white and smooth priors), where the deviation
# over a hundred of them scatters by 7e-2, and takes two thirds of the iterations.
DRAW_TOLERANCE = 1e-4
# Conjugate gradients that end above this multiple of their tolerance have not converged.
CONVERGED = 10.0
# Latents are of order one: a combination that is known to a million only is not known.
UNKNOWN = 1e6


class Sensitivity(NamedTuple):
    """The sensitivity of the residuals r to some numbers, with all other unknowns left free.

    factor: `(k, k)`, the upper triangular R of P J, where J holds the derivatives of r in the k numbers and P takes
    away what the other unknowns can make up for. (R^T R)^-1 is the covariance of the numbers. size: `(k,)`, the norms
    of the columns of J. left: `(k,)`, the relative residual of the conjugate gradients that formed P J; zero where
    there are no other unknowns.
    """

    factor: Array
    size: Array
    left: Array


@dataclass(frozen=True)
class Uncertainty:
    """The uncertainty of numbers, in units of their latents.

    deviations: the standard deviation of each, infinite where the residuals do not determine it. undetermined:
    combinations of numbers that change no residual: by name, how much each changes along one of them; a single name is
    a number that other unknowns (fields, modules) can make up for, or that nothing depends on. unconverged: names whose
    deviation comes from conjugate gradients that did not converge, with their relative residual.
    """

    deviations: dict[str, float]
    undetermined: tuple[dict[str, float], ...]
    unconverged: dict[str, float]


class Draws(NamedTuple):
    """samples: a tree like the latent, with an axis of draws in front. left: the relative residual of each solve."""

    samples: Any
    left: Array


def number_sensitivity(problem: LeastSquares, latent, names: Sequence[str]) -> Sensitivity:
    """The `Sensitivity` of the scalar latents `names` at `latent`; at least one name.

    Each number costs a forward derivative of the run and, beside other unknowns, one solve by conjugate gradients for
    the part of it that they explain (the Schur complement of J^T J in the numbers).
    """
    names = tuple(names)
    others = {key: leaf for key, leaf in latent.items() if key not in names}

    def residuals(others, numbers):
        return problem.residuals({**others, **numbers})

    numbers = {name: latent[name] for name in names}
    units = {name: jnp.eye(len(names), dtype=u.dtype)[k] for k, (name, u) in enumerate(numbers.items())}
    # One program for all numbers: they differ in their direction alone.
    columns = jax.lax.map(lambda unit: jax.jvp(functools.partial(residuals, others), (numbers,), (unit,))[1], units)
    size = jax.vmap(norm)(columns)
    left = jnp.zeros_like(size)
    if jax.tree.leaves(others):

        def of_others(others):
            return residuals(others, numbers)

        _, pull = jax.vjp(of_others, others)

        def unexplained(column):
            change, left = _solved(of_others, others, pull, pull(column)[0])
            explained = jax.jvp(of_others, (others,), (change,))[1]
            return jax.tree.map(jnp.subtract, column, explained), left

        columns, left = jax.lax.map(unexplained, columns)
    return Sensitivity(_triangular_factor(columns, len(names)), size, left)


def uncertainty_of_numbers(sensitivity: Sensitivity, names: Sequence[str]) -> Uncertainty:
    """Standard deviations of the numbers, and which combinations of them have none."""
    factor, size, left = (np.asarray(part, np.float64) for part in sensitivity)
    rounding = 1e3 * float(jnp.finfo(sensitivity.factor.dtype).eps)
    # What conjugate gradients leave of a number that the other unknowns make up for.
    level = max(rounding, 1e2 * TOLERANCE) if np.any(left > 0) else rounding
    scale = np.where(size > 0, size, 1.0)
    _, singular, rows = np.linalg.svd(factor / scale)
    directions = rows / scale  # changes of the latents, one row each, that change the residuals by `singular`
    known = (singular > level) & (np.linalg.norm(directions, axis=1) < UNKNOWN * singular)
    squares = ((directions[known] / singular[known, None]) ** 2).sum(axis=0)
    undetermined = []
    for row in rows[~known]:
        # Entries that are rounding take no part.
        part = np.abs(row) > 1e-3 * np.abs(row).max()
        undetermined.append({name: float(row[k] / scale[k]) for k, name in enumerate(names) if part[k]})
    unsure = {name for combination in undetermined for name in combination}
    deviations = {name: np.inf if name in unsure else float(np.sqrt(squares[k])) for k, name in enumerate(names)}
    unconverged = {
        name: float(part)
        for name, part in zip(names, left, strict=True)
        if name not in unsure and not part <= CONVERGED * TOLERANCE
    }
    return Uncertainty(deviations, tuple(undetermined), unconverged)


def posterior_draws(problem: LeastSquares, latent, keys: Array) -> Draws:
    """Draws from the normal distribution with mean `latent` and covariance (J^T J)^-1, one for each key, at once.

    H^-1 J^T xi with H = J^T J and xi standard normal in the space of residuals, priors among them, has covariance
    H^-1 J^T J H^-1 = H^-1 (Bardsley et al. 2014, "randomize then optimize", for a linear problem). What the residuals
    do not determine stays as it is in `latent`: these solutions have no part along it.
    """
    residuals, pull = jax.vjp(problem.residuals, latent)
    leaves, tree = jax.tree.flatten(residuals)

    def draw(key):
        parts = jax.random.split(key, len(leaves))
        noise = [jax.random.normal(k, r.shape, r.dtype) for k, r in zip(parts, leaves, strict=True)]
        right = pull(jax.tree.unflatten(tree, noise))[0]
        departure, left = _solved(problem.residuals, latent, pull, right, DRAW_TOLERANCE)
        return jax.tree.map(jnp.add, latent, departure), left

    return Draws(*jax.vmap(draw)(keys))


def draw_keys(numbers: Sequence[int], seed: int = 0) -> Array:
    """The keys of draws by their numbers: more draws begin with those of fewer."""
    return jax.vmap(lambda number: jax.random.fold_in(jax.random.key(seed), number))(jnp.asarray(numbers))


def draws_converged(left) -> bool:
    """Tell whether conjugate gradients of draws that end with this relative residual have converged."""
    return bool(left <= CONVERGED * DRAW_TOLERANCE)


def _solved(residuals, at, pull, right, tolerance: float = TOLERANCE):
    """x with J^T J x = right, a right-hand side in the range of J^T, and |right - J^T J x| / |right|."""

    def product(v):
        return pull(jax.jvp(residuals, (at,), (v,))[1])[0]

    x, _ = cg(product, right, tol=tolerance, maxiter=ITERATIONS)
    size, missing = norm(right), norm(jax.tree.map(jnp.subtract, right, product(x)))
    return x, jnp.where(size > 0, missing / jnp.where(size > 0, size, 1), 0)


def _triangular_factor(columns: Any, count: int) -> Array:
    """R `(count, count)` of the QR factorisation of columns, a tree of arrays `(count, ...)`.

    By Gram and Schmidt's orthogonalisation, twice for each column: once loses digits where columns are nearly parallel.
    """
    basis, factor = [], []
    for number in range(count):
        column = jax.tree.map(lambda u, k=number: u[k], columns)
        entries = [jnp.zeros_like(norm(column))] * count
        for _ in range(2):
            for k, unit in enumerate(basis):
                share = dot(unit, column)
                entries[k] = entries[k] + share
                column = jax.tree.map(lambda c, u, share=share: c - share * u, column, unit)
        size = norm(column)
        entries[number] = size
        basis.append(jax.tree.map(lambda c, size=size: c / jnp.where(size > 0, size, 1), column))
        factor.append(jnp.stack(entries))
    return jnp.stack(factor, axis=1)
