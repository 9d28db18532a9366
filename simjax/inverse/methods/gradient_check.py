"""Fitness of a gradient for a search: its size by window of time, and a check by differences."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.inverse.methods.least_squares import LeastSquares, dot, norm

DIRECTIONS = 4


@dataclass(frozen=True)
class GradientCheck:
    """Sizes of a gradient, and its check by differences.

    norms: `(windows,)`, of the gradient of the part of the loss that is measured in each window of time. cosine:
    between the gradient and central differences, in the space of a few random directions.
    """

    norms: np.ndarray
    cosine: float

    @property
    def growth(self) -> float:
        """The largest norm of a window over the median of those that are not zero."""
        some = self.norms[self.norms > 0]
        return float(np.max(some) / np.median(some)) if len(some) else 1.0


def gradient_health(problem: LeastSquares, latent, windows_of: Any, windows: int, seed: int = 0) -> GradientCheck:
    """The `GradientCheck` of the gradient at `latent`.

    windows_of: a tree like the residuals, of int32 arrays that broadcast against them: the window of each residual.
    """
    sizes, gradient = eqx.filter_jit(_window_norms)(problem, latent, windows_of, windows)
    loss = eqx.filter_jit(_loss)
    # The cube root of rounding balances a difference's truncation against its rounding.
    step = float(np.cbrt(jnp.finfo(jnp.result_type(*jax.tree.leaves(latent))).eps)) * max(1.0, float(norm(latent)))
    exact, measured = [], []
    for number in range(DIRECTIONS):
        direction = _random_like(latent, jax.random.fold_in(jax.random.key(seed), number))
        h = step / float(norm(direction))
        ahead, behind = (
            float(loss(problem, jax.tree.map(lambda u, d, s=s: u + s * d, latent, direction))) for s in (h, -h)
        )
        exact.append(float(dot(gradient, direction)))
        measured.append((ahead - behind) / (2 * h))
    sizes_product = np.linalg.norm(exact) * np.linalg.norm(measured)
    return GradientCheck(np.asarray(sizes), float(np.dot(exact, measured) / sizes_product) if sizes_product else 1.0)


def _loss(problem: LeastSquares, latent) -> Array:
    return problem.loss(latent)[0]


def _window_norms(problem: LeastSquares, latent, windows_of, windows: int) -> tuple[Array, Any]:
    """The gradient's norm by window, and the whole gradient."""
    residuals, pull = jax.vjp(problem.residuals, latent)

    def of_window(k):
        return norm(pull(jax.tree.map(lambda r, w: jnp.where(w == k, r, 0), residuals, windows_of))[0])

    return jax.lax.map(of_window, jnp.arange(windows, dtype=jnp.int32)), pull(residuals)[0]


def _random_like(tree, key):
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(
        structure, [jax.random.normal(k, u.shape, u.dtype) for k, u in zip(keys, leaves, strict=True)]
    )
