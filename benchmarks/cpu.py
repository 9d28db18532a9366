"""Steps on a CPU against C loops with one and two threads, and stages against padding by concatenation; prints JSON."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.cases import Case, ConcatenatingDomain, advected_scalar, check, chunk, kolmogorov, unit_box
from benchmarks.gas import SCHEMES, sheared_gas
from benchmarks.measure import compile_timed, environment, repeatedly, rounded, summary, time_alternately
from benchmarks.waves import LEAPFROG, wave

from simjax.core.domain import Domain
from simjax.driver.environment import keep_loops_threaded
from simjax.grid import Grid
from simjax.integrators.runge_kutta import INTEGRATORS
from simjax.stencil.materialise import stored

FLAGS = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
SOUGHT_OF_C, SOUGHT_OF_PADDING = 0.9, 2.0
STEPPED = ("diffusion", (512, 512)), ("diffusion", (1024, 1024)), ("diffusion", (128, 128, 128)), \
    ("wave", (512, 512)), ("wave", (1024, 1024)), ("wave", (128, 128, 128))  # fmt: skip
STAGES: dict[str, tuple[tuple[float, ...], Callable[[Domain], Case]]] = {
    "navier_stokes": ((2 * np.pi,) * 2, kolmogorov),
    **{f"euler {name}": ((1.0,) * 2, partial(sheared_gas, scheme=scheme)) for name, scheme in SCHEMES.items()},
}


KINDS: dict[str, Callable[[Grid], Domain]] = {"simjax": Domain, "concatenated_padding": ConcatenatingDomain}


class CLoop:
    """The same steps in C, from the same state."""

    def __init__(self, library: ctypes.CDLL, model: str, case: Case, threads: int):
        grid = case.model.domain.grid
        self._step = getattr(library, f"{'diffuse' if model == 'diffusion' else 'wave'}{grid.ndim}")
        self._step.restype = None
        self._sizes, self._threads = [*map(ctypes.c_int, grid.shape)], ctypes.c_int(threads)
        per_cell = case.dt / np.array(grid.spacing)
        if model == "diffusion":
            initial = np.array(case.state.concentration)
            self._arrays = [initial, np.empty_like(initial)]
            spread = float(case.params.diffusivity) * per_cell / np.array(grid.spacing)
            self._numbers = [spread, 0.5 * per_cell * np.asarray(case.params.velocity, float)]
        else:
            self._arrays = [np.array(u) for u in (case.state.pressure, *case.state.velocity)]
            # The first kick is by half a step.
            self._numbers = [per_cell / 2, per_cell]
        self._swaps = model == "diffusion"

    @property
    def field(self) -> np.ndarray:
        """The present field, or pressure."""
        return self._arrays[0]

    def advance(self, steps: int) -> None:
        """Take `steps` steps."""
        for _ in range(steps):
            places = [a.ctypes.data_as(ctypes.c_void_p) for a in self._arrays]
            numbers = [(ctypes.c_float * len(x))(*x) for x in self._numbers]
            self._step(*places, *self._sizes, *numbers, self._threads)
            if self._swaps:
                self._arrays.reverse()
            else:
                self._numbers[0] = self._numbers[1]


def compiled_loops(folder: str) -> ctypes.CDLL:
    """`cpu.c`, compiled here."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("no C compiler found; install one, or set CC")
    library = Path(folder) / "cpu.so"
    subprocess.run([compiler, *FLAGS, str(Path(__file__).with_name("cpu.c")), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def case_of(model: str, domain: Domain) -> Case:
    """Advection-diffusion, or acoustic waves in a uniform medium."""
    return advected_scalar(domain) if model == "diffusion" else wave("acoustic", domain, 2, "periodic", "uniform")


def measure_steps(library: ctypes.CDLL, model: str, shape: tuple[int, ...], repeats: int) -> dict[str, object]:
    """A step of simjax on the threads it takes, of the usual padding, and of C on one thread and on two, in turns."""
    cells = int(np.prod(shape))
    steps = max(4, int(1e8 / cells) // 2 * 2)
    calls, fields = {}, {}
    for name, kind in KINDS.items():
        scheme = INTEGRATORS["euler"] if model == "diffusion" else LEAPFROG
        function, carry = chunk(case_of(model, kind(Grid(shape))), scheme, steps)
        program, _ = compile_timed(function, carry)
        check(carry := program(carry))
        fields[name] = np.array(jax.tree.leaves(carry[0])[0])
        calls[name] = repeatedly(program, carry)
    for threads, name in ((1, "c_one_thread"), (2, "c_two_threads")):
        loop = CLoop(library, model, case_of(model, unit_box(shape)), threads)
        loop.advance(steps)
        fields[name] = loop.field.copy()
        calls[name] = partial(loop.advance, steps)
    seconds = time_alternately(calls, repeats)
    rates = {name: summary(times, steps, cells) for name, times in seconds.items()}
    updates = {name: rate["cell_updates_per_s"] for name, rate in rates.items()}
    ratio = updates["simjax"] / updates["c_one_thread"]
    return {
        "model": model,
        "shape": shape,
        "integrator": "euler" if model == "diffusion" else "leapfrog",
        "rates": rates,
        "ratio_to_c": rounded(ratio),
        "ratio_to_c_by_least_times": rounded(min(seconds["c_one_thread"]) / min(seconds["simjax"])),
        "ratio_to_c_on_two_threads": rounded(updates["simjax"] / updates["c_two_threads"]),
        "ratio_to_concatenated_padding": rounded(updates["simjax"] / updates["concatenated_padding"]),
        "largest_difference": rounded(max(float(np.abs(fields["simjax"] - x).max()) for x in fields.values())),
        "ratio_sought": SOUGHT_OF_C,
        "reached": ratio >= SOUGHT_OF_C,
    }


def measure_stage(name: str, cells: int, repeats: int) -> dict[str, object]:
    """One evaluation of the tendency: simjax, the usual padding, and that with nothing stored on the way either."""
    upper, build = STAGES[name]
    calls, values = {}, {}
    for label, kind in {**KINDS, "plain_padding": ConcatenatingDomain}.items():
        case = build(kind(Grid((cells, cells), upper=upper)))
        with mock.patch("simjax.ops.gas.stored", (lambda tree: tree) if label == "plain_padding" else stored):
            tendency = jax.jit(lambda state, case=case: case.model.rhs(jnp.float32(0), state, case.params))
            program, _ = compile_timed(tendency, case.state)
        values[label] = jax.tree.leaves(program(case.state))
        calls[label] = partial(_finish, program, case.state)
    seconds = time_alternately(calls, repeats)
    rates = {label: summary(times, 1, cells**2) for label, times in seconds.items()}
    updates = {label: rate["cell_updates_per_s"] for label, rate in rates.items()}
    ratio = updates["simjax"] / updates["plain_padding"]
    found = values["simjax"]
    differences = [
        float(jnp.abs(a - b).max() / jnp.abs(a).max()) for x in values.values() for a, b in zip(found, x, strict=True)
    ]
    return {
        "stage": name,
        "shape": (cells, cells),
        "rates": rates,
        "ratio_to_plain_padding": rounded(ratio),
        "ratio_to_concatenated_padding": rounded(updates["simjax"] / updates["concatenated_padding"]),
        "largest_difference": rounded(max(differences)),
        "ratio_sought": SOUGHT_OF_PADDING,
        "reached": ratio >= SOUGHT_OF_PADDING,
    }


def _finish(program: Callable, state) -> None:
    jax.block_until_ready(program(state))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage-cells", type=int, default=512, help="cells of a stage's grid along each axis")
    parser.add_argument("--repeats", type=int, default=7, help="timings of each program; medians are printed")
    options = parser.parse_args()
    keep_loops_threaded()
    with tempfile.TemporaryDirectory() as folder:
        library = compiled_loops(folder)
        result = {
            "benchmark": "steps and stages on a CPU, periodic, float32",
            "environment": environment(),
            "c_flags": FLAGS[:3],
            "steps": [measure_steps(library, *run, options.repeats) for run in STEPPED],
            "stages": [measure_stage(name, options.stage_cells, options.repeats) for name in STAGES],
        }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
