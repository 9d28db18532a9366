"""First-order and quasi-Newton solvers: any Optax optimiser, from one start or from many at once."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from simjax.inverse.methods.least_squares import LeastSquares, norm
from simjax.inverse.methods.solver import Iterate, Solver
from simjax.schema.inverse import WITHOUT_LINE_SEARCH

OPTIMISERS = {name: getattr(optax, name) for name in WITHOUT_LINE_SEARCH}
# Latents are of order one: a few per cent of that in a step.
LEARNING_RATE = 0.03


@functools.cache
def optimiser_named(name: str, learning_rate: float | None = None) -> optax.GradientTransformationExtraArgs:
    """Optax's "adam", "adamw", "sgd" or "lbfgs"; without a rate, one for latents of order one.

    The same name and rate give the same object, so that solvers made of it are equal and share what is compiled.
    """
    if name == "lbfgs":
        return optax.lbfgs(learning_rate)
    return optax.with_extra_args_support(OPTIMISERS[name](learning_rate or LEARNING_RATE))


class GradientDescent(Solver):
    """`optimiser`, any of Optax, on the gradient of the loss.

    searches: whether the optimiser searches along its direction (`optax.lbfgs()`), which evaluates the loss there.
    """

    optimiser: optax.GradientTransformationExtraArgs = eqx.field(static=True)
    searches: bool = eqx.field(static=True, default=False)

    def begin(self, latent) -> Iterate:
        return Iterate.first(latent, self.optimiser.init(latent))

    def step(self, problem: LeastSquares, iterate: Iterate) -> Iterate:
        latent, inner = iterate.latent, iterate.inner
        (loss, status), gradient = jax.value_and_grad(problem.loss, has_aux=True)(latent)
        extra: dict[str, Any] = {}
        if self.searches:
            extra = {"value": loss, "grad": gradient, "value_fn": lambda latent: problem.loss(latent)[0]}
        updates, inner = self.optimiser.update(gradient, inner, latent, **extra)
        latent = optax.apply_updates(latent, updates)
        return Iterate(iterate.iteration + 1, latent, inner, loss, norm(gradient), status)


class MultiStart(Solver):
    """`optimiser` from `starts` places at once, as an ensemble: the latent has a leading axis of starts.

    The first start is the guess; the others differ from it by normal numbers of standard deviation `spread` in every
    latent. The estimate is the start with the least loss.
    """

    optimiser: optax.GradientTransformationExtraArgs = eqx.field(static=True)
    starts: int = eqx.field(static=True)
    spread: float = eqx.field(static=True)
    seed: int = eqx.field(static=True, default=0)

    def begin(self, latent) -> Iterate:
        latents = scattered(latent, self.starts, self.spread, self.seed)
        return Iterate.first(latents, jax.vmap(self.optimiser.init)(latents), (self.starts,))

    def step(self, problem: LeastSquares, iterate: Iterate) -> Iterate:
        def total(latents):
            losses, status = problem.losses(latents)
            # A start whose run fails takes nothing from the others.
            return jnp.sum(jnp.where(jnp.isfinite(losses), losses, 0)), (losses, status)

        (_, (losses, status)), gradient = jax.value_and_grad(total, has_aux=True)(iterate.latent)
        updates, inner = jax.vmap(self.optimiser.update)(gradient, iterate.inner, iterate.latent)
        latent = optax.apply_updates(iterate.latent, updates)
        return Iterate(iterate.iteration + 1, latent, inner, losses, jax.vmap(norm)(gradient), status)

    def estimate(self, iterate: Iterate):
        best = jnp.argmin(jnp.where(jnp.isfinite(iterate.loss), iterate.loss, jnp.inf))
        return jax.tree.map(lambda leaf: leaf[best], iterate.latent)

    def settled(self, iterate: Iterate, before: Iterate, tolerance: float) -> bool:
        return bool(jnp.all(jnp.abs(before.loss - iterate.loss) <= tolerance * jnp.abs(before.loss)))


def scattered(latent, members: int, spread: float, seed: int | Array):
    """`members` copies of a tree, all but the first with normal numbers of standard deviation `spread` added.

    The numbers depend on the place in the whole array, not on devices.
    """
    leaves, tree = jax.tree.flatten(latent)
    result = []
    for number, leaf in enumerate(leaves):
        key = jax.random.fold_in(jax.random.key(seed), number)
        noise = spread * jax.random.normal(key, (members, *leaf.shape), leaf.dtype)
        result.append(leaf[None] + noise.at[0].set(0))
    return jax.tree.unflatten(tree, result)
