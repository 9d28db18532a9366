"""Files that appear whole or not at all, and the room they need."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import h5py

from simjax.core.errors import InputOutputError

TEMPORARY_SUFFIX = ".tmp"


def synchronise(path: Path) -> None:
    """Forces a file, or the entries of a folder, from the page cache to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, which takes its place on success and is removed on failure.

    The content reaches the disk before the rename, so after a kill or a power loss `path` holds either the
    previous content or the new one. An operating system's failure becomes an InputOutputError.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        yield temporary
        synchronise(temporary)
        os.replace(temporary, path)
        synchronise(path.parent)
    except InputOutputError:
        raise
    except OSError as error:
        raise InputOutputError(
            f"{path} could not be written ({error}); what was there before is kept: free space or "
            "mend the permissions of the folder, then resume."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


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
    with open(path, "w+b", buffering=0) as unbuffered:
        target = _NeverFailing(unbuffered)
        try:
            with h5py.File(target, "w", track_order=True) as file:
                yield file
        finally:
            if target.error is not None:
                raise target.error


def remove_temporaries(folder: Path) -> None:
    """Removes the unfinished files that a killed run left in `folder`."""
    for path in folder.glob("*" + TEMPORARY_SUFFIX):
        path.unlink(missing_ok=True)


def require_free_space(folder: Path, needed: int) -> None:
    """Raises InputOutputError where the file system of `folder` has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InputOutputError(
            f"{folder} has {free / 1e9:.2f} GB free and this run needs {needed / 1e9:.2f} GB; free space, "
            "set output.folder to another disk, or write less often with a larger time.output_every."
        )
