"""Sponges: layers beside sides in which fields are drawn towards given values, so that what reaches them dies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.grid import AXES, LOWER, Grid
from simjax.models.closure import Closure
from simjax.models.formulas import FormulaValue

if TYPE_CHECKING:
    from simjax.schema.config import Config


class Layer(eqx.Module):
    """A layer beside a side: the rate strength ((width - d) / width)^2 at the distance d < width from it, else zero.

    width: length. strength: 1 / time.
    """

    axis: int = eqx.field(static=True)
    side: int = eqx.field(static=True)
    width: Array
    strength: Array

    def rate(self, position: Array, grid: Grid) -> Array:
        """The rate at positions along the axis."""
        lower, upper = grid.lower[self.axis], grid.upper[self.axis]
        distance = position - lower if self.side == LOWER else upper - position
        depth = jnp.clip(1 - distance / self.width, 0, 1)
        return self.strength * depth * depth


class Relaxation(eqx.Module):
    """-sigma (u - u_0) of fields u, with sigma the sum of the rates of layers.

    targets: u_0 of every component, functions of time and place.
    """

    layers: tuple[Layer, ...]
    targets: tuple[FormulaValue, ...]
    grid: Grid = eqx.field(static=True)

    def __call__(self, *fields: Array, t: Array, **places: Array) -> tuple[Array, ...]:
        positions = [places[name] for name in AXES[: self.grid.ndim]]
        rates = [layer.rate(positions[layer.axis], self.grid) for layer in self.layers]
        rate = sum(rates[1:], rates[0])
        targets = (target(t, *positions) for target in self.targets)
        return tuple(rate * (target - u) for u, target in zip(fields, targets, strict=True))


class Sponge(Closure):
    """d(field)/dt = what the model says - sigma(x) (field - field_0): Israeli and Orszag (1981), J. Comput. Phys. 41,
    115; Bodony (2006), J. Comput. Phys. 212, 681; Mani (2012), J. Comput. Phys. 231, 704.

    sigma grows with the square of the depth in a layer, so that sound is weakened on its way through and little returns
    from where the layer begins: by exp(-2 strength width / (3 c)) on the way to the side and back, at the speed c. It
    is part of the tendency, of the order of the scheme in time, and its largest value shortens Courant-limited steps.
    """

    module: Relaxation

    def rate(self):
        highest = {}
        for layer in self.module.layers:
            other = highest.get(layer.axis)
            highest[layer.axis] = layer.strength if other is None else jnp.maximum(other, layer.strength)
        return sum(highest.values())


def sponge_of(config: Config, grid: Grid, values: Mapping[str, Array]) -> Sponge | None:
    """The section `sponge` as a term of the model; None without one. values: numbers by name."""
    if config.sponge is None:
        return None
    dtype = jnp.dtype(config.precision)

    def number(formula) -> Array:
        return jnp.asarray(formula(values, jnp), dtype)

    layers = tuple(Layer(one.axis, one.end, number(one.width), number(one.strength)) for one in config.sponge.layers)
    towards = config.sponge.towards
    fields = tuple(field.name for field in config.fields if field.name in towards)
    formulas = [formula for name in fields for formula in towards[name]]
    targets = tuple(
        FormulaValue(formula, {name: values[name] for name in formula.names if name in values}) for formula in formulas
    )
    return Sponge(Relaxation(layers, targets, grid), fields, coordinates=(*AXES[: grid.ndim], "t"))
