"""Declarations of sides: what a configuration calls a kind, which models take it, and what it prescribes.

A class of `core.boundary.Side` is declared with `@side` and its module has one line in `HOMES`. Validation, building,
the listing of keys, messages and the table in `docs/boundaries.md` read the declaration. Importing this module does not
import jax.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from simjax.errors import ConfigurationError
from simjax.schema.model_schema import FieldSchema

HOMES = {
    "simjax.core.boundary": ("scalar", "flow", "flow with heat", "flow with scalar"),
    "simjax.models.robin": ("scalar",),
    "simjax.models.flow.sides.openings": ("flow",),
    "simjax.models.flow.sides.wall_model": ("flow",),
    "simjax.models.flow.sides.turbulent_inflow": ("flow",),
    "simjax.models.gas.boundaries": ("gas",),
    "simjax.models.waves.pml": ("sound", "light"),
}
"""Modules that declare sides, and the groups of these; they are imported where a model takes one of the groups."""

Declared = TypeVar("Declared", bound=type)


@dataclass(frozen=True)
class SideSchema:
    """A kind of side as some models have it.

    groups: names of models that take it, which these list in `ModelSchema.sides`. keys: what it prescribes, one
    formula for a scalar and one for each axis of a vector; u in their units stands for those of the field. about: what
    it does, in a line. side: its class. make: the side from the values of its keys by name, a tuple for a vector.
    random: whether it is also made of a `seed`, which follows from that of the run and the member. tight: whether a
    velocity across it must be zero. plain: a simpler class that stands for it in Python as well.
    """

    kind: str
    groups: tuple[str, ...]
    about: str
    side: type
    make: Callable[..., Any]
    keys: tuple[FieldSchema, ...] = ()
    random: bool = False
    tight: bool = False
    plain: type | None = None

    def built(self, values: Mapping[str, tuple[Any, ...]], seed: Any = None) -> Any:
        """The side that prescribes `values`, components by key; a key that is not there is not prescribed."""
        seeds = {"seed": seed} if self.random else {}
        many = {key.name for key in self.keys if key.vector or key.free}
        return self.make(**{name: parts if name in many else parts[0] for name, parts in values.items()}, **seeds)


_DECLARED: list[SideSchema] = []


def side(kind: str, *, make: Callable[..., Any] | None = None, **properties: Any) -> Callable[[Declared], Declared]:
    """Declare a class as the side that configurations call `kind`; `properties` are those of `SideSchema`.

    Without `make` the keys are the names of the class's own fields. A class that is several kinds, or prescribes other
    keys in other models, is declared once for each.

    Examples:
        >>> @sj.side("leaking", groups=("scalar",), about="loses what reaches it")
        ... class Leaking(sj.Side):
        ...     def velocity_boundary(self, component, axis):
        ...         return sj.Dirichlet(0.0)
        ...
        ...     def scalar_boundary(self):
        ...         return sj.Robin(2.0)
        >>> numbers, time = {"diffusivity": 0.1, "velocity": [0.0]}, {"end": 0.1, "output_every": 0.1}
        >>> run = sj.configure(
        ...     "advection_diffusion", grid={"shape": [8]}, physics=numbers, initial={"concentration": "1"}, time=time,
        ...     boundaries={"x": {"lower": "leaking", "upper": "neumann"}},
        ... )
    """

    def declare(cls: Declared) -> Declared:
        _DECLARED.append(SideSchema(kind, side=cls, make=cls if make is None else make, **properties))
        return cls

    return declare


def declared_sides(groups: Collection[str] | None = None) -> list[SideSchema]:
    """All kinds of sides but the periodic one, which every model takes; with `groups` all of these, and maybe others.

    They come in the order of their classes' modules in `HOMES`, and there by groups: modules are imported in any order,
    and some declare a class of another one. A user's come last.
    """
    for module, own in HOMES.items():
        if groups is None or any(group in groups for group in own):
            import_module(module)
    order = {module: place for place, module in enumerate(HOMES)}
    return sorted(_DECLARED, key=lambda one: (order.get(one.side.__module__, len(HOMES)), one.groups))


def wrapping_refusals(path: str, lower: str, upper: str) -> Iterator[tuple[str, str]]:
    """A sentence on an axis, at this key path, whose sides are of these kinds and that wraps at one end alone."""
    if (lower == "periodic") != (upper == "periodic"):
        wanted, instead = "expected periodic at both ends or at neither, as they are one place", f"{path}=periodic"
        yield path, f"{path}: {wanted}, got {lower} and {upper}; write {instead}, in Python PeriodicSide() at both"


def sides_of(taken: Sequence[str]) -> dict[str, SideSchema]:
    """The kinds that a model takes beside the periodic one, by name.

    taken: groups such as "scalar", or single kinds of a group such as "scalar.neumann".

    Raises:
        ConfigurationError: no side is declared for one of these.
    """
    sides = declared_sides({name.partition(".")[0] for name in taken})
    names = _names_of(sides)
    for name in taken:
        if name not in names:
            known = ", ".join(sorted(_names_of(declared_sides())))
            raise ConfigurationError(
                f"sides={tuple(taken)!r}: no sides are declared for {name!r}; write some of {known}."
            )
    return {one.kind: one for one in sides for g in one.groups if g in taken or f"{g}.{one.kind}" in taken}


def _names_of(sides: Sequence[SideSchema]) -> set[str]:
    return {name for one in sides for group in one.groups for name in (group, f"{group}.{one.kind}")}
