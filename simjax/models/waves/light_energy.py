"""The energy of electric and magnetic fields, and what takes and gives it."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.grid import CENTER, FACE
from simjax.models.waves.energy import CONDUCTION, ENERGY, SOURCES, STEPS, WaveEnergy
from simjax.models.waves.pml import layer_change
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
        factors = [-dt * m for m in prepared.impermeability]
        change = self._by_layers_of(factors, self.curls_of_electric, after.magnetic_memory, prepared, axis, CENTER)
        return eqx.tree_at(lambda s: s.magnetic, jax.tree.map(jnp.zeros_like, after), change)

    def drifted_by_layers(self: Any, dt, after, prepared, axis):
        factors = [dt * e for e in prepared.impermittivity]
        change = self._by_layers_of(factors, self.curls_of_magnetic, after.electric_memory, prepared, axis, FACE)
        return eqx.tree_at(lambda s: s.electric, jax.tree.map(jnp.zeros_like, after), change)

    def _by_layers_of(self: Any, factors, curls, memories, prepared, axis: int, offset: float) -> tuple[Array, ...]:
        """Changes by the layers along an axis to each component of a field that is advanced by a curl."""
        weight, found = prepared.profiles[axis][0 if offset == FACE else 1].weight, []
        for factor, curl, kept in zip(factors, curls, memories, strict=True):
            terms = [layer_change(factor, weight, m) for (k, _, _), m in zip(curl, kept, strict=True) if k == axis]
            none = jnp.zeros(self.domain.block_shape, weight.dtype)
            found.append(sum(terms, start=none))
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
