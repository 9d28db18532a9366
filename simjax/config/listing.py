"""The keys of a model as text: meaning, units, allowed values and default of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from simjax.schema.kinds import Nested
from simjax.schema.model_schema import FieldSchema, ModelSchema
from simjax.schema.parts import Chosen, PartOf, summary_of
from simjax.schema.side_declarations import SideSchema, sides_of


def keys_of_model(schema: ModelSchema, mapping: Mapping[str, Any]) -> str:
    """Every key of `physics`, `particles`, `initial`, `coefficients` and the walls; `mapping` is a configuration."""
    lines = [f"model: {schema.name}", *([f"  {schema.summary}"] if schema.summary else ())]
    lines += _section("physics", schema.physics, mapping, described=bool(schema.summary))
    if schema.particles is not None:
        lines += _section("particles", schema.particles, mapping)
    lines += _fields("initial", schema.fields, mapping)
    lines += _fields("coefficients", schema.coefficients, mapping)
    kinds = sides_of(schema.sides)
    if kinds:
        lines += ["", "boundaries, for each axis periodic, or lower and upper:"]
        lines += [f"  {_wall(one)}" for one in kinds.values()]
    if schema.integrators:
        lines += ["", f"time.integrator: {', '.join(schema.integrators)} (the first where it is left out)"]
    return "\n".join(lines)


def _section(name: str, section: type, mapping: Mapping[str, Any], described: bool = False) -> Iterator[str]:
    summary = () if described else (section.__doc__ or "").strip().splitlines()
    yield ""
    yield f"{name}:{'' if dataclasses.fields(section) else ' no keys'}{' ' + summary[0] if summary else ''}".rstrip()
    yield from _keys(section, mapping.get(name) or {}, "  ")


def _keys(section: type, chosen: Mapping[str, Any], margin: str) -> Iterator[str]:
    """Two lines for each key; the keys of parts and of sections inside stand below it."""
    for field in dataclasses.fields(section):
        about, units, kind = (field.metadata[name] for name in ("about", "units", "kind"))
        yield f"{margin}{field.name}{f' [{units}]' if units != '1' else ''}{f': {about}' if about else ''}"
        missing = field.default is dataclasses.MISSING
        default = "required" if missing else f"default {written(field.default)}"
        here = f"; here {written(chosen[field.name])}" if field.name in chosen else ""
        yield f"{margin}    {kind.allowed}; {default}{here}"
        if isinstance(kind, Nested):
            yield from _keys(kind.section, {}, f"{margin}      ")
        told: dict[type, str] = {}  # keys that several parts have stand once
        for name, part in kind.parts.items() if isinstance(kind, PartOf) else ():
            same = part.Keys in told
            yield f"{margin}      {name}: {summary_of(part)}{f' Keys as {told[part.Keys]}.' if same else ''}"
            yield from () if same else _keys(part.Keys, {}, f"{margin}        ")
            told.setdefault(part.Keys, name)


def _fields(section: str, fields: Iterable[FieldSchema], mapping: Mapping[str, Any]) -> Iterator[str]:
    chosen = mapping.get(section) or {}
    for number, field in enumerate(fields):
        if number == 0:
            yield ""
            yield f"{section}: a formula of x, y, z and named numbers, or {{file: NAME, variable: NAME}}"
        shape = "one for each axis" if field.vector else "as many as are given" if field.free else "one"
        missing = "may be left out" if field.optional else f"default {field.default}"
        if field.default is None and not field.optional:
            missing = "required"
        units = f" [{field.units}]" if field.units != "1" else ""
        here = f"; here {written(chosen[field.name])}" if field.name in chosen else ""
        yield f"  {field.name}{units}: {shape}; {missing}{here}"


def _wall(side: SideSchema) -> str:
    keys = ", ".join(f"{key.name}: ..." for key in side.keys)
    return f"{f'{{kind: {side.kind}, {keys}}}' if keys else side.kind}: {side.about}"


def written(value: Any) -> str:
    """Write a value in the syntax of YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {written(item)}' for name, item in value.items())}}}"
    if isinstance(value, Chosen):
        return value.name
    return str(value)
