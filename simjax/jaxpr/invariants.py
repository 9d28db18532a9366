"""Small arrays that do not change in a loop, formed before it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
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
    largest, found, tied = max(leaf.size for leaf in leaves), {}, set[Path]()
    most = largest // SMALL

    def formed(equation: JaxprEqn, inputs: list, path: Path) -> list:
        varies = [VARIES] * len(equation.outvars)
        large = any(getattr(v.aval, "size", 0) > most for v in equation.outvars)
        if any(x is VARIES for x in inputs) or equation.effects:
            return varies
        if large:
            if any(getattr(v.aval, "size", 0) > largest for v in equation.outvars):
                tied.add(path)
            return varies
        outputs = computed(equation, inputs)
        if any(jnp.ndim(x) for x in outputs):
            found[path] = outputs
        return outputs

    _replayed(closed, formed, ())([VARIES] * len(leaves))
    if not found and not tied:
        return body

    def seen(equation: JaxprEqn, inputs: list, path: Path) -> list:
        if path in found:
            return found[path]
        with jax.named_scope(str(equation.source_info.name_stack)):
            return computed(equation, inputs)

    def run(carry):
        leaves = jax.tree.leaves(carry)

        def with_tied(equation: JaxprEqn, inputs: list, path: Path) -> list:
            if path not in tied:
                return seen(equation, inputs, path)
            if inputs:
                return seen(equation, [_tied(jnp.asarray(x), leaves) for x in inputs], path)
            return [x + _tied(jnp.zeros((), x.dtype), leaves) for x in seen(equation, inputs, path)]

        return jax.tree.unflatten(tree, _replayed(closed, with_tied, ())(leaves))

    return run


def _tied(x: Array, leaves: list[Array]) -> Array:
    """`x`, which no compiler knows not to depend on the smallest of these arrays."""
    return lax.optimization_barrier((x, min(leaves, key=jnp.size)))[0]


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
