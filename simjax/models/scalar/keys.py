"""Physics keys of the transport family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simjax.errors import ConfigurationError
from simjax.schema.errors import unended
from simjax.schema.formula import Formula
from simjax.schema.kinds import Choice, Integer, Real, Text, entry
from simjax.schema.model_schema import IMEX, SCALAR_WALLS, FieldSchema, ModelSchema

UPWIND = ("van_leer", "minmod", "mc", "upwind", "weno5")
SCHEMES = (*UPWIND, "central", "central4")
INTEGRATORS = ("ssprk3", "ssprk2", "kutta3", "williamson3", "rk4", "heun", "midpoint", "euler", *IMEX)
"""Diffusion is explicit with the first ones and implicit with the IMEX schemes."""

_DIGITS = entry(Integer(3, 13), 8, about="digits to which an implicit solve is converged")


@dataclass(frozen=True)
class TransportPhysics:
    """dc/dt = -div(g u c) + div(kappa grad c) + s, with u, kappa and s among the coefficients."""

    scheme: str = entry(Choice(SCHEMES), "van_leer", about="advective flux")
    velocity_factor: str | None = entry(
        Text(optional=True, described="a formula of t and parameters", longest=200),
        None,
        about="factor g of the velocity in time, at most one in size",
    )
    digits: int = _DIGITS


@dataclass(frozen=True)
class BurgersPhysics:
    """dc/dt = -sum_i d(c^2 / 2)/dx_i + nu lap c."""

    viscosity: float = entry(Real(low=0.0), 0.0, units="m2 s-1", about="viscosity nu")
    scheme: str = entry(Choice(UPWIND), "van_leer", about="advective flux")
    digits: int = _DIGITS


def _check_factor(config: Any) -> Iterator[tuple[str, str]]:
    """The factor is a formula of t that stays within one, since the time step is that of the velocity alone."""
    import numpy as np

    text, key = config.physics.velocity_factor, "physics.velocity_factor"
    if text is None:
        return
    try:
        formula = Formula(text)
        formula.check_names(("t", *config.parameters))
    except ConfigurationError as error:
        yield key, unended(f"{key}: {error}")
        return
    times = np.linspace(0.0, config.time.end, 1001)
    size = np.abs(np.broadcast_to(formula({**config.parameters, "t": times}), times.shape))
    worst = int(np.argmax(np.where(np.isfinite(size), size, np.inf)))
    if not size[worst] <= 1 + 1e-12:
        found = f"{size[worst]:.4g} in size at t={times[worst]:.4g}"
        limit = "expected at most 1, as steps are limited by coefficients.velocity; enlarge that instead"
        yield key, f"{key} = {text!r}: {found}, {limit}"


def _conserved(config: Any) -> tuple[tuple[str, str], ...]:
    """Nothing is lost in a periodic box without sources."""
    fed = config.forcing or "source" in config.coefficients
    return (("mean_concentration", "maximum_concentration"),) if config.periodic and not fed else ()


SCHEMAS: tuple[ModelSchema, ...] = (
    ModelSchema(
        "transport",
        TransportPhysics,
        fields=(FieldSchema("concentration"),),
        walls=SCALAR_WALLS | {"slip": ()},
        coefficients=(
            FieldSchema("velocity", vector=True, units="m s-1", staggered=True, default=None),
            FieldSchema("diffusivity", units="m2 s-1"),
            FieldSchema("source", units="s-1", optional=True),
        ),
        integrators=INTEGRATORS,
        check=_check_factor,
        conserved=_conserved,
    ),
    ModelSchema(
        "burgers",
        BurgersPhysics,
        fields=(FieldSchema("concentration", units="m s-1"),),
        walls=SCALAR_WALLS,
        integrators=INTEGRATORS,
        forced=(),
        conserved=_conserved,
    ),
)
