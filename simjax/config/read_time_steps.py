"""The scheme of a run, and the key that decides on the length of its steps: `dt`, `courant` or `tolerance`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simjax.schema.config import TimeConfig
from simjax.schema.config_errors import ConfigErrors
from simjax.schema.kinds import Choice
from simjax.schema.model_schema import ERROR_CONTROLLED, ModelSchema

LENGTHS = ("dt", "courant", "tolerance")
EXPLAINED = {"dt": "a fixed step", "courant": "a limited one", "tolerance": "one by its error"}


def read_integrator(time: TimeConfig, schema: ModelSchema, problems: ConfigErrors) -> str | None:
    """The scheme by its name, by default the first that fits; None where the model takes its own steps."""
    name = time.integrator
    if not schema.integrators:
        if name is not None:
            problems.say("time.integrator", f"time.integrator: model={schema.name} takes its own steps; leave it out")
        return None
    if time.tolerance is None:
        if name in ERROR_CONTROLLED:
            problems.add(
                "time.integrator",
                name,
                f"one of {', '.join(schema.integrators)} for steps by dt or courant",
                "write time.tolerance=1e-6 for steps that its estimate of errors chooses",
            )
            return None
        return Choice(schema.integrators).read("time.integrator", name or schema.integrators[0], problems)
    known = schema.error_controlled
    if not known:
        return None  # told by `check_steps`
    if name is not None and name not in known:
        problems.add(
            "time.integrator",
            name,
            f"one of {', '.join(known)} with time.tolerance, as they estimate their errors",
            f"write time.integrator={known[0]}, or time.tolerance=null",
        )
    return name or known[0]


def check_steps(time: TimeConfig, schema: ModelSchema | None, problems: ConfigErrors) -> None:
    """Check that one key decides on the length of steps, and that the model can be stepped by it."""
    given = [name for name in LENGTHS if getattr(time, name) is not None]
    if len(given) > 1:
        told = " and ".join(f"time.{name} = {getattr(time, name):g}" for name in given)
        ways = [
            " ".join(f"time.{other}=null" for other in given if other != name) + f" for {EXPLAINED[name]}"
            for name in given
        ]
        problems.say(f"time.{given[0]}", f"{told}: expected one of them; write {' or '.join(ways)}")
    if time.absolute_tolerance is not None and time.tolerance is None:
        problems.say(
            "time.absolute_tolerance",
            f"time.absolute_tolerance = {time.absolute_tolerance:g} without time.tolerance; write both or none",
        )
    if schema is None:
        return
    if time.tolerance is not None and not schema.error_controlled:
        why = "advances its fields in turns, without a tendency"
        if schema.noisy:
            why = "has noise, which an estimate of errors knows nothing of"
        elif not schema.integrators:
            why = "takes steps of a fixed length"
        problems.say(
            "time.tolerance",
            f"time.tolerance = {time.tolerance:g}: model={schema.name} {why}, so that no error can be estimated; write "
            f"time.tolerance=null and time.{'courant=0.5' if schema.limited else 'dt'}",
        )
    elif not schema.limited and time.dt is None and time.tolerance is None:
        problems.say(
            "time.dt",
            f"time.dt is missing: expected a number > 0{' or time.tolerance' if schema.error_controlled else ''}, "
            f"model={schema.name} has no Courant limit",
        )


def check_control(found: Mapping[str, Any], problems: ConfigErrors) -> None:
    """Refuse what changes the state beside the steps that a tolerance controls, or needs steps of known lengths."""
    time: TimeConfig | None = found["time"]
    if time is None or time.tolerance is None:
        return
    least = 10 * {"float32": 2.0**-23, "float64": 2.0**-52}[found["precision"] or "float64"]
    if time.tolerance < least:
        hint = "or precision=float64" if found["precision"] == "float32" else ""
        problems.add("time.tolerance", time.tolerance, f"at least {least:.2g}, ten roundings of the precision", hint)
    if found["storage"] is not None:
        problems.say("storage", "storage: expected none with time.tolerance, which rounding to 16 bits would miss")
    if found["steps_per_exchange"] not in (0, None):
        problems.add(
            "steps_per_exchange",
            found["steps_per_exchange"],
            "0 with time.tolerance, as the errors of all devices decide on every step",
        )
    if found["outputs"] is not None and found["outputs"].balanced:
        problems.say(
            "time.tolerance",
            f"time.tolerance = {time.tolerance:g}: expected no balances, as they add up what schemes of fixed weights "
            "take; write time.tolerance=null, or leave the balances out",
        )
