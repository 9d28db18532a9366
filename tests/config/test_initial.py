"""Initial fields from files: exact where they can be, of second order where regridded, refused otherwise."""

import io
import struct
import zipfile

import h5py
import numpy as np
import pytest
from field_files import read_field
from paths import ROOT
from scipy.io import netcdf_file

from simjax.errors import ConfigurationError, InputOutputError, ResourceError
from simjax.grid import CENTER, FACE, Grid
from simjax.io.conventions import unit_powers

GRID = Grid((6, 4), (0.0, 0.0), (3.0, 2.0))
MIDDLE = (CENTER, CENTER)
WALLS = (False, False)
RANDOM = np.random.default_rng(3).normal(size=(4, 6))  # (y, x)


def write_netcdf4(path, values, dims=("y", "x"), coordinates=None, name="c", **attributes):
    """As the netCDF4 library writes it: dimension scales, in HDF5."""
    with h5py.File(path, "w") as file:
        for axis, dim in enumerate(dims):
            if dim not in file:
                line = (coordinates or {}).get(dim)
                scale = file.create_dataset(dim, data=np.zeros(values.shape[axis]) if line is None else line)
                scale.make_scale(dim if line is not None else "This is a netCDF dimension but not a netCDF variable.")
        dataset = file.create_dataset(name, data=values)
        for axis, dim in enumerate(dims):
            dataset.dims[axis].attach_scale(file[dim])
        dataset.attrs.update(attributes)
    return path


def write_classic(path, values, name="c", **attributes):
    with netcdf_file(path, "w") as file:
        for dim, n in zip(("y", "x"), values.shape, strict=True):
            file.createDimension(dim, n)
        variable = file.createVariable(name, values.dtype, ("y", "x"))
        variable[:] = values
        for key, value in attributes.items():
            setattr(variable, key, value)
    return path


def centers(n, lower=0.0, upper=1.0):
    return lower + (np.arange(n) + 0.5) * (upper - lower) / n


def read(path, grid=GRID, offset=MIDDLE, name="c", periodic=WALLS, **options):
    return read_field(path, name, grid, offset, periodic=periodic, **options)


# ---- formats and orientation


@pytest.mark.parametrize("kind", ["netcdf4", "classic", "hdf5", "npz", "npz compressed"])
def test_every_format_gives_the_same_array(tmp_path, kind):
    path = tmp_path / "file with ü.any"
    if kind == "netcdf4":
        write_netcdf4(path, RANDOM)
    elif kind == "classic":
        write_classic(path, RANDOM)
    elif kind == "hdf5":
        with h5py.File(path, "w") as file:
            file["c"] = RANDOM
    else:
        with path.open("wb") as file:
            (np.savez_compressed if "compressed" in kind else np.savez)(file, c=RANDOM)
    values, notes = read(path)
    assert np.array_equal(values, RANDOM.T) and values.dtype == np.float64 and values.flags.c_contiguous
    assert len(notes) == 1 and "taken as it is" in notes[0]


def test_axes_are_known_by_name_in_any_order(tmp_path):
    values, _ = read(write_netcdf4(tmp_path / "a", RANDOM.T, ("x", "y")))
    assert np.array_equal(values, RANDOM.T)


def test_axes_without_names_come_as_declared(tmp_path):
    np.savez(tmp_path / "a.npz", c=RANDOM.T)
    values, notes = read(tmp_path / "a.npz", order=("x", "y"))
    assert np.array_equal(values, RANDOM.T) and "(x, y)" in notes[0]


def test_three_dimensions(tmp_path):
    values = np.random.default_rng(0).normal(size=(3, 4, 5))
    np.savez(tmp_path / "a.npz", c=values)
    grid = Grid((5, 4, 3), (0, 0, 0), (1, 1, 1))
    read_back, _ = read_field(tmp_path / "a.npz", "c", grid, (CENTER,) * 3, periodic=(True,) * 3)
    assert np.array_equal(read_back, values.transpose(2, 1, 0))


def test_one_dimension_and_one_cell(tmp_path):
    np.savez(tmp_path / "a.npz", c=np.arange(5.0), one=np.array([2.0]))
    line = Grid((5,), (0.0,), (1.0,))
    assert np.array_equal(read_field(tmp_path / "a.npz", "c", line, (CENTER,), periodic=(True,))[0], np.arange(5.0))
    values, notes = read_field(tmp_path / "a.npz", "one", line, (CENTER,), periodic=(True,))
    assert np.array_equal(values, np.full(5, 2.0)) and "constant along x" in notes[0]


def test_time_and_member_are_chosen(tmp_path):
    frames = np.stack([RANDOM, 2 * RANDOM, 3 * RANDOM])
    path = write_netcdf4(tmp_path / "a", frames[None], ("member", "time", "y", "x"))
    values, notes = read(path, time=-1)
    assert np.array_equal(values, 3 * RANDOM.T) and "time 2 of 3" in notes[0]
    with pytest.raises(ConfigurationError, match="3 values along 'time'; write time: -1 for the last"):
        read(path)
    with pytest.raises(ConfigurationError, match="time: 3 is not one of them"):
        read(path, time=3)


def test_descending_coordinates_are_turned(tmp_path):
    path = write_netcdf4(tmp_path / "a", RANDOM, coordinates={"y": centers(4, 0, 2)[::-1], "x": centers(6, 0, 3)})
    assert np.array_equal(read(path)[0], RANDOM[::-1].T)


def test_packed_integers_are_unpacked(tmp_path):
    packed = np.arange(24, dtype=np.int16).reshape(4, 6)
    path = write_netcdf4(tmp_path / "a", packed, scale_factor=0.5, add_offset=-1.0, _FillValue=np.int16(-99))
    np.testing.assert_allclose(read(path)[0], packed.T * 0.5 - 1.0, rtol=1e-15)


# ---- regridding


def test_a_linear_field_is_interpolated_exactly_between_the_outermost_positions(tmp_path):
    x, y = centers(12, 0, 3), centers(10, 0, 2)
    path = write_netcdf4(tmp_path / "a", 2 * x[None] - y[:, None], coordinates={"x": x, "y": y})
    values, notes = read(path, Grid((24, 20), (0, 0), (3, 2)))
    expected = 2 * centers(24, 0, 3)[:, None] - centers(20, 0, 2)[None]
    np.testing.assert_allclose(values[1:-1, 1:-1], expected[1:-1, 1:-1], rtol=0, atol=1e-14)
    assert "x (12 to 24)" in notes[0] and "y (10 to 20)" in notes[0]


@pytest.mark.parametrize("offset", [CENTER, FACE])
@pytest.mark.parametrize("target", [96, 12])  # interpolated and averaged
def test_a_periodic_wave_converges_at_second_order(tmp_path, offset, target):
    def error(factor):
        source, wanted = Grid((32 * factor,), (0,), (1,)), Grid((target * factor,), (0,), (1,))
        path = write_netcdf4(
            tmp_path / f"{factor}",
            np.sin(2 * np.pi * source.coordinates(0, CENTER)),
            ("x",),
            coordinates={"x": source.coordinates(0, CENTER)},
        )
        values, _ = read_field(path, "c", wanted, (offset,), periodic=(True,))
        return np.abs(values - np.sin(2 * np.pi * wanted.coordinates(0, offset))).max()

    # asymptotic: halving the spacing divides the error by four
    assert 3.7 < error(2) / error(4) < 4.3


def test_averaging_keeps_the_integral(tmp_path):
    values = np.random.default_rng(1).normal(size=(35, 48))
    np.savez(tmp_path / "a.npz", c=values)
    coarse, notes = read(tmp_path / "a.npz", Grid((10, 8), (0, 0), (3, 2)), periodic=(True, False), order=("y", "x"))
    # a sum of 1680 numbers of order one in float64
    np.testing.assert_allclose(coarse.mean(), values.mean(), rtol=0, atol=1e-14)
    assert "averaged along x (48 to 10)" in notes[0]


def test_a_periodic_file_may_start_anywhere(tmp_path):
    x = centers(16)
    field = np.cos(2 * np.pi * x) + np.sin(4 * np.pi * x)
    grid = Grid((16,), (0,), (1,))
    shifted = write_netcdf4(
        tmp_path / "a", np.roll(field, -5), ("x",), coordinates={"x": np.roll(x, -5) + (np.arange(16) > 10)}
    )
    values, _ = read_field(shifted, "c", grid, (CENTER,), periodic=(True,))
    np.testing.assert_allclose(values, field, rtol=0, atol=1e-13)  # coordinates are wrapped to rounding


def test_a_periodic_file_that_repeats_its_first_point(tmp_path):
    nodes = np.linspace(0, 1, 17)
    path = write_netcdf4(tmp_path / "a", np.cos(2 * np.pi * nodes), ("x",), coordinates={"x": nodes})
    values, _ = read_field(path, "c", Grid((16,), (0,), (1,)), (FACE,), periodic=(True,))
    np.testing.assert_allclose(values, np.cos(2 * np.pi * nodes[:-1]), rtol=0, atol=1e-13)


def test_a_face_component_is_taken_where_it_is(tmp_path):
    faces = {"x_face": GRID.coordinates(0, FACE), "y": GRID.coordinates(1, CENTER)}
    path = write_netcdf4(tmp_path / "a", RANDOM, ("y", "x_face"), faces)
    assert np.array_equal(read(path, offset=(FACE, CENTER), periodic=(True, True))[0], RANDOM.T)


def test_the_part_of_a_larger_file_that_the_grid_covers(tmp_path):
    x = np.linspace(-10, 10, 81)
    path = write_netcdf4(tmp_path / "a", 3 * x, ("x",), coordinates={"x": x})
    grid = Grid((50,), (1.0,), (2.0,))
    values, _ = read_field(path, "c", grid, (CENTER,), periodic=(False,))
    np.testing.assert_allclose(values, 3 * grid.coordinates(0, CENTER), rtol=1e-13)


@pytest.mark.parametrize("periodic", [True, False])
def test_a_file_of_another_place_is_refused(tmp_path, periodic):
    path = write_netcdf4(tmp_path / "a", np.ones(8), ("x",), coordinates={"x": centers(8, 0, 1000)})
    with pytest.raises(ConfigurationError, match="x from 0 to 1000 in the file, 0 to 2000 in the grid"):
        read_field(path, "c", Grid((8,), (0,), (2000,)), (CENTER,), periodic=(periodic,))


# ---- refusals


def refused(path, *words, error=ConfigurationError, **options):
    with pytest.raises(error) as caught:
        read(path, **options)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value), caught.value


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite(tmp_path, bad):
    values = RANDOM.copy()
    values[2, 3:5] = bad
    refused(write_netcdf4(tmp_path / "a", values), f"is {bad} at index y=2, x=3 (2 of 24")


def test_fill_values_are_not_finite(tmp_path):
    values = RANDOM.copy()
    values[1, 4] = -999.0
    refused(write_netcdf4(tmp_path / "a", values, _FillValue=-999.0), "nan at index y=1, x=4 (1 of 24")
    refused(write_classic(tmp_path / "b", values, missing_value=-999.0), "nan at index y=1, x=4 (1 of 24")


def test_missing_variable(tmp_path):
    refused(
        write_netcdf4(tmp_path / "a", RANDOM, name="velocity"),
        "no variable 'velocty'; did you mean 'velocity'?",
        name="velocty",
    )
    refused(write_classic(tmp_path / "b", RANDOM, name="velocity"), "did you mean 'velocity'?", name="velocty")
    np.savez(tmp_path / "c.npz", velocity=RANDOM)
    refused(tmp_path / "c.npz", "did you mean 'velocity'?", name="velocty")
    refused(tmp_path / "c.npz", "it holds velocity", name="q")


def test_wrong_rank(tmp_path):
    np.savez(tmp_path / "a.npz", c=RANDOM[0])
    refused(tmp_path / "a.npz", "has shape (6,); expected the 2 axes (y, x)")
    refused(write_netcdf4(tmp_path / "b", RANDOM[0], ("x",)), "axes (x) of shape (6,); expected (y, x)")
    refused(
        write_netcdf4(tmp_path / "c", np.stack([RANDOM] * 3), ("z", "y", "x")),
        "3 values along 'z'; the grid has axes x y",
    )
    refused(write_netcdf4(tmp_path / "d", RANDOM, ("band", "x")), "4 values along 'band'")


@pytest.mark.parametrize("values", [RANDOM > 0, RANDOM * 1j, np.array([["a"] * 6] * 4)])
def test_wrong_dtype(tmp_path, values):
    np.savez(tmp_path / "a.npz", c=values)
    refused(tmp_path / "a.npz", "dtype", "expected real numbers")


def test_units(tmp_path):
    path = write_netcdf4(tmp_path / "a", RANDOM, units="cm/s")
    refused(path, "is in 'cm/s'; expected 'm s-1'", units="m s-1")
    assert "units" not in read(write_netcdf4(tmp_path / "b", RANDOM, units="m/s"), units="m s-1")[1][0]
    assert "no units in the file, taken as m s-1" in read(write_netcdf4(tmp_path / "c", RANDOM), units="m s-1")[1][0]


def test_spellings_of_units():
    assert unit_powers("m/s") == unit_powers("m s-1") == unit_powers("m s**-1") == unit_powers("meters.second^-1")
    assert unit_powers("1") == unit_powers("") == unit_powers("-") == {}
    assert unit_powers("kg/m3") == unit_powers("kg m-3") != unit_powers("kg m-2")
    assert unit_powers("degrees_C") == "degrees_C"


def test_a_pickle_is_not_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", c=np.array([[object()]], dtype=object))
    refused(tmp_path / "a.npz", "pickled object")


def npz_that_claims(path, shape):
    header = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode()
    header += b" " * (64 - (10 + len(header) + 1) % 64) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("c.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 64)
    return path


@pytest.mark.slow
def test_sizes_are_checked_before_memory_is_taken(tmp_path):
    for shape in ((2**20, 2**20), (100, 100)):
        refused(npz_that_claims(tmp_path / "a.npz", shape), f"claims shape {shape}", error=InputOutputError)
    # 56 bytes for each value of eight
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("c", shape=(2**20, 2**20), dtype="f8", chunks=(64, 64))
    said = "need about 5.73e+04 GiB", "smaller array"
    refused(tmp_path / "c.h5", *said, error=ResourceError, order=("y", "x"))


def test_links_out_of_the_file_are_refused(tmp_path):
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["c"] = RANDOM
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["external"] = h5py.ExternalLink("secret.h5", "/c")
        file["soft"] = h5py.SoftLink("/external")
        file["circle"] = h5py.SoftLink("/circle")
        file["good"], file["group/again"] = RANDOM, h5py.SoftLink("/good")
        layout = h5py.VirtualLayout((4, 6), "f8")
        layout[:] = h5py.VirtualSource("../secret.h5", "c", (4, 6))
        file.create_virtual_dataset("virtual", layout)
        layout = h5py.VirtualLayout((4, 6), "f8")
        layout[:] = h5py.VirtualSource("gone.h5", "c", (4, 6))
        file.create_virtual_dataset("gone", layout)
        file.create_dataset("raw", (4, 6), "f8", external=[(str(tmp_path / "raw.bin"), 0, 192)])
    for name in ("external", "soft"):
        refused(tmp_path / "a.h5", "link into another file", name=name)
    for name, source in (("virtual", "'../secret.h5'"), ("raw", "raw.bin")):
        refused(tmp_path / "a.h5", "outside the file's folder", source, name=name, error=InputOutputError)
    refused(tmp_path / "a.h5", "circle", name="circle", error=InputOutputError)
    refused(tmp_path / "a.h5", "needs gone.h5, which is missing", name="gone", error=InputOutputError)
    refused(tmp_path / "a.h5", "no variable 'group'", name="group")
    assert np.array_equal(read(tmp_path / "a.h5", name="group/again")[0], RANDOM.T)


def test_files_that_are_no_data(tmp_path):
    (tmp_path / "a.txt").write_text("1 2 3")
    refused(tmp_path / "a.txt", "none of NetCDF, HDF5 and NPZ")
    (tmp_path / "empty").touch()
    refused(tmp_path / "empty", "none of")
    refused(tmp_path / "nothing.nc", "cannot be read", error=InputOutputError)
    refused(tmp_path, "cannot be read", error=InputOutputError)


@pytest.mark.parametrize("kind", ["netcdf4", "classic", "npz"])
def test_truncated_files(tmp_path, kind):
    path = tmp_path / "whole"
    if kind == "netcdf4":
        write_netcdf4(path, RANDOM)
    elif kind == "classic":
        write_classic(path, RANDOM)
    else:
        with path.open("wb") as file:
            np.savez(file, c=RANDOM)
    content = path.read_bytes()
    for keep in (10, len(content) // 2, len(content) - 40):
        (tmp_path / "cut").write_bytes(content[:keep])
        refused(tmp_path / "cut", "damaged", error=InputOutputError)


def test_flipped_bits_never_escape_as_other_errors(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, c=RANDOM)
    classic = write_classic(tmp_path / "classic", RANDOM).read_bytes()
    hdf5 = write_netcdf4(tmp_path / "netcdf4", RANDOM).read_bytes()
    random = np.random.default_rng(0)
    for content in (buffer.getvalue(), classic, hdf5):
        for _ in range(60):
            flipped = bytearray(content)
            flipped[random.integers(min(len(content), 1500))] ^= 1 << int(random.integers(8))
            (tmp_path / "flipped").write_bytes(flipped)
            try:
                read(tmp_path / "flipped")
            except (ConfigurationError, InputOutputError) as error:
                assert "\n" not in str(error)


def test_the_sample_is_what_its_script_writes(tmp_path):
    import runpy

    folder = ROOT / "experiments"
    runpy.run_path(str(folder / "make_eddies.py"))["write"](tmp_path / "again.nc")
    grid = Grid((64, 48), (0, 0), (640e3, 480e3))
    for name in ("u", "v"):
        shipped, notes = read(folder / "eddies.nc", grid, name=name, periodic=(True, True), units="m s-1")
        assert "taken as it is" in notes[0]
        again, _ = read(tmp_path / "again.nc", grid, name=name, periodic=(True, True), units="m s-1")
        # single precision in the file; exp and sqrt may differ between machines in the last place
        np.testing.assert_allclose(again, shipped, rtol=0, atol=1e-6)
        assert 0.1 < shipped.std() < 0.5 and np.abs(shipped).max() < 1.0
