"""The summary figure: what is drawn of a run, in which colours, with which labels, and gaps."""

import itertools
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import flows
import numpy as np
import pytest
import xarray as xr
from paths import SUPPORT
from PIL import Image

from simjax.errors import InputOutputError
from simjax.report import colours, curves, scalars
from simjax.report.animation import write_animation
from simjax.report.labels import duration, metric, number, pretty_units, tick_labels, time_labels
from simjax.report.run_report import RunReport, write_report
from simjax.report.summary import write_summary


def line_ensemble() -> xr.Dataset:
    members = [flows.advected_pulse(32, 5) * scale for scale in (1.0, 2.0, np.nan)]
    return xr.concat(members, dim="member").assign_coords(member=[0, 1, 2])


CASES = {
    "line": lambda: flows.advected_pulse(64, 7),
    "line, one frame": lambda: flows.advected_pulse(64, 7).isel(time=slice(0, 1)),
    "line, members": line_ensemble,
    "plane": lambda: flows.taylor_green(24, 5),
    "plane, one frame": lambda: flows.taylor_green(24, 1),
    "plane, no frame": lambda: flows.taylor_green(24, 2).isel(time=slice(0, 0)),
    "plane, one cell": lambda: flows.taylor_green(1, 2),
    "plane, not finite": lambda: flows.taylor_green(24, 3) * np.nan,
    "plane, infinite": lambda: flows.taylor_green(24, 3) * np.inf,
    "plane, huge": lambda: flows.taylor_green(24, 3) * 2e38,
    "plane, zero": lambda: flows.taylor_green(24, 3) * 0.0,
    "plane, constant": lambda: flows.taylor_green(24, 3) * 0.0 + 3.0,
    "plane, tiny": lambda: flows.taylor_green(24, 3) * 1e-30,
    "plane, velocity alone": lambda: flows.taylor_green(24, 3)[["velocity_x", "velocity_y"]],
    "plane, one component": lambda: flows.taylor_green(24, 3)[["velocity_y"]],
    "plane, members": lambda: flows.with_gap(flows.taylor_green_ensemble([1e-3, 1e-2, 1e-1], 16, 4), 1, 2),
    "plane, one member": lambda: flows.taylor_green_ensemble([1e-3], 16, 4),
    "space": lambda: flows.taylor_green_3d(8, 3),
    "space, velocity alone": lambda: flows.taylor_green_3d(8, 3)[["velocity_x", "velocity_y", "velocity_z"]],
    "diagnostics alone": lambda: flows.taylor_green(8, 5)[["kinetic_energy", "courant"]],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_every_kind_of_run_is_drawn_without_a_warning(name, tmp_path):
    dataset = CASES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_summary(dataset, tmp_path / "summary.png", title=flows.HOSTILE)
        animated = write_animation(dataset, tmp_path / "animation.webp", title=flows.HOSTILE)
        page = write_report(tmp_path, dataset, RunReport("A run")).read_text()
    with Image.open(tmp_path / "summary.png") as picture:
        assert picture.width == 1430
        assert np.asarray(picture.convert("L")).std() > 2  # something is drawn
    fields = dataset.sizes["time"] > 0 and bool(scalars.scalars(dataset))
    assert (animated is not None) == fields == ("data:image/webp" in page)
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.slow
def test_figures_are_the_same_in_threads(tmp_path):
    datasets = [flows.taylor_green(16, 2), flows.advected_pulse(32, 3), flows.taylor_green_3d(8, 1)]

    def draw(i):
        path = tmp_path / f"{i}.png"
        write_summary(datasets[i % 3], path)
        return path.read_bytes()

    alone = [draw(i) for i in range(3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(draw, range(3, 9))) == alone * 2


@pytest.mark.slow
def test_pyplot_is_never_loaded(tmp_path):
    script = (
        "import sys, pathlib, flows; from simjax.report.summary import write_summary\n"
        "from simjax.report.animation import write_animation\n"
        "from simjax.report.run_report import RunReport, write_report\n"
        "run, folder = flows.taylor_green(8, 2), pathlib.Path(sys.argv[1])\n"
        "write_summary(run, folder / 'summary.png'); write_animation(run, folder / 'animation.webp')\n"
        "write_report(folder, run, RunReport('run')); assert 'matplotlib.pyplot' not in sys.modules"
    )
    paths = os.pathsep.join([str(SUPPORT), *(p for p in sys.path if p)])
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, env=environment)


def test_speed_is_the_magnitude_at_cell_centres():
    errors = []
    for n in (32, 64):
        dataset = flows.taylor_green(n, 1)
        speed = next(s for s in scalars.scalars(dataset) if s.name == "speed")
        x, y = speed.coordinate("x"), speed.coordinate("y")
        u, v = np.sin(x) * np.cos(y)[:, None], -np.cos(x) * np.sin(y)[:, None]
        # The last cells have no upper face in the file, so they are left out.
        errors.append(np.abs(speed.values(0) ** 2 - (u**2 + v**2))[:-1, :-1].max())
    # Averaging two faces is of second order: four times less with twice the cells, within 10 %.
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.1)


def test_a_cut_reads_the_plane_that_its_title_names():
    dataset = flows.taylor_green_3d(8, 2)
    main = scalars.scalars(dataset)[0]
    for axis in "xyz":
        cut, place = main.mid_plane(axis)
        plane = dataset["vorticity_magnitude"].isel(time=1, **cut)
        np.testing.assert_array_equal(main.values(1, cut=cut), plane.values)
        assert place == f"{axis} = {number(float(plane[axis]))} m"
    speed = next(s for s in scalars.scalars(dataset) if s.name == "speed")
    for axis in range(3):
        cut, _ = speed.mid_plane("zyx"[axis])
        np.testing.assert_allclose(speed.values(1, cut=cut), speed.values(1).take(4, axis), rtol=1e-6)


def test_a_run_that_diverged_is_shown_up_to_its_last_finite_frame():
    dataset = flows.taylor_green(16, 21)
    main = scalars.scalars(dataset)[0]
    assert scalars.last_finite(main) == 20
    for lost in range(21):
        later = xr.DataArray(np.arange(21) >= lost, dims="time")
        main = scalars.scalars(dataset.assign(vorticity=dataset["vorticity"].where(~later, np.inf)))[0]
        assert scalars.last_finite(main) == max(lost - 1, 0)


def test_what_is_drawn_first():
    assert [s.name for s in scalars.scalars(flows.taylor_green(8, 1))] == ["vorticity", "speed", "pressure"]
    assert scalars.scalars(flows.taylor_green_3d(8, 1))[0].name == "vorticity_magnitude"
    assert scalars.scalars(flows.advected_pulse(8, 1))[0].name == "concentration"
    assert curves.diagnostics(flows.taylor_green(8, 1))[:2] == ["kinetic_energy", "enstrophy"]


def test_the_scale_of_vorticity_is_symmetric_about_zero():
    vorticity = scalars.scalars(flows.taylor_green(8, 1))[0]
    values = np.linspace(-1.0, 7.0, 1001).reshape(7, 143)
    scale = colours.colour_scale(vorticity, [values])
    assert scale.palette == "balance"
    assert scale.lower == -scale.upper == -7.0
    assert scale.extend == "neither"
    ends = scale.colours(np.array([-7.0, 7.0, -99.0, 99.0]))
    np.testing.assert_array_equal(ends, scale.table[[0, 255, 0, 255]])
    np.testing.assert_array_equal(scale.colours(np.array([np.nan, np.inf])), [colours.MISSING_COLOUR] * 2)


def test_rare_extremes_do_not_wash_out_the_picture():
    vorticity = scalars.scalars(flows.taylor_green(8, 1))[0]
    values = np.sin(np.arange(10_000.0))
    values[17] = 500.0
    scale = colours.colour_scale(vorticity, [values])
    assert scale.upper == pytest.approx(1.0, rel=1e-3)
    assert scale.extend == "max"  # the colour bar says that something lies beyond


def test_scales_of_one_sign_begin_at_zero_and_others_are_as_wide_as_the_values():
    dataset = flows.advected_pulse(8, 1)
    concentration = scalars.scalars(dataset)[0]
    assert (scale := colours.colour_scale(concentration, [np.array([0.0, 0.5, 2.0])])).lower == 0.0
    assert scale.upper == 2.0 and scale.palette == "thermal"
    far = colours.colour_scale(concentration, [np.array([280.0, 300.0])])
    assert (far.lower, far.upper) == (280.0, 300.0)
    both = colours.colour_scale(concentration, [np.array([-1.0, 0.8])])
    assert (both.lower, both.upper, both.palette) == (-1.0, 1.0, "balance")


def test_missing_colour_maps_are_named(monkeypatch):
    colours.palette_table.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputOutputError, match="pip install cmocean"):
        colours.palette_table("balance")


def test_block_means_keep_the_integral():
    values = np.random.default_rng(1).standard_normal((13, 8))
    reduced = scalars.reduce_to(values, 5)
    assert reduced.shape == (5, 4)
    widths = np.array([3, 3, 3, 3, 1])[:, None] * np.full((1, 4), 2)
    assert (reduced * widths).sum() == pytest.approx(values.sum())  # rounding only
    assert scalars.reduce_to(values, 13) is values


def test_spread_has_both_ends():
    for count, most in itertools.product(range(1, 30), range(2, 9)):
        chosen = scalars.spread(count, most)
        assert len(chosen) == min(count, most) == len(set(chosen))
        assert chosen[0] == 0 and chosen[-1] == count - 1


def test_ticks_are_told_apart():
    for base, step in itertools.product((0.0, 1.0, 100.0, 1e5, 3e-7), (1e-9, 2.5e-4, 0.5, 20.0)):
        ticks = [base + i * step for i in range(5)]
        if step > 1e-10 * base:  # below, they are near the rounding of float64
            assert len(set(tick_labels(ticks))) == 5, ticks
    assert tick_labels([0.0, 0.25, 0.5]) == ["0", "0.25", "0.50"]
    assert tick_labels([-2e-6, 0.0, 2e-6]) == ["−2×10⁻⁶", "0", "2×10⁻⁶"]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(0.00125), "0.00125"),
        (number(-2.5e-7), "−2.5×10⁻⁷"),
        (number(1e-4), "10⁻⁴"),
        (number(12345.678), "12346"),
        (number(float("nan")), "not a number"),
        (pretty_units("m2 s-1"), "m² s⁻¹"),
        (pretty_units("1"), ""),
        (metric(5.236e7, "cells/s"), "52.4 Mcells/s"),
        (metric(999.96e3), "1.00 M"),
        (metric(12, "B"), "12 B"),
        (duration(0.42), "0.42 s"),
        (duration(59.7), "1 min 00 s"),
        (duration(3725), "1 h 02 min"),
        (duration(200_000), "2 d 07 h"),
        (duration(float("nan")), "unknown"),
    ],
)
def test_numbers_as_text(shown, expected):
    assert shown == expected


def test_times_as_text():
    assert time_labels([0.0, 0.1, 0.2], "s") == ["t = 0.0 s", "t = 0.1 s", "t = 0.2 s"]
    assert time_labels([0.0, 1 / 3, 2 / 3], "1") == ["t = 0.00", "t = 0.33", "t = 0.67"]
    assert len(set(time_labels([i * 1e-6 for i in range(9)], "s"))) == 9
