"""Chains of particles that fill a lattice as walks at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PIECE = 4096  # places of a lattice among which chains are mixed: the work goes as their square
MIXING = 10  # moves per place


def walks(shape: Sequence[int], periodic: Sequence[bool], chains: int, length: int, seed: int) -> np.ndarray:
    """Places `(chains * length, ndim)` on a lattice, those of a chain one after the other and next to each other.

    A path through all places is mixed at random, piece by piece, and cut into chains, between which lie what places
    there are too many. Mansfield (1982), J. Chem. Phys. 77, 1554; Oberdorf et al. (2006), Phys. Rev. E 74, 051801.
    """
    path, rng = _snake(shape), np.random.default_rng(seed)
    beside = _beside(shape, periodic)
    in_piece = max(1, chains * PIECE // len(path))
    chosen = []
    for first in range(0, chains, in_piece):
        last = min(first + in_piece, chains)
        start, end = first * len(path) // chains, last * len(path) // chains
        piece = _mixed(path[start:end], beside, rng)
        begins = np.arange(last - first) * len(piece) // (last - first)
        chosen.append(piece[begins[:, None] + np.arange(length)].ravel())
    return np.stack(np.unravel_index(np.concatenate(chosen), tuple(shape)), axis=1)


def _snake(shape: Sequence[int]) -> np.ndarray:
    """A path through all places of a lattice, by their numbers: to and fro."""
    path = np.zeros(1, int)
    for n in reversed(shape):
        path = np.concatenate([path[:: (-1) ** k] + k * len(path) for k in range(n)])
    return path


def _beside(shape: Sequence[int], periodic: Sequence[bool]) -> np.ndarray:
    """Neighbours of each place of the lattice, `(places, 2 ndim)`, -1 beyond a wall."""
    number = np.arange(int(np.prod(shape))).reshape(shape)
    found = []
    for axis, closed in enumerate(periodic):
        for step in (1, -1):
            there = np.roll(number, -step, axis)
            # Along two places both sides are the same one.
            if not closed or shape[axis] < 3:
                edge = np.moveaxis(there, axis, 0)
                edge[-1 if step == 1 else 0] = -1
            found.append(there.ravel())
    return np.stack(found, axis=1)


def _mixed(path: np.ndarray, beside: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another path through the same places: again and again an end bites into a place next to it."""
    path, count = path.copy(), len(path)
    at = np.full(len(beside), -1)
    at[path] = np.arange(count)
    moves = MIXING * count
    ends, sides = rng.integers(2, size=moves).tolist(), rng.integers(beside.shape[1], size=moves).tolist()
    for end, side in zip(ends, sides, strict=True):
        place = int(beside[path[-end], side])
        bitten = int(at[place]) if place >= 0 else -1
        if bitten < 0:
            continue
        first, last = (bitten + 1, count) if end else (0, bitten)
        path[first:last] = path[first:last][::-1]
        at[path[first:last]] = np.arange(first, last)
    return path
