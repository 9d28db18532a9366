"""The animation: its frames, its fixed colours, its size, and the video encoder it may call."""

import importlib.util
import io
import re
import stat

import flows
import numpy as np
import pytest
from PIL import Image

from simjax.errors import ConfigurationError, InputOutputError
from simjax.report import animation, colours, scalars
from simjax.report.animation import write_animation
from simjax.report.animation_frames import LineStage, PlaneStage, finite_runs
from simjax.report.webp import animated_webp, frame_durations


def frames_of(path):
    with Image.open(path) as picture:
        for i in range(getattr(picture, "n_frames", 1)):
            picture.seek(i)
            yield np.asarray(picture.convert("RGB")).astype(int)


def test_the_animation_has_every_frame_and_moves(tmp_path):
    path = write_animation(flows.taylor_green(32, 12, viscosity=0.1), tmp_path / "animation.webp")
    assert path is not None
    frames = list(frames_of(path))
    assert len(frames) == 12
    assert np.abs(frames[0] - frames[-1]).max() > 60
    with Image.open(path) as picture:
        assert picture.info["loop"] == 0


@pytest.mark.slow
def test_slow_changes_leave_no_ghosts(tmp_path):
    dataset = flows.taylor_green(32, 60, viscosity=0.05)  # it fades by 1.7 % from frame to frame
    path = write_animation(dataset, tmp_path / "animation.webp", title="run")
    assert path is not None
    exact = PlaneStage(scalars.scalars(dataset)[0], range(60), "run").draw(59)
    error = np.abs(list(frames_of(path))[59] - np.asarray(exact).astype(int))
    # Lossy compression is off by a few of 256 levels; a field that was not refreshed by over a hundred.
    assert error[56:476, 64:484].mean() < 3


def test_frames_that_are_equal_are_shown_longer():
    still = Image.new("RGB", (11, 7), "white")
    other = still.copy()
    other.putpixel((10, 6), (0, 0, 0))
    stream = io.BytesIO(animated_webp([still, still, other], 3, 80))
    with Image.open(stream) as picture:
        assert picture.size == (11, 7)
        assert picture.n_frames == 2
        durations = frame_durations(3)
        for i, duration in enumerate((sum(durations[:2]), durations[2])):
            picture.seek(i)
            picture.load()
            assert picture.info["duration"] == duration


@pytest.mark.slow
def test_long_runs_are_thinned_evenly_and_keep_the_last_frame(tmp_path):
    dataset = flows.advected_pulse(16, 302)
    path = write_animation(dataset, tmp_path / "animation.webp")
    assert path is not None
    assert len(list(frames_of(path))) == 102  # every third of 302, and the last


def test_the_colour_scale_is_fixed_over_the_run():
    dataset = flows.taylor_green(32, 6)
    w = np.zeros((6, 32, 32), dtype=np.float32)
    w[:, :16] = 1.0
    w[:, 16:] = np.linspace(0.0, 2.0, 6, dtype=np.float32)[:, None, None]
    dataset["vorticity"] = (("time", "y_face", "x_face"), w)
    stage = PlaneStage(scalars.scalars(dataset)[0], range(6), "")
    left, top = stage.corners[0]
    low = (left + stage.panel[0] // 2, top + stage.panel[1] * 3 // 4)
    high = (left + stage.panel[0] // 2, top + stage.panel[1] // 4)
    pictures = [stage.draw(i) for i in range(6)]
    assert len({picture.getpixel(low) for picture in pictures}) == 1
    assert len({picture.getpixel(high) for picture in pictures}) == 6
    # y points upwards: the upper half of the field is in the upper half of the picture.
    assert pictures[-1].getpixel(high) == tuple(stage.scale.table[255])


def test_members_that_diverged_are_grey():
    dataset = flows.with_gap(flows.taylor_green_ensemble([1e-3, 1e-2, 1e-1], 16, 4), 1, 2)
    stage = PlaneStage(scalars.scalars(dataset)[0], range(4), "")
    left, top = stage.corners[1]
    middle = (left + stage.panel[0] // 3, top + stage.panel[1] // 3)
    assert stage.draw(1).getpixel(middle) != colours.MISSING_COLOUR
    assert stage.draw(2).getpixel(middle) == colours.MISSING_COLOUR


def test_the_line_follows_its_values():
    dataset = flows.advected_pulse(128, 5)
    stage = LineStage(scalars.scalars(dataset)[0], range(5), "")
    background = np.asarray(stage.empty).astype(int)
    for i in (2, 4):
        changed = np.abs(np.asarray(stage.draw(i)).astype(int) - background).sum(axis=2)
        below_the_time = changed[stage.corner[1] :] > 200
        highest = below_the_time[below_the_time.any(axis=1).argmax()]
        peak = np.nonzero(highest)[0].mean() - stage.corner[0]
        expected = 600 * float(dataset["x"][int(dataset["concentration"].values[i].argmax())])
        assert peak == pytest.approx(expected, abs=8)  # pixels, of 600: the cells are five wide


def test_runs_of_finite_values():
    y = np.array([np.nan, 1, 2, np.nan, 3, np.inf, 4, 5, 6])
    assert finite_runs(y) == [slice(1, 3), slice(6, 9)]
    assert finite_runs(np.full(3, np.nan)) == []


def test_the_animation_stays_below_its_limit(tmp_path):
    path = write_animation(flows.noise(192, 20), tmp_path / "animation.webp", size_limit=300_000)
    assert path is not None
    assert 50_000 < path.stat().st_size <= 300_000
    assert len(list(frames_of(path))) >= 7


def test_mp4_needs_ffmpeg(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if "ffmpeg" in name else find(name))
    monkeypatch.setattr(animation.shutil, "which", lambda name: None)
    with pytest.raises(ConfigurationError, match="pip install imageio-ffmpeg"):
        write_animation(flows.taylor_green(8, 2), tmp_path / "animation.mp4")
    assert not list(tmp_path.iterdir())


def encoder(tmp_path, monkeypatch, body: str):
    """A stand-in for ffmpeg: a shell script that gets the pictures on its standard input."""
    script = tmp_path / "encoder"
    script.write_text(f"#!/bin/sh\nfor last; do :; done\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(animation, "_ffmpeg", lambda: str(script))


def test_mp4_gets_every_picture_in_even_sizes(tmp_path, monkeypatch):
    encoder(tmp_path, monkeypatch, 'cat > "$last"; echo "$@" > "${last%/*}/arguments"')
    path = write_animation(flows.taylor_green(8, 3), tmp_path / "animation.mp4")
    width, height = (int(n) for n in re.findall(r"-s (\d+)x(\d+)", (tmp_path / "arguments").read_text())[0])
    assert width % 2 == height % 2 == 0
    assert path is not None and path.stat().st_size == 3 * 3 * width * height


def test_a_failing_encoder_leaves_no_file(tmp_path, monkeypatch):
    encoder(tmp_path, monkeypatch, "cat > /dev/null; echo no such codec >&2; exit 3")
    with pytest.raises(InputOutputError, match="no such codec"):
        write_animation(flows.taylor_green(8, 3), tmp_path / "animation.mp4")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["encoder"]
