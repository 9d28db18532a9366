"""Stencils evaluated on blocks and their ghost lines, with an adjoint that is a stencil too."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun, jaxprs_in_params

from simjax.jaxpr.linear_map import linear_map
from simjax.stencil.adjoint import (
    NotAStencil,
    gathering,
    summed_from_memory,
    summed_together,
    surrounded_by_zeros,
)
from simjax.stencil.adjoint_parts import blocks_read, gathered_in_parts
from simjax.stencil.boxes import of_boxes, reaches_of
from simjax.stencil.formulation import gathers_in_reverse, kernels_may_win
from simjax.stencil.interior_and_rim import stitch_interior_and_rim
from simjax.stencil.kernels.operands import Unpadded
from simjax.stencil.kernels.primitive import lowered
from simjax.stencil.materialise import is_stored
from simjax.stencil.padding import (
    Reach,
    Sides,
    assembled,
    assembled_within,
    disassembled,
    joined,
    padded,
    reach_of,
)
from simjax.stencil.windows import Fused, transposed_by

Leaves = list[Array]


@dataclass(frozen=True)
class Stencil:
    """A stencil that has been traced (`trace_stencil`).

    Attributes:
        function: as it was written. value: the same of padded blocks, traced.
        seen: traced values that it closes over.
        reaches: of each field, how far it reads into the ghost cells.
        width: ghost cells of the blocks on every side of `ndim` axes.
        fused: `fused(function, ndim)` is a function as a kernel; None where XLA computes it.
    """

    function: Callable
    value: "_Explicit"
    seen: Leaves
    reaches: tuple[Reach, ...]
    width: int
    ndim: int
    fused: Fused | None

    @property
    def stores(self) -> bool:
        """Tell whether it stores values on its way (`stencil.materialise`)."""
        return any(map(is_stored, _equations(self.value.closed.jaxpr)))

    def boxes(self, fields: Leaves, ghosts: list[list[Sides]]) -> Leaves:
        """Blocks with the ghost cells that are read."""
        return assembled(fields, ghosts, self.width, self.reaches)

    def of_boxes(self, seen: Leaves, boxes: Leaves) -> Leaves:
        """Results, from `boxes`."""
        return of_boxes(self.value.of(seen), self.reaches, [self.width] * len(boxes))(*boxes)


def trace_stencil(function: Callable, fields: Leaves, width: int, ndim: int, implementation: str = "xla") -> Stencil:
    """The stencil `function(*padded)` of these fields, whose last `ndim` axes are the spatial ones.

    Args:
        function: from blocks of any size with `width` ghost cells on every side to arrays on the interior. It may close
            over traced values; their derivatives are sums over the cells.
        implementation: "xla"; "pallas" for kernels, of which one computes the interior and one gathers in reverse mode,
            and which are interpreted on a CPU; "auto" for kernels on accelerators, where they are faster.
    """
    seen: Leaves = []
    around = [(width, width)] * ndim

    def padded(u: Array) -> Array:
        return jnp.pad(u, [(0, 0)] * (u.ndim - ndim) + around)

    fused = _kernels(implementation)
    with transposed_by(fused):
        value = _explicit(function, seen, jax.eval_shape(lambda *fields: [padded(u) for u in fields], *fields))
    reaches = reaches_of(value.closed, [width] * len(fields), ndim)
    return Stencil(function, value, seen, reaches, width, ndim, fused)


def _kernels(implementation: str) -> Fused | None:
    """A function that makes kernels of others; None where XLA computes them."""
    if implementation == "xla" or (implementation == "auto" and not kernels_may_win()):
        return None
    return functools.partial(lowered, interprets=implementation == "pallas")


def evaluate(stencil: Stencil, fields: Leaves, ghosts: list[list[Sides]], overlap: bool):
    """The stencil of the fields with their ghost lines around them.

    Reverse mode transposes it to a gather from neighbours (`stencil.adjoint`), or as it stands where that is faster
    (`stencil.formulation`), and keeps the fields and the ghost lines for that, but nothing computed from them. Forward
    mode and higher derivatives are those of `stencil`.

    A stencil that stores values on its way (`stencil.materialise`) is left to jax. Computed again, they would be
    rounded in another way, and weights of smoothness turn a rounding of nearly uniform values into a thousandth of a
    derivative: fluxes would no longer cancel between cells (4e-7 of the derivative of Sod's totals).

    Args:
        fields: blocks; ghosts: of each, along each axis, as `padding.assembled` takes them; no more need be right than
            what is read.
        overlap: compute the interior from the fields alone (`stencil.interior_and_rim`).

    Raises:
        NotLowered: it cannot become a kernel, as "pallas" demands.
    """
    computed = _computing(stencil, (fields, ghosts), overlap)
    results, seen = stencil.value.results, stencil.seen
    flows = all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in (*fields, *stencil.value.closed.out_avals))
    if stencil.stores or not flows:
        together = functools.partial(padded, for_many=stencil.stores)
        return results.unflatten(computed(seen, fields, ghosts, together))
    # Traced now: what it closes over may be gone when derivatives are taken.
    gathers = stencil.fused is not None or gathers_in_reverse()
    pull_back = _pulling_back(stencil, (fields, ghosts)) if gathers else None

    @jax.custom_jvp
    def evaluated(seen: Leaves, fields: Leaves, ghosts: list[list[Sides]]) -> Leaves:
        return computed(seen, fields, ghosts, assembled)

    evaluated.defjvp(lambda primals, tangents: (evaluated(*primals), _slopes(stencil, pull_back, primals, tangents)))
    return results.unflatten(evaluated(seen, fields, ghosts))


def _computing(stencil: Stencil, parts, overlap: bool) -> Callable:
    """Return a function that computes a stencil: `run(seen, fields, ghosts, together)`, where `together` joins the
    parts of blocks."""

    fused = stencil.fused

    def leaves_of(*blocks: Array) -> Leaves:
        return jax.tree.leaves(stencil.function(*blocks))

    def stitched(fields: Leaves, ghosts: list[list[Sides]]) -> Leaves:
        with transposed_by(fused):
            inner = (fused(leaves_of, stencil.ndim) if fused else leaves_of)(*fields)
        return stitch_interior_and_rim(leaves_of, inner, fields, ghosts, stencil.width)

    if overlap:
        in_parts = _explicit(stitched, stencil.seen, parts)
        return lambda seen, fields, ghosts, together: in_parts(seen, (fields, ghosts))
    if fused:

        def by_kernel(seen: Leaves, fields: Leaves, ghosts: list[list[Sides]], together: Callable) -> Leaves:
            kernel = fused(lambda *blocks: stencil.value(seen, blocks), stencil.ndim, for_many=stencil.stores)
            return kernel(*(Unpadded(*both) for both in zip(fields, ghosts, strict=True)))

        return by_kernel

    def on_boxes(seen: Leaves, fields: Leaves, ghosts: list[list[Sides]], together: Callable) -> Leaves:
        return stencil.of_boxes(seen, together(fields, ghosts, stencil.width, stencil.reaches))

    return on_boxes


def _pulling_back(stencil: Stencil, parts) -> Callable:
    """`pull_back(of, fields, ghosts, cotangents)`: cotangents of the fields and of the ghost lines, by gathering.

    `of(value, blocks)` is the stencil, as `value` of these blocks.
    """
    (fields, ghosts), width, ndim, fused = parts, stencil.width, stencil.ndim, stencil.fused
    # A kernel reads fields as they are; on a CPU, where the gather is jax's, one loop is better than one and strips.
    apart = fused is not None and all(n >= 2 * width for n in fields[0].shape[-ndim:])
    if apart:
        around = jax.eval_shape(functools.partial(blocks_read, width=width), fields, ghosts)
    else:
        around = [jax.eval_shape(functools.partial(assembled_within, width=width, margin=2 * width), fields, ghosts)]
    values = [_explicit(stencil.function, stencil.seen, blocks) for blocks in around]

    def pull_back(of: Callable, fields: Leaves, ghosts: list[list[Sides]], cotangents: Leaves):
        stencils = [lambda *blocks, value=value: of(value, [*blocks]) for value in values]
        if apart and fused:
            return gathered_in_parts(stencils, fields, ghosts, cotangents, width, fused)
        gather = gathering(stencils[0], len(fields), ndim, width, stencil.reaches)
        whole = [reach_of(2 * width, ndim)] * len(cotangents)

        def blocks_of(reaches: Sequence[Reach] | None, zeros: Sequence[Reach]) -> Leaves:
            known = [surrounded_by_zeros(c, reach) for c, reach in zip(cotangents, zeros, strict=True)]
            return [*assembled_within(fields, ghosts, width, 2 * width, reaches), *known]

        if fused:
            found = fused(gather, ndim)(*blocks_of(None, whole))
        else:
            traced = jax.make_jaxpr(gather)(*jax.eval_shape(lambda: blocks_of(None, whole)))
            widths = [3 * width] * len(fields) + [2 * width] * len(cotangents)
            reaches = reaches_of(traced, widths, ndim)
            boxes = blocks_of(reaches[: len(fields)], reaches[len(fields) :])
            found = of_boxes(traced, reaches, widths)(*boxes)
        return disassembled(found, ndim, width, stencil.reaches)

    return pull_back


def _slopes(stencil: Stencil, pull_back: Callable | None, primals, tangents) -> Leaves:
    """Derivative in the direction `tangents`, as a linear map that gathers when it is transposed.

    pull_back: the gather; None: it is transposed as it stands.
    """
    seen, fields, ghosts = primals
    flows = [jnp.issubdtype(x.dtype, jnp.inexact) for x in seen]
    flowing, slopes = ([x for x, flow in zip(xs, flows, strict=True) if flow] for xs in (seen, tangents[0]))

    def of(function: Callable, flowing: Leaves, blocks: Leaves) -> Leaves:
        rest = iter(flowing)
        return function([next(rest) if flow else x for x, flow in zip(seen, flows, strict=True)], blocks)

    def forward(directions):
        slopes, inner, lines = directions
        point = flowing, stencil.boxes(fields, ghosts)
        return jax.jvp(functools.partial(of, stencil.of_boxes), point, (slopes, stencil.boxes(inner, lines)))[1]

    def transpose(cotangents):
        together, summed = (joined, summed_together) if pull_back is None else (assembled, summed_from_memory)
        boxes = together(fields, ghosts, stencil.width, stencil.reaches)
        pull = jax.vjp(lambda flowing: of(stencil.of_boxes, flowing, boxes), flowing)[1]
        pulled = summed(lambda cotangents: pull(cotangents)[0], cotangents)
        if pull_back is not None:
            with contextlib.suppress(NotAStencil):
                read = pull_back(lambda value, blocks: of(value, flowing, blocks), fields, ghosts, cotangents)
                return pulled, *read
        read = jax.vjp(lambda boxes: of(stencil.of_boxes, flowing, boxes), boxes)[1](cotangents)[0]
        return pulled, *disassembled(read, stencil.ndim, stencil.width, stencil.reaches)

    return linear_map(forward, transpose, (slopes, *tangents[1:]))


@dataclass(frozen=True)
class _Explicit:
    """A traced function of leaves: `function(seen, arguments)` -> leaves.

    Attributes:
        places: of each constant, which of `seen` it is; None where it is not traced.
        results: structure of what the function gave.
    """

    closed: ClosedJaxpr
    places: tuple[int | None, ...]
    results: Any

    def of(self, seen: Leaves) -> ClosedJaxpr:
        """The program with its traced constants put in."""
        consts = [c if k is None else seen[k] for c, k in zip(self.closed.consts, self.places, strict=True)]
        return ClosedJaxpr(self.closed.jaxpr, consts)

    def __call__(self, seen: Leaves, arguments) -> Leaves:
        return jaxpr_as_fun(self.of(seen))(*jax.tree.leaves(arguments))


def _explicit(function: Callable, seen: Leaves, examples) -> _Explicit:
    """The function traced; traced values that it closes over are added to the list `seen`."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*examples)
    places: list[int | None] = []
    for value in closed.consts:
        if not isinstance(value, Tracer):
            places.append(None)
            continue
        known = next((k for k, other in enumerate(seen) if other is value), len(seen))
        if known == len(seen):
            seen.append(value)
        places.append(known)
    return _Explicit(closed, tuple(places), jax.tree.structure(shapes))


def _equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """Equations of a jaxpr and of the jaxprs nested in it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from _equations(inner)
