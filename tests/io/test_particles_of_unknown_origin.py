"""Files of particles that claim what they do not have, or hold what is no number: a sentence, and no memory or time."""

import gsd.fl
import h5py
import numpy as np
import pytest

from simjax.errors import ConfigurationError, InputOutputError, ResourceError
from simjax.io import memory
from simjax.io.particle_files import read_particles

PLACES = np.random.default_rng(1).random((4, 3)).astype("f4")


def refusal(path, error):
    with pytest.raises(error) as refused:
        read_particles(path, 3)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# ---- extended XYZ


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("0\n\n", ConfigurationError, "has no particles in its last frame"),
        ("1\n\nH 0 0 0\n0\n\n", ConfigurationError, "has no particles in its last frame"),
        ("\n", ConfigurationError, "has no particles in its last frame"),
        (
            "1000000000\n\nH 0 0 0\n",
            InputOutputError,
            "says 1000000000 particles and has 1; it is damaged",
        ),
        ("1\n\nH 0 0 0\n3\n\nH 0 0 0\n", InputOutputError, "says 3 particles and has 1"),
        ("-3\n\nH 0 0 0\n", InputOutputError, "expected the number of particles of a frame"),
        ("9" * 30 + "\n\nH 0 0 0\n", InputOutputError, "cannot be read"),
        ("1\nProperties=species:S:1:pos:R:1000000000\nH 0 0 0\n", ConfigurationError, "columns; expected at most 1000"),
        ("1\nProperties=species:S:1:pos:R:3:a:R:0\nH 0 0 0\n", InputOutputError, "cannot be read"),
    ],
    ids=lambda given: str(given)[:20].replace("\n", " "),
)
def test_frames_are_counted_before_ase_reads_them(tmp_path, text, error, said):
    (tmp_path / "a.xyz").write_text(text)
    assert said in refusal(tmp_path / "a.xyz", error)


def test_the_last_frame_of_several_is_read(tmp_path):
    (tmp_path / "a.xyz").write_text("1\n\nH 9 9 9\n2\nVEC of a comment\nH 0 0 0\nO 1 2 3\nVEC1 5 0 0\n")
    assert read_particles(tmp_path / "a.xyz", 3).arrays["position"].tolist() == [[0, 0, 0], [1, 2, 3]]


@pytest.mark.parametrize("name", ["a.xyz", "a.data"])
def test_texts_are_estimated_before_they_are_read(tmp_path, monkeypatch, name):
    (tmp_path / name).write_text("1\n\nH 0 0 0\n" * 1000)
    monkeypatch.setattr(memory, "host_memory", lambda: 2**18)
    assert "would need about 0.00016" in refusal(tmp_path / name, ResourceError)  # 11 000 bytes, sixteen times


# ---- GSD


def write_gsd(path, **chunks):
    with gsd.fl.open(str(path), "w", application="a", schema="hoomd", schema_version=[1, 4]) as file:
        file.write_chunk("configuration/box", np.array([8, 8, 8, 0, 0, 0], "f4"))
        for name, values in chunks.items():
            file.write_chunk(name.replace("_", "/"), values)
        file.end_frame()
    return path


def test_counts_of_gsd_are_compared_with_the_file(tmp_path):
    """Thirty million particles, of which nothing is written, are filled in with 100 bytes each."""
    path = write_gsd(tmp_path / "a.gsd", particles_N=np.array([30_000_000], "u4"))
    assert "says 30000000 particles and has" in refusal(path, InputOutputError)
    few = {"particles_N": np.array([4], "u4"), "particles_position": PLACES}
    np.testing.assert_array_equal(read_particles(write_gsd(tmp_path / "b.gsd", **few), 3).arrays["position"], PLACES)
    path = write_gsd(tmp_path / "c.gsd", **few, bonds_N=np.array([30_000_000], "u4"))
    assert "says 30000000 bonds" in refusal(path, InputOutputError)


# ---- H5MD


def write_h5md(path, **box):
    with h5py.File(path, "w") as file:
        group = file.create_group("particles/all")
        group["position/value"], group["box/edges/value"] = PLACES[None], np.full((1, 3), 8.0)
        group["box"].attrs.update(box)
    return path


@pytest.mark.parametrize(
    "lower",
    ["abc", b"\xff\xfe\x80", np.void(b"\0\xff\1"), [b"\xff"] * 3, h5py.Empty("f4"), 3.0, [0.0, np.nan, 0.0]],
    ids=repr,
)
def test_a_lower_corner_that_is_no_place_is_refused(tmp_path, lower):
    assert "of its box" in refusal(write_h5md(tmp_path / "a.h5md", simjax_lower=lower), ConfigurationError)


@pytest.mark.parametrize("ends", ["abc", [b"periodic", b"\xff\xfe", b"none"], [1, 2, 3]], ids=repr)
def test_a_boundary_is_periodic_or_none(tmp_path, ends):
    said = refusal(write_h5md(tmp_path / "a.h5md", boundary=ends), ConfigurationError)
    assert "expected periodic or none, by axis" in said
    said.encode("utf-8")  # without halves of characters


def test_edges_are_estimated_before_they_are_read(tmp_path):
    path = write_h5md(tmp_path / "a.h5md")
    with h5py.File(path, "r+") as file:
        del file["particles/all/box/edges/value"]
        file.create_dataset("particles/all/box/edges/value", (2**40, 3), "f8", chunks=(64, 3))
    assert "'edges' in a.h5md, of shape (1099511627776, 3), would need" in refusal(path, ResourceError)


# ---- HDF5


def test_filters_of_plugins_are_not_loaded(tmp_path):
    path = write_h5md(tmp_path / "a.h5md")
    with h5py.File(path, "r+") as file:
        written = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        written.set_chunk((1, 4, 3))
        written.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))  # that of zstd
        space = h5py.h5s.create_simple((1, 4, 3))
        parent = file.create_group("particles/all/velocity")
        h5py.h5d.create(parent.id, b"value", h5py.h5t.NATIVE_DOUBLE, space, written)
    said = refusal(path, InputOutputError)
    assert "'particles/all/velocity/value' is written with filter 32015" in said and "load a plug-in" in said


def test_filters_of_hdf5_itself_are_read(tmp_path):
    path = write_h5md(tmp_path / "a.h5md")
    with h5py.File(path, "r+") as file:
        del file["particles/all/position/value"]
        for name, options in (
            ("position", {"compression": "gzip", "shuffle": True, "fletcher32": True}),
            ("velocity", {"compression": "lzf"}),
        ):
            file.create_dataset(f"particles/all/{name}/value", data=PLACES[None], **options)
    found = read_particles(path, 3).arrays
    np.testing.assert_array_equal(found["position"], found["velocity"])


def test_chunks_are_estimated_before_they_are_unpacked(tmp_path, monkeypatch):
    path = write_h5md(tmp_path / "a.h5md")
    with h5py.File(path, "r+") as file:
        file.create_dataset(
            "particles/all/velocity/value", (1, 4, 3), "f8", maxshape=(None, None, 3), chunks=(1, 10**7, 3)
        )
    monkeypatch.setattr(memory, "host_memory", lambda: 2**30)
    assert "a chunk of 'particles/all/velocity/value' in a.h5md" in refusal(path, ResourceError)
