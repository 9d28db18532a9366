"""What instruments cost: a wave with 1000 probes at every step, and slices of a wave in space against its fields.

    python -m benchmarks.instruments [cells of the plane's side] [cells of the cube's side] [file for the results]

The time of a run is that of its steps and its files, by its own account, without compilation. Repetitions of the runs
that are compared take turns, and the fastest of each is kept: others only take time from a machine that is shared.
"""

import json
import sys
import tempfile
from pathlib import Path

import simjax as sj
from benchmarks.measure import environment

REPEATS = 3
PULSE = "exp(-50*((x - 0.5)**2 + (y - 0.5)**2{z}))"
"""Initial pressure."""


def wave(cells, ndim, steps, frames, folder, **changes):
    dt = 0.3 / cells / ndim**0.5
    return sj.configure(
        "acoustic",
        grid={"shape": [cells] * ndim},
        initial={"pressure": PULSE.format(z="" if ndim == 2 else " + (z - 0.5)**2")},
        time={"end": steps * dt, "output_every": steps * dt / frames, "dt": dt},
        checkpoint={"every_seconds": None},
        **{"output": {"root": str(folder), "report": False, "animation": False, "fields": []}, **changes},
    )


def measured(simulation):
    """Seconds from the start of a run to its end but for compiling, and bytes of what it read or wrote of fields."""
    result = simulation.run()
    account = sj.goodput(result.folder).seconds
    spent = account["simulate"] + account.get("output", 0.0)
    files = [*result.folder.glob("fields*"), *result.folder.glob("data/*"), *result.folder.glob("outputs/*/*.h5")]
    return {"seconds": spent, "bytes": sum(path.stat().st_size for path in files if path.is_file())}


def compared(runs):
    """The fastest of each run's repetitions."""
    found = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, simulation in runs.items():
            found[name].append(measured(simulation))
    return {name: min(each, key=lambda one: one["seconds"]) for name, each in found.items()}


def main():
    plane = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    cube = int(sys.argv[2]) if len(sys.argv) > 2 else 128
    points = [[(0.5 + i % 40) / 40, (0.5 + i // 40) / 25] for i in range(1000)]
    probes = [{"probe": {"points": points}, "of": ["pressure"], "every": "step"}]
    with tempfile.TemporaryDirectory() as folder:
        slices = [{"slice": {"z": 0.5}, "of": ["pressure"], "every": "frame"}]
        everything = {"root": folder, "report": False, "animation": False, "fields": None}
        results = {
            **environment(),
            "plane": plane,
            "cube": cube,
            "probes": compared(
                {
                    "without": wave(plane, 2, 1500, 4, folder),
                    "1000 probes at every step": wave(plane, 2, 1500, 4, folder, outputs=probes),
                }
            ),
            "slices": compared(
                {
                    "without": wave(cube, 3, 80, 40, folder),
                    "slice": wave(cube, 3, 80, 40, folder, outputs=slices),
                    "all fields": wave(cube, 3, 80, 40, folder, output=everything),
                }
            ),
        }
    print(json.dumps(results, indent=1))
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
