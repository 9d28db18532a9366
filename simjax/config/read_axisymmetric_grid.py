"""The check of an axisymmetric grid."""

from __future__ import annotations

from simjax.models.registry import MODELS
from simjax.schema.config import GridConfig
from simjax.schema.config_errors import ConfigErrors
from simjax.schema.model_schema import ModelSchema

PATH = "grid.axisymmetric"


def check_axisymmetric(grid: GridConfig | None, schema: ModelSchema | None, problems: ConfigErrors) -> None:
    """Tell of a model without such grids, of axes other than r and z, and of radii below zero."""
    if grid is None or not grid.axisymmetric:
        return
    if schema is not None and not schema.axisymmetric:
        takers = ", ".join(name for name, one in MODELS.items() if one.axisymmetric)
        problems.say(PATH, f"{PATH}: model={schema.name} takes Cartesian grids only; leave it out, or write {takers}")
    if len(grid.shape) != 2:
        problems.add("grid.shape", list(grid.shape), "two sizes on an axisymmetric grid, along r and along z")
    elif grid.lower is not None and grid.lower[0] < 0:
        problems.add("grid.lower[0]", grid.lower[0], "a number of at least 0 on an axisymmetric grid, where x is r")
