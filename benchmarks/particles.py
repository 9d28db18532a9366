"""Speed of a Lennard-Jones liquid, beside JAX-MD and LAMMPS where they are; prints JSON.

The liquid of LAMMPS's melt: density 0.8442, cutoff 2.5, a lattice that melts from temperature 1.44, steps of 0.005.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from measure import compile_timed, environment, rounded, time_alternately
from peer import Peer

from simjax.core.domain import Domain
from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params
from simjax.models.molecular.pair_potentials import LennardJones
from simjax.models.molecular.velocity_verlet import VelocityVerlet
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, cells_for, unpack
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.status import OK, reasons
from simjax.stepping.simulate import Clock, Schedule, advance

DENSITY, CUTOFF, TEMPERATURE, DT = 0.8442, 2.5, 1.44, 0.005
SOUGHT = {"jax_md": 5.0, "lammps_same_cores": 1 / 3}


def melt(cells_per_side: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Positions and velocities `(particles, 3)` of a face-centred cubic lattice at rest as a whole, and its box."""
    basis = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]]) + 0.25
    corners = np.stack(np.meshgrid(*[np.arange(cells_per_side)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    constant = (4 / DENSITY) ** (1 / 3)
    position = (corners + basis).reshape(-1, 3) * constant
    velocity = np.random.default_rng(0).normal(size=position.shape)
    velocity -= velocity.mean(axis=0)
    velocity *= np.sqrt(TEMPERATURE * 3 * (len(position) - 1) / np.sum(velocity**2))
    return position, velocity, cells_per_side * constant


class Liquid:
    """simjax's run of one melt: `run()` takes `steps` steps. The box is cut along x, a block for each device."""

    def __init__(
        self, cells_per_side: int, dtype, steps: int, skin: float, every: int, capacity: int, rows: int, devices: int
    ):
        position, velocity, box = melt(cells_per_side)
        self.count, self.steps, self.box = len(position), steps, box
        grid = cells_for((0.0,) * 3, (box,) * 3, CUTOFF + skin, (True,) * 3, (devices, 1, 1))
        mesh = make_mesh({"x": devices})
        # Density varies from block to block by less than a tenth.
        arrangement = NeighborPolicy(CUTOFF, skin, rows, min(self.count, self.count * 11 // (10 * devices)))

        def model(domain: Domain) -> MolecularDynamics:
            cells = Cells(domain, capacity, (True,) * 3)
            return MolecularDynamics(
                cells, arrangement, LennardJones(), steps_per_arrangement=every, dynamics=VelocityVerlet()
            )

        self.model, whole = model(decompose(grid, mesh)), model(Domain(grid))
        self.cells = whole.cells
        one = jnp.ones((), dtype)
        params = Params((one, one), jnp.ones((1,), dtype))
        schedule = Schedule(interval=steps * DT, dt=DT)

        def begin(position, velocity, of=self.model):
            return of.state_from(position, velocity, jnp.zeros((self.count,), jnp.int32), params)

        def measure(state):
            return self.model.diagnostics(0.0, state, params)

        def forward(state, clock):
            until = clock.frame + 1
            return advance(
                self.model, None, params, state, clock, schedule, steps=steps, until=until
            )  # fmt: skip

        given = jnp.asarray(position.T, dtype), jnp.asarray(velocity.T, dtype)
        everywhere = PartitionSpec()
        of_state, _ = self.model.partition_specs(
            jax.eval_shape(functools.partial(begin, of=whole), *given)[0], params
        )  # fmt: skip

        def on_devices(function, inputs, outputs):
            return distribute(function, mesh, in_specs=inputs, out_specs=outputs)

        start = on_devices(begin, (everywhere, everywhere), (of_state, everywhere))
        self.state, lost = jax.jit(start)(*given)
        assert int(lost) == 0
        self.clock = Clock.zero(jnp.dtype(dtype))
        found = jax.jit(on_devices(measure, (of_state,), everywhere))(self.state)
        self.potential_energy = float(found["potential_energy"]) / self.count
        whole_run = on_devices(forward, (of_state, everywhere), (of_state, everywhere))
        self.program, self.compile_seconds = compile_timed(
            jax.jit(whole_run, donate_argnums=0), self.state, self.clock
        )  # fmt: skip
        self.memory = self.program.memory_analysis()

    def run(self) -> None:
        self.state, self.clock = jax.block_until_ready(self.program(self.state, self.clock))
        if int(self.clock.status) != OK:
            raise RuntimeError(reasons(int(self.clock.status)))

    def useful(self) -> float:
        """Of the pairs that are computed, those nearer than the cutoff."""
        where = jax.jit(lambda s: unpack(self.cells, s.ids, self.cells.absolute(s.position), self.count))
        position = np.mod(np.asarray(where(self.state), np.float64).T, self.box)
        from scipy.spatial import cKDTree

        tree = cKDTree(position, boxsize=self.box)
        near = tree.count_neighbors(tree, CUTOFF) - self.count
        return float(near) / (self.count * self.model.skin.max_neighbors)


LAMMPS = """units lj
atom_style atomic
lattice fcc {density}
region box block 0 {n} 0 {n} 0 {n}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create {temperature} 87287 loop geom
pair_style lj/cut {cutoff}
pair_coeff 1 1 1.0 1.0 {cutoff}
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo_modify norm yes
timestep {dt}
run {steps}
run {steps}
"""


def lammps(program: str, cells_per_side: int, steps: int, cores: int) -> dict[str, float]:
    """Atom-steps per second of LAMMPS's own input for this liquid, after as many steps that are not counted."""
    text = LAMMPS.format(
        density=DENSITY, n=cells_per_side, temperature=TEMPERATURE, cutoff=CUTOFF, dt=DT, steps=steps
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in.melt").write_text(text)
        command = [program, "-in", "in.melt", "-log", "none"]
        if cores > 1:
            command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(cores), *command]
        shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    seconds, count = re.findall(r"Loop time of (\S+) on .* with (\d+) atoms", shown)[-1]
    return {"atom_steps_per_s": rounded(int(count) * steps / float(seconds))}


@contextlib.contextmanager
def jax_md(python: str | None, cells_per_side: int, steps: int) -> Iterator[Peer | None]:
    """JAX-MD from the same positions and velocities, if its interpreter is given."""
    if python is None:
        yield None
        return
    position, velocity, box = melt(cells_per_side)
    with tempfile.TemporaryDirectory() as folder:
        given = {"box": box, "cutoff": CUTOFF, "dt": DT, "position": position, "velocity": velocity}
        np.savez(Path(folder, "initial.npz"), **given)
        script = Path(__file__).with_name("lennard_jones_jax_md.py")
        with Peer([python, str(script), folder, "--steps", str(steps)]) as peer:
            yield peer


def row(cells_per_side: int, steps: int, repeats: int, python: str | None, dtype, arguments) -> dict[str, object]:
    liquid = Liquid(
        cells_per_side, dtype, steps, arguments.skin, arguments.every, arguments.capacity, arguments.rows,
        arguments.devices,
    )  # fmt: skip
    with jax_md(python, cells_per_side, steps) as peer:
        calls = {"simjax": liquid.run} | ({"jax_md": peer.run} if peer else {})
        seconds = time_alternately(calls, repeats)
        rates = {name: liquid.count * steps / statistics.median(s) for name, s in seconds.items()}
        result: dict[str, object] = {
            "particles": liquid.count,
            "dtype": str(jnp.dtype(dtype)),
            "devices": arguments.devices,
            "atom_steps_per_s": {name: rounded(rate) for name, rate in rates.items()},
            "atom_steps_per_s_best": rounded(liquid.count * steps / min(seconds["simjax"])),
            "useful_pairs": rounded(liquid.useful()),
            "potential_energy_at_start": liquid.potential_energy,
            "compile_seconds": rounded(liquid.compile_seconds),
            "temporary_MiB": rounded(liquid.memory.temp_size_in_bytes / 2**20),
            "state_MiB": rounded(liquid.memory.argument_size_in_bytes / 2**20),
        }
        if peer:
            result["jax_md"] = peer.report
            result["over_jax_md"] = rounded(rates["simjax"] / rates["jax_md"])
    program = arguments.lammps and shutil.which(arguments.lammps)
    if program:
        runs = {f"lammps_{cores}": lammps(program, cells_per_side, steps, cores) for cores in (1, 2)}
        result |= runs
        result["of_lammps_2_cores"] = rounded(rates["simjax"] / runs["lammps_2"]["atom_steps_per_s"])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax-md-python", help="an interpreter that has jax-md 0.2.29")
    parser.add_argument("--lammps", default="lmp", help="LAMMPS, on as many cores as two; empty: without")
    parser.add_argument(
        "--cells", type=int, nargs="*", default=[10, 20], help="lattice cells per side: 4 n^3 particles"
    )
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--skin", type=float, default=0.45)
    parser.add_argument("--every", type=int, default=7, help="steps per arrangement")
    parser.add_argument("--capacity", type=int, default=56)
    parser.add_argument("--rows", type=int, default=116)
    parser.add_argument("--devices", type=int, default=len(os.sched_getaffinity(0)), help="one per core, each a block")
    parser.add_argument("--float64", action="store_true")
    arguments = parser.parse_args()
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{given} --xla_force_host_platform_device_count={arguments.devices}"
    jax.devices()
    os.environ["XLA_FLAGS"] = given  # peers begin as they would by themselves
    if arguments.float64:
        jax.config.update("jax_enable_x64", True)
    dtype = jnp.float64 if arguments.float64 else jnp.float32
    rows = [
        row(n, arguments.steps, arguments.repeats, arguments.jax_md_python, dtype, arguments) for n in arguments.cells
    ]
    json.dump({"environment": environment(), "sought": SOUGHT, "rows": rows}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
