"""Marks on the arrays of a step, for those who trace it: where stencils begin and end."""

import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import batching

kept_p = Primitive("kept")
kept_p.def_abstract_eval(lambda x: x)

widened_p = Primitive("widened")
widened_p.def_abstract_eval(
    lambda x, *, width, ndim: x.update(shape=(*x.shape[:-ndim], *(n + 2 * width for n in x.shape[-ndim:])))
)


def _batched(primitive: Primitive):
    """A rule of `vmap`: both marks leave the axes before those of the grid as they are."""

    def rule(arguments, axes, **options):
        ((x,), (axis,)) = arguments, axes
        return primitive.bind(jnp.moveaxis(x, axis, 0), **options), 0

    batching.primitive_batchers[primitive] = rule


_batched(kept_p)
_batched(widened_p)


def kept(x: Array) -> Array:
    """`x`, from which a stencil reads: what was computed for it is computed once for all who read it."""
    return kept_p.bind(jnp.asarray(x))


def widened(x: Array, width: int, ndim: int) -> Array:
    """`x` with `width` more cells on every side of its last `ndim` axes, of which nothing is known."""
    return widened_p.bind(x, width=width, ndim=ndim)
