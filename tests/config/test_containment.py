"""Files that take their values from elsewhere: every way out of the folder, at every level, is refused by name."""

import os

import h5py
import numpy as np
import pytest
from field_files import read_field

from simjax.config import load_config
from simjax.errors import ConfigurationError, InputOutputError
from simjax.grid import CENTER, Grid
from simjax.io.containment import MAXIMUM_HOPS
from simjax.io.particle_files import read_particles
from simjax.io.read import open_hdf5

SECRET = b"root:x:0:0:root:/root:/bin/bash\n"  # four float64, as somebody's file


@pytest.fixture
def folder(tmp_path):
    """An innocent folder with a secret beside it."""
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["u"] = np.frombuffer(SECRET)
    (tmp_path / "given").mkdir()
    return tmp_path / "given"


def mapped(file, name, source, dataset="u"):
    """A virtual dataset over `dataset` of the file `source`."""
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(source, dataset, (4,))
    file.create_virtual_dataset(name, layout)


def raw(file, folder, name="u"):
    return file.create_dataset(name, (4,), "f8", external=[(str(folder.parent / "secret"), 0, len(SECRET))])


def in_raw_storage(folder, file):
    raw(file, folder)
    return "secret"


def in_a_folder_above(folder, file):
    mapped(file, "u", "../secret.h5")
    return "../secret.h5"


def by_its_whole_path(folder, file):
    mapped(file, "u", str(folder.parent / "secret.h5"))
    return "secret.h5"


def behind_a_symlink(folder, file):
    (folder / "near.h5").symlink_to("../secret.h5")
    mapped(file, "u", "near.h5")
    return "near.h5"


def in_a_linked_folder(folder, file):
    (folder / "near").symlink_to("..")
    mapped(file, "u", "near/secret.h5")
    return "near/secret.h5"


def behind_an_external_link(folder, file):
    with h5py.File(folder / "near.h5", "w") as near:
        near["u"] = h5py.ExternalLink("../secret.h5", "u")
    mapped(file, "u", "near.h5")
    return "../secret.h5"


def behind_a_soft_link_to_one(folder, file):
    with h5py.File(folder / "near.h5", "w") as near:
        near["out"] = h5py.ExternalLink("..", "/")
        near["u"] = h5py.SoftLink("/out/u")
    mapped(file, "u", "near.h5")
    return "near.h5"


def two_files_further(folder, file):
    with h5py.File(folder / "far.h5", "w") as far:
        raw(far, folder)
    with h5py.File(folder / "near.h5", "w") as near:
        mapped(near, "u", "far.h5")
    mapped(file, "u", "near.h5")
    return "secret"


def within_the_file_and_then_out(folder, file):
    raw(file, folder, "hidden")
    mapped(file, "u", ".", "hidden")
    return "secret"


def as_coordinates(folder, file):
    scale = raw(file, folder, "x")
    scale.make_scale("x")
    file["u"] = np.zeros(4)
    file["u"].dims[0].attach_scale(scale)
    return "secret"


def as_coordinates_of_a_source(folder, file):
    with h5py.File(folder / "near.h5", "w") as near:
        as_coordinates(folder, near)
    mapped(file, "u", "near.h5")
    return "secret"


def round_in_a_circle(folder, file):
    mapped(file, "u", ".", "v")
    mapped(file, "v", ".", "u")
    return "circle"


def too_many_times_over(folder, file):
    file[f"u{MAXIMUM_HOPS + 2}"] = np.zeros(4)
    for level in range(1, MAXIMUM_HOPS + 2):
        mapped(file, f"u{level}", ".", f"u{level + 1}")
    mapped(file, "u", ".", "u1")
    return str(MAXIMUM_HOPS)


def from_itself(folder, file):
    mapped(file, "u", ".", "u")
    return "circle"


def from_nothing(folder, file):
    mapped(file, "u", "gone.h5")
    return "gone.h5"


WAYS = [
    in_raw_storage,
    in_a_folder_above,
    by_its_whole_path,
    behind_a_symlink,
    in_a_linked_folder,
    behind_an_external_link,
    behind_a_soft_link_to_one,
    two_files_further,
    within_the_file_and_then_out,
    as_coordinates,
    as_coordinates_of_a_source,
    round_in_a_circle,
    too_many_times_over,
    from_itself,
    from_nothing,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reader", ["initial field", "run"])
def test_values_from_elsewhere_are_refused_and_the_source_is_named(folder, way, reader, monkeypatch):
    # HDF5 looks in the working directory as well.
    monkeypatch.chdir(folder.parent)
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        named = way(folder, file)
    with pytest.raises(InputOutputError) as refused:
        if reader == "run":
            with open_hdf5(path):
                pass
        else:
            read_field(path, "u", Grid((4,)), (CENTER,), periodic=(True,))
    assert named in str(refused.value) and refused.value.exit_code == 4


def test_millions_of_reads_behind_one_name_are_refused(folder):
    """Eight levels of eight sources each: 8^8 reads of one number."""
    with h5py.File(folder / "a.h5", "w") as file:
        file["u8"] = np.zeros(1)
        for level in range(8):
            layout = h5py.VirtualLayout((8,) if level else (1,), "f8")
            for k in range(8 if level else 1):
                layout[k] = h5py.VirtualSource(".", f"u{level + 1}", (8,) if level < 7 else (1,))[:1]
            file.create_virtual_dataset(f"u{level}", layout)
    with pytest.raises(InputOutputError, match="reads"):
        read_field(folder / "a.h5", "u0", Grid((1,)), (CENTER,), periodic=(True,))


def test_a_run_file_that_is_a_link_out_of_its_folder_is_refused(folder):
    (folder / "fields.h5").symlink_to("../secret.h5")
    with pytest.raises(InputOutputError, match="outside"), open_hdf5(folder / "fields.h5"):
        pass


@pytest.mark.parametrize("linked", [False, True])
def test_virtual_datasets_over_files_of_the_folder_are_read(folder, linked):
    """A run's master file maps its segments like this; the user's own link to the file is followed."""
    (folder / "data").mkdir()
    with h5py.File(folder / "data" / "segment.h5", "w") as file:
        file["u"] = np.arange(4.0)
        file["again"] = h5py.SoftLink("/u")
    with h5py.File(folder / "a.h5", "w") as file:
        mapped(file, "u", "data/segment.h5", "again")
    if linked:
        (folder.parent / "mine.h5").symlink_to(folder / "a.h5")
    path = folder.parent / "mine.h5" if linked else folder / "a.h5"
    values, _ = read_field(path, "u", Grid((4,)), (CENTER,), periodic=(True,))
    np.testing.assert_array_equal(values, np.arange(4.0))


def test_particles_from_elsewhere_are_refused(folder):
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("particles/all/position/value", (1, 2, 2), "f8", external=[("../secret", 0, 32)])
    with pytest.raises(InputOutputError, match="outside"):
        read_particles(folder / "a.h5", 2)
    os.rename(folder / "a.h5", folder / "b.h5")
    with h5py.File(folder / "a.h5", "w") as file:
        file["particles"] = h5py.ExternalLink("b.h5", "/particles")
    with pytest.raises(InputOutputError, match="link into another file"):
        read_particles(folder / "a.h5", 2)


@pytest.mark.parametrize("place", ["output.root=gs://bucket/runs", "output.folder=s3://bucket/x"])
def test_object_stores_are_refused_before_a_folder_of_that_name_is_made(place):
    with pytest.raises(ConfigurationError, match="a folder on a file system.*output.copy_to"):
        load_config("fluid", [place])
