"""Hydra's own command line, called with the arguments that simjax passes on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig

from simjax.config.search_path import VERSION_BASE, searching

# A run makes its own folder and log, and stays in the folder in which it was started.
SETTINGS = {
    "hydra/job_logging": "none",
    "hydra/hydra_logging": "none",
    "hydra.output_subdir": "null",
    "hydra.run.dir": ".",
    "hydra.sweep.subdir": ".",
    "hydra.job.chdir": "false",
    "hydra.job.name": "simjax",
}


def call_hydra(
    task: Callable, overrides: Sequence[str], folders: Sequence[Path], config_name: str, flags: Sequence[str] = ()
) -> None:
    """Call Hydra's own command line with flags and overrides; `task` is what it runs.

    Raises ConfigurationError with what Hydra refuses, and what else the task or a plugin raises.
    """
    given = {text.lstrip("+").partition("=")[0] for text in overrides}
    settings = [f"{key}={value}" for key, value in SETTINGS.items() if key not in given]
    folder = str(Path(folders[0]).resolve())  # Hydra looks for a relative one beside simjax
    with searching(folders), arguments([*flags, *settings, *overrides]), _raising():
        hydra.main(config_path=folder, config_name=config_name, version_base=VERSION_BASE)(task)()


def settings_of_job() -> Any:
    """Hydra's settings of the job that runs now: its number, its overrides, the folder of the sweep."""
    return HydraConfig.get()


@contextmanager
def arguments(given: Sequence[str]) -> Iterator[None]:
    """A context with other arguments of the command line: Hydra reads them, a run's record tells them."""
    before, sys.argv = sys.argv, [sys.argv[0], *given]
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def _raising() -> Iterator[None]:
    """A context in which Hydra raises errors instead of printing them."""
    name = "HYDRA_FULL_ERROR"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
