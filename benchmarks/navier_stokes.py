"""Speed of two-dimensional Kolmogorov flow, beside jax-cfd if its interpreter is given; prints JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.cases import FORCE, VISCOSITY, WAVENUMBER, check, chunk, kolmogorov, kolmogorov_box
from benchmarks.measure import (
    collectives_per_step,
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

from simjax.integrators.runge_kutta import INTEGRATORS

SOUGHT = 2.0
PEER_INTEGRATORS = ("euler", "midpoint", "rk4")


class FlowPeer(Peer):
    """A process that runs jax-cfd from the same initial velocity and times one chunk on request."""

    def __init__(self, python: str, case, convection: str, integrator: str, steps: int, folder: Path):
        velocity = {f"velocity_{'xy'[axis]}": np.asarray(u) for axis, u in enumerate(case.state.velocity)}
        np.savez(folder / "initial.npz", **velocity)
        physics = {"dt": case.dt, "viscosity": VISCOSITY, "force": FORCE, "wavenumber": WAVENUMBER}
        (folder / "physics.json").write_text(json.dumps(physics))
        script = Path(__file__).with_name("jax_cfd_kolmogorov.py")
        choices = ["--convection", convection, "--integrator", integrator, "--steps", str(steps)]
        command = [python, str(script), str(folder), *choices]
        super().__init__(command)
        final = np.load(folder / "final.npz")
        self.final = tuple(final[name] for name in velocity)


@contextlib.contextmanager
def peers(python: str | None, case, integrator: str, steps: int) -> Iterator[dict[str, FlowPeer]]:
    """jax-cfd with its default convection and with simjax's, if it is there and has the integrator."""
    if python is None or integrator not in PEER_INTEGRATORS:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        found = {}
        for convection in ("linear", "van_leer"):
            own = Path(folder, convection)
            own.mkdir()
            found[convection] = FlowPeer(python, case, convection, integrator, steps, own)
            stack.callback(found[convection].close)
        yield found


def measure(shape: tuple[int, int], integrator: str, repeats: int, python: str | None) -> dict[str, object]:
    """simjax's loop, a copy, and jax-cfd from the same velocity, timed in turns."""
    case, scheme = kolmogorov(kolmogorov_box(shape)), INTEGRATORS[integrator]
    cells = case.model.domain.grid.cells
    steps = max(4, int(2e7 / (cells * scheme.stages)) // 2 * 2)
    function, carry = chunk(case, scheme, steps)
    program, compile_seconds = compile_timed(function, carry)
    check(carry := program(carry))
    ours = [np.array(u) for u in carry[0].velocity]
    copy, copied = copy_call()
    with peers(python, case, integrator, steps) as others:
        own = {"simjax": repeatedly(program, carry), "copy": copy}
        seconds = time_alternately(own | {name: peer.run for name, peer in others.items()}, repeats)
    throughput = effective_throughput(seconds["simjax"], steps, scheme.stages, 2 * ours[0].nbytes)
    copy_throughput = copied / statistics.median(seconds["copy"])
    result: dict[str, object] = {
        "shape": shape,
        "integrator": integrator,
        "stages": scheme.stages,
        "dt": case.dt,
        **summary(seconds["simjax"], steps, cells),
        "t_eff_gb_per_s": rounded(throughput),
        "copy_gb_per_s": rounded(copy_throughput),
        "t_eff_of_copy": rounded(throughput / copy_throughput),
        "compile_s": rounded(compile_seconds),
        "collectives_per_step": collectives_per_step("incompressible", shape, integrator)["meshes"],
    }
    if others:
        result["jax_cfd"] = {
            name: compare(peer, seconds[name], seconds["simjax"], steps, ours) for name, peer in others.items()
        }
    return result


def compare(peer: FlowPeer, theirs, ours, steps: int, velocity) -> dict[str, object]:
    """jax-cfd's figures, how many times faster simjax is, and how far their velocities are apart."""
    difference = max(float(np.abs(a - b).max()) for a, b in zip(peer.final, velocity, strict=True))
    ratio = statistics.median(theirs) / statistics.median(ours)
    return {
        **summary(theirs, steps, velocity[0].size),
        "jax": peer.report["jax"],
        "compile_s": rounded(peer.report["compile_s"]),
        "simjax_faster_by": rounded(ratio),
        "simjax_faster_by_least_times": rounded(min(theirs) / min(ours)),
        "faster_sought": SOUGHT,
        "reached": ratio >= SOUGHT,
        "steps_compared": steps,
        "largest_difference": rounded(difference),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="512x512", help="grid, such as 512x512")
    parser.add_argument("--integrators", nargs="+", default=[*PEER_INTEGRATORS], choices=INTEGRATORS)
    parser.add_argument("--repeats", type=int, default=7, help="timings of each program; medians are printed")
    parser.add_argument("--jax-cfd-python", help="an interpreter with jax-cfd 0.2.1")
    options = parser.parse_args()
    nx, ny = map(int, options.shape.split("x"))
    result = {
        "benchmark": "incompressible Navier-Stokes, Kolmogorov flow, central, periodic, float32",
        "environment": environment(),
        "cases": [measure((nx, ny), name, options.repeats, options.jax_cfd_python) for name in options.integrators],
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
