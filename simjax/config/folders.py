"""Folders of runs: a new one for each run, the one to go on with, and the configuration kept inside."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from simjax.config.locate import locate_run_folder
from simjax.config.schema import Config
from simjax.core.errors import CheckpointError, ConfigurationError, InputOutputError

# What a resumed run may change: everything else is another simulation.
FREE_TO_CHANGE = (
    "experiment_name", "title", "resume", "time.end", "time.output_every", "implementation", "steps_per_exchange",
    "mesh", "ensemble.batch", "exact", "output", "checkpoint", "limits", "inverse.solver.iterations",
    "inverse.solver.tolerance", "inverse.checkpoint",
)  # fmt: skip


def new_run_folder(config: Config) -> Path:
    """Create the folder of a new run: output.root/experiment_name/run_id, or output.folder below output.root.

    The run_id is the time to the second and six random digits, and creating is exclusive: two runs started in
    the same second never share a folder. Raises ConfigurationError for a folder that holds files,
    InputOutputError where a folder cannot be made.
    """
    root = Path(config.output.root).expanduser()
    if config.output.folder is not None:
        folder = locate_run_folder(config.output.root, config.output.folder)
        if folder is None:
            raise ConfigurationError(f"output.folder={config.output.folder} is outside output.root={root}.")
        _make(folder, exist_ok=True)
        if any(folder.iterdir()) and not config.output.overwrite:
            raise ConfigurationError(
                f"output.folder={config.output.folder} is not empty; write resume={folder} "
                "to go on with that run, or output.overwrite=true."
            )
        return folder
    parent = root.resolve() / config.experiment_name
    while True:
        run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        try:
            _make(parent / run_id, exist_ok=False)
        except FileExistsError:
            continue
        return parent / run_id


def _make(folder: Path, *, exist_ok: bool) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        if isinstance(error, FileExistsError) and folder.is_dir():
            raise
        raise InputOutputError(
            f"the run's folder {folder} cannot be made ({error.strerror}); choose another output.root."
        ) from None


def find_resumable(config: Config) -> Path | None:
    """The run to go on with: the folder that `resume` names; for auto the experiment's newest, if any."""
    if config.resume is None:
        return None
    if config.resume != "auto":
        folder = Path(config.resume).expanduser()
        if not folder.is_dir():
            raise ConfigurationError(f"resume={config.resume}: expected the folder of a run, or auto.")
        return folder.resolve()
    parent = Path(config.output.root).expanduser().resolve() / config.experiment_name
    runs = sorted((path for path in parent.glob("*/checkpoints") if any(path.iterdir())), reverse=True)
    return runs[0].parent if runs else None


def hydra_files(folder: Path, config: Config) -> dict[Path, str]:
    """The files of `.hydra` with their text: `hydra.yaml`, `overrides.yaml`, and last `config.yaml`, by which a run is
    resumed: complete and resolved."""
    hydra = {"hydra": {"run": {"dir": str(folder)}, "job": {"name": config.experiment_name, "chdir": False}}}
    inside = folder / ".hydra"
    return {
        inside / "hydra.yaml": _dump(hydra),
        inside / "overrides.yaml": _dump(list(config.overrides)),
        inside / "config.yaml": config_yaml(config),
    }


def write_hydra_folder(folder: Path, config: Config, others: Mapping[Path, str] | None = None) -> None:
    """Write `.hydra` and the text files `others` in one step: a full disk leaves all of them as they were."""
    inside = folder / ".hydra"
    try:
        inside.mkdir(exist_ok=True)
    except OSError as error:
        raise InputOutputError(f"{inside} cannot be written ({error.strerror}).") from None
    write_texts({**(others or {}), **hydra_files(folder, config)})


def config_yaml(config: Config) -> str:
    """The whole configuration, every default filled in."""
    return _dump(dict(config.mapping))


def default_yaml() -> str:
    """What conf/config.yaml says without an experiment and without overrides."""
    from simjax.config.composition import compose

    return _dump(dict(compose().mapping))


def _dump(plain: Any) -> str:
    import yaml

    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


def check_same_simulation(folder: Path, config: Config) -> list[str]:
    """Sentences about what a resumed run does differently; refused where it would be another simulation."""
    import yaml

    path = folder / ".hydra" / "config.yaml"
    try:
        before = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise CheckpointError(f"resume={folder}: {path} cannot be read ({error}).") from None
    refused, allowed = resume_differences(before, config.mapping)
    if refused:
        raise ConfigurationError(
            f"resume={folder} is another simulation: {'; '.join(refused)}. Start a new run instead."
        )
    return [f"On resuming, {sentence}." for sentence in allowed if not sentence.startswith("resume ")]


def resume_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Sentences about what differs between two `Config.mapping`: (other simulation, free to change)."""
    before, after = dict(_flatten("", old)), dict(_flatten("", new))
    refused, allowed = [], []
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path):
            sentence = f"{path} was {before.get(path)!r} and is {after.get(path)!r} now"
            free = any(path == key or path.startswith(key + ".") for key in FREE_TO_CHANGE)
            (allowed if free else refused).append(sentence)
    return refused, allowed


def _flatten(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flatten(f"{path}.{key}" if path else str(key), item)
    else:
        yield path, value
