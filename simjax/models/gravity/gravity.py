"""Particles under their own gravity."""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_count, require_kind
from simjax.core.domain import Domain
from simjax.grid import AXES
from simjax.models.gravity.cosmology import FlatLambdaCDM
from simjax.models.gravity.force_solvers import GravitySolver, Masses, Params
from simjax.models.particle_balances import StepPart, StepsInParts
from simjax.particles.cells import Cells, counted, pack, require_cells


class State(Masses):
    """velocity, acceleration: `(ndim, *cells.shape)`; in an expanding background a^2 dx/dt and comoving -grad phi."""

    velocity: Array
    acceleration: Array


class Gravity(StepsInParts):
    """Newton's equations under gravity: d^2 x_i/dt^2 = -grad phi, by kick, drift, kick of second order.

    phi solves lap(phi) = 4 pi G rho, with the mean of rho taken away in a periodic box; `attraction` says how. In an
    expanding background with the scale factor a(t), x are comoving coordinates, u = a^2 dx/dt is kept as the velocity,
    and du/dt = -grad phi / a with the comoving rho. Quinn et al. (1997), astro-ph/9710043, eq. 6-10.

    Examples:
        >>> stars = sj.load("cold_collapse")
        >>> stars.config.model
        'gravity'
    """

    cells: Cells
    attraction: GravitySolver
    steps_per_arrangement: int = eqx.field(static=True, default=1)
    expansion: FlatLambdaCDM | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        require_cells("Gravity", self.cells)
        require_kind("Gravity: attraction", self.attraction, GravitySolver, "a solver for the attraction of particles")
        require_count("Gravity: steps_per_arrangement", self.steps_per_arrangement)

    @property
    def domain(self) -> Domain:
        return self.cells.domain

    def state_from(self, position: Array, velocity: Array, mass: Array, params: Params) -> tuple[State, Array]:
        """The state of particles given one after the other, `(ndim, particles)` and `(particles,)`.

        Also returns how many found no place.
        """
        position, ids, carried, lost = pack(self.cells, position, {"velocity": velocity, "mass": mass})
        image = jnp.zeros(position.shape, jnp.int32)
        state = State(position, image, ids, carried["mass"], carried["velocity"], jnp.zeros_like(position))
        state, arrangement, _ = self.arrange(state, params)
        return eqx.tree_at(lambda s: s.acceleration, state, self._acceleration(state, params, arrangement)), lost

    def arrange(self, state, params):
        return self.attraction.arrange(self.cells, state)

    def skin_used(self, state, arrangement):
        return self.attraction.skin_used(self.cells, state, arrangement)

    def parts(self, number, t, dt, state, params, arrangement):
        first, way, second = self._lengths(t, dt)
        velocity = state.velocity + first * state.acceleration
        state = eqx.tree_at(lambda s: s.position, state, state.position + way * velocity)
        acceleration = self._acceleration(state, params, arrangement)
        velocity = velocity + second * acceleration
        yield StepPart(eqx.tree_at(lambda s: (s.velocity, s.acceleration), state, (velocity, acceleration)))

    def conserved(self):
        return conserved_names(self.cells.ndim)

    def unbalanced(self, names):
        if "energy" in names and self.expansion is not None:
            return "outputs: the balance of energy does not know what the expansion takes; leave it out"
        turning = [name for name in names if name.startswith("angular")]
        if turning and any(self.cells.periodic):
            return f"outputs: the balance of {turning[0]} expects a box that is open along all axes; leave it out"
        return ""

    def _lengths(self, t, dt) -> tuple[Array, Array, Array]:
        """By what the first kick, the drift and the second kick multiply."""
        if self.expansion is None:
            return 0.5 * dt, dt, 0.5 * dt
        kick = self.expansion.kick_length
        return kick(t, 0.5 * dt), self.expansion.drift_length(t, dt), kick(t + 0.5 * dt, 0.5 * dt)

    def _acceleration(self, state: State, params: Params, arrangement) -> Array:
        return self.attraction.field(self.cells, state, params, arrangement)["acceleration"]

    def stable_dt(self, state, params):
        return jnp.asarray(jnp.inf, state.position.dtype)

    def diagnostics(self, t, state, params):
        """Energies and momenta; where the background expands the scale factor too, and energies of peculiar motion.

        status: bits of `status`, where there was too little room to measure.
        """
        state, arrangement, status = self.arrange(state, params)
        found = self.attraction.field(self.cells, state, params, arrangement)
        a = jnp.ones((), state.mass.dtype) if self.expansion is None else self.expansion.scale_factor(t)
        mass = jnp.where(state.ids >= 0, state.mass, 0)
        kinetic = self.domain.sum(0.5 * mass * jnp.sum(state.velocity**2, axis=0)) / a**2
        potential = self.domain.sum(0.5 * mass * found["potential"]) / a
        result = {"kinetic_energy": kinetic, "potential_energy": potential, "energy": kinetic + potential}
        for axis, name in enumerate("xyz"[: self.cells.ndim]):
            result[f"momentum_{name}"] = self.domain.sum(mass * state.velocity[axis])
        if self.expansion is not None:
            result["scale_factor"] = a
        if not any(self.cells.periodic) and self.cells.ndim > 1:
            result |= self._angular_momentum(state, mass)
        return result | {"particles": counted(self.cells, state.ids), "status": status}

    def _angular_momentum(self, state: State, mass: Array) -> dict[str, Array]:
        x, v = self.cells.absolute(state.position), state.velocity
        planes = turning_planes(self.cells.ndim)
        return {
            f"angular_momentum_{name}": self.domain.sum(mass * (x[i] * v[j] - x[j] * v[i]))
            for name, (i, j) in planes.items()
        }


def turning_planes(ndim: int) -> dict[str, tuple[int, int]]:
    """Planes in which particles can turn, by the axis that they turn about."""
    return {1: {}, 2: {"z": (0, 1)}}.get(ndim, {"x": (1, 2), "y": (2, 0), "z": (0, 1)})


def conserved_names(ndim: int) -> tuple[str, ...]:
    """Quantities that have balances."""
    momenta = (f"momentum_{axis}" for axis in AXES[:ndim])
    return (*momenta, *(f"angular_momentum_{axis}" for axis in turning_planes(ndim)), "energy")


Gravity.Params, Gravity.State = Params, State
