"""Diffusion and viscosity of a Lennard-Jones liquid by simjax and by LAMMPS, from the same starts.

    python benchmarks/referees/lammps_transport.py

It needs LAMMPS's program `lmp`, as `lammps.py`. LAMMPS melts a crystal and brings it to the temperature, once for each
run; then both programs go on from the same places and velocities at constant energy, and one estimator reads what both
wrote. Trajectories part after some units of time, so that only means can agree. About seven minutes of one core.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from verdicts import keep, verdict

jax.config.update("jax_enable_x64", True)

from lammps import version  # noqa: E402

import simjax as sj  # noqa: E402
from simjax.particles.cells import unpack  # noqa: E402
from simjax.particles.diffusion import diffusion_coefficient, unwrapped  # noqa: E402

DENSITY, TEMPERATURE, CUTOFF, CELLS = 0.8442, 0.722, 2.5, 4
COUNT, LENGTH = 4 * CELLS**3, CELLS * (4 / DENSITY) ** (1 / 3)
DT, STEPS_PER_SAMPLE = 0.005, 5
SAMPLE = DT * STEPS_PER_SAMPLE
STRESSES = ("xx", "yy", "zz", "xy", "xz", "yz")
# Motion is diffusive from one unit of time on; most of the stress has forgotten itself after two.
DIFFUSIVE, REMEMBERED = (1.0, 4.0), 2.0
POTENTIAL = f"pair_style lj/smooth/linear {CUTOFF}\npair_coeff * * 1.0 1.0"


def lammps(lmp: str, folder: Path, script: str) -> None:
    (folder / "in.liquid").write_text(script, encoding="utf-8")
    ran = subprocess.run([lmp, "-in", "in.liquid", "-log", "none"], cwd=folder, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{lmp} failed: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")


def melted(lmp: str, folder: Path, seed: int) -> None:
    """Writes `start.data`, a liquid at the temperature and without momentum."""
    lammps(
        lmp,
        folder,
        f"""units lj
        atom_style atomic
        lattice fcc {DENSITY}
        region box block 0 {CELLS} 0 {CELLS} 0 {CELLS}
        create_box 1 box
        create_atoms 1 box
        mass 1 1.0
        velocity all create {2 * TEMPERATURE} {seed}
        {POTENTIAL}
        timestep {DT}
        fix motion all nve
        fix bath all langevin {TEMPERATURE} {TEMPERATURE} 0.5 {seed} zero yes
        run 8000
        velocity all zero linear
        velocity all scale {TEMPERATURE}
        write_data start.data nocoeff
        """,
    )


def by_lammps(lmp: str, folder: Path, samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stresses `(samples, 6)`, temperatures `(samples,)` and places `(samples, 3, count)` without jumps at sides."""
    every = STEPS_PER_SAMPLE
    stresses = " ".join(f"c_thermo_press[{k}]" for k in range(1, 7))
    lammps(
        lmp,
        folder,
        f"""units lj
        atom_style atomic
        read_data start.data
        {POTENTIAL}
        timestep {DT}
        fix motion all nve
        fix look all ave/time {every} 1 {every} {stresses} c_thermo_temp file stress.txt format " %.15g"
        dump places all custom {every} places.txt id xu yu zu
        dump_modify places sort id format line "%d %.9g %.9g %.9g"
        run {samples * every}
        """,
    )
    table = np.loadtxt(folder / "stress.txt")[1:]
    lines = (line for k, line in enumerate((folder / "places.txt").open()) if k % (COUNT + 9) >= 9)
    places = np.loadtxt(lines, usecols=(1, 2, 3)).reshape(-1, COUNT, 3)[1:]
    return table[:, 1:7], table[:, 7], places.transpose(0, 2, 1)


@eqx.filter_jit
def observed(model: sj.MolecularDynamics, params: Any, state: Any, samples: int) -> tuple[jax.Array, ...]:
    """What `by_lammps` returns, of a run from `state`."""

    def look(t, state, params):
        told = model.diagnostics(t, state, params)
        stress = jnp.stack([told[f"pressure_{name}"] for name in STRESSES])
        return stress, told["temperature"], unpack(model.cells, state.ids, unwrapped(model.cells, state), COUNT)

    schedule = sj.Schedule(SAMPLE, dt=DT)
    return sj.simulate(model, None, params, state, schedule, frames=samples, observe=look, on_fault="nan").observed


def by_simjax(folder: Path, samples: int) -> tuple[np.ndarray, ...]:
    """What `by_lammps` returns."""
    liquid = sj.configure(
        "molecular_dynamics",
        physics={"potential": "lennard_jones", "cutoff": CUTOFF, "mode": "force_shifted"},
        box={"upper": [LENGTH] * 3},
        particles={"placement": "file", "file": str(folder / "start.data")},
        time={"end": samples * SAMPLE, "output_every": SAMPLE, "dt": DT},
        precision="float64",
    )
    return tuple(np.asarray(u) for u in observed(liquid.model, liquid.params, liquid.state, samples))


def coefficients(stresses: np.ndarray, temperatures: np.ndarray, places: np.ndarray) -> tuple[float, float]:
    """Diffusion by Einstein's relation and viscosity by Green and Kubo's, of one run; all times are origins."""
    lags = np.arange(round(DIFFUSIVE[0] / SAMPLE), round(DIFFUSIVE[1] / SAMPLE) + 1, 4)
    squares = [3 * np.mean((places[lag:] - places[:-lag]) ** 2) for lag in lags]
    xx, yy, zz, *shears = stresses.T
    shears = np.stack([*shears, (xx - yy) / 2, (yy - zz) / 2])
    most = round(REMEMBERED / SAMPLE)
    memory = [np.mean(shears[:, lag:] * shears[:, : shears.shape[1] - lag]) for lag in range(most + 1)]
    viscosity = LENGTH**3 / temperatures.mean() * np.trapezoid(memory, dx=SAMPLE)
    return float(diffusion_coefficient(lags * SAMPLE, np.array(squares), 3)), float(viscosity)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lmp", default=shutil.which("lmp"), help="LAMMPS's program")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--length", type=float, default=100.0, help="of a run, in units of time")
    options = parser.parse_args()
    if options.lmp is None:
        sys.exit("LAMMPS's program lmp is not here: apt-get install lammps, or --lmp PATH.")
    samples = round(options.length / SAMPLE)
    ours, theirs, first = [], [], []
    for number in range(options.runs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            melted(options.lmp, folder, 1000 + number)
            one, other = by_simjax(folder, samples), by_lammps(options.lmp, folder, samples)
        first.append(np.abs(one[0][0] - other[0][0]).max() / np.abs(other[0][0]).max())
        ours.append(coefficients(*one))
        theirs.append(coefficients(*other))
        print(ours[-1], theirs[-1], flush=True)
    # Five steps multiply roundings of the stress a hundred times or so.
    rows = [verdict(f"stress after {STEPS_PER_SAMPLE} steps, largest relative difference", max(first), 1e-9)]
    for name, one, other in zip(("diffusion", "viscosity"), np.transpose(ours), np.transpose(theirs), strict=True):
        errors = [values.std(ddof=1) / math.sqrt(len(values)) for values in (one, other)]
        more = {"simjax": one.mean(), "lammps": other.mean(), "errors": errors}
        rows.append(verdict(name, abs(one.mean() - other.mean()) / math.hypot(*errors), 3, **more))
    keep("lammps_transport", "liquid", rows, lammps=version(options.lmp), runs=options.runs, length=options.length)


if __name__ == "__main__":
    main()
