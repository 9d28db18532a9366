"""Stencils evaluated on blocks and their ghost lines, with an adjoint that is a stencil too."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from simjax.core.ghosts import Sides, assembled, assembled_within, disassembled, padded
from simjax.core.linear import linear_map
from simjax.core.stencil_adjoint import NotAStencil, gathering, summed_from_memory, surrounded_by_zeros
from simjax.core.stitch import select_interior_and_rim, stitch_interior_and_rim, worth_selecting
from simjax.kernels.call import lowered
from simjax.kernels.operands import Unpadded

Leaves = list[Array]


def evaluate(
    stencil: Callable, fields: Leaves, ghosts: list[list[Sides]], width: int, overlap: bool, implementation: str
):
    """`stencil(*padded)`, where `padded` are the fields with their ghost lines around them.

    Reverse mode transposes it to a gather from neighbours (`stencil_adjoint`), and keeps the fields and the ghost
    lines for that, but nothing computed from them. Forward mode and higher derivatives are those of `stencil`.

    A stencil that stores values on its way (`core.staging`) is left to jax. Computed again, they would be rounded in
    another way, and weights of smoothness turn a rounding of nearly uniform values into a thousandth of a derivative:
    fluxes would no longer cancel between cells (4e-7 of the derivative of Sod's totals).

    Args:
        stencil: from blocks of any size with `width` ghost cells on every side to arrays on the interior. It may close
            over traced values; their derivatives are sums over the cells.
        fields: blocks; ghosts: of each, along each axis, as `ghosts.assembled` takes them.
        overlap: compute the interior from the fields alone (`stitch`).
        implementation: "xla"; "pallas" for kernels, of which one computes the interior and one gathers in reverse
            mode, and which are interpreted on a CPU; "auto" for kernels on accelerators, where they can be.

    Raises:
        NotLowered: it cannot become a kernel, as "pallas" demands.
    """
    seen: Leaves = []
    ndim = len(ghosts[0])
    fused = None if implementation == "xla" else functools.partial(lowered, interprets=implementation == "pallas")
    value, shapes, operations = _explicit(stencil, seen, assembled(fields, ghosts, width))
    results, stores = jax.tree.structure(shapes), "dynamic_update_slice" in operations
    selects = not (overlap or fused or stores) and worth_selecting(fields[0].shape[-ndim:], width, len(operations))
    if overlap or selects:
        in_parts = _in_parts(stencil, seen, fields, ghosts, width, overlap, fused)

    def computed(seen: Leaves, fields: Leaves, ghosts: list[list[Sides]], together: Callable) -> Leaves:
        if overlap:
            return in_parts(seen, (fields, ghosts))
        if selects:
            return lax.platform_dependent(
                seen, fields, ghosts,
                cpu=lambda seen, *parts: in_parts(seen, parts),
                default=lambda seen, *parts: value(seen, together(*parts, width)),
            )  # fmt: skip
        if not fused:
            return value(seen, together(fields, ghosts, width))
        kernel = fused(lambda *blocks: value(seen, blocks), ndim)
        return kernel(*(Unpadded(*parts) for parts in zip(fields, ghosts, strict=True)))

    if stores or not all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves((fields, shapes))):
        return results.unflatten(computed(seen, fields, ghosts, padded))
    # Traced now: what it closes over may be gone when derivatives are taken.
    around = jax.eval_shape(functools.partial(assembled_within, width=width, margin=2 * width), fields, ghosts)
    value_around = _explicit(stencil, seen, around)[0]

    @jax.custom_jvp
    def evaluated(seen: Leaves, fields: Leaves, ghosts: list[list[Sides]]) -> Leaves:
        return computed(seen, fields, ghosts, assembled)

    evaluated.defjvp(
        lambda primals, tangents: (evaluated(*primals), _slopes(value, value_around, fused, width, primals, tangents))
    )
    return results.unflatten(evaluated(seen, fields, ghosts))


def _in_parts(stencil: Callable, seen: Leaves, fields: Leaves, ghosts, width: int, overlap: bool, fused) -> Callable:
    """`stencil` as `run(seen, (fields, ghosts))`, in two parts (`stitch`) instead of on padded blocks."""

    def leaves_of(*blocks: Array) -> Leaves:
        return jax.tree.leaves(stencil(*blocks))

    def of_parts(fields: Leaves, ghosts: list[list[Sides]]) -> Leaves:
        if not overlap:
            return select_interior_and_rim(leaves_of, fields, ghosts, width)
        inner = (fused(leaves_of, len(ghosts[0])) if fused else leaves_of)(*fields)
        return stitch_interior_and_rim(leaves_of, inner, fields, ghosts, width)

    return _explicit(of_parts, seen, (fields, ghosts))[0]


def _slopes(value: Callable, value_around: Callable, fused: Callable | None, width: int, primals, tangents) -> Leaves:
    """Derivative of `value` in the direction `tangents`, as a linear map that gathers when it is transposed."""
    seen, fields, ghosts = primals
    ndim = len(ghosts[0])
    flows = [jnp.issubdtype(x.dtype, jnp.inexact) for x in seen]
    flowing, slopes = ([x for x, flow in zip(xs, flows, strict=True) if flow] for xs in (seen, tangents[0]))

    def of(function: Callable, flowing: Leaves, blocks: Leaves) -> Leaves:
        rest = iter(flowing)
        return function([next(rest) if flow else x for x, flow in zip(seen, flows, strict=True)], blocks)

    def forward(directions):
        slopes, inner, lines = directions
        point = flowing, assembled(fields, ghosts, width)
        return jax.jvp(functools.partial(of, value), point, (slopes, assembled(inner, lines, width)))[1]

    def transpose(cotangents):
        blocks = assembled(fields, ghosts, width)
        pull = jax.vjp(lambda flowing: of(value, flowing, blocks), flowing)[1]
        pulled = summed_from_memory(lambda cotangents: pull(cotangents)[0], cotangents)
        try:
            around = assembled_within(fields, ghosts, width, 2 * width)
            gather = gathering(lambda *around: of(value_around, flowing, [*around]), around, cotangents, ndim, width)
            known = [surrounded_by_zeros(c, 2 * width, ndim) for c in cotangents]
            gathered = (fused(gather, ndim) if fused else gather)(*around, *known)
        except NotAStencil:
            gathered = jax.vjp(lambda blocks: of(value, flowing, blocks), blocks)[1](cotangents)[0]
        return pulled, *disassembled(gathered, ndim, width)

    return linear_map(forward, transpose, (slopes, *tangents[1:]))


def _explicit(function: Callable, seen: Leaves, examples):
    """`function` as `run(seen, arguments)` -> leaves, the shapes of its results, and the names of its operations.

    Traced values that it closes over are added to the list `seen`.
    """
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

    def run(seen: Leaves, arguments) -> Leaves:
        consts = [c if k is None else seen[k] for c, k in zip(closed.consts, places, strict=True)]
        return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*jax.tree.leaves(arguments))

    return run, shapes, [equation.primitive.name for equation in closed.jaxpr.eqns]
