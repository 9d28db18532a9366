"""Numbers of a section of keys: their names in formulas, their paths and their units."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from simjax.schema.kinds import ListOf, Real
from simjax.schema.model_schema import AXES
from simjax.schema.parts import Chosen


@dataclass(frozen=True)
class Number:
    """A real number of a section.

    path: where it stands below the section: "viscosity", "velocity_x" of a key with one number for each axis,
    "scalar_expansion_0" of one with one for each scalar, or "potential.yukawa.strength" of a part. value: None where it
    is not given, or where only the class of the section is known. fixed: whether shapes depend on it. of_axis: whether
    it is one of several, for each axis.
    """

    path: str
    kind: Real
    value: float | None
    units: str
    meaning: str
    fixed: bool = False
    of_axis: bool = False

    @property
    def name(self) -> str:
        """Its name in formulas and files."""
        return number_name(self.path)

    @property
    def open(self) -> bool:
        """Tell whether members of an ensemble may have their own."""
        return not (self.fixed or self.of_axis)


def number_name(path: str) -> str:
    """The name in formulas of a number below its section: of "potential.yukawa.strength" it is "potential_strength"."""
    first, _, below = path.partition(".")
    return f"{first}_{below.rpartition('.')[2]}" if below else first


def numbers_of(section: Any, ndim: int = len(AXES)) -> list[Number]:
    """All real numbers of a section, a dataclass or an instance of one: of its class those of no parts."""
    return [*_numbers(section, "", ndim)]


def _numbers(section: Any, below: str, ndim: int) -> Iterator[Number]:
    known = not isinstance(section, type)
    for field in dataclasses.fields(section):
        kind, value = field.metadata["kind"], getattr(section, field.name) if known else None
        units, fixed, path = field.metadata["units"], field.metadata["fixed"], f"{below}{field.name}"
        meaning = field.metadata["about"] or field.name.replace("_", " ")
        if isinstance(kind, Real):
            yield Number(path, kind, value, units, meaning, fixed)
        elif isinstance(kind, ListOf) and kind.per_axis and isinstance(kind.element, Real):
            entries = (value or (0.0,) * ndim) if known else (None,) * ndim
            for axis, entry in zip(AXES, entries, strict=False):
                yield Number(f"{path}_{axis}", kind.element, entry, units, f"{meaning}, {axis}", fixed, of_axis=True)
        elif isinstance(kind, ListOf) and kind.numbered and isinstance(kind.element, Real):
            for place, entry in enumerate(value or () if known else ()):
                yield Number(f"{path}_{place}", kind.element, entry, units, f"{meaning}, {place}", fixed)
        elif isinstance(value, Chosen):
            yield from _numbers(value.keys, f"{path}.{value.name}.", ndim)
        elif dataclasses.is_dataclass(value) and all("kind" in item.metadata for item in dataclasses.fields(value)):
            yield from _numbers(value, f"{path}.", ndim)


def number_values(section: Any) -> dict[str, float]:
    """The given numbers of a section on which no shape depends, by name."""
    return {n.name: n.value for n in numbers_of(section) if n.value is not None and not n.fixed}


def number_attributes(section: Any, ndim: int) -> dict[str, dict[str, str]]:
    """Units and meanings of the numbers of a section, by name."""
    return {n.name: {"long_name": n.meaning, "units": n.units} for n in numbers_of(section, ndim)}


def named_numbers(config: Any) -> dict[str, float]:
    """Every number of a configuration by its name; those of the section particles begin with `start_`."""
    values: dict[str, float] = {**number_values(config.physics), **config.parameters}
    if config.particles is not None:
        values |= {f"start_{name}": value for name, value in number_values(config.particles).items()}
    return values


def number_kinds(config: Any) -> dict[str, Real]:
    """Kinds of the numbers of a configuration by their names in `named_numbers`, those that its keys allow.

    A named parameter may be any finite number.
    """
    kinds = {n.name: n.kind for n in numbers_of(config.physics)} | dict.fromkeys(config.parameters, Real())
    if config.particles is not None:
        kinds |= {f"start_{n.name}": n.kind for n in numbers_of(config.particles)}
    return {name: kind for name, kind in kinds.items() if name in named_numbers(config)}


def leads_to_some(path: str, known: Iterable[str]) -> bool:
    """Tell whether some of the `known` paths go on below this one."""
    return any(name.startswith(f"{path}.") for name in known)
