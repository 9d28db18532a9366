"""Steady rolls of Rayleigh-Benard convection beside Dedalus: heat through the layer, and kinetic energy.

    python benchmarks/referees/dedalus.py --python PATH

PATH is an interpreter that has Dedalus 3 (`pip install dedalus` with MPI_PATH and FFTW_PATH; on Debian
/usr/lib/x86_64-linux-gnu/openmpi and /usr, with libopenmpi-dev and libfftw3-mpi-dev). Rigid plates at given
temperatures, a periodic layer twice as wide as high, Prandtl number 1, units of free fall. Dedalus has its modes of
spectral accuracy, which a second run with fewer shows; simjax three grids. About two minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from verdicts import HERE, keep, rounded, verdict

jax.config.update("jax_enable_x64", True)

import simjax as sj  # noqa: E402

PRANDTL, WIDTH, END = 1.0, 2.0, 100.0
RAYLEIGH, GRIDS, MODES = 1e4, (16, 32, 64), (24, 36)
"""Rayleigh's number; cells across the layer; Dedalus's modes along it and across."""
ORDER = 2**-1.8
"""The most that an error may keep when the spacing is halved: second order, less what is not yet asymptotic."""
SETTLED = 1e-6
"""How far Nusselt numbers may still move in the last tenth of a run, far below the errors of grids."""


def by_dedalus(python: str) -> tuple[list[dict[str, Any]], str]:
    """What Dedalus finds with each number of modes, and its version."""
    problems = {
        str(modes): {
            "rayleigh": RAYLEIGH,
            "prandtl": PRANDTL,
            "width": WIDTH,
            "modes": [modes, modes],
            "dt": 0.05,
            "end": END,
        }
        for modes in MODES
    }
    with tempfile.TemporaryDirectory() as folder:
        asked, told = Path(folder) / "problems.json", Path(folder) / "found.json"
        asked.write_text(json.dumps(problems), encoding="utf-8")
        command = [python, str(HERE / "others" / "dedalus_convection.py"), str(asked), str(told)]
        one = {**os.environ, "OMP_NUM_THREADS": "1"}
        ran = subprocess.run(command, cwd=folder, env=one, capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f"{python} could not run Dedalus: {ran.stderr[-2000:]}")
        result = json.loads(told.read_text(encoding="utf-8"))
    return [result["found"][name] for name in problems], result["version"]


def by_simjax(cells: int) -> dict[str, Any]:
    """The same from simjax, by the heat through the lower plate; `before` is at nine tenths of the time."""
    number = (RAYLEIGH * PRANDTL) ** -0.5
    layer = sj.configure(
        "boussinesq",
        physics={"viscosity": number * PRANDTL, "diffusivity": number, "expansion": 1.0, "gravity": [0, -1]},
        grid={"shape": [round(WIDTH * cells), cells], "lower": [0, 0], "upper": [WIDTH, 1]},
        boundaries={
            "x": "periodic",
            "y": {
                "lower": {"kind": "no_slip", "temperature": 0.5},
                "upper": {"kind": "no_slip", "temperature": -0.5},
            },
        },
        initial={"velocity": [0, 0], "temperature": "0.5 - y + 0.1*cos(pi*x)*sin(pi*y)"},
        time={"end": END, "output_every": END / 10, "dt": 0.3 / cells},
        precision="float64",
    )

    def look(t, state, params):
        energy = sum(0.5 * jnp.mean(u**2) for u in state.velocity)
        return {"nusselt": jnp.mean(0.5 - state.temperature[:, 0]) * 2 * cells, "energy": energy}

    seen = sj.simulate(
        layer.model, layer.integrator, layer.params, layer.state, layer.schedule, frames=layer.frames, observe=look
    ).observed
    last, before = ({name: float(values[k]) for name, values in seen.items()} for k in (-1, -2))
    return {**last, "before": before}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="an interpreter that has Dedalus")
    (fewer, exact), version = by_dedalus(parser.parse_args().python)
    ours = {cells: by_simjax(cells) for cells in GRIDS}
    runs = (*ours.values(), exact)
    # The boundary layer has a thickness of 1 / (2 Nu): half the inverse square of its cells.
    bar = 0.5 * (2 * exact["nusselt"] / GRIDS[-1]) ** 2
    rows = [
        verdict(
            "Nusselt numbers still move by",
            max(abs(run["nusselt"] / run["before"]["nusselt"] - 1) for run in runs),
            SETTLED,
        )
    ]
    for name, what in (("nusselt", "Nusselt number"), ("energy", "Kinetic energy")):
        errors = {cells: abs(run[name] / exact[name] - 1) for cells, run in ours.items()}
        _, middle, fine = GRIDS
        more = {
            "simjax": {cells: round(run[name], 8) for cells, run in ours.items()},
            "dedalus": round(exact[name], 8),
            "dedalus_resolved": rounded(abs(fewer[name] / exact[name] - 1)),
        }
        rows += [
            verdict(f"{what}, {fine} cells", errors[fine], bar, **more),
            verdict(f"{what}, {fine} cells over {middle}", errors[fine] / errors[middle], ORDER),
        ]
    keep("dedalus", "rolls", rows, dedalus=version)


if __name__ == "__main__":
    main()
