"""Everything that one GPU can say, in one command of at most eight minutes: `python -m benchmarks gpu`.

A copy and hand-written CUDA as the limit; steps and gradients of simjax by XLA and as kernels; the same by other
packages, where they can be imported; loops with and without command buffers; of each the dearest launches. Nothing is
installed and no network is used. Rows of a group are timed in a process of their own, each within its own time; the
result is written after each, so that a cut leaves those before it. `--trial` takes small sizes on a processor: it shows
that all of it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.gpu.rows import GROUPS, Group, Row
from benchmarks.gpu.tables import as_table
from benchmarks.machine import machine
from benchmarks.peer import ROOT

START_SECONDS = 90.0
"""Until a process says what it runs on."""
MINUTES = 8.0
# What is interpreted, and compiled for a single step, is better compiled quickly.
TRIAL = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    "CUDA_VISIBLE_DEVICES": "-1",
}
NO_GPU = 5
"""The exit code where what is asked for is not there, as that of simjax's own commands."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="name", help="rows, or groups of them; none: all")
    parser.add_argument("--trial", action="store_true", help="small sizes, two steps each, on a processor")
    parser.add_argument("--list", action="store_true", help="show the rows in their order and do nothing")
    parser.add_argument("--no-profile", dest="profile", action="store_false", help="without the dearest launches")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which nothing more is timed")
    parser.add_argument("--output", type=Path, default=Path("gpu"), help="folder of the result")
    options = parser.parse_args(arguments)
    if options.list:
        for group in GROUPS:
            for row in group.rows:
                print(f"{group.name:<12}{row.name:<40}{row.what}; {row.by}")
        return 0
    known = {row.name for group in GROUPS for row in group.rows} | {group.name for group in GROUPS}
    for name in options.names:
        if name not in known:
            parser.error(f"there is no row or group {name!r}; --list shows them")
    return Run(options).all()


class Run:
    """A run of the command: its result, and the time that is left to it."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.began = options, time.monotonic()
        self.file = options.output / "gpu.json"
        self.result: dict[str, Any] = {
            "benchmark": "what one GPU says, float32",
            "environment": {**card(), **machine()},
            "versions": {name: metadata.version(name) for name in ("simjax", "jax", "jaxlib")},
            "trial": options.trial,
            "rows": [],
        }

    def all(self) -> int:
        """Time all rows that are asked for; the exit code."""
        self.options.output.mkdir(parents=True, exist_ok=True)
        for group in GROUPS:
            asked = set(self.options.names)
            rows = [row for row in group.rows if not asked or asked & {row.name, group.name}]
            while rows:
                done = self._some_of(group, rows)
                if done is None:
                    return NO_GPU
                rows = rows[done:]
        print(as_table(self.result))
        print(f"{self.file} and .md; {self.result['seconds']} s", file=sys.stderr)
        return 0

    def _some_of(self, group: Group, rows: Sequence[Row]) -> int | None:
        """Time rows in one process until one hangs or ends it; how many are done with. None: there is no GPU."""
        if self._left() <= 0:
            for row in rows:
                self._keep(row, {"failed": f"left out, as {self.options.minutes:g} minutes are over"})
            return len(rows)
        if self.options.trial and "XLA_FLAGS" in group.environment:
            # A jax without GPUs does not know their flags, and ends.
            for row in rows:
                self._keep(row, {"failed": "a trial has no flags of GPUs"})
            return len(rows)
        done = 0
        with Process(group, [row.name for row in rows], self.options) as process:
            told = process.line(min(START_SECONDS, self._left()))
            if "environment" not in told:
                for row in rows:
                    self._keep(row, {"failed": told.get("ended", "the process did not start in time")})
                return len(rows)
            self.result["environment"] |= told["environment"]
            device = told["environment"]["device"]
            if device.startswith("cpu") and not self.options.trial:
                print(
                    "benchmarks: expected a GPU and a jax for it; there is a processor alone: write --trial.",
                    file=sys.stderr,
                )
                return None
            for row in rows:
                limit = min(row.limit, self._left())
                if limit <= 0:
                    break
                end = time.monotonic() + limit
                while "row" not in told or told["row"]["name"] != row.name:
                    told = process.line(end - time.monotonic())
                    if "late" in told or "ended" in told:
                        why = told.get("ended", f"took longer than {limit:.0f} s")
                        self._keep(row, {"failed": why})
                        return done + 1
                self._keep(row, told["row"])
                done += 1
        return done

    def _left(self) -> float:
        return 60 * self.options.minutes - (time.monotonic() - self.began)

    def _keep(self, row: Row, found: Mapping[str, Any]) -> None:
        """Write the result with one row more."""
        own = {"row": row.compared, "what": row.what, "by": row.by, **found}
        self.result["versions"] |= own.pop("versions", {})
        own["name"] = row.name
        self.result["rows"].append(own)
        self.result["seconds"] = round(time.monotonic() - self.began)
        self.file.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")
        self.file.with_suffix(".md").write_text(as_table(self.result) + "\n", encoding="utf-8")
        said = f"{own['ms']:g} ms" if "ms" in own else own["failed"]
        print(f"{self.result['seconds']:4d} s  {row.name}: {said}", file=sys.stderr, flush=True)


class Process:
    """A worker that times rows of a group, and the lines that it says."""

    def __init__(self, group: Group, names: Sequence[str], options: argparse.Namespace):
        command = [sys.executable, "-m", "benchmarks.gpu.worker", group.name, *names]
        command += ["--trial"] if options.trial else []
        command += [] if options.profile else ["--no-profile"]
        own = {**group.environment, **(TRIAL if options.trial else {})}
        if "XLA_FLAGS" in own:
            own["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {own['XLA_FLAGS']}".strip()
        self._words: list[str] = []
        self._child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **own}
        )
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_words)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        for line in self._child.stdout or ():
            self._lines.put(json.loads(line))
        self._lines.put({})

    def _read_words(self) -> None:
        for line in self._child.stderr or ():
            self._words[:] = [*self._words[-20:], line.strip()]

    def line(self, seconds: float) -> dict[str, Any]:
        """What it says next; `late` where that takes longer, `ended` with its last words where that is all."""
        try:
            told = self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return {"late": True}
        if told:
            return told
        code = self._child.wait()
        words = [word for word in self._words if word]
        return {"ended": f"the process ended with code {code}: {words[-1] if words else 'no reason given'}"[:200]}

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()


def card() -> dict[str, str]:
    """Name, driver and memory of the first GPU, as its own tool tells them; nothing where there is none."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if done.returncode:
        return {}
    return dict(zip(("card", "driver", "memory"), _cells(done.stdout), strict=False))


def _cells(text: str) -> Iterator[str]:
    for cell in text.splitlines()[0].split(",") if text.strip() else ():
        yield cell.strip()


if __name__ == "__main__":
    sys.exit(main())
