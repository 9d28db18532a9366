"""Small arrays that do not change in a loop, formed before it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn

from simjax.jaxpr.replay import computed, replayed

SMALL = 8
"""Arrays are formed before a loop where they have at most one in so many entries of the largest that it carries: a
kernel that passes over that one would else read as much again to save a few operations."""
VARIES: Any = object()
"""Stands for a value that depends on what a loop carries."""

Path = tuple[int, ...]
"""An operation, and those in which it lies: programs that are called several times have one form."""


def formed_before(body: Callable, carry) -> Callable:
    """`body` (carry -> carry), of which small arrays that do not depend on the carry are formed now.

    Compilers leave them in a loop where they are made of nothing, as coordinates and eigenvalues are, or are larger
    than what they are made of. Scalars stay: they cost nothing in an operation that uses them.
    """
    leaves, tree = jax.tree.flatten(carry)
    closed = jax.make_jaxpr(lambda *leaves: jax.tree.leaves(body(jax.tree.unflatten(tree, leaves))))(*leaves)
    most, found = max(leaf.size for leaf in leaves) // SMALL, {}

    def formed(equation: JaxprEqn, inputs: list, path: Path) -> list:
        varies = [VARIES] * len(equation.outvars)
        large = any(getattr(v.aval, "size", 0) > most for v in equation.outvars)
        if any(x is VARIES for x in inputs) or equation.effects or large:
            return varies
        outputs = computed(equation, inputs)
        if any(jnp.ndim(x) for x in outputs):
            found[path] = outputs
        return outputs

    _replayed(closed, formed, ())([VARIES] * len(leaves))
    if not found:
        return body

    def seen(equation: JaxprEqn, inputs: list, path: Path) -> list:
        if path in found:
            return found[path]
        with jax.named_scope(str(equation.source_info.name_stack)):
            return computed(equation, inputs)

    run = _replayed(closed, seen, ())
    return lambda carry: jax.tree.unflatten(tree, run(jax.tree.leaves(carry)))


def _replayed(
    closed: ClosedJaxpr, result: Callable[[JaxprEqn, list, Path], list], path: Path
) -> Callable[[list], list]:
    """Replay a program, and those that it calls, by `result(equation, inputs, path)`."""

    def of_operation(equation: JaxprEqn, inputs: list) -> list:
        here = (*path, id(equation))
        if equation.primitive.name in ("jit", "pjit"):
            return _replayed(equation.params["jaxpr"], result, here)(inputs)
        return result(equation, inputs, here)

    return lambda arguments: replayed(closed, of_operation)(*arguments)
