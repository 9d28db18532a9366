"""Potentials of more than two particles, written through sums over pairs alone."""

import abc
import functools
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.models.molecular.interaction import Interaction, per_particle, squared
from simjax.models.molecular.part_registry import potential
from simjax.notebook import all_in_a_line
from simjax.schema.kinds import Real, key


class MomentPotential(Interaction):
    """An energy of a particle that is a function of sums over its partners: U = sum over i of E(sum over j of m(r_ij)).

    The force on i is that of an energy of pairs: with the slopes c of E, F_i = - sum over j of d/dr (c_i . m(r) +
    c_j . m(-r)). m comes in two parts, even and odd in r, so that it is evaluated once.
    """

    @abc.abstractmethod
    def moments(self, separation: tuple[Array, ...], params: Any) -> tuple[Any, Any]:
        """Terms that a partner adds to the sums: trees of even and of odd functions of the separation.

        Component axes stand before those of the separation.
        """

    @abc.abstractmethod
    def energy(self, even: Any, odd: Any, params: Any) -> Array:
        """Energy of particles whose sums these are; zero and smooth where all sums are zero."""

    def evaluate(self, pairs, species, params):
        even, odd = pairs.sum(lambda separation, here, there, params: self.moments(separation, params), (), params)
        energy, pull = jax.vjp(lambda even, odd: self.energy(even, odd, params), even, odd)
        slopes = pull(jnp.ones_like(energy))

        def pair(separation, here, there, params):
            weights = jax.tree.map(jnp.add, here[0], there[0]), jax.tree.map(jnp.subtract, here[1], there[1])

            def of_pair(separation):
                terms = jax.tree.map(jnp.multiply, weights, self.moments(separation, params))
                components = [jnp.sum(u.reshape(-1, *separation[0].shape), axis=0) for u in jax.tree.leaves(terms)]
                return functools.reduce(jnp.add, components)

            weighted, pull = jax.vjp(of_pair, separation)
            (slope,) = pull(jnp.ones_like(weighted))
            virial = tuple(tuple(-x * s / 2 for s in slope) for x in separation)
            return {"force": tuple(-s for s in slope), "virial": virial}

        return {"energy": energy, **per_particle(pairs.sum(pair, slopes, params))}


class StillingerWeberParams(eqx.Module):
    """Scalars: epsilon, energy; sigma, length; the others without unit."""

    epsilon: Array
    sigma: Array
    strength: Array
    decay: Array
    A: Array
    B: Array

    __repr__ = all_in_a_line

    @staticmethod
    def silicon(epsilon: float = 1.0, sigma: float = 1.0, dtype=None) -> "StillingerWeberParams":
        """Parameters of silicon; in electronvolts and angstroms epsilon = 2.1683 and sigma = 2.0951."""
        values = (epsilon, sigma, 21.0, 1.2, 7.049556277, 0.6022245584)
        return StillingerWeberParams(*(jnp.asarray(value, dtype) for value in values))


@potential("stillinger_weber")
class StillingerWeber(MomentPotential):
    """Stillinger-Weber, tetrahedral bonds: U = sum over pairs of U_2 + sum over pairs of partners j, k of i of U_3.

    U_2 = epsilon A (B (sigma / r)^4 - 1) exp(sigma / (r - a sigma)),
    U_3 = epsilon strength (cos theta_jik + 1/3)^2 h_ij h_ik with h = exp(decay sigma / (r - a sigma)), for r < a sigma.

    With n = r_ij / |r_ij|, cos theta_jik = n_ij . n_ik: the sum over all j and k is a polynomial of the sums over
    partners of h, h n and h n n, and those with j = k are 16/9 of the sum of h^2. So triples are never visited.
    `reach` is a; the cutoff of pairs must be at least a sigma. Stillinger and Weber (1985), Phys. Rev. B 31, 5262,
    eq. 2.1-2.6.
    """

    @dataclass(frozen=True)
    class Keys:
        epsilon: float = key(Real(low=0.0), 1.0, about="depth of the potential, an energy")
        sigma: float = key(Real(above=0.0), 1.0, about="scale of distances, a length")
        tetrahedrality: float = key(Real(low=0.0), 21.0, about="strength of the three-body term, 21 for silicon")

    reach: float = eqx.field(static=True, default=1.8)

    @classmethod
    def end(cls, keys):
        return cls().reach * keys.sigma

    @classmethod
    def configured(cls, setup):
        silicon, values = StillingerWeberParams.silicon(), setup.values
        dtype = jnp.result_type(values["epsilon"])
        fixed = (jnp.asarray(value, dtype) for value in (silicon.decay, silicon.A, silicon.B))
        return cls(), StillingerWeberParams(values["epsilon"], values["sigma"], values["tetrahedrality"], *fixed)

    def moments(self, separation, params: StillingerWeberParams):
        r = jnp.sqrt(squared(separation)) / params.sigma
        # All derivatives vanish where it ends; nearer than this exp is nothing, and its argument would be infinite.
        inside = r < self.reach - 0.002
        gap = jnp.where(inside, r - self.reach, -1)
        h = jnp.where(inside, jnp.exp(params.decay / gap), 0)
        two = jnp.where(inside, params.A * (params.B / r**4 - 1) * jnp.exp(1 / gap), 0)
        normal = [x / (r * params.sigma) for x in separation]
        along = [h * n for n in normal]
        twice = [a * n for k, a in enumerate(along) for n in normal[k:]]
        return (two, h, h * h, twice), along

    def energy(self, even, odd, params: StillingerWeberParams):
        two, flat, alone, twice = even
        entries = iter(twice)
        # A symmetric matrix: what stands beside the diagonal counts twice.
        square = sum((1 if b == a else 2) * next(entries) ** 2 for a in range(len(odd)) for b in range(a, len(odd)))
        # Over ordered pairs of partners; half of them are triples.
        triples = square + 2 / 3 * squared(odd) + flat * flat / 9 - 16 / 9 * alone
        return params.epsilon / 2 * (two + params.strength * triples)
