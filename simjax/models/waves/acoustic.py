"""Acoustic waves in a medium of variable speed and density."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.arguments import require_at_least
from simjax.core.boundary import FieldLayout, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.face_planes import WaveProduct
from simjax.core.model import Measure
from simjax.grid import AXES, CENTER, FACE, LOWER, UPPER
from simjax.models.axisymmetric_grid import (
    dimensions,
    lower_radii,
    radii,
    ring_volumes,
    tapers_of,
)
from simjax.models.declaration import model
from simjax.models.fluid_outputs import pressure_output, velocity_outputs
from simjax.models.measures import times_volume
from simjax.models.sides import velocity_layouts
from simjax.models.waves import axisymmetric_waves
from simjax.models.waves.pml import SOUND, AbsorbingLayer, FreeSurface, Profile, mirrored_layout
from simjax.models.waves.point_sources import PointSources, spread
from simjax.models.waves.scales import AxisScales, along, check_scales, scales_of
from simjax.models.waves.scales import per_volume as per_volume_at
from simjax.models.waves.staggered_waves import Signal, StaggeredWaves, Terms
from simjax.models.waves.wave_setup import WaveKeys, check_waves, medium_property, points_of
from simjax.notebook import all_in_a_line
from simjax.ops import staggered_wave
from simjax.ops.spacing import scaled
from simjax.schema.model_schema import SPLITTING, FieldSchema

PRESSURE = FieldSchema("pressure", units="Pa")
VELOCITY = FieldSchema("velocity", vector=True, units="m s-1")


class State(eqx.Module):
    """pressure at time t, velocity at t - lag; one `(*grid.shape)` array each, velocity component i on faces i.

    memory: per axis None or the memories (of dp/dx on faces, of du/dx at centres) of its absorbing layers.
    surface: per axis None or, in its last line, the normal velocity on a free surface at the upper side.
    """

    pressure: Array
    velocity: tuple[Array, ...]
    memory: tuple[tuple[Array, Array] | None, ...]
    surface: tuple[Array | None, ...]
    lag: Array

    __repr__ = all_in_a_line


class Params(eqx.Module):
    """speed c (length / time), density rho (mass / length^axes): scalars, or `(*grid.shape)` at cell centres.

    sources (count, axes): positions, with one of the `signals` each, volumes injected per time, length^axes / time;
    receivers (count, axes).
    """

    speed: Array
    density: Array
    sources: Array | None = None
    signals: tuple[Signal, ...] = ()
    receivers: Array | None = None

    __repr__ = all_in_a_line

    def __check_init__(self):
        numbers = {"speed": self.speed, "density": self.density}
        require_at_least("Acoustic.Params", numbers, strictly=True)


class Prepared(eqx.Module):
    """buoyancy 1/rho on faces; stiffness rho c^2 and its weights around the sources; layers along axes, if any; scales
    of derivatives."""

    buoyancy: tuple[Array, ...]
    stiffness: Array
    sources: PointSources | None
    layers: tuple["Layer | None", ...]
    scales: AxisScales


class Layer(eqx.Module):
    """Layers along one axis: profiles on faces and at centres; buoyancy and stiffness on their lines, or scalars."""

    face: Profile
    center: Profile
    buoyancy: Array
    stiffness: Array


@model(
    "acoustic",
    fields=(PRESSURE, VELOCITY),
    sides=SOUND,
    coefficients=(
        FieldSchema("speed", units="m s-1", default=1.0),
        FieldSchema("density", units="kg m-3", default=1.0),
    ),
    integrators=SPLITTING,
    stretched=True,
    axisymmetric=True,
    forced=(),
    exclusions=axisymmetric_waves.EXCLUSIONS,
    check=check_waves,
    balanced=lambda ndim, counts: ("energy",),
    passing=lambda ndim, counts: ("energy",),
)
class Acoustic(StaggeredWaves):
    """Linear acoustics: rho du/dt = -grad p, dp/dt = -rho c^2 (div u - sum of q_k(t) delta(x - x_k)).

    p pressure, u particle velocity, c speed of sound, rho density, q_k volume injected per time at x_k. Velocity on
    faces, pressure at centres, leapfrog in time, second or fourth order in space (Virieux 1986, Geophysics 51, 889;
    Levander 1988, Geophysics 53, 1425). Sides: periodic, rigid (SlipWall), FreeSurface, or AbsorbingSide behind a CPML
    of `layer_cells`. In free space a source gives p = rho q'(t - r/c) / (4 pi r) in 3-D. Takes stretched grids,
    and axisymmetric ones (second order, rigid across r, sources on the axis).

    Examples:
        >>> string = sj.configure(
        ...     sj.Acoustic, grid={"shape": [64]}, coefficients={"speed": "1", "density": "1"},
        ...     initial={"pressure": "exp(-200*(x - 0.5)**2)"}, boundaries={"x": "rigid"},
        ...     time={"end": 0.5, "output_every": 0.1},
        ... )
    """

    Keys = WaveKeys
    medium = ("speed", "density")

    domain: Domain
    pressure_layout: FieldLayout
    layouts: tuple[FieldLayout, ...]
    layer: AbsorbingLayer
    order: int = eqx.field(static=True)
    free: tuple[tuple[bool, bool], ...] = eqx.field(static=True)

    def __init__(self, domain: Domain, sides: Sequence[tuple[Side, Side]], *, order: int = 2, layer_cells: int = 12):
        self.check_grid("Acoustic", domain, sides, order, SOUND, "rigid")
        self.domain = domain
        self.pressure_layout = center_layout([[s.scalar_boundary() for s in pair] for pair in sides], PRESSURE.units)
        self.layouts = velocity_layouts(sides, VELOCITY.units)
        check_scales(domain, self.pressure_layout, order)
        self.layer = AbsorbingLayer(domain, layer_cells, sides)
        self.order = order
        self.free = tuple((isinstance(a, FreeSurface), isinstance(b, FreeSurface)) for a, b in sides)

    @classmethod
    def configured(cls, setup):
        model = cls(setup.domain, setup.sides, order=setup.keys.order, layer_cells=setup.keys.layer_cells)
        medium = {name: medium_property(setup, name) for name in cls.medium}
        return model, Params(**medium, **points_of(setup))

    # ------------------------------------------------------------------ steps

    def prepare(self, params) -> Prepared:
        stiffness = jnp.asarray(params.density * params.speed**2)
        speed, buoyancy = self.mean_speed(params.speed), self._buoyancy(params.density)
        layers = tuple(self.layer_along(axis, speed, Layer, of, stiffness) for axis, of in enumerate(buoyancy))
        scales = scales_of(self.domain, self.pressure_layout, self.order, stiffness.dtype)
        sources = None
        if params.sources is not None:
            volumes = self._volumes(scales, self.pressure_layout, params.sources.dtype)
            sources = self.located_sources(params, stiffness, volumes)
        return Prepared(buoyancy, stiffness, sources, layers, scales)

    def _buoyancy(self, density: Array) -> tuple[Array, ...]:
        """1 / mean density on the faces of every axis."""
        if density.ndim == 0:
            return (1 / density,) * self.domain.grid.ndim
        means = self.domain.apply(
            lambda rho: tuple(staggered_wave.mean_to(rho, layout.offset) for layout in self.layouts),
            density,
            self._density_layout(),
            width=1,
        )
        return tuple(1 / mean for mean in means)

    def _volumes(self, scales: AxisScales, layout: FieldLayout, dtype) -> float | Array:
        """Volumes around the values of a field over the mean area of a cell; on a Cartesian grid areas over it."""
        return ring_volumes(1 / per_volume_at(scales, layout.offset), self.domain, layout, dtype)

    def _density_layout(self) -> FieldLayout:
        return mirrored_layout(self.pressure_layout)

    @property
    def fed_layout(self):
        return self.pressure_layout

    def fed(self, state):
        return state.pressure

    @property
    def _gradient(self) -> tuple[Terms, ...]:
        return tuple(((axis, 0, 1),) for axis in range(self.domain.grid.ndim))

    @property
    def _divergence(self) -> tuple[Terms]:
        return (tuple((axis, axis, 1) for axis in range(self.domain.grid.ndim)),)

    def kick(self, t, dt, state, params, prepared):
        after, lines = self.accelerated_with_lines(t, dt, state, params, prepared)
        velocity, memory = list(after.velocity), list(state.memory)

        def factor_of(layer: Layer):
            return layer.face, -dt * layer.buoyancy

        for axis, terms in enumerate(self._gradient):
            kept = state.memory[axis]
            if kept is not None:
                own = velocity[axis], terms, lines[axis], kept[:1]
                velocity[axis], (first,) = self.absorbed(*own, prepared.layers, factor_of, dt)
                memory[axis] = (first, kept[1])
        return State(state.pressure, tuple(velocity), tuple(memory), after.surface, state.lag)

    def accelerated_with_lines(self, t, dt, state, params, prepared):
        layouts = (self.pressure_layout,)
        slopes = self.slopes(self._gradient, (state.pressure,), layouts, FACE, t, prepared.scales)
        slopes, lines = self.read_layers(self._gradient, slopes)
        velocity, surface = [], []
        for axis, (slope,) in enumerate(slopes):
            velocity.append(state.velocity[axis] - dt * (prepared.buoyancy[axis] * slope))
            known = state.surface[axis] is not None
            surface.append(self._kick_surface(axis, dt, state, params, prepared.scales) if known else None)
        return State(state.pressure, tuple(velocity), state.memory, tuple(surface), state.lag), lines

    def drift(self, t, dt, state, params, prepared):
        velocity = self._by_areas(state.velocity)
        (slopes,) = self.slopes(self._divergence, velocity, self.layouts, CENTER, t, prepared.scales)
        if self.domain.grid.axisymmetric:
            radial, *others = slopes
            slopes = (radial / radii(self.domain, self.pressure_layout, state.pressure.dtype), *others)
        (slopes,), (lines,) = self.read_layers(self._divergence, (slopes,))
        factor = -dt * prepared.stiffness
        pressure = state.pressure + factor * sum(slopes[1:], slopes[0])
        for axis, surface in enumerate(state.surface):
            if surface is not None:
                pressure = self._press(axis, pressure, factor, surface, prepared.scales)

        def factor_of(layer: Layer):
            return layer.center, -dt * layer.stiffness

        kept = [None if both is None else both[1] for both in state.memory]
        own = pressure, self._divergence[0], lines, kept
        pressure, second = self.absorbed(*own, prepared.layers, factor_of, dt)
        memory = tuple(None if a is None else (a[0], b) for a, b in zip(state.memory, second, strict=True))
        if prepared.sources is not None:
            pressure = self._feed(t, dt, pressure, params, prepared)
        return State(pressure, state.velocity, memory, state.surface, state.lag)

    def _feed(self, t, dt, pressure: Array, params, prepared) -> Array:
        """The pressure after the sources injected their volumes."""
        return spread(prepared.sources, dt * self.strengths(t, params, pressure.dtype), pressure)

    def _by_areas(self, velocity: tuple[Array, ...]) -> tuple[Array, ...]:
        """The velocity, across rings times their radii, as volumes pass that grow with these."""
        if not self.domain.grid.axisymmetric:
            return velocity
        radial, *others = velocity
        return (radial * lower_radii(self.domain, radial.dtype), *others)

    def with_memories(self, form, state, *others):
        def formed(axis: int, kept: tuple) -> tuple[Array, Array] | None:
            if kept[0] is None:
                return None
            on_faces, at_centers = zip(*kept, strict=True)
            return form(axis, *on_faces), form(axis, *at_centers)

        of_axes = zip(*(one.memory for one in (state, *others)), strict=True)
        memory = tuple(formed(axis, kept) for axis, kept in enumerate(of_axes))
        return State(state.pressure, state.velocity, memory, state.surface, state.lag)

    def velocity(self, t, state, params, prepared, later: float = 1.0) -> State:
        """The state with its velocity brought from t - lag to t + (later - 1) lag; for looking at, not for stepping."""
        return self.kick(t, later * state.lag, state, params, prepared)

    # ------------------------------------------------------------------ free surface at an upper side

    def _line(self, u: Array, axis: int, inwards: int = 0) -> Array:
        """Line number `inwards` of this block, counted from its upper end."""
        where = u.ndim + axis - self.domain.grid.ndim
        start = u.shape[where] - 1 - inwards
        return lax.slice_in_dim(u, start, start + 1, axis=where)

    def _replace_line(self, u: Array, line: Array, axis: int, inwards: int = 0) -> Array:
        where = u.ndim + axis - self.domain.grid.ndim
        return lax.dynamic_update_slice_in_dim(u, line, u.shape[where] - 1 - inwards, where)

    def _kick_surface(self, axis: int, dt, state, params, scales: AxisScales) -> Array:
        """The surface's velocity after rho du/dt = -dp/dx, with p mirrored oddly about the surface."""
        surface = state.surface[axis]
        density = params.density if params.density.ndim == 0 else self._line(params.density, axis)
        weights = staggered_wave.WEIGHTS[self.order]
        fall = sum(w * self._line(state.pressure, axis, k) for k, w in enumerate(weights))
        change = dt / density * fall * (2 / self.domain.grid.mean_spacing[axis])
        change = scaled(change, _top(scales, axis))
        return self._replace_line(surface, self._line(surface, axis) + self._if_uppermost(change, axis), axis)

    def _if_uppermost(self, line: Array, axis: int) -> Array:
        """`line` in the block that the surface belongs to, zero in the others."""
        blocks = self.domain.grid.shape[axis] // self.domain.block_shape[axis]
        return jnp.where(self.domain.block_index(axis) == blocks - 1, line, jnp.zeros_like(line))

    def _surface_line(self, surface: Array | None, axis: int) -> Array:
        assert surface is not None
        return self._if_uppermost(self._line(surface, axis), axis)

    def _press(self, axis: int, pressure: Array, factor: Array, surface: Array, scales: AxisScales) -> Array:
        """The pressure changed by what the surface's velocity adds to du/dx in the cells below it."""
        h, speed = self.domain.grid.mean_spacing[axis], self._surface_line(surface, axis)
        width = along(scales, axis, CENTER)
        for k, w in enumerate(staggered_wave.WEIGHTS[self.order]):
            scale = factor if factor.ndim == 0 else self._line(factor, axis, k)
            scale = scale if not isinstance(width, Array) else scale * self._line(width, axis, k)
            line = self._line(pressure, axis, k) + scale * speed * (w / h)
            pressure = self._replace_line(pressure, line, axis, k)
        return pressure

    # ------------------------------------------------------------------ what is seen of it

    def stable_dt(self, state, params):
        """Courant number one is where leapfrog becomes unstable: 1 / (c sqrt(sum 1/h^2)), times 6/7 at fourth order.

        With variable density, or on a stretched grid, the bound by Gershgorin's theorem on the largest frequency, which
        is the same of rings as of other cells where the density is constant.
        """
        grid, order = self.domain.grid, self.order
        if params.density.ndim == 0 and not grid.stretched:
            steepest = math.sqrt(sum(1 / s**2 for s in grid.mean_spacing))
            return 1 / (params.speed * (steepest * staggered_wave.largest_symbol(order)))
        width = staggered_wave.stiffest_halo(order, bool(grid.stretched))
        density = params.density
        density = density if density.ndim else jnp.broadcast_to(density, self.domain.block_shape)
        fields, layout = (density, *tapers_of(self.domain, self.pressure_layout, density)), self._density_layout()

        def stiffest(rho, *others):
            *rings, spacing = others
            return staggered_wave.stiffest_square(rho, spacing, order, width, *rings)

        square = self.domain.apply_spaced(stiffest, fields, (layout,) * len(fields), width)
        return 2 / (params.speed * jnp.sqrt(square))

    def kicked_product(self, one, other, params, prepared):
        """Integral of rho u . v of two velocities."""
        total = jnp.zeros((), one.pressure.dtype)
        for axis, (u, v) in enumerate(zip(one.velocity, other.velocity, strict=True)):
            product = u * v / prepared.buoyancy[axis]
            product = scaled(product, self._volumes(prepared.scales, self.layouts[axis], product.dtype))
            total = total + jnp.sum(product * self._share(axis, product) if self.free[axis][LOWER] else product)
            if self.free[axis][UPPER]:
                before, after = (self._surface_line(s.surface[axis], axis) for s in (one, other))
                density = params.density if params.density.ndim == 0 else self._line(params.density, axis)
                others = [along(prepared.scales, k, CENTER) for k in range(len(self.layouts)) if k != axis]
                product = scaled(density * before * after, *(1 / s for s in (_top(prepared.scales, axis), *others)))
                product = scaled(product, ring_volumes(1.0, self.domain, self.pressure_layout, product.dtype))
                total = total + 0.5 * jnp.sum(product)
        return math.prod(self.domain.grid.mean_spacing) * total

    def drifted_product(self, one, other, params, prepared):
        """Integral of p q / (rho c^2) of two pressures."""
        volume = self._volumes(prepared.scales, self.pressure_layout, one.pressure.dtype)
        product = scaled(one.pressure * other.pressure / prepared.stiffness, volume)
        return math.prod(self.domain.grid.mean_spacing) * jnp.sum(product)

    def kicked_by_layers(self, dt, after, prepared, axis):
        change = jax.tree.map(jnp.zeros_like, after)
        layer, (memory, _) = prepared.layers[axis], after.memory[axis]
        pulled = self.layer.change(after.pressure, -dt * layer.buoyancy, layer.face, memory, axis)
        return eqx.tree_at(lambda s: s.velocity[axis], change, pulled)

    def drifted_by_layers(self, dt, after, prepared, axis):
        change = jax.tree.map(jnp.zeros_like, after)
        layer, (_, memory) = prepared.layers[axis], after.memory[axis]
        pressed = self.layer.change(after.pressure, -dt * layer.stiffness, layer.center, memory, axis)
        return eqx.tree_at(lambda s: s.pressure, change, pressed)

    def drifted_by_sources(self, t, dt, after, params, prepared):
        change = jax.tree.map(jnp.zeros_like, after)
        return eqx.tree_at(lambda s: s.pressure, change, self._feed(t, dt, change.pressure, params, prepared))

    def _share(self, axis: int, like: Array) -> Array:
        """The part of a face's surroundings that lies in the box: one half for the lower wall face."""
        x = self.domain.coordinates(self.layouts[axis].offset, like.dtype)[axis]
        at_wall = jnp.abs(x - self.domain.grid.lower[axis]) < 0.25 * float(self.domain.grid.widths(axis).min())
        return jnp.where(at_wall, jnp.full_like(x, 0.5), jnp.ones_like(x))

    def diagnostics(self, t, state, params):
        """energy: see `energy`. maximum_pressure: of |p|. receiver_0, ...: pressure there."""
        largest = self.domain.max(jnp.abs(state.pressure))
        return {"energy": self.energy(t, state, params), "maximum_pressure": largest, **self.records(t, state, params)}

    def measures(self):
        energy = Measure(times_volume("J", dimensions(self.domain.grid)), "acoustic energy")
        return {"energy": energy, "maximum_pressure": Measure("Pa", "largest pressure"), "receiver": Measure("Pa")}

    def energy_flux_along(self, axis):
        return (WaveProduct("pressure", f"velocity_{AXES[axis]}"),)

    def component_layouts(self):
        return {"pressure": (self.pressure_layout,), "velocity": self.layouts}

    def state_from(self, fields, params):
        (pressure,), velocity = fields["pressure"], fields["velocity"]
        memory = tuple(
            (jnp.zeros_like(pressure), jnp.zeros_like(pressure)) if self.layer.absorbs(axis) else None
            for axis in range(self.domain.grid.ndim)
        )
        surface = tuple(
            self._surface_from(axis, u) if self.free[axis][UPPER] else None for axis, u in enumerate(velocity)
        )
        return State(pressure, tuple(velocity), memory, surface, jnp.zeros((), pressure.dtype))

    def _surface_from(self, axis: int, u: Array) -> Array:
        """The velocity on an upper free surface, extrapolated from the faces below it."""
        outside = 2 * self._line(u, axis) - self._line(u, axis, 1)
        return self._replace_line(jnp.zeros_like(u), self._if_uppermost(outside, axis), axis)

    def constrain(self, t, dt, state, params):
        """Rigid walls at rest."""
        return eqx.tree_at(lambda s: s.velocity, state, self.domain.impose(state.velocity, self.layouts, t))

    def unphysical(self, state, params):
        wrong = ~((params.speed > 0) & (params.density > 0))
        return self.with_misplaced_sources({"speed or density <= 0": wrong}, params, rings=False)

    def outputs(self):
        offsets = [layout.offset for layout in self.layouts]
        pressure = pressure_output(self.pressure_layout.offset, "Pa", "acoustic pressure")
        return (pressure, *velocity_outputs(self.domain.grid, offsets, self.layouts[0].units))

    def observe(self, t, state, params) -> dict[str, Array]:
        now = self.velocity(t, state, params, self.prepare(params))
        return {"pressure": state.pressure} | {f"velocity_{AXES[i]}": u for i, u in enumerate(now.velocity)}

    def free_faces(self, t, state, params):
        now = self.velocity(t, state, params, self.prepare(params))
        return {f"velocity_{AXES[i]}": u for i, u in enumerate(now.surface) if u is not None}


Acoustic.Params, Acoustic.State = Params, State


def _top(scales: AxisScales, axis: int) -> Array | float:
    """The scale on the upper face of the last cell; 1.0 along a uniform axis."""
    one = scales[axis]
    return 1.0 if one is None else one.top
