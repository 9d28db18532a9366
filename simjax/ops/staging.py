"""Results that are put into memory once, where a compiler would form them again in every expression that reads them."""

import jax
import jax.numpy as jnp
from jax import lax


def stored(tree):
    """`tree` of arrays of one shape and dtype, each computed once: written into one array and read from there.

    XLA on a CPU fuses what is cheap into every reader: the five fluxes of a gas would each compute the face values
    anew, and those the slopes. It drops `optimization_barrier` before it does so, but does not fuse through writing
    into place (5 to 10 times faster, `benchmarks/gas.py`).
    """
    leaves, structure = jax.tree.flatten(tree)
    first = leaves[0]
    zero = jnp.zeros((), first.dtype)
    block = lax.pad(first[None], zero, [(0, len(leaves) - 1, 0)] + [(0, 0, 0)] * first.ndim)
    for k, leaf in enumerate(leaves[1:], start=1):
        block = lax.dynamic_update_slice(block, leaf[None], [k] + [0] * first.ndim)
    return jax.tree.unflatten(structure, [block[k] for k in range(len(leaves))])
