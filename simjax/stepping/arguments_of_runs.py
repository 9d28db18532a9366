"""Parameters and states that are not those of the model to which they are given, refused in sentences."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from simjax.arguments import require_kind
from simjax.core.model import GridModel, Model
from simjax.errors import ConfigurationError, SimjaxError


def require_own(model: Model, *, params: Any, state: Any) -> None:
    """Raises ConfigurationError for parameters or a state that are not of the model's own classes."""
    for name, value, attribute in (("params", params, "Params"), ("state", state, "State")):
        kind = getattr(model, attribute, None)
        if not isinstance(kind, type):
            continue
        owner = type(model).__name__
        written = "a dict by name" if kind is dict else f"{owner}.{attribute}; write {owner}.{attribute}(...)"
        require_kind(name, value, kind, written)


@contextmanager
def shapes_told(model: Model, state: Any) -> Iterator[None]:
    """Makes an error within a sentence, where arrays of the state have not the shape of the model's cells.

    Raises ConfigurationError for the first such array. Only an error asks: states of some models have other arrays.
    """
    try:
        yield
    except SimjaxError:
        raise
    except (TypeError, ValueError) as error:
        misfit = _misfit(model, state)
        if misfit is None:
            raise
        raise ConfigurationError(misfit) from error


def _misfit(model: Model, state: Any) -> str | None:
    """A sentence on the first array of the state whose last axes are not those of the cells; None if there is none."""
    if not isinstance(model, GridModel):
        return None
    cells = model.domain.block_shape
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        shape = jnp.shape(leaf)
        if shape[len(shape) - len(cells) :] != cells:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            return f"state.{name} has the shape {shape}: expected {cells}, the cells of the grid."
    return None
