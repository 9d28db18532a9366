"""The instrument that reads the friction of a wall and how its first cells resolve the flow beside it."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane, Flux
from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES, LOWER, UPPER
from simjax.instruments.crossings import Through, crossings
from simjax.instruments.fluxes import steps_refusals
from simjax.instruments.instrument import Instrument, View
from simjax.instruments.places import line_of
from simjax.ops.eddy_viscosity import root
from simjax.schema.instrument_declarations import instrument
from simjax.schema.kinds import Real, key
from simjax.schema.units import product_of_units, to_the_power

FRICTION_VELOCITY, COEFFICIENT = "friction_velocity", "friction_coefficient"
Y_PLUS, LARGEST = "y_plus", "y_plus_largest"
WALLS = ("no_slip", "wall_model")
"""Kinds of sides that have friction and let nothing pass."""


def _length(components: Sequence[Array]) -> Array:
    """The length of a vector, with the derivative zero at zero."""
    return root(jnp.sum(jnp.stack(components) ** 2, axis=0))


def _first_centre(domain: Domain, axis: int, end: int) -> Any:
    """The distance of the first cell's centre from a side."""
    if (line := line_of(domain, axis)) is None:
        return 0.5 * domain.grid.mean_spacing[axis]
    faces, centers = line
    return faces[-1] - centers[-1] if end == UPPER else centers[0] - faces[0]


@instrument("wall")
class Wall(Instrument):
    """Friction at a wall: u_tau = sqrt(|<tau>| / rho), y+ = u_tau y / nu of the centre of the first cell.

    <tau>: the mean friction over the wall, a vector along it. y_plus_largest: from the largest friction on the faces of
    a cell. friction_coefficient: 2 |<tau>| / (rho U^2) with the reference speed U.
    """

    variable: str = eqx.field(static=True)

    @dataclasses.dataclass(frozen=True)
    class Keys:
        side: str = key(Through(box=False, inside=False), about="side of the grid")
        speed: float | None = key(Real(above=0.0, formula=True), None, about="speed of a friction coefficient")

    side: tuple[int, int] = eqx.field(static=True)
    speed: float | None = eqx.field(static=True)

    of_fields = False

    def read(self, view):
        axis, end = self.side
        domain, plane = view.domain, FacePlane.of_side(view.domain, axis, end)
        assert view.wall is not None
        density, viscosity = view.wall(plane)
        fluxes = view.fluxes(plane)
        along = [fluxes[f"momentum_{name}"] for k, name in enumerate(AXES[: domain.grid.ndim]) if k != axis]
        if self.variable == LARGEST:
            friction: Any = domain.max(plane.counted(domain, _length([one.density for one in along])))
        else:
            friction = _length([self._mean(domain, plane, one) for one in along])
        if self.variable == COEFFICIENT:
            assert self.speed is not None
            return 2 * friction / (density * self.speed**2)
        speed = root(friction / density)
        if self.variable == FRICTION_VELOCITY:
            return speed
        return speed * jnp.asarray(_first_centre(domain, axis, end), speed.dtype) / viscosity

    @staticmethod
    def _mean(domain: Domain, plane: FacePlane, flux: Flux) -> Array:
        whole = jnp.sum(jnp.broadcast_to(flux.areas, flux.density.shape))
        total, area = domain.total((flux.total(domain, plane), plane.counted(domain, whole)))
        return total / area

    # ------------------------------------------------------------------ in configurations

    @classmethod
    def unavailable(cls, site):
        if site.ndim < 2:
            return "expected a grid of 2 or 3 axes, as nothing flows along a wall on one of 1"
        if any(name.startswith("momentum") for name in site.schema.passing(site.ndim, site.counts)):
            return ""
        return f"model={site.schema.name} has no momentum that walls take; expected a flow or a gas"

    @classmethod
    def refusals(cls, of, given, site):
        yield from steps_refusals(site)

    @classmethod
    def readings(cls, source, written):
        names = (FRICTION_VELOCITY, Y_PLUS, LARGEST)
        return {name: () for name in (*names, *([COEFFICIENT] if "speed" in source.given else []))}

    @classmethod
    def made(cls, source, run):
        side = source.given["side"]
        (one,) = crossings(source.name, run.domain.grid, side)
        axis = one.plane.axis
        along = tuple(f"momentum_{name}" for k, name in enumerate(AXES[: run.domain.grid.ndim]) if k != axis)
        told = run.model.unknown_fluxes(along, one.plane) or run.model.frictionless(run.described_params)
        if told:
            raise ConfigurationError(f"outputs, {source.name}: {told}.")
        schema, place = run.config.schema, f"at the {side[2:]} {side[0]} side"
        speed = product_of_units(schema.length_units, to_the_power(schema.time_units, -1))
        about = {
            FRICTION_VELOCITY: (speed, f"friction velocity {place}"),
            Y_PLUS: ("1", f"y+ of the first cell {place}"),
            LARGEST: ("1", f"largest y+ of the first cells {place}"),
            COEFFICIENT: ("1", f"friction coefficient {place}"),
        }
        wall = axis, UPPER if one.plane.number else 0
        return {
            name: (cls(name, wall, source.given.get("speed")), Output(name, (), *about[name]))
            for name in cls.readings(source, {})
        }


def walls_of(config: Any, model: Any, params: Any) -> dict[str, Wall]:
    """The instruments that read y+ at the walls of a run, by the names of their sides; none where it has no friction.

    config: a `schema.config.Config`. params: of the model, of which shapes alone count.
    """
    momentum = [name for name in config.schema.passing(config.ndim, config.counts) if name.startswith("momentum")]
    if config.ndim < 2 or not momentum or model.frictionless(params):
        return {}
    found = {}
    for axis, sides in enumerate(config.boundaries):
        along = tuple(name for name in momentum if name[-1] != AXES[axis])
        for end, side in ((LOWER, sides.lower), (UPPER, sides.upper)):
            known = not model.unknown_fluxes(along, FacePlane.of_side(model.domain, axis, end))
            if side.kind in WALLS and known:
                found[f"{AXES[axis]}_{('lower', 'upper')[end]}"] = Wall(Y_PLUS, (axis, end), None)
    return found


def read_walls(walls: dict[str, Wall], model: Any, t, state, params) -> dict[str, Array]:
    """The readings of `walls_of` of a state, on this device."""
    if not walls:  # a model without any need not tell of them
        return {}
    fluxes = functools.cache(lambda plane: model.fluxes(t, state, params, plane))
    scales = functools.partial(model.wall_scales, t, state, params)
    view = View(model.domain, (), {}, dict, fluxes=fluxes, wall=scales)
    return {side: wall.read(view) for side, wall in walls.items()}


def told_walls(found: dict[str, float]) -> list[str]:
    """A sentence on y+ at walls by their sides; none where nothing flows along them."""
    known = [f"{y_plus:.3g} at {side}" for side, y_plus in found.items() if 0 < y_plus < float("inf")]
    return [f"y+ of the first cells at the start: {', '.join(known)}."] if known else []
