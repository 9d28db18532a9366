"""Units of what a formula of fields gives, worked out from those of the names in it."""

from __future__ import annotations

from collections.abc import Mapping

from simjax.errors import ConfigurationError
from simjax.schema.field_formula import ALONG, FieldFormula
from simjax.schema.formula import Tree
from simjax.schema.units import in_base_units, product_of_units, text_of, to_the_power

PLAIN = ""
"""Units of a number that is written in the formula: in a sum it has those of the other terms."""
ALIKE = ("+", "-", "minimum", "maximum", "mod", "where")
KEPT = ("negative", "abs", "floor", "norm", "mean", "part")


def units_of(formula: FieldFormula, known: Mapping[str, str], lengths: str) -> str:
    """The units of a formula; "1" for a plain number.

    known: units of the names in it. lengths: those of the axes.

    Raises:
        ConfigurationError: terms of a sum have unlike units, or the units of a name are not known.
    """

    def refuse(message: str):
        raise ConfigurationError(
            f"'{formula.text}': {message}; write {{formula: ..., units: ...}} where a number in it has units of its "
            "own."
        )

    def of(tree: Tree) -> str:
        if tree[0] == "number":
            return PLAIN
        if tree[0] == "name":
            if tree[1] not in known:
                refuse(f"the units of {tree[1]} are not known")
            return known[tree[1]]
        name = tree[1] if tree[0] == "call" else tree[0]
        base, _, axis = name.partition("_")
        name = base if base in ALONG and axis else name
        parts = [of(part) for part in tree[1:] if isinstance(part, tuple) and part[0] not in _CONDITIONS]
        if name in ALIKE:
            return alike(parts, name)
        if name in KEPT:
            return parts[0]
        if name in ("*", "dot"):
            return product_of_units(*parts) if any(parts) else PLAIN
        if name == "/":
            return product_of_units(parts[0], to_the_power(parts[1] or "1", -1)) if any(parts) else PLAIN
        if name in ("d", "grad", "div", "curl"):
            return product_of_units(parts[0], to_the_power(lengths, -1))
        if name == "sqrt":
            return root(parts[0], 0.5) if parts[0] else PLAIN
        if name == "**":
            return power(tree, parts[0])
        return "1"

    def alike(parts: list[str], name: str) -> str:
        given = [units for units in parts if units != PLAIN]
        for units in given[1:]:
            if in_base_units(units) != in_base_units(given[0]):
                where = "a sum" if name in ("+", "-") else name
                refuse(f"terms of {where} have unlike units, {given[0]} and {units}")
        return given[0] if given else PLAIN

    def power(tree: Tree, base: str) -> str:
        if in_base_units(base or "1") == in_base_units("1"):
            return base
        if tree[2][0] != "number":
            refuse(f"a power of something in {base} is no number that is written")
        return root(base, tree[2][1])

    def root(units: str, power: float) -> str:
        found = to_the_power(units, power)
        return text_of(in_base_units(found)) if "." in found else found

    return of(formula.tree) or "1"


_CONDITIONS = ("compare", "and", "or", "not")
