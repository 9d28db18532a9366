"""Particles packed into the cells of several devices, and cells that cannot hold them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, cells_for, pack, unpack


@pytest.mark.parametrize("sizes", [{}, {"x": 4, "y": 2}], ids=["alone", "4x2"])
def test_gradients_pass_through_packing(sizes):
    rng = np.random.default_rng(0)
    position, values = jnp.asarray(rng.random((2, 50))), jnp.asarray(rng.normal(size=(2, 50)))
    mesh = make_mesh(sizes)
    cells = Cells(decompose(cells_for((0.0, 0.0), (1.0, 1.0), 0.25, (True, True), (4, 2)), mesh), 24, (True, True))

    def square(values):
        _, ids, packed, _ = pack(cells, position, values)
        return jnp.sum(unpack(cells, ids, packed**2, 50))

    run = distribute(square, mesh, in_specs=(PartitionSpec(),), out_specs=PartitionSpec())
    # Products by two are exact.
    np.testing.assert_array_equal(jax.jit(jax.grad(run))(values), 2 * values)


@pytest.mark.parametrize("capacity", [0, -8, 4, 30, 8.0, True])
def test_a_capacity_that_loops_over_pairs_cannot_take_is_refused(capacity):
    """The loops would look at none of 4 slots and overlook the last six of 30."""
    with pytest.raises(ConfigurationError, match="expected .* multiple of 8") as refused:
        Cells(Domain(Grid((4, 4))), capacity, (True, True))
    assert "write 32" in str(refused.value) or capacity != 30


def test_one_axis_too_few_is_refused():
    with pytest.raises(ConfigurationError, match="one per axis"):
        Cells(Domain(Grid((4, 4))), 8, (True,))
