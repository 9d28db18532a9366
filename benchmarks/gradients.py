"""Cost of gradients: time and memory of reverse mode over the forward run, by checkpoint plan, beside the peers'.

Two-dimensional Navier-Stokes in float32, by finite volumes and as vorticity in a Fourier basis; every row in a process
of its own (`gradients_row.py`). Prints JSON, and a table of the rows while they come in on standard error.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import spectral
from benchmarks.cases import FORCE, VISCOSITY, WAVENUMBER, kolmogorov_box, solenoidal_velocity
from benchmarks.measure import environment, rounded

PLANS, PEER_PLANS = ("none", "auto", "two_level", "binomial_19"), ("none", "every_step")
# Of the default plan, and of many steps from fewer than twenty states.
SOUGHT, SOUGHT_LONG, DEFAULT_PLAN, LONG_PLAN = 4.0, 7.0, "auto", "binomial_19"
# Of compiling a thousand times as many steps.
SOUGHT_COMPILE = 1.2
# PhiFlow's index of pairs of cells, of 32 bits, overflows on periodic grids beyond 215 x 215 (PhiML issue 15).
PHIFLOW_SHAPE, PHIFLOW_STEPS = (192, 192), 10
COLUMNS = {
    "forward_ms_per_step": "forward ms",
    "gradient_ms_per_step": "gradient ms",
    "gradient_over_forward": "ratio",
    "gradient_peak_mib": "peak MiB",
    "gradient_temp_mib": "temp MiB",
}


class Row(NamedTuple):
    """What is differentiated: by which package, which flow, with which plan, over how many steps of which grid."""

    package: str
    problem: str
    plan: str
    steps: int
    shape: tuple[int, ...]
    repeats: int

    def sought(self) -> float | None:
        """What the gradient may cost, in forward runs."""
        if self.package != "simjax" or self.plan not in (DEFAULT_PLAN, LONG_PLAN):
            return None
        return SOUGHT if self.plan == DEFAULT_PLAN else SOUGHT_LONG

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.problem:<14} {self.package:<17} {self.plan:<12} {shape:>9} {self.steps:>6}"


def write_problem(row: Row, folder: Path) -> None:
    """The fields to start from, and the physics, for the process that measures."""
    physics: dict[str, object] = {"viscosity": VISCOSITY}
    if row.problem == "finite_volume":
        u, v = solenoidal_velocity(kolmogorov_box(row.shape).grid)
        np.savez(folder / "initial.npz", velocity_x=u, velocity_y=v)
        # As in navier_stokes.py.
        physics |= {"dt": 0.25 * VISCOSITY, "force": FORCE, "wavenumber": WAVENUMBER, "integrator": "midpoint"}
    else:
        np.savez(folder / "initial.npz", vorticity=spectral.flow(row.shape)[1])
        physics |= {"dt": spectral.DT, "integrator": "etdrk2"}
    (folder / "physics.json").write_text(json.dumps(physics))


def run(python: str, row: Row, plans: list[str], steps: list[int], *, only_compile: bool = False):
    """What a process of its own measured, or {"error": its last words}."""
    script = Path(__file__).with_name("gradients_row.py")
    choices = ["--package", row.package, "--problem", row.problem, "--plans", *plans, "--steps", *map(str, steps)]
    if only_compile:
        choices.append("--only-compile")
    with tempfile.TemporaryDirectory() as folder:
        write_problem(row, Path(folder))
        command = [python, str(script), folder, *choices, "--repeats", str(row.repeats)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raised = re.findall(r"^[\w.]*(?:Error|Exception)\b.*", done.stderr, re.MULTILINE)
        return {"error": raised[-1] if raised else f"exit code {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def slope_difference(found, reference) -> float:
    """How far the slopes are apart, relative to the reference: with respect to viscosity, and the norm of the rest."""
    names = ("viscosity_slope", "start_slope_norm")
    return rounded(max(abs(found[name] / reference[name] - 1) for name in names))


def measure(rows: list[Row], pythons: dict[str, str]) -> list[dict[str, object]]:
    """All rows, one after the other; slopes are compared with those of the first of the same flow, grid and length."""
    results, references = [], {}
    print(f"{'':<63}" + "".join(f"{title:>13}" for title in COLUMNS.values()), file=sys.stderr)
    for row in rows:
        found = run(pythons[row.package], row, [row.plan], [row.steps])
        if "error" not in found:
            reference = references.setdefault((row.problem, row.shape, row.steps), found)
            if reference is not found:
                found["slope_difference"] = slope_difference(found, reference)
            if sought := row.sought():
                found |= {"at_most_sought": sought, "reached": found["gradient_over_forward"] <= sought}
        line = found.get("error") or "".join(f"{found[name]:>13}" for name in COLUMNS)
        print(row, line, sep="", file=sys.stderr, flush=True)
        results.append(row._asdict() | found)
    return results


def table_of(packages: Collection[str], shape: tuple[int, int], steps: int, long_steps: int, repeats: int) -> list[Row]:
    """The rows; of the peers those whose interpreters were given."""
    rows = []
    for problem, peers in (("finite_volume", ("jax_cfd",)), ("spectral", ("jax_cfd", "exponax"))):
        rows += [Row("simjax", problem, plan, steps, shape, repeats) for plan in PLANS]
        # Long enough to be timed once.
        rows += [Row("simjax", problem, plan, long_steps, shape, 1) for plan in (DEFAULT_PLAN, LONG_PLAN)]
        rows += [Row(package, problem, plan, steps, shape, repeats) for package in peers for plan in PEER_PLANS]
    rows += [
        # Without checkpoints it takes 20 GB.
        Row("jax_cfd_van_leer", "finite_volume", "every_step", steps, shape, repeats),
        Row("phiflow", "finite_volume", "none", PHIFLOW_STEPS, shape, repeats),
        Row("phiflow", "finite_volume", "none", PHIFLOW_STEPS, PHIFLOW_SHAPE, repeats),
    ]
    return [row for row in rows if row.package in packages]


def compile_times(shape: tuple[int, int], repeats: int) -> dict[str, object]:
    """Seconds to compile the gradient of few and of many steps, by plan; ratios are of the least processor times.

    The first plan stores every one of the few steps, so nothing is replayed and the program is smaller; the second one
    replays, as the many steps do.
    """
    lengths, plans = [100, 100, 100_000, 100, 100_000], ["binomial_199", LONG_PLAN, "binomial_199", *["two_level"] * 2]
    found = {}
    for problem in ("finite_volume", "spectral"):
        times = run(sys.executable, Row("simjax", problem, "", 0, shape, repeats), plans, lengths, only_compile=True)
        if isinstance(times, list):
            _, few, many, few_default, many_default = (entry["compile_cpu_s_least"] for entry in times)
            ratios = {"binomial": many / few, "two_level": many_default / few_default}
            times = {
                "times": times,
                "many_over_few": {plan: rounded(ratio) for plan, ratio in ratios.items()},
                "at_most_sought": SOUGHT_COMPILE,
                "reached": max(ratios.values()) <= SOUGHT_COMPILE,
            }
        found[problem] = times
        print(f"{problem} compilation: {json.dumps(times)}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="512x512", help="grid, such as 512x512")
    parser.add_argument("--steps", type=int, default=100, help="of all plans")
    parser.add_argument("--long-steps", type=int, default=1000, help="of the long run from 19 states")
    parser.add_argument("--repeats", type=int, default=3, help="timings of each program; medians are printed")
    parser.add_argument("--jax-cfd-python", help="an interpreter with jax-cfd 0.2.1")
    parser.add_argument("--exponax-python", help="an interpreter with exponax 0.2.0")
    parser.add_argument("--phiflow-python", help="an interpreter with phiflow 3.4.0")
    parser.add_argument("--only-compile", action="store_true", help="only time the compilation of few and many steps")
    options = parser.parse_args()
    nx, ny = map(int, options.shape.split("x"))
    if options.only_compile:
        json.dump({"environment": environment(), "compilation": compile_times((nx, ny), options.repeats)}, sys.stdout)
        return
    named = {
        "simjax": sys.executable,
        "jax_cfd": options.jax_cfd_python,
        "jax_cfd_van_leer": options.jax_cfd_python,
        "exponax": options.exponax_python,
        "phiflow": options.phiflow_python,
    }
    pythons = {name: python for name, python in named.items() if python}
    rows = table_of(pythons, (nx, ny), options.steps, options.long_steps, options.repeats)
    result = {
        "benchmark": "value and gradient over the forward run, two-dimensional Navier-Stokes, periodic, float32",
        "environment": environment(),
        "rows": measure(rows, pythons),
        "compilation": compile_times((nx, ny), options.repeats),
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
