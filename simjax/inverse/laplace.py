"""Laplace's approximation: how certain an estimate is, from the curvature of the loss there."""

import jax
import jax.numpy as jnp
from jax.scipy.sparse.linalg import cg

from simjax.inverse.least_squares import LeastSquares

# 97.5 percentile of the standard normal distribution.
NORMAL_95 = 1.959963984540054


def covariance_products(problem: LeastSquares, latent, directions, *, tolerance: float = 1e-6, iterations: int = 200):
    """H^-1 d of each direction d, with H = J^T J at `latent`: the posterior's covariance where r is nearly linear.

    directions: a tree like `latent` with a leading axis. Each costs one run of conjugate gradients.
    """
    _, pull = jax.vjp(problem.residuals, latent)

    def product(v):
        return pull(jax.jvp(problem.residuals, (latent,), (v,))[1])[0]

    return jax.lax.map(lambda d: cg(product, d, tol=tolerance, maxiter=iterations)[0], directions)


def deviations_of_numbers(problem: LeastSquares, latent, names: list[str]) -> dict[str, jax.Array]:
    """Standard deviation of each scalar latent of `names`, all other unknowns (fields as well) left free.

    The square root of the diagonal of H^-1, so what other unknowns could explain widens it.
    """
    if not names:
        return {}

    def unit(name):
        return {key: jax.tree.map(jnp.ones_like if key == name else jnp.zeros_like, u) for key, u in latent.items()}

    directions = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(unit(name) for name in names))
    columns = covariance_products(problem, latent, directions)
    return {name: jnp.sqrt(jax.tree.leaves(columns[name])[0][k]) for k, name in enumerate(names)}


def posterior_samples(problem: LeastSquares, latent, count: int, seed: int = 0):
    """`count` draws from the normal distribution with mean `latent` and covariance H^-1, leading axis first.

    H^-1 J^T xi with xi standard normal in the space of residuals, priors among them, has covariance H^-1 J^T J H^-1 =
    H^-1 (Bardsley et al. 2014, "randomize then optimize", for a linear problem).
    """
    residuals, pull = jax.vjp(problem.residuals, latent)
    leaves, tree = jax.tree.flatten(residuals)

    def right(key):
        keys = jax.random.split(key, len(leaves))
        noise = [jax.random.normal(k, r.shape, r.dtype) for k, r in zip(keys, leaves, strict=True)]
        return pull(jax.tree.unflatten(tree, noise))[0]

    rights = jax.lax.map(right, jax.random.split(jax.random.key(seed), count))
    departures = covariance_products(problem, latent, rights)
    return jax.tree.map(lambda u, d: u[None] + d, latent, departures)
