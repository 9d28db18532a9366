"""Physics keys of flows in a Fourier basis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from simjax.schema.kinds import Integer, ListOf, Real, entry
from simjax.schema.model_schema import SEMILINEAR, FieldSchema, ModelSchema


@dataclass(frozen=True)
class SpectralFlowPhysics:
    """du/dt + (u . grad) u = -grad p + nu lap u - eta (-lap)^order u - alpha u + f, div u = 0, periodic."""

    viscosity: float = entry(Real(low=0.0), units="m2 s-1", about="kinematic viscosity nu")
    drag: float = entry(Real(low=0.0), 0.0, units="s-1", about="linear drag alpha")
    hyperviscosity: float = entry(Real(low=0.0), 0.0, about="hyperviscosity eta, in m^(2 order) s-1")
    hyperviscosity_order: int = entry(Integer(2, 16), 2, about="power of the Laplacian that eta multiplies")
    injection: float = entry(Real(low=0.0), 0.0, units="m2 s-3", about="energy per time from random forcing")
    forcing_band: tuple[float, float] | None = entry(
        ListOf(Real(above=0.0), 2, 2, optional=True, noun="wavenumbers"), None,
        units="m-1", about="lowest and highest wavenumber, radians per length, of the random forcing",
    )  # fmt: skip
    forcing_seed: float = entry(Real(low=0.0), 0.0, about="seed of the random forcing, a whole number")


def _check(config: Any) -> Iterable[tuple[str, str]]:
    physics = config.physics
    if not config.initial:
        yield "initial", f"initial is empty: model={config.model} needs initial.velocity or initial.vorticity"
    varied = {variation.path for variation in config.ensemble.vary}
    if physics.forcing_band is None and (physics.injection > 0 or "physics.injection" in varied):
        yield (
            "physics.forcing_band",
            f"physics.injection = {physics.injection:g} but physics.forcing_band is missing: expected the lowest and "
            "highest wavenumber that random forcing feeds, such as [3, 5]",
        )
    if physics.forcing_band is not None and physics.forcing_band[0] > physics.forcing_band[1]:
        yield "physics.forcing_band", f"physics.forcing_band = {list(physics.forcing_band)}: expected [lowest, highest]"
    if physics.forcing_seed != int(physics.forcing_seed):
        yield "physics.forcing_seed", f"physics.forcing_seed = {physics.forcing_seed:g}: expected a whole number"


def _falling(config: Any) -> tuple[str, ...]:
    """Energy only falls where nothing feeds it; without viscosity its changes are those of the time steps."""
    fed = config.forcing or config.physics.forcing_band is not None
    return ("kinetic_energy",) if not fed and config.physics.viscosity > 0 else ()


_VELOCITY = FieldSchema("velocity", vector=True, units="m s-1", default=None)

SCHEMAS: tuple[ModelSchema, ...] = (
    ModelSchema(
        "vorticity",
        SpectralFlowPhysics,
        fields=(
            FieldSchema("vorticity", units="s-1", default=None, optional=True),
            FieldSchema("velocity", vector=True, units="m s-1", default=None, optional=True),
        ),
        walls={},
        least_axes=2,
        most_axes=2,
        integrators=SEMILINEAR,
        forced=(_VELOCITY,),
        check=_check,
        falling=_falling,
    ),
    ModelSchema(
        "spectral_velocity",
        SpectralFlowPhysics,
        fields=(_VELOCITY,),
        walls={},
        diagnosed=lambda ndim: ("vorticity_magnitude",),
        least_axes=3,
        most_axes=3,
        integrators=SEMILINEAR,
        forced=(_VELOCITY,),
        check=_check,
        falling=_falling,
    ),
)
