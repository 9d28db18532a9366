"""Kernels as operations of a program, compiled for the platform that it is compiled for."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
from jax import Array
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from simjax.kernels.launch import launch
from simjax.kernels.tracing import trace

TARGETS = {"cpu": "interpret", "tpu": "tpu", "cuda": "gpu"}


@dataclass(frozen=True, eq=False)
class Kernel:
    """`run(target, *arrays)` -> results, and what it computes as jax would."""

    run: Callable
    closed: ClosedJaxpr


def lowered(function: Callable, ndim: int) -> Callable:
    """`function` as one kernel.

    Args:
        function: from arrays whose last `ndim` axes are the spatial ones, with ghost cells around them, or which have
            none of these, to a tree of arrays on the interior. It may close over traced values.

    Raises:
        NotLowered: when called, where the function holds an operation that mixes cells in another way.
    """

    def run(*arrays: Array):
        found, shapes = jax.make_jaxpr(function, return_shape=True)(*arrays)
        jaxpr = found.jaxpr.replace(constvars=[], invars=[*found.jaxpr.constvars, *found.jaxpr.invars])
        closed = ClosedJaxpr(jaxpr, [])
        interior = closed.out_avals[0].shape[-ndim:]
        traced = trace(closed, interior)

        def launched(target: str, *arrays: Array) -> list[Array]:
            return traced.results(launch(traced.program, traced.operands(arrays, ndim), interior, target=target), ndim)

        results = kernel_p.bind(*found.consts, *arrays, kernel=Kernel(launched, closed))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return run


def _push_forward(primals: Sequence, tangents: Sequence, *, kernel: Kernel):
    """The derivative is jax's own; the value is the kernel's."""
    tangents = tuple(ad.instantiate_zeros(tangent) for tangent in tangents)
    _, slopes = jax.jvp(jaxpr_as_fun(kernel.closed), tuple(primals), tangents)
    return kernel_p.bind(*primals, kernel=kernel), slopes


def _over_members(operands: Sequence, dims: Sequence, *, kernel: Kernel):
    def run(target: str, *arrays: Array) -> list[Array]:
        return jax.vmap(functools.partial(kernel.run, target), in_axes=dims)(*arrays)

    closed = jax.make_jaxpr(jax.vmap(jaxpr_as_fun(kernel.closed), in_axes=dims))(*operands)
    out = kernel_p.bind(*operands, kernel=Kernel(run, closed))
    return out, [0] * len(out)


def _lower_for(target: str) -> Callable:
    return mlir.lower_fun(lambda *operands, kernel: kernel.run(target, *operands), multiple_results=True)


kernel_p = Primitive("kernel")
kernel_p.multiple_results = True
kernel_p.def_impl(lambda *operands, kernel: jax.jit(functools.partial(kernel_p.bind, kernel=kernel))(*operands))
kernel_p.def_abstract_eval(lambda *_, kernel: kernel.closed.out_avals)
ad.primitive_jvps[kernel_p] = _push_forward
batching.primitive_batchers[kernel_p] = _over_members
for platform, target in TARGETS.items():
    mlir.register_lowering(kernel_p, _lower_for(target), platform=platform)
