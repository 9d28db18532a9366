"""Functions of the cells around a face: their derivatives face by face, by XLA for a GPU and as kernels."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK

from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.jaxpr.platform import tracing_for
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import GasScheme
from simjax.ops.reconstruction import pad_only
from simjax.stencil.kernels import launch
from simjax.stencil.kernels.primitive import lowered
from simjax.stencil.windows import Windows, of_windows, transposed_by

WIDTH, SHAPE = 2, (6, 5)
INTERPRETED = functools.partial(lowered, interprets=True)
WAYS = {"cpu": ("cpu", None), "gpu": ("gpu", None), "kernels": ("cpu", INTERPRETED)}


def on_faces(blocks, given, axis):
    """A nonlinear function of four cells around each face, of one number, and of an array on the faces."""

    def of_cell(blocks, given):
        u, v = blocks
        return u * v + given[0] * u, jnp.sin(v)

    def products(_, around, given):
        (a, _), (b, p), (c, q), (d, _) = around
        return b * p / (1 + a * a), given[0] * jnp.maximum(c * q, d)

    def of_face(found, around, given):
        left, right = found
        return left + given[1] * right * around[0][1]

    windows = Windows(lambda u: pad_only(u, axis, len(SHAPE), WIDTH), axis, 2 * WIDTH)
    return of_windows(of_cell, [products, of_face], windows, blocks, given, len(SHAPE))


def arguments(axis):
    numbers = np.random.default_rng(3)
    block = [n + 2 * WIDTH for n in SHAPE]
    faces = [n + (k == axis) for k, n in enumerate(SHAPE)]
    blocks = tuple(jnp.asarray(numbers.normal(size=block)) for _ in range(2))
    return blocks, (jnp.asarray(0.7), jnp.asarray(numbers.normal(size=faces)))


def loss(blocks, given, axis=0):
    return jnp.sum(jnp.cos(on_faces(blocks, given, axis)))


def by(way, function, *arguments):
    platform, fused = WAYS[way]
    with tracing_for(platform), transposed_by(fused):
        return jax.jit(lambda *arguments: function(*arguments), compiler_options=QUICK)(*arguments)


def assert_equal(a, b, rounding):
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=rounding)


@pytest.fixture
def kernels(monkeypatch):
    """The kernels of programs that are lowered: a list that grows."""
    found, launched = [], launch.launch

    def noted(*arguments, **options):
        found.append(arguments)
        return launched(*arguments, **options)

    monkeypatch.setattr(launch, "launch", noted)
    return found


@pytest.mark.parametrize("axis", [pytest.param(0, marks=pytest.mark.slow), 1])
@pytest.mark.parametrize("way", ["gpu", "kernels"])
def test_derivatives_are_those_of_the_function(way, axis):
    """Of first order by both modes, of second order, and over members."""
    given = arguments(axis)
    of_axis = functools.partial(loss, axis=axis)
    gradient = jax.grad(of_axis, argnums=(0, 1))

    def along(*given):
        return jax.jvp(of_axis, given, given)[1], jax.jvp(gradient, given, given)[1]

    members = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), given)
    for function, values in ((gradient, given), (along, given), (jax.vmap(gradient), members)):
        # Some hundred roundings of numbers up to ten.
        assert_equal(by("cpu", function, *values), by(way, function, *values), 1e-12)


def test_the_transpose_is_one_kernel(kernels):
    with transposed_by(INTERPRETED):
        jax.jit(jax.grad(loss)).lower(*arguments(0))
    assert len(kernels) == 1
    jax.jit(jax.grad(lambda *given: loss(*given))).lower(*arguments(0))
    assert len(kernels) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme", [GasScheme("mc", "primitive", "hllc"), GasScheme("weno5", "characteristic", "hllc_all_speed")]
)
def test_the_gradient_of_a_gas_by_kernels_is_that_by_xla(scheme, kernels):
    """By the state and by the ratio of heats; one kernel for the tendency and one for each axis of its derivative."""
    shape = (8, 6)
    x, y = np.meshgrid(*(2 * np.pi * (np.arange(n) + 0.5) / n for n in shape), indexing="ij")
    fields = {
        "density": (jnp.asarray(1 + 0.3 * np.sin(x + y)),),
        "velocity": (jnp.asarray(0.5 * np.sin(y)), jnp.asarray(0.4 * np.cos(x))),
        "pressure": (jnp.asarray(1 + 0.2 * np.cos(x - 2 * y)),),
    }
    params, found = Params(jnp.asarray(1.4)), {}
    for implementation in ("xla", "pallas"):
        domain = Domain(Grid(shape), implementation=implementation)
        model = Compressible(domain, [(PeriodicSide(),) * 2] * 2, scheme)

        def of_gas(state, params, model=model):
            return sum(jnp.sum(jnp.sin(u)) for u in jax.tree.leaves(model.rhs(jnp.zeros(()), state, params)))

        gradient, given = jax.grad(of_gas, argnums=(0, 1)), (model.state_from(fields, params), params)
        found[implementation] = jax.jit(gradient, compiler_options=QUICK)(*given)
        assert len(kernels) == {"xla": 0, "pallas": 3}[implementation]
    # Rounding of sums of numbers up to fifty; weights of smoothness answer to it a hundredfold.
    assert_equal(found["xla"], found["pallas"], 2e-12)
