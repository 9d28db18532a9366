"""Statistics in time are those of the states after every step, however a run is cut, stopped or decomposed."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from configurations import DYE, FLOW, changed, refusal
from process_groups import kill_after_a_checkpoint, outputs, start_run

import simjax as sj
from simjax.config import validate
from simjax.config.folders import clear_run_folder
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.errors import ConfigurationError
from simjax.io.time_statistics_files import phase_coordinates
from simjax.report.statistics_pictures import statistics_figures
from simjax.schema.time_statistics import PhaseConfig
from simjax.stepping.moments import Averages, Moments

WAVE = {
    "model": "acoustic",
    "grid": {"shape": [16, 8]},
    "initial": {"pressure": "exp(-20*((x - 0.5)**2 + (y - 0.4)**2)) + height*sin(2*pi*(x + y))"},
    "parameters": {"height": 0.2},
    "time": {"end": 0.24, "output_every": 0.08, "dt": 0.015},  # the last step of a frame is 0.005
    "precision": "float64",
    "output": {"report": False, "animation": False},
}
KINDS = ["mean", "variance", "covariance", "third_moment", "min", "max"]
GATHERED = [
    {"of": ["velocity_centered", "pressure"], "kinds": KINDS, "name": "points"},
    {
        "of": ["velocity_centered", "pressure"],
        "kinds": KINDS,
        "over": ["x"],
        "from": 0.08,
        "window": 0.08,
        "name": "lines",
    },
    {"of": "pressure", "kinds": ["mean", "variance", "min"], "over": ["x", "y"], "every": 0.04, "name": "volume"},
    {
        "of": "pressure",
        "kinds": ["mean", "variance", "max"],
        "over": ["x"],
        "phase": {"period": "0.1/2", "bins": 5},
        "name": "phases",
    },
]
STATISTICS = {"statistics": GATHERED}
CENTRES = [[(i + 0.5) / 16, (j + 0.5) / 8] for i in range(16) for j in range(8)]
LOOKING = {"outputs": [{"probe": {"points": CENTRES}, "of": ["velocity_centered", "pressure"], "every": "step"}]}
NAMES = ("points", "lines", "volume", "phases")
COURANT = {"time.dt": None, "time.courant": 0.4}
SETS = {"points": [(0.0, 0.24)], "lines": [(0.08, 0.16), (0.16, 0.24)], "volume": [(0.0, 0.24)]}


def run(folder, changes, **options):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    sj.Simulation(validate(changed(WAVE, {**place, **changes}))).run(**options)
    return folder


def read(folder):
    found = {}
    for name in NAMES:
        with sj.open_output(folder, name) as dataset:
            found[name] = dataset.load()
    return found


def every_step(folder):
    """The fields after every step of a run, (steps, x, y) by name, their times and what each counts with."""
    with sj.open_output(folder, "probe") as seen:  # at the centres of all cells, where nothing is interpolated
        names = ("velocity_centered_x", "velocity_centered_y", "pressure")
        fields = {name: seen[name].values.T[1:].reshape(-1, 16, 8) for name in names}
        times = seen.time.values
    return fields, times[1:], np.diff(times)


def expected(fields, times, weights, over):
    """The statistics of one set by numpy: of values by time, and by what is averaged over."""
    result = {}
    axes = tuple("xy".index(axis) + 1 for axis in over)
    counts = np.broadcast_to(weights[:, None, None], next(iter(fields.values())).shape)

    def mean(u):
        return np.average(u, axis=(0, *axes), weights=counts, keepdims=True)

    apart = {name: u - mean(u) for name, u in fields.items()}
    names = list(fields)
    for number, (name, u) in enumerate(fields.items()):
        result[f"{name}_mean"] = mean(u)
        result[f"{name}_variance"] = mean(apart[name] ** 2)
        result[f"{name}_third_moment"] = mean(apart[name] ** 3)
        for kind, function in (("min", np.min), ("max", np.max)):
            extreme = function(u, axis=axes) if axes else u
            at = np.argmin(extreme, axis=0) if kind == "min" else np.argmax(extreme, axis=0)
            result[f"{name}_{kind}"] = function(extreme, axis=0)
            result[f"{name}_{kind}_time"] = times[at]
        for other in names[number + 1 :]:
            result[f"{name}_{other}_covariance"] = mean(apart[name] * apart[other])
    return {name: np.squeeze(u) for name, u in result.items()}


def agree(dataset, number, wanted):
    for name in dataset.data_vars:
        if name in ("time_bounds", "time_counted"):
            continue
        found = dataset[name].isel(time=number).transpose(*(d for d in ("x", "y") if d in dataset[name].dims))
        # Numbers of order one, added up in another order and as distances from means that move: some roundings.
        np.testing.assert_allclose(found, wanted[name], rtol=0, atol=1e-13, err_msg=str(name))


def check(folder):
    """Compare the statistics of a run with those that numpy finds in its states after every step."""
    found, (fields, times, weights) = read(folder), every_step(folder)
    for name in ("points", "lines"):
        over = next(one.get("over", []) for one in GATHERED if one["name"] == name)
        assert found[name].sizes["time"] == len(SETS[name])
        # Times are frames' numbers times their length: a few roundings.
        np.testing.assert_allclose(found[name].time_bounds, SETS[name], rtol=1e-14)
        for number, (begin, end) in enumerate(SETS[name]):
            inside = (times > begin + 1e-9) & (times < end + 1e-9)
            some = {key: u[inside] for key, u in fields.items()}
            agree(found[name], number, expected(some, times[inside], weights[inside], over))
            assert float(found[name].time_counted[number]) == pytest.approx(end - begin, rel=1e-12)
    # Parts of 0.01 around multiples of it: a time between two of them, such as 0.015, is in the later one.
    parts = np.floor(times / 0.01 + 0.5 + 1e-6).astype(int) % 5
    phases = found["phases"]
    for part in range(5):
        own = parts == part
        wanted = expected({"pressure": fields["pressure"][own]}, times[own], weights[own], ["x"])
        agree(phases.isel(phase=part, drop=True), 0, wanted)
        assert float(phases.time_counted[0, part]) == pytest.approx(weights[own].sum(), rel=1e-12)
    return found, fields, times, weights


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("statistics")
    return root, run(root / "whole", {**STATISTICS, **LOOKING})


@pytest.mark.slow
def test_statistics_are_those_of_the_states_after_every_step(whole):
    found, fields, times, weights = check(whole[1])
    assert len(set(np.round(weights, 9))) == 2  # else weights would not matter
    # Every 0.04 the first step that reaches it counts with the time since the one before.
    reached = [np.flatnonzero(times >= 0.04 * number - 1e-6)[0] for number in range(1, 7)]
    pressure = fields["pressure"][reached].mean(axis=(1, 2))
    mean = np.average(pressure, weights=np.diff([0.0, *times[reached]]))
    assert float(found["volume"].pressure_mean[0]) == pytest.approx(mean, abs=1e-14)
    assert float(found["volume"].pressure_min[0]) == fields["pressure"][reached].min()
    at = times[reached][np.argmin(fields["pressure"][reached].min(axis=(1, 2)))]
    assert float(found["volume"].pressure_min_time[0]) == pytest.approx(at, rel=1e-14)


@pytest.mark.slow
def test_steps_of_any_length_count_with_it(whole):
    *_, weights = check(run(whole[0] / "courant", {**STATISTICS, **LOOKING, **COURANT}))
    assert len(set(np.round(weights, 6))) == 2  # the last two of a frame are shorter


@pytest.mark.slow
def test_files_tell_units_places_and_methods(whole):
    found = read(whole[1])
    points, lines = found["points"], found["lines"]
    assert points.pressure_variance.dims == ("time", "y", "x") and lines.pressure_mean.dims == ("time", "y")
    assert points.pressure_variance.attrs["units"] == "Pa2" and points.pressure_third_moment.attrs["units"] == "Pa3"
    covariance = points.velocity_centered_x_pressure_covariance
    assert covariance.attrs["units"] == "m s-1 Pa" and "cell_methods" not in covariance.attrs
    assert lines.pressure_variance.attrs["cell_methods"] == "x: time: variance"
    assert points.pressure_min_time.attrs["units"] == "s" and points.time.attrs["bounds"] == "time_bounds"
    phases = found["phases"]
    assert phases.pressure_mean.dims == ("time", "phase", "y") and phases.time_counted.dims == ("time", "phase")
    assert phases.pressure_mean.attrs["cell_methods"] == "x: phase: time: mean"
    # The first bin lies around zero: middles and edges are quotients, to a few roundings.
    np.testing.assert_allclose(phases.phase, [0.0, 0.2, 0.4, 0.6, 0.8], rtol=1e-15)
    assert phases.phase.attrs["period"] == 0.05 and phases.phase.attrs["bounds"] == "phase_bounds"
    np.testing.assert_allclose(phases.phase_bounds[2], [0.3, 0.5], rtol=1e-15)
    assert sj.check_files(whole[1]) == []
    mean, deviation = itertools.islice(statistics_figures(whole[1]), 2)
    assert "lines: Mean over time and x of" in mean and "Root of the variance over time and x of" in deviation


def test_a_run_without_is_compiled_as_it_was():
    config = validate(changed(WAVE, {}))
    programs = compiled_run(config)
    schedule = sj.Schedule(0.08, dt=0.015)
    assert CompiledInstruments(programs).advance(schedule, 6) is programs.advance(schedule, 6)


@pytest.mark.slow
def test_a_member_that_fails_counts_until_then(tmp_path):
    changes = {
        "precision": "float64",
        "forcing": {"velocity": ["where(t > 0.17, rate*rate, 0)", "0"]},  # in the third frame, infinite for one member
        "parameters": {"rate": 0.0},
        "ensemble": {"size": 2, "vary": {"parameters.rate": {"values": [0.0, 1e200]}}},
        "statistics": [{"of": "pressure", "window": 0.08}],
        "time": {"end": 0.24, "output_every": 0.08, "dt": 0.02},
        "output": {**WAVE["output"], "root": str(tmp_path), "folder": str(tmp_path / "run")},
    }
    sj.Simulation(validate(changed(FLOW, changes))).run()
    with sj.open_output(tmp_path / "run", "statistics") as found:
        # Sums of four steps: roundings. Without the failure the last number is 0.08.
        np.testing.assert_allclose(found.time_counted, [[0.08, 0.08, 0.08], [0.08, 0.08, 0.0]], rtol=1e-12)
        unknown = np.isnan(found.pressure_mean).all(("x", "y"))
        np.testing.assert_array_equal(unknown, [[False, False, False], [False, False, True]])


def same(found, wanted, tolerance=0.0):
    for name in NAMES:
        for variable in wanted[name].data_vars:
            if variable.endswith("_time"):  # two values that are equal but for rounding may change places
                continue
            a, b = found[name][variable], wanted[name][variable]
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=f"{name} {variable}")


@pytest.mark.slow
def test_a_run_that_goes_on_has_the_same_statistics(whole):
    both = {**STATISTICS, **LOOKING}
    folder = run(whole[0] / "twice", {**both, "time.end": 0.16, "checkpoint.every_frames": 1})
    assert read(folder)["lines"].sizes["time"] == 1 and float(read(folder)["points"].time[0]) == 0.16
    run(folder, both, resume=folder)
    same(read(folder), read(whole[1]))  # the same programs: bit for bit
    assert sj.check_files(folder) == []
    clear_run_folder(folder)
    assert not [*folder.rglob("*.h5")]


SEVERAL = {"ensemble.size": 2, "ensemble.vary": {"parameters.height": {"values": [0.1, 0.2]}}}
OVER_DEVICES = {"mesh.ensemble": 2, "mesh.x": 2, "mesh.y": 2}


@pytest.mark.slow
def test_members_over_devices_have_the_statistics_of_each_alone(whole):
    members = read(run(whole[0] / "members", {**STATISTICS, **SEVERAL, **OVER_DEVICES}))
    assert members["points"].pressure_mean.dims == ("member", "time", "y", "x")
    # Devices add up in another order: rounding, of pressures through a solve.
    same({name: dataset.isel(member=1, drop=True) for name, dataset in members.items()}, read(whole[1]), 1e-12)
    assert not np.allclose(members["points"].pressure_mean[0], members["points"].pressure_mean[1])


@pytest.mark.slow
def test_eight_devices_and_steps_of_any_length(whole):
    found = read(run(whole[0] / "cut", {**STATISTICS, **COURANT, **SEVERAL, **OVER_DEVICES}))
    found = {name: dataset.isel(member=1, drop=True) for name, dataset in found.items()}
    same(found, read(run(whole[0] / "uncut", {**STATISTICS, **COURANT})), 1e-12)


def test_a_long_sum_of_float32_keeps_its_digits():
    """1e5 steps: the mean and the variance of numbers around 1000, and the sum of the steps, to some roundings."""
    count, alone = 100_000, Averages(*(lambda u: u,) * 4)
    random = np.random.default_rng(0)
    values = (1000 + random.standard_normal(count)).astype(np.float32)
    weights = random.uniform(0.5e-3, 1.5e-3, count).astype(np.float32)
    moments = Moments(means=("u",), pairs=(("u", "u"),), thirds=("u",))

    def step(sums, sample):
        value, weight = sample
        return moments.with_sample(sums, jnp.float32(0), weight, {"u": value}, {"u": alone}), None

    zero = jax.tree.map(jnp.asarray, moments.zero({"u": ()}, np.dtype("float32")))
    sums, _ = jax.jit(lambda: jax.lax.scan(step, zero, (jnp.asarray(values), jnp.asarray(weights))))()

    def total(pair):
        return float(pair.value) + float(pair.low)

    exact = values.astype(np.float64)
    mean = np.average(exact, weights=weights.astype(np.float64))
    # Without compensation, errors of 1e5 roundings of 6e-8 add up: the sum of steps alone is off by some 1e-5.
    assert total(sums.weight) == pytest.approx(weights.sum(dtype=np.float64), rel=1e-9)
    assert total(sums.mean["u"]) == pytest.approx(mean, rel=1e-8)
    variance = np.average((exact - mean) ** 2, weights=weights.astype(np.float64))
    # Each term is rounded to 6e-8 of itself, and these roundings do not add up.
    assert total(sums.second["u", "u"]) / total(sums.weight) == pytest.approx(variance, rel=1e-6)


def test_extremes_have_the_time_at_which_they_occurred_first():
    """Of values that occur twice, as those of a steady flow do in every step."""
    values, alone = [1.0, -2.0, 3.0, 3.0, -2.0, 0.5], Averages(*(lambda u: u,) * 4)
    moments = Moments(mins=("u",), maxs=("u",))
    sums = moments.zero({"u": ()}, np.dtype("float64"))
    for number, value in enumerate(values):
        time = jnp.asarray(0.1 * number)
        sums = moments.with_sample(sums, time, jnp.asarray(0.1), {"u": jnp.asarray(value)}, {"u": alone})
    assert tuple(map(float, sums.max["u"])) == (3.0, 0.1 * 2)
    assert tuple(map(float, sums.min["u"])) == (-2.0, 0.1)


def test_parts_of_a_period_leave_no_gap():
    """Each begins where the one before ends, and all together are a period; the first one is around its start."""
    middles, bounds = (variable.values for variable in phase_coordinates(PhaseConfig(2.5, 5), "s"))
    # Rounding of numbers below one.
    np.testing.assert_allclose(bounds[1:, 0], bounds[:-1, 1], rtol=0, atol=1e-15)
    assert bounds[-1, 1] - bounds[0, 0] == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(bounds.mean(axis=1), middles, rtol=0, atol=1e-15)
    assert middles[0] == 0


REFUSED = {
    "no variables": ({"kinds": "mean"}, ["statistics[0].of is missing"]),
    "another variable": ({"of": "presure"}, ["statistics[0].of[0] = 'presure'", "did you mean 'pressure'"]),
    "another kind": ({"of": "pressure", "kinds": ["rms"]}, ["kinds[0] = 'rms'", "mean, variance"]),
    "an instrument written out": ({"of": {"output": "probe"}}, ["statistics[0].of"]),
    "an axis that is not there": ({"of": "pressure", "over": "z"}, ["over[0] = 'z'", "x, y"]),
    "after the end": ({"of": "pressure", "from": 2.0}, ["statistics[0].from = 2.0", "before time.end=1"]),
    "a window between frames": ({"of": "pressure", "window": 0.25}, ["window = 0.25", "a multiple of", "0.1"]),
    "a window from between frames": ({"of": "pressure", "window": 0.2, "from": 0.05}, ["from = 0.05", "a multiple"]),
    "one variable with itself": ({"of": "pressure", "kinds": "covariance"}, ["at least two variables"]),
    "no bins": ({"of": "pressure", "phase": {"period": 0.5}}, ["statistics[0].phase.bins is missing"]),
    "a number as phase": ({"of": "pressure", "phase": 0.5}, ["statistics[0].phase = 0.5", "{period: 0.5, bins: 16}"]),
    "another key": ({"of": "pressure", "form": 1.0}, ["statistics[0].form", "'statistics[0].from'"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_with_what_to_write(what):
    given, told = REFUSED[what]
    message = refusal(changed(FLOW, {"statistics": [given]}))
    assert all(part in message for part in told), message


def test_what_does_not_go_together_is_refused(tmp_path):
    one = {"statistics": [{"of": "concentration"}]}
    assert "steps_per_exchange=0" in refusal(changed(DYE, {**one, "steps_per_exchange": 2, "time.dt": 0.001}))
    stretched = {"grid.stretch": {"y": {"tanh": {"strength": 2.0}}}, "boundaries.y": "periodic"}
    over = {"statistics": [{"of": "concentration", "over": ["x", "y"]}]}
    layers = {**over, **stretched, "model": "transport"}
    assert "y is stretched" in refusal(changed(DYE, layers))
    with pytest.raises(ConfigurationError, match="runs in groups, here of 2 of 4 members"):
        several = {"ensemble.size": 4, "ensemble.group": 2}
        vary = {"ensemble.vary": {"parameters.height": {"uniform": [0.1, 0.2]}}}
        run(tmp_path / "groups", {**STATISTICS, **several, **vary})
    with pytest.raises(ConfigurationError, match="different places of a cell; .* velocity_centered"):
        run(tmp_path / "faces", {"statistics": [{"of": "velocity", "kinds": "covariance"}]})
    walls = {"boundaries.x": {"lower": "rigid", "upper": "rigid"}}
    with pytest.raises(ConfigurationError, match="velocity_x lies on faces along x, where there are walls"):
        run(tmp_path / "walls", {"statistics": [{"of": "velocity", "over": "x"}], **walls})


@pytest.mark.slow
def test_a_killed_run_has_the_statistics_of_one_that_was_not(tmp_path):
    path = tmp_path / "conf" / "experiment" / "wave.yaml"
    path.parent.mkdir(parents=True)
    changes = {**STATISTICS, "time.end": 12.0, "checkpoint.every_frames": 10, "output.root": str(tmp_path)}
    path.write_text("# @package _global_\n# A wave\n" + yaml.safe_dump(changed(WAVE, changes)))
    told = ["--config-dir", str(tmp_path / "conf"), "experiment=wave"]
    outputs(start_run([*told, f"output.folder={tmp_path / 'long'}"], count=1))
    folder = tmp_path / "killed"
    (process,) = start_run([*told, f"output.folder={folder}"], count=1)
    kill_after_a_checkpoint(process, folder)
    outputs(start_run([f"resume={folder}"], count=1))
    same(read(folder), read(tmp_path / "long"))


@pytest.mark.slow
def test_two_processes_have_the_statistics_of_one_and_write_its_events(whole, tmp_path):
    event = {"events": [{"when": "t > 0.1", "every": "step"}]}
    path = tmp_path / "conf" / "experiment" / "wave.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("# @package _global_\n# A wave\n" + yaml.safe_dump(changed(WAVE, {**STATISTICS, **event})))
    told = ["--config-dir", str(tmp_path / "conf"), "experiment=wave", f"output.root={tmp_path}"]
    folder = tmp_path / "two"
    outputs(start_run([*told, f"output.folder={folder}", "mesh.x=2", "mesh.y=2", "time.end=0.16"]))
    outputs(start_run([f"resume={folder}", "time.end=0.24"]))
    same(read(folder), read(whole[1]), 1e-12)
    with sj.open_run(folder / "events" / "event") as found, sj.open_output(whole[1], "probe") as wanted:
        assert found.step.values.tolist() == [int(wanted.step[wanted.time > 0.1][0])] and "velocity_x" in found
        pressure = wanted.pressure.sel(time=found.time[0].item(), method="nearest").values.reshape(16, 8).T
        np.testing.assert_allclose(found.pressure[0], pressure, rtol=0, atol=1e-12)
    assert sj.check_files(folder) == []
