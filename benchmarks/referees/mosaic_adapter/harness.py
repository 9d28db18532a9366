"""Mosaic's harness in its own environment, a process for each solver; started by `mosaic_bench.py`.

python harness.py run FOLDER SOLVER MOST ITERATIONS EXPERIMENT...    # results of one solver, beside those of others
python harness.py tell FOLDER RESULT.json                            # what all have found, and what Mosaic says to it
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.metadata
import json
import os
import statistics
import sys
import types
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = {"jax_cfd": "jax-cfd", "exponax": "exponax", "phiflow": "phiflow", "xlb": "xlb"}
"""Solvers whose packages are installed: name in Mosaic -> package."""
PROBLEMS = {"2d": "navier_stokes_grid", "3d": "navier_stokes_3d_grid"}
SUITES = ["forward", "gradient", "cost", "optimization"]
DRAG_GRADIENT = "gradient/drag_fd_check"
"""Our own experiment: Mosaic's check of gradients, asked of the drag by the profile that its `drag_opt` begins with."""


@functools.cache
def prepared(name: str):
    """A problem of Mosaic with simjax and the peers as its only solvers, and the adapter of each."""
    import mosaic
    from mosaic.benchmarks.core.config import SolverSpec

    root = Path(mosaic.__file__).parent
    sys.path.insert(0, str(root))  # where adapters find `mosaic_shared`
    problem = importlib.import_module(f"mosaic.benchmarks.problems.{PROBLEMS[name]}.config").problem
    if name == "2d":
        with_drag_gradient(problem)
    own = SolverSpec(
        dir="simjax",
        color="#000000",
        name="simjax",
        scheme="pseudo-spectral, etdrk4",
        backend="jax",
        differentiable=True,
        uses_gpu=False,
    )
    problem = dataclasses.replace(problem, solvers=[own, *(spec for spec in problem.solvers if spec.key in PEERS)])
    adapters = root / "tesseracts" / "navier-stokes-grid"
    places = {spec.name: adapters / spec.dir for spec in problem.solvers[1:]} | {"simjax": HERE}
    return problem, {solver: f"inprocess:{place / 'tesseract_api.py'}" for solver, place in places.items()}


def with_drag_gradient(problem) -> None:
    from mosaic.benchmarks.problems.navier_stokes_grid.exclusions import JAX_CFD_NO_OBSTACLE
    from mosaic.benchmarks.problems.shared.gradient import fd_check

    cylinder = {"shape": "cylinder", "center": [0.5, 0.5], "radius": 0.05}
    as_drag_opt = {
        "N": 32,
        "nu": 0.0025,
        "dt": 0.02,
        "steps": 200,
        "domain_extent": 1.0,
        "U_mean": 0.5,
        "obstacle": cylinder,
    }
    run = {
        "ic": {"name": "flat_inflow", "seed": 0},
        "physics": as_drag_opt,
        "ic_key": "inflow_profile",
        "output_key": "drag",
        "fd": {"eps_values": [1e-1, 1e-2], "n_dirs": 4},
    }
    problem.add_experiment(DRAG_GRADIENT, fd_check, runs=[run])
    problem.exclude(DRAG_GRADIENT, {"jax_cfd": JAX_CFD_NO_OBSTACLE})


@functools.cache
def loaded(path: str):
    """A solver in the precision that its adapter sets; Mosaic keeps its own, single, as beside a container."""
    import jax
    from tesseract_core import Tesseract
    from tesseract_core.runtime.core import load_module_from_path

    # XLB 0.3.1 imports this, which fails with the warp-lang that it asks for; Mosaic's own image leaves it out too.
    sys.modules["xlb.operator.stepper.ibm_stepper"] = types.SimpleNamespace(IBMStepper=None)
    adapter = load_module_from_path(Path(path))
    double = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)

    def own(function):
        @functools.wraps(function)
        def call(*given, **named):
            with jax.enable_x64(double):
                return function(*given, **named)

        return call

    for name in ("apply", "vector_jacobian_product"):
        setattr(adapter, name, own(getattr(adapter, name)))
    return Tesseract.from_tesseract_api(adapter)


def run(folder: Path, solver: str, most: float, iterations: int, experiments: list[str]) -> None:
    """Experiments of one solver, a process of its own as Mosaic has a container: XLB's adapter sets the precision."""
    from mosaic.benchmarks.core import experiment as driver
    from mosaic.benchmarks.core import runner

    runner._inprocess_tesseract = loaded
    complete = driver.iter_runs
    for wanted in experiments:
        name, _, path = wanted.partition(":")
        suite, _, experiment = path.partition("/")
        problem, tags = prepared(name)
        alone = [spec for spec in problem.solvers if solver in (spec.key, spec.name)]
        if not alone:
            continue

        def shorter(*given, axes=int(name[0])):
            """Runs whose sweeps of sizes end at `most` cells times steps, and that search less long."""
            for one in complete(*given):
                if (sweep := one.get("sweep") or {}).get("key") in ("N", "steps"):
                    sizes = [{**one["physics"], sweep["key"]: value} for value in sweep["values"]]
                    fits = [size["N"] ** axes * size["steps"] <= most for size in sizes]
                    sweep["values"] = [value for value, fit in zip(sweep["values"], fits, strict=True) if fit]
                if search := one.get("optim"):
                    search["max_iters"] = min(search["max_iters"], iterations)
                yield one

        driver.iter_runs = shorter
        chosen = {experiment: problem.experiments[path].fn}
        with keeping_others(folder / problem.name / path / "result.json"):
            runner.run_suite(
                dataclasses.replace(problem, solvers=alone),
                tags,
                chosen,
                plots=False,
                suite_name=suite,
                overrides={"gpu_ids": []},
            )


@contextlib.contextmanager
def keeping_others(file: Path) -> Iterator[None]:
    """Keep in `file` what other solvers have found, which some experiments of Mosaic write over."""

    def entries() -> list[dict]:
        return json.loads(file.read_text(encoding="utf-8"))["results"] if file.exists() else []

    before = entries()
    yield
    solvers = {entry["solver"] for entry in entries()}
    lost = [entry for entry in before if entry["solver"] not in solvers]
    if lost:
        result = json.loads(file.read_text(encoding="utf-8"))
        result["results"] = lost + result["results"]
        file.write_text(json.dumps(result), encoding="utf-8")


def measured(metrics: dict) -> dict[str, float]:
    """What there is to compare of one solver at one value of a sweep; nothing where it failed."""
    if metrics.get("drags"):
        return {"drag at the start": metrics["drags"][0], "drag at the end": metrics["drags"][-1]}
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
        solver, most, iterations, *experiments = rest
        run(Path(folder), solver, float(most), int(iterations), experiments)
        return
    packages = ("mosaic-bench", "jax", *PEERS.values())
    versions = {package: importlib.metadata.version(package) for package in packages}
    Path(rest[0]).write_text(json.dumps({"versions": versions, "cases": told(Path(folder))}), encoding="utf-8")


if __name__ == "__main__":
    main()
