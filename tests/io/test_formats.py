"""Output formats: what they leave opens elsewhere, and is cleared for another run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from written_frames import MEMBERS, frames, make_writer, write_frames

from simjax.config.folders import clear_run_folder
from simjax.core.model import Output
from simjax.grid import Grid
from simjax.io import formats
from simjax.io.formats import output_formats


def test_formats_leave_files_that_another_run_clears(tmp_path):
    writer = make_writer(tmp_path)
    write_frames(writer, range(2))
    writer.close(True)
    at_end = [form for form in output_formats("fields") if form.write is not None]
    assert len(at_end) == 2
    for form in at_end:
        assert len(form.files(tmp_path)) == 1  # whatever the number of members
        assert str(form.files(tmp_path)[0]) in form.opening(tmp_path)
    (tmp_path / "provenance.json").write_text(json.dumps({"run_id": "a", "started": "2026-01-01", "parts": []}))
    clear_run_folder(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("most", [MEMBERS, MEMBERS - 1])
def test_parts_for_each_member_are_written_of_a_bounded_number(tmp_path, monkeypatch, most):
    monkeypatch.setattr(formats, "MOST_MEMBERS", most)
    writer = make_writer(tmp_path)
    write_frames(writer, range(2))
    writer.close(True)
    assert {path.name for path in tmp_path.glob("fields.*")} == (
        {"fields.h5", "fields.vtkhdf", "fields.xdmf"} if most == MEMBERS else {"fields.h5"}
    )


def read_xdmf(path: Path, time: float, member: int = 0):
    """The bounds of the cells of a member and their arrays at a time, as VTK reads them."""
    vtk = pytest.importorskip("vtk")
    from vtk.util.numpy_support import vtk_to_numpy

    reader = vtk.vtkXdmfReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    steps, key = reader.GetOutputInformation(0), vtk.vtkStreamingDemandDrivenPipeline.TIME_STEPS()
    times = [steps.Get(key, number) for number in range(steps.Length(key))]
    reader.UpdateTimeStep(time)
    cells = reader.GetOutputDataObject(0)
    if cells.IsA("vtkMultiBlockDataSet") and cells.GetNumberOfBlocks() > 1:
        cells = cells.GetBlock(member)
    while cells.IsA("vtkMultiBlockDataSet"):
        cells = cells.GetBlock(0)
    arrays = cells.GetCellData()
    return (
        times,
        cells.GetBounds(),
        {arrays.GetArrayName(i): vtk_to_numpy(arrays.GetArray(i)) for i in range(arrays.GetNumberOfArrays())},
    )


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.slow
def test_xdmf_shows_each_member_at_each_time(tmp_path, complete):
    writer = make_writer(tmp_path / "run")
    write_frames(writer, range(3))
    writer.close(complete)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    _, _, fields, _ = frames([2])
    for member in range(MEMBERS):
        times, bounds, arrays = read_xdmf(tmp_path / "moved" / "fields.xdmf", 0.2, member)
        assert times == pytest.approx([0.0, 0.1, 0.2], abs=1e-15)  # written in full
        assert bounds[:4] == (-1.0, 2.0, 0.0, 1.0)
        for name, values in arrays.items():
            # VTK's x runs fastest, as in the transposed array.
            np.testing.assert_array_equal(values, np.asarray(fields[name])[0, member].T.ravel())
        assert set(arrays) == set(fields)


@pytest.mark.parametrize("shape", [(5,), (3, 4, 5)])
@pytest.mark.slow
def test_xdmf_of_one_and_three_dimensions(tmp_path, shape):
    kind = {"grid": Grid(shape), "outputs": (Output("u", (0.5,) * len(shape)),), "members": None}
    writer = make_writer(tmp_path, **kind)
    write_frames(writer, range(2), **kind)
    writer.close(True)
    _, _, arrays = read_xdmf(tmp_path / "fields.m0000.xdmf", 0.1)
    np.testing.assert_array_equal(arrays["u"], np.asarray(frames([1], **kind)[2]["u"])[0].T.ravel())
