"""Small problems, one for each way in which models, walls and steps combine, for tests that run all of them.

Grids have another size along every axis, so that a mixed-up axis cannot go unnoticed, and stay divisible by all
meshes of eight devices used here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simjax.core.boundary import Dirichlet, Inflow, Neumann, NoSlipWall, Outflow, PeriodicSide, ScalarSide, SlipWall
from simjax.core.domain import Domain
from simjax.core.grid import Grid
from simjax.core.model import Model
from simjax.integrators.runge_kutta import INTEGRATORS
from simjax.models import advection_diffusion, incompressible
from simjax.stepping import Schedule, simulate

PERIODIC = (PeriodicSide(), PeriodicSide())
# Compiler options. PLAIN leaves machine code as it is written: without fused multiply-adds, which round once where a
# product and a sum round twice, and which the optimiser forms in one loop and not in another. QUICK is for programs
# that take longer to compile than to run.
PLAIN = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
QUICK = PLAIN | ({"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {})


@dataclass(frozen=True)
class Case:
    """A model on a grid, with parameters, a scheme and a schedule.

    `build` makes the model on a domain; `params` are those of one member, `member(k)` scales them.
    """

    name: str
    grid: Grid
    build: Callable[[Domain], Model]
    params: Callable[[], Any]
    integrator: str
    schedule: Schedule
    checkpoint: str = "every_step"
    frames: int = 2

    def member(self, k: int):
        """Parameters of ensemble member k, all of them different."""
        return jax.tree.map(lambda p: p * (1 + 0.1 * k), self.params())

    def initial_state(self):
        """A smooth state without symmetries on the whole grid, obeying the model's constraints."""
        model = self.build(Domain(self.grid))
        if isinstance(model, advection_diffusion.AdvectionDiffusion):
            return advection_diffusion.State(smooth_field(self.grid, model.layout.offset, 0))
        velocity = tuple(smooth_field(self.grid, kind.offset, i) for i, kind in enumerate(model.layouts))
        return jax.jit(model.constrain)(0.0, 0.0, incompressible.State(velocity), self.params())

    def runner(self, domain: Domain) -> Callable:
        """(params, state) -> (scalar loss, final state) on a domain, to be run as it is or distributed."""
        model = self.build(domain)

        def run(params, state):
            trajectory = simulate(
                model, INTEGRATORS[self.integrator], params, state, self.schedule,
                frames=self.frames, checkpoint=self.checkpoint,
            )  # fmt: skip
            return weighted_square(domain, trajectory.state), trajectory.state

        return run


def smooth_field(grid: Grid, offset, seed: int) -> jax.Array:
    """A few waves per axis with unrelated phases, at `offset`, of order one; neither periodic nor symmetric."""
    x = np.meshgrid(*(grid.coordinates(axis, offset[axis]) for axis in range(grid.ndim)), indexing="ij")
    waves = [np.sin((k + 1.3) * v + 0.7 * k + seed) for k, v in enumerate(x)]
    product = np.prod([np.cos(1.7 * v - 0.4 * seed + k) for k, v in enumerate(x)], axis=0)
    return jnp.asarray(sum(waves) / grid.ndim + 0.5 * product)


def weighted_square(domain: Domain, state) -> jax.Array:
    """Sum of squares of a state with a weight that differs from cell to cell."""
    x = domain.coordinates((0.5,) * domain.grid.ndim)
    weight = 1 + 0.3 * sum(jnp.sin((k + 2.1) * v) for k, v in enumerate(x))
    return domain.sum(jax.tree.map(lambda u: weight * u * u, state)) / domain.grid.cells


def heated(t, *x):
    """A wall value that varies with time and along the wall."""
    return 0.5 + jnp.cos(2 * t) * sum(0.2 * v - 0.1 * v * v for v in x[1:])


def lid(t, *x):
    """The speed of a wall that accelerates and is not the same everywhere."""
    return (1 + 0.5 * jnp.sin(3 * t)) * jnp.cos(0.4 * x[0])


def stirring(t, x, params):
    """A body force along the first axis that depends on time, on a position and on the viscosity."""
    return jnp.sin(2 * x[1]) * jnp.cos(t) * (1 + params.viscosity)


def _advection_diffusion(sides, scheme):
    return lambda domain: advection_diffusion.AdvectionDiffusion(domain, sides, scheme)


def _incompressible(sides, forces=None):
    return lambda domain: incompressible.Incompressible(domain, sides, forces)


def _transport(*velocity):
    return lambda: advection_diffusion.Params(jnp.asarray(0.03), jnp.asarray(velocity))


def _flow():
    return incompressible.Params(jnp.asarray(0.05), jnp.asarray(0.1))


_line = Grid((24,), (0.0,), (2.0,))
_plane = Grid((16, 24), (0.0, -1.0), (2 * np.pi, 3.0))
_box = Grid((8, 12, 6), (0.0, 0.0, -1.0), (2 * np.pi, 3.0, 1.0))
# 0.05 / 0.02 is no integer: two full steps and a shortened one per frame.
_fixed = Schedule(0.05, dt=0.02)
_courant = Schedule(0.1, courant=0.4, max_steps=4)
_heated = ScalarSide(Dirichlet(heated))
_fluxed = ScalarSide(Neumann(lambda t, *x: 0.3 * jnp.cos(x[0] + t)))
_still, _slip = NoSlipWall(), SlipWall()

CASES = (
    Case(
        "transport-1d", _line, _advection_diffusion([(Inflow(scalar=0.7), Outflow())], "upwind"),
        _transport(0.8), "euler", Schedule(0.01, dt=0.004), checkpoint="none",
    ),
    Case(
        "transport-2d-periodic", _plane, _advection_diffusion([PERIODIC, PERIODIC], "central"),
        _transport(0.8, -0.5), "ssprk2", _courant, checkpoint="two_level",
    ),
    Case(
        "transport-2d-walls", _plane, _advection_diffusion([(_heated, _fluxed), (_fluxed, _still)], "upwind"),
        _transport(0.8, -0.5), "midpoint", _fixed,
    ),
    Case(
        "transport-3d-walls", _box, _advection_diffusion([(_heated, _slip), PERIODIC, (_fluxed, _still)], "central"),
        _transport(0.8, -0.5, 0.3), "euler", _fixed,
    ),
    Case(
        "flow-2d-periodic", _plane, _incompressible([PERIODIC, PERIODIC], (stirring, None)),
        _flow, "euler", _fixed, checkpoint="two_level",
    ),
    Case(
        "flow-2d-walls", _plane,
        _incompressible([(_still, _slip), (_still, NoSlipWall((lid, 0.0)))], (stirring, None)),
        _flow, "euler", _courant,
    ),
    Case(
        "flow-3d-periodic", _box, _incompressible([PERIODIC] * 3), _flow, "euler", _fixed, checkpoint="none",
    ),
    Case(
        "flow-3d-walls", _box,
        _incompressible([PERIODIC, (_still, NoSlipWall((lid, 0.0, 0.3))), (_slip, _still)], (stirring, None, None)),
        _flow, "euler", _fixed, checkpoint="none",
    ),
)  # fmt: skip
