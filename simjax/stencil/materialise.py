"""Results that are put into memory once, where a compiler would form them again in every expression that reads them."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from simjax.jaxpr.linear_map import fixed_linear_map

BARRIERS_HOLD = jax.__version_info__ >= (0, 12)
"""Whether XLA on a CPU keeps `optimization_barrier` until it has fused; jax 0.10 drops it before."""


@jax.custom_jvp
def stored(tree):
    """`tree` of arrays of one shape and dtype, each computed once: written into one array and read from there.

    XLA on a CPU fuses what is cheap into every reader: the five fluxes of a gas would each compute the face values
    anew, and those the slopes. It does not fuse through writing into place where several read what is written (5 to
    10 times faster, `benchmarks/gas.py`). Their derivatives and cotangents are stored too.
    """
    leaves, structure = jax.tree.flatten(tree)
    block = _written(leaves)
    return jax.tree.unflatten(structure, [block[k] for k in range(len(leaves))])


@jax.custom_jvp
def stacked(leaves):
    """Arrays of one shape and dtype as one array, along a new first axis; it and its cotangent are `held`."""
    return held(_written(leaves))


@jax.custom_jvp
def held_in_reverse(tree):
    """`tree` as it is, whose cotangents are `held` in reverse mode.

    For values that many expressions read, or that are cut out of one array at several places: XLA would form their
    cotangents again in whatever reads these, and the compiler's time follows the number of operations.
    """
    return tree


class _Stored:
    """Writing into memory, which is its own transpose."""

    def forward(self, tree, /):
        return stored(tree)

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


_STORED, _STACKED, _HELD_IN_REVERSE = _Stored(), _Stacked(), _HeldInReverse()
stored.defjvp(lambda primals, tangents: (stored(*primals), fixed_linear_map(_STORED, *tangents)))
stacked.defjvp(lambda primals, tangents: (stacked(*primals), fixed_linear_map(_STACKED, *tangents)))
held_in_reverse.defjvp(
    lambda primals, tangents: (held_in_reverse(*primals), fixed_linear_map(_HELD_IN_REVERSE, *tangents))
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
    """`tree`, formed before what reads it is: no loop takes in both."""
    if BARRIERS_HOLD:
        return lax.optimization_barrier(tree)
    with set_xla_metadata(inlineable="false"):
        return _barrier(tree)


@functools.partial(jax.jit, inline=False)
def _barrier(tree):
    return lax.optimization_barrier(tree)
