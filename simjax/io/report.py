"""report.html: what a run did, in one file that needs nothing beside it and runs no script."""

from __future__ import annotations

import base64
import io
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from PIL import Image

from simjax.io.animation import encode_webp
from simjax.io.config_difference import Difference, differences, marked_yaml
from simjax.io.curves import curve_figures
from simjax.io.figure import describe
from simjax.io.files import replaced
from simjax.io.labels import duration, metric

if TYPE_CHECKING:
    import xarray as xr

SIZE_LIMIT = 3_000_000
_FIGURE_LIMIT = 600_000  # bytes of summary.png above which the report holds it as WebP
_POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
_ANIMATIONS = ("animation.webp", "animation.mp4")


@dataclass(frozen=True)
class Verdict:
    """One check of a run: what came out, what was expected, and whether that is good enough."""

    name: str
    value: str
    expected: str
    passed: bool


@dataclass(frozen=True)
class RunReport:
    """What the report says beside the fields; empty or NaN where it is not known.

    `outcome` is a short sentence such as "completed" or "stopped by SIGTERM at t = 3.2 s, resumable";
    `notes` are sentences the user should not miss, such as a shortened last step or a regridded field.
    """

    title: str
    description: str = ""
    verdicts: Sequence[Verdict] = ()
    config_yaml: str = ""
    defaults_yaml: str = ""
    command: str = ""
    resume_command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    wall_seconds: float = math.nan
    compile_seconds: float = math.nan
    cell_updates_per_second: float = math.nan
    steps: int | None = None
    run_id: str = ""
    started: str = ""
    outcome: str = "completed"
    notes: Sequence[str] = ()


def write_report(folder: Path, dataset: xr.Dataset, report: RunReport) -> Path:
    """Write `folder`/report.html, below 3 MB, and return its path.

    summary.png and animation.webp or .mp4 are taken from `folder` where they are there and inlined, the
    animation more coarsely where it would make the page too large. All text is escaped.
    """
    folder = Path(folder)
    parts = [
        _header(dataset, report),
        "",  # the animation takes the room that the rest leaves
        _summary(folder),
        _diagnostics(dataset),
        _again(folder, report),
        _configuration(report),
        _environment(report),
        _files(folder),
    ]
    head = _head(report)
    version = escape(report.versions.get("simjax", ""))
    foot = f"<footer>Written by simjax {version}</footer></main></body></html>\n"
    spent = len((head + "".join(parts) + foot).encode())
    parts[1] = _animation_and_verdicts(folder, report, SIZE_LIMIT - spent - 20_000)
    path = folder / "report.html"
    with replaced(path) as temporary:
        temporary.write_text(head + "".join(parts) + foot, encoding="utf-8", errors="replace")
    return path


def _head(report: RunReport) -> str:
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(report.title)}</title><style>{style}</style></head><body><main>"
    )


def _header(dataset: xr.Dataset, report: RunReport) -> str:
    failed = sum(not verdict.passed for verdict in report.verdicts)
    count = len(report.verdicts)
    badges = [(report.outcome[:1].upper() + report.outcome[1:], "good" if report.outcome == "completed" else "bad")]
    if count:
        checks = "1 check" if count == 1 else f"{count} checks"
        text = f"{failed} of {checks} failed" if failed else f"{'all ' if count > 1 else ''}{checks} passed"
        badges.append((text[:1].upper() + text[1:], "bad" if failed else "good"))
    shown = "".join(f'<span class="badge {kind}">{escape(text)}</span>' for text, kind in badges)
    facts = {
        "Fields": describe(dataset),
        "Steps": "" if report.steps is None else f"{report.steps:,}".replace(",", " "),
        "Speed": _known(report.cell_updates_per_second, metric(report.cell_updates_per_second, "cells/s")),
        "Wall time": _known(report.wall_seconds, duration(report.wall_seconds)),
        "Compilation": _known(report.compile_seconds, duration(report.compile_seconds)),
        "Device": report.device,
        "Started": report.started,
    }
    listed = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items() if value
    )
    above = " · ".join(escape(part) for part in ("simjax run", report.run_id) if part)
    description = f'<p class="lead">{escape(report.description)}</p>' if report.description else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return (
        f'<header><div class="eyebrow">{above}</div><h1>{escape(report.title)}</h1>{description}'
        f'{shown}{f"<ul>{notes}</ul>" if notes else ""}<dl class="facts">{listed}</dl></header>'
    )


def _known(value: float, text: str) -> str:
    return text if math.isfinite(value) else ""


def _animation_and_verdicts(folder: Path, report: RunReport, room: int) -> str:
    animation = _animation(folder, room)
    verdicts = _verdicts(report)
    both = animation + verdicts
    return f'<div class="pair">{both}</div>' if animation and verdicts else both


def _verdicts(report: RunReport) -> str:
    if not report.verdicts:
        return ""
    rows = []
    for verdict in report.verdicts:
        style, word = ("passed", "✓ passed") if verdict.passed else ("failed", "✗ failed")
        expected = f'<span class="expected">expected {escape(verdict.expected)}</span>'
        result = f"<td>{escape(verdict.value)}{expected if verdict.expected else ''}</td>"
        rows.append(f'<tr><td>{escape(verdict.name)}</td>{result}<td class="verdict {style}">{word}</td></tr>')
    return _section("Checks", _table(("Check", "Result", ""), rows))


def _animation(folder: Path, room: int) -> str:
    """The animation as an image or a video inside the page, or a link where it is too large for it."""
    for path in (folder / name for name in _ANIMATIONS):
        if not path.is_file():
            continue
        most = room * 3 // 4
        content = path.read_bytes()
        if path.suffix == ".mp4":
            if len(content) > most:
                link = f'<p><a href="{quote(path.name)}">{escape(path.name)}</a>, too large for this page</p>'
                return _section("Animation", link)
            source = f'src="data:video/mp4;base64,{base64.b64encode(content).decode()}"'
            video = f'<video class="paper" {source} autoplay loop muted playsinline controls></video>'
            return _section("Animation", video, "media")
        with Image.open(path) as picture:
            if len(content) > most:
                content = encode_webp(_frames_of(picture), getattr(picture, "n_frames", 1), most)
            return _section("Animation", _image(content, "webp", "the run, animated", picture.width), "media")
    return ""


def _frames_of(picture: Image.Image):
    def draw(index: int) -> Image.Image:
        picture.seek(index)
        return picture.convert("RGB")

    return draw


def _image(content: bytes, kind: str, description: str, width: int | None = None) -> str:
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    size = f' width="{width}"' if width else ""
    return f'<img class="paper"{size} alt="{escape(description, quote=True)}" src="{source}">'


def _summary(folder: Path) -> str:
    path = folder / "summary.png"
    if not path.is_file():
        return ""
    content, kind = path.read_bytes(), "png"
    if len(content) > _FIGURE_LIMIT:
        stream = io.BytesIO()
        with Image.open(path) as picture:
            picture.convert("RGB").save(stream, "WEBP", quality=85, method=2)
        content, kind = stream.getvalue(), "webp"
    return _section("Summary", _image(content, kind, "fields at several times and diagnostics"), "wide")


def _diagnostics(dataset: xr.Dataset) -> str:
    drawn = [f"<figure><figcaption>{title}</figcaption>{drawing}</figure>" for title, drawing in curve_figures(dataset)]
    if not drawn:
        return ""
    style = "curves two" if len(drawn) in (1, 2, 4) else "curves"
    return _section("Diagnostics over time", f'<div class="{style}">{"".join(drawn)}</div>')


def _again(folder: Path, report: RunReport) -> str:
    """How to run it again, go on with it, and open what it wrote."""
    sidecars = sorted(path.name for path in folder.glob("*.vtkhdf"))
    blocks = [("Run it again", report.command), ("Resume it", report.resume_command)]
    fields = folder / "fields.h5"
    if fields.is_file():
        blocks.append(("Open it with simjax", f"import simjax as sj\n\nds = sj.open_run({str(folder)!r})"))
        opening = f'xr.open_dataset({str(fields)!r}, engine="h5netcdf")'
        blocks.append(("Open it with xarray", f"import xarray as xr\n\nds = {opening}"))
    if sidecars:
        blocks.append(("Open it in ParaView", shlex.join(["paraview", str(folder / sidecars[0])])))
    shown = "".join(f"<h3>{escape(name)}</h3><pre>{escape(text)}</pre>" for name, text in blocks if text)
    return _section("Again, and further", shown) if shown else ""


def _configuration(report: RunReport) -> str:
    if not report.config_yaml:
        return ""
    found = differences(report.config_yaml, report.defaults_yaml)
    rows = [_difference_row(difference) for difference in found]
    content = _table(("Key", "This run", "Default"), rows) if rows else "<p>Every value is the default.</p>"
    full = marked_yaml(report.config_yaml, {difference.key for difference in found})
    return _section(
        "Configuration",
        f"{content}<details><summary>The whole configuration</summary><pre>{full}</pre></details>",
    )


def _difference_row(difference: Difference) -> str:
    value = f"<td><mark><code>{escape(difference.value)}</code></mark></td>"
    default = f"<td><code>{escape(difference.default)}</code></td>"
    return f"<tr><td><code>{escape(difference.key)}</code></td>{value}{default}</tr>"


def _environment(report: RunReport) -> str:
    entries = {"device": report.device, **report.versions}
    rows = [
        f"<tr><td>{escape(str(name))}</td><td>{escape(str(value))}</td></tr>"
        for name, value in entries.items()
        if value
    ]
    return _section("Environment", _table(("", "Version"), rows)) if rows else ""


def _files(folder: Path) -> str:
    paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.endswith(".tmp"))
    rows = [
        f'<tr><td><a href="{quote(path.name)}">{escape(path.name)}</a></td>'
        f"<td>{escape(metric(path.stat().st_size, 'B'))}</td></tr>"
        for path in paths
        if path.name != "report.html"
    ]
    return _section("Files", _table(("Name", "Size"), rows)) if rows else ""


def _section(title: str, content: str, style: str = "") -> str:
    attribute = f' class="{style}"' if style else ""
    return f"<section{attribute}><h2>{escape(title)}</h2>{content}</section>"


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll">{table}</div>'
