"""Environments of other packages: one for each, with fixed versions, made when first asked for and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

PACKAGES = {
    "jax-cfd": "jax-cfd==0.2.1",
    "exponax": "exponax==0.2.0",
    "jax-md": "jax-md==0.2.29",
    "phiflow": "phiflow==3.4.0",
    "deepwave": "deepwave==0.1.0",
    "mosaic-bench": "mosaic-bench==0.2.0",
}
JAX = f"jax=={metadata.version('jax')}"
"""The jax that is here: then both have the same compiler."""
BESIDE = {
    "deepwave": ["torch==2.13.0", "numpy==2.4.6"],
    "mosaic-bench": [JAX, PACKAGES["jax-cfd"], PACKAGES["exponax"], PACKAGES["phiflow"], "xlb==0.3.1"],
}
"""Packages that one needs beside it, where this is not that jax alone."""
FINISHED = "finished"
# Of an index that does not answer; a slow one takes longer to send what it has.
SECONDS_TO_ANSWER, SECONDS_TO_INSTALL = 15, 900


class NotInstalled(Exception):
    """A package that could not be installed, with the last words of the installer."""


def cache_folder() -> Path:
    """Where environments are kept: `$XDG_CACHE_HOME/simjax-benchmarks`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "simjax-benchmarks"


def python_of(package: str) -> str:
    """An interpreter that has the package, and what it needs beside it.

    Raises NotInstalled with a sentence.
    """
    wanted = [PACKAGES[package], *BESIDE.get(package, [JAX])]
    digest = hashlib.sha256(" ".join([*wanted, sys.version]).encode()).hexdigest()[:8]
    folder = cache_folder() / f"{package}-{digest}"
    python = folder / "bin" / "python"
    if not (folder / FINISHED).exists():
        # A rest of an attempt that was broken off.
        shutil.rmtree(folder, ignore_errors=True)
        pip = [
            str(python),
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--no-input",
            "--quiet",
            "--timeout",
            str(SECONDS_TO_ANSWER),
            "--retries",
            "1",
        ]
        _call([sys.executable, "-m", "venv", str(folder)], package)
        _call([*pip, *wanted], package)
        (folder / FINISHED).touch()
    return str(python)


def _call(command: list[str], package: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_INSTALL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{package} could not be installed: {error}") from None
    if done.returncode:
        words = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        raise NotInstalled(f"{package} could not be installed: {words[-1] if words else 'no reason given'}")
