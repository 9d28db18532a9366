"""Initial fields from files, region by region: the values of the whole, and no more of the file than they take."""

import math

import h5py
import jax
import numpy as np
import pytest
from field_files import read_field

import simjax as sj
from simjax.driver.programs.field_run import CompiledFieldRun
from simjax.errors import ConfigurationError
from simjax.grid import CENTER, FACE, Grid
from simjax.io import initial_files
from simjax.io.initial import field_file, require_finite

RANDOM = np.random.default_rng(5)
BOX = {"lower": (0.0, 0.0), "upper": (3.0, 2.0)}


@pytest.fixture
def values_read(monkeypatch):
    """How many values each access to a dataset has read."""
    counts, read = [], h5py.Dataset.__getitem__

    def counted(self, index):
        values = read(self, index)
        if self.name != "/x":
            counts.append(np.size(values))
        return values

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    return counts


def write(path, values, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("c", data=values, **options)
    return path


def quarters(shape):
    """Bounds of the regions of four devices along x and two along y."""
    nx, ny = shape[0] // 4, shape[1] // 2
    return [((i * nx, (i + 1) * nx), (j * ny, (j + 1) * ny)) for i in range(4) for j in range(2)]


def assembled(file, shape):
    whole = np.full(shape, np.nan)
    for bounds in quarters(shape):
        whole[tuple(slice(*one) for one in bounds)] = file.read(bounds)
    return whole


@pytest.mark.parametrize("periodic", [(True, True), (False, False)])
@pytest.mark.parametrize("offset", [(CENTER, CENTER), (FACE, CENTER)])
@pytest.mark.parametrize("counts", [(16, 12), (10, 7), (50, 31), (16, 31)])
def test_regions_are_those_of_the_whole_to_the_bit(tmp_path, counts, offset, periodic):
    """Taken as they are, interpolated, averaged, and both; periodic axes begin in the middle of the file."""
    grid, lines = Grid((16, 12), **BOX), []
    for axis, n in enumerate(counts):
        h = grid.lengths[axis] / n
        lines.append((np.arange(n) + (offset[axis] if n == grid.shape[axis] else 0.5)) * h)
        if periodic[axis] and n != grid.shape[axis]:
            lines[axis] += grid.lengths[axis] / 3
    values = RANDOM.normal(size=counts[::-1])
    with h5py.File(tmp_path / "a", "w") as file:
        file["c"] = values
        for axis, name in enumerate("xy"):
            file[name] = lines[axis]
            file[name].make_scale(name)
            file["c"].dims[1 - axis].attach_scale(file[name])
    whole, notes = read_field(tmp_path / "a", "c", grid, offset, periodic=periodic)
    assert any(word in notes[0] for word in ("taken as it is", "interpolated", "averaged"))
    found = field_file(tmp_path / "a", "c", grid, offset, periodic=periodic)
    np.testing.assert_array_equal(assembled(found, grid.shape), whole)


@pytest.mark.parametrize("options", [{}, {"chunks": (5, 7), "compression": "gzip"}])
def test_a_region_reads_its_own_share_of_the_file(tmp_path, values_read, options):
    path = write(tmp_path / "a", RANDOM.normal(size=(24, 32)), **options)
    grid = Grid((32, 24), **BOX)
    found = field_file(path, "c", grid, (CENTER,) * 2, periodic=(True, True))
    assert values_read == []  # of the whole file nothing is read in advance
    assembled(found, grid.shape)
    assert values_read == [8 * 12] * 8


def test_a_region_that_is_interpolated_reads_what_lies_around_it(tmp_path, values_read):
    path = write(tmp_path / "a", RANDOM.normal(size=(24, 32)))
    order = {"order": ("y", "x")}
    finer = field_file(path, "c", Grid((64, 48), **BOX), (CENTER,) * 2, periodic=(True, True), **order)
    finer.read(((16, 32), (24, 36)))
    assert values_read == [10 * 8]  # 8 x 6 values lie in it, and one more on each side
    values_read.clear()
    finer.read(((0, 16), (24, 36)))  # at the lower end of a periodic axis: one value from the upper end
    assert sorted(values_read) == [1 * 8, 9 * 8]
    values_read.clear()
    coarser = field_file(path, "c", Grid((16, 12), **BOX), (CENTER,) * 2, periodic=(False, False), **order)
    coarser.read(((4, 8), (3, 6)))
    assert 8 * 6 <= sum(values_read) <= 10 * 8  # edges of cells coincide to rounding, so neighbours may count


def test_times_members_and_axes_in_another_order(tmp_path, values_read):
    frames = RANDOM.normal(size=(2, 32, 3, 24)).astype("f4")  # member, x, time, y
    with h5py.File(tmp_path / "a", "w") as file:
        file["c"] = frames
        for axis, name in enumerate(("member", "x", "time", "y")):
            file["c"].dims[axis].label = name
    grid = Grid((32, 24), **BOX)
    found = field_file(tmp_path / "a", "c", grid, (CENTER,) * 2, periodic=(True, True), time=-1, member=0)
    values = found.read(((8, 16), (12, 24)))
    np.testing.assert_array_equal(values, frames[0, 8:16, 2, 12:24])
    assert values.dtype == np.float64 and values_read == [8 * 12]


@pytest.mark.parametrize("piece", [64, 2**22])
@pytest.mark.parametrize("order", "CF")
def test_a_region_of_an_archive_is_read_in_pieces(tmp_path, monkeypatch, piece, order):
    monkeypatch.setattr(initial_files, "PIECE", piece)
    values = np.asarray(RANDOM.normal(size=(6, 24, 32)), order=order)
    np.savez_compressed(tmp_path / "a.npz", c=values)
    grid = Grid((32, 24, 6), (0, 0, 0), (1, 1, 1))
    found = field_file(tmp_path / "a.npz", "c", grid, (CENTER,) * 3, periodic=(True,) * 3)
    np.testing.assert_array_equal(found.read(((8, 16), (3, 20), (1, 4))), values[1:4, 3:20, 8:16].transpose(2, 1, 0))


def test_values_that_are_not_finite_are_found_in_the_region_that_reads_them(tmp_path):
    values = RANDOM.normal(size=(12, 16))
    values[7, 13], values[9, 3] = np.nan, np.inf
    path, grid = write(tmp_path / "a", values), Grid((16, 12), **BOX)

    def part():
        return field_file(path, "c", grid, (CENTER,) * 2, periodic=(True, True))

    good, upper, whole = part(), part(), part()
    good.read(((4, 12), (0, 12)))
    require_finite([good])
    upper.read(((12, 16), (6, 12)))
    with pytest.raises(ConfigurationError, match=r"'c' in a is nan at index y=7, x=13 \(1 of 192 values"):
        require_finite([upper])
    for bounds in quarters(grid.shape):  # twice, as devices that hold copies do: each value is counted once
        whole.read(bounds), whole.read(bounds)
    with pytest.raises(ConfigurationError, match=r"is nan at index y=7, x=13 \(2 of 192 values"):
        require_finite([whole])


def test_each_device_of_a_run_reads_its_own_part(tmp_path, values_read):
    """Components on faces, and coefficients, of a run that is cut in four."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["c"] = RANDOM.normal(size=(16, 32))
    overrides = [
        "grid.shape=[32,16]",
        f"initial={{concentration: {{file: {tmp_path / 'a.h5'}, variable: c}}}}",
        "exact=null",
    ]
    alone = CompiledFieldRun(sj.load("dye", overrides).config)
    assert values_read == [32 * 16]
    values_read.clear()
    members = ["ensemble.size=2", "ensemble.vary={physics.diffusivity: {values: [0.01, 0.02]}}"]
    cut = CompiledFieldRun(sj.load("dye", [*overrides, "mesh.x=2", "mesh.y=2", "mesh.ensemble=2", *members]).config)
    assert values_read == [16 * 8] * 4  # once, although two devices hold each part
    assert alone.notes == cut.notes
    for one, other in zip(jax.tree.leaves(alone.files), jax.tree.leaves(cut.files), strict=True):
        assert {math.prod(shard.data.shape) for shard in other.addressable_shards} == {16 * 8}
        assert one.dtype == other.dtype == np.float32
        np.testing.assert_array_equal(one, other)
