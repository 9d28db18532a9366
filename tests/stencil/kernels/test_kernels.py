"""Stencils as kernels: what is lowered, what is refused, and derivatives of any order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import smooth_field

from simjax.core.boundary import Periodic, center_layout
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.stencil.kernels.intrinsics import SUBSTITUTES
from simjax.stencil.kernels.launch import launch
from simjax.stencil.kernels.operands import NotLowered
from simjax.stencil.kernels.tracing import trace

GRID = Grid((10, 12))
LAYOUT = center_layout([(Periodic(), Periodic())] * 2)


def fluxes(p):
    """A nonlinear tendency of which every flux is used on both of its sides."""
    flux_x = jnp.sin(p[1:, 1:-1]) * p[:-1, 1:-1]
    flux_y = p[1:-1, 1:] ** 2 - p[1:-1, :-1]
    return flux_x[1:] - flux_x[:-1] + flux_y[:, 1:] - flux_y[:, :-1]


def applied(stencil, implementation):
    domain = Domain(GRID, implementation=implementation)
    return lambda u: domain.apply(stencil, u, LAYOUT, width=1)


def test_one_kernel_computes_and_one_gathers(monkeypatch):
    launched = []

    def counted(*arguments, **options):
        launched.append(options["target"])
        return launch(*arguments, **options)

    monkeypatch.setattr("simjax.stencil.kernels.launch.launch", counted)

    def compiled(function, *arguments):
        launched.clear()
        jax.jit(function).lower(*arguments).compile()
        return launched

    u = smooth_field(GRID, (0.5, 0.5), 0)
    function = applied(fluxes, "pallas")
    assert compiled(function, u) == ["interpret"]
    assert compiled(jax.grad(lambda u: jnp.sum(function(u) ** 2)), u) == ["interpret"] * 2
    # Left to XLA, where there is no accelerator.
    assert compiled(applied(fluxes, "auto"), u) == compiled(applied(fluxes, "xla"), u) == []


def test_slices_become_displacements_and_nothing_is_computed_twice():
    block = jnp.zeros((12, 14))
    traced = trace(jax.make_jaxpr(lambda p: [fluxes(p)])(block), (10, 12))
    reads, sines = [], []

    def read(operand, component, offset):
        reads.append(offset)
        return jnp.zeros((10, 12))

    def counted(x, **_):
        sines.append(x)
        return jnp.sin(x)

    program = traced.program("interpret")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SUBSTITUTES["interpret"], "sin", counted)
        program.evaluate(read)
    # Five cells of a cross, each read once, and one sine for each of two faces.
    assert sorted(reads) == [(0, 1), (1, 0), (1, 1), (1, 2), (2, 1)]
    assert len(sines) == 2


@pytest.mark.parametrize(
    ("stencil", "named"),
    [
        (lambda p: jnp.cumsum(p, axis=0)[1:-1, 1:-1], "cumsum"),
        (lambda p: jnp.flip(p, 0)[1:-1, 1:-1], "rev"),
        (lambda p: p[1:-1, 1:-1] - jnp.sum(p), "sum over cells"),
        (lambda p: jnp.concatenate([p[1:6, 1:-1], p[6:-1, 1:-1]]), "leaves out cells"),
    ],
    ids=["scan", "reflection", "sum", "pieces"],
)
@pytest.mark.slow
def test_what_mixes_cells_otherwise_is_named_or_left_to_jax(stencil, named):
    u = smooth_field(GRID, (0.5, 0.5), 1)
    with pytest.raises(NotLowered, match=named):
        applied(stencil, "pallas")(u)
    np.testing.assert_array_equal(applied(stencil, "auto")(u), applied(stencil, "xla")(u))


def test_complex_numbers_are_refused_in_a_sentence():
    u = jax.lax.complex(*(smooth_field(GRID, (0.5, 0.5), seed) for seed in range(2)))
    with pytest.raises(NotLowered, match="complex128"):
        applied(lambda p: p[2:, 1:-1] - p[:-2, 1:-1], "pallas")(u)


@pytest.mark.slow
def test_forward_mode_and_second_derivatives():
    """Of kernels these are jax's own."""
    u, v, w = (smooth_field(GRID, (0.5, 0.5), seed) for seed in range(3))

    def derivatives(implementation):
        function = applied(fluxes, implementation)

        def loss(u):
            return jnp.sum(w * function(u) ** 2)

        forward = jax.jvp(loss, (u,), (v,))[1]
        product = jax.jvp(jax.grad(loss), (u,), (v,))[1]
        reverse_twice = jax.grad(lambda u: jnp.vdot(jax.grad(loss)(u), v))(u)
        return forward, product, reverse_twice

    found, expected = jax.jit(derivatives, static_argnums=0)("pallas"), jax.jit(derivatives, static_argnums=0)("xla")
    for a, b in zip(found, expected, strict=True):
        # Sums of some hundred terms of the size of the result.
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * float(jnp.abs(b).max()))
    np.testing.assert_allclose(found[1], found[2], rtol=0, atol=1e-13 * float(jnp.abs(found[1]).max()))
