"""simjax, jax-cfd, exponax and PhiFlow before the public benchmark Mosaic: flows in periodic boxes and their gradients.

    python benchmarks/referees/mosaic_bench.py

An environment of its own (`--folder`) gets `mosaic-bench` 0.2.0 with the peers from the package index; Mosaic's harness
then runs all solvers through the adapters of its wheel, and simjax through `mosaic_adapter/tesseract_api.py`, in one
process on the processor. No container engine is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from verdicts import HERE, keep, verdict

ROOT = HERE.parents[1]
PACKAGES = ["mosaic-bench==0.2.0", "jax==0.10.2", "jax-cfd==0.2.1", "exponax==0.2.0", "phiflow==3.4.0"]
# Mosaic's own checks: `max_error` of forward experiments, the greater one of multimode; `max_rel_err` of gradients.
BARS = {"forward": 0.5, "forward/agreement/multimode": 1.5, "gradient": 1e-3}


def python_of(folder: Path) -> Path:
    """The interpreter of an environment that has Mosaic, its peers and simjax."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES, str(ROOT)], check=True)
    return python


def bar_of(case: str) -> float:
    """The bar of Mosaic for an experiment, by the longest path that it names."""
    path = case.partition("/")[2]
    return next(bar for name, bar in sorted(BARS.items(), key=lambda pair: -len(pair[0])) if path.startswith(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path.home() / ".cache" / "simjax-benchmarks" / "mosaic"
    parser.add_argument("--folder", type=Path, default=default, help="of the environment, kept for the next time")
    parser.add_argument("--experiments", help="such as 2d:forward/baseline,3d:gradient/fd_check")
    options = parser.parse_args()
    python = python_of(options.folder)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        chosen = ["--experiments", options.experiments] if options.experiments else []
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        command = [str(python), str(HERE / "mosaic_adapter" / "harness.py"), str(result), *chosen]
        subprocess.run(command, env=environment, check=True, cwd=folder)
        told = json.loads(result.read_text(encoding="utf-8"))
    by_case: dict[tuple[str, str], dict[str, dict]] = defaultdict(dict)
    for row in told["rows"]:
        by_case[row["case"], row["value"]][row["solver"]] = row
    groups: dict[str, list] = defaultdict(list)
    for (case, value), solvers in by_case.items():
        key = "difference" if "difference" in solvers["simjax"] else "error"
        peers = {name: one[key] for name, one in solvers.items() if name != "simjax"}
        what = case if value is None else f"{case}, {value}"
        groups[case].append(verdict(what, solvers["simjax"][key], bar_of(case), peers=peers))
    for case, rows in groups.items():
        keep("mosaic", case, rows, **told["versions"])


if __name__ == "__main__":
    main()
