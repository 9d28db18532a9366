"""Electromagnetic plasma of particles in two dimensions, with all three components of velocities and fields."""

from collections.abc import Iterator

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least, require_count
from simjax.core.boundary import Periodic, PeriodicSide, center_layout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import CENTER, FACE
from simjax.models.particle_balances import StepPart, StepsInParts
from simjax.models.plasma import electrostatic
from simjax.models.plasma.boris import boris, lorentz_factor
from simjax.models.plasma.electrostatic import PlasmaParticles, of_species
from simjax.models.waves import maxwell
from simjax.models.waves.maxwell import Maxwell
from simjax.notebook import all_in_a_line
from simjax.ops.difference import shift
from simjax.particles.cells import Cells, counted, pack, require_cells
from simjax.particles.current_deposition import on_the_way, transported
from simjax.particles.mesh import ParticleMesh
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.schema.config_errors import raise_first
from simjax.solvers.poisson import solve_poisson

NODES = (FACE, FACE)
ELECTRIC = ((CENTER, FACE), (FACE, CENTER), NODES)
MAGNETIC = ((FACE, CENTER), (CENTER, FACE), (CENTER, CENTER))
"""Places of the components of E and of H on Yee's mesh; charges are at its nodes."""


CONSERVED = ("energy", "charge")
"""Quantities that have balances: fields have momentum too."""


class Params(electrostatic.Params):
    """Parameters of an electrostatic plasma, and the permeability, scalar: c^2 = 1 / (permittivity permeability)."""

    permeability: Array = eqx.field(kw_only=True)

    def __check_init__(self):
        require_at_least("ElectromagneticPlasma.Params", {"permeability": self.permeability}, strictly=True)


class State(eqx.Module):
    """particles: velocity is u = gamma v, `(3, *cells.shape)`, at time t - lag; positions at t.

    electric, magnetic: E and H at time t, `(3, *mesh.domain.block_shape)`.
    """

    particles: PlasmaParticles
    electric: Array
    magnetic: Array
    lag: Array

    __repr__ = all_in_a_line

    @property
    def position(self) -> Array:
        """Positions of all particles; `image`, `ids` and `velocity` are in the same order."""
        return self.particles.position

    @property
    def image(self) -> Array:
        return self.particles.image

    @property
    def ids(self) -> Array:
        return self.particles.ids

    @property
    def velocity(self) -> Array:
        return self.particles.velocity


def sorting_refusals(every: int | None) -> Iterator[tuple[str, str]]:
    """A sentence on particles that are not sorted in every step, with its key path."""
    if every not in (None, 1):
        path = "neighbor_list.rebuild_every"
        yield path, f"{path} = {every}: expected 1 or null, as particles are sorted in every step; write 1"


class ElectromagneticPlasma(StepsInParts):
    """Charged particles, dx/dt = u / gamma, m du/dt = q (E + v x B), in the fields that Maxwell's equations make of
    their currents: eps dE/dt = curl H - J, mu dH/dt = -curl E.

    gamma^2 = 1 + (u/c)^2, c^2 = 1/(eps mu), B = mu H; two axes, three components of u, E and H. Leapfrog on Yee's mesh;
    currents by Esirkepov's scheme keep div(eps E) - rho as it is to rounding. A uniform magnetic field of the params
    is added to B. `cells` are rearranged in every step, of less than `Maxwell.stable_dt`.
    Birdsall and Langdon (1985), Plasma Physics via Computer Simulation, chapter 15.

    Examples:
        >>> sj.load("weibel").config.model
        'electromagnetic_pic'
    """

    cells: Cells
    finer: int = eqx.field(static=True, default=1)
    steps_per_arrangement: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require_cells("ElectromagneticPlasma", self.cells)
        require_count("ElectromagneticPlasma: finer", self.finer)
        if self.cells.ndim != 2:
            raise ConfigurationError(f"ElectromagneticPlasma: expected cells along 2 axes, got {self.cells.ndim}.")
        raise_first(sorting_refusals(self.steps_per_arrangement))

    @property
    def domain(self) -> Domain:
        return self.cells.domain

    @property
    def mesh(self) -> ParticleMesh:
        """The mesh of charges and currents: in a step, light crosses less than one of its cells."""
        return ParticleMesh(self.cells, self.finer, "cic", NODES, stray=1.0)

    @property
    def _waves(self) -> tuple[Maxwell, Maxwell]:
        """The two halves of Maxwell's equations in two dimensions: (Ex, Ey, Hz) and (Ez, Hx, Hy)."""
        sides = [(PeriodicSide(), PeriodicSide())] * 2
        te, tm = (Maxwell(self.mesh.domain, sides, polarisation=name) for name in ("te", "tm"))
        return te, tm

    # ------------------------------------------------------------------ first state

    def state_from(self, position: Array, velocity: Array, species: Array, params: Params) -> tuple[State, Array]:
        """The state of particles given one after the other, `(2, particles)`, u `(3, particles)`, `(particles,)`, with
        the electrostatic field of their charges. Also returns how many found no place.
        """
        position, ids, carried, lost = pack(self.cells, position, {"velocity": velocity, "species": species})
        image = jnp.zeros(position.shape, jnp.int32)
        particles = PlasmaParticles(position, image, ids, carried["velocity"], carried["species"])
        domain = self.mesh.domain
        layout = center_layout([(Periodic(), Periodic())] * 2)
        source = self._density(particles, params) / params.permittivity
        potential = solve_poisson(domain, layout, -(source - domain.mean(source)))

        def slopes(padded):
            here = shift(padded, 2)
            return jnp.stack([(here - shift(padded, 2, k, 1)) * (1 / h) for k, h in enumerate(domain.grid.spacing)])

        electric = domain.apply(slopes, potential, layout, width=1)
        electric = jnp.concatenate([electric, jnp.zeros_like(potential)[None]])
        return State(particles, electric, jnp.zeros_like(electric), jnp.zeros((), position.dtype)), lost

    def _density(self, particles: PlasmaParticles, params: Params) -> Array:
        charge = of_species(params.charge, particles.species)[0]
        volume = self.mesh.domain.grid.cell_volume
        return self.mesh.deposit(particles.position, particles.ids, charge) * (1 / volume)

    # ------------------------------------------------------------------ steps

    def arrange(self, state, params):
        particles, arrangement, fault = NeighborPolicy(0.0, 1.0).arrange(self.cells, state.particles)
        return eqx.tree_at(lambda s: s.particles, state, particles), arrangement, fault

    def skin_used(self, state, arrangement):
        return self.mesh.beyond(state.particles.position, state.particles.ids) / self.mesh.stray

    def parts(self, number, t, dt, state, params, arrangement):
        particles, light = state.particles, light_speed(params)
        velocity = self._pushed(state.lag + 0.5 * dt, state, params)
        rate = velocity / lorentz_factor(velocity, light)[None]
        before, ids = particles.position, particles.ids
        after = before + dt * rate[:2]
        charge = of_species(params.charge, particles.species)[0]
        passed = transported(self.mesh, before, after, ids, charge)
        across = on_the_way(self.mesh, before, after, ids, charge * rate[2]) * dt
        hx, hy = self.mesh.domain.grid.spacing
        moved = jnp.stack([passed[0] * (1 / hy), passed[1] * (1 / hx), across * (1 / (hx * hy))])
        electric, magnetic = self._radiated(t, dt, state, moved / params.permittivity, params)
        particles = eqx.tree_at(lambda p: (p.position, p.velocity), particles, (after, velocity))
        yield StepPart(State(particles, electric, magnetic, 0.5 * dt + 0 * state.lag))

    def conserved(self):
        return CONSERVED

    def _pushed(self, dt, state: State, params: Params) -> Array:
        """u after `dt` in the fields of the state, whose particles are in their cells."""
        particles, fields = state.particles, params.permeability * state.magnetic

        def at_particles(offset, *components: Array) -> Array:
            mesh = ParticleMesh(self.cells, self.finer, "cic", offset, stray=0.0)
            return mesh.interpolate(particles.position, particles.ids, jnp.stack(components))

        ex, by = at_particles(ELECTRIC[0], state.electric[0], fields[1])
        ey, bx = at_particles(ELECTRIC[1], state.electric[1], fields[0])
        (ez,), (bz,) = at_particles(ELECTRIC[2], state.electric[2]), at_particles(MAGNETIC[2], fields[2])
        magnetic = jnp.stack([bx, by, bz])
        if params.magnetic is not None:
            magnetic = magnetic + params.magnetic.reshape(3, 1, 1, 1)
        ratio = of_species(params.charge / params.mass, particles.species)
        electric = jnp.stack([ex, ey, ez])
        return boris(particles.velocity, electric, magnetic, ratio, dt, light_speed(params))

    def _radiated(self, t, dt, state: State, moved: Array, params: Params) -> tuple[Array, Array]:
        """E and H a step later, where currents take `moved` from E: H half a step, E a step, H half a step."""
        medium = maxwell.Params(params.permittivity, params.permeability)
        electric, magnetic = list(state.electric), list(state.magnetic)
        for wave in self._waves:
            which, where = maxwell.POLARISATIONS[wave.polarisation]
            fields = {"electric": tuple(electric[c] for c in which), "magnetic": tuple(magnetic[c] for c in where)}
            prepared = wave.prepare(medium)
            halfway = wave.kick(t, 0.5 * dt, wave.state_from(fields, medium), medium, prepared)
            after = wave.drift(t, dt, halfway, medium, prepared)
            fed = tuple(u - moved[c] for u, c in zip(after.electric, which, strict=True))
            after = wave.kick(t, 0.5 * dt, eqx.tree_at(lambda s: s.electric, after, fed), medium, prepared)
            for c, u in zip(which, after.electric, strict=True):
                electric[c] = u
            for c, u in zip(where, after.magnetic, strict=True):
                magnetic[c] = u
        return jnp.stack(electric), jnp.stack(magnetic)

    # ------------------------------------------------------------------ what is seen of it

    def synchronised(self, state: State, params: Params) -> State:
        """The state with its particles in their cells and their velocities at the time of their positions."""
        state = self.arrange(state, params)[0]
        velocity = self._pushed(state.lag, state, params)
        return eqx.tree_at(lambda s: (s.velocity, s.lag), state, (velocity, jnp.zeros_like(state.lag)))

    def excess(self, state: State, params: Params) -> Array:
        """div(eps E) - rho less its mean, `(*mesh.domain.block_shape)`: what Gauss's law leaves over."""
        particles = self.arrange(state, params)[0].particles
        domain = self.mesh.domain

        def divergence(padded):
            h = domain.grid.spacing
            terms = [(shift(padded[k], 2) - shift(padded[k], 2, k, -1)) * (1 / h[k]) for k in range(2)]
            return terms[0] + terms[1]

        layout = center_layout([(Periodic(), Periodic())] * 2)
        divergence_of = domain.apply(divergence, state.electric, layout, width=1)
        density = self._density(particles, params)
        return params.permittivity * divergence_of - (density - domain.mean(density))

    def stable_dt(self, state, params):
        wave = self._waves[0]
        return wave.stable_dt(None, maxwell.Params(params.permittivity, params.permeability))

    def diagnostics(self, t, state, params):
        """Energies (kinetic without the rest's), momentum and number of particles, charge, what Gauss's law leaves."""
        state = self.synchronised(state, params)
        particles, velocity, light = state.particles, state.velocity, light_speed(params)
        present = particles.ids >= 0
        mass = of_species(params.mass, particles.species)
        gamma = lorentz_factor(velocity, light)
        # u^2 / (gamma + 1) is c^2 (gamma - 1) without its cancellation.
        kinetic = mass[0] * sum(u * u for u in velocity) / (gamma + 1)
        kinetic = self.domain.sum(jnp.where(present, kinetic, 0))
        half = 0.5 * self.mesh.domain.grid.cell_volume
        electric = half * self.domain.sum(params.permittivity * state.electric**2)
        magnetic = half * self.domain.sum(params.permeability * state.magnetic**2)
        momentum = jnp.where(present, mass * velocity, 0)
        result = {
            "kinetic_energy": kinetic,
            "electric_energy": electric,
            "magnetic_energy": magnetic,
            "energy": kinetic + electric + magnetic,
            "charge": self.domain.sum(jnp.where(present, of_species(params.charge, particles.species)[0], 0)),
            "particles": counted(self.cells, particles.ids),
            "gauss": self.domain.max(jnp.abs(self.excess(state, params))),
        }
        return result | {f"momentum_{'xyz'[k]}": self.domain.sum(momentum[k]) for k in range(3)}


ElectromagneticPlasma.Params, ElectromagneticPlasma.State = Params, State


def light_speed(params: Params) -> Array:
    """c = 1 / sqrt(eps mu)."""
    return 1 / jnp.sqrt(params.permittivity * params.permeability)
