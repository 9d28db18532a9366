"""The scene of a run, from its configuration: walls, media, sources, the exact solution, the size of particles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from simjax.driver.start.build import build_model, coefficient_fields, exact_solution
from simjax.grid import AXES, CENTER
from simjax.models.formulas import FormulaValue
from simjax.parallel import on_first_device
from simjax.report.scene import Scene
from simjax.schema.config import Config
from simjax.schema.side_declarations import sides_of

if TYPE_CHECKING:
    from simjax.driver.programs.programs_of_fields import CompiledFields
    from simjax.driver.programs.programs_of_particles import CompiledParticles

MOST_CELLS = 2**24
"""Cells up to which media and exact solutions are formed on the host for pictures."""


def scene_of_particles(programs: CompiledParticles) -> Scene:
    """The sizes of particles and the sides of their box, for pictures of a run."""
    sizes = programs.family.diameters()
    periodic = tuple(programs.family.bounds.periodic)
    return Scene(diameters=None if sizes is None else np.asarray(sizes), periodic=periodic)


def scene_of_fields(programs: CompiledFields) -> Scene:
    """Bodies, media, sources and the exact solution of a run, for its pictures; of an ensemble, its first member's."""
    config, grid = programs.config, programs.grid
    box = tuple(zip(grid.lower, grid.upper, strict=True))
    periodic = tuple(axis.periodic for axis in config.boundaries)
    if grid.cells > MOST_CELLS:
        return Scene(box, _walls(config), periodic=periodic)
    centers = {axis: grid.coordinates(axis, CENTER) for axis in grid.stretched}
    media, marks, exact, followed = _inside(programs)
    distances = {field.name for field in config.schema.coefficients if field.distance}
    bodies, moving = _bodies(programs, media, next(iter(distances & {*media}), None))
    media = {name: values for name, values in media.items() if name not in distances}
    return Scene(
        box, _walls(config), bodies, moving, media, marks, exact, periodic=periodic, centers=centers, followed=followed
    )


def _bodies(
    programs: CompiledFields, found: Mapping[str, np.ndarray], name: str | None
) -> tuple[Callable[[float], np.ndarray] | None, bool]:
    """The distance from bodies at a time, by the name of the coefficient, and whether they move."""
    if name is None:
        return None, False
    source, domain = programs.config.coefficients[name], programs.domain.unsplit()
    if not isinstance(source, tuple) or "t" not in source[0].names:
        return lambda _: found[name], False
    values = _values(programs)
    centers = domain.coordinates((CENTER,) * domain.grid.ndim, programs.dtype)
    distance = FormulaValue(source[0], values)
    return _on_host(lambda t: jnp.broadcast_to(distance(t, *centers), domain.block_shape)), True


def _values(programs: CompiledFields) -> dict[str, jax.Array]:
    """Numbers by name, of an ensemble of its first member; only put on a device, as `jnp.asarray` would compile."""
    return {name: jax.device_put(np.ravel(value)[0]) for name, value in programs.host_values().items()}


def _walls(config: Config) -> frozenset[tuple[str, str]]:
    kinds = sides_of(config.schema.sides)
    sides = [
        (axis, end, getattr(both, end).kind)
        for axis, both in zip(AXES, config.boundaries, strict=False)
        for end in ("lower", "upper")
    ]
    return frozenset((axis, end) for axis, end, kind in sides if kind in kinds and kinds[kind].side.solid)


def _inside(
    programs: CompiledFields,
) -> tuple[
    Mapping[str, np.ndarray], Mapping[str, np.ndarray], Mapping[str, Callable[[float], np.ndarray]], Callable | None
]:
    """Media, marks and exact solutions, each by name, and the distance from a body by diagnostics."""
    config, domain = programs.config, programs.domain.unsplit()
    values = _values(programs)
    files = {
        section: {name: tuple(on_first_device(u) for u in parts) for name, parts in own.items()}
        for section, own in programs.fields.items()
    }
    found = coefficient_fields(config, domain, values, files["coefficients"])
    media = {name: np.asarray(parts[0]) for name, parts in found.items() if len(parts) == 1}
    model, params = build_model(config, domain, values, files)
    marks = {name: np.asarray(places) for name, places in model.marks(params).items()}
    exact = {name: _on_host(known) for name, known in exact_solution(config, model, values).items()}
    distance = model.body_distance(params)
    return media, marks, exact, None if distance is None else _on_host(distance)


def _on_host(known: Callable[[Any], jax.Array]) -> Callable[[float], np.ndarray]:
    compiled = jax.jit(known)
    return lambda t: np.asarray(compiled(t))
