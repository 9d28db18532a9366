"""Results that are put into memory once, where a compiler would form them again in every expression that reads them."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

BARRIERS_HOLD = jax.__version_info__ >= (0, 12)
"""Whether XLA on a CPU keeps `optimization_barrier` until it has fused; jax 0.10 drops it before."""


def stored(tree):
    """`tree` of arrays of one shape and dtype, each computed once: written into one array and read from there.

    XLA on a CPU fuses what is cheap into every reader: the five fluxes of a gas would each compute the face values
    anew, and those the slopes. It does not fuse through writing into place where several read what is written (5 to
    10 times faster, `benchmarks/gas.py`).
    """
    leaves, structure = jax.tree.flatten(tree)
    first = leaves[0]
    zero = jnp.zeros((), first.dtype)
    block = lax.pad(first[None], zero, [(0, len(leaves) - 1, 0)] + [(0, 0, 0)] * first.ndim)
    for k, leaf in enumerate(leaves[1:], start=1):
        block = lax.dynamic_update_slice(block, leaf[None], [k] + [0] * first.ndim)
    return jax.tree.unflatten(structure, [block[k] for k in range(len(leaves))])


def held(tree):
    """`tree`, formed before what reads it is: no loop takes in both."""
    if BARRIERS_HOLD:
        return lax.optimization_barrier(tree)
    with set_xla_metadata(inlineable="false"):
        return _barrier(tree)


@functools.partial(jax.jit, inline=False)
def _barrier(tree):
    return lax.optimization_barrier(tree)
