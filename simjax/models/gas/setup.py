"""A compressible gas from a configuration."""

from collections.abc import Callable

import jax.numpy as jnp

from simjax.core.domain import Domain
from simjax.grid import AXES
from simjax.models.formulas import Values
from simjax.models.gas import compressible
from simjax.ops.gas import Scheme
from simjax.schema.config import Config


def _compressible(config: Config, domain: Domain, sides, values: Values, coefficients):
    physics, axes = config.physics, AXES[: domain.grid.ndim]
    varied = {variation.name for variation in config.ensemble.vary}
    viscosity, gamma, gas_constant = values["viscosity"], values["gamma"], values["gas_constant"]
    conductivity = values["conductivity"]
    if "prandtl" in values:
        conductivity = viscosity * gamma * gas_constant / ((gamma - 1) * values["prandtl"])
    gravity = physics.gravity or (0.0,) * len(axes)
    model = compressible.Compressible(
        domain,
        sides,
        Scheme(physics.reconstruction, physics.variables, physics.flux),
        gravity_axes=tuple(axis for axis, pull in enumerate(gravity) if pull != 0),
        scalars=config.counts.get("scalars", 0),
        gas_constant=gas_constant,
    )
    params = compressible.Params(
        gamma,
        viscosity if physics.viscosity or "viscosity" in varied else None,
        conductivity if physics.conductivity or physics.prandtl or "conductivity" in varied else None,
        jnp.stack([values[f"gravity_{axis}"] for axis in axes]) if any(gravity) else None,
        values.get("density_floor"),
        values.get("pressure_floor"),
    )
    return model, params


BUILDERS: dict[str, Callable] = {"compressible": _compressible}
