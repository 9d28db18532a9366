"""Files of a training: its history, NetCDF-4 on HDF5 ("simjax training/1"), and the module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simjax.io.files import new_hdf5, replaced
from simjax.io.frame_layout import Variable, cf_attributes, write_variables
from simjax.io.replacing import LAYOUT_ATTRIBUTE, MODULE_NAME, TRAINING_LAYOUT, TRAINING_NAME


@dataclass(frozen=True)
class TrainingLine:
    """A line of a training's history, after so many `updates` in all.

    stage: number of the stage, from 0. loss, gradient_norm: means over the updates since the line before. validation:
    the mean error of batches that are not trained on; None where there are none.
    """

    updates: int
    stage: int
    loss: float
    gradient_norm: float
    validation: float | None = None


def write_training(folder: Path, history: Sequence[TrainingLine]) -> Path:
    """Write the history of a training to `training.h5`, and return its path."""
    meanings = {
        "stage": "number of the stage, from 0",
        "loss": "mean error of the batches since the value before",
        "gradient_norm": "mean norm of the gradient since the value before",
        "validation": "mean error of batches that are not trained on",
    }
    updates = np.asarray([line.updates for line in history], np.int64)
    variables = [_variable("updates", updates, "number of updates of the weights")]
    for name, meaning in meanings.items():
        values = [getattr(line, name) for line in history]
        if any(value is not None for value in values):
            dtype = np.int64 if name == "stage" else np.float64
            filled = [np.nan if value is None else value for value in values]
            variables.append(_variable(name, np.asarray(filled, dtype), meaning))
    path = folder / TRAINING_NAME
    with replaced(path) as temporary, new_hdf5(temporary) as file:
        write_variables(file, {**cf_attributes("Training"), LAYOUT_ATTRIBUTE: TRAINING_LAYOUT}, variables)
    return path


def write_module(folder: Path, module: Any) -> Path:
    """Write the arrays of a module to `module.eqx`, and return its path."""
    import equinox as eqx

    path = folder / MODULE_NAME
    with replaced(path) as temporary:
        eqx.tree_serialise_leaves(temporary, module)
    return path


def _variable(name: str, values: np.ndarray, meaning: str) -> Variable:
    return Variable(name, ("updates",), values.dtype, {"units": "1", "long_name": meaning}, values)
