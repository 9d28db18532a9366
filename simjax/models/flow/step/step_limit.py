"""The longest stable step of an incompressible flow with an explicit scheme."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from simjax.models.flow import axisymmetric_flow
from simjax.ops.spacing import scaled, smallest
from simjax.ops.staggered_wave import largest_symbol


def step_limit(flow: Any, state: Any, params: Any, spread: float | Array) -> Array:
    """1 / (rate of what is carried + that of viscosity + drag), at the cell where it is least.

    flow: of `models.flow.incompressible`. spread: how many times an eddy viscosity counts.
    """
    layout, dtype = flow.projection.layout, state.velocity[0].dtype
    # The least width of each cell and its two neighbours.
    h = tuple(smallest(width, axis) for axis, width in enumerate(flow.domain.spacing(layout, 1, dtype)))
    shares = axisymmetric_flow.shares_of_faces(flow.domain, layout, dtype)
    steepest, order = flow.momentum.scheme.steepest, flow.momentum.scheme.order
    rate = sum(
        scaled(jnp.abs(u) * (steepest / s), share) for u, s, share in zip(state.velocity, h, shares, strict=True)
    )

    viscosity = params.viscosity
    if flow.momentum.has_eddies(params):
        layouts = flow.layouts_for(0.0, state)
        viscosity = viscosity + spread * flow.momentum.eddy_viscosity(0.0, state.velocity, layouts, params)

    def spreading():
        return 2 * largest_symbol(order) ** 2 * viscosity * sum(1 / s**2 for s in h)

    if flow.domain.grid.stretched or viscosity.ndim:
        return 1 / (jnp.max(rate + spreading()) + params.drag)
    return 1 / (jnp.max(rate) + spreading() + params.drag)
