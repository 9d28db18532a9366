"""Bodies of a configuration as shapes: primitives and their unions as formulas of distance, and files of outlines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simjax.config.sections import Context, find_told, read_formula
from simjax.schema.config import BodyFile, FieldSource
from simjax.schema.formula import Formula
from simjax.schema.kinds import Choice, ListOf, Real, Text

BODY_ENDINGS = {".png": 2, ".csv": 2, ".dat": 2, ".txt": 2, ".stl": 3}
"""Endings of files of bodies, and the axes that they have."""
BODY_KEYS = ("file", "scale", "angle", "at", "inside")


def _length(parts: Sequence[str]) -> str:
    """Euclid's length. The last term, too small to be seen, gives it a derivative where all parts vanish."""
    return f"sqrt({' + '.join(f'({part})**2' for part in parts)} + 1e-30)"


def _most(parts: Sequence[str], function: str) -> str:
    """The largest or least of several formulas, halved so that their tree stays flat."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return f"{function}({_most(parts[:half], function)}, {_most(parts[half:], function)})"


def _ball(axes: Sequence[str], center: Sequence[str], radius: str) -> str:
    return f"{_length([f'{x} - ({c})' for x, c in zip(axes, center, strict=True)])} - ({radius})"


def _box(axes: Sequence[str], lower: Sequence[str], upper: Sequence[str]) -> str:
    """Beyond all faces of a box, Euclid's distance; inside, that from the nearest face."""
    beyond = [f"(abs({x} - (({a}) + ({b}))/2) - (({b}) - ({a}))/2)" for x, a, b in zip(axes, lower, upper, strict=True)]
    outside = _length([f"maximum({part}, 0)" for part in beyond])
    return f"{outside} + minimum({_most(beyond, 'maximum')}, 0)"


def _capsule(axes: Sequence[str], start: Sequence[str], end: Sequence[str], radius: str) -> str:
    along = " + ".join(f"({x} - ({a}))*(({b}) - ({a}))" for x, a, b in zip(axes, start, end, strict=True))
    square = " + ".join(f"(({b}) - ({a}))**2" for a, b in zip(start, end, strict=True))
    share = f"minimum(maximum(({along})/({square}), 0), 1)"
    gaps = [f"{x} - ({a}) - {share}*(({b}) - ({a}))" for x, a, b in zip(axes, start, end, strict=True)]
    return f"{_length(gaps)} - ({radius})"


def _half_space(axes: Sequence[str], point: Sequence[str], normal: Sequence[str]) -> str:
    along = " + ".join(f"({x} - ({p}))*({n})" for x, p, n in zip(axes, point, normal, strict=True))
    return f"({along})/{_length(list(normal))}"


def _across(axes: Sequence[str], center: Sequence[str], radius: str, along: str) -> str:
    others = [(x, c) for x, c in zip(axes, center, strict=True) if x != along]
    return _ball([x for x, _ in others], [c for _, c in others], radius)


# Keys of a shape: "point" for one formula per axis, "number" for one formula, "axis" for the name of an axis.
SHAPES: dict[str, tuple[Callable[..., str], dict[str, str]]] = {
    "ball": (_ball, {"center": "point", "radius": "number"}),
    "box": (_box, {"lower": "point", "upper": "point"}),
    "capsule": (_capsule, {"start": "point", "end": "point", "radius": "number"}),
    "cylinder": (_across, {"center": "point", "radius": "number", "along": "axis"}),
    "half_space": (_half_space, {"point": "point", "normal": "point"}),
}


def read_shapes(path: str, value: Any, context: Context) -> FieldSource | None:
    """A distance from a formula, a shape, a list of these (their union), or a file of a shape; None after telling why.

    What lies in several bodies of a list is solid; the distance is the least of theirs.
    """
    if isinstance(value, Mapping) and "file" in value:
        return read_body_file(path, value, context)
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several:
        context.problems.add(path, value, "a list of at least one shape or formula")
        return None
    marked = isinstance(value, (list, tuple))
    parts = [_read_one(f"{path}[{i}]" if marked else path, one, context) for i, one in enumerate(several)]
    if any(part is None for part in parts):
        return None
    text = _most([part for part in parts if part is not None], "minimum")
    formula = read_formula(path, text if len(parts) > 1 or isinstance(several[0], Mapping) else several[0], context)
    return None if formula is None else (formula,)


def _read_one(path: str, value: Any, context: Context) -> str | None:
    """The formula for the distance from a body."""
    if not isinstance(value, Mapping):
        formula = read_formula(path, value, context)
        return None if formula is None else f"({formula.text})"
    problems = context.problems
    if len(value) != 1 or next(iter(value)) not in SHAPES:
        given = [key for key in value if key not in SHAPES]
        if given:
            problems.unknown(path, given[0], SHAPES)
        else:
            problems.add(path, dict(value), f"one shape, one of {', '.join(SHAPES)}, such as {{ball: {{...}}}}")
        return None
    (name, keys), (formula_of, kinds) = next(iter(value.items())), SHAPES[next(iter(value))]
    where = f"{path}.{name}"
    if not isinstance(keys, Mapping):
        problems.add(where, keys, f"keys with values: {', '.join(kinds)}")
        return None
    meant = {problems.unknown(where, key, kinds) for key in keys if key not in kinds}
    missing = [key for key in kinds if key not in keys and key not in meant]
    for key in missing:
        problems.say(f"{where}.{key}", f"{where}.{key} is missing: a {name} has the keys {', '.join(kinds)}")
    if meant or missing:
        return None
    found = [_read_key(f"{where}.{key}", kind, keys[key], context) for key, kind in kinds.items()]
    return None if any(one is None for one in found) else f"({formula_of(context.axes, *found)})"


def _read_key(path: str, kind: str, value: Any, context: Context) -> Any:
    """The text of a number, those of a point, or an axis; None after telling why not."""
    if kind == "axis":
        return Choice(context.axes).read(path, value, context.problems)
    if kind == "number":
        formula = read_formula(path, value, context)
        return None if formula is None else formula.text
    if not isinstance(value, (list, tuple)) or len(value) != context.ndim:
        context.problems.add(path, value, f"a list of {context.ndim} numbers or formulas, one per axis")
        return None
    parts = [read_formula(f"{path}[{i}]", one, context) for i, one in enumerate(value)]
    return None if any(part is None for part in parts) else [part.text for part in parts if isinstance(part, Formula)]


def read_body_file(path: str, value: Mapping[str, Any], context: Context) -> BodyFile | None:
    """A file of a shape, and where in the grid it lies."""
    problems, before = context.problems, len(context.problems)
    for key in value:
        if key not in BODY_KEYS:
            problems.unknown(path, key, BODY_KEYS)
    file = Text(described="a path").read(f"{path}.file", value["file"], problems)
    scale = Real(above=0.0, formula=True).read(f"{path}.scale", value.get("scale", 1.0), problems)
    angle = Real(formula=True).read(f"{path}.angle", value.get("angle", 0.0), problems)
    at = ListOf(Real(formula=True), context.ndim, context.ndim, noun="numbers, one per axis")
    place = at.read(f"{path}.at", value.get("at", [0.0] * context.ndim), problems)
    inside = Choice(("dark", "light")).read(f"{path}.inside", value.get("inside", "dark"), problems)
    if len(problems) > before or file is None:
        return None
    found = find_told(f"{path}.file", file, context)
    if found is None:
        return None
    ending = found.suffix.lower()
    if BODY_ENDINGS.get(ending) != context.ndim:
        endings = " or ".join(one for one, ndim in BODY_ENDINGS.items() if ndim == context.ndim)
        problems.say(
            f"{path}.file",
            f"{path}.file = {file!r}: expected a file of a body in {context.ndim} dimensions, {endings}, or a file "
            "of distances with its variable",
        )
        return None
    of_outlines = {".png": ("scale", "angle", "at"), ".stl": ("angle", "inside")}.get(ending, ("inside",))
    for key in of_outlines:
        if key in value:
            problems.say(f"{path}.{key}", f"{path}.{key}: unknown for a {ending} file; leave it out")
    if len(problems) > before:
        return None
    assert scale is not None and angle is not None and place is not None and inside is not None
    return BodyFile(found, ("distance",), scale=scale, angle=angle, at=tuple(place), inside=inside)
