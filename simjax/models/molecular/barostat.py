"""Dynamics at constant pressure: the box changes its size."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.arguments import require_at_least
from simjax.models.molecular.langevin import BathParams, thermalised
from simjax.models.molecular.pair_potentials import PairPotential
from simjax.models.molecular.velocity_verlet import Dynamics, System, drift, kick
from simjax.notebook import all_in_a_line


class Box(eqx.Module):
    """scale: length of the box over its length at the start. virial: sum over pairs of r . F, an energy."""

    scale: Array
    virial: Array


class PressureParams(eqx.Module):
    """A bath of given temperature and pressure.

    bath: that of the velocities. pressure: P. compressibility: beta, 1/pressure, about that of the fluid; it only sets
    how fast the volume responds. period: tau, the time in which it does. Scalars.
    """

    bath: BathParams
    pressure: Array
    compressibility: Array
    period: Array

    __repr__ = all_in_a_line

    def __check_init__(self):
        numbers = {"compressibility": self.compressibility, "period": self.period}
        require_at_least("PressureParams", numbers, strictly=True)


class StochasticCellRescaling(Dynamics):
    """Langevin's equation in an isotropic box at constant pressure.

    d(ln V) = (beta / tau) (P_int - P) dt + sqrt(2 kT beta / (V tau)) dW with P_int = (2 K + W) / (d V); lengths grow
    as V^(1/d), velocities fall by as much. Bernetti and Bussi (2020), J. Chem. Phys. 153, 114107, eq. 7-9; between
    the second drift of BAOAB and its forces. Positions are kept in the units of the box at the start:
    `Box.scale` times them are lengths. Params: `PressureParams`.
    """

    @property
    def changes_scale(self):
        return True

    def start(self, system, state, params):
        zero = jnp.zeros((), state.velocity.dtype)
        state = dataclasses.replace(state, ensemble=Box(zero + 1, zero))
        return Box(zero + 1, _virial(system, state, system.interactions(state)))

    def scale(self, state):
        return state.ensemble.scale

    def step(self, system, number, dt, state, params):
        half = 0.5 * dt / state.ensemble.scale
        state = drift(system, kick(system, state, 0.5 * dt), half)
        state = drift(system, thermalised(system, number, dt, state, params.bath), half)
        state = self._rescaled(system, number, dt, state, params)
        found = system.interactions(state)
        box = Box(state.ensemble.scale, _virial(system, state, found))
        return kick(system, dataclasses.replace(state, force=found["force"], ensemble=box), 0.5 * dt)

    def diagnostics(self, system, state, params, energy):
        return {"scale": state.ensemble.scale, "volume": _volume(system, state.ensemble.scale)}

    def _rescaled(self, system: System, number: Array, dt: Array, state, params: PressureParams):
        ndim, box = system.cells.ndim, state.ensemble
        volume = _volume(system, box.scale)
        inner = (2 * system.kinetic_energy(state) + box.virial) / (ndim * volume)
        rate = params.compressibility / params.period
        noise = jnp.sqrt(2 * params.bath.temperature * rate * dt / volume) * _normal(params.bath.seed, number, dt.dtype)
        growth = jnp.exp((rate * (inner - params.pressure) * dt + noise) / ndim)
        box = Box(box.scale * growth, box.virial)
        return dataclasses.replace(state, velocity=state.velocity / growth, ensemble=box)


class Dilated(PairPotential):
    """A potential between particles whose positions are given in units of a scale. params: (the potential's, scale)."""

    potential: PairPotential
    cutoff: float = eqx.field(static=True)

    def energy(self, square, here, there, params):
        inner, scale = params
        return self.potential.energy(scale**2 * square, here, there, inner)

    def pair(self, separation, here, there, params):
        """Pair terms of the potential, with lengths and forces in their own units; zero beyond the cutoff."""
        inner, scale = params
        apart = tuple(scale * x for x in separation)
        near = sum((x * x for x in apart[1:]), apart[0] * apart[0]) < self.cutoff**2
        found = self.potential.pair(apart, here, there, inner)
        return jax.tree.map(lambda f: jnp.where(near, f, 0), found)


def _virial(system: System, state, found) -> Array:
    return system.sum(state, jnp.trace(found["virial"]))


def _volume(system: System, scale: Array) -> Array:
    grid = system.cells.domain.grid
    return scale**grid.ndim * (grid.cell_volume * grid.cells)


def _normal(seed: Array, number: Array, dtype) -> Array:
    """The volume's own standard normal number: no particle's, as it is drawn with another key."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(1), seed), number)
    return 2**0.5 * lax.erf_inv(jax.random.uniform(key, (), jnp.float32, -1 + 2**-24, 1.0).astype(dtype))
