"""The section `sponge`: layers beside sides in which fields are drawn towards given values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simjax.schema.formula import Formula
from simjax.schema.kinds import write
from simjax.schema.model_schema import AXES

ENDS = ("lower", "upper")
TOWARDS = "towards"


@dataclass(frozen=True)
class SpongeLayer:
    """A layer beside the side `end`, an index of `ENDS`, of an axis: its width, m, and the rate at the side, 1 / s."""

    axis: int
    end: int
    width: Formula
    strength: Formula


@dataclass(frozen=True)
class SpongeConfig:
    """Layers, and the values that fields have far away: a formula for each component, by field."""

    layers: tuple[SpongeLayer, ...]
    towards: Mapping[str, tuple[Formula, ...]]

    def write(self) -> dict[str, Any]:
        """The plain YAML value."""
        sides: dict[str, Any] = {}
        for one in self.layers:
            layer = {"width": write(one.width), "strength": write(one.strength)}
            sides.setdefault(AXES[one.axis], {})[ENDS[one.end]] = layer
        return {**sides, TOWARDS: write(self.towards)}
