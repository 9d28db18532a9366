"""Conditions end a run, and write a frame, when they hold: at the right time, once, on any devices, across a stop."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from configurations import changed, refusal

import simjax as sj
from simjax.config import validate
from simjax.config.folders import clear_run_folder
from simjax.driver.loop.judged_triggers import At, Triggers
from simjax.driver.output import run_folder
from simjax.driver.output.member_statistics import NEVER
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
@pytest.mark.slow
def test_an_instrument_is_judged_by_its_name(every, tmp_path):
    """The same run ends where a mean over a box does what the samples of every step say."""
    box = {"box_mean": {"lower": [0.0], "upper": [0.3]}, "of": "concentration", "every": "step", "name": "left"}
    run(tmp_path / "whole", {"outputs": [box]})
    with sj.open_output(tmp_path / "whole", "left") as samples:
        left = samples.concentration.load()
    each = {"frame": 10, "step": 1}[every]
    last = first(left.to_dataset(), left.values < 1.6, each)
    assert 1 < last < 100
    # Judged at frames an instrument is read at them, whatever its own cadence is.
    looking = [{**box, "every": "frame" if every == "step" else "step"}]
    result = run(tmp_path / "run", {"outputs": looking, "stop": {"when": "left < 1.6", "every": every}})
    assert result.exit_code == 0 and f"at t = {last * 0.01:g}, step {last} (left = " in result.message
    two = {"probe": {"points": [[0.1], [0.2]]}, "of": "concentration", "name": "left"}
    with pytest.raises(
        ConfigurationError, match="outputs: left reads 2 numbers, concentration: expected one in a cond"
    ):
        run(tmp_path / "two", {"outputs": [two], "stop": {"when": "left < 1.6"}})


@pytest.mark.slow
def test_an_instrument_of_particles_ends_their_run(tmp_path):
    moved = [{"mean_square_displacement": None, "every": "frame", "name": "moved"}]
    liquid = sj.load(
        "lennard_jones",
        [
            "particles.count=108",
            "box.upper=[5.65,5.65,5.65]",
            "time.end=0.2",
            "time.output_every=0.02",
            "output.report=false",
        ],
    )
    config = {**liquid.config.write(), "outputs": moved, "stop": {"when": "moved > 0.002"}}
    config["output"] |= {"root": str(tmp_path), "folder": str(tmp_path / "run"), "animation": False}
    result = sj.Simulation(validate(config)).run()
    with sj.open_output(tmp_path / "run", "moved") as samples:
        values = samples.mean_square_displacement.values
    assert "stop.when held: moved > 0.002" in result.message
    assert len(values) > 2 and (values[:-1] <= 0.002).all() and values[-1] > 0.002


@pytest.mark.parametrize("every", ["frame", "step"])
@pytest.mark.slow
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


@pytest.mark.slow
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


# Members whose variance falls faster and faster: the last one first below a bound.
MEMBERS = {"ensemble.size": 4, "ensemble.vary": {"physics.diffusivity": {"values": [0.01, 0.015, 0.02, 0.03]}}}
JUDGED = {
    "stop": {"when": f"{VARIANCE} < 0.2"},
    "events": [{"when": f"{VARIANCE} < 0.35", "name": "low"}],
    "checkpoint.every_frames": 1,
    "output.fields": [],
}


def ends_of(path):
    """When each member met the condition, by the diagnostics of members without conditions; NaN where it did not."""
    with sj.open_run(path) as dataset:
        below, times = dataset[VARIANCE].transpose("member", "time").values < 0.2, dataset.time.values
    return np.where(below.any(1), times[np.argmax(below, 1)], np.nan)


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """The folders of members without conditions, and of the same with them, over devices."""
    root = tmp_path_factory.mktemp("members")
    run(root / "free", MEMBERS)
    run(root / "judged", {**MEMBERS, **JUDGED, "mesh.ensemble": 2, "mesh.x": 2})
    return root


@pytest.mark.slow
def test_members_are_judged_each_by_itself_and_the_run_ends_with_the_last(members):
    free, found = frames(members / "free"), frames(members / "judged")
    wanted = ends_of(members / "free")
    assert len(set(wanted)) == 4 and wanted.max() < 1.5
    np.testing.assert_array_equal(found.stop_time, wanted)
    assert found.stop_time.dims == ("member",) and found.stop_time.attrs["units"] == found.time.attrs["units"]
    assert float(found.time[-1]) == wanted.max()
    # Frames of events are those at which any member falls below: each member by itself, at an output time.
    below = free[VARIANCE].transpose("time", "member").values < 0.35
    began = np.flatnonzero((below[1:] & ~below[:-1]).any(1)) + 1
    written = frames(members / "judged" / "events" / "low")
    assert written.time.values.tolist() == free.time.values[began].tolist() and len(began) == 4
    # Other blocks: sums in another order.
    np.testing.assert_allclose(written.concentration, free.concentration.sel(time=written.time), rtol=1e-12)
    log = (members / "judged" / "run.log").read_text()
    assert f"member 3 (physics.diffusivity=0.03): stop.when held: {VARIANCE} < 0.2 at t = {wanted[3]:g}" in log
    assert "event low: variance_concentration < 0.35 began to hold for member 3 (physics.diffusivity=0.03) at" in log
    assert "completed: ended as all members met a condition of stop, the first" in log
    assert sj.check_files(members / "judged") == []


@pytest.mark.slow
def test_members_that_were_stopped_meet_their_conditions_at_the_same_times(members, tmp_path, monkeypatch):
    """Stopped in between, and killed after the last checkpoint: no time is judged twice, none is left out."""
    whole, place = frames(members / "judged"), tmp_path / "run"
    changes = {**MEMBERS, **JUDGED, "mesh.ensemble": 2, "mesh.x": 2}
    run(place, {**changes, "time.end": float(whole.stop_time[2])})

    def killed(*_):
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(run_folder.RunFolder, "finish", killed)
        with pytest.raises(OSError, match="killed"):
            run(place, changes, resume=place)
    result = run(place, changes, resume=place)
    assert "ended as all members met" in result.message
    for own in ("", "events/low"):
        found, wanted = frames(place / own), frames(members / "judged" / own)
        assert found.sizes == wanted.sizes
        for name in wanted.variables:
            np.testing.assert_array_equal(found[name], wanted[name], err_msg=f"{own} {name}")


def test_members_that_failed_or_only_fill_up_a_group_are_not_waited_for():
    steady = {"quantity": VARIANCE, "change": 0.1, "over": 0.1}
    given = {"stop": {"when": f"{VARIANCE} < 0.2", "steady": steady}, "events": [{"when": f"{VARIANCE} < 0.4"}]}
    programs = SimpleNamespace(members=4, counted_from=np.asarray([0, 0, 0, NEVER]), member_named="member {}".format)
    triggers = Triggers(validate(changed(WAVE, {**MEMBERS, **given})), programs)  # pyright: ignore[reportArgumentType]
    rows = [[1.0, 1.0, 1.0, 1.0], [0.1, 1.0, 0.5, 0.1], [0.5, np.nan, 0.3, 0.1], [0.5, np.nan, 0.29, 0.1]]
    found = []
    for number, row in enumerate(rows):
        at = At(0.1 * number, np.full(4, 10 * number), np.isfinite(row))
        found.append(triggers.judge(at, {VARIANCE: np.asarray(row)}, first=number == 0))
        assert (triggers.ended is not None) == (number == 3)
    # The first falls below at once, the second is steady before it fails, the third later; the last counts never.
    np.testing.assert_allclose(triggers.times, [0.1, 0.1, 0.3, np.nan])
    assert [len(one.met) for one in found] == [0, 2, 0, 1] and "member 2: stop.steady" in found[3].met[0]
    assert "all members that are well" in str(triggers.ended)
    occurred = [one.events.get("event", "").partition(" for ")[2].partition(" at ")[0] for one in found]
    assert occurred == ["", "member 0", "member 2", ""]


@pytest.mark.slow
def test_groups_end_each_with_the_last_of_its_members(members, tmp_path):
    result = run(tmp_path / "run", {**MEMBERS, **JUDGED, "ensemble.group": 3, "output.report": True})
    found, wanted = frames(tmp_path / "run"), ends_of(members / "free")
    np.testing.assert_array_equal(found.stop_time, wanted)
    # The second group is the last member, filled up with copies of it.
    ended = [np.count_nonzero(~np.isnan(one)) - 1 for one in found[VARIANCE].transpose("member", "time").values]
    # Output times are multiples of 0.1, to a rounding; a frame more or less is off by 0.1.
    np.testing.assert_allclose(np.multiply(ended, 0.1), [*[wanted[:3].max()] * 3, wanted[3]], rtol=1e-12)
    assert f"member 1 (physics.diffusivity=0.015) met a condition of stop at t = {wanted[1]:g}." in (
        (tmp_path / "run" / "report.html").read_text()
    )
    assert (tmp_path / "run" / "groups" / "g0001" / "events" / "low").is_dir() and result.exit_code == 0
    # Another condition: finished groups go on.
    run(tmp_path / "run", {**MEMBERS, **JUDGED, "ensemble.group": 3, "stop": None}, resume=tmp_path / "run")
    assert float(frames(tmp_path / "run").time[-1]) == 1.5


REFUSED = {
    "no condition": ({"stop": {}}, ["stop: expected when or steady"]),
    "no comparison": ({"stop": {"when": "t + 1"}}, ["stop.when", "column 1", "a comparison such as x < 0.5"]),
    "a half": ({"events": [{"when": "t <"}]}, ["events[0].when", "column"]),
    "steady between frames": (
        {"stop": {"steady": {"quantity": "energy", "change": 0.1, "over": 0.05}}},
        ["stop.steady.over", "0.1"],
    ),
    "members after steps": (
        {"stop": {"when": "t > 1", "every": "step"}, "ensemble.size": 2},
        ["stop.every = 'step'", "frame in an ensemble"],
    ),
    "blocked steps": (
        {"events": [{"when": "t > 1", "every": "step"}], "steps_per_exchange": 2},
        ["every = 'step'", "frame"],
    ),
    "two of one name": (
        {"events": [{"when": "t > 1", "name": "a"}, {"when": "t > 1", "name": "a"}]},
        ["events[0].name", "no other"],
    ),
}


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
