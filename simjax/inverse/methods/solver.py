"""Common part of all solvers of inverse problems: a state that can be saved, and a step."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.inverse.methods.least_squares import LeastSquares


class Iterate(eqx.Module):
    """State of a solver: all that it needs to go on, on any number of devices.

    iteration: finished steps. latent: the estimate (or members of it, leading). inner: the solver's own. loss and
    gradient_norm: before the last step, scalars or one per member; status of the runs there.
    """

    iteration: Array
    latent: Any
    inner: Any
    loss: Array
    gradient_norm: Array
    status: Array

    @classmethod
    def first(cls, latent, inner, members: tuple[int, ...] = ()) -> "Iterate":
        """The state before the first step."""
        unknown = jnp.full(members, jnp.inf, jnp.result_type(*jax.tree.leaves(latent)))
        return cls(jnp.zeros((), jnp.int32), latent, inner, unknown, unknown, jnp.zeros(members, jnp.int32))


class Solver(eqx.Module):
    """A method that improves an estimate step by step. A step is traced once; the host calls it again and again."""

    @abc.abstractmethod
    def begin(self, latent) -> Iterate:
        """The state before the first step, from the guess."""

    @abc.abstractmethod
    def step(self, problem: LeastSquares, iterate: Iterate) -> Iterate:
        """Take an iteration of the solver."""

    def estimate(self, iterate: Iterate) -> Any:
        """The answer so far."""
        return iterate.latent

    def settled(self, iterate: Iterate, before: Iterate, tolerance: float) -> bool:
        """Tell whether the last step lowered the loss by less than `tolerance` of it."""
        return bool(abs(before.loss - iterate.loss) <= tolerance * abs(before.loss))
