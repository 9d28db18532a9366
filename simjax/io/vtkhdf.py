"""VTKHDF sidecars: what ParaView opens, without a second copy of the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import h5py
import numpy as np

from simjax.io.files import new_hdf5, replaced
from simjax.io.formats import output_format

if TYPE_CHECKING:
    from simjax.core.model import Output
    from simjax.grid import Grid
    from simjax.io.grid_output import GridWriter


@output_format(
    "vtkhdf_image", content="fields", patterns=("fields.m*.vtkhdf",), programs=("ParaView", "VTK"),
    about="the same fields, one file for each member, without a copy", how_to_open="paraview {file}",
)  # fmt: skip
def write_images(writer: GridWriter) -> None:
    """Write `fields.m0000.vtkhdf` beside the file of fields, one for each member.

    Each is a VTKHDF 2.0 ImageData of the grid's cells over time, whose arrays are virtual datasets over
    that file, named by a relative path, so the folder may move. Components that share a `vector` name become
    one array of three components. A variable that lives on lower faces is shown in the cell that owns the
    face, half a cell above its place, because an image has one set of cells (`grid_location` says so);
    `output.fields=[velocity_centered]` writes it where it is shown.
    Reference: VTK file formats, "VTKHDF file format", version 2.0.
    """
    grid, outputs, master = writer.grid, writer.outputs, writer.folder / writer.master_name
    if not outputs:  # else there is nothing to see
        return
    with h5py.File(master, "r") as file:
        times = np.asarray(file["time"])
        members = len(np.asarray(file["member"])) if "member" in file else None
        stored = {output.name: _dataset(file, output.name) for output in outputs}
        kinds = {name: (dataset.shape, dataset.dtype) for name, dataset in stored.items()}
    for member in range(1 if members is None else members):
        path = master.with_name(f"fields.m{member:04d}.vtkhdf")
        with replaced(path) as temporary, new_hdf5(temporary) as file:
            root = _write_image(file, grid, times)
            for name, components in _arrays(outputs).items():
                source = _Source(master.name, None if members is None else member, len(times), grid.shape, kinds)
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


def _write_image(file: h5py.File, grid: Grid, times: np.ndarray) -> h5py.Group:
    missing = 3 - grid.ndim  # an image of one or two dimensions is one cell thick
    extent = [bound for cells in (*grid.shape, *(1,) * missing) for bound in (0, cells)]
    root = file.create_group("VTKHDF", track_order=True)
    root.attrs["Version"] = np.array([2, 0], dtype="i8")
    root.attrs.create("Type", np.bytes_("ImageData"))  # fixed-length ASCII: the reader takes nothing else
    root.attrs["WholeExtent"] = np.array(extent, dtype="i8")
    root.attrs["Origin"] = np.array([*grid.lower, *(0.0,) * missing])
    root.attrs["Spacing"] = np.array([*grid.spacing, *(min(grid.spacing),) * missing])
    root.attrs["Direction"] = np.eye(3).ravel()
    root.create_group("CellData", track_order=True)
    steps = root.create_group("Steps", track_order=True)
    steps.attrs["NSteps"] = len(times)
    steps["Values"] = times
    steps.create_group("CellDataOffsets", track_order=True)
    return root


class _Source:
    """The place of one member's scalar fields in the master. kinds: shape and type of each dataset there."""

    def __init__(self, file_name: str, member: int | None, frames: int, shape: tuple[int, ...], kinds: Mapping):
        self.file_name, self.member, self.frames, self.kinds = file_name, member, frames, kinds
        self.space = tuple(reversed(shape))

    def of(self, name: str) -> h5py.VirtualSource:
        """One value for each cell: of a field on faces that of the lower one."""
        source = h5py.VirtualSource(self.file_name, name, self.kinds[name][0])
        cells = tuple(slice(n) for n in (self.frames, *self.space))
        return source[cells if self.member is None else (self.member, *cells)]


def _write_array(root: h5py.Group, name: str, components: list[Output], source: _Source) -> None:
    vector = bool(components[0].vector)
    cells = (*(1,) * (3 - len(source.space)), *source.space)
    layout = h5py.VirtualLayout((source.frames, *cells, *((3,) if vector else ())), source.kinds[components[0].name][1])
    thin = (slice(None), *(0,) * (3 - len(source.space)), *(slice(None),) * len(source.space))
    for output in components:
        layout[(*thin, output.component) if vector else thin] = source.of(output.name)
    cell_arrays, offsets = root["CellData"], root["Steps/CellDataOffsets"]
    assert isinstance(cell_arrays, h5py.Group) and isinstance(offsets, h5py.Group)
    # Components that a plane has not are zero; a missing file would read so too, which check_run tells.
    dataset = cell_arrays.create_virtual_dataset(name, layout, fillvalue=0)
    dataset.attrs["grid_location"] = "center" if _centred(components) else "lower faces"
    offsets[name] = np.arange(source.frames, dtype="i8")


def _centred(components: list[Output]) -> bool:
    return all(offset == 0.5 for output in components for offset in output.offset)
