"""Further scalars beside the one that an incompressible flow carries: salt, vapour, sediment."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least
from simjax.core.boundary import FieldLayout, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.given_values import called
from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.axisymmetric_grid import dimensions, relative_volumes
from simjax.models.conserved import MADE, inside
from simjax.models.declaration import Setup
from simjax.models.flow import carrying
from simjax.models.flow.carrying import CarryingFlow
from simjax.models.flow.features import refusals
from simjax.models.measures import total_measure
from simjax.models.scalar.conserved_scalar import Source, statistics, statistics_measures
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import ListOf, Real
from simjax.schema.model_schema import FieldSchema

SCALARS = FieldSchema("scalars", free=True, optional=True)
LISTS = ("scalar_diffusivity", "scalar_expansion")
"""Keys of the physics with one number for each of these scalars."""


def one_per_scalar(element: Real) -> ListOf:
    """A list of one number for each of these scalars."""
    return ListOf(element, 0, 100, noun="numbers, one per scalar", numbered=True)


class Params(carrying.Params):
    """scalar_diffusivity, scalar_expansion: `(scalars,)`, length^2 / time and 1 / scalar; None where there are none."""

    scalar_diffusivity: Array | None = eqx.field(default=None, kw_only=True)
    scalar_expansion: Array | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        require_at_least("SeveralScalars.Params", {"scalar_diffusivity": self.scalar_diffusivity})


class SeveralScalars(CarryingFlow):
    """A flow that carries `scalars` of its state beside its own one, each with a diffusivity.

    They are carried as that one is, by the same scheme and eddies, and have layouts and sources of their own (None:
    nothing makes any). Sides give as many values as there are scalars, or none.
    """

    scalar_layouts: tuple[FieldLayout, ...]
    scalar_sources: tuple[Source | None, ...]

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        scheme: str,
        *,
        scalars: int = 0,
        scalar_sources: Sequence[Source | None] | None = None,
        **flow: Any,
    ):
        super().__init__(domain, sides, scheme, **flow)
        count, name = scalars, type(self).__name__
        raise_first(refusals(dataclasses.replace(self.choices, scalars=count)))
        for axis, pair in enumerate(sides):
            for given in (getattr(side, "scalars", None) for side in pair):
                if given is not None and len(given) != count:
                    raise ConfigurationError(
                        f"boundaries.{AXES[axis]}: scalars of {len(given)} value(s) where {count} were expected; write "
                        f"one per scalar of {name}."
                    )
        self.scalar_layouts = tuple(
            center_layout([tuple(side.further_boundary(number) for side in pair) for pair in sides])
            for number in range(count)
        )
        self.scalar_sources = (None,) * count if scalar_sources is None else tuple(scalar_sources)

    @property
    def scalar_names(self) -> tuple[str, ...]:
        """Names in diagnostics and balances."""
        return tuple(f"scalar_{number}" for number in range(len(self.scalar_layouts)))

    def scalar_tendencies(self, t, state, params) -> tuple[Array, ...]:
        """-div(u s) + D lap(s) + its source, of every scalar."""
        found = []
        for number, (s, layout) in enumerate(zip(state.scalars, self.scalar_layouts, strict=True)):
            slope = self.transported(t, state, params, s, layout, params.scalar_diffusivity[number])
            made = self._made(number, t, params, s.dtype)
            found.append(slope if made is None else slope + made)
        return tuple(found)

    def _made(self, number: int, t, params, dtype) -> Array | None:
        """Rate at which the source of a scalar makes it, if it has one."""
        source = self.scalar_sources[number]
        if source is None:
            return None
        places = self.domain.coordinates(self.scalar_layouts[number].offset, dtype)
        return called(source, "source(t, coordinates, params)", (t, places, params), self.domain.block_shape)

    def constrain(self, t, dt, state, params):
        return dataclasses.replace(super().constrain(t, dt, state, params), scalars=state.scalars)

    def largest_diffusivity(self, params) -> Array:
        largest = super().largest_diffusivity(params)
        return jnp.maximum(largest, jnp.max(params.scalar_diffusivity)) if self.scalar_layouts else largest

    # ------------------------------------------------------------------ balances

    def balanced(self):
        measures = {name: total_measure(name, "1", dimensions(self.domain.grid)) for name in self.scalar_names}
        return super().balanced() | measures

    def amounts(self, state, params):
        parts = zip(self.scalar_names, state.scalars, strict=True)
        own = {name: inside(self.domain, s, s, self.widths(s.dtype)) for name, s in parts}
        return {**super().amounts(state, params), **own}

    def conductivities(self, params):
        own = {name: params.scalar_diffusivity[number] for number, name in enumerate(self.scalar_names)}
        return {**super().conductivities(params), **own}

    def fluxes_of_scalars(self, t, state, params, plane):
        parts = enumerate(zip(self.scalar_names, state.scalars, self.scalar_layouts, strict=True))
        own = {
            name: self.carried_through(t, state, params, s, layout, params.scalar_diffusivity[number], plane)
            for number, (name, s, layout) in parts
        }
        return {**super().fluxes_of_scalars(t, state, params, plane), **own}

    def made(self, t, state, params):
        found, own = dict(super().made(t, state, params)), {}
        for number, (name, s) in enumerate(zip(self.scalar_names, state.scalars, strict=True)):
            rate = self._made(number, t, params, s.dtype)
            if rate is not None:
                own[name] = inside(self.domain, rate, s, self.widths(s.dtype))
        return {**found, MADE: {**found.get(MADE, {}), **own}} if own else found

    def made_by(self, name):
        return (MADE,) if name in self.scalar_names else super().made_by(name)

    # ------------------------------------------------------------------ what is seen of it

    def diagnostics(self, t, state, params):
        """Diagnostics of the flow and its own scalar, and total_scalar_0, mean_scalar_0, ... of the others."""
        found = dict(super().diagnostics(t, state, params))
        for name, s, layout in zip(self.scalar_names, state.scalars, self.scalar_layouts, strict=True):
            volumes = relative_volumes(self.domain, layout, self.widths(s.dtype), s.dtype)
            found |= statistics(self.domain, s, volumes, name)
        return found

    def measures(self):
        found = dict(super().measures())
        for name in self.scalar_names:
            found |= statistics_measures(self.domain, "1", name)
        return found

    def component_layouts(self):
        return super().component_layouts() | ({"scalars": self.scalar_layouts} if self.scalar_layouts else {})

    def state_from(self, fields, params):
        return dataclasses.replace(super().state_from(fields, params), scalars=tuple(fields.get("scalars", ())))

    def outputs(self):
        further = (
            Output(f"scalars_{number}", layout.offset, layout.units, f"scalar {number}")
            for number, layout in enumerate(self.scalar_layouts)
        )
        own, *flow = super().outputs()
        return own, *further, *flow


def scalar_params(setup: Setup) -> dict[str, Any]:
    """Parameters of a configuration that `Params` has for its scalars, by name."""
    count = setup.config.counts.get("scalars", 0)
    if not count:
        return {}
    return {name: jnp.stack([setup.values[f"{name}_{number}"] for number in range(count)]) for name in LISTS}


def check_scalars(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences about scalars that contradict their keys."""
    count = config.counts.get("scalars", 0)
    for name in LISTS:
        given = list(getattr(config.physics, name))
        if len(given) != count:
            path = f"physics.{name}"
            write = f"write such as {path}={[0.001] * count}" if count else "leave it out, or give them"
            yield path, f"{path} = {given}: expected {count} number(s), one per scalar of initial.scalars; {write}"
