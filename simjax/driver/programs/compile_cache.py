"""Compiled programs kept for later processes, and a count of what was compiled and what was taken from there."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import re
import stat
import sys
import tempfile
import threading
import time as wall
import warnings
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simjax.errors import InputOutputError
from simjax.io.files import open_without_following

# Bytes of all kept programs of one kind of host, unless JAX_COMPILATION_CACHE_MAX_SIZE says otherwise.
LARGEST = 2**30
SUFFIX = ".program"
PART_SUFFIX = ".program-part"
MARKER = ".simjax-programs"
"""A file that says that a folder is simjax's own, and that its programs may be dropped."""
ABANDONED = 86400.0  # s; a file that is still being written after that was left by a process that was killed
CHECKSUM_BYTES = 4
# Lines of /proc/cpuinfo by which compilers choose instructions, on x86 and on ARM.
PROCESSOR = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
COMPILED = "/jax/core/compile/backend_compile_duration"  # loading a kept program counts
LOADED = "/jax/compilation_cache/cache_retrieval_time_sec"


# ---------------------------------------------------------------------- the folder


def cache_root(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> Path:
    """The folder of this user's caches, as the system has it; RuntimeError where the user has no home."""
    told = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(told):  # others are to be ignored, by the standard
        return Path(told)
    if system == "win32" and "LOCALAPPDATA" in environment:
        return Path(environment["LOCALAPPDATA"])
    return Path.home() / ("Library/Caches" if system == "darwin" else ".cache")


def host_kind(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """A name for hosts with this processor and its instructions.

    Programs for CPUs hold machine code, and jax's keys do not name the processor: one home of two kinds of hosts would
    hand instructions to a processor that does not have them.
    """
    told = {platform.machine(), platform.processor(), sys.platform}
    with contextlib.suppress(OSError):
        lines = [line.partition(":") for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()]
        told |= {
            f"{name.strip()} {' '.join(sorted(what.split()))}" for name, _, what in lines if name.strip() in PROCESSOR
        }
    return f"{platform.machine() or 'host'}-{hashlib.sha256(' '.join(sorted(told)).encode()).hexdigest()[:12]}"


def private_folder(path: Path) -> Path:
    """Make a folder of this user alone, or take the one that simjax has made before.

    Raises:
        OSError: it is someone else's, a link, or a folder of other files; these stay as they are.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{path} is a link or a file, where a folder of simjax's own is expected")
    if hasattr(os, "getuid") and found.st_uid != os.getuid():  # whoever can write programs there has them run here
        raise PermissionError(f"it belongs to user {found.st_uid}, and this is user {os.getuid()}")
    marker = path / MARKER
    if not _is_own(marker):
        if any(not _looks_own(entry) for entry in path.iterdir()):
            raise FileExistsError(f"{path} holds files that simjax did not write")
        marker.touch()
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        path.chmod(0o700)
    with tempfile.NamedTemporaryFile(dir=path, suffix=PART_SUFFIX):  # a disk that is full says so now
        return path


def _is_own(marker: Path) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISREG(marker.lstat().st_mode)
    return False


def _looks_own(entry: Path) -> bool:
    """Tell whether an entry of a folder without a marker is one of simjax's kernels, an earlier version or XLA."""
    kinds = re.fullmatch(r"[\w.]+-[0-9a-f]{12}|kernels|xla_gpu_\w+", entry.name)
    return entry.suffix in (SUFFIX, PART_SUFFIX) or (kinds is not None and entry.is_dir())


@dataclass
class UsedEntry:
    """The key under which a program was found or kept; None: neither."""

    key: str | None = None


class KeptPrograms:
    """Compiled programs in a folder, a file each, as jax asks for them by key: `get` and `put` never raise.

    jax's own files are written in place, so that a kill or a full disk leaves part of a program, of which every later
    process warns, and their size is limited by a lock of one more package. Here a file is renamed into its place,
    carries a CRC-32 of its key and itself, so that none is taken for another, and those unused for longest are dropped
    when a process has compiled something new.

    trouble: a sentence about why programs are no longer kept, if so.
    """

    def __init__(self, folder: Path, largest: int):
        self.folder, self.largest = folder, largest
        self._path = str(folder)  # jax tells it when it forgets its cache
        self.trouble: str | None = None
        self._writes, self._trimmed, self._lock = True, False, threading.Lock()
        self._watched: UsedEntry | None = None

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def get(self, key: str) -> bytes | None:
        """The program of a key; None where it is not there, damaged, or a file that others can have written."""
        file = self._file(key)
        try:
            with open(file, "rb", opener=open_without_following) as opened:
                read = opened.read() if _of_this_user_alone(os.fstat(opened.fileno())) else b""
        except (OSError, InputOutputError):
            return None
        with contextlib.suppress(OSError):
            os.utime(file, follow_symlinks=False)  # used now
        program, told = read[:-CHECKSUM_BYTES], read[-CHECKSUM_BYTES:]
        whole = told == _checksum(key, program)
        if whole:
            self._used(key)
        return program if whole else None

    def put(self, key: str, value: bytes) -> None:
        """Keep the program of a key; after a first failure none is kept any more."""
        if not self._writes:
            return
        with self._lock:
            if not self._trimmed:
                self._trimmed = True
                self.trim()
        part = ""
        try:
            handle, part = tempfile.mkstemp(dir=self.folder, suffix=PART_SUFFIX)
            with os.fdopen(handle, "wb") as file:
                file.write(value)
                file.write(_checksum(key, value))
            os.replace(part, self._file(key))
            self._used(key)
        except OSError as error:
            self._writes = False
            self.trouble = not_kept(self.folder, error)
            if part:
                with contextlib.suppress(OSError):
                    os.unlink(part)

    @contextlib.contextmanager
    def watched(self) -> Iterator[UsedEntry]:
        """Tell which entry is read or written within it, for a program that is compiled there."""
        used = self._watched = UsedEntry()
        try:
            yield used
        finally:
            self._watched = None

    def _used(self, key: str) -> None:
        if self._watched is not None:
            self._watched.key = key

    def trim(self) -> None:
        """Drop the programs unused for longest until the rest fits, and those that nobody writes any more.

        Nothing else is touched: neither other files, nor what lies behind links or in folders.
        """
        programs, total, now = [], 0, wall.time()
        for file in self.folder.iterdir() if _is_own(self.folder / MARKER) else ():
            with contextlib.suppress(OSError):  # another process may drop it at the same time
                about = file.lstat()
                if not stat.S_ISREG(about.st_mode) or file.suffix not in (SUFFIX, PART_SUFFIX):
                    continue
                if file.suffix == SUFFIX:
                    programs.append((about.st_mtime, about.st_size, file))
                    total += about.st_size
                elif now - about.st_mtime > ABANDONED:
                    file.unlink()
        for _, size, file in sorted(programs, key=lambda one: one[0]):
            if total <= self.largest:
                break
            with contextlib.suppress(OSError):
                file.unlink()
            total -= size


def _of_this_user_alone(about: os.stat_result) -> bool:
    """Tell whether a file is this user's and nobody else may write it: what it holds is run."""
    if not hasattr(os, "getuid"):
        return True
    return about.st_uid == os.getuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _checksum(key: str, program: bytes) -> bytes:
    return zlib.crc32(program, zlib.crc32(key.encode())).to_bytes(CHECKSUM_BYTES, "little")


def not_kept(folder: Path | str, error: Exception) -> str:
    """A sentence about programs that cannot be kept."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return (
        f"Compiled programs are not kept in {folder}: {reason}. Later runs compile again; set XDG_CACHE_HOME to a "
        "folder of yours, or JAX_ENABLE_COMPILATION_CACHE=false to do without."
    )


# ---------------------------------------------------------------------- jax


@dataclass
class _Process:
    """The state of this process: its kept programs, why there are none, and what jax has compiled so far.

    done: when, seconds, and whether it was loaded rather than compiled.
    """

    programs: KeptPrograms | None = None
    trouble: str | None = None
    watches: bool = False
    done: list[tuple[float, float, bool]] = field(default_factory=list)


_PROCESS = _Process()


def settings_to_keep_programs() -> dict[str, Any]:
    """Let jax take compiled programs from the user's cache and keep new ones there; settings that jax needs for it.

    A cache that the user has given jax stays as it is (`JAX_COMPILATION_CACHE_DIR`), and none is made where jax is told
    to have none (`JAX_ENABLE_COMPILATION_CACHE=false`).
    """
    import jax

    _watch()
    told: Any = jax.config
    limit = told.jax_compilation_cache_max_size
    if not told.jax_enable_compilation_cache or limit == 0 or told.jax_compilation_cache_dir is not None:
        return {}
    if _PROCESS.programs or _PROCESS.trouble:
        return {}
    folder: Path | str = "the cache of this user"
    try:
        folder = cache_root() / "simjax"
        private_folder(folder)
        folder = private_folder(folder / host_kind())
    except (OSError, RuntimeError) as error:
        _PROCESS.trouble = not_kept(folder, error)
        return {}
    _PROCESS.programs = KeptPrograms(folder, LARGEST if limit == -1 else limit)
    # What cannot be kept or taken, such as a program that XLA cannot write down, is compiled again: no cause for a
    # warning of each, nor for an end where warnings are errors.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    # jax has no public way to another cache than its own; without these names it keeps programs itself, in this folder.
    with contextlib.suppress(ImportError):
        from jax._src import compilation_cache

        compilation_cache._cache = _PROCESS.programs  # pyright: ignore[reportAttributeAccessIssue]
        compilation_cache._cache_initialized = True
    settings: dict[str, Any] = {"jax_compilation_cache_dir": str(folder)}  # there XLA keeps what it has tuned for a GPU
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        settings["jax_persistent_cache_min_compile_time_secs"] = (
            0.0  # a run has tens of programs that take less than 1 s
        )
    return settings


def kept_programs() -> KeptPrograms | None:
    """The programs that simjax keeps; None where it does not, or jax keeps them elsewhere."""
    import jax

    told: Any = jax.config
    return _PROCESS.programs if told.jax_enable_compilation_cache else None


def note_loaded(seconds: float) -> None:
    """Count a program that was loaded without jax's doing."""
    _PROCESS.done += [(wall.monotonic(), seconds, False), (wall.monotonic(), seconds, True)]


def cache_notes() -> list[str]:
    """A sentence about why this process keeps no programs, where it should."""
    trouble = _PROCESS.trouble or (_PROCESS.programs.trouble if _PROCESS.programs else None)
    return [] if trouble is None else [trouble]


def _watch() -> None:
    """Count the programs that jax compiles and loads from now on."""
    import jax

    if _PROCESS.watches:
        return
    _PROCESS.watches = True
    jax.monitoring.register_event_duration_secs_listener(_note)


def _note(event: str, duration_secs: float, **_: Any) -> None:
    if event == COMPILED:
        _PROCESS.done.append((wall.monotonic(), duration_secs, False))
    elif event == LOADED:
        _PROCESS.done.append((wall.monotonic(), duration_secs, True))


@dataclass(frozen=True)
class Compilations:
    """A count of programs that were compiled and of those that were taken from the cache, with the seconds of each."""

    compiled: int
    compile_seconds: float
    loaded: int
    load_seconds: float

    def described(self) -> dict[str, int | float]:
        """Counts of compiled and loaded programs, for JSON."""
        return {
            "compiled": self.compiled,
            "compile_seconds": round(self.compile_seconds, 3),
            "from_cache": self.loaded,
            "load_seconds": round(self.load_seconds, 3),
        }

    def sentence(self) -> str:
        """Tell both counts, such as `Compiled 2 programs in 4.2 s, took 3 from the cache in 0.1 s.`"""
        loaded = f"from the cache in {self.load_seconds:.1f} s."
        if self.loaded and not self.compiled:
            return f"Took all {self.loaded} programs {loaded}"
        compiled = (
            f"Compiled {self.compiled} program{'' if self.compiled == 1 else 's'} in {self.compile_seconds:.1f} s"
        )
        return f"{compiled}, took {self.loaded} {loaded}" if self.loaded else f"{compiled}."


def compilations(since: float = -math.inf) -> Compilations:
    """The count of what this process has compiled and loaded since a time by `time.monotonic`."""
    done = [(seconds, loaded) for at, seconds, loaded in _PROCESS.done if at >= since]
    every = [seconds for seconds, loaded in done if not loaded]  # a program that was loaded is among them
    loads = [seconds for seconds, loaded in done if loaded]
    return Compilations(len(every) - len(loads), max(0.0, sum(every) - sum(loads)), len(loads), sum(loads))
