"""Fitting through a simulation: the viscosity of a flow between moving walls, on one device and on a mesh."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from case import QUICK
from jax.sharding import PartitionSpec

import simjax as sj
from simjax.inverse.methods.optimise import minimise
from simjax.models.flow.incompressible import Incompressible, Params, State

SIDES = [(sj.PeriodicSide(), sj.PeriodicSide()), (sj.NoSlipWall(), sj.NoSlipWall((1.0, 0.0)))]


def kinetic_energies(viscosity, mesh=None):
    """Kinetic energy at two times of a flow that a wall sets in motion from rest."""
    model = Incompressible(sj.decompose(sj.Grid((4, 16)), mesh), SIDES)

    def energies(viscosity):
        rest = jnp.zeros(model.domain.block_shape)
        params = Params(viscosity, jnp.zeros(()))
        state = model.constrain(0.0, 0.0, State((rest, rest)), params)
        observe = lambda t, state, params: model.diagnostics(t, state, params)["kinetic_energy"]  # noqa: E731
        schedule = sj.Schedule(0.05, dt=0.005)
        return sj.simulate(model, sj.INTEGRATORS["heun"], params, state, schedule, frames=2, observe=observe).observed

    return sj.distribute(energies, mesh, in_specs=(PartitionSpec(),), out_specs=PartitionSpec())(viscosity)


@pytest.mark.parametrize(
    "mesh", [pytest.param(None, marks=pytest.mark.long), pytest.param({"x": 2}, marks=pytest.mark.slow)]
)
def test_lbfgs_recovers_the_viscosity(mesh):
    mesh = mesh and sj.make_mesh(mesh)
    truth = jnp.asarray(0.05)
    measured = kinetic_energies(truth)

    def loss(log_viscosity):
        return jnp.mean((kinetic_energies(jnp.exp(log_viscosity), mesh) / measured - 1) ** 2)

    with jax.numpy_dtype_promotion("standard"):  # optax divides its counts by floats
        fit = jax.jit(lambda start: minimise(loss, start, optax.lbfgs(), iterations=12), compiler_options=QUICK)
        fit = fit(jnp.log(jnp.asarray(0.2)))
    # One smooth unknown without noise: quasi-Newton converges to rounding of the loss, its root for the unknown.
    np.testing.assert_allclose(jnp.exp(fit.unknowns), truth, rtol=1e-7)
    assert fit.losses[-1] < 1e-12 * fit.losses[0]
