"""Losses over batches of windows, which a learner minimises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.parallel import place, shardings

Batch = Mapping[str, Any]
"""Arrays by name, each with a leading axis of windows, as `sj.batches` gives them."""


class BatchLoss(Protocol):
    """Errors of a module on each window of a batch."""

    @property
    def everywhere(self) -> jax.sharding.Sharding:
        """Placement of the weights."""
        ...

    def placed(self, batch: Batch) -> dict[str, Array]:
        """The arrays that the loss needs, on the devices; ConfigurationError where the batch does not fit."""
        ...

    def __call__(self, module: Any, batch: Mapping[str, Array], key: Array) -> Array:
        """The error of each window, `(windows,)`; to be differentiated with respect to the module."""
        ...


class WindowLoss(eqx.Module):
    """A loss of one window, taken of each window of a batch.

    error: function `(module, window, key) -> scalar`; window: arrays by name, as a window of `TrajectoryWindows`.

    Examples:
        >>> loss = sj.WindowLoss(lambda module, window, key: (module(window["time"][0]) - window["energy"][0]) ** 2)
        >>> batch = loss.placed({"time": np.zeros((2, 1)), "energy": np.ones((2, 1))})
        >>> loss(lambda t: t + 3, batch, jax.random.key(0)).tolist()
        [4.0, 4.0]
    """

    error: Callable[[Any, Mapping[str, Array], Array], Array]

    @property
    def everywhere(self) -> jax.sharding.Sharding:
        """Sharding that places a whole batch on the first device."""
        return shardings(None, PartitionSpec())

    def placed(self, batch: Batch) -> dict[str, Array]:
        """The batch on the first device."""
        return {name: place(np.asarray(values), self.everywhere) for name, values in batch.items()}

    def __call__(self, module: Any, batch: Mapping[str, Array], key: Array) -> Array:
        """The error of each window, `(windows,)`."""
        count = len(next(iter(batch.values())))
        return jax.vmap(self.error, in_axes=(None, 0, 0))(module, dict(batch), jax.random.split(key, count))
