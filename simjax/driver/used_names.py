"""Inputs of a program that its results depend on, read from its trace."""

from collections.abc import Callable, Mapping
from typing import Any

import jax


def used_names(program: Callable, values: Mapping[str, Any], *others: Any) -> set[str]:
    """Names of `values`, the first argument of a jitted function, that a result of it can depend on.

    Calls are looked into; what goes into a loop or a branch counts as used there.
    """
    jaxpr: Any = program.trace(values, *others).jaxpr.jaxpr  # pyright: ignore[reportFunctionMemberAccess]
    needed = _needed(jaxpr, [True] * len(jaxpr.outvars))
    leaves = jax.tree_util.tree_leaves_with_path(values)
    return {path[0].key for (path, _), use in zip(leaves, needed[: len(leaves)], strict=True) if use}


def _needed(jaxpr: Any, outputs: list[bool]) -> list[bool]:
    """For each input of a jaxpr, whether one of these outputs depends on it."""
    # Literals stand among the variables; they have no equation, and cannot be hashed.
    live = {id(v) for v, wanted in zip(jaxpr.outvars, outputs, strict=True) if wanted}
    for equation in reversed(jaxpr.eqns):
        wanted = [id(v) in live for v in equation.outvars]
        if not any(wanted) and not equation.effects:
            continue
        inside = _called(equation)
        inputs = [True] * len(equation.invars) if inside is None else _needed(inside, wanted)
        live |= {id(v) for v, use in zip(equation.invars, inputs, strict=True) if use}
    return [id(v) in live for v in jaxpr.invars]


def _called(equation: Any) -> Any:
    """The program that an equation calls once, with the equation's inputs and outputs; None for any other equation."""
    if equation.primitive.name in ("scan", "while", "cond"):
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        found = equation.params.get(name)
        inside = getattr(found, "jaxpr", found)
        if (
            hasattr(inside, "eqns")
            and len(inside.invars) == len(equation.invars)
            and len(inside.outvars) == len(equation.outvars)
        ):
            return inside
    return None
