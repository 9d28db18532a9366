"""Gravitational fields of particles: by direct summation, on a mesh, and on a mesh with near pairs corrected."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from simjax.particles.arrangement import Particles
from simjax.particles.cells import Cells
from simjax.particles.direct import AllPairs


class Masses(Particles):
    """mass: `cells.shape`."""

    mass: Array


class Params(eqx.Module):
    """gravitational_constant: scalar. softening: scalar, length within which the attraction is weakened."""

    gravitational_constant: Array
    softening: Array


class Attraction(eqx.Module):
    """How the field of the masses is found."""

    @abc.abstractmethod
    def arrange(self, cells: Cells, state: Any) -> tuple[Any, Any, Array]:
        """As `DirectModel.arrange`."""

    @abc.abstractmethod
    def strain(self, cells: Cells, state: Masses, arrangement: Any) -> Array:
        """As `DirectModel.strain`."""

    @abc.abstractmethod
    def field(self, cells: Cells, state: Masses, params: Params, arrangement: Any) -> dict[str, Array]:
        """`potential` phi, `cells.shape`, and `acceleration` -grad phi, `(ndim, *cells.shape)`, at every particle.

        A particle's own potential is left out as far as the method knows it.
        """


class DirectSummation(Attraction):
    """phi_i = -G sum over j of m_j / sqrt(r_ij^2 + softening^2) over all other particles, without images.

    Particles keep the slot that they were given: the box says where they are stored, and nothing ends at its sides.
    Work grows with the square of the number of slots. Plummer (1911), MNRAS 71, 460; Aarseth (2003), eq. 1.1.
    """

    tile: int = eqx.field(static=True, default=64)

    def arrange(self, cells, state):
        return state, None, jnp.zeros((), jnp.int32)

    def strain(self, cells, state, arrangement):
        return jnp.zeros((), state.position.dtype)

    def field(self, cells, state, params, arrangement):
        pairs = AllPairs(cells, state.position, state.ids, self.tile)
        found = pairs.sum(_plummer, state.mass, (params.gravitational_constant, params.softening))
        return {"potential": found["potential"], "acceleration": jnp.stack(found["acceleration"])}


def _plummer(separation, here, there, params):
    constant, softening = params
    square = sum((x * x for x in separation), softening * softening)
    inverse = lax.rsqrt(square)
    potential = -constant * there * inverse
    slope = potential * inverse * inverse
    return {"potential": potential, "acceleration": tuple(slope * x for x in separation)}
