"""The profile of a run's step on its report: time by part, and how far it is from a copy of memory."""

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from simjax.jaxpr.jaxpr_parts import BETWEEN, PROFILE_NAME
from simjax.report import html
from simjax.report.labels import metric


def profile_section(folder: Path) -> str:
    """A card with the parts of a step and its rates, as `profile.json` has them; nothing where there is none."""
    try:
        found = json.loads((folder / PROFILE_NAME).read_text(encoding="utf-8"))
        return html.section("Where a step's time goes", _parts(found) + _rates(found))
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _parts(found: Mapping[str, Any]) -> str:
    total = found["seconds"]
    rows = [
        f"<tr><td>{escape(name)}</td><td>{1e3 * seconds:.3g} ms</td><td>{100 * seconds / total:.1f} %</td></tr>"
        for name, seconds in [*found["parts"].items(), (BETWEEN, found[BETWEEN])]
        if total > 0
    ]
    return html.table(("Part", "Time per step", "Share"), rows)


def _rates(found: Mapping[str, Any]) -> str:
    peak = found["peak_bytes"]
    rows = [
        ("steps traced", f"{found['steps']}"),
        ("time of a step without the trace", f"{1e3 * found['seconds_untraced']:.3g} ms"),
        ("memory moved, as compiled", f"{metric(found['bytes'], 'B')}, {metric(found['bytes_per_second'], 'B/s')}"),
        ("a copy moves", f"{metric(found['copy_bytes_per_second'], 'B/s')}"),
        ("share of a copy", f"{found['share_of_copy']:.2f}"),
        ("arithmetic, as compiled", f"{metric(found['flops'], 'flop')}, {metric(found['flops_per_second'], 'flop/s')}"),
        ("memory at the peak", "" if peak is None else metric(peak, "B")),
    ]
    return html.table(("", found["device"]), [html.text_row(row) for row in rows if row[1]])
