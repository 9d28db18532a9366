"""Energies, forces and pressures of molecular dynamics beside LAMMPS, on the same particles from one data file.

    python benchmarks/referees/lammps.py

It needs LAMMPS's program `lmp` (Debian's package `lammps`; `--lmp PATH` names another), and says so where there is
none. Every potential, bond, angle and sum of charges of simjax that LAMMPS has too is evaluated once. simjax reads the
data file as a user would (`particles.file`); LAMMPS prints and dumps seventeen digits. About six minutes of one core.
"""

from __future__ import annotations

import argparse
import itertools
import math
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from verdicts import keep, verdict

jax.config.update("jax_enable_x64", True)

from particles import scattered  # noqa: E402

import simjax as sj  # noqa: E402

ROUNDING = 1e-12
"""Some thousand roundings, over the largest energy, force or pressure."""
POLYNOMIAL = 1e-6
"""LAMMPS takes erfc in pairs of charges from a polynomial that is good to 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
PRESSURES = ("xx", "yy", "zz", "xy", "xz", "yz")
SILICON = "7.049556277 0.6022245584"


@dataclass(frozen=True)
class Molecules:
    """Particles of a data file: `(3, count)` in a cube of side `length`; species and ends count from 0."""

    position: np.ndarray
    length: float
    species: np.ndarray
    charges: tuple[float, ...] = (0.0,)
    bonds: tuple[tuple[int, int], ...] = ()
    angles: tuple[tuple[int, int, int], ...] = ()

    def write(self, path: Path) -> None:
        kinds = len(self.charges)
        lines = ["particles of a comparison", "", f"{self.position.shape[1]} atoms", f"{kinds} atom types"]
        for name, entries in (("bond", self.bonds), ("angle", self.angles)):
            lines += [f"{len(entries)} {name}s", f"{int(bool(entries))} {name} types"]
        lines += [f"0.0 {self.length!r} {axis}lo {axis}hi" for axis in "xyz"]
        lines += ["", "Masses", "", *(f"{kind + 1} 1.0" for kind in range(kinds)), "", "Atoms # full", ""]
        for number, (kind, place) in enumerate(zip(self.species, self.position.T, strict=True), 1):
            lines.append(f"{number} 1 {kind + 1} {self.charges[kind]!r} " + " ".join(f"{x:.17g}" for x in place))
        for name, entries in (("Bonds", self.bonds), ("Angles", self.angles)):
            if entries:
                lines += ["", name, ""]
                lines += [f"{k} 1 " + " ".join(str(end + 1) for end in entry) for k, entry in enumerate(entries, 1)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Case:
    """The same forces in words of simjax (`physics`) and of LAMMPS (lines of its input)."""

    physics: dict[str, Any]
    lammps: tuple[str, ...]
    molecules: Molecules
    bar: float = ROUNDING
    tables: dict[str, str] = field(default_factory=dict)


def liquid(kinds: int = 1, charges: tuple[float, ...] | None = None) -> Molecules:
    """300 particles at random, at least 0.9 apart, in two species alternately where there are two."""
    length, count = 7.5, 300
    species = np.arange(count) % kinds
    return Molecules(scattered(count, (length,) * 3, 0.9, seed=1), length, species, charges or (0.0,) * kinds)


def squares() -> Molecules:
    """Chains of four around the corners of squares, each particle displaced at random."""
    side, spacing = 6, 1.1
    sites = np.array(list(itertools.product(range(0, side, 2), range(0, side, 2), range(side))))
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    position = spacing * (0.5 + (sites[:, None] + corners).reshape(-1, 3).T)
    position = position + np.random.default_rng(2).uniform(-0.12, 0.12, position.shape)
    first = range(0, position.shape[1], 4)
    bonds = tuple((i + k, i + k + 1) for i in first for k in range(3))
    angles = tuple((i + k, i + k + 1, i + k + 2) for i in first for k in range(2))
    return Molecules(position, side * spacing, np.zeros(position.shape[1], int), bonds=bonds, angles=angles)


def cases() -> dict[str, Case]:
    one, two, chains = liquid(), liquid(2), squares()
    salt = liquid(2, (1.0, -1.0))
    lj, wca = {"epsilon": 1.3, "sigma": 0.95}, 2 ** (1 / 6) * 0.95
    bonded = ("special_bonds lj 0 1 1", "pair_style lj/cut 2.5", "pair_coeff * * 1.0 1.0")
    limp = {"bending": {"stiffness": 0.0}}
    spring = {"harmonic": {"stiffness": 30.0, "rest_length": 1.0}}
    springs = (*bonded, "bond_style harmonic", "bond_coeff 1 15.0 1.0")

    def pairs(potential, *lines, cutoff=2.5, molecules=one, **more):
        return Case({"potential": potential, "cutoff": cutoff, **more}, lines, molecules)

    def angles(angle, *lines):
        physics = {"potential": "lennard_jones", "bond": spring, "angle": angle}
        return Case(physics, (*springs, *lines), chains)

    def salts(tolerance, method):
        charges = {"species": [1.0, -1.0], "method": method, "tolerance": tolerance}
        lines = (
            "pair_style lj/cut/coul/long 3.0",
            "pair_coeff * * 1.0 1.0",
            "pair_modify table 0",
            "kspace_style ewald 1e-10",
        )
        return charges, lines

    return {
        "Lennard-Jones": pairs({"lennard_jones": lj}, "pair_style lj/cut 2.5", "pair_coeff * * 1.3 0.95"),
        "Lennard-Jones, shifted": pairs(
            {"lennard_jones": lj},
            "pair_style lj/cut 2.5",
            "pair_coeff * * 1.3 0.95",
            "pair_modify shift yes",
            mode="shifted",
        ),
        "Lennard-Jones, force shifted": pairs(
            {"lennard_jones": lj},
            "pair_style lj/smooth/linear 2.5",
            "pair_coeff * * 1.3 0.95",
            mode="force_shifted",
        ),
        "Lennard-Jones, two species, means": pairs(
            {"lennard_jones": {"species_epsilon": [1.0, 0.5], "species_sigma": [1.0, 0.88]}},
            "pair_style lj/cut 2.5",
            "pair_coeff 1 1 1.0 1.0",
            "pair_coeff 2 2 0.5 0.88",
            "pair_modify mix arithmetic",
            molecules=two,
        ),
        "Weeks-Chandler-Andersen": pairs(
            {"weeks_chandler_andersen": lj},
            f"pair_style lj/cut {wca!r}",
            "pair_coeff * * 1.3 0.95",
            "pair_modify shift yes",
            cutoff=1.1,
        ),
        "soft spheres, power 8": pairs(
            {"soft_sphere": {"power": 8, "epsilon": 1.5, "sigma": 1.0}},
            "pair_style born 2.5",
            "pair_coeff * * 0.0 1.0 1.0 0.0 1.5",
        ),
        "Morse": pairs(
            {"morse": {"epsilon": 1.4, "steepness": 3.0, "bond_length": 1.1}},
            "pair_style morse 2.5",
            "pair_coeff * * 1.4 3.0 1.1",
        ),
        "Yukawa": pairs(
            {"yukawa": {"strength": 2.0, "screening": 1.5}}, "pair_style yukawa 1.5 2.5", "pair_coeff * * 2.0"
        ),
        "Buckingham": pairs(
            {"buckingham": {"strength": 900.0, "range": 0.2, "dispersion": 2.0}},
            "pair_style buck 2.5",
            "pair_coeff * * 900.0 0.2 2.0",
        ),
        "Stillinger-Weber": Case(
            {"potential": {"stillinger_weber": {"epsilon": 1.2, "sigma": 0.8}}, "cutoff": 1.6},
            ("pair_style sw", "pair_coeff * * silicon.sw Si"),
            one,
            tables={"silicon.sw": f"Si Si Si 1.2 0.8 1.8 21.0 1.2 {-1 / 3!r} {SILICON} 4.0 0.0 0.0\n"},
        ),
        "bonds: harmonic": Case(
            {"potential": "lennard_jones", "bond": spring, "angle": limp},
            (*springs, "angle_style cosine", "angle_coeff 1 0.0"),
            chains,
        ),
        "bonds: FENE": Case(
            {"potential": "lennard_jones", "bond": {"fene": {"stiffness": 30.0, "extension": 1.5}}, "angle": limp},
            (*bonded, "bond_style fene", "bond_coeff 1 30.0 1.5 1.0 1.0", "angle_style cosine", "angle_coeff 1 0.0"),
            chains,
        ),
        "angles: harmonic": angles(
            {"harmonic": {"stiffness": 4.0, "rest": 2.0}},
            "angle_style harmonic",
            f"angle_coeff 1 2.0 {math.degrees(2.0)!r}",
        ),
        "angles: harmonic_cosine": angles(
            {"harmonic_cosine": {"stiffness": 4.0, "rest": 2.0}},
            "angle_style cosine/squared",
            f"angle_coeff 1 2.0 {math.degrees(2.0)!r}",
        ),
        "angles: bending": angles({"bending": {"stiffness": 4.0}}, "angle_style cosine", "angle_coeff 1 4.0"),
        **{
            f"charges: {method}": Case(
                {"potential": "lennard_jones", "cutoff": 3.0, "charges": charges}, lines, salt, POLYNOMIAL
            )
            # The mesh that a tolerance asks for has 36^3 points here at 1e-5, and 460^3 at 1e-9.
            for method, tolerance in (("ewald", 1e-12), ("mesh", 1e-5))
            for charges, lines in [salts(tolerance, method)]
        },
    }


def by_simjax(case: Case, data: Path) -> tuple[float, np.ndarray, np.ndarray]:
    """Potential energy, forces `(3, count)` and pressures of the virial."""
    count, kinds = case.molecules.position.shape[1], len(case.molecules.charges)
    liquid = sj.configure(
        "molecular_dynamics",
        physics={"mass": [1.0] * kinds, **case.physics},
        box={"upper": [case.molecules.length] * 3},
        particles={"placement": "file", "file": str(data), "fractions": [1 / kinds] * kinds},
        time={"end": 0.1, "output_every": 0.1, "dt": 0.001},
        precision="float64",
    )
    measured = jax.jit(liquid.model.diagnostics)(0.0, liquid.state, liquid.params)
    ids = np.asarray(liquid.state.ids).ravel()
    force = np.zeros((3, count))
    force[:, ids[ids >= 0]] = np.asarray(liquid.state.force).reshape(3, -1)[:, ids >= 0]
    pressure = np.array([float(measured[f"pressure_{name}"]) for name in PRESSURES])
    return float(measured["potential_energy"]), force, pressure


def by_lammps(case: Case, data: Path, lmp: str) -> tuple[float, np.ndarray, np.ndarray]:
    """The same from LAMMPS."""
    folder = data.parent
    for name, text in case.tables.items():
        (folder / name).write_text(text, encoding="utf-8")
    numbers = " ".join(f"$(c_virial[{k}]:%.17g)" for k in range(1, 7))
    (folder / "in.compare").write_text(
        "\n".join(
            [
                "units lj",
                "atom_style full",
                "boundary p p p",
                *(line for line in case.lammps if "special" in line),
                f"read_data {data}",
                *(line for line in case.lammps if "special" not in line),
                "compute virial all pressure NULL virial",
                "thermo_style custom step pe c_virial[1]",
                "thermo_modify norm no",
                "dump 1 all custom 1 forces.txt id fx fy fz",
                'dump_modify 1 format line "%d %.17g %.17g %.17g"',
                "run 0",
                f'print "FOUND $(pe:%.17g) {numbers}"',
            ]
        )
        + "\n",
        encoding="utf-8",
    )
    ran = subprocess.run([lmp, "-in", "in.compare", "-log", "none"], cwd=folder, capture_output=True, text=True)
    found = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    if ran.returncode or not found:
        sys.exit(f"{lmp} failed: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    energy, *pressure = map(float, found[0].split()[1:])
    rows = np.loadtxt(folder / "forces.txt", skiprows=9)
    return energy, rows[np.argsort(rows[:, 0]), 1:].T, np.array(pressure)


def version(lmp: str) -> str:
    """Name and version of the program."""
    told = subprocess.run([lmp, "-help"], capture_output=True, text=True).stdout
    return next((line.strip() for line in told.splitlines() if "LAMMPS" in line or "Simulator" in line), "unknown")


def main():
    known = cases()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lmp", default=shutil.which("lmp"), help="LAMMPS's program")
    parser.add_argument("--cases", nargs="+", choices=known, default=list(known), metavar="CASE", help="by name")
    options = parser.parse_args()
    if options.lmp is None:
        sys.exit("LAMMPS's program lmp is not here: apt-get install lammps, or --lmp PATH.")
    for name in options.cases:
        case = known[name]
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "particles.data"
            case.molecules.write(data)
            ours, theirs = by_simjax(case, data), by_lammps(case, data, options.lmp)
        rows = []
        for what, one, other in zip(("energy", "forces", "pressure"), ours, theirs, strict=True):
            difference = np.abs(np.subtract(one, other)).max() / np.abs(other).max()
            rows.append(verdict(f"{name}: {what}", difference, case.bar))
        keep("lammps", name, rows, lammps=version(options.lmp))


if __name__ == "__main__":
    main()
