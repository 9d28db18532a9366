"""Files that appear whole or not at all, and the room they need."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal, TextIO

import h5py

from simjax.errors import InputOutputError

TEMPORARY_SUFFIX = ".tmp"


def synchronise(path: Path) -> None:
    """Forces a file, or the entries of a folder, from the page cache to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_without_following(path: Path | str, flags: int) -> int:
    """A descriptor of a regular file in a run's folder, which is created where the flags say so.

    Raises InputOutputError for a link, which would be written through to a file elsewhere, and for a pipe or device,
    on which a run would wait forever; OSError as `os.open`.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise _linked(Path(path)) from None
        if error.errno == errno.ENXIO:  # a pipe that nobody reads
            raise _irregular(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _irregular(path)
    return descriptor


def open_in_run(path: Path, mode: Literal["a", "w"] = "a") -> TextIO:
    """A text file in a run's folder, opened to append ("a") or to write ("w"); never through a link."""
    try:
        return open(path, mode, encoding="utf-8", opener=open_without_following)
    except InputOutputError:
        raise
    except OSError as error:
        raise InputOutputError(f"{path} cannot be written ({error.strerror}); {what_to_do(error)}.") from error


def refuse_links(folder: Path) -> None:
    """Raises InputOutputError where anything inside a run's folder is a link: what is written would land elsewhere."""
    for inside, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(inside, name)
            if path.is_symlink():
                raise _linked(path)


def _linked(path: Path) -> InputOutputError:
    return InputOutputError(
        f"{path} is a link to {os.readlink(path)}, and a run neither reads nor writes through links in its folder; put "
        "a copy in its place, or move the link elsewhere."
    )


def _irregular(path: Path | str) -> InputOutputError:
    return InputOutputError(f"{path} is not a regular file; move it out of the run's folder.")


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, which takes its place on success and is removed on failure.

    The content reaches the disk before the rename, so after a kill or a power loss `path` holds either the
    previous content or the new one. An operating system's failure becomes an InputOutputError.
    """
    with replaced_together([path]) as (temporary,):
        yield temporary


@contextmanager
def replaced_together(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yields a temporary path beside each of `paths`; all reach the disk before the first takes its place.

    So a full disk changes none of them. A kill between two renames leaves each file whole, the first ones new.
    """
    temporaries = [path.with_name(path.name + TEMPORARY_SUFFIX) for path in paths]
    try:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)  # left by a kill, or a link that would be written through
        yield temporaries
        for temporary in temporaries:
            synchronise(temporary)
        _rename_all(temporaries, paths)
        for folder in {path.parent for path in paths}:
            synchronise(folder)
    except InputOutputError:
        raise
    except OSError as error:
        raise InputOutputError(
            f"{', '.join(map(str, paths))} could not be written ({error}); what was there before is kept: "
            f"{what_to_do(error)}, then resume."
        ) from error
    finally:
        for temporary in temporaries:
            with suppress(OSError):  # the error that is under way says more
                temporary.unlink(missing_ok=True)


def _rename_all(temporaries: Sequence[Path], paths: Sequence[Path]) -> None:
    """Rename files one after another; if one fails, undo the earlier ones."""
    before = [path.read_bytes() if path.is_file() else None for path in paths] if len(paths) > 1 else []
    for number, (temporary, path) in enumerate(zip(temporaries, paths, strict=True)):
        try:
            os.replace(temporary, path)
        except OSError:
            for earlier, content, beside in zip(paths[:number], before, temporaries, strict=False):
                if content is None:
                    earlier.unlink()
                else:
                    beside.write_bytes(content)
                    synchronise(beside)
                    os.replace(beside, earlier)
            raise


def _written(path: Path, text: str) -> None:
    with open_in_run(path, "w") as file:
        file.write(text)


def write_text(path: Path, text: str) -> None:
    """Writes a text file in one step: it holds its previous content or all of the new one."""
    with replaced(path) as temporary:
        _written(temporary, text)


def write_texts(contents: Mapping[Path, str]) -> None:
    """Writes several text files in one step: a full disk changes none of them."""
    write_files({path: text.encode() for path, text in contents.items()})


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Writes several files in one step: a full disk changes none of them."""
    with replaced_together(list(contents)) as temporaries:
        for temporary, content in zip(temporaries, contents.values(), strict=True):
            temporary.write_bytes(content)


def fingerprint(path: Path) -> tuple[int, str]:
    """The size of a file in bytes, and its SHA-256."""
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


class _NeverFailing:
    """A file that keeps the first error of its writes to itself.

    HDF5 cannot close a file whose writes fail: it keeps the handle, tries again while objects are collected,
    and crashes the process (h5py issue 914). So it is told that all went well, and the error is raised after.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._end = 0
        self._position = 0
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (self._end if whence == os.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        self._file.seek(self._position)
        content = self._file.read(size)
        return content if self.error is None else content.ljust(size, b"\0")

    def write(self, content: bytearray) -> int:
        try:
            self._file.seek(self._position)
            rest = memoryview(content)
            while self.error is None and len(rest):  # a disk that fills up takes a part and says so next time
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.error = error
        self._position += len(content)
        self._end = max(self._end, self._position)
        return len(content)

    def truncate(self, size: int) -> int:
        try:
            self._file.truncate(size)
        except OSError as error:
            self.error = self.error or error
        self._end = size
        return size

    def flush(self) -> None:
        pass  # unbuffered


@contextmanager
def new_hdf5(path: Path) -> Iterator[h5py.File]:
    """Creates an HDF5 file; where the disk is full, raises OSError once the file is closed in good order."""
    with open(path, "w+b", buffering=0, opener=open_without_following) as unbuffered:
        target = _NeverFailing(unbuffered)
        try:
            with h5py.File(target, "w", track_order=True) as file:
                yield file
        finally:
            if target.error is not None:
                raise target.error


def what_to_do(error: OSError, otherwise: str = "mend the permissions of the folder") -> str:
    """Advice on a file that cannot be written: one of what the disk lacks, or `otherwise`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free space, or remove files where it is their number that is used up (df -i, quota)"
    return otherwise


def require_free_space(folder: Path, needed: int, *, resumed: bool = False) -> None:
    """Raises InputOutputError where the disk that `folder` is on, or will be made on, has too few bytes free."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    free, files = shutil.disk_usage(there).free, os.statvfs(there)
    if files.f_files and not files.f_favail:
        raise InputOutputError(
            f"{there} has room for no more files, though {free / 1e9:.2f} GB are free; remove files (df -i counts them)"
            f"{'' if resumed else ', or set output.root to a folder on another disk'}."
        )
    if free < needed:
        elsewhere = "" if resumed else "set output.root to a folder on another disk, "
        raise InputOutputError(
            f"{there} has {free / 1e9:.2f} GB free and this run needs about {needed / 1e9:.2f} GB; free space, "
            f"{elsewhere}write less often with a larger time.output_every, or keep fewer states with checkpoint.keep=1."
        )
