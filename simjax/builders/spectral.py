"""Flows in a Fourier basis, from a configuration, and the builders of everything that is solved in one."""

from collections.abc import Callable

from simjax.builders import semilinear
from simjax.builders.formulas import Values, forces_of
from simjax.config import Config
from simjax.core.domain import Domain
from simjax.models.random_forcing import Band
from simjax.models.spectral_flow import Params, SpectralFlow
from simjax.models.spectral_velocity import SpectralVelocity
from simjax.models.vorticity import Vorticity


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
    **semilinear.BUILDERS,
}
