"""The sections `stop` and `events`, checked against the rest of a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from simjax.config.sections import Context
from simjax.schema.instruments import FRAME, STEP
from simjax.schema.triggers import EventConfig, StopConfig


def read_triggers(found: Mapping[str, Any], context: Context) -> tuple[EventConfig, ...] | None:
    """Read the events, each with a unique name; an event that this run cannot evaluate is a problem."""
    problems = context.problems
    stop: StopConfig | None = found["stop"]
    events: tuple[EventConfig, ...] = found["events"] or ()
    if stop is not None and stop.when is None and stop.steady is None:
        problems.say("stop", "stop: expected when or steady, such as stop: {when: 'kinetic_energy < 0.01'}, or null")
    time = found["time"]
    if stop is not None and stop.steady is not None and time is not None and stop.steady.over < time.output_every:
        expected = f"at least time.output_every={time.output_every:g}, as it is judged at output times"
        problems.add("stop.steady.over", stop.steady.over, expected)
    ensemble = found["ensemble"]
    if events and (refusal := context.schema.refusal("events")):
        problems.say("events", f"events: {refusal}")
    places = {"stop.every": stop.every if stop is not None and stop.when is not None else FRAME}
    places |= {f"events[{number}].every": one.every for number, one in enumerate(events)}
    for path in (path for path, every in places.items() if every == STEP):
        if refusal := context.schema.refusal("every=step"):
            problems.add(path, STEP, f"{FRAME}, {refusal}")
        elif ensemble is not None and ensemble.several:
            problems.add(path, STEP, f"{FRAME} in an ensemble, whose members meet at output times alone")
        elif found["steps_per_exchange"] not in (0, None):
            several = f"steps_per_exchange={found['steps_per_exchange']}, which leave no field whole"
            problems.add(path, STEP, f"{FRAME} with {several}", "write steps_per_exchange=0")
    names = [one.name for one in events]
    default = EventConfig.__dataclass_fields__["name"].default
    for number, name in enumerate(names):
        if names.count(name) > 1 and name != default:
            problems.add(f"events[{number}].name", name, "a name that no other of events has")
    return _named(events, default) or None


def _named(events: tuple[EventConfig, ...], default: str) -> tuple[EventConfig, ...]:
    """Each with a name of its own: the default one with a number from the second on."""
    result, used = [], set()
    for one in events:
        name, number = one.name, 2
        while name in used and one.name == default:
            name, number = f"{default}_{number}", number + 1
        used.add(name)
        result.append(dataclasses.replace(one, name=name))
    return tuple(result)
