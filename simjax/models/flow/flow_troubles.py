"""Cells of an incompressible flow that trouble."""

import jax.numpy as jnp

from simjax.models.flow.bodies import solid_stage
from simjax.schema.troubles import trouble


@trouble("divergence", units="s-1")
def divergence(model, t, state, params):
    """The size of div(u) that the pressure leaves, but for cells that the surface of a body cuts."""
    return jnp.abs(solid_stage.divergence(model, t, state, params))


TROUBLES = (divergence,)
