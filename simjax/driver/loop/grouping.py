"""The members of an ensemble in groups: how many fit, which run together, and the configuration of each group."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simjax.config.folders import GROUPS_NAME
from simjax.driver.output.member_statistics import NEVER
from simjax.driver.programs.programs_of_run import CompiledRun, compiled_run
from simjax.errors import CheckpointError, ConfigurationError, ResourceError
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.schema.ensemble import sample_members
from simjax.schema.ensemble_section import Variation


@dataclasses.dataclass(frozen=True)
class Group:
    """Members that run together, by their place in the whole ensemble: `own` of them, then the last one to fill up.

    halvings: how often their time step is halved. counted_from: the frame from which each counts in statistics.
    """

    name: str
    places: tuple[int, ...]
    own: int
    halvings: int = 0
    counted_from: tuple[int, ...] = ()


def first_programs(config: Config, folder: Path | None) -> tuple[CompiledRun, bool]:
    """The programs of the whole ensemble, or of its first group, and whether it runs in groups.

    folder: of an earlier run, whose groups are kept.

    Raises:
        ResourceError: not even the smallest group has room.
    """
    size, least = config.ensemble.size, config.mesh.ensemble
    if not config.ensemble.several:
        return compiled_run(config), False
    recorded = None if folder is None else processes().decide(lambda: recorded_groups(folder))
    if folder is not None and recorded is None:
        return compiled_run(config), False
    length = recorded["group"] if recorded is not None else min(config.ensemble.group or size, size)
    if recorded is not None and length % least:
        raise ConfigurationError(
            f"mesh.ensemble={least}: expected a divisor of {length}, the members of each group of the run that goes on."
        )
    while True:
        grouped = length < size or config.ensemble.retry
        if grouped and config.statistics:
            raise ConfigurationError(
                f"statistics: expected null in an ensemble that runs in groups, here of {length} of {size} members, or "
                "with ensemble.retry; write a smaller ensemble.size, more devices (mesh.ensemble) or no statistics."
            )
        try:
            programs = compiled_run(of_group(config, next(groups_of(config, length))) if grouped else config)
            programs.require_least_memory(programs.frame_bytes())
            return programs, grouped
        except ResourceError:
            smaller = -(-length // 2 // least) * least
            # All processes find the same: the memory that they go by is the least that any of them has.
            if smaller >= length or config.ensemble.group is not None or config.ensemble.statistics.quantiles:
                raise
            length = smaller


def groups_of(config: Config, length: int) -> Iterator[Group]:
    """Groups of `length` members in their order; the last one is filled up with its last member."""
    size = config.ensemble.size
    for number, first in enumerate(range(0, size, length)):
        yield filled_group(f"g{number:04d}", tuple(range(first, min(first + length, size))), length)


def filled_group(
    name: str, places: Sequence[int], length: int, halvings: int = 0, counted_from: Sequence[int] = ()
) -> Group:
    """A group of the members at these places, filled up to a length; counted_from: of its own ones, as of `Group`."""
    filling = length - len(places)
    counted = (*(counted_from or (0,) * len(places)), *(int(NEVER),) * filling)
    return Group(name, (*places, *(places[-1],) * filling), len(places), halvings, counted)


def of_group(config: Config, group: Group) -> Config:
    """The configuration of the members of a group: what varies is given by its values."""
    ensemble, time, places = config.ensemble, config.time, list(group.places)
    drawn = sample_members(config)
    vary = tuple(Variation(one.path, "values", tuple(drawn[one.path][places].tolist())) for one in ensemble.vary)
    numbers = np.asarray(ensemble.members)[places]
    numbers[group.own :] = max(ensemble.members) + 1 + np.arange(len(places) - group.own)  # those that fill up
    statistics = ensemble.statistics
    if "variance" in statistics.names and "mean" not in statistics.names:  # to put variances of groups together
        statistics = dataclasses.replace(statistics, names=("mean", *statistics.names))
    part = 2.0**-group.halvings
    return dataclasses.replace(
        config,
        title=f"{config.title or config.experiment_name}, members {numbers[0]} to {numbers[group.own - 1]}",
        ensemble=dataclasses.replace(
            ensemble,
            size=len(places),
            group=None,
            vary=vary,
            numbers=tuple(numbers.tolist()),
            statistics=statistics,
            retry=False,
        ),
        time=dataclasses.replace(
            time,
            dt=None if time.dt is None else time.dt * part,
            courant=None if time.courant is None else time.courant * part,
            tolerance=None if time.tolerance is None else time.tolerance * part,
        ),
        output=dataclasses.replace(config.output, report=False, animation=False),
    )


def recorded_groups(folder: Path) -> dict[str, Any] | None:
    """The record of the groups of a run; None where it does not run in groups.

    Raises:
        CheckpointError: the record is damaged.
    """
    path = folder / GROUPS_NAME
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {"group": int(found["group"]), "finished": list(found["finished"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); bring it back from a copy.") from None
