"""What a model is: pure functions of time, state and parameters over one domain."""

import abc
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain


@dataclass(frozen=True)
class Output:
    """A variable that a model writes: its name in the file, where in the cell it lives, and its CF attributes."""

    name: str
    offset: tuple[float, ...]
    units: str = "1"
    long_name: str = ""
    standard_name: str = ""
    vector: str = ""
    component: int = -1


class Model(eqx.Module):
    """Equations on a domain: pure functions, written once, that know neither devices nor time stepping.

    A model is abstract or final. `state` and `params` are pytrees (usually `eqx.Module`s); every spatial field
    in `state` has the spatial axes last.
    """

    domain: eqx.AbstractVar[Domain]

    @abc.abstractmethod
    def rhs(self, t, state, params) -> Any:
        """The tendency d(state)/dt, a tree like `state`."""

    def constrain(self, t, dt, state, params) -> Any:
        """`state` brought back to what must hold at time `t` (walls, divergence); called after each stage."""
        return state

    @abc.abstractmethod
    def stable_dt(self, state, params) -> jax.Array:
        """The time step at Courant number one: a scalar or a field; `simulate` takes the global minimum."""

    def diagnostics(self, t, state, params) -> dict[str, jax.Array]:
        """Global scalars worth following, each reduced through `domain`."""
        return {}

    @abc.abstractmethod
    def outputs(self) -> tuple[Output, ...]:
        """Description of the variables that `observe` returns."""

    @abc.abstractmethod
    def observe(self, t, state, params) -> dict[str, jax.Array]:
        """The variables to write, by name, on this block."""

    @abc.abstractmethod
    def component_layouts(self) -> dict[str, tuple[FieldLayout, ...]]:
        """Layouts of the components of every field that has an initial condition, by field."""

    @abc.abstractmethod
    def state_from(self, fields: dict[str, tuple[jax.Array, ...]]) -> Any:
        """The state with the given components of every field of `component_layouts`."""

    def partition_specs(self, state, params) -> tuple[Any, Any]:
        """Partition of every leaf of `state` and `params`: fields are cut like the grid, the rest replicated.

        A model with field-valued parameters overrides this; nothing is guessed from shapes of parameters.
        """
        replicated = jax.sharding.PartitionSpec()
        ndim = self.domain.grid.ndim
        state_specs = jax.tree.map(lambda u: self.domain.spec(u.ndim) if u.ndim >= ndim else replicated, state)
        return state_specs, jax.tree.map(lambda _: replicated, params)
