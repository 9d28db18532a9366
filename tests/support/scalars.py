"""What the tests of transported scalars share: marching, single tendencies, places on the grid."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from case import QUICK

from simjax.integrators.table import INTEGRATORS
from simjax.models.scalar.conserved_scalar import State
from simjax.stepping.simulate import Schedule, simulate


def march(model, params, start, *, end, steps, integrator="ssprk3"):
    """The concentration at `end` after `steps` steps."""

    @functools.partial(jax.jit, compiler_options=QUICK)
    def run(params, start):
        trajectory = simulate(
            model,
            INTEGRATORS[integrator],
            params,
            State(start),
            Schedule(end, dt=end / steps),
            frames=1,
            checkpoint="none",
        )
        return trajectory.state.concentration

    return run(params, jnp.asarray(start))


def once(model, params, c):
    """The explicit tendency."""
    return jax.jit(lambda p, c: model.explicit_rhs(0.0, State(c), p).concentration, compiler_options=QUICK)(params, c)


def places(grid, offset=None):
    """Coordinates of the whole grid, cell centres unless told."""
    offset = (0.5,) * grid.ndim if offset is None else offset
    return np.meshgrid(*(grid.coordinates(axis, offset[axis]) for axis in range(grid.ndim)), indexing="ij")


def faces(grid, axis):
    return places(grid, tuple(0.0 if k == axis else 0.5 for k in range(grid.ndim)))


def uniform(grid, *velocity):
    return tuple(jnp.full(grid.shape, a) for a in velocity)


def random_field(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).uniform(size=shape))
