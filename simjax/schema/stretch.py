"""The section `grid.stretch`: along which axes cells differ in width, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simjax.schema.kinds import Choice, ListOf, Nested, OneOf, Real, Text, key

ENDS = ("both", "lower", "upper")


@dataclass(frozen=True)
class Tanh:
    """Fine cells at one or both ends of an axis, by a hyperbolic tangent."""

    strength: float = key(
        Real(above=0.0, high=20.0, formula=True), about="how much finer; cells in the middle are cosh^2 times wider"
    )
    fine: str = key(Choice(ENDS), "both", about="ends of the axis with fine cells")


@dataclass(frozen=True)
class Geometric:
    """Each cell wider than the one before by one ratio, away from the fine end."""

    ratio: float = key(Real(above=1.0, high=10.0, formula=True), about="of the widths of neighbours")
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
