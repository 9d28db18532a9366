"""A small problem of any grid model, made from its declaration: a periodic box, and numbers by default."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from case import PERIODIC, Case, smooth_field

from simjax.config import validate
from simjax.core.domain import Domain
from simjax.driver.start.build import named_values
from simjax.grid import Grid
from simjax.models.declaration import Setup
from simjax.models.registry import MODELS
from simjax.schema.kinds import ListOf
from simjax.schema.model_schema import EXPONENTIAL
from simjax.stepping.simulate import Schedule

GRIDS = {
    1: Grid((24,), (0.0,), (6.0,)),
    2: Grid((16, 24), (0.0, -1.0), (2 * np.pi, 3.0)),
    3: Grid((8, 12, 16), (0.0, 0.0, -1.0), (2 * np.pi, 3.0, 1.0)),
}


def _required(schema, ndim):
    """A number for every key that has to be given."""
    numbers = {}
    for field in dataclasses.fields(schema.physics):
        if field.default is dataclasses.MISSING:
            kind = field.metadata["kind"]
            numbers[field.name] = [0.3, -0.2, 0.1][:ndim] if isinstance(kind, ListOf) else 0.1
    return numbers


def _ones(fields, ndim):
    """Formulas of fields that have to be given; arrays take their places."""
    return {field.name: "1" if field.components(ndim) == (field.name,) else ["1"] * ndim for field in fields}


def declared(name: str, **physics) -> Case:
    """The problem of the model that configurations call `name`, with keys of its `physics`: in a plane, if it can be.

    Initial fields and coefficients are positive and smooth and have no symmetry.
    """
    schema = MODELS[name]
    ndim = min(max(2, schema.least_axes), schema.most_axes)
    grid = GRIDS[ndim]
    config = validate(
        {
            "model": name,
            "grid": {"shape": [*grid.shape], "lower": [*grid.lower], "upper": [*grid.upper]},
            "physics": _required(schema, ndim) | physics,
            "initial": _ones([field for field in schema.fields if field.default is None and not field.optional], ndim),
            "coefficients": _ones([field for field in schema.coefficients if field.default is None], ndim),
            "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01},
            "precision": "float64",
        }
    )
    values = {key: jnp.asarray(value) for key, value in named_values(config).items()}

    def configured(domain):
        coefficients = {
            field.name: tuple(
                1.5 + 0.3 * smooth_field(grid, field.offset(ndim, k), 7 + k) for k in range(len(field.components(ndim)))
            )
            for field in schema.coefficients
        }
        return schema.configured(Setup(config, domain, [PERIODIC] * ndim, values, coefficients))

    def initial(model, params):
        layouts = model.component_layouts()
        fields = {
            field: tuple(1.5 + 0.5 * smooth_field(grid, layout.offset, seed + k) for k, layout in enumerate(parts))
            for seed, (field, parts) in enumerate(layouts.items())
        }
        return jax.jit(lambda fields, params: model.state_from(fields, params))(fields, params)

    diagonal = schema.integrators[0] in EXPONENTIAL  # A spectrum's own layout has no place for weights.
    return Case(
        f"declared-{name}",
        grid,
        lambda domain: configured(domain)[0],
        lambda: jax.tree.map(jnp.asarray, configured(Domain(grid))[1]),
        initial,
        config.time.integrator,
        Schedule(0.02, dt=0.01),
        cuts=ndim > 1 or not diagonal,
        weighed=lambda model, t, state, params: model.observe(t, state, params) if diagonal else state,
    )
