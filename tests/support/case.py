"""What a small problem is that the defining tests run in every layout."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.core.model import Model
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.stepping.checkpointing.plan import Checkpoint
from simjax.stepping.simulate import Schedule, simulate, time_of

PERIODIC = (PeriodicSide(), PeriodicSide())
# Compiler options. PLAIN leaves machine code as it is written: without fused multiply-adds, which round once where a
# product and a sum round twice, and which the optimiser forms in one loop and not in another. QUICK is for programs
# that take longer to compile than to run. conftest.py turns the fusion emitters of jax before 0.11 off, and without
# them products and sums are contracted, at any level of optimisation, in one module and not in another. PLAIN turns
# them on again, as its results are compared bit for bit; those of QUICK are compared to a tolerance.
EMITTERS = "xla_cpu_use_fusion_emitters"
OLD = jax.__version_info__ < (0, 11)
PLAIN = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True} | (
    {EMITTERS: True} if OLD else {}
)
# As programs of users are compiled; conftest.py asks for less. With OPTIMISED=1 in the environment all are, but PLAIN.
OPTIMISED = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
QUICK = OPTIMISED if os.environ.get("OPTIMISED") == "1" else PLAIN | ({EMITTERS: False} if OLD else {})


@dataclass(frozen=True)
class Case:
    """A model on a grid, with parameters, a first state, a scheme and a schedule.

    `build` makes the model on a domain; `params` are those of one member, `member(k)` scales them; `initial(model,
    params)` is a state without symmetries on the whole grid. `cuts`: whether the grid can be cut over devices.
    `partitioned`: (mesh axis, size) of the mesh over which the compiler cuts it; None: the usual one; (): it cannot.
    `weighed(model, t, state, params)`: the fields that enter the loss.
    """

    name: str
    grid: Grid
    build: Callable[[Domain], Model]
    params: Callable[[], Any]
    initial: Callable[[Model, Any], Any]
    integrator: str
    schedule: Schedule
    checkpoint: Checkpoint = "every_step"
    frames: int = 2
    cuts: bool = True
    partitioned: tuple[tuple[str, int], ...] | None = None
    weighed: Callable[[Model, Any, Any, Any], Any] = lambda model, t, state, params: state

    def member(self, k: int):
        """Parameters of ensemble member k, all of them different."""
        return jax.tree.map(lambda p: p * (1 + 0.1 * k), self.params())

    def initial_state(self):
        return self.initial(self.build(Domain(self.grid)), self.params())

    def specs(self, domain: Domain, state) -> tuple[Any, Any]:
        """Partition of the initial state and of the parameters on a domain."""
        return self.build(domain).partition_specs(state, self.params())

    def runner(self, domain: Domain) -> Callable:
        """(params, state) -> (scalar loss, final state) on a domain, to be run as it is or distributed."""
        model = self.build(domain)

        def run(params, state):
            trajectory = simulate(
                model,
                INTEGRATORS[self.integrator],
                params,
                state,
                self.schedule,
                frames=self.frames,
                checkpoint=self.checkpoint,
            )
            end = time_of(trajectory.clock, self.schedule)
            fields = self.weighed(model, end, trajectory.state, params)
            return weighted_square(domain, fields), trajectory.state

        return run


def smooth_field(grid: Grid, offset, seed: int) -> jax.Array:
    """A few waves per axis with unrelated phases, at `offset`, of order one; neither periodic nor symmetric."""
    x = np.meshgrid(*(grid.coordinates(axis, offset[axis]) for axis in range(grid.ndim)), indexing="ij")
    waves = [np.sin((k + 1.3) * v + 0.7 * k + seed) for k, v in enumerate(x)]
    product = np.prod([np.cos(1.7 * v - 0.4 * seed + k) for k, v in enumerate(x)], axis=0)
    return jnp.asarray(sum(waves) / grid.ndim + 0.5 * product)


def weighted_square(domain: Domain, fields) -> jax.Array:
    """Sum of squares of fields with a weight that differs from cell to cell."""
    x = domain.coordinates((0.5,) * domain.grid.ndim)
    weight = 1 + 0.3 * sum(jnp.sin((k + 2.1) * v) for k, v in enumerate(x))
    return domain.sum(jax.tree.map(lambda u: weight * u * u, fields)) / domain.grid.cells
