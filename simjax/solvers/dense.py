"""Dense matrices, decomposed by LAPACK or by the platform's own routine. Without derivatives.

On a CPU the matrices of several members are decomposed one after the other: jaxlib (0.10 to 0.12) hands a batch of them
to the pool of threads on which it runs itself, and waits, so that as many devices as there are threads wait for ever.
"""

import jax.numpy as jnp
from jax import Array
from jax.custom_batching import sequential_vmap

from simjax.jaxpr.platform import platform


def eigenvectors(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues `(n,)`, rising, and eigenvectors `(n, n)` of a symmetric matrix `(n, n)`."""
    return (_eigenvectors_alone if platform() == "cpu" else _eigenvectors)(matrix)


def inverse(matrix: Array) -> Array:
    """The inverse of a matrix `(n, n)`, not finite where it is singular."""
    return (_inverse_alone if platform() == "cpu" else jnp.linalg.inv)(matrix)


def _eigenvectors(matrix: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


_eigenvectors_alone, _inverse_alone = sequential_vmap(_eigenvectors), sequential_vmap(jnp.linalg.inv)
