"""Speed of the vorticity and velocity equations in a Fourier basis, beside exponax and jax-cfd; prints JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.cases import Case, check, chunk
from benchmarks.measure import (
    compile_timed,
    copy_call,
    effective_throughput,
    environment,
    repeatedly,
    rounded,
    summary,
    time_alternately,
)
from benchmarks.peer import Peer

from simjax.core.domain import Domain
from simjax.driver.random_fields import random_modes
from simjax.grid import CENTER, Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.fourier_flow import Params
from simjax.models.flow.spectral_velocity import SpectralVelocity
from simjax.models.flow.vorticity import Vorticity

VISCOSITY, DT = 1e-3, 1e-3
SOUGHT = {"exponax": 2.0, "jax_cfd": 3.0}
# jax-cfd has one spectral step worth comparing with, of order four.
PEERS = {2: ("exponax",), 4: ("exponax", "jax_cfd")}


def flow(shape: tuple[int, ...]) -> tuple[Case, np.ndarray]:
    """A random field of large waves, as vorticity in two dimensions and as velocity in three, and its samples."""
    domain = Domain(Grid(shape, upper=(2 * np.pi,) * len(shape)))
    x = domain.coordinates((CENTER,) * len(shape), jnp.float32)
    keys = jax.random.split(jax.random.key(0), len(shape))
    fields = [4 * random_modes(key, domain.grid, x, 6) for key in keys]
    params = Params(jnp.float32(VISCOSITY), jnp.float32(0.0))
    if len(shape) == 2:
        model = Vorticity(domain)
        state = model.state_from({"vorticity": (fields[0],)}, params)
        return Case(model, params, state, DT), np.asarray(model.observe(0.0, state, params)["vorticity"])
    model = SpectralVelocity(domain)
    return Case(model, params, model.state_from({"velocity": tuple(fields)}, params), DT), np.zeros(0)


class FlowPeer(Peer):
    """A process that runs another package from the same vorticity and times one chunk on request."""

    def __init__(self, python: str, package: str, order: int, steps: int, start: np.ndarray, folder: Path):
        np.savez(folder / "initial.npz", vorticity=start)
        (folder / "physics.json").write_text(json.dumps({"dt": DT, "viscosity": VISCOSITY}))
        script = Path(__file__).with_name("spectral_peers.py")
        choices = ["--package", package, "--order", str(order), "--steps", str(steps)]
        command = [python, str(script), str(folder), *choices]
        super().__init__(command)
        self.final = np.load(folder / "final.npz")["vorticity"]


def measure(shape: tuple[int, ...], integrator: str, repeats: int, pythons: dict[str, str]) -> dict[str, object]:
    """simjax's loop, a copy, and in two dimensions the peers from the same vorticity, timed in turns."""
    (case, start), scheme = flow(shape), INTEGRATORS[integrator]
    cells = case.model.domain.grid.cells
    steps = max(4, int(2e7 / (cells * scheme.stages)))
    function, carry = chunk(case, scheme, steps)
    program, compile_seconds = compile_timed(function, carry)
    check(carry := program(carry))
    ours = case.model.observe(0.0, carry[0], case.params) if len(shape) == 2 else {}
    unknowns = sum(leaf.nbytes for leaf in jax.tree.leaves(case.state))
    copy, copied = copy_call()
    with contextlib.ExitStack() as stack:
        peers = {}
        for package in PEERS.get(scheme.order, ()) if len(shape) == 2 else ():
            if package in pythons:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                peers[package] = FlowPeer(pythons[package], package, scheme.order, steps, start, folder)
                stack.callback(peers[package].close)
        calls = {"simjax": repeatedly(program, carry), "copy": copy} | {name: peer.run for name, peer in peers.items()}
        seconds = time_alternately(calls, repeats)
    throughput = effective_throughput(seconds["simjax"], steps, scheme.stages, unknowns)
    copy_throughput = copied / statistics.median(seconds["copy"])
    result: dict[str, object] = {
        "shape": shape,
        "integrator": integrator,
        "real_transforms_per_step": scheme.stages * (4 if len(shape) == 2 else 8),
        **summary(seconds["simjax"], steps, cells),
        "t_eff_gb_per_s": rounded(throughput),
        "copy_gb_per_s": rounded(copy_throughput),
        "t_eff_of_copy": rounded(throughput / copy_throughput),
        "compile_s": rounded(compile_seconds),
    }
    for name, peer in peers.items():
        ratio = statistics.median(seconds[name]) / statistics.median(seconds["simjax"])
        result[name] = {
            **summary(seconds[name], steps, cells),
            "jax": peer.report["jax"],
            "simjax_faster_by": rounded(ratio),
            "simjax_faster_by_least_times": rounded(min(seconds[name]) / min(seconds["simjax"])),
            "faster_sought": SOUGHT[name],
            "reached": ratio >= SOUGHT[name],
            "steps_compared": steps,
            "largest_vorticity": rounded(float(np.abs(peer.final).max())),
            "largest_difference": rounded(float(np.abs(peer.final - np.asarray(ours["vorticity"])).max())),
        }
    return result


def transforms(shape: tuple[int, ...], repeats: int) -> dict[str, float]:
    """Milliseconds of one forward and one inverse transform on their own: what bounds a step."""
    case, _ = flow(shape)
    model = case.model
    spectrum = jax.tree.leaves(case.state)[0]
    field = model.to_grid(spectrum)
    calls = {}
    for name, function, argument in (("forward", model.to_spectrum, field), ("inverse", model.to_grid, spectrum)):
        program = jax.jit(lambda u, function=function: function(u)).lower(argument).compile()
        calls[name] = repeatedly(lambda _, program=program, argument=argument: program(argument), None)
    return {name: rounded(1e3 * statistics.median(s)) for name, s in time_alternately(calls, repeats).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["512x512", "64x64x64"])
    parser.add_argument("--integrators", nargs="+", default=["etdrk2", "etdrk4"], choices=INTEGRATORS)
    parser.add_argument("--repeats", type=int, default=7, help="timings of each program; medians are printed")
    parser.add_argument("--exponax-python", help="an interpreter with exponax 0.2.0")
    parser.add_argument("--jax-cfd-python", help="an interpreter with jax-cfd 0.2.1")
    options = parser.parse_args()
    named = {"exponax": options.exponax_python, "jax_cfd": options.jax_cfd_python}
    pythons = {name: python for name, python in named.items() if python}
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes]
    result = {
        "benchmark": "incompressible flow in a Fourier basis, float32",
        "environment": environment(),
        "cases": [measure(shape, name, options.repeats, pythons) for shape in shapes for name in options.integrators],
        "transforms_ms": {"x".join(map(str, shape)): transforms(shape, 20) for shape in shapes},
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
