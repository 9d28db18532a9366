"""Statistics over the members of an ensemble as variables of a file, such as `velocity_x_mean`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from simjax.io.frame_layout import Variable
from simjax.schema.statistics import QUANTILES, Statistics
from simjax.schema.units import squared

if TYPE_CHECKING:
    from simjax.core.model import Output

QUANTILE = "quantile"
COUNTED = "members_counted"
# Name of a statistic -> end of a variable's name, method in CF's words, and what is said before the long name.
_SAID = {
    "mean": ("mean", "mean", "mean over members of"),
    "variance": ("variance", "variance", "variance over members of"),
    "min": ("min", "minimum", "smallest over members of"),
    "max": ("max", "maximum", "largest over members of"),
    QUANTILES: (QUANTILE, "", "quantile over members of"),
}


def statistic_name(variable: str, statistic: str) -> str:
    """The name of a statistic of a variable in the file."""
    return f"{variable}_{_SAID[statistic][0]}"


def statistic_in_name(name: str) -> tuple[str, str]:
    """The variable and the end of a statistic's name: `velocity_x` and `mean` of `velocity_x_mean`."""
    variable, _, end = name.rpartition("_")
    return variable, end


def statistics_in(statistics: Statistics) -> tuple[str, ...]:
    """Names of the statistics with a variable of their own; all quantiles share one."""
    return (*statistics.names, *([QUANTILES] if statistics.quantiles else []))


def statistic_output(output: Output, statistic: str) -> Output:
    """A statistic of a variable, as a variable; those of a vector's components are components, the variance alone."""
    end, _, said = _SAID[statistic]
    return replace(
        output,
        name=statistic_name(output.name, statistic),
        long_name=f"{said} {output.long_name or output.name}",
        units=squared(output.units) if statistic == "variance" else output.units,
        standard_name="",
        vector=f"{output.vector}_{end}" if output.vector and statistic == "mean" else "",
    )


def statistic_fields(
    outputs: Sequence[Output], statistics: Statistics
) -> Iterator[tuple[Output, tuple[str, ...], dict[str, object]]]:
    """Every statistic of every variable: how it is written, its dimensions before those of space, its attributes."""
    for output in outputs:
        for statistic in statistics_in(statistics):
            method = _SAID[statistic][1]
            dims = (QUANTILE, "time") if statistic == QUANTILES else ("time",)
            yield statistic_output(output, statistic), dims, {"cell_methods": f"member: {method}"} if method else {}


def quantile_coordinate(statistics: Statistics) -> list[Variable]:
    """The shares of members that are below the quantiles, if there are any."""
    if not statistics.quantiles:
        return []
    attributes = {"long_name": "share of members below the value", "units": "1"}
    return [Variable(QUANTILE, (QUANTILE,), np.dtype("f8"), attributes, np.asarray(statistics.quantiles))]


def members_counted(statistics: Statistics) -> list[Variable]:
    """The number of members in the statistics of each frame."""
    if not statistics:
        return []
    attributes = {"long_name": "members that the statistics count", "units": "1"}
    return [Variable(COUNTED, ("time",), np.dtype("i4"), attributes)]
