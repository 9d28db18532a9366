"""Tables of referees.md, from the files that the programs of `benchmarks/referees/` wrote."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REFEREES = Path(__file__).resolve().parent.parent / "benchmarks" / "referees"


def _groups(referee: str) -> dict[str, list[dict[str, Any]]]:
    text = (REFEREES / f"{referee}.json").read_text(encoding="utf-8")
    return {group: content["rows"] for group, content in json.loads(text).items()}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _said(rows: Sequence[dict[str, Any]]) -> str:
    return "yes" if all(row["passes"] for row in rows) else "**no**"


def _found(referee: str, peer: str | None = None) -> str:
    """What each row found beside its bar, with what the row's `peer` has where it has that."""
    rows = [row for group in _groups(referee).values() for row in group]
    others = [peer] if peer else []
    head = ["what", "simjax", *(name.capitalize() for name in others), "bar", "passes"]
    return _table(
        head,
        [
            [
                row["what"], f"{row['found']:.3g}", *(f"{row[name]:.3g}" if name in row else "" for name in others),
                f"{row['bar']:.3g}", _said([row]),
            ]
            for row in rows
        ],
    )  # fmt: skip


def athena() -> str:
    """Bars of Athena++, what simjax has, and whether it passes."""
    return _found("athena")


def lammps() -> str:
    """Largest relative differences from LAMMPS: a row for each case, which has three of them and one bar."""
    head = ["case", "energy", "forces", "pressure", "bar", "passes"]
    return _table(
        head,
        [
            [case, *(f"{row['found']:.1e}" for row in rows), f"{rows[0]['bar']:.0e}", _said(rows)]
            for case, rows in _groups("lammps").items()
        ],
    )


def meep() -> str:
    """Differences from Meep, and errors of both from exact solutions."""
    return _found("meep", "meep")


def deepwave() -> str:
    """Differences from deepwave."""
    return _found("deepwave")


def dedalus() -> str:
    """Differences from Dedalus in steady convection."""
    return _found("dedalus")
