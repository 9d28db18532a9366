"""The energy of electric and magnetic fields, and what takes and gives it."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.models.waves.energy import CONDUCTION, ENERGY, SOURCES, STEPS, WaveEnergy
from simjax.ops.spacing import scaled


class LightEnergy(WaveEnergy):
    """eps E^2 / 2 + mu H^2 / 2 of `models.waves.maxwell.Maxwell`, whose class has the fields and their curls."""

    def kicked_product(self: Any, one, other, params, prepared):
        """Integral of mu H . H' of two magnetic fields."""
        return self._product(one.magnetic, other.magnetic, prepared.impermeability, self.magnetic_layouts, prepared)

    def drifted_product(self: Any, one, other, params, prepared):
        """Integral of eps E . E' of two electric fields."""
        return self._product(one.electric, other.electric, prepared.impermittivity, self.electric_layouts, prepared)

    def _product(self: Any, one, other, inverses, layouts, prepared) -> Array:
        volumes = [self._volumes(prepared.scales, layout, one[0].dtype) for layout in layouts]
        entries = zip(one, other, inverses, volumes, strict=True)
        total = sum(jnp.sum(scaled(u * v / inverse, volume)) for u, v, inverse, volume in entries)
        return math.prod(self.domain.grid.mean_spacing) * jnp.asarray(total)

    def kicked_by_layers(self: Any, dt, after, prepared, axis):
        layer, curls = prepared.layers[axis], self.curls_of_electric
        factors = [-dt * m for m in layer.impermeability]
        change = self._by_layers_of(factors, curls, after.magnetic_memory, layer.center, axis)
        return eqx.tree_at(lambda s: s.magnetic, jax.tree.map(jnp.zeros_like, after), change)

    def drifted_by_layers(self: Any, dt, after, prepared, axis):
        layer, curls = prepared.layers[axis], self.curls_of_magnetic
        factors = [dt * e for e in layer.impermittivity]
        change = self._by_layers_of(factors, curls, after.electric_memory, layer.face, axis)
        return eqx.tree_at(lambda s: s.electric, jax.tree.map(jnp.zeros_like, after), change)

    def _by_layers_of(self: Any, factors, curls, memories, profile, axis: int) -> tuple[Array, ...]:
        """Changes by the layers along an axis to each component of a field that is advanced by a curl."""
        none, found = jnp.zeros(self.domain.block_shape, profile.weight.dtype), []
        for factor, curl, kept in zip(factors, curls, memories, strict=True):
            own = [m for (k, _, _), m in zip(curl, kept, strict=True) if k == axis]
            found.append(sum((self.layer.change(none, factor, profile, m, axis) for m in own), start=none))
        return tuple(found)

    def drifted_by_sources(self: Any, t, dt, after, params, prepared):
        change = jax.tree.map(jnp.zeros_like, after)
        fed = self.feed(t, dt, change.electric[self.along], params, prepared)
        if prepared.decay is not None:
            fed = fed * (1 + 0.5 * dt * prepared.decay[self.along])
        return eqx.tree_at(lambda s: s.electric[self.along], change, fed)

    def drifted(self: Any, t, dt, before, after, params, prepared):
        """See `WaveEnergy`; conduction takes sigma times the square of the mean of both electric fields."""
        accounts = WaveEnergy.drifted(self, t, dt, before, after, params, prepared)
        if prepared.decay is None:
            return accounts
        twice = jax.tree.map(jnp.add, before, after)
        lost = [-0.5 * dt * decay * u for decay, u in zip(prepared.decay, twice.electric, strict=True)]
        heat = self.drifted_product(twice, eqx.tree_at(lambda s: s.electric, twice, tuple(lost)), params, prepared)
        return {**accounts, CONDUCTION: {ENERGY: 0.5 * heat}}

    def made_by(self, name):
        return SOURCES, CONDUCTION, STEPS
