"""Kinds of values that a key may hold: each reads a plain YAML value or says what it expected."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from simjax.errors import ConfigurationError
from simjax.schema.config_errors import ConfigErrors, closest, join, unended
from simjax.schema.formula import Formula

Section = TypeVar("Section")
REQUIRED = object()


class Kind(Protocol):
    """Kind of value at a configuration key: how it is read, and how it is described to a user."""

    @property
    def allowed(self) -> str:
        """The allowed values in words, for messages."""
        ...

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Any:
        """The typed value, or None after telling `problems` why not."""
        ...

    def write(self, value: Any) -> Any:
        """The plain YAML value that is read as this typed one."""
        ...


class Plain:
    """A kind whose typed values are plain YAML values, or write themselves by a method `write`."""

    def write(self, value: Any) -> Any:
        """The plain YAML value that is read as this typed one."""
        return write(value)


def write(value: Any) -> Any:
    """A typed value as plain YAML: by its own `write`, a section key by key, mappings and lists item by item."""
    if hasattr(value, "write"):
        return value.write()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kinds = {field.name: field.metadata.get("kind", Plain()) for field in dataclasses.fields(value)}
        return {name: kind.write(getattr(value, name)) for name, kind in kinds.items()}
    if isinstance(value, Mapping):
        return {key: write(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [write(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def key(kind: Kind, default: Any = REQUIRED, *, units: str = "1", about: str = "", fixed: bool = False) -> Any:
    """A dataclass field that a configuration key of this kind fills. fixed: a number that shapes depend on.

    Examples:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Keys:
        ...     diffusivity: float = sj.key(sj.Real(low=0.0), 1e-3, units="m2 s-1", about="diffusivity D")
        >>> Keys().diffusivity
        0.001
    """
    metadata = {"kind": kind, "units": units, "about": about, "fixed": fixed}
    if default is REQUIRED:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def read_section(cls: type[Section], path: str, value: Any, problems: ConfigErrors) -> Section | None:
    """Fill dataclass `cls` from a mapping: unknown keys, missing keys and wrong values are all told."""
    before = len(problems)
    values = read_entries(cls, path, value, problems)
    return cls(**values) if len(problems) == before else None


def read_entries(cls: type, path: str, value: Any, problems: ConfigErrors) -> dict[str, Any]:
    """The fields of dataclass `cls` from a mapping, None for each that cannot be read, after telling why not."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        problems.add(path, value, f"keys with values: {', '.join(fields)}")
        return dict.fromkeys(fields)
    meant = {problems.unknown(path, key, fields) for key in value if key not in fields}
    values = {}
    for name, field in fields.items():
        if name in value:
            values[name] = field.metadata["kind"].read(join(path, name), value[name], problems)
        elif field.default is not dataclasses.MISSING:
            values[name] = field.default
        else:
            values[name] = None
            if name not in meant:
                tell_missing(join(path, name), field, problems)
    return values


def tell_missing(path: str, field: dataclasses.Field, problems: ConfigErrors) -> None:
    """Add a problem for a missing key without a default, with its meaning and the allowed values."""
    about, units = field.metadata["about"], field.metadata["units"]
    meaning = f"{about}, in {units}: " if about and units != "1" else ""
    problems.say(path, f"{path} is missing: {meaning}expected {field.metadata['kind'].allowed}")


@dataclass(frozen=True)
class Real(Plain):
    """A finite float within a range; with `formula`, also a text of numbers such as "2*pi".

    Examples:
        >>> sj.Real(above=0.0).allowed
        'a finite number > 0'
    """

    low: float = -math.inf
    high: float = math.inf
    above: float | None = None
    optional: bool = False
    formula: bool = False

    @property
    def allowed(self) -> str:
        bounds = []
        if self.above is not None:
            bounds.append(f"> {self.above:g}")
        if self.low > -math.inf:
            bounds.append(f">= {self.low:g}")
        if self.high < math.inf:
            bounds.append(f"<= {self.high:g}")
        text = " ".join(["a finite number", " and ".join(bounds)]).strip()
        return text + (" or null" if self.optional else "")

    def contains(self, value: float) -> bool:
        above = self.above is None or value > self.above
        return math.isfinite(value) and above and self.low <= value <= self.high

    def read(self, path: str, value: Any, problems: ConfigErrors) -> float | None:
        if value is None and self.optional:
            return None
        if isinstance(value, str) and self.formula:
            return self._read_formula(path, value, problems)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            problems.add(path, value, self.allowed, _why_not_a_number(value))
            return None
        if not self.contains(value):
            problems.add(path, value, self.allowed)
            return None
        return float(value)

    def _read_formula(self, path: str, value: str, problems: ConfigErrors) -> float | None:
        try:
            number = Formula(value).constant
        except ConfigurationError as error:
            problems.add(path, value, self.allowed, unended(error))
            return None
        if number is None or not self.contains(number):
            problems.add(path, value, self.allowed, _why_not_a_number(value) if number is None else "")
            return None
        return number


def _why_not_a_number(value: Any) -> str:
    if isinstance(value, bool):
        return "YAML reads yes, no, on, off, true and false as a truth value"
    if isinstance(value, str):
        if re.fullmatch(r"[+-]?0[0-9_]+", value):
            return f"write {value.lstrip('+-0_') or '0'} without leading zeros"
        if re.fullmatch(r"[+-]?\d+(:\d+)+", value):
            return "write a plain number; clock notation is not a number"
        try:
            number = float(value)
        except ValueError:
            return ""
        return "write it without quotes" if math.isfinite(number) else ""
    return ""


@dataclass(frozen=True)
class Integer(Plain):
    """A whole number from `low` to `high`.

    Examples:
        >>> sj.Integer(low=1, high=8).allowed
        'a whole number >= 1 and <= 8'
    """

    low: int = 0
    high: int = 2**31 - 1
    optional: bool = False

    @property
    def allowed(self) -> str:
        upper = f" and <= {self.high}" if self.high != 2**31 - 1 else ""
        return f"a whole number >= {self.low}{upper}{' or null' if self.optional else ''}"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> int | None:
        if value is None and self.optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            hint = _why_not_a_number(value)
            if isinstance(value, float) and value.is_integer():
                hint = f"YAML reads this as a real number; write {int(value)}"
            problems.add(path, value, self.allowed, hint)
            return None
        if not self.low <= value <= self.high:
            problems.add(path, value, self.allowed)
            return None
        return value


@dataclass(frozen=True)
class IntegerOr(Plain):
    """A whole number, or a word."""

    number: Integer
    word: str

    @property
    def allowed(self) -> str:
        return f"{self.number.allowed} or {self.word}"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> int | str | None:
        if value == self.word:
            return self.word
        unfit = ConfigErrors()
        number = self.number.read(path, value, unfit)
        if unfit:
            problems.add(path, value, self.allowed)
        return number


@dataclass(frozen=True)
class Unread(Plain):
    """A value that is kept unread: how it is read depends on other keys."""

    allowed: str

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Any:
        return value


@dataclass(frozen=True)
class Flag(Plain):
    """A truth value.

    Examples:
        >>> sj.Flag().allowed
        'true or false'
    """

    @property
    def allowed(self) -> str:
        return "true or false"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> bool | None:
        if not isinstance(value, bool):
            problems.add(path, value, self.allowed)
            return None
        return value


@dataclass(frozen=True)
class Choice(Plain):
    """A word from a fixed set.

    Examples:
        >>> sj.Choice(("central", "upwind")).allowed
        'one of central, upwind'
    """

    options: Collection[str]

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(self.options)

    def read(self, path: str, value: Any, problems: ConfigErrors) -> str | None:
        if not isinstance(value, str) or value not in self.options:
            close = closest(str(value), self.options)
            problems.add(path, value, self.allowed, f"did you mean '{close}'?" if close else "")
            return None
        return value


@dataclass(frozen=True)
class Text(Plain):
    """A text that matches `pattern` and is at most `longest` characters long.

    Examples:
        >>> sj.Text(described="the name of a field").allowed
        'the name of a field'
    """

    optional: bool = False
    pattern: str = r"(?s).*"
    described: str = "a text"
    longest: int = 1000

    @property
    def allowed(self) -> str:
        return self.described + (" or null" if self.optional else "")

    def read(self, path: str, value: Any, problems: ConfigErrors) -> str | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, str) or len(value) > self.longest or not re.fullmatch(self.pattern, value):
            size = len(value) if isinstance(value, str) else 0
            hint = f"it has {size} characters, more than {self.longest}" if size > self.longest else ""
            problems.add(path, value, self.allowed, hint)
            return None
        if re.search("[\0\ud800-\udfff]", value):
            problems.add(path, value, self.allowed, "its characters cannot be written in UTF-8 or in a file's name")
            return None
        return value


@dataclass(frozen=True)
class ListOf:
    """A list of one kind of element, of `least` to `most` of them, as a tuple.

    per_axis, numbered: whether each number is known by its axis, such as `gravity_x`, or its place, `expansion_0`.

    Examples:
        >>> sj.ListOf(sj.Real(low=0.0), least=1, most=3).allowed
        'a list of 1 to 3 values, each a finite number >= 0'
    """

    element: Kind
    least: int = 0
    most: int = 1000
    optional: bool = False
    noun: str = "values"
    per_axis: bool = False
    numbered: bool = False

    @property
    def allowed(self) -> str:
        count = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        return f"a list of {count} {self.noun}, each {self.element.allowed}{' or null' if self.optional else ''}"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> tuple | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, (list, tuple)) or not self.least <= len(value) <= self.most:
            problems.add(path, value, self.allowed)
            return None
        before = len(problems)
        elements = tuple(self.element.read(f"{path}[{i}]", item, problems) for i, item in enumerate(value))
        return elements if len(problems) == before else None

    def write(self, value: tuple | None) -> list | None:
        return None if value is None else [self.element.write(item) for item in value]


@dataclass(frozen=True)
class Table(Plain):
    """A mapping that is kept unread: its content depends on other keys and is read once those are known."""

    described: str
    optional: bool = False

    @property
    def allowed(self) -> str:
        return self.described + (" or null" if self.optional else "")

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Mapping | None:
        if value is None:
            return None if self.optional else {}
        if not isinstance(value, Mapping):
            problems.add(path, value, self.allowed)
            return None
        return value


@dataclass(frozen=True)
class Nested(Plain):
    """A section of its own dataclass."""

    section: type
    optional: bool = False

    @property
    def allowed(self) -> str:
        names = ", ".join(field.name for field in dataclasses.fields(self.section))
        return f"keys {names}{' or null' if self.optional else ''}"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Any:
        if value is None and self.optional:
            return None
        return read_section(self.section, path, value, problems)


@dataclass(frozen=True)
class NestedOr(Nested):
    """A section of its own dataclass, or a word, which is read as its `meaning` where it has one."""

    word: str = ""
    meaning: Any = None

    @property
    def allowed(self) -> str:
        return f"{self.word}, {super().allowed}"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Any:
        if isinstance(value, str):
            word = Choice((self.word,)).read(path, value, problems)
            return word if word is None or self.meaning is None else self.meaning
        return super().read(path, value, problems)


@dataclass(frozen=True)
class OneOf:
    """One of a few `words`, or one key of `options` with what stands there: as a pair of name and value (or None)."""

    options: Mapping[str, Kind]
    words: tuple[str, ...] = ()
    optional: bool = False

    @property
    def allowed(self) -> str:
        shapes = (f"{{{name}: {kind.allowed}}}" for name, kind in self.options.items())
        return f"one of {', '.join([*self.words, *shapes])}{' or null' if self.optional else ''}"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> tuple[str, Any] | None:
        if value is None and self.optional:
            return None
        if isinstance(value, str) and value in self.words:
            return value, None
        name = next(iter(value)) if isinstance(value, Mapping) and len(value) == 1 else value
        if not isinstance(value, Mapping) or not isinstance(name, str) or name not in self.options:
            close = closest(str(name), [*self.words, *self.options])
            problems.add(path, value, self.allowed, f"did you mean '{close}'?" if close and close != name else "")
            return None
        read = self.options[name].read(join(path, name), value[name], problems)
        return None if read is None else (name, read)

    def write(self, value: tuple[str, Any] | None) -> Any:
        if value is None:
            return None
        if value[0] in self.words:
            return value[0]
        return {value[0]: self.options[value[0]].write(value[1])}
