"""Balances of conserved quantities: initial amount, flux through each side and sources, summed stage by stage.

Beside the fields the scheme in time advances the amounts that enter through every side and that are made inside, by
the fluxes and sources of the tendency itself. A Runge-Kutta method keeps linear invariants, so what is there now is
what was there at the start and what was gained since, to rounding, whatever the length of a step. Of what is quadratic,
such as kinetic energy, it leaves an error of its own order. A leapfrog adds up what each of its halves does.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane
from simjax.core.model import ExplicitModel, GridModel, Measure, Model, SemiImplicitModel, SplitModel
from simjax.errors import ConfigurationError
from simjax.grid import LOWER, UPPER
from simjax.integrators.integrator import Integrator
from simjax.models.conserved import MADE, Accounts, Balanced, SplitBalanced, added_up, as_amounts, through
from simjax.stepping.compensated import Pair, added

NOW, AT_START, RESIDUAL = "now", "at_start", "residual"


class Accounted(eqx.Module):
    """A model's state and its accounts.

    start: the amount of each quantity at the start, `(quantities,)`. gained: what was added since then and its rounding
    error, `(quantities, 2 axes + parts)`: through the lower and the upper side of each axis, and made inside by each of
    `Columns.parts`.
    """

    fields: Any
    start: Array
    gained: Pair


class Stage(eqx.Module):
    """A model's state within a step, and what was gained since its beginning."""

    fields: Any
    gained: Array

    @property
    def lag(self) -> Array:
        """See `integrators.splitting.Leapfrog`."""
        return self.fields.lag


def dtype_of(fields):
    """The floating-point type of a model's state."""
    return jax.tree.leaves(fields)[0].dtype


def fields_of(state):
    """The state of the model itself."""
    return state.fields if isinstance(state, Accounted) else state


class Columns:
    """The columns of `Accounted.gained` of a model: sides of each axis, then what makes its quantities."""

    def __init__(self, model: Any, quantities: tuple[str, ...]):
        self.model, self.axes = model, model.domain.grid.ndim
        self.quantities = quantities
        made_by = {name: model.made_by(name) for name in self.quantities}
        self.parts = tuple(dict.fromkeys(part for parts in made_by.values() for part in parts))
        self._made_by = made_by

    @property
    def count(self) -> int:
        return 2 * self.axes + len(self.parts)

    def of(self, name: str) -> dict[str, int]:
        """Names of what is written of a quantity beside its amounts, with the column of each."""
        open_axes = [k for k in range(self.axes) if not self.model.is_closed(k)]
        sides = {through(k, n): 2 * k + n for k in open_axes for n in (LOWER, UPPER)}
        return sides | {part: self.place(part) for part in self._made_by[name]}

    def added(self, accounts: Accounts, dtype) -> Array:
        """Amounts of all quantities in the columns of these parts, zero elsewhere: of this block alone."""
        columns = jnp.zeros((len(self.quantities), self.count), dtype)
        for part, amounts in accounts.items():
            if not any(name in amounts for name in self.quantities):
                continue
            number = as_amounts(self.quantities, amounts, dtype)
            columns = columns.at[:, self.place(part)].add(number)
        return columns

    def place(self, part: str) -> int:
        """The column of one of the sides, `in_x_lower`, or of what makes a quantity."""
        if part in self.parts:
            return 2 * self.axes + self.parts.index(part)
        return [through(k, n) for k in range(self.axes) for n in (LOWER, UPPER)].index(part)


class _Beside(Model):
    """A model whose state holds the state of `model` and further arrays."""

    model: eqx.AbstractVar[Any]
    quantities: eqx.AbstractVar[tuple[str, ...]]

    @property
    def columns(self) -> Columns:
        """Columns of the quantities that have accounts."""
        return Columns(self.model, self.quantities)

    def stable_dt(self, state, params):
        return self.model.stable_dt(state.fields, params)


class _BesideFields(_Beside, GridModel):
    """A model of which the state has the fields of `model` and more."""

    def outputs(self):
        return self.model.outputs()

    def observe(self, t, state, params):
        return self.model.observe(t, state.fields, params)

    def trouble(self, name, t, state, params):
        return self.model.trouble(name, t, state.fields, params)

    def along_bodies(self, t, state, params, points):
        return self.model.along_bodies(t, state.fields, params, points)

    def fluxes(self, t, state, params, plane):
        return self.model.fluxes(t, state.fields, params, plane)

    def flux_measures(self):
        return self.model.flux_measures()

    def flux_offset(self, name):
        return self.model.flux_offset(name)

    def conductivities(self, params):
        return self.model.conductivities(params)

    def wall_scales(self, t, state, params, plane):
        return self.model.wall_scales(t, state.fields, params, plane)

    def frictionless(self, params):
        return self.model.frictionless(params)

    def unknown_fluxes(self, names, plane):
        return self.model.unknown_fluxes(names, plane)

    def energy_flux_along(self, axis):
        return self.model.energy_flux_along(axis)

    def guided_modes(self, params, axis, place, frequency, dt, count, ends):
        return self.model.guided_modes(params, axis, place, frequency, dt, count, ends)

    def component_layouts(self):
        return self.model.component_layouts()


class WithAccounts(_Beside):
    """A model whose state has accounts beside that of `model`."""

    @abc.abstractmethod
    def amounts(self, fields, params) -> Array:
        """The amounts in the whole box, `(quantities,)`."""

    def accounts(self, fields, params) -> Accounted:
        """A state to begin with."""
        start = self.amounts(fields, params)
        none = jnp.zeros((len(start), self.columns.count), start.dtype)
        return Accounted(fields, start, (none, none))

    def readings(self, state: Accounted, params) -> dict[str, Array]:
        """Terms and residuals of the balances that a run writes, by name."""
        columns = self.columns
        now = self.amounts(state.fields, params)
        total, error = state.gained
        gained = jnp.sum(total, axis=1) + jnp.sum(error, axis=1)
        residual = (now - state.start) - gained
        found = {}
        for number, name in enumerate(columns.quantities):
            found[f"{name}_{NOW}"], found[f"{name}_{AT_START}"] = now[number], state.start[number]
            for key, place in columns.of(name).items():
                found[f"{name}_{key}"] = total[number, place] + error[number, place]
            found[f"{name}_{RESIDUAL}"] = residual[number]
        return found

    def described(self, names: tuple[str, ...]) -> dict[str, Measure]:
        """Units and meanings of the `readings` of some quantities."""
        found, columns = {}, self.columns
        for name in names:
            units, text = (measure := self.model.balanced()[name]).units, measure.long_name
            found[f"{name}_{NOW}"] = Measure(units, text)
            found[f"{name}_{AT_START}"] = Measure(units, f"{text} at the start")
            for key in columns.of(name):
                inside = "made inside" if key == MADE else key.replace("_", " ")
                how = inside if key.startswith(MADE) else f"in through the {' '.join(key.split('_')[:0:-1])} side"
                found[f"{name}_{key}"] = Measure(units, f"{text}: {how}")
            found[f"{name}_{RESIDUAL}"] = Measure(units, f"{text}: residual of the balance")
        return found

    # ------------------------------------------------------------------ the model itself

    def partition_specs(self, state, params):
        fields, own = self.model.partition_specs(state.fields, params)
        whole: Any = PartitionSpec()
        return Accounted(fields, whole, (whole, whole)), own

    def unphysical(self, state, params):
        return self.model.unphysical(state.fields, params)

    def fault(self, t, params):
        return self.model.fault(t, params)

    def explain(self, t, params):
        return self.model.explain(t, params)

    def irreversible(self, params):
        return self.model.irreversible(params)

    def diagnostics(self, t, state, params):
        return self.model.diagnostics(t, state.fields, params)

    def roundings(self, t, dt, state, params, tendency):
        return self.model.roundings(t, dt, state.fields, params, lambda: tendency().fields)

    def measures(self):
        return self.model.measures()


class WithBalances(WithAccounts, _BesideFields):
    """A model of fields whose state has accounts beside these; `BalancedScheme` advances it."""

    domain: Domain
    model: Any
    quantities: tuple[str, ...] = eqx.field(static=True)

    @property
    def staged(self) -> "ExplicitStages | SemiImplicitStages | SplitStages":
        """The model that the scheme within a step sees."""
        if isinstance(self.model, SplitModel):
            return SplitStages(self.domain, self.model, self.quantities)
        kind = SemiImplicitStages if isinstance(self.model, SemiImplicitModel) else ExplicitStages
        return kind(self.domain, self.model, self.quantities)

    def amounts(self, fields, params):
        own = as_amounts(self.quantities, self.model.amounts(fields, params), dtype_of(fields))
        return added_up(self.domain, own)

    def constrain(self, t, dt, state, params):
        """A state to begin with: within a step the scheme constrains the fields."""
        return self.accounts(self.model.constrain(t, dt, state.fields, params), params)

    def state_from(self, fields, params):
        return self.accounts(self.model.state_from(fields, params), params)

    def fields_from(self, names, state, params):
        return self.model.fields_from(names, state.fields, params)

    @property
    def taken_through(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.model.taken_through

    def perturb(self, step, t, dt, state, params):
        return eqx.tree_at(lambda s: s.fields, state, self.model.perturb(step, t, dt, state.fields, params))

    def marks(self, params):
        return self.model.marks(params)

    def free_faces(self, t, state, params):
        return self.model.free_faces(t, state.fields, params)


class _Stages(_BesideFields):
    """The model that a scheme advances within a step: its fields, and what was added since the step began."""

    def rates(self, t, fields, params, passing) -> Array:
        """Rates of what enters through each side, with `passing` the explicit or implicit part, and none made."""
        columns = self.columns
        found = jnp.zeros((len(columns.quantities), columns.count), dtype_of(fields))
        for axis in range(columns.axes):
            for side in (LOWER, UPPER):
                plane = FacePlane.of_side(self.domain, axis, side)
                own = {} if self.model.is_closed(axis) else passing(t, fields, params, plane)
                own = own if side == LOWER else {name: -rate for name, rate in own.items()}
                found = found.at[:, 2 * axis + side].set(as_amounts(self.quantities, own, found.dtype))
        return found

    def explicit_rates(self, t, fields, params) -> Array:
        """Rates of the explicit part."""
        rates = self.rates(t, fields, params, self.model.passing)
        made = self.columns.added(self.model.made(t, fields, params), rates.dtype)
        return added_up(self.domain, rates + made)

    def implicit_rates(self, t, fields, params) -> Array:
        """Rates of the implicit part."""
        return added_up(self.domain, self.rates(t, fields, params, self.model.passing_implicitly))

    def constrain(self, t, dt, state, params):
        fields = self.model.constrain(t, dt, state.fields, params)
        if fields is state.fields:
            return state
        change = jax.tree.map(jnp.subtract, fields, state.fields)
        restored = self.columns.added(self.model.made_by_constraints(change, params), state.gained.dtype)
        return Stage(fields, state.gained + added_up(self.domain, restored))

    def state_from(self, fields, params):
        raise AssertionError("A state within a step is made of one at its beginning.")


class ExplicitStages(_Stages, ExplicitModel):
    """`_Stages` of an explicit model."""

    domain: Domain
    model: ExplicitModel
    quantities: tuple[str, ...] = eqx.field(static=True)

    @property
    def loops_over_stages(self):
        return self.model.loops_over_stages

    def rhs(self, t, state, params):
        slope = self.model.rhs(t, state.fields, params)
        return Stage(slope, self.explicit_rates(t, state.fields, params))


class SemiImplicitStages(_Stages, SemiImplicitModel):
    """`_Stages` of a semi-implicit model."""

    domain: Domain
    model: SemiImplicitModel
    quantities: tuple[str, ...] = eqx.field(static=True)

    def explicit_rhs(self, t, state, params):
        slope = self.model.explicit_rhs(t, state.fields, params)
        return Stage(slope, self.explicit_rates(t, state.fields, params))

    def implicit_rhs(self, t, state, params):
        slope = self.model.implicit_rhs(t, state.fields, params)
        return Stage(slope, self.implicit_rates(t, state.fields, params))

    def implicit_solve(self, t, dt, right, params, prepared):
        fields = self.model.implicit_solve(t, dt, right.fields, params, prepared)
        return Stage(fields, right.gained + dt * self.implicit_rates(t, fields, params))

    def explicit_stable_dt(self, state, params):
        return self.model.explicit_stable_dt(state.fields, params)

    def prepare(self, params):
        return self.model.prepare(params)


class SplitStages(_BesideFields, SplitModel):
    """A model in two halves, with what each of them does to its quantities."""

    domain: Domain
    model: Any
    quantities: tuple[str, ...] = eqx.field(static=True)

    def prepare(self, params):
        return self.model.prepare(params)

    def kick(self, t, dt, state, params, prepared):
        fields = self.model.kick(t, dt, state.fields, params, prepared)
        return self._with(state, fields, self.model.kicked(dt, state.fields, fields, params, prepared))

    def drift(self, t, dt, state, params, prepared):
        fields = self.model.drift(t, dt, state.fields, params, prepared)
        return self._with(state, fields, self.model.drifted(t, dt, state.fields, fields, params, prepared))

    def _with(self, state: Stage, fields, accounts: Accounts) -> Stage:
        made = self.columns.added(accounts, state.gained.dtype)
        return Stage(fields, state.gained + added_up(self.domain, made))

    def state_from(self, fields, params):
        raise AssertionError("A state within a step is made of one at its beginning.")


class BalancedScheme(Integrator):
    """A scheme that advances the accounts of a step with its fields, and adds them to the sums without rounding."""

    scheme: Integrator
    order: int = eqx.field(static=True)
    courant_limit: float = eqx.field(static=True)

    def __init__(self, scheme: Integrator):
        self.scheme, self.order, self.courant_limit = scheme, scheme.order, scheme.courant_limit

    @property
    def stages(self) -> int:
        return self.scheme.stages

    def prepare(self, model, params, dt):
        return self.scheme.prepare(model.model, params, dt)

    def step(self, model, t, dt, state, params, prepared=None):
        begin = Stage(state.fields, jnp.zeros_like(state.gained[0]))
        end = self.scheme.step(model.staged, t, dt, begin, params, prepared)
        return Accounted(end.fields, state.start, added(state.gained, end.gained))

    def stable_dt(self, model, state, params):
        return self.scheme.stable_dt(model.model, state.fields, params)


def with_balances(model: GridModel, quantities: tuple[str, ...] | None = None) -> WithBalances:
    """`model`, one that is `Balanced`, with accounts of `quantities` in its state, by default of all it has.

    Raises:
        ConfigurationError: a balance does not hold with these sides.
    """
    assert isinstance(model, Balanced | SplitBalanced)
    names = tuple(model.balanced()) if quantities is None else quantities
    told = model.unbalanced(names)
    if told:
        raise ConfigurationError(f"{told}.")
    return WithBalances(model.domain, model, names)
