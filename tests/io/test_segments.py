"""Frames that were deleted, swapped or changed are named, by whatever reads a run and by whatever goes on with it."""

import os
import shutil

import h5py
import numpy as np
import pytest
from written_frames import frames, make_writer

from simjax.errors import InputOutputError
from simjax.io.frame_layout import CHUNK_BYTES, FILLED_BYTES, checked_storage
from simjax.io.frame_output import segment_name
from simjax.io.particle_output import ParticleWriter
from simjax.io.read import check_files, open_run

RUN = {"simjax_run_id": "20260101-000000-aaaaaa"}
OTHER = {"simjax_run_id": "20260101-000000-bbbbbb"}


def particle_writer(folder, **options) -> ParticleWriter:
    return ParticleWriter(
        folder,
        lower=(0, 0),
        upper=(1, 1),
        periodic=(True, True),
        names=["position"],
        species=np.zeros(5, int),
        mass=np.ones(5),
        charge=None,
        members=None,
        parameters={},
        diagnostics=["energy"],
        title="a test",
        segment_bytes=3 * 68,
        **{"attributes": RUN, **options},
    )


def write_particles(writer, steps, shift=0.0):
    for step in steps:
        writer.write([step], [0.1 * step], {"position": np.full((1, 2, 5), 0.01 * step + shift)}, {"energy": [step]})


def field_writer(folder, attributes=RUN, **options):
    return make_writer(folder, attributes=attributes, **options)


def write_fields(writer, steps, shift=0.0):
    for step in steps:
        steps_, times, values, diagnostics = frames([step])
        writer.write(steps_, times, {name: u + shift for name, u in values.items()}, diagnostics)


KINDS = {"fields": (field_writer, write_fields), "particles": (particle_writer, write_particles)}


@pytest.fixture(scope="module", params=KINDS)
def runs(request, tmp_path_factory):
    """A run that was stopped after eight frames, a second one that wrote the same, and one with other values."""
    root, (make, write) = tmp_path_factory.mktemp("runs"), KINDS[request.param]
    for name, attributes, shift in (("run", RUN, 0.0), ("other", OTHER, 0.0), ("shifted", RUN, 0.5)):
        writer = make(root / name, attributes=attributes)
        write(writer, range(8), shift)
        writer.close(False)
        assert check_files(root / name) == []
    return root, request.param


@pytest.fixture
def written(runs, tmp_path):
    """(folder, stem, how to make its writer, how to write frames); in the folder above are the other runs."""
    root, stem = runs
    shutil.copytree(root, tmp_path / "runs")
    return tmp_path / "runs" / "run", stem, *KINDS[stem]


def refused_by_resume(make, folder, name):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(InputOutputError, match=name) as error:
        make(folder, keep_until_step=7)
    assert error.value.exit_code == 4
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}, "nothing is changed"


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.slow
def test_a_deleted_segment_is_missed_wherever_it_was(written, number):
    folder, stem, make, _ = written
    path = sorted((folder / "data").iterdir())[number]
    path.unlink()
    assert stem in path.name
    with pytest.raises(InputOutputError, match=f"{path.name} is missing"):
        open_run(folder)
    assert any(path.name in problem for problem in check_files(folder))
    refused_by_resume(make, folder, path.name)


@pytest.mark.slow
def test_a_segment_of_another_run_is_named_though_its_steps_agree(written):
    folder, stem, make, _ = written
    path = folder / segment_name(1, stem)
    path.write_bytes((folder.parent / "other" / segment_name(1, stem)).read_bytes())
    with pytest.raises(InputOutputError, match=f"{path.name} belongs to another run, {OTHER['simjax_run_id']}"):
        open_run(folder)
    refused_by_resume(make, folder, path.name)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.slow
def test_a_segment_with_other_values_is_named_by_its_checksum(written, number):
    """A segment of this run with the same size and steps, whole to HDF5: only the digest differs."""
    folder, stem, make, _ = written
    path = folder / segment_name(number, stem)
    path.write_bytes((folder.parent / "shifted" / segment_name(number, stem)).read_bytes())
    open_run(folder).close()  # looks at sizes and steps only
    (problem,) = check_files(folder)
    assert path.name in problem and "checksum differs" in problem
    refused_by_resume(make, folder, path.name)


def test_swapped_segments_are_named(written):
    folder, stem, make, _ = written
    first, second = (folder / segment_name(number, stem) for number in (0, 1))
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    with pytest.raises(InputOutputError, match=f"{first.name} does not hold.*{second.name} does not hold"):
        open_run(folder)
    refused_by_resume(make, folder, first.name)


def flip_a_value(path, variable):
    """One bit of a value of a file, in its chunk."""
    with h5py.File(path, "r") as file:
        chunk = file[variable].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + 2] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_a_flipped_bit_is_an_error_that_names_the_file(written):
    folder, stem, make, _ = written
    path, variable = folder / segment_name(1, stem), "temperature" if stem == "fields" else "position"
    flip_a_value(path, variable)
    with open_run(folder) as dataset, pytest.raises(InputOutputError, match=f"{variable}.*check_files"):
        dataset[variable].load()
    with open_run(folder) as dataset, pytest.raises(InputOutputError, match="cannot be read"):
        dataset.load()
    assert path.name in check_files(folder)[0]
    refused_by_resume(make, folder, path.name)


@pytest.mark.slow
def test_a_flipped_bit_in_one_plain_file_is_named(written):
    folder, stem, make, write = written
    writer = make(folder, keep_until_step=7)
    write(writer, [8])
    writer.close(True)
    assert check_files(folder) == [] and not (folder / "data").exists()
    master = folder / ("fields.h5" if stem == "fields" else "particles.h5md")
    variable = "temperature" if stem == "fields" else "position"
    flip_a_value(master, variable if stem == "fields" else f"particles/trajectory/{variable}/value")
    with open_run(folder) as dataset, pytest.raises(InputOutputError, match=master.name):
        dataset[variable].load()
    assert any(master.name in problem and variable in problem for problem in check_files(folder))
    refused_by_resume(make, folder, master.name)


def test_a_missing_master_is_not_a_new_run(written):
    folder, stem, make, _ = written
    (folder / ("fields.h5" if stem == "fields" else "particles.h5md")).unlink()
    refused_by_resume(make, folder, "is missing")


@pytest.mark.slow
def test_every_dataset_of_a_segment_has_a_checksum(written):
    folder, stem, _, _ = written
    with h5py.File(folder / segment_name(0, stem), "r") as file:
        datasets = []
        file.visititems(lambda _, item: datasets.append(item) if isinstance(item, h5py.Dataset) else None)
        without = {item.name for item in datasets if not item.fletcher32}
        assert len(datasets) > 4 and all(file[name].shape == () for name in without), without


class Killed(BaseException):
    """Stands for the death of the process."""


@pytest.mark.parametrize("replacement", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 3))])
def test_a_kill_between_replacements_of_a_resumed_run_leaves_it_whole(written, replacement, monkeypatch):
    """The master, diagnostics, the last segment and the master again are replaced in this order, each in one step."""
    folder, _, make, write = written
    rename, asked = os.replace, []

    def dies(source, target):
        """Only once: what the writer replaced after its death would be seen below."""
        asked.append(target)
        if len(asked) == replacement + 1:
            raise Killed
        rename(source, target)

    writer = make(folder, keep_until_step=4)
    monkeypatch.setattr("os.replace", dies)
    with pytest.raises(Killed):  # from the writer's thread, which may have died before the second frame is handed over
        write(writer, [5, 6])
        writer.commit().result()
    monkeypatch.undo()
    for temporary in folder.rglob("*.tmp"):
        temporary.unlink()
    assert check_files(folder) == []
    with open_run(folder) as dataset:
        steps = dataset.step.values.tolist()
        assert steps == list(range(len(steps))) and len(steps) >= 5
    again = make(folder, keep_until_step=4)
    write(again, [5, 6, 7])
    again.close(True)
    with open_run(folder) as dataset:
        assert dataset.step.values.tolist() == list(range(8))


@pytest.mark.parametrize(
    ("shape", "time", "chunk"),
    [
        ((10, 512, 512), 0, (1, 512, 512)),
        ((10, 4096, 4096), 0, (1, 1024, 4096)),
        ((1000, 8), 0, (1000, 8)),
        ((10**6,), 0, (FILLED_BYTES // 4,)),
        ((2, 5, 64, 64), 1, (2, 5, 64, 64)),
        ((3, 5, 64, 64), 1, (2, 1, 64, 64)),
        ((4096, 10, 128, 128), 1, (1, 1, 128, 128)),
        ((64,), None, (64,)),
    ],
)
def test_chunks_are_frames(shape, time, chunk):
    storage = checked_storage(shape, np.dtype("f4"), time)
    assert storage == {"chunks": chunk, "fletcher32": True}
    size = 4 * np.prod(chunk)
    assert size <= (FILLED_BYTES if time is not None and chunk[time] > 1 else CHUNK_BYTES)


def test_numbers_alone_and_empty_arrays_are_stored_plainly():
    assert checked_storage((), np.dtype("f8")) == {} == checked_storage((0, 4), np.dtype("f8"), 0)
