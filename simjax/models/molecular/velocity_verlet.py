"""Dynamics of particles under forces: what every one is given and gives, and Newton's equations."""

import abc
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.grid import AXES, LOWER, UPPER
from simjax.jaxpr.jaxpr_parts import part
from simjax.models.conserved import Accounts, through
from simjax.models.particle_balances import StepPart, end_of
from simjax.particles.cells import Cells, counted
from simjax.schema.parts import Part

THERMOSTAT = "made_by_thermostat"


@dataclasses.dataclass(frozen=True)
class System:
    """Moving particles.

    cells: the grid of cells. mass: of every slot, `(1, *cells.shape)`. interactions: from a state to energy, force and
    virial of every particle, as `Interaction.evaluate`. reflecting: whether axes that do not close on themselves end
    in walls that throw particles back.
    """

    cells: Cells
    mass: Array
    interactions: Callable[[Any], dict[str, Any]]
    reflecting: bool = False

    def sum(self, state, values: Array) -> Array:
        """Sum over all particles of `values`, `cells.shape`."""
        return self.cells.domain.sum(jnp.where(state.ids >= 0, values, 0))

    @part("forces")
    def forces(self, state) -> Array:
        """`(ndim, *cells.shape)`."""
        return self.interactions(state)["force"]

    def kinetic_energy(self, state) -> Array:
        """Kinetic energy of all particles, a scalar."""
        return self.sum(state, 0.5 * jnp.sum(self.mass * state.velocity**2, axis=0))

    def count(self, state) -> Array:
        """Number of particles, in the dtype of the state."""
        return counted(self.cells, state.ids).astype(state.velocity.dtype)

    def freedom(self, state) -> Array:
        """Degrees of freedom of velocities: one less for each axis along which the total momentum is fixed."""
        return self.cells.ndim * self.count(state) - fixed_momenta(self.cells, self.reflecting)

    def warmed(self, before, after) -> StepPart:
        """The part in which a thermostat changed velocities."""

        def made() -> Accounts:
            push = self._push(before, after)
            amounts = {f"momentum_{axis}": jnp.sum(p) for axis, p in zip(AXES, push, strict=False)}
            work = 0.5 * jnp.sum(push * (before.velocity + after.velocity))
            return {THERMOSTAT: {**amounts, "energy": work}}

        return StepPart(after, made)

    def bounced(self, before, after) -> StepPart:
        """The part in which particles drifted, and walls threw some of them back."""

        def made() -> Accounts:
            push, accounts = self._push(before, after), {}
            for k, p in enumerate(push):
                if self.reflecting and not self.cells.periodic[k]:
                    name = f"momentum_{AXES[k]}"
                    accounts[through(k, LOWER)] = {name: jnp.sum(jnp.maximum(p, 0))}
                    accounts[through(k, UPPER)] = {name: jnp.sum(jnp.minimum(p, 0))}
            return accounts

        return StepPart(after, made)

    def _push(self, before, after) -> Array:
        """Momentum that every particle got between two states, `(ndim, *cells.shape)`."""
        return jnp.where(before.ids >= 0, self.mass * (after.velocity - before.velocity), 0)


def fixed_momenta(cells: Cells, reflecting: bool) -> int:
    """Along how many axes forces between particles keep the total momentum: walls do not."""
    return sum(cells.periodic) if reflecting else cells.ndim


class Dynamics(eqx.Module, Part):
    """One step of the equations of motion, with one evaluation of the forces.

    `state.force` holds the forces where particles stand, before a step and after it. `state.ensemble` holds scalars of
    the dynamics' own; `params` are `MolecularDynamics`' `Params.dynamics`. changes_scale: whether the box changes.
    conserves: the name of a diagnostic of the dynamics' own that stays as it is; "" if there is none.
    """

    conserves: ClassVar[str] = ""

    @property
    def changes_scale(self) -> bool:
        return False

    def start(self, system: System, state, params) -> Any:
        """`state.ensemble` at the start."""
        return None

    @abc.abstractmethod
    def step(self, system: System, number: Array, dt: Array, state, params) -> Any:
        """The state after `dt`. `number` counts the steps since the start, int32."""

    def scale(self, state) -> Array | None:
        """Lengths in units of those in which positions are given; None where they are the same."""
        return None

    def diagnostics(self, system: System, state, params, energy: Array) -> dict[str, Array]:
        """Scalars worth following; `energy` is that of all particles."""
        return {}


class DynamicsInParts(Dynamics):
    """A dynamics that knows what changes momentum and energy beside the forces; see `models.particle_balances`."""

    thermal: eqx.AbstractClassVar[bool]
    """True where a thermostat changes momentum and energy."""

    @abc.abstractmethod
    def parts(self, system: System, number: Array, dt: Array, state, params) -> Iterator[StepPart]:
        """Yield the parts of a time step in order, such as kick and drift."""

    def step(self, system, number, dt, state, params):
        return end_of(self.parts(system, number, dt, state, params))


class VelocityVerlet(DynamicsInParts):
    """Newton's equations: m_i d^2 x_i/dt^2 = F_i, at constant energy.

    Swope et al. (1982), J. Chem. Phys. 76, 637, eq. 1-2. Params: none.
    """

    thermal: ClassVar[bool] = False

    def parts(self, system, number, dt, state, params):
        yield from moves(system, state, dt)


def moves(system: System, state, dt: Array) -> Iterator[StepPart]:
    """Parts of a velocity Verlet step: half a kick, a drift, half a kick."""
    kicked = kick(system, state, 0.5 * dt)
    yield system.bounced(kicked, moved := drift(system, kicked, dt))
    yield StepPart(kick(system, with_forces(system, moved), 0.5 * dt))


def move(system: System, state, dt: Array) -> Any:
    """One step of velocity Verlet."""
    return end_of(moves(system, state, dt))


def kick(system: System, state, dt: Array) -> Any:
    """Velocities changed by the present forces for `dt`."""
    return dataclasses.replace(state, velocity=state.velocity + dt * state.force / system.mass)


def drift(system: System, state, dt: Array) -> Any:
    """Positions changed by the present velocities for `dt`."""
    position, velocity = displaced(system, state, dt * state.velocity)
    return dataclasses.replace(state, position=position, velocity=velocity)


def displaced(system: System, state, way: Array) -> tuple[Array, Array]:
    """Positions after `way`, `(ndim, *cells.shape)`, and velocities: mirrored at reflecting walls."""
    position, velocity = state.position + way, state.velocity
    if not system.reflecting:
        return position, velocity
    both = [
        (x, v) if periodic else _mirrored(system.cells, axis, x, v)
        for axis, (periodic, x, v) in enumerate(zip(system.cells.periodic, position, velocity, strict=True))
    ]
    position, velocity = (jnp.stack(components) for components in zip(*both, strict=True))
    return position, velocity


def _mirrored(cells: Cells, axis: int, x: Array, v: Array) -> tuple[Array, Array]:
    lower, upper = cells.walls(axis, x.dtype)
    below, above = x < lower, x > upper
    x = jnp.where(below, 2 * lower - x, jnp.where(above, 2 * upper - x, x))
    # What stands on the upper wall itself would be counted to the cell beyond.
    x = jnp.minimum(x, upper - float(4 * jnp.finfo(x.dtype).eps) * cells.domain.grid.spacing[axis])
    return x, jnp.where(below | above, -v, v)


def with_forces(system: System, state) -> Any:
    """The state with the forces where particles stand."""
    return dataclasses.replace(state, force=system.forces(state))
