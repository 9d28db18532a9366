"""Measure what the compiler takes for every shipped experiment: CPU seconds, operations and memory.

Each program is compiled in a process of its own with the default flags: the first steps of the run, and the gradient
of the same steps by all their unknowns, as `simjax.certify` takes them. The grid is small, as its size hardly matters.
What is measured is written to a file after every program, whose other rows stay.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("forward", "gradient")
CELLS = {1: 32, 2: 16, 3: 12}
# More, for a band of forced waves.
FINER = {"turbulence_2d": 32}
SOUGHT_SECONDS = 60
RESULTS = ROOT / "benchmarks" / "results" / "compile_time.json"


def measure_program(experiment: str, program: str) -> dict[str, object]:
    """Figures of one program, compiled in this process."""
    import jax

    from benchmarks.measure import rounded
    from simjax.certificate.certify import STEPS
    from simjax.certificate.prepared_objective import objective_of
    from simjax.config import load_config

    jax.config.update("jax_enable_x64", True)
    config = load_config(experiment)
    if not config.schema.of_particles and not experiment.startswith(("inverse", "from_file")):
        shape = [min(n, FINER.get(experiment, CELLS[config.ndim])) for n in config.grid_of_fields().shape]
        layer = ["physics.layer_cells=4"] if hasattr(config.physics, "layer_cells") else []
        config = load_config(experiment, [f"grid.shape={shape}".replace(" ", ""), *layer])
    objective = objective_of(config, steps=STEPS, devices=1)
    function = objective.on({}, "two_level")
    if program == "gradient":
        function = jax.value_and_grad(function)
    begin = time.process_time()
    lowered = jax.jit(function).lower(objective.start)
    operations = sum(" = " in line for line in lowered.as_text().splitlines())
    traced = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lowered.compile()
    return {
        "operations": operations,
        "trace_cpu_s": rounded(traced - begin),
        "compile_cpu_s": rounded(time.process_time() - traced),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "peak_before_compiling_mib": round(before / 1024),
    }


def measure(experiment: str, program: str, limit: float) -> dict[str, object]:
    """Figures of one program, or {"error": the last words of the process}."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "--program", program, "--only", experiment]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {limit:g} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    shipped = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", nargs="+", default=shipped)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=PROGRAMS)
    parser.add_argument("--limit", type=float, default=1800, help="seconds after which a program is given up")
    parser.add_argument("--output", default=str(RESULTS), help="file of results")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--program", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure_program(options.only, options.program)))
        return
    from benchmarks.measure import environment

    path = Path(options.output)
    earlier = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {(row["experiment"], row["program"]): row for row in earlier}
    print(f"{'experiment':<22}{'program':<10}{'operations':>11}{'CPU s':>8}{'peak MiB':>10}", file=sys.stderr)
    for experiment in options.experiments:
        for program in options.programs:
            row = measure(experiment, program, options.limit)
            if "error" not in row:
                row["reached"] = row["compile_cpu_s"] <= SOUGHT_SECONDS
            rows[experiment, program] = {"experiment": experiment, "program": program} | row
            told = row.get("error") or f"{row['operations']:>11}{row['compile_cpu_s']:>8}{row['peak_mib']:>10}"
            print(f"{experiment:<22}{program:<10}{told}", file=sys.stderr, flush=True)
            result = {
                "benchmark": "compilation of shipped experiments as they are certified, float64",
                "environment": environment(),
                "at_most_sought_cpu_s": SOUGHT_SECONDS,
                "rows": [rows[key] for key in sorted(rows)],
            }
            path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
