"""Times of kernels kept on disk: one JSON file for each program, grid, device kind and jax version."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

Key = Mapping[str, Any]
Device = Any
"""A `jax.Device`, which is no class to a type checker."""
Seconds = Mapping[str, Sequence[float]]
"""Of every repetition, by candidate; repetitions are in step."""

# Measured on devices that were at hand, in files as they are written below; none yet.
SHIPPED = Path(__file__).with_name("measured")


def folder() -> Path | None:
    """Folder of times: $SIMJAX_CACHE, or `simjax/kernels` in the user's cache folder.

    Several processes must choose alike, so that they read what they measured before only where they were told that
    they share it.
    """
    if told := os.environ.get("SIMJAX_CACHE"):
        return Path(told).expanduser()
    if jax.process_count() > 1:
        return None
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "simjax" / "kernels"


def path_of(key: Key, folder: Path) -> Path:
    """The file of measurements under `key`."""
    return folder / f"{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]}.json"


def read(key: Key, folder: Path) -> Seconds | None:
    """Measurement under `key`; None where the file is missing, broken, or another's."""
    try:
        found = json.loads(path_of(key, folder).read_text(encoding="utf-8"))
        seconds = found.pop("seconds")
        valid = found == json.loads(json.dumps(key)) and all(
            len(times) and min(times) > 0 for times in seconds.values()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return seconds if valid and seconds else None


def write(key: Key, seconds: Seconds, folder: Path) -> None:
    """Keep times under `key`, whole or not at all; where nothing can be written, nothing is kept."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".partial", delete=False, encoding="utf-8") as file:
            json.dump({**key, "seconds": seconds}, file, indent=1)
        os.replace(file.name, path_of(key, folder))
