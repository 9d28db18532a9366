"""Smoothed particle hydrodynamics of weakly compressible fluids."""

import dataclasses
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least, require_kind, require_one_of
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.conserved import Accounts
from simjax.models.particle_balances import StepPart, StepsInParts
from simjax.models.sph.kernels import SmoothingKernel
from simjax.models.sph.pair_terms import FLUID, WALL, Moving, Pressing, density_rate, forces, seen_by_walls
from simjax.notebook import all_in_a_line
from simjax.particles.cells import Cells, counted, pack, require_cells
from simjax.particles.neighbor_policy import Arrangement, NeighborPolicy, Particles

ACOUSTIC, VISCOUS, FORCED = 0.25, 0.125, 0.25
"""Shares of h / (c + |u|), h^2 / nu and (h / |g|)^(1/2) that a step may take: Adami, Hu and Adams (2012), eq. 19-21."""

MASS, GRAVITY, WALLS = "fluid_mass", "made_by_gravity", "made_by_walls"

UNSEEN = 1e-6
"""Share of the kernel's peak below which a wall particle sees no fluid: it has no pressure then."""


class State(Particles):
    """velocity, acceleration: `(ndim, *cells.shape)`; density: `cells.shape`; species: `cells.shape` int32.

    acceleration: of walls, which it does not move, that which the fluid's forces would give a particle's mass.
    crowding: `(ndim, *cells.shape)` acceleration that evens out distances between particles; None where they are
    carried with the flow.
    """

    velocity: Array
    acceleration: Array
    crowding: Array | None
    density: Array
    species: Array


class Params(eqx.Module):
    """Parameters of the fluid, scalars but for gravity.

    density: at no pressure, mass / length^ndim. sound_speed: c, about ten times the largest velocity, which keeps
    densities within 1 %. viscosity: kinematic, length^2 / time. gravity: `(ndim,)` length / time^2.
    artificial_viscosity: alpha, for inviscid free surfaces about 0.02. density_diffusion: delta, about 0.1.
    """

    density: Array
    sound_speed: Array
    viscosity: Array
    gravity: Array
    artificial_viscosity: Array
    density_diffusion: Array

    __repr__ = all_in_a_line

    def __check_init__(self):
        above = {"density": self.density, "sound_speed": self.sound_speed}
        require_at_least("WeaklyCompressibleSPH.Params", above, strictly=True)
        names = ("viscosity", "artificial_viscosity", "density_diffusion")
        require_at_least("WeaklyCompressibleSPH.Params", {name: getattr(self, name) for name in names})


class WeaklyCompressibleSPH(StepsInParts):
    """A weakly compressible fluid: d rho/dt = -rho div v, dv/dt = -grad p / rho + nu lap v + g, dx/dt = v.

    p = c^2 rho_0 / gamma ((rho / rho_0)^gamma - 1), with gamma = 1 a linear law. Sums over pairs: `smoothed_pairs`.
    Each step kicks, drifts and kicks, and changes the density from its rate in the middle of the drift: Adami, Hu and
    Adams (2012), J. Comput. Phys. 231, 7057, eq. 15-18.

    kernel: W. spacing: distance of particles at rest, so that each has the mass rho_0 spacing^ndim. exponent: gamma.
    walls: wall particles take pressure from the fluid around them (eq. 23 and 27 of that paper) and let it slip or
    not; "none": there are none. transport: particles are carried by the flow and, for a uniform distribution, down the
    gradient of their number; for flows without free surfaces. Adami, Hu and Adams (2013), J. Comput. Phys. 241, 292.

    Examples:
        >>> sj.load("dam_break").config.model
        'sph'
    """

    cells: Cells
    skin: NeighborPolicy
    kernel: SmoothingKernel
    spacing: float = eqx.field(static=True)
    steps_per_arrangement: int = eqx.field(static=True)
    exponent: float = eqx.field(static=True, default=7.0)
    walls: Literal["none", "slip", "no_slip"] = eqx.field(static=True, default="none")
    transport: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        name = "WeaklyCompressibleSPH"
        require_cells(name, self.cells)
        require_kind(f"{name}: skin", self.skin, NeighborPolicy, "a NeighborPolicy(cutoff=2.5, skin=0.3)")
        require_kind(f"{name}: kernel", self.kernel, SmoothingKernel, "a kernel of models.sph.kernels")
        numbers = {"spacing": self.spacing, "exponent": self.exponent}
        require_at_least("WeaklyCompressibleSPH", numbers, strictly=True)
        require_one_of("WeaklyCompressibleSPH.walls", self.walls, ("none", "slip", "no_slip"))
        if self.skin.cutoff < self.kernel.support:
            raise ConfigurationError(
                f"NeighborPolicy.cutoff={self.skin.cutoff:g} is shorter than the kernel's support; write "
                f"{self.kernel.support:g}."
            )

    @property
    def domain(self) -> Domain:
        return self.cells.domain

    def state_from(
        self, position: Array, velocity: Array, pressure: Array, species: Array, params: Params
    ) -> tuple[State, Array]:
        """The state of particles given one after the other, `(ndim, particles)` and `(particles,)`.

        Also returns how many found no place.
        """
        state, lost, _ = self.begun(position, velocity, pressure, species, params)
        return state, lost

    def begun(
        self, position: Array, velocity: Array, pressure: Array, species: Array, params: Params
    ) -> tuple[State, Array, Array]:
        """Like `state_from`, with bits of `status` where there was too little room to arrange the particles."""
        carried = {"velocity": velocity, "density": self._density(pressure, params), "species": species}
        position, ids, carried, lost = pack(self.cells, position, carried)
        zero = jnp.zeros_like(position)
        crowding = zero if self.transport else None
        state = State(
            position,
            jnp.zeros(position.shape, jnp.int32),
            ids,
            carried["velocity"],
            zero,
            crowding,
            carried["density"],
            carried["species"],
        )
        arrangement, fault = self.skin.listed(self.cells, state)
        return self._pressed(state, None, params, arrangement), lost, fault

    def arrange(self, state, params):
        return self.skin.arrange(self.cells, state)

    def skin_used(self, state, arrangement):
        return self.skin.skin_used(state, arrangement)

    def parts(self, number, t, dt, state, params, arrangement):
        half = 0.5 * dt
        kicked = self._kicked(half, state, params)
        yield kicked
        velocity = kicked.state.velocity
        drift = None if state.crowding is None else half * state.crowding
        carrying = velocity if drift is None else velocity + drift
        way = half * jnp.where((state.species == WALL)[None], jnp.zeros_like(carrying), carrying)
        state = dataclasses.replace(state, position=state.position + way, velocity=velocity)
        rate = self._density_rate(state, carrying, params, arrangement)
        state = dataclasses.replace(state, position=state.position + way, density=state.density + dt * rate)
        state = self._pressed(state, drift, params, arrangement)
        yield self._kicked(half, state, params)

    def _kicked(self, dt, state: State, params: Params) -> StepPart:
        """The part in which accelerations change the velocity of the fluid for `dt`."""
        fluid = _fluid(state)

        def made() -> Accounts:
            mass = params.density * self.spacing**self.cells.ndim
            fallen = [dt * mass * g * jnp.sum(fluid.astype(dt.dtype)) for g in params.gravity]
            # What the fluid gives to walls these take from it.
            wall = (state.species != FLUID) & (state.ids >= 0)
            pushed = [-dt * mass * jnp.sum(jnp.where(wall, a, 0)) for a in state.acceleration]
            momenta = [f"momentum_{axis}" for axis in AXES[: self.cells.ndim]]
            accounts = {GRAVITY: fallen, WALLS: pushed}
            return {part: dict(zip(momenta, accounts[part], strict=True)) for part in self.made_by(momenta[0])}

        kick = dt * jnp.where(fluid[None], state.acceleration, jnp.zeros_like(state.acceleration))
        return StepPart(dataclasses.replace(state, velocity=state.velocity + kick), made)

    def conserved(self):
        return conserved_names(self.cells.ndim)

    def made_by(self, name):
        if name == MASS:
            return ()
        return (GRAVITY,) if self.walls == "none" else (GRAVITY, WALLS)

    def _density_rate(self, state: State, carrying: Array, params: Params, arrangement: Arrangement) -> Array:
        pairs = self.skin.pairs(self.cells, state, arrangement)
        moving = Moving(carrying, state.density, self._volume(state, params), state.species)
        rate = pairs.sum(density_rate(self.kernel), moving, params)
        return jnp.where(_fluid(state), rate, jnp.zeros_like(rate))

    def _pressed(self, state: State, drift: Array | None, params: Params, arrangement: Arrangement) -> State:
        """`state` with the density of walls, and the accelerations of the fluid where it is."""
        pairs = self.skin.pairs(self.cells, state, arrangement)
        velocity = state.velocity
        if self.walls != "none":
            density, velocity = self._seen_by_walls(state, params, pairs)
            state = dataclasses.replace(state, density=density)
        if drift is None and self.transport:
            drift = jnp.zeros_like(velocity)
        mass = params.density * self.spacing**self.cells.ndim
        pressure = self._pressure(self._density_or_rest(state, params), params)
        pressing = Pressing(velocity, drift, self._volume(state, params), pressure, state.species)
        found = pairs.sum(forces(self.kernel, self.walls == "slip"), pressing, (params, mass))
        fluid = _fluid(state)[None]

        def of_fluid(acceleration):
            return jnp.where(fluid, acceleration, jnp.zeros_like(acceleration))

        gravity = params.gravity.reshape(-1, *(1,) * len(self.cells.shape))
        forced = jnp.stack(found["force"]) / mass
        acceleration = jnp.where(fluid, forced + gravity, jnp.where(state.ids >= 0, forced, jnp.zeros_like(forced)))
        crowding = None
        if self.transport:
            uniform = params.density * params.sound_speed**2
            crowding = of_fluid(jnp.stack(found["crowding"]) * (uniform / mass))
        return dataclasses.replace(state, acceleration=acceleration, crowding=crowding)

    def _seen_by_walls(self, state: State, params: Params, pairs) -> tuple[Array, Array]:
        """Densities, and velocities as friction needs them, with those of walls extrapolated from the fluid."""
        density = self._density_or_rest(state, params)
        pressure = self._pressure(density, params)
        values = (state.velocity, density, pressure, state.species)
        found = pairs.sum(seen_by_walls(self.kernel), values, params.gravity)
        # Of fluid at the kernel's rim, weights are too small to divide by.
        near = found["weight"] > UNSEEN * self.kernel.value(jnp.zeros_like(density))
        weight = jnp.where(near, found["weight"], jnp.ones_like(found["weight"]))
        wall = (state.species != FLUID) & (state.ids >= 0)
        pressure = jnp.where(near, found["pressure"] / weight, jnp.zeros_like(weight))
        density = jnp.where(wall, self._density(pressure, params), density)
        fluid_velocity = jnp.stack(found["velocity"]) / weight[None]
        mirrored = 2 * state.velocity - fluid_velocity
        return density, jnp.where((wall & near)[None], mirrored, state.velocity)

    def _pressure(self, density: Array, params: Params) -> Array:
        stiffness = params.sound_speed**2 * params.density / self.exponent
        return stiffness * ((density / params.density) ** self.exponent - 1)

    def _density(self, pressure: Array, params: Params) -> Array:
        """The density at a pressure."""
        stiffness = params.sound_speed**2 * params.density / self.exponent
        return params.density * (1 + pressure / stiffness) ** (1 / self.exponent)

    def _density_or_rest(self, state: State, params: Params) -> Array:
        """Densities, in empty slots that at rest."""
        return jnp.where(state.ids >= 0, state.density, params.density)

    def _volume(self, state: State, params: Params) -> Array:
        return params.density * self.spacing**self.cells.ndim / self._density_or_rest(state, params)

    def pressure(self, state: State, params: Params) -> Array:
        """Pressure of every particle, `cells.shape`; zero in empty slots."""
        return self._pressure(self._density_or_rest(state, params), params)

    def unphysical(self, state, params):
        return {"density <= 0": (state.ids >= 0) & (state.density <= 0)}

    def stable_dt(self, state, params):
        h, c = self.kernel.length, params.sound_speed
        filled = state.ids >= 0
        square = jnp.where(filled, jnp.sum(state.velocity**2, axis=0), 0)
        # Artificial viscosity acts as one of alpha c h / (2 (ndim + 2)).
        viscosity = params.viscosity + params.artificial_viscosity * c * h / (2 * (self.cells.ndim + 2))
        least = float(jnp.finfo(square.dtype).tiny) ** 0.5
        gravity = jnp.sqrt(jnp.maximum(jnp.sum(params.gravity**2), least))
        limits = (
            ACOUSTIC * h / (c + jnp.sqrt(jnp.maximum(square, least))),
            VISCOUS * h**2 / jnp.maximum(viscosity, least),
            FORCED * jnp.sqrt(h / gravity),
        )
        return jnp.minimum(jnp.minimum(limits[0], limits[1]), limits[2])

    def diagnostics(self, t, state, params):
        """Diagnostics of the fluid.

        Mass, momentum, energy of motion and of height under gravity (unless it goes round the box),
        the largest deviation of the density, in parts of that at rest, and how far it reaches along open axes.
        """
        mass = params.density * self.spacing**self.cells.ndim
        fluid = _fluid(state)
        velocity = jnp.where(fluid[None], state.velocity, 0)
        deviation = jnp.where(fluid, jnp.abs(state.density / params.density - 1), 0)
        result = {
            MASS: self.domain.sum(mass * fluid.astype(state.density.dtype)),
            "kinetic_energy": self.domain.sum(0.5 * mass * velocity**2),
            "density_deviation": self.domain.max(deviation),
            "particles": counted(self.cells, state.ids),
        }
        place, lower = self.cells.absolute(state.position), self.domain.grid.lower
        for axis, name in enumerate("xyz"[: self.cells.ndim]):
            result[f"momentum_{name}"] = self.domain.sum(mass * velocity[axis])
            if not self.cells.periodic[axis]:
                result[f"front_{name}"] = self.domain.max(jnp.where(fluid, place[axis], lower[axis]))
        if not any(self.cells.periodic):
            height = -sum(g * x for g, x in zip(params.gravity, place, strict=True))
            result["potential_energy"] = self.domain.sum(jnp.where(fluid, mass * height, 0))
            result["energy"] = result["kinetic_energy"] + result["potential_energy"]
        return result


WeaklyCompressibleSPH.Params, WeaklyCompressibleSPH.State = Params, State


def conserved_names(ndim: int) -> tuple[str, ...]:
    """Quantities that have balances."""
    return (MASS, *(f"momentum_{axis}" for axis in AXES[:ndim]))


def _fluid(state: State) -> Array:
    return (state.species == FLUID) & (state.ids >= 0)
