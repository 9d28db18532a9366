"""Random eddies at an inflow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.models.flow.turbulent_inflow import gusts


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.slow
def test_eddies_have_no_divergence_and_the_size_duration_and_strength_that_are_given(ndim):
    size, duration = 0.3, 0.7
    random = np.random.default_rng(0)
    x = jnp.asarray(random.uniform(-50, 50, (ndim, 4000)))
    t = jnp.asarray(random.uniform(-50, 50, 4000))

    @jax.jit
    def at(x, t):
        """The velocity (ndim,) at a place."""
        return jnp.stack([gusts(i, tuple(x[:, None]), t, size, duration)[0] for i in range(ndim)])

    here = jax.vmap(at)(x.T, t)
    gradient = jax.vmap(jax.jacfwd(at))(x.T, t)
    # Rounding of terms of size one over the size of eddies.
    assert float(jnp.abs(jnp.trace(gradient, axis1=1, axis2=2)).max()) < 1e-12 * float(jnp.abs(gradient).max())
    # Means over 4000 places of 64 waves, of which several are alike: to some hundredths.
    assert float(jnp.mean(here**2)) == pytest.approx(1.0, abs=0.06)
    assert float(jnp.abs(jnp.mean(here, axis=0)).max()) < 0.06
    aside, s = 0.5 * size * jnp.eye(ndim), 0.5 * duration
    beside = [jax.vmap(at)((x + aside[:, i : i + 1]).T, t)[:, i] for i in range(ndim)]
    along = np.mean([float(jnp.mean(here[:, i] * u)) for i, u in enumerate(beside)])
    later = float(jnp.mean(here * jax.vmap(at)(x.T, t + s)))
    # One set of 64 waves stands for the ensemble, whose correlations these are: a tenth.
    assert along == pytest.approx(np.exp(-np.pi / 4 * 0.25), abs=0.12)
    assert later == pytest.approx(np.exp(-np.pi / 4 * 0.25), abs=0.12)


@pytest.mark.slow
def test_the_velocity_at_the_side_is_the_given_one_with_eddies():
    """As a configuration has it, whose strength depends on place."""
    inflow = {"velocity": ["2*t", 0], "fluctuation": "0.2*y*(1 - y)", "eddy_size": 0.3, "eddy_time": 0.4}
    experiment = sj.configure(
        "incompressible", precision="float64", physics={"viscosity": 0.01}, grid={"shape": [8, 16]},
        boundaries={"x": {"lower": {"kind": "turbulent_inflow", **inflow}, "upper": "outflow"}, "y": "slip"},
        time={"end": 0.2, "output_every": 0.1},
    )  # fmt: skip
    model, t = experiment.model, 0.7
    u = model.domain.impose((jnp.zeros((8, 16)),) * 2, model.layouts, t)[0]
    y = model.domain.grid.coordinates(1, 0.5)
    eddies = gusts(0, (jnp.zeros((1, 16)), jnp.asarray(y)[None]), t, 0.3, 0.4)[0]
    np.testing.assert_allclose(u[0], 2 * t + 0.2 * y * (1 - y) * np.asarray(eddies), rtol=1e-13)  # rounding
    assert not np.any(u[1:])
