"""Potentials between pairs of particles: each an energy of their distance, from which all else follows."""

import abc
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.models.molecular.interaction import Interaction, per_particle, squared
from simjax.models.molecular.part_registry import potential
from simjax.schema.kinds import Integer, ListOf, Real, key
from simjax.schema.parts import PartSetup

NODES = 64
"""Points of the quadrature of what lies beyond a cutoff."""


class PairPotential(Interaction):
    """An energy that depends on how far apart two particles are.

    Params are a tree of arrays. Those of the potentials here are scalars, or tables `(species, species)` of which the
    mean with the transpose counts. `here` and `there` are the species of both particles, int32.

    Examples:
        >>> issubclass(sj.DistancePotential, sj.PairPotential)
        True
    """

    @abc.abstractmethod
    def energy(self, square: Array, here: Any, there: Any, params: Any) -> Array:
        """Energy of a pair at distance sqrt(square); element by element for arrays of any shape."""

    def pair(self, separation, here, there, params) -> dict[str, Any]:
        """Terms that a particle gets from one partner: half the energy, the force on it, and half of r_a F_b."""
        square = squared(separation)
        energy, slope = jax.vjp(lambda square: self.energy(square, here, there, params), square)
        (slope,) = slope(jnp.ones_like(energy))
        force = tuple(-2 * slope * x for x in separation)
        return {
            "energy": energy / 2,
            "force": force,
            "virial": tuple(tuple(x * f / 2 for f in force) for x in separation),
        }

    def evaluate(self, pairs, species, params):
        ndim = pairs.ndim
        signs = {"energy": 1, "force": (-1,) * ndim, "virial": ((1,) * ndim,) * ndim}
        return per_particle(pairs.sum(self.pair, species, params, signs))

    def tail(self, cutoff: Array, ndim: int, here: Array, there: Array, params: Any) -> tuple[Array, Array]:
        """Contribution of pairs of species `here` and `there` beyond the cutoff, where particles stand anywhere alike.

        Returns:
            The integrals over r > cutoff of U and of -r dU/dr / ndim, energy times volume. Number densities n_a, n_b
            make of them n_a n_b / 2 of energy in a unit of volume, and of pressure.
        """
        # With r = cutoff / s; U must fall faster than r^-ndim.
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        s, weights = jnp.asarray((nodes + 1) / 2, cutoff.dtype), jnp.asarray(weights / 2, cutoff.dtype)
        surface = 2 * math.pi ** (ndim / 2) / math.gamma(ndim / 2) * cutoff**ndim
        energies = jax.vmap(lambda square: self.energy(square, here, there, params))((cutoff / s) ** 2)
        beyond = surface * jnp.tensordot(weights / s ** (ndim + 1), energies, 1)
        return beyond, beyond + surface / ndim * self.energy(cutoff * cutoff, here, there, params)


class DistancePotential(PairPotential):
    """A pair potential that is written as an energy of the distance.

    `parameters` are the names of its numbers with their defaults. `at(r, here, there, params)` is the energy of pairs
    at the distances r, arrays of any shape, element by element; forces are its derivative.

    Examples:
        >>> class Gaussian(sj.DistancePotential):
        ...     "Soft coils: U = height exp(-(r / width)^2)."
        ...
        ...     parameters = {"height": 2.0, "width": 1.0}
        ...
        ...     def at(self, r, here, there, params):
        ...         return params["height"] * jnp.exp(-((r / params["width"]) ** 2))
    """

    @abc.abstractmethod
    def at(self, r: Array, here: Any, there: Any, params: Any) -> Array:
        """Energy of a pair at distance r; element by element for arrays of any shape."""

    def energy(self, square, here, there, params):
        return self.at(jnp.sqrt(square), here, there, params)


class Sum(PairPotential):
    """U = sum of the energies of `potentials`. params: a tuple, those of each."""

    potentials: tuple[PairPotential, ...]

    def energy(self, square, here, there, params):
        terms = zip(self.potentials, params, strict=True)
        return functools.reduce(jnp.add, [one.energy(square, here, there, its) for one, its in terms])


class _Ending(PairPotential):
    """A potential that is zero from the cutoff on: nothing lies beyond."""

    potential: PairPotential
    cutoff: float = eqx.field(static=True)

    def tail(self, cutoff, ndim, here, there, params):
        return jnp.zeros_like(cutoff), jnp.zeros_like(cutoff)


class Shifted(_Ending):
    """U(r) - U(cutoff): an energy without a step at the cutoff."""

    def energy(self, square, here, there, params):
        edge = jnp.asarray(self.cutoff**2, square.dtype)
        return self.potential.energy(square, here, there, params) - self.potential.energy(edge, here, there, params)


class ForceShifted(_Ending):
    """U(r) - U(cutoff) - (r - cutoff) U'(cutoff): neither energy nor force has a step at the cutoff.

    Toxvaerd and Dyre (2011), J. Chem. Phys. 134, 081102, eq. 2.
    """

    def energy(self, square, here, there, params):
        edge = jnp.asarray(self.cutoff**2, square.dtype)
        energy, slope = jax.jvp(
            lambda square: self.potential.energy(square, here, there, params), (edge,), (jnp.ones_like(edge),)
        )
        beyond = jnp.sqrt(square) - self.cutoff
        return self.potential.energy(square, here, there, params) - energy - beyond * (2 * self.cutoff * slope)


ENDINGS: dict[str, Callable[..., PairPotential]] = {"shifted": Shifted, "force_shifted": ForceShifted}
"""Mode of a cutoff -> the potential that ends so."""


def _per_species(kind: Real, most: int, noun: str, about: str) -> Any:
    return key(ListOf(kind, 1, most, optional=True, noun=f"numbers, one per {noun}"), None, about=about)


@dataclass(frozen=True)
class ScaledKeys:
    """Keys of a potential with a scale of energy and one of length, which species may have of their own."""

    epsilon: float = key(Real(low=0.0), 1.0, about="depth or scale of the potential, an energy")
    sigma: float = key(Real(above=0.0), 1.0, about="scale of distances, a length")
    species_epsilon: tuple[float, ...] | None = _per_species(
        Real(low=0.0), 100, "species", "each species with itself, in units of epsilon; null: alike"
    )
    species_sigma: tuple[float, ...] | None = _per_species(
        Real(above=0.0), 100, "species", "each species with itself, in units of sigma; null: alike"
    )
    cross_epsilon: tuple[float, ...] | None = _per_species(
        Real(low=0.0),
        4950,
        "pair of species",
        "unlike species 01, 02, ..., 12, ..., in units of epsilon; null: geometric means",
    )
    cross_sigma: tuple[float, ...] | None = _per_species(
        Real(above=0.0), 4950, "pair of species", "unlike species, in units of sigma; null: means"
    )


class ScaledPotential(PairPotential):
    """A pair potential with a scale of energy and one of length. params: (epsilon, sigma), energy and length."""

    Keys = ScaledKeys

    @classmethod
    def configured(cls, setup):
        return cls(), scales(setup)

    @classmethod
    def check(cls, keys, path, config):
        """Check that lists have as many entries as there are species, or pairs of them."""
        species = len(config.particles.fractions)
        mixed = keys.species_epsilon is not None or keys.species_sigma is not None
        for group, count in (("species", species), ("cross", species * (species - 1) // 2)):
            for scale in ("epsilon", "sigma"):
                name = f"{group}_{scale}"
                value, where = getattr(keys, name), f"{path}.{name}"
                if value is not None and len(value) != count:
                    what = "species" if group == "species" else "pair of species"
                    yield (
                        where,
                        f"{where} = {list(value)}: expected {count} number(s), one per {what} of particles.fractions",
                    )
                elif value is not None and group == "cross" and not mixed:
                    yield (
                        where,
                        f"{where} = {list(value)}: expected with {path}.species_{scale}; write "
                        f"species_{scale}={[1.0] * species} for species that are alike",
                    )

    @classmethod
    def diameters(cls, keys):
        return keys.species_sigma

    @classmethod
    def largest(cls, keys: Any) -> float:
        """The largest sigma of all pairs, a length."""
        return keys.sigma * max(*(keys.species_sigma or (1.0,)), *(keys.cross_sigma or (0.0,)))


@potential("lennard_jones")
class LennardJones(ScaledPotential):
    """Lennard-Jones: U = 4 epsilon ((sigma / r)^12 - (sigma / r)^6).

    params: (epsilon, sigma), energy and length.
    """

    def energy(self, square, here, there, params):
        epsilon, sigma = between(params, here, there)
        sixth = (sigma * sigma / square) ** 3
        return 4 * epsilon * (sixth * sixth - sixth)


@potential("weeks_chandler_andersen")
class WeeksChandlerAndersen(ScaledPotential):
    """The repulsive part of Lennard-Jones: U = 4 epsilon ((sigma / r)^12 - (sigma / r)^6) + epsilon to its minimum.

    It ends at r = 2^(1/6) sigma, which must not be beyond the cutoff. params: (epsilon, sigma), energy and length.
    Weeks, Chandler and Andersen (1971), J. Chem. Phys. 54, 5237, eq. 4.
    """

    @classmethod
    def end(cls, keys):
        return 2 ** (1 / 6) * cls.largest(keys)

    def energy(self, square, here, there, params):
        epsilon, sigma = between(params, here, there)
        sixth = (sigma * sigma / square) ** 3
        # The slope is zero on both sides of the minimum.
        return jnp.where(sixth > 0.5, 4 * epsilon * (sixth * sixth - sixth) + epsilon, 0)


@potential("soft_sphere")
class SoftSphere(ScaledPotential):
    """Soft spheres: U = epsilon (sigma / r)^power.

    params: (epsilon, sigma), energy and length.
    """

    @dataclass(frozen=True)
    class Keys(ScaledKeys):
        power: int = key(Integer(1, 100), 12, about="exponent of the repulsion")

    power: int = eqx.field(static=True, default=12)

    @classmethod
    def configured(cls, setup):
        return cls(setup.keys.power), scales(setup)

    def energy(self, square, here, there, params):
        epsilon, sigma = between(params, here, there)
        ratio = sigma * sigma / square
        return epsilon * (ratio ** (self.power // 2) if self.power % 2 == 0 else jnp.sqrt(ratio) ** self.power)


@potential("morse")
class Morse(DistancePotential):
    """Morse: U = epsilon ((1 - exp(-steepness (r - bond_length)))^2 - 1).

    params: (epsilon, steepness, bond_length), energy, inverse length, length. Morse (1929), Phys. Rev. 34, 57, eq. 4.
    """

    @dataclass(frozen=True)
    class Keys:
        epsilon: float = key(Real(low=0.0), 1.0, about="depth of the potential, an energy")
        steepness: float = key(Real(above=0.0), 6.0, about="1/length")
        bond_length: float = key(Real(above=0.0), 1.0, about="place of the minimum, a length")

    @classmethod
    def configured(cls, setup):
        return cls(), setup.in_order

    def at(self, r, here, there, params):
        depth, a, r_0 = between(params, here, there)
        decay = jnp.exp(-a * (r - r_0))
        return depth * decay * (decay - 2)


@potential("yukawa")
class Yukawa(DistancePotential):
    """Screened charges: U = strength exp(-screening r) / r.

    params: (strength, screening), energy times length and inverse length. Yukawa (1935), Proc. Phys.-Math. Soc. Japan
    17, 48.
    """

    @dataclass(frozen=True)
    class Keys:
        strength: float = key(Real(), 1.0, about="energy times length")
        screening: float = key(Real(low=0.0), 1.0, about="inverse of the screening length, 1/length")

    @classmethod
    def configured(cls, setup):
        return cls(), setup.in_order

    def at(self, r, here, there, params):
        strength, screening = between(params, here, there)
        return strength * jnp.exp(-screening * r) / r


@potential("buckingham")
class Buckingham(DistancePotential):
    """Buckingham: U = strength exp(-r / range) - dispersion / r^6, which falls without end at small r.

    params: (strength, range, dispersion), energy, length, energy times length^6. Buckingham (1938), Proc. R. Soc.
    Lond. A 168, 264.
    """

    @dataclass(frozen=True)
    class Keys:
        strength: float = key(Real(low=0.0), 1000.0, about="scale of the repulsion, an energy")
        range: float = key(Real(above=0.0), 0.15, about="length over which the repulsion decays")
        dispersion: float = key(Real(low=0.0), 1.0, about="strength of the attraction, energy times length^6")

    @classmethod
    def configured(cls, setup):
        return cls(), setup.in_order

    def at(self, r, here, there, params):
        strength, decay, dispersion = between(params, here, there)
        return strength * jnp.exp(-r / decay) - dispersion / r**6


class UserPotential(DistancePotential):
    """U = function(r, here, there, params), a potential given as a user's function.

    function: of arrays of any shape, element by element: distance, species of both particles, and any tree of
    parameters. It must not close over traced values. Tables of parameters are read by `between`.
    """

    function: Callable = eqx.field(static=True)

    def at(self, r, here, there, params):
        return self.function(r, here, there, params)


class NetworkPotential(DistancePotential):
    """U = network(r), a neural network of one input and one output. params: the arrays of `network`.

    Its energy does not end by itself: put it into `ForceShifted`.
    """

    fixed: Any = eqx.field(static=True)

    @staticmethod
    def of(network: Any) -> tuple["NetworkPotential", Any]:
        """The potential of an equinox module from `(1,)` to `(1,)`, and its params."""
        params, fixed = eqx.partition(network, eqx.is_inexact_array)
        return NetworkPotential(fixed), params

    def at(self, r, here, there, params):
        network = eqx.combine(params, self.fixed)
        return jax.vmap(network)(r.reshape(-1, 1)).reshape(r.shape)


def between(params: Any, here: Array, there: Array) -> Any:
    """Parameters of pairs of two species: scalars as they are, of tables `(species, species)` an entry each."""

    def chosen(table):
        if jnp.ndim(table) == 0:
            return table
        return ((table + table.T) / 2).at[here, there].get(mode="promise_in_bounds")

    return jax.tree.map(chosen, params)


def lorentz_berthelot(epsilon: Array, sigma: Array) -> tuple[Array, Array]:
    """Tables `(species, species)` from values `(species,)` of each species with itself.

    epsilon_ab = sqrt(epsilon_a epsilon_b), sigma_ab = (sigma_a + sigma_b) / 2.
    """
    return jnp.sqrt(epsilon[:, None] * epsilon[None]), (sigma[:, None] + sigma[None]) / 2


def scales(setup: PartSetup) -> tuple[Array, Array]:
    """(epsilon, sigma) of all pairs of a `ScaledPotential`: scalars, of a mixture tables `(species, species)`."""
    keys, epsilon, sigma = setup.keys, setup.values["epsilon"], setup.values["sigma"]
    given = [ratios for ratios in (keys.species_epsilon, keys.species_sigma) if ratios is not None]
    if not given:
        return epsilon, sigma
    count, dtype = len(given[0]), jnp.result_type(epsilon)
    alike = [jnp.asarray(each or (1.0,) * count, dtype) for each in (keys.species_epsilon, keys.species_sigma)]
    epsilons, sigmas = lorentz_berthelot(*alike)
    return epsilon * _crossed(epsilons, keys.cross_epsilon), sigma * _crossed(sigmas, keys.cross_sigma)


def _crossed(table: Array, cross: Sequence[float] | None) -> Array:
    """A symmetric table with the entries of unlike species, row by row, in the place of those of the mixing rule."""
    if cross is None:
        return table
    above = np.triu_indices(len(table), 1)
    entries = jnp.asarray(cross, table.dtype)
    return table.at[above].set(entries).at[above[::-1]].set(entries)
