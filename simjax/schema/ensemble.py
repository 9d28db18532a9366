"""The values that members of an ensemble get: a function of seed, key and member, of nothing else."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from simjax.schema.config import Config
from simjax.schema.ensemble_section import DRAWN, Variation

if TYPE_CHECKING:
    import numpy as np

LEAST = 2.0**-54
"""Distance of fractions from 0 and 1, where a normal distribution is infinite."""


def sample_members(config: Config) -> dict[str, np.ndarray]:
    """Key path -> float64 values of shape (ensemble.size,), for everything that varies."""
    ensemble = config.ensemble
    return values_of_members(ensemble.vary, ensemble.size, ensemble.design, config.seed)


def values_of_members(vary: Sequence[Variation], size: int, design: str, seed: int) -> dict[str, np.ndarray]:
    """Key path -> float64 values of shape (size,).

    design: how the members are spread over what is drawn. "random": from a Philox stream (Salmon et al. 2011) seeded by
    seed, key path and member, so member 17 is the same alone and among 1024, whatever else varies. "sobol": a scrambled
    Sobol sequence (Owen 1998) over all that is drawn, so member 17 is the same among 32 and among 1024.
    "latin_hypercube" (McKay et al. 1979): one member in each of `size` equal shares of each number; it depends on the
    size, as `linspace` and `values` do.
    """
    drawn = sorted(variation.path for variation in vary if variation.kind in DRAWN)
    fractions = _fractions(drawn, size, design, seed)
    return {variation.path: _values(variation, fractions, size) for variation in vary}


def _fractions(paths: Sequence[str], size: int, design: str, seed: int) -> dict[str, np.ndarray]:
    """Numbers in [0, 1) of shape (size,) by path."""
    import numpy as np

    if design == "random" or not paths:
        return {path: np.array([_fraction(seed, path, member) for member in range(size)]) for path in paths}
    from scipy.stats import qmc

    generator = np.random.default_rng(seed)
    if design == "sobol":
        # Sequences are balanced at powers of two; the first points of a longer one are those of a shorter one.
        points = qmc.Sobol(len(paths), rng=generator).random_base2(math.ceil(math.log2(size)))[:size]
    else:
        points = qmc.LatinHypercube(len(paths), rng=generator).random(size)
    return {path: points[:, axis] for axis, path in enumerate(paths)}


def _values(variation: Variation, fractions: Mapping[str, np.ndarray], size: int) -> np.ndarray:
    import numpy as np

    numbers = variation.numbers
    if variation.kind == "values":
        return np.asarray(numbers, np.float64)
    first, last = numbers
    if variation.kind == "linspace":
        return np.linspace(first, last, size)
    share = fractions[variation.path]
    if variation.kind == "log_uniform":
        low, high = math.log(first), math.log(last)
        return np.clip(np.exp(low + (high - low) * share), first, last)
    if variation.kind == "normal":
        from scipy.special import ndtri

        return first + last * ndtri(np.clip(share, LEAST, 1 - LEAST))
    return first + (last - first) * share


def _fraction(seed: int, path: str, member: int) -> float:
    """Draw a uniform number in [0, 1) from the seed, the path of the parameter and the member's number."""
    import numpy as np

    word = int.from_bytes(hashlib.blake2b(path.encode(), digest_size=4).digest(), "little")
    sequence = np.random.SeedSequence(seed, spawn_key=(word, member))
    return float(np.random.Generator(np.random.Philox(sequence)).random())
