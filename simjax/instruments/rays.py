"""Straight segments through a stretched grid, cut where they pass from one value to the next."""

from collections.abc import Sequence

import numpy as np

from simjax.core.domain import Domain
from simjax.instruments.places import line_of, numbers, values_along


def pieces(
    domain: Domain, starts: np.ndarray, ends: np.ndarray, offset: Sequence[float], periodic: Sequence[bool]
) -> tuple[np.ndarray, np.ndarray]:
    """Middles of the pieces of segments (segments, axes), and their lengths.

    Returns:
        Middles in numbers of the values beside them, (axes, segments, pieces), and lengths (segments, pieces). A piece
        is half of what lies between two planes of values; segments with fewer than others have some of no length.
    """
    shares = [_shares(domain, start, end, offset, periodic) for start, end in zip(starts, ends, strict=True)]
    most = max(map(len, shares))
    shares = np.stack([np.concatenate([own, np.full(most - len(own), 1.0)]) for own in shares])
    middles = 0.5 * (shares[:, 1:] + shares[:, :-1])
    positions = starts.T[:, :, None] + (ends - starts).T[:, :, None] * middles
    lengths = np.diff(shares, axis=1) * np.linalg.norm(ends - starts, axis=1)[:, None]
    return np.stack(numbers(domain, positions, offset, periodic)), lengths


def _shares(domain: Domain, start: np.ndarray, end: np.ndarray, offset, periodic) -> np.ndarray:
    """The shares of a segment's way after which it passes a plane of values, and those halfway between, in order."""
    passed = [np.array([0.0, 1.0])]
    for axis in range(domain.grid.ndim):
        if start[axis] == end[axis]:
            continue
        line = line_of(domain, axis)
        values = domain.grid.coordinates(axis, offset[axis]) if line is None else values_along(line, offset[axis])
        share = (values - start[axis]) / (end[axis] - start[axis])
        passed.append(share[(share > 0) & (share < 1)])
    found = np.unique(np.concatenate(passed))
    return np.sort(np.concatenate([found, 0.5 * (found[1:] + found[:-1])]))
