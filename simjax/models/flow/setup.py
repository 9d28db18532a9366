"""A scalar in a uniform velocity, incompressible flow, and a scalar in that, from a configuration."""

from collections.abc import Callable

import jax.numpy as jnp

from simjax.core.domain import Domain
from simjax.grid import AXES
from simjax.models.flow import incompressible, passive_scalar
from simjax.models.formulas import Values, forces_of
from simjax.models.scalar import advection_diffusion
from simjax.schema.config import Config
from simjax.schema.formula import Formula


def _advection_diffusion(config: Config, domain: Domain, sides, values: Values, coefficients):
    velocity = jnp.stack([values[f"velocity_{axis}"] for axis in AXES[: domain.grid.ndim]])
    params = advection_diffusion.Params(values["diffusivity"], velocity)
    return advection_diffusion.AdvectionDiffusion(domain, sides, config.physics.scheme), params


def _incompressible(config: Config, domain: Domain, sides, values: Values, coefficients):
    forces = forces_of(config.forcing.get("velocity", ()), values) or None
    params = incompressible.Params(values["viscosity"], values["drag"])
    return incompressible.Incompressible(domain, sides, forces), params


def _passive_scalar(config: Config, domain: Domain, sides, values: Values, coefficients):
    (source,) = forces_of(config.forcing.get("concentration", (Formula(0.0),)), values)
    model = passive_scalar.PassiveScalar(
        domain, sides, config.physics.scheme,
        forces=forces_of(config.forcing.get("velocity", ()), values) or None,
        source=source,
    )  # fmt: skip
    return model, passive_scalar.Params(values["viscosity"], values["drag"], values["diffusivity"])


BUILDERS: dict[str, Callable] = {
    "advection_diffusion": _advection_diffusion,
    "incompressible": _incompressible,
    "passive_scalar": _passive_scalar,
}
