"""Lock files, which keep a second run out of a folder in use."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from simjax.errors import InputOutputError
from simjax.io.files import open_without_following, refuse_links, what_to_do
from simjax.processes import Processes

LOCK_NAME = ".simjax.lock"
BEAT_SECONDS = 20.0
SILENT_SECONDS = 120.0  # six beats: a holder on another host that missed them all is gone
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class FolderLock:
    """An exclusive lock on a run's folder; a context manager.

    The holder keeps an advisory file lock, which the kernel drops when the process dies however it dies, and
    a record of its host, process id and start, whose modification time it renews every 20 s. A record that
    its holder left behind is stale, and is taken over, when

    - it names this host and the kernel's lock is free (where the file system has no such locks: when no
      process of that id lives);
    - it names another host, where the kernel's lock may not be seen, and was not renewed for 120 s.

    Otherwise entering raises InputOutputError with the holder's host, process id and start; it does so too where
    anything in the folder is a link.
    """

    def __init__(self, folder: Path):
        self.path = Path(folder) / LOCK_NAME
        self._descriptor: int | None = None
        self._released = threading.Event()

    def __enter__(self) -> FolderLock:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            refuse_links(self.path.parent)
            descriptor = open_without_following(self.path, os.O_RDWR | os.O_CREAT)
        except InputOutputError:
            raise
        except OSError as error:
            raise InputOutputError(
                f"{self.path.parent} cannot be a run's folder ({error.strerror}); expected a folder that can be "
                f"written: {what_to_do(error, 'set output.folder to one')}."
            ) from error
        try:
            self._acquire(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._released.clear()
        threading.Thread(target=self._beat, name="simjax-lock", daemon=True).start()
        return self

    def __exit__(self, *exception) -> None:
        self._released.set()
        if self._descriptor is not None:
            # Emptied, not removed: who opened the old file just before would lock a name nobody else sees.
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def _acquire(self, descriptor: int) -> None:
        seen_by_kernel = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._held(_record(descriptor)) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            seen_by_kernel = False
        holder = _record(descriptor)
        if holder and not self._stale(holder, descriptor, seen_by_kernel):
            raise self._held(holder)
        start = datetime.now(UTC).isoformat(timespec="seconds")
        record = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "start": start})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, record.encode(), 0)

    @staticmethod
    def _stale(holder: dict, descriptor: int, seen_by_kernel: bool) -> bool:
        if holder.get("host") != socket.gethostname():
            return time.time() - os.fstat(descriptor).st_mtime > SILENT_SECONDS
        return seen_by_kernel or not _alive(holder.get("pid"))

    def _held(self, holder: dict) -> InputOutputError:
        host, pid, start = (holder.get(key, "unknown") for key in ("host", "pid", "start"))
        return InputOutputError(
            f"{self.path.parent} is in use by process {pid} on {host} since {start}; expected a folder of "
            f"this run's own: set output.folder to another one, or wait for that run to end (one that died "
            f"on another host lets go after {SILENT_SECONDS:.0f} s)."
        )

    def _beat(self) -> None:
        while not self._released.wait(BEAT_SECONDS):
            try:
                os.utime(self.path, follow_symlinks=False)
            except OSError:  # the folder or its disk went away: nothing to renew
                return


def _record(descriptor: int) -> dict:
    try:
        record = json.loads(os.pread(descriptor, 4096, 0) or b"{}")
    except ValueError:  # half a record: the holder died while it wrote
        return {}
    return record if isinstance(record, dict) else {}


def _alive(pid) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def locked(folder: Path, group: Processes) -> Iterator[None]:
    """Within it the folder belongs to one run, for all of whose processes the first holds the lock."""
    with contextlib.ExitStack() as stack:
        with group.together():
            if group.first:
                stack.enter_context(FolderLock(folder))
        yield
