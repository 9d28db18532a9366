"""The report of a sweep: what depends on what, in which order, in words, and readable with many members."""

import numpy as np
import pytest
import xarray as xr

from simjax.report.responses import is_logarithmic, responses, sentence, trend
from simjax.report.summary import write_summary


def sweep(count: int, lost: int = 0) -> xr.Dataset:
    """Diagnostics that rise with one number, fall weakly with another, and rise and fall with the first."""
    rng = np.random.default_rng(1)
    push, drag = rng.random(count), 10.0 ** rng.uniform(-4, -2, count)
    noise = rng.normal(size=count)
    ends = {"speed": push + 0.01 * noise, "peak": (push - 0.5) ** 2 + 0.002 * noise, "chance": noise}
    ends["speed"][:lost] = ends["peak"][:lost] = ends["chance"][:lost] = np.nan
    time = np.linspace(0.0, 1.0, 4)
    return xr.Dataset(
        {name: (("member", "time"), values[:, None] * time) for name, values in ends.items()}
        | {"status": ("member", (np.arange(count) < lost).astype("i4"))},
        {"push": ("member", push), "drag": ("member", drag), "time": time, "member": np.arange(count)},
    )


def test_dependences_are_sorted_by_their_strength_and_said():
    found = responses(sweep(400, lost=20))
    assert [(one.diagnostic, one.parameter) for one in found[:2]] == [("speed", "push"), ("peak", "push")]
    assert found[0].said == "rises with push" and found[0].rank > 0.99
    # Symmetric about the middle: no rank correlation (1 / sqrt(380) = 0.05 by chance), and yet a strong dependence.
    assert found[1].said == "rises and falls with push" and abs(found[1].rank) < 0.2 and found[1].strength > 0.9
    assert all(one.strength < 0.35 and one.said.startswith("hardly") for one in found[2:])
    told = sentence(found, {"speed": "Speed", "peak": "Peak", "chance": "Chance"})
    assert told == "Speed rises with push; peak rises and falls with push; drag hardly matters."


def test_a_falling_dependence_is_told_as_such():
    dataset = sweep(50)
    (one,) = responses(dataset.assign(speed=-dataset["speed"]), most=1)
    assert one.said == "falls with push" and one.rank < -0.99


def test_the_trend_is_the_median_of_neighbours_and_their_spread():
    x = np.arange(160.0)
    places, bands = trend(x, x**2)
    assert len(places) == 20 and np.all(np.diff(places) > 0)
    np.testing.assert_allclose(bands[1], places**2, atol=0.26)  # a median between two squares, their places 1 apart
    assert np.all(bands[0] < bands[1]) and np.all(bands[1] < bands[2])


def test_axes_are_logarithmic_where_members_are():
    assert is_logarithmic(10.0 ** np.linspace(-4, -2, 30)) and not is_logarithmic(np.linspace(0.01, 22, 30))


@pytest.mark.parametrize(("count", "lost"), [(4, 0), (64, 3), (1024, 200)])
@pytest.mark.slow
def test_pictures_of_sweeps_are_drawn_at_any_size(tmp_path, count, lost):
    path = write_summary(sweep(count, lost), tmp_path / "summary.png", title="a sweep")
    assert 20_000 < path.stat().st_size < 1_000_000
