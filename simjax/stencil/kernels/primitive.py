"""Kernels as operations of a program, compiled for the platform that it is compiled for."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jax
from jax import Array
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from simjax.jaxpr.varying import unchecked
from simjax.stencil.kernels.operands import NotLowered, Sums, Unpadded, arranged
from simjax.stencil.kernels.tiles import Sizes
from simjax.stencil.kernels.timing_cache import Device
from simjax.stencil.kernels.tracing import Traced, trace
from simjax.stencil.kernels.tuning import Work, on_one_device, tuner
from simjax.stencil.padding import padded

if TYPE_CHECKING:
    from simjax.stencil.kernels.launch import Candidates

TARGETS = {"cpu": "interpret", "tpu": "tpu", "cuda": "gpu"}


@dataclass(frozen=True, eq=False)
class Kernel:
    """`run(target, tile, *arrays)` -> results.

    Attributes:
        closed: what it computes, as jax would; alone: the same outside the mesh of devices that it was traced in.
        interprets: whether it is a kernel on a CPU too, and never left to jax.
        candidates: of a target.
        updates: see `tuning.Work`.
    """

    run: Callable
    closed: ClosedJaxpr
    alone: Callable
    interprets: bool
    candidates: "Callable[[str], Candidates]"
    updates: bool

    def choose(self, target: str, device: Device) -> Sizes | None:
        """The tile to compute with, or None for no kernel, from measurements on the device."""
        shapes = [shape_of(aval) for aval in self.closed.in_avals]
        work = Work(*self.candidates(target), shapes, functools.partial(self.run, target), self.alone, self.updates)
        return tuner().tile(work, device, by_xla=not self.interprets)


def lowered(
    function: Callable, ndim: int, *, interprets: bool, for_many: bool = False, sums: Sums | None = None
) -> Callable:
    """`function` as one kernel.

    Args:
        function: from arrays whose last `ndim` axes are the spatial ones, with ghost cells around them, or which have
            none of these, to a tree of arrays on the interior. It may close over traced values.
        interprets: whether it is a kernel on a CPU too, interpreted, and an error where it cannot be one. Otherwise
            it is one on accelerators, where it can and was measured to be faster.
        for_many: see `padding.padded`, of the blocks that jax computes with.
        sums: of the function's leaves; a list of them is then what the kernel gives.

    The kernel takes blocks, or their parts (`Unpadded`). It raises:
        NotLowered: where the function holds an operation that mixes cells in another way.
    """

    # Pallas takes a third of a second to import.
    from simjax.stencil.kernels.launch import candidates, launch

    def whole(*blocks: Array):
        results = function(*blocks)
        return sums.of(jax.tree.leaves(results), ndim) if sums else results

    def run(*arguments: Array | Unpadded):
        flat, structure = jax.tree.flatten(arguments)
        blocks = jax.eval_shape(lambda *flat: _blocks(structure.unflatten(flat), for_many), *flat)
        found, shapes = jax.make_jaxpr(function, return_shape=True)(*blocks)
        opened = found.jaxpr.replace(constvars=[], invars=[*found.jaxpr.constvars, *found.jaxpr.invars])
        stencil, seen = ClosedJaxpr(opened, []), len(found.consts)
        interior = stencil.out_avals[0].shape[-ndim:]
        try:
            traced = trace(stencil, interior)
        except NotLowered:
            if interprets:
                raise
            return whole(*_blocks(arguments, for_many))

        each, result_shapes = _of_components(sums, traced, stencil.out_avals)

        def operands(*flat: Array) -> list[Array | Unpadded]:
            return traced.arrays([*flat[:seen], *structure.unflatten(flat[seen:])])

        def launched(target: str, tile: Sizes | None, *flat: Array) -> list[Array]:
            program, arrays = traced.program(target), operands(*flat)
            found = launch(program, arrays, interior, target=target, tile=tile, sums=each)
            return arranged(found, result_shapes, ndim)

        def of_blocks(evaluated: Callable, *flat: Array) -> list[Array]:
            results = evaluated(stencil)(*flat[:seen], *_blocks(structure.unflatten(flat[seen:]), for_many))
            return sums.of(results, ndim) if sums else results

        flat = [*found.consts, *flat]
        given = [shape_of(x) for x in flat]

        def tiles(target: str) -> "Candidates":
            arrays = jax.eval_shape(operands, *given)
            return candidates(traced.program(target), arrays, interior, target, each)

        plain, alone = (functools.partial(of_blocks, evaluated) for evaluated in (jaxpr_as_fun, on_one_device))
        results = bound(launched, plain, flat, interprets, tiles, alone, updates=True)
        return results if sums else jax.tree.unflatten(jax.tree.structure(shapes), results)

    return run


def _of_components(sums: Sums | None, traced: Traced, leaves: Sequence) -> tuple[Sums | None, Sequence[Sizes]]:
    """Sums of the components of a function's leaves, and the shapes of what the function gives."""
    if sums is None:
        return None, traced.shapes
    counts = [math.prod(shape[: len(shape) - traced.ndim]) for shape in traced.shapes]
    found = jax.eval_shape(lambda *leaves: sums.of(leaves, traced.ndim), *leaves)
    return sums.by_component(counts), [x.shape for x in found]


def bound(
    run: Callable,
    function: Callable,
    arrays: Sequence[Array],
    interprets: bool,
    candidates: "Callable[[str], Candidates]",
    alone: Callable | None = None,
    *,
    updates: bool = False,
) -> list[Array]:
    """`function(*arrays)` -> arrays, computed as `run(target, tile, *arrays)` where that is a kernel.

    `interprets`: see `lowered`; `candidates`, `updates`, and `alone`, if it is not the function itself: see `Kernel`.
    """
    closed = jax.make_jaxpr(function)(*arrays)
    return kernel_p.bind(*arrays, kernel=Kernel(run, closed, alone or function, interprets, candidates, updates))


def shape_of(x) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an array, without how it lies on a mesh."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _blocks(arguments: Sequence[Array | Unpadded], for_many: bool) -> list[Array]:
    parts = {k: x for k, x in enumerate(arguments) if isinstance(x, Unpadded)}
    blocks = {k: x for k, x in enumerate(arguments) if not isinstance(x, Unpadded)}
    for width in {_width(x) for x in parts.values()}:
        some = {k: x for k, x in parts.items() if _width(x) == width}
        fields, ghosts = [x.field for x in some.values()], [x.ghosts for x in some.values()]
        blocks |= zip(some, padded(fields, ghosts, width, for_many=for_many), strict=True)
    return [blocks[k] for k in range(len(arguments))]


def _width(x: Unpadded) -> int:
    return x.ghosts[0][0].shape[x.field.ndim - len(x.ghosts)]


def _push_forward(primals: Sequence, tangents: Sequence, *, kernel: Kernel):
    """The derivative is jax's own; the value is the kernel's."""
    tangents = tuple(ad.instantiate_zeros(tangent) for tangent in tangents)
    _, slopes = jax.jvp(jaxpr_as_fun(kernel.closed), tuple(primals), tangents)
    return kernel_p.bind(*primals, kernel=kernel), slopes


def _over_members(operands: Sequence, dims: Sequence, *, kernel: Kernel):
    def run(target: str, tile: Sizes | None, *arrays: Array) -> list[Array]:
        return jax.vmap(functools.partial(kernel.run, target, tile), in_axes=dims)(*arrays)

    closed = jax.make_jaxpr(jax.vmap(jaxpr_as_fun(kernel.closed), in_axes=dims))(*operands)
    alone = jax.vmap(kernel.alone, in_axes=dims)
    out = kernel_p.bind(*operands, kernel=replace(kernel, run=run, closed=closed, alone=alone))
    return out, [0] * len(out)


def _lower_for(target: str) -> Callable:
    def lower(context: mlir.LoweringRuleContext, *values, kernel: Kernel):
        device = _attached(context, target)

        def value(*operands: Array) -> list[Array]:
            try:
                if kernel.interprets or target != "interpret":
                    with unchecked():
                        tile = kernel.choose(target, device) if device else None
                        # Of a device that is not there `auto` knows of no kernel that is faster.
                        if tile or (kernel.interprets and not device):
                            return kernel.run(target, tile, *operands)
            except NotLowered:
                if kernel.interprets:
                    raise
            return jaxpr_as_fun(kernel.closed)(*operands)

        return mlir.lower_fun(value, multiple_results=True)(context, *values)

    return lower


def _attached(context: mlir.LoweringRuleContext, target: str) -> Device | None:
    """A device of this process to measure on; none where the one compiled for is only described, or interprets."""
    backend = context.module_context.backend if target != "interpret" else None
    return next((device for device in jax.local_devices() if device.client is backend), None)


kernel_p = Primitive("kernel")
kernel_p.multiple_results = True
kernel_p.def_impl(lambda *operands, kernel: jax.jit(functools.partial(kernel_p.bind, kernel=kernel))(*operands))
kernel_p.def_abstract_eval(lambda *_, kernel: kernel.closed.out_avals)
ad.primitive_jvps[kernel_p] = _push_forward
batching.primitive_batchers[kernel_p] = _over_members
for platform, target in TARGETS.items():
    mlir.register_lowering(kernel_p, _lower_for(target), platform=platform)
