"""The flows that are measured, built through simjax's public parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.starts import (
    FLOW_DT,
    FORCE,
    VELOCITY,
    VISCOSITY,
    WAVENUMBER,
    advection_diffusion_dt,
    smooth_scalar,
    solenoidal_velocity,
)
from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.core.model import Model
from simjax.grid import Grid
from simjax.integrators.runge_kutta import Integrator
from simjax.models.cell_centred import CenteredModel
from simjax.models.flow import incompressible
from simjax.ops.difference import laplacian
from simjax.parallel import decompose, distribute
from simjax.status import OK
from simjax.stepping.simulate import Clock, Schedule, advance, real_dtype


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
    from simjax.models.scalar import advection_diffusion  # the first result of a flow has none

    grid = domain.grid
    scalar = jnp.asarray(smooth_scalar(grid.shape), dtype)
    model = advection_diffusion.AdvectionDiffusion(domain, _periodic(grid.ndim))
    velocity = np.array(VELOCITY[: grid.ndim])
    params = advection_diffusion.Params(jnp.asarray(VISCOSITY, dtype), jnp.asarray(velocity, dtype))
    return Case(model, params, advection_diffusion.State(scalar), advection_diffusion_dt(grid.shape))


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
    velocity = tuple(jnp.asarray(u, dtype) for u in solenoidal_velocity(domain.grid.shape))
    return flow(domain, velocity, VISCOSITY, FLOW_DT, force=FORCE, wavenumber=WAVENUMBER, equations=equations)


def flow(
    domain: Domain,
    velocity,
    viscosity: float,
    dt: float,
    *,
    force: float,
    wavenumber: int,
    equations=incompressible.Incompressible,
) -> Case:
    """A periodic flow from a velocity on lower faces, driven along x by force sin(wavenumber y) unless `force` is 0."""

    def drive(t, coordinates, params) -> Array:
        return force * jnp.sin(wavenumber * coordinates[1])

    ndim, dtype = domain.grid.ndim, velocity[0].dtype
    model = equations(domain, _periodic(ndim), (drive if force else None, *(None,) * (ndim - 1)))
    params = incompressible.Params(jnp.asarray(viscosity, dtype), jnp.asarray(0.0, dtype))
    return Case(model, params, incompressible.State(tuple(velocity)), dt)


def chunk(case: Case, integrator: Integrator, steps: int, mesh: Mesh | None = None):
    """The program a run calls again and again, `steps` steps with donated state, and its first argument.

    mesh: of the devices over which the case's domain is cut.
    """
    dtype = real_dtype(case.state)
    # Long enough that no frame ends while it is timed.
    schedule = Schedule(interval=1e6 * case.dt, dt=case.dt)

    def run(carry):
        state, clock = carry
        return advance(case.model, integrator, case.params, state, clock, schedule, steps=steps, until=1)

    # Copied, as the program takes over the memory of what it is given, once for every leaf.
    carry = jax.tree.map(jnp.array, (case.state, Clock.zero(dtype)))
    specs = PartitionSpec()
    if mesh is not None:
        of_state, _ = case.model.partition_specs(case.state, case.params)
        specs = of_state, jax.tree.map(lambda _: PartitionSpec(), carry[1])
        carry = jax.device_put(carry, jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs))
    return distribute(run, mesh, in_specs=(specs,), out_specs=specs, donate=(0,)), carry


def check(carry: tuple[Any, Clock]) -> None:
    """Raise if the run that was timed has diverged."""
    status = int(carry[1].status)
    if status != OK:
        raise FloatingPointError(f"the timed run stopped with status {status}: its figures mean nothing")


def unit_box(shape) -> Domain:
    return Domain(Grid(shape))


def kolmogorov_box(shape, mesh: Mesh | None = None) -> Domain:
    grid = Grid(shape, upper=(2 * np.pi,) * len(shape))
    return Domain(grid) if mesh is None else decompose(grid, mesh)


def _periodic(ndim: int) -> list[tuple[PeriodicSide, PeriodicSide]]:
    return [(PeriodicSide(), PeriodicSide())] * ndim
