"""Values of Python in the sections of a configuration, as YAML has them: arrays in files, sides by kind and keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from simjax.arguments import taken_over
from simjax.core.boundary import PeriodicSide
from simjax.errors import InputOutputError
from simjax.io.files import replaced
from simjax.schema.config_errors import ConfigErrors
from simjax.schema.model_schema import AXES, FieldSchema, ModelSchema
from simjax.schema.parts import Parts, part_places
from simjax.schema.side_declarations import SideSchema, sides_of

FOLDER = "arrays"
"""Folder below `output.root` that holds the arrays of configurations, by their digests."""

Arrays = tuple[np.ndarray, ...]
"""The components of a field, `(*grid.shape)` each."""


class PythonSections:
    """The sections of a configuration given in Python, whose arrays are yet to be written.

    A field of `initial` or `coefficients` may be an array of the shape of the grid; a vector an array or a list with
    one for each axis. An axis of `boundaries` may be a `Side`, or a pair of them; a part in `physics` may be a class.
    Other numbers and arrays, of numpy, jax and whatever gives its arrays away by DLPack, become plain ones.

    Raises:
        ConfigurationError: an array of another shape, or with values that are not finite real numbers; a side that the
            model does not take, or one that no keys of YAML describe.
    """

    def __init__(self, schema: ModelSchema, sections: Mapping[str, Any]):
        problems = ConfigErrors()
        shape = _plain(sections.get("grid", {})).get("shape") if isinstance(sections.get("grid"), Mapping) else None
        self.shape = tuple(shape) if isinstance(shape, (list, tuple)) else None
        self.arrays: dict[tuple[str, str], Arrays] = {}
        self.sections = dict(sections)
        for section, fields in (("initial", schema.fields), ("coefficients", schema.coefficients)):
            self._take_arrays(section, fields, problems)
        boundaries = sections.get("boundaries")
        if isinstance(boundaries, Mapping):
            kinds = sides_of(schema.sides)
            self.sections["boundaries"] = {
                axis: _axis(f"boundaries.{axis}", value, kinds, problems) for axis, value in boundaries.items()
            }
        physics = sections.get("physics")
        if isinstance(physics, Mapping):
            taken = part_places(schema.physics)
            self.sections["physics"] = {
                place: _part(value, taken[place]) if place in taken else value for place, value in physics.items()
            }
        problems.raise_if_any()
        self.sections = _plain(self.sections)

    def with_sources(self, source: Callable[[Arrays], Any]) -> dict[str, Any]:
        """The sections with `source(arrays)` in the place of the arrays of a field."""
        result = dict(self.sections)
        for (section, field), arrays in self.arrays.items():
            result[section] = {**result[section], field: source(arrays)}
        return result

    def _take_arrays(self, section: str, fields: Sequence[FieldSchema], problems: ConfigErrors) -> None:
        given = self.sections.get(section)
        if not isinstance(given, Mapping):
            return
        self.sections[section] = dict(given)
        for field in fields:
            value = given.get(field.name)
            value = [taken_over(item) for item in value] if isinstance(value, (list, tuple)) else taken_over(value)
            several = value if isinstance(value, list) else [value]
            if self.shape is None or not any(_is_array(item) for item in several):
                continue
            arrays = _components(f"{section}.{field.name}", value, field, self.shape, problems)
            if arrays is not None:
                self.arrays[section, field.name] = arrays


def stand_in(arrays: Arrays) -> Any:
    """A formula for each component of a field, so that the rest is checked before arrays are written."""
    return ["x"] * len(arrays) if len(arrays) > 1 else "x"  # no constant: models refuse some of these


def written_below(root: Path) -> Callable[[Arrays], dict[str, Any]]:
    """A writer of arrays to files below `root` that returns how a configuration names them.

    A file's name is the digest of its content: the same arrays are written once, and a run that goes on finds its own.
    """

    def source(arrays: Arrays) -> dict[str, Any]:
        digest = hashlib.sha256(repr([array.shape for array in arrays]).encode())
        for array in arrays:
            digest.update(array.tobytes())
        file = root.expanduser().resolve() / FOLDER / f"{digest.hexdigest()[:24]}.npz"
        if not file.is_file():
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with replaced(file) as temporary, temporary.open("wb") as whole:
                    np.savez(whole, *arrays)
            except OSError as error:
                raise InputOutputError(
                    f"{file} cannot be written ({error.strerror}); write another output.root."
                ) from None
        names = [f"arr_{number}" for number in range(len(arrays))]  # those of `np.savez`
        return {"file": str(file), "variable": names, "order": list(AXES[: arrays[0].ndim])}

    return source


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, jax.Array)) and value.ndim > 0


def _components(
    path: str, value: Any, field: FieldSchema, shape: tuple[int, ...], problems: ConfigErrors
) -> Arrays | None:
    """The components of a field given as arrays, float64; None after telling what is wrong with them."""
    names = field.components(len(shape))
    vector = len(names) > 1
    whole = (len(names), *shape) if vector else shape
    several = [*value] if vector else [value] if _is_array(value) else [*value]
    shapes = [np.shape(item) for item in several]
    if shapes != [shape] * len(names):
        got = "arrays of the shapes " + ", ".join(map(str, shapes)) if isinstance(value, list) else np.shape(value)
        meant = (
            f"{whole}, an array of grid.shape for each of {', '.join(names)}" if vector else f"{shape}, as grid.shape"
        )
        problems.say(path, f"{path}: expected an array of the shape {meant}; got {got}")
        return None
    arrays = tuple(np.asarray(item) for item in several)
    for array in arrays:
        if array.dtype.kind not in "iuf" or not np.all(np.isfinite(array)):
            problems.say(path, f"{path}: expected finite real numbers; got {array.dtype} with others")
            return None
    return tuple(np.ascontiguousarray(array, np.float64) for array in arrays)


def _part(value: Any, parts: Parts) -> Any:
    """A part as YAML has it: a class by its module and name, under which it is made known."""
    if isinstance(value, Mapping):
        return {_part(name, parts): keys for name, keys in value.items()}
    if not isinstance(value, type):
        return value
    name = f"{value.__module__}.{value.__qualname__}"
    parts.add_own(name, value)
    return name


def _axis(path: str, value: Any, kinds: Mapping[str, SideSchema], problems: ConfigErrors) -> Any:
    """The sides of an axis as YAML has them; a pair is (lower, upper)."""
    if isinstance(value, (list, tuple)) and len(value) == 2:
        value = {"lower": value[0], "upper": value[1]}
    if isinstance(value, eqx.Module):
        return _side(path, value, kinds, problems)
    if isinstance(value, Mapping) and "kind" not in value:
        return {
            end: _side(f"{path}.{end}", side, kinds, problems) if isinstance(side, eqx.Module) else side
            for end, side in value.items()
        }
    return value


def _side(path: str, side: eqx.Module, kinds: Mapping[str, SideSchema], problems: ConfigErrors) -> Any:
    """Write a side as its kind and keys, which make an equal side when read."""
    if isinstance(side, PeriodicSide):
        return "periodic"
    values = _attributes(side)
    of_class = [one for one in kinds.values() if type(side) in (one.side, one.plain)]
    for one in of_class:
        prescribed = {key.name: values[key.name] for key in one.keys if values.get(key.name) is not None}
        make = one.built if type(side) is one.side else one.plain
        assert make is not None
        parts = {name: value if isinstance(value, tuple) else (value,) for name, value in prescribed.items()}
        if any(callable(number) or np.ndim(number) for numbers in parts.values() for number in numbers):
            problems.say(
                path,
                f"{path}: a {type(side).__name__} with functions or arrays has no place in a configuration; write "
                f"{{kind: {one.kind}, ...}} with formulas of {', '.join(key.name for key in one.keys)}, or "
                "declare a side of your own with @simjax.side",
            )
            return "periodic"
        try:
            again = one.built(parts) if type(side) is one.side else make(**prescribed)
        except TypeError:  # of a key that this side does not have
            continue
        if bool(eqx.tree_equal(again, side)):
            return {"kind": one.kind, **prescribed}
    known = ", ".join(("periodic", *kinds))
    what = "the values of" if of_class else "a side of the class"
    problems.say(
        path, f"{path}: {what} {type(side).__name__} cannot be written in a configuration; write one of {known}"
    )
    return "periodic"


def _attributes(module: eqx.Module) -> dict[str, Any]:
    """Values by name that a side prescribes, also those of a boundary condition inside it."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        found |= _attributes(value) if isinstance(value, eqx.Module) else {name: value}
    return found


def _plain(value: Any) -> Any:
    """Numbers and arrays as those of Python, also inside mappings and lists."""
    value = taken_over(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return value.tolist()
    return value
