"""What tests of semilinear equations share: numbers as parameters, and short runs."""

import jax
import jax.numpy as jnp
import numpy as np
from case import QUICK

from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.stepping.simulate import Schedule, simulate


def numbers(model, dtype=np.float64, **changed):
    """Default parameters of a model as arrays, some of them changed."""
    return {name: jnp.asarray(value, dtype) for name, value in {**model.parameters, **changed}.items()}


def line(n, lower, upper):
    """A grid along x."""
    return Grid((n,), (lower,), (upper,))


def sample(model, **formulas):
    """The state from functions of the coordinates of cell centres, float64."""
    grid = model.domain.grid
    x = np.meshgrid(*(grid.coordinates(axis, 0.5) for axis in range(grid.ndim)), indexing="ij")
    return model.state_from({name: (jnp.asarray(formula(*x)),) for name, formula in formulas.items()}, None)


def run(model, params, state, end, dt, *, integrator="etdrk4", frames=1, look=None):
    """(final state, what `look(t, state, params)` saw after each of `frames`, by default the fields)."""
    look = model.observe if look is None else look
    schedule = Schedule(end / frames, dt=dt)

    def forward(params, state):
        return simulate(
            model, INTEGRATORS[integrator], params, state, schedule, frames=frames, observe=look, checkpoint="none"
        )

    trajectory = jax.jit(forward, compiler_options=QUICK)(params, state)
    assert int(trajectory.clock.status) == 0
    return trajectory.state, jax.tree.map(np.asarray, trajectory.observed)


def on(grid, kind, **options):
    """A model of this kind on one device."""
    return kind(Domain(grid), **options)


def largest(difference):
    return float(np.abs(difference).max())
