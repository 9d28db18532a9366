"""The experiments of an inverse problem: runs that differ from the configuration in a few keys, fitted together."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simjax.errors import ConfigurationError
from simjax.models.registry import MODELS
from simjax.schema.config import Config
from simjax.schema.config_errors import ConfigErrors
from simjax.schema.inverse import EXPERIMENT_SECTIONS, ExperimentConfig
from simjax.schema.numbers import named_numbers
from simjax.schema.parts import part_name, part_places

ROOT = "inverse.experiments"
KEYS = (*EXPERIMENT_SECTIONS, "observations")
# Names become parts of variables' names in a file.
NAME = r"[A-Za-z][A-Za-z0-9_]{0,39}"
# What runs on one mesh with the same unknowns have in common.
SHARED = ("model", "grid", "box", "precision", "seed", "mesh", "ensemble")


def read_experiments(
    config: Config, given: Mapping[str, Any], validate: Callable[[Mapping[str, Any], str], Config]
) -> tuple[ExperimentConfig, ...]:
    """`inverse.experiments`, each a mapping of what differs from the rest, that is `given` and was read as `config`.

    `validate(mapping, below)` reads a configuration and tells its mistakes with paths below `below`.
    """
    problems = ConfigErrors()
    experiments = given["inverse"]["experiments"]
    for name, changes in experiments.items():
        _check_form(f"{ROOT}.{name}", name, changes, problems)
    problems.raise_if_any()
    found = []
    for name, changes in experiments.items():
        own = validate(_merged(given, changes or {}), f"{ROOT}.{name}")
        _check_unknowns(f"{ROOT}.{name}", config, own, problems)
        found.append(_experiment(name, changes or {}, own))
    problems.raise_if_any()
    return tuple(found)


def _check_form(path: str, name: Any, changes: Any, problems: ConfigErrors) -> None:
    if not re.fullmatch(NAME, str(name)):
        problems.say(path, f"{path}: expected a name of letters, digits and _ that begins with a letter")
    if changes is None:
        return
    if not isinstance(changes, Mapping):
        problems.add(path, changes, f"what differs in it: {', '.join(KEYS)}")
        return
    for key in changes:
        if key not in KEYS:
            problems.unknown(path, key, KEYS)


def _merged(given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping of one run: keys of a section in the place of those given, and the inverse problem of this run."""
    together = {**given}
    for section in EXPERIMENT_SECTIONS:
        if section in changes:
            own, below = changes[section], given.get(section)
            if section == "physics":
                together[section] = _merged_physics(below, own, str(given.get("model")))
            else:
                together[section] = {**below, **own} if isinstance(own, Mapping) and isinstance(below, Mapping) else own
    inverse = {**given["inverse"], **{key: changes[key] for key in ("observations",) if key in changes}}
    # Pieces and horizons are those of the whole problem.
    together["inverse"] = {k: v for k, v in inverse.items() if k not in ("experiments", "shooting", "horizons")}
    return together


def _merged_physics(below: Any, own: Any, model: str) -> Any:
    """The section `physics` with `own` keys in the place of those `below`, also inside of a part that stays."""
    if not (isinstance(below, Mapping) and isinstance(own, Mapping)):
        return own
    parts = part_places(MODELS[model].physics) if model in MODELS else {}
    replaced = {key for key in parts if key in own and part_name(below.get(key)) != part_name(own[key])}
    joined = {key: value if key in replaced else _joined(below.get(key), value) for key, value in own.items()}
    return {**below, **joined}


def _joined(below: Any, own: Any) -> Any:
    if not (isinstance(below, Mapping) and isinstance(own, Mapping)):
        return own
    return {**below, **{key: _joined(below.get(key), value) for key, value in own.items()}}


def _experiment(name: str, changes: Mapping[str, Any], own: Config) -> ExperimentConfig:
    assert own.inverse is not None
    keys = {section: tuple(changes[section] or {}) for section in EXPERIMENT_SECTIONS if section in changes}
    sections = {section: getattr(own, section) for section in keys}
    return ExperimentConfig(name, keys, sections, own.inverse.observations, "observations" in changes)


def _check_unknowns(path: str, config: Config, own: Config, problems: ConfigErrors) -> None:
    """Refuse an experiment that changes a key which is an unknown of all experiments."""
    assert config.inverse is not None
    before, after = (named_numbers(c) for c in (config, own))
    changed = {name for name in after if before.get(name) != after[name]}
    for unknown in config.inverse.unknowns:
        section, name = unknown.section, unknown.name
        if section in ("physics", "parameters", "particles"):
            differs = {unknown.value_name} & changed
        elif section in ("initial", "coefficients"):
            source, other = (one.schema.source_of(one, section, name) for one in (config, own))
            names = {used for formula in source for used in formula.names} if isinstance(source, tuple) else set()
            differs = {name} if source != other else names & changed
        else:
            terms = [formula for formulas in config.closure.values() for formula in formulas]
            differs = {used for formula in terms for used in formula.names} & changed
        if differs:
            problems.say(
                f"{path}.{unknown.path}",
                f"{path} changes {unknown.path} by {', '.join(sorted(differs))}, which is sought: expected what is "
                "sought to be the same in all experiments; leave it out here, or seek a parameter of its own",
            )


def combined(configs: Sequence[Config], section: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping of several configurations as the experiments of one inverse problem `section`.

    The first is the base; without `observations` in the section each has those of its own.
    """
    base, *others = (config.write() for config in configs)
    for number, other in enumerate(others, start=1):
        for key in SHARED:
            if other[key] != base[key]:
                raise ConfigurationError(
                    f"{key}={other[key]!r} of simulation {number} of an inverse problem: expected that of simulation "
                    f"0, {base[key]!r}, as both run on one mesh with the same unknowns."
                )
    names = [config.experiment_name for config in configs]
    if len({*names}) < len(names) or not all(re.fullmatch(NAME, name) for name in names):
        names = [f"run{number}" for number in range(len(configs))]
    own = {**(base["inverse"] or {}), **section}
    runs = dict(zip(names, (base, *others), strict=True))
    experiments = {name: _differences(base, run, name) for name, run in runs.items()}
    for name, run in runs.items():
        if "observations" not in section and run["inverse"] is not None:
            experiments[name]["observations"] = run["inverse"]["observations"]
    return {**base, "outputs": _outputs(runs), "inverse": {**own, "experiments": experiments}}


def _outputs(runs: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """The entries of `outputs` of all runs, each name once."""
    found: dict[str, Any] = {}
    for run, mapping in runs.items():
        for entry in mapping["outputs"] or ():
            if found.setdefault(entry["name"], entry) != entry:
                raise ConfigurationError(
                    f"outputs: {entry['name']} of {run} is not that of a simulation before it: expected one of this "
                    "name in all that are fitted together; write another name."
                )
    return [*found.values()]


def _differences(base: Mapping[str, Any], run: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for section in EXPERIMENT_SECTIONS:
        below, own = base[section] or {}, run[section] or {}
        lost = [key for key in below if key not in own]
        if lost:
            raise ConfigurationError(
                f"{section}.{lost[0]} is given in the first simulation of an inverse problem and not in {name}: "
                f"expected it in all or in none; write {section}.{lost[0]}=... there."
            )
        changes = {key: value for key, value in own.items() if key not in below or below[key] != value}
        if changes:
            found[section] = changes
    return found


def with_experiments(config: Config, given: Mapping[str, Any], validate: Callable) -> Config:
    """`config`, read from what is `given`, with the experiments of its inverse problem read, if it has any."""
    if config.inverse is None or not given["inverse"].get("experiments"):
        return config
    experiments = read_experiments(config, given, validate)
    return dataclasses.replace(config, inverse=dataclasses.replace(config.inverse, experiments=experiments))
