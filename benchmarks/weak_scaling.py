"""Predicted weak scaling of experiments on a pod of TPUs that is not there; writes results/weak_scaling_v5e.json.

Every size is compiled in a process of its own, by `python -m simjax.inspect`; nothing is run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = "v5e:16x16"
# Blocks of each chip: 512 x 512 cells of a flow (whose step is one stage), 256 x 256 of a gas, 2048 x 2048 of waves,
# 128 x 128 of patterns.
CASES = {
    "fluid": ["grid.shape=[8192,8192]", "time={dt: 1e-5, integrator: euler}"],
    "shock_bubble": ["grid.shape=[4096,4096]", "mesh.x=16", "mesh.y=16"],
    "layered_medium": ["grid.shape=[32768,32768]"],
    "gray_scott": ["grid.shape=[2048,2048]"],
}


def inspected(experiment: str, overrides: list[str], target: str, *options: str) -> dict:
    """The inspection of an experiment as plain values, or the sentence that says why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inspection.json"
        command = [sys.executable, "-m", "simjax.inspect", f"experiment={experiment}", f"target={target}", *overrides]
        done = subprocess.run([*command, *options, "--json", str(path)], capture_output=True, text=True)
        if not path.exists():
            return {"experiment": experiment, "target": target, "error": done.stderr.strip()}
        return json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--only", choices=CASES)
    options = parser.parse_args()
    path = Path(__file__).parent / "results" / f"weak_scaling_{options.target.partition(':')[0]}.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else []
    cases = {case["experiment"]: case for case in kept}
    for experiment, overrides in CASES.items():
        if options.only in (None, experiment):
            cases[experiment] = inspected(experiment, overrides, options.target)
            content = {"target": options.target, "cases": [cases[name] for name in CASES if name in cases]}
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
