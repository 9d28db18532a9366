"""Flows past a cylinder in a square, with which simjax answers Mosaic."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

import simjax as sj

SIDES = {"periodic": sj.PeriodicSide, "no_slip": sj.NoSlipWall, "neumann": sj.OpenSide}
"""Sides of Mosaic's; where the velocity has no slope, fluid passes at the pressure zero."""


class Channel(NamedTuple):
    """A cylinder in a square. center, radius: over the side. sides: lower and upper along x, then along y."""

    center: tuple[float, float]
    radius: float
    sides: tuple[tuple[str, str], tuple[str, str]]


def end_and_drag(velocity, viscosity, dt, inflow=None, *, steps: int, extent: float, channel: Channel):
    """The velocity after `steps` of `dt`, and the mean drag over the later half of the steps.

    The drag has Mosaic's sign: it is the force of the cylinder on the fluid, over the density. `velocity` has the shape
    (n, n, 1, 2) and is at the centres of cells; viscosity and dt have (1,). inflow: (n,), the velocity through the
    lower side along x, where the upper one becomes an outflow; None: the sides are those of `channel`.
    """
    x0, y0, radius = (extent * length for length in (*channel.center, channel.radius))
    cylinder = sj.Solid(lambda t, x, y: jnp.hypot(x - x0, y - y0) - radius)
    sides = [(SIDES[lower](), SIDES[upper]()) for lower, upper in channel.sides]
    if inflow is not None:
        sides[0] = sj.Inflow((lambda t, x, y: inflow, 0.0)), sj.Outflow()
    grid = sj.Grid(velocity.shape[:2], upper=(extent, extent))
    model = sj.Incompressible(sj.Domain(grid), sides, solid=cylinder)
    params = model.Params(viscosity[0], jnp.zeros_like(viscosity[0]))
    faces = sj.velocity_on_faces(model, (velocity[:, :, 0, 0], velocity[:, :, 0, 1]))
    zero = jnp.zeros_like(dt[0])
    start = model.constrain(zero, zero, model.state_from({"velocity": faces}, params), params)

    def force(t, state, params):
        return state.reaction.force[0]

    each = sj.Schedule(steps=1, dt=dt[0])
    run = sj.simulate(model, sj.INTEGRATORS["kutta3"], params, start, each, frames=steps, observe=force)
    end = jnp.stack(sj.velocity_at_centers(model, run.state.velocity), axis=-1)
    return end[:, :, None], -jnp.mean(run.observed[steps // 2 :], keepdims=True)
