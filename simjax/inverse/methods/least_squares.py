"""Nonlinear least squares on a mesh: the interface between solvers and any simulation."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.status import OK


class Evaluation(NamedTuple):
    """residuals: a tree of arrays, in units of their standard deviations. status: bits of `status`."""

    residuals: Any
    status: Array


class LeastSquares(eqx.Module):
    """The sum of squares 1/2 |r(latent)|^2 over whitened residuals of measurements and priors.

    latent: a tree of floating-point arrays without constraints, of order one; whole arrays, cut over the mesh.

    function: `(latent, given) -> Evaluation`. of_members: the same for a leading axis of members on every leaf of
    the latent and of the evaluation. given: what the functions compare with and what is known, passed on as it is.
    """

    given: Any
    function: Callable = eqx.field(static=True)
    of_members: Callable = eqx.field(static=True)

    def evaluate(self, latent) -> Evaluation:
        """Residuals and status; also what `jax.vjp(..., has_aux=True)` takes."""
        return self.function(latent, self.given)

    def residuals(self, latent):
        """Residuals at a latent, without the status."""
        return self.evaluate(latent).residuals

    def loss(self, latent) -> tuple[Array, Array]:
        """Half the sum of squares, infinite where the run failed, and the run's status."""
        residuals, status = self.evaluate(latent)
        return jnp.where(status == OK, half_square(residuals), jnp.inf), status

    def losses(self, latents) -> tuple[Array, Array]:
        """`loss` of every member."""
        residuals, status = self.of_members(latents, self.given)
        return jnp.where(status == OK, jax.vmap(half_square)(residuals), jnp.inf), status


def half_square(residuals) -> Array:
    """1/2 of the sum of squares of a tree."""
    return 0.5 * dot(residuals, residuals)


def dot(a, b) -> Array:
    """The sum of products of two trees of arrays."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return functools.reduce(jnp.add, (jnp.sum(x * y) for x, y in pairs))


def norm(tree) -> Array:
    """The Euclidean norm of a tree."""
    return jnp.sqrt(dot(tree, tree))
