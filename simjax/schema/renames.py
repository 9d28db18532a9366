"""Keys and models that have another name now: what to write instead, and configurations of earlier runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

KEYS = {
    "arrangement": "neighbor_list",
    "arrangement.steps": "neighbor_list.rebuild_every",
    "arrangement.capacity": "neighbor_list.cell_capacity",
    "arrangement.rows": "neighbor_list.max_neighbors",
    "physics.field_cells": "physics.mesh_cells",
    "physics.first_scale_factor": "physics.initial_scale_factor",
    "physics.matter_share": "physics.omega_matter",
}
"""Path of a key -> its path now."""

MODELS = {
    "plasma": "electrostatic_pic",
    "electromagnetic_plasma": "electromagnetic_pic",
    "smoothed_particles": "sph",
}
"""Name of a model -> its name now."""

NUMBERS = {old.partition(".")[2]: new.partition(".")[2] for old, new in KEYS.items() if old.startswith("physics.")}
"""Name of a number in formulas and checkpoints -> its name now."""

_PATHS = {old: new for old, new in KEYS.items() if "." in old}
_WORDS = re.compile(r"\b(" + "|".join(map(re.escape, [*_PATHS, *NUMBERS])) + r")\b")


def with_new_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of an earlier run, a plain mapping, with the names of this version.

    Names of numbers are replaced in formulas and in paths of ensembles and unknowns as well.
    """
    found = _renamed(config, "")
    if isinstance(time := found.get("time"), Mapping) and time.get("integrator") == "direct":
        found["time"] = {**time, "integrator": None}  # a model that takes its own steps has no scheme
    return {**found, "model": MODELS.get(found["model"], found["model"])} if "model" in found else found


def _renamed(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        renamed = {}
        for key, item in value.items():
            below = f"{path}.{key}" if path else str(key)
            new = KEYS[below].rpartition(".")[2] if below in KEYS else _words(key)
            renamed[new] = _renamed(item, below)
        return renamed
    if isinstance(value, (list, tuple)):
        return [_renamed(item, path) for item in value]
    return _words(value) if path.partition(".")[0] not in ("title", "description", "output") else value


def _words(text: Any) -> Any:
    return _WORDS.sub(lambda word: {**_PATHS, **NUMBERS}[word[0]], text) if isinstance(text, str) else text
