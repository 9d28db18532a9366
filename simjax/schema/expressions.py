"""The section `expressions`: fields made of those of a run by formulas, with names of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simjax.errors import ConfigurationError
from simjax.schema.field_formula import FieldFormula

FORMULA, UNITS, LONG_NAME = "formula", "units", "long_name"


@dataclass(frozen=True)
class Expression:
    """A field at the centres of cells, by a formula of the fields of a run.

    units: those that are given; None: worked out from the formula. long_name: its meaning in words; "": the formula.
    """

    formula: FieldFormula
    units: str | None = None
    long_name: str = ""

    def write(self) -> Any:
        """The plain YAML value."""
        if self.units is None and not self.long_name:
            return self.formula.write()
        more = {UNITS: self.units, LONG_NAME: self.long_name or None}
        return {FORMULA: self.formula.write()} | {key: value for key, value in more.items() if value is not None}


def with_named_expressions(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as it is written, where names alone stand for the formulas in `of` and `output.fields`.

    The formulas, each with the name that is written before it, come to the section `expressions`. What is no list or
    mapping stays as it is: the reader of its section tells.

    Raises:
        ConfigurationError: a name is given to two formulas.
    """
    found, given = dict(mapping), mapping.get("expressions")
    named = dict(given) if isinstance(given, Mapping) else {}

    def names_in(value: Any) -> Any:
        if isinstance(value, Mapping):
            for name, formula in value.items():
                if named.setdefault(name, formula) != formula:
                    raise ConfigurationError(
                        f"expressions.{name}: expected one formula for this name, and got '{named[name]}' and "
                        f"'{formula}'; give one of them another name."
                    )
            return list(value)
        if isinstance(value, (list, tuple)):
            parts = [names_in(one) if isinstance(one, Mapping) else [one] for one in value]
            return [name for part in parts for name in (part if isinstance(part, list) else [part])]
        return value

    def of_entry(entry: Any) -> Any:
        return {**entry, "of": names_in(entry["of"])} if isinstance(entry, Mapping) and "of" in entry else entry

    for section in ("outputs", "statistics"):
        given = mapping.get(section)
        if isinstance(given, (list, tuple)):
            found[section] = [of_entry(entry) for entry in given]
    output = mapping.get("output")
    if isinstance(output, Mapping) and isinstance(output.get("fields"), (list, tuple, Mapping)):
        found["output"] = {**output, "fields": names_in(output["fields"])}
    return {**found, "expressions": named} if named else found
