"""A run by simjax's command line, from its configuration to its first frame."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.contest import Program, serve


def build(physics, start) -> Program:
    from simjax.run import main

    root = Path(tempfile.mkdtemp(prefix="simjax-"))
    given = [f"experiment={physics['experiment']}", f"time.end={physics['end']}", "output=none"]

    def advance() -> None:
        if code := main([*given, f"output.root={root}", "output.folder=run"]):
            raise RuntimeError(f"exit code {code}")

    def result():
        import h5py
        import numpy as np

        with h5py.File(root / "run" / "diagnostics.h5") as file:
            return {"time": np.asarray(file["time"])}

    return Program(advance, result)


if __name__ == "__main__":
    serve(build)
