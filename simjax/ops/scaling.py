"""Products of real and complex arrays without promotion."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Inexact


def scaled(factor: float | Inexact[Array, "..."], u: Inexact[Array, "..."]) -> Array:
    """factor * u in the precision of `u`; a real factor of a complex array costs two products instead of four."""
    precision, factor = jnp.finfo(u.dtype).dtype, jnp.asarray(factor)
    if jnp.issubdtype(factor.dtype, jnp.complexfloating):
        return factor.astype(np.result_type(precision, np.complex64)) * u
    factor = factor.astype(precision)
    if not jnp.issubdtype(u.dtype, jnp.complexfloating):
        return factor * u
    return lax.complex(factor * u.real, factor * u.imag)


def times_i(factor: Inexact[Array, "..."], u: Inexact[Array, "..."]) -> Array:
    """i * factor * u of a real factor and a complex array; a derivative if the factor is a wavenumber."""
    factor = factor.astype(jnp.finfo(u.dtype).dtype)
    return lax.complex(-factor * u.imag, factor * u.real)


def scale_by(factors, state):
    """`scaled`, leaf by leaf; a leaf of `factors` may stand where `state` has a tree, and then serves all of it."""
    return jax.tree.map(lambda factor, part: jax.tree.map(lambda u: scaled(factor, u), part), factors, state)
