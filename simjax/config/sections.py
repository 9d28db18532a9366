"""Sections that depend on the model, the grid and the parameters: walls, initial fields, terms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simjax.errors import ConfigurationError
from simjax.schema.config import AxisBoundary, Boundaries, SideSpec
from simjax.schema.config_errors import ConfigErrors, closest, join, unended
from simjax.schema.formula import RESERVED, Formula
from simjax.schema.kinds import Real
from simjax.schema.locate import path_problem
from simjax.schema.model_schema import AXES, FieldSchema, ModelSchema
from simjax.schema.side_declarations import sides_of, wrapping_refusals


@dataclass(frozen=True)
class Context:
    """Context in which sections are read. known: names in formulas; None: coordinates, time and parameters."""

    schema: ModelSchema
    ndim: int
    parameters: Collection[str]
    folders: Sequence[Path]
    problems: ConfigErrors
    counts: Mapping[str, int]
    known: tuple[str, ...] | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables that a run can write."""
        return self.schema.variables(self.ndim, self.counts)

    @property
    def axes(self) -> tuple[str, ...]:
        return AXES[: self.ndim]

    @property
    def names(self) -> tuple[str, ...]:
        """Names that a formula may use: axes, time and parameters."""
        return (*self.axes, "t", *self.parameters) if self.known is None else self.known


def read_formula(path: str, value: Any, context: Context, *, noise: bool = False) -> Formula | None:
    """The formula at `path`, made of the names known there; None after telling why not."""
    expected = "a number or a formula"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        context.problems.add(path, value, expected)
        return None
    if not isinstance(value, str) and not math.isfinite(value):
        context.problems.add(path, value, "a finite number or a formula")
        return None
    try:
        formula = Formula(value)
        formula.check_names(context.names, noise=noise)
    except ConfigurationError as error:
        context.problems.add(path, value, expected, unended(error))
        return None
    return formula


def read_components(
    path: str, value: Any, count: int, context: Context, *, noise: bool = False
) -> tuple[Formula, ...] | None:
    """One formula for a scalar, a list of `count` for a vector."""
    if count == 1 and not isinstance(value, (list, tuple)):
        formula = read_formula(path, value, context, noise=noise)
        return None if formula is None else (formula,)
    if not isinstance(value, (list, tuple)) or len(value) != count:
        axes = f", one per axis {' '.join(context.axes)}" if count > 1 else ""
        context.problems.add(path, value, f"a list of {count} formula(s) or number(s){axes}")
        return None
    formulas = [read_formula(f"{path}[{i}]", item, context, noise=noise) for i, item in enumerate(value)]
    return None if any(formula is None for formula in formulas) else tuple(f for f in formulas if f is not None)


def read_parameters(value: Mapping[str, Any], taken: Collection[str], problems: ConfigErrors) -> dict[str, float]:
    """User-named numbers that formulas know and `ensemble.vary` can vary; names of the physics are `taken`."""
    parameters = {}
    for key, number in value.items():
        path = join("parameters", str(key))
        if not isinstance(key, str) or not key.isidentifier() or key in RESERVED:
            problems.say(path, f"{path}: a parameter's name is letters, digits and _, and none of the formulas' own")
        elif key in taken:
            problems.say(path, f"{path}: '{key}' already names a number of physics; choose another name")
        else:
            read = Real(formula=True).read(path, number, problems)
            parameters[key] = math.nan if read is None else read
    return parameters


def read_boundaries(value: Mapping[str, Any], context: Context) -> Boundaries | None:
    """The walls of every axis; an axis that is not named is periodic."""
    before = len(context.problems)
    for key in value:
        if key not in context.axes:
            context.problems.unknown("boundaries", key, context.axes)
    boundaries = [read_axis(f"boundaries.{axis}", value.get(axis, "periodic"), context) for axis in context.axes]
    return None if len(context.problems) > before else Boundaries(b for b in boundaries if b is not None)


def read_axis(path: str, value: Any, context: Context) -> AxisBoundary | None:
    """`periodic`, a kind for both sides, or {lower: ..., upper: ...}."""
    if isinstance(value, Mapping) and "kind" not in value:
        sides = ("lower", "upper")
        meant = {context.problems.unknown(path, key, sides) for key in value if key not in sides}
        missing = [side for side in sides if side not in value and side not in meant]
        for side in missing:
            context.problems.say(f"{path}.{side}", f"{path}.{side} is missing: expected a wall such as no_slip or slip")
        if missing or meant:
            return None
        lower, upper = (read_wall(f"{path}.{side}", value[side], path, context) for side in ("lower", "upper"))
    else:
        lower = upper = read_wall(path, value, path, context)
    if lower is None or upper is None:
        return None
    before = len(context.problems)
    for _, sentence in wrapping_refusals(path, lower.kind, upper.kind):
        context.problems.say(path, sentence)
    return None if len(context.problems) > before else AxisBoundary(lower, upper)


def read_wall(path: str, value: Any, axis_path: str, context: Context) -> SideSpec | None:
    """The wall at one end of an axis: a kind, or a kind with its values."""
    problems, known = context.problems, sides_of(context.schema.sides)
    kinds = ("periodic", *known)
    given = {"kind": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or "kind" not in given:
        problems.add(path, value, f"a kind of wall, one of {', '.join(kinds)}")
        return None
    kind = given["kind"]
    if kind not in kinds:
        close = closest(str(kind), kinds)
        problems.add(path, kind, f"one of {', '.join(kinds)}", f"did you mean '{close}'?" if close else "")
        return None
    keys = known[kind].keys if kind in known else ()
    names = tuple(key.name for key in keys)
    for name in given:
        if name != "kind" and name not in names:
            problems.unknown(path, name, ("kind", *names))
            return None
    before, fields = len(problems), {}
    for key in keys:
        values = read_wall_key(path, kind, key, given, context)
        if values is None:
            continue
        if key.vector and known[kind].tight:  # the velocity of the side
            is_tight(path, values, given.get(key.name), axis_path, context)
        fields[key.name] = values
    single = tuple(key.name for key in keys if not (key.vector or key.free))
    return None if len(problems) > before else SideSpec(kind, fields, single)


def read_wall_key(
    path: str, kind: str, key: FieldSchema, given: Mapping[str, Any], context: Context
) -> tuple[Formula, ...] | None:
    """Formulas of a key of a wall: as given, else its default; None where it is left out or a mistake."""
    where, count = f"{path}.{key.name}", len(key.components(context.ndim, context.counts.get(key.name, 0)))
    if key.name in given:
        return read_components(where, given[key.name], count, context)
    if key.optional:
        return None
    if key.default is None:
        context.problems.say(where, f"{where} is missing: a wall of kind {kind} needs its {key.name}")
        return None
    return (Formula(key.default),) * count


def is_tight(path: str, velocity: Sequence[Formula], given: Any, axis_path: str, context: Context) -> bool:
    """Tell whether nothing flows through a wall that moves with `velocity`, read from `given`; else record it."""
    normal = context.axes.index(axis_path.rsplit(".", 1)[-1])
    if velocity[normal].constant == 0.0:
        return True
    context.problems.add(
        f"{path}.velocity[{normal}]",
        given[normal],
        "0: nothing flows through a no_slip wall",
        "write kind: inflow for a flow through it",
    )
    return False


def find_told(path: str, file: str, context: Context, *, or_folder: bool = False) -> Path | None:
    """The file (see `find_input`) that the key at `path` names; None after telling where it was looked for."""
    found = find_input(file, context.folders, or_folder=or_folder)
    if found is None:
        looked = ", ".join(str(folder) for folder in context.folders)
        context.problems.say(path, f"{path} = {file!r}: no such file (looked below {looked})")
    return found


def find_input(file: str, folders: Sequence[Path], *, or_folder: bool = False) -> Path | None:
    """The first existing file among `folders`, or also a folder of that name; an absolute path is itself."""
    if path_problem(file):
        return None
    candidates = [Path(file).expanduser()] if Path(file).expanduser().is_absolute() else [f / file for f in folders]
    return next((one.resolve() for one in candidates if one.is_file() or (or_folder and one.is_dir())), None)


def read_forcing(value: Mapping[str, Any], context: Context) -> dict[str, tuple[Formula, ...]]:
    """The forcing of each field, one formula per component."""
    forced = context.schema.fields if context.schema.forced is None else context.schema.forced
    known = {field.name: len(field.components(context.ndim, context.counts.get(field.name, 0))) for field in forced}
    forcing = {}
    for key, given in value.items():
        if key not in known:
            context.problems.unknown("forcing", key, known)
        elif given is not None:
            formulas = read_components(f"forcing.{key}", given, known[key], context)
            if formulas is not None:
                forcing[key] = formulas
    return forcing


def read_closure(value: Mapping[str, Any], context: Context) -> dict[str, tuple[Formula, ...]]:
    """Read the closure's formulas, one per component of a field, in terms of all fields, place and time."""
    problems, schema = context.problems, context.schema
    if value and not schema.modules:
        problems.say(
            "closure", f"closure: model={schema.name} has no tendency that a term can be added to; leave it out"
        )
        return {}
    components = {
        field.name: field.components(context.ndim, context.counts.get(field.name, 0)) for field in schema.fields
    }
    read = [name for names in components.values() for name in names]
    for name in sorted({*read} & {*context.parameters}):
        problems.say(f"parameters.{name}", f"parameters.{name}: '{name}' names a field in closure; choose another name")
    inside = dataclasses.replace(context, known=(*context.names, *read))
    closure = {}
    for key, given in value.items():
        if key not in components:
            problems.unknown("closure", key, components)
        elif given is not None:
            formulas = read_components(f"closure.{key}", given, len(components[key]), inside)
            if formulas is not None:
                closure[key] = formulas
    return closure


def read_exact(value: Mapping[str, Any], context: Context) -> dict[str, Formula]:
    """The exact solutions that variables are compared with."""
    known = context.variables
    exact = {}
    for key, given in value.items():
        if key not in known:
            context.problems.unknown("exact", key, known)
            continue
        formula = read_formula(f"exact.{key}", given, context)
        if formula is not None:
            exact[key] = formula
    return exact
