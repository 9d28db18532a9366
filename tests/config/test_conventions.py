"""Conventions of files about their numbers, on values and on axes: followed, or refused."""

import h5py
import numpy as np
import pytest
import xarray as xr
from field_files import read_field
from scipy.io import netcdf_file

import simjax as sj
from simjax.driver.programs.field_run import CompiledFieldRun
from simjax.errors import ConfigurationError
from simjax.grid import CENTER, Grid
from simjax.io.measurements import read_measurements
from simjax.schema.inverse import MeasuredFile

GRID = Grid((6, 4), (0.0, 0.0), (3.0, 2.0))
X, Y = GRID.coordinates(0, CENTER), GRID.coordinates(1, CENTER)
FIELD = np.random.default_rng(3).normal(size=(4, 6))  # (y, x)
WALLS = {"periodic": (False, False)}


def write(path, values=FIELD, x=None, y=None, name="c", of_x=None, **attributes):
    """A NetCDF-4 file; the attributes are those of the variable, `of_x` those of its axis x."""
    with h5py.File(path, "w") as file:
        for dim, line in (("y", Y if y is None else y), ("x", X if x is None else x)):
            file[dim] = line
            file[dim].make_scale(dim)
        file[name] = values
        for axis, dim in enumerate(("y", "x")):
            file[name].dims[axis].attach_scale(file[dim])
        file[name].attrs.update(attributes)
        file["x"].attrs.update(of_x or {})
    return path


def read(path, grid=GRID, **options):
    return read_field(path, "c", grid, (CENTER, CENTER), **WALLS, **options)[0]


def refusal(path, **options):
    with pytest.raises(ConfigurationError) as refused:
        read(path, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# ---- axes


def test_packed_axes_are_unpacked(tmp_path):
    """From the upper end to the lower one: read as it lies there, the field would be mirrored."""
    stored = np.arange(6, dtype="i2")
    packing = {"scale_factor": -0.5, "add_offset": 2.75}
    np.testing.assert_allclose(stored * -0.5 + 2.75, X[::-1])
    path = write(tmp_path / "a", FIELD[:, ::-1], x=stored, of_x=packing)
    np.testing.assert_array_equal(read(path), FIELD.T)


def test_packed_axes_of_classic_files_are_unpacked(tmp_path):
    with netcdf_file(tmp_path / "a", "w") as file:
        for dim, n in (("y", 4), ("x", 6)):
            file.createDimension(dim, n)
        file.createVariable("c", "d", ("y", "x"))[:] = FIELD[:, ::-1]
        line = file.createVariable("x", "h", ("x",))
        line[:], line.scale_factor, line.add_offset = np.arange(6), -0.5, 2.75
    np.testing.assert_array_equal(read(tmp_path / "a"), FIELD.T)


def test_axes_in_other_units_are_refused(tmp_path):
    path = write(tmp_path / "a", of_x={"units": "km"})
    assert "the coordinate 'x' in a is in 'km'; expected 'm'" in refusal(path, length_units="m")
    np.testing.assert_array_equal(read(path), FIELD.T)  # where lengths are plain numbers
    np.testing.assert_array_equal(read(write(tmp_path / "b", of_x={"units": "meters"}), length_units="m"), FIELD.T)


def test_axes_that_count_downwards_are_refused(tmp_path):
    assert "counts downwards" in refusal(write(tmp_path / "a", of_x={"positive": "down"}))
    np.testing.assert_array_equal(read(write(tmp_path / "b", of_x={"positive": "up"})), FIELD.T)


def test_attributes_of_axes_that_are_not_known_are_refused(tmp_path):
    assert "the coordinate 'x' in a has the attribute Scale = 2" in refusal(write(tmp_path / "a", of_x={"Scale": 2}))


def test_a_run_gives_the_units_of_its_axes(tmp_path):
    path = write(tmp_path / "a.nc", of_x={"units": "km"})
    overrides = [
        "grid={shape: [6,4], upper: [3,2]}",
        f"initial={{concentration: {{file: {path}, variable: c}}}}",
        "exact=null",
    ]
    with pytest.raises(ConfigurationError, match="the coordinate 'x' in a.nc is in 'km'; expected 'm'"):
        CompiledFieldRun(sj.load("dye", overrides).config)


# ---- values


@pytest.mark.parametrize(("stored", "unsigned", "values"), [("i1", "true", 200.0), ("u1", "false", -56.0)])
def test_unsigned_numbers_are_taken_as_such(tmp_path, stored, unsigned, values):
    packed = np.full((4, 6), 200, "u1").view(stored)
    found = read(write(tmp_path / "a", packed, _Unsigned=unsigned, scale_factor=0.5))
    np.testing.assert_array_equal(found, 0.5 * values)


def test_the_fill_value_of_unsigned_numbers_is_theirs(tmp_path):
    packed = np.arange(24, dtype="u1").reshape(4, 6)
    packed[1, 4] = 255
    path = write(tmp_path / "a", packed.view("i1"), _Unsigned="true", _FillValue=np.int8(-1))
    assert "nan at index y=1, x=4 (1 of 24" in refusal(path)


def test_values_are_those_that_xarray_reads(tmp_path):
    random = np.random.default_rng(0)
    for number in range(20):
        unsigned = bool(number % 2)
        packed = random.integers(0, 2**8, (4, 6)).astype("u1" if unsigned else "i1")
        attributes = {"scale_factor": float(random.normal()), "add_offset": float(random.normal())}
        attributes |= {"_Unsigned": str(unsigned).lower()}
        path = write(tmp_path / f"{number}.nc", packed.view("i1"), **attributes)
        with xr.open_dataset(path, engine="h5netcdf") as dataset:
            # float32 would be enough for eight bits, which xarray chooses
            np.testing.assert_allclose(read(path), dataset["c"].values.T, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "limits",
    [
        {"valid_range": np.array([-5, 20], "i2")},
        {"valid_min": np.int16(-5), "valid_max": np.int16(20)},
        {"valid_range": np.array([-2.4, 10.1])},  # real numbers are of unpacked values
    ],
    ids=str,
)
def test_values_that_are_not_valid_are_missing(tmp_path, limits):
    packed = np.arange(24, dtype="i2").reshape(4, 6)
    for count, above in ((0, 20), (3, 23)):
        path = write(tmp_path / "a", np.minimum(packed, above), scale_factor=0.5, **limits)
        if count:
            assert f"nan at index y=3, x=3 ({count} of 24" in refusal(path)
        else:
            np.testing.assert_array_equal(read(path), 0.5 * np.minimum(packed, above).T)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"flag_values": [0, 1, 2]}, "the attribute flag_values = [0, 1, 2], by which its numbers stand for classes"),
        ({"flag_meanings": "land sea"}, "classes, not amounts"),
        ({"scaling_factor": 2.0}, "scaling_factor = 2.0, by which its numbers stand for values in a way"),
        ({"Intercept": 2.0}, "the attribute Intercept"),
        ({"no_data": -9}, "the attribute no_data"),
        ({"formula_terms": "a: b"}, "the attribute formula_terms"),
        ({"_Unsigned": "perhaps"}, "its _Unsigned is 'perhaps'"),
        ({"_Unsigned": "true"}, "for numbers of dtype float64; expected 'true' or 'false' for integers"),
        ({"valid_range": [1.0]}, "its valid_range is [1.0]; expected two numbers"),
        ({"valid_min": "low"}, "its valid_min is 'low'; expected a number"),
        ({"valid_range": [0.0, 1.0], "valid_max": 2.0}, "has valid_range and valid_max; expected valid_range"),
        ({"valid_range": [1.0, 0.0]}, "its valid values go from 1 to 0"),
    ],
    ids=lambda given: str(given)[:30],
)
def test_attributes_that_change_values_are_followed_or_refused(tmp_path, attributes, said):
    assert said in refusal(write(tmp_path / "a", **attributes))


def test_attributes_that_describe_are_left_alone(tmp_path):
    told = {
        "long_name": "offset of the scale",
        "cell_methods": "time: mean",
        "GRIB_missingValue": 9999,
        "timescale": 3.0,
        "actual_range": [0.0, 1.0],
        "comment": "valid",
    }
    np.testing.assert_array_equal(read(write(tmp_path / "a", **told)), FIELD.T)


# ---- arrays without names of their axes


def test_the_order_of_axes_is_asked_for_where_the_shape_leaves_a_doubt(tmp_path):
    np.savez(tmp_path / "turned.npz", c=FIELD.T)
    assert (
        "shape (6, 4) and no names of its axes, which may be (x, y) or another order; write order: [x, y]"
        in refusal(tmp_path / "turned.npz")
    )
    np.testing.assert_array_equal(read(tmp_path / "turned.npz", order=("x", "y")), FIELD.T)
    square = Grid((4, 4), (0.0, 0.0), (2.0, 2.0))
    np.savez(tmp_path / "square.npz", c=FIELD[:, :4])
    assert "write order: [y, x] if they are" in refusal(tmp_path / "square.npz", grid=square)
    np.testing.assert_array_equal(read(tmp_path / "square.npz", grid=square, order=("y", "x")), FIELD[:, :4].T)
    assert "write order: [y, x] if they are" in refusal(tmp_path / "turned.npz", grid=square)


def test_coordinates_tell_the_order_of_axes(tmp_path):
    grid = Grid((12, 8), (0.0, 0.0), (3.0, 2.0))
    np.savez(tmp_path / "a.npz", c=FIELD, x=X, y=Y)
    np.savez(tmp_path / "b.npz", c=FIELD.T, x=X, y=Y)
    assert "write order: [x, y]" in refusal(tmp_path / "b.npz", grid=grid)
    expected = read(tmp_path / "b.npz", grid=grid, order=("x", "y"))
    np.testing.assert_array_equal(read(tmp_path / "a.npz", grid=grid), expected)


def measured(path, shape, order=None):
    return read_measurements(
        MeasuredFile(path, order=order),
        "c",
        order or ("y", "x"),
        units="1",
        time_units="s",
        length_units="m",
        with_error=False,
        shape=shape,
    )


def test_the_order_of_axes_of_a_measured_snapshot_is_asked_for_too(tmp_path):
    np.savez(tmp_path / "a.npz", c=FIELD)
    np.testing.assert_array_equal(measured(tmp_path / "a.npz", (6, 4)).values, FIELD)
    np.savez(tmp_path / "b.npz", c=np.stack([FIELD[:, :4]] * 3), time=np.arange(3.0))
    with pytest.raises(ConfigurationError, match=r"shape \(4, 4\) and no names of its axes.*write order: \[y, x\] if"):
        measured(tmp_path / "b.npz", (4, 4))
    assert measured(tmp_path / "b.npz", (4, 4), ("x", "y")).dims == ("time", "x", "y")


def test_axes_of_one_value_leave_no_doubt(tmp_path):
    np.savez(tmp_path / "a.npz", c=np.arange(4.0)[:, None])
    grid = Grid((1, 4), (0.0, 0.0), (1.0, 2.0))
    np.testing.assert_array_equal(read(tmp_path / "a.npz", grid=grid), np.arange(4.0)[None])
