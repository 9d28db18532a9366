"""Keys of the instruments that look at particles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simjax.config.observations import MOST_RADII, check_radii
from simjax.config.sections import Context
from simjax.schema.config_errors import ConfigErrors, join
from simjax.schema.kinds import Choice, Integer, Kind, ListOf, Real

KINDS_OF_PARTICLES = ("radial_distribution", "mean_square_displacement", "tracks", "density")
"""Kinds of instruments that look at each particle, whose keys are read here."""
ON_MESH = ("number_density", "velocity", "temperature")
MOST_TRACKS, MOST_MESH_CELLS = 100_000, 4096


def read_particle_keys(
    where: str, kind: str, value: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """Read the keys of an instrument of particles."""
    match kind:
        case "radial_distribution":
            return _read_pairs(where, value, found, context)
        case "tracks":
            return _read_own(where, kind, value, {"ids": ListOf(Integer(0), 1, MOST_TRACKS, noun="numbers")}, context)
        case "density":
            shape = ListOf(
                Integer(1, MOST_MESH_CELLS), context.ndim, context.ndim, noun="numbers of cells, one per axis"
            )
            return _read_own(where, kind, value, {"shape": shape}, context)
    if value[kind] not in (None, {}):
        context.problems.add(join(where, kind), value[kind], "null: it has no keys of its own")
    return {}


def read_on_mesh(path: str, value: Any, problems: ConfigErrors) -> tuple[str, ...]:
    """Properties of particles on a mesh, each once; their number where none is said."""
    if value is None:
        return ON_MESH[:1]
    given = [value] if isinstance(value, str) else value
    read = ListOf(Choice(ON_MESH), 1, len(ON_MESH), noun="properties").read(path, given, problems) or ()
    return tuple(dict.fromkeys(read))


def _read_own(
    where: str, kind: str, value: Mapping[str, Any], kinds: Mapping[str, Kind], context: Context
) -> dict[str, Any]:
    """Read the keys of an instrument's kind; every key is required."""
    own, path, problems = value[kind], join(where, kind), context.problems
    if not isinstance(own, Mapping):
        problems.add(path, own, f"keys {', '.join(kinds)}")
        return {}
    for key in own:
        if key not in kinds:
            problems.unknown(path, key, kinds)
    for key, one in kinds.items():
        if key not in own:
            problems.say(join(path, key), f"{join(path, key)} is missing: expected {one.allowed}")
    return {key: one.read(join(path, key), own[key], problems) for key, one in kinds.items() if key in own}


def _read_pairs(where: str, value: Mapping[str, Any], found: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Distances of pairs and the width around each, as an observation has them."""
    problems, before = context.problems, len(context.problems)
    if "width" not in value:
        problems.say(join(where, "width"), f"{join(where, 'width')} is missing: expected {Real(above=0.0).allowed}")
        return {}
    path = join(where, "radial_distribution")
    radii = ListOf(Real(above=0.0), 1, MOST_RADII, noun="distances").read(path, value["radial_distribution"], problems)
    width = Real(above=0.0).read(join(where, "width"), value["width"], problems)
    if len(problems) == before:
        check_radii(where, {"radial_distribution": radii, "width": width}, found["box"], problems)
    return {"radii": radii, "width": width}
