"""Low-rank updates of a trained module (LoRA: Hu et al. 2022, arXiv:2106.09685)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.errors import ConfigurationError
from simjax.learning.paths import array_paths, arrays_at, matching, replaced


class LowRank(eqx.Module):
    """A module W whose matrices are W + (scale / rank) B A, to be fine-tuned: only B and A are trained.

    Matrices are arrays of two axes, `(outputs, inputs)`, so B is `(outputs, rank)` and A `(rank, inputs)`; B begins as
    zero, so the module begins as it was. A `Learner` of it trains nothing else, and returns the module with B A added.

    Args:
        module: the trained one.
        rank: of the updates.
        where: paths of matrices that get one, such as "module.layers.*.weight"; by default all.
        scale: how far a step of B and A moves the module.
        key: for the first A, normal with variance 1 / inputs.

    Raises:
        ConfigurationError: `where` fits no matrix, or the rank is none.

    Examples:
        >>> trained = sj.Closure(sj.LocalNetwork(1, 2, [8], key=jax.random.key(0)))
        >>> tuned = sj.LowRank(trained, 2, key=jax.random.key(1))
        >>> sorted(tuned.down), tuned.up["module.weights.1"].shape
        (['module.weights.0', 'module.weights.1'], (1, 2))
    """

    base: Any
    up: dict[str, Array]
    down: dict[str, Array]
    scale: float = eqx.field(static=True)

    def __init__(self, module: Any, rank: int, *, where: str | Sequence[str] = "*", scale: float = 1.0, key: Array):
        if not isinstance(rank, int) or rank < 1:
            raise ConfigurationError(f"rank={rank!r}: expected a whole number, 1 or more.")
        chosen = arrays_at(module, matching(module, [where] if isinstance(where, str) else where, "where"))
        matrices = {path: array for path, array in sorted(chosen.items()) if array.ndim == 2}
        if not matrices:
            raise ConfigurationError(f"where={where!r}: expected paths of matrices, got {', '.join(chosen)}.")
        self.base, self.scale = module, scale
        self.up = {path: jnp.zeros((w.shape[0], rank), w.dtype) for path, w in matrices.items()}
        keys = jax.random.split(key, len(matrices))
        self.down = {
            path: jax.random.normal(k, (rank, w.shape[1]), w.dtype) / w.shape[1] ** 0.5
            for k, (path, w) in zip(keys, matrices.items(), strict=True)
        }

    @property
    def frozen(self) -> set[str]:
        """Paths of the arrays that are kept."""
        return {path for path in array_paths(self) if path.startswith("base.")}

    def merged(self) -> Any:
        """The module with the updates added to its matrices."""
        matrices = arrays_at(self.base, {*self.up})
        share = {path: self.scale / up.shape[1] for path, up in self.up.items()}
        return replaced(self.base, {path: w + share[path] * (self.up[path] @ self.down[path]) for path, w in matrices.items()})
