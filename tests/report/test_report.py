"""The report: it holds what it promises, is small, runs nothing, and takes no text for markup."""

import re
from html.parser import HTMLParser

import flows
import numpy as np
import pytest
import yaml

from simjax.report.animation import write_animation
from simjax.report.config_difference import differences, marked_yaml
from simjax.report.curves import without_spike
from simjax.report.run_report import Check, RunReport, write_report
from simjax.report.summary import write_summary
from simjax.report.svg_curves import curve_figures


class Page(HTMLParser):
    """The tags, attributes and text of a page; raises where tags do not close in order."""

    EMPTY = frozenset({"meta", "img", "br", "path", "circle"})

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.marked: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.extend(attrs)
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.extend(attrs)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, text):
        if "style" not in self._open:
            self.text += text
        if "mark" in self._open:
            self.marked.append(text)


def full_report(**changes) -> RunReport:
    described = {
        "title": "Shear layer",
        "checks": [
            Check("Divergence", "1.3e-13", "below 1e-12", True),
            Check("Momentum", "3e-2", "below 1e-3", False),
        ],
        "config_yaml": "time:\n  end: 2.0\n  dt: null\nseed: 0\n",
        "defaults_yaml": "time:\n  end: 10.0\n  dt: null\nseed: 0\n",
        "command": "python -m simjax.run +experiment=shear_layer",
        "resume_command": "python -m simjax.run resume=outputs/shear_layer/1",
        "versions": {"simjax": "0.1.0", "jax": "0.10.2"},
        "device": "cpu",
        "wall_seconds": 12.0,
        "updates_per_second": 5.2e7,
    }
    return RunReport(**(described | changes))


def written(folder, dataset, report) -> str:
    (folder / "fields.h5").touch()
    (folder / "fields.m0000.vtkhdf").touch()
    write_summary(dataset, folder / "summary.png")
    write_animation(dataset, folder / "animation.webp")
    return write_report(folder, dataset, report).read_text(encoding="utf-8")


def test_the_report_holds_what_it_promises(tmp_path):
    page = Page(written(tmp_path, flows.taylor_green(16, 3), full_report()))
    for text in (
        "Shear layer",
        "Divergence",
        "1.3e-13",
        "below 1e-12",
        "✓ passed",
        "Momentum",
        "✗ failed",
        "1 of 2 checks failed",
        "python -m simjax.run +experiment=shear_layer",
        "resume=outputs/shear_layer/1",
        "sj.open_run(",
        "xr.open_dataset(",
        "paraview ",
        "fields.h5",
        "0.10.2",
        "12 s",
        "52.0 Mcells/s",
        "Kinetic energy",
        "16 × 16 cells, 3 frames",
    ):
        assert text in page.text
    assert page.tags.count("img") == 2
    assert page.tags.count("svg") == 4
    assert page.marked == ["2.0", "  end: 2.0"]  # the value in the table, the line in the whole text


def test_the_report_runs_nothing_and_loads_nothing(tmp_path):
    dataset = flows.taylor_green(16, 3)
    text = written(tmp_path, dataset, full_report())
    page = Page(text)
    assert "<script" not in text.lower()
    assert not {"script", "link", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on")
        if name == "src":
            assert value.startswith("data:image/")
        if name == "href":
            assert (tmp_path / value).is_file()
    assert not re.search(r"url\(|@import|https?:", text)


def test_hostile_text_stays_text(tmp_path):
    dataset = flows.taylor_green_ensemble([1e-3, 1e-2], 8, 2).rename({"enstrophy": flows.HOSTILE})
    dataset["vorticity"].attrs["long_name"] = flows.HOSTILE
    dataset["kinetic_energy"].attrs.update(long_name=flows.HOSTILE, units=flows.HOSTILE)
    dataset["time"].attrs["units"] = flows.HOSTILE
    plain = ("title", "description", "command", "resume_command", "device", "run_id", "started", "outcome")
    report = full_report(
        **dict.fromkeys(plain, flows.HOSTILE),
        checks=[Check(flows.HOSTILE, flows.HOSTILE, flows.HOSTILE, True)],
        config_yaml=yaml.safe_dump({"title": flows.HOSTILE}),
        defaults_yaml="",
        versions={flows.HOSTILE: flows.HOSTILE},
        notes=[flows.HOSTILE],
    )
    (tmp_path / "a 'quoted' <i>\"name\".txt").touch()
    page = Page(written(tmp_path, dataset, report))
    assert not {"script", "i"} & set(page.tags)
    assert page.tags.count("img") == 2  # the figure and the animation
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count(flows.HOSTILE) > 10


@pytest.mark.slow
def test_the_report_stays_below_three_megabytes(tmp_path):
    dataset = flows.noise(256, 30)
    write_summary(dataset, tmp_path / "summary.png")
    write_animation(dataset, tmp_path / "animation.webp", size_limit=10_000_000)
    assert (tmp_path / "animation.webp").stat().st_size > 2_300_000  # too large as it is
    page = write_report(tmp_path, dataset, full_report())
    assert page.stat().st_size < 3_000_000
    assert page.read_text().count("data:image/") == 2


def test_a_large_video_is_linked_instead(tmp_path):
    (tmp_path / "animation.mp4").write_bytes(bytes(3_000_000))
    text = write_report(tmp_path, flows.taylor_green(8, 2), full_report()).read_text()
    assert len(text) < 3_000_000 and "<video" not in text
    (tmp_path / "animation.mp4").write_bytes(bytes(30_000))
    text = write_report(tmp_path, flows.taylor_green(8, 2), full_report()).read_text()
    assert 'src="data:video/mp4;base64,AAAA' in text


def test_curves_break_at_gaps():
    dataset = flows.taylor_green(8, 9)
    energy = dataset["kinetic_energy"].values.copy()
    energy[4] = np.nan
    dataset["kinetic_energy"] = ("time", energy)
    drawings = dict(curve_figures(dataset))
    assert len(re.findall(r"M[\d.]+ [\d.]+L", drawings["Kinetic energy"])) == 2
    dataset["kinetic_energy"] = ("time", energy * np.nan)
    assert "no finite values" in dict(curve_figures(dataset))["Kinetic energy"]


def test_differences_from_the_defaults():
    config = "a: 1.0\nb: {c: x, d: [1, 2]}\ng:\n  h: 2\n"
    found = {d.key: (d.value, d.default) for d in differences(config, "a: 1\nb: {c: y, d: [1, 2]}\ne: true\ng: null\n")}
    assert found == {"b.c": ("x", "y"), "g.h": ("2", "–"), "e": ("–", "true")}
    assert differences(config, config) == []


def test_only_the_lines_that_differ_are_marked():
    text = "a:\n- 1\n- <b>\nb: 1\nc:\n  d: |\n    two\n    lines\n  e: {f: 1,\n    g: 2}\n  h: 3\n"
    marked = [i for i, line in enumerate(marked_yaml(text, {"a", "c.d", "c.e.g"}).split("\n")) if "<mark>" in line]
    assert marked == [0, 1, 2, 5, 6, 7, 9]
    assert "&lt;b&gt;" in marked_yaml(text, set())


@pytest.mark.parametrize(
    ("first", "left_out"),
    [(64.0, True), (-60.0, True), (9.1, True), (8.9, False), (4.0, False), (-3.0, False), (np.nan, False)],
)
def test_a_spike_at_the_start_is_left_out_of_a_curve(first, left_out):
    """The others reach from 3 to 4.5: 4.5 above them, three times their range, is the limit."""
    values = np.array([[first, 3.0, 3.5, 4.5, 4.0, 3.9]])
    shown, note = without_spike(values)
    assert np.isnan(shown[0, 0]) == (left_out or np.isnan(first)) and (note != "") == left_out
    np.testing.assert_array_equal(shown[:, 1:], values[:, 1:])
    few = values[:, :4]
    assert without_spike(few)[0] is few
    # Hardly anything changes in all: the first differs by much of the range, and by little of the size.
    steady = np.array([[1.01, 1.0, 1.0, 1.0, 1.0, 1.0]])
    assert without_spike(steady)[0] is steady
