"""Copies of runs' folders in object stores, from which they go on elsewhere.

In a run's folder every file is replaced by a whole one, and segments are written before the file over them, and that
before the checkpoint that counts its frames. A copy keeps this order: so wherever it is cut short, what the store holds
can be gone on with. Nothing is renamed there, which object stores cannot do.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from simjax.errors import CheckpointError, ConfigurationError, InputOutputError, SimjaxError, without_credentials
from simjax.io.checkpoint import COMMIT_NAME, SAVING_FOLDER
from simjax.io.files import TEMPORARY_SUFFIX, replaced, write_text
from simjax.io.lock import LOCK_NAME
from simjax.io.replacing import PROVENANCE_NAME, is_name_of_run, is_provenance
from simjax.io.segments import SEGMENT_FOLDER
from simjax.processes import Processes
from simjax.schema.locate import credentials_problem

LOG = logging.getLogger("simjax")
CHECKPOINTS = "checkpoints"
LOOK_SECONDS = 1.0
PIECE_BYTES = 16 << 20
PROBE_NAME = ".simjax-probe"
PACKAGES = {"gs": "gs", "gcs": "gs", "s3": "s3", "s3a": "s3"}
"""The extra of simjax that a store's scheme needs."""
WRAPPERS = (
    "async_wrapper",
    "asyncwrapper",
    "blockcache",
    "cached",
    "data",
    "dir",
    "filecache",
    "generic",
    "libarchive",
    "reference",
    "simplecache",
    "tar",
    "zip",
)
"""Schemes of fsspec that read other stores, archives or references in a file, and so from where that says."""
TEMPORARY_FOLDER = ".fetching"
RECORD_NAME = ".copied.json"  # what the store has, in the run's folder, so that a run that goes on sends little again


class FolderCopy:
    """Keeps a copy of a run's folder up to date in a store: when there is a new checkpoint, and at the end.

    A context manager. Checkpoints are noticed by a thread of its own, so that the run does not wait for the store but
    at its end. What the store refuses on the way is told once and tried again.

    Args:
        folder: of the run.
        url: where its files go.
        replace: whether a copy of another run there may be lost.

    Raises:
        ConfigurationError: the store cannot be written to.
        CheckpointError: the store has later checkpoints than the folder.
        InputOutputError: at the end, where the copy is not complete.
    """

    def __init__(self, folder: Path, url: str, replace: bool = False):
        self.folder, self.url, self.replace = folder, url, replace
        self._files, self._root = _store(url)
        self._sent: dict[str, tuple[int, int]] = {}  # bytes and time of change of what the store has
        self._seen: dict[str, tuple[int, int]] = {}
        self._there: set[str] = set()
        self._known: frozenset[str] = frozenset()
        self._told = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="simjax-copy", daemon=True)

    def __enter__(self) -> FolderCopy:
        with _in_a_sentence(f"output.copy_to: {self.url} cannot be read", ConfigurationError):
            there = _names(self._files, self._root)
        self._refuse_foreign(there)
        if not self.replace:
            self._refuse_to_lose(there)
        self._there = set(there)
        self._sent = {name: seen for name, seen in _recorded(self.folder, self.url).items() if name in self._there}
        self._known = _checkpoints(_files_in(self.folder))
        self._thread.start()
        return self

    def __exit__(self, kind, *_) -> None:
        self._ended.set()
        self._thread.join()
        try:
            self._bring_up_to_date(_checkpoints(_files_in(self.folder)))
        except Exception as error:
            sentence = (
                f"{self.url} does not have all that {self.folder} has ({_said(error)}); mend the access, and complete "
                f"it by resume={self.folder}."
            )
            if kind is None:
                raise InputOutputError(sentence) from error
            LOG.info(sentence)

    def _refuse_foreign(self, there: list[str]) -> None:
        """Raises ConfigurationError where files in the store have names of a run's, and none tells of a run."""
        lost = next((name for name in there if is_name_of_run(name)), None)
        if lost is None:
            return
        with _in_a_sentence(f"output.copy_to: {self.url} cannot be read", ConfigurationError):
            known = PROVENANCE_NAME in there and is_provenance(self._files.cat_file(f"{self._root}/{PROVENANCE_NAME}"))
        if not known:
            raise ConfigurationError(
                f"output.copy_to: {self.url} holds {lost} without the {PROVENANCE_NAME} of a run, and simjax replaces "
                "only a run that it wrote; name another place, or remove the files by hand."
            )

    def _refuse_to_lose(self, there: list[str]) -> None:
        """Raises CheckpointError where the store has later checkpoints than the folder, which would be removed."""
        here = _newest(_checkpoints(_files_in(self.folder)))
        for place, step in _newest(_checkpoints(there)).items():
            if step > here.get(place, -1):
                raise CheckpointError(
                    f"{self.url} holds a run with a checkpoint of step {step} that {self.folder} lacks, and it would "
                    f"be lost; write resume={self.url} with a new output.root to go on with it, or another "
                    "output.copy_to."
                )

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            now = _checkpoints(_files_in(self.folder))
            if now == self._known:
                continue
            try:
                self._bring_up_to_date(now)
                self._known = now
            except Exception as error:  # whatever a store's package raises
                if not self._told:
                    self._told = True
                    LOG.info(f"warning: {self.url} could not be written to ({_said(error)}); this is tried again.")

    def _bring_up_to_date(self, checkpoints: frozenset[str]) -> None:
        """Send what has changed, and then remove what the folder no longer has.

        checkpoints: those that were there before anything is sent; later ones may count frames that are not sent.
        """
        with contextlib.ExitStack() as stack:
            # The files over segments are read before these are sent, so that none names frames that are missing.
            others = [name for name in _files_in(self.folder) if not _is_segment(name) and not _is_saved_state(name)]
            opened = {name: stack.enter_context(file) for name in others if (file := self._changed(name)) is not None}
            now = _files_in(self.folder)
            segments = [name for name in now if _is_segment(name)]
            saved = [name for name in now if str(PurePosixPath(name)).startswith(tuple(f"{c}/" for c in checkpoints))]
            if PROVENANCE_NAME in opened:  # first: without it nobody knows whose files they are
                self._send(PROVENANCE_NAME, opened.pop(PROVENANCE_NAME))
            for name in segments:
                self._send(name, self._changed(name))
            for name, file in opened.items():
                self._send(name, file)
            for name in sorted(saved, key=lambda name: name.endswith(COMMIT_NAME)):
                self._send(name, self._changed(name))
        for name in self._there - {*others, *segments, *saved}:
            if name not in self._sent and not is_name_of_run(name):
                continue  # not of this run, nor of one that it replaces
            with contextlib.suppress(FileNotFoundError):  # gone before it was sent
                self._files.rm_file(f"{self._root}/{name}")
            self._sent.pop(name, None)
        self._there = {*others, *segments, *saved}
        _record(self.folder, self.url, self._sent)

    def _changed(self, name: str) -> BinaryIO | None:
        """The file as it is now, where that was not sent; small ones are read, so that few stay open."""
        path = self.folder / name
        try:
            file = path.open("rb")
        except FileNotFoundError:  # an old checkpoint, which has given way to a new one
            return None
        about = os.fstat(file.fileno())
        seen = _seen(about)
        if self._sent.get(name) == seen:
            file.close()
            return None
        self._seen[name] = seen
        if about.st_size > PIECE_BYTES:
            return file
        with file:
            return io.BytesIO(file.read())

    def _send(self, name: str, file: BinaryIO | None) -> None:
        if file is None:
            return
        target = f"{self._root}/{name}"
        with file:
            if isinstance(file, io.BytesIO):
                self._files.pipe_file(target, file.getvalue())
            else:
                with self._files.open(target, "wb", block_size=PIECE_BYTES) as sink:
                    shutil.copyfileobj(file, sink, PIECE_BYTES)
        self._sent[name] = self._seen[name]


def fetched(url: str, parent: Path) -> Path:
    """The run that a store has a copy of, as a folder in `parent` of the same name.

    A folder that is there already is used as it is where it has all checkpoints of the copy.

    Raises:
        ConfigurationError: the store cannot be read, or has no run there.
        CheckpointError: the folder has less than the copy.
    """
    files, root = _store(url)
    with _in_a_sentence(f"resume={url} cannot be read", ConfigurationError):
        names = _names(files, root)
    if not names:
        raise ConfigurationError(f"resume={url}: expected the copy of a run; there are no files.")
    folder = parent / PurePosixPath(root).name
    if folder.is_dir() and any(folder.iterdir()):
        here = _newest(_checkpoints(_files_in(folder)))
        behind = {p: step for p, step in _newest(_checkpoints(names)).items() if here.get(p, -1) < step}
        if behind:
            raise CheckpointError(
                f"resume={url}: {folder} is there and lacks the checkpoint of step {next(iter(behind.values()))}; move "
                "it away, or write another output.root."
            )
        return folder
    parent.mkdir(parents=True, exist_ok=True)
    whole = parent / (folder.name + TEMPORARY_FOLDER)
    shutil.rmtree(whole, ignore_errors=True)
    with _in_a_sentence(f"resume={url} could not be brought to {folder}", InputOutputError):
        for name in names:
            path = whole / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.open(f"{root}/{name}", "rb") as source, replaced(path) as part, part.open("xb") as target:
                shutil.copyfileobj(source, target, PIECE_BYTES)
        _record(whole, url, {name: _seen((whole / name).stat()) for name in names})
        if folder.is_dir():
            folder.rmdir()
        os.replace(whole, folder)
    return folder


def text_in_copy(url: str, name: str) -> str:
    """The text of a file of the run that a store has a copy of.

    Raises:
        ConfigurationError: the store cannot be read, or has no such file.
    """
    files, root = _store(url)
    with _in_a_sentence(f"resume={url}: {name} of a run cannot be read there", ConfigurationError):
        return files.cat_file(f"{root}/{name}").decode("utf-8")


def copies_in(url: str, name: str) -> dict[str, bytes]:
    """The content of the file `name` of every run below a place of a store that has a checkpoint, by the run's place.

    Raises:
        ConfigurationError: the store cannot be read.
    """
    files, root = _store(url)
    with _in_a_sentence(f"{url} cannot be read", ConfigurationError):
        names = _names(files, root)
        runs = {PurePosixPath(place).parts[0] for place in _checkpoints(names)}
        found = {run: f"{run}/{name}" for run in runs if f"{run}/{name}" in names}
        return {f"{url.rstrip('/')}/{run}": files.cat_file(f"{root}/{path}") for run, path in found.items()}


def require_writable(url: str) -> None:
    """Raises ConfigurationError where nothing can be written to a place of a store."""
    files, root = _store(url)
    probe = f"{root}/{PROBE_NAME}"
    advice = "name a bucket that exists and that this machine's credentials may write to"
    with _in_a_sentence(f"output.copy_to: {url} cannot be written to", ConfigurationError, advice):
        files.pipe_file(probe, b"")
        files.rm_file(probe)


def _store(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the place in it."""
    import fsspec

    scheme = url.split("://", 1)[0]
    if problem := credentials_problem(url):
        raise ConfigurationError(f"{url}: expected {problem}.")
    if "::" in scheme or scheme in WRAPPERS:
        raise ConfigurationError(f"{url}: expected one object store, such as gs://bucket/runs, not one within another.")
    try:
        files, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        extra = PACKAGES.get(scheme)
        needed = f"pip install 'simjax[{extra}]'" if extra else str(error)
        raise ConfigurationError(f"{url}: the package for {scheme}:// is not installed; {needed}.") from None
    except ValueError as error:
        raise ConfigurationError(f"{url}: {scheme}:// is no store that fsspec knows ({error}).") from None
    except Exception as error:  # of any kind: each store has a constructor of its own
        raise ConfigurationError(
            f"{url}: {scheme}:// cannot be opened ({_said(error)}); name a place in an object store, such as "
            "gs://bucket/runs."
        ) from None
    if "file" in files.protocol:
        raise ConfigurationError(f"{url}: expected an object store, such as gs://bucket/runs; {scheme}:// is a disk.")
    return files, root.rstrip("/")


def _names(files: Any, root: str) -> list[str]:
    """Files below a place, relative to it; those that would lie outside of it are none of a run's."""
    prefix = files._strip_protocol(root) + "/"
    names = (path.removeprefix(prefix) for path in files.find(root) if path.startswith(prefix))
    return sorted(name for name in names if ".." not in PurePosixPath(name).parts and not name.startswith("/"))


def _files_in(folder: Path) -> list[str]:
    """Files of a run's folder, relative to it, without those that are being written."""
    found = []
    for inside, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - {SAVING_FOLDER})
        found += [
            (Path(inside) / name).relative_to(folder).as_posix()
            for name in sorted(names)
            if name not in (LOCK_NAME, RECORD_NAME) and not name.endswith(TEMPORARY_SUFFIX)
        ]
    # Of an ensemble in groups, the files of a group before the one that counts it as finished.
    return sorted(found, key=lambda name: -name.count("/"))


def _is_segment(name: str) -> bool:
    return SEGMENT_FOLDER in PurePosixPath(name).parts


def _is_saved_state(name: str) -> bool:
    return CHECKPOINTS in PurePosixPath(name).parts


def _checkpoints(names: Sequence[str]) -> frozenset[str]:
    """Folders of whole checkpoints among files: those of a run and of its groups."""
    return frozenset(str(path.parent) for path in map(PurePosixPath, names) if path.name == COMMIT_NAME)


def _newest(checkpoints: frozenset[str]) -> dict[str, int]:
    """The largest step in each folder of checkpoints."""
    found: dict[str, int] = {}
    for path in map(PurePosixPath, sorted(checkpoints)):
        place = str(path.parent)
        found[place] = max(found.get(place, -1), int(path.name))
    return found


@contextlib.contextmanager
def _in_a_sentence(sentence: str, kind: type[SimjaxError], advice: str = "") -> Iterator[None]:
    """Whatever a store's package raises, as an error of `kind`."""
    try:
        yield
    except Exception as error:
        raise kind(f"{sentence} ({_said(error)}){'; ' + advice if advice else ''}.") from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {without_credentials(' '.join(str(error).split()))[:200]}"


def _seen(about: os.stat_result) -> tuple[int, int]:
    return about.st_size, about.st_mtime_ns


def _record(folder: Path, url: str, sent: Mapping[str, tuple[int, int]]) -> None:
    write_text(folder / RECORD_NAME, json.dumps({"url": url, "files": sent}))


def _recorded(folder: Path, url: str) -> dict[str, tuple[int, int]]:
    """The files that a store had when the last copy of a folder ended; none where that is not known."""
    try:
        found = json.loads((folder / RECORD_NAME).read_text(encoding="utf-8"))
        same = found["url"].rstrip("/") == url.rstrip("/")
        return {name: (size, time) for name, (size, time) in found["files"].items()} if same else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


@contextlib.contextmanager
def copied(folder: Path, url: str | None, group: Processes, replace: bool = False) -> Iterator[None]:
    """Within it the first process keeps a copy of a run's folder in a store, if one is given."""
    with contextlib.ExitStack() as stack:
        if url is not None:
            with group.together():
                if group.first:
                    stack.enter_context(FolderCopy(folder, url, replace))
        yield
