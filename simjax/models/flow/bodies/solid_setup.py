"""Solid bodies of a configuration: what is given, what is refused, and the `solids.Solid` that it makes."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, LOWER
from simjax.models.declaration import Setup
from simjax.models.flow.bodies.body_box import Known
from simjax.models.flow.bodies.free_body_setup import NO_FUNCTION, check_body, motions_of
from simjax.models.flow.bodies.solid_pressure import cells_beside, known_of
from simjax.models.flow.bodies.solid_scalars import SolidSurface
from simjax.models.flow.bodies.solids import Solid
from simjax.models.formulas import FormulaValue
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.schema.kinds import ListOf, Real, key
from simjax.schema.model_schema import FieldSchema
from simjax.schema.numbers import named_numbers
from simjax.schema.units import product_of_units

SOLID = FieldSchema("solid", units="m", default=None, optional=True, distance=True)
SOLID_VELOCITY = FieldSchema("solid_velocity", vector=True, units="m s-1", default=None, staggered=True, optional=True)


def torque_about() -> Any:
    """The key of the point that torques on bodies are about."""
    return key(
        ListOf(Real(), 2, 3, optional=True, noun="numbers"),
        None,
        units="m",
        about="point that torques on bodies are about; null: their centroid",
    )


def solid_of(setup: Setup) -> Solid | None:
    """The bodies of a configuration, if any."""
    source = setup.config.coefficients.get("solid")
    if source is None:
        return None
    velocity, moves = setup.config.coefficients.get("solid_velocity"), False
    distance, parts = setup.coefficients["solid"][0], setup.coefficients.get("solid_velocity")
    if not isinstance(distance, Tracer | jax.ShapeDtypeStruct):
        require_body(setup.domain, np.asarray(distance), isinstance(source, tuple) and "t" in source[0].names)
        _require_open_sides(setup, np.asarray(distance))
        if motions_of(setup.config) is not None:
            _require_free(np.asarray(distance))
        if parts is not None and not isinstance(parts[0], Tracer | jax.ShapeDtypeStruct):
            _require_on_axis(setup.domain, np.asarray(distance), np.asarray(parts[0]))
    free, about = motions_of(setup.config), setup.keys.torque_about
    if free is not None and not isinstance(source, tuple):
        raise ConfigurationError(f"{NO_FUNCTION}.")
    if isinstance(source, tuple) and (free is not None or "t" in source[0].names):
        distance, moves = FormulaValue(source[0], dict(setup.values)), free is None
    if isinstance(velocity, tuple) and (moves or any("t" in formula.names for formula in velocity)):
        parts, moves = tuple(FormulaValue(formula, dict(setup.values)) for formula in velocity), True
    if about is not None:
        about = jnp.asarray(about, setup.config.precision)
    beside, known = (None, None) if free is not None else _known(setup, source, moves)
    return Solid(distance, None if velocity is None else parts, moves, beside, free, about, known)


MOST_BESIDE = 768
"""Sources beside bodies of which members of an ensemble have different ones. Each of a run's calls, of half a second,
then inverts their matrix anew: 0.3 s for 1500."""


def _known(setup: Setup, source: Any, moves: bool) -> tuple[int | None, Known | None]:
    """The number of cells along the surface of bodies that a formula gives with the numbers of the configuration.

    And what is known of a formula without names of numbers, which the numbers of a run do not change.
    """
    if not isinstance(source, tuple):
        return None, None
    grid, numbers = setup.domain.grid, named_numbers(setup.config)
    if not source[0].names <= {*numbers, *AXES}:
        return None, None
    lines = (
        np.linspace(low, high, n, endpoint=False) + 0.5 * (high - low) / n
        for low, high, n in zip(grid.lower, grid.upper, grid.shape, strict=True)
    )
    places = dict(zip(AXES, np.meshgrid(*lines, indexing="ij", sparse=True), strict=False))
    with np.errstate(all="ignore"):  # what is not finite is refused elsewhere
        distance = np.broadcast_to(source[0]({**numbers, **places}), grid.shape)
    periodic = [isinstance(pair[0], PeriodicSide) for pair in setup.sides]
    if source[0].names <= {*AXES} and not moves:
        known = known_of(setup.domain, distance, periodic)
        return known.beside, known
    found = cells_beside(distance, periodic)
    varied = {variation.value_name for variation in setup.config.ensemble.vary}
    return 0 if varied & source[0].names and found > MOST_BESIDE else found, None


def surface_fields(carried: str, units: str = "1") -> tuple[FieldSchema, FieldSchema]:
    """The coefficients of a carried scalar at bodies: its value there, or its flux from them."""
    flux = product_of_units(units, "m s-1")
    return (
        FieldSchema(f"solid_{carried}", units=units, default=None, optional=True),
        FieldSchema("solid_flux", units=flux, default=None, optional=True),
    )


def surface_of(setup: Setup, carried: str) -> SolidSurface | None:
    """The condition of a carried scalar at the bodies of a configuration, if there are any."""
    solid = solid_of(setup)
    if solid is None:
        return None
    found: list[Any] = []
    for name in (f"solid_{carried}", "solid_flux"):
        source = setup.config.coefficients.get(name)
        if isinstance(source, tuple) and "t" in source[0].names:
            found.append(FormulaValue(source[0], dict(setup.values)))
        else:
            found.append(None if source is None else setup.coefficients[name][0])
    return SolidSurface(solid, *found)


def refusals_at_surface(surface: SolidSurface, carried: str) -> Iterator[tuple[str, str]]:
    """Sentences on what a carried scalar cannot do around bodies, each with its key path."""
    moves = surface.solid.moving or surface.solid.velocity is not None
    yield from _surface_refusals(carried, surface.value is not None, surface.flux is not None, moves)


def check_surface(config: Any, carried: str) -> Iterator[tuple[str, str]]:
    """Sentences about a configuration whose carried scalar meets bodies in a way that cannot be run."""
    given, value = config.coefficients, f"solid_{carried}"
    if "solid" not in given:
        for name in (value, "solid_flux"):
            if name in given:
                yield (
                    f"coefficients.{name}",
                    f"coefficients.{name}: expected beside coefficients.solid, the distance from the surface of "
                    "bodies; write it, or leave this out",
                )
        return
    moves = bodies_move(config)
    yield from _surface_refusals(carried, value in given, "solid_flux" in given, moves)


def bodies_move(config: Any) -> bool:
    """Tell whether a configuration prescribes a motion of bodies or of their surface."""
    source = config.coefficients.get("solid")
    return "solid_velocity" in config.coefficients or (isinstance(source, tuple) and "t" in source[0].names)


def _surface_refusals(carried: str, value: bool, flux: bool, moves: bool) -> Iterator[tuple[str, str]]:
    if value and flux:
        yield (
            "coefficients.solid_flux",
            f"coefficients.solid_flux: leave out either this or coefficients.solid_{carried}; from one of them the "
            "other one follows",
        )
    if moves and not value:
        yield (
            f"coefficients.solid_{carried}",
            f"coefficients.solid_{carried}: expected beside bodies that move, as cells that they cover would keep what "
            f"is in them; write a value, or leave out solid_velocity and t in coefficients.solid",
        )


def check_solid(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences about a configuration with bodies that cannot be run."""
    given = config.coefficients
    yield from check_body(config)
    if "solid_velocity" in given and "solid" not in given:
        yield (
            "coefficients.solid_velocity",
            (
                "coefficients.solid_velocity: expected beside coefficients.solid, the distance from the surface of "
                "bodies (positive in the fluid), such as 'sqrt((x - 0.5)**2 + (y - 0.5)**2) - 0.1'; write it, or leave "
                "the velocity out"
            ),
        )


def require_body(domain: Domain, distance: np.ndarray, moves: bool) -> None:
    """Refuse a distance that is not finite, leaves no fluid or, where bodies do not come in later, no body."""
    wrong = np.argwhere(~np.isfinite(distance))
    if len(wrong):
        places = zip(AXES, domain.coordinates((CENTER,) * domain.grid.ndim), wrong[0], strict=False)
        where = ", ".join(f"{axis} = {float(x.ravel()[index]):g}" for axis, x, index in places)
        raise ConfigurationError(
            f"coefficients.solid is {distance[tuple(wrong[0])]} at {where} ({len(wrong)} of {distance.size} cells): "
            "expected a finite distance from the surface of the bodies everywhere."
        )
    if distance.max() <= 0:
        raise ConfigurationError(
            f"coefficients.solid: expected positive distances where there is fluid; got at most {distance.max():g}, so "
            "that bodies fill the grid. Turn its sign around if it is positive in bodies."
        )
    if distance.min() >= 0 and not moves:
        raise ConfigurationError(
            f"coefficients.solid: expected negative distances inside of bodies; got at least {distance.min():g} at the "
            "centres of cells. Move or enlarge the body, make the grid finer, or leave coefficients.solid out."
        )


def _require_free(distance: np.ndarray) -> None:
    """Refuse a body that the fluid moves where it reaches a side at the start, or has no volume on the grid."""
    for axis in range(distance.ndim):
        for end, index in (("lower", 0), ("upper", -1)):
            if np.take(distance, index, axis=axis).min() <= 0:
                raise ConfigurationError(
                    f"coefficients.solid: the body that physics.body moves reaches the {end} side along {AXES[axis]} "
                    "at the start; expected all of it inside of the box: move it, or make the box larger."
                )
    corners = distance
    for axis in range(distance.ndim):
        n = distance.shape[axis]
        corners = 0.5 * (corners.take(range(n - 1), axis) + corners.take(range(1, n), axis))
    if corners.min() >= 0:
        raise ConfigurationError(
            "coefficients.solid: the body that physics.body moves covers no corner of a cell, so that it has no mass "
            "on the grid; expected one at least two cells thick: enlarge it, or make the grid finer."
        )


def _require_on_axis(domain: Domain, distance: np.ndarray, across: np.ndarray) -> None:
    """Refuse a body whose material moves off the axis of an axisymmetric grid. across: its velocity along r."""
    if not domain.grid.axisymmetric or domain.grid.lower[RADIAL] != 0:
        return
    off = np.where(distance[0] < 0, np.broadcast_to(across, distance.shape)[0], 0.0)
    if np.any(off != 0):
        raise ConfigurationError(
            f"coefficients.solid_velocity: expected a velocity along r that vanishes on the axis inside of a body, as "
            f"bodies there move along z or grow, and got {off[np.argmax(np.abs(off))]:g}; write 0, or a formula such "
            "as 0.1*x."
        )


def _require_open_sides(setup: Setup, distance: np.ndarray) -> None:
    """Refuse bodies in sides through which the fluid passes: what is prescribed or solved for there is the fluid's."""
    for axis, (pair, walls) in enumerate(zip(setup.sides, setup.config.boundaries, strict=True)):
        for end, (one, wall) in enumerate(zip(pair, (walls.lower, walls.upper), strict=True)):
            if isinstance(one, PeriodicSide) or one.solid:
                continue
            line = np.take(distance, 0 if end == LOWER else -1, axis=axis)
            if line.min() <= 0:
                side = ("lower", "upper")[end]
                raise ConfigurationError(
                    f"coefficients.solid: a body covers {np.mean(line <= 0):.0%} of boundaries.{AXES[axis]}.{side} "
                    f"({wall.kind}), where the fluid passes; expected at least one cell of fluid before it: move the "
                    "body, or make the grid longer."
                )
