"""Fields on faces in a run's files: walls, periodic axes, cell centres, and what other programs are told of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from field_files import read_field
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkIOHDF import vtkHDFReader

import simjax as sj
from simjax.config import validate
from simjax.core.model import Output
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.errors import ConfigurationError, InputOutputError
from simjax.grid import CENTER, FACE, Grid
from simjax.io.grid_output import GridWriter
from simjax.io.read import open_run
from simjax.report import scalars

THROUGH = {"kind": "inflow", "velocity": ["1 + t * y * (1 - y)", 0]}
CHANNEL = {
    "model": "incompressible",
    "grid": {"shape": [8, 4]},
    "physics": {"viscosity": 0.01},
    "boundaries": {"x": {"lower": THROUGH, "upper": THROUGH}, "y": "no_slip"},
    "initial": {"velocity": ["1 + 0.3*y + x*y", "0.2*sin(pi*y)*x"]},
    "time": {"end": 0.1, "output_every": 0.1},
    "precision": "float64",
}
FREE = {
    "model": "acoustic",
    "grid": {"shape": [4, 6], "upper": [1, 2]},
    "boundaries": {"y": {"lower": "rigid", "upper": "free"}},
    "initial": {"velocity": [0, "3*y"]},
    "time": {"end": 0.01, "output_every": 0.01, "courant": 0.5},
    "precision": "float64",
}
CAVITY_OF_LIGHT = {
    "model": "maxwell_tm",
    "grid": {"shape": [6, 8]},
    "boundaries": {"x": "conductor", "y": "conductor"},
    "initial": {"electric": "sin(pi*x)*sin(pi*y)"},
    "time": {"end": 0.01, "output_every": 0.01, "courant": 0.5},
    "precision": "float64",
}


def observed(mapping, t=0.0, fields=None, **sections):
    """The variables that a run would write of its first state at time t, by name, with axes in the order x, y, z."""
    jax.config.update("jax_enable_x64", True)
    programs = compiled_run(validate({**mapping, **sections, "output": {"fields": fields}}))
    state, clock = programs.start()
    found, *_ = programs.observe()(programs.values, programs.files, state, clock, jnp.asarray(t))
    return {name: np.asarray(u) for name, u in programs.assemble(found, {}).items()}


MESHES = [{}, pytest.param({"x": 2, "y": 2}, marks=pytest.mark.slow)]


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.slow
def test_walls_have_their_prescribed_values_and_centres_the_means_of_faces(mesh):
    found = observed(CHANNEL, 2.0, ["velocity", "velocity_centered", "speed"], mesh=mesh)
    assert list(found) == ["velocity_x", "velocity_y", "velocity_centered_x", "velocity_centered_y", "speed"]
    u, v = found["velocity_x"], found["velocity_y"]
    assert u.shape == (9, 4) and v.shape == (8, 5)
    y = Grid((8, 4)).coordinates(1, CENTER)
    # The value of a formula, and means of two: to rounding in float64.
    np.testing.assert_allclose(u[-1], 1 + 2 * y * (1 - y), rtol=1e-14)
    np.testing.assert_array_equal(v[:, -1], 0)
    centres = 0.5 * (u[1:] + u[:-1]), 0.5 * (v[:, 1:] + v[:, :-1])
    for axis, expected in zip("xy", centres, strict=True):
        np.testing.assert_allclose(found[f"velocity_centered_{axis}"], expected, rtol=0, atol=1e-15)
    np.testing.assert_allclose(found["speed"], np.hypot(*centres), rtol=1e-14)


@pytest.mark.parametrize("mesh", [{}, {"y": 2}])
def test_a_free_surface_has_its_own_velocity(mesh):
    fields = observed(FREE, fields=["velocity", "velocity_centered"], mesh=mesh)
    assert fields["velocity_x"].shape == (4, 6)  # periodic along x: as many faces as cells
    faces = np.append(Grid((4, 6), (0, 0), (1, 2)).coordinates(1, FACE), 2.0)
    expected = np.broadcast_to(3 * faces, (4, 7))  # linear: what is extrapolated to the surface is exact
    np.testing.assert_allclose(fields["velocity_y"], expected, rtol=0, atol=1e-14)
    centred = 0.5 * (expected[:, 1:] + expected[:, :-1])
    np.testing.assert_allclose(fields["velocity_centered_y"], centred, rtol=0, atol=1e-14)


def test_members_have_walls_of_their_own():
    sections = {
        "initial": {"velocity": [0, "rise*y"]},
        "parameters": {"rise": 1.0},
        "ensemble": {"size": 4, "vary": {"parameters.rise": {"values": [1.0, 2.0, 3.0, 4.0]}}},
        "mesh": {"ensemble": 2},
    }
    fields = observed(FREE, fields=["velocity_y", "velocity_centered_y"], **sections)
    assert fields["velocity_y"].shape == (4, 4, 7) and fields["velocity_centered_y"].shape == (4, 4, 6)
    # At y = 2 twice the slope, to rounding of the extrapolation.
    np.testing.assert_allclose(fields["velocity_y"][:, 0, -1], [2, 4, 6, 8], rtol=1e-14)


def test_what_lies_on_the_corners_of_cells_has_corners_on_walls_too():
    fields = observed(CAVITY_OF_LIGHT, fields=["electric", "electric_centered", "magnetic_magnitude"])
    x, y = np.linspace(0, 1, 7), np.linspace(0, 1, 9)
    exact = np.sin(np.pi * x)[:, None] * np.sin(np.pi * y)
    np.testing.assert_allclose(fields["electric"], exact, rtol=0, atol=1e-15)
    means = 0.25 * (exact[1:, 1:] + exact[:-1, 1:] + exact[1:, :-1] + exact[:-1, :-1])
    np.testing.assert_allclose(fields["electric_centered"], means, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(fields["magnetic_magnitude"], np.zeros((6, 8)))


def test_names_of_what_is_written():
    with pytest.raises(ConfigurationError, match=r"output\.fields\[1\].*did you mean 'speed'"):
        validate({**CHANNEL, "output": {"fields": ["velocity", "speeds"]}})
    with pytest.raises(ConfigurationError, match=r"did you mean 'velocity_centered'"):
        validate({**CHANNEL, "output": {"fields": ["velocity_centred"]}})
    assert list(observed(FREE, fields=["velocity_centered_y", "pressure"])) == ["pressure", "velocity_centered_y"]


# ---------------------------------------------------------------------------------------------------------- files


GRID = Grid((6, 4, 3), (-1, 0, 0), (2, 1, 1))
PERIODIC = (True, False, False)
PLACES = {  # name -> offset, what SGRID calls it
    "velocity_x": ((FACE, CENTER, CENTER), "face1"),
    "velocity_y": ((CENTER, FACE, CENTER), "face2"),
    "velocity_z": ((CENTER, CENTER, FACE), "face3"),
    "electric_x": ((CENTER, FACE, FACE), "edge1"),
    "corner": ((FACE, FACE, FACE), "node"),
    "pressure": ((CENTER,) * 3, "volume"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of two frames whose fields are linear along walled axes and a wave along the periodic one."""
    path = tmp_path_factory.mktemp("run")
    vectors = {f"velocity_{a}": {"vector": "velocity", "component": k} for k, a in enumerate("xyz")}
    outputs = [Output(name, offset, "m s-1", **vectors.get(name, {})) for name, (offset, _) in PLACES.items()]
    about = {"viscosity": {"long_name": "kinematic viscosity nu", "units": "m2 s-1"}, "energy": {"units": "m2 s-2"}}
    writer = GridWriter(
        path,
        GRID,
        outputs,
        members=None,
        parameters={"viscosity": np.float64(1e-3)},
        diagnostics=["energy"],
        attributes={},
        title="a test",
        dtype=np.float64,
        periodic=PERIODIC,
        about=about,
    )
    fields = {name: field(offset)[None] for name, (offset, _) in PLACES.items()}
    for step in (0, 1):
        writer.write([step], [0.1 * step], fields, {"energy": np.ones(1)})
    writer.close(True)
    return path


def positions(axis, offset):
    x = GRID.coordinates(axis, offset)
    return np.append(x, GRID.upper[axis]) if offset == FACE and not PERIODIC[axis] else x


def field(offset):
    x, y, z = np.meshgrid(*(positions(axis, o) for axis, o in enumerate(offset)), indexing="ij")
    return np.sin(2 * np.pi * x / 3) + 2 * y + 3 * z


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_the_file_says_how_faces_and_cells_belong_together(folder, engine):
    with xarray.open_dataset(folder / "fields.h5", engine=engine) as dataset:
        grid = dataset.grid.attrs
        assert (grid["cf_role"], grid["topology_dimension"]) == ("grid_topology", 3)
        assert "SGRID-0.3" in dataset.attrs["Conventions"].split()
        assert grid["node_dimensions"] == "x_face y_face z_face"
        expected = "x: x_face (padding: high) y: y_face (padding: none) z: z_face (padding: none)"
        assert grid["volume_dimensions"] == expected
        for name, (_, place) in PLACES.items():
            assert (dataset[name].attrs["grid"], dataset[name].attrs["location"]) == ("grid", place)
            if place not in ("node", "volume"):  # the dimensions that the place is declared to have
                words = grid[f"{place}_dimensions"].replace("(padding: high)", "").replace("(padding: none)", "")
                cells = [word.rstrip(":") for word in words.split()]
                cells = [w for i, w in enumerate(cells) if not (i and words.split()[i - 1].endswith(":"))]
                assert dataset[name].dims == ("time", *reversed(cells))
        # As many faces as the padding says: those of a periodic axis as many as cells.
        assert {n: dataset.sizes[n] for n in dataset.sizes if n != "time"} == {
            "x": 6,
            "x_face": 6,
            "y": 4,
            "y_face": 5,
            "z": 3,
            "z_face": 4,
        }
        assert dataset.viscosity.attrs["units"] == "m2 s-1" and dataset.energy.attrs["units"] == "m2 s-2"
        assert np.all(np.isfinite(dataset.velocity_x))
    with xarray.open_dataset(folder / "diagnostics.h5", engine=engine) as dataset:
        assert "grid" not in dataset.variables


def test_centred_fields_add_up_without_a_gap_or_a_broadcast(folder):
    with open_run(folder) as dataset:
        centred = dataset.simjax.centered()
        square = centred.velocity_x**2 + centred.velocity_y**2
        assert square.dims == ("time", "z", "y", "x") and square.shape == (2, 3, 4, 6)
        assert np.all(np.isfinite(square)) and not any("face" in str(d) for d in centred.sizes)
        x, y, z = (GRID.coordinates(axis, CENTER) for axis in range(3))
        # The mean of a wave at both faces is cos(k h / 2) of that at the centre; of what is linear it is exact.
        wave = np.sin(2 * np.pi * x / 3) * np.cos(np.pi / 6)
        linear = 2 * y[:, None] + 3 * z[:, None, None]
        np.testing.assert_allclose(centred.velocity_x[0], wave + linear, rtol=0, atol=1e-14)
        np.testing.assert_allclose(centred.corner[0], wave + linear, rtol=0, atol=1e-14)
        np.testing.assert_allclose(centred.velocity_z[0], np.sin(2 * np.pi * x / 3) + linear, rtol=0, atol=1e-14)
        np.testing.assert_array_equal(centred.pressure, dataset.pressure)
        assert centred.velocity_x.attrs["units"] == "m s-1" and "location" not in centred.velocity_x.attrs
        assert "viscosity" in centred.coords and list(centred.data_vars) == list(dataset.data_vars)
        np.testing.assert_array_equal(dataset.isel(time=-1).simjax.centered().velocity_y, centred.velocity_y[-1])
        with pytest.raises(InputOutputError, match="first, then select"):
            dataset.isel(y=slice(2)).simjax.centered()


def test_pictures_of_speed_use_the_faces_on_walls_and_across_the_period(folder):
    with open_run(folder) as dataset:
        centred = dataset.simjax.centered()
        expected = np.sqrt(sum(centred[f"velocity_{a}"][0] ** 2 for a in "xyz"))
        speed = next(scalar for scalar in scalars.scalars(dataset) if scalar.name == "speed")
        np.testing.assert_allclose(speed.values(0), expected, rtol=1e-6)  # pictures are in float32
        np.testing.assert_allclose(speed.values(0, cut={"z": 2}), expected[2], rtol=1e-6)


def test_a_field_that_is_there_twice_is_drawn_once():
    axes, values = ("time", "y", "x"), np.ones((1, 2, 2))
    own = {f"velocity_{a}": (axes, values, {"vector": "velocity"}) for a in "xy"}
    centred = {f"velocity_centered_{a}": (axes, values, {"vector": "velocity_centered"}) for a in "xy"}
    names = [
        [scalar.name for scalar in scalars.scalars(xarray.Dataset(found))]
        for found in (own, centred, own | centred, own | centred | {"speed": (axes, values)})
    ]
    assert names == [["speed"]] * 4


def test_paraview_sees_one_value_for_each_cell(folder):
    reader = vtkHDFReader()
    reader.SetFileName(str(folder / "fields.m0000.vtkhdf"))
    reader.Update()
    velocity = vtk_to_numpy(reader.GetOutput().GetCellData().GetArray("velocity")).reshape(3, 4, 6, 3)
    with open_run(folder) as dataset:
        for k, a in enumerate("xyz"):
            np.testing.assert_array_equal(velocity[..., k], dataset[f"velocity_{a}"][0, :3, :4, :6])


def test_a_run_starts_from_its_own_file(folder):
    for axis, name in enumerate(("velocity_x", "velocity_y", "velocity_z")):
        offset = PLACES[name][0]
        values, told = read_field(folder / "fields.h5", name, GRID, offset, periodic=PERIODIC, time=-1)
        assert not any("along" in note for note in told), axis  # nothing is interpolated
        np.testing.assert_array_equal(values, field(offset)[:6, :4, :3])


@pytest.mark.slow
def test_a_whole_run_writes_speed_where_it_is_wanted(tmp_path):
    output = {"fields": ["velocity", "speed"], "root": str(tmp_path), "report": False, "animation": False}
    result = sj.Simulation(validate({**FREE, "output": output})).run()
    with result.ds as dataset:
        centred = dataset.simjax.centered()
        # Roots on the device and on the host round apart.
        np.testing.assert_allclose(dataset.speed, np.hypot(centred.velocity_x, centred.velocity_y), rtol=1e-14)
        assert dataset.speed.attrs["units"] == "m s-1"
        assert (dataset.sizes["x_face"], dataset.sizes["y_face"]) == (4, 7)
    assert sj.check_files(result.folder) == []
