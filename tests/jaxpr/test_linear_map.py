"""Linear maps with their own transpose: what the other tests do not show."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from simjax.jaxpr.linear_map import fixed_linear_map, linear_map
from simjax.jaxpr.varying import cast_varying, repeated
from simjax.parallel import distribute, make_mesh


def test_what_was_traced_for_equal_values_serves_values_that_differ_between_devices():
    """As within loops over members, where a start that was the same everywhere has become each member's own."""

    def doubled(u):
        closed = jax.make_jaxpr(lambda x: 2 * cast_varying(x, ("x",)))(jnp.zeros(3))
        return repeated(closed)(u)[0]

    u = jnp.arange(24.0)
    found = distribute(doubled, make_mesh({"x": 8}), in_specs=P("x"), out_specs=P("x"))(u)
    np.testing.assert_array_equal(found, 2 * np.arange(24.0))


@dataclass(frozen=True)
class Sum:
    """The sum of two arrays."""

    def forward(self, both, /):
        return both[0] + both[1]

    def transpose(self, cotangent, /):
        return cotangent, cotangent


def of_closure(both):
    return linear_map(Sum().forward, Sum().transpose, both)


@pytest.mark.parametrize("apply", [of_closure, lambda both: fixed_linear_map(Sum(), both)], ids=["closure", "pair"])
def test_cotangents_are_summed_over_devices_on_which_a_value_is_the_same(apply):
    """One that varies along y and one that varies along x meet: their sum varies along both."""
    u, v = jnp.arange(1.0, 5.0), jnp.arange(2.0, 4.0)
    weights = jnp.arange(8.0).reshape(2, 4)

    def loss(u, v, weights):
        return jnp.sum(weights * apply((jnp.broadcast_to(u, (1, 1)), jnp.broadcast_to(v[:, None], (1, 1)))) ** 2)

    def gradient(u, v, weights):
        return jax.grad(loss, argnums=(0, 1))(u, v, weights)

    specs = P("y"), P("x"), P("x", "y")
    found = distribute(gradient, make_mesh({"x": 2, "y": 4}), in_specs=specs, out_specs=specs[:2])(u, v, weights)
    expected = jax.grad(lambda u, v: jnp.sum(weights * (u[None] + v[:, None]) ** 2), argnums=(0, 1))(u, v)
    jax.tree.map(np.testing.assert_array_equal, found, expected)  # of small whole numbers
