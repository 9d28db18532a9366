"""Waves taken back in time instead of stored: the gradients of stored plans, from memory that no step adds to."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK, smooth_field, weighted_square
from cases_waves import Oscillation
from jax.sharding import PartitionSpec
from ordinary import Ordinary

from simjax.adjoint.plan import plan
from simjax.core.boundary import SlipWall
from simjax.core.errors import ConfigurationError
from simjax.core.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models import acoustic, maxwell
from simjax.models.absorbing import Absorbing, FreeSurface
from simjax.parallel import decompose, distribute, make_mesh, prepend_axis
from simjax.stepping import Schedule, simulate

PLANE = Grid((16, 24), (0.0, -1.0), (2.0, 2.0))
WALLS = (SlipWall(), SlipWall())
SIDES = {"acoustic": [(FreeSurface(), SlipWall()), (SlipWall(), FreeSurface())], "maxwell": [WALLS, PERIODIC]}
compiled = functools.partial(jax.jit, compiler_options=QUICK)


def medium(seed, dtype):
    return (1.5 + 0.3 * smooth_field(PLANE, (0.5, 0.5), seed)).astype(dtype)


def parameters(kind, dtype=jnp.float64):
    """A medium that varies by a factor of two, and a source that goes on and on."""
    place, signal = jnp.asarray([[0.9, 0.4]], dtype), Oscillation(jnp.asarray(2.0, dtype), jnp.asarray(9.0, dtype))
    params = acoustic.Params if kind == "acoustic" else maxwell.Params
    return params(medium(3, dtype), medium(5, dtype), sources=place, signals=(signal,))


def build(kind, domain):
    model = acoustic.Acoustic if kind == "acoustic" else maxwell.Maxwell
    return model(domain, SIDES[kind])


def initial(kind, dtype=jnp.float64):
    """Smooth fields; where there is a lag, the run does not begin with it at zero."""
    model = build(kind, decompose(PLANE, None))
    fields = {
        name: tuple(smooth_field(PLANE, layout.offset, k).astype(dtype) for k, layout in enumerate(layouts))
        for name, layouts in model.component_layouts().items()
    }
    state = model.constrain(0.0, 0.0, model.state_from(fields, None), None)
    return jax.tree.map(lambda u: u if u.ndim else u + jnp.asarray(0.004, dtype), state)


def loss(kind, domain, checkpoint, steps, frames, schedule=None):
    """Of the end, of what was seen at the end of every frame, and of when."""
    model = build(kind, domain)
    schedule = schedule or Schedule(0.012 * steps, dt=0.012)

    def look(t, state, params):
        return weighted_square(domain, jax.tree.leaves(state)[0]) * jnp.cos(t), t

    def run(params, state):
        seen = simulate(
            model, INTEGRATORS["leapfrog"], params, state, schedule, frames=frames, observe=look, checkpoint=checkpoint
        )
        total = weighted_square(domain, [u for u in jax.tree.leaves(seen.state) if u.ndim]) + seen.state.lag
        return total + jnp.dot(seen.observed[0], seen.observed[1])

    return run


def gradient(kind, checkpoint, steps, frames=1, sizes=(), **others):
    mesh = make_mesh(dict(sizes))
    domain = decompose(PLANE, mesh)
    params, state = parameters(kind), initial(kind)
    specs = build(kind, domain).partition_specs(state, params)
    run = distribute(
        loss(kind, domain, checkpoint, steps, frames, **others), mesh,
        in_specs=(specs[1], specs[0]), out_specs=PartitionSpec(),
    )  # fmt: skip
    return compiled(jax.value_and_grad(run, argnums=(0, 1)))(params, state)


def assert_same(found, expected, tolerance):
    """Each array within `tolerance` of its largest entry."""
    for (path, a), b in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(b).max() > 0, f"{path} vanishes: nothing is tested"
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(), err_msg=str(path))


@functools.cache
def stored(kind, steps, frames):
    return gradient(kind, "every_step", steps, frames)


@pytest.mark.parametrize("kind", ["acoustic", "maxwell"])
def test_gradients_are_those_of_stored_states(kind):
    # A thousand roundings of states that neither grow nor decay.
    assert_same(gradient(kind, "reverse", 10, 3), stored(kind, 10, 3), 1e-12)
