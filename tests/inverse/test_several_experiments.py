"""Several experiments in one loss: it is the sum of theirs, on any mesh, and determines what none does alone."""

import dataclasses
import json

import equinox as eqx
import jax
import numpy as np
import pytest
import xarray as xr
from configurations import refusal
from inverse_problems import BASE, EVERYTHING, NUMBERS, SENSORS, SNAPSHOT, evaluated, searched

import simjax as sj
from simjax.config import validate
from simjax.config.folders import resume_differences
from simjax.errors import ConfigurationError
from simjax.inverse.methods.least_squares import half_square
from simjax.inverse.problem import InverseProblem

UNKNOWNS = EVERYTHING | {
    "physics.diffusivity": {"guess": 0.1, "positive": True, "prior": {"gaussian": {"mean": 0.2, "deviation": 0.1}}}
}
EXPERIMENTS = {
    "calm": {"physics": {"velocity": [0.1, 0.2]}},
    "windy": {"time": {"end": 0.2, "dt": 0.025}, "observations": [SNAPSHOT]},
}
# A wave along each axis: its run tells the velocity along that axis and nothing of the other one.
WAVES = {"along_x": {"initial": {"concentration": "sin(x)"}}, "along_y": {"initial": {"concentration": "sin(y)"}}}
VELOCITY = {"physics.velocity_x": {"guess": 0.5}, "physics.velocity_y": {"guess": 0.0}}


def posed(experiments=EXPERIMENTS, unknowns=UNKNOWNS, observations=(SENSORS,), base=BASE, **changes):
    section = {key: changes.pop(key) for key in ("solver", "shooting", "horizons") if key in changes}
    inverse = {"unknowns": unknowns, "observations": list(observations), "experiments": experiments, **section}
    return {**base, "inverse": inverse, **changes}


def alone(problem, name):
    """One experiment of a problem by itself, with what was measured in it."""
    described = next(e for e in problem.inverse.experiments if e.name == name)
    inverse = dataclasses.replace(problem.inverse, experiments=(), observations=described.observations)
    config = dataclasses.replace(described.of(problem.config), inverse=inverse)
    instruments = [dataclasses.replace(i, experiment="") for i in problem.instruments if i.experiment == name]
    return InverseProblem(config, sizes={}, instruments=instruments)


@pytest.mark.slow
def test_loss_and_gradient_are_the_sums_of_those_of_the_experiments_with_priors_once():
    number = {"physics.diffusivity": UNKNOWNS["physics.diffusivity"]}
    together = InverseProblem(validate(posed(unknowns=number)), sizes={})
    loss, residuals, gradient = evaluated(together)
    parts = [evaluated(alone(together, name)) for name in EXPERIMENTS]
    assert {name.split("_")[0] for name in residuals["measured"]} == {"calm", "windy"}
    prior = half_square(residuals["prior"])
    assert float(prior) > 0
    # Sums in another order.
    assert float(loss) == pytest.approx(sum(float(part[0]) for part in parts) - float(prior), rel=1e-13)
    ((path, start),) = together.start().items()
    transform, prior_of_it, domain = together.transforms[path], together.priors[path], together.domain
    slope = jax.grad(lambda u: half_square(prior_of_it.residuals(transform.physical(u, domain), domain)))(start)
    found, *apart = (float(tree[path]) for tree in (gradient, *(part[2] for part in parts)))
    assert found == pytest.approx(sum(apart) - float(slope), rel=1e-12)


@pytest.mark.slow
def test_residuals_and_gradients_do_not_depend_on_the_decomposition():
    problem = validate(posed())
    expected = evaluated(InverseProblem(problem, sizes={}))
    cut = dict(jax.tree.leaves_with_path(evaluated(InverseProblem(problem, sizes={"x": 2, "y": 4}))))
    for path, whole in jax.tree.leaves_with_path(expected):
        # Residuals are in standard deviations, up to some hundred; sums over cells in another order.
        bound = 1e-10 * max(float(np.abs(whole).max()), 1.0)
        np.testing.assert_allclose(cut[path], whole, rtol=0, atol=bound, err_msg=jax.tree_util.keystr(path))


@pytest.mark.long
def test_two_experiments_determine_what_one_does_not(tmp_path):
    output = {"root": str(tmp_path)}
    solver = {"name": "gauss_newton", "iterations": 8}
    config = validate(posed(WAVES, VELOCITY, solver=solver, output=output))
    for name, blind in (("along_x", "velocity_y"), ("along_y", "velocity_x")):
        with pytest.raises(ConfigurationError, match=f"physics.{blind}: expected an unknown that"):
            searched(alone(InverseProblem(config), name))
    found = searched(config)
    for path, truth in {"physics.velocity_x": 0.8, "physics.velocity_y": -0.5}.items():
        low, high = found.answer.intervals[path]
        # Twice the 95 % interval: four standard deviations.
        assert abs(truth - (low + high) / 2) < high - low, path
        assert high - low < 0.05
    assert set(found.answer.residuals) == set(WAVES)
    for name, residual in found.answer.residuals.items():
        # Twelve values each: root mean square of chi-square over its count.
        assert 0.4 < residual < 1.6, name
        assert f"{name} {residual:.3g}" in found.message
    with xr.open_dataset(found.folder / "inversion.h5", engine="h5netcdf") as file:
        assert file["measured_along_y_0_concentration"].attrs["experiment"] == "along_y"
        assert file["measured_along_y_0_concentration"].sizes == {
            "time_along_y_0_concentration": 4,
            "sensor_along_y_0_concentration": 3,
        }
    page = (found.folder / "report.html").read_text()
    assert "<h2>Experiments</h2>" in page and "along_x_0_concentration" in page


@pytest.mark.long
def test_a_search_over_several_goes_on_exactly(tmp_path):
    def config(iterations):
        solver = {"name": "adam", "iterations": iterations, "tolerance": 0.0}
        return validate(posed(solver=solver, output={"root": str(tmp_path), "report": False}))

    whole = searched(config(5))
    part = searched(config(2))
    resumed = searched(config(5), resume=str(part.folder))
    losses = [
        [json.loads(line)["loss"] for line in (found.folder / "metrics.jsonl").read_text().splitlines()]
        for found in (whole, resumed)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 5
    assert eqx.tree_equal(whole.answer.estimate, resumed.answer.estimate)


def test_a_horizon_ends_each_run_that_goes_beyond_it():
    problem = InverseProblem(validate(posed(horizons=[0.3, 0.4])), sizes={})
    early = problem.until(0.3)
    assert [e.config.time.end for e in early.experiments] == [0.3, 0.2]
    assert [len(i.times) for i in early.instruments] == [3, 2]
    np.testing.assert_array_equal(early.instruments[0].measured, problem.instruments[0].measured[:3])
    np.testing.assert_array_equal(early.instruments[1].measured, problem.instruments[1].measured)


def test_simulations_in_python_are_the_experiments_of_a_section():
    described = InverseProblem(validate(posed(WAVES, VELOCITY)), sizes={})
    each = [sj.Simulation(validate({**BASE, **changes, "experiment_name": name})) for name, changes in WAVES.items()]
    problem = sj.InverseProblem(each, sizes={}, unknowns=VELOCITY, observations=[SENSORS])
    assert [e.name for e in problem.experiments] == list(WAVES)
    for ours, theirs in zip(problem.instruments, described.instruments, strict=True):
        assert ours.name == theirs.name
        np.testing.assert_array_equal(ours.measured, theirs.measured)
    assert eqx.tree_equal(problem.start(), described.start())
    other = validate({**BASE, "grid": {**BASE["grid"], "shape": [32, 16]}})
    with pytest.raises(ConfigurationError, match="grid=.* of simulation 1 of an inverse problem: expected that of"):
        sj.InverseProblem([each[0], other], unknowns=VELOCITY, observations=[SENSORS])


def test_outputs_of_simulations_are_those_of_all_each_name_once():
    other = [{"probe": {"points": [[0.5, 0.5]]}, "of": "concentration", "name": "others"}]
    first, second = (validate({**BASE, "outputs": looking}) for looking in (BASE["outputs"], other))
    seen = {"observations": [{**SENSORS, "output": name} for name in ("sensors", "others")]}
    problem = sj.InverseProblem([first, second], unknowns=NUMBERS, **seen)
    assert [one.name for one in problem.config.outputs] == ["sensors", "others"]
    moved = validate({**BASE, "outputs": [{**other[0], "name": "sensors"}]})
    with pytest.raises(ConfigurationError, match="outputs: sensors of run1 is not that of a simulation before it"):
        sj.InverseProblem([first, moved], unknowns=NUMBERS, observations=[SENSORS])


def test_experiments_are_written_and_read_again():
    config = validate(posed())
    assert validate(config.write()) == config
    assert config.inverse.experiments[1].sections["time"].end == 0.2
    other = validate(posed({**EXPERIMENTS, "calm": {"physics": {"velocity": [0.1, 0.3]}}}))
    (sentence,) = resume_differences(config.write(), other.write())[0]
    assert sentence.startswith("inverse.experiments.calm.physics.velocity was [0.1, 0.2]")


MISTAKES = {
    "field": (posed({"a": {"initial": {"concentratio": "x"}}}), ["inverse.experiments.a.initial.concentratio"]),
    "key": (posed({"a": {"tim": {}}}), ["inverse.experiments.a.tim: unknown key", "inverse.experiments.a.time'"]),
    "section": (posed({"a": {"grid": {}}}), ["inverse.experiments.a.grid: unknown key"]),
    "name": (posed({"a/b": {}}), ["inverse.experiments.a/b: expected a name of letters"]),
    "form": (posed([{}]), ["inverse.experiments = [{}]: expected names of runs"]),
    "changes": (posed({"a": 3}), ["inverse.experiments.a = 3: expected what differs in it: physics, parameters"]),
    "observation": (
        posed({"a": {"observations": [{"output": "fields", "of": "c", "deviation": 1}]}}),
        ["inverse.experiments.a.observations[0].of = 'c'"],
    ),
    "nothing observed": (
        {**BASE, "inverse": {"unknowns": NUMBERS, "experiments": {"a": {"observations": [SENSORS]}, "b": {}}}},
        ["inverse.observations is missing"],
    ),
    "sought number": (
        posed({"a": {"physics": {"diffusivity": 1.0}}}),
        ["inverse.experiments.a changes physics.diffusivity by diffusivity, which is sought"],
    ),
    "sought field": (
        posed({"a": {"initial": {"concentration": "0"}}}),
        ["inverse.experiments.a changes initial.concentration by concentration, which is sought"],
    ),
    "formula of a sought field": (
        posed({"a": {"parameters": {"depth": 3.0}}}),
        ["inverse.experiments.a changes initial.concentration by depth, which is sought"],
    ),
    "pieces": (posed(shooting={"windows": 2}), ["inverse.shooting.windows = 2: expected 1 with experiments"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told(name):
    mapping, words = MISTAKES[name]
    message = refusal(mapping)
    for word in words:
        assert word in message, message


@pytest.mark.slow
def test_certificate_of_several_experiments():
    certificate = sj.certify(InverseProblem(validate(posed())))
    print(certificate)
    assert certificate.passed
