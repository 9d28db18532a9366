"""Inverses of -div(k grad x) around bodies by the direct solve without them.

Where no face of a cell and no neighbour is touched by a body, the residual that the direct solve leaves is zero. What
it leaves in the other cells is made up for by sources there: their number is that of cells along the surface, and they
obey a small dense system, the capacitance matrix (Buzbee, Dorr, George and Golub 1971, SIAM J. Numer. Anal. 8, 722).
"""

import itertools
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from simjax.core.boundary import Dirichlet, FieldLayout
from simjax.core.domain import Domain
from simjax.jaxpr.varying import vary_like
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.solvers import dense
from simjax.solvers.elliptic import Elliptic, crop, cut, difference, elliptic
from simjax.solvers.implicit_derivative import symmetric_solve
from simjax.solvers.modes import modes_along
from simjax.solvers.multigrid import Approximate
from simjax.solvers.poisson import spectral_inverse, spectral_inverse_within

# An inverse of 2800 unknowns takes some three seconds of a core.
MOST_SOURCES = 3072
# Bytes of the matrix, in those of a field: fewer than some three iterations by multigrid move.
MOST_FIELDS = 40
# Error of what the matrix gives back of a probe of its inverse, in roundings: 140 to 2800 sources around round bodies
# left 70 to 2100, and the residual of a solve was within twice that of the direct solve without bodies.
MOST_ROUNDINGS = 10000


def most_sources(domain: Domain) -> int:
    """The number of cells beside bodies up to which a capacitance matrix pays."""
    return min(MOST_SOURCES, math.isqrt(MOST_FIELDS * domain.grid.cells))


Window = tuple[tuple[int, ...], tuple[int, ...]]


class Sources(eqx.Module):
    """Cells beside bodies, in a list of fixed length, and the inverse of the capacitance matrix between them.

    places: for each axis the index in the whole grid; there: which entries of the list are cells. matrix: zero where
    they were more than the list holds, or where bodies part the fluid into regions, for which it is singular. exact:
    whether it is the inverse to rounding.
    """

    places: tuple[Array, ...]
    there: Array
    matrix: Array
    exact: Array

    def _within(self, domain: Domain) -> tuple[tuple[Array, ...], Array]:
        """Indices within this block, clipped to it, and a mask of those that lie in it."""
        own = [place - domain.first_index(axis) for axis, place in enumerate(self.places)]
        inside = self.there
        for place, n in zip(own, domain.block_shape, strict=True):
            inside = inside & (place >= 0) & (place < n)
        return tuple(jnp.clip(p, 0, n - 1) for p, n in zip(own, domain.block_shape, strict=True)), inside

    def of(self, domain: Domain, field: Array) -> Array:
        """The values of a field in these cells, on every device."""
        places, inside = self._within(domain)
        return domain.total(jnp.where(inside, field[places], 0))

    def added(self, domain: Domain, field: Array, values: Array) -> Array:
        """A field with values added in these cells."""
        places, inside = self._within(domain)
        return field.at[places].add(jnp.where(inside, values, 0))


class Unobstructed(eqx.Module):
    """The direct solve without bodies on the cells with fluid: a symmetric positive operator, like a `Multigrid`.

    With `sources` it is the inverse to rounding. Alone it is as near to it as the energy of a field around bodies is to
    that of its smoothest continuation through them: mesh-independent, and worse the narrower gaps are. joined: whether
    the fluid is known to be one region, for which sources serve. within: cells of a block from the first to before the
    second, among which all sources lie, not on their rim; None: it is not known.
    """

    operator: Elliptic
    layout: FieldLayout
    connected: Array
    sources: Sources | None
    joined: bool = eqx.field(static=True)
    within: Window | None = eqx.field(static=True)

    def inverses(self, shift) -> tuple[Array, ...]:
        """Inverse diagonals for smoothing: none, since the solve is direct."""
        del shift
        return ()

    def cycle(self, right: Float[Array, "..."], shift, inverses: Sequence[Array]) -> Float[Array, "..."]:
        """Approximate solution of A x = right, whose shift counts as zero."""
        del shift, inverses
        return self._without_mean(self.solution(right))

    def solution(self, right: Float[Array, "..."]) -> Float[Array, "..."]:
        """`cycle` up to a constant where that has no image."""
        if self.sources is None:
            return self._without_bodies(right)
        domain = self.operator.domain
        left = self.sources.of(domain, self._left(right))
        strength = jnp.matmul(self.sources.matrix, left, precision=lax.Precision.HIGHEST)
        return self._without_bodies(self.sources.added(domain, right, strength))

    def _left(self, right: Array) -> Array:
        """The residual of the solve without bodies, right where sources may lie."""
        if self.within is None:
            return right - self.operator(self._without_bodies(right), 0.0)
        domain, (start, stop) = self.operator.domain, self.within
        found = spectral_inverse_within(domain, self.layout, right, start, stop)
        x = jnp.where(lax.slice(self.connected, start, stop), -found, 0.0)
        first, last, ndim = [k + 1 for k in start], [k - 1 for k in stop], x.ndim
        image = jnp.zeros((), x.dtype)
        for axis, k in enumerate(self.operator.conductances):
            faces = lax.slice(k, first, [n + (axis == own) for own, n in enumerate(last)])
            image = image - difference(faces * difference(crop(x, ndim, axis), axis - ndim), axis - ndim)
        ends = [(one, n - other, 0) for one, other, n in zip(first, last, right.shape, strict=True)]
        return right - lax.pad(image, jnp.zeros((), x.dtype), ends)

    def _without_mean(self, x: Array) -> Array:
        """A field without its mean where a constant has no image: the shift alone would hold against one."""
        if not self.operator.closed:
            return x
        domain = self.operator.domain
        mean = domain.sum(x) / domain.sum(self.connected.astype(x.dtype))
        return jnp.where(self.connected, x - mean, 0.0)

    def _without_bodies(self, right: Array) -> Array:
        found = spectral_inverse(self.operator.domain, self.layout, right)
        return jnp.where(self.connected, -found, 0.0)


class SinglePrecision(eqx.Module):
    """An approximate inverse in single precision, within conjugate gradients of double precision."""

    domain: Domain
    inverse: Approximate

    def inverses(self, shift) -> tuple[Array, ...]:
        return self.inverse.inverses(self._shift(shift))

    def cycle(self, right: Float[Array, "..."], shift, inverses: Sequence[Array]) -> Float[Array, "..."]:
        """The approximate solution, for a right side scaled to numbers that single precision has."""
        size = self.domain.max(jnp.abs(right))
        scaled = right * jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1.0), 0.0)
        found = self.inverse.cycle(scaled.astype(jnp.float32), self._shift(shift), inverses)
        return size * found.astype(right.dtype)

    def _shift(self, shift):
        """A shift that still holds what nothing else does where rounding is that of single precision."""
        eps = float(jnp.finfo(jnp.float32).eps)
        return jnp.asarray(shift + 100 * eps * sum(1 / h**2 for h in self.domain.grid.mean_spacing), jnp.float32)


def unobstructed(
    operator: Elliptic, layout: FieldLayout, capacity: int = 0, joined: bool = False, within: Window | None = None
) -> Unobstructed:
    """The direct solve without bodies, with up to `capacity` sources beside them; carries no gradient.

    Args:
        operator: -div(k grad x) on a uniform grid, an axisymmetric one too, with k = 1 away from bodies.
        layout: of x.
        capacity: length of the list of sources; 0: none.
        joined: whether the fluid is known to be one region, and the list long enough.
        within: see `Unobstructed`.
    """
    conductances = lax.stop_gradient(operator.conductances)
    operator = Elliptic(operator.domain, operator.layout, conductances, operator.mass, operator.closed)
    connected = operator.diagonal(0.0) > 0
    sources = _sources(operator, layout, connected, capacity) if capacity else None
    if joined and sources is not None:
        matrix = jnp.where(sources.exact, sources.matrix, jnp.nan)
        sources = Sources(sources.places, sources.there, matrix, sources.exact)
    return Unobstructed(operator, layout, connected, sources, joined, within)


def _sources(operator: Elliptic, layout: FieldLayout, connected: Array, capacity: int) -> Sources:
    domain = operator.domain
    shape, dtype = domain.grid.shape, jnp.result_type(*operator.conductances)
    altered = domain.gather((_altered(operator, layout) & connected).astype(jnp.int32)).ravel()
    numbers = jnp.nonzero(altered, size=capacity, fill_value=altered.size)[0].astype(jnp.int32)
    there = numbers < altered.size
    places = jnp.unravel_index(jnp.where(there, numbers, 0), shape)
    empty = Sources(tuple(places), there, jnp.zeros((), dtype), jnp.zeros((), bool))
    unit = jnp.eye(capacity, dtype=dtype)
    matrix = jnp.where(there[:, None] & there[None, :], _capacitance(operator, layout, empty), unit)
    matrix = lax.optimization_barrier(matrix)  # else it is formed anew in each use
    inverse = dense.inverse(matrix)
    # Regions that bodies part make it singular: then what it gives back is not what was put in.
    probe = 1.0 + (jnp.arange(capacity) % 3).astype(dtype)
    back = jnp.matmul(matrix, jnp.matmul(inverse, probe, precision=lax.Precision.HIGHEST))
    error, whole = jnp.max(jnp.abs(back - probe)), jnp.sum(altered) <= capacity
    exact = whole & (error < MOST_ROUNDINGS * jnp.finfo(dtype).eps)
    return Sources(tuple(places), there, jnp.where(whole & (error < 1e-2), inverse, 0.0), exact)


def solve_around(
    operator: Elliptic,
    inverse: Approximate,
    right: Float[Array, "..."],
    known: Float[Array, "..."],
    iterated: Callable[[Array, Array], Array],
) -> Array:
    """x with -div(k grad x) = right, up to a constant where that has no image: one cycle where that is the inverse to
    rounding, else what `iterated` finds.

    The residual of a direct solve is that of the solve without bodies: roundings of the largest terms of A x. Where the
    fluid is known to be one region nothing is iterated, and x is not a number should sources not serve after all.

    Args:
        operator: A, differentiable in its conductances.
        inverse: near its inverse.
        right: this block's right side, without a mean where A is singular.
        known: what x is a change of.
        iterated: x of a right side and `known`, for an inverse that is not exact; differentiable.
    """
    if not isinstance(inverse, Unobstructed) or inverse.sources is None:
        return iterated(right, known)
    exact = inverse.sources.exact
    operator, solution, right = vary_like((operator, inverse.solution, right), (operator, right))

    def direct(_, right: Array) -> Array:
        return vary_like(solution(right), right)

    found = symmetric_solve(lambda x: operator(x, 0.0), right, direct)
    if inverse.joined:
        return found
    # Nothing is left to iterate for where the direct solve is exact. A condition is none that jax batches on devices.
    return jnp.where(exact, found, iterated(jnp.where(exact, 0.0, right), known))


def _altered(operator: Elliptic, layout: FieldLayout) -> Array:
    """Cells with a face whose conductance is not that without bodies, but for roundings of a face's radius."""
    domain = operator.domain
    rounding = 8 * float(jnp.finfo(jnp.result_type(*operator.conductances)).eps)
    plain = elliptic(domain, layout, [jnp.ones_like(k) for k in operator.conductances]).conductances
    altered = jnp.zeros(domain.block_shape, bool)
    for axis, (n, k, free) in enumerate(zip(domain.block_shape, operator.conductances, plain, strict=True)):
        differs = jnp.abs(k - free) > rounding * free
        altered = altered | cut(differs, axis, 0, n) | cut(differs, axis, 1, n + 1)
    return altered


def _capacitance(operator: Elliptic, layout: FieldLayout, sources: Sources) -> Array:
    """A times the response to a source in each of the cells: what it leaves on the right side in all of them."""
    domain = operator.domain
    shape = domain.grid.shape
    response = _response(domain, layout, jnp.result_type(*operator.conductances))
    diagonal = sources.of(domain, operator.diagonal(0.0))
    matrix = diagonal[:, None] * response(sources.places, sources.places)
    for axis, (n, k) in enumerate(zip(domain.block_shape, operator.conductances, strict=True)):
        for by, face in ((-1, cut(k, axis, 0, n)), (1, cut(k, axis, 1, n + 1))):
            beside = sources.places[axis] + by
            inside = layout.is_periodic(axis) | ((beside >= 0) & (beside < shape[axis]))
            through = jnp.where(inside, sources.of(domain, face), 0.0)
            there = [beside if k == axis else place for k, place in enumerate(sources.places)]
            matrix = matrix - through[:, None] * response(there, sources.places)
    return matrix


def _response(domain: Domain, layout: FieldLayout, dtype):
    """A function of places i and j: x in cell i of -div(grad x) = 1 in cell j, a row for each i.

    Sides reflect sources, with the sign of the condition: what is left is a periodic grid of twice the length, or of
    four times where both sides differ. Around an axis, where -div(grad x) counts with the volumes of cells, that holds
    along z for each of the modes along r.
    """
    lengths, images = [], []
    ndim, rings = domain.grid.ndim, domain.grid.axisymmetric
    across = modes_along(domain, layout, dtype)[RADIAL] if rings else None
    straight = [axis for axis in range(ndim) if not (rings and axis == RADIAL)]
    for axis in straight:
        n = domain.grid.shape[axis]
        lower, upper = (-1 if isinstance(side, Dirichlet) else 1 for side in layout.boundaries[axis])
        if layout.is_periodic(axis):
            lengths.append(n)
            images.append([(1, 1, 0)])
        elif lower == upper:
            lengths.append(2 * n)
            images.append([(1, 1, 0), (lower, -1, -1)])
        else:
            lengths.append(4 * n)
            images.append([(1, 1, 0), (lower, -1, -1), (upper, -1, 2 * n - 1), (lower * upper, 1, 2 * n)])
    total = jnp.zeros((1,) * ndim, dtype) if across is None else -across.rates[:, None]
    for axis, length in zip(straight, lengths, strict=True):
        count = length // 2 + 1 if axis == ndim - 1 else length
        waves = jnp.sin(np.pi / length * jnp.arange(count, dtype=dtype))
        part = (2 / domain.grid.mean_spacing[axis] * waves) ** 2
        total = total + part.reshape([-1 if k == axis else 1 for k in range(ndim)])
    inverse = jnp.where(total == 0, 0.0, 1 / jnp.where(total == 0, 1.0, total))
    unit = jnp.fft.irfftn(lax.complex(inverse, jnp.zeros_like(inverse)), lengths, axes=straight)
    unit = unit.reshape(-1 if across is None else len(across.rates), *() if across is None else (-1,))

    def between(number: Array, there: Array, sources: Array) -> Array:
        """The sum over modes along r of what is `number` along the other axes, a row for each place."""
        assert across is not None
        own, others, table = across.vectors[there], across.vectors[sources], unit.T
        return lax.map(lambda row: jnp.sum(row[0][None] * others * table[row[1]], 1), (own, number))

    def response(there: Sequence[Array], sources: Sequence[Array]) -> Array:
        found = jnp.zeros((), dtype)
        places = [(there[axis], sources[axis]) for axis in straight]
        for image in itertools.product(*images):
            sign, number = 1, jnp.zeros((), jnp.int32)
            for length, (own, factor, ahead), (i, j) in zip(lengths, image, places, strict=True):
                sign = sign * own
                number = number * length + jnp.mod(i[:, None] - (factor * j + ahead)[None, :], length)
            through = unit[number] if across is None else between(number, there[RADIAL], sources[RADIAL])
            found = found + sign * through
        return found

    return response
