"""Directions in which unknowns are moved to look at a derivative: trees of arrays, formed from fixed seeds."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

Unknowns = dict[str, Any]
"""Name -> tree of arrays."""


def moved(start: Unknowns, direction: Unknowns, length: float) -> Unknowns:
    """`start + length direction`."""
    return jax.tree.map(lambda u, d: u + length * d, start, direction)


def dot(a: Unknowns, b: Unknowns) -> float:
    """The sum over all entries of the products of two trees."""
    return sum(float(np.vdot(x, y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def smooth_waves(shape: Sequence[int], seed: int) -> np.ndarray:
    """`shape`: a few waves along every axis with pseudo-random lengths and phases, of order one, never symmetric.

    Of no axis: one number between 0.6 and 1, of either sign.
    """
    random = np.random.default_rng(seed)
    waves = np.asarray(1.0 if shape else random.choice([-1.0, 1.0]) * random.uniform(0.6, 1.0))
    for count in shape:
        k, phase = random.uniform(0.6, 2.4, 2), random.uniform(0, 2 * np.pi, 2)
        x = 2 * np.pi * (np.arange(count) + 0.5) / count
        waves = np.multiply.outer(waves, np.sin(k[0] * x + phase[0]) + 0.5 * np.cos(k[1] * x + phase[1]))
    return waves


def natural_sizes(start: Unknowns, value: float, gradient: Unknowns) -> Unknowns:
    """Length of a move of every array: its root mean square; if that is zero, that of its unknown; else one.

    At most as far as the value would change by itself, to first order: no unknown drowns the others.
    """
    result = {}
    for name, tree in start.items():
        whole = _rms(jax.tree.leaves(tree)) or 1.0

        def size(leaf, slopes, whole=whole):
            norm = float(np.linalg.norm(slopes))
            own = _rms([leaf]) or whole
            return min(own, abs(value) / norm) if norm and value else own

        result[name] = jax.tree.map(size, tree, gradient[name])
    return result


def smooth_direction(start: Unknowns, sizes: Unknowns, seed: int) -> Unknowns:
    """A tree like `start` of smooth waves of the given sizes."""
    seeds = itertools.count(1000 * seed)
    return jax.tree.map(lambda leaf, size: size * smooth_waves(leaf.shape, next(seeds)), start, sizes)


def rough_directions(start: Unknowns, sizes: Unknowns, count: int) -> list[Unknowns]:
    """Trees like `start` whose entries are independent, normal and of the given sizes."""
    random = np.random.default_rng(0)
    return [
        jax.tree.map(lambda leaf, size: size * random.standard_normal(leaf.shape), start, sizes) for _ in range(count)
    ]


def _rms(leaves: Sequence[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(leaf**2) for leaf in leaves) / sum(leaf.size for leaf in leaves)))
