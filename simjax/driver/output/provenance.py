"""Identity of the run in a folder: its id, what computed each part, and whether a resume is the same simulation."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from simjax.config.folders import (
    PROVENANCE_NAME,
    RUN_ID_PATTERN,
    config_yaml,
    new_run_id,
    read_provenance,
    resume_differences,
    write_hydra_folder,
)
from simjax.driver.programs.compile_cache import Compilations
from simjax.driver.start.environment import command_line, device_name, git_state, versions
from simjax.errors import CheckpointError, ConfigurationError, InputOutputError
from simjax.io.checkpoint import Checkpoints, Restored, require_meta
from simjax.io.files import write_text
from simjax.schema.config import Config

SCHEMA = 1
COMPLETED = "completed"
"""Beginning of the recorded outcome of a part that finished."""
# Parameters of more members than this are recorded by their checksum.
MOST_VALUES = 1000


@dataclass(frozen=True)
class Run:
    """id: unlike that of any other run, wherever its folder is moved. started: UTC, as ISO 8601 writes it."""

    id: str
    started: str


def new_run(folder: Path) -> Run:
    """A run that begins now; its id is the folder's name, where that was made for it."""
    name = folder.name
    run_id = name if re.fullmatch(RUN_ID_PATTERN, name) else new_run_id()
    return Run(run_id, _now())


def description(run: Run, config: Config, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a run for its checkpoints: configuration, versions, devices and parameters."""
    import jax

    text = config_yaml(config)
    return {
        "schema": SCHEMA,
        "run_id": run.id,
        "started": run.started,
        "config": text,
        "config_sha256": _digest(text),
        "versions": versions(),
        "device": {"kind": jax.devices()[0].device_kind, "count": config.mesh.devices},
        "parameters": {name: _recorded(value) for name, value in parameters.items()},
    }


def _recorded(value) -> Any:
    values = np.asarray(value, np.float64)
    if values.size <= MOST_VALUES:
        return values.tolist()
    return {"count": int(values.size), "sha256": hashlib.sha256(values.tobytes()).hexdigest()}


def config_digest(config: Config) -> str:
    """The SHA-256 of a configuration as its run's folder keeps it."""
    return _digest(config_yaml(config))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# ---------------------------------------------------------------------- going on


def check_same_run(
    folder: Path, config: Config, parameters: Mapping[str, Any], recorded: Mapping[str, Any]
) -> tuple[Run, list[str]]:
    """The run that a checkpoint belongs to, and sentences about what is done differently from now on.

    recorded: the `description` in the checkpoint.

    Raises:
        ConfigurationError: the command or the experiment asks for another simulation.
        CheckpointError: the folder's configuration was edited, is that of another run, or makes other parameters.
    """
    if not isinstance(recorded, Mapping) or recorded.get("schema") != SCHEMA:
        raise CheckpointError(
            f"resume={folder}: its checkpoint does not say which simulation it belongs to, as this version of simjax "
            "writes it; go on with the version that wrote it, or run again in another folder."
        )
    own = read_provenance(folder)
    if own.get("run_id", recorded["run_id"]) != recorded["run_id"]:
        raise CheckpointError(
            f"resume={folder}: its checkpoints belong to the run {recorded['run_id']}, its {PROVENANCE_NAME} to "
            f"{own['run_id']}; bring the run's own checkpoints back from a copy."
        )
    _check_not_edited(folder, own, recorded)
    refused, allowed = resume_differences(_mapping(recorded["config"]), config.write())
    if refused:
        raise ConfigurationError(
            f"resume={folder} is another simulation: {'; '.join(refused)}. Start a new run instead."
        )
    now = {name: _recorded(value) for name, value in parameters.items()}
    before = recorded["parameters"]
    if now != before:
        names = sorted(n for n in {*now, *before} if now.get(n) != before.get(n))
        raise CheckpointError(
            f"resume={folder}: {', '.join(names)} of its checkpoint is {_short(before, names[0])} and "
            f"this version of simjax makes it {_short(now, names[0])}; go on with the version that wrote it."
        )
    notes = [f"On resuming, {sentence}." for sentence in allowed if not sentence.startswith("resume ")]
    table = version_table(recorded, description(Run("", ""), config, {}))
    return Run(recorded["run_id"], recorded["started"]), notes + ([table] if table else [])


RUN_META = {
    "time": float,
    "interval": float,
    "frame_time": float,
    "origin_time": float,
    "origin_frame": int,
    "halvings": int,
}
"""What the checkpoint of a run says of itself, beside the description of the run."""


def restore(
    folder: Path,
    config: Config,
    parameters: Mapping[str, Any],
    template: Callable[[dict[str, Any]], Any],
    wanted: Mapping[str, type] = RUN_META,
) -> tuple[Run, Restored, list[str]]:
    """The run in a folder, its newest whole checkpoint, and sentences about what is done differently from now on.

    template: of what the checkpoint holds, from what it says of itself (`Checkpoints.latest`), which has at least the
    `wanted` keys.

    Raises:
        ConfigurationError, CheckpointError: another simulation, as in `check_same_run`, or no checkpoint is whole.
    """
    checkpoints, same = Checkpoints(folder / "checkpoints", config.checkpoint.keep), []

    def checked(meta):
        require_meta(meta, wanted)
        same[:] = check_same_run(folder, config, parameters, meta.get("run"))
        return template(meta)

    restored = checkpoints.latest(checked)
    checkpoints.close()
    if restored is None:
        raise CheckpointError(f"resume={folder}: the run has no checkpoint; start it again in another folder.")
    run, notes = same
    return run, restored, notes + restored.skipped


def _short(values: Mapping[str, Any], name: str) -> str:
    text = json.dumps(values.get(name))
    return text if len(text) < 80 else text[:77] + "..."


def _mapping(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)


def _check_not_edited(folder: Path, own: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    """Refuses a `.hydra/config.yaml` that neither this run's checkpoint nor any of its parts began with."""
    import yaml

    path = folder / ".hydra" / "config.yaml"
    try:
        text = path.read_text(encoding="utf-8")
        found = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CheckpointError(f"resume={folder}: {path} cannot be read ({error}).") from None
    known = {recorded["config_sha256"], *(part.get("config_sha256") for part in _parts(own))}
    if _digest(text) in known:
        return
    refused, allowed = resume_differences(_mapping(recorded["config"]), found if isinstance(found, Mapping) else {})
    allowed = [sentence for sentence in allowed if not sentence.startswith("resume ")]
    if refused or allowed:
        raise CheckpointError(
            f"resume={folder}: {path} was changed after the run had begun: {'; '.join([*refused, *allowed])}. Put back "
            "what it said; what a resumed run may change, such as time.end, is given on the command line."
        )


def require_frames(folder: Path, kept: int, expected: int | None) -> None:
    """Raises InputOutputError where there are not as many frames up to a checkpoint as there were when it was saved."""
    if expected is not None and kept != expected:
        raise InputOutputError(
            f"resume={folder}: {kept} frames are there up to the checkpoint where {expected} were written; bring the "
            "whole folder back from a copy."
        )


def version_table(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Tabulate versions and devices that differ from those of the run so far; empty if none do."""
    rows = [
        (name, str(before["versions"].get(name, "not recorded")), str(now["versions"].get(name, "not installed")))
        for name in dict.fromkeys([*before["versions"], *now["versions"]])
    ]
    device = "{count} x {kind}".format
    rows.append(("devices", device(**before["device"]), device(**now["device"])))
    changed = [("", "before", "now"), *(row for row in rows if row[1] != row[2])]
    if len(changed) == 1:
        return ""
    widths = [max(len(row[column]) for row in changed) for column in range(3)]
    lines = ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in changed]
    return "\n".join(["This part of the run is computed by others than the one before; rounding may differ.", *lines])


# ---------------------------------------------------------------------- parts


class Part:
    """One stretch of a run, computed by one process, as `provenance.json` tells of it.

    Nothing is written before `begin`, so a resume that fails earlier leaves the folder and its configuration alone.
    from_step: the step that it goes on from; None for a new run.
    """

    def __init__(self, folder: Path, config: Config, run: Run, *, from_step: int | None, notes: Sequence[str] = ()):
        self.folder, self.config, self.run = folder, config, run
        self._part: dict[str, Any] = {
            "started": _now(),
            "from_step": from_step or 0,
            "command": command_line(),
            "overrides": list(config.overrides),
            "notes": list(notes),
            "config_sha256": config_digest(config),
            "device": device_name(),
            "versions": versions(),
            "mesh": {name: getattr(config.mesh, name) for name in ("x", "y", "z", "ensemble")},
            **git_state(),
        }
        self._earlier = _parts(read_provenance(folder)) if from_step is not None else []

    @property
    def started(self) -> str:
        """The time at which the part began, UTC."""
        return self._part["started"]

    def begin(self, others: Mapping[Path, str] | None = None) -> None:
        """Write the configuration, the provenance and the text files `others`, all of them or none."""
        write_hydra_folder(self.folder, self.config, {**(others or {}), self._path: self._text()})

    def end(self, outcome: str, compiled: Compilations, failed_checks: Sequence[str] = ()) -> None:
        """Record how the part ended, a sentence for each check that failed, and what was compiled for it."""
        self._part |= {
            "ended": _now(),
            "outcome": outcome,
            "failed_checks": list(failed_checks),
            "programs": compiled.described(),
        }
        write_text(self._path, self._text())

    @property
    def _path(self) -> Path:
        return self.folder / PROVENANCE_NAME

    def _text(self) -> str:
        provenance = {"run_id": self.run.id, "started": self.run.started, "parts": [*self._earlier, self._part]}
        return json.dumps(provenance, indent=1) + "\n"


def _parts(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = provenance.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def last_outcome(folder: Path) -> str | None:
    """Read how the last part of the run in a folder ended; None if it did not end in good order."""
    parts = _parts(read_provenance(folder))
    return parts[-1].get("outcome") if parts else None
