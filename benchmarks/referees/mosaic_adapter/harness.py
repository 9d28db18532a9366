"""Mosaic's harness in its own environment, a process for each solver; started by `mosaic_bench.py`.

python harness.py run FOLDER SOLVER MOST EXPERIMENT...    # the results of one solver, beside those of others
python harness.py tell FOLDER RESULT.json                 # what all have found, and what Mosaic says to it
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import json
import os
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = {"jax_cfd": "jax-cfd", "exponax": "exponax", "phiflow": "phiflow", "xlb": "xlb"}
"""Solvers whose packages are installed: name in Mosaic -> package."""
PROBLEMS = {"2d": "navier_stokes_grid", "3d": "navier_stokes_3d_grid"}
SUITES = ["forward", "gradient", "cost"]


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


def run(solver: str, most: float, experiments: list[str]) -> None:
    """Experiments of one solver, a process of its own as Mosaic has a container: XLB's adapter sets the precision."""
    from mosaic.benchmarks.core import experiment as driver
    from mosaic.benchmarks.core.runner import run_suite

    complete = driver.iter_runs
    for wanted in experiments:
        name, _, path = wanted.partition(":")
        suite, _, experiment = path.partition("/")
        problem, tags = prepared(name)
        alone = [spec for spec in problem.solvers if solver in (spec.key, spec.name)]
        if not alone:
            continue

        def shorter(*given, axes=int(name[0])):
            """Runs whose sweeps leave out what has more than `most` cells times steps."""
            for one in complete(*given):
                if sweep := one.get("sweep"):
                    sizes = [{**one["physics"], sweep["key"]: value} for value in sweep["values"]]
                    fits = [size["N"] ** axes * size["steps"] <= most for size in sizes]
                    sweep["values"] = [value for value, fit in zip(sweep["values"], fits, strict=True) if fit]
                yield one

        driver.iter_runs = shorter
        chosen = {experiment: problem.experiments[path].fn}
        run_suite(
            dataclasses.replace(problem, solvers=alone), tags, chosen,
            plots=False, suite_name=suite, overrides={"gpu_ids": []},
        )  # fmt: skip


def measured(metrics: dict) -> dict[str, float]:
    """What there is to compare of one solver at one value of a sweep; nothing where it failed."""
    if "eps_sweep" in metrics:
        sweep = metrics["eps_sweep"].values()
        errors = [statistics.median(one["rel_error"]) if "rel_error" in one else one["rel_error_mean"] for one in sweep]
        return {"difference": min(errors)}
    if metrics.get("trials_s"):
        return {"seconds": min(metrics["trials_s"])}
    if "wall_time_s" in metrics and metrics["status"] == "ok":
        return {"seconds": metrics["wall_time_s"]}
    if metrics.get("valid"):
        return {"error": metrics["error"]}
    return {}


def told(folder: Path) -> list[dict[str, object]]:
    """Results of a problem's experiments: at each value of a sweep what each solver has, and Mosaic's word on it."""
    from mosaic.benchmarks.core.status import collect_status

    found = []
    for name in PROBLEMS:
        problem, _ = prepared(name)
        for row in collect_status(problem, SUITES).rows:
            path = folder / problem.name / row.suite / row.experiment / "result.json"
            if not path.exists():
                continue
            result = json.loads(path.read_text(encoding="utf-8"))
            values: dict[str | None, dict[str, dict[str, float]]] = {}
            for entry in result["results"]:
                values.setdefault(entry["sweep_value"], {})[entry["solver"]] = measured(entry["metrics"] or {})
            extras = result.get("extras", {})
            if "cross_cosine" in extras:
                of_own = extras["cross_cosine"][extras["solver_names"].index("simjax")]
                values[None] = {
                    solver: {"cosine": cosine} for solver, cosine in zip(extras["solver_names"], of_own, strict=True)
                }
            judged = {solver: f"{cell.status} {cell.reason}".strip() for solver, cell in row.cells.items()}
            swept = result["sweep"]["key"] if result["sweep"] else None
            case = f"{name}: {row.suite}/{row.experiment}"
            found.append({"case": case, "swept": swept, "values": list(values.items()), "judged": judged})
    return found


def main():
    job, folder, *rest = sys.argv[1:]
    from mosaic.benchmarks.core.io import RESULTS_DIR_ENV

    os.environ[RESULTS_DIR_ENV] = folder
    if job == "run":
        solver, most, *experiments = rest
        run(solver, float(most), experiments)
        return
    packages = ("mosaic-bench", "jax", *PEERS.values())
    versions = {package: importlib.metadata.version(package) for package in packages}
    Path(rest[0]).write_text(json.dumps({"versions": versions, "cases": told(Path(folder))}), encoding="utf-8")


if __name__ == "__main__":
    main()
