"""Gravitational fields of particles: by direct summation, on a mesh, and on a mesh with near pairs corrected."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from simjax.arguments import require_at_least
from simjax.errors import ConfigurationError
from simjax.notebook import all_in_a_line
from simjax.particles.all_pairs import AllPairs
from simjax.particles.cells import Cells
from simjax.particles.ewald import MeshSum, PeriodicSum
from simjax.particles.neighbor_policy import Arrangement, NeighborPolicy, Particles


class Masses(Particles):
    """mass: `cells.shape`."""

    mass: Array


class Params(eqx.Module):
    """gravitational_constant: scalar. softening: scalar, length within which the attraction is weakened."""

    gravitational_constant: Array
    softening: Array

    __repr__ = all_in_a_line

    def __check_init__(self):
        require_at_least("Gravity.Params", {"gravitational_constant": self.gravitational_constant}, strictly=True)
        require_at_least("Gravity.Params", {"softening": self.softening})


class GravitySolver(eqx.Module):
    """Solver for the field of the masses."""

    @abc.abstractmethod
    def arrange(self, cells: Cells, state: Any) -> tuple[Any, Any, Array]:
        """See `SelfSteppingModel.arrange`."""

    @abc.abstractmethod
    def skin_used(self, cells: Cells, state: Masses, arrangement: Any) -> Array:
        """See `SelfSteppingModel.skin_used`."""

    @abc.abstractmethod
    def field(self, cells: Cells, state: Masses, params: Params, arrangement: Any) -> dict[str, Array]:
        """`potential` phi, `cells.shape`, and `acceleration` -grad phi, `(ndim, *cells.shape)`, at every particle.

        A particle's own potential is left out as far as the method knows it.
        """


class DirectSummation(GravitySolver):
    """phi_i = -G sum over j of m_j / sqrt(r_ij^2 + softening^2) over all other particles, without images.

    Particles keep the slot that they were given: the box says where they are stored, and nothing ends at its sides.
    Work grows with the square of the number of slots. Plummer (1911), MNRAS 71, 460; Aarseth (2003), eq. 1.1.
    """

    tile: int = eqx.field(static=True, default=64)

    def arrange(self, cells, state):
        return state, None, jnp.zeros((), jnp.int32)

    def skin_used(self, cells, state, arrangement):
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


class ParticleMeshGravity(GravitySolver):
    """Particle-mesh: the field of what a periodic mesh resolves, in one, two or three dimensions.

    Pairs nearer than about two mesh cells attract each other less than they should; a softening is not asked for. The
    potential includes a particle's own. Hockney and Eastwood (1988), chapter 5.
    """

    mesh: MeshSum

    def _skin(self, cells: Cells) -> NeighborPolicy:
        return NeighborPolicy(0.0, 2 * self.mesh.stray * min(self.mesh.mesh(cells).domain.grid.spacing))

    def arrange(self, cells, state):
        return self._skin(cells).arrange(cells, state)

    def skin_used(self, cells, state, arrangement):
        return self._skin(cells).skin_used(state, arrangement)

    def field(self, cells, state, params, arrangement):
        mass = jnp.where(state.ids >= 0, state.mass, 0)
        return _attracting(params, self.mesh.field(cells, state.position, state.ids, mass))


class PeriodicGravity(GravitySolver):
    """phi of a periodic box by a sum over pairs and a smooth rest: P3M where that is a `MeshSum`, else Ewald's.

    Near pairs attract each other as erfc(alpha s) / s with s^2 = r^2 + softening^2, so that the field is softened well
    within the cutoff and Newton's beyond. `sum` is one made for the cutoff of `skin`.
    """

    skin: NeighborPolicy
    sum: PeriodicSum

    def arrange(self, cells, state):
        far = self.sum.far
        if isinstance(far, MeshSum):
            stray = self.skin.skin / 2 / min(far.mesh(cells).domain.grid.spacing)
            if stray > far.stray:
                raise ConfigurationError(
                    f"NeighborPolicy.skin={self.skin.skin:g} lets particles leave their cells by {stray:.3g} mesh "
                    f"cells, MeshSum.stray={far.stray:g} by less; write stray={stray:.3g} or a thinner skin."
                )
        return self.skin.arrange(cells, state)

    def skin_used(self, cells, state, arrangement: Arrangement):
        return self.skin.skin_used(state, arrangement)

    def field(self, cells, state, params, arrangement: Arrangement):
        pairs = self.skin.pairs(cells, state, arrangement)
        return _attracting(params, self.sum.field(pairs, state.mass, params.softening))


def _attracting(params: Params, found: tuple[Array, Array]) -> dict[str, Array]:
    """The field of masses from that of equal charges."""
    potential, field = found
    constant = -params.gravitational_constant
    return {"potential": constant * potential, "acceleration": constant * field}
