"""A carried scalar in cylindrical coordinates (r, z): what it does not take there."""

from collections.abc import Iterator
from typing import Any

from simjax.models.axisymmetric_grid import ASKED, RINGS, Across, across_of_configuration, side_refusals
from simjax.ops import scalar_fluxes
from simjax.schema.exclusions import Exclusion, Exclusions, Feature
from simjax.schema.model_schema import IMEX

TAKEN = tuple(name for name, scheme in scalar_fluxes.SCHEMES.items() if not scheme.reach)
EXCLUSIONS = Exclusions(
    {
        "rings": RINGS,
        "wide_flux": Feature(
            "central4 and weno5 (`physics.scheme`)", instead=f"write {', '.join(TAKEN[:-1])} or {TAKEN[-1]}"
        ),
        "implicit": Feature(
            f"implicit diffusion (`time.integrator`: {', '.join(IMEX)})",
            instead="write ssprk3 or another scheme that is explicit",
        ),
        "velocity_across": Feature(
            "a uniform velocity along x (`physics.velocity`)",
            instead="write [0, w], or model=transport with a velocity that varies",
        ),
    },
    (
        Exclusion("wide_flux", "rings", "as its fluxes would be of second order on an axisymmetric one"),
        Exclusion("implicit", "rings", "on which alone its solve is made"),
        Exclusion("velocity_across", "rings", "as one velocity along r does not keep volumes"),
    ),
)


IMPLICIT = {"rings": ASKED, "implicit": "time.integrator of implicit diffusion"}


def refusals(across: Across | None, scheme: str, **others: bool) -> Iterator[tuple[str, str]]:
    """Sentences on what a scalar with this flux does not take, each with its key path; others: features it has."""
    if across is None:
        return
    yield from side_refusals(across.kinds[0], across.at_axis)
    given = {"wide_flux": f"physics.scheme = {scheme}", "velocity_across": "physics.velocity along r", **IMPLICIT}
    has = {"rings": True, "wide_flux": scheme not in TAKEN, **others}
    yield from EXCLUSIONS.refusals({name: given[name] for name, found in has.items() if found})


def check_configuration(config: Any, velocity_across: bool = False) -> Iterator[tuple[str, str]]:
    """The `refusals` of a configuration; velocity_across: whether one velocity along r carries the scalar."""
    implicit = config.time.integrator in IMEX
    across = across_of_configuration(config)
    yield from refusals(across, config.physics.scheme, implicit=implicit, velocity_across=velocity_across)
