"""Fields of a run on a coarser grid: means over its cells and faces, so that amounts and fluxes are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simjax.errors import ConfigurationError
from simjax.io.saved_runs import SavedRun
from simjax.io.staggering import FACE
from simjax.io.whole_trajectories import uniform_box


def require_divisible(run: SavedRun, factor: int) -> None:
    """Raise ConfigurationError where the cells of a run cannot be joined, `factor` along each axis."""
    for axis, line in uniform_box(run).lines.items():
        if len(line) % factor:
            raise ConfigurationError(
                f"coarsen={factor}: {run.folder} has {len(line)} cells along {axis}; write a factor that divides the "
                "cells along every axis."
            )


def coarsened(values: np.ndarray, space: Sequence[str], factor: int) -> np.ndarray:
    """Means `(..., *coarse)` of values `(..., *fine)`, whose last axes are those of `space`, over `factor` cells each.

    A value on faces is the mean over the faces that make up a coarse one, so that what flows through it is the same,
    and a velocity without divergence stays one.
    """
    first = values.ndim - len(space)
    for axis, dim in enumerate(space, start=first):
        if dim.endswith(FACE):
            values = values[(*(slice(None),) * axis, slice(None, None, factor))]
        else:
            shape = values.shape
            values = values.reshape(*shape[:axis], shape[axis] // factor, factor, *shape[axis + 1 :]).mean(axis + 1)
    return values
