"""The instrument `balance`: which conserved quantities have balances, and what they need of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simjax.config.sections import Context
from simjax.models.registry import MODELS
from simjax.schema.config_errors import ConfigErrors
from simjax.schema.kinds import Choice, ListOf


def read_quantities(path: str, value: Any, context: Context) -> tuple[str, ...]:
    """Names of quantities, each once; none after telling why not."""
    known = context.schema.balanced(context.ndim, context.counts)
    if not known:
        context.problems.say(
            path,
            f"{path}: model={context.schema.name} does not tell what passes its sides; expected one that does: "
            f"{', '.join(name for name, schema in MODELS.items() if schema.balanced(context.ndim, {}))}",
        )
        return ()
    given = [value] if isinstance(value, str) else value
    if given is None or (isinstance(given, (list, tuple)) and not given):
        context.problems.say(path, f"{path} is empty: expected quantities, some of {', '.join(known)}")
        return ()
    read = ListOf(Choice(known), 1, 100, noun="quantities").read(path, given, context.problems) or ()
    return tuple(dict.fromkeys(read))


def check_balance(path: str, keys: Mapping[str, Any], problems: ConfigErrors) -> None:
    """Refuse what leaves fluxes through the sides unknown at some stage, or adds terms of its own to the equation."""
    if keys["steps_per_exchange"] not in (0, None):
        problems.say(
            path,
            f"{path}: expected steps_per_exchange=0, got {keys['steps_per_exchange']}, where no field is whole between "
            "two exchanges; write steps_per_exchange=0",
        )
    unknown = "whose terms it does not know"
    reasons = {"closure": unknown, "sponge": unknown, "inverse": "which searches without accounts"}
    for section, why in reasons.items():
        if keys[section]:
            problems.say(path, f"{path}: expected no section {section}, {why}; leave out one of the two")
