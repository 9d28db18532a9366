"""A composed configuration: a plain mapping, and how Hydra takes the same overrides. Needs no Hydra."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simjax.config.validate import validate
from simjax.schema.config import Config
from simjax.schema.locate import input_folders, list_experiments

BASIC = "basic"  # Hydra's own launcher, one run after the other, and its sweeper, by which every choice is run


@dataclass(frozen=True)
class Spelling:
    """An override as Hydra needs it to compose the same: paths to delete first, and its sign; None leaves it out."""

    deletions: tuple[str, ...]
    sign: str | None

    def of(self, override: str) -> list[str]:
        """Translate an override to the form that Hydra reads."""
        own = [] if self.sign is None else [self.sign + override.lstrip("+")]
        return [*(f"~{path}" for path in self.deletions), *own]


@dataclass(frozen=True)
class Composition:
    """A composed, not yet validated configuration and its origin."""

    mapping: Mapping[str, Any]
    overrides: tuple[str, ...]
    folders: tuple[Path, ...]
    experiment: str | None
    notes: tuple[str, ...] = ()
    for_hydra: Mapping[str, Spelling] = field(default_factory=dict)  # overrides in their order, and as Hydra takes them
    sweeper: str = BASIC
    around: bool = False  # whether Hydra has anything to do around a run, such as callbacks

    def spelled(self) -> list[str]:
        """Return the overrides as Hydra takes them."""
        return [text for override, spelling in self.for_hydra.items() for text in spelling.of(override)]

    def config(self) -> Config:
        config = validate(self.mapping, folders=input_folders(self.folders[1:]), overrides=self.overrides)
        config = replace(config, notes=self.notes)
        known = {experiment.name: experiment for experiment in list_experiments(self.folders)}
        experiment = known.get(config.experiment_name)
        return replace(config, description=experiment.description if experiment is not None else "")
