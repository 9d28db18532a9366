"""Runs of particles: files, resuming, room that grows, refusals, decomposition."""

import h5py
import numpy as np
import pytest

import simjax as sj
from simjax.config import load_config, validate
from simjax.config.folders import config_yaml
from simjax.errors import ConfigurationError, NumericalError

SMALL = [
    "particles.count=256",
    "box.upper=[6.9,6.9,6.9]",
    "time.end=0.2",
    "time.output_every=0.1",
    "precision=float64",
    "output.animation=false",
    "output.report=false",
    "neighbor_list.rebuild_every=5",
    "physics.mode=shifted",
]


def run(tmp_path, *overrides, resume=None):
    overrides = [*SMALL, f"output.root={tmp_path}", *overrides]
    return sj.load("lennard_jones", overrides=overrides).run(resume=resume)


def particles(result):
    with result.ds as dataset:
        return dataset.load()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"), "output.report=true")


@pytest.mark.slow
def test_files_open_in_other_programs(whole):
    folder, dataset = whole.folder, particles(whole)
    assert dict(dataset.sizes) == {"time": 3, "particle": 256, "space": 3}
    assert dataset["position"].dims == ("time", "particle", "space") and dataset["temperature"].dims == ("time",)
    assert float(dataset["temperature"][0]) == pytest.approx(1.44, rel=1e-12)  # drawn, then scaled to it
    assert np.all((dataset["position"] >= 0) & (dataset["position"] <= 6.9))
    assert np.all(dataset["particles"] == 256) and sj.check_files(folder) == []
    with h5py.File(folder / "particles.h5md") as file:
        assert file["h5md"].attrs["version"].tolist() == [1, 1]
        box = file["particles/trajectory/box"]
        assert box.attrs["boundary"].tolist() == [b"periodic"] * 3 and box["edges/value"].shape == (3, 3)
        assert file["particles/trajectory/velocity/time"] == file["particles/trajectory/time"]  # one object, linked
    for name in ("report.html", "summary.png", "diagnostics.h5", "metrics.jsonl", "topology.xyz"):
        assert (folder / name).is_file(), name
    report = (folder / "report.html").read_text()
    assert "atom-steps/s" in report and "Energy drift" in report and "✗ failed" not in report


@pytest.mark.filterwarnings("ignore")  # of MDAnalysis' own dependencies
@pytest.mark.slow
def test_trajectory_opens_in_mdanalysis(whole):
    import MDAnalysis

    dataset = particles(whole)
    names = (str(whole.folder / "topology.xyz"), str(whole.folder / "particles.h5md"))
    universe = MDAnalysis.Universe(*names, convert_units=False)
    assert universe.atoms.n_atoms == 256 and len(universe.trajectory) == 3
    np.testing.assert_array_equal(universe.trajectory[2].positions, dataset["position"][2].values.astype("f4"))
    np.testing.assert_allclose(universe.dimensions, [6.9, 6.9, 6.9, 90, 90, 90], rtol=1e-6)  # float32 in there
    assert universe.trajectory.ts.data["energy"] == float(dataset["energy"][2])


@pytest.mark.slow
def test_points_open_in_vtk(whole):
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkIOHDF import vtkHDFReader

    dataset, reader = particles(whole), vtkHDFReader()
    reader.SetFileName(str(whole.folder / "particles.vtkhdf"))
    reader.Update()
    assert reader.GetNumberOfSteps() == 3
    reader.SetStep(2)
    reader.Update()
    grid = reader.GetOutputDataObject(0)
    assert grid.GetNumberOfCells() == 256
    np.testing.assert_array_equal(vtk_to_numpy(grid.GetPoints().GetData()), dataset["position"][2])
    np.testing.assert_array_equal(vtk_to_numpy(grid.GetPointData().GetArray("velocity")), dataset["velocity"][2])


@pytest.mark.slow
def test_room_grows_and_a_resumed_run_goes_on_in_it_bit_for_bit(whole, tmp_path):
    """Too few slots at the start, too few partners and too many steps later: the same trajectory in the end."""
    small = ["neighbor_list.cell_capacity=16", "neighbor_list.max_neighbors=72", "neighbor_list.rebuild_every=10"]
    half = run(tmp_path, *small, "time.end=0.1")
    log = (half.folder / "run.log").read_text()
    assert "starts with more than 16 particles" in log and "more than 72 neighbours" in log
    assert "are arranged anew after 5 now" in log
    resumed = run(tmp_path, *small, resume=str(half.folder))
    assert "are arranged anew" not in (resumed.folder / "run.log").read_text()[len(log) :]
    expected, found = particles(whole), particles(resumed)
    # Empty slots come last and partners in one order: the sums are the same, and so are the arrangements.
    for name in ("position", "velocity", "image"):
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.slow
def test_two_devices_make_the_trajectory_of_one(whole, tmp_path):
    expected, found = particles(whole), particles(run(tmp_path, "mesh.x=2"))
    # Partners come in the order of cells, which ends elsewhere on another block: rounding, grown in 40 steps.
    np.testing.assert_allclose(found["position"], expected["position"], rtol=0, atol=1e-11)
    np.testing.assert_array_equal(found["image"], expected["image"])


@pytest.mark.slow
def test_ensemble_over_temperature(whole, tmp_path):
    vary = "+ensemble.vary.particles.temperature={values:[0.5,1.44]}"
    result = run(tmp_path, "ensemble.size=2", vary, "ensemble.noise=shared", "output.report=true")
    dataset, alone = particles(result), particles(whole)
    np.testing.assert_allclose(dataset["temperature"].isel(time=0), [0.5, 1.44], rtol=1e-12)  # scaled to it
    assert dataset["position"].dims == ("member", "time", "particle", "space")
    with h5py.File(result.folder / "particles.m0001.h5md") as file:
        np.testing.assert_array_equal(file["particles/trajectory/position/value"], dataset["position"].isel(member=1))
    np.testing.assert_array_equal(dataset["species"], alone["species"])


FREE = [
    "physics.potential.lennard_jones.epsilon=0",
    "physics.cutoff=1",
    "neighbor_list.skin=0.5",
    "particles.placement=file",
    "particles.count=null",
    "time.end=1.0",
    "time.output_every=0.5",
    "time.dt=0.05",
]


def free_particles(tmp_path, *overrides):
    """Fifty particles in a plane that do not feel each other, from a file, with speeds of about four."""
    rng = np.random.default_rng(0)
    position, velocity = rng.random((50, 2)) * [4.0, 5.0], 4 * rng.normal(size=(50, 2))
    np.savez(tmp_path / "start.npz", position=position, velocity=velocity)
    file = f"particles.file={tmp_path / 'start.npz'}"
    overrides = [*FREE, file, "box.upper=[4,5]", "neighbor_list.rebuild_every=1", *overrides]
    return position, velocity, lambda: run(tmp_path / "runs", *overrides)


@pytest.mark.slow
def test_particles_that_feel_nothing_go_straight_round_the_box(tmp_path):
    position, velocity, start = free_particles(tmp_path, "particles.temperature=0")
    dataset = particles(start())
    lengths = np.array([4.0, 5.0, 0.0])
    straight = position + dataset["time"].values[:, None, None] * velocity
    found = (dataset["position"] + dataset["image"] * lengths).values
    np.testing.assert_allclose(found[..., :2], straight, rtol=0, atol=1e-12)  # rounding of twenty steps
    assert np.abs(dataset["image"]).max() >= 1 and np.all(found[..., 2] == 0)
    assert np.all((dataset["position"] >= 0) & (dataset["position"] <= lengths))


@pytest.mark.slow
def test_an_escape_names_particle_place_and_step(tmp_path):
    position, velocity, start = free_particles(tmp_path, "box.periodic=[false,true]")
    times = np.where(velocity[:, 0] > 0, (4 - position[:, 0]), position[:, 0]) / np.abs(velocity[:, 0])
    step = np.ceil(np.min(times) / 0.05)
    first = np.flatnonzero(times <= 0.05 * step)[0]  # by number, of those that leave in the same step
    with pytest.raises(NumericalError, match=rf"left the box .*: particle {first} at x=.*, step {step:.0f}, after"):
        start()


REFUSED = [
    (["particles.density=0.8"], "expected one of count, density and file"),
    (["particles.placement=square"], "a lattice of 2 axes, the box has 3"),
    (["physics.cutoff=7"], "use a longer box or a shorter cutoff"),
    (["mesh.x=8"], "less than the 2.8 over which particles interact; write mesh.x=2 or less"),
    (["time.dt=null"], "time.dt is missing"),
    (["grid.shape=[8,8]"], "grid: model=molecular_dynamics has none; leave it out, and see box"),
    (["boundaries={x: slip}"], "write box.periodic"),
    (["time.integrator=rk4"], "time.integrator: model=molecular_dynamics takes its own steps; leave it out"),
    (["steps_per_exchange=2"], "expected 0 for model=molecular_dynamics"),
    (["physics.mass=[1.0,2.0]"], "one per species"),
    (["particles.placement=random", "particles.distance=1.2"], "no places were found for 256 at random"),
]


@pytest.mark.parametrize(("overrides", "sentence"), REFUSED)
def test_refusals_write_nothing(tmp_path, overrides, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        run(tmp_path / "root", *overrides)
    assert not (tmp_path / "root").exists()


def test_configuration_read_again_is_the_same():
    import yaml

    config = load_config("lennard_jones")
    assert validate(yaml.safe_load(config_yaml(config))) == config


@pytest.mark.slow
def test_a_thermostat_keeps_its_temperature(tmp_path):
    """Ten frames, some correlation times 1 / (2 friction) apart, of 765 degrees of freedom: within four deviations."""
    settings = ["physics.thermostat={langevin:{temperature:2,friction:10}}"]
    dataset = particles(run(tmp_path, *settings, "time.end=2", "output.report=false"))
    deviation = 2 * (2 / (3 * 255)) ** 0.5 / 10**0.5
    assert abs(float(dataset["temperature"][-10:].mean()) - 2) < 4 * deviation
