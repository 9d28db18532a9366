"""Results that are put into memory once, where a compiler would form them again in every expression that reads them.

Whether they are is up to the platform (`stencil.formulation`), but for what is `held`.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import JaxprEqn

from simjax.jaxpr.linear_map import fixed_linear_map, with_transpose
from simjax.stencil.formulation import stores_values

STORED = "stored"
"""Name on values that are stored only where they are differentiated."""

_in_one_kernel: ContextVar[bool] = ContextVar("_in_one_kernel", default=False)

BARRIERS_HOLD = jax.__version_info__ >= (0, 12)
"""Whether XLA on a CPU keeps `optimization_barrier` until it has fused; jax 0.10 drops it before."""


@contextmanager
def in_one_kernel() -> Iterator[None]:
    """Trace what a GPU may compute in one kernel: nothing in it is held where it is differentiated.

    For the parts of a transpose between which values are held (`stencil.windows`).
    """
    token = _in_one_kernel.set(True)
    try:
        yield
    finally:
        _in_one_kernel.reset(token)


def stored(tree):
    """`tree` of arrays of one shape and dtype, each computed once: written into one array and read from there.

    XLA on a CPU fuses what is cheap into every reader: the five fluxes of a gas would each compute the face values
    anew, and those the slopes. It does not fuse through writing into place where several read what is written (5 to
    10 times faster, `benchmarks/gas.py`). Their derivatives and cotangents are stored too.
    """
    return _stored(tree) if stores_values() else _held_if_differentiated(tree)


def formed_once(tree):
    """`tree`, `held` between the two loops that form and read it; its derivatives and cotangents are held too."""
    return held(tree) if stores_values() else _held_if_differentiated(tree)


def held_if_stored(tree):
    """`tree`, of which every array is `held` by itself where values are stored, so that XLA on a CPU compiles once what
    many loops would form again, and arrays that nothing reads go, with their derivatives."""
    return jax.tree.map(held, tree) if stores_values() else tree


def for_each_leaf(function: Callable[..., Array], trees: Sequence) -> Callable[..., Any]:
    """`apply(*order)`, a tree like each of the `trees`: `function` of the leaves of those that `order` numbers.

    Where values are stored, all leaves of a tree, of one shape and dtype, are entries of one array along a new first
    axis: `function` then stands in the program once.
    """
    structure = jax.tree.structure(trees[0])
    leaves = [jax.tree.leaves(tree) for tree in trees]
    if stores_values():
        blocks = [stacked(each) for each in leaves]
        return lambda *order: structure.unflatten(held(function(*(blocks[k] for k in order))))
    return lambda *order: _held_if_differentiated(
        structure.unflatten([function(*each) for each in zip(*(leaves[k] for k in order), strict=True)])
    )


@jax.custom_jvp
def _stored(tree):
    leaves, structure = jax.tree.flatten(tree)
    block = _written(leaves)
    return jax.tree.unflatten(structure, [block[k] for k in range(len(leaves))])


@jax.custom_jvp
def stacked(leaves):
    """Arrays of one shape and dtype as one array, along a new first axis; it and its cotangent are `held`."""
    return held(_written(leaves))


def _held_if_differentiated(tree):
    """`tree` as it is; where it is differentiated, it is `held`, and so are its derivatives and cotangents."""
    return tree if _in_one_kernel.get() else _held_by_derivatives(tree)


@jax.custom_jvp
def _held_by_derivatives(tree):
    return jax.tree.map(lambda leaf: checkpoint_name(leaf, STORED), tree)


def is_stored(equation: JaxprEqn) -> bool:
    """Tell whether an operation stores a value, always or where it is differentiated."""
    name = equation.primitive.name
    return name == "dynamic_update_slice" or (name == "name" and equation.params["name"] == STORED)


def held_in_reverse(tree):
    """`tree` as it is, whose cotangents are `held` in reverse mode.

    For values that many expressions read, or that are cut out of one array at several places: XLA would form their
    cotangents again in whatever reads these, and the compiler's time follows the number of operations.
    """
    return tree if _in_one_kernel.get() else _held_in_reverse(tree)


def transposed_anew(function: Callable, *arguments):
    """`function(*arguments)`, whose transpose a GPU forms from the arguments, so that nothing within it is stored."""
    if stores_values():
        return function(*arguments)

    def transpose(primals, cotangents):
        # A factor of one that no compiler knows: it would else take what the function has formed, and store that.
        one = held(jnp.ones((), jnp.result_type(*jax.tree.leaves(primals))))
        return jax.vjp(function, *jax.tree.map(lambda x: x * one, primals))[1](cotangents)

    return with_transpose(transpose, function, *arguments)


def shared_in_reverse(tree):
    """`tree` as it is, whose cotangents a GPU holds where it transposes in parts (`in_one_kernel`).

    For values whose cotangents are sums of many terms, from which those of many others are formed.
    """
    return _held_in_reverse(tree) if _in_one_kernel.get() else tree


@jax.custom_jvp
def _held_in_reverse(tree):
    return tree


class _Stored:
    """Writing into memory, which is its own transpose."""

    def forward(self, tree, /):
        return _stored(tree)

    transpose = forward


class _Stacked:
    """Stacking, whose transpose reads from one array in memory."""

    def forward(self, leaves, /):
        return held(_written(leaves))

    def transpose(self, block, /):
        block = held(block)
        return [block[k] for k in range(block.shape[0])]


class _HeldInReverse:
    """The identity, whose transpose holds."""

    def forward(self, tree, /):
        return tree

    def transpose(self, tree, /):
        return held(tree)


class _Held(_HeldInReverse):
    """The identity, which holds in both directions."""

    forward = _HeldInReverse.transpose


_STORED, _STACKED, _HELD, _HELD_IN_REVERSE = _Stored(), _Stacked(), _Held(), _HeldInReverse()
_stored.defjvp(lambda primals, tangents: (_stored(*primals), fixed_linear_map(_STORED, *tangents)))
stacked.defjvp(lambda primals, tangents: (stacked(*primals), fixed_linear_map(_STACKED, *tangents)))
_held_by_derivatives.defjvp(lambda primals, tangents: (held(*primals), fixed_linear_map(_HELD, *tangents)))
_held_in_reverse.defjvp(
    lambda primals, tangents: (_held_in_reverse(*primals), fixed_linear_map(_HELD_IN_REVERSE, *tangents))
)


def _written(leaves):
    """Arrays of one shape along the first axis of one array, each written into its place."""
    first = leaves[0]
    zero = jnp.zeros((), first.dtype)
    block = lax.pad(first[None], zero, [(0, len(leaves) - 1, 0)] + [(0, 0, 0)] * first.ndim)
    for k, leaf in enumerate(leaves[1:], start=1):
        block = lax.dynamic_update_slice(block, leaf[None], [k] + [0] * first.ndim)
    return block


def held(tree):
    """Compute `tree` before the operations that read it, so that no loop fuses both."""
    if BARRIERS_HOLD:
        return lax.optimization_barrier(tree)
    with set_xla_metadata(inlineable="false"):
        return _barrier(tree)


@functools.partial(jax.jit, inline=False)
def _barrier(tree):
    return lax.optimization_barrier(tree)
