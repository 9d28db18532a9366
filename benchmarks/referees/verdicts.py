"""Rows of the referees' tables: what was measured, the bar, whether it passes. Each referee has one JSON file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "tests" / "support"), str(HERE.parent)]

from measure import environment, rounded  # noqa: E402


def verdict(what: str, found: float, bar: float, **more: object) -> dict[str, object]:
    """A row, printed as it is found; it passes where `found` is at most the bar."""
    row = {"what": what, "found": rounded(found), "bar": bar, "passes": bool(found <= bar), **more}
    print(json.dumps(row), flush=True)
    return row


def keep(name: str, group: str, rows: list[dict[str, object]], **versions: object) -> None:
    """Writes a group of rows to NAME.json beside the scripts, with the versions that made it; other groups stay."""
    path = HERE / f"{name}.json"
    groups = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    groups[group] = {"environment": environment(), **versions, "rows": rows}
    path.write_text(json.dumps(groups, indent=1) + "\n", encoding="utf-8")


def keep_groups(name: str, about: str | None, groups: Mapping[str, Callable[[], Iterable[dict[str, object]]]]) -> None:
    """The command line of a referee that needs nothing else: finds and keeps the rows of the groups that are named."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=groups, default=list(groups))
    for group in parser.parse_args().groups:
        keep(name, group, list(groups[group]()))
