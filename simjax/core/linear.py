"""Linear maps that carry their own transpose, for reverse mode."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from simjax.core.varying import match_varying


def linear_map(forward: Callable, transpose: Callable, x):
    """`forward(x)`, a linear function of a tree of floating-point arrays, which reverse mode transposes by `transpose`.

    Both may close over traced values, also differentiable ones: forward mode and higher derivatives follow `forward`.

    [I 0; -L I] (p, o) = (x, 0) is solved by p = x, o = L x, and with the transposed matrix by p + L^T o: jax takes the
    transpose of a solution as given, batches it, and cuts it over devices, which it does of nothing else.
    """
    shapes = jax.eval_shape(forward, x)
    # jax transposes only if all of the right-hand side depends on what is differentiated, and parts of x may not. So
    # every part gets a zero that does; the compiler sees that the sum in it is never chosen.
    leaves = jax.tree.leaves(x)
    anchor = sum(jnp.sum(leaf).astype(leaves[0].dtype) for leaf in leaves)
    zero = lax.select(False, anchor, jnp.zeros_like(anchor))
    x = jax.tree.map(lambda leaf: leaf + zero.astype(leaf.dtype), x)
    nothing = match_varying(jax.tree.map(lambda s: jnp.full(s.shape, zero.astype(s.dtype)), shapes), shapes)

    def matrix(pair):
        p, o = pair
        return p, jax.tree.map(jnp.subtract, o, forward(p))

    def solve(_, right):
        p, o = right
        return p, jax.tree.map(jnp.add, o, forward(p))

    def solve_transposed(_, right):
        p, o = right
        return jax.tree.map(jnp.add, p, transpose(o)), o

    return lax.custom_linear_solve(matrix, (x, nothing), solve, solve_transposed)[1]
