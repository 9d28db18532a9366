"""The section `storage`, checked against the rest of a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from simjax.config.sections import Context
from simjax.schema.config import component_count
from simjax.schema.kinds import ListOf, Real
from simjax.schema.storage_section import StorageConfig


def read_storage(found: Mapping[str, Any], context: Context) -> StorageConfig | None:
    """The section with the numbers of every field of `rest` as a tuple, one per component."""
    storage: StorageConfig | None = found["storage"]
    if storage is None:
        return None
    problems = context.problems
    for path, wanted, why in (
        ("precision", "float32", "16 bits are kept of single precision"),
        ("steps_per_exchange", 0, "fields are rounded after each step"),
    ):
        if found[path] not in (wanted, None):
            problems.say("storage", f"storage: expected {path}={wanted}, as {why}, got {path}={found[path]}")
    if refusal := context.schema.refusal("storage"):
        problems.say("storage", f"storage: {refusal}")
    if found["outputs"] is not None and found["outputs"].balanced:
        problems.say("storage", "storage: expected no balances, as sums of 16-bit fields are kept in the mean alone")
    if context.schema.noisy:
        problems.say("storage", f"storage: expected none, as model={context.schema.name} has noise; write storage=null")
    rest: dict[str, tuple[float, ...]] = {}
    for name, numbers in (storage.rest or {}).items():
        if name not in (found["initial"] or {}):
            problems.unknown("storage.rest", name, list(found["initial"] or {}))
            continue
        count, path = component_count(found["initial"][name]), f"storage.rest.{name}"
        given = [numbers] if count == 1 and not isinstance(numbers, (list, tuple)) else numbers
        read = ListOf(Real(), count, count, noun="numbers").read(path, given, problems)
        if read is not None:
            rest[name] = tuple(read)
    return dataclasses.replace(storage, rest=rest)
