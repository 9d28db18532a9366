"""The radial distribution g(r) of particles, counted from their positions at a few output times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simjax.report.particle_painter import at

if TYPE_CHECKING:
    import xarray as xr

BINS, MOST_CENTRES, FRAMES = 120, 4000, 8
_REACH = 4.5  # mean distances


def radial_distribution(
    dataset: xr.Dataset, frames: Sequence[int], periodic: Sequence[bool], of: tuple[int, int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Distances `(BINS,)` and g there: pairs found, relative to particles that stand anywhere alike.

    g(r) = V n(r) / (N_a N_b dV(r)), with n(r) the pairs of a shell of volume dV(r), averaged over `frames`. `periodic`
    tells of every axis whether the nearest image counts; along the others shells are cut off by the sides, so that g
    falls below one far away. of: two species; all particles alike without. At most MOST_CENTRES particles, evenly
    chosen, are centres of shells. Allen and Tildesley (2017), Computer Simulation of Liquids, sec. 2.6.
    """
    from scipy.spatial import KDTree

    lower, upper = (np.atleast_1d(dataset.attrs[f"simjax_box_{side}"]).astype(float) for side in ("lower", "upper"))
    length, ndim = upper - lower, len(lower)
    species = np.asarray(dataset["species"].values)
    a, b = (species == of[0], species == of[1]) if of else (np.ones_like(species, bool),) * 2
    spacing = float((np.prod(length) / max(1, species.size)) ** (1 / ndim))
    reach = min(_REACH * spacing, 0.499 * float(length.min()))
    edges = np.linspace(0.0, reach, BINS + 1)
    counts, pairs = np.zeros(BINS), 0.0
    for frame in frames:
        position = at(dataset, "position", frame, None)[:, :ndim].astype(float) - lower
        good = np.isfinite(position).all(axis=1)
        wrapped = np.where(np.asarray(periodic, bool)[:ndim], np.mod(position, length), position)
        # KDTree takes zero for an axis without images; a coordinate may round to the length itself.
        size = np.where(np.asarray(periodic, bool)[:ndim], length, 0.0)
        wrapped = np.where((size > 0) & (wrapped >= length), 0.0, wrapped)
        centres, others = wrapped[a & good], wrapped[b & good]
        chosen = centres[:: max(1, -(-len(centres) // MOST_CENTRES))]
        found = KDTree(chosen, boxsize=size).sparse_distance_matrix(
            KDTree(others, boxsize=size), reach, output_type="ndarray"
        )["v"]
        found = found[found > 0]  # a particle and itself
        counts += np.histogram(found, edges)[0]
        pairs += len(chosen) * (len(others) - (of is None or of[0] == of[1]))
    shells = np.diff(edges**ndim) * (4 * np.pi / 3 if ndim == 3 else np.pi if ndim == 2 else 2.0)
    middle = 0.5 * (edges[1:] + edges[:-1])
    return middle, counts * float(np.prod(length)) / np.maximum(pairs * shells, 1e-300)
