"""Spectral models with plain numbers as parameters and outside of `jit`, as in a first try at a prompt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC

from simjax.core.domain import Domain
from simjax.grid import CENTER, Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.fourier.fourier_flow import Params as FlowParams
from simjax.models.flow.fourier.vorticity import Vorticity
from simjax.models.spectral.nonlinear_waves import KortewegDeVries, KuramotoSivashinsky, ViscousBurgers
from simjax.models.spectral.patterns import GrayScott, SwiftHohenberg
from simjax.models.spectral.phase_fields import AllenCahn, CahnHilliard
from simjax.models.spectral.schroedinger import Params, Schroedinger

LINE, PLANE = Grid((8,), (0.0,), (2.0,)), Grid((8, 8))
BY_NAME = (ViscousBurgers, KortewegDeVries, KuramotoSivashinsky, SwiftHohenberg, GrayScott, AllenCahn, CahnHilliard)


def model_and_params(kind):
    grid = PLANE if kind in (Vorticity, ViscousBurgers) else LINE
    model = kind(Domain(grid), [PERIODIC] * grid.ndim)
    if kind is Vorticity:
        return model, FlowParams(0.05, 0.1)
    if kind is Schroedinger:
        return model, Params(-0.7, 1.5)
    return model, dict(kind.parameters)


def state_of(model, params):
    """One wave in every component of every field."""
    grid = model.domain.grid
    x = np.meshgrid(*(grid.coordinates(axis, CENTER) for axis in range(grid.ndim)), indexing="ij")[0]
    wave = jnp.asarray(np.sin(np.pi * x))
    fields = {name: (wave,) * len(layouts) for name, layouts in model.component_layouts().items()}
    return model.state_from(fields, params)


@pytest.mark.parametrize("kind", [*BY_NAME, Schroedinger, Vorticity])
@pytest.mark.slow
def test_plain_numbers_are_parameters(kind):
    """Shapes and types of all that a step and its limits need; the numbers themselves are no arguments of a trace."""
    model, params = model_and_params(kind)
    state = jax.eval_shape(lambda: state_of(model, params))
    zero, dt = jnp.zeros(()), jnp.asarray(1e-3)
    for what in (
        lambda state: model.rhs(zero, state, params),
        lambda state: INTEGRATORS["etdrk2"].step(model, zero, dt, state, params),
        lambda state: INTEGRATORS["imex_euler"].step(model, zero, dt, state, params),
    ):
        found = jax.eval_shape(what, state)
        assert jax.tree.map(lambda u: (u.shape, u.dtype), found) == jax.tree.map(lambda u: (u.shape, u.dtype), state)
    assert jax.eval_shape(lambda state: model.stable_dt(state, params), state).dtype == jnp.float64
    jax.eval_shape(lambda state: model.diagnostics(zero, state, params), state)


def test_plain_numbers_take_the_precision_of_the_state():
    model, params = model_and_params(KortewegDeVries)
    state = jax.eval_shape(lambda: jax.tree.map(lambda u: u.astype(jnp.complex64), state_of(model, params)))
    slope = jax.eval_shape(lambda state: model.rhs(jnp.zeros((), jnp.float32), state, params), state)
    assert {u.dtype for u in jax.tree.leaves(slope)} == {np.dtype(np.complex64)}
    assert jax.eval_shape(lambda state: model.stable_dt(state, params), state).dtype == jnp.float32


def test_plain_numbers_give_what_arrays_give():
    model, params = model_and_params(KortewegDeVries)
    state = state_of(model, params)
    arrays = jax.tree.map(jnp.asarray, params)
    for name, plain in model.implicit_rhs(0.0, state, params).items():
        # the same operations on the same numbers
        np.testing.assert_array_equal(plain, model.implicit_rhs(0.0, state, arrays)[name])
