"""The keys `stop` and `events`: conditions on a run's quantities that end it, or write a frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simjax.errors import ConfigurationError
from simjax.schema.config_errors import ConfigErrors
from simjax.schema.formula import Condition
from simjax.schema.instruments import FRAME, STEP
from simjax.schema.kinds import Choice, ListOf, Nested, Plain, Real, Text, key

EVENT_NAME = r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}"
_EVERY = Choice((FRAME, STEP))
_ABOUT_EVERY = "when it is judged: at every output time, or after every step"


@dataclass(frozen=True)
class ConditionKind(Plain):
    """A comparison of quantities of a run, such as "kinetic_energy < 0.01"; joined by `and`, `or`, `not`."""

    optional: bool = False

    @property
    def allowed(self) -> str:
        return f"a comparison such as 'kinetic_energy < 0.01'{' or null' if self.optional else ''}"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Condition | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, str):
            problems.add(path, value, self.allowed)
            return None
        try:
            return Condition(value)
        except ConfigurationError as error:
            problems.say(path, f"{path}: {str(error).removesuffix('.')}")
            return None


@dataclass(frozen=True)
class SteadyConfig:
    """The section `stop.steady`: how little a quantity may change over how long."""

    quantity: str = key(Text(described="the name of a quantity of the run"), about="quantity that is to be steady")
    change: float = key(Real(above=0.0, high=1.0), about="difference of its extremes over its largest size")
    over: float = key(Real(above=0.0, formula=True), units="s", about="time over which it is so steady")


@dataclass(frozen=True)
class StopConfig:
    """The section `stop`: conditions of which the first that holds ends the run."""

    when: Condition | None = key(ConditionKind(optional=True), None, about="comparison of quantities; null: none")
    every: str = key(_EVERY, FRAME, about=_ABOUT_EVERY)
    steady: SteadyConfig | None = key(
        Nested(SteadyConfig, optional=True), None, about="quantity that is steady, judged at output times; null: none"
    )


@dataclass(frozen=True)
class EventConfig:
    """An entry of `events`: a frame with all variables is written when the condition begins to hold."""

    when: Condition = key(ConditionKind(), about="comparison of quantities")
    every: str = key(_EVERY, FRAME, about=_ABOUT_EVERY)
    name: str = key(
        Text(pattern=EVENT_NAME, described="a name of letters, digits, _ . -"), "event", about="name of its folder"
    )


EVENTS = ListOf(Nested(EventConfig), 0, 100, optional=True, noun="events")
