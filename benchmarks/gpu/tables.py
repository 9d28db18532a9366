"""The table of a result of `python -m benchmarks gpu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.report import digits, in_columns

TRIAL = "A trial: sizes are much smaller than the table says, and times are of a processor. They mean nothing."
HEAD = {
    "step": lambda row, first: row["what"],
    "by": lambda row, first: row["by"],
    "ms": lambda row, first: digits(row.get("ms"), 3) or _why_not(row),
    "over simjax's time": lambda row, first: _ratio(row, first),
    "GB/s": lambda row, first: digits(row.get("gb_per_s"), 3),
    "over its forward run": lambda row, first: digits(row.get("over_forward"), 2),
    "launches": lambda row, first: digits(row.get("launches"), 3),
    "traced, ms in launches": lambda row, first: digits(row.get("traced_ms"), 3),
    "by the model, ms": lambda row, first: digits(row.get("model_ms"), 3),
    "dearest launches": lambda row, first: _dearest(row),
}


def as_table(found: Mapping[str, Any]) -> str:
    """A line for each row, those of the same steps together; columns of which nothing is known are left out."""
    rows = found["rows"]
    together: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        together.setdefault(row["row"], []).append(row)
    lines: list[Sequence[str]] = []
    for alike in together.values():
        own = next((row for row in alike if row["by"].startswith("simjax")), None)
        lines += [[cell(row, own) for cell in HEAD.values()] for row in sorted(alike, key=lambda row: row is not own)]
    columns = [place for place in range(len(HEAD)) if place < 3 or any(line[place] for line in lines)]
    names = [*HEAD]
    table = in_columns(
        " | ".join(names[place] for place in columns), [[line[place] for place in columns] for line in lines]
    )
    return f"{TRIAL}\n\n{table}" if found["trial"] else table


def _why_not(row: Mapping[str, Any]) -> str:
    return f"not timed: {row['failed']}".replace("|", "/") if "failed" in row else ""


def _ratio(row: Mapping[str, Any], first: Mapping[str, Any] | None) -> str:
    if first is None or row is first or "ms" not in row or "ms" not in first:
        return ""
    return f"**{digits(row['ms'] / first['ms'], 2)}**"


def _dearest(row: Mapping[str, Any]) -> str:
    told = [f"{one['kernel']} {digits(one['ms'], 2)}" for one in row.get("dearest", ())[:3]]
    return ", ".join(told).replace("|", "/")
