"""Time to compile the gradient of a hundred steps and of a hundred thousand, by checkpoint plan; prints JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time

import jax
import jax.numpy as jnp

from benchmarks import starts
from benchmarks.comparisons import FLOWS
from benchmarks.contestants.gradient import loss_of
from benchmarks.measure import environment, rounded

# Of compiling a thousand times as many steps.
SOUGHT = 1.2
# The first plan stores every one of the few steps, so nothing is replayed and the program is smaller; the second one
# replays, as the many steps do.
CHOICES = (
    (100, "binomial_199"),
    (100, "binomial_19"),
    (100_000, "binomial_199"),
    (100, "two_level"),
    (100_000, "two_level"),
)


def compilation(flow: str, cells: int, repeats: int) -> dict[str, object]:
    """The least processor's seconds to trace and compile, of several turns: other load hardly changes them."""
    fields = starts.solenoidal_velocity((cells, cells)) if flow == "finite_volume" else [starts.random_vorticity(cells)]
    arguments = tuple(jnp.asarray(u, jnp.float32) for u in fields), jnp.float32(starts.VISCOSITY)
    seconds: dict[tuple[int, str], list[float]] = {choice: [] for choice in CHOICES}
    # The first turn also loads code.
    for _ in range(repeats + 1):
        for steps, plan in CHOICES:
            jax.clear_caches()
            loss = loss_of({**FLOWS[flow], "package": "simjax"}, (cells, cells), steps, plan)
            begin = time.process_time()
            jax.jit(jax.value_and_grad(loss, argnums=(0, 1))).lower(*arguments).compile()
            seconds[steps, plan].append(time.process_time() - begin)
    _, few, many, few_default, many_default = (min(taken[1:]) for taken in seconds.values())
    ratios = {"binomial": many / few, "two_level": many_default / few_default}
    return {
        "times": [
            {"steps": steps, "plan": plan, "compile_cpu_s_least": rounded(min(taken[1:]))}
            for (steps, plan), taken in seconds.items()
        ],
        "many_over_few": {plan: rounded(ratio) for plan, ratio in ratios.items()},
        "at_most_sought": SOUGHT,
        "reached": max(ratios.values()) <= SOUGHT,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=64, help="along each axis")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    found = {flow: compilation(flow, options.cells, options.repeats) for flow in FLOWS}
    json.dump({"environment": environment(), "compilation": found}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
