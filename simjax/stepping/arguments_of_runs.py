"""Parameters and states that are not those of the model to which they are given, refused in sentences."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from simjax.arguments import require_count, require_kind, shown
from simjax.core.given_values import require_arguments
from simjax.core.model import GridModel, Model
from simjax.errors import ConfigurationError, SimjaxError
from simjax.stepping.clock import Clock, Schedule


def require_kinds(
    model: Model,
    *,
    params: Any,
    state: Any,
    schedule: Schedule,
    clock: Clock | None,
    observe: Callable | None = None,
    **counts: int,
) -> None:
    """Raises ConfigurationError for arguments of another kind; a model may have classes of parameters and states.

    counts: of frames or steps, by name.
    """
    require_kind("model", model, Model, "a model; write for instance AdvectionDiffusion(domain, sides)")
    require_kind("schedule", schedule, Schedule, "a Schedule; write Schedule(interval, dt=dt)")
    if clock is not None:
        require_kind("clock", clock, Clock, "the Clock of a run; write clock=run.clock")
    if observe is not None:
        require_arguments("observe", observe, "observe(t, state, params)", 3)
    for name, count in counts.items():
        require_count(name, count)
    for name, value, attribute in (("params", params, "Params"), ("state", state, "State")):
        kind = getattr(model, attribute, None)
        if not isinstance(kind, type):
            continue
        owner = type(model).__name__
        written = "a dict by name" if kind is dict else f"{owner}.{attribute}; write {owner}.{attribute}(...)"
        require_kind(name, value, kind, written)


def require_recorded(record: Callable | None, model: Model, schedule: Schedule, gathered: Any) -> None:
    """Raises ConfigurationError where a run has no states after steps of a fixed length, which are to be recorded."""
    if record is None:
        return
    require_arguments("record", record, "record(t, state)", 2)
    if gathered is not None:
        raise ConfigurationError(
            "record: expected no statistics beside it, whose sums are formed of every step; leave one out."
        )
    if schedule.dt is None:
        limit = "courant" if schedule.tolerance is None else "tolerance"
        raise ConfigurationError(
            f"record: expected steps of a fixed length, at whose ends something is recorded, got "
            f"{limit}={getattr(schedule, limit):g}; write a time.dt."
        )
    if not isinstance(model, GridModel):
        raise ConfigurationError(
            f"record: expected a model of fields, got {type(model).__name__}; leave it out, and observe frames."
        )
    if model.domain.steps_per_exchange:
        raise ConfigurationError(
            f"record: steps_per_exchange={model.domain.steps_per_exchange} has no state after every step; write "
            "steps_per_exchange=0."
        )


@contextmanager
def shapes_told(model: Model, params: Any, state: Any) -> Iterator[None]:
    """Makes an error within a sentence, where the state has not the shape of the model's cells, or a parameter none.

    Raises ConfigurationError for the first such array. Only an error asks: states of some models have other arrays.
    """
    try:
        yield
    except SimjaxError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        misfit = _misfit(model, state) or _wrong_parameter(model, params)
        if misfit is None:
            raise
        raise ConfigurationError(misfit) from error


def _misfit(model: Model, state: Any) -> str | None:
    """A sentence on the first array of the state whose last axes are not those of the cells; None if there is none.

    And on states that are stacked, of models whose fields each are one array.
    """
    if not isinstance(model, GridModel):
        return None
    cells = model.domain.block_shape
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(state)]
    stacked = {shape[:1] for shape in shapes if shape[1:] in ((), cells)} if all(shapes) else set()
    fields = sum(len(layouts) for layouts in model.component_layouts().values())
    if len(stacked) == 1 and fields <= sum(shape[1:] == cells for shape in shapes):
        return (
            f"state has arrays of shape {(*stacked.pop(), *cells)}: expected {cells}, the cells of the grid; write "
            "jax.vmap for several states at once."
        )
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        shape = jnp.shape(leaf)
        if shape[len(shape) - len(cells) :] != cells:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            return f"state.{name} has the shape {shape}: expected {cells}, the cells of the grid."
    return None


def _wrong_parameter(model: Model, params: Any) -> str | None:
    """A sentence on the first parameter that is no number, or an array that fits no field; None if there is none."""
    if not isinstance(model, GridModel):
        return None
    cells, declared = model.domain.block_shape, getattr(type(model), "parameters", None)
    if isinstance(params, dict) and isinstance(declared, Mapping):
        missing = [name for name in declared if name not in params]
        if missing:
            return f"params: {missing[0]!r} is missing: expected {', '.join(map(repr, declared))}, got {[*params]}."
    for field in dataclasses.fields(params) if dataclasses.is_dataclass(params) else ():
        if getattr(params, field.name) is None and "None" not in str(field.type):
            return f"params.{field.name}=None: expected a number."
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if not (isinstance(leaf, (int, float, complex)) or hasattr(leaf, "dtype")):
            return f"params.{name}={shown(leaf)}: expected a number."
        last = jnp.shape(leaf)[-len(cells) :]
        if last not in ((), (len(cells),)) and any(n not in (1, m) for n, m in zip(last, cells, strict=False)):
            return f"params.{name} has the shape {jnp.shape(leaf)}: expected a number, or {cells}, the cells."
    return None
