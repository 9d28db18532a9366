"""Another package in a process of its own, timed from here on request."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence


class Peer:
    """A process that prints one line of JSON when it is ready, and then seconds for every line that it is sent."""

    def __init__(self, command: Sequence[str]):
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.report = json.loads(self._answer())

    def _answer(self) -> str:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer's process ended with exit code {self._child.wait()}; its message is above")
        return line

    def run(self) -> float:
        """Seconds of one more chunk, measured over there."""
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        self._child.communicate()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
