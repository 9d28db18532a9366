"""The entropic pressure of a gas, solved for in each stage from its velocity and density (`ops.igr`)."""

from collections.abc import Sequence

from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.ops import igr
from simjax.ops.difference import shift
from simjax.ops.gas import GasScheme, with_shocks
from simjax.ops.riemann import Primitive


def entropic_pressure(domain: Domain, gas: Primitive, velocity: Sequence[FieldLayout], plain: FieldLayout, t) -> Array:
    """Sigma of a gas on cell centres, `(*block_shape)`, a pressure: each sweep exchanges one line of ghost cells.

    velocity: layouts of its components. plain: that of density and of Sigma itself, which has no slope at sides.
    """
    ndim = domain.grid.ndim
    ratios = igr.strengths(domain.grid.mean_spacing)

    first, *others = igr.relaxations(ratios)

    def begin(velocity, density):
        given = igr.source(velocity, ratios)
        return given, igr.first_sweep(density, given, first, ratios)

    given, entropic = domain.apply(begin, (gas.velocity, gas.density), (tuple(velocity), plain), 1, t)
    for weight in others:

        def sweep(entropic, density, given, weight=weight):
            return igr.sweep(entropic, density, shift(given, ndim), weight, ratios)

        entropic = domain.apply(sweep, (entropic, gas.density, given), (plain,) * 3, 1, t)
    return entropic


def padded_gas(
    heat: Array, velocity, pressure: Array, scalars, entropic: Sequence[Array], scheme: GasScheme
) -> Primitive:
    """Primitives of a padded block from the fields that a tendency reads, and shocks across faces; heat: p / rho."""
    return with_shocks(Primitive(pressure / heat, velocity, pressure, scalars, *entropic), scheme)
