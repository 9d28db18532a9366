"""simjax's side of `referees/deepwave.py`: pressures at receivers, and the gradient of a misfit by the speed."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import simjax as sj
from benchmarks.contest import Program, compiled, serve


def configured(physics, start):
    """The model as a user configures it: the layers, which deepwave adds, are cells of the grid."""
    cells, h = physics["layer_cells"], physics["spacing"]
    shape = start["speed"].shape
    side = "absorbing" if cells else "rigid"
    places = {name: (h * (start[name] + 0.5)).tolist() for name in ("source", "receivers")}
    return sj.configure(
        "acoustic",
        grid={
            "shape": [n + 2 * cells for n in shape],
            "lower": [-cells * h for _ in shape],
            "upper": [(n + cells) * h for n in shape],
        },
        physics={
            "order": physics["order"],
            "layer_cells": cells or 1,
            "receivers": places["receivers"],
            "sources": [{"position": places["source"], "signal": physics["signal"]}],
        },
        coefficients={"speed": np.pad(start["speed"], cells, mode="edge")},
        boundaries={"x": side, "y": side},
        time={"end": physics["dt"], "output_every": physics["dt"], "dt": physics["dt"]},
        precision="float64",
    )


def build(physics, start) -> Program:
    jax.config.update("jax_enable_x64", True)
    s, cells, steps = configured(physics, start), physics["layer_cells"], len(start["data"])
    # Formed when they are first asked for, which must not be while jax traces.
    model, given, begin = s.model, s.params, s.state
    data, found = jnp.asarray(start["data"]), {}

    def misfit(speed):
        params = eqx.tree_at(lambda p: p.speed, given, jnp.pad(speed, cells, mode="edge"))
        run = sj.simulate(
            model,
            s.integrator,
            params,
            begin,
            s.schedule,
            frames=steps,
            observe=model.receive,
            checkpoint=physics["checkpoint"],
        )
        return 0.5 * jnp.sum((run.observed - data) ** 2), run.observed

    speed = jnp.asarray(start["speed"])
    program, seconds = compiled(jax.jit(jax.value_and_grad(misfit, has_aux=True)), speed)

    def advance() -> None:
        (value, series), gradient = jax.block_until_ready(program(speed))
        found.update(series=np.asarray(series), misfit=np.asarray(value), gradient=np.asarray(gradient))

    return Program(advance, lambda: found, seconds)


if __name__ == "__main__":
    serve(build)
