"""simjax, jax-cfd, exponax, PhiFlow and XLB before the public benchmark Mosaic: flows in periodic boxes, gradients.

    python benchmarks/referees/mosaic_bench.py

An environment of its own (`--folder`) gets `mosaic-bench` 0.2.0 with the peers from the package index; Mosaic's harness
then runs each solver in a process on the processor through the adapters of its wheel, and simjax through
`mosaic_adapter/tesseract_api.py`. No container engine is needed. About forty minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from verdicts import HERE, keep, verdict

ROOT = HERE.parents[1]
PACKAGES = ["mosaic-bench==0.2.0", "jax==0.10.2", "jax-cfd==0.2.1", "exponax==0.2.0", "phiflow==3.4.0", "xlb==0.3.1"]
SOLVERS = ("simjax", "jax_cfd", "exponax", "phiflow", "xlb")
EXPERIMENTS = (
    "2d:forward/baseline", "2d:forward/agreement/tgv", "2d:forward/agreement/multimode",
    "3d:forward/baseline", "3d:forward/agreement",
    "2d:gradient/fd_check", "3d:gradient/fd_check",
    "2d:gradient/jacobian_svd", "2d:gradient/jacobian_svd_steps40", "3d:gradient/jacobian_svd",
    "2d:gradient/horizon_sweep", "3d:gradient/horizon_sweep_limits",
    "2d:cost/spatial_cost", "2d:cost/vjp_cost/by_N", "3d:cost/spatial_cost", "3d:cost/vjp_cost/by_N",
)  # fmt: skip
# Mosaic's own checks: `max_error` of forward experiments in two dimensions, `max_rel_err` of gradients in both.
BARS = {
    "2d: forward": 0.5, "2d: forward/agreement/multimode": 1.5,
    "2d: gradient/fd_check": 1e-3, "3d: gradient/fd_check": 1e-3,
}  # fmt: skip


def python_of(folder: Path) -> Path:
    """The interpreter of an environment that has Mosaic, its peers and simjax."""
    python = folder / "bin" / "python"
    if not (folder / "finished").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES, str(ROOT)], check=True)
        # As Mosaic's own image of XLB has it: this import of 0.3.1 fails with the warp-lang that it asks for.
        (steppers,) = folder.glob("lib/python*/site-packages/xlb/operator/stepper/__init__.py")
        lines = steppers.read_text(encoding="utf-8").splitlines(keepends=True)
        steppers.write_text("".join(line for line in lines if "ibm_stepper" not in line), encoding="utf-8")
        (folder / "finished").touch()
    return python


def bar_of(case: str) -> float | None:
    """Mosaic's bar for an experiment, by the longest name that it starts with; None where it has none."""
    fitting = [name for name in BARS if case.startswith(name)]
    return BARS[max(fitting, key=len)] if fitting else None


def rows_of(case: dict) -> list[dict[str, object]]:
    """A row for each value of the sweep at which simjax has a result."""
    rows = []
    for value, solvers in case["values"]:
        if not solvers.get("simjax"):
            continue
        ((quantity, own),) = solvers["simjax"].items()
        what = case["case"] if value is None else f"{case['case']}, {case['swept']} = {value}"
        more = {"quantity": quantity, "value": value, "swept": case["swept"]}
        more["peers"] = {name: one.get(quantity) for name, one in solvers.items() if name != "simjax"}
        bar = bar_of(case["case"])
        rows.append({"what": what, "found": own, **more} if bar is None else verdict(what, own, bar, **more))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kept = Path.home() / ".cache" / "simjax-benchmarks" / "mosaic"
    parser.add_argument("--folder", type=Path, default=kept, help="of the environment, kept for the next time")
    parser.add_argument("--experiments", nargs="+", default=EXPERIMENTS, metavar="EXPERIMENT")
    parser.add_argument("--solvers", nargs="+", default=SOLVERS, choices=SOLVERS)
    parser.add_argument(
        "--most", type=float, default=7e6, help="cells times steps, beyond which values of a sweep are left out"
    )
    parser.add_argument("--results", type=Path, help="folder for what Mosaic writes; what is there already stays")
    options = parser.parse_args()
    python = python_of(options.folder)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}

    def harness(*words: object) -> None:
        command = [str(python), str(HERE / "mosaic_adapter" / "harness.py"), *map(str, words)]
        subprocess.run(command, env=environment, check=True, cwd=temporary)

    with tempfile.TemporaryDirectory() as temporary:
        results, file = options.results or Path(temporary) / "results", Path(temporary) / "result.json"
        for solver in options.solvers:
            harness("run", results.resolve(), solver, options.most, *options.experiments)
        harness("tell", results.resolve(), file)
        told = json.loads(file.read_text(encoding="utf-8"))
    for case in told["cases"]:
        keep("mosaic", case["case"], rows_of(case), judged=case["judged"], **told["versions"])


if __name__ == "__main__":
    main()
