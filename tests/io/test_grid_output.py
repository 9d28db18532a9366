"""What a run writes can be read, by everyone, at every moment, and is the run's state."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray
from paths import ROOT, SUPPORT
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkCompositeDataSet
from vtkmodules.vtkIOHDF import vtkHDFReader
from written_frames import GRID, MEMBERS, OUTPUTS, VISCOSITY, frames, make_writer, write_frames

from simjax.core.model import Output
from simjax.errors import ConfigurationError, InputOutputError
from simjax.grid import Grid
from simjax.io.files import require_free_space
from simjax.io.frame_output import segment_name
from simjax.io.grid_layout import round_mantissa
from simjax.io.lock import LOCK_NAME, FolderLock
from simjax.io.read import check_files, open_hdf5, open_run


def assert_holds(dataset: xarray.Dataset, steps, outputs=OUTPUTS, **shape) -> None:
    """Every value of `dataset` is the one written for these steps: bit for bit, so no tolerance."""
    steps, times, fields, diagnostics = frames(steps, outputs=outputs, **shape)
    np.testing.assert_array_equal(dataset.step, steps)
    np.testing.assert_array_equal(dataset.time, times)
    members = "member" in dataset.dims
    for name, values in {**fields, **diagnostics}.items():
        values = np.asarray(values)
        lead = 1 + members
        order = (*reversed(range(lead)), *reversed(range(lead, values.ndim)))
        np.testing.assert_array_equal(dataset[name], values.transpose(order))


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
@pytest.mark.slow
def test_both_engines_read_values_coordinates_and_attributes(tmp_path, engine, complete):
    writer = make_writer(tmp_path)
    write_frames(writer, range(0, 80, 10))
    writer.close(complete, statuses=[0, 4, 0])
    assert (tmp_path / segment_name(0)).exists() is not complete
    with xarray.open_dataset(tmp_path / "fields.h5", engine=engine) as dataset:
        assert_holds(dataset, range(0, 80, 10))
        assert dataset.velocity_x.dims == ("member", "time", "y", "x_face")
        assert dataset.temperature.dims == ("member", "time", "y", "x")
        assert dataset.temperature.dtype == np.float32 and dataset.time.dtype == np.float64
        np.testing.assert_array_equal(dataset.x, GRID.coordinates(0, 0.5))
        np.testing.assert_array_equal(dataset.x_face, GRID.coordinates(0, 0.0))
        np.testing.assert_array_equal(dataset.y_face, GRID.coordinates(1, 0.0))
        np.testing.assert_array_equal(dataset.viscosity, VISCOSITY)
        assert dataset.viscosity.dims == ("member",) and "viscosity" in dataset.temperature.coords
        np.testing.assert_array_equal(dataset.status, [0, 4, 0])
        attributes = dataset.attrs
        assert attributes["Conventions"] == "CF-1.11 SGRID-0.3" and attributes["simjax_layout"] == "simjax grid/1"
        assert (attributes["title"], attributes["simjax_seed"]) == ("a test", 7)
        assert attributes["simjax_config_yaml"].splitlines() == ["grid:", "  shape: [6, 4]"]
        assert attributes["simjax_complete"] == complete
        assert attributes["simjax_segments"] == (0 if complete else 3)
        assert {"source", "history", "institution", "references", "simjax_dtype"} <= set(attributes)
        assert dataset.temperature.attrs["standard_name"] == "air_temperature"
        velocity = dataset.velocity_y.attrs
        assert (velocity["vector"], velocity["component"], velocity["units"]) == ("velocity", 1, "m s-1")
        assert velocity["grid_location"] == "y_face"
        # CF knows the axes X, Y, Z and T: members are none of them.
        assert (dataset.time.attrs["axis"], dataset.x_face.attrs["axis"]) == ("T", "X")
        assert "axis" not in dataset.member.attrs and dataset.member.attrs["standard_name"] == "realization"
    with xarray.open_dataset(tmp_path / "diagnostics.h5", engine=engine) as dataset:
        assert set(dataset.data_vars) == {"step", "energy", "status"}
        assert dataset.energy.dims == ("member", "time")
        np.testing.assert_array_equal(dataset.energy[1], np.arange(0, 80, 10) + 0.5)


@pytest.mark.parametrize(("shape", "dims"), [((5,), ("time", "x")), ((3, 4, 5), ("time", "z", "y", "x"))])
def test_one_and_three_dimensions_without_members(tmp_path, shape, dims):
    kind = {"grid": Grid(shape), "outputs": (Output("u", (0.5,) * len(shape)),), "members": None}
    writer = make_writer(tmp_path, **kind, dtype=np.float64)
    write_frames(writer, range(5), **kind)
    writer.close(True)
    with open_run(tmp_path) as dataset:
        assert dataset.u.dims == dims and dataset.u.dtype == np.float64
        assert_holds(dataset, range(5), **kind)
        assert dataset.viscosity.shape == () and dataset.energy.dims == ("time",)


def test_a_run_is_readable_while_it_goes_on_and_after_it_moved(tmp_path):
    folder = tmp_path / "ä run"
    writer = make_writer(folder)
    write_frames(writer, range(5))
    writer.commit().result()
    early = open_run(folder)
    write_frames(writer, range(5, 9))
    writer.commit().result()
    assert_holds(early, range(5))  # the reader's file was replaced under it, with one that holds the same
    early.close()
    shutil.move(folder, tmp_path / "moved")
    with open_run(tmp_path / "moved") as dataset:
        assert_holds(dataset, range(9))
    assert check_files(tmp_path / "moved") == []
    shutil.move(tmp_path / "moved", folder)
    writer.close(False)


def test_a_commit_goes_on_while_frames_are_added(tmp_path, monkeypatch):
    writer, disk = make_writer(tmp_path), threading.Event()
    slow = writer._write_tail
    monkeypatch.setattr(writer, "_write_tail", lambda: (disk.wait(60), slow()))
    write_frames(writer, range(3))
    done = writer.commit()
    write_frames(writer, range(3, 4))
    assert not done.done() and writer.frames == 4
    disk.set()
    done.result()
    with open_run(tmp_path) as dataset:
        assert_holds(dataset, range(3))
    writer.close(False)
    with open_run(tmp_path) as dataset:
        assert_holds(dataset, range(4))


def test_a_master_older_than_its_last_segment_reads_the_same_frames(tmp_path):
    writer = make_writer(tmp_path)
    write_frames(writer, range(4))
    writer.commit().result()
    older = (tmp_path / "fields.h5").read_bytes()
    write_frames(writer, range(4, 6))
    writer.close(False)
    (tmp_path / "fields.h5").write_bytes(older)  # as if killed between a segment and its master
    with open_run(tmp_path) as dataset:
        assert_holds(dataset, range(4))


def test_missing_truncated_and_foreign_segments_are_refused(tmp_path):
    writer = make_writer(tmp_path / "run")
    write_frames(writer, range(8))
    writer.close(False)
    segment = tmp_path / "run" / segment_name(1)
    whole = segment.read_bytes()
    for content in (None, whole[:-100], b"", (tmp_path / "run" / segment_name(2)).read_bytes()):
        if content is None:
            segment.unlink()
        else:
            segment.write_bytes(content)
        with pytest.raises(InputOutputError, match=segment.name):
            open_run(tmp_path / "run")
        assert any(segment.name in problem for problem in check_files(tmp_path / "run"))
    segment.write_bytes(whole)
    assert check_files(tmp_path / "run") == []
    with pytest.raises(InputOutputError, match="no run"):
        open_run(tmp_path / "elsewhere")


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("keep", [-1, 0, 3, 5, 100])
@pytest.mark.slow
def test_resuming_keeps_the_frames_up_to_a_step(tmp_path, complete, keep):
    writer = make_writer(tmp_path)
    write_frames(writer, range(8), chunk=3)
    writer.close(complete)
    kept = list(range(min(keep, 7) + 1))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    make_writer(tmp_path, keep_until_step=keep).abandon()
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    writer = make_writer(tmp_path, keep_until_step=keep)
    assert writer.frames_kept == len(kept)
    writer.commit().result()
    assert check_files(tmp_path) == []
    with open_run(tmp_path) as dataset:
        assert_holds(dataset, kept)
    write_frames(writer, range(len(kept), 12))
    writer.close(True)
    with open_run(tmp_path) as dataset:
        assert_holds(dataset, range(12))
    assert not (tmp_path / "data").exists()


def test_a_folder_in_use_or_of_another_run_is_refused(tmp_path):
    writer = make_writer(tmp_path)
    write_frames(writer, range(4))
    writer.close(False)
    with pytest.raises(InputOutputError, match="already holds"):
        make_writer(tmp_path)
    with pytest.raises(InputOutputError, match="resume with"):
        make_writer(tmp_path, grid=Grid((4, 4)), keep_until_step=4)
    with pytest.raises(InputOutputError, match="resume with"):
        make_writer(tmp_path, dtype=np.float64, keep_until_step=4)
    (tmp_path / segment_name(0)).unlink()
    with pytest.raises(InputOutputError, match="missing"):
        make_writer(tmp_path, keep_until_step=4)
    with open(tmp_path / "file", "w") as file, pytest.raises(InputOutputError):
        make_writer(Path(file.name))


def test_wrong_shapes_and_names_are_refused(tmp_path):
    writer = make_writer(tmp_path / "shape")
    steps, times, fields, diagnostics = frames([0])
    writer.write(steps, times, fields | {"temperature": fields["temperature"][:, :2]}, diagnostics)
    with pytest.raises(InputOutputError, match=r"temperature.*\(1, 3, 6, 4\)"):
        writer.commit().result()
    with pytest.raises(InputOutputError):
        writer.close(True)
    with pytest.raises(ConfigurationError, match="energy"):
        make_writer(tmp_path / "name", diagnostics=["energy", "energy"])
    with pytest.raises(ConfigurationError, match="viscosity"):
        make_writer(tmp_path / "parameter", parameters={"viscosity": np.ones(5)})


def test_a_full_disk_loses_only_the_open_segment(tmp_path):
    writer = make_writer(tmp_path)
    write_frames(writer, range(4))
    writer.commit().result()
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*.h5")}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # Python ignores the signal: the write fails
    try:
        write_frames(writer, range(4, 6))
        with pytest.raises(InputOutputError, match="could not be written"):
            writer.commit().result()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(InputOutputError):  # nothing is written after a gap
        writer.close(True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == kept
    with open_run(tmp_path) as dataset:
        assert_holds(dataset, range(4))
    with pytest.raises(InputOutputError, match="GB free"):
        require_free_space(tmp_path, 1 << 62)


# Imports once and forks before any thread starts; the writers run until they are killed.
WRITERS = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from written_frames import frames, make_writer
for folder in map(Path, sys.argv[2:]):
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        continue
    writer = make_writer(folder / "run")
    committed = open(folder / "committed", "w", buffering=1)
    for step in range(0, 10_000, 2):
        writer.write(*frames([step, step + 1]))
        if step % 10 == 0:
            writer.commit().result()
            print(step + 1, file=committed)
for _ in sys.argv[2:]:
    os.wait()
"""


def test_a_killed_run_keeps_every_committed_frame(tmp_path):
    folders = [tmp_path / str(index) for index in range(3)]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, "-W", "ignore", "-c", WRITERS, str(SUPPORT), *map(str, folders)]
    writers = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert writers.stdout is not None
    pids = [int(writers.stdout.readline()) for _ in folders]
    random = np.random.default_rng(os.getpid())
    try:
        for folder, pid in zip(folders, pids, strict=True):
            deadline = time.monotonic() + 60
            while not ((folder / "committed").exists() and (folder / "committed").read_text()):
                assert time.monotonic() < deadline, "the writer did not start"
                time.sleep(0.02)
            time.sleep(random.uniform(0, 0.1))
            os.kill(pid, signal.SIGKILL)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        writers.communicate()
    for folder in folders:
        committed = int((folder / "committed").read_text().splitlines()[-1])
        assert check_files(folder / "run") == []
        for segment in (folder / "run" / "data").glob("*.h5"):
            with xarray.open_dataset(segment, engine="h5netcdf") as dataset:
                assert_holds(dataset, dataset.step.values)
        with open_run(folder / "run") as dataset:
            assert dataset.step[-1] >= committed
            assert_holds(dataset, range(dataset.sizes["time"]))
        resumed = make_writer(folder / "run", keep_until_step=committed)
        write_frames(resumed, range(committed + 1, committed + 4))
        resumed.close(True)
        with open_run(folder / "run") as dataset:
            assert_holds(dataset, range(committed + 4))
        assert not list((folder / "run").rglob("*.tmp"))


@pytest.mark.parametrize("bits", [1, 9, 15])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_is_to_the_nearest(bits, dtype):
    random = np.random.default_rng(0)
    values = (random.standard_normal(4096) * 10.0 ** random.integers(-20, 20, 4096)).astype(dtype)
    values[:4] = 0.0, np.inf, -np.inf, np.nan
    rounded = round_mantissa(values, bits)
    np.testing.assert_array_equal(rounded[:4], values[:4])
    exponent = np.frexp(values[4:].astype("f8"))[1] - 1
    unit = 2.0 ** (exponent - bits)
    # Half a unit in the last kept place, and a whole number of units: exact statements, no tolerance.
    assert np.all(np.abs(rounded[4:].astype("f8") - values[4:].astype("f8")) <= unit / 2)
    assert np.all(np.mod(rounded[4:].astype("f8"), unit) == 0)


def test_rounded_output_is_compressed_and_within_its_error(tmp_path):
    kind = {"grid": Grid((64, 64)), "outputs": (Output("u", (0.5, 0.5)),), "members": None}
    values = np.random.default_rng(1).standard_normal((2, 64, 64))
    sizes = {}
    for bits in (None, 7):
        writer = make_writer(tmp_path / str(bits), **kind, diagnostics=[], rounding_bits=bits)
        writer.write([0, 1], [0.0, 1.0], {"u": values}, {})
        writer.close(True)
        with open_run(tmp_path / str(bits)) as dataset:
            # 7 bits keep 2^-8 relative; float32 itself 2^-24.
            tolerance = 2.0**-24 if bits is None else 2.0**-8 + 2.0**-24
            np.testing.assert_allclose(dataset.u, values.transpose(0, 2, 1), rtol=tolerance)
        sizes[bits] = (tmp_path / str(bits) / "fields.h5").stat().st_size
    # 16 of 32 bits are zero, and the exponents of a normal distribution hold some 2 bits of 8.
    assert sizes[None] - sizes[7] > 0.45 * 4 * values.size
    with pytest.raises(ConfigurationError, match="rounding_bits"):
        make_writer(tmp_path / "bad", **kind, rounding_bits=30)


def read_vtk(path, step):
    reader = vtkHDFReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    reader.SetStep(step)
    reader.Update()
    return reader, reader.GetOutputDataObject(0), cell_arrays(reader.GetOutputDataObject(0))


def cell_arrays(image):
    cells = image.GetCellData()
    return {cells.GetArrayName(i): vtk_to_numpy(cells.GetArray(i)) for i in range(cells.GetNumberOfArrays())}


def read_blocks(path, step):
    """The blocks of an ensemble by name."""
    reader = vtkHDFReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    reader.SetStep(step)
    reader.Update()
    blocks = reader.GetOutputDataObject(0)
    names = [blocks.GetMetaData(i).Get(vtkCompositeDataSet.NAME()) for i in range(blocks.GetNumberOfBlocks())]
    return reader, {name: blocks.GetBlock(i) for i, name in enumerate(names)}


@pytest.mark.parametrize("complete", [True, False])
def test_vtk_reads_each_member_over_time_without_a_copy(tmp_path, complete):
    writer = make_writer(tmp_path / "run")
    write_frames(writer, range(5))
    writer.close(complete)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    _, _, fields, _ = frames([4])
    path = tmp_path / "moved" / "fields.vtkhdf"
    reader, blocks = read_blocks(path, 4)
    assert [*blocks] == [f"member_{member:04d}" for member in range(MEMBERS)]
    for member, (name, image) in enumerate(blocks.items()):
        arrays = cell_arrays(image)
        assert reader.GetNumberOfSteps() == 5 and reader.GetTimeValue() == 0.4
        assert image.GetExtent() == (0, 6, 0, 4, 0, 1)
        assert image.GetBounds()[:4] == (-1.0, 2.0, 0.0, 1.0)
        # VTK's x runs fastest, as in the transposed array.
        np.testing.assert_array_equal(arrays["temperature"], np.asarray(fields["temperature"])[0, member].T.ravel())
        for component, variable in enumerate(("velocity_x", "velocity_y")):
            np.testing.assert_array_equal(
                arrays["velocity"][:, component], np.asarray(fields[variable])[0, member].T.ravel()
            )
        np.testing.assert_array_equal(arrays["velocity"][:, 2], 0.0)
        with h5py.File(path) as file:
            assert all(array.is_virtual for array in file[f"VTKHDF/{name}/CellData"].values())


@pytest.mark.parametrize("shape", [(5,), (3, 4, 5)])
def test_vtk_reads_one_and_three_dimensions(tmp_path, shape):
    kind = {"grid": Grid(shape), "outputs": (Output("u", (0.5,) * len(shape)),), "members": None}
    writer = make_writer(tmp_path, **kind)
    write_frames(writer, range(3), **kind)
    writer.close(True)
    _, image, arrays = read_vtk(tmp_path / "fields.m0000.vtkhdf", 2)
    assert image.GetNumberOfCells() == np.prod(shape)
    np.testing.assert_array_equal(arrays["u"], np.asarray(frames([2], **kind)[2]["u"])[0].T.ravel())


def test_files_that_lead_elsewhere_are_refused(tmp_path):
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["u"] = np.ones(3)
    (tmp_path / "run").mkdir()
    hostile = tmp_path / "run" / "hostile.h5"

    def external_link(file):
        file["group/u"] = h5py.ExternalLink("../secret.h5", "/u")

    def virtual(name):
        def write(file):
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource(name, "u", (3,))
            file.create_virtual_dataset("u", layout)

        return write

    def raw_storage(file):
        file.create_dataset("u", (3,), "f8", external=[(str(tmp_path / "secret.h5"), 0, 24)])

    for write in (external_link, virtual("../secret.h5"), virtual(str(tmp_path / "secret.h5")), raw_storage):
        with h5py.File(hostile, "w") as file:
            write(file)
        with pytest.raises(InputOutputError, match="own values"), open_hdf5(hostile):
            pass
    hostile.write_bytes(b"not HDF5")
    with pytest.raises(InputOutputError, match="not HDF5"), open_hdf5(hostile):
        pass
    with open_hdf5(tmp_path / "secret.h5") as file:
        assert file["u"].shape == (3,)


HOLDER = """
import sys, time
from pathlib import Path
from simjax.io.lock import FolderLock
with FolderLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_locked_until_its_holder_dies(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    with pytest.raises(InputOutputError, match=f"process {holder.pid} on "), FolderLock(tmp_path):
        pass
    holder.kill()
    holder.communicate()
    refused = pytest.raises(InputOutputError, match=f"process {os.getpid()} on ")
    with FolderLock(tmp_path), refused, FolderLock(tmp_path):
        pass
    with FolderLock(tmp_path):
        pass


def test_a_lock_of_another_host_is_stale_once_silent(tmp_path):
    path = tmp_path / LOCK_NAME
    path.write_text('{"host": "elsewhere", "pid": 1, "start": "2026-01-01T00:00:00+00:00"}')
    with pytest.raises(InputOutputError, match="process 1 on elsewhere since 2026"), FolderLock(tmp_path):
        pass
    silent = time.time() - 3600
    os.utime(path, (silent, silent))
    with FolderLock(tmp_path):
        assert str(os.getpid()) in path.read_text()
    with pytest.raises(InputOutputError, match="cannot be a run's folder"), FolderLock(path):
        pass
