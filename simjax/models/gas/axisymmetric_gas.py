"""A gas in cylindrical coordinates (r, z): what it takes there, how it widens, and what its components are called."""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout, Side
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.models.axisymmetric_grid import kind_across, radii, side_refusals
from simjax.ops.axisymmetric_divergence import RADIAL, ring_divergence
from simjax.ops.gas import GasScheme
from simjax.ops.riemann import Conserved, Primitive
from simjax.ops.spacing import Spacing

IDEAL = "physics.viscosity and physics.conductivity: expected 0 on an axisymmetric grid, where the gas is ideal"


def refusals(
    *, at_axis: bool, lower: str, order: int, reconstruction: str, gravity: bool, transport: bool
) -> Iterator[tuple[str, str]]:
    """Sentences on what a gas does not take on an axisymmetric grid, each with its key path.

    at_axis: whether r begins at zero; lower: the kind of the side there. gravity: whether it pulls along r.
    """
    yield from side_refusals(lower, at_axis)
    if order > 2:
        yield (
            "physics.reconstruction",
            f"physics.reconstruction = {reconstruction}: its fluxes would be of second order on an axisymmetric grid; "
            "write mc, van_leer, minmod or first_order",
        )
    if gravity:
        yield "physics.gravity", "physics.gravity: expected 0 along r on an axisymmetric grid; write [0, g]"
    if transport:
        yield "physics.viscosity", IDEAL


def check(domain: Domain, sides: Sequence[tuple[Side, Side]], scheme: GasScheme, gravity_axes: Sequence[int]) -> None:
    """Refuse what a gas does not take on an axisymmetric grid.

    Raises:
        ConfigurationError: see `refusals`.
    """
    if not domain.grid.axisymmetric:
        return
    for _, sentence in refusals(
        at_axis=domain.grid.lower[RADIAL] == 0,
        lower=kind_across(sides),
        order=scheme.interpolation.order,
        reconstruction=scheme.reconstruction,
        gravity=RADIAL in gravity_axes,
        transport=False,
    ):
        raise ConfigurationError(f"{sentence}.")


def check_ideal(domain: Domain) -> None:
    """Refuse viscosity and conductivity on an axisymmetric grid.

    Raises:
        ConfigurationError: it is one.
    """
    if domain.grid.axisymmetric:
        raise ConfigurationError(f"{IDEAL}; leave them out of Compressible.Params.")


def tendency(flux: Conserved, taper: Array, pressure: Array, ndim: int, spacing: Spacing) -> Conserved:
    """The tendency by the fluxes across r; the cell's own pressure pushes on the sides of its ring around the axis."""

    def fall(f: Array, source: Array | None = None) -> Array:
        return ring_divergence(f, taper, RADIAL, ndim, -spacing, source)

    radial, *others = flux.momentum
    return Conserved(
        fall(flux.density),
        (fall(radial, pressure), *map(fall, others)),
        fall(flux.energy),
        tuple(map(fall, flux.scalars)),
    )


def widening(domain: Domain, layout: FieldLayout, w: Primitive, gamma: Array) -> Array:
    """gamma u / (2 r) of gas that moves away from the axis: the rate at which it thins out, for the time step.

    A forward Euler step takes a cell to a mean over its faces, in which those across r count with their areas, and of
    the state that is left after q = (rho, rho u, rho v, E) lost dt / (w r) of its flux less the pressure. With the
    weights w of the rates, which sum to one at Courant number 1/2, the faces are as on a Cartesian grid, and the
    pressure of that state is p (1 - gamma u dt / (w r)), not below zero with w = gamma u dt / r.
    """
    return 0.5 * gamma * jnp.maximum(w.velocity[RADIAL], 0) / radii(domain, layout, w.density.dtype)
