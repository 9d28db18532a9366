"""Statistics over members on their way from the devices to the files."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from simjax.driver.compiled_run import CompiledFieldRun, CompiledRun
from simjax.io.statistic_variables import COUNTED, statistic_name
from simjax.stepping.simulate import Clock

Statistics = tuple[dict[str, dict[str, jax.Array]], jax.Array] | tuple[()]
"""Arrays by statistic and variable, and how many members count; empty where none are asked for."""


def reduced(programs: CompiledRun, fields: dict[str, Any], clock: Clock) -> tuple[dict[str, Any], Statistics]:
    """Reduce observed fields: those of members that are written, and the statistics over members."""
    if not programs.config.ensemble.statistics:
        return fields, ()
    assert isinstance(programs, CompiledFieldRun)
    statistics = programs.statistics()(fields, clock, programs.counted_from)
    return fields if programs.outputs else {}, statistics


def as_written(programs: CompiledRun, statistics: Statistics) -> dict[str, np.ndarray]:
    """Statistics of one time by the names of their variables, as the writer takes them."""
    if not statistics:
        return {}
    found = {COUNTED: np.asarray(statistics[1])[None]}
    for statistic, arrays in statistics[0].items():
        whole = programs.assemble({name: np.asarray(u) for name, u in arrays.items()})
        found |= {statistic_name(name, statistic): u[None] for name, u in whole.items()}
    return found
