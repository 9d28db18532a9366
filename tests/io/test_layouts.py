"""Files in the layouts of The Well and PDEBench hold the runs' values and obey every rule that these layouts have."""

import h5py
import numpy as np
import pytest
import yaml
from configurations import DYE, FLOW, changed
from written_frames import VISCOSITY

import simjax as sj
from simjax.config import validate
from simjax.core.model import Output
from simjax.data.__main__ import main
from simjax.errors import ConfigurationError
from simjax.io.grid_output import GridWriter
from simjax.io.pdebench import write_pdebench
from simjax.io.well import write_well
from simjax.schema.side_declarations import declared_sides

CELLS, MEMBERS, STATES = (6, 4), 3, 5
FLOW_OUTPUTS = (
    Output("velocity_x", (0.0, 0.5), "m s-1", "velocity along x", "", "velocity", 0),
    Output("velocity_y", (0.5, 0.0), "m s-1", "velocity along y", "", "velocity", 1),
    Output("pressure", (0.5, 0.5), "m2 s-2"),
)
GAS_OUTPUTS = tuple(Output(name, (0.5, 0.5), "1") for name in ("density", "velocity_x", "velocity_y", "pressure"))


def written(
    folder,
    outputs=FLOW_OUTPUTS,
    *,
    base=FLOW,
    members=MEMBERS,
    cells=CELLS,
    spacing=0.1,
    states=STATES,
    ended=(),
    dtype=np.float32,
    **changes,
):
    """A run of random fields in a channel, in segments of two states. ended: members without the last state."""
    grid, rng = sj.Grid(cells, (0.0,) * len(cells), tuple(map(float, cells))), np.random.default_rng(len(folder.name))
    config = validate(changed(base, {"grid.shape": [*cells], **changes}))
    periodic = [pair.periodic for pair in config.boundaries]
    lead = () if members is None else (members,)
    writer = GridWriter(
        folder,
        grid,
        outputs,
        members=members,
        diagnostics=["energy"],
        title="a test",
        periodic=periodic,
        dtype=dtype,
        parameters={"drag": np.float64(0.5), "viscosity": VISCOSITY if members else np.float64(1e-3)},
        attributes={"simjax_run_id": "a", "simjax_config_yaml": yaml.safe_dump(config.write())},
        segment_bytes=2 * 4 * 4 * max(1, members or 1) * int(np.prod(cells)),
    )
    for k in range(states):
        fields = {}
        for o in outputs:
            walls = [offset == 0.0 and not wraps for offset, wraps in zip(o.offset, periodic, strict=True)]
            own = np.add(cells, walls)  # faces
            fields[o.name] = rng.normal(size=(1, *lead, *own))
        energy = np.where([k == states - 1 and m in ended for m in range(members or 1)], np.nan, 1.0)
        writer.write([k], [spacing * k], fields, {"energy": energy.reshape(1, *lead)})
    writer.close(False)
    return folder


CHANNEL = {"boundaries.x": "periodic", "boundaries.y": {"lower": "no_slip", "upper": "outflow"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [written(root / "ensemble", **CHANNEL), written(root / "alone", members=None, **CHANNEL)]


@pytest.fixture(scope="module")
def wells(runs, tmp_path_factory):
    """The same runs copied, and shown where they are."""
    root = tmp_path_factory.mktemp("well")
    for name in ("copied", "shown"):
        write_well(runs, root / name / "flow.hdf5", name="flow", copy=name == "copied")
    return root


def is_flag(value):
    return isinstance(value, (bool, np.bool_))


def are_names(value):
    return isinstance(value, np.ndarray) and all(isinstance(name, str) for name in value)


def require_the_layout(file):
    """Every rule of docs/data_format.md of The Well, and of its script that checks the formatting."""
    root, dims = file.attrs, file["dimensions"]
    count, ndim = root["n_trajectories"], root["n_spatial_dims"]
    assert isinstance(count, np.integer) and isinstance(ndim, np.integer) and root["grid_type"] == "cartesian"
    assert isinstance(root["dataset_name"], str) and are_names(root["simulation_parameters"])
    assert all(isinstance(root[name], np.floating) for name in root["simulation_parameters"])
    axes = dims.attrs["spatial_dims"]
    assert are_names(axes) and len(axes) == ndim > 0
    for name in ("time", *axes):
        assert dims[name].dtype == np.float32 and dims[name].ndim == 1 and not dims[name].attrs["sample_varying"]
        assert name == "time" or is_flag(dims[name].attrs["time_varying"])
    spacings = np.diff(dims["time"])
    np.testing.assert_allclose(spacings, spacings[0], rtol=1e-5)  # rounding of single precision
    cells = [len(dims[axis]) for axis in axes]
    for order in range(3):
        fields = file[f"t{order}_fields"]
        assert are_names(fields.attrs["field_names"]) and sorted(fields.attrs["field_names"]) == sorted(fields)
        for field in fields.values():
            assert is_flag(field.attrs["sample_varying"]) and is_flag(field.attrs["time_varying"])
            assert field.attrs["dim_varying"].dtype == bool and len(field.attrs["dim_varying"]) == ndim
            assert field.shape == (count, len(dims["time"]), *cells, *(ndim,) * order) and field.dtype == np.float32
    assert are_names(file["scalars"].attrs["field_names"])
    for name in file["scalars"].attrs["field_names"]:
        scalar = file["scalars"][name]
        assert scalar.shape == ((count,) if scalar.attrs["sample_varying"] else ()) and not scalar.attrs["time_varying"]
        assert scalar.dtype == np.float32
    for side in file["boundary_conditions"].values():
        assert side.attrs["bc_type"] in ("PERIODIC", "WALL", "OPEN")
        assert is_flag(side.attrs["sample_varying"]) and is_flag(side.attrs["time_varying"])
        (axis,), mask = side.attrs["associated_dims"], side["mask"]
        assert are_names(side.attrs["associated_fields"]) and mask.dtype == bool and mask.shape == dims[axis].shape


@pytest.mark.parametrize("name", ["copied", "shown"])
@pytest.mark.slow
def test_a_file_of_the_well_obeys_its_layout_and_has_the_runs_values(wells, runs, name):
    with h5py.File(wells / name / "flow.hdf5") as file:
        require_the_layout(file)
        assert file.attrs["n_trajectories"] == MEMBERS + 1 and [*file["dimensions"].attrs["spatial_dims"]] == ["y", "x"]
        assert [*file["t0_fields"]] == ["pressure"] and [*file["t1_fields"]] == ["velocity"]
        assert file["t0_fields/pressure"].is_virtual == (name == "shown")
        ensemble, alone = (sj.open_run(run).load() for run in runs)
        expected = np.concatenate([ensemble.pressure.values, alone.pressure.values[None]])
        np.testing.assert_array_equal(file["t0_fields/pressure"], expected)
        # Fields on faces are averaged as `centered` does it; the first component is that along the first axis, y.
        velocity = file["t1_fields/velocity"]
        for number, own in enumerate([ensemble.isel(member=m) for m in range(MEMBERS)] + [alone]):
            at_centres = own.simjax.centered()
            np.testing.assert_array_equal(velocity[number, ..., 0], at_centres.velocity_y)
            np.testing.assert_array_equal(velocity[number, ..., 1], at_centres.velocity_x)
        np.testing.assert_array_equal(file["dimensions/x"], ensemble.x.values.astype("f4"))


@pytest.mark.slow
def test_sides_and_numbers_of_a_file_of_the_well(wells):
    with h5py.File(wells / "copied" / "flow.hdf5") as file:
        sides = {name: np.flatnonzero(side["mask"]).tolist() for name, side in file["boundary_conditions"].items()}
        assert sides == {"x_periodic": [0, CELLS[0] - 1], "y_wall": [0], "y_open": [CELLS[1] - 1]}
        assert [*file.attrs["simulation_parameters"]] == ["drag"] and file.attrs["drag"] == 0.5
        assert sorted(file["scalars"]) == ["drag", "viscosity"]
        np.testing.assert_array_equal(file["scalars/viscosity"], np.float32([*VISCOSITY, 1e-3]))
        assert file["t1_fields/velocity"].attrs["units"] == "m s-1"


@pytest.mark.parametrize(("passable", "kind"), [(True, "OPEN"), (False, "WALL")])
def test_a_side_of_ones_own_is_what_its_class_says(tmp_path, monkeypatch, passable, kind):
    with monkeypatch.context() as patch:
        patch.setattr("simjax.schema.side_declarations._DECLARED", declared_sides())
        draining = type("Draining", (sj.Outflow,), {"__module__": __name__, "passable": passable})
        sj.side("draining", groups=("flow",), about="lets the fluid out")(draining)
        run = written(
            tmp_path / "run", **{"boundaries.y": {"lower": {"kind": "no_slip"}, "upper": {"kind": "draining"}}}
        )
        write_well(run, tmp_path / "own.hdf5")
    with h5py.File(tmp_path / "own.hdf5") as file:
        types = {side.attrs["bc_type"] for name, side in file["boundary_conditions"].items() if side["mask"][-1]}
    assert types == {"PERIODIC", kind}
    with pytest.raises(ConfigurationError, match="'draining' is declared nowhere: expected one of simjax"):
        write_well(run, tmp_path / "again.hdf5")


def test_sides_of_simjax_that_something_passes():
    passable = {one.kind: one.side.passable for one in declared_sides()}
    assert all(passable[one.kind] == one.side.passable for one in declared_sides())
    assert {kind for kind in passable if passable[kind]} == {
        "inflow",
        "outflow",
        "open",
        "turbulent_inflow",
        "characteristic_inflow",
        "characteristic_outflow",
        "absorbing",
    }


def test_a_vector_on_a_line_has_one_component(tmp_path):
    flow = (Output("velocity_x", (0.5,), "m s-1", "", "", "velocity", 0), Output("pressure", (0.5,), "1"))
    run = written(tmp_path / "run", flow, base=DYE, cells=(6,), dtype=np.float64, **{"physics.velocity": [1.0]})
    for copy in (True, False):
        write_well(run, tmp_path / f"{copy}.hdf5", copy=copy)
        with h5py.File(tmp_path / f"{copy}.hdf5") as file, sj.open_run(run) as ds:
            require_the_layout(file)
            np.testing.assert_array_equal(file["t1_fields/velocity"][..., 0], ds.velocity_x.values.astype("f4"))


@pytest.mark.slow
def test_a_gas_has_the_names_of_pdebench(tmp_path):
    run = written(tmp_path / "run", GAS_OUTPUTS)
    write_pdebench(run, tmp_path / "gas.hdf5")
    ds = sj.open_run(run).load()
    with h5py.File(tmp_path / "gas.hdf5") as file:
        assert "tensor" not in file and file.attrs["drag"] == 0.5
        for name, own in {"density": "density", "pressure": "pressure", "Vx": "velocity_x", "Vy": "velocity_y"}.items():
            assert file[name].shape == (MEMBERS, STATES, *CELLS)
            np.testing.assert_array_equal(file[name], ds[own].transpose("member", "time", "x", "y"))
        assert [len(file[f"{axis}-coordinate"]) for axis in "txy"] == [STATES, *CELLS]
        np.testing.assert_array_equal(file["viscosity"], VISCOSITY.astype("f4"))


def test_other_fields_are_a_tensor_of_pdebench(runs, tmp_path):
    write_pdebench(runs, tmp_path / "flow.hdf5", ["velocity_x", "pressure"])
    with h5py.File(tmp_path / "flow.hdf5") as file, sj.open_run(runs[0]) as ds:
        assert file["tensor"].shape == (MEMBERS + 1, STATES, *CELLS, 2)
        assert [*file["tensor"].attrs["variables"]] == ["velocity_x", "pressure"]
        centred = ds.simjax.centered().transpose("member", "time", "x", "y")
        np.testing.assert_array_equal(file["tensor"][:MEMBERS, ..., 0], centred.velocity_x)
        np.testing.assert_array_equal(file["tensor"][:MEMBERS, ..., 1], centred.pressure)


def test_one_field_on_a_line_is_what_the_reader_of_pdebench_takes(tmp_path):
    dye = (Output("concentration", (0.5,), "1"),)
    run = written(tmp_path / "run", dye, base=DYE, cells=(6,), **{"physics.velocity": [1.0]})
    assert main([str(run), "format=pdebench", "--file", str(tmp_path / "dye.hdf5")]) == 0
    with h5py.File(tmp_path / "dye.hdf5") as file, sj.open_run(run) as ds:
        np.testing.assert_array_equal(file["tensor"], ds.concentration.values)
        np.testing.assert_array_equal(file["x-coordinate"], ds.x.values.astype("f4"))


def test_members_that_ended_early_are_left_out_and_told(tmp_path, capsys):
    run = written(tmp_path / "run", ended=(1,))
    assert main([str(run), "fields=[pressure]", "--file", str(tmp_path / "a" / "flow.hdf5")]) == 0
    assert f"left out, as they ended early: {run}, member 1" in capsys.readouterr().out
    with h5py.File(tmp_path / "a" / "flow.hdf5") as file, sj.open_run(run) as ds:
        np.testing.assert_array_equal(file["t0_fields/pressure"], ds.pressure.values[[0, 2]])
        np.testing.assert_array_equal(file["scalars/viscosity"], VISCOSITY[[0, 2]].astype("f4"))


@pytest.mark.slow
def test_what_does_not_fit_is_told_and_nothing_is_written(runs, tmp_path):
    other = {
        "cells": (written(tmp_path / "cells", cells=(4, 4), **CHANNEL), "has 4 x 4 cells and .* 6 x 4; expected runs"),
        "sides": (written(tmp_path / "sides"), "are x: periodic, periodic; y: periodic, periodic, those"),
        "times": (written(tmp_path / "times", spacing=0.2, **CHANNEL), "expected runs with the same output times"),
        "states": (written(tmp_path / "states", states=3, **CHANNEL), "3 states to t=0.2 and .* 5 to t=0.4"),
    }
    for name, (run, message) in other.items():
        with pytest.raises(ConfigurationError, match=message):
            write_well([runs[0], run], tmp_path / f"{name}.hdf5")
    with pytest.raises(ConfigurationError, match="'energy' is no field on the grid"):
        write_well(runs, tmp_path / "a.hdf5", ["energy"])
    with pytest.raises(ConfigurationError, match="a.nc: expected a name that ends in .hdf5"):
        write_well(runs, tmp_path / "a.nc")
    assert not [*tmp_path.glob("*.hdf5"), *tmp_path.glob("*.nc")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected folders of runs and some of format, fields, name, copy, got no folder of a run"),
        (["RUN", "fromat=well"], "got fromat=..."),
        (["RUN", "format=zarr"], "format=zarr, copy=true: expected well or pdebench"),
        (["RUN", "format=pdebench", "copy=false"], "expected neither name nor copy=false"),
    ],
)
def test_words_of_the_command_are_checked(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err
