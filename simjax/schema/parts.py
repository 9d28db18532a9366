"""Declarations of parts of models, such as pair potentials: what a configuration calls them, their keys and classes.

A part is a class with `Keys`, a dataclass of what stands below its name, and `configured`, which makes it. It is
declared by a decorator and its module has one line where the `Parts` are listed. A key of the kind `PartOf` takes one:
`potential: {yukawa: {strength: 3}}`, or `potential: yukawa` with the defaults. A user's class is named by module and
class, as in `potential: {my_file.Gaussian: {width: 2}}`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from simjax.errors import ConfigurationError
from simjax.schema.config_errors import ConfigErrors, closest, join
from simjax.schema.kinds import Real, key, read_section, write


@dataclass(frozen=True)
class NoKeys:
    """A section without keys."""


def state_keys_and_parameters(cls: type) -> None:
    """Complete a class whose parameters are numbers by name: `Keys` of its `parameters`, or the other way round."""
    if "Keys" in vars(cls):
        of_keys = dataclasses.fields(cls.Keys)
        numbers = [f for f in of_keys if isinstance(f.metadata["kind"], Real) and f.default is not dataclasses.MISSING]
        cls.parameters = {number.name: number.default for number in numbers}
    elif "parameters" in vars(cls):
        numbers = [(name, float, key(Real(), float(value))) for name, value in cls.parameters.items()]
        cls.Keys = dataclasses.make_dataclass(f"{cls.__name__}Keys", numbers, frozen=True)


def summary_of(cls: type) -> str:
    """Name and equation in a line: the first paragraph of a docstring, and the equations below it after a colon."""
    first, *rest = (cls.__doc__ or "").split("\n\n")
    first = " ".join(first.split())
    if first.endswith(":") and rest:
        first += " " + "; ".join(" ".join(line.split()) for line in rest[0].splitlines())
    return first


class Part:
    """A part of a model that a configuration chooses by its name.

    A class says its `Keys`, or only the `parameters` by name with their defaults. By itself `configured` makes an
    instance without arguments, whose parameters are its numbers by name.
    """

    Keys: ClassVar[type] = NoKeys
    parameters: ClassVar[Mapping[str, float]] = {}

    @classmethod
    def configured(cls, setup: PartSetup) -> tuple[Any, Any]:
        """Build the part and its parameters."""
        return cls(), dict(setup.values)

    @classmethod
    def check(cls, keys: Any, path: str, config: Any) -> Iterator[tuple[str, str]]:
        """Sentences about its keys, which stand at `path` of a configuration that is otherwise valid."""
        yield from ()


@dataclass(frozen=True)
class Chosen:
    """A part, such as a potential, chosen by a configuration: its name and class, and the values of its keys."""

    name: str
    part: type[Part]
    keys: Any


@dataclass(frozen=True)
class PartSetup:
    """Configuration and numbers from which a part is built.

    place: the key of the section `physics` at which it stands. numbers: all numbers of the run by name, traced.
    """

    config: Any
    place: str
    numbers: Mapping[str, Any]

    @property
    def chosen(self) -> Chosen | None:
        """The part that the configuration chooses at `place`."""
        return getattr(self.config.physics, self.place)

    @property
    def keys(self) -> Any:
        """The values of its keys."""
        assert self.chosen is not None
        return self.chosen.keys

    @property
    def values(self) -> dict[str, Any]:
        """Its numbers by the names of its keys, traced."""
        start = f"{self.place}_"
        return {name.removeprefix(start): value for name, value in self.numbers.items() if name.startswith(start)}

    @property
    def in_order(self) -> tuple[Any, ...]:
        """Its numbers in the order of its keys, traced."""
        values = self.values
        return tuple(values[field.name] for field in dataclasses.fields(self.keys) if field.name in values)

    def beside(self, place: str) -> PartSetup:
        """The setup of the part at another key of `physics`."""
        return dataclasses.replace(self, place=place)

    def built(self) -> tuple[Any, Any]:
        """The part and its parameters; (None, None) where none is chosen."""
        return (None, None) if self.chosen is None else self.chosen.part.configured(self)


Declared = TypeVar("Declared", bound=type[Part])


class Parts(Mapping[str, type[Part]]):
    """The registered parts of one kind, such as pair potentials, by name.

    noun: what one of them is. base: the class of all of them, as "module:Class". homes: the modules that declare them,
    imported when they are asked for.
    """

    def __init__(self, noun: str, base: str, homes: tuple[str, ...]):
        self.noun, self._base, self._homes = noun, base, homes
        self._declared: dict[str, type[Part]] = {}

    def declare(self, name: str) -> Callable[[Declared], Declared]:
        """Declare a class as the part that configurations call `name`."""

        def declared(cls: Declared) -> Declared:
            state_keys_and_parameters(cls)
            self._declared[name] = cls
            return cls

        return declared

    def add_own(self, name: str, cls: Any) -> None:
        """Make a user's class known by a name.

        Raises:
            ConfigurationError: it is no class of such parts.
        """
        module, _, base = self._base.partition(":")
        wanted = getattr(import_module(module), base)
        if not (isinstance(cls, type) and issubclass(cls, wanted)):
            raise ConfigurationError(f"{name}: expected a class of a {self.noun}, a subclass of {base}; got {cls!r}.")
        self.declare(name)(cls)

    def chosen(self, name: str) -> Chosen:
        """The part of this name with the defaults of its keys."""
        return Chosen(name, self[name], self[name].Keys())

    def _all(self) -> dict[str, type[Part]]:
        for home in self._homes:
            import_module(home)
        return self._declared

    def __getitem__(self, name: str) -> type[Part]:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


@dataclass(frozen=True)
class PartOf:
    """Key that chooses a part, such as a pair potential, by name, alone or with its keys below it."""

    parts: Parts
    optional: bool = False

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.parts)}, alone or with its keys{' or null' if self.optional else ''}"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Chosen | None:
        if value is None and self.optional:
            return None
        given = {value: None} if isinstance(value, str) else value
        if isinstance(given, Mapping) and len(given) > 1 and given.keys() <= self.parts.keys():
            problems.add(path, list(given), f"one {self.parts.noun}; write {path}={{{next(iter(given))}: {{...}}}}")
            return None
        name = next(iter(given)) if isinstance(given, Mapping) and len(given) == 1 else value
        if not isinstance(given, Mapping) or not isinstance(name, str) or name not in self.parts:
            close = closest(str(name), self.parts)
            problems.add(path, value, self.allowed, f"did you mean '{close}'?" if close and close != name else "")
            return None
        part = self.parts[name]
        keys = read_section(part.Keys, join(path, name), given[name], problems)
        return None if keys is None else Chosen(name, part, keys)

    def write(self, value: Chosen | None) -> Any:
        return None if value is None else {value.name: write(value.keys)}


def part_name(given: Any) -> Any:
    """The name of the part that stands at a key: alone, or over its keys."""
    return next(iter(given), None) if isinstance(given, Mapping) else given


def part_places(section: type) -> dict[str, Parts]:
    """Keys of a section that take parts, each with the parts."""
    kinds = {field.name: field.metadata["kind"] for field in dataclasses.fields(section)}
    return {name: kind.parts for name, kind in kinds.items() if isinstance(kind, PartOf)}
