"""Linear maps with their own transpose: what the other tests do not show."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

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
