"""A program in a process of its own, which is timed over there on request."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Timing(NamedTuple):
    """Seconds by the clock, and of all its processors."""

    seconds: float
    cpu_seconds: float


class Peer:
    """A process that prints one line of JSON when it is ready, and the time of one more chunk for every line it reads.

    Raises RuntimeError with its last words where it ends before its answer.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )

    def report(self) -> dict:
        """What it says when it is ready."""
        return json.loads(self._answer())

    def _answer(self) -> str:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            code = self._child.wait()
            self._words.seek(0)
            words = self._words.read().decode(errors="replace").strip().splitlines()
            raise RuntimeError(words[-1] if words else f"exit code {code}")
        return line

    def run(self) -> Timing:
        """The time of one more chunk, measured over there."""
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return Timing(*map(float, self._answer().split()))

    def close(self) -> None:
        """End the process."""
        self._child.communicate()
        self._words.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
