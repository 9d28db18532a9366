"""Stencils evaluated on padded blocks, with an adjoint that is a stencil too."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from simjax.core.linear import linear_map
from simjax.core.stencil_adjoint import NotAStencil, pull_back, surrounded

Leaves = list[Array]


def evaluate(stencil: Callable, padded, ndim: int, width: int, result: Callable | None = None):
    """`stencil(padded)`, which reverse mode transposes to a gather from neighbours (`stencil_adjoint`).

    Args:
        stencil: from blocks with `width` ghost cells along their last `ndim` axes, of any size, to arrays on the
            interior. It may close over traced values; derivatives with respect to them are sums over the cells.
        padded: tree of blocks.
        result: another way to the same values, in place of `stencil(padded)`.
    """
    blocks, tree = jax.tree.flatten(padded)

    def flat(*blocks):
        return stencil(jax.tree.unflatten(tree, blocks))

    seen: Leaves = []
    value, shapes = _explicit(flat, seen, blocks)
    if not all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves((blocks, shapes))):
        return stencil(padded) if result is None else result()
    # Traced now, as what it closes over may be gone when derivatives are taken.
    larger = jax.eval_shape(lambda *blocks: [surrounded(p, 2 * width, ndim, repeat=True) for p in blocks], *blocks)
    value_around = _explicit(flat, seen, larger)[0]
    values = value if result is None else _explicit(lambda *_: result(), seen, blocks)[0]

    @jax.custom_jvp
    def evaluated(seen: Leaves, blocks: Leaves) -> Leaves:
        return values(seen, blocks)

    @evaluated.defjvp
    def push_forward(primals, tangents):
        seen, blocks = primals
        flows = [jnp.issubdtype(x.dtype, jnp.inexact) for x in seen]

        def of(flowing: Leaves, blocks: Leaves, function=value) -> Leaves:
            rest = iter(flowing)
            return function([next(rest) if flow else x for x, flow in zip(seen, flows, strict=True)], blocks)

        flowing, slopes = ([x for x, flow in zip(xs, flows, strict=True) if flow] for xs in (seen, tangents[0]))

        def forward(directions):
            return jax.jvp(of, (flowing, blocks), directions)[1]

        def transpose(cotangents):
            pulled = jax.vjp(lambda flowing: of(flowing, blocks), flowing)[1](cotangents)[0]
            try:
                gathered = pull_back(
                    lambda *around: of(flowing, list(around), value_around), blocks, cotangents, ndim, width
                )
            except NotAStencil:
                gathered = jax.vjp(lambda blocks: of(flowing, blocks), blocks)[1](cotangents)[0]
            return pulled, gathered

        return evaluated(seen, blocks), linear_map(forward, transpose, (slopes, tangents[1]))

    return jax.tree.unflatten(jax.tree.structure(shapes), evaluated(seen, blocks))


def _explicit(function: Callable, seen: Leaves, examples: Leaves):
    """`function` as `run(seen, arguments)` -> leaves, and the shapes of its results.

    Traced values that it closes over are added to the list `seen`.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*examples)
    places: list[int | None] = []
    for value in closed.consts:
        if not isinstance(value, jax.core.Tracer):
            places.append(None)
            continue
        known = next((k for k, other in enumerate(seen) if other is value), len(seen))
        if known == len(seen):
            seen.append(value)
        places.append(known)

    def run(seen: Leaves, arguments: Leaves) -> Leaves:
        consts = [c if k is None else seen[k] for c, k in zip(closed.consts, places, strict=True)]
        return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*arguments)

    return run, shapes
