"""Straight segments through a stretched grid, cut where they pass from one value to the next."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from simjax.core.domain import Domain
from simjax.core.stretched import Places
from simjax.instruments.places import line_of, module_of, values_along


def pieces(domain: Domain, starts: np.ndarray, ends: np.ndarray, offset: Sequence[float]) -> tuple[Places, Places]:
    """Middles of the pieces of segments (segments, axes), and their lengths.

    Returns:
        Middles in units of the domain, (axes, segments, pieces), and lengths (segments, pieces). A piece is half of
        what lies between two planes of values; segments with fewer than others have some of no length.
    """
    shares = [_shares(domain, start, end, offset) for start, end in zip(starts, ends, strict=True)]
    most, module = max(map(len, shares)), module_of(*shares)
    shares = module.stack([module.concatenate([own, np.ones(most - len(own))]) for own in shares])
    middles = 0.5 * (shares[:, 1:] + shares[:, :-1])
    positions = starts.T[:, :, None] + (ends - starts).T[:, :, None] * middles[None]
    return positions, (shares[:, 1:] - shares[:, :-1]) * np.linalg.norm(ends - starts, axis=1)[:, None]


def _shares(domain: Domain, start: np.ndarray, end: np.ndarray, offset) -> Places:
    """The shares of a segment's way after which it passes a plane of values, and those halfway between, in order."""
    passed: list[Places] = [np.array([0.0, 1.0])]
    for axis in range(domain.grid.ndim):
        if start[axis] == end[axis]:
            continue
        line = line_of(domain, axis)
        values = domain.grid.coordinates(axis, offset[axis]) if line is None else values_along(line, offset[axis])
        share = (values - start[axis]) / (end[axis] - start[axis])
        # Planes that may move are as many wherever they are: those beyond the ends leave pieces of no length there.
        known = module_of(share) is np
        passed.append(share[(share > 0) & (share < 1)] if known else jnp.clip(share, 0, 1))
    module = module_of(*passed)
    found = module.sort(module.concatenate(passed))
    return module.sort(module.concatenate([found, 0.5 * (found[1:] + found[:-1])]))
