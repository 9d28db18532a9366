"""Keys of compiled programs: runs whose configurations have equal keys share their programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from simjax.schema.config import Config, FileSource
from simjax.schema.formula import Formula
from simjax.schema.kinds import ListOf, Real
from simjax.schema.numbers import number_values
from simjax.schema.parts import Chosen

# Sections that the host reads, and sections that enter programs as arguments.
_NOT_COMPILED = (
    "experiment_name",
    "title",
    "output",
    "checkpoint",
    "limits",
    "resume",
    "exact",
    "overrides",
    "description",
    "notes",
    "inverse",
    "outputs",
    "statistics",
    "stop",
    "events",
    "physics",
    "parameters",
    "seed",
    "profile",
    "verify",
)


def structure_of(config: Config) -> Hashable:
    """The key of a configuration whose numbers are arguments of its programs.

    Of the numbers in `physics` and `parameters` only the signs count: a term whose number is zero is left out of the
    program. The seed counts where a formula calls noise, and where the model draws from
    it whatever its formulas say, as particles draw their velocities.
    """
    numbers = {**number_values(config.physics), **config.parameters}
    signs = tuple((name, (value > 0) - (value < 0)) for name, value in numbers.items())
    formulas = [*config.initial.values(), *config.coefficients.values()]
    noisy = any(formula.uses_noise for field in formulas if isinstance(field, tuple) for formula in field)
    noisy = noisy or config.schema.draws
    others = tuple(
        (field.name, frozen(getattr(config, field.name)))
        for field in dataclasses.fields(config)
        if field.name not in _NOT_COMPILED
    )
    if config.grid is not None:
        others = (*others, ("numbers of the grid", frozen(config.grid_of_fields().stretch)))
    physics = type(config.physics), _keys_of(config.physics), signs
    return others, config.outputs.balanced, *physics, config.seed if noisy else None


def _keys_of(section: Any) -> Hashable:
    """Every key path of a mapping with its value; of numbers that are arguments, that they are given."""
    keys = []
    for field in dataclasses.fields(section):
        kind, value = field.metadata["kind"], getattr(section, field.name)
        if isinstance(value, Chosen):
            keys.append((field.name, value.name, value.part, _keys_of(value.keys)))
            continue
        if dataclasses.is_dataclass(value):
            keys.append((field.name, _keys_of(value)))
            continue
        number = isinstance(kind, Real) and not field.metadata["fixed"]
        numbers = isinstance(kind, ListOf) and (kind.per_axis or kind.numbered)
        given = value is not None and (number or numbers)
        keys.append((field.name, "given" if given else frozen(value)))
    return tuple(keys)


def frozen(value: Any) -> Hashable:
    """Convert `value` to a hashable form, equal where the programs made from two values are equal.

    Numbers are told by how they are written, so that 1, 1.0 and True differ; functions by their identity; files by
    their place, size and time of change.
    """
    if isinstance(value, Formula):
        return Formula, value.text
    if isinstance(value, FileSource):  # what it holds is an argument of the programs
        return FileSource, value.variables
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return type(value), tuple((name, frozen(Path(v) if name == "file" and v else v)) for name, v in items)
    if isinstance(value, Mapping):
        return tuple((key, frozen(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    if isinstance(value, Path):
        status = value.stat() if value.is_file() else None
        return (str(value), status.st_mtime_ns, status.st_size) if status is not None else str(value)
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return repr(value)
    return value
