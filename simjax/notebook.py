"""Objects as users see them: in a line of text, and as HTML in notebooks, with tables, boxes and a run under way."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_TABLE = "border-collapse:collapse;font-size:90%;margin:0"
_NAME = "text-align:left;padding:1px 12px 1px 0;opacity:.7;font-weight:normal;vertical-align:top"
_VALUE = "text-align:left;padding:1px 0"
_LARGEST = 110.0  # pixels of the longer side of a box
_LONGEST = 120  # letters of numbers that are written out
_SLANT = 0.35  # of the depth of a box, to the right and up


def in_notebook() -> bool:
    """Tell whether this is the kernel of a notebook, which shows rich output."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def card(title: str, rows: Iterable[tuple[str, object]], picture: str = "", lead: str = "") -> str:
    """HTML of an object: a title, a sentence, a table of names and values, and a picture (HTML) beside.

    Empty values are left out. All text is escaped.
    """
    shown = _said(rows)
    lines = "".join(
        f'<tr><th style="{_NAME}">{escape(name)}</th><td style="{_VALUE}">{escape(value)}</td></tr>'
        for name, value in shown
    )
    said = f'<div style="margin:2px 0 6px">{escape(lead)}</div>' if lead else ""
    left = f'<div><strong>{escape(title)}</strong>{said}<table style="{_TABLE}">{lines}</table></div>'
    right = f"<div>{picture}</div>" if picture else ""
    return f'<div style="display:flex;flex-wrap:wrap;gap:28px;align-items:flex-start">{left}{right}</div>'


def line(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """An object in a line of text: a title, and names with their values, without empty ones."""
    return f"{title}: {'; '.join(f'{name} {value}' for name, value in _said(rows))}"


def all_in_a_line(self: Any) -> str:
    """Every part of an `equinox.Module` in a line of text: a `__repr__` of such a class."""
    import equinox as eqx

    return eqx.tree_pformat(self, width=sys.maxsize)


def numbers_in_a_line(name: str, parts: dict[str, Sequence[Any] | None]) -> str:
    """An object of many numbers in a line of text that tells it from others: how many, the ends, and a checksum.

    parts: by name; None and short ones are written as they are. Texts stand in the keys of kept programs.
    """
    shown = []
    for part, values in parts.items():
        text = repr(values)
        if values is not None and len(text) > _LONGEST:
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            text = f"<{len(values)} from {values[0]} to {values[-1]}, sha256 {digest}>"
        shown.append(f"{part}={text}")
    return f"{name}({', '.join(shown)})"


def _said(rows: Iterable[tuple[str, object]]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in rows if value not in (None, "", (), {})]


def box_picture(lengths: Sequence[float], cells: Sequence[int] = ()) -> str:
    """An SVG drawing of a box of one to three `lengths`, with lines between some of its `cells`."""
    scale = _LARGEST / max(lengths)
    width = max(lengths[0] * scale, 8.0)
    height = max(lengths[1] * scale, 8.0) if len(lengths) > 1 else 8.0
    depth = lengths[2] * scale * _SLANT if len(lengths) > 2 else 0.0
    x, y = 1.0, 1.0 + depth
    parts = [f'<rect x="{x}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>']
    if depth:
        top = f"M{x} {y:.1f}l{depth:.1f} -{depth:.1f}h{width:.1f}l-{depth:.1f} {depth:.1f}"
        side = f"M{x + width:.1f} {y + height:.1f}l{depth:.1f} -{depth:.1f}v-{height:.1f}"
        parts.append(f'<path d="{top}"/><path d="{side}"/>')
    inner = []
    for k in range(1, _lines(cells, 0)):
        inner.append(f"M{x + k * width / _lines(cells, 0):.1f} {y:.1f}v{height:.1f}")
    for k in range(1, _lines(cells, 1)):
        inner.append(f"M{x} {y + k * height / _lines(cells, 1):.1f}h{width:.1f}")
    grid = f'<path d="{"".join(inner)}" stroke-opacity=".35" stroke-width=".6"/>' if inner else ""
    size = f'width="{width + depth + 2:.0f}" height="{height + depth + 2:.0f}"'
    return f'<svg {size} fill="none" stroke="currentColor">{"".join(parts)}{grid}</svg>'


def _lines(cells: Sequence[int], axis: int) -> int:
    """Parts that an axis is drawn in: its cells, or eight of them together and more where they are many."""
    return min(cells[axis], 16) if len(cells) > axis else 1


class LiveOutput:
    """An output of a cell that is written anew while the cell runs."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str) -> None:
        """Show `html` in place of the previous output."""
        from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))


def bar(title: str, fraction: float, facts: Sequence[tuple[str, str]], notes: Sequence[str] = ()) -> str:
    """HTML of a run under way: a bar filled to `fraction`, facts below it, and notes that stay."""
    track = "height:6px;border-radius:3px;background:rgba(128,128,128,.25);width:420px;max-width:100%;margin:5px 0"
    filled = f'<div style="height:6px;border-radius:3px;background:#1f5fa8;width:{100 * fraction:.1f}%"></div>'
    said = " &nbsp; ".join(f'<span style="opacity:.65">{escape(name)}</span> {escape(value)}' for name, value in facts)
    kept = "".join(f'<div style="opacity:.8">{escape(note)}</div>' for note in notes)
    return (
        f'<div style="font-size:90%"><strong>{escape(title)}</strong> &nbsp; {100 * fraction:.0f} %'
        f'<div style="{track}">{filled}</div><div>{said}</div>{kept}</div>'
    )
