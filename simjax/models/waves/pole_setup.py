"""Poles of dispersive media in configurations of light."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import jax.numpy as jnp

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.declaration import Setup
from simjax.models.waves.poles import DebyePole, DrudePole, LorentzPole, Pole
from simjax.models.waves.wave_setup import MediumFormula, named_formula
from simjax.schema.config_errors import ConfigErrors, unended
from simjax.schema.formula import Formula
from simjax.schema.kinds import ListOf, Nested, OneOf, Plain, Real, key

STRENGTH = "strength"


@dataclass(frozen=True)
class NumberOrFormula(Plain):
    """A number within bounds, or a formula."""

    number: Real
    names: str

    @property
    def allowed(self) -> str:
        return f"{self.number.allowed}, or a formula of {self.names}"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Formula | None:
        if value is None and self.number.optional:
            return None
        if value is None:
            problems.add(path, value, self.allowed)
            return None
        try:
            formula = Formula(value)
        except ConfigurationError as error:
            problems.add(path, value, self.allowed, unended(error))
            return None
        if formula.constant is not None and not self.number.contains(formula.constant):
            problems.add(path, value, self.allowed)
            return None
        return formula


def _strength(about: str) -> Any:
    return key(NumberOrFormula(Real(low=0.0), "place and parameters"), units="F m-1", about=about)


def _positive(units: str, about: str) -> Any:
    return key(NumberOrFormula(Real(above=0.0), "parameters"), units=units, about=about)


def _damping() -> Any:
    kind = NumberOrFormula(Real(low=0.0, optional=True), "parameters")
    return key(kind, None, units="s-1", about="damping; without it there are no losses")


@dataclass(frozen=True)
class DrudeConfig:
    """Free charges."""

    strength: Formula = _strength("permittivity of which `frequency` is the plasma frequency, zero elsewhere")
    frequency: Formula = _positive("s-1", "plasma frequency, in radians per second")
    damping: Formula | None = _damping()


@dataclass(frozen=True)
class LorentzConfig:
    """Bound charges that resonate."""

    strength: Formula = _strength("what the pole adds to the permittivity at low frequencies, zero elsewhere")
    frequency: Formula = _positive("s-1", "frequency of the resonance, in radians per second")
    damping: Formula | None = _damping()


@dataclass(frozen=True)
class DebyeConfig:
    """Dipoles that relax."""

    strength: Formula = _strength("what the pole adds to the permittivity at low frequencies, zero elsewhere")
    relaxation_time: Formula = _positive("s", "time in which the dipoles follow")


POLES: dict[str, tuple[type, type[Pole]]] = {
    "drude": (DrudeConfig, DrudePole),
    "lorentz": (LorentzConfig, LorentzPole),
    "debye": (DebyeConfig, DebyePole),
}
"""Name -> the class of its keys and that of the pole, with the same names."""


@dataclass(frozen=True)
class PoleKeys:
    """Keys of media of light beside their coefficients."""

    poles: tuple[tuple[str, Any], ...] = key(
        ListOf(OneOf({name: Nested(keys) for name, (keys, _) in POLES.items()}), noun="poles"),
        (),
        about="poles of the permittivity of a dispersive medium",
    )


def check_poles(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences on formulas of poles that name what they do not know, or have no value that a pole can have."""
    parameters = config.parameters
    for number, (kind, keys) in enumerate(config.physics.poles):
        for item in fields(keys):
            formula, path = getattr(keys, item.name), f"physics.poles[{number}].{kind}.{item.name}"
            if formula is None:
                continue
            axes = AXES[: len(config.grid.shape)] if item.name == STRENGTH else ()
            try:
                formula.check_names((*axes, *parameters))
            except ConfigurationError as error:
                yield path, unended(f"{path}: {error}")
                continue
            if not formula.names & {*axes}:
                value, expected = float(formula(parameters)), item.metadata["kind"].number
                if not expected.contains(value):
                    yield path, f"{path} = {formula.text!r} is {value:g}: expected {expected.allowed}"


def poles_of(setup: Setup) -> tuple[Pole, ...]:
    """The poles of a configuration: strengths that vary in place are functions of it."""
    dtype = jnp.dtype(setup.config.precision)

    def value(formula: Formula | None, name: str) -> Any:
        if formula is None:
            return None
        known = named_formula(formula, setup.values)
        if name == STRENGTH and formula.names & {*AXES}:
            return MediumFormula(known, dtype)
        return jnp.asarray(known(0.0), dtype)

    return tuple(
        POLES[kind][1](**{item.name: value(getattr(keys, item.name), item.name) for item in fields(keys)})
        for kind, keys in setup.keys.poles
    )
