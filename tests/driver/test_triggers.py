"""Conditions end a run, and write a frame, when they hold: at the right time, once, on any devices, across a stop."""

import json

import numpy as np
import pytest
from configurations import changed, refusal

import simjax as sj
from simjax.config import validate
from simjax.config.folders import clear_run_folder
from simjax.errors import ConfigurationError

# A wave that decays and is carried on: its variance falls as exp(-8 pi^2 D t), by 1.6 % in a step.
WAVE = {
    "model": "advection_diffusion",
    "physics": {"diffusivity": 0.02, "velocity": [1.0]},
    "grid": {"shape": [16]},
    "initial": {"concentration": "2 + sin(2*pi*x)"},
    "time": {"end": 1.5, "output_every": 0.1, "dt": 0.01},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}
VARIANCE = "variance_concentration"


def run(folder, changes, **options):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    return sj.Simulation(validate(changed(WAVE, {**place, **changes}))).run(**options)


def frames(folder):
    with sj.open_run(folder) as dataset:
        return dataset.load()


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """The frames of a run that writes every step."""
    folder = tmp_path_factory.mktemp("triggers") / "steps"
    run(folder, {"time.output_every": 0.01})
    return frames(folder)


def first(dataset, condition, each=1):
    """The first frame of `dataset` after the start, of every so many, at which a condition holds."""
    numbers = np.arange(each, dataset.sizes["time"], each)
    return int(numbers[condition[numbers]][0])


@pytest.mark.parametrize("every", ["frame", "step"])
def test_a_run_ends_where_its_condition_holds(steps, every, tmp_path):
    stop, event = f"{VARIANCE} < 0.2 and t > 0.05", f"{VARIANCE} < 0.35"
    changes = {"stop": {"when": stop, "every": every}, "events": [{"when": event, "every": every, "name": "low"}]}
    result = run(tmp_path / "run", changes)
    variance, each = steps[VARIANCE].values, {"frame": 10, "step": 1}[every]
    last, low = first(steps, variance < 0.2, each), first(steps, variance < 0.35, each)
    assert last % 10 == 0 or every == "step"
    assert result.exit_code == 0 and f"at t = {last * 0.01:g}, step {last} ({VARIANCE} = " in result.message
    found, written = frames(tmp_path / "run"), frames(tmp_path / "run" / "events" / "low")
    assert found.step.values.tolist() == [*range(0, last, 10), last] and written.step.values.tolist() == [low]
    # Another program of the same steps: to rounding.
    for dataset in (found, written):
        wanted = steps.isel(time=dataset.step.values)
        np.testing.assert_allclose(dataset.concentration, wanted.concentration, rtol=1e-13)
        np.testing.assert_allclose(dataset.time, wanted.time, rtol=1e-13)
    outcome = json.loads((tmp_path / "run" / "provenance.json").read_text())["parts"][-1]["outcome"]
    log = (tmp_path / "run" / "run.log").read_text()
    assert outcome.startswith("completed: ended as stop.when held") and outcome in log
    assert f"event low: {event} began to hold at t = {low * 0.01:g}" in log
    assert sj.check_files(tmp_path / "run") == []
    clear_run_folder(tmp_path / "run")
    assert not [*(tmp_path / "run").rglob("*.h5")]


def test_a_run_that_has_ended_goes_on_with_another_condition_only(steps, tmp_path):
    folder, stop = tmp_path / "run", {"when": f"{VARIANCE} < 0.2", "every": "step"}
    event = {"events": [{"when": f"sin({2 * np.pi / 0.25}*t) > 0.5", "every": "step"}]}
    run(folder, {**event, "stop": stop})
    assert "already ended as stop.when held" in run(folder, {**event, "stop": stop}, resume=folder).message
    run(folder, {**event, "stop": {**stop, "when": f"{VARIANCE} < 0.1"}}, resume=folder)
    last = first(steps, steps[VARIANCE].values < 0.1)
    assert int(frames(folder).step[-1]) == last
    # A twelfth of each period after its begin, of which a step ends within it; each time once.
    begins = np.arange(20) * 0.25 + 0.25 / 12
    expected = [int(np.floor(begin / 0.01)) + 1 for begin in begins if begin < last * 0.01]
    assert frames(folder / "events" / "event").step.values.tolist() == expected


def test_a_run_ends_when_it_is_steady(steps, tmp_path):
    steady = {"quantity": "maximum_concentration", "change": 0.05, "over": 0.3}
    result = run(tmp_path / "run", {"stop": {"steady": steady}, "output.fields": []})
    values = steps.maximum_concentration.values[::10]
    change = [np.ptp(values[n - 3 : n + 1]) / values[n - 3 : n + 1].max() for n in range(3, len(values))]
    last = 3 + int(np.argmax(np.less_equal(change, 0.05)))
    assert 5 < last < 15 and f"at t = {last * 0.1:g}, step {10 * last}" in result.message
    assert "stop.steady: maximum_concentration changed by" in result.message


@pytest.mark.slow
def test_a_run_over_devices_with_steps_of_any_length_ends_at_the_same_time(tmp_path):
    changes = {"stop": {"when": f"{VARIANCE} < 0.3", "every": "step"}, "time.dt": None, "time.courant": 0.4}
    one, several = run(tmp_path / "one", changes), run(tmp_path / "several", {**changes, "mesh.x": 4})
    assert one.message.partition(", in ")[0] == several.message.partition(", in ")[0]
    a, b = frames(tmp_path / "one"), frames(tmp_path / "several")
    assert float(a[VARIANCE][-1]) < 0.3 < float(a[VARIANCE][-2])
    # Steps follow a maximum, the same on any mesh; stencils round in another order, some dozens of times.
    np.testing.assert_allclose(a.concentration, b.concentration, rtol=1e-12)


REFUSED = {
    "no condition": ({"stop": {}}, ["stop: expected when or steady"]),
    "no comparison": ({"stop": {"when": "t + 1"}}, ["stop.when", "column 1", "a comparison such as x < 0.5"]),
    "a half": ({"events": [{"when": "t <"}]}, ["events[0].when", "column"]),
    "steady between frames": (
        {"stop": {"steady": {"quantity": "energy", "change": 0.1, "over": 0.05}}}, ["stop.steady.over", "0.1"],
    ),
    "members": ({"stop": {"when": "t > 1"}, "ensemble.size": 2}, ["stop: expected null in an ensemble"]),
    "events of members": ({"events": [{"when": "t > 1"}], "ensemble.size": 2}, ["events: expected null"]),
    "blocked steps": (
        {"events": [{"when": "t > 1", "every": "step"}], "steps_per_exchange": 2}, ["every = 'step'", "frame"],
    ),
    "two of one name": (
        {"events": [{"when": "t > 1", "name": "a"}, {"when": "t > 1", "name": "a"}]}, ["events[0].name", "no other"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_with_what_to_write(what):
    given, told = REFUSED[what]
    message = refusal(changed(WAVE, given))
    assert all(part in message for part in told), message


def test_an_unknown_quantity_is_refused_with_those_that_are_there(tmp_path):
    with pytest.raises(ConfigurationError, match=f"stop.when: 'varianc'.*There are .*{VARIANCE}.*and t"):
        run(tmp_path / "stop", {"stop": {"when": "varianc < 1"}})
    with pytest.raises(ConfigurationError, match=r"events\[0\].when: 'energy' is no quantity of model=advection"):
        run(tmp_path / "event", {"events": [{"when": "energy < 1"}]})
    with pytest.raises(ConfigurationError, match="courant is known at output times alone; write every: frame"):
        run(tmp_path / "courant", {"events": [{"when": "courant > 1", "every": "step"}]})
    steady = {"steady": {"quantity": "energy", "change": 0.1, "over": 0.5}}
    with pytest.raises(ConfigurationError, match="stop.steady.quantity: 'energy'"):
        run(tmp_path / "steady", {"stop": steady})
    assert not any(tmp_path.iterdir())
