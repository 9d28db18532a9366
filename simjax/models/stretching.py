"""Limits of how abruptly cells may change in width for schemes of high order."""

from collections.abc import Sequence

import numpy as np

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.core.stretched import widths_around
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.ops import scalar_fluxes

LEAST = 0.1
"""The share of a cell's true width below which the width that a scheme sees is refused."""


def require_widths(what: str, domain: Domain, layout: FieldLayout, weights: Sequence[float], instead: str) -> None:
    """Refuse a stretching that a scheme, which takes sums of neighbouring widths with these weights, does not resolve.

    what: the key, with its value, that asks for the scheme; instead: what to write.
    """
    reach = len(weights) // 2
    for axis in domain.grid.stretched:
        line = domain.grid.stretch[axis]
        assert line is not None
        n = len(line.centers)
        if n < reach or len(weights) == 1:
            continue
        around = widths_around(np.asarray(line.faces), reach, layout.is_periodic(axis))
        found = np.convolve(around, weights, "valid")[:n]
        share = found / np.diff(line.faces)
        worst = int(np.argmin(share))
        if share[worst] < LEAST:
            raise ConfigurationError(
                f"{what}: cells along {AXES[axis]} change too abruptly in width at cell {worst}, where the scheme sees "
                f"{found[worst]:.3g} for {line.faces[worst + 1] - line.faces[worst]:.3g}; write {instead}, or stretch "
                "more smoothly."
            )


def require_transport(scheme: str, domain: Domain, layout: FieldLayout) -> None:
    """Refuse a stretching that the advective flux `scheme` of a scalar does not resolve."""
    weights = scalar_fluxes.FLUX_WEIGHTS[scalar_fluxes.SCHEMES[scheme].reach]
    require_widths(f"physics.scheme={scheme}", domain, layout, weights, "van_leer")
