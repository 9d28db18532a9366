"""A gas in cylindrical coordinates (r, z): how it widens there; and the features of a gas that exclude each other."""

from collections.abc import Iterator

import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.models.axisymmetric_grid import ASKED, RINGS, Across, radii, side_refusals
from simjax.ops.axisymmetric_divergence import RADIAL, ring_divergence
from simjax.ops.riemann import Conserved, Primitive
from simjax.ops.spacing import Spacing
from simjax.schema.exclusions import Exclusion, Exclusions, Feature

EXCLUSIONS = Exclusions(
    {
        "rings": RINGS,
        "high_order": Feature(
            "weno5 (`physics.reconstruction`)",
            instead="write mc, van_leer, minmod or first_order",
        ),
        "regularised": Feature("igr (`physics.reconstruction`)", instead="write mc, van_leer, minmod or first_order"),
        "gravity_along_r": Feature("gravity along x (`physics.gravity`)", instead="write [0, g]"),
        "transport": Feature(
            "viscosity and conduction (`physics.viscosity`, `physics.conductivity`, `physics.prandtl`)",
            instead="write 0, or leave them out",
        ),
        "prandtl": Feature("a number of Prandtl (`physics.prandtl`)", instead="write null, or physics.conductivity=0"),
        "conductivity": Feature("a conductivity (`physics.conductivity`)", without="no conductivity of its own"),
        "characteristic": Feature(
            "a characteristic side (`boundaries.x: characteristic_outflow`, `characteristic_inflow`)",
            instead="write outflow or inflow",
        ),
        "gravity_across": Feature(
            "gravity across that side (`physics.gravity`)", without="no gravity across that side"
        ),
        "bodies": Feature("bodies (`coefficients.solid`)", without="a gas without bodies"),
        "stretching": Feature("a stretched grid (`grid.stretch`)", without="a uniform grid"),
        "gravity": Feature("gravity (`physics.gravity`)", without="no gravity", instead="write null"),
        "limited_faces": Feature(
            "a count of faces with a limited flux (`physics.count_limited`)", instead="write false, or leave it out"
        ),
        "several_steps": Feature(
            "several steps between two exchanges (`steps_per_exchange`)", instead="write steps_per_exchange=0"
        ),
    },
    (
        Exclusion("high_order", "rings", "as its fluxes would be of second order on an axisymmetric one"),
        Exclusion("regularised", "rings", "as its entropic pressure counts differences along straight axes"),
        Exclusion("regularised", "stretching", "on which alone its entropic pressure has one strength"),
        Exclusion("regularised", "bodies", "as its entropic pressure knows no surface but sides"),
        Exclusion("gravity_along_r", "rings", "as gravity does not point away from an axis on all sides"),
        Exclusion("transport", "rings", "as the gas is ideal on an axisymmetric one"),
        Exclusion("prandtl", "conductivity", "as one follows from the other"),
        Exclusion("characteristic", "rings", "as the waves that its conditions hold for are plane"),
        Exclusion("characteristic", "gravity_across", "as its conditions hold for waves in a uniform gas"),
        Exclusion("bodies", "rings", "on which alone the cells beside their surface are known"),
        Exclusion("gravity", "bodies", "as the pressure beside their surface is not balanced with it"),
        Exclusion("limited_faces", "bodies", "as faces inside of them would count"),
        Exclusion("several_steps", "bodies", "as their surface reads cells farther than a flux does"),
    ),
)


TRANSPORT = {"rings": ASKED, "transport": "physics.viscosity and conduction"}


def refusals(across: Across | None, reconstruction: str, **others: bool) -> Iterator[tuple[str, str]]:
    """Sentences on what a gas does not take, each with its key path; others: features of `EXCLUSIONS` that it has."""
    if across is not None:
        yield from side_refusals(across.kinds[0], across.at_axis)
    given = {
        "high_order": f"physics.reconstruction = {reconstruction}",
        "regularised": f"physics.reconstruction = {reconstruction}",
        "gravity_along_r": "physics.gravity along r",
        "prandtl": "physics.prandtl",
        "bodies": "coefficients.solid",
        "stretching": "grid.stretch",
        "gravity": "physics.gravity",
        "limited_faces": "physics.count_limited",
        "several_steps": "steps_per_exchange",
        "conductivity": "physics.conductivity",
        "characteristic": "boundaries with a characteristic side",
        "gravity_across": "physics.gravity across it",
        **TRANSPORT,
    }
    has = {
        "rings": across is not None,
        "high_order": reconstruction == "weno5",
        "regularised": reconstruction == "igr",
        **others,
    }
    yield from EXCLUSIONS.refusals({name: given[name] for name, found in has.items() if found})


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
