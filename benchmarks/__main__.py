"""Comparisons with other codes, from the same start and checked before they are timed.

Other packages are installed into environments of their own, kept in $XDG_CACHE_HOME/simjax-benchmarks; what cannot be
installed is told in its place. Everything runs on the processor.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import metadata
from pathlib import Path

from benchmarks.comparison import compare
from benchmarks.comparisons import COMPARISONS
from benchmarks.machine import load, machine
from benchmarks.report import as_markdown, draw

PAIRS = {True: 3, False: 7}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="comparisons to make; none: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, under two minutes on two idle cores")
    parser.add_argument("--list", action="store_true", help="show the comparisons and do nothing")
    parser.add_argument("--output", type=Path, default=Path("comparisons"), help="folder of the results")
    options = parser.parse_args(arguments)
    if options.list:
        for name, build in COMPARISONS.items():
            print(f"{name:<22}{(build.__doc__ or '').splitlines()[0]}")
        return
    unknown = [name for name in options.names if name not in COMPARISONS]
    if unknown:
        parser.error(f"there is no comparison {unknown[0]!r}; write one of {', '.join(COMPARISONS)}")
    result = run(options.names or [*COMPARISONS], options.quick, options.output)
    print(f"{options.output}/comparisons.json, .md and .png; {result['seconds']:.0f} s", file=sys.stderr)


def run(names: list[str], quick: bool, folder: Path) -> dict:
    """Make comparisons, and write what is known after each table."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    versions = {name: metadata.version(name) for name in ("simjax", "jax", "jaxlib", "numpy")}
    result = {"device": "cpu", "versions": versions, "environment": machine(), "quick": quick, "tables": []}
    for name in names:
        for row in COMPARISONS[name](quick):
            before = load()[0]
            table = {"comparison": name, **compare(row, PAIRS[quick])}
            table["load"] = [before, load()[0]]
            result["tables"].append(table)
            result["seconds"] = round(time.perf_counter() - began)
            print(as_markdown([table]), end="\n\n", flush=True)
            (folder / "comparisons.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (folder / "comparisons.md").write_text(as_markdown(result["tables"]) + "\n", encoding="utf-8")
    draw(result["tables"], folder / "comparisons.png")
    return result


if __name__ == "__main__":
    main()
