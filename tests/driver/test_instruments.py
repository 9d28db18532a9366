"""Instruments of a run see what its frames hold, at times of their own, however it is cut, stopped or repeated."""

import numpy as np
import pytest
import xarray
import yaml
from configurations import DYE, FLOW, changed, refusal
from process_groups import kill_after_a_checkpoint, outputs, start_run

import simjax as sj
from simjax.config import validate
from simjax.driver.loop.single_run import SingleRun
from simjax.driver.programs.programs_of_instruments import sample_bytes
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.driver.start.build import plan_frames
from simjax.errors import InputOutputError
from simjax.schema.instruments import due_steps

DT = 0.016
WAVE = {
    "model": "acoustic",
    "grid": {"shape": [16, 16]},
    "initial": {"pressure": "exp(-20*((x - 0.5)**2 + (y - 0.4)**2)) + height*sin(2*pi*(x + y))"},
    "parameters": {"height": 0.2},
    "time": {"end": 10 * DT, "output_every": 5 * DT, "dt": DT},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}
POINTS = [[0.2, 0.3], [0.9, 0.99], [0.5, 0.5]]
SEEN = {
    "slice": {"slice": {"y": 0.3}, "of": ["velocity", "pressure"], "every": 2 * DT},
    "probe": {"probe": {"points": POINTS}, "of": ["pressure", "speed"], "every": "step"},
    "line": {"line": {"from": [0.1, 0.2], "to": [0.9, 0.6], "points": 7}, "of": "pressure", "every": 3 * DT},
    "box_mean": {"box_mean": {"lower": [0, 0.25], "upper": [0.5, 0.75]}, "of": "pressure"},
    "spectrum": {"spectrum": "velocity", "shells": 5, "every": "step"},
    "histogram": {"histogram": {"bins": 6, "lower": -0.5, "upper": 0.5}, "of": "velocity_y", "every": 5 * DT},
    "surface_integral": {
        "surface_integral": {"lower": [0.125, 0.25], "upper": [0.75, 1.0]},
        "of": ["velocity", "pressure"],
    },
    "structure_function": {"structure_function": ["velocity", "pressure"], "along": "y", "order": 3},
    "correlation": {"correlation": ["pressure", "speed"], "along": "x", "separations": [0, 0.25]},
    "fields": {"fields": ["velocity", "speed"], "every": 2 * DT},
}
EVERY = {
    "slice": 2,
    "probe": 1,
    "line": 3,
    "box_mean": 5,
    "spectrum": 1,
    "histogram": 5,
    "surface_integral": 5,
    "structure_function": 5,
    "correlation": 5,
    "fields": 2,
}
LOOKING = {"outputs": [*SEEN.values()]}


def run(folder, changes, **options):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    sj.Simulation(validate(changed(WAVE, {**place, **changes}))).run(**options)
    return folder


def read(folder, looking=LOOKING):
    found = {}
    for name in (next(iter(one)) for one in looking["outputs"]):
        with sj.open_output(folder, name) as dataset:
            found[name] = dataset.load()
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Instruments of a run on one device, and the frames of the same run at every step."""
    root = tmp_path_factory.mktemp("instruments")
    frames = run(root / "frames", {"time.output_every": DT, "output.fields": ["velocity", "pressure", "speed"]})
    with sj.open_run(frames) as dataset:
        return root, read(run(root / "whole", LOOKING)), dataset.load()


def at(u, **places):
    """A periodic field interpolated linearly at places along some of its axes, which are cells or faces of 1 / 16."""
    for axis, place in places.items():
        axis = next(dim for dim in u.dims if dim in (axis, f"{axis}_face"))
        number = (place - float(u[axis][0])) * 16
        below = int(np.floor(number))
        one, other = (u.isel({axis: n % 16}, drop=True) for n in (below, below + 1))
        u = (1 - (number - below)) * one + (number - below) * other
    return u


def energy_by_shell(*fields):
    """Half the squared Fourier coefficients of fields (time, y, x), added up in shells 1 to 5."""
    square = sum(np.abs(np.fft.fft2(u) / u[0].size) ** 2 for u in fields) / 2
    k = np.fft.fftfreq(16, 1 / 16)
    shell = np.floor(np.hypot(k[:, None], k[None, :]) + 0.5)
    return np.stack([square[:, shell == number].sum(axis=1) for number in range(1, 6)], axis=1)


@pytest.mark.slow
def test_instruments_see_what_the_frames_hold(whole):
    _, seen, frames = whole
    for name, dataset in seen.items():
        np.testing.assert_array_equal(dataset["step"], np.arange(0, 11, EVERY[name]))
        # A frame's begin plus steps, against steps alone: rounding.
        np.testing.assert_allclose(dataset["time"], dataset["step"] * DT, rtol=1e-14)
    # Readings and frames are rounded apart: a few units in the last place of numbers of order one.
    close = {"rtol": 0, "atol": 1e-13}
    for name in ("velocity_x", "velocity_y", "speed"):
        assert seen["fields"][name].dims == frames[name].dims
        np.testing.assert_allclose(seen["fields"][name], frames[name][::2], **close)
    for name in ("velocity_x", "velocity_y", "pressure"):
        np.testing.assert_allclose(seen["slice"][name], at(frames[name][::2], y=0.3), **close)
    for name in ("pressure", "speed"):
        for number, (x, y) in enumerate(POINTS):
            np.testing.assert_allclose(seen["probe"][name][number], at(frames[name], x=x, y=y), **close)
    line = seen["line"]
    for number, (x, y) in enumerate(zip(line.x.values, line.y.values, strict=True)):
        np.testing.assert_allclose(line.pressure[:, number], at(frames.pressure[::3], x=x, y=y), **close)
    inside = frames.pressure.isel(time=slice(None, None, 5), x=slice(0, 8), y=slice(4, 12))
    np.testing.assert_allclose(seen["box_mean"].pressure, inside.mean(("x", "y")), **close)
    energy = energy_by_shell(frames.velocity_x.values, frames.velocity_y.values)
    np.testing.assert_allclose(seen["spectrum"].velocity_spectrum, energy, **close)
    values = frames.velocity_y.isel(time=slice(None, None, 5)).values.reshape(3, -1)
    counts = [np.histogram(each, 6, (-0.5, 0.5))[0] / 256 for each in values]
    np.testing.assert_array_equal(seen["histogram"].velocity_y, counts)
    u, v, p, speed = (frames[name].values for name in ("velocity_x", "velocity_y", "pressure", "speed"))
    # The box is cells 2 to 11 and 4 to 15: its upper face along y is that of the periodic side, number 0.
    out = (u[:, 4:, 12] - u[:, 4:, 2]).sum(1) / 16 + (v[:, 0, 2:12] - v[:, 4, 2:12]).sum(1) / 16
    np.testing.assert_allclose(seen["surface_integral"].velocity_flux, out[::5], **close)
    beside = (p + np.roll(p, 1, 1))[:, [4, 0], 2:12].sum((1, 2)) + (p + np.roll(p, 1, 2))[:, 4:, [2, 12]].sum((1, 2))
    np.testing.assert_allclose(seen["surface_integral"].pressure_integral, beside[::5] / 32, **close)
    for name, field in (("velocity_longitudinal", v), ("velocity_transverse", u), ("pressure", p)):
        cubes = [((np.roll(field, -n, 1) - field)[::5] ** 3).mean((1, 2)) for n in range(9)]
        found = seen["structure_function"][f"{name}_structure_function"]
        np.testing.assert_allclose(found, np.transpose(cubes), **close)
    p, speed = (one[::5] - one[::5].mean((1, 2), keepdims=True) for one in (p, speed))
    sizes = p.std((1, 2)) * speed.std((1, 2))  # at the start nothing moves
    both = [(p * np.roll(speed, -n, 2)).mean((1, 2)) / np.where(sizes > 0, sizes, 1) for n in (0, 4)]
    np.testing.assert_allclose(seen["correlation"].pressure_speed_correlation, np.transpose(both), rtol=0, atol=1e-12)


def test_files_tell_units_and_places(whole):
    _, seen, _ = whole
    probe, spectrum = seen["probe"], seen["spectrum"]
    assert probe.attrs["featureType"] == "timeSeries" and probe.station.attrs["cf_role"] == "timeseries_id"
    assert probe.pressure.dims == ("station", "time") and probe.pressure.attrs["units"] == "Pa"
    np.testing.assert_array_equal(np.stack([probe.x, probe.y], axis=1), POINTS)
    np.testing.assert_allclose(spectrum.wavenumber, 2 * np.pi * np.arange(1, 6))
    assert spectrum.velocity_spectrum.attrs["units"] == "m2 s-2" and spectrum.wavenumber.attrs["units"] == "m-1"
    assert float(seen["slice"].y) == 0.3 and seen["slice"].velocity_x.dims == ("time", "x_face")
    assert seen["histogram"].velocity_y.attrs["units"] == "1" and seen["histogram"].value.attrs["units"] == "m s-1"
    cubes = seen["structure_function"]
    np.testing.assert_allclose(cubes.separation, np.arange(9) / 16)
    assert cubes.velocity_transverse_structure_function.attrs["units"] == "m3 s-3"
    assert seen["surface_integral"].velocity_flux.attrs["units"] == "m2 s-1"
    assert seen["surface_integral"].pressure_integral.attrs["units"] == "Pa m"


def same(found, expected, exact=False):
    for name, dataset in expected.items():
        for variable in dataset.data_vars:
            a, b = found[name][variable], dataset[variable]
            np.testing.assert_array_equal(found[name].time, dataset.time)
            # Devices add up in another order: rounding, of pressures through a solve.
            np.testing.assert_allclose(a, b, rtol=0, atol=0 if exact else 1e-12)


@pytest.mark.slow
def test_members_over_devices_see_what_one_on_one_device_does(whole):
    root, seen, _ = whole
    several = {"ensemble.size": 2, "ensemble.vary": {"parameters.height": {"values": [0.1, 0.2]}}}
    mesh = {"mesh.ensemble": 2, "mesh.x": 2, "mesh.y": 2}
    members = read(run(root / "members", {**LOOKING, **several, **mesh}))
    assert members["probe"].pressure.dims == ("member", "station", "time")
    same({name: dataset.isel(member=1, drop=True) for name, dataset in members.items()}, seen)
    assert not np.allclose(members["probe"].pressure[0], members["probe"].pressure[1])


@pytest.mark.slow
def test_on_a_stretched_grid_instruments_see_places_and_volumes_as_they_are(tmp_path):
    dye = {
        "model": "transport",
        "grid": {"shape": [12, 8], "stretch": {"x": {"formula": "s + 0.1*sin(2*pi*s)"}}},
        "coefficients": {"velocity": ["1", "0.5"], "diffusivity": "0"},
        "initial": {"concentration": "2 + x - 3*y"},
        "boundaries": {"x": "no_slip", "y": "no_slip"},
        "time": {"end": 0.02, "output_every": 0.02},
    }
    seeing = [
        {"probe": {"points": [[0.07, 0.5], [0.83, 0.9]]}, "of": "concentration"},
        {"slice": {"x": 0.31}, "of": "concentration"},
        {"box_mean": {"lower": [0, 0], "upper": [1, 1]}, "of": "concentration"},
        {"histogram": {"bins": 2, "lower": -1, "upper": 3}, "of": "concentration"},
    ]
    keys = ("precision", "output")
    config = {**dye, **{key: WAVE[key] for key in keys}}
    folder = tmp_path / "run"
    place = {"output.root": str(tmp_path), "output.folder": str(folder)}
    sj.Simulation(validate(changed(config, {**place, "outputs": seeing}))).run()
    seen = {name: dataset.isel(time=0) for name, dataset in read(folder, {"outputs": seeing}).items()}
    # A linear field: to the rounding of numbers up to 3.
    np.testing.assert_allclose(seen["probe"].concentration, [2 + 0.07 - 1.5, 2 + 0.83 - 2.7], atol=1e-14)
    np.testing.assert_allclose(seen["slice"].concentration, 2 + 0.31 - 3 * seen["slice"].y, atol=1e-14)
    with sj.open_run(folder) as frames:
        first = frames.concentration.isel(time=0).load()
        volume = frames.cell_area.load()
    np.testing.assert_allclose(seen["box_mean"].concentration, float((first * volume).sum()), atol=1e-14)
    shares = [float(volume.where(inside).sum()) for inside in (first < 1, first >= 1)]
    np.testing.assert_allclose(seen["histogram"].concentration, shares, atol=1e-14)
    wave = {"boundaries": {"x": "periodic", "y": "periodic"}, "outputs": [{"spectrum": "concentration"}]}
    assert "outputs[0].spectrum: expected cells of one width, the grid is stretched along x" in refusal(
        changed(config, wave)
    )


@pytest.mark.slow
def test_eight_devices_see_what_one_does(whole):
    root, seen, _ = whole
    same(read(run(root / "cut", {**LOOKING, "mesh.x": 2, "mesh.y": 4})), seen)


@pytest.mark.slow
def test_a_run_that_goes_on_has_every_sample_once(whole):
    root, seen, _ = whole
    some = {"outputs": [SEEN["probe"], SEEN["line"]]}
    folder = run(root / "twice", {**some, "time.end": 5 * DT})
    assert len(read(folder, some)["probe"].time) == 6
    run(folder, some, resume=folder)
    # The same steps, but another program: what else is read does not change them by more than rounding.
    same(read(folder, some), {name: seen[name] for name in ("probe", "line")})
    assert sj.check_files(folder) == []


@pytest.mark.slow
def test_steps_of_any_length_are_read_when_they_reach_a_time(tmp_path):
    few = {"probe": {"points": POINTS}, "of": "pressure", "every": 0.025, "name": "few"}
    looking = {"outputs": [SEEN["probe"], few], "time.dt": None, "time.courant": 0.4, "time.output_every": 0.06}
    folder = run(tmp_path / "courant", {**looking, "time.end": 0.2})
    with sj.open_output(folder, "probe") as steps, sj.open_output(folder, "few") as dataset:
        assert np.array_equal(steps.step, np.arange(len(steps.step))) and float(steps.time[-1]) == 0.2
        reached = [float(steps.time[steps.time >= number * 0.025 - 1e-9][0]) for number in range(9)]
        np.testing.assert_array_equal(dataset.time, list(dict.fromkeys(reached)))
        # Two instruments at one place are rounded apart, of pressures that move by more than that from step to step.
        assert float(np.abs(steps.pressure.diff("time")).max("time").min()) > 1e-6
        np.testing.assert_allclose(dataset.pressure, steps.pressure.sel(time=dataset.time), rtol=1e-14)
    again = run(tmp_path / "again", {**looking, "time.end": 0.12})
    run(again, {**looking, "time.end": 0.2}, resume=again)
    for name in ("probe", "few"):
        with sj.open_output(folder, name) as a, sj.open_output(again, name) as b:
            xarray.testing.assert_identical(a.load().drop_attrs(), b.load().drop_attrs())


def test_due_steps_are_counted_from_the_start_and_not_from_where_a_call_begins():
    ends = [0.1 * n for n in range(1, 31)]
    whole = due_steps(iter(ends), 0.0, 0.25)
    assert [round(end, 9) for end, due in zip(ends, whole, strict=True) if due][:5] == [0.3, 0.5, 0.8, 1.0, 1.3]
    for cut in range(1, 30):  # whatever the calls
        parts = due_steps(iter(ends[:cut]), 0.0, 0.25) + due_steps(iter(ends[cut:]), ends[cut - 1], 0.25)
        assert parts == whole
    # 0.1 * 3 lies a rounding above 0.3, and 3 * 0.1 of the next time below: each counts once.
    assert due_steps(iter(ends), 0.0, 0.1) == [True] * 30


REFUSED = {
    "another kind": ([{"slise": {"y": 0.5}, "of": ["pressure"]}], ["outputs[0]", "'slice'"]),
    "no such variable": ([{"slice": {"y": 0.5}, "of": ["vorticty"]}], ["outputs[0].of[0]", "'vorticity'"]),
    "a slice outside": ([{"slice": {"y": 1.5}, "of": ["pressure"]}], ["outputs[0].slice.y = 1.5", "0 <= y <= 1"]),
    "a slice across two axes": ([{"slice": {"x": 0, "y": 0}, "of": ["pressure"]}], ["one axis", "{z: 0.5}"]),
    "an axis that is not there": ([{"slice": {"z": 0}, "of": ["pressure"]}], ["outputs[0].slice.z", "x, y"]),
    "a point outside": ([{"probe": {"points": [[0, 2]]}, "of": ["pressure"]}], ["points[0] = [0.0, 2.0]", "y <= 1"]),
    "a point of three": ([{"probe": {"points": [[0, 0, 0]]}, "of": ["pressure"]}], ["points[0]", "one per axis x y"]),
    "no cadence": ([{"probe": {"points": [[0, 0]]}, "of": ["pressure"], "every": 0}], ["every = 0", "a time > 0"]),
    "a cadence below a step": (
        [{"probe": {"points": [[0, 0]]}, "of": ["pressure"], "every": 0.001}],
        ["time.dt=0.01", "every: step"],
    ),
    "a box upside down": (
        [{"box_mean": {"lower": [0, 0.5], "upper": [1, 0.5]}, "of": ["pressure"]}],
        ["outputs[0].box_mean.upper", "above lower=[0.0, 0.5]"],
    ),
    "a line of one point": (
        [{"line": {"from": [0, 0], "to": [0, 0], "points": 9}, "of": ["pressure"]}],
        ["another point than"],
    ),
    "two of one name": (
        [{"spectrum": "velocity", "name": "a"}, {"spectrum": "velocity", "name": "a"}],
        ["outputs[0].name", "no other"],
    ),
    "a surface of two planes": ([{"surface_integral": {"x": 0, "y": 0}, "of": "pressure"}], ["one axis", "or a box"]),
    "a surface outside": ([{"surface_integral": {"x": 2}, "of": "pressure"}], ["integral.x = 2", "0 <= x <= 1"]),
    "a correlation of a vector": ([{"correlation": "velocity", "along": "x"}], ["a scalar", "velocity_x"]),
    "a correlation of three": (
        [{"correlation": ["pressure", "velocity_x", "velocity_y"], "along": "x"}],
        ["one field or two, got 3"],
    ),
    "separations along nothing": ([{"structure_function": "velocity"}], ["outputs[0].along is missing", "x, y"]),
    "half a cell": (
        [{"structure_function": "velocity", "along": "x", "separations": [0.1]}],
        ["separations[0] = 0.1", "multiple of the 0.0625 of a cell up to 1", "nearest is 0.125"],
    ),
    "a histogram without bins": ([{"histogram": {"lower": 0, "upper": 1}, "of": "pressure"}], ["bins is missing"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_with_what_to_write(what):
    given, told = REFUSED[what]
    message = refusal(changed(FLOW, {"outputs": given, "time.dt": 0.01}))
    assert all(part in message for part in told), message


def test_what_does_not_go_together_is_refused():
    step = {"outputs": [{"probe": {"points": [[0, 0]]}, "of": ["concentration"], "every": "step"}]}
    assert "steps_per_exchange=0" in refusal(changed(DYE, {**step, "steps_per_exchange": 2, "time.dt": 0.001}))
    assert "every: frame" in refusal(changed(DYE, {**step, "ensemble.size": 2}))
    walls = {"boundaries.y": {"lower": "no_slip", "upper": "no_slip"}, "outputs": [{"spectrum": "velocity"}]}
    assert "y has walls" in refusal(changed(FLOW, walls))
    walls["outputs"] = [{"correlation": "velocity_x", "along": "y"}]
    assert "along = 'y': expected a periodic axis" in refusal(changed(FLOW, walls))
    walls["outputs"] = [{"surface_integral": {"y": 1.0}, "of": "velocity"}]
    assert "a flux at y=1 is in the upper wall" in refusal(changed(FLOW, walls))


IN_GROUPS = {
    "outputs": [SEEN["probe"], SEEN["slice"]],
    "ensemble.size": 3,
    "ensemble.vary": {"parameters.height": {"values": [0.1, 0.2, 0.3]}},
}


@pytest.mark.slow
def test_readings_of_groups_are_those_of_one_run(tmp_path, monkeypatch):
    together = read(run(tmp_path / "together", IN_GROUPS), IN_GROUPS)
    programs, begin = [], SingleRun.begin

    def begin_one(self, folder):
        programs.append(self.programs.instrument_programs)
        if len(programs) == 2:
            raise KeyboardInterrupt  # as abrupt as a kill: nothing of the second group is there
        return begin(self, folder)

    monkeypatch.setattr(SingleRun, "begin", begin_one)
    folder = tmp_path / "groups"
    with pytest.raises(KeyboardInterrupt):
        run(folder, {**IN_GROUPS, "ensemble.group": 2})
    run(folder, {**IN_GROUPS, "ensemble.group": 2}, resume=folder)
    for name, found in read(folder, IN_GROUPS).items():
        wanted = together[name]
        assert found.sizes == wanted.sizes and found.member.values.tolist() == [0, 1, 2]
        np.testing.assert_array_equal(found.time, wanted.time)
        np.testing.assert_array_equal(found.step, wanted.step)
        for variable in wanted.data_vars:  # to the bit but for a mean over many cells
            np.testing.assert_allclose(found[variable], wanted[variable], rtol=0, atol=1e-15, err_msg=str(variable))
    assert float(together["probe"].pressure.std("member").max()) > 0.01  # members differ
    assert sj.check_files(folder) == []
    # The second group takes the programs of the first, and each is compiled once.
    assert programs[0] is programs[1] and [one._program._cache_size() for one in programs[0].values()] == [1, 1]


def test_a_second_attempt_has_no_times_of_its_own():
    again = {**IN_GROUPS, "ensemble.retry": True}
    assert "outputs[0].every = 'step': expected frame with ensemble.retry" in refusal(changed(WAVE, again))


@pytest.mark.parametrize("every, count", [("step", 11), ("frame", 3), (3 * DT, 4)])
def test_the_room_that_samples_need_is_counted(every, count):
    looking = {"outputs": [{**SEEN["line"], "every": every}, {**SEEN["slice"], "every": every}]}
    members = {"ensemble.size": 2, "ensemble.vary": {"parameters.height": {"values": [0.1, 0.2]}}}
    config = validate(changed(WAVE, {**looking, **members}))
    found = sample_bytes(compiled_run(config), plan_frames(config, 1))
    # Seven points; three fields along a line of 16: each of two members, in float64.
    assert found == {name: (n * 8 * 2 * count,) * 2 for name, n in (("line", 7), ("slice", 48))}


@pytest.mark.slow
def test_an_output_that_is_not_there_is_told(whole):
    root, _, _ = whole
    with pytest.raises(InputOutputError, match="did you mean 'probe'"):
        sj.open_output(root / "whole", "prob")


def command(folder, *more):
    """The run on the command line."""
    changes = {**LOOKING, "output.root": str(folder.parent), "output.folder": str(folder)}
    path = folder.parent / "conf" / "experiment" / "wave.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("# @package _global_\n# A wave\n" + yaml.safe_dump(changed(WAVE, changes)))
    return ["--config-dir", str(folder.parent / "conf"), "experiment=wave", *more]


def test_a_search_is_fitted_to_an_instrument_of_the_run():
    outputs = {"outputs": [{**SEEN["probe"], "of": ["velocity", "pressure"]}, SEEN["line"], SEEN["histogram"]]}
    sought = {"unknowns": {"parameters.height": {"guess": 0.1}}}

    def problem(*observations):
        return changed(WAVE, {**outputs, "inverse": {**sought, "observations": list(observations)}})

    named = validate(problem({"output": "probe", "deviation": 0.1}, {"output": "line", "deviation": 0.2}))
    assert named.inverse is not None
    found = [(one.instrument.name, one.variable, one.deviation, one.every) for one in named.inverse.observations]
    at_points = [("probe", name, 0.1, "frame") for name in ("velocity_x", "velocity_y", "pressure")]
    assert found == [*at_points, ("line", "pressure", 0.2, 3 * DT)]
    assert validate(named.write()) == named
    pairs = changed(WAVE, {"outputs": [{**SEEN["structure_function"], "structure_function": "velocity"}]})
    fitted = validate(
        changed(pairs, {"inverse": {**sought, "observations": [{"output": "structure_function", "fraction": 0.1}]}})
    )
    assert fitted.inverse is not None
    ends = ("longitudinal_structure_function", "transverse_structure_function")
    assert [one.variable for one in fitted.inverse.observations] == [f"velocity_{end}" for end in ends]
    assert validate(fitted.write()) == fitted
    assert "did you mean 'probe'" in refusal(problem({"output": "prob", "deviation": 0.1}))
    assert "histogram is of kind histogram" in refusal(problem({"output": "histogram", "deviation": 0.1}))


@pytest.mark.slow
def test_a_killed_run_has_every_sample_once(tmp_path):
    folder, more = tmp_path / "killed", [f"time.end={400 * DT}", "checkpoint.every_frames=20"]
    told = command(folder, *more)
    outputs(start_run([*told, f"output.folder={tmp_path / 'long'}"], count=1))
    (process,) = start_run(told, count=1)
    kill_after_a_checkpoint(process, folder)
    outputs(start_run([f"resume={folder}"], count=1))
    same(read(folder), read(tmp_path / "long"), exact=True)


@pytest.mark.slow
def test_two_processes_see_what_one_does(whole, tmp_path):
    _, seen, _ = whole
    told = command(tmp_path / "two", "mesh.x=2", "mesh.y=2")
    outputs(start_run([*told, f"time.end={5 * DT}"]))
    outputs(start_run([f"resume={tmp_path / 'two'}", f"time.end={10 * DT}"]))
    same(read(tmp_path / "two"), seen)


LIQUID = [
    "particles.count=256",
    "box.upper=[6.9,6.9,6.9]",
    "time.end=0.1",
    "time.output_every=0.05",
    "precision=float64",
    "output.animation=false",
    "output.report=false",
    "neighbor_list.rebuild_every=5",
    "outputs=[{radial_distribution: [1.0, 1.5, 2.0], width: 0.25, every: 0.025},"
    " {mean_square_displacement: null, every: step}]",
]


def liquid(folder, *more, **options):
    place = [f"output.root={folder.parent}", f"output.folder={folder}"]
    sj.load("lennard_jones", [*LIQUID, *place, *more]).run(**options)
    with (
        sj.open_output(folder, "radial_distribution") as pairs,
        sj.open_output(folder, "mean_square_displacement") as moved,
    ):
        return pairs.load(), moved.load()


@pytest.mark.slow
def test_particles_are_seen_as_their_frames_hold_them_over_devices_and_across_a_stop(tmp_path):
    pairs, moved = liquid(tmp_path / "whole")
    with sj.open_run(tmp_path / "whole") as frames:
        position, image = frames.position.values, frames.image.values
    np.testing.assert_array_equal(moved.step, np.arange(21))
    unwrapped = position + 6.9 * image
    mean = np.mean(np.sum((unwrapped - unwrapped[0]) ** 2, axis=-1), axis=1)
    np.testing.assert_allclose(moved.mean_square_displacement[::10], mean, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(pairs.step, [0, 5, 10, 15, 20])
    apart = position[-1][:, None] - position[-1][None]
    distance = np.sqrt(np.sum((apart - 6.9 * np.rint(apart / 6.9)) ** 2, axis=-1))[np.triu_indices(256, 1)]
    for radius, found in zip(pairs.radius.values, pairs.radial_distribution[-1].values, strict=True):
        u = (distance - radius) / 0.25
        partners = 2 / 256 * np.sum(np.where(np.abs(u) < 1, 35 / 32 * (1 - u**2) ** 3, 0)) / 0.25
        expected = partners / (4 * np.pi * (radius**2 + 0.25**2 / 9) * 255 / 6.9**3)
        assert found == pytest.approx(expected, rel=1e-12)
    # Over two devices, in two parts: devices add up in another order.
    liquid(tmp_path / "twice", "mesh.x=2", "time.end=0.05")
    twice = liquid(tmp_path / "twice", "mesh.x=2", resume=tmp_path / "twice")
    for expected, found in zip((pairs, moved), twice, strict=True):
        xarray.testing.assert_allclose(found, expected, rtol=1e-11)
