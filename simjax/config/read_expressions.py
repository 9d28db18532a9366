"""The section `expressions`: fields that formulas make of those of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from simjax.config.sections import Context
from simjax.errors import ConfigurationError
from simjax.schema.config_errors import join, unended
from simjax.schema.expressions import FORMULA, LONG_NAME, UNITS, Expression
from simjax.schema.field_formula import NAMES, FieldFormula
from simjax.schema.formula import RESERVED
from simjax.schema.kinds import Text

EXPECTED = "a formula of fields, such as 'velocity_y*temperature', or {formula: ..., units: ..., long_name: ...}"


def with_expressions(given: Mapping[str, Any], context: Context) -> Context:
    """A context whose schema has the expressions that are written; told are those that cannot be read.

    An expression may name those that are written before it.
    """
    problems, schema = context.problems, context.schema
    if given and schema.of_particles:
        problems.say(
            "expressions", "expressions: expected none for a model of particles, which has no fields; leave them out"
        )
        return context
    for name, value in given.items():
        expression = _read_one(join("expressions", str(name)), name, value, context)
        if expression is not None:
            expressions = (*context.schema.expressions, (name, expression))
            context = dataclasses.replace(context, schema=dataclasses.replace(context.schema, expressions=expressions))
    return context


def _read_one(path: str, name: Any, value: Any, context: Context) -> Expression | None:
    problems, written = context.problems, context.schema.written(context.ndim, context.counts)
    if not isinstance(name, str) or not name.isidentifier() or name in (*RESERVED, *NAMES):
        problems.say(path, f"{path}: expected a name of letters, digits and _, and none of the formulas' own")
        return None
    if name in written or name in context.parameters:
        problems.say(path, f"{path}: '{name}' already names a variable or a number of the run; choose another name")
        return None
    parts = value if isinstance(value, Mapping) else {FORMULA: value}
    for key in parts:
        if key not in (FORMULA, UNITS, LONG_NAME):
            problems.unknown(path, key, (FORMULA, UNITS, LONG_NAME))
            return None
    before, text = len(problems), Text()
    units, about = (
        text.read(join(path, key), parts[key], problems) if parts.get(key) else None for key in (UNITS, LONG_NAME)
    )
    try:
        formula = FieldFormula(parts.get(FORMULA, ""))
        vectors = context.schema.vectors(context.ndim)
        scalars = [variable for variables in written.values() for variable in variables]
        formula.check_names([*scalars, *vectors, *context.axes, "t", *context.parameters])
        formula.check_kinds(vectors, context.ndim)
    except ConfigurationError as error:
        problems.add(path, value, EXPECTED, unended(error))
        return None
    return Expression(formula, units, about or "") if len(problems) == before else None
