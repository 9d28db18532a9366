"""Programs for a GPU beside those for a CPU: what they put into memory, and that their values are the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK

from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.jaxpr.linear_map import fixed_linear_map
from simjax.jaxpr.platform import platform, tracing_for
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import Scheme
from simjax.stencil.evaluate import trace_stencil
from simjax.stencil.formulation import FORMULATIONS, formulation
from simjax.stencil.materialise import for_each_leaf, formed_once, held_in_reverse, stored

SCHEMES = {"weno": Scheme("weno5", "characteristic", "hllc"), "mc": Scheme("mc", "primitive", "hllc")}
IDEAL = Params(jnp.asarray(1.4))
WRITES = ("optimization_barrier", "dynamic_update_slice")


def gas(scheme, shape=(12, 10)):
    """A gas with waves along both axes, its tendency and a state."""
    model = Compressible(Domain(Grid(shape)), [(PeriodicSide(),) * 2] * 2, SCHEMES[scheme])
    x, y = np.meshgrid(*(2 * np.pi * (np.arange(n) + 0.5) / n for n in shape), indexing="ij")
    fields = {
        "density": (jnp.asarray(1 + 0.3 * np.sin(x + y)),),
        "velocity": (jnp.asarray(0.5 * np.sin(y)), jnp.asarray(0.4 * np.cos(x))),
        "pressure": (jnp.asarray(1 + 0.2 * np.cos(x - 2 * y)),),
    }
    return lambda state: model.rhs(jnp.zeros(()), state, IDEAL), model.state_from(fields, IDEAL)


def loss(rhs):
    return lambda state: sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(rhs(state)))


def on(name, function, *arguments):
    """`function` of the arguments, by the program for a platform, compiled for this one."""
    with tracing_for(name):
        return jax.jit(lambda *arguments: function(*arguments), compiler_options=QUICK)(*arguments)


def counted(name, function, *arguments):
    """How often a program for a platform puts a value into memory."""
    with tracing_for(name):
        text = str(jax.make_jaxpr(lambda *arguments: function(*arguments))(*arguments))
    return sum(text.count(word) for word in WRITES)


def test_a_platform_is_that_of_the_backend_unless_it_is_told():
    assert platform() == jax.default_backend() == "cpu"
    for backend in ("gpu", "cuda", "rocm"):
        with tracing_for(backend):
            assert platform() == "gpu" and formulation() is FORMULATIONS["gpu"]
    assert platform() == "cpu" and formulation() is FORMULATIONS["cpu"]


def test_a_platform_is_that_of_the_mesh_and_of_the_default_device():
    seen = []

    def noted(x):
        seen.append(platform())
        return x

    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("x",))
    cut = jax.sharding.PartitionSpec("x")
    jax.jit(jax.shard_map(noted, mesh=mesh, in_specs=cut, out_specs=cut))(jnp.ones(2))
    device = jax.sharding.AbstractDevice("NVIDIA H100 80GB HBM3", 132, "gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device)):
        noted(None)
    with jax.default_device("cuda"):
        noted(None)
    assert seen == ["cpu", "gpu", "gpu"]


def test_what_was_traced_for_one_platform_does_not_serve_another():
    class Named:
        def forward(self, x, /):
            return x * {"cpu": 2.0, "gpu": 3.0}[platform()]

        transpose = forward

    named, both = Named(), []
    function = jax.jit(lambda x: fixed_linear_map(named, x))
    for name in ("cpu", "gpu", "cpu"):
        with tracing_for(name):
            both.append(float(function(jnp.ones(()))))
    assert both == [2.0, 3.0, 2.0]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_gas_puts_nothing_into_memory_on_a_gpu(scheme):
    rhs, state = gas(scheme)
    assert counted("gpu", rhs, state) == 0
    assert counted("cpu", rhs, state) == counted("tpu", rhs, state) > 50
    # Where it is differentiated, what lies between its parts is held, and so are cotangents.
    assert counted("gpu", jax.grad(loss(rhs)), state) > 20


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.slow
def test_a_gas_is_the_same_on_a_gpu(scheme):
    rhs, state = gas(scheme)
    for function in (rhs, jax.grad(loss(rhs))):
        cpu, gpu = (jax.tree.leaves(on(name, function, state)) for name in ("cpu", "gpu"))
        for a, b in zip(cpu, gpu, strict=True):
            # Rounding of sums of numbers up to the largest; weights of smoothness answer to it a hundredfold.
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * float(jnp.max(jnp.abs(a))))


def squares(pair):
    """What keeps values in one way or another, of sines and squares."""
    a, b = pair
    return {
        "stored": stored,
        "formed_once": formed_once,
        "held_in_reverse": held_in_reverse,
        "for_each_leaf": lambda pair: for_each_leaf(lambda x, y: x * y, [pair, (b, a)])(0, 1),
    }


@pytest.mark.parametrize("way", ["stored", "formed_once", "held_in_reverse", "for_each_leaf"])
def test_derivatives_are_those_of_the_values(way):
    def function(x):
        pair = jnp.sin(x), x * x
        a, b = squares(pair)[way](pair)
        return jnp.sum(a * jnp.roll(b, 1) + b)

    x = jnp.linspace(0.3, 1.7, 7)
    cpu, gpu = (on(name, lambda x: (function(x), jax.grad(function)(x)), x) for name in ("cpu", "gpu"))
    for a, b in zip(cpu, gpu, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15)  # the rounding of one sum
    pushed = on("gpu", lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1], x)
    np.testing.assert_allclose(pushed, gpu[1].sum(), rtol=1e-14)  # a sum of seven


@pytest.mark.parametrize("name", FORMULATIONS)
def test_a_stencil_that_stores_is_known_by_it(name):
    field = [jnp.ones((4, 5))]

    def stencil(u, keep):
        a, b = keep((u[1:-1, 1:-1], u[2:, 1:-1]))
        return a - b

    with tracing_for(name):
        assert trace_stencil(lambda u: stencil(u, stored), field, 1, 2).stores
        assert not trace_stencil(lambda u: stencil(u, held_in_reverse), field, 1, 2).stores


@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5)])
def test_blocks_are_the_same_on_a_gpu(shape):
    """Ghost cells around a field that counts its cells, and the cotangents of a sum with weights."""
    domain = Domain(Grid(shape))
    layout = Compressible(domain, [(PeriodicSide(),) * 2] * len(shape), SCHEMES["mc"]).layout.density
    field = jnp.arange(float(np.prod(shape))).reshape(shape)

    def block(u):
        return domain.pad(u, layout, 2)

    def weighed(u):
        values = block(u)
        return jnp.sum(values * jnp.arange(values.size, dtype=u.dtype).reshape(values.shape))

    for function in (block, jax.grad(weighed)):
        np.testing.assert_array_equal(on("cpu", function, field), on("gpu", function, field))
    np.testing.assert_array_equal(on("gpu", block, field), np.pad(field, 2, mode="wrap"))
