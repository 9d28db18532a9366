"""Kernels as operations of a program, compiled for the platform that it is compiled for."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
from jax import Array
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from simjax.core.ghosts import padded
from simjax.core.varying import unchecked
from simjax.kernels.launch import launch
from simjax.kernels.operands import NotLowered, Unpadded
from simjax.kernels.tracing import trace

TARGETS = {"cpu": "interpret", "tpu": "tpu", "cuda": "gpu"}


@dataclass(frozen=True, eq=False)
class Kernel:
    """`run(target, *arrays)` -> results, and what it computes as jax would.

    `interprets`: whether it is a kernel on a CPU too, and never left to jax.
    """

    run: Callable
    closed: ClosedJaxpr
    interprets: bool


def lowered(function: Callable, ndim: int, *, interprets: bool) -> Callable:
    """`function` as one kernel.

    Args:
        function: from arrays whose last `ndim` axes are the spatial ones, with ghost cells around them, or which have
            none of these, to a tree of arrays on the interior. It may close over traced values.
        interprets: whether it is a kernel on a CPU too, interpreted, and an error where it cannot be one. Otherwise
            it is one on accelerators, where it can.

    The kernel takes blocks, or their parts (`Unpadded`). It raises:
        NotLowered: where the function holds an operation that mixes cells in another way.
    """

    def run(*arguments: Array | Unpadded):
        flat, structure = jax.tree.flatten(arguments)
        blocks = jax.eval_shape(lambda *flat: _blocks(structure.unflatten(flat)), *flat)
        found, shapes = jax.make_jaxpr(function, return_shape=True)(*blocks)
        opened = found.jaxpr.replace(constvars=[], invars=[*found.jaxpr.constvars, *found.jaxpr.invars])
        stencil, seen = ClosedJaxpr(opened, []), len(found.consts)
        interior = stencil.out_avals[0].shape[-ndim:]
        try:
            traced = trace(stencil, interior)
        except NotLowered:
            if interprets:
                raise
            return function(*_blocks(arguments))

        def launched(target: str, *flat: Array) -> list[Array]:
            arrays = traced.arrays([*flat[:seen], *structure.unflatten(flat[seen:])])
            return traced.arranged(launch(traced.program(target), arrays, interior, target=target))

        def of_blocks(*flat: Array) -> list[Array]:
            return jaxpr_as_fun(stencil)(*flat[:seen], *_blocks(structure.unflatten(flat[seen:])))

        results = bound(launched, of_blocks, [*found.consts, *flat], interprets)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return run


def bound(run: Callable, function: Callable, arrays: Sequence[Array], interprets: bool) -> list[Array]:
    """`function(*arrays)` -> arrays, computed as `run(target, *arrays)` where that is a kernel.

    `interprets`: see `lowered`.
    """
    return kernel_p.bind(*arrays, kernel=Kernel(run, jax.make_jaxpr(function)(*arrays), interprets))


def _blocks(arguments: Sequence[Array | Unpadded]) -> list[Array]:
    return [padded([x.field], [x.ghosts], _width(x))[0] if isinstance(x, Unpadded) else x for x in arguments]


def _width(x: Unpadded) -> int:
    return x.ghosts[0][0].shape[x.field.ndim - len(x.ghosts)]


def _push_forward(primals: Sequence, tangents: Sequence, *, kernel: Kernel):
    """The derivative is jax's own; the value is the kernel's."""
    tangents = tuple(ad.instantiate_zeros(tangent) for tangent in tangents)
    _, slopes = jax.jvp(jaxpr_as_fun(kernel.closed), tuple(primals), tangents)
    return kernel_p.bind(*primals, kernel=kernel), slopes


def _over_members(operands: Sequence, dims: Sequence, *, kernel: Kernel):
    def run(target: str, *arrays: Array) -> list[Array]:
        return jax.vmap(functools.partial(kernel.run, target), in_axes=dims)(*arrays)

    closed = jax.make_jaxpr(jax.vmap(jaxpr_as_fun(kernel.closed), in_axes=dims))(*operands)
    out = kernel_p.bind(*operands, kernel=Kernel(run, closed, kernel.interprets))
    return out, [0] * len(out)


def _lower_for(target: str) -> Callable:
    def value(*operands: Array, kernel: Kernel) -> list[Array]:
        try:
            if kernel.interprets or target != "interpret":
                with unchecked():
                    return kernel.run(target, *operands)
        except NotLowered:
            if kernel.interprets:
                raise
        return jaxpr_as_fun(kernel.closed)(*operands)

    return mlir.lower_fun(value, multiple_results=True)


kernel_p = Primitive("kernel")
kernel_p.multiple_results = True
kernel_p.def_impl(lambda *operands, kernel: jax.jit(functools.partial(kernel_p.bind, kernel=kernel))(*operands))
kernel_p.def_abstract_eval(lambda *_, kernel: kernel.closed.out_avals)
ad.primitive_jvps[kernel_p] = _push_forward
batching.primitive_batchers[kernel_p] = _over_members
for platform, target in TARGETS.items():
    mlir.register_lowering(kernel_p, _lower_for(target), platform=platform)
