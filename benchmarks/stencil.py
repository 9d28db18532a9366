"""Speed of advection-diffusion, against a C loop and against padding by concatenation; prints JSON."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from cases import advected_scalar, check, chunk, unit_box
from measure import (
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

from simjax.core.domain import Domain
from simjax.integrators.runge_kutta import INTEGRATORS

FLAGS = ["-O3", "-march=native", "-shared", "-fPIC"]
SOUGHT = 0.5


class ConcatenatingDomain(Domain):
    """One periodic device that pads by concatenation, the way it is usually written."""

    def pad(self, fields, layouts, width, t=0.0):
        return jax.tree.map(lambda u: jnp.pad(u, width, mode="wrap"), fields)


class CLoop:
    """The same forward Euler step in C on one thread, between two arrays."""

    def __init__(self, case, folder: Path):
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise RuntimeError("no C compiler found; install one, set CC, or pass --no-c")
        library = folder / "advection_diffusion.so"
        source = Path(__file__).with_name("advection_diffusion.c")
        subprocess.run([compiler, *FLAGS, str(source), "-o", str(library)], check=True)
        self._step = ctypes.CDLL(str(library)).step
        self._step.restype = None
        initial = np.array(case.state.concentration)
        self._arrays = [initial, np.empty_like(initial)]
        h, dt = case.model.domain.grid.spacing, case.dt
        diffusivity, velocity = float(case.params.diffusivity), np.asarray(case.params.velocity, np.float64)
        numbers = [diffusivity * dt / s**2 for s in h]
        numbers += [a * dt / (2 * s) for a, s in zip(velocity, h, strict=True)]
        self._scalars = [*map(ctypes.c_int, initial.shape), *map(ctypes.c_float, numbers)]

    @property
    def field(self) -> np.ndarray:
        """The present field."""
        return self._arrays[0]

    def advance(self, steps: int) -> None:
        """Take `steps` steps."""
        for _ in range(steps):
            old, new = self._arrays
            self._step(*(a.ctypes.data_as(ctypes.c_void_p) for a in (old, new)), *self._scalars)
            self._arrays = [new, old]


def steps_for(cells: int, stages: int) -> int:
    """An even number of steps that takes a few tenths of a second."""
    return max(4, int(2e8 / (cells * stages)) // 2 * 2)


def measure_case(shape: tuple[int, ...], integrator: str, repeats: int) -> dict[str, object]:
    """Rate, throughput and compile time of simjax's own loop, beside a copy."""
    case, scheme = advected_scalar(unit_box(shape)), INTEGRATORS[integrator]
    cells = case.model.domain.grid.cells
    steps = steps_for(cells, scheme.stages)
    function, carry = chunk(case, scheme, steps)
    program, compile_seconds = compile_timed(function, carry)
    copy, copied = copy_call()
    seconds = time_alternately({"simjax": repeatedly(program, carry), "copy": copy}, repeats)
    nbytes = case.state.concentration.nbytes
    throughput = effective_throughput(seconds["simjax"], steps, scheme.stages, nbytes)
    copy_throughput = copied / statistics.median(seconds["copy"])
    return {
        "shape": shape,
        "integrator": integrator,
        "stages": scheme.stages,
        **summary(seconds["simjax"], steps, cells),
        "t_eff_gb_per_s": rounded(throughput),
        "copy_gb_per_s": rounded(copy_throughput),
        "t_eff_of_copy": rounded(throughput / copy_throughput),
        "compile_s": rounded(compile_seconds),
        "collectives_per_step": collectives_per_step("advection_diffusion", shape, integrator)["meshes"],
    }


def measure_against_c(shape: tuple[int, ...], repeats: int) -> dict[str, object]:
    """Forward Euler in turns: simjax on the threads it takes, padding by concatenation, C on one thread."""
    cells = int(np.prod(shape))
    steps = steps_for(cells, 1)
    calls, fields = {}, {}
    domains = {"simjax": unit_box(shape), "concatenated_padding": ConcatenatingDomain(unit_box(shape).grid)}
    for name, domain in domains.items():
        function, carry = chunk(advected_scalar(domain), INTEGRATORS["euler"], steps)
        program, _ = compile_timed(function, carry)
        check(carry := program(carry))
        fields[name] = np.array(carry[0].concentration)
        calls[name] = repeatedly(program, carry)
    with tempfile.TemporaryDirectory() as folder:
        loop = CLoop(advected_scalar(unit_box(shape)), Path(folder))
        loop.advance(steps)
        difference = float(np.abs(fields["simjax"] - loop.field).max())
        calls["c_one_thread"] = lambda: loop.advance(steps)
        seconds = time_alternately(calls, repeats)
    rates = {name: summary(times, steps, cells) for name, times in seconds.items()}
    updates = {name: rate["cell_updates_per_s"] for name, rate in rates.items()}
    ratio = updates["simjax"] / updates["c_one_thread"]
    return {
        "shape": shape,
        "integrator": "euler",
        "c_flags": FLAGS[:2],
        "rates": rates,
        "ratio_to_c": rounded(ratio),
        "ratio_to_c_by_least_times": rounded(min(seconds["c_one_thread"]) / min(seconds["simjax"])),
        "ratio_to_concatenated_padding": rounded(updates["simjax"] / updates["concatenated_padding"]),
        "largest_difference_from_c": rounded(difference),
        "ratio_sought": SOUGHT,
        "reached": ratio >= SOUGHT,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["512x512", "1024x1024", "128x128x128"])
    parser.add_argument("--integrators", nargs="+", default=["euler", "kutta3"], choices=INTEGRATORS)
    parser.add_argument("--repeats", type=int, default=7, help="timings of each program; medians are printed")
    parser.add_argument("--no-c", action="store_true", help="leave the C loop out")
    options = parser.parse_args()
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes]
    runs = [(shape, name) for shape in shapes for name in options.integrators]
    result: dict[str, object] = {
        "benchmark": "advection-diffusion, central, periodic, float32",
        "environment": environment(),
        "cases": [measure_case(shape, name, options.repeats) for shape, name in runs],
    }
    if not options.no_c:
        planes = [shape for shape in shapes if len(shape) == 2]
        result["against_c"] = [measure_against_c(shape, options.repeats) for shape in planes]
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
