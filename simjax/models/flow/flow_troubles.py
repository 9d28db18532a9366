"""Cells of an incompressible flow that trouble."""

import jax.numpy as jnp

from simjax.models.flow.bodies import solid_stage
from simjax.schema.troubles import trouble


@trouble("divergence", units="s-1")
def divergence(model, t, state, params):
    """The size of div(u) that the pressure leaves, but for cells that the surface of a body cuts."""
    flow = getattr(model, "flow", model)  # a model of a carried scalar has one
    return jnp.abs(solid_stage.divergence(flow, t, state, params))


TROUBLES = (divergence,)
