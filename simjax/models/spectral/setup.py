"""The semilinear equations solved in a Fourier basis, from a configuration."""

import functools
from collections.abc import Callable

from simjax.core.domain import Domain
from simjax.models.formulas import Values
from simjax.models.spectral import nonlinear_waves, patterns, phase_fields, schroedinger
from simjax.models.spectral.base import SpectralModel
from simjax.models.spectral.forces import forces_by_field
from simjax.schema.config import Config


def build_spectral(
    model: type[SpectralModel], config: Config, domain: Domain, sides, values: Values, coefficients, **options
):
    """A model whose parameters are numbers by name, with the sources of its fields."""
    params = {name: values[name] for name in model.parameters}
    return model(domain, sides, forces_by_field(config, values), **options), params


def _kuramoto_sivashinsky(config: Config, domain: Domain, sides, values: Values, coefficients):
    model, integral = nonlinear_waves.KuramotoSivashinsky, config.physics.form == "height"
    return build_spectral(model, config, domain, sides, values, coefficients, integral=integral)


def _schroedinger(config: Config, domain: Domain, sides, values: Values, coefficients):
    (potential,) = coefficients.get("potential", (None,))
    params = schroedinger.Params(values["interaction"], potential)
    return schroedinger.Schroedinger(domain, sides), params


BUILDERS: dict[str, Callable] = {
    "viscous_burgers": functools.partial(build_spectral, nonlinear_waves.Burgers),
    "korteweg_de_vries": functools.partial(build_spectral, nonlinear_waves.KortewegDeVries),
    "kuramoto_sivashinsky": _kuramoto_sivashinsky,
    "allen_cahn": functools.partial(build_spectral, phase_fields.AllenCahn),
    "cahn_hilliard": functools.partial(build_spectral, phase_fields.CahnHilliard),
    "swift_hohenberg": functools.partial(build_spectral, patterns.SwiftHohenberg),
    "gray_scott": functools.partial(build_spectral, patterns.GrayScott),
    "schroedinger": _schroedinger,
}
