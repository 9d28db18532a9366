"""Potentials of more than two particles, written through sums over pairs alone."""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.models.interactions import Interaction, squared


class StillingerWeberParams(eqx.Module):
    """Scalars: epsilon, energy; sigma, length; the others without unit, by default those of silicon."""

    epsilon: Array
    sigma: Array
    strength: Array
    decay: Array
    A: Array
    B: Array

    @staticmethod
    def silicon(epsilon: float = 1.0, sigma: float = 1.0, dtype=None) -> "StillingerWeberParams":
        """In electronvolts and angstroms, epsilon = 2.1683 and sigma = 2.0951."""
        values = (epsilon, sigma, 21.0, 1.2, 7.049556277, 0.6022245584)
        return StillingerWeberParams(*(jnp.asarray(value, dtype) for value in values))


class StillingerWeber(Interaction):
    """Particles that bond in tetrahedra: U = sum over pairs of U_2 + sum over pairs of partners j, k of i of U_3.

    U_2 = epsilon A (B (sigma / r)^4 - 1) exp(sigma / (r - a sigma)),
    U_3 = epsilon strength (cos theta_jik + 1/3)^2 h_ij h_ik with h = exp(decay sigma / (r - a sigma)), for r < a sigma.

    With n = r_ij / |r_ij|, cos theta_jik = n_ij . n_ik: the sum over all j and k is a polynomial of the sums over
    partners of h, h n and h n n, and those with j = k are 16/9 of the sum of h^2. So triples are never visited.
    The cutoff of pairs must be at least a sigma. Stillinger and Weber (1985), Phys. Rev. B 31, 5262, eq. 2.1-2.6.
    """

    reach: float = eqx.field(static=True, default=1.8)

    def energies(self, total, species, params):
        found = total(self._pair, (), params)
        flat, along, twice = found["h"], found["hn"], found["hnn"]
        fourth = sum(x * x for row in twice for x in row)
        # Over ordered pairs of partners; half of them are triples.
        triples = fourth + 2 / 3 * squared(along) + flat * flat / 9 - 16 / 9 * found["hh"]
        return found["energy"] + params.epsilon * params.strength / 2 * triples

    def _pair(self, separation, here, there, params: StillingerWeberParams):
        r = jnp.sqrt(squared(separation)) / params.sigma
        # All derivatives vanish where it ends; nearer than this exp is nothing, and its argument would be infinite.
        inside = r < self.reach - 0.002
        gap = jnp.where(inside, r - self.reach, -1)
        normal = tuple(x / (r * params.sigma) for x in separation)
        h = jnp.where(inside, jnp.exp(params.decay / gap), 0)
        two = jnp.where(inside, params.A * (params.B / r**4 - 1) * jnp.exp(1 / gap), 0)
        return {
            "energy": params.epsilon / 2 * two,
            "h": h,
            "hh": h * h,
            "hn": tuple(h * n for n in normal),
            "hnn": tuple(tuple(h * n * m for m in normal) for n in normal),
        }
