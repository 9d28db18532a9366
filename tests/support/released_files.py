"""Writes what two small runs leave on disk, by this version, to `tests/reference/released/VERSION.tar.xz`.

    python tests/support/released_files.py

One archive for each release is committed with it, and stays: `tests/io/test_released_files.py` reads them all, and goes
on with their runs. It is written once, when what a run writes no longer changes before the release.
"""

import os
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "reference" / "released"
PROBE = "outputs=[{probe: {points: [[0.3, 0.4]]}, of: [pressure], every: 0.05, name: place}]"
LEFT_OUT = ["output.report=false", "output.animation=false"]
# Double precision, so that a run that goes on is compared with one that was never stopped to 1e-9.
RUNS = {
    "fields": ["experiment=cavity", "grid.shape=[8,8]", "time.end=0.2", "time.output_every=0.1", PROBE],
    "particles": ["experiment=cold_collapse", "particles.count=32", "time.end=0.02", "time.output_every=0.01"],
}


def overrides(name, root="outputs"):
    """The overrides of one of the runs, with its folder below `root`."""
    return [*RUNS[name], *LEFT_OUT, "precision=float64", f"output.root={root}", f"output.folder={root}/{name}"]


def without_origin(entry):
    """The entry of an archive without user, group and time, which tell of a machine alone."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def main():
    import simjax as sj
    from simjax.config import compose

    with tempfile.TemporaryDirectory(prefix="simjax-") as folder:
        os.chdir(folder)
        for name in RUNS:
            sj.Simulation(compose(overrides(name)).config()).run()
        archive = FOLDER / f"{sj.__version__}.tar.xz"
        with tarfile.open(archive, "w:xz") as tar:
            for name in sorted(RUNS):
                tar.add(Path("outputs") / name, name, filter=without_origin)
        print(f"{archive}: {archive.stat().st_size} bytes")
        os.chdir(FOLDER)


if __name__ == "__main__":
    sys.exit(main())
