"""Sections that depend on the model, the grid and the parameters: walls, initial fields, variations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simjax.errors import ConfigurationError
from simjax.schema.config import AxisBoundary, FieldSource, FileSource, Variation, Wall
from simjax.schema.errors import Problems, closest, join, unended
from simjax.schema.formula import RESERVED, Formula
from simjax.schema.kinds import Integer, ListOf, Real, Text
from simjax.schema.model_schema import AXES, FieldSchema, ModelSchema

DISTRIBUTIONS = ("uniform", "log_uniform", "linspace", "values")
FILE_KEYS = ("file", "variable", "time", "member", "order")


@dataclass(frozen=True)
class Surroundings:
    """What the sections are read against. known: names in formulas; None: coordinates, time and parameters."""

    schema: ModelSchema
    ndim: int
    parameters: Collection[str]
    folders: Sequence[Path]
    problems: Problems
    counts: Mapping[str, int]
    known: tuple[str, ...] | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """Names that can be written."""
        return self.schema.variables(self.ndim, self.counts)

    @property
    def axes(self) -> tuple[str, ...]:
        return AXES[: self.ndim]

    @property
    def names(self) -> tuple[str, ...]:
        """Names that a formula may use."""
        return (*self.axes, "t", *self.parameters) if self.known is None else self.known


def read_formula(path: str, value: Any, around: Surroundings, *, noise: bool = False) -> Formula | None:
    """The formula at `path`, made of the names known there; None after telling why not."""
    expected = "a number or a formula"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        around.problems.add(path, value, expected)
        return None
    if not isinstance(value, str) and not math.isfinite(value):
        around.problems.add(path, value, "a finite number or a formula")
        return None
    try:
        formula = Formula(value)
        formula.check_names(around.names, noise=noise)
    except ConfigurationError as error:
        around.problems.add(path, value, expected, unended(error))
        return None
    return formula


def read_components(
    path: str, value: Any, count: int, around: Surroundings, *, noise: bool = False
) -> tuple[Formula, ...] | None:
    """One formula for a scalar, a list of `count` for a vector."""
    if count == 1 and not isinstance(value, (list, tuple)):
        formula = read_formula(path, value, around, noise=noise)
        return None if formula is None else (formula,)
    if not isinstance(value, (list, tuple)) or len(value) != count:
        axes = f", one per axis {' '.join(around.axes)}" if count > 1 else ""
        around.problems.add(path, value, f"a list of {count} formula(s) or number(s){axes}")
        return None
    formulas = [read_formula(f"{path}[{i}]", item, around, noise=noise) for i, item in enumerate(value)]
    return None if any(formula is None for formula in formulas) else tuple(f for f in formulas if f is not None)


def read_parameters(value: Mapping[str, Any], schema: ModelSchema, problems: Problems) -> dict[str, float]:
    """User-named numbers that formulas know and `ensemble.vary` can vary."""
    parameters = {}
    for key, number in value.items():
        path = join("parameters", str(key))
        if not isinstance(key, str) or not key.isidentifier() or key in RESERVED:
            problems.say(path, f"{path}: a parameter's name is letters, digits and _, and none of the formulas' own")
        elif key in schema.formula_names(len(AXES)):
            problems.say(path, f"{path}: '{key}' already names a number of physics; choose another name")
        else:
            read = Real(formula=True).read(path, number, problems)
            parameters[key] = math.nan if read is None else read
    return parameters


def read_boundaries(value: Mapping[str, Any], around: Surroundings) -> tuple[AxisBoundary, ...] | None:
    """The walls of every axis; an axis that is not named is periodic."""
    before = len(around.problems)
    for key in value:
        if key not in around.axes:
            around.problems.unknown("boundaries", key, around.axes)
    boundaries = [read_axis(f"boundaries.{axis}", value.get(axis, "periodic"), around) for axis in around.axes]
    return None if len(around.problems) > before else tuple(b for b in boundaries if b is not None)


def read_axis(path: str, value: Any, around: Surroundings) -> AxisBoundary | None:
    """`periodic`, a kind for both sides, or {lower: ..., upper: ...}."""
    if isinstance(value, Mapping) and "kind" not in value:
        sides = ("lower", "upper")
        meant = {around.problems.unknown(path, key, sides) for key in value if key not in sides}
        missing = [side for side in sides if side not in value and side not in meant]
        for side in missing:
            around.problems.say(f"{path}.{side}", f"{path}.{side} is missing: expected a wall such as no_slip or slip")
        if missing or meant:
            return None
        lower, upper = (read_wall(f"{path}.{side}", value[side], path, around) for side in ("lower", "upper"))
    else:
        lower = upper = read_wall(path, value, path, around)
    if lower is None or upper is None:
        return None
    if (lower.kind == "periodic") != (upper.kind == "periodic"):
        around.problems.say(path, f"{path}: periodic is a matter of both sides; write {path}=periodic")
        return None
    return AxisBoundary(lower, upper)


def read_wall(path: str, value: Any, axis_path: str, around: Surroundings) -> Wall | None:
    """The wall at one end of an axis: a kind, or a kind with its values."""
    problems, kinds = around.problems, ("periodic", *around.schema.walls)
    keys = {"kind": value} if isinstance(value, str) else value
    if not isinstance(keys, Mapping) or "kind" not in keys:
        problems.add(path, value, f"a kind of wall, one of {', '.join(kinds)}")
        return None
    kind = keys["kind"]
    if kind not in kinds:
        close = closest(str(kind), kinds)
        problems.add(path, kind, f"one of {', '.join(kinds)}", f"did you mean '{close}'?" if close else "")
        return None
    fields = {key.name: key for key in around.schema.walls.get(kind, ()) if isinstance(key, FieldSchema)}
    taken = tuple(fields) or tuple(str(key) for key in around.schema.walls.get(kind, ()))
    for key in keys:
        if key != "kind" and key not in taken:
            problems.unknown(path, key, ("kind", *taken))
            return None
    if not taken:
        return Wall(kind)
    if fields:
        return read_wall_fields(path, kind, tuple(fields.values()), keys, axis_path, around)
    return read_wall_values(path, kind, taken[0], keys, axis_path, around)


def read_wall_values(
    path: str, kind: str, key: str, keys: Mapping[str, Any], axis_path: str, around: Surroundings
) -> Wall | None:
    """A wall with its prescribed velocity or value, which must not carry flow through a no-slip wall."""
    count = around.ndim if key == "velocity" else 1
    if key not in keys and kind == "inflow":
        around.problems.say(f"{path}.{key}", f"{path}.{key} is missing: an inflow needs its {key}")
        return None
    default = [0.0] * count if count > 1 else 0.0
    values = read_components(f"{path}.{key}", keys.get(key, default), count, around)
    if values is None:
        return None
    if kind == "no_slip" and not is_tight(path, values, keys.get(key), axis_path, around):
        return None
    return Wall(kind, values)


def is_tight(path: str, velocity: Sequence[Formula], given: Any, axis_path: str, around: Surroundings) -> bool:
    """Whether nothing flows through a wall that moves with `velocity`, read from `given`; otherwise it is told."""
    normal = around.axes.index(axis_path.rsplit(".", 1)[-1])
    if velocity[normal].constant == 0.0:
        return True
    around.problems.add(
        f"{path}.velocity[{normal}]",
        given[normal],
        "0: nothing flows through a no_slip wall",
        "write kind: inflow for a flow through it",
    )
    return False


def read_wall_fields(
    path: str, kind: str, fields: Sequence[FieldSchema], keys: Mapping[str, Any], axis_path: str, around: Surroundings
) -> Wall | None:
    """A wall that prescribes several fields by name: required ones, optional ones, and ones with a default."""
    found, before = {}, len(around.problems)
    for field in fields:
        where = f"{path}.{field.name}"
        count = len(field.components(around.ndim, around.counts.get(field.name, 0)))
        if field.name in keys:
            values = read_components(where, keys[field.name], count, around)
        elif field.optional:
            continue
        elif field.default is None:
            around.problems.say(where, f"{where} is missing: a wall of kind {kind} needs its {field.name}")
            continue
        else:
            values = (Formula(field.default),) * count
        if values is not None and field.name == "velocity" and kind == "no_slip":
            is_tight(path, values, keys.get(field.name), axis_path, around)
        if values is not None:
            found[field.name] = values
    return None if len(around.problems) > before else Wall(kind, fields=found)


def read_fields(
    section: str, value: Mapping[str, Any], fields: Sequence[FieldSchema], around: Surroundings
) -> dict[str, FieldSource]:
    """The fields of `section` by formulas or from files; one that is left out has its default."""
    known = [field.name for field in fields]
    for key in value:
        if key not in known:
            around.problems.unknown(section, key, known)
    sources: dict[str, FieldSource] = {}
    for field in fields:
        path, given = f"{section}.{field.name}", value.get(field.name)
        count = len(field.components(around.ndim))
        source: FieldSource | None
        if given is None and field.optional:
            continue
        if given is None:
            source = None if field.default is None else (Formula(field.default),) * count
            if source is None:
                around.problems.say(path, f"{path} is missing: expected a formula or a file")
        elif isinstance(given, Mapping) and around.schema.of_particles:
            around.problems.add(path, given, "formulas; particles and their velocities come from a particles.file")
            source = None
        elif isinstance(given, Mapping):
            source = read_file_source(path, given, field, around)
        elif field.free:
            given = list(given) if isinstance(given, (list, tuple)) else [given]
            source = read_components(path, given, len(given), around, noise=True)
        else:
            source = read_components(path, given, count, around, noise=not around.schema.of_particles)
        if source is not None:
            sources[field.name] = source
    return sources


def read_file_source(
    path: str, value: Mapping[str, Any], field: FieldSchema, around: Surroundings
) -> FileSource | None:
    """The file and the variables in it that a field starts from."""
    problems, before = around.problems, len(around.problems)
    meant = {problems.unknown(path, key, FILE_KEYS) for key in value if key not in FILE_KEYS}
    variable = value.get("variable")
    several = variable if isinstance(variable, (list, tuple)) else [variable]
    components = field.components(around.ndim, len(several))
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
    if order is not None and (not isinstance(order, (list, tuple)) or sorted(map(str, order)) != list(around.axes)):
        problems.add(
            f"{path}.order",
            order,
            f"the axes of the array in the file, such as [{', '.join(around.axes[::-1])}]",
        )
    if len(problems) > before or file is None or variables is None:
        return None
    found = find_input(file, around.folders)
    if found is None:
        looked = ", ".join(str(folder) for folder in around.folders)
        problems.say(f"{path}.file", f"{path}.file = {file!r}: no such file (looked below {looked})")
        return None
    return FileSource(found, variables, time, member, None if order is None else tuple(order))


def find_input(file: str, folders: Sequence[Path]) -> Path | None:
    """The first existing file among `folders`; an absolute path is itself."""
    candidates = [Path(file).expanduser()] if Path(file).expanduser().is_absolute() else [f / file for f in folders]
    return next((candidate.resolve() for candidate in candidates if candidate.is_file()), None)


def read_forcing(value: Mapping[str, Any], around: Surroundings) -> dict[str, tuple[Formula, ...]]:
    """The forcing of each field, one formula per component."""
    forced = around.schema.fields if around.schema.forced is None else around.schema.forced
    known = {field.name: len(field.components(around.ndim)) for field in forced}
    forcing = {}
    for key, given in value.items():
        if key not in known:
            around.problems.unknown("forcing", key, known)
        elif given is not None:
            formulas = read_components(f"forcing.{key}", given, known[key], around)
            if formulas is not None:
                forcing[key] = formulas
    return forcing


def read_closure(value: Mapping[str, Any], around: Surroundings) -> dict[str, tuple[Formula, ...]]:
    """Read the closure's formulas, one per component of a field, in terms of all fields, place and time."""
    problems, schema = around.problems, around.schema
    if value and not schema.modules:
        problems.say(
            "closure", f"closure: model={schema.name} has no tendency that a term can be added to; leave it out"
        )
        return {}
    components = {
        field.name: field.components(around.ndim, around.counts.get(field.name, 0)) for field in schema.fields
    }
    read = [name for names in components.values() for name in names]
    for name in sorted({*read} & {*around.parameters}):
        problems.say(f"parameters.{name}", f"parameters.{name}: '{name}' names a field in closure; choose another name")
    inside = dataclasses.replace(around, known=(*around.names, *read))
    closure = {}
    for key, given in value.items():
        if key not in components:
            problems.unknown("closure", key, components)
        elif given is not None:
            formulas = read_components(f"closure.{key}", given, len(components[key]), inside)
            if formulas is not None:
                closure[key] = formulas
    return closure


def read_exact(value: Mapping[str, Any], around: Surroundings) -> dict[str, Formula]:
    """The exact solutions that variables are compared with."""
    known = around.variables
    exact = {}
    for key, given in value.items():
        if key not in known:
            around.problems.unknown("exact", key, known)
            continue
        formula = read_formula(f"exact.{key}", given, around)
        if formula is not None:
            exact[key] = formula
    return exact


def read_variations(
    value: Mapping[str, Any], size: int, ranges: Mapping[str, Real], problems: Problems
) -> tuple[Variation, ...]:
    """`ensemble.vary`, nested or dotted: a leaf is one distribution. `ranges` are the keys that may vary."""
    variations = []
    for path, leaf in _leaves("", value):
        where = join("ensemble.vary", path)
        if path not in ranges:
            problems.unknown("ensemble.vary", path, ranges)
            continue
        if not isinstance(leaf, Mapping) or len(leaf) != 1 or next(iter(leaf)) not in DISTRIBUTIONS:
            problems.add(where, leaf, f"one of {', '.join(DISTRIBUTIONS)}, such as {{uniform: [1.0, 2.0]}}")
            continue
        kind, numbers = next(iter(leaf.items()))
        count = size if kind == "values" else 2
        noun = "values, one per member" if kind == "values" else "numbers, first and last"
        before = len(problems)
        read = ListOf(ranges[path], count, count, noun=noun).read(f"{where}.{kind}", numbers, problems)
        if read is not None and kind == "log_uniform" and min(read) <= 0.0:
            problems.add(f"{where}.{kind}", numbers, "numbers > 0, since their logarithm is uniform")
        if read is not None and kind in ("uniform", "log_uniform") and read[0] > read[1]:
            problems.add(f"{where}.{kind}", numbers, "the lower number first")
        if read is not None and len(problems) == before:
            variations.append(Variation(path, kind, read))
    return tuple(variations)


def _leaves(path: str, value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    leaves = []
    for key, item in value.items():
        below = join(path, str(key))
        is_branch = isinstance(item, Mapping) and item and not any(name in DISTRIBUTIONS for name in item)
        leaves += (
            _leaves(below, item) if is_branch and below in ("physics", "parameters", "particles") else [(below, item)]
        )
    return leaves
