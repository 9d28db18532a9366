"""A loop's body on leaves, with what it closed over as an argument, and its transpose."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from simjax.jaxpr.varying import match_varying

Leaves = list[Array]


def closed(body: Callable, leaves: Leaves, tree):
    """`body` as `step(leaves, seen)` on leaves, the values `seen` that it closed over, and the tree of its outputs."""

    def flat(*leaves):
        carry, output = body(jax.tree.unflatten(tree, leaves))
        carry = match_varying(carry, jax.tree.unflatten(tree, leaves))
        return jax.tree.leaves(carry), output

    found, (_, shapes) = jax.make_jaxpr(flat, return_shape=True)(*leaves)

    def step(leaves, seen):
        out = jaxpr_as_fun(ClosedJaxpr(found.jaxpr, seen))(*leaves)
        return out[: len(leaves)], out[len(leaves) :]

    return step, list(found.consts), jax.tree.structure(shapes)


def pull_back(step: Callable, seen: Leaves, leaves: Leaves, carry: Leaves, outputs: Leaves) -> tuple[Leaves, Leaves]:
    """Cotangents of what flows in `leaves` and `seen`, from those of the new carry and the outputs of `step`."""
    flows, reaches = inexact(leaves), inexact(seen)

    def differentiable(flowing, reaching):
        new, found = step(_merged(leaves, flowing, flows), _merged(seen, reaching, reaches))
        return chosen(new, flows), chosen(found, inexact(found))

    _, pull = jax.vjp(differentiable, chosen(leaves, flows), chosen(seen, reaches))
    return pull((carry, outputs))


def inexact(values: Leaves) -> list[bool]:
    """Tell which of the values have derivatives."""
    return [jnp.issubdtype(u.dtype, jnp.inexact) for u in values]


def chosen(values: list, wanted: list[bool]) -> list:
    """Values that are `wanted`."""
    return [value for value, kept in zip(values, wanted, strict=True) if kept]


def zeros_of(values: Leaves) -> Leaves:
    """Zero cotangents of those of the values that have derivatives."""
    flowing = chosen(values, inexact(values))
    return match_varying([jnp.zeros_like(u) for u in flowing], flowing)


def sums(some: Leaves, more: Leaves) -> Leaves:
    """Sums of two lists of arrays, entry by entry."""
    return [a + b for a, b in zip(some, more, strict=True)]


def cotangents_of(values: Leaves, found: Leaves) -> list:
    """`found`, the cotangents of those of the values that have derivatives, with None for the others."""
    return _merged([None] * len(values), found, inexact(values))


def _merged(values: list, others: list, wanted: list[bool]) -> list:
    """`values` with those that are `wanted` replaced by `others` in turn."""
    rest = iter(others)
    return [next(rest) if kept else value for value, kept in zip(values, wanted, strict=True)]
