"""Bonds and angles between particles that are given by their ids and stay together."""

import abc
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.molecular.pair_potentials import (
    DistancePotential,
    PairPotential,
    ScaledPotential,
    WeeksChandlerAndersen,
    between,
    scales,
)
from simjax.models.molecular.part_registry import angle, bond
from simjax.particles.cells import Cells
from simjax.particles.id_lookup import slots_of
from simjax.particles.neighbor_list import Neighbours, of_every_slot, placed
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.particles.neighbor_slots import own_slot
from simjax.particles.pairs import Pairs
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import Real, key
from simjax.schema.parts import Part
from simjax.status import BOND_LOST, OK

LONGEST = 1.5  # of harmonic bonds, in rest lengths


class Bond(PairPotential):
    """A pair potential of bonds that a configuration chooses by its name."""

    @classmethod
    @abc.abstractmethod
    def longest(cls, keys: Any) -> float:
        """Greatest length of a bond with these keys, so that its ends are in neighbouring cells."""

    @classmethod
    @abc.abstractmethod
    def natural(cls, keys: Any) -> float:
        """Length at which a bond with these keys is about at rest, where particles start."""


@bond("harmonic")
class HarmonicBond(Bond, DistancePotential):
    """Springs: U = stiffness (r - rest_length)^2 / 2.

    params: (stiffness, rest_length), energy per area and length.
    """

    @dataclass(frozen=True)
    class Keys:
        stiffness: float = key(Real(above=0.0), 30.0, about="energy per area")
        rest_length: float = key(Real(above=0.0), 1.0, about="a length")

    @classmethod
    def configured(cls, setup):
        return cls(), setup.in_order

    @classmethod
    def longest(cls, keys):
        return LONGEST * keys.rest_length

    @classmethod
    def natural(cls, keys):
        return keys.rest_length

    def at(self, r, here, there, params):
        stiffness, r_0 = between(params, here, there)
        return stiffness / 2 * (r - r_0) ** 2


@bond("fene")
class FiniteExtensibleBond(Bond):
    """FENE: U = -stiffness extension^2 ln(1 - (r / extension)^2) / 2 + U_WCA(r), not a number from r = extension on.

    params: (stiffness, extension, epsilon, sigma), energy per area, length, energy, length; scalars or tables by
    species. Kremer and Grest (1990), J. Chem. Phys. 92, 5057, eq. 2-3: 30, 1.5, 1, 1.
    """

    @dataclass(frozen=True)
    class Keys:
        stiffness: float = key(Real(above=0.0), 30.0, about="energy per area")
        extension: float = key(Real(above=0.0), 1.5, about="a length that no bond reaches")

    @classmethod
    def configured(cls, setup):
        return cls(), (*setup.in_order, *scales(setup.beside("potential")))

    @classmethod
    def check(cls, keys, path, config):
        potential = config.physics.potential
        if not issubclass(potential.part, ScaledPotential):
            yield (
                "physics.bond",
                f"physics.bond = fene: expected a potential of pairs with epsilon and sigma, got {potential.name}; "
                "write lennard_jones or weeks_chandler_andersen",
            )

    @classmethod
    def longest(cls, keys):
        return keys.extension

    @classmethod
    def natural(cls, keys):
        return keys.extension / 1.5

    def energy(self, square, here, there, params):
        stiffness, r_0 = between(params[:2], here, there)
        repulsion = WeeksChandlerAndersen().energy(square, here, there, params[2:])
        return repulsion - stiffness * r_0 * r_0 / 2 * jnp.log(1 - square / (r_0 * r_0))


class AnglePotential(eqx.Module, Part):
    """An energy of the angle between two lines from one particle."""

    @abc.abstractmethod
    def of_sides(self, first: Array, second: Array, params: Any) -> Array:
        """Energy of angles between lines `(ndim, ...)`, element by element."""


class CosinePotential(AnglePotential):
    """An energy that is a smooth function of the cosine of the angle."""

    @abc.abstractmethod
    def energy(self, cosine: Array, params: Any) -> Array:
        """Energy of angles with these cosines, element by element."""

    def of_sides(self, first, second, params):
        squares = jnp.sum(first * first, axis=0) * jnp.sum(second * second, axis=0)
        return self.energy(jnp.sum(first * second, axis=0) / jnp.sqrt(squares), params)


@dataclass(frozen=True)
class RestAngleKeys:
    """Keys of an angle with a place of rest."""

    stiffness: float = key(Real(low=0.0), 1.0, about="an energy")
    rest: float = key(Real(low=0.0, high=math.pi, formula=True), math.pi, units="rad", about="angle at rest")


@angle("harmonic_cosine")
class HarmonicCosine(CosinePotential):
    """Springs of the cosine: U = stiffness (cos theta - cos rest)^2 / 2.

    params: (stiffness, rest), energy and radians.
    """

    Keys = RestAngleKeys

    @classmethod
    def configured(cls, setup):
        return cls(), setup.in_order

    def energy(self, cosine, params):
        stiffness, angle = params
        return stiffness / 2 * (cosine - jnp.cos(angle)) ** 2


@angle("harmonic")
class HarmonicAngle(AnglePotential):
    """Springs of the angle: U = stiffness (theta - rest)^2 / 2.

    params: (stiffness, rest), energy and radians. The force is exact to rounding however near particles are to one
    line. In line it has no direction, and is zero.
    """

    Keys = RestAngleKeys

    @classmethod
    def configured(cls, setup):
        return cls(), setup.in_order

    def of_sides(self, first, second, params):
        stiffness, rest = params
        u, v = (side / jnp.sqrt(jnp.sum(side * side, axis=0, keepdims=True)) for side in (first, second))
        # Squares of the sine and of the cosine of half the angle, the smaller of which keeps its digits.
        sine, cosine = jnp.sum((u - v) ** 2, axis=0) / 4, jnp.sum((u + v) ** 2, axis=0) / 4
        folded = sine < cosine
        at_rest = jnp.where(folded, rest, math.pi - rest)
        return stiffness / 2 * _square_of_turn(jnp.where(folded, sine, cosine), at_rest)


NEARLY_IN_LINE = 1e-4
"""Square of a half angle's sine: below it six terms of a series are exact to rounding."""
SERIES = (1.0, 1 / 3, 8 / 45, 4 / 35, 128 / 1575, 128 / 2079)
"""arcsin(sqrt(s))^2 / s in powers of s."""


def _square_of_turn(half: Array, rest: Array) -> Array:
    """(theta - rest)^2, where `half` is sin(theta / 2)^2, at most a half."""
    # theta^2 is a smooth function of it and theta is not: that is what counts where both are zero.
    square = 4 * half * functools.reduce(lambda total, c: total * half + c, SERIES[::-1])
    theta = 2 * jnp.arcsin(jnp.sqrt(jnp.where(half > 0, half, 0.25)))
    theta = jnp.where(half > 0, theta, 0)
    return jnp.where(half < NEARLY_IN_LINE, square - 2 * theta * rest + rest * rest, (theta - rest) ** 2)


@angle("bending")
class Bending(CosinePotential):
    """Stiff chains: U = stiffness (1 + cos theta), lowest where they are straight.

    params: stiffness, an energy. Faller and Mueller-Plathe (2001), ChemPhysChem 2, 180.
    """

    @dataclass(frozen=True)
    class Keys:
        stiffness: float = key(Real(low=0.0), 1.0, about="an energy")

    @classmethod
    def configured(cls, setup):
        return cls(), setup.values["stiffness"]

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


def list_refusals(exclude: bool, max_neighbors: int | None) -> Iterator[tuple[str, str]]:
    """A sentence on bonded particles that leave each other out of pairs that are not listed, with its key path."""
    if exclude and max_neighbors == 0:
        path = "neighbor_list.max_neighbors"
        yield path, f"{path} = 0: expected lists, which leave bonded particles out; write null, in Python a number > 0"


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
        raise_first(list_refusals(self.exclude, skin.max_neighbors))
        grid = cells.domain.grid
        for axis, (h, n) in enumerate(zip(grid.spacing, grid.shape, strict=True)):
            most = min(h, n * h / 2) if cells.periodic[axis] else h
            if self.longest > most:
                raise ConfigurationError(
                    f"Bonds.longest={self.longest:g}: expected at most {most:g}, the length of a cell or half that of "
                    f"the box along {AXES[axis]}; write a longer NeighborPolicy.skin or shorter bonds."
                )

    def find(self, cells: Cells, position: Array, ids: Array, links: BondTopology) -> tuple[BondSlots, Array]:
        """Slots of bonded particles now, and bits of `status`."""
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
        return neighbours.without(cells, slots.partners.reshape(-1, cells.slots)[:, neighbours.owner])

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
            return jnp.where(present[:, 0], angle.of_sides(a, b, params), 0)

        apart, pull = jax.vjp(sides, position)
        energy, pull_sides = jax.vjp(energies, apart)
        (slope,) = pull_sides(jnp.ones_like(energy))
        virial = -jnp.sum(apart[:, None] * slope[None], axis=(2, 3))
        return {"energy": jnp.sum(energy, axis=0), "force": -pull(slope)[0], "virial": virial}
