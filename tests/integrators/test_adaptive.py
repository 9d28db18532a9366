"""Error-controlled stepping against an exact solution, on one device and on a mesh."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

import simjax as sj
from simjax.errors import ConfigurationError
from simjax.integrators.adaptive import integrate_adaptive
from simjax.models.flow.incompressible import Incompressible
from simjax.models.scalar.advection_diffusion import AdvectionDiffusion, Params, State

PERIODIC = (sj.PeriodicSide(), sj.PeriodicSide())
GRID = sj.Grid((32,), (0.0,), (2 * np.pi,))


def solve(mesh=None, **options):
    """sin(x) under diffusion 0.5 until t = 1, and the exact solution of the semi-discrete equation."""
    model = AdvectionDiffusion(sj.decompose(GRID, mesh), [PERIODIC])
    (x,) = model.domain.unsplit().coordinates((0.5,))
    wave = jnp.sin(x)
    if mesh is not None:
        wave = jax.device_put(wave, NamedSharding(mesh, model.domain.spec()))
    params = Params(jnp.asarray(0.5), jnp.zeros(1))
    with jax.numpy_dtype_promotion("standard"):  # diffrax multiplies its step counts by floats
        found = integrate_adaptive(model, params, State(wave), [0.0, 1.0], mesh=mesh, **options).concentration[0]
    (h,) = GRID.spacing
    return found, jnp.sin(x) * jnp.exp(-0.5 * (2 / h * jnp.sin(h / 2)) ** 2)


@pytest.mark.parametrize("solver", ["bosh3", "tsit5", "dopri8"])
@pytest.mark.parametrize("tolerance", [1e-5, 1e-8])
@pytest.mark.slow
def test_error_follows_the_tolerance(solver, tolerance):
    found, exact = solve(rtol=tolerance, atol=tolerance, solver=solver)
    # The controller bounds each step's error; a decaying solution adds up a few of them.
    assert float(jnp.max(jnp.abs(found - exact))) < 10 * tolerance


@pytest.mark.slow
def test_decomposed_steps_are_those_of_one_device():
    alone, _ = solve(rtol=1e-6, atol=1e-6)
    split, _ = solve(sj.make_mesh({"x": 4}), rtol=1e-6, atol=1e-6)
    # The error norm is of the whole state, so the same steps are taken; only its sum is ordered otherwise.
    np.testing.assert_allclose(split, alone, rtol=0, atol=1e-13)


def test_constrained_models_are_refused():
    model = Incompressible(sj.decompose(sj.Grid((8, 8)), None), [PERIODIC] * 2)
    with pytest.raises(ConfigurationError, match="projects after each stage"):
        integrate_adaptive(model, None, None, [0.0, 1.0], rtol=1e-3, atol=1e-3)
