"""The start of a run as its model takes it: fields projected, cut or raised, and how much of them was changed."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.model import ExplicitModel, GridModel
from simjax.errors import ConfigurationError
from simjax.jaxpr.varying import steady_carry
from simjax.models.axisymmetric_grid import ring_volumes
from simjax.ops.spacing import relative, scaled
from simjax.schema.config import Config

Fields = Mapping[str, tuple[Array, ...]]
"""Components of initial fields on this block, by field."""

ATTRIBUTE = "simjax_start_changes"
"""Attribute of a run's files: a JSON object of `start_changes`."""
TOLD = 1e-4
"""Shares below are not told: what rounding in float32 and iterations of a solver leave stays under it."""
POSITIONS = "particles.position"


def taken_state(model: GridModel, fields: Fields, params, dtype) -> Any:
    """The state that a model begins with: made of `fields`, walls imposed and constraints satisfied."""
    start = jnp.zeros((), dtype)
    state = model.state_from(dict(fields), params)

    def constrained(state):
        return model.constrain(start, start, state, params)

    # Twice: the first projection's rounding is that of a large correction, the second one's of a small one.
    if isinstance(model, ExplicitModel) and model.loops_over_stages:
        # Reverse mode forms it again, as it does the stages, where it would keep hundreds of arrays.
        steady, state = steady_carry(jax.checkpoint(constrained, prevent_cse=False), state)
        return jax.lax.fori_loop(0, 2, lambda _, state: steady(state), state)
    return constrained(constrained(state))


def taken_fields(model: GridModel, fields: Fields, state, params) -> dict[str, tuple[Array, ...]]:
    """Return those of `fields` that the model may change, as the state has them that was made of them."""
    found = model.fields_from((*fields,), state, params)
    return {name: tuple(found[name]) for name in fields if found.get(name)}


def changed_shares(model: GridModel, fields: Fields, state, params) -> dict[str, Array]:
    """The L2 norm of what the model changed of each initial field, relative to the larger of both fields' norms.

    Cells count by their volume. A field that is zero is all changed where the model puts something there, as an inflow
    does.
    """
    shares = {}
    for name, own in taken_fields(model, fields, state, params).items():
        volumes = cell_volumes(model, own[0].dtype)

        def square(components, volumes=volumes):
            return sum(model.domain.sum(scaled(u * u, volumes)) for u in components)

        changed = square(new - old for new, old in zip(own, fields[name], strict=True))
        largest = jnp.maximum(square(own), square(fields[name]))
        shares[name] = jnp.sqrt(changed / jnp.maximum(largest, jnp.finfo(own[0].dtype).tiny))
    return shares


def cell_volumes(model: GridModel, dtype) -> float | Array:
    """Volumes of the cells over their mean: 1.0 on a uniform grid."""
    layout = next(layout for layouts in model.component_layouts().values() for layout in layouts)
    spacing, mean = model.domain.spacing(layout, 0, dtype), model.domain.grid.mean_spacing
    return ring_volumes(math.prod(map(relative, spacing, mean)), model.domain, layout, dtype)


def told_changes(changes: Mapping[str, float], config: Config, through: str, particles: int | None) -> list[str]:
    """A sentence for each part of the start that the model changed.

    changes: shares by path. through: what the model takes initial fields through. particles: how many there are.

    Raises:
        ConfigurationError: a field was changed by more than `limits.start_change`.
    """
    bound, said = config.limits.start_change, []
    for path, share in changes.items():
        if path == POSITIONS:
            said.append(f"{path}: {share:g} of {particles} particles lay outside the box and were wrapped into it.")
            continue
        changed = f"{100 * share:.3g} % (L2 norm)"
        if bound is not None and share > bound:
            raise ConfigurationError(
                f"{path}: {changed} of it would be changed by {through}; expected at most limits.start_change="
                f"{bound:g}, so write a start that the model can have, or limits.start_change=null."
            )
        said.append(f"{path}: {changed} of the start was changed by {through}.")
    return said


def merged(changes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The largest of several shares by path."""

    def larger(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
        return {path: max(a.get(path, 0.0), b.get(path, 0.0)) for path in {**a, **b}}

    return dict(functools.reduce(larger, changes, {}))


def start_attribute(changes: Mapping[str, float]) -> dict[str, str]:
    """The attribute of a run's files that tells what was changed of its start; none where nothing was."""
    return {ATTRIBUTE: json.dumps(dict(changes))} if changes else {}
