"""Conjugate gradients, and others for matrices that are not symmetric, on a decomposed domain."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from simjax.core.domain import Domain
from simjax.jaxpr.varying import steady_carry
from simjax.ops.scaling import scaled


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


class _Bisearch(NamedTuple):
    x: Any
    residual: Any
    direction: Any
    image: Any  # of the direction
    rho: Array
    alpha: Array
    omega: Array
    square: Array  # residual . residual
    count: Array
    active: Array
    going: Array


def biconjugate_gradient(
    matvec: Callable[[Any], Any],
    right: Any,
    *,
    dot: Callable[[Any, Any], Array],
    domain: Domain,
    relative: float,
    absolute: float,
    limit: int,
) -> Any:
    """x with A x = right, for any A that is far from singular, on trees of this block's fields.

    Args:
        matvec: x -> A x.
        right: a tree of fields, of which x is another.
        dot: the scalar product of two such trees, the same on all devices.
        domain: of the fields.
        relative, absolute: the residual is at most one of these, the first of `right`, in the norm by `dot`.
        limit: most iterations, of two products with A each.

    Returns:
        The solution; not a number where `limit` iterations did not reach the tolerance.

    BiCGSTAB: van der Vorst (1992), SIAM J. Sci. Stat. Comput. 13, 631. Members iterate together, as in
    `conjugate_gradient`.
    """
    start = dot(right, right)
    goal = jnp.maximum(relative**2 * start, absolute**2)

    def plus(a, factor, b):
        return jax.tree.map(lambda u, v: u + scaled(factor, v), a, b)

    def iterate(s: _Bisearch) -> _Bisearch:
        rho = dot(right, s.residual)
        beta = _ratio(rho, s.rho) * _ratio(s.alpha, s.omega)
        direction = plus(s.residual, beta, plus(s.direction, -s.omega, s.image))
        image = matvec(direction)
        alpha = _ratio(rho, dot(right, image))
        half = plus(s.residual, -alpha, image)
        turned = matvec(half)
        omega = _ratio(dot(turned, half), dot(turned, turned))
        x = plus(plus(s.x, alpha, direction), omega, half)
        residual = plus(half, -omega, turned)
        square = dot(residual, residual)
        count = s.count + 1
        active = s.active & (square > goal) & (count < limit)
        new = _Bisearch(x, residual, direction, image, rho, alpha, omega, square, count, active, s.going)
        new = jax.tree.map(lambda new, old: jnp.where(s.active, new, old), new, s)
        return new._replace(going=domain.anywhere(active))

    nothing, one, active = jax.tree.map(jnp.zeros_like, right), jnp.ones_like(start), start > goal
    begin = _Bisearch(
        nothing,
        right,
        nothing,
        nothing,
        one,
        one,
        one,
        start,
        jnp.zeros((), jnp.int32),
        active,
        domain.anywhere(active),
    )
    body, begin = steady_carry(iterate, begin)
    end = lax.while_loop(lambda s: s.going, body, begin)
    return jax.tree.map(lambda u: jnp.where(end.square <= goal, u, jnp.nan), end.x)
