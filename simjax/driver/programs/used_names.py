"""Inputs of a program that its results depend on, read from its trace."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval


def used_names(program: Callable, values: Mapping[str, Any], *others: Any) -> set[str]:
    """Names of `values`, the first argument of a jitted function, that a result of it can depend on.

    Calls, scans and branches are looked into; what goes into anything else counts as used there.
    """
    jaxpr: Any = program.trace(values, *others).jaxpr.jaxpr  # pyright: ignore[reportFunctionMemberAccess]
    _, needed = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    leaves = jax.tree_util.tree_leaves_with_path(values)
    return {path[0].key for (path, _), use in zip(leaves, needed[: len(leaves)], strict=True) if use}


def names_in_programs(programs: Any, schedule: Any) -> set[str]:
    """Names of the numbers that the first state, the steps and the observations of a compiled run depend on."""
    template = programs.template(programs.room())
    time, until = jax.ShapeDtypeStruct((), programs.dtype), jax.ShapeDtypeStruct((), jnp.int32)
    members = jax.ShapeDtypeStruct((() if programs.members is None else (programs.members,)), jnp.int32)
    given = programs.values, programs.files
    used = used_names(programs.starter(), *given, members) | used_names(programs.observe(), *given, *template, time)
    # What a run begins with is traced already; one that goes on has traced nothing yet.
    program = next(iter(programs._advance.values())) if programs._advance else programs.single_step(schedule)
    return used | used_names(program, *given, *template, until)
