"""Tendency of a perfect gas along one axis: face values, numerical fluxes and what keeps them positive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.arguments import require_one_of
from simjax.ops.crossing_shocks import across_faces
from simjax.ops.positivity import CellAtFace, flux_share, limit_flux, limit_state, state_share
from simjax.ops.reconstruction import INTERPOLATIONS, LINEAR5, Reconstruction
from simjax.ops.riemann import (
    FLUXES,
    Conserved,
    Primitive,
    RiemannFlux,
    carry_scalars,
    conserved,
    exact_flux,
    hll,
    sound_speed,
    squared_norm,
)
from simjax.ops.spacing import Spacing
from simjax.stencil.materialise import for_each_leaf, formed_once, held_in_reverse, shared_in_reverse, stored
from simjax.stencil.windows import Windows, differences_of_windows, of_windows

QUIET = 1e-3
"""Part of the squared jumps of all waves around a face below which the roughness of one of them counts as none."""

LOUD = 0.01
"""Part of rho c^2 that pressure must differ by around a face for the two waves of sound to be told apart there.

In a slower flow both are nearly the velocity alone, and what their weights differ by would pass from it into the far
smaller pressure, from which the flow draws energy.
"""

BEND = 1 / 6
"""Part of the second differences beside a face that the curvature of the flux may have there.

Eight times what a parabola has; a wave of seven cells keeps all of its own.
"""

Variables = Literal["primitive", "characteristic"]

SCHEMES = {**INTERPOLATIONS, "igr": LINEAR5}
"""Interpolations to faces by the names of `GasScheme.reconstruction`."""


@dataclass(frozen=True)
class GasScheme:
    """Discretisation of the convective terms of a gas.

    reconstruction: "weno5" (Borges et al. 2008, J. Comput. Phys. 227, 3191), "mc", "van_leer", "minmod",
    "first_order", or "igr": linear, of fifth order, with an entropic pressure (`ops.igr`). variables: "characteristic"
    or "primitive", what is interpolated to faces; by "igr" both are the same. flux: "hllc_all_speed" (of
    `ops.riemann`), "hllc" (Toro, Spruce and Speares 1994, Shock Waves 4, 25), "hll" or "rusanov".

    Raises:
        ConfigurationError: a name that is none of these.

    Examples:
        >>> limited = sj.GasScheme(reconstruction="mc", variables="primitive", flux="hll")
        >>> gas = sj.Compressible(sj.Domain(sj.Grid((16, 16))), [(sj.PeriodicSide(), sj.PeriodicSide())] * 2, limited)
    """

    reconstruction: str = "weno5"
    variables: Variables = "characteristic"
    flux: str = "hllc_all_speed"

    def __post_init__(self):
        require_one_of("GasScheme.reconstruction", self.reconstruction, SCHEMES)
        require_one_of("GasScheme.variables", self.variables, get_args(Variables))
        require_one_of("GasScheme.flux", self.flux, FLUXES)

    @property
    def interpolation(self) -> Reconstruction:
        return SCHEMES[self.reconstruction]

    @property
    def regularised(self) -> bool:
        """Tell whether an entropic pressure pushes beside that of the gas."""
        return self.reconstruction == "igr"

    @property
    def reach(self) -> int:
        """Faces beyond that enter a flux, and so the widths on a stretched grid; see `AdvectionScheme`."""
        return 2 if self.interpolation.order > 2 else 0

    @property
    def riemann_flux(self) -> RiemannFlux:
        return FLUXES[self.flux]


def with_shocks(padded: Primitive, scheme: GasScheme) -> Primitive:
    """A block padded along all axes with the shocks across faces that the fluxes of `scheme` ask for."""
    ndim = len(padded.velocity)
    if scheme.flux != "hllc_all_speed" or ndim == 1:
        return padded
    return padded._replace(crossing=across_faces(padded, ndim))


def convective_flux(
    padded: Primitive, axis: int, ndim: int, gamma: Array, scheme: GasScheme, rises: Sequence[Array] | None = None
) -> Conserved:
    """Fluxes on the n + 1 faces along `axis` of a block padded along all axes, `with_shocks`.

    Point values are interpolated to the faces, so that any numerical flux of the two states there, with central
    differences of the exact flux added, is of the scheme's order in every dimension: Jiang, Shu and Zhang (2013),
    SIAM J. Sci. Comput. 35, A1137. `rises` are the hydrostatic differences of pressure between the 2 width cells
    around each face, from below to above; they are taken out of the pressure before it is interpolated.
    """
    return of_windows(
        *_flux_parts(axis, scheme), *_cells_around(padded, axis, ndim, scheme), _Given(gamma, rises), ndim
    )


def convective_differences(padded: Primitive, axis: int, ndim: int, gamma: Array, scheme: GasScheme) -> Conserved:
    """Differences of `convective_flux` between the two faces of each of the n cells along `axis`."""
    return differences_of_windows(
        *_flux_parts(axis, scheme), *_cells_around(padded, axis, ndim, scheme), _Given(gamma, None), ndim
    )


def limited_faces(
    padded: Primitive, axis: int, ndim: int, gamma: Array, scheme: GasScheme, rises: Sequence[Array] | None = None
) -> Array:
    """Truth values on the faces of `convective_flux`: where density or pressure would not be safe without a limiter.

    There face values are drawn to their cell, or the flux is mixed with a first-order one (`ops.positivity`).
    """
    width = scheme.interpolation.width
    *before, to_faces = _face_states(axis, scheme)

    def states(found, cells, gamma):
        left, right = to_faces(found, cells, gamma)
        share = jnp.minimum(state_share(left, cells[width - 1]), state_share(right, cells[width]))
        return _limited_states((left, right), cells), share

    def share(found, around, given) -> Array:
        flux, share = found[0], found[1]
        for part in _upwind_parts(axis, scheme):
            flux = part(flux, around, given)
        return jnp.minimum(share, flux_share(flux, *_cells_at_face(around, given, axis)))

    parts = [*map(_of_cells_at_rest, (*before, states)), share]
    around = _cells_around(padded, axis, ndim, scheme)
    return of_windows(_of_cell(axis), parts, *around, _Given(gamma, rises), ndim) < 1


class _Given(NamedTuple):
    """Values on faces: gamma, and hydrostatic rises of pressure if any."""

    gamma: Array
    rises: Sequence[Array] | None


def _cells_around(padded: Primitive, axis: int, ndim: int, scheme: GasScheme) -> tuple[Windows, Primitive]:
    """The cells on either side of each face along an axis, as many as the scheme reads, and what is there in them."""
    width = scheme.interpolation.width
    cells = [n - 2 * width for n in padded.density.shape[padded.density.ndim - ndim :]]

    def line(u: Array) -> Array:
        for k, n in enumerate(cells):
            if k != axis:
                array_axis = u.ndim - ndim + k
                beyond = (u.shape[array_axis] - n) // 2
                u = lax.slice_in_dim(u, beyond, beyond + n, axis=array_axis)
        return u

    crossing = None if padded.crossing is None else padded.crossing[axis]
    return Windows(line, axis, 2 * width), padded._replace(crossing=crossing)


def _flux_parts(axis: int, scheme: GasScheme) -> tuple[Callable, list[Callable]]:
    """Arguments of `of_windows` for fluxes: values of a cell, and the parts of a flux."""
    *before, to_faces = _face_states(axis, scheme)

    def states(found, cells, gamma) -> tuple[Primitive, Primitive]:
        return stored(_limited_states(to_faces(found, cells, gamma), cells))

    def limited(flux, around, given) -> Conserved:
        return stored(limit_flux(flux, *_cells_at_face(around, given, axis)))

    parts = [*map(_of_cells_at_rest, (*before, states)), *_upwind_parts(axis, scheme), limited]
    return _of_cell(axis), parts


def _of_cell(axis: int) -> Callable:
    """The part that gives primitives, conserved densities, their exact flux, the fastest signal and other values of a
    cell: Sigma, and the share of shocks along other axes."""

    def of_cell(w: Primitive, given) -> tuple[Primitive, Conserved, Conserved, Array, tuple]:
        q = conserved(w, given.gamma)
        speed = jnp.abs(w.velocity[axis]) + sound_speed(w, given.gamma)
        rest = w.entropic, w.crossing
        return w._replace(entropic=None, crossing=None), q, exact_flux(w, q, axis), speed, rest

    return of_cell


def _at_rest(around, given) -> list[Primitive]:
    """Primitives of the cells around each face without the hydrostatic part of the pressure."""
    cells = [cell for cell, *_ in around]
    return cells if given.rises is None else _without_rises(cells, given.rises)


def _of_cells_at_rest(part: Callable) -> Callable:
    return lambda found, around, given: part(found, _at_rest(around, given), given.gamma)


def _limited_states(sides: tuple[Primitive, Primitive], cells: list[Primitive]) -> tuple[Primitive, Primitive]:
    """Values on both sides of each face drawn to those of their cells as far as they must be."""
    below = len(cells) // 2 - 1
    return limit_state(sides[0], cells[below]), limit_state(sides[1], cells[below + 1])


def _upwind_parts(axis: int, scheme: GasScheme) -> list[Callable]:
    """The parts from values on both sides of each face to the flux that is then limited."""

    def upwind(sides, around, given) -> Conserved:
        left, right = sides
        flux = scheme.riemann_flux(left, right, axis, given.gamma)
        below, above = (rest[1] for *_, rest in around[len(around) // 2 - 1 :][:2])
        if below is not None:
            # Along a shock HLL spreads what differs between its cells, which else grows.
            crossing = jnp.maximum(below, above)
            flux = jax.tree.map(lambda f, g: f + crossing * (g - f), flux, hll(left, right, axis, given.gamma))
        return stored(carry_scalars(flux, left, right))

    def curved(flux, around, given) -> Conserved:
        resting = _at_rest(around, given)
        fluxes = [_lifted(flux, axis, w, cell) for w, (cell, _, flux, *_) in zip(resting, around, strict=True)]
        return jax.tree.map(jnp.add, flux, _curvature(fluxes, None if scheme.regularised else BEND))

    def pushed(flux, around, given) -> Conserved:
        below, above = ((cell.velocity[axis], rest[0]) for cell, *_, rest in around[len(around) // 2 - 1 :][:2])
        push = 0.5 * (below[1] + above[1])
        momentum = tuple(m + push if k == axis else m for k, m in enumerate(flux.momentum))
        work = 0.5 * (below[0] * below[1] + above[0] * above[1])
        return flux._replace(momentum=momentum, energy=flux.energy + work)

    return [upwind, *([curved] if scheme.reach else ()), *([pushed] if scheme.regularised else ())]


def _cells_at_face(around, given, axis: int) -> tuple[CellAtFace, CellAtFace, Array]:
    """The cell below and the one above each face, and the faster signal of the two."""
    cells, states, fluxes, speeds, _ = map(list, zip(*around, strict=True))
    resting, above = _at_rest(around, given), len(cells) // 2

    def cell_at(k: int) -> CellAtFace:
        flux = _lifted(fluxes[k], axis, resting[k], cells[k])
        return CellAtFace(states[k], flux, cells[k].pressure / (given.gamma - 1))

    return cell_at(above - 1), cell_at(above), jnp.maximum(speeds[above - 1], speeds[above])


def _without_rises(cells: list[Primitive], rises: Sequence[Array]) -> list[Primitive]:
    """Pressures less the hydrostatic one that vanishes at the face."""
    return [cell._replace(pressure=cell.pressure - h) for cell, h in zip(cells, _hydrostatic(rises), strict=True)]


def _hydrostatic(rises: Sequence[Array]) -> list[Array]:
    """The hydrostatic pressure in each cell around a face, zero at the face, from the differences between them."""
    width = (len(rises) + 1) // 2
    above = [0.5 * rises[width - 1]]
    below = [-above[0]]
    for k in range(1, width):
        above.append(above[-1] + rises[width - 1 + k])
        below.append(below[-1] - rises[width - 1 - k])
    return [*reversed(below), *above]


def _lifted(flux: Conserved, axis: int, at_rest: Primitive, cell: Primitive) -> Conserved:
    """`flux` with the pressure of the cell replaced by that without the hydrostatic part."""
    if at_rest is cell:
        return flux
    change = at_rest.pressure - cell.pressure
    return flux._replace(momentum=tuple(m + change if k == axis else m for k, m in enumerate(flux.momentum)))


class _Mean(NamedTuple):
    """The state halfway between two cells, which divides others into waves: amplitudes in units of density.

    square: of the speed of sound. per_velocity, per_pressure: amplitudes of a unit of these.
    """

    density: Array
    square: Array
    speed: Array
    per_velocity: Array
    per_pressure: Array

    @classmethod
    def of(cls, below: Primitive, above: Primitive, gamma: Array, difference: Array) -> "_Mean":
        """`difference`: the largest of the pressure around the face."""
        density = 0.5 * (below.density + above.density)
        square = 0.5 * gamma * (below.pressure / below.density + above.pressure / above.density)
        speed = jnp.sqrt(square)
        share = jnp.where(difference > LOUD * density * square, 0.5, jnp.ones_like(density))
        return cls(*formed_once((density, square, speed, share * density / speed, share / square)))

    @property
    def apart(self) -> Array:
        """One where the two waves of sound are told apart, zero where pressure and velocity are.

        Found from the share of a wave in the pressure, a half or one, which saves an array in memory.
        """
        return (self.per_pressure * self.square < 0.75).astype(self.density.dtype)

    def waves(self, w: Primitive, axis: int) -> Primitive:
        """Amplitudes of a state, each in the place of a variable."""
        push, swing = self.per_pressure * w.pressure, self.per_velocity * w.velocity[axis]
        velocity = tuple(self.apart * push - swing if k == axis else u for k, u in enumerate(w.velocity))
        return Primitive(w.density - (push + self.apart * push), velocity, push + self.apart * swing, w.scalars)

    def primitives(self, a: Primitive, axis: int) -> Primitive:
        """The state of these amplitudes."""
        backward, forward = a.velocity[axis], a.pressure
        both, turn = forward + self.apart * backward, self.speed / self.density
        velocity = tuple((self.apart * forward - backward) * turn if k == axis else u for k, u in enumerate(a.velocity))
        return Primitive(a.density + both, velocity, both * self.square, a.scalars)


def _face_states(axis: int, scheme: GasScheme) -> list[Callable]:
    """The parts that lead to (left, right) at the faces, interpolated variable by variable.

    Each is `part(found, cells, gamma)`, of what the part before gave.
    """
    width = scheme.interpolation.width
    if scheme.variables == "primitive" or scheme.regularised:
        return [lambda _, cells, gamma: _interpolate(cells, scheme.interpolation)]

    def amplitudes(cells: list[Primitive], mean: _Mean) -> list[Primitive]:
        return [mean.waves(cell, axis) for cell in cells]

    def mean_state(_, cells, gamma):
        ends = cells[0], cells[width - 1], cells[width], cells[-1]
        differences = [jnp.abs(a.pressure - b.pressure) for a, b in pairwise(ends)]
        largest = jnp.maximum(jnp.maximum(differences[0], differences[2]), differences[1])
        mean = _Mean.of(cells[width - 1], cells[width], gamma, largest)
        waves = amplitudes(cells, mean)
        # Frozen halfway, a wave that is not there is a parabola around the face, which alone would bend the weights.
        # Not only the jump at the face is asked: it vanishes on the axes of a vortex, where the parabola is one too.
        ends = waves[0], waves[width - 1], waves[width], waves[-1]
        jumps = [_squared_jump(a, b, axis, mean.per_velocity) for a, b in pairwise(ends)]
        return mean, formed_once(QUIET * (jumps[1] + (jumps[0] + jumps[2])))

    def interpolated(found, cells, gamma):
        mean, noise = found
        none = jnp.zeros_like(noise)
        others = tuple(noise if k == axis else none for k in range(len(cells[0].velocity)))
        level = Primitive(noise, others, noise, (none,) * len(cells[0].scalars))
        waves = _shared_by_variable(amplitudes(cells, mean))
        return mean, _interpolate(waves, scheme.interpolation, level)

    def primitives(found, cells, gamma):
        mean, (left, right) = found
        return held_in_reverse((mean.primitives(left, axis), mean.primitives(right, axis)))

    return [mean_state, interpolated, primitives]


def _shared_by_variable(cells: list[Primitive]) -> list[Primitive]:
    """Each variable of all cells `shared_in_reverse`: its cotangents lead to those of several variables."""
    trees = [jax.tree.flatten(cell) for cell in cells]
    columns = [shared_in_reverse(list(column)) for column in zip(*(leaves for leaves, _ in trees), strict=True)]
    return [trees[0][1].unflatten(cell) for cell in zip(*columns, strict=True)]


def _squared_jump(below: Primitive, above: Primitive, axis: int, per_velocity: Array) -> Array:
    """Sum of the squares of all waves' jumps; velocities across `axis` come as they are. Same if mirrored."""
    density, velocity, pressure, *_ = jax.tree.map(jnp.subtract, above, below)
    across = tuple(per_velocity * u for k, u in enumerate(velocity) if k != axis)
    return squared_norm((*across, density)) + squared_norm((velocity[axis], pressure))


def _interpolate(
    cells: list[Primitive], interpolation: Reconstruction, noise: Primitive | None = None
) -> tuple[Primitive, Primitive]:
    """(left, right) of every variable; `noise` is the roughness that counts as none."""
    count = len(cells)

    def upwind(*points: Array) -> Array:
        return interpolation.upwind(*points[:-1], noise=points[-1], cut=held_in_reverse)

    def upwind_of_any(*points: Array) -> Array:
        return interpolation.upwind(*points, cut=held_in_reverse)

    if noise is None:
        at_faces, level = for_each_leaf(upwind_of_any, cells), ()
    else:
        at_faces, level = for_each_leaf(upwind, [*cells, noise]), (count,)
    return at_faces(*range(count - 1), *level), at_faces(*range(count - 1, 0, -1), *level)


def _curvature(fluxes: list[Conserved], bend: float | None) -> Conserved:
    """-h^2/24 f'' + 7 h^4/5760 f'''' at the face from six point values, a linear combination of them without a `bend`.

    With it at most this part of the second differences of the three cells on either side, of which a smooth flux needs
    1/48. At a kink, as at a side with a given state, these are small, and the six alone would tell of one of 1 / h.
    """

    def combine(a, b, c, d, e, f):
        below, above = (a + c) - 2 * b, (d + f) - 2 * e
        curvature = (19 / 3840) * (below + above) - (99 / 3840) * ((b + e) - (c + d))
        if bend is None:
            return curvature
        most = bend * (jnp.abs(below) + jnp.abs(above))
        return jnp.maximum(jnp.minimum(curvature, most), -most)

    return jax.tree.map(combine, *fluxes)


def hydrostatic_rises(
    density: Array, gravity: Array, axis: int, ndim: int, spacing: Spacing, width: int
) -> list[Array]:
    """h g rho between each two of the 2 width cells around a face, by the trapezoidal rule; one sign each.

    `density` is padded along `axis` only; `gravity` like it, or a scalar. spacing: between the centres of neighbours.
    """
    array_axis = density.ndim - ndim + axis

    def means(u):
        n = u.shape[array_axis]
        lower, upper = lax.slice_in_dim(u, 0, n - 1, axis=array_axis), lax.slice_in_dim(u, 1, n, axis=array_axis)
        return 0.5 * (lower + upper)

    rise = spacing * means(density) * (gravity if gravity.ndim == 0 else means(gravity))
    faces = density.shape[array_axis] - 2 * width + 1
    return [lax.slice_in_dim(rise, k, k + faces, axis=array_axis) for k in range(2 * width - 1)]
