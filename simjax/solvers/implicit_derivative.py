"""Solutions of linear systems, differentiated by one more solve."""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax


def symmetric_solve(matvec: Callable, right: Any, solve: Callable, *, has_aux: bool = False):
    """`solve(matvec, right)` with the derivative of the solution of matvec(x) = right, where `matvec` is symmetric.

    x and `right` are arrays, or pytrees alike. With `has_aux`, `solve` returns the solution and more, through which no
    derivative flows.
    """
    # jax traces what solves for x and what solves for cotangents, which is the same, each by itself.
    traced_once = jax.jit(solve, static_argnums=0, inline=True)
    return lax.custom_linear_solve(matvec, right, traced_once, symmetric=True, has_aux=has_aux)
