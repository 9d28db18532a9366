"""Runs Mosaic's harness in its own environment and writes what it found; started by `mosaic_bench.py`.

python harness.py RESULT.json [--experiments 2d:forward/baseline,...]
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.metadata
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = {"jax_cfd": "jax-cfd", "exponax": "exponax", "phiflow": "phiflow"}
"""Solvers whose packages are installed: name in Mosaic -> package."""
PROBLEMS = {"2d": "navier_stokes_grid", "3d": "navier_stokes_3d_grid"}
EXPERIMENTS = (
    "2d:forward/baseline", "2d:forward/agreement", "2d:gradient/fd_check",
    "3d:forward/agreement", "3d:gradient/fd_check",
)  # fmt: skip


def prepared(name: str):
    """A problem of Mosaic with simjax and the peers as its only solvers, and the adapter of each."""
    import mosaic
    from mosaic.benchmarks.core.config import SolverSpec

    root = Path(mosaic.__file__).parent
    sys.path.insert(0, str(root))  # where adapters find `mosaic_shared`
    problem = importlib.import_module(f"mosaic.benchmarks.problems.{PROBLEMS[name]}.config").problem
    own = SolverSpec(
        dir="simjax", color="#000000", name="simjax", scheme="pseudo-spectral, etdrk4", backend="jax",
        differentiable=True, uses_gpu=False,
    )  # fmt: skip
    problem = dataclasses.replace(problem, solvers=[own, *(spec for spec in problem.solvers if spec.key in PEERS)])
    adapters = root / "tesseracts" / "navier-stokes-grid"
    places = {spec.name: adapters / spec.dir for spec in problem.solvers[1:]} | {"simjax": HERE}
    return problem, {solver: f"inprocess:{place / 'tesseract_api.py'}" for solver, place in places.items()}


def found(folder: Path) -> list[dict[str, object]]:
    """Errors, and of checks by differences the best one, of all results below a folder."""
    rows = []
    for path in sorted(folder.rglob("result.json")):
        for entry in json.loads(path.read_text(encoding="utf-8"))["results"]:
            metrics = entry["metrics"] or {}
            case = str(path.parent.relative_to(folder))
            row = {"case": case, "value": entry["sweep_value"], "solver": entry["solver"]}
            if "eps_sweep" in metrics:
                sweep = metrics["eps_sweep"].values()
                row |= {
                    "difference": min(statistics.median(one["rel_error"]) for one in sweep),
                    "cosine": max(one["cosine"] for one in sweep),
                }
            else:
                row["error"] = metrics.get("error")
            rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--experiments", default=",".join(EXPERIMENTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        from mosaic.benchmarks.core.io import RESULTS_DIR_ENV
        from mosaic.benchmarks.core.runner import run_suite

        os.environ[RESULTS_DIR_ENV] = folder
        for wanted in options.experiments.split(","):
            name, _, path = wanted.partition(":")
            suite, _, experiment = path.partition("/")
            problem, tags = prepared(name)
            run = {experiment: problem.experiments[path].fn}
            run_suite(problem, tags, run, plots=False, suite_name=suite, overrides={"gpu_ids": []})
        rows = found(Path(folder))
    versions = {package: importlib.metadata.version(package) for package in ("mosaic-bench", "jax", *PEERS.values())}
    options.result.write_text(json.dumps({"versions": versions, "rows": rows}), encoding="utf-8")


if __name__ == "__main__":
    main()
