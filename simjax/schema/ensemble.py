"""The values that members of an ensemble get: a function of seed, key and member, of nothing else."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

from simjax.schema.config import Config, Variation

if TYPE_CHECKING:
    import numpy as np


def sample_members(config: Config) -> dict[str, np.ndarray]:
    """Key path -> float64 values of shape (ensemble.size,), for everything that varies.

    A random value is drawn from a Philox stream (Salmon et al. 2011) seeded by seed, key path and member:
    member 17 is the same alone and among 1024. `linspace` and `values` depend on the size.
    """
    size = config.ensemble.size
    return {variation.path: _values(variation, config.seed, size) for variation in config.ensemble.vary}


def _values(variation: Variation, seed: int, size: int) -> np.ndarray:
    import numpy as np

    numbers = variation.numbers
    if variation.kind == "values":
        return np.asarray(numbers, np.float64)
    first, last = numbers
    if variation.kind == "linspace":
        return np.linspace(first, last, size)
    fractions = np.array([_fraction(seed, variation.path, member) for member in range(size)])
    if variation.kind == "log_uniform":
        low, high = math.log(first), math.log(last)
        return np.clip(np.exp(low + (high - low) * fractions), first, last)
    return first + (last - first) * fractions


def _fraction(seed: int, path: str, member: int) -> float:
    """Uniform in [0, 1)."""
    import numpy as np

    word = int.from_bytes(hashlib.blake2b(path.encode(), digest_size=4).digest(), "little")
    sequence = np.random.SeedSequence(seed, spawn_key=(word, member))
    return float(np.random.Generator(np.random.Philox(sequence)).random())
