"""What a user wants drawn of a run: the variable, the ends of its scale, its palette."""

import numpy as np
import pytest
import xarray as xr

from simjax.report.animation import write_animation
from simjax.report.colours import ColourScale, colour_scale
from simjax.report.scalars import DRAWN, Drawn, drawable_names, scalars

PLACES = (np.arange(8) + 0.5) / 8
TIMES = np.array([0.0, 1.0, 2.0])


def dataset(**drawn) -> xr.Dataset:
    """A dye, and a velocity of two components, of which pictures have the magnitude."""
    wave = np.sin(2 * np.pi * PLACES)[None, None, :] * (1 + TIMES)[:, None, None] * np.ones((1, 8, 1))
    dims = ("time", "y", "x")
    fields = {
        "dye": (dims, wave, {"units": "1"}),
        "velocity_x": (dims, 2 * wave, {"units": "m s-1", "vector": "velocity", "component": 0}),
        "velocity_y": (dims, 0 * wave, {"units": "m s-1", "vector": "velocity", "component": 1}),
    }
    found = xr.Dataset(fields, {"time": ("time", TIMES, {"units": "s"}), "x": PLACES, "y": PLACES})
    return found.assign_attrs({DRAWN: Drawn(**drawn)}) if drawn else found


def test_what_is_wanted_is_drawn_first():
    assert scalars(dataset())[0].name == "dye"
    for name in drawable_names(dataset()):
        assert scalars(dataset(name=name))[0].name == name
    assert {"dye", "velocity_x", "velocity_y"} < {*drawable_names(dataset())}


@pytest.mark.parametrize(
    ("wanted", "scale"),
    [
        ({"limits": (0.0, 1.0)}, ColourScale("thermal", 0.0, 1.0, (True, True))),
        ({"limits": (-5.0, 4.0)}, ColourScale("balance", -5.0, 4.0, (False, False))),
        ({"limits": (0.0, 4.0), "palette": "haline"}, ColourScale("haline", 0.0, 4.0, (True, False))),
        ({"limits": (0.0, 4.0), "palette": "diverging"}, ColourScale("balance", 0.0, 4.0, (True, False))),
    ],
)
def test_the_scale_has_the_ends_and_the_palette_that_are_wanted(wanted, scale):
    chosen = scalars(dataset(name="dye", **wanted))[0]
    assert colour_scale(chosen, [chosen.values(frame) for frame in range(3)]) == scale
    other = scalars(dataset(name="dye", **wanted))[1]
    assert other.limits is None and other.palette == ""  # all others stay as they are


def test_a_palette_alone_leaves_the_ends_to_the_values():
    chosen = scalars(dataset(name="dye", palette="haline"))[0]
    found = colour_scale(chosen, [chosen.values(frame) for frame in range(3)])
    # Pictures are of single precision.
    largest = 3 * np.sin(2 * np.pi * PLACES).max()
    assert found.palette == "haline"
    np.testing.assert_allclose((found.lower, found.upper), (-largest, largest), rtol=2e-7)


def test_an_animation_can_be_a_gif(tmp_path):
    from PIL import Image

    path = write_animation(dataset(name="velocity_x", limits=(-1.0, 1.0)), tmp_path / "run.gif")
    assert path is not None
    with Image.open(path) as film:
        assert film.format == "GIF" and getattr(film, "n_frames", 1) == 3 and film.info["loop"] == 0
