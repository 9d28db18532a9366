"""Comparisons with other codes, from the same start and checked before they are timed.

Other packages are installed into environments of their own, kept in $XDG_CACHE_HOME/simjax-benchmarks; what cannot be
installed is told in its place. Everything runs on the processor; `python -m benchmarks gpu` is what one GPU says.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.comparison import compare
from benchmarks.comparisons import COMPARISONS
from benchmarks.gpu.command import main as gpu
from benchmarks.machine import load, machine
from benchmarks.report import as_markdown, draw
from benchmarks.scaling import scaling

PAIRS = {True: 3, False: 7}


def main(arguments: list[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["gpu"]:
        raise SystemExit(gpu(given[1:]))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="comparisons to make; none: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, under two minutes on two idle cores")
    parser.add_argument("--list", action="store_true", help="show the comparisons and do nothing")
    parser.add_argument("--output", type=Path, default=Path("comparisons"), help="folder of the results")
    options = parser.parse_args(given)
    known: dict[str, Callable] = {**COMPARISONS, "scaling": scaling}
    if options.list:
        for name, build in known.items():
            print(f"{name:<22}{(build.__doc__ or '').splitlines()[0]}")
        return
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"there is no comparison {unknown[0]!r}; write one of {', '.join(known)}")
    result = run(options.names or [*known], options.quick, options.output)
    print(f"{options.output}/comparisons.json, .md and .png; {result['seconds']:.0f} s", file=sys.stderr)


def run(names: Sequence[str], quick: bool, folder: Path) -> dict[str, Any]:
    """Make comparisons, and write what is known after each table."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    versions = {name: metadata.version(name) for name in ("simjax", "jax", "jaxlib", "numpy")}
    result: dict[str, Any] = {
        "device": "cpu",
        "versions": versions,
        "environment": machine(),
        "quick": quick,
        "tables": [],
        "scaling": [],
    }

    def write() -> None:
        result["seconds"] = round(time.perf_counter() - began)
        (folder / "comparisons.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (folder / "comparisons.md").write_text(as_markdown(result) + "\n", encoding="utf-8")

    for name in names:
        for row in COMPARISONS[name](quick) if name in COMPARISONS else ():
            before = load()[0]
            # Whole processes take longest.
            pairs = 1 if quick and row.from_start else PAIRS[quick]
            table = {"comparison": name, **compare(row, pairs)}
            table["load"] = [before, load()[0]]
            result["tables"].append(table)
            print(as_markdown({"tables": [table], "scaling": []}), end="\n\n", flush=True)
            write()
    if "scaling" in names:
        result["scaling"] = scaling(quick)
        print(as_markdown({"tables": [], "scaling": result["scaling"]}))
        write()
    if result["tables"]:
        draw(result["tables"], folder / "comparisons.png")
    return result


if __name__ == "__main__":
    main()
