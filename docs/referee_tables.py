"""Tables of referees.md, from the files that the programs of `benchmarks/referees/` wrote."""

import json
from pathlib import Path
from typing import Any

REFEREES = Path(__file__).resolve().parent.parent / "benchmarks" / "referees"


def verdicts(referee: str, group: str) -> str:
    """What was measured by one referee in one group of rows, its bar, and whether it passes."""
    rows: list[dict[str, Any]] = json.loads((REFEREES / f"{referee}.json").read_text(encoding="utf-8"))["rows"][group]
    head = ["| what | simjax | bar | passes |", "|---|---|---|---|"]
    return "\n".join(head + [f"| {row['what']} | {row['found']:.3g} | {row['bar']:.3g} | {_said(row)} |" for row in rows])


def _said(row: dict[str, Any]) -> str:
    return "yes" if row["passes"] else "**no**"


def agreement(referee: str) -> str:
    """The largest relative difference of each case from the referee, in energy, forces and pressure."""
    rows: list[dict[str, Any]] = json.loads((REFEREES / f"{referee}.json").read_text(encoding="utf-8"))["rows"]
    cases: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        case, _, what = row["what"].rpartition(": ")
        cases.setdefault(case, {})[what] = row
    lines = ["| case | energy | forces | pressure | bar | passes |", "|---|---|---|---|---|---|"]
    for case, found in cases.items():
        numbers = " | ".join(f"{row['found']:.1e}" for row in found.values())
        passes = all(row["passes"] for row in found.values())
        lines.append(f"| {case} | {numbers} | {next(iter(found.values()))['bar']:.0e} | {'yes' if passes else '**no**'} |")
    return "\n".join(lines)
