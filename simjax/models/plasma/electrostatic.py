"""Electrostatic plasma of particles and the field on a mesh that they make."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.arguments import require_at_least, require_count, require_kind
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.conserved import Accounts
from simjax.models.particle_balances import StepPart, StepsInParts
from simjax.models.plasma.boris import boris
from simjax.notebook import all_in_a_line
from simjax.ops.scaling import times_i
from simjax.particles.cells import Cells, counted, pack
from simjax.particles.mesh import ParticleMesh
from simjax.particles.neighbor_policy import NeighborPolicy, Particles
from simjax.solvers.fourier import MeshBasis

MAGNETIC = "made_by_magnetic_field"


class PlasmaParticles(Particles):
    """velocity: `(components, *cells.shape)`, as many components as axes or more. species: `cells.shape` int32."""

    velocity: Array
    species: Array


class Params(eqx.Module):
    """charge, mass: of one particle, `(species,)`. permittivity: scalar. magnetic: `(3,)`, uniform, or None.

    With a magnetic field velocities have three components.
    """

    charge: Array
    mass: Array
    permittivity: Array
    magnetic: Array | None = None

    __repr__ = all_in_a_line

    def __check_init__(self):
        require_at_least("Params", {"mass": self.mass, "permittivity": self.permittivity}, strictly=True)


class ElectrostaticPlasma(StepsInParts):
    """Charged particles: dx/dt = v, m dv/dt = q (E + v x B), E = -grad phi, eps lap(phi) = -(rho - mean of rho).

    rho is the particles' charge on the mesh, B a uniform magnetic field; a background at rest makes the plasma neutral.
    Drift of half a step, kick and turn (Boris) with the field in the middle, drift of the other half. Deposit and
    interpolation with the same weights and a field antisymmetric in the charges conserve momentum to rounding. In a
    step no particle moves by more than a cell, nor by more than twice `mesh.stray` mesh cells. Birdsall and Langdon
    (1985), Plasma Physics via Computer Simulation, chapters 2 and 4.

    Examples:
        >>> sj.load("landau_damping").config.model
        'electrostatic_pic'
    """

    mesh: ParticleMesh
    steps_per_arrangement: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require_kind("ElectrostaticPlasma: mesh", self.mesh, ParticleMesh, "a mesh; write ParticleMesh(cells)")
        require_count("ElectrostaticPlasma: steps_per_arrangement", self.steps_per_arrangement)

    @property
    def cells(self) -> Cells:
        """Cells in which the particles are kept."""
        return self.mesh.cells

    @property
    def domain(self) -> Domain:
        return self.mesh.cells.domain

    def state_from(
        self, position: Array, velocity: Array, species: Array, params: Params
    ) -> tuple[PlasmaParticles, Array]:
        """The state of particles given one after the other, `(ndim, particles)`, `(components, particles)`,
        `(particles,)`. Also returns how many found no place.

        Raises:
            ConfigurationError: a magnetic field, and velocities that have not three components.
        """
        components = velocity.shape[0]
        if components < self.cells.ndim or (params.magnetic is not None and components != 3):
            raise ConfigurationError(
                f"ElectrostaticPlasma: velocities have {components} components; write {self.cells.ndim}, or 3 with a "
                "magnetic field."
            )
        carried = {"velocity": velocity, "species": species}
        position, ids, carried, lost = pack(self.cells, position, carried)
        image = jnp.zeros(position.shape, jnp.int32)
        return PlasmaParticles(position, image, ids, carried["velocity"], carried["species"]), lost

    # ------------------------------------------------------------------ steps

    def arrange(self, state, params):
        return NeighborPolicy(0.0, 1.0).arrange(self.cells, state)

    def skin_used(self, state, arrangement):
        """The field is formed half a step before the positions that are looked at here."""
        halves = 2 * self.steps_per_arrangement
        allowed = max(self.mesh.stray, 1e-6) * halves / (halves - 1)
        return self.mesh.beyond(state.position, state.ids) / allowed

    def parts(self, number, t, dt, state, params, arrangement):
        state = self._drifted(0.5 * dt, state)
        force = self.mesh.interpolate(state.position, state.ids, self.field(self.density(state, params), params))
        ratio = of_species(params.charge / params.mass, state.species)
        velocity, before = self._kicked(dt, state.velocity, force, ratio, params), state.velocity

        def made() -> Accounts:
            mass = jnp.where(state.ids >= 0, of_species(params.mass, state.species)[0], 0)
            turned = zip(AXES, velocity - before, force, strict=False)
            return {MAGNETIC: {f"momentum_{axis}": jnp.sum(mass * (v - dt * ratio[0] * f)) for axis, v, f in turned}}

        state = eqx.tree_at(lambda s: s.velocity, state, velocity)
        yield StepPart(self._drifted(0.5 * dt, state), dict if params.magnetic is None else made)

    def conserved(self):
        return conserved_names(self.cells.ndim)

    def made_by(self, name):
        return (MAGNETIC,) if name.startswith("momentum") else ()

    def _drifted(self, dt, state: PlasmaParticles) -> PlasmaParticles:
        position = state.position + dt * state.velocity[: self.cells.ndim]
        return eqx.tree_at(lambda s: s.position, state, position)

    def _kicked(self, dt, velocity: Array, electric: Array, ratio: Array, params: Params) -> Array:
        missing = jnp.zeros((velocity.shape[0] - electric.shape[0], *velocity.shape[1:]), velocity.dtype)
        electric = jnp.concatenate([electric, missing])
        if params.magnetic is None:
            return velocity + dt * ratio * electric
        magnetic = jnp.broadcast_to(params.magnetic.reshape(-1, *(1,) * (velocity.ndim - 1)), velocity.shape)
        return boris(velocity, electric, magnetic, ratio, dt)

    # ------------------------------------------------------------------ the field

    def density(self, state: PlasmaParticles, params: Params) -> Array:
        """Charge density of the particles on the mesh, `(*mesh.domain.block_shape)`."""
        charge = of_species(params.charge, state.species)[0]
        return self.mesh.deposit(state.position, state.ids, charge) * (1 / self.mesh.domain.grid.cell_volume)

    def field(self, density: Array, params: Params) -> Array:
        """The electric field of a charge density on the mesh, `(ndim, *mesh.domain.block_shape)`.

        E_k = -i k rho_k / (eps k^2).
        """
        basis = MeshBasis(self.mesh.domain)
        spectrum = basis.forward(density)
        k = basis.wavenumbers(density.dtype)
        square = sum((v * v for v in k[1:]), k[0] * k[0])
        inverse = jnp.where(square == 0, 0.0, 1 / jnp.where(square == 0, 1.0, square)) / params.permittivity
        return basis.inverse(jnp.stack([times_i(-v * inverse, spectrum) for v in k]))

    # ------------------------------------------------------------------ what is seen of it

    def electric(self, state: PlasmaParticles, params: Params) -> Array:
        """The electric field of a state, whether or not its particles are in their cells: `(ndim, *mesh block)`."""
        return self.field(self.density(self.arrange(state, params)[0], params), params)

    def modes(self, electric: Array, count: int) -> Array:
        """Cosine and sine amplitudes of E_x for the first `count` waves along x: `(2, count)`."""
        domain = self.mesh.domain
        x = domain.coordinates((self.mesh.offset[0],) * domain.grid.ndim, electric.dtype)[0]
        phases = [2 * np.pi * (n + 1) / domain.grid.lengths[0] * (x - domain.grid.lower[0]) for n in range(count)]
        waves = [[2 * domain.mean(wave(p) * electric[0]) for p in phases] for wave in (jnp.cos, jnp.sin)]
        return jnp.stack([jnp.stack(row) for row in waves])

    def stable_dt(self, state, params):
        """Half a plasma period over pi: 2 / omega_p, with the mean density."""
        strength = of_species(params.charge**2 / (params.mass * params.permittivity), state.species)[0]
        mean = self.domain.sum(jnp.where(state.ids >= 0, strength, 0)) / math.prod(self.domain.grid.lengths)
        return 2 / jnp.sqrt(mean)

    def diagnostics(self, t, state, params):
        """Energies, total momentum by component and charge; the energy is conserved but for the step and the mesh."""
        electric = self.electric(state, params)
        volume = self.mesh.domain.grid.cell_volume
        present = state.ids >= 0
        momentum = jnp.where(present, of_species(params.mass, state.species) * state.velocity, 0)
        kinetic = 0.5 * self.domain.sum(momentum * state.velocity)
        potential = 0.5 * volume * self.domain.sum(params.permittivity * electric**2)
        charge = self.domain.sum(jnp.where(present, of_species(params.charge, state.species)[0], 0))
        result = {
            "kinetic_energy": kinetic,
            "field_energy": potential,
            "energy": kinetic + potential,
            "charge": charge,
            "particles": counted(self.cells, state.ids),
        }
        return result | {f"momentum_{'xyz'[k]}": self.domain.sum(momentum[k]) for k in range(momentum.shape[0])}


ElectrostaticPlasma.Params, ElectrostaticPlasma.State = Params, PlasmaParticles


def conserved_names(ndim: int) -> tuple[str, ...]:
    """Quantities that have balances."""
    return (*(f"momentum_{axis}" for axis in AXES[:ndim]), "energy", "charge")


def of_species(values: Array, species: Array) -> Array:
    """A property of its species for every slot, `(1, *cells.shape)`."""
    return values.at[species].get(mode="promise_in_bounds")[None]
