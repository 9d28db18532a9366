"""Particles for ParaView: points over time, without a second copy of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import h5py
import numpy as np

from simjax.io.files import new_hdf5, replaced
from simjax.io.formats import output_format
from simjax.io.frame_layout import FrameLayout, Variable
from simjax.io.replacing import LAYOUT_ATTRIBUTE, VIEW_LAYOUT

if TYPE_CHECKING:
    from simjax.io.particle_output import ParticleWriter

POSITION = "position"
VERTEX = 1  # of VTK's cell types


@output_format(
    "vtkhdf_points",
    content="particles",
    patterns=("particles.vtkhdf",),
    programs=("ParaView", "VTK"),
    about="the same points, without a copy; of an ensemble one block for each member",
    how_to_open="paraview {file}",
    by_member=True,
)
def write_points(writer: ParticleWriter) -> None:
    """Write `particles.vtkhdf` beside the trajectory: points over time; of an ensemble a block of them per member."""
    if not writer.placed:  # else there is nothing to see
        return
    with replaced(writer.folder / "particles.vtkhdf") as path, new_hdf5(path) as file:
        file.attrs[LAYOUT_ATTRIBUTE] = VIEW_LAYOUT
        root = file.create_group("VTKHDF", track_order=True)
        if writer.members is None:
            _write_member(root, writer, None)
            return
        root.attrs["Version"] = np.array([2, 2], dtype="i8")
        root.attrs.create("Type", np.bytes_("MultiBlockDataSet"))  # fixed-length ASCII: the reader takes nothing else
        assembly = root.create_group("Assembly", track_order=True)
        for member in range(writer.members):
            name = f"member_{member:04d}"
            _write_member(root.create_group(name, track_order=True), writer, member)
            assembly[name] = h5py.SoftLink(f"/VTKHDF/{name}")
        steps = root.create_group("Steps", track_order=True)
        steps.attrs["NSteps"] = len(writer.times)
        steps["Values"] = np.asarray(writer.times, "f8")


def _write_member(root: h5py.Group, writer: ParticleWriter, member: int | None) -> None:
    """A VTKHDF 2.0 UnstructuredGrid: one vertex per particle, the same at all times, whose points move.

    Arrays are virtual datasets over the master file of the run, named by a relative path.
    Reference: VTK file formats, "VTKHDF file format", version 2.0.
    """
    layout, master, times = writer.layout, writer.master_name, writer.times
    count, frames = layout.sizes["particle"], len(times)
    per_particle = {v.name: v for v in layout.framed if "particle" in v.dims}
    with h5py.File(writer.folder / master, "r") as file:
        places = {name: writer.within(file, name) for name in per_particle}
    root.attrs["Version"] = np.array([2, 0], dtype="i8")
    root.attrs.create("Type", np.bytes_("UnstructuredGrid"))  # fixed-length ASCII: the reader takes nothing else
    for name in ("NumberOfPoints", "NumberOfCells", "NumberOfConnectivityIds"):
        root[name] = np.array([count], "i8")
    root["Connectivity"] = np.arange(count, dtype="i8")
    root["Offsets"] = np.arange(count + 1, dtype="i8")
    root["Types"] = np.full(count, VERTEX, "u1")
    points, steps = root.create_group("PointData", track_order=True), _write_steps(root, times, count)
    for name, variable in per_particle.items():
        parent, own = (root, "Points") if name == POSITION else (points, name)
        _write_array(parent, own, layout, variable, master, places[name], frames, member)
        if name != POSITION:
            steps[f"PointDataOffsets/{name}"] = np.arange(frames, dtype="i8") * count
    for variable in layout.fixed:
        if variable.dims == ("particle",) and variable.values is not None:
            points[variable.name] = variable.values
            steps[f"PointDataOffsets/{variable.name}"] = np.zeros(frames, "i8")


def _write_steps(root: h5py.Group, times: Sequence[float], count: int) -> h5py.Group:
    frames = len(times)
    steps = root.create_group("Steps", track_order=True)
    steps.attrs["NSteps"] = frames
    steps["Values"] = np.asarray(times, "f8")
    steps["NumberOfParts"] = np.ones(frames, "i8")
    steps["PointOffsets"] = np.arange(frames, dtype="i8") * count
    # There is one part, whose vertices are the same at all times.
    steps["PartOffsets"] = np.zeros(frames, "i8")
    for name in ("CellOffsets", "ConnectivityIdOffsets"):
        steps[name] = np.zeros((frames, 1), "i8")
    return steps


def _write_array(
    parent: h5py.Group,
    name: str,
    layout: FrameLayout,
    variable: Variable,
    master: str,
    place: str,
    frames: int,
    member: int | None,
) -> None:
    """All frames of a variable one after the other, `(frames * particles, 3)`, or without the last of a scalar."""
    shape = layout.shape(variable, frames)
    source = h5py.VirtualSource(master, place, shape)
    space = shape[variable.dims.index("particle") + 1 :]
    virtual = h5py.VirtualLayout((frames * layout.sizes["particle"], *space), variable.dtype)
    virtual[...] = source if member is None else source[member]
    missing = np.nan if variable.dtype.kind == "f" else 0
    parent.create_virtual_dataset(name, virtual, fillvalue=missing)
