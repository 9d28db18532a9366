"""Bonds and angles between particles that are given by their ids and stay together."""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.molecular.pair_potentials import DistancePotential, PairPotential, WeeksChandlerAndersen, between
from simjax.particles.cells import Cells
from simjax.particles.id_lookup import slots_of
from simjax.particles.neighbor_list import Neighbours, of_every_slot, own_slot, placed
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.particles.pairs import Pairs
from simjax.status import BOND_LOST, OK


class HarmonicBond(DistancePotential):
    """U = stiffness (r - r_0)^2 / 2. params: (stiffness, r_0), energy per area and length."""

    def at(self, r, here, there, params):
        stiffness, r_0 = between(params, here, there)
        return stiffness / 2 * (r - r_0) ** 2


class FiniteExtensibleBond(PairPotential):
    """FENE: U = -stiffness r_0^2 ln(1 - (r / r_0)^2) / 2 + U_WCA(r), not a number from r = r_0 on.

    params: (stiffness, r_0, epsilon, sigma), energy per area, length, energy, length; scalars or tables by species.
    Kremer and Grest (1990), J. Chem. Phys. 92, 5057, eq. 2-3: 30, 1.5, 1, 1.
    """

    def energy(self, square, here, there, params):
        stiffness, r_0 = between(params[:2], here, there)
        repulsion = WeeksChandlerAndersen().energy(square, here, there, params[2:])
        return repulsion - stiffness * r_0 * r_0 / 2 * jnp.log(1 - square / (r_0 * r_0))


class AnglePotential(eqx.Module):
    """An energy of the angle between two lines from one particle."""

    @abc.abstractmethod
    def energy(self, cosine: Array, params: Any) -> Array:
        """Energy of angles with these cosines, element by element."""


class HarmonicCosine(AnglePotential):
    """U = stiffness (cos theta - cos theta_0)^2 / 2. params: (stiffness, theta_0), energy and radians."""

    def energy(self, cosine, params):
        stiffness, angle = params
        return stiffness / 2 * (cosine - jnp.cos(angle)) ** 2


class HarmonicAngle(AnglePotential):
    """U = stiffness (theta - theta_0)^2 / 2. params: (stiffness, theta_0), energy and radians."""

    def energy(self, cosine, params):
        stiffness, angle = params
        # The slope of arccos is infinite where particles are in line.
        most = 1 - 4 * jnp.finfo(cosine.dtype).eps
        return stiffness / 2 * (jnp.arccos(jnp.clip(cosine, -most, most)) - angle) ** 2


class Bending(AnglePotential):
    """U = stiffness (1 + cos theta), straight chains the lowest. params: stiffness, an energy.

    Faller and Mueller-Plathe (2001), ChemPhysChem 2, 180.
    """

    def energy(self, cosine, params):
        return params * (1 + cosine)


class BondTopology(eqx.Module):
    """Who belongs to whom, as ids that move with the particles: `particles.id_lookup.partners_of` and `ends_of`.

    partners: `(most, *cells.shape)` int32, of each bond both particles name each other. ends: `(most, 2, *cells.shape)`
    int32, those of each angle at its vertex; None without angles. `EMPTY` where there are fewer.
    """

    partners: Array
    ends: Array | None = None


class BondSlots(eqx.Module):
    """Partners in bonds as positions in the flattened padded block, the particle's own where there is no bond."""

    partners: Array
    ends: Array | None


class Bonds(eqx.Module):
    """Energies of bonds and of angles.

    longest: of a bond or of an angle's side when particles are arranged; what is longer, or not in the cells around, is
    a fault. Until the next arrangement it may grow by `skin`. exclude: whether bonded particles leave each other out of
    the pair potential, which takes a list of neighbours. params: (those of `bond`, those of `angle`).
    """

    bond: PairPotential
    angle: AnglePotential | None
    longest: float = eqx.field(static=True)
    skin: float = eqx.field(static=True)
    exclude: bool = eqx.field(static=True, default=False)

    def check(self, cells: Cells, skin: NeighborPolicy) -> None:
        """Refuse bonds that cannot be found in these cells.

        Raises:
            ConfigurationError: bonds as long as a cell or half the box, or exclusions without lists.
        """
        if self.exclude and not skin.rows:
            raise ConfigurationError(
                "Bonds.exclude takes a list of neighbours, NeighborPolicy.rows is 0; write rows > 0."
            )
        grid = cells.domain.grid
        for axis, (h, n) in enumerate(zip(grid.spacing, grid.shape, strict=True)):
            most = min(h, n * h / 2) if cells.periodic[axis] else h
            if self.longest > most:
                raise ConfigurationError(
                    f"Bonds.longest={self.longest:g}: expected at most {most:g}, the length of a cell or half that of "
                    f"the box along {AXES[axis]}; write a longer NeighborPolicy.skin or shorter bonds."
                )

    def find(self, cells: Cells, position: Array, ids: Array, links: BondTopology) -> tuple[BondSlots, Array]:
        """Where bonded particles are now, and bits of `status`."""
        most, angles = links.partners.shape[0], 0 if links.ends is None else links.ends.shape[0]
        wanted = links.partners
        if links.ends is not None:
            wanted = jnp.concatenate([wanted, links.ends.reshape(2 * angles, *cells.shape)])
        if not wanted.shape[0]:
            return BondSlots(links.partners, links.ends), jnp.asarray(OK, jnp.int32)
        slot, square = slots_of(cells, jax.lax.stop_gradient(position), ids, wanted)
        lost = (wanted >= 0) & (ids >= 0)[None] & ~(square <= self.longest**2)
        fault = jnp.where(cells.domain.max(jnp.any(lost).astype(jnp.int32)) > 0, BOND_LOST, OK)
        ends = None if links.ends is None else slot[most:].reshape(angles, 2, *cells.shape)
        return BondSlots(slot[:most], ends), fault.astype(jnp.int32)

    def excluded(self, cells: Cells, neighbours: Neighbours, slots: BondSlots) -> Neighbours:
        """The list without bonded particles."""
        owner = neighbours.owner
        partners = slots.partners.reshape(-1, cells.slots)[:, owner]
        bonded = jnp.any(neighbours.slot[:, None] == partners[None], axis=1)
        slot = jnp.where(bonded, own_slot(cells).ravel()[owner][None], neighbours.slot)
        return dataclasses.replace(neighbours, slot=slot)

    def evaluate(
        self, cells: Cells, position: Array, ids: Array, species: Array, slots: BondSlots, params: Any
    ) -> dict[str, Array]:
        """See `Interaction.evaluate`; the energy of an angle is that of its vertex."""
        parts = []
        if slots.partners.shape[0]:
            pairs = Pairs(cells, position, ids, self.longest + self.skin, of_every_slot(cells, slots.partners))
            parts.append(self.bond.evaluate(pairs, species, params[0]))
        if self.angle is not None and slots.ends is not None:
            parts.append(self._of_angles(cells, self.angle, position, ids, slots.ends, params[1]))
        return jax.tree.map(lambda *u: sum(u[1:], u[0]), *parts)

    def _of_angles(
        self, cells: Cells, angle: AnglePotential, position: Array, ids: Array, ends: Array, params
    ) -> dict[str, Array]:
        own = own_slot(cells)
        present = ends != own[None, None]

        def sides(position):
            coordinates, _ = placed(cells, position, ids)
            coordinates = coordinates.reshape(cells.ndim, -1)
            there = coordinates.at[:, ends].get(mode="promise_in_bounds")
            return there - coordinates.at[:, own].get(mode="promise_in_bounds")[:, None, None]

        def energies(sides):
            # Where there is no angle, a right one.
            corner = jnp.eye(cells.ndim, 2, dtype=position.dtype).reshape(cells.ndim, 1, 2, *(1,) * own.ndim)
            a, b = jnp.moveaxis(jnp.where(present[None], sides, corner), 2, 0)
            cosine = jnp.sum(a * b, axis=0) / jnp.sqrt(jnp.sum(a * a, axis=0) * jnp.sum(b * b, axis=0))
            return jnp.where(present[:, 0], angle.energy(cosine, params), 0)

        apart, pull = jax.vjp(sides, position)
        energy, pull_sides = jax.vjp(energies, apart)
        (slope,) = pull_sides(jnp.ones_like(energy))
        virial = -jnp.sum(apart[:, None] * slope[None], axis=(2, 3))
        return {"energy": jnp.sum(energy, axis=0), "force": -pull(slope)[0], "virial": virial}
