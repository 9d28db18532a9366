"""Files that simjax may replace: those that it wrote itself, of the kind that it writes now, and never what it reads.

Every door that writes where a user says asks `require_replaceable` before anything is computed: runs with
`output.overwrite`, trainings, exports, data for learning, and what the inspection of a program leaves.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import h5py

from simjax.errors import ConfigurationError
from simjax.io.checkpoint import MANIFEST_NAME, list_checkpoints
from simjax.io.files import TEMPORARY_SUFFIX
from simjax.schema.locate import usable_path

PROVENANCE_NAME = "provenance.json"
DRAWS_NAME = "draws.h5"
"""Mean and spread of the draws of a search, from which more draws go on."""
GROUPS_NAME, GROUPS_FOLDER = "groups.json", "groups"
CHECKPOINTS_FOLDER = "checkpoints"
TRAINING_LAYOUT = "simjax training/1"
TRAINING_NAME, MODULE_NAME, TRAINING_PICTURE_NAME = "training.h5", "module.eqx", "training.png"
DATA_LAYOUTS = ("simjax well/1", "simjax pdebench/1")
VIEW_LAYOUT = "simjax view/1"
"""Mark of a file for another program that shows the values of a run's own files."""
LAYOUT_ATTRIBUTE = "simjax_layout"
PICTURE_MARK = "simjax"
"""Text `Software` of a PNG."""
INSPECTION_FORMAT = "simjax inspection/1"
LARGEST_RECORD = 64 << 20  # bytes of a JSON file that is looked at; ours are far below

# All that a run writes beside `.hydra`, checkpoints, and the files of its output formats.
_WRITTEN = (
    PROVENANCE_NAME,
    "metrics.jsonl",
    "goodput.jsonl",
    "run.log",
    "report.html",
    "summary.png",
    "summary.pdf",
    "summary.svg",
    "animation.webp",
    "diagnostics.h5",
    "ensemble.h5",
    "inversion.h5",
    DRAWS_NAME,
    GROUPS_NAME,
    *(f"{place}/*/{name}" for place in ("outputs", "statistics") for name in ("samples.h5", "data/samples.p*.s*.h5")),
    "events/*/diagnostics.h5",
)
_HYDRA = (".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml")
_MODULES = ("*.eqx",)
"""Modules that a search writes: they stay where another run replaces it, as a user's own would look the same."""
HDF5 = (".h5", ".h5md", ".vtkhdf")

Foreign = tuple[Path, str]
"""A file or folder that may not be replaced, and what it is instead."""


@dataclass(frozen=True)
class Kind:
    """A kind of file or folder that simjax writes at a path.

    noun: of it. foreign: finds what is at a path and is no such thing. files: those at a path that would be replaced.
    """

    noun: str
    foreign: Callable[[Path], Iterator[Foreign]]
    files: Callable[[Path], list[Path]]


def require_replaceable(path: Path, kind: Kind, door: str, inputs: Iterable[Path] = ()) -> None:
    """Refuse to write where something else is than what simjax wrote before, or where it reads.

    Args:
        path: the file or folder that is to be written.
        kind: what is to be written: RUN, TRAINING, EXPORT, DATA, INSPECTION or PICTURE.
        door: how the user named the path, such as "--file".
        inputs: files that are read on the way, and folders of which any file may be.

    Raises:
        ConfigurationError: no system can have the path, or a file would be lost, which the sentence names.
    """
    path = usable_path(path, door.partition("=")[0].partition(" ")[0])
    replaced = kind.files(path)
    if not replaced:
        return
    for own in inputs:
        lost = next((file for file in replaced if _is_read(file, own)), None)
        if lost is not None:
            raise ConfigurationError(
                f"{door}: {lost} is read for what is to be written, and would be lost; name another place."
            )
    for foreign, what in kind.foreign(path):
        raise ConfigurationError(
            f"{door}: {foreign} {what}, and simjax replaces only {kind.noun} that it wrote; name another place, or "
            "remove it by hand."
        )


def _is_read(file: Path, own: Path) -> bool:
    """Tell whether a file that would be replaced is an input, under any of its names, or lies in a folder of inputs."""
    try:
        if own.is_dir():
            return file.resolve().is_relative_to(own.resolve())
        return file.exists() and own.exists() and os.path.samefile(file, own)
    except OSError:
        return False


# ---------------------------------------------------------------------- runs


def _patterns() -> tuple[str, ...]:
    """Patterns of the files of a run, without `.hydra` and checkpoints."""
    from simjax.io.formats import output_formats

    of_frames = [pattern for form in output_formats() for pattern in form.patterns]
    return (*_WRITTEN, *of_frames, *(f"events/*/{pattern}" for pattern in of_frames))


def written_by_run(folder: Path) -> list[Path]:
    """Files and checkpoints in a folder that have the names of those which a run writes, and so replaces."""
    found = _present(folder, _patterns())
    found += list_checkpoints(folder / CHECKPOINTS_FOLDER)
    for group in sorted((folder / GROUPS_FOLDER).glob("*")):
        found += [*written_by_run(group), *_present(group, _HYDRA)] if group.is_dir() else [group]
    return list(dict.fromkeys(found))


def remove_temporaries(folder: Path) -> None:
    """Remove the unfinished files that a killed run left in a folder, and none of another program's."""
    names = [PurePosixPath(pattern).name for pattern in (*_patterns(), *_HYDRA, *_MODULES)]
    for path in folder.glob("*" + TEMPORARY_SUFFIX):
        if any(PurePosixPath(path.name.removesuffix(TEMPORARY_SUFFIX)).match(name) for name in names):
            path.unlink(missing_ok=True)


def is_name_of_run(name: str) -> bool:
    """Tell whether a path relative to a run's folder has the name of a file that a run writes."""
    parts = PurePosixPath(name).parts
    if parts[:1] == (GROUPS_FOLDER,) and len(parts) > 2:
        return is_name_of_run("/".join(parts[2:]))
    if parts[:1] == (CHECKPOINTS_FOLDER,):
        return len(parts) > 2 and parts[1].isdecimal()
    patterns = (*_patterns(), *_HYDRA)
    return any(len(parts) == pattern.count("/") + 1 and PurePosixPath(name).match(pattern) for pattern in patterns)


def is_provenance(text: bytes | str) -> bool:
    """Tell whether a text is that of a run's `provenance.json`."""
    record = _as_mapping(text)
    return isinstance(record.get("run_id"), str) and isinstance(record.get("parts"), list)


def _of_run(folder: Path) -> list[Path]:
    return [*written_by_run(folder), *_present(folder, (*_HYDRA, *_MODULES))]


def _foreign_to_run(folder: Path) -> Iterator[Foreign]:
    """Files that do not tell of a run themselves, and lie beside no record of one."""
    provenance = folder / PROVENANCE_NAME
    if provenance.exists() and not is_provenance(_record_text(provenance)):
        yield provenance, f"cannot be read as that of a run, so what {folder} holds is not known"
    for path in _of_run(folder):
        if path.is_symlink():
            yield path, "is a link"
        elif path.is_dir():
            if not isinstance(_manifest_meta(path).get("run"), dict):
                yield path, "is no checkpoint of a run"
        elif path.suffix in HDF5:
            if not any(name.startswith("simjax_") for name in _attributes(path)):
                yield path, "does not say that a run wrote it"
        elif not provenance.exists():
            yield path, f"lies beside no {PROVENANCE_NAME}"


RUN = Kind("a run", _foreign_to_run, _of_run)


# ---------------------------------------------------------------------- trainings


def _of_training(folder: Path) -> list[Path]:
    files = _present(folder, (TRAINING_NAME, MODULE_NAME, TRAINING_PICTURE_NAME))
    return [*files, *list_checkpoints(folder / CHECKPOINTS_FOLDER)]


def _foreign_to_training(folder: Path) -> Iterator[Foreign]:
    known = False
    for path in list_checkpoints(folder / CHECKPOINTS_FOLDER):
        meta = _manifest_meta(path)
        if "run" in meta or not isinstance(meta.get("history"), list):
            yield path, "is no checkpoint of a training"
        known = True
    history = folder / TRAINING_NAME
    if history.exists():
        if _attributes(history).get(LAYOUT_ATTRIBUTE) != TRAINING_LAYOUT:
            yield history, "does not say that a training wrote it"
        known = True
    for path in _of_training(folder):
        if path.is_symlink():
            yield path, "is a link"
        if not known:  # arrays of a module do not tell where they are from
            yield path, f"lies beside no {TRAINING_NAME}"


TRAINING = Kind("a training", _foreign_to_training, _of_training)


# ---------------------------------------------------------------------- exports


EXPORTED = (
    "program.jax",
    "arguments.npz",
    "meta.json",
    "tesseract_api.py",
    "tesseract_config.yaml",
    "tesseract_requirements.txt",
)
"""Names of the files of an export; the third tells the digests of the others."""


def _of_export(folder: Path) -> list[Path]:
    return _present(folder, EXPORTED)


def _foreign_to_export(folder: Path) -> Iterator[Foreign]:
    """Files whose digests are not those that `meta.json` tells."""
    meta = folder / EXPORTED[2]
    record = _as_mapping(_record_text(meta))
    digests = record.get("files")
    for path in _of_export(folder):
        if path.is_symlink():
            yield path, "is a link"
        elif path == meta:
            if not isinstance(digests, dict):
                yield path, "is not that of an export"
        elif not isinstance(digests, dict) or digests.get(path.name) != _digest(path):
            yield path, f"is not the file that {meta.name} beside it names"


EXPORT = Kind("an export", _foreign_to_export, _of_export)


# ---------------------------------------------------------------------- single files


def _itself(path: Path) -> list[Path]:
    return [path] if os.path.lexists(path) else []


def _of_file(is_own: Callable[[Path], bool]) -> Callable[[Path], Iterator[Foreign]]:
    """Finds a link, a folder, or a file that does not say that simjax wrote it."""

    def foreign(path: Path) -> Iterator[Foreign]:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            yield path, "is a link"
        elif not stat.S_ISREG(mode):
            yield path, "is no file"
        elif not is_own(path):
            yield path, "does not say that simjax wrote it"

    return foreign


def _is_picture(path: Path) -> bool:
    """Tell whether a PNG names simjax as the software that drew it."""
    with path.open("rb") as file:
        return b"tEXtSoftware\0" + PICTURE_MARK.encode() in file.read(4096)


DATA = Kind("data", _of_file(lambda path: _attributes(path).get(LAYOUT_ATTRIBUTE) in DATA_LAYOUTS), _itself)
INSPECTION = Kind(
    "an inspection", _of_file(lambda path: _as_mapping(_record_text(path)).get("format") == INSPECTION_FORMAT), _itself
)
PICTURE = Kind("a picture", _of_file(_is_picture), _itself)


# ---------------------------------------------------------------------- what files say of themselves


def _present(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def _attributes(path: Path) -> dict[str, Any]:
    """Texts and numbers that an HDF5 file says of itself; none where it is no HDF5 file, or cannot be read."""
    try:
        with h5py.File(path, "r") as file:
            return {name: value for name, value in file.attrs.items() if isinstance(value, str)}
    except (OSError, RuntimeError, KeyError, ValueError, TypeError):
        return {}


def _record_text(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.lstat().st_mode) or path.stat().st_size > LARGEST_RECORD:
            return b""
        return path.read_bytes()
    except OSError:
        return b""


def _as_mapping(text: bytes | str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _manifest_meta(checkpoint: Path) -> dict[str, Any]:
    meta = _as_mapping(_record_text(checkpoint / MANIFEST_NAME)).get("meta")
    return meta if isinstance(meta, dict) else {}


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
