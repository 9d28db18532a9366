"""Boxes of what a stencil reads: found right, enough for its values and derivatives, and all that neighbours send."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import smooth_field
from jax.extend.core import jaxprs_in_params
from stencils_to_transpose import components, layout_of, mechanical, nonlinear

from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.ops.difference import shift_by
from simjax.parallel import decompose, distribute, make_mesh
from simjax.stencil.boxes import reaches_of
from simjax.stencil.padding import assembled, disassembled

# The same arithmetic per cell, contracted into other multiply-adds; derivatives add it up in another order.
ROUNDING = 1e-13
SHAPES = {1: (16,), 2: (12, 9), 3: (8, 7, 9)}


def one_sided(ndim, width, viscosity, weights, *fields):
    """Every field read along its own axis: the first `width` cells back, the second one ahead."""
    here, far = (0,) * ndim, tuple(-width if axis == 0 else 0 for axis in range(ndim))
    near = tuple(1 if axis == ndim - 1 else 0 for axis in range(ndim))
    u, v = (functools.partial(shift_by, field, width=width) for field in fields)
    return u(far) * v(here) + weights[0] * jnp.sin(viscosity * v(near))


STENCILS = {"one-sided": (one_sided, 2, ()), "two fields": (nonlinear, 2, ()), "components": (components, 1, (2,))}


def fields_of(grid, count, leading=()):
    parts = [smooth_field(grid, (0.5,) * grid.ndim, seed) for seed in range(count * int(np.prod(leading)))]
    return tuple(jnp.stack(parts).reshape(count, *leading, *grid.shape))


@pytest.mark.parametrize(
    "read, found",
    [
        (lambda u: shift_by(u, (0, 0), 2), ((0, 0), (0, 0))),
        (lambda u: shift_by(u, (-1, 2), 2), ((1, 0), (0, 2))),
        (lambda u: shift_by(u, (1, 0), 2) + shift_by(u, (-2, 0), 2), ((2, 1), (0, 0))),
        (lambda u: jnp.sin(u)[2:-2, 2:-2], ((2, 2), (2, 2))),
        (lambda u: jnp.zeros((4, 3)), ((0, 0), (0, 0))),
    ],
)
def test_reach_is_what_is_read(read, found):
    """Slices tell; of a block that anything else is taken of, all may be read."""
    closed = jax.make_jaxpr(read)(jnp.zeros((8, 7)))
    assert reaches_of(closed, [2], 2) == (found,)


@pytest.mark.parametrize("reach", [((1, 0), (0, 2)), ((0, 2), (0, 0)), ((0, 1), (0, 0)), ((0, 0), (2, 1))])
def test_boxes_are_parts_of_blocks_and_their_transpose_is_that(reach):
    """To the last bit: cells are copied, and cotangents are put where the cells were."""
    grid, width = Grid((5, 6)), 2
    (u,) = fields_of(grid, 1)
    block = jnp.pad(u, width, mode="wrap")
    (field,), (ghosts,) = disassembled([block], 2, width)
    (box,) = assembled([field], [ghosts], width, [reach])
    cut = tuple(slice(width - lower, width + n + upper) for n, (lower, upper) in zip(u.shape, reach, strict=True))
    np.testing.assert_array_equal(box, block[cut])
    (again,), (lines,) = disassembled([box], 2, width, [reach])
    transposed = jax.linear_transpose(lambda field, ghosts: assembled([field], [ghosts], width, [reach])[0], u, ghosts)
    for a, b in zip(jax.tree.leaves((again, lines)), jax.tree.leaves(transposed(box)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "kind, ndim, width",
    [
        ("one-sided", 2, 2),
        *[
            pytest.param(kind, ndim, width, marks=pytest.mark.slow)
            for kind in STENCILS
            for ndim, width in [(1, 1), (1, 3), (2, 1), (3, 1)]
        ],
    ],
)
def test_stencils_of_boxes_are_those_of_padded_blocks(kind, ndim, width):
    """Values, derivatives and members, beside walls and periodic sides, of fields with and without components."""
    grid, layout = Grid(SHAPES[ndim]), layout_of(ndim)
    stencil, count, leading = STENCILS[kind]
    fields, weights, viscosity = fields_of(grid, count, leading), jnp.asarray([0.7, -1.3]), jnp.asarray(0.02)

    def results(apply):
        def value(viscosity, fields):
            bound = functools.partial(stencil, ndim, width, viscosity, weights)
            return jax.tree.leaves(apply(Domain(grid), bound, fields, layout, width))

        def loss(*point):
            return sum(jnp.sum(x**2) for x in value(*point))

        members = jax.vmap(value, in_axes=(0, None))(jnp.stack([viscosity, 2 * viscosity]), fields)
        ahead = jax.jvp(value, (viscosity, fields), (viscosity, fields))[1]
        return value(viscosity, fields), jax.grad(loss, argnums=(0, 1))(viscosity, fields), members, ahead

    found = jax.jit(lambda: results(lambda domain, *rest: domain.apply(*rest)))()
    expected = jax.jit(lambda: results(mechanical))()
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(b).max() > 0
        np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDING * np.abs(b).max())


def test_neighbours_send_only_what_is_read():
    """One message along each axis, of two lines of one field and one of the other, and the same result as at once."""
    grid, layout = Grid((16, 16)), layout_of(2)
    mesh = make_mesh({"x": 2, "y": 4})
    cut, fields = decompose(grid, mesh), fields_of(grid, 2)
    bound = functools.partial(one_sided, 2, 2, jnp.asarray(0.02), jnp.asarray([0.7, -1.3]))
    program = distribute(
        lambda *fields: cut.apply(bound, fields, layout, 2), mesh, in_specs=(cut.spec(),) * 2, out_specs=cut.spec()
    )
    sent = list(_sent(jax.make_jaxpr(program)(*fields).jaxpr))
    # Two lines of four cells along x; one along y, of eight cells and the ghost cells along x.
    assert sent == [(2 * 4,), (8 + 4,)]
    whole = Domain(grid).apply(bound, fields, layout, 2)
    np.testing.assert_allclose(program(*fields), whole, rtol=0, atol=ROUNDING)


def _sent(jaxpr):
    """Shapes of messages between devices, in their order."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "ppermute":
            yield equation.invars[0].aval.shape
        for inner in jaxprs_in_params(equation.params):
            yield from _sent(inner)
