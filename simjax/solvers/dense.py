"""Dense matrices of small systems, decomposed by LAPACK or by what a platform has in its place."""

import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import sequential_vmap


def eigenvectors(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues `(n,)`, rising, and eigenvectors `(n, n)` of a symmetric matrix.

    On a CPU those of several members are found one after the other: jaxlib (0.10 to 0.12) hands a batch of matrices to
    the pool of threads on which it runs itself and waits, so that as many devices as there are threads wait for ever.
    """
    return lax.platform_dependent(matrix, cpu=_one_by_one, default=_decomposed)


def _decomposed(matrix: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


_one_by_one = sequential_vmap(_decomposed)
