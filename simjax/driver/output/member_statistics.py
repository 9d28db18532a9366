"""Statistics over members on their way from the devices to the files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from simjax.driver.programs.compiled_run import MemberStatistics
from simjax.driver.programs.programs_of_fields import CompiledFields
from simjax.io.statistic_variables import COUNTED, QUANTILE, statistic_name
from simjax.parallel import whole
from simjax.schema.statistics import QUANTILES
from simjax.stepping.simulate import Clock

NEVER = np.iinfo(np.int32).max
"""The frame from which a member counts that only fills up a group."""


def reduced(programs: CompiledFields, fields: dict[str, Any], clock: Clock) -> tuple[dict[str, Any], MemberStatistics]:
    """Reduce observed fields to the members that are written and the statistics over members."""
    if not programs.config.ensemble.statistics:
        return fields, ()
    return fields if programs.outputs else {}, programs.reduced(fields, clock)


def as_written(
    programs: CompiledFields, statistics: MemberStatistics, ranges: Mapping[str, tuple[int, int]]
) -> dict[str, np.ndarray]:
    """Statistics of one time by the names of their variables, as the writer takes them, of the part within `ranges`."""
    if not statistics:
        return {}
    found = {COUNTED: whole(statistics[1])[None]}
    for statistic, arrays in statistics[0].items():
        count = len(programs.config.ensemble.statistics.quantiles)
        ahead = ((QUANTILE, count),) if statistic == QUANTILES else ()
        own = programs.assemble(arrays, ranges, ahead)
        found |= {statistic_name(name, statistic): u[None] for name, u in own.items()}
    return found
