"""Formulas of a configuration as functions that models can call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.closure import Closure
from simjax.schema.config_errors import unended
from simjax.schema.formula import COORDINATES, Formula

if TYPE_CHECKING:
    from simjax.schema.config import Config

Values = Mapping[str, Array]
"""Every number that formulas and physics know by name: scalars, traced, so they can vary and be differentiated."""


class FormulaValue(eqx.Module):
    """A formula of time, position and named values, as a function `(t, *coordinates)`."""

    formula: Formula = eqx.field(static=True)
    values: dict[str, Array]

    def __call__(self, t, *coordinates: Array, noise: Callable | None = None) -> Array:
        namespace = dict(self.values) | dict(zip(AXES, coordinates, strict=False)) | {"t": t}
        if noise is not None:
            namespace["noise"] = noise
        return self.formula(namespace, jnp)


def formula_refusals(path: str, value: Any, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """A sentence on a value that is a formula and names something else than `names`, with its key path."""
    if isinstance(value, Formula):
        try:
            value.check_names(tuple(names))
        except ConfigurationError as error:
            yield path, unended(f"{path}: {error}")


class FormulaForce(eqx.Module):
    """A component of a forcing given by a formula."""

    value: FormulaValue

    def __call__(self, t, coordinates, params) -> Array:
        return self.value(t, *coordinates)


class FormulaTerm(eqx.Module):
    """Tendencies of fields given by formulas of all of them, of position and time, and of named values.

    names: of the fields' components, in the order in which they are given; formulas: None where nothing is added.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    formulas: tuple[Formula | None, ...] = eqx.field(static=True)
    values: dict[str, Array]

    def __call__(self, *fields: Array, **coordinates: Array) -> tuple[Array, ...]:
        namespace = self.values | coordinates | dict(zip(self.names, fields, strict=True))
        found = [0.0 if formula is None else formula(namespace, jnp) for formula in self.formulas]
        return tuple(jnp.broadcast_to(jnp.asarray(f, u.dtype), u.shape) for f, u in zip(found, fields, strict=True))


def closure_of(config: Config, values: Values) -> Closure | None:
    """The section `closure` as a term of the model; None without one."""
    used = {name for formulas in config.closure.values() for formula in formulas for name in formula.names}
    fields = {}
    for field in config.fields:
        names = field.components(config.ndim, config.counts.get(field.name, 0))
        if field.name in config.closure or used & {*names}:
            fields[field.name] = names
    if not config.closure:
        return None
    formulas = [f for name, names in fields.items() for f in config.closure.get(name, (None,) * len(names))]
    components = tuple(name for names in fields.values() for name in names)
    coordinates = tuple(name for name in COORDINATES if name in used)
    named = {name: values[name] for name in used - {*components, *coordinates}}
    return Closure(FormulaTerm(components, tuple(formulas), named), tuple(fields), coordinates=coordinates)


def forces_of(formulas: tuple[Formula, ...], values: Values) -> tuple[FormulaForce | None, ...]:
    """Body forces as one function per component, None for a component that vanishes."""
    return tuple(None if f.constant == 0 else FormulaForce(FormulaValue(f, dict(values))) for f in formulas)
