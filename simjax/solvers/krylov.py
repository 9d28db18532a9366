"""Conjugate gradients on a decomposed domain."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from simjax.core.domain import Domain
from simjax.jaxpr.varying import steady_carry


class Solution(NamedTuple):
    """solution: like the right side. iterations: how many it took. residual: |right - A solution| / |right|."""

    solution: Float[Array, "..."]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]


class _Search(NamedTuple):
    x: Array
    residual: Array
    direction: Array
    energy: Array  # residual . preconditioned residual, of the iteration before
    square: Array  # residual . residual
    count: Array
    active: Array  # whether this system still iterates
    going: Array  # whether any system on the mesh still does


def conjugate_gradient(
    matvec: Callable[[Array], Array],
    right: Float[Array, "..."],
    *,
    domain: Domain,
    precondition: Callable[[Array], Array] = lambda residual: residual,
    tolerance: float,
    limit: int,
    scale: Float[Array, ""] | float = 0.0,
) -> Solution:
    """x with A x = right, for A symmetric positive (semi-)definite on this block's fields.

    Args:
        matvec: x -> A x.
        right: of one field on this block. If A is singular, in its range.
        domain: its global sums are the scalar products.
        precondition: symmetric positive approximation of the inverse of A.
        tolerance: of |right - A x| / (|right|^2 + scale^2)^(1/2), 2-norms, by the recurrence of the residual.
        limit: most iterations.
        scale: of what `right` is a part of, which the solution need not be more exact than.

    Returns:
        The solution; not a number where `limit` iterations did not reach `tolerance`, so that it cannot pass.

    Hestenes and Stiefel (1952), J. Res. Natl. Bur. Stand. 49, 409. Systems of an ensemble iterate together until
    the last has converged, and one that has converged no longer changes: its solution is that of a run alone.
    """
    start = domain.dot(right, right)
    goal = tolerance**2 * (start + scale * scale)

    def iterate(s: _Search) -> _Search:
        corrected = precondition(s.residual)
        energy = domain.dot(s.residual, corrected)
        # Kept from being computed anew for every neighbour that `matvec` reads.
        direction = lax.optimization_barrier(corrected + _ratio(energy, s.energy) * s.direction)
        image = matvec(direction)
        step = jnp.where(s.active, _ratio(energy, domain.dot(direction, image)), 0.0)
        x, residual = s.x + step * direction, s.residual - step * image
        square = domain.dot(residual, residual)
        count = s.count + s.active.astype(s.count.dtype)
        active = s.active & (square > goal) & (count < limit)
        return _Search(x, residual, direction, energy, square, count, active, domain.anywhere(active))

    nothing, active = jnp.zeros_like(right), start > goal
    begin = _Search(
        nothing, right, nothing, jnp.zeros_like(start), start, jnp.zeros((), jnp.int32), active, domain.anywhere(active)
    )
    body, begin = steady_carry(iterate, begin)
    end = lax.while_loop(lambda s: s.going, body, begin)
    solution = jnp.where(end.square <= goal, end.x, jnp.nan)
    return Solution(solution, end.count, jnp.sqrt(_ratio(end.square, start)))


def _ratio(a: Array, b: Array) -> Array:
    """a / b, zero where b vanishes."""
    return jnp.where(b == 0, 0.0, a / jnp.where(b == 0, 1.0, b))
