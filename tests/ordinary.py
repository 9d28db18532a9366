"""Models for tests of what does not depend on space."""

import jax.numpy as jnp

from simjax.core.domain import Domain
from simjax.core.model import ExplicitModel, Model
from simjax.grid import Grid


class WithoutSpace(Model):
    """What a model says of its fields in files, for states that are never written."""

    def outputs(self):
        return ()

    def observe(self, t, state, params):
        return {}

    def component_layouts(self):
        return {}

    def state_from(self, fields, params):
        return fields


class Ordinary(WithoutSpace, ExplicitModel):
    """Ordinary differential equations as a model: one cell holds the state."""

    domain: Domain

    def __init__(self):
        self.domain = Domain(Grid((1,)))

    def stable_dt(self, state, params):
        return jnp.asarray(0.1)
