"""Waves from configurations: media, sources, signals from files, receivers, and what is refused."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from configurations import changed, refusal
from wave_steps import run

from simjax.config import validate
from simjax.core.boundary import SlipWall
from simjax.core.domain import Domain
from simjax.driver.simulation import Simulation
from simjax.driver.start.build import build_model
from simjax.grid import Grid
from simjax.models.waves.acoustic import Acoustic, Params
from simjax.models.waves.maxwell import Maxwell
from simjax.models.waves.pml import AbsorbingSide, FreeSurface

SOUND = {
    "model": "acoustic",
    "precision": "float64",
    "physics": {
        "layer_cells": 3,
        "sources": [{"position": [0.9, 0.55], "signal": "strength*sin(3*t)"}],
        "receivers": [[1.2, 0.61], [0.4, 0.3]],
    },
    "parameters": {"strength": 2.0},
    "grid": {"shape": [16, 12], "upper": [1.6, 1.2]},
    "boundaries": {"x": {"lower": "absorbing", "upper": "rigid"}, "y": {"lower": "rigid", "upper": "free"}},
    "coefficients": {"speed": "1 + 0.2*x", "density": 1.5},
    "time": {"end": 0.4, "output_every": 0.1, "dt": 0.02},
}
LIGHT = {
    "model": "maxwell_tm",
    "physics": {"sources": [{"position": [0.5, 0.5], "signal": 1}], "receivers": [[0.2, 0.7]]},
    "grid": {"shape": [16, 12]},
    "boundaries": {"x": "conductor"},
    "time": {"end": 0.4, "output_every": 0.1},
}


def build(mapping):
    config = validate(mapping)
    domain = Domain(Grid(config.grid.shape, config.grid.lower, config.grid.upper))
    values = {name: jnp.asarray(value, config.precision) for name, value in config.parameters.items()}
    return build_model(config, domain, values, {})


@pytest.mark.slow
def test_a_run_is_the_same_as_the_model_built_by_hand(tmp_path):
    options = {"experiment_name": "sound", "output.root": str(tmp_path)}
    options |= {"output.animation": False, "output.report": False}
    found = Simulation(validate(changed(SOUND, options))).run().ds
    domain = Domain(Grid((16, 12), upper=(1.6, 1.2)))
    x, _ = domain.coordinates((0.5, 0.5))
    model = Acoustic(domain, [(AbsorbingSide(), SlipWall()), (SlipWall(), FreeSurface())], layer_cells=3)
    params = Params(
        (1 + 0.2 * x) * jnp.ones((16, 12)),
        jnp.asarray(1.5),
        jnp.asarray([[0.9, 0.55]]),
        (lambda t: 2.0 * jnp.sin(3 * t),),
        jnp.asarray([[1.2, 0.61], [0.4, 0.3]]),
    )
    zero = jnp.zeros((16, 12))
    start = model.state_from({"pressure": (zero,), "velocity": (zero, zero)}, params)
    end, seen = run(model, params, start, 0.02, 20, lambda t, state: model.receive(t, state, params))
    assert np.abs(seen).max() > 0.01
    # 20 steps in two programs: roundings.
    np.testing.assert_allclose(found.pressure.isel(time=-1).transpose("x", "y"), end.pressure, rtol=0, atol=1e-13)
    for k in range(2):
        np.testing.assert_allclose(found[f"receiver_{k}"][1:], seen[4::5, k], rtol=0, atol=1e-13)


def test_media_that_are_the_same_everywhere_are_numbers():
    _, params = build(SOUND)
    assert params.speed.shape == (16, 12) and params.density.shape == ()


def test_signals_from_files(tmp_path):
    file = tmp_path / "shot.csv"
    file.write_text("time,value\n0,1\n0.5,3\n2,0\n")
    _, params = build(changed(SOUND, {"physics.sources": [{"position": [0.9, 0.55], "signal": {"file": str(file)}}]}))
    assert [float(params.signals[0](t)) for t in (-1.0, 0.25, 0.5, 3.0)] == [0.0, 2.0, 3.0, 0.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,1\n0,2\n", "line 2 of .*: time 0 does not follow 0; sort it"),
        ("0,1\n1,nan\n", "line 2 of .*: expected finite numbers; got '1,nan'"),
        ("t,v\n0;1\n", "line 2 of .*: expected time,value; got '0;1'"),
        ("0,1\n", "holds 1 line"),
    ],
)
def test_signal_files_that_are_refused(tmp_path, text, expected):
    file = tmp_path / "shot.csv"
    file.write_text(text)
    source = {"position": [0.9, 0.55], "signal": {"file": str(file)}}
    message = refusal(changed(SOUND, {"physics.sources": [source]}))
    assert message.startswith("physics.sources[0].signal.file: ")
    assert re.search(expected, message)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"physics.order": 3}, "physics.order = 3: expected 2 or 4"),
        ({"physics.layer_cells": 16}, "leaves nothing between the layers along x; use more than 16 cells"),
        ({"physics.receivers": [[2.0, 0.3]]}, "receivers[0][0] = 2: expected a number in the box, from 0 to 1.6"),
        ({"physics.receivers": [[0.3]]}, "physics.receivers[0] = [0.3]: expected 2 number(s)"),
        ({"physics.sources": [{"position": [0.5, 0.5]}]}, "physics.sources[0].signal is missing"),
        ({"physics.sources": [{"position": [0.5, 0.5], "signal": "sin(x)"}]}, "unknown name 'x'"),
        ({"physics.sources": [{"position": [0.5, 0.5], "signal": {"file": "none.csv"}}]}, "no such file"),
        ({"physics.sources": [{"position": [0.5, 0.5], "signal": {"name": "none"}}]}, "or {file: NAME.csv}"),
        ({"physics.receivers": {"file": "none.csv"}}, "physics.receivers.file = 'none.csv': no such file"),
        ({"physics.receivers": {"name": "none"}}, "or {file: NAME.csv} with a number per axis in each line"),
        ({"boundaries.x": "no_slip"}, "expected one of periodic, rigid, free, absorbing"),
        ({"time.integrator": "rk4"}, "expected one of leapfrog"),
    ],
)
def test_mistakes_are_refused(changes, expected):
    assert expected in refusal(changed(SOUND, changes))


def test_receivers_of_a_file_are_those_of_a_list(tmp_path):
    file = tmp_path / "stations.csv"
    file.write_text("x,y\n0.3,0.5\n\n0.7,0.25\n", encoding="utf-8")
    config = validate(changed(SOUND, {"physics.receivers": {"file": str(file)}}))
    assert config.physics.receivers == ((0.3, 0.5), (0.7, 0.25))
    assert validate(config.write()).physics.receivers == config.physics.receivers


def test_sources_of_a_file_send_one_signal(tmp_path):
    file = tmp_path / "sources.csv"
    file.write_text("0.3,0.5\n0.7,0.25\n", encoding="utf-8")
    config = validate(changed(SOUND, {"physics.sources": {"file": str(file), "signal": "sin(t)"}}))
    listed = [{"position": place, "signal": "sin(t)"} for place in ([0.3, 0.5], [0.7, 0.25])]
    assert config.physics.sources == validate(changed(SOUND, {"physics.sources": listed})).physics.sources
    assert validate(config.write()).physics.sources == config.physics.sources
    for given, told in (
        ({"file": "none.csv", "signal": "1"}, "physics.sources.file = 'none.csv': no such file"),
        ({"file": str(file)}, "or {file: NAME.csv, signal: ...}"),
        ({"file": str(file), "signal": "sin(x)"}, "physics.sources[0].signal"),
    ):
        assert told in refusal(changed(SOUND, {"physics.sources": given}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "holds no positions"),
        ("x,y\n", "holds no positions"),
        ("0.3,0.5\n0.3,up\n", "line 2 of .*expected numbers"),
        ("0.3,0.5\n0.3\n", r"line 2 of .*expected 2 number\(s\)"),
        ("0.3,inf\n", "line 1 of .*finite"),
        ("1,2,3,4\n", "line 1 of .*one to three numbers"),
        ("0.3,0.5\n2.0,0.5\n", r"receivers\[1\]\[0\] = 2: expected a number in the box"),
    ],
)
def test_wrong_files_of_receivers_are_told(text, expected, tmp_path):
    file = tmp_path / "stations.csv"
    file.write_text(text, encoding="utf-8")
    assert re.search(expected, refusal(changed(SOUND, {"physics.receivers": {"file": str(file)}})))


def test_maxwell_in_its_three_forms():
    model, params = build(LIGHT)
    assert isinstance(model, Maxwell) and params.conductivity is None
    assert [output.name for output in model.outputs()] == ["electric", "magnetic_x", "magnetic_y"]
    model, _ = build(changed(LIGHT, {"model": "maxwell_te", "physics.along": "x"}))
    assert [output.name for output in model.outputs()] == ["electric_x", "electric_y", "magnetic"]
    assert "expected one of x, y" in refusal(changed(LIGHT, {"model": "maxwell_te", "physics.along": "z"}))
    assert "at least 3 axes" in refusal(changed(LIGHT, {"model": "maxwell"}))
