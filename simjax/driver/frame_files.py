"""The files that frames go into: how they are opened, and the room they need."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from simjax.config.folders import config_yaml
from simjax.driver.build import Plan
from simjax.driver.environment import device_name, git_state, versions
from simjax.driver.programs import Programs
from simjax.io.files import require_free_space
from simjax.io.frame_output import CONSOLIDATE_BYTES, FrameWriter
from simjax.schema.config import Config

if TYPE_CHECKING:
    import xarray


def require_space(folder: Path, config: Config, programs: Programs, plan: Plan, *, resumed: bool = False) -> None:
    """Raise InputOutputError where the disk of `folder` lacks room for the plan's frames and for checkpoints.

    A short run is copied to one file at its end, so that its frames are there twice; a checkpoint is written beside
    those that are kept.
    """
    fields, diagnostics, _ = programs.observed_shapes()
    frame = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(fields)) + 8 * len(diagnostics)
    whole = frame * (plan.total + 1)
    mesh = config.mesh
    state = programs.state_bytes() * mesh.x * mesh.y * mesh.z * (programs.members or 1)
    needed = frame * (plan.total + 1 - plan.origin.frame) + (config.checkpoint.keep + 1) * state
    require_free_space(folder, needed + (whole if whole < CONSOLIDATE_BYTES else 0), resumed=resumed)


def open_writer(
    folder: Path, programs: Programs, config: Config, plan: Plan, run_id: str, keep_until_step: int | None = None
) -> FrameWriter:
    """A writer of the frames that `programs` observe, with the provenance of the run in every file.

    keep_until_step: of a run that goes on, the step of its checkpoint; later frames are removed.
    """
    attributes = {
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
    return programs.open_writer(
        folder, plan.schedule, diagnostics=sorted(programs.observed_shapes()[1]), attributes=attributes,
        title=config.title or config.experiment_name, keep_until_step=keep_until_step,
        rounding_bits=config.output.rounding_bits,
    )  # fmt: skip


def dataset_of(
    writer_in: Callable[[Path], FrameWriter], step: int, time: float, fields: dict[str, np.ndarray],
    diagnostics: dict[str, np.ndarray],
) -> xarray.Dataset:  # fmt: skip
    """One frame, as the dataset that would be read from its file."""
    from simjax.io.read import open_run

    with tempfile.TemporaryDirectory() as folder:
        writer = writer_in(Path(folder))
        writer.write([step], [time], fields, diagnostics)
        writer.close(complete=True)
        with open_run(Path(folder)) as dataset:
            return dataset.load()


def as_written(programs: Programs, fields, diagnostics) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Fields and diagnostics of one time, as the writer takes them."""
    whole = programs.assemble({name: np.asarray(u) for name, u in fields.items()})
    written = {name: u[None] for name, u in whole.items()}
    return written, {name: np.asarray(d, np.float64)[None] for name, d in diagnostics.items()}
