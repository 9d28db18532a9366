"""Balances of models of particles, whose steps tell what each of their parts makes of conserved quantities."""

import abc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from simjax.core.domain import Domain
from simjax.core.model import Measure, SelfSteppingModel
from simjax.errors import ConfigurationError
from simjax.models.balances import Accounted, WithAccounts, dtype_of
from simjax.models.conserved import Accounts, added_up, as_amounts
from simjax.stepping.compensated import added


class StepPart(NamedTuple):
    """Part of a time step. state: the state at its end. made: amounts of conserved quantities made on this block."""

    state: Any
    made: Callable[[], Accounts] = dict


def end_of(parts: Iterator[StepPart]) -> Any:
    """The state at the end of the last part."""
    *_, last = parts
    return last.state


class StepsInParts(SelfSteppingModel):
    """A model of particles whose quantities have balances; each is a diagnostic of the same name.

    What forces between particles leave as it is no part makes: steps of a finite length, meshes and rounding stay in
    the residual.
    """

    @abc.abstractmethod
    def parts(self, number, t, dt, state, params, arrangement) -> Iterator[StepPart]:
        """Yield the parts of a time step in order."""

    @abc.abstractmethod
    def conserved(self) -> tuple[str, ...]:
        """Names of the conserved quantities."""

    def made_by(self, name: str) -> tuple[str, ...]:
        """Names of the sources of a quantity; they begin with `made`."""
        return ()

    def unbalanced(self, names: tuple[str, ...]) -> str:
        """Tell, as an error does, why balances of these quantities do not hold; "" if they do."""
        return ""

    def is_closed(self, axis: int) -> bool:
        """Tell whether nothing comes in through the sides of an axis."""
        return True

    def balanced(self) -> dict[str, Measure]:
        """The quantities, in units of the user's own."""
        return {name: Measure("1", name.replace("_", " ")) for name in self.conserved()}

    def step(self, number, t, dt, state, params, arrangement):
        return end_of(self.parts(number, t, dt, state, params, arrangement))


class ParticlesWithBalances(WithAccounts, SelfSteppingModel):
    """A model of particles whose state has accounts beside the particles."""

    domain: Domain
    model: StepsInParts
    quantities: tuple[str, ...] = eqx.field(static=True)
    steps_per_arrangement: int = eqx.field(static=True)

    def amounts(self, fields, params):
        found = self.model.diagnostics(jnp.zeros((), dtype_of(fields)), fields, params)
        return as_amounts(self.quantities, found, dtype_of(fields))

    def arrange(self, state, params):
        fields, arrangement, fault = self.model.arrange(state.fields, params)
        return Accounted(fields, state.start, state.gained), arrangement, fault

    def step(self, number, t, dt, state, params, arrangement):
        fields, gained = state.fields, jnp.zeros_like(state.gained[0])
        for part in self.model.parts(number, t, dt, fields, params, arrangement):
            gained = gained + self.columns.added(part.made(), gained.dtype)
            fields = part.state
        return Accounted(fields, state.start, added(state.gained, added_up(self.domain, gained)))

    def skin_used(self, state, arrangement):
        return self.model.skin_used(state.fields, arrangement)


def particles_with_balances(model: SelfSteppingModel, quantities: tuple[str, ...]) -> ParticlesWithBalances:
    """`model`, one that `StepsInParts`, with accounts of `quantities` in its state.

    Raises:
        ConfigurationError: a balance does not hold.
    """
    assert isinstance(model, StepsInParts)
    told = model.unbalanced(quantities)
    if told:
        raise ConfigurationError(f"{told}.")
    return ParticlesWithBalances(
        domain=model.domain, model=model, quantities=quantities, steps_per_arrangement=model.steps_per_arrangement
    )


def bare_model(model: Any) -> Any:
    """The model without accounts."""
    return model.model if isinstance(model, ParticlesWithBalances) else model
