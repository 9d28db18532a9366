"""Profiles in wall units: a laminar channel between walls that move together, whose friction and profile are exact."""

import numpy as np
import pytest
import yaml

import simjax as sj
from simjax.io.read import open_output
from simjax.io.readable import readable
from simjax.report.wall_pictures import in_wall_units, wall_figures

NU, PULL, CELLS, CARRIED = 0.01, 0.05, 12, 0.5
U_TAU = (PULL / 2) ** 0.5


@pytest.fixture(scope="module")
def channel(tmp_path_factory):
    """A run that begins with the solution of the discrete equations: the parabola, whose wall is at half a cell."""
    wall = {"kind": "no_slip", "velocity": [CARRIED, 0]}
    exact = f"{CARRIED} + {PULL / (2 * NU)}*y*(1 - y) + {PULL / (8 * NU) / CELLS**2}"
    return sj.configure(
        "incompressible",
        grid={"shape": [8, CELLS], "upper": [1, 1]},
        physics={"viscosity": NU},
        boundaries={"y": {"lower": wall, "upper": wall}},
        initial={"velocity": [exact, "0"]},
        forcing={"velocity": [str(PULL), "0"]},
        time={"end": 0.4, "output_every": 0.1},
        precision="float64",
        outputs=[{"wall": {"side": f"y_{end}"}, "every": "step", "name": end} for end in ("lower", "upper")],
        statistics=[{"of": "velocity_centered", "kinds": ["mean", "variance"], "over": ["x"], "from": 0.2}],
        output={"root": str(tmp_path_factory.mktemp("runs")), "animation": False},
    ).run()


def profiles(run, end, **changes):
    config = yaml.safe_load(open_output(run.folder, end).attrs["simjax_config_yaml"])
    with open_output(run.folder, "statistics") as opened:
        return in_wall_units(readable(opened), open_output(run.folder, end).load(), f"y_{end}", {**config, **changes})


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_a_laminar_channel_in_wall_units(channel, end):
    found = profiles(channel, end)
    y = (np.arange(CELLS // 2) + 0.5) / CELLS
    speed = PULL / (2 * NU) * y * (1 - y) + PULL / (8 * NU) / CELLS**2
    # Roundings of four hundred sums in double precision.
    np.testing.assert_allclose(found.y_plus, y * U_TAU / NU, rtol=1e-10)
    np.testing.assert_allclose(found.mean, speed / U_TAU, rtol=1e-10)
    assert found.stream == "x" and sorted(found.roots) == ["x", "y"]
    assert max(np.abs(root).max() for root in found.roots.values()) < 1e-6  # the root of roundings


def test_no_profile_is_shown_of_what_is_not_known(channel):
    still = profiles(channel, "lower")
    moving = {"y": {end: {"kind": "no_slip", "velocity": ["sin(t)", 0]} for end in ("lower", "upper")}}
    assert profiles(channel, "lower", boundaries=moving) is None
    # As seen from walls at rest the fluid is faster by their speed.
    resting = {"y": {end: {"kind": "no_slip", "velocity": [0, 0]} for end in ("lower", "upper")}}
    other = profiles(channel, "lower", boundaries=resting)
    np.testing.assert_allclose(other.mean - still.mean, CARRIED / U_TAU, rtol=1e-10)


def test_a_report_has_the_pictures(channel):
    text = (channel.folder / "report.html").read_text()
    for end in ("lower", "upper"):
        assert f"in wall units of y_{end}" in text
    config = open_output(channel.folder, "lower").attrs["simjax_config_yaml"]
    assert len(list(wall_figures(channel.folder, config))) == 4  # of each wall the mean and the fluctuations
    assert not list(wall_figures(channel.folder, ""))
