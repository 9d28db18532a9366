"""Gradient-based minimisation of a loss over a tree of unknowns: one compiled loop around an Optax optimiser."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax


class Fit(NamedTuple):
    """unknowns: the last iterate. losses: `(iterations,)`, the loss before each update."""

    unknowns: Any
    losses: jax.Array


def minimise(
    loss: Callable[[Any], jax.Array], unknowns, optimiser: optax.GradientTransformation, *, iterations: int
) -> Fit:
    """`iterations` updates of `unknowns` by `optimiser` against the gradient of `loss`.

    Args:
        loss: scalar function of the unknowns; typically a `simulate` compared with observations, perhaps inside
            `distribute`.
        unknowns: any tree of floating-point arrays.
        optimiser: for instance `optax.adam(1e-2)`, or `optax.lbfgs()`, which searches along its direction.

    The loop is a `lax.scan`, so loss and gradient are traced and compiled once.
    """
    optimiser = optax.with_extra_args_support(optimiser)

    def update(carry, _):
        unknowns, state = carry
        value, gradient = jax.value_and_grad(loss)(unknowns)
        updates, state = optimiser.update(gradient, state, unknowns, value=value, grad=gradient, value_fn=loss)
        return (optax.apply_updates(unknowns, updates), state), value

    (unknowns, _), losses = jax.lax.scan(update, (unknowns, optimiser.init(unknowns)), length=iterations)
    return Fit(unknowns, losses)
