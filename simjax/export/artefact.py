"""Folders with an exported program: the program, arguments to call it with, and what they are."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax

from simjax.driver.start.environment import set_up_jax, versions
from simjax.errors import ConfigurationError, ResourceError
from simjax.export.functions import Exportable, exportable, require_function, sharding_of, with_leading_axis
from simjax.export.tesseract import tesseract_files
from simjax.io.files import write_files
from simjax.io.replacing import EXPORT, EXPORTED, require_replaceable
from simjax.jaxpr.platform import kind, tracing_for
from simjax.schema.config import Config

PROGRAM_NAME, ARGUMENTS_NAME, META_NAME = EXPORTED[:3]
FORMAT = 1
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export_run(
    config: Config,
    folder: Path,
    *,
    what: str = "rollout",
    vjp_order: int = 1,
    platforms: Sequence[str] = ("cpu",),
    batch: str | None = None,
    tesseract: bool = False,
) -> dict[str, Any]:
    """Write a function of a configuration as a program that `jax.export.deserialize` reads; see `export.functions`.

    The program takes one dictionary of arrays by name, those of `arguments.npz`, and returns another.

    Args:
        folder: made where it is not there; files of an earlier export in it are replaced, and no others.
        what: `rollout`, `step` or `loss`.
        vjp_order: how often the program can be differentiated in reverse mode.
        platforms: for which it is compiled where it is called.
        batch: name of a leading axis of any length on every argument and result; None: there is none.
        tesseract: whether the files that make a Tesseract of the folder are written as well.

    Returns:
        What `meta.json` says.

    Raises:
        ConfigurationError: the function cannot be exported, an option is none, or the folder has files of these names
            that are not those of an export.
        ResourceError: `flatbuffers` is not installed.
    """
    _require(what, vjp_order, platforms, batch)
    if tesseract and vjp_order == 0:
        raise ConfigurationError("vjp_order=0: expected 1 for a Tesseract, which has gradients.")
    require_replaceable(folder, EXPORT, f"folder={folder}")
    config = set_up_jax(config)
    if batch is not None and config.mesh.devices > 1:
        raise ConfigurationError(
            f"batch={batch}: expected a run on one device, got a mesh of {config.mesh.devices}; leave out one of both."
        )
    made = exportable(what, config)
    program = _exported(made, platforms, batch)
    try:
        content = bytes(program.serialize(vjp_order=vjp_order))
    except ImportError:
        raise ResourceError(
            "an export is written by flatbuffers, which is not installed; write pip install 'simjax[export]'."
        ) from None
    results = jax.tree.unflatten(program.out_tree, program.out_avals)
    meta = {
        "format": FORMAT,
        "what": what,
        "model": config.model,
        "experiment": config.experiment_name,
        "title": config.title,
        "precision": config.precision,
        "vjp_order": vjp_order,
        "platforms": list(platforms),
        "batch": batch,
        "devices": program.nr_devices,
        "mesh": dict(_mesh(made)),
        **made.extra,
        "arguments": made.describe(made.arguments),
        "results": made.describe(results),
        "versions": versions(),
        "sha256": hashlib.sha256(content).hexdigest(),
        "configuration": config.write(),
    }
    arguments = io.BytesIO()
    given: dict[str, Any] = {name: np.asarray(value) for name, value in made.arguments.items()}
    np.savez(arguments, **given)
    files = {PROGRAM_NAME: content, ARGUMENTS_NAME: arguments.getvalue()}
    if tesseract:
        files |= tesseract_files(meta, (PROGRAM_NAME, META_NAME))
    # By these a later export knows its own files, and replaces no others.
    meta["files"] = {name: hashlib.sha256(written).hexdigest() for name, written in files.items()}
    files[META_NAME] = f"{json.dumps(meta, indent=1)}\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    write_files({folder / name: written for name, written in files.items()})
    return meta


def _require(what: str, vjp_order: int, platforms: Sequence[str], batch: str | None) -> None:
    require_function(what)
    if vjp_order not in (0, 1, 2):
        raise ConfigurationError(f"vjp_order={vjp_order}: expected 0, 1 or 2, how often the program is differentiated.")
    unknown = [name for name in platforms if name not in PLATFORMS]
    if unknown or not platforms:
        raise ConfigurationError(f"platforms={list(platforms)}: expected some of {', '.join(PLATFORMS)}.")
    if batch is not None and not batch.isidentifier():
        raise ConfigurationError(f"batch={batch}: expected the name of an axis, such as b.")


def _exported(made: Exportable, platforms: Sequence[str], batch: str | None) -> jax.export.Exported:
    function: Callable = _by_platform(made.function, platforms)
    shapes = made.shapes()
    if batch is not None:
        (size,) = jax.export.symbolic_shape(batch)
        function = jax.vmap(function)
        shapes = with_leading_axis(shapes, size)
    try:
        return jax.export.export(jax.jit(function), platforms=tuple(platforms))(shapes)
    except (NotImplementedError, ValueError, jax.errors.JAXTypeError) as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigurationError(
            f"this function cannot be exported for {', '.join(platforms)}{f' with batch={batch}' if batch else ''}: "
            f"{first} Write implementation=xla, one platform, or no batch."
        ) from error


def _by_platform(function: Callable, platforms: Sequence[str]) -> Callable:
    """`function` as it is written for the platforms, traced once for each kind of them."""

    def traced_for(name: str) -> Callable:
        def traced(*arguments):
            with tracing_for(name):
                return function(*arguments)

        return traced

    if len({*map(kind, platforms)}) == 1:
        return traced_for(platforms[0])
    return lambda *arguments: lax.platform_dependent(*arguments, **{name: traced_for(name) for name in platforms})


def _mesh(made: Exportable) -> dict[str, int]:
    found = (sharding_of(u) for u in made.arguments.values())
    return next((dict(s.mesh.shape) for s in found if s is not None), {})
