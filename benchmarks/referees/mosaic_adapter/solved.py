"""Problems of Mosaic: which of them simjax solves, their solution, and its gradients."""

from __future__ import annotations

import functools
import math

import jax
from channel_flow import SIDES, Channel, end_and_drag
from periodic_flow import final_velocity


@functools.partial(jax.jit, static_argnames=("steps", "extent", "channel"))
def solved(arrays, *, steps: int, extent: float, channel: Channel | None):
    """The velocity at the end (`result`) and, of a cylinder, its `drag`.

    Differentiable in `arrays`: v0, viscosity, dt and, if there is one, inflow_profile.
    """
    given = arrays["v0"], arrays["viscosity"], arrays["dt"]
    if channel is None:
        return {"result": final_velocity(*given, steps=steps, extent=extent)}
    inflow = arrays.get("inflow_profile")
    end, drag = end_and_drag(*given, inflow, steps=steps, extent=extent, channel=channel)
    return {"result": end, "drag": drag}


@functools.partial(jax.jit, static_argnames=("wanted", "steps", "extent", "channel"))
def pulled_back(arrays, cotangents, *, wanted: tuple[str, ...], steps: int, extent: float, channel: Channel | None):
    """Gradients with respect to the `wanted` of `arrays`, for `cotangents` of some of what `solved` gives."""

    def run(some):
        found = solved({**arrays, **some}, steps=steps, extent=extent, channel=channel)
        return {name: found[name] for name in cotangents}

    _, pull = jax.vjp(run, {name: arrays[name] for name in wanted})
    return pull(cotangents)[0]


def channel_of(inputs) -> Channel | None:
    """The cylinder of a problem and the sides around it."""
    if inputs.obstacle is None:
        return None
    faces = inputs.boundary_conditions
    sides = ((faces.x_lo, faces.x_hi), (faces.y_lo, faces.y_hi))
    kinds = tuple((lower.type.value, upper.type.value) for lower, upper in sides)
    return Channel(tuple(inputs.obstacle.center), inputs.obstacle.radius, kinds)


def refusal(inputs) -> str | None:
    """A sentence where simjax does not solve a problem of Mosaic."""
    if not math.isfinite(inputs.domain_extent) or inputs.domain_extent <= 0:
        return f"domain_extent={inputs.domain_extent}: expected a length above zero."
    channel, inflow = channel_of(inputs), inputs.inflow_profile
    if channel is None:
        if inputs.boundary_conditions.is_fully_periodic and inflow is None:
            return None
        return "Without an obstacle this adapter has periodic boxes: leave boundary_conditions and inflow_profile out."
    if inputs.obstacle.shape.value != "cylinder" or channel.radius is None or len(channel.center) != 2:
        return "obstacle: expected a cylinder in the plane, with center [x, y] and radius."
    unknown = {kind for pair in channel.sides for kind in pair} - {*SIDES}
    return f"boundary_conditions: expected {', '.join(SIDES)}, got {', '.join(unknown)}." if unknown else None
