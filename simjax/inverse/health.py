"""Whether a gradient is fit to be followed: its size by window of time, its growth, and a check by differences."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simjax.inverse.least_squares import LeastSquares, dot, norm

# Relative step of the differences: the cube root of rounding balances their truncation against rounding.
DIRECTIONS = 4


@dataclass(frozen=True)
class Health:
    """What `gradient_health` found.

    norms: `(windows,)`, the gradient of the part of the loss that is measured in each window of time. first_bad: the
    first frame of which a prediction is not finite, or None. cosine: between the gradient and central differences,
    in the space of a few random directions.
    """

    norms: np.ndarray
    first_bad: int | None
    cosine: float

    @property
    def growth(self) -> float:
        """The largest norm of a window over that of the first one."""
        return float(np.max(self.norms) / self.norms[0]) if self.norms[0] > 0 else float("inf")


def gradient_health(problem: LeastSquares, latent, windows_of: Any, windows: int, first_bad: int | None, seed=0):
    """The `Health` of the gradient at `latent`.

    windows_of: a tree like the residuals, of int32 arrays that broadcast against them: the window of each residual.
    """
    evaluate = jax.jit(lambda latent: problem.loss(latent)[0])

    @jax.jit
    def norms(latent):
        residuals, pull = jax.vjp(problem.residuals, latent)

        def of_window(k):
            chosen = jax.tree.map(lambda r, w: jnp.where(w == k, r, 0), residuals, windows_of)
            return norm(pull(chosen)[0])

        return jax.lax.map(of_window, jnp.arange(windows, dtype=jnp.int32)), pull(residuals)[0]

    sizes, gradient = norms(latent)
    exact, measured = [], []
    for number in range(DIRECTIONS):
        key = jax.random.fold_in(jax.random.key(seed), number)
        leaves, tree = jax.tree.flatten(latent)
        keys = jax.random.split(key, len(leaves))
        d = jax.tree.unflatten(tree, [jax.random.normal(k, u.shape, u.dtype) for k, u in zip(keys, leaves, strict=True)])
        h = float(np.cbrt(jnp.finfo(leaves[0].dtype).eps)) * max(1.0, float(norm(latent))) / float(norm(d))
        ahead, behind = (evaluate(jax.tree.map(lambda u, v, s=s: u + s * v, latent, d)) for s in (h, -h))
        exact.append(float(dot(gradient, d)))
        measured.append(float(ahead - behind) / (2 * h))
    cosine = np.dot(exact, measured) / (np.linalg.norm(exact) * np.linalg.norm(measured))
    return Health(np.asarray(sizes), first_bad, float(cosine))


