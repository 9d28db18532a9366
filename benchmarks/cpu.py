"""Stages of a flow and of a gas on a CPU against padding by concatenation; prints JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cases import Case, ConcatenatingDomain, kolmogorov
from benchmarks.gas import SCHEMES, sheared_gas
from benchmarks.measure import compile_timed, environment, rounded, summary, time_alternately
from simjax.core.domain import Domain
from simjax.driver.start.environment import keep_loops_threaded
from simjax.grid import Grid
from simjax.stencil.materialise import stored

SOUGHT_OF_PADDING = 2.0
STAGES: dict[str, tuple[tuple[float, ...], Callable[[Domain], Case]]] = {
    "navier_stokes": ((2 * np.pi,) * 2, kolmogorov),
    **{f"euler {name}": ((1.0,) * 2, partial(sheared_gas, scheme=scheme)) for name, scheme in SCHEMES.items()},
}


KINDS: dict[str, Callable[[Grid], Domain]] = {"simjax": Domain, "concatenated_padding": ConcatenatingDomain}


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
    result = {
        "benchmark": "stages on a CPU, periodic, float32",
        "environment": environment(),
        "stages": [measure_stage(name, options.stage_cells, options.repeats) for name in STAGES],
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
