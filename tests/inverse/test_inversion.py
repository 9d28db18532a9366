"""Inverse problems of configurations: the same on any mesh, in pieces as in one; resumed exactly; refused in words."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from inverse_problems import BASE, EVERYTHING, FIELD, NUMBERS, PLACES, SENSORS, SNAPSHOT, TWO_PI, evaluated, searched

from simjax.certificate.inverse_loss import inverse_objective
from simjax.config import validate
from simjax.errors import CheckpointError, ConfigurationError, NumericalError
from simjax.inverse.problem import InverseProblem


def config(unknowns, observations, **changes):
    section = {key: changes.pop(key) for key in ("solver", "shooting", "horizons") if key in changes}
    inverse = {"unknowns": unknowns, "observations": observations, **section}
    return validate({**BASE, "inverse": inverse, **changes})


INSTRUMENTS = [
    SENSORS,
    SNAPSHOT,
    {"output": "line_of_sight", "deviation": 0.1},
    {"output": "box_mean", "deviation": 0.01},
    {"output": "spectrum", "deviation": 0.01, "times": [0.15, 0.4]},
]
LOOKING = [
    *BASE["outputs"],
    {"line_of_sight": {"from": [[0, 1]], "to": [[6, 5]]}, "of": "concentration"},
    {"box_mean": {"lower": [0, 0], "upper": [3, 2]}, "of": "concentration"},
    {"spectrum": "concentration", "shells": 3},
]


@pytest.mark.parametrize(
    "shooting",
    [
        pytest.param({"windows": 1}, id="one piece", marks=pytest.mark.long),
        pytest.param({"windows": 2, "weight": 10.0}, id="two pieces", marks=pytest.mark.slow),
    ],
)
def test_residuals_and_gradients_do_not_depend_on_the_decomposition(shooting):
    problem = config(EVERYTHING, INSTRUMENTS, shooting=shooting, outputs=LOOKING)
    alone = evaluated(InverseProblem(problem, sizes={}))
    cut = evaluated(InverseProblem(problem, sizes={"x": 2, "y": 4}))
    for path, expected in jax.tree.leaves_with_path(alone):
        found = dict(jax.tree.leaves_with_path(cut))[path]
        scale = float(np.abs(expected).max())
        assert scale > 0 or "joints" in jax.tree_util.keystr(path)
        # Residuals are in standard deviations, up to some hundred; sums over cells in another order.
        bound = 1e-10 * max(scale, 1.0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=bound, err_msg=jax.tree_util.keystr(path))


@pytest.mark.slow
def test_members_are_runs_of_their_own():
    """Every member's residuals are those of its own latent, on an ensemble x space mesh too."""
    problem = InverseProblem(config(EVERYTHING, INSTRUMENTS, outputs=LOOKING), sizes={"x": 2, "ensemble": 2})
    least_squares, latent = problem.least_squares(), problem.start()
    several = jax.tree.map(lambda u: np.stack([np.asarray(u) * (1 + 0.1 * k) for k in range(4)]), latent)
    together = eqx.filter_jit(least_squares.of_members)(several, least_squares.given)
    for k in range(4):
        own = eqx.filter_jit(least_squares.evaluate)(jax.tree.map(lambda u, k=k: u[k], several))
        for a, b in zip(jax.tree.leaves(together.residuals), jax.tree.leaves(own.residuals), strict=True):
            # In standard deviations; a vectorised loop rounds otherwise.
            np.testing.assert_allclose(a[k], b, rtol=0, atol=1e-10 * max(1.0, float(np.abs(b).max())))


@pytest.mark.slow
def test_the_truth_leaves_nothing_but_noise():
    """Without noise worth the name all residuals vanish at the truth: what is measured is what is compared."""
    observations = [{**instrument, "deviation": 1e-9} for instrument in INSTRUMENTS]
    problem = InverseProblem(config(NUMBERS, observations, outputs=LOOKING))
    latent = {
        path: problem.transforms[path].latent(np.asarray(value), problem.domain)
        for path, value in problem.truth().items()
    }
    residuals = eqx.filter_jit(problem.least_squares().residuals)(latent)["measured"]
    for name, r in residuals.items():
        # Standard normal numbers: the largest of some hundred below five.
        assert np.abs(r).max() < 5, name
        assert np.abs(r).max() > 0.01, f"{name} carries no noise"


def test_a_target_counts_as_measured_and_leaves_no_truth():
    """The formula at the variable's places and at its times, with the configuration's numbers and without noise."""
    wanted = {
        "output": "fields",
        "of": "concentration",
        "times": [0.2, 0.4],
        "target": "depth*sin(x)*t",
        "deviation": 0.1,
    }
    problem = InverseProblem(config(NUMBERS, [wanted]))
    (instrument,) = problem.instruments
    x = (np.arange(16) + 0.5)[:, None] * TWO_PI / 16
    expected = 1.5 * np.sin(x) * np.array([0.2, 0.4])[:, None, None] * np.ones((1, 1, 16))
    np.testing.assert_allclose(instrument.measured, expected, rtol=1e-15)
    assert instrument.standard_deviation() == 0.1 and not problem.is_twin
    even = InverseProblem(
        config(NUMBERS, [{"output": "fields", "of": "concentration", "target": 0.3, "fraction": 0.1}])
    )
    assert np.all(even.instruments[0].measured == 0.3) and even.instruments[0].standard_deviation() == pytest.approx(
        0.03
    )


def test_a_diagnostic_is_wanted_at_its_times():
    wanted = {
        "output": "diagnostics",
        "of": "mean_concentration",
        "times": [0.2, 0.4],
        "target": "depth*t",
        "deviation": 0.1,
    }
    (instrument,) = InverseProblem(config(NUMBERS, [wanted])).instruments
    np.testing.assert_allclose(instrument.measured, [0.3, 0.6], rtol=1e-15)  # depth = 1.5: one product, a rounding
    with pytest.raises(ConfigurationError, match="target.*unknown name 'x'"):
        config(NUMBERS, [{**wanted, "target": "x"}])


@pytest.mark.slow
def test_pieces_that_join_are_the_run_itself():
    """Pieces started from the run's own fields read what one run reads, and leave nothing at the joints."""
    noiseless = [{**SENSORS, "deviation": 1e-9}]
    unknowns = {"initial.concentration": {}}  # the guess is the truth
    one = InverseProblem(config(unknowns, noiseless))
    four = InverseProblem(config(unknowns, noiseless, shooting={"windows": 4, "weight": 1.0}))
    residuals = [eqx.filter_jit(p.least_squares().residuals)(p.start()) for p in (one, four)]
    name = one.instruments[0].name
    # The same steps; reading a field and starting from it again rounds nothing, in units of 1e-9.
    np.testing.assert_allclose(residuals[1]["measured"][name], residuals[0]["measured"][name], rtol=0, atol=1e-4)
    (joint,) = jax.tree.leaves(residuals[1]["joints"])
    assert joint.shape == (3, 16, 16)
    assert float(np.abs(joint).max()) < 1e-12
    moved = jax.tree.map(lambda u: u.at[1].add(0.1), four.start())
    (joint,) = jax.tree.leaves(eqx.filter_jit(four.least_squares().residuals)(moved)["joints"])
    assert float(np.abs(joint[0]).min()) > 0.01, "a gap must show"


@pytest.fixture
def folder(tmp_path):
    return {"root": str(tmp_path), "report": False}


@pytest.mark.parametrize(
    "solver",
    [
        pytest.param({"name": "gauss_newton", "iterations": 12}, marks=pytest.mark.slow),
        pytest.param({"name": "lbfgs", "iterations": 40}, marks=pytest.mark.long),
    ],
)
def test_numbers_are_found_within_their_intervals(solver, folder):
    found = searched(config(NUMBERS, [SENSORS], solver=solver, output=folder))
    truth = {"physics.diffusivity": 0.05, "parameters.depth": 1.5}
    for path, (low, high) in found.answer.intervals.items():
        # Twice the 95 % interval: four standard deviations.
        middle, half = (low + high) / 2, (high - low) / 2
        assert abs(truth[path] - middle) < 2 * half, path
        assert half < 0.2 * truth[path]
    # Twelve values less two unknowns: root mean square of chi-square over its count.
    assert 0.4 < found.answer.residual < 1.6


@pytest.mark.parametrize(
    "solver", [pytest.param("adam", marks=pytest.mark.slow), pytest.param("lbfgs", marks=pytest.mark.long)]
)
def test_a_killed_search_goes_on_exactly_and_on_another_mesh(solver, folder, monkeypatch):
    """Killed after the third iteration with nothing saved but checkpoints; the others are those of an unbroken one."""
    options = {"solver": {"name": solver, "iterations": 7, "tolerance": 0.0}, "output": folder}
    problem = config(EVERYTHING, [SENSORS, SNAPSHOT], checkpoint={"every_frames": 1, "every_seconds": None}, **options)
    whole = searched(problem)

    class Killed(BaseException):
        pass

    from simjax.inverse import search

    settled = search._Search._checkpoint

    def dies(self, stage, iterate):
        settled(self, stage, iterate)
        if len(self.history) == 3:
            raise Killed

    monkeypatch.setattr(search._Search, "_checkpoint", dies)
    with pytest.raises(Killed):
        searched(dataclasses.replace(problem, experiment_name="killed"))
    monkeypatch.undo()
    (broken,) = (whole.folder.parent.parent / "killed").iterdir()
    cut = dataclasses.replace(problem, mesh=dataclasses.replace(problem.mesh, x=2, y=2), experiment_name="killed")
    resumed = searched(cut, resume=str(broken))
    assert resumed.folder == broken
    lines = [json.loads(line) for line in (broken / "metrics.jsonl").read_text().splitlines()]
    expected = [json.loads(line) for line in (whole.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == list(range(1, 8))
    for a, b in zip(lines, expected, strict=True):
        # Sums in another order on the mesh, which a line search can carry on a few thousandfold.
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-9)
    for path in ("physics.diffusivity", "initial.concentration"):
        for a, b in zip(
            jax.tree.leaves(resumed.answer.estimate[path]), jax.tree.leaves(whole.answer.estimate[path]), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-8 * float(np.abs(b).max()))


@pytest.mark.slow
def test_a_finished_search_that_is_resumed_writes_nothing(folder):
    options = {"solver": {"name": "gauss_newton", "iterations": 3}, "output": folder}
    found = searched(config({"physics.diffusivity": NUMBERS["physics.diffusivity"]}, [SENSORS], **options))

    def contents():
        paths = (p for p in found.folder.rglob("*") if p.is_file() and p.name != ".simjax.lock")
        return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in paths}

    before = contents()
    (part,) = json.loads((found.folder / "provenance.json").read_text())["parts"]
    assert part["outcome"].startswith("completed")
    again = searched(
        config({"physics.diffusivity": NUMBERS["physics.diffusivity"]}, [SENSORS], **options), resume=str(found.folder)
    )
    assert (again.exit_code, again.folder) == (0, found.folder) and "already finished" in again.message
    assert contents() == before
    for a, b in zip(again.answer.estimate.values(), found.answer.estimate.values(), strict=True):
        np.testing.assert_array_equal(a, b)
    shutil.rmtree(found.folder / "checkpoints")
    with pytest.raises(CheckpointError, match="bring it back"):
        searched(
            config({"physics.diffusivity": NUMBERS["physics.diffusivity"]}, [SENSORS], **options),
            resume=str(found.folder),
        )


@pytest.mark.long
def test_growing_horizons_end_where_the_whole_run_does(folder):
    solver = {"name": "gauss_newton", "iterations": 8}
    staged = searched(config(NUMBERS, [SENSORS], solver=solver, horizons=[0.1, 0.4], output=folder))
    whole = searched(config(NUMBERS, [SENSORS], solver=solver, output=folder))
    for path, value in whole.answer.estimate.items():
        # Both have converged; Gauss-Newton stops when the loss falls by less than 1e-8 of itself.
        assert float(staged.answer.estimate[path]) == pytest.approx(float(value), rel=1e-4)
    lines = [json.loads(line) for line in (staged.folder / "metrics.jsonl").read_text().splitlines()]
    assert {line["stage"] for line in lines} == {0, 1}


def refused(problem, *words, kind=ConfigurationError):
    with pytest.raises(kind) as raised:
        searched(problem)
    message = str(raised.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.slow
def test_an_unknown_without_influence_is_refused(folder):
    unknowns = NUMBERS | {"parameters.idle": {"guess": 2.0}}
    refused(
        config(unknowns, [SENSORS], parameters={"depth": 1.5, "idle": 1.0}, output=folder),
        "parameters.idle",
        "gradient vanishes",
    )
    assert not list(Path(folder["root"]).iterdir()), "nothing is written"


def test_a_guess_whose_run_fails_is_refused(folder):
    refused(
        config({"physics.diffusivity": {"guess": 1e60, "positive": True}}, [SENSORS], output=folder),
        "run of the guess fails",
        "not a number",
        kind=NumericalError,
    )


def test_a_guess_may_need_more_steps_than_the_truth():
    """Ten times the diffusivity asks for ten times the Courant-limited steps; a million times them get no room."""
    courant = {"physics": {"diffusivity": 0.5, "velocity": [0.0, 0.0]}, "time": {"end": 0.2, "output_every": 0.1}}
    steps = {
        guess: InverseProblem(
            config({"physics.diffusivity": {"guess": guess, "positive": True}}, [SENSORS], **courant)
        ).rollout.schedule.max_steps
        for guess in (0.1, 0.5, 5.0, 5e5)
    }
    assert steps[0.1] == steps[0.5]  # that of the truth is the shorter step
    assert 9 < (steps[5.0] - 2) / (steps[0.5] - 2) < 11
    assert steps[5e5] < 110 * steps[0.5]
    still = {**courant, "physics": {"diffusivity": 0.0, "velocity": [0.0, 0.0]}}
    wanted = {"physics.diffusivity": {"guess": 0.5, "positive": True}}
    assert InverseProblem(config(wanted, [SENSORS], **still)).rollout.schedule.max_steps == steps[0.5]


def test_parts_that_do_not_go_together_are_refused():
    shooting = {"windows": 2, "weight": 1.0}
    with pytest.raises(ConfigurationError, match="expected one of the two"):
        InverseProblem(config(FIELD, [SENSORS], horizons=[0.2, 0.4], shooting=shooting))
    with pytest.raises(ConfigurationError, match=r"initial.concentration.prior: expected none with ensemble_kalman"):
        InverseProblem(config(FIELD, [SENSORS], solver={"name": "ensemble_kalman"}))


@pytest.mark.slow
def test_ensemble_kalman_finds_the_numbers_on_an_ensemble_mesh(folder):
    solver = {"name": "ensemble_kalman", "members": 64, "iterations": 40}
    found = searched(config(NUMBERS, [SENSORS], solver=solver, output=folder, mesh={"x": 2}))
    for path, truth in {"physics.diffusivity": 0.05, "parameters.depth": 1.5}.items():
        low, high = found.answer.intervals[path]
        # Twice the 95 % interval of 64 members.
        assert abs(truth - (low + high) / 2) < high - low, path
        assert high - low < 0.4 * truth


@pytest.mark.slow
def test_numbers_that_one_snapshot_does_not_tell_apart_are_named(folder):
    """A single wave that only decays: a larger amplitude and a larger diffusivity give the same snapshot."""
    wave = {
        "physics": {"diffusivity": 0.05, "velocity": [0.0, 0.0]},
        "initial": {"concentration": "depth*sin(x)*cos(y)"},
    }
    snapshot = {"output": "fields", "of": "concentration", "deviation": 0.02, "times": [0.4]}
    posed = config(NUMBERS, [snapshot], output=folder | {"report": True}, **wave)
    found = searched(posed)
    (sentence,) = found.answer.doubts
    assert any("each by itself" in note for note in inverse_objective(posed).notes)  # what a certificate says
    assert sentence in found.message
    # The wave decays as depth exp(-2 kappa t): d(ln depth) = 2 kappa t d(ln kappa), but for the scheme's errors: 1 % of
    # the grid's, h^2 / 12, and up to 1 % of the steps'.
    (percent,) = re.findall(r"physics.diffusivity by \+1 % and parameters.depth by \+(\S+) %", sentence)
    assert float(percent) == pytest.approx(0.8 * float(found.answer.estimate["physics.diffusivity"]), rel=0.03)
    assert found.answer.intervals == {"physics.diffusivity": (0.0, np.inf), "parameters.depth": (0.5, 3.0)}
    assert "not determined" in (found.folder / "report.html").read_text()


def test_not_a_number_among_the_measurements_is_refused(folder, tmp_path):
    problem = InverseProblem(config(NUMBERS, [SENSORS], output=folder))
    instrument = problem.instruments[0]
    measured = instrument.measured.copy()
    measured[1, 2] = np.nan
    with pytest.raises(ConfigurationError, match="holds nan at t=0.2"):
        InverseProblem(problem.config, instruments=[dataclasses.replace(instrument, measured=measured)])


def test_sensors_outside_of_the_run_are_refused(tmp_path):
    table = tmp_path / "sensors.csv"
    table.write_text("t,x,y,value,variable\n0.2,1,1,0.3,concentration\n0.9,1,1,0.2,concentration\n")
    with pytest.raises(ConfigurationError, match=r"measured at t=0.9, but the run goes from t=0 to 0.4"):
        InverseProblem(config(NUMBERS, [{"output": "fields", "file": str(table), "deviation": 0.1}]))


def table_of(folder, header, reading):
    path = folder / "sensors.csv"
    path.write_text(f"{header}\n{reading}\n")
    return path


def test_sensors_without_a_variable_are_those_of_the_only_one(tmp_path):
    table = table_of(tmp_path, "t,x,y,value", "0.2,1,1,0.3")
    (instrument,) = InverseProblem(
        config(NUMBERS, [{"output": "fields", "file": str(table), "deviation": 0.1}])
    ).instruments
    assert instrument.operator.variable == "concentration" and instrument.measured.tolist() == [[0.3]]


def test_sensors_that_do_not_say_which_variable_they_measured_are_refused(tmp_path):
    table = table_of(tmp_path, "t,x,y,value", "0.2,1,1,0.3")
    flow = {
        "model": "incompressible",
        "physics": {"viscosity": 0.1},
        "initial": {"velocity": ["sin(y)", "0"]},
        "parameters": {},
        "outputs": None,
    }
    unknowns = {"physics.viscosity": {"guess": 0.2}}
    with pytest.raises(ConfigurationError, match="does not say what was measured.*velocity_y.*add a column"):
        InverseProblem(config(unknowns, [{"output": "fields", "file": str(table), "deviation": 0.1}], **flow))


def test_sensors_of_an_unknown_variable_are_refused(tmp_path):
    table = table_of(tmp_path, "t,x,y,value,variable", "0.2,1,1,0.3,concentrtion")
    with pytest.raises(ConfigurationError, match="readings of 'concentrtion'; did you mean 'concentration'?"):
        InverseProblem(config(NUMBERS, [{"output": "fields", "file": str(table), "deviation": 0.1}]))


@pytest.mark.slow
def test_sensors_of_a_file_are_met(tmp_path, folder):
    """Values written to a CSV file, some missing and between frames, lead back to the numbers that made them."""
    truth = InverseProblem(config(NUMBERS, [SENSORS]))
    series = np.asarray(truth.series(truth.truth())[truth.instruments[0].name])
    lines = ["t,x,y,value,variable"]
    for k, (x, y) in enumerate(PLACES):
        for frame in range(1 if k else 2, 5):
            lines.append(f"{0.1 * frame},{x},{y},{float(series[frame, k])!r},concentration")
        lines.append(f"0.25,{x},{y},{float(series[2, k] + series[3, k]) / 2!r},concentration")
    table = tmp_path / "sensors.csv"
    table.write_text("\n".join(lines))
    problem = config(
        NUMBERS,
        [{"output": "fields", "file": str(table), "deviation": 0.01}],
        output=folder,
        solver={"name": "gauss_newton", "iterations": 12, "tolerance": 1e-14},
    )
    found = searched(problem)
    assert not found.answer.truth
    # No noise: exact but for where the solver stops.
    assert float(found.answer.estimate["physics.diffusivity"]) == pytest.approx(0.05, rel=1e-5)
    assert float(found.answer.estimate["parameters.depth"]) == pytest.approx(1.5, rel=1e-5)


@pytest.mark.slow
def test_a_step_is_compiled_once(folder, monkeypatch):
    from simjax.inverse import search

    traced = []
    original = search.solver_of

    def counted(inverse, seed):
        solver = original(inverse, seed)

        class Counted(type(solver)):
            def step(self, problem, iterate):
                traced.append(1)
                return super().step(problem, iterate)

        return Counted(**{name: getattr(solver, name) for name in solver.__dataclass_fields__})

    monkeypatch.setattr(search, "solver_of", counted)
    problem = config(NUMBERS, [SENSORS], solver={"name": "adam", "iterations": 5}, output=folder, mesh={"x": 2, "y": 2})
    searched(problem)
    assert len(traced) == 1


def test_python_interface_is_that_of_the_configuration():
    import simjax as sj

    section = {"unknowns": NUMBERS, "observations": [SENSORS]}
    problem = sj.InverseProblem(validate(BASE), **section)
    same = InverseProblem(config(**section))
    np.testing.assert_array_equal(problem.instruments[0].measured, same.instruments[0].measured)
    assert eqx.tree_equal(problem.start(), same.start())
