"""Rows of the referees' tables: what was measured, the bar, whether it passes. Each referee writes one JSON file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tests" / "support"), str(HERE.parent)]

from measure import environment, rounded  # noqa: E402


def verdict(what: str, found: float, bar: float | None, **more: object) -> dict[str, object]:
    """A row, printed as it is found; it passes where `found` is at most the bar. Without a bar nothing is judged."""
    row: dict[str, object] = {"what": what, "found": rounded(found), "bar": bar}
    if bar is not None:
        row["passes"] = bool(found <= bar)
    row |= more
    print(json.dumps(row), flush=True)
    return row


def keep(name: str, content: Mapping[str, object]) -> None:
    """Writes NAME.json beside the scripts, with the versions that made it."""
    whole = {"referee": name, "environment": environment(), **content}
    (HERE / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(f"Written: {HERE / name}.json")
