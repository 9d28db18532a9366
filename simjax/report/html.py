"""The parts that the pages of runs and searches share: one file that needs nothing beside it and runs no script."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from simjax.io.files import replaced
from simjax.report.animation import encode_webp
from simjax.report.labels import metric

SIZE_LIMIT = 3_000_000
_FIGURE_LIMIT = 600_000  # bytes of a PNG above which a page holds it as WebP
_POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"


def write_page(path: Path, title: str, parts: Sequence[str], filled: Callable[[int], str], version: str) -> Path:
    """Write a page below SIZE_LIMIT and return its path.

    `filled` gets the bytes that the other parts leave and makes the second one, which stands after the first.
    """
    head = _head(title)
    foot = f"<footer>Written by simjax {escape(version)}</footer></main></body></html>\n"
    spent = len((head + "".join(parts) + foot).encode(errors="replace"))
    second = filled(SIZE_LIMIT - spent - 20_000)
    with replaced(path) as temporary:
        text = head + parts[0] + second + "".join(parts[1:]) + foot
        temporary.write_text(text, encoding="utf-8", errors="replace")
    return path


def _head(title: str) -> str:
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
    )


def header(
    above: str,
    title: str,
    lead: str,
    badges: Sequence[tuple[str, str]],
    notes: Sequence[str],
    facts: Mapping[str, str],
) -> str:
    """The top of a page; a badge is its text and its class: "good", "bad" or neither. Empty facts are left out."""
    shown = "".join(f'<span class="badge {kind}">{escape(text)}</span>' for text, kind in badges)
    listed = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items() if value
    )
    description = f'<p class="lead">{escape(lead)}</p>' if lead else ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<header><div class="eyebrow">{escape(above)}</div><h1>{escape(title)}</h1>{description}'
        f'{shown}{f"<ul>{items}</ul>" if items else ""}<dl class="facts">{listed}</dl></header>'
    )


def section(title: str, content: str, style: str = "") -> str:
    """A card with a heading; `content` is HTML."""
    attribute = f' class="{style}"' if style else ""
    return f"<section{attribute}><h2>{escape(title)}</h2>{content}</section>"


def table(heads: Sequence[str], rows: Sequence[str]) -> str:
    """A table of rows of HTML under heads of text."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll">{body}</div>'


def text_row(cells: Sequence[str]) -> str:
    """A row of a table whose cells are text."""
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def code_blocks(blocks: Sequence[tuple[str, str]]) -> str:
    """Commands or code under their headings; those without text are left out."""
    return "".join(f"<h3>{escape(name)}</h3><pre>{escape(text)}</pre>" for name, text in blocks if text)


def picture(path: Path, title: str, description: str) -> str:
    """A section with a PNG as wide as the page, as WebP where it is large; nothing where there is no file."""
    if not path.is_file():
        return ""
    content, kind = path.read_bytes(), "png"
    if len(content) > _FIGURE_LIMIT:
        stream = io.BytesIO()
        with Image.open(path, formats=["PNG"]) as opened:
            opened.convert("RGB").save(stream, "WEBP", quality=85, method=2)
        content, kind = stream.getvalue(), "webp"
    return section(title, image(content, kind, description), "wide")


def animation(path: Path, title: str, description: str, room: int) -> str:
    """A section with a WebP animation or an MP4 video that takes at most `room` bytes; nothing without the file.

    The former is encoded more coarsely where it is too large, and for the latter there is a link.
    """
    if not path.is_file():
        return ""
    most = room * 3 // 4
    content = path.read_bytes()
    if path.suffix == ".mp4":
        if len(content) > most:
            link = f'<p><a href="{quote(path.name)}">{escape(path.name)}</a>, too large for this page</p>'
            return section(title, link)
        source = f'src="data:video/mp4;base64,{base64.b64encode(content).decode()}"'
        video = f'<video class="paper" {source} autoplay loop muted playsinline controls></video>'
        return section(title, video, "media")
    with Image.open(path, formats=["WEBP"]) as opened:
        if len(content) > most:
            content = encode_webp(_frames_of(opened), getattr(opened, "n_frames", 1), most)
        return section(title, image(content, "webp", description, opened.width), "media")


def _frames_of(opened: Image.Image) -> Callable[[int], Image.Image]:
    def draw(index: int) -> Image.Image:
        opened.seek(index)
        return opened.convert("RGB")

    return draw


def image(content: bytes, kind: str, description: str, width: int | None = None) -> str:
    """An image whose bytes the page holds; kind: its format, such as png."""
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    size = f' width="{width}"' if width else ""
    return f'<img class="paper"{size} alt="{escape(description, quote=True)}" src="{source}">'


def files(folder: Path) -> str:
    """A section that links what lies in `folder`, but for the page itself."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.endswith(".tmp"))
    rows = [
        f'<tr><td><a href="{quote(path.name)}">{escape(path.name)}</a></td>'
        f"<td>{escape(metric(path.stat().st_size, 'B'))}</td></tr>"
        for path in paths
        if path.name != "report.html"
    ]
    return section("Files", table(("Name", "Size"), rows)) if rows else ""
