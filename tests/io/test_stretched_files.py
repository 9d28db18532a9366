"""Places of stretched cells in files and pictures, and fields from files brought to them."""

import numpy as np
import pytest
import xarray as xr

from simjax.core.mappings import lines
from simjax.core.model import Output
from simjax.grid import CENTER, FACE, Grid, Lines
from simjax.io.grid_layout import cell_sizes, measure_attribute, space_coordinates
from simjax.io.regrid import axis_map, target_axis
from simjax.report.scalars import scalars

GRID = Grid((2, 3), stretch={"y": Lines([0.0, 0.1, 0.3, 1.0])})
CENTERED = Output("c", (CENTER, CENTER), "1", "c")


def regrid_axis(values, positions, target):
    """Values brought to the target's places, and what was done."""
    way, told = axis_map(len(values), positions, target)
    return way.apply(values), told


def test_coordinates_bounds_and_areas_are_the_true_ones():
    y = next(v for v in space_coordinates(GRID, [CENTERED], "m") if v.name == "y")
    assert y.attributes["bounds"] == "y_bounds"
    np.testing.assert_allclose(y.values, [0.05, 0.2, 0.65])
    found = {v.name: v for v in cell_sizes(GRID, "m")}
    np.testing.assert_allclose(found["y_bounds"].values, [[0.0, 0.1], [0.1, 0.3], [0.3, 1.0]])
    np.testing.assert_allclose(found["cell_area"].values, [[0.05] * 2, [0.1] * 2, [0.35] * 2])
    assert found["cell_area"].attributes["units"] == "m2"
    assert measure_attribute(GRID, CENTERED) == {"cell_measures": "area: cell_area"}
    assert measure_attribute(GRID, Output("u", (FACE, CENTER), "1", "u")) == {}
    assert cell_sizes(Grid((2, 3)), "m") == []


def test_rings_have_volumes_and_are_called_r_and_z():
    grid = Grid((2, 3), (1.0, 0.0), (2.0, 3.0), axisymmetric=True)
    found = {v.name: v for v in (*space_coordinates(grid, [CENTERED], "m"), *cell_sizes(grid, "m"))}
    assert "bounds" not in found
    assert found["x"].attributes["long_name"] == "r of the cell centre" and found["x"].attributes["symbol"] == "r"
    assert found["y"].attributes["long_name"] == "z of the cell centre" and found["y"].attributes["units"] == "m"
    np.testing.assert_allclose(found["cell_volume"].values, [np.pi * np.array([1.25, 1.75])] * 3)
    assert found["cell_volume"].attributes == {"standard_name": "cell_volume", "units": "m3"}
    assert measure_attribute(grid, CENTERED) == {"cell_measures": "volume: cell_volume"}
    coords = {name: (name, found[name].values, found[name].attributes) for name in ("x", "y")}
    (scalar,) = scalars(xr.Dataset({"c": (("time", "y", "x"), np.zeros((1, 3, 2)))}, {"time": [0.0], **coords}))
    assert [scalar.axis_label(axis) for axis in ("x", "y")] == [("r", "m"), ("z", "m")]


@pytest.mark.parametrize("offset", [CENTER, FACE])
def test_a_linear_field_is_brought_to_the_true_places(offset):
    grid = Grid((24,), stretch=[lines("formula", "tanh(1.5*s)", 24, 0.0, 1.0)])
    coarse = np.linspace(0.0, 1.0, 9)
    values, told = regrid_axis(2 * coarse + 1, coarse, target_axis(grid, 0, offset, False))
    s = (np.arange(24) + offset) / 24
    # A linear field between linear places: rounding alone. A uniform grid would be 0.15 off.
    np.testing.assert_allclose(values, 2 * np.tanh(1.5 * s) / np.tanh(1.5) + 1, rtol=1e-12)
    assert told == "interpolated linearly along x (9 to 24)"


def test_fine_values_are_averaged_over_the_true_cells():
    grid = Grid((8,), stretch=[lines("formula", "s + 0.1*sin(2*pi*s)", 8, 0.0, 1.0)])
    x = (np.arange(4000) + 0.5) / 4000
    values, told = regrid_axis(np.sin(x) ** 2, x, target_axis(grid, 0, CENTER, False))
    assert told == "averaged along x (4000 to 8)"
    exact = 0.5 - np.sin(2 * 1.0) / 4
    assert abs(np.sum(values * grid.widths(0)) - exact) < 1e-6  # of 4000 cells, second order


def test_a_run_of_the_same_stretched_grid_is_taken_as_it_is():
    grid = Grid((8,), stretch=[lines("formula", "s + 0.1*sin(2*pi*s)", 8, 0.0, 1.0)])
    given = np.arange(8.0)
    values, told = regrid_axis(given, grid.coordinates(0, CENTER), target_axis(grid, 0, CENTER, True))
    assert told is None and np.array_equal(values, given)


def test_pictures_have_cells_where_they_are():
    bounds = np.array([[0.0, 0.1], [0.1, 0.3], [0.3, 1.0]])
    dataset = xr.Dataset(
        {"c": (("time", "y"), np.array([[1.0, 2.0, 3.0]])), "y_bounds": (("y", "bounds"), bounds)},
        coords={"time": [0.0], "y": [0.05, 0.2, 0.65]},
    )
    (scalar,) = scalars(dataset)
    assert scalar.extent("y") == (0.0, 1.0)
    np.testing.assert_array_equal(scalar.evened(scalar.values(0), "y"), [1.0, 2.0, 2.0] + [3.0] * 7)
