"""Points that lie too near another one, found by sorting them into cells."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


def too_near(position: np.ndarray, lengths: np.ndarray, periodic: Sequence[bool], distance: float) -> np.ndarray:
    """Tell which of `(points, ndim)` in [0, lengths) are nearer than `distance` to an earlier point."""
    ndim = position.shape[1]
    # Cells at least as long as the distance, and no more of them than points.
    most = max(1, round(len(position) ** (1 / ndim)))
    shape = np.array([max(1, min(int(length / distance), most)) for length in lengths.tolist()])
    index = np.minimum((position / lengths * shape).astype(int), shape - 1)
    flat = np.ravel_multi_index(tuple(index.T), tuple(shape))
    order = np.argsort(flat, kind="stable")
    first = np.append(0, np.cumsum(np.bincount(flat, minlength=int(np.prod(shape)))))
    found = np.zeros(len(position), bool)
    for step in itertools.product((-1, 0, 1), repeat=ndim):
        other = index + step
        there = np.ones(len(position), bool)
        for axis in range(ndim):
            if not periodic[axis]:
                there &= (other[:, axis] >= 0) & (other[:, axis] < shape[axis])
        cell = np.ravel_multi_index(tuple((other % shape).T), tuple(shape))
        most_in_one = int(np.max(np.diff(first)))
        for k in range(most_in_one):
            slot = first[cell] + k
            valid = there & (slot < first[cell + 1])
            partner = order[np.where(valid, slot, 0)]
            apart = position - position[partner]
            wrapped = apart - lengths * np.round(apart / lengths)
            apart = np.where(np.asarray(periodic), wrapped, apart)
            valid &= partner < np.arange(len(position))
            found |= valid & (np.sum(apart**2, axis=1) < distance**2)
    return found
