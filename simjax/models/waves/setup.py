"""Acoustic and electromagnetic waves from a configuration."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from simjax.core.domain import Domain
from simjax.models.formulas import FormulaValue, Values
from simjax.models.waves import acoustic, maxwell
from simjax.models.waves.keys import SignalFile, read_signal
from simjax.models.waves.point_sources import SampledSignal
from simjax.schema.config import Config

POLARISATIONS = {"maxwell_tm": "tm", "maxwell_te": "te", "maxwell": "full"}


def _property(config: Config, coefficients, name: str) -> Array | None:
    """A coefficient: one number where its formula is constant, as that is faster, else the field; None: not given."""
    source = config.coefficients.get(name)
    if source is None:
        return None
    if isinstance(source, tuple) and source[0].constant is not None:
        return jnp.asarray(source[0].constant, jnp.dtype(config.precision))
    return coefficients[name][0]


def _points(config: Config, values: Values) -> dict:
    """Sources, their signals, and receivers, as parameters."""
    dtype = jnp.dtype(config.precision)
    physics = config.physics
    return {
        "sources": jnp.asarray([s.position for s in physics.sources], dtype) if physics.sources else None,
        "signals": tuple(_signal(source.signal, values, dtype) for source in physics.sources),
        "receivers": jnp.asarray(physics.receivers, dtype) if physics.receivers else None,
    }


def _signal(signal, values: Values, dtype) -> SampledSignal | FormulaValue:
    if isinstance(signal, SignalFile):
        return SampledSignal(*(jnp.asarray(column, dtype) for column in read_signal(signal.file)))
    return FormulaValue(signal, {name: value for name, value in values.items() if name in signal.names})


def _acoustic(config: Config, domain: Domain, sides, values: Values, coefficients):
    physics = config.physics
    model = acoustic.Acoustic(domain, sides, order=physics.order, layer_cells=physics.layer_cells)
    medium = {name: _property(config, coefficients, name) for name in ("speed", "density")}
    return model, acoustic.Params(**medium, **_points(config, values))


def _maxwell(config: Config, domain: Domain, sides, values: Values, coefficients):
    physics = config.physics
    model = maxwell.Maxwell(
        domain, sides, polarisation=POLARISATIONS[config.model],
        along=physics.along, order=physics.order, layer_cells=physics.layer_cells,
    )  # fmt: skip
    names = ("permittivity", "permeability", "conductivity")
    medium = {name: _property(config, coefficients, name) for name in names}
    return model, maxwell.Params(**medium, **_points(config, values))


BUILDERS: dict[str, Callable] = {"acoustic": _acoustic, **dict.fromkeys(POLARISATIONS, _maxwell)}
