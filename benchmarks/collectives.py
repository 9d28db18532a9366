"""Collectives in one compiled step of a decomposed model, by mesh; prints JSON. `measure.py` starts it."""

from __future__ import annotations

import json
import sys

import jax
import numpy as np
from benchmarks.cases import CASES
from benchmarks.measure import count_collectives

from simjax.grid import AXES, Grid
from simjax.integrators.table import INTEGRATORS
from simjax.parallel import decompose, distribute, make_mesh


def count(model: str, integrator: str, shape: tuple[int, ...], mesh_shape: tuple[int, ...]) -> dict[str, int]:
    """Collectives of one step of `model` on blocks of a grid of `shape` over a mesh of `mesh_shape`."""
    on_one_device, build = CASES[model]
    whole = on_one_device(shape).grid
    mesh = make_mesh(dict(zip(AXES, mesh_shape, strict=False)))
    case = build(decompose(Grid(shape, whole.lower, whole.upper), mesh))
    scheme = INTEGRATORS[integrator]
    state_specs, params_specs = case.model.partition_specs(case.state, case.params)

    def step(state, params):
        return scheme.step(case.model, np.float32(0.0), np.float32(case.dt), state, params)

    program = distribute(step, mesh, in_specs=(state_specs, params_specs), out_specs=state_specs)
    return count_collectives(program.lower(case.state, case.params).compile())


def main() -> None:
    model, integrator, *sizes = sys.argv[1:]
    shape = tuple(map(int, sizes))
    meshes = [(4, *(1,) * (len(shape) - 1)), (2, 4), (2, 2, 2)][: len(shape)]
    counts = {"x".join(map(str, mesh)): count(model, integrator, shape, mesh) for mesh in meshes}
    json.dump({"devices": jax.device_count(), "meshes": counts}, sys.stdout)


if __name__ == "__main__":
    main()
