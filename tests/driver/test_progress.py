"""The progress display: plain lines, rates and remaining times, against a clock that the test sets."""

import io
import math

import pytest

from simjax.driver.loop.progress import Progress


class Clock:
    """A clock that shows what the test says."""

    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock():
    return Clock()


def plain(clock, **options):
    stream = io.StringIO()
    return stream, Progress("Shear layer", 10.0, 65536, stream=stream, clock=clock, **options)


def test_remaining_time_follows_from_the_recent_speed(clock):
    _, progress = plain(clock)
    progress.start()
    clock.now += 20.0  # compilation must not count
    progress.update(1.0, 100, 1e6, {})
    assert math.isnan(progress.remaining)
    clock.now += 2.0
    progress.update(2.0, 200, 1e6, {})
    assert progress.remaining == pytest.approx(16.0)  # 8 units of time left at 1 per 2 s
    clock.now += 3.0
    assert progress.remaining == pytest.approx(13.0)  # it counts down between updates
    assert progress.elapsed == pytest.approx(25.0)


def test_remaining_time_forgets_what_is_long_ago(clock):
    _, progress = plain(clock)
    progress.start()
    for i in range(1, 21):  # 0.1 per 10 s
        progress.update(0.1 * i, i, 1e6, {})
        clock.now += 10.0
    for i in range(1, 61):  # then 0.1 per 1 s, for longer than the window
        progress.update(2.0 + 0.1 * i, 20 + i, 1e6, {})
        clock.now += 1.0
    clock.now -= 1.0
    assert progress.remaining == pytest.approx(20.0)  # (10 - 8) / 0.1 per second


def test_a_resumed_run_begins_at_nought(clock):
    _, progress = plain(clock, start_time=6.0)
    progress.start()
    assert progress.fraction == 0.0
    progress.update(7.0, 700, 1e6, {})
    clock.now += 1.0
    progress.update(8.0, 800, 1e6, {})
    assert progress.fraction == pytest.approx(0.5)
    assert progress.remaining == pytest.approx(2.0)


def test_at_the_end_nothing_remains(clock):
    _, progress = plain(clock)
    progress.start()
    progress.update(10.0, 1000, 1e6, {})
    assert progress.fraction == 1.0
    assert progress.remaining == 0.0


def test_plain_output_is_lines_without_control_characters(clock):
    stream, progress = plain(clock)
    progress.start()
    values = {"energy": 0.25, "largest_divergence": 2.5e-13, "courant": 0.5, "other": 3.0, "more": 1.0}
    progress.update(2.5, 250, 5.24e7, values)
    clock.now += 6.0
    progress.update(5.0, 500, 5.24e7, values)
    progress.message("checkpoint [written]")
    progress.finish("done")
    lines = stream.getvalue().splitlines()
    assert "65 536 cells" in lines[0]
    assert "25.0 %" in lines[1] and "ETA" not in lines[1]
    assert "50.0 %" in lines[2]
    assert "52.4 Mcells/s" in lines[2]
    assert "ETA 12 s" in lines[2]
    # Those of the steps come first and under short names; four have room.
    assert lines[2].endswith("CFL 0.5  energy 0.25  largest divergence 2.5e-13  other 3")
    assert lines[3:] == ["checkpoint [written]", "done"]
    assert not set(stream.getvalue()) & {"\x1b", "\r", "\b"}


def test_plain_lines_come_at_most_every_interval(clock):
    stream, progress = plain(clock, interval=5.0)
    progress.start()
    for i in range(101):  # 50 s, two updates a second
        progress.update(0.1 * i, i, 1e6, {})
        clock.now += 0.5
    progress.finish("")
    # The announcement, the first update, and one every 5 s of the remaining 50 s.
    assert len(stream.getvalue().splitlines()) == 1 + 1 + 10


def test_a_stream_that_cannot_encode_the_title_still_gets_the_line(clock):
    binary = io.BytesIO()
    stream = io.TextIOWrapper(binary, encoding="ascii")
    progress = Progress("Größe", 1.0, 8, stream=stream, clock=clock)
    progress.start()
    progress.finish("done")
    assert binary.getvalue().decode("ascii").startswith("Gr??e: 8 cells")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_shown(clock, value):
    stream, progress = plain(clock)
    progress.start()
    progress.update(1.0, 1, math.nan, {"energy": value})
    assert stream.getvalue().rstrip().endswith(f"energy {value}")
    assert "cells/s" not in stream.getvalue()


def test_the_live_block_shows_the_same_numbers(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = Progress("Shear layer", 10.0, 65536, stream=stream, clock=clock)
    progress.start()
    progress.update(2.0, 200, 5.24e7, {"courant": 0.5})
    clock.now += 4.0
    progress.update(4.0, 400, 5.24e7, {"courant": 0.5})
    progress.message("a word [bold]in between")
    progress.finish("done")
    shown = stream.getvalue()
    for text in ("Shear layer", "40.0 %", "ETA 12 s", "52.4 Mcells/s", "a word [bold]in between"):
        assert text in shown
    assert "\x1b[" in shown  # it was redrawn in place
    assert shown.endswith("done\n")


def test_a_dumb_terminal_gets_plain_lines(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    progress = Progress("Shear layer", 10.0, 65536, stream=stream, clock=clock)
    progress.start()
    progress.update(2.0, 200, 5.24e7, {})
    progress.finish("done")
    assert "\x1b" not in stream.getvalue()
    assert "20.0 %" in stream.getvalue()


def test_importing_progress_loads_nothing_heavy():
    import subprocess
    import sys

    heavy = "{'jax', 'numpy', 'matplotlib', 'xarray', 'h5py', 'rich', 'PIL'}"
    script = f"import sys, simjax.driver.loop.progress; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
