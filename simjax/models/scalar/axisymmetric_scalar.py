"""A carried scalar in cylindrical coordinates (r, z): what it takes there."""

from collections.abc import Iterator, Sequence
from typing import Any

from simjax.core.boundary import Side
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.models.axisymmetric_grid import kind_across, side_refusals
from simjax.ops import scalar_fluxes
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.schema.model_schema import IMEX

TAKEN = tuple(name for name, scheme in scalar_fluxes.SCHEMES.items() if not scheme.reach)
IMPLICIT = "diffusion is explicit on an axisymmetric grid"


def refusals(lower: str, at_axis: bool, scheme: str) -> Iterator[tuple[str, str]]:
    """Sentences on what a scalar does not take, each with its key path; `lower`: the kind of side where r begins."""
    yield from side_refusals(lower, at_axis)
    yield from scheme_refusals(scheme)


def scheme_refusals(scheme: str) -> Iterator[tuple[str, str]]:
    """A sentence on an advective flux of a scalar that cells as rings do not take, with its key path."""
    if scheme not in TAKEN:
        yield (
            "physics.scheme",
            f"physics.scheme = {scheme}: its fluxes would be of second order on an axisymmetric grid; write "
            f"{', '.join(TAKEN[:-1])} or {TAKEN[-1]}",
        )


def check_configuration(config: Any) -> Iterator[tuple[str, str]]:
    """The `refusals` of a configuration, and that of implicit diffusion."""
    if not config.grid.axisymmetric:
        return
    at_axis, lower = config.grid.lower[RADIAL] == 0, config.boundaries[RADIAL].lower.kind
    yield from refusals(lower, at_axis, config.physics.scheme)
    if config.time.integrator in IMEX:
        yield (
            "time.integrator",
            f"time.integrator = {config.time.integrator}: {IMPLICIT}; write ssprk3 or another scheme that is explicit",
        )


def check(domain: Domain, sides: Sequence[tuple[Side, Side]], scheme: str) -> None:
    """Refuse what a scalar does not take on an axisymmetric grid.

    Raises:
        ConfigurationError: see `refusals`.
    """
    if domain.grid.axisymmetric:
        for _, sentence in refusals(kind_across(sides), domain.grid.lower[RADIAL] == 0, scheme):
            raise ConfigurationError(f"{sentence}.")


def check_explicit(domain: Domain) -> None:
    """Refuse an implicit solve on an axisymmetric grid.

    Raises:
        ConfigurationError: it is one.
    """
    if domain.grid.axisymmetric:
        raise ConfigurationError(f"{IMPLICIT[0].upper()}{IMPLICIT[1:]}; take a Runge-Kutta scheme such as ssprk3.")
