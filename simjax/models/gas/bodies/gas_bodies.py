"""Bodies in a gas: what is given, what is refused, what passes their surface and what is read along it."""

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
from simjax.models.flow.bodies.solid_geometry import mirrored, on_block
from simjax.models.flow.bodies.solid_setup import SOLID, require_body
from simjax.models.flow.bodies.solids import Solid
from simjax.models.flow.bodies.surface_readings import components, known_along, replicated, surface_at
from simjax.models.formulas import FormulaValue
from simjax.models.gas.bodies.ghost_cells import GhostCells, ghost_cells, room_for
from simjax.models.gas.entropic_pressure import padded_gas
from simjax.ops.reconstruction import pad_only
from simjax.ops.riemann import Conserved
from simjax.schema.model_schema import FieldSchema
from simjax.schema.numbers import named_numbers
from simjax.solvers.elliptic import cut

SOLID_TEMPERATURE = FieldSchema("solid_temperature", units="K", default=None, optional=True)
COEFFICIENTS = (SOLID, SOLID_TEMPERATURE)
ALONG = ("pressure", "temperature", "shear_stress", "heat_flux", "normal")
"""Names of what can be read along bodies."""
READINGS = {
    "shear_stress": ("Pa", "friction of the gas on the body, per area"),
    "heat_flux": ("W m-2", "heat from the body into the gas, per area"),
}
"""Units and meanings of those of these that no output has."""
FOUND = "coefficients.solid"
EXACT, CHANGED = 9 / 8, 2.0
"""Room for ghost cells over those that are counted, of a shape that is known, and of one whose numbers may change."""


class GasBodies(eqx.Module):
    """Bodies at rest in a gas, which slips along them where it has no viscosity, and else sticks to them.

    solid: their distance. temperature: of their surface, at the centres of cells beside it, a number or a function
    `(t, *coordinates)`; None: no heat passes. reach: cells that a flux reads beyond a face. room: for ghost cells in a
    block; None: for all cells. ghosts: where they were formed before the steps.
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
            ConfigurationError: they move.
        """
        if not solid.fixed or solid.velocity is not None:
            raise ConfigurationError(
                "Compressible.solid: expected bodies at rest, and got a Solid with moving, free or velocity; write "
                "Solid(distance) alone."
            )
        room = room_for(domain, layout, solid.distance, reach, EXACT) if solid.beside is None else solid.beside
        return cls(solid, temperature, reach, room)

    def cells(self, domain: Domain, layout: FieldLayout, dtype) -> GhostCells:
        """The ghost cells, formed now where they were not before."""
        if self.ghosts is not None:
            return self.ghosts
        return ghost_cells(domain, layout, self.distance(domain, dtype), self.reach, self.room)

    def distance(self, domain: Domain, dtype) -> Array:
        """The distance from the surface at the centres of this block's cells."""
        return on_block(self.solid.distance, domain, (CENTER,) * domain.grid.ndim, jnp.zeros((), dtype), dtype)

    def fluid(self, domain: Domain, dtype) -> Array:
        """Truth values: the cells of this block whose centres lie in the gas."""
        return self.distance(domain, dtype) > 0 if self.ghosts is None else self.ghosts.fluid

    def surroundings(
        self, domain: Domain, plain: FieldLayout, fields: tuple, layouts: tuple, t, params: Any, gas_constant
    ) -> tuple:
        """Fields of `Compressible.read` with those that make the surface a wall in the ghost cells."""
        heat, velocity, pressure, scalars, pulls, conducted = fields
        ghosts = self.cells(domain, plain, heat.dtype)
        padded = domain.pad(fields[:4], tuple(layouts[:4]), ghosts.halo, t)
        there, moving, pressed, carried = jax.tree.map(ghosts.at_images, padded)
        warm = there
        if params.viscosity is None:
            there, moving, pressed = ghosts.slipping(there, moving, pressed, params.gamma)
        else:
            moving = ghosts.sticking(there, moving, params.gamma)
        found = jax.tree.map(ghosts.put, fields[:4], (there, moving, pressed, carried))
        if conducted and self.temperature is not None:
            given = on_block(self.temperature, domain, (CENTER,) * domain.grid.ndim, t, heat.dtype)
            wall = ghosts.of_cells(given) * jnp.asarray(gas_constant, heat.dtype)
            conducted = (ghosts.put(conducted[0], ghosts.at_temperature(warm, wall)),)
        elif conducted:
            conducted = (ghosts.put(conducted[0], there),)
        return (*found, pulls, conducted)


def bodies_of(setup: Any, layout: FieldLayout, reach: int) -> tuple[Solid | None, FormulaValue | Array | None]:
    """The bodies of a configuration, if any, and the temperature of their surface; arguments as of `GasBodies`."""
    given = setup.config.coefficients
    source, warm = given.get("solid"), given.get("solid_temperature")
    if source is None:
        return None, None
    distance, room = setup.coefficients["solid"][0], None
    known_now: Any = distance
    if not isinstance(known_now, Tracer | jax.ShapeDtypeStruct):
        require_body(setup.domain, np.asarray(known_now), False)
    numbers = named_numbers(setup.config)
    if isinstance(source, tuple) and source[0].names <= {*numbers, *AXES}:
        known = FormulaValue(source[0], {name: jnp.asarray(value) for name, value in numbers.items()})
        spare = CHANGED if source[0].names & {*numbers} else EXACT
        with jax.ensure_compile_time_eval():
            room = room_for(setup.domain, layout, known, reach, spare)
    if isinstance(warm, tuple):
        warm = FormulaValue(warm[0], dict(setup.values))
    elif warm is not None:
        warm = setup.coefficients["solid_temperature"][0]
    return Solid(distance, beside=room), warm


def check_bodies(config: Any, conducts: bool) -> Iterator[tuple[str, str]]:
    """Sentences about a configuration whose bodies cannot be run, each with its key path."""
    given = config.coefficients
    path = "coefficients.solid_temperature"
    if "solid_temperature" in given and "solid" not in given:
        yield (
            path,
            f"{path}: expected beside {FOUND}, the distance from the surface of bodies; write it, or leave it out",
        )
    elif "solid_temperature" in given and not conducts:
        yield (
            path,
            f"{path}: expected a gas that conducts heat; write physics.conductivity, or physics.viscosity and "
            "physics.prandtl, or leave it out",
        )
    source = given.get("solid")
    if isinstance(source, tuple) and "t" in source[0].names:
        yield FOUND, f"{FOUND}: expected bodies at rest in a gas, and got a distance that depends on t; leave t out"


def from_bodies(model: Any, t, state: Any, params: Any) -> Conserved:
    """Mass, momentum and energy that bodies give to the gas per time, through the faces between it and ghost cells.

    What a gas in a periodic box gains, to rounding. The momentum is that of the force on the gas; mass is the error of
    the method, as nothing passes a wall.
    """
    domain, grid = model.domain, model.domain.grid
    fields, layouts, _ = model.read(state, params, t)
    inside = model.bodies.fluid(domain, state.density.dtype).astype(state.density.dtype)

    def rates(inside, heat, velocity, pressure, scalars, _, conducted, entropic, spacing):
        padded, conducted = padded_gas(heat, velocity, pressure, scalars, entropic, model.scheme), (*conducted, heat)[0]
        total = None
        for axis, h in enumerate(grid.mean_spacing):
            flux, n = model._axis_flux(padded, conducted, axis, None, params, spacing)[0], domain.block_shape[axis]
            line, first = pad_only(inside, axis, grid.ndim, model.width), model.width
            # Of each cell its lower face: one where the gas lies above it, minus one where it lies below.
            way = cut(line, axis, first, first + n) - cut(line, axis, first - 1, first + n - 1)
            way = way * (1 / h)
            for other in grid.stretched:
                if other != axis:
                    way = way * model._stretch(other, spacing) * (grid.mean_spacing[0] / grid.mean_spacing[other])
            found = jax.tree.map(lambda f, axis=axis, n=n, way=way: cut(f, axis, 0, n) * way, flux)
            total = found if total is None else jax.tree.map(jnp.add, total, found)
        return total

    kinds = (mirrored(model.plain), *layouts)
    found = domain.apply_spaced(rates, (inside, *fields), kinds, model.width, t)
    volume = float(np.prod(grid.mean_spacing))
    return Conserved(*jax.tree.map(lambda u: domain.sum(u) * volume, tuple(found)))


def diagnosed(model: Any, t, state: Any, params: Any) -> dict[str, Array]:
    """The force of the gas on bodies, and what they give to it of mass and energy."""
    found = from_bodies(model, t, state, params)
    forces = {f"force_{axis}": -m for axis, m in zip(AXES, found.momentum, strict=False)}
    return forces | {"mass_from_bodies": found.density, "energy_from_bodies": found.energy}


def measures(ndim: int) -> dict[str, Measure]:
    """Units and meanings of `diagnosed`."""
    force, mass, power = {
        1: ("Pa", "kg m-2 s-1", "W m-2"),
        2: ("N m-1", "kg m-1 s-1", "W m-1"),
        3: ("N", "kg s-1", "W"),
    }[ndim]
    found = {f"force_{axis}": Measure(force, f"{axis}-force on the bodies") for axis in AXES[:ndim]}
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
    surface = surface_at(domain, model.plain, model.bodies.distance(domain, dtype), points)
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
