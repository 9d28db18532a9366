"""A stencil in two parts, interior and rim: the same numbers as on padded blocks, wherever it is chosen."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import smooth_field
from jax.sharding import PartitionSpec
from stencils_to_transpose import components, layout_of, mechanical, nonlinear

from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.ops.difference import laplacian
from simjax.parallel import decompose, distribute, make_mesh
from simjax.stencil import interior_and_rim

# The same arithmetic per cell, contracted into other multiply-adds; derivatives add it up in another order.
ROUNDING = 1e-13
SHAPES = {1: (16,), 2: (12, 9), 3: (8, 7, 9)}  # more than twice the widths
CASES = [
    pytest.param(*case, kind, id=f"{kind}-{case[0]}-{case[1]}", marks=[] if case in usual else pytest.mark.slow)
    for kind, usual in (("two fields", {(1, 3), (2, 2)}), ("components", {(2, 1), (3, 1)}))
    for case in itertools.product((1, 2, 3), (1, 2, 3))
]


@pytest.fixture
def selecting(monkeypatch):
    """Small blocks are selected too; a list gets a name for each stencil that is."""
    chosen, real = [], interior_and_rim.select_interior_and_rim

    def select(*arguments):
        chosen.append("selected")
        return real(*arguments)

    for name, value in (("LEAST_CELLS", 1), ("MOST_IN_STRIPS", 100), ("MOST_OPERATIONS", 1000)):
        monkeypatch.setattr(interior_and_rim, name, value)
    monkeypatch.setattr("simjax.stencil.evaluate.select_interior_and_rim", select)
    return chosen


def fields_of(grid, count, leading=()):
    parts = [smooth_field(grid, (0.5,) * grid.ndim, seed) for seed in range(count * int(np.prod(leading)))]
    return tuple(jnp.stack(parts).reshape(count, *leading, *grid.shape))


@pytest.mark.parametrize("ndim, width, kind", CASES)
@pytest.mark.slow
def test_selected_is_padded(ndim, width, kind, selecting):
    """Values, derivatives and members, beside walls and periodic sides, of fields with and without components."""
    grid, layout = Grid(SHAPES[ndim]), layout_of(ndim)
    stencil, count, leading = {"two fields": (nonlinear, 2, ()), "components": (components, 1, (2,))}[kind]
    fields, weights, viscosity = fields_of(grid, count, leading), jnp.asarray([0.7, -1.3]), jnp.asarray(0.02)

    def results(apply):
        def value(viscosity, fields):
            bound = functools.partial(stencil, ndim, width, viscosity, weights)
            return jax.tree.leaves(apply(Domain(grid), bound, fields, layout, width))

        def loss(*point):
            return sum(jnp.sum(x**2) for x in value(*point))

        members = jax.vmap(value, in_axes=(0, None))(jnp.stack([viscosity, 2 * viscosity]), fields)
        return value(viscosity, fields), jax.grad(loss, argnums=(0, 1))(viscosity, fields), members

    found = jax.jit(lambda: results(lambda domain, *rest: domain.apply(*rest)))()
    assert selecting
    expected = jax.jit(lambda: results(mechanical))()
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(b).max() > 0
        np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDING * np.abs(b).max())


def smoothed(domain, u, steps=3):
    for _ in range(steps):
        u = u + 1e-4 * domain.apply(lambda u: laplacian(u, domain.grid.spacing), u, layout_of(domain.grid.ndim), 1)
    return u


@pytest.mark.parametrize("sizes", [(2, 2), (1, 4)])
@pytest.mark.slow
def test_selected_in_blocks_is_selected_at_once(sizes, selecting):
    grid = Grid((16, 16))
    mesh = make_mesh(dict(zip("xy", sizes, strict=True)))
    domain, (u,) = decompose(grid, mesh), fields_of(grid, 1)
    cut = distribute(lambda u: smoothed(domain, u), mesh, in_specs=domain.spec(), out_specs=domain.spec())
    alone = distribute(lambda u: smoothed(Domain(grid), u), None, in_specs=PartitionSpec(), out_specs=PartitionSpec())
    np.testing.assert_allclose(cut(u), alone(u), rtol=0, atol=ROUNDING)
    assert len(selecting) >= 6


def test_blocks_that_strips_would_fill_are_padded(selecting):
    """An interior of no cells cannot be computed; a large rim is not worth it."""
    (u,) = fields_of(Grid((16, 2)), 1)
    smoothed(Domain(Grid((16, 2))), u, steps=1)
    assert not selecting


def test_where_padding_is_measured_faster_it_stays():
    assert interior_and_rim.worth_selecting((2048, 2048), 1, 20)
    # In the caches; strips too large beside the block; more to compute than to read.
    assert not interior_and_rim.worth_selecting((1024, 1024), 1, 20)
    assert not interior_and_rim.worth_selecting((256, 256, 256), 1, 30)
    assert not interior_and_rim.worth_selecting((2048, 2048), 1, 90)
