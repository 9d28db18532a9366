"""The host loop: ensembles, refusals before anything is written, failures that keep the last good state."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

import simjax as sj
from simjax.driver import simulation
from simjax.driver.loop import single_run, time_limits
from simjax.errors import ConfigurationError, NumericalError, ResourceError
from simjax.io.checkpoint import list_checkpoints

QUIET = ["output.animation=false", "output.report=false"]
VARY = "+ensemble.vary.physics.viscosity={log_uniform:[1e-4,1e-2]}"


def run(tmp_path, name, *overrides):
    return sj.load(name, overrides=[*overrides, *QUIET, f"output.root={tmp_path}"]).run()


SMALL = ["grid.shape=[16,16]", "time.end=0.04", "time.output_every=0.02", "precision=float64"]
# The cheapest model to compile, with an exact solution that moves.
DYE = [
    "grid.shape=[16,16]",
    "precision=float64",
    "time.courant=null",
    "parameters=null",
    "initial={concentration: 'sin(2*pi*x)'}",
    "exact={concentration: 'exp(-4*pi**2*diffusivity*t)*sin(2*pi*(x - velocity_x*t))'}",
]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Four members of one run."""
    return run(tmp_path_factory.mktemp("together"), "fluid", *SMALL, "ensemble.size=4", VARY).ds.load()


@pytest.mark.slow
def test_ensemble_member_is_the_same_alone(tmp_path, together):
    viscosity = together["viscosity"].values
    assert together["velocity_x"].dims[0] == "member" and len(np.unique(viscosity)) == 4
    alone = run(tmp_path, "fluid", *SMALL, f"physics.viscosity={float(viscosity[2])!r}").ds
    # A vmapped FFT orders its sums differently: rounding.
    np.testing.assert_allclose(together["velocity_x"].isel(member=2), alone["velocity_x"], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(["mesh.ensemble=2", "mesh.x=2", "mesh.y=2"], id="mesh", marks=pytest.mark.slow),
        pytest.param(["mesh.ensemble=2", "mesh.y=2"], id="small mesh"),
        pytest.param(["ensemble.batch=3"], id="batches", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_ensemble_on_a_mesh_and_in_batches(tmp_path, together, overrides):
    split = run(tmp_path, "fluid", *SMALL, "ensemble.size=4", VARY, *overrides).ds
    # Another order of sums in the pressure solve, some tens of steps: rounding.
    np.testing.assert_allclose(split["velocity_x"], together["velocity_x"], rtol=0, atol=1e-13)
    np.testing.assert_array_equal(split["viscosity"], together["viscosity"])


def diverging(tmp_path, values):
    """Upwind-free advection-diffusion at a fixed step that is unstable for a large parameter only."""
    return run(
        tmp_path,
        "dye",
        "grid.shape=[16,16]",
        "time.dt=0.002",
        "time.courant=null",
        "time.end=0.4",
        "time.output_every=0.1",
        "precision=float64",
        "exact=null",
        f"ensemble.size={len(values)}",
        f"+ensemble.vary.parameters.push={{values:{list(values)}}}",
        "parameters={push: 1.0}",
        "initial={concentration: 'push*exp(-20*((x - 0.5)**2 + (y - 0.5)**2))'}",
    )


@pytest.mark.slow
def test_a_diverged_member_leaves_the_others_bitwise_as_they_were(tmp_path):
    huge = 1.7e308  # its square in the diagnostics and its neighbours' sums overflow
    with_fault = diverging(tmp_path, [1.0, huge, 2.0])
    without = diverging(tmp_path, [1.0, 1.5, 2.0])
    assert with_fault.exit_code == 0
    faulty, sound = with_fault.ds.load(), without.ds.load()
    assert faulty["status"].values.tolist() == [0, 1, 0]
    for member in (0, 2):
        np.testing.assert_array_equal(
            faulty["concentration"].isel(member=member), sound["concentration"].isel(member=member)
        )
    frozen = faulty["concentration"].isel(member=1)
    assert np.all(np.isfinite(frozen.isel(time=0))) and np.all(np.isnan(frozen.isel(time=-1)))
    assert "member 1 (parameters.push=1.7e+308) is frozen" in (with_fault.folder / "run.log").read_text()


def test_failure_keeps_the_last_good_state_and_names_field_place_and_step(tmp_path):
    with pytest.raises(NumericalError, match=r"velocity_[xy] is not finite at index \(\d+, \d+\), step \d+") as error:
        # Forward Euler with central advection and no viscosity is unstable at any step.
        run(
            tmp_path,
            "fluid",
            "grid.shape=[32,32]",
            "physics.viscosity=0.0",
            "time.integrator=euler",
            "time.dt=0.02",
            "time.courant=null",
            "time.end=8",
            "time.output_every=0.2",
        )
    assert error.value.exit_code == 3
    (folder,) = (tmp_path / "fluid").iterdir()
    assert "time step halved (3 times in all)" in (folder / "run.log").read_text()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    with sj.open_run(folder) as dataset:
        # What was written is finite, up to the last good frame; the checkpoint is not before it.
        assert np.all(np.isfinite(dataset["velocity_x"])) and dataset.sizes["time"] == len(lines)
    assert int(list_checkpoints(folder / "checkpoints")[-1].name) >= lines[-1]["step"]


@pytest.mark.parametrize(
    ("overrides", "error", "sentence"),
    [
        (["time.dt=0.5", "time.courant=null"], ConfigurationError, "above the stable limit"),
        (["time.courant=1.71"], ConfigurationError, "time.courant=1.71 is above the stable limit 1.7 of kutta3; write"),
        (["initial.velocity=['1/(x - x)', '0']"], ConfigurationError, "not finite at index"),
        (["mesh.x=16", "grid.shape=[64,64]"], ResourceError, "16 devices are asked for, 8 are present"),
        (["limits.memory=1e-6"], ResourceError, "GiB per device are needed"),
        (["mesh.x=8", "grid.shape=[4,16]"], ConfigurationError, "not divisible"),
    ],
)
def test_refusals_write_nothing(tmp_path, overrides, error, sentence):
    with pytest.raises(error, match=sentence):
        run(tmp_path / "root", "fluid", *SMALL, *overrides)
    assert not (tmp_path / "root").exists()


MEMBERS = ["mesh.ensemble=2", "ensemble.size=2", "+ensemble.vary.parameters.hole={values: [99, 13]}"]


@pytest.mark.parametrize(("overrides", "index"), [(["mesh.x=4"], "13, 0"), (MEMBERS, "1, 13, 0")])
def test_a_start_that_is_wrong_on_one_device_is_refused(tmp_path, overrides, index):
    """The last of four blocks, or the second of two members."""
    density = "where(abs(16*x - hole - 0.5) < 0.1, -1, 1)"
    with pytest.raises(ConfigurationError, match=rf"density <= 0 at index \({index}\), in the cell at x=0\.8438"):
        run(
            tmp_path,
            "shock_bubble",
            *("grid={shape: [16, 4], lower: [0, 0], upper: [1, 1]}", "time.end=0.01", "parameters={hole: 13}"),
            *(f"initial={{density: '{density}', velocity: [0, 0], pressure: 1}}", *overrides),
        )


@pytest.mark.slow
def test_output_times_are_exact_and_the_last_interval_shortened(tmp_path):
    result = run(tmp_path, "dye", *DYE, "time.end=0.25", "time.output_every=0.1", "time.dt=0.03")
    np.testing.assert_allclose(result.ds.time, [0.0, 0.1, 0.2, 0.25], rtol=1e-15)
    # 0.03 + 0.03 + 0.03 + 0.01 per interval, 0.03 + 0.02 in the last.
    assert result.ds.step.values.tolist() == [0, 4, 8, 10]
    assert "the last of each 4 steps is 0.01" in (result.folder / "run.log").read_text()


@pytest.mark.slow
def test_zero_steps_and_a_second_run_in_the_same_folder(tmp_path):
    result = run(tmp_path, "fluid", *SMALL, "time.end=0", f"output.folder={tmp_path / 'same'}")
    assert result.exit_code == 0 and result.ds.sizes["time"] == 1
    with pytest.raises(ConfigurationError, match="not empty"):
        run(tmp_path, "fluid", *SMALL, f"output.folder={tmp_path / 'same'}")


@pytest.mark.slow
def test_user_model_decomposed_in_an_ensemble(tmp_path):
    class Decay(sj.CenteredModel):
        """Exponential decay: du/dt = -k u."""

        fields = ("u",)
        parameters = {"k": 1.0}

        def rhs(self, t, state, params):
            return {"u": -params["k"] * state["u"]}

        def stable_dt(self, state, params):
            return 1 / params["k"]

    result = sj.configure(
        Decay,
        grid={"shape": [8, 8]},
        initial={"u": "1 + x"},
        time={"end": 1.0, "courant": 0.1, "output_every": 0.5},
        mesh={"x": 2, "y": 2},
        ensemble={"size": 3, "vary": {"physics.k": {"values": [0.5, 1.0, 2.0]}}},
        precision="float64",
        output={"root": str(tmp_path), "animation": False, "report": False},
    ).run()
    ratio = result.ds.u.isel(time=-1) / result.ds.u.isel(time=0)
    # Third order at dt = 0.1 / k: (0.1)^4 / 24 per step, ten steps.
    np.testing.assert_allclose(ratio.mean(["x", "y"]), np.exp(-result.ds["k"]), rtol=1e-4)


@pytest.mark.slow
def test_resuming_with_another_end_and_cadence(tmp_path):
    begin = [*DYE, f"output.folder={tmp_path / 'run'}", "time.dt=0.01"]
    run(tmp_path, "dye", *begin, "time.output_every=0.1", "time.end=0.25")
    resume = [*begin, f"resume={tmp_path / 'run'}"]
    run(tmp_path, "dye", *resume, "time.output_every=0.1", "time.end=0.4")
    result = run(tmp_path, "dye", *resume, "time.output_every=0.04", "time.end=0.5")
    # From an end between two output times, and after a change of cadence, times are counted from the checkpoint.
    times = [0, 0.1, 0.2, 0.25, 0.35, 0.4, 0.44, 0.48, 0.5]
    np.testing.assert_allclose(result.ds.time, times, rtol=0, atol=1e-12)
    assert result.ds.step.values.tolist() == [round(100 * t) for t in times]
    # Time enters through the exact solution: a wrong clock would show at once, 0.6 for each tenth. This grid's own
    # error of the phase is 2 pi t (2 pi h)^2 / 6 = 0.08.
    assert float(result.ds["error_concentration"].max()) < 0.1


def test_wall_clock_limit_stops_resumably(tmp_path, monkeypatch):
    # A clock by which a second passes between two looks at it, of which there is one per frame at least.
    clock = SimpleNamespace(monotonic=itertools.count(0.0).__next__)
    for module in (simulation, single_run):
        monkeypatch.setattr(module, "wall", clock)
    begin = [*DYE, "time.dt=0.01", "time.end=1", "time.output_every=0.02", "limits.wall_clock=20"]
    with pytest.raises(sj.Stopped, match="wall-clock limit") as stopped:
        run(tmp_path, "dye", *begin)
    folder = stopped.value.folder
    assert list_checkpoints(folder / "checkpoints") and str(folder) in str(stopped.value)
    with sj.open_run(folder) as dataset:
        assert 0 < float(dataset.time[-1]) < 1
    # Where the time is up as soon as everything is compiled, no resume would get any further.
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with monkeypatch.context() as late:
        late.setattr(single_run, "wall", SimpleNamespace(monotonic=itertools.count(1000.0).__next__))
        with pytest.raises(ConfigurationError, match="20 s is reached before the first step.*larger limits.wall_clock"):
            sj.load("dye", [*begin, *QUIET, f"output.root={tmp_path}"]).run(resume=folder)
        with pytest.raises(ConfigurationError, match="reached before the first step"):
            run(tmp_path, "dye", *begin)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_job_that_ends_at_a_moment_stops_before(tmp_path, monkeypatch):
    now = itertools.count(1.8e9)  # a second passes between two looks
    monkeypatch.setattr(time_limits, "wall", SimpleNamespace(time=now.__next__))
    begin = [*DYE, "time.dt=0.01", "time.end=1", "time.output_every=0.02"]
    with pytest.raises(sj.Stopped, match=r"stopped by limits\.until=2027-01-15T08:00:20\+00:00"):
        run(tmp_path, "dye", *begin, "limits.until=1800000020")
    with pytest.raises(ConfigurationError, match="limits.until=.* is reached before the first step"):
        run(tmp_path / "late", "dye", *begin, "limits.until=2027-01-15T09:00:01+01:00")
    assert not (tmp_path / "late").exists()
