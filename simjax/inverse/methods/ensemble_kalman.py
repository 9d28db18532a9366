"""Ensemble Kalman inversion: no derivatives, only runs."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.inverse.methods.gradient_descent import scattered
from simjax.inverse.methods.least_squares import LeastSquares, half_square
from simjax.inverse.methods.solver import Iterate, Solver


class EnsembleKalman(Solver):
    """u_j <- u_j - C_ur (C_rr + a)^-1 (r_j + sqrt(a) xi_j) over members j (Iglesias, Law and Stuart 2013, eq. 4).

    C_ur and C_rr are covariances of the latent u and of the whitened residuals r over members, xi_j standard normal.
    The first ensemble is the guess with normal numbers of standard deviation `spread` in each latent: the prior. Each
    step goes a part 1/a of the way, chosen by the misfit (Iglesias and Yang 2021, eq. 14), until the parts add up to
    one: then the members are draws from the posterior, exactly so for a linear run and many members. What the
    residuals of a prior say is left to the ensemble, so problems for this solver have none.

    The estimate is the members' mean; it lies in the span of the first members.
    """

    members: int = eqx.field(static=True)
    spread: float = eqx.field(static=True, default=1.0)
    seed: int | Array = 0

    def begin(self, latent) -> Iterate:
        latents = scattered(latent, self.members + 1, self.spread, self.seed)
        # The guess itself is no draw from the prior.
        latents = jax.tree.map(lambda leaf: leaf[1:], latents)
        dtype = jnp.result_type(*jax.tree.leaves(latent))
        return Iterate.first(latents, jnp.zeros((), dtype), (self.members,))

    def step(self, problem: LeastSquares, iterate: Iterate) -> Iterate:
        residuals, status = problem.of_members(iterate.latent, problem.given)
        good = (status == 0) & jnp.isfinite(jax.vmap(half_square)(residuals))
        # A member whose run failed takes the mean's place in all sums and follows the others from there.
        residuals = jax.tree.map(lambda r: _with_mean(r, good), residuals)
        misfit = jax.vmap(half_square)(residuals)
        size = sum(leaf[0].size for leaf in jax.tree.leaves(residuals))
        left = 1 - iterate.inner
        part = jnp.maximum(size / (2 * jnp.mean(misfit)), jnp.sqrt(size / (2 * jnp.var(misfit))))
        part = jnp.minimum(part, left)
        latent = lax.cond(left > 0, lambda: self._updated(iterate, residuals, 1 / part), lambda: iterate.latent)
        return Iterate(iterate.iteration + 1, latent, iterate.inner + part, misfit, jnp.sqrt(2 * misfit), status)

    def _updated(self, iterate: Iterate, residuals, widening: Array):
        """The members moved; all in the space of members, so that fields stay as they are cut."""
        key = jax.random.fold_in(jax.random.key(self.seed), iterate.iteration + 1)
        leaves, tree = jax.tree.flatten(residuals)
        keys = [jax.random.fold_in(key, number) for number in range(len(leaves))]
        aimed = [
            r + jnp.sqrt(widening) * jax.random.normal(k, r.shape, r.dtype) for r, k in zip(leaves, keys, strict=True)
        ]
        away = jax.tree.unflatten(tree, [_departures(r) for r in leaves])
        # With R the members' departures, C_ur (C_rr + a)^-1 = U^T (R R^T + a (J - 1))^-1 R.
        gram = _products(away, away)
        inner = _products(away, jax.tree.unflatten(tree, aimed))
        weights = jnp.linalg.solve(gram + widening * (self.members - 1) * jnp.eye(self.members), inner)
        return jax.tree.map(lambda u: u - jnp.einsum("kj,k...->j...", weights, _departures(u)), iterate.latent)

    def estimate(self, iterate: Iterate):
        return jax.tree.map(lambda leaf: jnp.mean(leaf, 0), iterate.latent)

    def settled(self, iterate: Iterate, before: Iterate, tolerance: float) -> bool:
        return bool(iterate.inner >= 1)


def _departures(u: Array) -> Array:
    """Return the departures from the members' mean."""
    return u - jnp.mean(u, 0, keepdims=True)


def _products(a, b) -> Array:
    """`(members, members)`: inner products of every member of one tree with every member of another."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return functools.reduce(jnp.add, (jnp.einsum("j...,k...->jk", x, y) for x, y in pairs))


def _with_mean(r: Array, good: Array) -> Array:
    """`r` with the members that are not good replaced by the mean of the others."""
    chosen = good.reshape(-1, *(1,) * (r.ndim - 1))
    mean = jnp.sum(jnp.where(chosen, r, 0), 0, keepdims=True) / jnp.maximum(jnp.sum(good), 1).astype(r.dtype)
    return jnp.where(chosen, r, mean)
