"""Configurations that an earlier command has composed of the same files, which are taken without loading Hydra."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
from collections.abc import Sequence

from simjax.config.composed import Composition
from simjax.driver.programs.compile_cache import kept_programs
from simjax.driver.programs.program_identity import digest_of_files, packages_digest, sources_digest
from simjax.driver.start.environment import keep_programs
from simjax.schema.locate import CONFIG_NAME, conf_folder


def composed(overrides: Sequence[str], *, config_dir: str | None = None, config_name: str = CONFIG_NAME) -> Composition:
    """The composition of a command, kept beside compiled programs where it is made of simjax's own files alone.

    It is found by the overrides, the contents of these files, simjax's sources, all installed packages and Python.
    """
    if config_dir is not None or config_name != CONFIG_NAME:
        return _compose(overrides, config_dir, config_name)
    keep_programs()
    programs, conf = kept_programs(), conf_folder()
    if programs is None:
        return _compose(overrides)
    made_of = [*overrides], str(conf), digest_of_files(conf, ".yaml"), sources_digest(), packages_digest(), sys.version
    key = f"composed-{hashlib.sha256(repr(made_of).encode()).hexdigest()}"
    entry = programs.get(key)
    if entry is not None:
        # An entry of this user that cannot be read, whatever the reason, is as good as none.
        with contextlib.suppress(Exception):
            return pickle.loads(entry)
    made = _compose(overrides)
    if not made.around:  # what Hydra does around a run needs it anyway
        programs.put(key, pickle.dumps(made))
    return made


def _compose(overrides: Sequence[str], config_dir: str | None = None, config_name: str = CONFIG_NAME) -> Composition:
    from simjax.config import compose  # loads Hydra

    return compose(overrides, config_dir=config_dir, config_name=config_name)
