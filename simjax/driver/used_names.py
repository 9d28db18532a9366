"""Inputs of a program that its results depend on, read from its trace."""

from collections.abc import Callable, Mapping
from typing import Any

import jax


def used_names(program: Callable, values: Mapping[str, Any], *others: Any) -> set[str]:
    """Names of `values`, the first argument of a jitted function, that a result of it can depend on.

    Calls, loops and branches are looked into; what goes into anything else counts as used there.
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
        inputs = _inputs_needed(equation, wanted)
        live |= {id(v) for v, use in zip(equation.invars, inputs, strict=True) if use}
    return [id(v) in live for v in jaxpr.invars]


def _inputs_needed(equation: Any, wanted: list[bool]) -> list[bool]:
    """For each input of an equation, whether one of its wanted outputs depends on it."""
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        consts, carried = params["num_consts"], params["num_carry"]

        def of_scan(carry: list[bool]) -> tuple[list[bool], list[bool]]:
            inputs = _needed(params["jaxpr"].jaxpr, carry + wanted[carried:])
            return inputs, inputs[consts : consts + carried]

        inputs, carry = _until_steady(of_scan, wanted[:carried])
        return inputs[:consts] + carry + inputs[consts + carried :]
    if name == "while":
        ahead, body = params["cond_nconsts"], params["body_nconsts"]
        asked = _needed(params["cond_jaxpr"].jaxpr, [True])

        def of_body(carry: list[bool]) -> tuple[list[bool], list[bool]]:
            inputs = _needed(params["body_jaxpr"].jaxpr, carry)
            return inputs, inputs[body:]

        first = [one or other for one, other in zip(wanted, asked[ahead:], strict=True)]
        inputs, carry = _until_steady(of_body, first)
        return asked[:ahead] + inputs[:body] + carry
    if name == "cond":
        each = [_needed(branch.jaxpr, wanted) for branch in params["branches"]]
        return [True, *(any(uses) for uses in zip(*each, strict=True))]
    inside = _called(equation)
    return [True] * len(equation.invars) if inside is None else _needed(inside, wanted)


def _until_steady(
    once: Callable[[list[bool]], tuple[list[bool], list[bool]]], carry: list[bool]
) -> tuple[list[bool], list[bool]]:
    """Inputs of the body of a loop, and what it carries, as needed after any number of turns."""
    while True:
        inputs, before = once(carry)
        more = [one or other for one, other in zip(carry, before, strict=True)]
        if more == carry:
            return inputs, carry
        carry = more


def _called(equation: Any) -> Any:
    """The program that an equation calls once, with the equation's inputs and outputs; None for any other equation."""
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
