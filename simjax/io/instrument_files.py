"""Files of a run's instruments: `outputs/NAME/samples.h5` in its folder, each with a time axis of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simjax.errors import InputOutputError
from simjax.io.frame_layout import FrameLayout, Variable, frame_layout, member_coordinate, root_attributes
from simjax.io.frame_output import FrameWriter
from simjax.io.segments import Part

if TYPE_CHECKING:
    from simjax.core.model import Output

LAYOUT = "simjax instrument/1"
FOLDER, SAMPLES_NAME = "outputs", "samples.h5"
STATION = "station"
"""The dimension of points that are the stations of a discrete sampling geometry of CF."""


class InstrumentWriter(FrameWriter):
    """Writes samples of one instrument: `given[name]` is (samples, [member,] *own axes), x before y before z.

    A sample is a frame in a folder of the instrument's own; of several processes the first one writes all of it.
    fixed: coordinates. dims: those of each variable beside members and time, slowest first. described: further
    attributes of variables.
    """

    diagnostics_name = None

    def __init__(
        self,
        folder: Path,
        outputs: Mapping[str, Output],
        dims: Mapping[str, tuple[str, ...]],
        fixed: Sequence[Variable],
        *,
        dtype: np.dtype,
        members: Sequence[int] | None,
        time_units: str,
        attributes: Mapping[str, Any],
        title: str,
        keep_until_step: int | None,
        parts: Sequence[Part],
        described: Mapping[str, Mapping[str, Any]],
        segment_bytes: int = 64 << 20,
    ):
        layout = frame_layout(
            [*member_coordinate(None if members is None else len(members), members), *fixed],
            [
                _variable(output, dims[name], fixed, dtype, members is not None, described.get(name, {}))
                for name, output in outputs.items()
            ],
            time_units,
        )
        root = root_attributes(attributes, title, dtype, LAYOUT)
        if any(variable.name == STATION for variable in fixed):
            root["featureType"] = "timeSeries"
        super().__init__(
            folder,
            SAMPLES_NAME,
            "samples",
            layout,
            root,
            keep_until_step=keep_until_step,
            parts=parts,
            segment_bytes=segment_bytes,
        )

    def to_file(self, layout: FrameLayout, variable: Variable, given: np.ndarray | None, frames: int) -> np.ndarray:
        own = [dim for dim in variable.dims if dim not in ("member", "time")]
        axes = ["time", *(["member"] if "member" in variable.dims else []), *reversed(own)]
        sizes = {"time": frames, **{dim: layout.sizes[dim] for dim in variable.dims if dim != "time"}}
        expected = tuple(sizes[dim] for dim in axes)
        if given is None or given.shape != expected:
            found = "nothing" if given is None else f"shape {given.shape}"
            raise InputOutputError(f"instrument {variable.name!r}: expected shape {expected}, got {found}.")
        order = [axes.index(dim) for dim in variable.dims]
        return np.ascontiguousarray(given.transpose(order), dtype=variable.dtype)


def _variable(
    output: Output,
    dims: tuple[str, ...],
    fixed: Sequence[Variable],
    dtype: np.dtype,
    of_members: bool,
    described: Mapping[str, Any],
) -> Variable:
    """A variable of samples; time series of stations have their time last, as CF has them."""
    lead = ("member",) if of_members else ()
    order = (*dims, "time") if dims == (STATION,) else ("time", *dims)
    attributes: dict[str, Any] = {"units": output.units, "long_name": output.long_name or output.name}
    if output.standard_name:
        attributes["standard_name"] = output.standard_name
    # Coordinates that are no dimension of their own: places of stations, of points on a line, of a plane.
    beside = [v.name for v in fixed if v.dims != (v.name,) and set(v.dims) <= {*lead, *dims}]
    if beside:
        attributes["coordinates"] = " ".join(beside)
    attributes |= described
    attributes["_FillValue"] = dtype.type(np.nan)
    return Variable(output.name, (*lead, *order), dtype, attributes)
