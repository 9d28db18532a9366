"""Bodies in a gas: what is given, what is refused, what passes their surface and what is read along it."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.core.model import Measure
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER
from simjax.instruments.body_surface import SurfacePoints
from simjax.models.flow.bodies.solid_geometry import face_offset, mirrored, on_block
from simjax.models.flow.bodies.solid_moments import arms, displaced, planes
from simjax.models.flow.bodies.solid_setup import SOLID, require_body
from simjax.models.flow.bodies.solids import Solid
from simjax.models.flow.bodies.surface_readings import components, known_along, replicated, surface_at
from simjax.models.formulas import FormulaValue
from simjax.models.gas.bodies.ghost_cells import GhostCells, ghost_cells
from simjax.models.gas.bodies.ghost_room import room_for
from simjax.models.gas.bodies.moving_surface import DRAWN, cells_off, gas_share, own_share, wall_motion
from simjax.models.gas.entropic_pressure import padded_gas
from simjax.ops import riemann
from simjax.ops.reconstruction import pad_only
from simjax.ops.riemann import Conserved, Primitive
from simjax.ops.spacing import scaled
from simjax.schema.model_schema import FieldSchema
from simjax.schema.numbers import named_numbers
from simjax.solvers.elliptic import cut

SOLID_TEMPERATURE = FieldSchema("solid_temperature", units="K", default=None, optional=True)
SOLID_VELOCITY = FieldSchema("solid_velocity", vector=True, units="m s-1", default=None, optional=True)
COEFFICIENTS = (SOLID, SOLID_VELOCITY, SOLID_TEMPERATURE)
ALONG = ("pressure", "temperature", "shear_stress", "heat_flux", "normal")
"""Names of what can be read along bodies."""
READINGS = {
    "shear_stress": ("Pa", "friction of the gas on the body, per area"),
    "heat_flux": ("W m-2", "heat from the body into the gas, per area"),
}
"""Units and meanings of those of these that no output has."""
FOUND = "coefficients.solid"
BEHIND = 1
"""Cells behind the surface of a body that moves which follow fluxes too."""
LOOKED_AT = 17
"""Times from the start to the end of a run at which ghost cells of bodies that move are counted."""
EXACT, CHANGED = 9 / 8, 2.0
"""Room for ghost cells over those that are counted, of a shape that is known, and of one whose numbers may change."""


class GasBodies(eqx.Module):
    """Bodies in a gas, which slips along them where it has no viscosity, and else sticks to them.

    solid: their distance and velocity. temperature: of their surface, at the centres of cells beside it, a number or a
    function `(t, *coordinates)`; None: no heat passes. reach: cells that a flux reads beyond a face. room: for ghost
    cells in a block; None: for all cells. ghosts: where they were formed before.
    """

    solid: Solid
    temperature: float | Array | Callable | None
    reach: int = eqx.field(static=True)
    room: int | None = eqx.field(static=True)
    ghosts: GhostCells | None = None

    @classmethod
    def around(
        cls, domain: Domain, layout: FieldLayout, solid: Solid, temperature: float | Array | Callable | None, reach: int
    ) -> "GasBodies":
        """The bodies of a gas whose fields are periodic along the axes that `layout` says.

        Raises:
            ConfigurationError: the gas moves them, or they move without a velocity.
        """
        if solid.free is not None:
            raise ConfigurationError(
                "Compressible.solid: expected bodies at rest or that move as they are told, and got a Solid with free; "
                "write Solid(distance), or Solid(distance, velocity, moving=True)."
            )
        if solid.moving and solid.velocity is None:
            raise ConfigurationError(
                "Compressible.solid: expected the velocity of bodies that move, which the gas at their surface has, "
                "and got a Solid with moving alone; write Solid(distance, velocity, moving=True)."
            )
        room = solid.beside
        if solid.moving:
            reach += BEHIND
        if room is None and solid.moving:
            # Of the whole grid in each block, as a body may pass from one to another.
            room = room_for(domain.unsplit(), layout, solid.distance, reach, CHANGED, (0.0,))
        elif room is None:
            room = room_for(domain, layout, solid.distance, reach, EXACT)
        return cls(solid, temperature, reach, room)

    def cells(self, domain: Domain, layout: FieldLayout, t, dtype) -> GhostCells:
        """The ghost cells at a time, formed now where they were not before."""
        if self.ghosts is not None:
            return self.ghosts
        distance = self.distance(domain, t, dtype)
        own = own_share(cells_off(domain, layout, distance)) if self.solid.moving else None
        return ghost_cells(domain, layout, distance, own, self.reach, self.room)

    def distance(self, domain: Domain, t, dtype) -> Array:
        """The distance from the surface at the centres of this block's cells."""
        t = jnp.asarray(t, dtype)
        return on_block(self.solid.distance, domain, (CENTER,) * domain.grid.ndim, t, dtype)

    def centre(self, domain: Domain, layout: FieldLayout, t, dtype) -> Array:
        """The point that torques are about, `(ndim,)`."""
        if self.solid.about is not None:
            return jnp.asarray(self.solid.about, dtype)
        return displaced(domain, layout, self.distance(domain, t, dtype)).centre

    def fluid(self, domain: Domain, dtype, t=0.0) -> Array:
        """Truth values: the cells of this block whose centres lie in the gas."""
        return self.distance(domain, t, dtype) > 0 if self.ghosts is None else self.ghosts.fluid

    def shares(self, domain: Domain, layout: FieldLayout, t, dtype) -> tuple[Array, Array]:
        """Shares with which the cells of this block follow fluxes, and with which they count in totals.

        Of bodies at rest both are one in cells whose centres lie in the gas, and zero in others.
        """
        distance = self.distance(domain, t, dtype)
        if self.solid.moving:
            off = cells_off(domain, layout, distance)
            return own_share(off + 1), gas_share(off)
        fluid = (distance > 0).astype(dtype)
        return fluid, fluid

    def surroundings(
        self, domain: Domain, plain: FieldLayout, fields: tuple, layouts: tuple, t, params: Any, gas_constant
    ) -> tuple:
        """Fields of `Compressible.read` with those that make the surface a wall in the ghost cells."""
        heat, velocity, pressure, scalars, pulls, conducted = fields
        ghosts = self.cells(domain, plain, t, heat.dtype)
        padded = domain.pad(fields[:4], tuple(layouts[:4]), ghosts.halo, t)
        there, moving, pressed, carried = jax.tree.map(ghosts.at_images, padded)
        warm, wall, lift = there, None, None
        if self.solid.velocity is not None:
            wall, lift = wall_motion(self.solid, ghosts, domain, t)
            moving = tuple(map(jnp.subtract, moving, wall))
        if params.viscosity is None:
            there, moving, pressed = ghosts.slipping(there, moving, pressed, params.gamma, lift)
        else:
            moving, pressed = ghosts.sticking(there, moving, pressed, params.gamma, lift)
        moving = moving if wall is None else tuple(map(jnp.add, moving, wall))
        if conducted and self.temperature is not None:
            given = on_block(self.temperature, domain, (CENTER,) * domain.grid.ndim, t, heat.dtype)
            surface = ghosts.of_cells(given) * jnp.asarray(gas_constant, heat.dtype)
            there = ghosts.mirrored(warm, surface) if self.solid.moving else there
            conducted = (ghosts.put(conducted[0], ghosts.at_temperature(warm, surface)),)
        elif conducted:
            conducted = (ghosts.put(conducted[0], there),)
        found = jax.tree.map(ghosts.put, fields[:4], (there, moving, pressed, carried))
        return (*found, pulls, conducted)


def bodies_of(setup: Any, layout: FieldLayout, reach: int) -> tuple[Solid | None, FormulaValue | Array | None]:
    """The bodies of a configuration, if any, and the temperature of their surface; arguments as of `GasBodies`."""
    given = setup.config.coefficients
    source, velocity, warm = (given.get(name) for name in ("solid", "solid_velocity", "solid_temperature"))
    if source is None:
        return None, None
    distance, room = setup.coefficients["solid"][0], None
    known_now: Any = distance
    moves = _moves(source)
    if not isinstance(known_now, Tracer | jax.ShapeDtypeStruct):
        require_body(setup.domain, np.asarray(known_now), moves)
    numbers = named_numbers(setup.config)
    if isinstance(source, tuple) and source[0].names <= {*numbers, *AXES, "t"}:
        # Of numpy: jax would stage them where the model is traced, and the room would not be known.
        concrete: Any = {name: np.asarray(value) for name, value in numbers.items()}
        known = FormulaValue(source[0], concrete)
        spare = CHANGED if moves or source[0].names & {*numbers} else EXACT
        times = np.linspace(0, setup.config.time.end, LOOKED_AT).tolist() if moves else ()
        with jax.ensure_compile_time_eval():
            room = room_for(setup.domain, layout, known, reach + BEHIND * moves, spare, times)
    if moves:
        distance = FormulaValue(source[0], dict(setup.values))
    if isinstance(velocity, tuple):
        velocity = tuple(FormulaValue(formula, dict(setup.values)) for formula in velocity)
    elif velocity is not None:
        velocity = setup.coefficients["solid_velocity"]
    if isinstance(warm, tuple):
        warm = FormulaValue(warm[0], dict(setup.values))
    elif warm is not None:
        warm = setup.coefficients["solid_temperature"][0]
    about = setup.keys.torque_about
    about = None if about is None else jnp.asarray(about, setup.config.precision)
    return Solid(distance, velocity, moves, room, about=about), warm


def _moves(source: Any) -> bool:
    """Tell whether the surface of bodies moves: their distance is a formula of time."""
    return isinstance(source, tuple) and "t" in source[0].names


def check_bodies(config: Any, keys: Any, conducts: bool) -> Iterator[tuple[str, str]]:
    """Sentences about a configuration whose bodies cannot be run, each with its key path."""
    given = config.coefficients
    if keys.torque_about is not None and "solid" not in given:
        path = "physics.torque_about"
        yield path, f"{path}: expected null without bodies; write it, or {FOUND}, the distance from their surface"
    elif keys.torque_about is not None and len(keys.torque_about) != (ndim := len(config.grid.shape)):
        path, about = "physics.torque_about", list(keys.torque_about)
        yield path, f"{path} = {about}: expected the {ndim} coordinates of a point; write as many, or null"
    for name in ("solid_temperature", "solid_velocity"):
        if name in given and "solid" not in given:
            path = f"coefficients.{name}"
            yield (
                path,
                f"{path}: expected beside {FOUND}, the distance from the surface of bodies; write it, or leave it out",
            )
    if {"solid_temperature", "solid"} <= {*given} and not conducts:
        path = "coefficients.solid_temperature"
        yield (
            path,
            f"{path}: expected a gas that conducts heat; write physics.conductivity, or physics.viscosity and "
            "physics.prandtl, or leave it out",
        )
    if _moves(given.get("solid")) and "solid_velocity" not in given:
        path = "coefficients.solid_velocity"
        yield (
            path,
            f"{path} is missing: expected the velocity of bodies that move, a formula for each axis, which the gas at "
            f"their surface has; write it, or leave t out of {FOUND}",
        )


def joined(model: Any, slope: Conserved, state: Any, fields: tuple, params: Any, t) -> Conserved:
    """The tendency of a gas around bodies; `slope`: that by fluxes of `fields`, which `Compressible.read` returns."""
    if not model.bodies.solid.moving:
        return model.within(slope, 0.0, t)
    heat, velocity, pressure, scalars, *_ = fields
    read = riemann.conserved(Primitive(pressure / heat, velocity, pressure, scalars), params.gamma)
    own = _own(state)
    share, _ = model.bodies.shares(model.domain, model.plain, t, heat.dtype)
    drawn = DRAWN * model.crossing_rate(riemann.primitive(own, params.gamma), params.gamma)
    return jax.tree.map(lambda k, u, v: share * k + drawn * (v - u), slope, own, read)


def counted(model: Any, u: Array, t) -> Array:
    """A field of the gas as far as its cells count in totals."""
    if model.bodies is None or not model.bodies.solid.moving:
        return model.within(u, 0.0, t)
    return model.bodies.shares(model.domain, model.plain, t, u.dtype)[1] * u


def _own(state: Any) -> Conserved:
    return Conserved(state.density, state.momentum, state.energy, state.scalars)


def from_bodies(model: Any, t, state: Any, params: Any) -> tuple[Conserved, list[Array]]:
    """Mass, momentum and energy that bodies give to the gas per time, through the faces between it and ghost cells.

    And its moment of momentum about `Solid.about` or the centroid of the bodies, one number in a plane, three in space.
    What a gas in a periodic box gains, to rounding. The momentum is that of the force on the gas; mass is the error of
    the method, as nothing passes a wall. Of bodies that move faces count with the change of both shares, that in totals
    and that by which cells follow fluxes; then there is what cells gain that are drawn to their images, and what the
    surface sweeps.
    """
    domain, grid, dtype = model.domain, model.domain.grid, state.density.dtype
    model = model.at(t, dtype)
    fields, layouts, _ = model.read(state, params, t)

    def shares_at(t: Array) -> tuple[Array, Array]:
        return model.bodies.shares(domain, model.plain, t, dtype)

    (own, counted), (_, swept) = jax.jvp(shares_at, (jnp.asarray(t, dtype),), (jnp.ones((), dtype),))
    inside = own * counted

    def rates(inside, heat, velocity, pressure, scalars, _, conducted, entropic, spacing):
        padded, conducted = padded_gas(heat, velocity, pressure, scalars, entropic, model.scheme), (*conducted, heat)[0]
        found = []
        for axis, h in enumerate(grid.mean_spacing):
            flux, n = model._axis_flux(padded, conducted, axis, None, params, spacing)[0], domain.block_shape[axis]
            line, first = pad_only(inside, axis, grid.ndim, model.width), model.width
            # Of each cell its lower face: one where the gas lies above it, minus one where it lies below.
            way = cut(line, axis, first, first + n) - cut(line, axis, first - 1, first + n - 1)
            way = way * (1 / h)
            for other in grid.stretched:
                if other != axis:
                    way = way * model._stretch(other, spacing) * (grid.mean_spacing[0] / grid.mean_spacing[other])
            found.append(jax.tree.map(lambda f, axis=axis, n=n, way=way: cut(f, axis, 0, n) * way, flux))
        return tuple(found)

    kinds = (mirrored(model.plain), *layouts)
    passed = domain.apply_spaced(rates, (inside, *fields), kinds, model.width, t)
    places = [face_offset(domain, axis) for axis in range(grid.ndim)]
    if model.bodies.solid.moving:
        drawn = joined(model, jax.tree.map(jnp.zeros_like, passed[0]), state, fields, params, t)
        gained = jax.tree.map(lambda k, u: counted * k + swept * u, drawn, _own(state))
        passed = (*passed, jax.tree.map(lambda k: scaled(k, model.relative_volumes(dtype)), gained))
        places.append((CENTER,) * grid.ndim)
    volume = float(np.prod(grid.mean_spacing))
    total = jax.tree.map(lambda *parts: domain.sum(functools.reduce(jnp.add, parts)) * volume, *passed)
    turned = [jnp.zeros((), dtype)] * len(turns := planes(grid.ndim) if grid.ndim > 1 else [])
    centre = model.bodies.centre(domain, model.plain, t, dtype)
    for part, place in zip(passed, places, strict=True):
        r = arms(domain, model.plain, place, centre)
        for number, (a, b) in enumerate(turns):
            moment = r[a] * part.momentum[b] - r[b] * part.momentum[a]
            turned[number] = turned[number] + domain.sum(moment) * volume
    return total, turned


def diagnosed(model: Any, t, state: Any, params: Any) -> dict[str, Array]:
    """The force and the torque of the gas on bodies, and what they give to it of mass and energy."""
    found, turned = from_bodies(model, t, state, params)
    forces = {f"force_{axis}": -m for axis, m in zip(AXES, found.momentum, strict=False)}
    torques = {f"torque_{axis}": -m for axis, m in zip(AXES[len(AXES) - len(turned) :], turned, strict=True)}
    return forces | torques | {"mass_from_bodies": found.density, "energy_from_bodies": found.energy}


def measures(ndim: int) -> dict[str, Measure]:
    """Units and meanings of `diagnosed`."""
    force, mass, power = {
        1: ("Pa", "kg m-2 s-1", "W m-2"),
        2: ("N m-1", "kg m-1 s-1", "W m-1"),
        3: ("N", "kg s-1", "W"),
    }[ndim]
    found = {f"force_{axis}": Measure(force, f"{axis}-force on the bodies") for axis in AXES[:ndim]}
    about, torque = {1: ("", ""), 2: ("z", "N"), 3: (AXES, "N m")}[ndim]
    found |= {f"torque_{axis}": Measure(torque, f"{axis}-torque on the bodies") for axis in about}
    return found | {
        "mass_from_bodies": Measure(mass, "mass that passes the surface of bodies, an error"),
        "energy_from_bodies": Measure(power, "energy that bodies give to the gas"),
    }


def along_bodies(model: Any, t, state: Any, params: Any, points: SurfacePoints) -> dict[str, Array]:
    """Place, normal, pressure and temperature along bodies, and the friction and heat of a gas that has any."""
    if model.bodies is None:
        raise ConfigurationError(
            f"{type(model).__name__}.along_bodies: there are no bodies in this gas; make it with solid=Solid(distance)."
        )
    domain, dtype = model.domain, state.density.dtype
    fields = model.observe(t, state, params)
    surface = surface_at(domain, model.plain, model.bodies.distance(domain, t, dtype), points)
    offset = (CENTER,) * domain.grid.ndim
    pressure, temperature = (surface.value(fields[name], offset) for name in ("pressure", "temperature"))
    ndim, none = domain.grid.ndim, jnp.zeros_like(pressure)
    stress, heat = jnp.stack([none] * ndim, 1), none
    if params.viscosity is not None:
        slope = jnp.stack([surface.slope(fields[f"velocity_{axis}"], offset, None) for axis in AXES[:ndim]], 1)
        slope = slope - surface.normal * jnp.sum(surface.normal * slope, 1, keepdims=True)
        stress = replicated(domain, params.viscosity) * slope
    if model.bodies.temperature is not None:
        given = on_block(model.bodies.temperature, domain, offset, jnp.asarray(t, dtype), dtype)
        temperature, _ = surface.interpolated(given, offset)
        if params.conductivity is not None:
            heat = -replicated(domain, params.conductivity) * surface.slope(fields["temperature"], offset, given)
    found = {"pressure": pressure, "temperature": temperature, "heat_flux": heat}
    return known_along(surface, found | components("shear_stress", stress))
