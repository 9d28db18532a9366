"""Names of the parts of a step, which compiled programs carry in the metadata of their operations."""

import re
from typing import Any

import jax

PARTS = (
    "halo exchange",
    "tendency",
    "advection and viscosity",
    "projection",
    "pressure solve",
    "time step limit",
    "forces",
    "noise",
    "sums over pairs",
    "neighbor list",
    "migration",
)
OTHER, BETWEEN = "other", "between operations"
"""Names of what is outside of all parts: operations, and time in which none runs."""
PROFILE_NAME = "profile.json"
"""The file in a run's folder that tells the time of its parts."""
# What transformations make of a name: `transpose(jvp(forces))`, `vmap(forces)`.
_WRAPPED = re.compile(r"\w+\((.*)\)")


def part(name: str) -> Any:
    """A context, or a decorator, within which what is traced belongs to a part of a step; it changes no program."""
    assert name in PARTS, name
    return jax.named_scope(name)


def part_of(operation: str) -> str | None:
    """The innermost part in the name of an operation such as `jit(step)/tendency/halo exchange/concatenate`."""
    for name in reversed(operation.split("/")):
        while (inner := _WRAPPED.fullmatch(name)) is not None:
            name = inner[1]
        if name in PARTS:
            return name
    return None
