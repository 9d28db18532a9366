"""The section `ensemble`: what differs between members, by distributions, by designs, or from a table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from simjax.config.sections import find_input
from simjax.errors import SimjaxError
from simjax.schema.config import Config
from simjax.schema.config_errors import ConfigErrors, join
from simjax.schema.devices import MeshConfig
from simjax.schema.ensemble import values_of_members
from simjax.schema.ensemble_section import DISTRIBUTIONS, EnsembleConfig, EnsembleKeys, OnePerMember, Variation
from simjax.schema.kinds import ListOf, Real
from simjax.schema.numbers import leads_to_some, numbers_of
from simjax.schema.side_declarations import sides_of
from simjax.schema.tables import csv_lines

NOUNS = {"values": "values, one per member", "normal": "numbers, mean and standard deviation"}


def read_ensemble(
    given: Mapping[str, Any], parameters: Mapping[str, float], folders: Sequence[Path], problems: ConfigErrors
) -> EnsembleConfig:
    """The section `ensemble` of a configuration whose sections are `given`; a table is looked up in `folders`."""
    keys, mesh, particles = given["ensemble"], given["mesh"], given["model"].particles
    ranges: dict[str, Real] = {f"physics.{n.path}": n.kind for n in numbers_of(given["physics"]) if n.open}
    ranges |= {f"parameters.{name}": Real(formula=True) for name in parameters}
    if particles is not None:
        ranges |= {f"particles.{n.path}": n.kind for n in numbers_of(particles) if n.open}
    table = {} if keys.members is None else _read_table(keys.members, ranges, folders, problems)
    size = next((len(column) for column in table.values()), keys.size)
    if table and keys.size not in (1, size):
        problems.add("ensemble.size", keys.size, f"{size}, the members of {keys.members}; leave it out")
    vary = [Variation(path, "values", column) for path, column in table.items()]
    for variation in _read_variations(keys.vary or {}, size, ranges, problems):
        if variation.path in table:
            path = f"ensemble.vary.{variation.path}"
            problems.say(path, f"{path}: expected once, and {keys.members} has a column of it; leave one of them out")
        vary.append(variation)
    for each in _of_members(given["physics"], vary):
        if keys.size not in (1, each.count) or table and size != each.count:
            problems.add(
                "ensemble.size", max(keys.size, size), f"{each.count}, one for each {each.number}; leave it out"
            )
        size = each.count
        vary.append(Variation(f"physics.{each.number}", "values", tuple(map(float, range(size)))))
    _check_normal(vary, size, keys.design, given["seed"], ranges, problems)
    if keys.batch is not None and keys.batch > size:
        problems.add("ensemble.batch", keys.batch, f"at most ensemble.size={size}")
    if mesh is not None and size % mesh.ensemble:
        more = size - size % mesh.ensemble + mesh.ensemble
        problems.say(
            "mesh.ensemble",
            f"ensemble.size={size} is not divisible by mesh.ensemble={mesh.ensemble}; "
            f"use ensemble.size={more} or another mesh.ensemble",
        )
    _check_shares(keys, size, mesh, given["model"].refusal("ensemble.statistics"), bool(vary), problems)
    return EnsembleConfig(
        size, keys.batch, keys.noise, tuple(vary), keys.design, keys.group, keys.numbers, keys.statistics, keys.retry
    )


def _of_members(physics: Any, vary: Sequence[Variation]) -> list[OnePerMember]:
    """Values of `physics` that make a member for each of what they hold."""
    if isinstance(physics, type):  # what is written there is wrong
        return []
    values = [getattr(physics, field.name) for field in dataclasses.fields(physics)]
    named = {variation.path for variation in vary}
    return [
        value
        for value in values
        if isinstance(value, OnePerMember)
        and getattr(physics, value.number) is None
        and f"physics.{value.number}" not in named
    ]


def check_members(config: Config, problems: ConfigErrors) -> None:
    """Refuse members between which nothing differs."""
    ensemble, schema = config.ensemble, config.schema
    if ensemble.size == 1 or ensemble.vary:
        return
    kinds = sides_of(schema.sides) if config.boundaries else {}
    walls = [wall for axis in config.boundaries for wall in (axis.lower, axis.upper)]
    formulas = [formula for field in config.initial.values() if isinstance(field, tuple) for formula in field]
    drawn = (
        schema.draws
        or schema.noisy
        or any(formula.uses_noise for formula in formulas)
        or any(wall.kind != "periodic" and kinds[wall.kind].random for wall in walls)
    )
    if drawn and ensemble.noise == "per_member":
        return
    why = "draw the same noise" if drawn else "have the same numbers, and nothing of them is random"
    way = "ensemble.noise=per_member, or " if drawn else ""
    numbers = [number.path for number in numbers_of(config.physics) if number.open]
    example = f"physics.{numbers[0]}" if numbers else "parameters.NAME"
    problems.say(
        "ensemble.size",
        f"ensemble.size = {ensemble.size}: expected members that differ, and these {why}; write {way}what varies, such "
        f"as ensemble.vary={{{example}: {{uniform: [LOW, HIGH]}}}}, or ensemble.size=1",
    )


def _check_shares(
    keys: EnsembleKeys, size: int, mesh: MeshConfig | None, refusal: str | None, varies: bool, problems: ConfigErrors
) -> None:
    """Check how members are numbered and grouped, and that there is something to take statistics of.

    refusal: what is expected of a model in the place of statistics, if it has none.
    """
    if keys.numbers is not None and (len(keys.numbers) != size or len({*keys.numbers}) != size):
        problems.add("ensemble.numbers", list(keys.numbers), f"ensemble.size={size} different numbers, or null")
    if keys.group is not None and mesh is not None and keys.group % mesh.ensemble:
        problems.add("ensemble.group", keys.group, f"a multiple of mesh.ensemble={mesh.ensemble}, or null")
    if keys.statistics and refusal:
        problems.say("ensemble.statistics", f"ensemble.statistics: {refusal}")
    elif keys.statistics and size == 1 and not varies:
        problems.say("ensemble.statistics", "ensemble.statistics: expected an ensemble; write ensemble.size=16")
    if keys.statistics and keys.statistics.quantiles and keys.group is not None and keys.group < size:
        problems.say(
            "ensemble.statistics",
            f"ensemble.statistics: quantiles need all members at once, and ensemble.group={keys.group} takes "
            f"{size} one group after another; leave out quantiles or ensemble.group",
        )


def _read_variations(
    value: Mapping[str, Any], size: int, ranges: Mapping[str, Real], problems: ConfigErrors
) -> list[Variation]:
    """`ensemble.vary`, nested or dotted: a leaf is one distribution. `ranges` are the keys that may vary."""
    variations = []
    for path, leaf in _leaves("", value, ranges):
        where = join("ensemble.vary", path)
        if path not in ranges:
            problems.unknown("ensemble.vary", path, ranges)
            continue
        if not isinstance(leaf, Mapping) or len(leaf) != 1 or next(iter(leaf)) not in DISTRIBUTIONS:
            problems.add(where, leaf, f"one of {', '.join(DISTRIBUTIONS)}, such as {{uniform: [1.0, 2.0]}}")
            continue
        kind, numbers = next(iter(leaf.items()))
        count = size if kind == "values" else 2
        # The deviation of a normal distribution has no range of its own but being above zero.
        element = Real(formula=True) if kind == "normal" else ranges[path]
        before = len(problems)
        read = ListOf(element, count, count, noun=NOUNS.get(kind, "numbers, first and last")).read(
            f"{where}.{kind}", numbers, problems
        )
        if read is None:
            continue
        if kind == "log_uniform" and min(read) <= 0.0:
            problems.add(f"{where}.{kind}", numbers, "numbers > 0, since their logarithm is uniform")
        if kind in ("uniform", "log_uniform") and read[0] > read[1]:
            problems.add(f"{where}.{kind}", numbers, "the lower number first")
        if kind == "normal" and read[1] <= 0.0:
            problems.add(f"{where}.{kind}", numbers, "a standard deviation > 0")
        if len(problems) == before:
            variations.append(Variation(path, kind, read))
    return variations


def _leaves(path: str, value: Mapping[str, Any], known: Collection[str]) -> list[tuple[str, Any]]:
    leaves = []
    for key, item in value.items():
        below = join(path, str(key))
        is_branch = isinstance(item, Mapping) and item and not any(name in DISTRIBUTIONS for name in item)
        goes_on = below in ("physics", "parameters", "particles") or leads_to_some(below, known)
        leaves += _leaves(below, item, known) if is_branch and goes_on else [(below, item)]
    return leaves


def _check_normal(
    vary: Sequence[Variation],
    size: int,
    design: str,
    seed: int | None,
    ranges: Mapping[str, Real],
    problems: ConfigErrors,
) -> None:
    """Check that the values members draw from normal distributions, which are unbounded, are allowed."""
    if not any(variation.kind == "normal" for variation in vary) or seed is None or len(problems):
        return
    drawn = values_of_members(vary, size, design, seed)
    for variation in vary:
        own, trial = drawn[variation.path].tolist(), ConfigErrors("")
        wrong = [member for member, number in enumerate(own) if ranges[variation.path].read("", number, trial) is None]
        if variation.kind == "normal" and wrong:
            path = f"ensemble.vary.{variation.path}.normal"
            problems.say(
                path,
                f"{path} = {list(variation.numbers)}: expected {ranges[variation.path].allowed} of every member, and "
                f"{len(wrong)} of {size} are not: member {wrong[0]} draws {own[wrong[0]]:.4g}; write a smaller "
                "deviation, or log_uniform",
            )


def _read_table(
    name: str, ranges: Mapping[str, Real], folders: Sequence[Path], problems: ConfigErrors
) -> dict[str, tuple[float, ...]]:
    """Columns of a table of members by path; none where something is wrong with it."""
    where, before = "ensemble.members", len(problems)
    file = find_input(name, folders)
    if file is None:
        looked = ", ".join(str(folder) for folder in folders)
        problems.say(where, f"{where} = {name!r}: no such file (looked below {looked})")
        return {}
    try:
        lines = list(csv_lines(file, "a table of members", "run several ensembles"))
    except SimjaxError as error:
        problems.say(where, f"{where}: {str(error).rstrip('.')}")
        return {}
    header, rows = (lines[0][1] if lines else []), lines[1:]
    if not rows:
        example = next(iter(ranges), "parameters.NAME")
        problems.say(
            where, f"{where}: {name} has no members; write a line of names such as {example}, then one for each"
        )
    for path in header:
        if path not in ranges:
            problems.unknown(f"{where}, a column of {name}", path, ranges)
        elif header.count(path) > 1:
            problems.say(where, f"{where}: {name} has several columns {path}; leave one")
    for number, cells in rows:
        if len(cells) != len(header):
            problems.say(where, f"{where}: line {number} of {name} has {len(cells)} cell(s), expected {len(header)}")
    if len(problems) > before:
        return {}
    table: dict[str, list[float]] = {path: [] for path in header}
    for number, cells in rows:
        for path, cell in zip(header, cells, strict=True):
            value = ranges[path].read(f"{where}, line {number} of {name}, {path}", _number(cell), problems)
            table[path].append(math.nan if value is None else value)
    return {path: tuple(column) for path, column in table.items()} if len(problems) == before else {}


def _number(cell: str) -> float | str:
    """A cell as a number; as it stands where it is none."""
    try:
        return float(cell)
    except ValueError:
        return cell
