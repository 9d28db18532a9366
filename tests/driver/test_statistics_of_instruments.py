"""Statistics in time of instruments are those of their readings after every step."""

import numpy as np
import pytest
from configurations import changed, refusal

import simjax as sj
from simjax.config import validate
from simjax.errors import ConfigurationError
from simjax.report.statistics_pictures import statistics_figures

WAVE = {
    "model": "acoustic",
    "grid": {"shape": [16, 8]},
    "initial": {"pressure": "exp(-20*((x - 0.5)**2 + (y - 0.4)**2)) + height*sin(2*pi*(x + y))"},
    "parameters": {"height": 0.2},
    "time": {"end": 0.24, "output_every": 0.08, "dt": 0.015},  # the last step of a frame is 0.005
    "precision": "float64",
    "output": {"report": False, "animation": False},
}
BOTH = ["velocity_centered", "pressure"]
LOOKING = [
    {"probe": {"points": [[0.2, 0.3], [0.7, 0.55], [0.99, 0.01]]}, "of": BOTH},
    {"line": {"from": [0.1, 0.1], "to": [0.9, 0.6], "points": 4}, "of": "pressure"},
    {"slice": {"x": 0.4}, "of": BOTH},
    {"box_mean": {"lower": [0.2, 0.1], "upper": [0.6, 0.9]}, "of": BOTH},
    {"spectrum": "pressure"},
    {"histogram": {"lower": -1.0, "upper": 1.5, "bins": 5}, "of": "pressure"},
]
NAMES = [next(iter(one)) for one in LOOKING]
SEEN = {"outputs": [{**one, "every": "step"} for one in LOOKING]}
KINDS = ["mean", "variance", "covariance", "third_moment", "min", "max"]
OF_INSTRUMENTS = [{"of": name, "kinds": ["mean", "variance", "max"], "name": f"of_{name}"} for name in NAMES]
OF_INSTRUMENTS[0] |= {"kinds": KINDS, "from": 0.08, "window": 0.08}
OF_INSTRUMENTS[3] |= {"every": 0.04}
STATISTICS = {"statistics": OF_INSTRUMENTS}


def run(folder, changes, **options):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    sj.Simulation(validate(changed(WAVE, {**place, **changes}))).run(**options)
    return folder


def read(folder, prefix="of_"):
    found = {}
    for name in NAMES:
        with sj.open_output(folder, f"{prefix}{name}") as dataset:
            found[name] = dataset.load()
    return found


def agree(dataset, number, seen, times, weights):
    """Compare a set with what numpy finds in all readings, a row for each that counts."""

    def mean(u):
        return np.average(u, axis=0, weights=weights)

    rows = {str(name): seen[name].transpose("time", ...).sel(time=times).values for name in seen.data_vars}
    apart = {name: u - mean(u) for name, u in rows.items()}
    wanted = {}
    for name, u in rows.items():
        wanted[f"{name}_mean"] = mean(u)
        wanted[f"{name}_variance"] = mean(apart[name] ** 2)
        wanted[f"{name}_third_moment"] = mean(apart[name] ** 3)
        wanted[f"{name}_min"], wanted[f"{name}_max"] = u.min(axis=0), u.max(axis=0)
        wanted |= {f"{name}_{other}_covariance": mean(apart[name] * apart[other]) for other in rows}
    moments = [str(name) for name in dataset.data_vars if not str(name).startswith("time_")]
    assert len(moments) >= 4 * len(rows)  # extremes have their times
    for name in moments:
        one = dataset[name].isel(time=number)
        assert one.dims == seen[next(key for key in rows if name.startswith(key))].isel(time=0).dims
        if not name.endswith("_time"):
            # Numbers of order one, added up in another order and as distances from means that move: some roundings.
            np.testing.assert_allclose(one, wanted[name], rtol=0, atol=1e-13, err_msg=name)
    for name, u in rows.items():
        at = dataset[f"{name}_max_time"].isel(time=number).values
        # The time of one reading and of no other: each is a sum of as many steps, to the last roundings.
        np.testing.assert_allclose(at, times[np.argmax(u, axis=0)], rtol=1e-14)


def same(found, wanted, tolerance=0.0):
    for name, dataset in wanted.items():
        for variable in dataset.data_vars:
            if tolerance and str(variable).endswith("_time"):  # two values that are equal but for rounding
                continue
            a, b = found[name][variable], dataset[variable]
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=f"{name} {variable}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("statistics")
    return root, run(root / "whole", {**STATISTICS, **SEEN})


@pytest.mark.slow
def test_statistics_of_instruments_are_those_of_all_their_readings(whole):
    found, seen = read(whole[1]), read(whole[1], "")
    for name in NAMES:
        times = seen[name].time.values
        weights = np.diff(times, prepend=0.0)
        assert len(set(np.round(weights[1:], 9))) == 2  # else weights would not matter
        sets = [(0.08, 0.16), (0.16, 0.24)] if name == "probe" else [(0.0, 0.24)]
        np.testing.assert_allclose(found[name].time_bounds, sets, rtol=1e-14)  # a frame's number times its length
        for number, (begin, end) in enumerate(sets):
            inside = (times > begin + 1e-9) & (times < end + 1e-9)
            if name == "box_mean":  # every 0.04 the first step that reaches it, with the time since the one before
                inside = np.isin(np.arange(len(times)), [np.argmax(times >= 0.04 * n - 1e-6) for n in range(1, 7)])
                agree(found[name], number, seen[name], times[inside], np.diff(times[inside], prepend=0.0))
            else:
                agree(found[name], number, seen[name], times[inside], weights[inside])
    assert [*statistics_figures(whole[1])]
    assert sj.check_files(whole[1]) == []


@pytest.mark.slow
def test_a_run_that_goes_on_has_the_same_ones(whole):
    both = {**STATISTICS, **SEEN}
    folder = run(whole[0] / "twice", {**both, "time.end": 0.16, "checkpoint.every_frames": 1})
    assert read(folder)["probe"].sizes["time"] == 1 and float(read(folder)["line"].time[0]) == 0.16
    run(folder, both, resume=folder)
    same(read(folder), read(whole[1]))  # the same programs: bit for bit


@pytest.mark.slow
def test_members_over_devices_have_those_of_each_alone(whole):
    several = {"ensemble.size": 2, "ensemble.vary": {"parameters.height": {"values": [0.1, 0.2]}}}
    mesh = {"mesh.ensemble": 2, "mesh.x": 2, "mesh.y": 2}
    # The instruments themselves are read at output times here: how often they are does not matter.
    members = read(run(whole[0] / "members", {**STATISTICS, "outputs": LOOKING, **several, **mesh}))
    assert members["slice"].pressure_mean.dims == ("member", "time", "y")
    # Devices add up in another order: rounding, of pressures through a solve.
    same({name: dataset.isel(member=1, drop=True) for name, dataset in members.items()}, read(whole[1]), 1e-12)
    assert not np.allclose(members["box_mean"].pressure_mean[0], members["box_mean"].pressure_mean[1])


REFUSED = {
    "no such instrument": ({"of": "prob"}, ["of[0] = 'prob'", "did you mean 'probe'"]),
    "one beside variables": ({"of": ["probe", "pressure"]}, ["expected the instrument probe alone"]),
    "averages over an axis": ({"of": "probe", "over": "x"}, ["expected no axes, as probe is an instrument"]),
    "one variable with itself": ({"of": "line", "kinds": "covariance"}, ["at least two variables"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_with_what_to_write(what):
    given, told = REFUSED[what]
    message = refusal(changed(WAVE, {"statistics": [given], "outputs": LOOKING}))
    assert all(part in message for part in told), message


def test_a_wrong_instrument_is_told_once_and_places_must_agree(tmp_path):
    wrong = {"statistics": [{"of": "probe"}], "outputs": [{"probe": {"points": []}, "of": "pressure"}]}
    message = refusal(changed(WAVE, wrong))
    assert "outputs[0].probe.points" in message and "statistics" not in message
    cut = {"slice": {"x": 0.4}, "of": ["velocity", "pressure"]}
    with pytest.raises(ConfigurationError, match="of 'slice' lie at different places of a cell"):
        run(tmp_path / "faces", {"statistics": [{"of": "slice", "kinds": "covariance"}], "outputs": [cut]})
