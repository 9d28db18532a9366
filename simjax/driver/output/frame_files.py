"""The files that frames go into: how they are opened, and the room they need."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from simjax.config.folders import config_yaml
from simjax.driver.programs.compiled_run import CompiledRun, MemberStatistics
from simjax.driver.programs.programs_of_fields import STEPS
from simjax.driver.programs.programs_of_instruments import sample_bytes
from simjax.driver.start.build import Plan
from simjax.driver.start.environment import device_name, git_state, versions
from simjax.driver.start.taken_start import start_attribute
from simjax.io.files import require_free_space
from simjax.io.frame_output import CONSOLIDATE_BYTES, FrameWriter
from simjax.io.grid_layout import RANK, TROUBLE
from simjax.io.segments import WHOLE, Part
from simjax.models.measures import measure_of
from simjax.models.troubles import measures_of
from simjax.parallel import Bounds, whole
from simjax.processes import processes
from simjax.report.check import ROUNDING
from simjax.schema.config import Config
from simjax.schema.numbers import number_attributes

if TYPE_CHECKING:
    import xarray


def require_space(folder: Path, config: Config, programs: CompiledRun, plan: Plan, *, resumed: bool = False) -> None:
    """Raise InputOutputError where the disk of `folder` lacks room for the plan's frames, samples and checkpoints.

    A short run is copied to one file at its end, so that its frames are there twice; a checkpoint is written beside
    those that are kept.
    """
    fields, diagnostics, _ = programs.observed_shapes()
    frame = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(fields))
    if wanted := config.ensemble.statistics:
        frame *= (config.output.fields != ()) + (len(wanted.names) + len(wanted.quantiles)) / (programs.members or 1)
    frame = int(frame) + 8 * len(diagnostics) * (programs.members or 1)
    whole = frame * (plan.total + 1)
    mesh = config.mesh
    state = programs.state_bytes() * mesh.x * mesh.y * mesh.z * (programs.members or 1)
    every, remaining = config.checkpoint.keep_every, config.time.end - plan.origin.time
    states = config.checkpoint.keep + 1 + (0 if every is None else math.floor(remaining / every))
    needed = frame * (plan.total + 1 - plan.origin.frame) + states * state
    files = [whole]
    for left, all_of_one in sample_bytes(programs, plan).values():
        needed += left
        files.append(all_of_one)
    copies = sum(size for size in files if size < CONSOLIDATE_BYTES)
    require_free_space(folder, needed + copies, resumed=resumed)


def open_writer(
    folder: Path, programs: CompiledRun, config: Config, plan: Plan, run_id: str, keep_until_step: int | None = None
) -> FrameWriter:
    """A writer of the frames that `programs` observe, with the provenance of the run in every file.

    keep_until_step: of a run that goes on, the step of its checkpoint; later frames are removed.
    """
    options: dict[str, Any] = {
        "members": programs.members,
        "parameters": programs.used_parameters(plan.schedule),
        "dtype": programs.dtype,
        "diagnostics": sorted(programs.observed_shapes()[1]),
        "attributes": file_attributes(config, run_id) | start_attribute(programs.start_changes),
        "title": config.title or config.experiment_name,
        "keep_until_step": keep_until_step,
        "rounding_bits": config.output.rounding_bits,
        "about": describe_numbers(programs),
        "parts": own_parts(programs),
    }
    return programs.writer(folder, config, options)


def file_attributes(config: Config, run_id: str) -> dict[str, Any]:
    """The provenance of a run, for the root of each of its files."""
    return {
        "simjax_version": versions()["simjax"],
        "simjax_config_yaml": config_yaml(config),
        "simjax_overrides": json.dumps(list(config.overrides)),
        "simjax_seed": config.seed,
        "simjax_prng_impl": str(jax.config.jax_default_prng_impl),  # pyright: ignore[reportAttributeAccessIssue]
        "simjax_versions_json": json.dumps(versions()),
        "simjax_device": device_name(),
        "simjax_run_id": run_id,
        **git_state(),
    }


def describe_numbers(programs: CompiledRun) -> Mapping[str, Mapping[str, object]]:
    """Attributes of parameters and diagnostics by name: units, meaning, and the rank of those shown first."""
    config = programs.config
    ranks = {name: rank for rank, name in enumerate(name for name, one in programs.measures.items() if one.shown)}
    about: dict[str, Mapping[str, object]] = {**number_attributes(config.physics, config.ndim)}
    if config.particles is not None:
        starts = number_attributes(config.particles, config.ndim)
        about |= {f"start_{name}": attributes for name, attributes in starts.items()}
    about |= {name: {"long_name": name.replace("_", " ")} for name in config.parameters}
    about["courant"] = {"units": "1", "long_name": "Courant number"}
    told = "length of the last step", "steps taken so far", "steps rejected so far for their error"
    units = config.schema.time_units, "1", "1"
    about |= {n: {"units": u, "long_name": t} for n, u, t in zip(STEPS, units, told, strict=True)}
    for name in config.exact:
        about[f"error_{name}"] = {"units": "1", "long_name": f"relative error of {name}"}
    for name in programs.observed_shapes()[1]:
        measure = measure_of(programs.measures, name)
        if measure is not None:
            rank = ranks.get(name if name in programs.measures else name.rpartition("_")[0])
            ranked = {} if rank is None else {RANK: np.int32(rank)}
            text = measure.long_name or name.replace("_", " ")
            about[name] = {"units": measure.units, "long_name": text, **ranked}
        elif name.endswith(ROUNDING):
            own = about[name.removesuffix(ROUNDING)]
            about[name] = {**own, "long_name": f"{own['long_name']} that rounding may leave"}
    for one in config.troubles:
        about |= {name: {**about[name], TROUBLE: one.name} for name in measures_of((one,), config.ndim, "")}
    return about


def dataset_of(
    writer_in: Callable[[Path], FrameWriter], step: int, time: float, parts: Sequence[dict[str, np.ndarray]]
) -> xarray.Dataset:
    """One frame, as the dataset that would be read from its file."""
    from simjax.io.read import open_run

    with tempfile.TemporaryDirectory() as folder:
        writer = writer_in(Path(folder))
        writer.write_parts([step], [time], parts)
        writer.close(complete=True)
        with open_run(Path(folder)) as dataset:
            return dataset.load()


def on_host(
    programs: CompiledRun, fields, diagnostics, parts: Sequence[Part] = (WHOLE,), statistics: MemberStatistics = ()
) -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Variables and numbers of one time by part, as the writer takes them, and the numbers of all members."""
    numbers = {name: np.asarray(whole(d), np.float64)[None] for name, d in diagnostics.items()}
    written = []
    for part in parts:
        members = slice(*part.ranges.get("member", (None,)))
        own = {name: u[None] for name, u in programs.assemble(fields, part.ranges).items()}
        own |= programs.written_statistics(statistics, part.ranges)
        written.append(own | {name: d[:, members] if d.ndim > 1 else d for name, d in numbers.items()})
    return written, numbers


def own_parts(programs: CompiledRun) -> list[Part]:
    """The parts of the variables that this process writes: where all its devices hold one block together, one part."""
    group, mesh = processes(), programs.mesh
    if group.count == 1 or mesh is None:
        return [WHOLE]
    shape, spec = programs.cut_shape
    blocks: list[list[Bounds]] = [[] for _ in range(group.count)]
    for device, index in NamedSharding(mesh, spec).devices_indices_map(shape).items():
        bounds = tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
        blocks[device.process_index].append(bounds)
    found: list[tuple[int, Bounds]] = []
    for who, own in enumerate(blocks):
        found += [(who, bounds) for bounds in _joined(own)]
    shared = [[who for who, other in found if other == bounds] for _, bounds in found]
    parts = [
        programs.ranges_of(bounds, own.index(who), len(own)) for (who, bounds), own in zip(found, shared, strict=True)
    ]
    return [
        Part(number, ranges)
        for number, ((who, _), ranges) in enumerate(zip(found, parts, strict=True))
        if who == group.index
    ]


def _joined(blocks: Sequence[Bounds]) -> list[Bounds]:
    """Join blocks into one block if they fill it without gaps; else each by itself, once."""
    different = list(dict.fromkeys(blocks))
    around = tuple((min(a for a, _ in axis), max(b for _, b in axis)) for axis in zip(*different, strict=True))
    cells = sum(math.prod(b - a for a, b in block) for block in different)
    return [around] if cells == math.prod(b - a for a, b in around) else different
