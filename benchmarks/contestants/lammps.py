"""LAMMPS's own input for the Lennard-Jones liquid: `lj/cut` in double precision, from other velocities.

It lists pairs every 20 steps without asking how far particles went. A chunk is timed by LAMMPS itself.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.contest import Program, serve

INPUT = """units lj
atom_style atomic
lattice fcc {density}
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create {temperature} 87287 loop geom
pair_style lj/cut {cutoff}
pair_coeff 1 1 1.0 1.0 {cutoff}
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo_style custom step pe
thermo_modify norm yes
timestep {dt}
run {steps}
run {steps}
"""


def build(physics, start) -> Program:
    program = shutil.which("lmp")
    if program is None:
        raise SystemExit("LAMMPS is not installed: there is no program lmp")
    cores, command = physics["cores"], [program, "-in", "in.melt", "-log", "none"]
    if cores > 1:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(cores), *command]
    shown = []

    def advance() -> float:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "in.melt").write_text(INPUT.format(**physics))
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        shown[:] = [done.stdout]
        return float(re.findall(r"Loop time of (\S+) on", done.stdout)[-1])

    def result():
        first = re.search(r"^\s*0\s+(\S+)\s*$", shown[0], re.MULTILINE)
        if first is None:
            raise SystemExit("LAMMPS told no energy")
        return {"potential_energy_at_start": float(first[1])}

    return Program(advance, result)


if __name__ == "__main__":
    serve(build)
