"""Compare the memory that a run is told to need with what its process takes.

Each case runs in two processes, with few cells or particles and with many: the difference of their peaks is what the
many took, without Python, the libraries and the compiler.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = ["time.courant=null", "time.dt=1e-5", "time.end=4e-5", "time.output_every=2e-5"]
FEW_STEPS = ["time.dt=0.001", "time.end=0.004", "time.output_every=0.002"]
SIDE = 16.796 / 4000 ** (1 / 3)  # of the box, for one particle
"""Experiment, what it is run with, and how a size is written, by case."""
CASES = {
    "flow": ("fluid", STEPS, lambda n: [f"grid.shape=[{n},{n}]"]),
    "flow, four devices": ("fluid", [*STEPS, "mesh.x=2", "mesh.y=2"], lambda n: [f"grid.shape=[{n},{n}]"]),
    "gas": ("shock_bubble", STEPS, lambda n: [f"grid.shape=[{n},{n}]"]),
    "Lennard-Jones liquid": (
        "lennard_jones",
        FEW_STEPS,
        lambda n: [f"particles.count={4 * n**3}", f"box.upper={[SIDE * (4 * n**3) ** (1 / 3)] * 3}".replace(" ", "")],
    ),
}
FEW = {"flow": 64, "flow, four devices": 64, "gas": 64, "Lennard-Jones liquid": 10}
MANY = {"flow": 4096, "flow, four devices": 4096, "gas": 2048, "Lennard-Jones liquid": 50}


UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
RESULTS = ROOT / "benchmarks" / "results"


def measure(case: str, size: int) -> dict[str, int]:
    """What one run was told to need and the peak of its process, this one, in bytes of all devices together."""
    import simjax as sj

    experiment, overrides, sized = CASES[case]
    with tempfile.TemporaryDirectory() as root:
        files = [f"output.root={root}", "output.animation=false", "output.report=false"]
        simulation = sj.load(experiment, [*overrides, *sized(size), *files])
        told = told_in((simulation.run().folder / "run.log").read_text(), simulation.config.mesh.devices)
    return {**told, "peak": peak_memory()}


def peak_memory() -> int:
    """The most bytes that this process has held; `ru_maxrss` would count those of the one that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def compare(case: str, size: int) -> dict[str, object]:
    """What many cells or particles were told to need and took, beyond what few did."""
    few, many = (_in_a_process(case, count) for count in (FEW[case], size))
    taken = many.pop("peak") - few["peak"]
    ratio = taken / (many["needed"] - few["needed"])
    return {"case": case, "size": size, **many, "taken": taken, "taken_over_told": round(ratio, 3)}


def _in_a_process(case: str, size: int) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.memory", "--case", case, "--size", str(size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


def told_in(log: str, devices: int) -> dict[str, int]:
    """Bytes of all devices that the line of a run's log has: what is needed in all, and its parts."""
    (line,) = re.findall("Memory on each device: .*", log)
    parts = {"needed": r"device: (\S+) (\w+)"}
    parts |= {name: rf"{name.replace('_', ' ')} (\S+) (\w+)" for name in ("state", "working_memory", "observed_frames")}
    found = {name: re.search(pattern, line) for name, pattern in parts.items()}
    return {name: round(float(m[1]) * UNITS[m[2]] * devices) for name, m in found.items() if m is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="measure one case in this process and print it")
    parser.add_argument("--size", type=int, help="cells along an axis, or unit cells of the crystal")
    parser.add_argument("--output", type=Path, default=RESULTS / "memory_xeon_2_cores_jax_0.10.2.json")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options.size or MANY[options.case])))
        return
    from benchmarks.measure import environment

    rows = []
    for case in CASES:
        rows.append(compare(case, MANY[case]))
        print(rows[-1], flush=True)
    content = {"benchmark": "memory that runs are told to need, and take; bytes", "environment": environment()}
    options.output.write_text(json.dumps({**content, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
