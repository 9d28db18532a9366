"""The interface of a time-stepping scheme."""

import abc
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from simjax.core.tendency import call_own
from simjax.notebook import all_in_a_line


class Integrator(eqx.Module):
    """A time-stepping scheme of known order.

    `courant_limit` is the largest Courant number (of `stable_dt`) at which the scheme is stable for central
    advection with some diffusion; it is where a fixed step is refused.

    Examples:
        >>> scheme = sj.INTEGRATORS["ssprk3"]
        >>> isinstance(scheme, sj.Integrator), scheme.order, scheme.stages
        (True, 3, 3)
    """

    order: eqx.AbstractVar[int]
    courant_limit: eqx.AbstractVar[float]

    __repr__ = all_in_a_line

    @property
    @abc.abstractmethod
    def stages(self) -> int:
        """Evaluations of the tendency per step."""

    def kept_stages(self, model) -> int:
        """States or tendencies in a step that reverse mode can keep (`jaxpr.stages`), or one: the step's beginning."""
        return 1

    def kept_values(self) -> int | None:
        """At most so many states hold all that reverse mode needs of a step; None: not known, or many."""
        return None

    def prepare(self, model, params, dt: float | jax.Array | None) -> Any:
        """Compute coefficients that every step shares, once before the loop; `dt` is None if the step varies."""
        return None

    @abc.abstractmethod
    def step(self, model, t, dt, state, params, prepared=None) -> Any:
        """`state` at t + dt. `prepared` is what `prepare` returned, for this `dt` or for none; None: nothing was."""

    def numbered_step(self, model, number, t, dt, state, params, prepared=None) -> Any:
        """`step`, the one of this number since the start, int32: by it schemes for noise draw theirs."""
        return self.step(model, t, dt, state, params, prepared)

    def stable_dt(self, model, state, params) -> jax.Array:
        """The step at Courant number one for the terms that this scheme takes explicitly."""
        return call_own(model, "stable_dt", state, params)


class ErrorControlled(Integrator):
    """A scheme that estimates the error of each step, so that errors and not a Courant number limit its length."""

    courant_limit: ClassVar[float] = math.inf  # pyright: ignore[reportIncompatibleVariableOverride]

    @abc.abstractmethod
    def attempt(self, model, t, dt, state, params, prepared, allowed: "Allowed") -> tuple[Any, Any]:
        """`state` at t + dt, and its estimated error, a tree like it, which falls as dt^order.

        The estimate is that of the less exact of two results, of which the other is returned. What is iterated is
        exact to a fraction of the errors that are `allowed`.
        """


class Allowed(NamedTuple):
    """The errors that a tolerance allows of a step.

    errors: of each component of each field, as a root mean square over the box: `absolute` plus `relative` times that
    of the field, before the step or after it, which is larger.
    """

    model: Any
    errors: list[jax.Array]

    @classmethod
    def by(cls, model, relative: float, absolute: float, before, after) -> "Allowed":
        """The errors allowed of a step from one state to another; not finite where these are not."""
        squares = [jax.tree.leaves(model.mean_products(state, state)) for state in (before, after)]
        return cls(model, [absolute + relative * jnp.sqrt(jnp.maximum(a, b)) for a, b in zip(*squares, strict=True)])

    def size(self, error) -> jax.Array:
        """The size of an error, a tree like the state, over what is allowed, of the field in which it is largest.

        Not a number where what is allowed is not finite.
        """
        squares = jax.tree.leaves(self.model.mean_products(error, error))
        ratios = [jnp.max(square / most**2) for square, most in zip(squares, self.errors, strict=True)]
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(most)) for most in self.errors]))
        return jnp.where(finite, jnp.sqrt(jnp.max(jnp.stack(ratios))), jnp.nan)

    def dot(self, a, b) -> jax.Array:
        """The product of two trees like the state, fields in units of the errors that are allowed of them."""
        products = jax.tree.leaves(self.model.mean_products(a, b))
        return jnp.sum(jnp.stack([jnp.sum(p / most**2) for p, most in zip(products, self.errors, strict=True)]))


class ReversibleIntegrator(Integrator):
    """A scheme whose steps can be undone to rounding, of models that lose nothing (`Model.irreversible`)."""

    @abc.abstractmethod
    def undo(self, model, t, dt, state, params, prepared, before) -> Any:
        """The state at t that a step of `dt` made `state` of; the step before it was of length `before`."""
