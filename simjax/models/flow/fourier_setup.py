"""Flows in a Fourier basis, from a configuration."""

from collections.abc import Callable

from simjax.core.domain import Domain
from simjax.models.flow.fourier_flow import Params, SpectralFlow
from simjax.models.flow.random_forcing import Band
from simjax.models.flow.spectral_velocity import SpectralVelocity
from simjax.models.flow.vorticity import Vorticity
from simjax.models.formulas import Values, forces_of
from simjax.schema.config import Config


def _flow(kind: type[SpectralFlow]) -> Callable:
    def build(config: Config, domain: Domain, sides, values: Values, coefficients):
        physics = config.physics
        varied = {variation.path.removeprefix("physics.") for variation in config.ensemble.vary}

        def given(name: str):
            return values[name] if getattr(physics, name) > 0 or name in varied else None

        injection = given("injection")
        band = None if injection is None else Band(*physics.forcing_band)
        params = Params(
            values["viscosity"], values["drag"], given("hyperviscosity"), injection,
            None if injection is None else given("forcing_seed"),
        )  # fmt: skip
        forces = forces_of(config.forcing.get("velocity", ()), values)
        return kind(domain, sides, forces, order=physics.hyperviscosity_order, band=band), params

    return build


BUILDERS: dict[str, Callable] = {
    "vorticity": _flow(Vorticity),
    "spectral_velocity": _flow(SpectralVelocity),
}
