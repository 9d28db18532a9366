"""simjax, jax-cfd, exponax, PhiFlow and XLB before the public benchmark Mosaic: flows, a cylinder's drag, gradients.

    python benchmarks/referees/mosaic_bench.py

`mosaic-bench` 0.2.0 and the peers get an environment of their own from the package index; Mosaic's harness then runs
each solver in a process on the processor through the adapters of its wheel, and simjax through
`mosaic_adapter/tesseract_api.py`. No container engine is needed. About half an hour of two cores that do
nothing else.
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

from benchmarks.environments import NotInstalled, python_of
from benchmarks.peer import ROOT

SOLVERS = {"simjax": 1.0, "jax_cfd": 1.0, "exponax": 1.0, "xlb": 1.0, "phiflow": 0.45}
"""Solvers, and their shares of `--most`: gradients of PhiFlow in space take longest."""
EXPERIMENTS = (
    "2d:forward/baseline",
    "2d:forward/agreement/tgv",
    "2d:forward/agreement/multimode",
    "2d:forward/cylinder",
    "3d:forward/baseline",
    "3d:forward/agreement",
    "2d:gradient/fd_check",
    "3d:gradient/fd_check",
    "2d:gradient/drag_fd_check",
    "2d:optimization/drag_opt",
    "2d:gradient/jacobian_svd",
    "2d:gradient/jacobian_svd_steps40",
    "3d:gradient/jacobian_svd",
    "2d:gradient/horizon_sweep",
    "3d:gradient/horizon_sweep_limits",
    "2d:cost/spatial_cost",
    "2d:cost/vjp_cost/by_N",
    "3d:cost/spatial_cost",
    "3d:cost/vjp_cost/by_N",
)
# Mosaic's own checks: `max_error` of forward experiments in two dimensions, `max_rel_err` of gradients in both, which
# the drag's gradient has to pass too.
BARS = {
    "2d: forward": 0.5,
    "2d: forward/agreement/multimode": 1.5,
    "2d: gradient/fd_check": 1e-3,
    "3d: gradient/fd_check": 1e-3,
    "2d: gradient/drag_fd_check": 1e-3,
}


def bar_of(case: str) -> float | None:
    """Mosaic's bar for an experiment, by the longest name that it starts with; None where it has none."""
    fitting = [name for name in BARS if case.startswith(name)]
    return BARS[max(fitting, key=len)] if fitting else None


def rows_of(case: dict) -> list[dict[str, object]]:
    """A row for each quantity that simjax has at a value of the sweep."""
    rows = []
    for value, solvers in case["values"]:
        for quantity, own in solvers.get("simjax", {}).items():
            what = case["case"] if value is None else f"{case['case']}, {case['swept']} = {value}"
            more = {"quantity": quantity, "value": value, "swept": case["swept"]}
            more["peers"] = {name: one.get(quantity) for name, one in solvers.items() if name != "simjax"}
            bar = bar_of(case["case"])
            rows.append({"what": what, "found": own, **more} if bar is None else verdict(what, own, bar, **more))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", nargs="+", default=EXPERIMENTS, metavar="EXPERIMENT")
    parser.add_argument(
        "--most", type=float, default=1e6, help="cells times steps, beyond which values of a sweep are left out"
    )
    parser.add_argument("--iterations", type=int, default=20, help="the most that a search for the least drag takes")
    options = parser.parse_args()
    try:
        python = python_of("mosaic-bench")
    except NotInstalled as error:
        sys.exit(str(error))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}

    def harness(*words: object) -> int:
        command = [python, str(HERE / "mosaic_adapter" / "harness.py"), *map(str, words)]
        return subprocess.run(command, env=environment, cwd=temporary).returncode

    with tempfile.TemporaryDirectory() as temporary:
        results, file = Path(temporary) / "results", Path(temporary) / "result.json"
        for solver, share in SOLVERS.items():
            if harness("run", results, solver, share * options.most, options.iterations, *options.experiments):
                print(f"{solver} did not come to its end; what it finished is kept.", file=sys.stderr)
        if harness("tell", results, file):
            sys.exit("Mosaic's results could not be read; see above.")
        told = json.loads(file.read_text(encoding="utf-8"))
    for case in told["cases"]:
        keep("mosaic", case["case"], rows_of(case), judged=case["judged"], **told["versions"])


if __name__ == "__main__":
    main()
