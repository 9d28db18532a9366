"""Writes the fields of a run in the layout "simjax grid/1"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simjax.errors import InputOutputError
from simjax.io.formats import output_format
from simjax.io.frame_layout import CONVENTIONS, SGRID, root_attributes
from simjax.io.frame_output import FrameWriter
from simjax.io.grid_layout import LAYOUT, build_layout, round_mantissa
from simjax.io.segments import WHOLE, Part
from simjax.schema.statistics import NO_STATISTICS, Statistics

if TYPE_CHECKING:
    from simjax.core.model import Output
    from simjax.grid import Grid

FIELDS_NAME = "fields.h5"
EVENTS_FOLDER = "events"
"""Folder of the folders with frames that events wrote."""


@output_format(
    "netcdf",
    content="fields",
    patterns=(FIELDS_NAME, "data/fields.p*.s*.h5"),
    programs=("xarray", "netCDF4", "h5py"),
    about="fields, diagnostics and parameters on a grid: NetCDF4 with CF and SGRID attributes",
    how_to_open='import xarray as xr\n\nds = xr.open_dataset({file}, engine="h5netcdf")',
)
class GridWriter(FrameWriter):
    """Writes frames of fields: `fields[name]` is (frames, [member,] x, y, z), written as ([member,] time, z, y, x).

    periodic: per axis, by default all; along others a field on faces has one value more than there are cells. about:
    attributes of parameters and diagnostics by name, such as units. member_numbers: by default 0, 1, 2, ... statistics:
    those over members of the `reduced` variables, as `io.statistic_variables` names them.
    """

    def __init__(
        self,
        folder: Path,
        grid: Grid,
        outputs: Sequence[Output],
        *,
        members: int | None,
        parameters: Mapping[str, np.ndarray],
        diagnostics: Sequence[str],
        attributes: Mapping[str, str | int],
        title: str,
        periodic: Sequence[bool] | None = None,
        about: Mapping[str, Mapping[str, object]] | None = None,
        time_units: str = "s",
        length_units: str = "m",
        dtype: npt.DTypeLike = np.float32,
        rounding_bits: int | None = None,
        keep_until_step: int | None = None,
        segment_bytes: int = 64 << 20,
        parts: Sequence[Part] = (WHOLE,),
        member_numbers: Sequence[int] | None = None,
        statistics: Statistics = NO_STATISTICS,
        reduced: Sequence[Output] = (),
    ):
        self.grid, self.outputs = grid, tuple(outputs)
        self.statistics, self.reduced = statistics, tuple(reduced) if statistics else ()
        layout = build_layout(
            grid,
            outputs,
            members=members,
            parameters=parameters,
            diagnostics=diagnostics,
            time_units=time_units,
            length_units=length_units,
            dtype=dtype,
            rounding_bits=rounding_bits,
            periodic=periodic,
            about=about,
            member_numbers=member_numbers,
            statistics=statistics,
            reduced=self.reduced,
        )
        root = root_attributes(attributes, title, np.dtype(dtype), LAYOUT)
        if any("cf_role" in variable.attributes for variable in layout.fixed):
            root["Conventions"] = f"{CONVENTIONS} {SGRID}"
        super().__init__(
            folder,
            FIELDS_NAME,
            "fields",
            layout,
            root,
            keep_until_step=keep_until_step,
            segment_bytes=segment_bytes,
            parts=parts,
        )

    def to_file(self, layout, variable, given, frames):
        shape = layout.shape(variable, frames)
        lead = variable.dims.index("time") + 1
        expected = shape[:lead][::-1] + shape[lead:][::-1]
        if given is None or given.shape != expected:
            found = "nothing" if given is None else f"shape {given.shape}"
            raise InputOutputError(f"output {variable.name!r}: expected shape {expected}, got {found}.")
        order = (*reversed(range(lead)), *reversed(range(lead, given.ndim)))
        values = np.ascontiguousarray(given.transpose(order), dtype=variable.dtype)
        bits = self._layout.rounding_bits
        return values if bits is None or lead == len(shape) else round_mantissa(values, bits)
