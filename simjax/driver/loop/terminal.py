"""Terminals that are closed while a run goes on: it is not to end for want of somebody who looks."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from typing import Any, Protocol


class Stream(Protocol):
    """Stream to which progress is written."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


class OutlivingStream:
    """A stream that falls silent where its terminal is closed, rather than raise."""

    def __init__(self, stream: Stream):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str, /) -> int:
        """Write a text, or leave it where nobody sees it any more."""
        with _after_a_hangup():
            return self._stream.write(text)
        return len(text)

    def isatty(self) -> bool:
        """Tell whether the stream is a terminal that is open."""
        return self._stream.isatty()

    def flush(self) -> None:
        """Flush the text written so far to the terminal."""
        with _after_a_hangup():
            self._stream.flush()


@contextlib.contextmanager
def _after_a_hangup():
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        leave_closed_terminals()


def leave_closed_terminals() -> None:
    """Let standard output and errors go nowhere where they went to a terminal that is closed.

    Otherwise Python fails at its end, as it cannot write what is left, and its exit code is lost.
    """
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            descriptor = stream.fileno()  # pyright: ignore[reportOptionalMemberAccess]
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
