"""Fields of a configuration, initial conditions and coefficients: by formulas, from files, as shapes of bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simjax.config.sections import Context, find_told, read_components
from simjax.config.shapes import read_shapes
from simjax.schema.config import FieldSource, FileSource
from simjax.schema.formula import Formula
from simjax.schema.kinds import Integer, ListOf, Text
from simjax.schema.model_schema import FieldSchema

FILE_KEYS = ("file", "variable", "time", "member", "order")


def read_fields(
    section: str, value: Mapping[str, Any], fields: Sequence[FieldSchema], context: Context
) -> dict[str, FieldSource]:
    """The fields of `section` by formulas or from files; one that is left out has its default."""
    known = [field.name for field in fields]
    for key in value:
        if key not in known:
            context.problems.unknown(section, key, known)
    sources: dict[str, FieldSource] = {}
    for field in fields:
        path, given = f"{section}.{field.name}", value.get(field.name)
        count = len(field.components(context.ndim))
        source: FieldSource | None
        if given is None and field.optional:
            continue
        if given is None:
            source = None if field.default is None else (Formula(field.default),) * count
            if source is None:
                context.problems.say(path, f"{path} is missing: expected a formula or a file")
        elif isinstance(given, Mapping) and (expected := context.schema.refusal("fields from files")):
            context.problems.add(path, given, expected)
            source = None
        elif field.distance and not (isinstance(given, Mapping) and "variable" in given):
            source = read_shapes(path, given, context)
        elif isinstance(given, Mapping):
            source = read_file_source(path, given, field, context)
        elif field.free:
            given = list(given) if isinstance(given, (list, tuple)) else [given]
            source = read_components(path, given, len(given), context, noise=True)
        else:
            source = read_components(path, given, count, context, noise=context.schema.noise_at_start)
        if source is not None:
            sources[field.name] = source
    return sources


def read_file_source(path: str, value: Mapping[str, Any], field: FieldSchema, context: Context) -> FileSource | None:
    """The file and the variables in it that a field starts from."""
    problems, before = context.problems, len(context.problems)
    meant = {problems.unknown(path, key, FILE_KEYS) for key in value if key not in FILE_KEYS}
    variable = value.get("variable")
    several = variable if isinstance(variable, (list, tuple)) else [variable]
    components = field.components(context.ndim, len(several))
    for key in ("file", "variable"):
        if key not in value and key not in meant:
            problems.say(f"{path}.{key}", f"{path}.{key} is missing: expected keys file and variable")
    if len(problems) > before:
        return None
    file = Text(described="a path").read(f"{path}.file", value["file"], problems)
    if len(components) == 1 and isinstance(variable, str):
        variable = [variable]
    names = ListOf(Text(), len(components), len(components), noun=f"variable name(s) for {', '.join(components)}")
    variables = names.read(f"{path}.variable", variable, problems)
    index = Integer(-(2**31), optional=True)
    time = index.read(f"{path}.time", value.get("time"), problems)
    member = index.read(f"{path}.member", value.get("member"), problems)
    order = value.get("order")
    if order is not None and (not isinstance(order, (list, tuple)) or sorted(map(str, order)) != list(context.axes)):
        problems.add(
            f"{path}.order",
            order,
            f"the axes of the array in the file, such as [{', '.join(context.axes[::-1])}]",
        )
    if len(problems) > before or file is None or variables is None:
        return None
    found = find_told(f"{path}.file", file, context)
    if found is None:
        return None
    return FileSource(found, variables, time, member, None if order is None else tuple(order))
