"""VTKHDF sidecars: what ParaView opens, without a second copy of the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h5py
import numpy as np

from simjax.io.files import new_hdf5, replaced
from simjax.io.formats import output_format
from simjax.io.replacing import LAYOUT_ATTRIBUTE, VIEW_LAYOUT
from simjax.io.statistic_variables import statistic_output
from simjax.schema.statistics import QUANTILES

if TYPE_CHECKING:
    from simjax.core.model import Output
    from simjax.grid import Grid
    from simjax.io.grid_output import GridWriter


@output_format(
    "vtkhdf_image",
    content="fields",
    patterns=("fields.vtkhdf", "fields.m0000.vtkhdf"),
    programs=("ParaView", "VTK"),
    about="the same fields, without a copy; of an ensemble one block for each member",
    how_to_open="paraview {file}",
    by_member=True,
)
def write_images(writer: GridWriter) -> None:
    """Write `fields.m0000.vtkhdf` beside the file of fields, or `fields.vtkhdf` of an ensemble.

    The first is a VTKHDF 2.0 ImageData of the grid's cells over time, whose arrays are virtual datasets over
    that file, named by a relative path, so the folder may move. The second is a VTKHDF 2.2 MultiBlockDataSet of such
    images, one for each member, named by its number, and one of the statistics over members. Components that share a
    `vector` name become one array of three components. A variable that lives on lower faces is shown in the cell that
    owns the face, half a cell above its place, because an image has one set of cells (`grid_location` says so);
    `output.fields=[velocity_centered]` writes it where it is shown. Of a stretched grid there is none, as an image has
    cells of one size: XDMF has its true places.
    Reference: VTK file formats, "VTKHDF file format", versions 2.0 and 2.2.
    """
    if (not writer.outputs and not writer.reduced) or writer.grid.stretched:  # nothing to see, or no image
        return
    with h5py.File(writer.folder / writer.master_name, "r") as file:
        times = np.asarray(file["time"])
        numbers = np.asarray(file["member"]).tolist() if "member" in file else None
        names = [v.name for v in writer.layout.framed]
        kinds = {name: (dataset.shape, dataset.dtype) for name in names for dataset in [_dataset(file, name)]}
    of_members = [Part(f"member_{number:04d}", (i,), writer.outputs) for i, number in enumerate(numbers or ())]
    parts = [*(of_members if writer.outputs else ()), *_statistics(writer)]
    path = writer.folder / ("fields.m0000.vtkhdf" if numbers is None else "fields.vtkhdf")
    with replaced(path) as temporary, new_hdf5(temporary) as file:
        file.attrs[LAYOUT_ATTRIBUTE] = VIEW_LAYOUT
        root = file.create_group("VTKHDF", track_order=True)
        if numbers is None:
            _write_part(root, Part("", (), writer.outputs), writer, times, kinds)
            return
        _write_type(root, "MultiBlockDataSet", (2, 2))
        assembly = root.create_group("Assembly", track_order=True)
        for part in parts:
            _write_part(root.create_group(part.name, track_order=True), part, writer, times, kinds)
            assembly[part.name] = h5py.SoftLink(f"/VTKHDF/{part.name}")
        _write_steps(root, times)


@dataclass(frozen=True)
class Part:
    """An image: its name, the index of its values before those of time and space, and its variables."""

    name: str
    ahead: tuple[int, ...]
    outputs: Sequence[Output]


def _statistics(writer: GridWriter) -> list[Part]:
    """The statistics over members: one image of those that are one field each, and one of each quantile."""
    wanted = writer.statistics
    fields = [statistic_output(output, name) for output in writer.reduced for name in wanted.names]
    quantiles = [statistic_output(output, QUANTILES) for output in writer.reduced]
    parts = [Part("statistics", (), fields)] if fields else []
    return parts + [Part(f"quantile_{share:g}", (i,), quantiles) for i, share in enumerate(wanted.quantiles)]


def _write_part(
    root: h5py.Group, part: Part, writer: GridWriter, times: np.ndarray, kinds: Mapping[str, tuple]
) -> None:
    _write_image(root, writer.grid, times)
    source = _Source(writer.master_name, part.ahead, len(times), writer.grid.shape, kinds)
    for name, components in _arrays(part.outputs).items():
        _write_array(root, name, components, source)


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    dataset = file[name]
    assert isinstance(dataset, h5py.Dataset)
    return dataset


def _arrays(outputs: Sequence[Output]) -> dict[str, list[Output]]:
    """Groups the components of each vector; every other output is an array of its own."""
    arrays: dict[str, list[Output]] = {}
    for output in outputs:
        arrays.setdefault(output.vector or output.name, []).append(output)
    return arrays


def _write_type(root: h5py.Group, kind: str, version: tuple[int, int]) -> None:
    root.attrs["Version"] = np.array(version, dtype="i8")
    root.attrs.create("Type", np.bytes_(kind))  # fixed-length ASCII: the reader takes nothing else


def _write_steps(root: h5py.Group, times: np.ndarray) -> h5py.Group:
    steps = root.create_group("Steps", track_order=True)
    steps.attrs["NSteps"] = len(times)
    steps["Values"] = times
    return steps


def _write_image(root: h5py.Group, grid: Grid, times: np.ndarray) -> None:
    missing = 3 - grid.ndim  # an image of one or two dimensions is one cell thick
    extent = [bound for cells in (*grid.shape, *(1,) * missing) for bound in (0, cells)]
    _write_type(root, "ImageData", (2, 0))
    root.attrs["WholeExtent"] = np.array(extent, dtype="i8")
    root.attrs["Origin"] = np.array([*grid.lower, *(0.0,) * missing])
    root.attrs["Spacing"] = np.array([*grid.mean_spacing, *(min(grid.mean_spacing),) * missing])
    root.attrs["Direction"] = np.eye(3).ravel()
    root.create_group("CellData", track_order=True)
    _write_steps(root, times).create_group("CellDataOffsets", track_order=True)


class _Source:
    """The place of scalar fields in the master, at index `ahead`. kinds: shape and type of each dataset there."""

    def __init__(self, file_name: str, ahead: tuple[int, ...], frames: int, shape: tuple[int, ...], kinds: Mapping):
        self.file_name, self.ahead, self.frames, self.kinds = file_name, ahead, frames, kinds
        self.space = tuple(reversed(shape))

    def of(self, name: str) -> h5py.VirtualSource:
        """One value for each cell; for a field on faces, the value at the lower face."""
        source = h5py.VirtualSource(self.file_name, name, self.kinds[name][0])
        cells = tuple(slice(n) for n in (self.frames, *self.space))
        return source[(*self.ahead, *cells)]


def _write_array(root: h5py.Group, name: str, components: list[Output], source: _Source) -> None:
    vector = bool(components[0].vector)
    cells = (*(1,) * (3 - len(source.space)), *source.space)
    layout = h5py.VirtualLayout((source.frames, *cells, *((3,) if vector else ())), source.kinds[components[0].name][1])
    thin = (slice(None), *(0,) * (3 - len(source.space)), *(slice(None),) * len(source.space))
    for output in components:
        layout[(*thin, output.component) if vector else thin] = source.of(output.name)
    cell_arrays, offsets = root["CellData"], root["Steps/CellDataOffsets"]
    assert isinstance(cell_arrays, h5py.Group) and isinstance(offsets, h5py.Group)
    # Components that a plane has not are zero; a missing file would read so too, which check_files tells.
    dataset = cell_arrays.create_virtual_dataset(name, layout, fillvalue=0)
    dataset.attrs["grid_location"] = "center" if _centred(components) else "lower faces"
    offsets[name] = np.arange(source.frames, dtype="i8")


def _centred(components: list[Output]) -> bool:
    return all(offset == 0.5 for output in components for offset in output.offset)
