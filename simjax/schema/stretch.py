"""The section `grid.stretch`: along which axes cells differ in width, and how."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from simjax.errors import ConfigurationError
from simjax.schema.config_errors import ConfigErrors, unended
from simjax.schema.formula import Formula
from simjax.schema.kinds import Choice, ListOf, Nested, OneOf, Real, Text, key

ENDS = ("both", "lower", "upper")


@dataclass(frozen=True)
class Named(Real):
    """A number, or a formula of `parameters`."""

    @property
    def allowed(self) -> str:
        return f"{super().allowed}, or a formula of parameters"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> float | Formula | None:
        if isinstance(value, str):
            try:
                formula = Formula(value)
            except ConfigurationError as error:
                problems.add(path, value, self.allowed, unended(error))
                return None
            if formula.names:
                return formula
        return super().read(path, value, problems)

    def write(self, value: float | Formula) -> float | str:
        return value.text if isinstance(value, Formula) else value


@dataclass(frozen=True)
class Tanh:
    """Fine cells at one or both ends of an axis, by a hyperbolic tangent."""

    strength: float | Formula = key(
        Named(above=0.0, high=20.0, formula=True), about="how much finer; cells in the middle are cosh^2 times wider"
    )
    fine: str = key(Choice(ENDS), "both", about="ends of the axis with fine cells")


@dataclass(frozen=True)
class Geometric:
    """Each cell wider than the one before by one ratio, away from the fine end."""

    ratio: float | Formula = key(Named(above=1.0, high=10.0, formula=True), about="of the widths of neighbours")
    fine: str = key(Choice(ENDS), "both", about="ends of the axis with fine cells")


STRETCHING = OneOf(
    {
        "tanh": Nested(Tanh),
        "geometric": Nested(Geometric),
        "formula": Text(described="a formula of s, the share of the cells passed, that increases from s=0 to s=1"),
        "faces": ListOf(Real(formula=True), 2, 2**20 + 1, noun="positions, one more than cells"),
        "file": Text(described="a text or .npy file of positions, one more than cells"),
    },
    optional=True,
)


@dataclass(frozen=True)
class StretchConfig:
    """Per axis how cells are stretched; None: uniform."""

    x: tuple[str, Any] | None = key(STRETCHING, None, about="widths of cells along x; null: all alike")
    y: tuple[str, Any] | None = key(STRETCHING, None, about="widths of cells along y; null: all alike")
    z: tuple[str, Any] | None = key(STRETCHING, None, about="widths of cells along z; null: all alike")

    def formulas(self) -> Iterator[tuple[str, Named, Formula]]:
        """Numbers that are formulas of `parameters`, by path below the section."""
        for axis in dataclasses.fields(self):
            kind, keys = getattr(self, axis.name) or ("", None)
            for field in dataclasses.fields(keys) if isinstance(keys, Tanh | Geometric) else ():
                value = getattr(keys, field.name)
                if isinstance(value, Formula):
                    yield f"{axis.name}.{kind}.{field.name}", field.metadata["kind"], value

    def with_numbers(self, values: Mapping[str, Any], module: ModuleType | None = None) -> StretchConfig:
        """The section with numbers in the place of formulas: floats, or with jax.numpy what a program traces."""
        changed: dict[str, tuple[str, Any]] = {}
        for path, _, formula in self.formulas():
            axis, kind, name = path.split(".")
            number = formula(values, module)
            number = float(number) if module is None else number
            changed[axis] = kind, dataclasses.replace(getattr(self, axis)[1], **{name: number})
        return dataclasses.replace(self, **changed)
