"""Parts of the bounds of checks of a finished run: sizes of series, roundings, and which checks a model declares."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

import jax.numpy as jnp
import numpy as np

from simjax.core.measure_checks import Conserved, Falling, PairMomentum, SmallDrift
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.io.run_numbers import RunNumbers
from simjax.models.measures import measure_of

ROUNDINGS = 10
"""So many in a step, one on another."""
SPREADS = 6
"""Standard deviations of a sum of random roundings that are no accident."""
LEAST = 1e-300
"""Divisor in the place of a size that is zero."""
CheckKind = TypeVar("CheckKind", Conserved, Falling, PairMomentum, SmallDrift)


def declared(programs: CompiledRun, numbers: RunNumbers, kind: type[CheckKind]) -> Iterator[tuple[str, CheckKind]]:
    """Recorded numbers for which the model declares such a check."""
    for name in numbers.series:
        measure = measure_of(programs.measures, name)
        if measure is not None and isinstance(measure.check, kind):
            yield name, measure.check


def greatest(values: np.ndarray) -> float:
    """The largest of those that are numbers; not a number where none is."""
    known = values[~np.isnan(values)]
    return float(np.max(known)) if known.size else math.nan


def largest_sizes(series: np.ndarray) -> np.ndarray:
    """The largest size of each member at the frames that it reached."""
    return np.max(np.abs(np.where(np.isfinite(series), series, 0.0)), axis=-1)


def values_before(series: np.ndarray) -> np.ndarray:
    """The values at the frame before each."""
    return np.concatenate([series[:, :1], series[:, :-1]], axis=-1)


def steps_of(numbers: RunNumbers) -> int:
    """Steps of a run, at least one."""
    return max(1, int(np.max(numbers.step)))


def precision_of(programs: CompiledRun) -> float:
    """The spacing of numbers at one in the run's precision."""
    return float(np.finfo(programs.dtype).eps)


def stored_spacing(programs: CompiledRun) -> float:
    """The spacing of numbers at one in which fields are kept between steps, where that is in 16 bits; else zero."""
    storage = programs.config.storage
    return 0.0 if storage is None else float(jnp.finfo(storage.dtype).eps)


def rounding_of(programs: CompiledRun, numbers: RunNumbers) -> float:
    """Accumulated rounding of a number of size one, a random walk over all steps."""
    return ROUNDINGS * precision_of(programs) * steps_of(numbers) ** 0.5


def spoken(name: str) -> str:
    """The name of a quantity as the label of a check begins with it."""
    return name.replace("_", " ").capitalize()
