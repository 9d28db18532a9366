"""Charged particles in a periodic box."""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least
from simjax.particles.ewald import PeriodicSum
from simjax.particles.pairs import Pairs


class Charges(eqx.Module):
    """charge: `(species,)`. constant: scalar, energy times length over charge squared; 1 / (4 pi epsilon_0) in SI."""

    charge: Array
    constant: Array

    def __check_init__(self):
        require_at_least("Charges", {"constant": self.constant}, strictly=True)


class Electrostatics(eqx.Module):
    """Coulomb's energy of point charges and all their images: U = constant / 2 sum over i, j of q_i q_j / r_ij.

    A net charge is neutralised by a uniform background, and what surrounds the images conducts. `sum` says how the sum
    is taken: Ewald's (`ewald_sum`) or on a mesh (`mesh_sum`). Frenkel and Smit (2002), section 12.1.
    """

    sum: PeriodicSum

    def evaluate(self, pairs: Pairs, species: Array, params: Charges) -> dict[str, Array]:
        """Sum over all others what each particle gets from them.

        Args:
            pairs: those nearer than the cutoff that `sum` was made for.
            species: `cells.shape` int32.
            params: charges of the species.

        Returns:
            energy: `cells.shape`, which add up to U. force: `(ndim, *cells.shape)`, -dU/dx_i; on a mesh up to the error
            of the mesh, but so that all forces add up to nothing. virial: `(ndim, ndim, *cells.shape)`, which add up to
            minus the slope of U in a strain of space.
        """
        charge = params.charge.at[species].get(mode="promise_in_bounds")
        charge = jnp.where(pairs.ids >= 0, charge, 0)
        potential, field = self.sum.field(pairs, charge)
        return {
            "energy": 0.5 * params.constant * charge * potential,
            "force": params.constant * charge[None] * field,
            "virial": 0.5 * params.constant * charge[None, None] * self.sum.tension(pairs, charge),
        }
