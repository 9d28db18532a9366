"""Inputs of a program that its results depend on, read from its trace."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.interpreters import partial_eval


def used_names(program: Callable, values: Mapping[str, Any], *others: Any) -> set[str]:
    """Names of `values`, the first argument of a jitted function, that a result of it can depend on.

    Calls, scans and branches are looked into; what goes into anything else counts as used there.
    """
    jaxpr: Any = program.trace(values, *others).jaxpr.jaxpr  # pyright: ignore[reportFunctionMemberAccess]
    _, needed = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    leaves = jax.tree_util.tree_leaves_with_path(values)
    return {path[0].key for (path, _), use in zip(leaves, needed[: len(leaves)], strict=True) if use}
