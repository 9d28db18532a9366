"""report.html: the record of a run in one self-contained file without scripts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from simjax.io.formats import output_formats
from simjax.io.readable import readable
from simjax.report import html
from simjax.report.balance_table import balance_tables
from simjax.report.check import Check
from simjax.report.config_difference import Difference, differences, marked_yaml
from simjax.report.instrument_pictures import instrument_figures
from simjax.report.labels import duration, metric
from simjax.report.profile_table import profile_section
from simjax.report.statistics_pictures import statistics_figures
from simjax.report.summary import describe
from simjax.report.svg_curves import curve_figures
from simjax.report.wall_pictures import wall_figures

if TYPE_CHECKING:
    import xarray as xr

_ANIMATIONS = ("animation.webp", "animation.mp4")


@dataclass(frozen=True)
class RunReport:
    """Content of the report beside the fields; empty or NaN where it is not known.

    `units` are of what is counted and of the speed; `outcome` is a short sentence such as "completed" or "stopped by
    SIGTERM at t = 3.2 s, resumable"; `goodput` is the wall-clock time in s by activity; `notes` are sentences the user
    should not miss, such as a shortened last step or a regridded field.
    """

    title: str
    description: str = ""
    checks: Sequence[Check] = ()
    config_yaml: str = ""
    defaults_yaml: str = ""
    command: str = ""
    resume_command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    wall_seconds: float = math.nan
    compile_seconds: float = math.nan
    updates_per_second: float = math.nan
    units: tuple[str, str] = ("cells", "cells/s")
    goodput: Mapping[str, float] = field(default_factory=dict)
    steps: int | None = None
    run_id: str = ""
    started: str = ""
    outcome: str = "completed"
    notes: Sequence[str] = ()


def write_report(folder: Path, dataset: xr.Dataset, report: RunReport) -> Path:
    """Write `folder`/report.html, below 3 MB, and return its path.

    What the instruments of the run saw, and its statistics in time, are read from `folder`.

    summary.png and animation.webp or .mp4 are taken from `folder` where they are there and inlined, the
    animation more coarsely where it would make the page too large. All text is escaped.
    """
    folder, dataset = Path(folder), readable(dataset)
    parts = [
        _header(dataset, report),
        html.picture(folder / "summary.png", "Summary", "fields at several times and diagnostics"),
        _diagnostics(dataset),
        _balances(folder),
        _instruments(folder),
        _statistics(folder, report),
        _again(folder, report),
        _configuration(report),
        profile_section(folder),
        _goodput(report),
        _environment(report),
        html.files(folder),
    ]
    version = report.versions.get("simjax", "")
    # The animation takes the room that the rest leaves.
    return html.write_page(
        folder / "report.html", report.title, parts, lambda room: _animation_and_verdicts(folder, report, room), version
    )


def _header(dataset: xr.Dataset, report: RunReport) -> str:
    failed = sum(not verdict.passed for verdict in report.checks)
    count = len(report.checks)
    good = report.outcome == "completed" or report.outcome.startswith("completed: ")
    badges = [(report.outcome[:1].upper() + report.outcome[1:], "good" if good else "bad")]
    if count:
        checks = "1 check" if count == 1 else f"{count} checks"
        text = f"{failed} of {checks} failed" if failed else f"{'all ' if count > 1 else ''}{checks} passed"
        badges.append((text[:1].upper() + text[1:], "bad" if failed else "good"))
    facts = {
        "Particles" if "particle" in dataset.sizes else "Fields": describe(dataset),
        "Steps": "" if report.steps is None else f"{report.steps:,}".replace(",", " "),
        "Speed": _known(report.updates_per_second, metric(report.updates_per_second, report.units[1])),
        "Wall time": _known(report.wall_seconds, duration(report.wall_seconds)),
        "Compilation": _known(report.compile_seconds, duration(report.compile_seconds)),
        "Device": report.device,
        "Started": report.started,
    }
    above = " · ".join(part for part in ("simjax run", report.run_id) if part)
    return html.header(above, report.title, report.description, badges, report.notes, facts)


def _known(value: float, text: str) -> str:
    return text if math.isfinite(value) else ""


def _animation_and_verdicts(folder: Path, report: RunReport, room: int) -> str:
    there = [folder / name for name in _ANIMATIONS if (folder / name).is_file()]
    animation = html.animation(there[0], "Animation", "the run, animated", room) if there else ""
    checks = _verdicts(report)
    both = animation + checks
    return f'<div class="pair">{both}</div>' if animation and checks else both


def _verdicts(report: RunReport) -> str:
    if not report.checks:
        return ""
    rows = []
    for verdict in report.checks:
        style, word = ("passed", "✓ passed") if verdict.passed else ("failed", "✗ failed")
        expected = f'<span class="expected">expected {escape(verdict.expected)}</span>'
        result = f"<td>{escape(verdict.value)}{expected if verdict.expected else ''}</td>"
        rows.append(f'<tr><td>{escape(verdict.name)}</td>{result}<td class="verdict {style}">{word}</td></tr>')
    return html.section("Checks", html.table(("Check", "Result", ""), rows))


def _diagnostics(dataset: xr.Dataset) -> str:
    drawn = [f"<figure><figcaption>{title}</figcaption>{drawing}</figure>" for title, drawing in curve_figures(dataset)]
    if not drawn:
        return ""
    style = "curves two" if len(drawn) in (1, 2, 4) else "curves"
    return html.section("Diagnostics over time", f'<div class="{style}">{"".join(drawn)}</div>')


def _instruments(folder: Path) -> str:
    drawn = "".join(instrument_figures(folder))
    return html.section("Instruments", f'<div class="curves two">{drawn}</div>') if drawn else ""


def _balances(folder: Path) -> str:
    tables = "".join(balance_tables(folder))
    return html.section("Balances", tables) if tables else ""


def _statistics(folder: Path, report: RunReport) -> str:
    drawn = "".join([*wall_figures(folder, report.config_yaml), *statistics_figures(folder)])
    return html.section("Statistics in time", f'<div class="curves two">{drawn}</div>') if drawn else ""


def _again(folder: Path, report: RunReport) -> str:
    """Instructions to run it again, go on with it, and open what it wrote."""
    blocks = [("Run it again", report.command), ("Resume it", report.resume_command)]
    found = [(form.programs[0], form.opening(folder)) for form in output_formats()]
    openings = [(f"Open it with {program}", opening) for program, opening in found if opening]
    if openings:
        simjax = ("Open it with simjax", f"import simjax as sj\n\nds = sj.open_run({str(folder)!r})")
        blocks += [simjax, *openings]
    shown = html.code_blocks(blocks)
    return html.section("Again, and further", shown) if shown else ""


def _configuration(report: RunReport) -> str:
    if not report.config_yaml:
        return ""
    found = differences(report.config_yaml, report.defaults_yaml)
    rows = [_difference_row(difference) for difference in found]
    content = html.table(("Key", "This run", "Default"), rows) if rows else "<p>Every value is the default.</p>"
    full = marked_yaml(report.config_yaml, {difference.key for difference in found})
    return html.section(
        "Configuration",
        f"{content}<details><summary>The whole configuration</summary><pre>{full}</pre></details>",
    )


def _difference_row(difference: Difference) -> str:
    value = f"<td><mark><code>{escape(difference.value)}</code></mark></td>"
    default = f"<td><code>{escape(difference.default)}</code></td>"
    return f"<tr><td><code>{escape(difference.key)}</code></td>{value}{default}</tr>"


def _goodput(report: RunReport) -> str:
    """Shares of the wall-clock time, over all parts of the run: a bar and a table."""
    spent = {name: seconds for name, seconds in report.goodput.items() if seconds > 0}
    total = sum(spent.values())
    if not total:
        return ""
    pieces = [
        f'<span class="{escape(name)}" style="width:{100 * seconds / total:.3f}%" title="{escape(name)}"></span>'
        for name, seconds in spent.items()
    ]
    rows = [
        f'<tr><td><i class="key {escape(name)}"></i>{escape(name)}</td><td>{escape(duration(seconds))}</td>'
        f"<td>{100 * seconds / total:.1f} %</td></tr>"
        for name, seconds in spent.items()
    ]
    bar = f'<div class="bar">{"".join(pieces)}</div>'
    return html.section("Where the time went", bar + html.table(("Activity", "Wall time", "Share"), rows))


def _environment(report: RunReport) -> str:
    entries = {"device": report.device, **report.versions}
    rows = [html.text_row((name, value)) for name, value in entries.items() if value]
    return html.section("Environment", html.table(("", "Version"), rows)) if rows else ""
