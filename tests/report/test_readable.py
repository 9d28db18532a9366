"""Days and kilometres in pictures where the numbers ask for them; files stay in SI units."""

import numpy as np
import pytest
import xarray

from simjax.io.readable import readable, readable_units
from simjax.report import summary

DAY = 86400.0


@pytest.mark.parametrize(
    ("largest", "units", "shown"),
    [
        (10 * DAY, "s", "days"),
        (2 * DAY, "s", "h"),
        (3600, "s", "min"),
        (20.0, "s", "s"),
        (0.2, "s", "s"),
        (4e-3, "s", "ms"),
        (5e-6, "s", "µs"),
        (3e-9, "s", "ns"),
        (5 * 365.25 * DAY, "s", "years"),
        (0.0, "s", "s"),
        (4e5, "m", "km"),
        (999.0, "m", "m"),
        (1.0, "m", "m"),
        (5e-3, "m", "mm"),
        (2e-6, "m", "µm"),
        (1e9, "1", "1"),
        (1e9, "m s-1", "m s-1"),
        (float("nan"), "s", "s"),
    ],
)
def test_units_suit_the_numbers(largest, units, shown):
    name, factor = readable_units(largest, units)
    assert name == shown
    if np.isfinite(largest) and largest > 0 and units in ("s", "m"):
        assert 0.1 <= largest / factor < 2000  # numbers that are read without counting zeros


def large_scale(frames=3):
    """A basin of 400 km by 100 km over ten days."""
    x, y, t = np.linspace(5e3, 395e3, 8), np.linspace(5e3, 95e3, 4), np.linspace(0, 10 * DAY, frames)
    lines = {"x": (x, "m"), "x_face": (x - 2.5e4, "m"), "y": (y, "m"), "time": (t, "s")}
    values = np.ones((frames, 4, 8)) * t[:, None, None] / DAY
    return xarray.Dataset(
        {"height": (("time", "y", "x"), values, {"units": "m", "long_name": "height"})},
        {name: (name, line, {"units": units}) for name, (line, units) in lines.items()},
    )


def test_axes_share_their_units_and_files_keep_theirs(tmp_path):
    dataset = large_scale()
    shown = readable(dataset)
    assert {shown[n].attrs["units"] for n in ("x", "x_face", "y")} == {"km"} and shown.time.attrs["units"] == "days"
    np.testing.assert_allclose(shown.x, dataset.x / 1000, rtol=1e-15)
    np.testing.assert_allclose(shown.time, [0, 5, 10], rtol=1e-15)
    assert dataset.time.attrs["units"] == "s" and dataset.x.attrs["units"] == "m"
    assert summary.describe(shown).endswith("3 frames to t = 10 days")
    assert summary.write_summary(dataset, tmp_path / "summary.png").is_file()


def test_a_dataset_that_needs_nothing_is_left_as_it_is():
    dataset = large_scale().assign_coords(x=np.linspace(0, 1, 8), x_face=np.linspace(0, 1, 8), y=np.linspace(0, 1, 4))
    dataset = dataset.assign_coords(time=np.arange(3.0))
    assert readable(dataset) is dataset
