"""From a plain mapping to a Config, or to one error that tells everything that is wrong with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simjax.config.experiments import with_experiments
from simjax.config.fields import read_fields
from simjax.config.inverse_section import read_inverse
from simjax.config.own_models import find_model, find_parts
from simjax.config.read_expressions import with_expressions
from simjax.config.read_instruments import read_instruments
from simjax.config.read_sponge import read_sponge
from simjax.config.read_storage import read_storage
from simjax.config.read_stretched_grid import check_named, read_stretching
from simjax.config.read_time_statistics import read_statistics
from simjax.config.read_time_steps import check_control, check_steps, read_integrator
from simjax.config.read_triggers import read_triggers
from simjax.config.sections import (
    Context,
    find_told,
    read_boundaries,
    read_closure,
    read_exact,
    read_forcing,
    read_parameters,
)
from simjax.config.variations import check_members, read_ensemble
from simjax.deprecation import with_current_keys
from simjax.models.registry import MODELS
from simjax.schema.config import (
    DEFAULT_COURANT,
    Boundaries,
    Config,
    DistributedConfig,
    GridConfig,
    Keys,
    TimeConfig,
)
from simjax.schema.config_errors import ConfigErrors, closest
from simjax.schema.expressions import with_named_expressions
from simjax.schema.kinds import Choice, ListOf, Nested, read_section, tell_missing
from simjax.schema.locate import credentials_problem, input_folders, is_url, locate_run_folder, path_problem
from simjax.schema.model_schema import AXES, ModelSchema
from simjax.schema.numbers import numbers_of
from simjax.schema.output_section import CheckpointConfig, OutputConfig
from simjax.schema.particles import ParticlesSection, check_box
from simjax.schema.schema_number import read_schema

PLACES = ("grid", "box", "particles")
"""Sections that say where a model is."""
MOST_STEPS = 2**31 - 1
MOST_FRAMES = 10**7
NO_OBJECT_STORES = (
    "a folder on a file system, since files take their places by being renamed, which an object store cannot do; write "
    "to a disk, and output.copy_to=URL to keep a copy there"
)


def validate(
    mapping: Mapping[str, Any],
    *,
    folders: Sequence[Path] | None = None,
    overrides: Sequence[str] = (),
    below: str = "",
) -> Config:
    """Check a plain mapping (composed, or written by hand) and type it.

    Relative names of input files are looked up in `folders` (default: the working directory, then the folder that holds
    `conf`). Raises ConfigurationError with every problem: its key path, the value given, what is allowed and the
    nearest valid key; paths are told below `below`.
    """
    problems = ConfigErrors(below)
    _refuse_targets("", mapping, problems)
    problems.raise_if_any()
    mapping = with_named_expressions(with_current_keys(read_schema(mapping)))
    folders = folders or input_folders(())
    find_model(mapping.get("model"), folders)
    keys, ndim = _read_keys(mapping, problems), _count_axes(mapping)
    schema, grid, time = keys["model"], keys["grid"], keys["time"]
    physics, parameters, ensemble = None, {}, None
    if schema is not None:
        find_parts(schema.physics, keys["physics"], folders)
        physics = read_section(schema.physics, "physics", keys["physics"], problems)
        taken = [number.name for number in numbers_of(physics or schema.physics)]
        parameters = read_parameters(keys["parameters"] or {}, taken, problems)
        keys["particles"] = _read_particles(keys["particles"], schema, problems)
        _check_place(keys, mapping, schema, problems)
        if keys["box"] is not None:
            _check_axes("box.upper", keys["box"].upper, schema, physics, problems)
    if grid is not None:
        grid = read_stretching(_check_grid(grid, schema, physics, problems), schema, parameters, folders, problems)
    _check_scales(grid, keys["box"], keys["precision"] or "float64", problems)
    if time is not None:
        time = _check_time(time, keys["checkpoint"], schema, problems)
    if schema is not None and keys["ensemble"] is not None:
        ensemble = read_ensemble({**keys, "physics": physics or schema.physics}, parameters, folders, problems)
    found = {**keys, "physics": physics, "parameters": parameters, "grid": grid, "time": time, "ensemble": ensemble}
    if schema is not None and ndim is not None:
        names = (*(number.name for number in numbers_of(physics or schema.physics, ndim)), *parameters)
        counts = _count_free(schema, keys["initial"] or {})
        context = Context(schema, ndim, names, folders, problems, counts)
        found |= _read_sections(keys, context)
        context = with_expressions(keys["expressions"] or {}, context)
        found["expressions"] = dict(context.schema.expressions)
        found["particles"] = _locate_particles(keys["particles"], context)
        found["outputs"] = read_instruments(keys, found, context)
        found |= {"statistics": read_statistics(keys, found, context), "events": read_triggers(found, context)}
        found["storage"] = read_storage(found, context)
        check_control(found, problems)
        found["inverse"] = read_inverse(keys, found, context)
        several = bool(keys["inverse"] and keys["inverse"].get("experiments"))
        check_named(found, several, problems)
        _check_output_fields(keys["output"], context)
        _check_output_particles(keys["output"], context)
    if grid is not None and keys["mesh"] is not None:
        _check_mesh(grid.shape, keys["mesh"], problems)
    _check_process(keys["distributed"], problems)
    if keys["output"] is not None:
        _check_places(keys["output"], keys["resume"], problems)
    problems.raise_if_any()
    assert schema is not None
    config = Config(**{**found, "model": schema.name}, overrides=tuple(overrides))
    for path, sentence in schema.check(config):
        problems.say(path, sentence)
    _check_troubles(config, problems)
    check_members(config, problems)
    problems.raise_if_any()
    return with_experiments(config, mapping, lambda own, below: validate(own, folders=folders, below=below))


def _check_places(output: OutputConfig, resume: str | None, problems: ConfigErrors) -> None:
    """Folders are on a disk, copies of them in a store, whose places tell nothing of users."""
    folders = {"output.root": output.root, "output.folder": output.folder}
    for path, place in {"output.copy_to": output.copy_to, "resume": resume, **folders}.items():
        if problem := credentials_problem(place) or (None if is_url(place) else path_problem(place or "")):
            problems.add(path, place, problem)
            return
    remote = {path: place for path, place in folders.items() if is_url(place)}
    for path, place in remote.items():
        problems.add(path, place, NO_OBJECT_STORES)
    if output.copy_to is not None and not is_url(output.copy_to):
        problems.add("output.copy_to", output.copy_to, "a place in an object store, such as gs://bucket/runs")
    if output.folder and not remote and locate_run_folder(output.root, output.folder) is None:
        problems.add("output.folder", output.folder, f"a folder below output.root={output.root}")


def _refuse_targets(path: str, value: Any, problems: ConfigErrors, depth: int = 0) -> None:
    """Keys such as `_target_` ask Hydra to call something, texts with `${` ask OmegaConf to look it up."""
    if depth > 30:
        problems.say(path, f"{path[:60]}...: nested deeper than 30 levels")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            below = f"{path}.{key}" if path else str(key)
            if isinstance(key, str) and key.startswith("_") and key.endswith("_") and len(key) > 2:
                problems.say(below, f"{below}: refused, a configuration calls nothing; name a model with model=...")
            else:
                _refuse_targets(below, item, problems, depth + 1)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _refuse_targets(f"{path}[{i}]", item, problems, depth + 1)
    elif isinstance(value, str) and "${" in value:
        problems.say(
            path,
            f"{path} = {value[:60]!r}: expected a value; only references such as ${{grid.shape}} resolve",
        )


def _read_keys(mapping: Mapping[str, Any], problems: ConfigErrors) -> dict[str, Any]:
    """Read key by key, so that a mistake in one section does not hide those in the others."""
    fields = {field.name: field for field in dataclasses.fields(Keys)}
    for key in mapping:
        if key not in fields:
            _tell_unknown(key, mapping.get("model"), problems)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in mapping:
            values[name] = field.metadata["kind"].read(name, mapping[name], problems)
        elif field.default is dataclasses.MISSING:
            tell_missing(name, field, problems)
            values[name] = None
        else:
            values[name] = field.default
    values["model"] = MODELS.get(values["model"]) if values["model"] else None
    values["box"] = None if values["box"] is None else check_box(values["box"], problems)
    return values


def _tell_unknown(key: Any, model: Any, problems: ConfigErrors) -> None:
    """Tell where a key at the top belongs, such as `viscosity` or `end`."""
    sections = {f.name: f.metadata["kind"].section for f in dataclasses.fields(Keys) if _is_nested(f)}
    if model in MODELS:
        own = {"physics": MODELS[model].physics, "particles": MODELS[model].particles}
        sections |= {name: section for name, section in own.items() if section is not None}
    for name, section in sections.items():
        if key in {field.name for field in dataclasses.fields(section)}:
            problems.say(str(key), f"{key}: unknown key; did you mean '{name}.{key}'?")
            return
    known = [field.name for field in dataclasses.fields(Keys)]
    if closest(str(key), [*known, "experiment"]) == "experiment":
        problems.say(str(key), f"{key}: unknown key; did you mean experiment=...?")
        return
    problems.unknown("", key, known)


def _is_nested(field: dataclasses.Field) -> bool:
    return isinstance(field.metadata["kind"], Nested)


def _count_axes(mapping: Mapping[str, Any]) -> int | None:
    """The number of axes, also of a grid or box with mistakes, so that walls and fields are checked anyhow."""
    grid, box = mapping.get("grid"), mapping.get("box")
    shape = grid.get("shape") if isinstance(grid, Mapping) else None
    shape = box.get("upper") if isinstance(box, Mapping) else shape
    return len(shape) if isinstance(shape, (list, tuple)) and 1 <= len(shape) <= 3 else None


def _count_free(schema: ModelSchema, initial: Mapping[str, Any]) -> dict[str, int]:
    """Count the components that every free field is given."""
    given = {field.name: initial[field.name] for field in schema.fields if field.free and field.name in initial}
    listed = {name: value.get("variable") if isinstance(value, Mapping) else value for name, value in given.items()}
    return {name: len(value) if isinstance(value, (list, tuple)) else 1 for name, value in listed.items()}


def _check_place(
    keys: Mapping[str, Any], given: Mapping[str, Any], schema: ModelSchema, problems: ConfigErrors
) -> None:
    """Check that the sections are there that say where the model is, and no others."""
    for name in schema.needed:
        if keys[name] is None and given.get(name) is None:
            problems.say(name, f"{name} is missing: model={schema.name} needs it")
    for name in PLACES:
        if name not in schema.needed and keys[name] is not None:
            problems.say(name, f"{name}: model={schema.name} has none; leave it out, and see {schema.needed[0]}")
    for name in ("boundaries", "exact"):
        if keys[name] and (refusal := schema.refusal(name)):
            problems.say(name, f"{name}: {refusal}")
    if isinstance(keys["particles"], ParticlesSection) and keys["box"] is not None:
        for path, sentence in keys["particles"].check(keys["box"]):
            problems.say(path, sentence)


def _read_particles(
    given: Mapping[str, Any] | None, schema: ModelSchema, problems: ConfigErrors
) -> ParticlesSection | Any:
    """The section as the model's own, or as it stands where the model has none."""
    if given is None or schema.particles is None:
        return given
    return read_section(schema.particles, "particles", given, problems)


def _locate_particles(particles: ParticlesSection | Any, context: Context) -> ParticlesSection | Any:
    """The section with the whole path of its file; as it stands where the model has none."""
    if not isinstance(particles, ParticlesSection) or particles.file is None:
        return particles
    found = find_told("particles.file", particles.file, context)
    return None if found is None else dataclasses.replace(particles, file=str(found))  # pyright: ignore[reportArgumentType]


def _check_grid(
    grid: GridConfig, schema: ModelSchema | None, physics: Any, problems: ConfigErrors
) -> GridConfig | None:
    ndim, before = len(grid.shape), len(problems)
    lower = grid.lower if grid.lower is not None else (0.0,) * ndim
    upper = grid.upper if grid.upper is not None else (1.0,) * ndim
    for name, corner in (("lower", lower), ("upper", upper)):
        if len(corner) != ndim:
            expected = f"{ndim} number(s), one per axis of grid.shape={list(grid.shape)}"
            problems.add(f"grid.{name}", list(corner), expected)
    if len(problems) == before:
        for axis, (a, b) in enumerate(zip(lower, upper, strict=True)):
            if b <= a:
                problems.add(f"grid.upper[{axis}]", b, f"a number above grid.lower[{axis}]={a:g}")
    _check_axes("grid.shape", grid.shape, schema, physics, problems)
    return dataclasses.replace(grid, lower=lower, upper=upper) if len(problems) == before else None


def _check_scales(grid: GridConfig | None, box: Any, precision: str, problems: ConfigErrors) -> None:
    """Squares of lengths and of spacings are numbers of the run's precision: equations divide by them."""
    largest, least = {"float32": (1e18, 1e-18), "float64": (1e150, 1e-150)}[precision]
    for name, section in (("grid", grid), ("box", box)):
        lower, upper = getattr(section, "lower", None), getattr(section, "upper", None)
        if lower is None or upper is None:
            continue
        cells = section.shape if isinstance(section, GridConfig) else (1,) * len(upper)
        for axis, (a, b, n) in enumerate(zip(lower, upper, cells, strict=True)):
            if b - a > largest or (b - a) / n < least:
                hint = "write the equations in other units"
                hint += ", or precision=float64" if precision == "float32" else ""
                expected = f"a {name} of at most {largest:g} along each axis, and cells of at least {least:g}"
                problems.add(f"{name}.upper[{axis}]", b, expected, hint)


def _check_axes(path: str, given: Sequence, schema: ModelSchema | None, physics: Any, problems: ConfigErrors) -> None:
    """Check that a grid or a box has as many axes as the model takes, and a physics key per axis as many entries."""
    ndim = len(given)
    for _, sentence in () if schema is None else schema.axes_refusals(path, given):
        problems.say(path, sentence)
    for field in dataclasses.fields(physics) if physics is not None else ():
        kind, value = field.metadata["kind"], getattr(physics, field.name)
        if isinstance(kind, ListOf) and kind.per_axis and value is not None and len(value) != ndim:
            problems.add(f"physics.{field.name}", list(value), f"{ndim} number(s), one per axis of {path}")


def _check_time(
    time: TimeConfig, checkpoint: CheckpointConfig | None, schema: ModelSchema | None, problems: ConfigErrors
) -> TimeConfig:
    every = None if checkpoint is None else checkpoint.keep_every
    if every is not None and time.end / every > MOST_FRAMES:
        problems.add("checkpoint.keep_every", every, f"at most {MOST_FRAMES} checkpoints to time.end={time.end:g}")
    if schema is not None:
        time = dataclasses.replace(time, integrator=read_integrator(time, schema, problems))
    check_steps(time, schema, problems)
    if time.dt is not None and time.end / time.dt > MOST_STEPS:
        problems.add("time.dt", time.dt, f"at most {MOST_STEPS} steps to time.end={time.end:g}")
    if time.end / time.output_every > MOST_FRAMES:
        problems.add("time.output_every", time.output_every, f"at most {MOST_FRAMES} frames to time.end={time.end:g}")
    if time.dt is None and time.courant is None and time.tolerance is None:
        return dataclasses.replace(time, courant=DEFAULT_COURANT)
    return time


def _read_sections(keys: Mapping[str, Any], context: Context) -> dict[str, Any]:
    return {
        "boundaries": Boundaries()
        if context.schema.refusal("boundaries")
        else read_boundaries(keys["boundaries"] or {}, context),
        "initial": read_fields("initial", keys["initial"] or {}, context.schema.fields, context),
        "coefficients": read_fields("coefficients", keys["coefficients"] or {}, context.schema.coefficients, context),
        "forcing": read_forcing(keys["forcing"] or {}, context),
        "closure": read_closure(keys["closure"] or {}, context),
        "sponge": read_sponge(keys["sponge"], context),
        "exact": read_exact(keys["exact"] or {}, context),
    }


def _check_output_fields(output: Any, context: Context) -> None:
    kind = Choice(tuple(context.schema.written(context.ndim, context.counts)))
    for i, name in enumerate((output.fields if output is not None else None) or ()):
        kind.read(f"output.fields[{i}]", name, context.problems)


def _check_troubles(config: Config, problems: ConfigErrors) -> None:
    """Check that the troubles that are asked for are the model's own, and that the configuration can have them."""
    known = tuple(one.name for one in config.schema.troubles)
    for i, name in enumerate(config.output.troubles or ()):
        if not known:
            problems.say("output.troubles", f"output.troubles: model={config.model} names none; leave it out")
            return
        Choice(known).read(f"output.troubles[{i}]", name, problems)
    for key in ("troubles", "fields"):
        for i, name in enumerate(getattr(config.output, key) or ()):
            one = config.schema.trouble(name)
            expected = None if one is None else one.check(config)
            if expected:
                problems.say(f"output.{key}[{i}]", f"output.{key}[{i}] = '{name}': expected {expected}")


def _check_output_particles(output: Any, context: Context) -> None:
    """Check that particles are chosen of a model that has some, and that a region has corners in order."""
    chosen, path = output.particles if output is not None else None, "output.particles"
    if chosen is None:
        return
    if refusal := context.schema.refusal(path):
        context.problems.say(path, f"{path}: {refusal}")
    elif chosen[0] == "region":
        lower, upper = chosen[1].lower, chosen[1].upper
        if not len(lower) == len(upper) == context.ndim or not all(a < b for a, b in zip(lower, upper, strict=True)):
            context.problems.say(
                f"{path}.region",
                f"{path}.region from {list(lower)} to {list(upper)}: expected two corners of {context.ndim} numbers, "
                "the upper one above the lower along each axis",
            )


def _check_process(told: Any, problems: ConfigErrors) -> None:
    if isinstance(told, DistributedConfig) and told.process >= told.processes:
        problems.add("distributed.process", told.process, f"0 to {told.processes - 1}, as there are {told.processes}")


def _check_mesh(shape: tuple[int, ...], mesh: Any, problems: ConfigErrors) -> None:
    for axis, name in enumerate(AXES):
        devices = getattr(mesh, name)
        if axis >= len(shape):
            if devices > 1:
                problems.add(f"mesh.{name}", devices, f"1: grid.shape={list(shape)} has no axis {name}")
            continue
        n = shape[axis]
        if n % devices:
            sizes = [size for size in (n - n % devices, n - n % devices + devices) if size > 0]
            fewer = max(d for d in range(1, devices) if n % d == 0)
            problems.say(
                f"mesh.{name}",
                f"grid.shape[{axis}]={n} is not divisible by mesh.{name}={devices}; "
                f"use {' or '.join(map(str, sizes))} cells, or mesh.{name}={fewer}",
            )
