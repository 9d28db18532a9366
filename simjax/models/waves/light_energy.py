"""The energy of electric and magnetic fields, and what takes and gives it."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.models.waves.energy import CONDUCTION, ENERGY, SOURCES, STEPS, WaveEnergy
from simjax.models.waves.poles import half_losses, of_component
from simjax.ops.spacing import scaled


class LightEnergy(WaveEnergy):
    """eps E^2 / 2 + mu H^2 / 2 of `models.waves.maxwell.Maxwell`, whose class has the fields and their curls.

    Poles of the medium have theirs with E: half their strengths times the squares of what they keep.
    """

    def kicked_product(self: Any, one, other, params, prepared):
        """Integral of mu H . H' of two magnetic fields."""
        return self._product(one.magnetic, other.magnetic, prepared.impermeability, self.magnetic_layouts, prepared)

    def drifted_product(self: Any, one, other, params, prepared):
        """Integral of eps E . E' of two electric fields, and of what poles keep."""
        total = self._electric_product(one.electric, other.electric, prepared)
        for pole, kept, others in zip(prepared.poles, one.poles, other.poles, strict=True):
            for u, v in zip(zip(*kept, strict=True), zip(*others, strict=True), strict=True):
                weighted = tuple(share * w for share, w in zip(pole.strength, v, strict=True))
                total = total + self._electric_product(u, weighted, prepared)
        return total

    def _electric_product(self: Any, one, other, prepared) -> Array:
        return self._product(one, other, prepared.impermittivity, self.electric_layouts, prepared)

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
        lost = half_losses(dt, *of_component(self.along, prepared))
        if lost is not None:
            fed = fed * (1 + lost)
        return eqx.tree_at(lambda s: s.electric[self.along], change, fed)

    def drifted(self: Any, t, dt, before, after, params, prepared):
        """See `WaveEnergy`; conduction takes sigma times the square of the mean of both electric fields.

        The damping of poles counts as conduction: both turn the field's energy into heat.
        """
        accounts = WaveEnergy.drifted(self, t, dt, before, after, params, prepared)
        lossy = [number for number, pole in enumerate(prepared.poles) if pole.lossy]
        if prepared.decay is None and not lossy:
            return accounts
        twice = [u + v for u, v in zip(before.electric, after.electric, strict=True)]
        heats = []
        if prepared.decay is not None:
            lost = [-0.5 * dt * decay * u for decay, u in zip(prepared.decay, twice, strict=True)]
            heats.append(0.5 * self._electric_product(twice, lost, prepared))
        for number in lossy:
            pole, kept = prepared.poles[number], (before.poles[number], after.poles[number])
            heat = [
                -share * pole.heat(dt, 0.5 * u, *parts)
                for share, u, *parts in zip(pole.strength, twice, *kept, strict=True)
            ]
            heats.append(self._electric_product([jnp.ones_like(u) for u in twice], heat, prepared))
        return {**accounts, CONDUCTION: {ENERGY: sum(heats[1:], heats[0])}}

    def made_by(self, name):
        return SOURCES, CONDUCTION, STEPS

    def unbalanced(self: Any, names: tuple[str, ...]) -> str:
        """See `conserved.Accountable.unbalanced`."""
        given = {"incident": self.incident is not None, "mode_sources": bool(self.mode_sources)}
        for key in (key for key, there in given.items() if there):
            return f"a balance of energy does not know what physics.{key} brings: leave one of both out"
        return ""
