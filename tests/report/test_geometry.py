"""Walls, media, surfaces, distances, offsets: what pictures show beside the fields."""

import flows
import numpy as np
import pytest
import xarray as xr

from simjax.report import colours, curves, scalars
from simjax.report.geometry import draw_scene
from simjax.report.pair_distribution import radial_distribution
from simjax.report.particle_painter import radii_of, space_view
from simjax.report.scene import NOWHERE, Scene, outline_levels
from simjax.report.sheet import Sheet
from simjax.report.volume import surfaces

UNIT = ((0.0, 1.0), (0.0, 1.0))


def pixels(scene):
    """A white square of 200 pixels with a scene of the unit square in it, its upper row first."""
    scalar = scalars.scalars(flows.taylor_green(16, 2))[0]
    sheet = Sheet(2.0, 2.0, 100)
    axes = sheet.axes(0.0, 0.0, 2.0, 2.0, plain=True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    draw_scene(axes, scene, scalar, "x", "y", {})
    sheet.canvas.draw()
    return np.asarray(sheet.canvas.buffer_rgba())[..., :3].astype(int).max(axis=-1)


@pytest.mark.parametrize("axis", ["x", "y"])
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_a_solid_side_is_a_thick_line(axis, side):
    shown = pixels(Scene(UNIT, frozenset({(axis, side)})))
    upright = shown if axis == "x" else shown[::-1].T  # the lower end first
    ends = upright[100, 0], upright[100, -1]
    dark, light = ends if side == "lower" else ends[::-1]
    assert dark < 80 and light == 255
    assert pixels(NOWHERE).min() == 255


def test_a_medium_is_outlined_where_it_begins_and_shaded_inside():
    x = (np.arange(100) + 0.5) / 100
    dense = np.where((x[:, None] > 0.3) & (x[None] < 0.6), 4.0, 1.0)  # right of x = 0.3, below y = 0.6
    shown = pixels(Scene(UNIT, media={"permittivity": dense}))
    assert shown[150, 56:64].min() < 120  # the edge x = 0.3
    assert shown[76:84, 150].min() < 120  # the edge y = 0.6
    assert 200 < shown[150, 150] < 245 and shown[40, 150] == 255


def test_sources_and_receivers_stand_where_they_are():
    shown = pixels(Scene(UNIT, marks={"source": np.array([[0.25, 0.75]]), "receiver": np.array([[0.5, 0.1]])}))
    assert shown[50, 50] < 80 and shown[178:182, 98:102].min() < 80
    assert shown[150, 50] == 255


def test_outlines_are_drawn_where_there_are_edges_alone():
    x = (np.arange(64) + 0.5) / 64
    assert outline_levels(np.full((8, 8), 2.0)) == []
    assert outline_levels(np.where(x > 0.5, 3.0, 1.0)) == [2.0]
    assert outline_levels(np.choose((4 * x).astype(int), [1.0, 2.0, 4.0, 8.0])) == [1.5, 3.0, 6.0]
    assert outline_levels(np.sin(2 * np.pi * x)) == []  # smooth
    assert outline_levels(np.tanh((x - 0.5) / 0.01)) == [pytest.approx(0.0, abs=1e-12)]
    assert outline_levels(np.random.default_rng(0).normal(size=(64, 64))) == []  # rough all over


def test_a_sphere_is_seen_as_a_disc_of_its_radius():
    count, radius = 48, 0.35
    x = (np.arange(count) + 0.5) / count - 0.5
    distance = np.sqrt(x[:, None, None] ** 2 + x[None, :, None] ** 2 + x[None, None, :] ** 2)
    view = space_view(np.zeros(3), np.ones(3))
    left, right, low, high = view.frame
    size = (200, round(200 / view.aspect))
    seen = surfaces(1 - distance, view, 1 - radius, False, size)[..., 3] > 0
    area = seen.mean() * (right - left) * (high - low)
    # Second order in the spacing of cells and of pixels, both about a fiftieth of the radius.
    assert area == pytest.approx(np.pi * radius**2, rel=0.02)
    # The disc stands in the middle of the box.
    rows, columns = np.nonzero(seen)
    assert abs(rows.mean() - size[1] / 2) < 1 and abs(columns.mean() - size[0] / 2) < 1


def test_surfaces_of_opposite_signs_have_two_colours():
    x = np.linspace(-1, 1, 24)
    values = np.broadcast_to(x[:, None, None], (24, 24, 24))
    view = space_view(np.zeros(3), np.ones(3))
    picture = surfaces(values, view, 0.5, True, (80, 80)).astype(int)
    there = picture[..., 3] > 0
    red = there & (picture[..., 0] > picture[..., 2])
    blue = there & (picture[..., 0] < picture[..., 2])
    # x grows to the right: positive values are red.
    assert np.nonzero(red)[1].mean() > np.nonzero(blue)[1].mean() + 20
    assert (red | blue)[there].all()


def particles(position, species=None, length=10.0):
    position = np.asarray(position, float)
    count, ndim = position.shape
    return xr.Dataset(
        {
            "position": (("time", "particle", "axis"), np.pad(position, ((0, 0), (0, 3 - ndim)))[None]),
            "species": (("particle",), np.zeros(count, int) if species is None else np.asarray(species)),
        },
        attrs={"simjax_box_lower": np.zeros(ndim), "simjax_box_upper": np.full(ndim, length)},
    )


def test_particles_that_stand_anywhere_have_a_distribution_of_one():
    dataset = particles(np.random.default_rng(1).uniform(0, 10, (4000, 3)))
    r, g = radial_distribution(dataset, [0], (True, True, True))
    # About 4000^2 pairs in all, 3e4 in a shell in the middle: a percent of noise, and more in the small ones.
    assert np.max(np.abs(g[r > 1.0] - 1)) < 0.05


def test_distances_count_through_periodic_sides_alone():
    dataset = particles([[0.2, 5.0], [9.9, 5.0], [5.0, 5.0]])
    nearest = {}
    for wraps in (True, False):
        r, g = radial_distribution(dataset, [0], (wraps, wraps))
        nearest[wraps] = r[g > 0].min() if np.any(g > 0) else np.inf
    assert nearest[True] == pytest.approx(0.3, abs=0.05)  # half a bin of the histogram
    assert nearest[False] > 4.0


def test_pairs_of_two_species_are_told_apart():
    lattice = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0), indexing="ij"), -1).reshape(-1, 2)
    dataset = particles(lattice, species=(lattice.sum(axis=1) % 2).astype(int))  # a chequerboard
    r, unlike = radial_distribution(dataset, [0], (True, True), (0, 1))
    _, alike = radial_distribution(dataset, [0], (True, True), (0, 0))
    assert r[unlike > 0].min() == pytest.approx(1.0, abs=0.05)
    assert r[alike > 0].min() == pytest.approx(np.sqrt(2), abs=0.05)


def test_species_have_their_own_size():
    dataset = particles(np.zeros((3, 2)), species=[0, 0, 1])
    radii = radii_of(dataset, 0.5, np.array([1.0, 2.0]))
    assert radii[2] == 2 * radii[0] and radii.mean() == pytest.approx(0.5)
    assert np.all(radii_of(dataset, 0.5, None) == 0.5)


def recorded(values, name="energy", dtype=np.float64):
    time = np.arange(len(values), dtype=float)
    return xr.Dataset({name: (("time",), np.asarray(values, dtype))}, coords={"time": time})


def test_what_hardly_changes_is_drawn_from_a_stated_offset():
    drawn = curves.curve(recorded(211.2 + 1e-4 * np.sin(np.arange(40))), "energy")
    assert "− 211.2" in drawn.label and "10⁻" in drawn.label
    low, high = drawn.limits
    assert low < drawn.values.min() and high > drawn.values.max() and high - low < 3 * np.ptp(drawn.values)


def test_rounding_is_a_flat_line():
    values = np.float32(3.0) + np.float32(3e-7) * np.arange(5)
    drawn = curves.curve(recorded(values, dtype=np.float32), "energy")
    assert drawn.label == "Energy" and drawn.limits[1] - drawn.limits[0] > 1.0


def test_the_courant_number_begins_with_the_first_step():
    drawn = curves.curve(recorded([0.0, 0.4, 0.5], "courant"), "courant")
    assert np.isnan(drawn.values[0, 0]) and drawn.limits[0] > 0.3
    # A zero of another quantity is a value.
    assert curves.curve(recorded([0.0, 0.4, 0.5]), "energy").values[0, 0] == 0.0


def test_a_singular_corner_does_not_take_the_colours():
    x = (np.arange(64) + 0.5) / 64
    vorticity = np.sin(np.pi * x)[:, None] * np.sin(np.pi * x)
    vorticity[-1, 0] = vorticity[-1, -1] = 500.0
    scalar = scalars.scalars(flows.taylor_green(64, 2))[0]
    assert scalar.name.startswith("vorticity")
    assert colours.colour_scale(scalar, [vorticity]).upper < 2.0
    # Without extremes at the sides nothing is cut off.
    assert colours.colour_scale(scalar, [np.clip(vorticity, 0, 1)]).upper == pytest.approx(1.0, rel=0.01)


def test_frames_with_nothing_to_see_are_left_out():
    dataset = flows.taylor_green(16, 9)
    quiet = dataset.copy(deep=True)
    for name in ("velocity_x", "velocity_y", "vorticity"):
        if name in quiet:
            quiet[name][:3] = 0.0
    assert scalars.shown_frames(scalars.scalars(dataset)[0], 4)[0] == 0
    shown = scalars.shown_frames(scalars.scalars(quiet)[0], 4)
    assert shown[0] >= 3 and shown[-1] == 8 and len(shown) == 4
