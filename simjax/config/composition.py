"""Composition of YAML files and overrides into one plain mapping, by Hydra's compose API.

Hydra composes the files; `key=value` is applied to what they make, for it may set any key (it is the validation that
knows which keys exist), and references between keys are resolved here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hydra import compose as compose_files
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf, open_dict

from simjax.config.composed import Composition, Spelling
from simjax.config.overrides import NO_EXPERIMENT, is_setting_of_hydra, normalise, parse, sets_a_value
from simjax.config.search_path import composing, searching
from simjax.config.yaml_files import inspect_yaml, read_yaml_text, resolve_references
from simjax.deprecation import with_current_keys
from simjax.errors import ConfigurationError
from simjax.models.registry import MODELS
from simjax.schema.config import Config, Keys
from simjax.schema.locate import CONFIG_NAME, config_folders
from simjax.schema.parts import part_name, part_places

# Sections of names that a user chooses or leaves out: what a base has there beside them is told.
_OPEN_SECTIONS = (
    "physics",
    "parameters",
    "boundaries",
    "initial",
    "coefficients",
    "forcing",
    "closure",
    "sponge",
    "exact",
    "particles",
    "ensemble.vary",
    "inverse",
)


def compose(
    overrides: Sequence[str] = (), *, config_dir: str | Path | None = None, config_name: str = CONFIG_NAME
) -> Composition:
    """Compose conf/config.yaml, the chosen experiment and overrides `key=value` (any order, + optional).

    config_dir is a folder with files of one's own, config_name another file than `config` to begin with.
    """
    folders = config_folders(config_dir)
    normalised = [normalise(override, folders) for override in overrides]
    if not _is_experiment(NO_EXPERIMENT, folders):
        normalised = [text for text in normalised if text != f"+experiment={NO_EXPERIMENT}"]
    chosen = _chosen_experiment(normalised)
    with composing(folders):
        values = parse([text for text in normalised if sets_a_value(text)])
        others = [text for text in normalised if not sets_a_value(text)]
        loaded = compose_files(config_name, others, return_hydra_config=True)
    sweeper = str(loaded.hydra.runtime.choices["hydra/sweeper"])
    around = any(map(is_setting_of_hydra, others)) or bool(loaded.hydra.callbacks)
    with open_dict(loaded):
        del loaded["hydra"]
    composed: Any = OmegaConf.to_container(loaded, resolve=False)
    plain = with_current_keys(composed, over_defaults=True)  # simjax's own files have new keys alone
    file = config_name if config_name != CONFIG_NAME else None
    if (chosen or file) and plain.get("experiment_name") is None:
        plain["experiment_name"] = chosen or file
    notes = _what_remains(plain, values, f"experiment={chosen}")
    spellings = {text: Spelling((), text[: len(text) - len(text.lstrip("+"))]) for text in others}
    spellings |= _apply_all(plain, values)
    if plain.get("box") is not None and not any(re.match(r"grid\b", value.key_or_group) for value in values):
        with composing(folders):
            if plain.get("grid") == compose_files(config_name).get("grid"):
                plain["grid"] = None  # a box stands in its place
    for_hydra = {text: spellings[text] for text in normalised}
    own = plain.get("model")
    if plain.get("experiment_name") is None and isinstance(own, str) and "." in own:
        plain["experiment_name"] = own.rpartition(".")[-1]  # a run of a model of one's own has its name
    return Composition(_complete(plain), tuple(overrides), folders, chosen, notes, for_hydra, sweeper, around)


def compose_from_run(file: Path, overrides: Sequence[str] = ()) -> Composition:
    """Start from the `.hydra/config.yaml` of an earlier run instead of an experiment; apply overrides."""
    import yaml

    text = read_yaml_text(file)
    inspect_yaml(text, str(file))
    folders = config_folders()
    normalised = [normalise(override, folders) for override in overrides]
    for given, override in zip(overrides, normalised, strict=True):
        if not sets_a_value(override):
            raise ConfigurationError(f"{given}: a resumed run takes keys, such as output.report=true, not groups.")
    with searching(folders):
        values = parse(normalised)
    plain = with_current_keys(yaml.safe_load(text) or {}, of_a_run=True)
    notes = _what_remains(plain, values, "the earlier run")
    for_hydra = _apply_all(plain, values)
    return Composition(_complete(plain), tuple(overrides), folders, None, notes, for_hydra)


def known_keys() -> list[str]:
    """The keys at the top of a configuration."""
    return [field.name for field in fields(Keys)]


def _complete(plain: dict[str, Any]) -> dict[str, Any]:
    """Replace references by the values that they refer to; a null name counts as none."""
    if plain.get("experiment_name", "") is None:
        del plain["experiment_name"]
    return resolve_references(plain)


def _apply_all(plain: dict[str, Any], overrides: Sequence[Override]) -> dict[str, Spelling]:
    """Apply values in their order, and tell how Hydra takes them.

    Hydra neither puts a mapping in the place of a list, which is deleted for it first, nor deletes a null.
    """
    spellings = {}
    for override in overrides:
        path, line = override.key_or_group, str(override.input_line)
        if override.package is not None:
            raise ConfigurationError(f"{line}: write key=value, without @.")
        there = _at(plain, path)
        place = _replaced_part(plain, override)
        if place is not None:
            spellings[line] = Spelling((place,), "++")
            del plain["physics"][place.rpartition(".")[2]]
        elif override.is_delete():
            spellings[line] = Spelling((), None if there is None else "")
        else:
            given = override.value()
            deletions = tuple(_of_another_kind(path, there, given))
            adds = there is None or deletions or isinstance(given, dict)  # a mapping may bring keys
            spellings[line] = Spelling(deletions, "++" if adds else "")
        _apply(plain, path, override)
    return spellings


def _replaced_part(plain: Mapping[str, Any], override: Override) -> str | None:
    """Return the key of a part in the base that an override replaces by naming another part, or keys of one.

    `physics.potential={yukawa: {strength: 3}}` and `physics.potential.yukawa.strength=3` replace `lennard_jones`.
    """
    section, _, below = override.key_or_group.partition(".")
    place, _, inside = below.partition(".")
    there = _at(plain, f"physics.{place}")
    if section != "physics" or not there or override.is_delete():
        return None
    given = inside.partition(".")[0] if inside else override.value()
    named = part_name(given)
    whole = inside or isinstance(given, dict)  # a name alone takes the place of anything
    if not whole or (isinstance(there, dict) and named in there):
        return None
    schema = MODELS.get(plain.get("model", ""))
    taken = part_places(schema.physics) if schema is not None else ()
    return f"physics.{place}" if place in taken else None


def _of_another_kind(path: str, there: Any, given: Any) -> Iterator[str]:
    """Paths at which a list would meet a mapping."""
    if isinstance(there, dict) and isinstance(given, dict):
        for key in there.keys() & given.keys():
            yield from _of_another_kind(f"{path}.{key}", there[key], given[key])
    elif {type(there), type(given)} == {list, dict}:
        yield path


def _what_remains(base: Mapping[str, Any], overrides: Sequence[Override], named: str) -> tuple[str, ...]:
    """Sentences about entries of the base that stay beside those of a mapping that a user gives."""
    deleted = tuple(override.key_or_group for override in overrides if override.is_delete())
    notes = []
    for override in overrides:
        path = override.key_or_group
        inside = any(path == section or path.startswith(f"{section}.") for section in _OPEN_SECTIONS)
        if override.is_delete() or not inside or path in deleted or _replaced_part(base, override):
            continue
        given, there = override.value(), _at(base, path)
        if isinstance(given, dict) and isinstance(there, dict):
            gone = {key for key in there if f"{path}.{key}" in deleted or there[key] is None}
            left = [str(key) for key in there if key not in given and key not in gone]
            if left:
                notes.append(
                    f"{path}={{...}} is merged: {', '.join(left)} of {named} stay beside "
                    f"{', '.join(map(str, given)) or 'nothing'}; write ~{path} before it for these alone."
                )
    return tuple(notes)


def _at(plain: Any, path: str) -> Any:
    """Return the entry at a path, or None."""
    for key in path.split("."):
        place = _place(plain, key) if isinstance(plain, (dict, list)) else None
        plain = None if place is None else _get(plain, place)
    return plain


def _is_experiment(name: str, folders: Sequence[Path]) -> bool:
    return any((folder / "experiment" / f"{name}.yaml").is_file() for folder in folders)


def _apply(plain: dict[str, Any], path: str, override: Override) -> None:
    """Set or delete one key. A mapping is merged into a mapping; everything else replaces what was there."""
    *parents, last = path.split(".")
    here: Any = plain
    for key in parents:
        place = _place(here, key)
        if place is None and (isinstance(here, list) or override.is_delete()):
            raise ConfigurationError(f"{path}: there is no '{key}' to go into.")
        place = key if place is None else place
        if not isinstance(_get(here, place), (dict, list)):
            here[place] = {}
        here = here[place]
    place, value = _place(here, last), override.value()
    if override.is_delete():
        if place is None:
            raise ConfigurationError(f"~{path}: there is no such key.")
        del here[place]
    elif place is None and isinstance(here, list):
        raise ConfigurationError(f"{path}: the list has {len(here)} entries, 0 to {len(here) - 1}.")
    else:
        place = last if place is None else place
        here[place] = _merged(_get(here, place), value)


def _get(here: Any, place: Any) -> Any:
    return here.get(place) if isinstance(here, dict) else here[place]


def _place(here: Any, key: str) -> Any:
    """The index or key of an existing entry, or None."""
    if isinstance(here, list):
        return int(key) if key.isdigit() and int(key) < len(here) else None
    return key if key in here else None


def _merged(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}


def load_config(
    experiment: str | None = None, overrides: Sequence[str] = (), *, config_dir: str | Path | None = None
) -> Config:
    """Compose a configuration and validate it: `load_config("fluid", ["grid.shape=[64,64]"])`; no name: the defaults
    alone."""
    chosen = [] if experiment is None else [f"experiment={experiment}"]
    return compose([*chosen, *overrides], config_dir=config_dir).config()


def _chosen_experiment(normalised: Sequence[str]) -> str | None:
    chosen = [override.partition("=")[2] for override in normalised if override.startswith("+experiment=")]
    if len(set(chosen)) > 1:
        raise ConfigurationError(f"experiment={' and experiment='.join(chosen)}: expected one; -m runs several.")
    if chosen and not re.fullmatch(r"[\w.\-]+", chosen[0]):
        raise ConfigurationError(f"experiment={chosen[0]}: several experiments need -m.")
    return chosen[0] if chosen else None
