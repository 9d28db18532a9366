"""Formulas of a configuration as functions that models can call."""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.core.grid import AXES
from simjax.formula import Formula

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


class FormulaForce(eqx.Module):
    """A component of a forcing given by a formula."""

    value: FormulaValue

    def __call__(self, t, coordinates, params) -> Array:
        return self.value(t, *coordinates)


def forces_of(formulas: tuple[Formula, ...], values: Values) -> tuple[FormulaForce | None, ...]:
    """One function per component, None where it vanishes."""
    return tuple(None if f.constant == 0 else FormulaForce(FormulaValue(f, dict(values))) for f in formulas)
