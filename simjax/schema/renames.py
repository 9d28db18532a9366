"""Keys and models that have another name now: what to write instead, and configurations of earlier runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MODELS = {
    "plasma": "electrostatic_pic",
    "electromagnetic_plasma": "electromagnetic_pic",
    "smoothed_particles": "sph",
}
"""Name of a model -> its name now."""

CAPACITIES = {
    "capacity": "cell_capacity", "rows": "max_neighbors", "columns": "max_particles", "steps": "rebuild_every",
}  # fmt: skip
"""Name of a capacity in checkpoints -> its name now."""

_SECTIONS = {
    "arrangement": "neighbor_list",
    "arrangement.steps": "neighbor_list.rebuild_every",
    "arrangement.capacity": "neighbor_list.cell_capacity",
    "arrangement.rows": "neighbor_list.max_neighbors",
    "physics.field_cells": "physics.mesh_cells",
    "physics.first_scale_factor": "physics.initial_scale_factor",
    "physics.matter_share": "physics.omega_matter",
}

# Keys of the physics of molecular dynamics that stood beside each other -> the part to which they belong now: the key
# that chose it, what that was by itself, and by name the keys of each part with their names now.
_SCALED = {
    key: key for key in ("epsilon", "sigma", "species_epsilon", "species_sigma", "cross_epsilon", "cross_sigma")
}  # fmt: skip
_BATH = {"bath_temperature": "temperature", "friction": "friction"}
_PARTS: dict[str, tuple[str, str, dict[str, dict[str, str]]]] = {
    "potential": ("potential", "lennard_jones", {
        "lennard_jones": _SCALED,
        "weeks_chandler_andersen": _SCALED,
        "soft_sphere": {**_SCALED, "power": "power"},
        "morse": {key: key for key in ("epsilon", "steepness", "bond_length")},
        "yukawa": {key: key for key in ("strength", "screening")},
        "stillinger_weber": {key: key for key in ("epsilon", "sigma", "tetrahedrality")},
    }),
    "thermostat": ("dynamics", "nve", {
        "langevin": _BATH,
        "brownian": _BATH,
        "nose_hoover": {"bath_temperature": "temperature", "period": "period"},
    }),
    "bond": ("bond", "none", {
        "fene": {"bond_stiffness": "stiffness", "bond_extension": "extension"},
        "harmonic": {"bond_stiffness": "stiffness", "bond_rest_length": "rest_length"},
    }),
    "angle": ("angle", "none", {
        "bending": {"angle_stiffness": "stiffness"},
        "harmonic": {"angle_stiffness": "stiffness", "rest_angle": "rest"},
    }),
}  # fmt: skip
_CHARGES = {
    "charge": "species", "coulomb_constant": "constant", "electrostatics": "method", "ewald_tolerance": "tolerance",
    "background": "background",
}  # fmt: skip
_MOLECULAR = "molecular_dynamics"
_NOT_FORMULAS = ("title", "description", "output", "experiment_name")

KEYS = {
    **_SECTIONS,
    "physics.dynamics": "physics.thermostat",
    **{
        f"physics.{old}": f"physics.{place}.NAME.{new}"
        for place, (_, _, parts) in _PARTS.items()
        for keys in parts.values()
        for old, new in keys.items()
    },
    **{f"physics.{old}": f"physics.charges.{new}" for old, new in _CHARGES.items()},
}
"""Path of a key -> its path now."""


def with_new_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of an earlier run, a plain mapping, with the names of this version.

    Names of numbers are replaced in formulas and in paths of ensembles and unknowns as well.
    """
    found = _renamed(config, "", _words_of(_SECTIONS))
    if isinstance(time := found.get("time"), Mapping) and time.get("integrator") == "direct":
        found["time"] = {**time, "integrator": None}  # a model that takes its own steps has no scheme
    if "model" in found:
        found["model"] = MODELS.get(found["model"], found["model"])
    if not _is_flat(found):
        return found
    physics, paths = _nested(found["physics"])
    return {**_renamed({**found, "physics": {}}, "", _words_of(paths)), "physics": physics}


def numbers_with_new_names(numbers: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name of an earlier run of this `config`, by their names now; without those that nothing took."""
    words = _words_of(_SECTIONS)
    renamed = {words.get(str(name), str(name)): value for name, value in numbers.items()}
    found = _renamed(config, "", words)
    if not _is_flat(found):
        return renamed
    now = _words_of(_nested(found["physics"])[1])
    gone = {old for place in _PARTS.values() for keys in place[2].values() for old in keys} | _CHARGES.keys()
    return {now.get(name, name): value for name, value in renamed.items() if name in now or name not in gone}


def _is_flat(config: Mapping[str, Any]) -> bool:
    """Tell whether it is of molecular dynamics with the keys of parts beside each other."""
    flat = {"dynamics", *_CHARGES, *(old for place in _PARTS.values() for keys in place[2].values() for old in keys)}
    physics = config.get("physics")
    return config.get("model") == _MOLECULAR and isinstance(physics, Mapping) and bool(flat & physics.keys())


def _nested(physics: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The physics with the keys of parts below these, and the paths of their numbers before -> now."""
    rest, paths = {**physics}, {}
    chosen: dict[str, Any] = {}
    for place, (selector, default, parts) in _PARTS.items():
        name = rest.pop(selector, default)
        given = {old: rest.pop(old) for old in {old for keys in parts.values() for old in keys} if old in rest}
        keys = parts.get(name, {})
        chosen[place] = {name: {new: given[old] for old, new in keys.items() if old in given}} if keys else None
        paths |= {f"physics.{old}": f"physics.{place}.{name}.{new}" for old, new in keys.items()}
    charges = {new: rest.pop(old) for old, new in _CHARGES.items() if old in rest}
    chosen["charges"] = charges if charges.get("species") is not None else None
    if chosen["charges"] is not None:
        paths["physics.coulomb_constant"] = "physics.charges.constant"
    return {**chosen, **rest}, paths


def _words_of(paths: Mapping[str, str]) -> dict[str, str]:
    """Paths and names of numbers, each with what it is now."""
    inside = {old: new for old, new in paths.items() if "." in old}
    names = {}
    for old, new in inside.items():
        section, _, below = new.partition(".")
        if section == "physics":
            first, _, deeper = below.partition(".")
            names[old.partition(".")[2]] = f"{first}_{deeper.rpartition('.')[2]}" if deeper else first
    return {**inside, **names}


def _renamed(value: Any, path: str, words: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        renamed = {}
        for key, item in value.items():
            below = f"{path}.{key}" if path else str(key)
            new = _SECTIONS[below].rpartition(".")[2] if below in _SECTIONS else _replaced(key, words)
            renamed[new] = _renamed(item, below, words)
        return renamed
    if isinstance(value, (list, tuple)):
        return [_renamed(item, path, words) for item in value]
    return value if path.partition(".")[0] in _NOT_FORMULAS else _replaced(value, words)


def _replaced(text: Any, words: Mapping[str, str]) -> Any:
    if not isinstance(text, str) or not words:
        return text
    pattern = r"\b(" + "|".join(map(re.escape, words)) + r")\b"
    return re.sub(pattern, lambda word: words[word[0]], text)
