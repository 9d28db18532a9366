"""The choices of a flow, as a configuration says them and as the constructor of a model is given them."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from simjax.arguments import require_kind, shown
from simjax.core.boundary import FieldLayout, Side
from simjax.core.domain import Domain
from simjax.core.given_values import require_arguments, require_value
from simjax.errors import ConfigurationError
from simjax.grid import AXES, LOWER
from simjax.models.flow.bodies.solid_setup import check_solid
from simjax.models.flow.bodies.solids import Solid
from simjax.models.flow.features import ENDS, OPEN, Choices, refusals
from simjax.models.flow.sides import balance
from simjax.models.flow.sides.openings import openings_of
from simjax.models.sides import kind_of
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.schema.model_schema import IMEX

FLOW_SIDES = ("flow",)


def choices_of(
    domain: Domain,
    sides: Sequence[tuple[Side, Side]],
    layouts: Sequence[FieldLayout],
    solid: Solid | None,
    **others: Any,
) -> Choices:
    """The choices of a model; `others` are fields of `Choices`."""
    require_solid(solid, domain.grid.ndim)
    grid, wall = domain.grid, sides[RADIAL][LOWER]
    passages = {(one.axis, one.side) for one in openings_of(sides)} | {*balance.open_sides(layouts)}
    kinds = tuple((kind_of(lower, FLOW_SIDES), kind_of(upper, FLOW_SIDES)) for lower, upper in sides)
    return Choices(
        grid.ndim,
        axisymmetric=grid.axisymmetric,
        at_axis=grid.lower[RADIAL] == 0,
        stretched=tuple(AXES[axis] for axis in grid.stretched),
        sought=any(line is not None for line in domain.lines),
        sides=kinds,
        passages=tuple(f"boundaries.{AXES[axis]}.{ENDS[end]} = {kinds[axis][end]}" for axis, end in sorted(passages)),
        bodies=solid is not None,
        solid_velocity=solid is not None and solid.velocity is not None,
        torque_about=solid is not None and solid.about is not None,
        free_body=solid is not None and solid.free is not None,
        held_at_axis=any(getattr(wall, name, None) is not None for name in ("scalar", "scalars")),
        **others,
    )


def with_params(flow: Choices, params: Any) -> Choices:
    """The choices of a model with those that its parameters make."""
    bulk = params.bulk_velocity
    return dataclasses.replace(
        flow,
        eddy_viscosity=params.eddy_viscosity is not None,
        turbulence_constant=params.turbulence_constant is not None,
        rotation=None if params.rotation is None else params.rotation.shape[-1],
        bulk=None if bulk is None else tuple(wanted is not None for wanted in bulk),
    )


def choices_of_configuration(config: Any, carried: str = "") -> Choices:
    """The choices of a configuration, of a flow that carries this scalar, if any."""
    grid, keys, given, axes = config.grid, config.physics, config.coefficients, len(config.grid.shape)
    stretch, sought = grid.stretch, () if config.inverse is None else [one.path for one in config.inverse.unknowns]
    made_of = set() if stretch is None else {name for *_, formula in stretch.formulas() for name in formula.names}
    bulk, gravity = keys.bulk_velocity, getattr(keys, "gravity", None)
    return Choices(
        axes,
        axisymmetric=grid.axisymmetric,
        at_axis=grid.lower[RADIAL] == 0,
        stretched=() if stretch is None else tuple(axis for axis in AXES[:axes] if getattr(stretch, axis) is not None),
        sought=any(path.removeprefix("parameters.") in made_of for path in sought),
        sides=tuple((pair.lower.kind, pair.upper.kind) for pair in config.boundaries),
        passages=tuple(_passages(config)),
        bodies="solid" in given,
        solid_velocity="solid_velocity" in given,
        torque_about=keys.torque_about is not None,
        free_body=keys.body is not None,
        eddy_viscosity="eddy_viscosity" in given,
        turbulence=keys.turbulence,
        turbulence_constant=keys.turbulence_constant is not None,
        rotation=None if keys.rotation is None else len(keys.rotation),
        bulk=None if bulk is None else tuple(wanted is not None for wanted in bulk),
        implicit=config.time.integrator in IMEX,
        integrator=config.time.integrator,
        advection=keys.advection,
        pressure_solver=keys.pressure_solver,
        carried=carried,
        scheme=getattr(keys, "scheme", ""),
        scalars=config.counts.get("scalars", 0),
        held_at_axis=bool({*config.boundaries[RADIAL].lower.fields} - {"velocity"}),
        gravity_along_r=gravity is not None and (gravity[RADIAL] != 0 or "physics.gravity_x" in sought),
        balances=tuple(config.outputs.balanced),
    )


def _passages(config: Any) -> Iterator[str]:
    """Sides that are open, or through which a velocity is given that is not just zero."""
    for number, (axis, pair) in enumerate(zip(AXES, config.boundaries, strict=False)):
        for end, side in zip(ENDS, (pair.lower, pair.upper), strict=True):
            across = side.fields.get("velocity", ())[number : number + 1]
            if side.kind in (*OPEN, "turbulent_inflow") or any(one.names or float(one({})) != 0 for one in across):
                yield f"boundaries.{axis}.{end} = {side.kind}"


def check_flow(config: Any, carried: str = "") -> Iterator[tuple[str, str]]:
    """Sentences on a configuration of a flow, which carries this scalar, if any: its `refusals`, and on its bodies."""
    yield from check_solid(config)
    yield from refusals(choices_of_configuration(config, carried))


def require_solid(solid: Any, ndim: int) -> None:
    """Raises ConfigurationError for what are no bodies, or bodies given along another number of axes."""
    if solid is None:
        return
    require_kind("Incompressible.solid", solid, Solid, "a Solid; write Solid(lambda t, x, y: ...)")
    places = ", ".join(AXES[:ndim])
    parts = solid.velocity
    if not isinstance(parts, (tuple, list, type(None))) or (parts is not None and len(parts) != ndim):
        raise ConfigurationError(
            f"Solid.velocity={shown(parts)}: expected a function, an array or None for each of {ndim} axes."
        )
    for name, given in (("distance", solid.distance), *(("velocity", part) for part in parts or ())):
        if callable(given):
            require_arguments(f"Solid.{name}", given, f"(t, {places})", 1 + ndim)
        elif given is not None or name == "distance":
            require_value(f"Solid.{name}", given)


def forces_by_axis(name: str, forces: Any, ndim: int) -> tuple[Callable | None, ...]:
    """Forces of each component, given to the model `name`.

    Raises:
        ConfigurationError: they are no sequence of one function or None for each axis.
    """
    given = forces if isinstance(forces, Sequence) and not isinstance(forces, str) else ()
    if len(given) != ndim or not all(force is None or callable(force) for force in given):
        raise ConfigurationError(
            f"{name}.forces={shown(forces)}: expected a function f(t, coordinates, params) or None for each of {ndim} "
            f"axes; write [force, {', '.join(['None'] * (ndim - 1))}]."
        )
    return tuple(given)
