"""Reads the section `sponge`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from simjax.config.sections import Context, read_components, read_formula
from simjax.schema.formula import Formula
from simjax.schema.side_declarations import sides_of
from simjax.schema.sponge_section import ENDS, TOWARDS, SpongeConfig, SpongeLayer

LAYER = ("width", "strength")


def read_sponge(value: Mapping[str, Any] | None, context: Context) -> SpongeConfig | None:
    """Read layers and what the fields are drawn towards; None where there is no sponge, or after telling mistakes."""
    if not value:
        return None
    problems, before = context.problems, len(context.problems)
    if not context.schema.modules:
        absorbing = "absorbing" in sides_of(context.schema.sides)
        instead = "write absorbing sides" if absorbing else "leave it out"
        problems.say(
            "sponge", f"sponge: model={context.schema.name} has no tendency that a term can be added to; {instead}"
        )
        return None
    layers = []
    for key, given in value.items():
        if key in context.axes:
            layers += _read_axis(f"sponge.{key}", context.axes.index(key), given, context)
        elif key != TOWARDS:
            problems.unknown("sponge", key, (*context.axes, TOWARDS))
    if not layers and len(problems) == before:
        problems.say(
            "sponge",
            "sponge has no layer: expected one beside a side at least, such as x: {upper: {width: 0.2, strength: 30}}",
        )
    towards = _read_towards(value.get(TOWARDS), context)
    return None if len(problems) > before else SpongeConfig(tuple(layers), towards)


def _read_axis(path: str, axis: int, given: Any, context: Context) -> list[SpongeLayer]:
    """A layer for both sides, or {lower: ..., upper: ...} with one of them or both."""
    ends = ENDS
    if isinstance(given, Mapping) and not {*given} & {*LAYER}:
        for key in given:
            if key not in ENDS:
                context.problems.unknown(path, key, (*ENDS, *LAYER))
        ends = tuple(end for end in ENDS if given.get(end) is not None)
        found = [_read_layer(f"{path}.{end}", given[end], context) for end in ends]
    else:
        found = [_read_layer(path, given, context)] * 2
    return [SpongeLayer(axis, ENDS.index(end), *one) for end, one in zip(ends, found, strict=True) if one is not None]


def _read_layer(path: str, given: Any, context: Context) -> tuple[Formula, Formula] | None:
    """Width and strength: positive numbers, or formulas of parameters."""
    if not isinstance(given, Mapping):
        context.problems.add(path, given, "a layer such as {width: 0.2, strength: 30}")
        return None
    everywhere = dataclasses.replace(context, known=tuple(context.parameters))
    before = len(context.problems)
    for key in given:
        if key not in LAYER:
            context.problems.unknown(path, key, LAYER)
    found = []
    for key in LAYER:
        where = f"{path}.{key}"
        if given.get(key) is None:
            context.problems.say(where, f"{where} is missing: a layer has its {key}")
            continue
        formula = read_formula(where, given[key], everywhere)
        if formula is not None and formula.constant is not None and not formula.constant > 0:
            context.problems.add(where, given[key], "a number > 0")
        found.append(formula)
    return None if len(context.problems) > before else (found[0], found[1])


def _read_towards(given: Any, context: Context) -> dict[str, tuple[Formula, ...]]:
    """Formulas of x, y, z, t and parameters, one per component of each field."""
    path, fields = f"sponge.{TOWARDS}", {field.name: field for field in context.schema.fields}
    if not isinstance(given, Mapping) or not given:
        some = next(iter(fields))
        context.problems.add(path, given, f"fields with what they are drawn towards, such as {{{some}: ...}}")
        return {}
    towards = {}
    for key, value in given.items():
        if key not in fields:
            context.problems.unknown(path, key, fields)
            continue
        count = len(fields[key].components(context.ndim, context.counts.get(key, 0)))
        formulas = read_components(f"{path}.{key}", value, count, context)
        if formulas is not None:
            towards[key] = formulas
    return towards
