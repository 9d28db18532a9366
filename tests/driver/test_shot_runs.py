"""Configured runs of shots of a file: those of Python, on devices, in groups, one alone, resumed, what is refused."""

import re

import numpy as np
import pytest

import simjax as sj
from simjax.errors import ConfigurationError

COUNT, HEARD, END = 3, 5, 0.3
TIMES = np.linspace(0.0, 0.2, 41)
PULSE = np.exp(-(((TIMES - 0.08) / 0.03) ** 2))
STEPS = [{"receivers": None, "every": "step"}]


def shots(**more):
    """Two sources in each of three shots, off the grid, of other strengths, and receivers that move along."""
    x = np.linspace(0.3, 0.9, COUNT)
    sources = np.stack([np.stack([x, np.full(COUNT, 0.9)], -1), np.stack([x[::-1], np.full(COUNT, 0.41)], -1)], 1)
    signals = np.asarray([[1.0, 0.5], [2.0, -1.0], [-1.0, 0.3]])[..., None] * PULSE
    line = np.stack([np.linspace(0.2, 1.1, HEARD), np.full(HEARD, 0.93)], -1)
    receivers = line + np.asarray([[0.0, 0.0], [0.01, 0.0], [0.02, -0.1]])[:, None]
    return sj.Shots(**{"sources": sources, "signals": signals, "times": TIMES, "receivers": receivers, **more})


def sound(tmp_path, physics, boundaries="absorbing", **sections):
    quiet = {"report": False, "animation": False, "root": str(tmp_path)}
    return sj.configure(
        "acoustic",
        grid={"shape": [24, 16], "upper": [1.25, 1.0]},
        physics={"order": 4, "layer_cells": 3, **physics},
        coefficients={"speed": "1 + 0.3*x"},
        boundaries={"x": boundaries, "y": [boundaries, "free"]},
        time={"end": END, "output_every": 0.15, "dt": 0.02, **sections.pop("time", {})},
        precision="float64",
        output={**quiet, **sections.pop("output", {})},
        **sections,
    )


def of_file(tmp_path, given, **sections):
    path = sj.write_shots(tmp_path / "line.nc", given)
    physics = {"sources": {"shots": str(path)}, **sections.pop("physics", {})}
    return sound(tmp_path, physics, **{"outputs": STEPS, **sections})


def records(result):
    return sj.open_output(result.folder, "receivers").record


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    run = sound(tmp_path_factory.mktemp("python"), {}).differentiable(variables=[])
    return run.step_times, np.asarray(run(shots=shots()).observed["receivers"])


def assert_same(found, expected):
    # Another program, which may round otherwise, of twenty steps.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"mesh": {"x": 2, "y": 4}},
        {"mesh": {"x": 2, "ensemble": 3}},
        {"ensemble": {"batch": 1}},
        {"ensemble": {"group": 2}},
    ],
    ids=["one_device", "2x4", "members_on_devices", "one_at_a_time", "groups"],
)
def test_records_are_those_of_shots_in_python(tmp_path, expected, sections):
    found = records(of_file(tmp_path, shots(), **sections).run())
    times, traces = expected
    assert found.transpose("member", "receiver", "time").shape == (COUNT, HEARD, len(times))
    np.testing.assert_allclose(found.time, times, rtol=0, atol=1e-14)
    assert_same(found.transpose("member", "receiver", "time"), traces)
    np.testing.assert_array_equal(np.stack([found.x, found.y], -1), shots().receivers)


@pytest.mark.slow
def test_a_run_of_shots_goes_on(tmp_path, expected):
    first = of_file(tmp_path, shots(), time={"end": 0.15}, output={"folder": "line"}).run()
    assert_same(records(first).transpose("member", "receiver", "time"), expected[1][..., :9])
    more = of_file(tmp_path, shots(), resume=str(first.folder)).run()
    assert_same(records(more).transpose("member", "receiver", "time")[..., -8:], expected[1][..., -8:])


@pytest.mark.slow
def test_one_shot_alone_has_no_axis_of_members(tmp_path, expected):
    one = of_file(tmp_path, shots(), physics={"shot": 2}).run()
    assert records(one).dims == ("time", "receiver")
    assert_same(records(one).T, expected[1][2])
    np.testing.assert_array_equal(np.stack([records(one).x, records(one).y], -1), shots().receivers[2])
    some = of_file(tmp_path, shots(), ensemble={"size": 2, "vary": {"physics.shot": {"values": [2, 0]}}}).run()
    assert_same(records(some).transpose("member", "receiver", "time"), expected[1][[2, 0]])
    assert list(some.ds.shot) == [2, 0]


@pytest.mark.slow
def test_segy_with_a_signal_by_a_formula(tmp_path):
    """Formulas of t, which may name the shot; places are written in thousandths."""
    t = np.arange(16) * 0.02
    given = shots(sources=np.round(shots().sources[:, :1], 3), receivers=shots().receivers[0], recorded=t)
    given = sj.Shots(given.sources, given.signals[:, :1], TIMES, np.round(given.receivers, 3), recorded=t)
    path = sj.write_shots(tmp_path / "line.sgy", given, np.zeros((COUNT, HEARD, len(t))))
    physics = {"sources": {"shots": str(path), "signal": "(1 + shot)*exp(-((t - 0.08)/0.03)**2)"}}
    found = records(sound(tmp_path, physics, outputs=STEPS).run()).transpose("member", "receiver", "time").values
    single = {"receivers": given.receivers.tolist()}
    for k in range(COUNT):
        source = {"position": given.sources[k, 0].tolist(), "signal": f"{1 + k}*exp(-((t - 0.08)/0.03)**2)"}
        one = records(sound(tmp_path, {**single, "sources": [source]}, outputs=STEPS).run())
        assert_same(found[k], one.T)


@pytest.mark.parametrize(
    ("changes", "sections", "told"),
    [
        ({"receivers": [[0.5, 1.5]]}, {}, "Shots.receivers[0, 1] = 1.5: expected a place in the box, along y from 0"),
        (
            {"sources": np.zeros((3, 2, 3)), "receivers": np.zeros((5, 3))},
            {},
            "Shots.sources: expected an array of shape (3, 2, 2), (shots, sources, axes), got (3, 2, 3)",
        ),
        ({"recorded": [0.0, 0.31]}, {}, "Shots.recorded: expected times of the run, from 0 to 0.3, got 0 to 0.31"),
        ({"times": TIMES + 0.3}, {}, "expected signals within the run, from 0 to 0.3, got samples from 0.3 to 0.5"),
        ({"receivers": None}, {}, "line.nc: expected a variable receivers (shot, trace, axis), which is missing"),
        ({"signals": None}, {}, "line.nc: signals is missing"),
        ({}, {"physics": {"receivers": [[0.5, 0.5]]}}, "physics.receivers: the file of shots has receivers"),
        ({}, {"physics": {"shot": 3}}, "physics.shot = 3: expected a whole number below 3, the shots of "),
        ({}, {"physics": {"shot": 0.5}}, "physics.shot = 0.5: expected a whole number below 3"),
        ({}, {"ensemble": {"size": 4}}, "ensemble.size = 4: expected 3, one for each shot; leave it out"),
        (
            {},
            {"ensemble": {"size": 2, "vary": {"physics.shot": {"values": [0, 3]}}}},
            "physics.shot = 3: expected a whole number below 3",
        ),
    ],
)
def test_files_and_numbers_that_do_not_fit_are_refused(tmp_path, changes, sections, told):
    with pytest.raises(ConfigurationError, match=re.escape(told)) as caught:
        of_file(tmp_path, shots(**changes), **sections)
    assert "physics." in str(caught.value) or "ensemble." in str(caught.value)


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        ({"shots": "nowhere.nc"}, "physics.sources.shots = 'nowhere.nc': no such file"),
        ({"shots": 3}, "physics.sources.shots = 3: expected the name of a file of shots"),
        ({"shots": "line.nc", "signals": "t"}, "physics.sources.signals"),
        ([], "physics.shot: expected shots of a file; write physics.sources={shots: FILE}"),
    ],
)
def test_what_is_no_file_of_shots_is_refused(tmp_path, sources, told):
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        sound(tmp_path, {"sources": sources, "shot": 1})


def test_segy_needs_signals_and_a_damaged_file_is_named(tmp_path):
    given = shots(sources=shots().sources[:, :1], signals=shots().signals[:, :1], recorded=TIMES[:2])
    path = sj.write_shots(tmp_path / "line.sgy", given, np.zeros((COUNT, HEARD, 2)))
    with pytest.raises(ConfigurationError, match=r"line.sgy.*: SEG-Y has no signals; .* physics.sources.signal"):
        sound(tmp_path, {"sources": {"shots": str(path)}})
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ConfigurationError, match=r"physics.sources.shots = .*line.sgy"):
        sound(tmp_path, {"sources": {"shots": str(path), "signal": "t"}})


def test_a_written_configuration_is_equal(tmp_path):
    config = of_file(tmp_path, shots()).config
    assert config.ensemble.size == COUNT
    written = config.write()
    assert written["physics"]["sources"] == {"shots": str(tmp_path / "line.nc")}
