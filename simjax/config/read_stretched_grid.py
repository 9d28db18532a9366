"""The stretching of a grid: checked, with the faces of a file in its place, and the grid that it gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simjax.config.read_axisymmetric_grid import check_axisymmetric
from simjax.config.sections import find_input
from simjax.errors import ConfigurationError, SimjaxError
from simjax.models.registry import MODELS
from simjax.schema.config import FileSource, GridConfig
from simjax.schema.config_errors import ConfigErrors, unended
from simjax.schema.inverse import ObservationConfig
from simjax.schema.model_schema import AXES, ModelSchema
from simjax.schema.stretch import StretchConfig

if TYPE_CHECKING:
    from simjax.grid import Grid


def grid_of(grid: GridConfig) -> Grid:
    """The grid of a valid section.

    Raises:
        ConfigurationError: faces that are out of order, too close, too many or not those of the box.
    """
    from simjax.core.mappings import lines  # jax is not needed to list and to help
    from simjax.grid import Grid

    assert grid.lower is not None and grid.upper is not None
    if grid.stretch is None:
        return Grid(grid.shape, grid.lower, grid.upper, axisymmetric=grid.axisymmetric)
    found = [getattr(grid.stretch, axis) for axis in AXES[: len(grid.shape)]]
    places = [
        None if one is None else lines(one[0], one[1], n, a, b)
        for one, n, a, b in zip(found, grid.shape, grid.lower, grid.upper, strict=True)
    ]
    return Grid(grid.shape, grid.lower, grid.upper, places, grid.axisymmetric)


def read_stretching(
    grid: GridConfig | None,
    schema: ModelSchema | None,
    parameters: Mapping[str, float],
    folders: Sequence[Path],
    problems: ConfigErrors,
) -> GridConfig | None:
    """The section with the numbers of files in their place; None after telling `problems` what is wrong with it."""
    if grid is None:
        return None
    given = grid.stretch or StretchConfig()
    if not _check_numbers(given, parameters, problems):
        return None
    by_axis = {axis: getattr(given, axis) for axis in AXES if getattr(given, axis) is not None}
    before = len(problems)
    check_axisymmetric(grid, schema, problems)
    if len(problems) > before:
        return None
    if by_axis and schema is not None and not schema.stretched:
        takers = ", ".join(name for name, one in MODELS.items() if one.stretched)
        problems.say(
            "grid.stretch",
            f"grid.stretch: model={schema.name} takes uniform grids only; leave it out, or write one of {takers}",
        )
    for axis, (kind, value) in by_axis.items():
        path = f"grid.stretch.{axis}"
        if axis not in AXES[: len(grid.shape)]:
            problems.say(path, f"{path}: grid.shape={list(grid.shape)} has no axis {axis}; leave it out")
            continue
        try:
            if kind == "file":
                by_axis[axis] = "faces", read_faces(value, folders)
            one = dataclasses.replace(grid, stretch=StretchConfig(**{axis: by_axis[axis]}))
            grid_of(one.with_numbers(parameters))
        except ConfigurationError as error:
            problems.say(path, f"{path}.{kind}: {unended(error)}")
    if len(problems) > before:
        return None
    return dataclasses.replace(grid, stretch=StretchConfig(**by_axis) if by_axis else None)


def _check_numbers(given: StretchConfig, parameters: Mapping[str, float], problems: ConfigErrors) -> bool:
    """Tell of formulas of numbers that name something else than parameters, or whose values are out of range."""
    before = len(problems)
    for below, kind, formula in given.formulas():
        path = f"grid.stretch.{below}"
        try:
            formula.check_names(parameters)
        except ConfigurationError as error:
            problems.say(path, f"{path}: {unended(error)}")
            continue
        number = float(formula(parameters))
        if not kind.contains(number):
            problems.say(path, f"{path} = {formula.text!r} is {number:g}: expected {kind.allowed}")
    return len(problems) == before


def parameters_of_grid(grid: GridConfig | None) -> dict[str, str]:
    """Parameters that the stretching of a grid is made of, each with the path of one number that it is in."""
    stretch = None if grid is None else grid.stretch
    found = () if stretch is None else stretch.formulas()
    return {name: f"grid.stretch.{path}" for path, _, formula in found for name in formula.names}


SECTIONS = ("initial", "coefficients")


def check_named(found: Mapping[str, Any], several: bool, problems: ConfigErrors) -> None:
    """Refuse to vary a number that the grid is made of, and to seek it beside what is given cell by cell.

    found: the sections as they were read. several: whether the inverse problem is one of several runs.
    """
    grid, ensemble, inverse = found["grid"], found["ensemble"], found["inverse"]
    named = {f"parameters.{name}": path for name, path in parameters_of_grid(grid).items()}
    for variation in () if ensemble is None else ensemble.vary:
        if variation.path in named:
            path = f"ensemble.vary.{variation.path}"
            problems.say(
                path,
                f"{path}: {named[variation.path]} is made of it, and all members have one grid; leave it out, or make "
                f"several runs: --multirun {variation.path}=1,2",
            )
    if inverse is None:
        return
    for unknown in inverse.unknowns:
        if unknown.path not in named:
            continue
        path = f"inverse.unknowns.{unknown.path}"
        moved = f"{path}: {named[unknown.path]} is made of it, and cells move with it"
        if several:
            problems.say(path, f"{moved}, which they do in one run alone; leave out inverse.experiments")
        axes = _axes_made_of(grid, unknown.path)
        for number, observation in enumerate(inverse.observations):
            if not _is_at_given_places(observation, axes):
                problems.say(
                    path,
                    f"{moved}, while inverse.observations[{number}] ({observation.instrument.name}) is of given cells; "
                    "expected an output at given places: diagnostics, fields with a file that has coordinates, a "
                    "probe, line, line_of_sight, box_mean, histogram, surface_integral, or a slice across the axis "
                    "whose cells move",
                )
        arrays = [one.path for one in inverse.unknowns if one.path.split(".")[0] in SECTIONS]
        arrays += [
            f"{section}.{name}"
            for section in SECTIONS
            for name, source in (found[section] or {}).items()
            if isinstance(source, FileSource)
        ]
        if arrays:
            problems.say(path, f"{moved}, while {arrays[0]} is given cell by cell; expected formulas")


def _is_at_given_places(observation: ObservationConfig, axes: set[str]) -> bool:
    """Tell whether the places of an observation do not depend on the widths of cells along `axes`."""
    instrument = observation.instrument
    if instrument.kind_class.whole:
        return observation.data is not None
    cells = {AXES[axis] for axis in instrument.kind_class.along_cells(instrument, len(AXES))}
    return instrument.kind_class.at_given_places and axes.isdisjoint(cells)


def _axes_made_of(grid: GridConfig | None, path: str) -> set[str]:
    """The axes whose cells move with the parameter at a path."""
    stretch = None if grid is None else grid.stretch
    found = () if stretch is None else stretch.formulas()
    return {below[0] for below, _, formula in found if path.removeprefix("parameters.") in formula.names}


def read_faces(name: str, folders: Sequence[Path]) -> tuple[float, ...]:
    """The numbers of a text file, separated by blanks, commas or lines, or of a .npy file.

    Raises:
        ConfigurationError: no such file, or something else than numbers in it.
        InputOutputError, ResourceError: it is damaged, or too large.
    """
    import numpy as np

    from simjax.io.initial_files import read_npy_file
    from simjax.io.memory import require_memory_for_text

    path = find_input(name, folders)
    if path is None:
        raise ConfigurationError(f"no such file {name!r} (looked below {', '.join(map(str, folders))}).")
    try:
        if path.suffix == ".npy":
            values = read_npy_file(path)
        else:
            require_memory_for_text(path)
            values = np.array(path.read_text(encoding="utf-8").replace(",", " ").split(), np.float64)
        return tuple(np.asarray(values, np.float64).ravel().tolist())
    except SimjaxError:
        raise
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"{name!r} has no list of numbers ({error}).") from None
