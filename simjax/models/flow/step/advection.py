"""Grids, sides and solvers beside which each scheme of advection of an incompressible flow is taken."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from simjax.arguments import require_one_of
from simjax.core.boundary import PeriodicSide, Side, SlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.flow.step.budgets import budget_names, unbalanced
from simjax.ops.momentum_advection import SCHEMES

USUAL = "central2"
FREE = ("periodic", "slip")
"""Kinds of side at which a mirrored flow is a smooth one, so that wide stencils keep their order."""


@dataclass(frozen=True)
class Surroundings:
    """Surroundings of a scheme: stretched axes, rings, kinds of sides by axis, bodies, the solver of the pressure."""

    stretched: tuple[str, ...]
    axisymmetric: bool
    sides: tuple[tuple[str, str], ...]
    bodies: bool
    pressure_solver: str


def refusals(scheme: str, around: Surroundings) -> Iterator[tuple[str, str]]:
    """Sentences on where a scheme is not taken, each with its key path."""
    if scheme == USUAL:
        return
    path = "physics.advection"
    given = f"{path} = {scheme}"
    if around.axisymmetric:
        yield path, f"{given}: expected a Cartesian grid, and this one is axisymmetric; write {USUAL}"
    if around.bodies:
        yield (
            path,
            f"{given}: expected a flow without bodies (coefficients.solid), whose inside it would read; write {USUAL}",
        )
    if SCHEMES[scheme].order == 2:
        return
    instead = f"write {USUAL}, upwind3 or upwind5"
    if around.stretched:
        yield (
            path,
            f"{given}: expected a uniform grid, and this one is stretched along {', '.join(around.stretched)}; "
            f"{instead}",
        )
    for axis, pair in zip(AXES, around.sides, strict=False):
        other = [kind for kind in pair if kind not in FREE]
        if other:
            yield (
                path,
                f"{given}: expected periodic or slip sides, beside which alone it keeps its order and the energy, and "
                f"boundaries.{axis} is {other[0]}; {instead}",
            )
    if around.pressure_solver not in ("auto", "spectral"):
        yield (
            "physics.pressure_solver",
            f"physics.pressure_solver = {around.pressure_solver}: expected auto or spectral beside "
            f"physics.advection={scheme}; leave it out",
        )


def check_configuration(config: Any) -> Iterator[tuple[str, str]]:
    """The `refusals` of a configuration, and the one of a balance that it does not have."""
    stretch, keys, ndim = config.grid.stretch, config.physics, len(config.grid.shape)
    around = Surroundings(
        () if stretch is None else tuple(axis for axis in AXES[:ndim] if getattr(stretch, axis) is not None),
        config.grid.axisymmetric,
        tuple((pair.lower.kind, pair.upper.kind) for pair in config.boundaries),
        "solid" in config.coefficients,
        keys.pressure_solver,
    )
    yield from refusals(keys.advection, around)
    asked = sorted({*config.outputs.balanced} & {*budget_names(ndim)})
    if asked and keys.advection != USUAL:
        yield "outputs", unbalanced(asked[0], keys.advection)


def check(scheme: str, domain: Domain, sides: Sequence[tuple[Side, Side]], solid: object, pressure_solver: str) -> None:
    """Refuse an advection scheme that the configuration does not use.

    Raises:
        ConfigurationError: see `refusals`, or there is no scheme of this name.
    """
    require_one_of("Incompressible.advection", scheme, SCHEMES)
    around = Surroundings(
        tuple(AXES[axis] for axis in domain.grid.stretched),
        domain.grid.axisymmetric,
        tuple((_kind(lower), _kind(upper)) for lower, upper in sides),
        solid is not None,
        pressure_solver,
    )
    for _, sentence in refusals(scheme, around):
        raise ConfigurationError(f"{sentence}.")


def _kind(side: Side) -> str:
    """The kind of a side in the words of `Surroundings`, or the name of its class."""
    return "periodic" if isinstance(side, PeriodicSide) else "slip" if type(side) is SlipWall else type(side).__name__


def scalar_refusals(advection: str, scheme: str) -> Iterator[tuple[str, str]]:
    """A sentence on the flux of a scalar that the flow's divergence does not go with, with its key path."""
    if SCHEMES[advection].order > 2 and scheme != "central4":
        yield (
            "physics.scheme",
            f"physics.scheme = {scheme}: expected central4 beside physics.advection={advection}, as no other flux "
            "keeps a constant in a flow whose divergence is of fourth order; write central4",
        )


def check_scalar(advection: str, scheme: str) -> None:
    """Refuse the flux of a scalar that the flow's divergence does not go with.

    Raises:
        ConfigurationError: see `scalar_refusals`.
    """
    for _, sentence in scalar_refusals(advection, scheme):
        raise ConfigurationError(f"{sentence}.")
