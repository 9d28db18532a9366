"""Programs for a GPU beside those for a CPU: what they put into memory, and that their values are the same."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK

from simjax.core.boundary import NoSlipWall, PeriodicSide
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.jaxpr.linear_map import fixed_linear_map
from simjax.jaxpr.platform import platform, tracing_for
from simjax.models.flow.incompressible import Incompressible
from simjax.models.flow.incompressible import Params as FlowParams
from simjax.models.flow.incompressible import State as FlowState
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import GasScheme
from simjax.stencil.adjoint import summed_together
from simjax.stencil.evaluate import trace_stencil
from simjax.stencil.formulation import stores_values
from simjax.stencil.materialise import (
    for_each_leaf,
    formed_once,
    held_in_reverse,
    in_one_kernel,
    shared_in_reverse,
    stored,
)
from simjax.stencil.padding import padded

SCHEMES = {"weno": GasScheme("weno5", "characteristic", "hllc_all_speed"), "mc": GasScheme("mc", "primitive", "hllc")}
IDEAL = Params(jnp.asarray(1.4))


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


def written(name, function, *arguments):
    """How often a program for a platform holds values, and how often it writes one into another."""
    with tracing_for(name):
        text = jax.jit(lambda *arguments: function(*arguments)).lower(*arguments).as_text()
    return text.count("stablehlo.optimization_barrier"), text.count("stablehlo.dynamic_update_slice")


def test_a_platform_is_that_of_the_backend_unless_it_is_told():
    assert platform() == jax.default_backend() == "cpu"
    for backend in ("gpu", "cuda", "rocm"):
        with tracing_for(backend):
            assert platform() == "gpu" and not stores_values()
    assert platform() == "cpu" and stores_values()


def test_a_platform_is_that_of_the_mesh_or_of_the_device(monkeypatch):
    seen = []

    def noted(x):
        seen.append(platform())
        return x

    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("x",))
    cut = jax.sharding.PartitionSpec("x")
    absent = jax.sharding.AbstractDevice("NVIDIA H100 80GB HBM3", 132, "gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=absent)):
        noted(None)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # as on a machine with one
    noted(None)
    jax.jit(jax.shard_map(noted, mesh=mesh, in_specs=cut, out_specs=cut))(jnp.ones(2))
    with jax.default_device(jax.devices("cpu")[0]):
        noted(None)
    assert seen == ["gpu", "gpu", "cpu", "cpu"]


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


@pytest.mark.parametrize("scheme", [pytest.param("weno", marks=pytest.mark.slow), "mc"])
def test_a_gas_puts_its_blocks_alone_into_memory_on_a_gpu(scheme):
    rhs, state = gas(scheme)
    assert written("gpu", rhs, state) == (1, 0)
    barriers, updates = written("cpu", rhs, state)
    assert barriers > 5 and updates > 50
    assert written("tpu", rhs, state) == (barriers, updates)


@pytest.mark.slow
def test_the_gradient_of_a_gas_holds_what_lies_between_its_parts():
    rhs, state = gas("mc")
    barriers, updates = written("gpu", jax.grad(loss(rhs)), state)
    assert barriers > 5 and updates == 0


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.slow
def test_a_gas_is_the_same_on_a_gpu(scheme):
    rhs, state = gas(scheme)
    for function in (rhs, jax.grad(loss(rhs))):
        cpu, gpu = (jax.tree.leaves(on(name, function, state)) for name in ("cpu", "gpu"))
        for a, b in zip(cpu, gpu, strict=True):
            # Rounding of sums of numbers up to the largest; weights of smoothness answer to it a hundredfold.
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * float(jnp.max(jnp.abs(a))))


WAYS = {
    "stored": stored,
    "formed_once": formed_once,
    "held_in_reverse": held_in_reverse,
    "for_each_leaf": lambda pair: for_each_leaf(jnp.multiply, [pair, pair[::-1], pair])(2, 1),
}


@pytest.mark.parametrize("way", WAYS)
def test_derivatives_are_those_of_the_values(way):
    def function(x):
        pair = jnp.sin(x), x * x
        a, b = WAYS[way](pair)
        return jnp.sum(a * jnp.roll(b, 1) + b)

    x = jnp.linspace(0.3, 1.7, 7)
    cpu, gpu = (on(name, lambda x: (function(x), jax.grad(function)(x)), x) for name in ("cpu", "gpu"))
    for a, b in zip(cpu, gpu, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15)  # the rounding of one sum
    pushed = on("gpu", lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1], x)
    np.testing.assert_allclose(pushed, gpu[1].sum(), rtol=1e-14)  # a sum of seven


def test_within_a_kernel_of_a_gpu_cotangents_are_held_where_many_share_them_alone():
    """As where a function of windows is transposed in parts; elsewhere it is the other way round."""

    def held_by(way, within):
        def function(x):
            a, b = way((jnp.sin(x), x * x))
            return jnp.sum(a * b)

        with in_one_kernel() if within else nullcontext():
            return written("gpu", jax.grad(function), jnp.ones(3))[0]

    assert [held_by(way, within=True) for way in WAYS.values()] == [0] * len(WAYS)
    assert all(held_by(way, within=False) for way in WAYS.values())
    assert held_by(shared_in_reverse, within=True) and not held_by(shared_in_reverse, within=False)


@pytest.mark.parametrize("name", ["cpu", "gpu", "tpu"])
def test_a_stencil_that_stores_is_known_by_it(name):
    field = [jnp.ones((4, 5))]

    def stencil(u, keep):
        a, b = keep((u[1:-1, 1:-1], u[2:, 1:-1]))
        return a - b

    with tracing_for(name):
        assert trace_stencil(lambda u: stencil(u, stored), field, 1, 2).stores
        assert not trace_stencil(lambda u: stencil(u, held_in_reverse), field, 1, 2).stores


SIDES = {"periodic": (PeriodicSide(),) * 2, "wall": (NoSlipWall(), NoSlipWall((0.5, 0.0)))}


@pytest.mark.parametrize(
    ("sides", "scheme"),
    [
        ("periodic", "central2"),
        pytest.param("wall", "upwind3", marks=pytest.mark.slow),
        pytest.param("wall", "central2", marks=pytest.mark.slow),
        pytest.param("periodic", "upwind5", marks=pytest.mark.slow),
    ],
)
def test_a_flow_has_the_same_gradient_by_gathers_and_as_it_stands(sides, scheme):
    """Of a stage, by the velocity, with its corners, the viscosity and the drag; on a GPU less is written in place."""
    model = Incompressible(Domain(Grid((8, 9))), [SIDES["periodic"], SIDES[sides]], advection=scheme)
    params = FlowParams(jnp.asarray(0.3), jnp.asarray(0.2))
    velocity = tuple(jnp.asarray(np.random.default_rng(k).normal(size=(8, 9))) for k in range(2))

    def stage(velocity, params):
        tendency = model.rhs(jnp.zeros(()), FlowState(velocity), params)
        return model.constrain(jnp.zeros(()), jnp.ones(()), tendency, params)

    def slopes(velocity, params):
        return jax.grad(lambda *arguments: loss(lambda state: stage(*state))(arguments), (0, 1))(velocity, params)

    one, other = on("gpu", slopes, velocity, params), on("cpu", slopes, velocity, params)
    # Other sums of some ten numbers, each rounded to 1.1e-16 of the largest.
    largest = max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(other))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-14 * largest)
    assert written("gpu", slopes, velocity, params)[1] < written("cpu", slopes, velocity, params)[1]


def test_sums_that_are_added_up_are_one():
    def function(u, v, w):
        return jnp.sum(u) + jnp.sum(v) + jnp.sum(w), jnp.sum(u) * 2, jnp.sum(u, axis=0)

    u, v, w = jnp.arange(6.0).reshape(2, 3), jnp.ones((2, 3)), jnp.ones(4)
    found = jax.make_jaxpr(lambda *arguments: summed_together(function, *arguments))(u, v, w)
    # Of u and v in one, of w, of u alone, and along an axis.
    assert str(found).count("reduce_sum") == 4
    for a, b in zip(summed_together(function, u, v, w), function(u, v, w), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5)])
def test_blocks_formed_together_are_those_of_which_each_is_formed_alone(shape):
    """Fields that count their cells, of two kinds, with ghost cells of which some are left out; and cotangents."""
    ndim, width = len(shape), 2
    count = jnp.arange(float(np.prod(shape))).reshape(shape)
    fields = [count, 10 + count, jnp.stack([count, -count])]
    edges = [(1, 2)] + [(2, 2)] * (ndim - 1)
    reaches = [((2, 2),) * ndim, tuple(edges), ((2, 2),) * ndim]

    def around(u):
        sides = []
        for axis in range(ndim):
            where = axis - ndim
            n = u.shape[where]
            lower = jax.lax.slice_in_dim(u, n - width, n, axis=where)
            upper = jax.lax.slice_in_dim(u, 0, width, axis=where)
            sides.append((lower, upper))
            u = jnp.concatenate([lower, u, upper], axis=where)
        return sides

    def blocks(fields, **kind):
        return padded(fields, [around(u) for u in fields], width, reaches, **kind)

    def weighed(fields, **kind):
        found = blocks(fields, **kind)
        return sum(jnp.sum(u * jnp.arange(u.size, dtype=u.dtype).reshape(u.shape)) for u in found)

    for function in (blocks, jax.grad(weighed)):
        alone = on("gpu", function, fields)
        together = on("gpu", lambda fields, f=function: f(fields, for_many=True), fields)
        for a, b in zip(alone, together, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(on("gpu", blocks, fields)[0], np.pad(count, width, mode="wrap"))
