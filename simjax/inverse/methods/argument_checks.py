"""Checks of arguments of the inverse layer, on the host where their values are known there."""

from collections.abc import Sequence

import numpy as np
from jax.core import Tracer

from simjax.core.boundary import FieldLayout, Neumann, Periodic, center_layout
from simjax.errors import ConfigurationError


def known(value) -> np.ndarray | None:
    """`value` as a float64 array of numpy, or None inside a traced function, where only its shape is known."""
    return None if isinstance(value, Tracer) else np.asarray(value, dtype=np.float64)


def require_positive(name: str, value, example: str) -> None:
    """Refuse `value`, a number or an array, unless all of it is positive and finite; `example` is what to write."""
    numbers = known(value)
    if numbers is None:
        return
    wrong = numbers[~((numbers > 0) & (numbers < np.inf))]
    if wrong.size:
        raise ConfigurationError(f"{name} must be positive and finite, got {wrong[0]:g}; write {example}.")


def scalar_layout(periodic: Sequence[bool]) -> FieldLayout:
    """A centred field that wraps on the axes of `periodic` that are True and has zero slope at the other sides."""
    return center_layout([(Periodic(), Periodic()) if wraps else (Neumann(0.0), Neumann(0.0)) for wraps in periodic])
