"""The adjoint of a stencil: that of the same function transposed by jax, whatever it reads and closes over."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import smooth_field
from cases import CASES, DECLARED
from jax import lax
from stencils_to_transpose import components, layout_of, mechanical, nonlinear

from simjax.core.boundary import Periodic, face_layout
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.jaxpr.linear_map import linear_map
from simjax.models.registry import MODELS
from simjax.ops.difference import shift_by
from simjax.ops.staggered import advection, laplacian
from simjax.stencil import adjoint_parts as parts
from simjax.stencil import evaluate as stencils
from simjax.stencil.adjoint import NotAStencil

# Sums of some tens of products of order one, in another order.
ROUNDING = 1e-13
GRIDS = {ndim: Grid((12, 7, 9)[:ndim], (0.0,) * ndim, (1.2, 0.7, 0.9)[:ndim]) for ndim in (1, 2, 3)}


def fields_of(grid, count, leading=()):
    def one(seed):
        parts = [smooth_field(grid, (0.5,) * grid.ndim, seed + 7 * k) for k in range(int(np.prod(leading)))]
        return jnp.stack(parts).reshape(*leading, *grid.shape)

    return tuple(one(seed) for seed in range(count))


def refusals(monkeypatch):
    """A list that gets, for each stencil, why it is transposed as it stands, or None where it is not."""
    reasons, real = [], stencils.gathering

    def gathering(*arguments):
        gather = real(*arguments)

        def noted(*arrays):
            try:
                result = gather(*arrays)
            except NotAStencil as reason:
                reasons.append(str(reason))
                raise
            reasons.append(None)
            return result

        return noted

    for module in (stencils, parts):
        monkeypatch.setattr(module, "gathering", gathering)
    return reasons


PROBLEMS = {
    "two fields": (nonlinear, 2, ()),
    "components": (components, 1, (2,)),
}


KINDS = {"": (False, "xla"), "-overlap": (True, "xla"), "-kernels": (False, "pallas")}
COMBINATIONS = list(itertools.product(PROBLEMS, [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1)], KINDS))
USUAL = [
    ("two fields", (1, 3), ""),
    ("two fields", (2, 1), "-overlap"),
    ("components", (1, 1), "-kernels"),
    ("components", (2, 1), ""),
    ("components", (3, 1), ""),
]


def marks_of(case):
    """The dearest to compile are what the others are, with more reads."""
    name, (ndim, width), kind = case
    dear = name == "two fields" and ndim * width > 2 and kind
    return () if case in USUAL else pytest.mark.long if dear else pytest.mark.slow


@pytest.mark.parametrize(
    "name, size, kind",
    [
        pytest.param(*case, id=f"{case[0]}-{case[1][0]}-{case[1][1]}{case[2]}", marks=marks_of(case))
        for case in COMBINATIONS
    ],
)
@pytest.mark.slow
def test_derivatives_are_those_of_the_stencil(name, size, kind):
    (ndim, width), (stencil, count, leading) = size, PROBLEMS[name]
    grid, layout = GRIDS[ndim], layout_of(ndim)
    overlap, implementation = KINDS[kind]
    domain, fields = Domain(grid, None, overlap, implementation), fields_of(grid, count, leading)
    weights, viscosity = jnp.asarray([0.7, -1.3]), jnp.asarray(0.02)
    wants = fields_of(grid, count, leading or ())

    def loss(apply, fields, viscosity, weights):
        found = apply(domain, functools.partial(stencil, ndim, width, viscosity, weights), fields, layout, width)
        found = found if isinstance(found, tuple) else (found,)
        return sum(jnp.sum((a - b) ** 2) for a, b in zip(found, wants, strict=True))

    def derivatives(apply):
        function = functools.partial(loss, apply)
        point = fields, viscosity, weights
        gradient = jax.grad(function, argnums=(0, 1, 2))
        forward = jax.jvp(function, point, point)[1]
        product = jax.jvp(gradient, point, point)[1]
        members = jax.vmap(gradient, in_axes=(None, 0, None))(fields, jnp.stack([viscosity, 2 * viscosity]), weights)
        return gradient(*point), forward, product, members

    found = jax.jit(lambda: derivatives(lambda domain, *rest: domain.apply(*rest)))()
    expected = jax.jit(lambda: derivatives(mechanical))()
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(b).max() > 0
        np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDING * np.abs(b).max())


def test_components_that_are_mixed_and_stacked_are_transposed_as_a_stencil(monkeypatch):
    refused = refusals(monkeypatch)
    domain, fields = Domain(GRIDS[2]), fields_of(GRIDS[2], 1, (2,))
    stencil = functools.partial(components, 2, 1, 0.02, jnp.asarray([0.7, -1.3]))
    jax.eval_shape(jax.grad(lambda fields: jnp.sum(domain.apply(stencil, fields, layout_of(2), 1))), fields)
    assert refused == [None]


@pytest.mark.slow
def test_differences_that_are_padded_again_are_transposed_as_a_stencil(monkeypatch):
    """A difference on faces brought back to the block's size: the transpose of that padding is a displaced slice."""
    refused = refusals(monkeypatch)
    domain, (u,) = Domain(GRIDS[2]), fields_of(GRIDS[2], 1)

    def stencil(padded):
        difference = lax.slice_in_dim(padded, 1, None) - 2 * lax.slice_in_dim(padded, 0, -1)
        behind = lax.pad(difference, 0.0, [(1, 0, 0), (0, 0, 0)])
        return (behind * behind)[1:-1, 1:-1]

    def slope(apply):
        return jax.grad(lambda u: jnp.sum(apply(stencil, u) ** 2))(u)

    found = slope(lambda stencil, u: domain.apply(stencil, u, layout_of(2), 1))
    assert refused == [None]
    expected = slope(lambda stencil, u: mechanical(domain, stencil, (u,), layout_of(2), 1))
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * np.abs(expected).max())


def test_reads_become_no_arrays_of_their_own():
    """Of the momentum equation: each component and each cotangent is put into a larger array, and that is all."""
    grid = Grid((256, 256), (0.0, 0.0), (1.0, 1.0))
    boundaries = [(Periodic(), Periodic())] * 2
    layouts, fields = (face_layout(0, boundaries), face_layout(1, boundaries)), fields_of(grid, 2)

    def blocks_set_aside(apply):
        def tendency(*velocity):
            return tuple(
                0.1 * laplacian(u, grid.spacing, i) - advection(velocity, i, grid.spacing)
                for i, u in enumerate(velocity)
            )

        def pulled(fields, cotangents):
            return jax.vjp(lambda *u: apply(Domain(grid), tendency, u, layouts, 1), *fields)[1](cotangents)

        memory = jax.jit(pulled).lower(fields, fields).compile().memory_analysis()
        return memory.temp_size_in_bytes / fields[0].nbytes

    # Four of 262 x 262 or 260 x 260 points, and lines. Transposed as it stands, it sets aside 17 (31 with the fusion
    # emitters that conftest.py turns off).
    assert blocks_set_aside(lambda domain, *rest: domain.apply(*rest)) < 4.5
    assert blocks_set_aside(mechanical) > 10


IN_A_FOURIER_BASIS = [case for name, case in DECLARED.items() if "etdrk4" in MODELS[name].integrators]


@pytest.mark.parametrize(
    "case",
    # The gas stores values on its way, and is left to jax; in a Fourier basis there are no stencils.
    [
        pytest.param(c, id=c.name, marks=pytest.mark.slow if "implicit" in c.name or c.grid.ndim == 3 else [])
        for c in CASES
        if not c.name.startswith(("gas", "spectral", "semilinear", "particles")) and c not in IN_A_FOURIER_BASIS
    ],
)
@pytest.mark.slow
def test_every_model_is_transposed_as_a_stencil(case, monkeypatch):
    refused = refusals(monkeypatch)
    shapes = jax.eval_shape(case.initial_state)
    jax.eval_shape(
        jax.grad(lambda state, params: case.runner(Domain(case.grid))(params, state)[0]), shapes, case.params()
    )
    assert refused and not any(refused)


@pytest.mark.slow
def test_what_cannot_be_cut_is_transposed_as_it_stands(monkeypatch):
    grid = GRIDS[2]
    (u,), layout = fields_of(grid, 1), layout_of(2)
    refused = refusals(monkeypatch)

    def turned(p):
        return jnp.flip(shift_by(p, (0, 0)), 0) * shift_by(p, (1, 0))

    found = jax.grad(lambda u: jnp.sum(Domain(grid).apply(turned, u, layout, 1) ** 2))(u)
    expected = jax.grad(lambda u: jnp.sum(turned(Domain(grid).pad(u, layout, 1)) ** 2))(u)
    assert refused == ["rev in its transpose"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * np.abs(expected).max())


@pytest.mark.slow
def test_a_linear_map_is_transposed_as_it_says():
    """Also where parts of its argument are constant, over members, and twice."""
    matrix = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4)))

    def apply(scale, x, transpose=lambda scale, y: scale * (matrix.T @ y)):
        forward = lambda pair: scale * (matrix @ pair[0]) + pair[1]  # noqa: E731
        return linear_map(forward, lambda y: (transpose(scale, y), y), (x, jnp.ones(3)))

    x, scale = jnp.arange(4.0), jnp.asarray(3.0)
    np.testing.assert_allclose(apply(scale, x), scale * (matrix @ x) + 1, rtol=1e-15)
    doubled = functools.partial(apply, transpose=lambda scale, y: 2 * scale * (matrix.T @ y))
    pull = jax.vjp(lambda x: doubled(scale, x), x)[1]
    np.testing.assert_allclose(pull(jnp.ones(3))[0], 2 * scale * (matrix.T @ jnp.ones(3)), rtol=1e-15)
    hessian = jax.hessian(lambda s: jnp.sum(apply(s, x) ** 2))(scale)
    np.testing.assert_allclose(hessian, 2 * jnp.sum((matrix @ x) ** 2), rtol=1e-14)
    members = jax.vmap(jax.grad(lambda s, x: jnp.sum(apply(s, x) ** 2), argnums=1), in_axes=(0, None))(
        jnp.asarray([1.0, 3.0]), x
    )
    np.testing.assert_allclose(members[1], 2 * scale * (matrix.T @ apply(scale, x)), rtol=1e-14)
