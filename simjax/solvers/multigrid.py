"""Geometric multigrid for variable coefficients on a decomposed grid: one symmetric V-cycle.

Cells are halved in number along the axes of the finest spacing until so few are left that their modes are found. A
cell's value is interpolated between the centre of its own coarse cell and that of the next one so that the flux
between them is the same all the way (for vertices Alcouffe, Brandt, Dendy and Painter 1981, SIAM J. Sci. Stat.
Comput. 2, 430): with resistance as the inverse of conductance, weights are inverse to the resistances on both sides.
The coarse conductance is that of the same path in series, summed over the parallel ones. So jumps of many orders,
faces without any conductance, and cells without a partner need no special case.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from simjax.core.boundary import FieldLayout, Neumann, center_layout
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.jaxpr.varying import vary_like
from simjax.solvers.dense import eigenvectors
from simjax.solvers.elliptic import Elliptic, cut
from simjax.solvers.implicit_derivative import symmetric_solve
from simjax.solvers.krylov import Solution, conjugate_gradient

# Below this many cells a level is cheaper on every device than divided among them.
GATHERED_CELLS = 4096
# At most this many cells are solved for directly.
BOTTOM_CELLS = 128
# Before and after each correction. Two are up to a tenth faster where k is smooth, but need 23 iterations where it
# jumps by 1e6 and cells are four times as long as wide.
SMOOTHING_STEPS = 3


@runtime_checkable
class Approximate(Protocol):
    """A symmetric positive operator near the inverse of shift m x - div(k grad x)."""

    def inverses(self, shift) -> tuple[Array, ...]:
        """Numbers that `cycle` needs beside the shift."""
        ...

    def cycle(self, right: Float[Array, "..."], shift, inverses: Sequence[Array]) -> Float[Array, "..."]:
        """The approximate solution for a right side."""
        ...


class Gathering(eqx.Module):
    """From blocks to the whole grid on every device."""

    domain: Domain

    def restrict(self, residual: Array) -> Array:
        return self.domain.gather(residual)

    def prolong(self, correction: Array) -> Array:
        return self.domain.scatter(correction)


class Halving(eqx.Module):
    """Pairs of cells along `axis` become one. even, odd: the share that a pair's first and second cell take from
    their own coarse cell; the rest is the neighbour's. `prolong` and `restrict` are transposes of each other.
    """

    axis: int = eqx.field(static=True)
    cells: int = eqx.field(static=True)
    domain: Domain
    layout: FieldLayout
    even: Array
    odd: Array

    def restrict(self, residual: Array) -> Array:
        """Each cell's residual given to the coarse cells that it is interpolated from."""
        return self.restrict_by(residual, self.even, self.odd)

    def restrict_by(self, fine: Array, even: Array, odd: Array) -> Array:
        """`restrict` of an array with another length across, with weights like it."""
        fine = _append(fine, self.axis, jnp.zeros((), fine.dtype)) if self.cells % 2 else fine
        n = fine.shape[self.axis]
        first, second = cut(fine, self.axis, 0, n, 2), cut(fine, self.axis, 1, n, 2)
        kept = even * first + odd * second
        down, up = first - even * first, second - odd * second
        (_, from_above), (from_below, _) = self.domain.beside((down, up), self.layout, self.axis)
        return kept + self._shifted(down, from_above, 1) + self._shifted(up, from_below, -1)

    def prolong(self, coarse: Array) -> Array:
        """The correction at every cell, interpolated."""
        ((below, above),) = self.domain.beside(coarse, self.layout, self.axis)
        lower, upper = self._shifted(coarse, below, -1), self._shifted(coarse, above, 1)
        first = lower + self.even * (coarse - lower)
        second = upper + self.odd * (coarse - upper)
        n = 2 * coarse.shape[self.axis]
        shape = tuple(n if k == self.axis else m for k, m in enumerate(coarse.shape))
        pairs = jnp.stack([first, second], axis=self.axis + 1).reshape(shape)
        return cut(pairs, self.axis, 0, self.cells) if self.cells != n else pairs

    def _shifted(self, u: Array, ghost: Array, by: int) -> Array:
        """u[i + by], with the ghost line at the end where it runs out."""
        n = u.shape[self.axis]
        if by > 0:
            return jnp.concatenate([cut(u, self.axis, 1, n), ghost], axis=self.axis)
        return jnp.concatenate([ghost, cut(u, self.axis, 0, n - 1)], axis=self.axis)


class Level(eqx.Module):
    """An operator, and the transfers from its grid to that of the next level."""

    operator: Elliptic
    transfers: tuple[Gathering | Halving, ...]


class Bottom(eqx.Module):
    """The coarsest operator by its modes: shift m x + K x, with m^-1/2 K m^-1/2 = modes diag(rates) modes^T."""

    modes: Array
    rates: Array
    scale: Array

    def inverse(self, shift) -> Array:
        """Inverse of every mode; zero where the operator is singular."""
        return _inverse(shift + self.rates)

    def solve(self, right: Array, inverse: Array) -> Array:
        """x with shift m x + K x = right, as far as that is possible."""
        amplitudes = inverse * ((self.scale * right).ravel() @ self.modes)
        return self.scale * (self.modes @ amplitudes).reshape(right.shape)


class Multigrid(eqx.Module):
    """The levels of shift m x - div(k grad x), independent of `shift`."""

    levels: tuple[Level, ...]
    bottom: Bottom

    def inverses(self, shift) -> tuple[Array, ...]:
        """Factors of the smoothing on every level, zero in cells connected to nothing, and the bottom's."""
        return (*(_inverse(level.operator.diagonal(shift)) for level in self.levels), self.bottom.inverse(shift))

    def cycle(self, right: Float[Array, "..."], shift, inverses: Sequence[Array], number: int = 0):
        """Approximate solution of A x = right by one V(3,3)-cycle: a symmetric positive operator.

        It may overshoot where k varies by orders of magnitude between coarse cells, so it is made for conjugate
        gradients, which do not mind. Smoothing is three steps of Chebyshev's fourth kind scaled by the diagonal,
        before and after (Lottes 2023, Numer. Linear Algebra Appl. 30, e2518). Rows are diagonally dominant, so the
        scaled spectrum ends at 2 or below and no eigenvalue need be estimated.
        """
        if number == len(self.levels):
            return self.bottom.solve(right, inverses[number])
        operator, inverse = self.levels[number].operator, inverses[number]
        # Without barriers the compiler computes what a stencil reads anew for every neighbour.
        x, residual = lax.optimization_barrier(_smooth(operator, shift, inverse, right))
        coarse = residual
        for transfer in self.levels[number].transfers:
            coarse = lax.optimization_barrier(transfer.restrict(coarse))
        correction = self.cycle(coarse, shift, inverses, number + 1)
        for transfer in reversed(self.levels[number].transfers):
            correction = lax.optimization_barrier(transfer.prolong(correction))
        residual = lax.optimization_barrier(residual - operator(correction, shift))
        change, _ = _smooth(operator, shift, inverse, residual, last=True)
        return x + correction + change


def _smooth(operator: Elliptic, shift, inverse: Array, right: Array, last: bool = False) -> tuple[Array, Array]:
    """Smoothing steps from zero, and the residual that they leave (that before the last step, if they are the last).

    Step k adds z_k = (2k - 3) / (2k + 1) z_{k-1} + (8k - 4) / (2k + 1) / 2 D^-1 r, z_0 = 0.
    """
    residual = right
    x = change = lax.optimization_barrier((2 / 3) * inverse * right)
    for k in range(2, SMOOTHING_STEPS + 1):
        residual = lax.optimization_barrier(residual - operator(change, shift))
        change = lax.optimization_barrier(((2 * k - 3) * change + (4 * k - 2) * inverse * residual) / (2 * k + 1))
        x = x + change
    return x, residual if last else residual - operator(change, shift)


def multigrid(operator: Elliptic, gathered_cells: int = GATHERED_CELLS) -> Multigrid:
    """The hierarchy below `operator`: the same numbers on every decomposition.

    Levels stay divided among devices while blocks halve and the level has more than `gathered_cells` cells; below,
    every device computes all of it. Carries no gradient: it only has to be near the inverse.
    """
    conductances, mass = lax.stop_gradient((operator.conductances, operator.mass))
    operator = Elliptic(operator.domain, operator.layout, conductances, mass, operator.closed)
    levels = []
    while operator.domain.grid.cells > BOTTOM_CELLS or operator.domain.names:
        domain, transfers, coarse = operator.domain, [], operator
        axes = _axes_to_halve(domain.grid) if domain.grid.cells > BOTTOM_CELLS else []
        halves = all(domain.split[axis] is None or domain.block_shape[axis] % 2 == 0 for axis in axes)
        # A level that is divided must leave one that is worth dividing.
        worthwhile = domain.grid.cells > max(gathered_cells, BOTTOM_CELLS * 2 ** len(axes))
        if domain.names and not (halves and worthwhile):
            transfers.append(Gathering(domain))
            coarse = _gathered(operator)
        for axis in axes:
            halving, coarse = _halve(coarse, axis)
            transfers.append(halving)
        levels.append(Level(operator, tuple(transfers)))
        operator = coarse
    return Multigrid(tuple(levels), _bottom(operator))


def _bottom(operator: Elliptic) -> Bottom:
    shape, dtype = operator.domain.grid.shape, jnp.result_type(*operator.conductances)
    mass = jnp.broadcast_to(operator.mass, shape)
    scale = jnp.where(mass > 0, 1 / jnp.sqrt(jnp.where(mass > 0, mass, 1.0)), 0.0)
    cells = mass.size
    units = jnp.eye(cells, dtype=dtype).reshape(cells, *shape)
    matrix = jax.vmap(lambda unit: scale * operator(scale * unit, 0.0))(units).reshape(cells, cells)
    rates, modes = eigenvectors(matrix)
    # Rates that are zero but for rounding are zero: constants of what no wall holds.
    small = cells * float(jnp.finfo(dtype).eps) * jnp.max(jnp.abs(rates))
    return Bottom(modes, jnp.where(rates > small, rates, 0.0), scale)


def solve_elliptic(
    operator: Elliptic,
    hierarchy: Approximate,
    right: Float[Array, "..."],
    shift,
    *,
    tolerance: float,
    limit: int = 50,
    scale: Float[Array, ""] | float = 0.0,
) -> Solution:
    """x with shift m x - div(k grad x) = right, by conjugate gradients with an approximate inverse.

    Args:
        operator: A, differentiable in its conductances.
        hierarchy: near the inverse of the same operator: of `multigrid`, one V-cycle.
        right: this block's right-hand side.
        shift: at least zero. With a Python 0.0, x is zero in cells connected to nothing; with closed walls too A is
            singular, and means of `right` and x over the other cells are taken as zero.
        tolerance: of |right - A x| / (|right|^2 + scale^2)^(1/2); no lower than ten roundings.
        limit: most iterations; the solution is not a number where they did not suffice.
        scale: of what `right` is a part of; it counts in this solve only, not in those for derivatives.

    With closed walls the sum of shift m x is that of `right` to rounding, whatever the tolerance. The derivative is
    implicit: one more solve, as A is symmetric.
    """
    steady = isinstance(shift, float) and shift == 0.0
    # It varies with the right side, by nothing: reverse mode takes no part of a right side that does not.
    scale = lax.stop_gradient(scale) + 0 * right.ravel()[0]
    operator, hierarchy, right, shift, scale = vary_like(
        (operator, hierarchy, right, shift, scale), (operator, right, shift, scale)
    )
    domain = operator.domain
    tolerance = max(tolerance, 10 * float(jnp.finfo(right.dtype).eps))
    still = lax.stop_gradient(shift)
    inverses = hierarchy.inverses(still)
    connected = operator.diagonal(still) > 0
    singular = steady and operator.closed

    def precondition(residual):
        return hierarchy.cycle(residual, still, inverses)

    def solve(matvec, given):
        right, scale = given
        right = _without_mean(domain, right, connected) if singular else right
        found = conjugate_gradient(
            lambda x: matvec((x, scale))[0],
            right,
            domain=domain,
            precondition=precondition,
            tolerance=tolerance,
            limit=limit,
            scale=scale,
        )
        x = jnp.where(connected, found.solution, 0.0) if steady else found.solution
        if singular:
            x = _without_mean(domain, x, connected)
        elif operator.closed:
            missing = domain.sum(right) - domain.sum(still * operator.mass * x)
            x = x + missing / domain.sum(jnp.broadcast_to(still * operator.mass, right.shape))
        # The primitive's results must vary alike.
        return vary_like(((x, scale), (found.iterations, found.residual)), right)

    # The scale goes along, so that what it is a part of has none where derivatives are solved for.
    def matvec(pair):
        return operator(pair[0], shift), pair[1]

    (x, _), (iterations, residual) = symmetric_solve(matvec, (right, scale), solve, has_aux=True)
    return Solution(x, domain.max(iterations), domain.max(residual))


def _without_mean(domain: Domain, u: Array, where: Array) -> Array:
    """`u` less its mean over the cells `where`, and zero elsewhere."""
    mean = domain.sum(jnp.where(where, u, 0.0)) / domain.sum(where.astype(u.dtype))
    return jnp.where(where, u - mean, 0.0)


def _axes_to_halve(grid: Grid) -> list[int]:
    """Axes whose mean spacing is at most twice the finest: point smoothing leaves errors smooth along these only."""
    spacing = {axis: h for axis, h in enumerate(grid.mean_spacing) if grid.shape[axis] > 1}
    finest = min(spacing.values())
    return [axis for axis, h in spacing.items() if h <= 2 * finest * (1 + 1e-9)]


def _gathered(operator: Elliptic) -> Elliptic:
    domain = operator.domain
    whole = []
    for axis, k in enumerate(operator.conductances):
        n = domain.block_shape[axis]
        lower, upper = domain.gather(cut(k, axis, 0, n)), domain.gather(cut(k, axis, 1, n + 1))
        last = domain.grid.shape[axis]
        whole.append(jnp.concatenate([lower, cut(upper, axis, last - 1, last)], axis=axis))
    mass = domain.gather(operator.mass) if operator.mass.ndim else operator.mass
    return Elliptic(domain.unsplit(), operator.layout, tuple(whole), mass, operator.closed)


def _halve(operator: Elliptic, axis: int) -> tuple[Halving, Elliptic]:
    """The transfer to a grid of half as many cells along `axis`, and the operator there."""
    fine, layout = operator.domain, operator.layout
    cells = fine.block_shape[axis]
    grid = fine.grid
    shape = tuple((n + 1) // 2 if k == axis else n for k, n in enumerate(grid.shape))
    coarse = Domain(Grid(shape, grid.lower, grid.upper), fine.split)
    across, even, odd = _series(coarse, layout, operator.conductances[axis], axis, cells)
    halving = Halving(axis, cells, coarse, layout, even, odd)
    conductances = [
        across if k == axis else _parallel(halving, conductance, k)
        for k, conductance in enumerate(operator.conductances)
    ]
    mass = jnp.broadcast_to(operator.mass, fine.block_shape)
    return halving, Elliptic(coarse, layout, tuple(conductances), halving.restrict(mass), operator.closed)


def _series(coarse: Domain, layout: FieldLayout, conductance: Array, axis: int, cells: int):
    """Conductances between coarse centres, and the shares `even` and `odd` of a `Halving`."""
    if cells % 2:
        # The partner that the last cell lacks: the same place as that cell.
        last = cut(conductance, axis, cells, cells + 1)
        joined = jnp.concatenate([cut(conductance, axis, 0, cells), jnp.full_like(last, jnp.inf), last], axis=axis)
        conductance = joined
    n = coarse.block_shape[axis]
    # A coarse centre is on the face inside its pair: half of that face's resistance lies on either side of it.
    half = 0.5 / cut(conductance, axis, 1, 2 * n, 2)
    between = 1 / cut(conductance, axis, 0, 2 * n + 1, 2)
    ((below, above),) = coarse.beside(half, layout, axis)
    halves = jnp.concatenate([below, half, above], axis=axis)
    left, right = cut(halves, axis, 0, n + 1), cut(halves, axis, 1, n + 2)
    towards_lower = 1 / (cut(between, axis, 0, n) + cut(halves, axis, 0, n))
    towards_upper = 1 / (cut(between, axis, 1, n + 1) + cut(halves, axis, 2, n + 2))
    even, odd = (jnp.where(b > 0, 1 / (1 + half * b), 1.0) for b in (towards_lower, towards_upper))
    return 1 / (left + between + right), even, odd


def _parallel(halving: Halving, conductance: Array, axis: int) -> Array:
    """Conductances along another axis than the halved one, summed as the cells beside them are interpolated."""
    domain, layout = halving.domain, halving.layout
    edges = center_layout(
        [pair if layout.is_periodic(k) else (Neumann(), Neumann()) for k, pair in enumerate(layout.boundaries)]
    )
    shares = []
    ghosts = domain.beside((halving.even, halving.odd), edges, axis)
    for share, (below, above) in zip((halving.even, halving.odd), ghosts, strict=True):
        n = share.shape[axis]
        padded = jnp.concatenate([below, share, above], axis=axis)
        shares.append(0.5 * (cut(padded, axis, 0, n + 1) + cut(padded, axis, 1, n + 2)))
    return halving.restrict_by(conductance, *shares)


def _append(u: Array, axis: int, value: Array) -> Array:
    """`u` with one more line of `value` at the end of `axis`."""
    return lax.pad(u, value, [(0, int(k == axis), 0) for k in range(u.ndim)])


def _inverse(u: Array) -> Array:
    return jnp.where(u > 0, 1 / jnp.where(u > 0, u, 1.0), 0.0)
