"""Gases on small grids, and their runs."""

import jax
import jax.numpy as jnp
from case import QUICK

from simjax.core.boundary import Outflow, PeriodicSide, SlipWall
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import GasScheme
from simjax.stepping.simulate import Schedule, simulate

PERIODIC, OPEN, CLOSED = ((side(), side()) for side in (PeriodicSide, Outflow, SlipWall))
WENO, MUSCL = GasScheme("weno5", "characteristic", "hllc"), GasScheme("mc", "primitive", "hllc")
IDEAL = Params(jnp.asarray(1.4))


def gas(shape, sides, scheme=WENO, lower=None, upper=None, **options):
    return Compressible(Domain(Grid(shape, lower, upper)), sides, scheme, **options)


def start(model, density, velocity, pressure, scalars=(), params=IDEAL, dtype=float):
    """The state of broadcastable primitives."""

    def field(value):
        return jnp.broadcast_to(jnp.asarray(value, dtype), model.domain.grid.shape)

    fields = {"density": (field(density),), "pressure": (field(pressure),)}
    fields |= {"velocity": tuple(map(field, velocity)), "scalars": tuple(map(field, scalars))}
    return model.state_from(fields, params)


def trajectory(model, state, end, *, dt=None, courant=0.4, most=2000, integrator="ssprk3", params=IDEAL, quick=True):
    """The run to `end`; a fault of it is a failure of the test. `quick`: to compile, for short runs."""
    schedule = Schedule(end, dt=dt) if dt is not None else Schedule(end, courant=courant, max_steps=most)
    advance = jax.jit(
        lambda params, state: simulate(
            model, INTEGRATORS[integrator], params, state, schedule, frames=1, checkpoint="none"
        ),
        compiler_options=QUICK if quick else None,
    )
    result = advance(params, state)
    assert int(result.clock.status) == 0
    return result


def run(model, state, end, **options):
    """The final state of a `trajectory`."""
    return trajectory(model, state, end, **options).state


def seen(model, state, params=IDEAL):
    """Density, velocities and pressure."""
    fields = jax.jit(lambda state: model.observe(0.0, state, params))(state)
    velocity = [fields[f"velocity_{axis}"] for axis in "xyz"[: model.domain.grid.ndim]]
    return fields["density"], velocity, fields["pressure"]


def centers(model):
    return model.domain.coordinates((0.5,) * model.domain.grid.ndim)


def tube(model, problem, axis=0, params=IDEAL, dtype=float):
    """The initial state of a Riemann problem along `axis`."""
    below = centers(model)[axis] < problem.origin
    density, u, pressure = (jnp.where(below, a, b) for a, b in zip(problem.left, problem.right, strict=True))
    velocity = [u if k == axis else 0.0 * u for k in range(model.domain.grid.ndim)]
    return start(model, density, velocity, pressure, params=params, dtype=dtype)
