"""The flows that are measured, built through simjax's public parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.core.model import Model
from simjax.grid import CENTER, FACE, Grid
from simjax.integrators.runge_kutta import Integrator
from simjax.models.cell_centred import CenteredModel
from simjax.models.flow import incompressible
from simjax.models.scalar import advection_diffusion
from simjax.ops.difference import laplacian
from simjax.parallel import distribute
from simjax.status import OK
from simjax.stepping.simulate import Clock, Schedule, advance, real_dtype

WAVENUMBER, FORCE = 4, 1.0
VISCOSITY, VELOCITY = 1e-3, (0.7, 0.3, 0.2)


class ConcatenatingDomain(Domain):
    """One periodic device that pads by concatenation, the way it is usually written."""

    def apply(self, stencil, fields, layouts, width, t=0.0):
        ndim = self.grid.ndim

        def padded(u):
            return jnp.pad(u, [(0, 0)] * (u.ndim - ndim) + [(width, width)] * ndim, mode="wrap")

        blocks = jax.tree.map(padded, fields)
        return stencil(*blocks) if isinstance(fields, tuple) else stencil(blocks)


@dataclass(frozen=True)
class Case:
    """A model with parameters, an initial state on the whole grid, and a time step that keeps it stable."""

    model: Model
    params: Any
    state: Any
    dt: float


def advected_scalar(domain: Domain, dtype=np.float32) -> Case:
    """Central advection-diffusion of a smooth scalar in the periodic unit box."""
    grid = domain.grid
    phases = [2 * np.pi * grid.coordinates(axis, CENTER) for axis in range(grid.ndim)]
    scalar = np.ones((1,) * grid.ndim)
    for phase in np.meshgrid(*phases, indexing="ij", sparse=True):
        scalar = scalar * (1 + 0.5 * np.sin(phase))
    model = advection_diffusion.AdvectionDiffusion(domain, _periodic(grid.ndim))
    velocity = np.array(VELOCITY[: grid.ndim])
    params = advection_diffusion.Params(jnp.asarray(VISCOSITY, dtype), jnp.asarray(velocity, dtype))
    h = np.array(grid.spacing)
    # A quarter of what forward Euler allows: central advection needs dt <= 2 kappa / |a|^2, diffusion h^2.
    limit = min(2 * VISCOSITY / float(velocity @ velocity), 1 / (2 * VISCOSITY * float(np.sum(h**-2.0))))
    return Case(model, params, advection_diffusion.State(jnp.asarray(scalar, dtype)), 0.25 * limit)


class Heat(CenteredModel):
    """Heat conduction: du/dt = kappa lap(u)."""

    fields = ("u",)
    parameters = {"diffusivity": 1.0}

    def rhs(self, t, state, params):
        h = self.domain.grid.spacing
        return {"u": self.apply(lambda u: params["diffusivity"] * laplacian(u, h), state, t=t)}

    def stable_dt(self, state, params):
        return 1 / (2 * params["diffusivity"] * sum(h**-2 for h in self.domain.grid.spacing))


def heat(domain: Domain, dtype=np.float32) -> Case:
    """Conduction from a smooth temperature in the periodic unit box: one read and one write of a number per cell."""
    case = advected_scalar(domain, dtype)
    model, params = Heat(domain, _periodic(domain.grid.ndim)), {"diffusivity": jnp.asarray(VISCOSITY, dtype)}
    state = {"u": case.state.concentration}
    return Case(model, params, state, 0.5 * float(model.stable_dt(state, params)))


class Unprojected(incompressible.Incompressible):
    """What a stage of a flow computes before its pressure: no solve, stencils alone."""

    def constrain(self, t, dt, state, params):
        return state


def kolmogorov(domain: Domain, dtype=np.float32, equations=incompressible.Incompressible) -> Case:
    """Two-dimensional Kolmogorov flow in the periodic box of side 2 pi: force sin(4 y) along x."""

    def force(t, coordinates, params) -> Array:
        return FORCE * jnp.sin(WAVENUMBER * coordinates[1])

    model = equations(domain, _periodic(2), (force, None))
    params = incompressible.Params(jnp.asarray(VISCOSITY, dtype), jnp.asarray(0.0, dtype))
    velocity = tuple(jnp.asarray(u, dtype) for u in solenoidal_velocity(domain.grid))
    return Case(model, params, incompressible.State(velocity), 0.25 * VISCOSITY)


def solenoidal_velocity(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """A smooth velocity of order one on the faces: differences of a stream function on lower corners."""
    x, y = (grid.coordinates(axis, FACE) for axis in range(2))
    rng = np.random.default_rng(0)
    psi = np.zeros(grid.shape)
    for k, m in ((1, 2), (2, 1), (3, 3), (4, 1), (2, 5)):
        a, b = rng.uniform(0, 2 * np.pi, 2)
        psi += np.sin(k * x + a)[:, None] * np.sin(m * y + b)[None, :] / np.hypot(k, m)
    h = grid.spacing
    u = (np.roll(psi, -1, axis=1) - psi) / h[1]
    v = -(np.roll(psi, -1, axis=0) - psi) / h[0]
    fastest = max(np.abs(u).max(), np.abs(v).max())
    return u / fastest, v / fastest


def chunk(case: Case, integrator: Integrator, steps: int) -> tuple[Callable, tuple[Any, Clock]]:
    """The program a run calls again and again, `steps` steps with donated state, and its first argument."""
    dtype = real_dtype(case.state)
    # Long enough that no frame ends while it is timed.
    schedule = Schedule(interval=1e6 * case.dt, dt=case.dt)

    def run(carry):
        state, clock = carry
        return advance(case.model, integrator, case.params, state, clock, schedule, steps=steps, until=1)

    program = distribute(run, None, in_specs=PartitionSpec(), out_specs=PartitionSpec(), donate=(0,))
    # Copied, as the program takes over the memory of what it is given, once for every leaf.
    return program, jax.tree.map(jnp.array, (case.state, Clock.zero(dtype)))


def check(carry: tuple[Any, Clock]) -> None:
    """Raise if the run that was timed has diverged."""
    status = int(carry[1].status)
    if status != OK:
        raise FloatingPointError(f"the timed run stopped with status {status}: its figures mean nothing")


def unit_box(shape) -> Domain:
    return Domain(Grid(shape))


def kolmogorov_box(shape) -> Domain:
    return Domain(Grid(shape, upper=(2 * np.pi,) * len(shape)))


def _periodic(ndim: int) -> list[tuple[PeriodicSide, PeriodicSide]]:
    return [(PeriodicSide(), PeriodicSide())] * ndim


CASES = {"advection_diffusion": (unit_box, advected_scalar), "incompressible": (kolmogorov_box, kolmogorov)}
