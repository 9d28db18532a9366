"""Folders of runs: a new one for each run, the one to go on with, and the configuration kept inside."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simjax.deprecation import with_current_keys
from simjax.errors import CheckpointError, ConfigurationError, InputOutputError
from simjax.io.files import what_to_do, write_texts
from simjax.io.replacing import (
    GROUPS_NAME,
    PROVENANCE_NAME,
    RUN,
    require_replaceable,
    written_by_run,
)
from simjax.schema.config import Config
from simjax.schema.locate import is_url, locate_run_folder, usable_path
from simjax.schema.schema_number import SCHEMA

RUN_ID_PATTERN = r"\d{8}-\d{6}-[0-9a-f]{6}"

# What a resumed run may change: everything else is another simulation.
FREE_TO_CHANGE = (
    "schema",
    "experiment_name",
    "title",
    "resume",
    "time.end",
    "time.output_every",
    "implementation",
    "steps_per_exchange",
    "mesh",
    "distributed",
    "ensemble.batch",
    "ensemble.retry",
    "exact",
    "output",
    "checkpoint",
    "limits",
    "inverse.solver.iterations",
    "inverse.uncertainty.samples",
    "inverse.solver.tolerance",
    "inverse.checkpoint",
    "objective",
    "stop",
    "profile",
    "verify",
)

KEPT_THOUGH = ("output.particles", "output.troubles")
"""Keys below these that stay: files that a run goes on with hold the same particles and numbers throughout."""


def new_run_id() -> str:
    """The time in UTC to the second, and six random digits."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def planned_folder(config: Config) -> Path:
    """Return the folder that a new run will write, or the one in which it will be made; nothing is made yet.

    Raises:
        ConfigurationError: the folder is outside output.root, or holds what may not be overwritten.
    """
    root = Path(config.output.root).expanduser()
    if config.output.folder is None:
        return root.resolve() / config.experiment_name
    folder = locate_run_folder(config.output.root, config.output.folder)
    if folder is None:
        raise ConfigurationError(f"output.folder={config.output.folder} is outside output.root={root}.")
    if folder.is_dir() and any(folder.iterdir()):
        if not config.output.overwrite:
            raise ConfigurationError(
                f"output.folder={config.output.folder} is not empty; write resume={folder} "
                "to go on with that run, or output.overwrite=true."
            )
        require_replaceable(folder, RUN, "output.overwrite=true", _inputs_within(folder, config))
        _check_overwritable(folder, config)
    return folder


def _inputs_within(folder: Path, config: Config) -> list[Path]:
    """Files and folders inside a folder, itself included, that a configuration reads."""
    found = []
    sections = {name: value for name, value in config.write().items() if name not in ("output", "resume")}
    for key, text in _flatten("", sections, into_lists=True):
        if not isinstance(text, str) or not (text.startswith("/") or key.endswith("file")):
            continue
        with contextlib.suppress(OSError, ValueError):  # too long for a path
            path = Path(text).resolve()
            if path.exists() and path.is_relative_to(folder):
                found.append(path)
    return found


def _check_overwritable(folder: Path, config: Config) -> None:
    """Refuse to overwrite a run of another model, of other fields, or of which nothing is known."""
    import yaml

    path = folder / ".hydra" / "config.yaml"
    if not path.exists():
        return
    advice = f"choose another output.folder, or remove {folder} by hand"
    try:
        before = yaml.safe_load(path.read_text(encoding="utf-8"))
        before = {name: before.get(name) for name in ("model", "initial", "inverse")}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError):
        raise ConfigurationError(
            f"output.overwrite=true: {path} cannot be read, so what would be lost is not known; {advice}."
        ) from None
    written = config.write()
    now = {name: written.get(name) for name in before}
    differences = [] if before["model"] == now["model"] else [f"the model {before['model']}, not {now['model']}"]
    fields = [sorted(m["initial"]) if isinstance(m["initial"], Mapping) else [] for m in (before, now)]
    if fields[0] != fields[1]:
        differences.append(f"the fields {', '.join(fields[0])}, not {', '.join(fields[1])}")
    if (before["inverse"] is None) != (now["inverse"] is None):
        differences.append("an inverse problem" if before["inverse"] is not None else "no inverse problem")
    if differences:
        raise ConfigurationError(
            f"output.overwrite=true: {folder} holds another run, with {'; '.join(differences)}; {advice}."
        )


def new_run_folder(config: Config) -> Path:
    """Create the folder of a new run: output.root/experiment_name/run_id, or output.folder below output.root.

    The run_id is the time to the second and six random digits, and creating is exclusive: two runs started in
    the same second never share a folder. Raises ConfigurationError for a folder that holds files,
    InputOutputError where a folder cannot be made.
    """
    planned = planned_folder(config)
    if config.output.folder is not None:
        _make(planned, exist_ok=True)
        return planned
    parent = planned
    while True:
        run_id = new_run_id()
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
            f"the run's folder {folder} cannot be made ({error.strerror}); "
            f"{what_to_do(error, 'choose another output.root')}."
        ) from None


def clear_run_folder(folder: Path) -> None:
    """Remove what an earlier run wrote, its checkpoints first, so that nothing of it mixes with what comes.

    Raises:
        ConfigurationError: something there is not what a run wrote.
        InputOutputError: it cannot be removed.
    """
    import shutil

    require_replaceable(folder, RUN, "output.overwrite=true")
    earlier = written_by_run(folder)
    try:
        for path in sorted(earlier, key=lambda path: not path.is_dir()):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise InputOutputError(f"{folder} cannot be overwritten ({error}); choose another output.folder.") from error


def find_resumable(config: Config) -> Path | None:
    """The run to go on with: the folder that `resume` names; for auto the experiment's newest, if any.

    The newest is the one whose record says that it began last. One that was killed before its first checkpoint is
    passed over. A run in an object store, which `resume` names or, for auto, `output.copy_to` holds where no folder of
    this disk has one, is brought to this disk.

    Raises:
        CheckpointError: the run's checkpoints were removed, or of a run it cannot be read when it began.
    """
    if config.resume is None:
        return None
    parent = Path(config.output.root).expanduser().resolve() / config.experiment_name
    if is_url(config.resume):
        return _from_store(config.resume, parent)
    if config.resume != "auto":
        folder = usable_path(config.resume, "resume").expanduser()
        if not folder.is_dir():
            raise ConfigurationError(f"resume={config.resume}: expected the folder of a run, or auto.")
        require_checkpoints(folder.resolve())
        return folder.resolve()
    runs = [path for path in parent.glob("*") if (path / PROVENANCE_NAME).is_file() or _has_checkpoints(path)]
    found = sorted(((_recorded_start(path), path) for path in runs), reverse=True)
    for _, folder in found:
        if _has_checkpoints(folder) or not (folder / "checkpoints").is_dir():
            require_checkpoints(folder)
            return folder
    return None if config.output.copy_to is None else _newest_in_store(config, parent)


def _newest_in_store(config: Config, parent: Path) -> Path | None:
    from simjax.io.folder_copy import copies_in

    assert config.output.copy_to is not None
    found = copies_in(f"{config.output.copy_to.rstrip('/')}/{config.experiment_name}", PROVENANCE_NAME)
    begun = {place: _start_told(_as_mapping(text)) for place, text in found.items()}
    known = [(start, place) for place, start in begun.items() if start is not None]
    return _from_store(max(known)[1], parent) if known else None


def _from_store(url: str, parent: Path) -> Path:
    from simjax.io.folder_copy import fetched

    folder = fetched(url, parent)
    require_checkpoints(folder)
    return folder


def place_of_copy(config: Config, folder: Path) -> str | None:
    """The place of the copy of a run's folder, if one is kept.

    It is below `output.copy_to` as the folder is below `output.root`.
    """
    if config.output.copy_to is None:
        return None
    root = Path(config.output.root).expanduser().resolve()
    inside = folder.relative_to(root) if folder.is_relative_to(root) else Path(config.experiment_name, folder.name)
    return f"{config.output.copy_to.rstrip('/')}/{inside.as_posix()}"


def run_folders(config: Config) -> tuple[str | None, str]:
    """The folder of the run to go on with, if any, and the one that a run will write."""
    if config.output.copy_to is not None:
        from simjax.io.folder_copy import require_writable

        require_writable(config.output.copy_to)
    earlier = find_resumable(config)
    return (None, str(planned_folder(config))) if earlier is None else (str(earlier), str(earlier))


def require_checkpoints(folder: Path) -> None:
    """Raises CheckpointError where there is nothing to go on from."""
    checkpoints = folder / "checkpoints"
    if (folder / GROUPS_NAME).is_file():
        return  # groups of members have checkpoints of their own, or begin anew
    if not checkpoints.is_dir():
        raise CheckpointError(
            f"resume={folder}: {checkpoints} is missing, which every run has; bring it back from a copy, or run again "
            "in another folder."
        )
    if not _has_checkpoints(folder):
        raise CheckpointError(
            f"resume={folder}: {checkpoints} holds no checkpoint; bring them back from a copy, or, if the run ended "
            "before its first one, run again in another folder."
        )


def _has_checkpoints(folder: Path) -> bool:
    return (folder / GROUPS_NAME).is_file() or any(path.name.isdecimal() for path in (folder / "checkpoints").glob("*"))


def _recorded_start(folder: Path) -> tuple[str, str]:
    """Read when the run in a folder began, in UTC, and its id."""
    start = _start_told(read_provenance(folder))
    if start is None:
        raise CheckpointError(
            f"resume=auto: {folder / PROVENANCE_NAME} does not say when the run began, so the newest is not known; "
            "name the run, as in resume=FOLDER."
        )
    return start


def _start_told(provenance: Mapping[str, Any]) -> tuple[str, str] | None:
    started, run_id = provenance.get("started"), provenance.get("run_id")
    return (started, run_id) if isinstance(started, str) and isinstance(run_id, str) else None


def read_provenance(folder: Path) -> dict[str, Any]:
    """Read `provenance.json`; an empty mapping where it is missing or damaged."""
    try:
        return _as_mapping((folder / PROVENANCE_NAME).read_bytes())
    except OSError:
        return {}


def _as_mapping(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


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
        raise InputOutputError(f"{inside} cannot be written ({error.strerror}); {what_to_do(error)}.") from None
    write_texts({**(others or {}), **hydra_files(folder, config)})


def config_yaml(config: Config) -> str:
    """The whole configuration, every default filled in."""
    plain = config.write()
    known = repr(plain)  # thousands of points take PyYAML a tenth of a second, and each file of a run has the text
    if known not in _texts:
        _texts.clear()
        _texts[known] = _dump(plain)
    return _texts[known]


_texts: dict[str, str] = {}
"""The text of the configuration that was written last, by its values."""


def default_yaml() -> str:
    """Text of conf/config.yaml, composed without an experiment and without overrides."""
    from simjax.config.composition import compose

    return _dump({"schema": SCHEMA, **compose().mapping})


def _dump(plain: Any) -> str:
    import yaml

    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


def resume_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Sentences about what differs between two written configurations: (other simulation, free to change)."""
    before, after = (dict(_flatten("", with_current_keys(each, of_a_run=True))) for each in (old, new))
    refused, allowed = [], []
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path):
            sentence = f"{path} was {before.get(path)!r} and is {after.get(path)!r} now"
            free = _below(path, FREE_TO_CHANGE) and not _below(path, KEPT_THOUGH)
            (allowed if free else refused).append(sentence)
    return refused, allowed


def _below(path: str, keys: Sequence[str]) -> bool:
    return any(path == key or path.startswith(key + ".") for key in keys)


def _flatten(path: str, value: Any, into_lists: bool = False) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flatten(f"{path}.{key}" if path else str(key), item, into_lists)
    elif into_lists and isinstance(value, list):
        for item in value:
            yield from _flatten(path, item, into_lists)
    else:
        yield path, value
