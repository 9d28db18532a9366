"""XDMF: what VisIt and older ParaView open, a page of XML that says where the fields lie in the file of a run."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import h5py
import numpy as np

from simjax.grid import FACE
from simjax.io.files import replaced
from simjax.io.formats import output_format

if TYPE_CHECKING:
    from simjax.io.grid_output import GridWriter

NUMBERS = {"f": "Float", "i": "Int", "u": "UInt"}


@output_format(
    "xdmf",
    content="fields",
    patterns=("fields.m0000.xdmf", "fields.xdmf"),
    hdf5=False,
    programs=("VisIt", "ParaView"),
    about="the same fields, without a copy; of an ensemble one collection for each member",
    how_to_open="visit -o {file}",
    by_member=True,
)
def write_xdmf(writer: GridWriter) -> None:
    """Write `fields.m0000.xdmf` beside the fields, or `fields.xdmf` of an ensemble: XDMF 2, grids over time.

    There is one collection of grids over time for each member, named by its number.

    Every variable is an array of cells, its values a hyperslab of the dataset in the file of fields, named by a
    relative path. A variable on lower faces stands in the cell that owns the face; a grid of one or two axes is one
    cell thick. A stretched grid is a rectilinear one.
    """
    if not writer.outputs:  # else there is nothing to see
        return
    with h5py.File(writer.folder / writer.master_name, "r") as file:
        times = np.asarray(file["time"]).tolist()
        numbers = np.asarray(file["member"]).tolist() if "member" in file else None
        stored = {output.name: file[output.name] for output in writer.outputs}
        kinds = {name: (data.shape, data.dtype) for name, data in stored.items() if isinstance(data, h5py.Dataset)}
    root = ET.Element("Xdmf", Version="2.0")
    domain = ET.SubElement(root, "Domain")
    parts = [("fields", ())] if numbers is None else [(f"member_{n:04d}", (i,)) for i, n in enumerate(numbers)]
    for part, ahead in parts:
        series = ET.SubElement(domain, "Grid", Name=part, GridType="Collection", CollectionType="Temporal")
        for frame, time in enumerate(times):
            grid = _add_grid(series, writer, time)
            for name, (shape, dtype) in kinds.items():
                where, cells = (*ahead, frame), writer.grid.shape[::-1]
                _add_array(grid, name, f"{writer.master_name}:/{name}", where, cells, shape, dtype)
    ET.indent(root)
    with replaced(writer.folder / ("fields.m0000.xdmf" if numbers is None else "fields.xdmf")) as path:
        ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _add_grid(series: ET.Element, writer: GridWriter, time: float) -> ET.Element:
    """Add a grid with its cells at an output time; axes are z, y, x, as XDMF orders them, but for the places of a
    stretched grid's."""
    if writer.grid.stretched:
        return _add_rectilinear(series, writer, time)
    lower, spacing, shape = writer.grid.lower, writer.grid.mean_spacing, writer.grid.shape
    missing = 3 - len(shape)
    corners = [1 + n for n in (*(1,) * missing, *shape[::-1])]
    grid = ET.SubElement(series, "Grid", Name="cells", GridType="Uniform")
    ET.SubElement(grid, "Time", Value=repr(time))
    ET.SubElement(grid, "Topology", TopologyType="3DCoRectMesh", Dimensions=_text(corners))
    geometry = ET.SubElement(grid, "Geometry", GeometryType="ORIGIN_DXDYDZ")
    for numbers in ((*(0.0,) * missing, *lower[::-1]), (*(min(spacing),) * missing, *spacing[::-1])):
        item = ET.SubElement(geometry, "DataItem", Format="XML", NumberType="Float", Precision="8", Dimensions="3")
        item.text = _text(numbers)
    return grid


def _add_rectilinear(series: ET.Element, writer: GridWriter, time: float) -> ET.Element:
    """Add the cells of a stretched grid: the places of their corners along x, y and z."""
    own = writer.grid
    places = [[*own.coordinates(axis, FACE).tolist(), own.upper[axis]] for axis in range(own.ndim)]
    places += [[0.0, min(own.mean_spacing)]] * (3 - own.ndim)
    grid = ET.SubElement(series, "Grid", Name="cells", GridType="Uniform")
    ET.SubElement(grid, "Time", Value=repr(time))
    ET.SubElement(grid, "Topology", TopologyType="3DRectMesh", Dimensions=_text([len(x) for x in places[::-1]]))
    geometry = ET.SubElement(grid, "Geometry", GeometryType="VXVYVZ")
    for x in places:
        item = ET.SubElement(
            geometry, "DataItem", Format="XML", NumberType="Float", Precision="8", Dimensions=str(len(x))
        )
        item.text = _text(x)
    return grid


def _add_array(
    grid: ET.Element,
    name: str,
    source: str,
    where: tuple[int, ...],
    cells: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> None:
    """Add the values of a variable in all cells: those at `where`, one for each cell along every axis."""
    thick = (*(1,) * (3 - len(cells)), *cells)
    array = ET.SubElement(grid, "Attribute", Name=name, AttributeType="Scalar", Center="Cell")
    slab = ET.SubElement(array, "DataItem", ItemType="HyperSlab", Dimensions=_text(thick), Type="HyperSlab")
    start, count = (*where, *(0,) * len(cells)), (*(1,) * len(where), *cells)
    selection = ET.SubElement(slab, "DataItem", Format="XML", Dimensions=f"3 {len(shape)}")
    selection.text = _text((*start, *(1,) * len(shape), *count))
    values = ET.SubElement(
        slab,
        "DataItem",
        Format="HDF",
        NumberType=NUMBERS[dtype.kind],
        Precision=str(dtype.itemsize),
        Dimensions=_text(shape),
    )
    values.text = source


def _text(numbers) -> str:
    return " ".join(map(repr, numbers))
