"""Findings from a compiled program: memory of each device, exchanges, the time of a step, the weak scaling."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from simjax.inspect.target import Target
from simjax.io.replacing import INSPECTION_FORMAT

if TYPE_CHECKING:
    from simjax.inspect.time_estimate import Exchange, Tally


@dataclass(frozen=True)
class Memory:
    """Bytes on each device: of what goes into a call of the program, of temporaries and results, of results that take
    the place of arguments; peak: the most at one time. refusal: why the compiler found no room; None: there is.
    """

    arguments: int = 0
    temporaries: int = 0
    results: int = 0
    aliased: int = 0
    peak: int = 0
    refusal: str | None = None


@dataclass(frozen=True)
class Inspection:
    """A step of a run, as its program for a target has it; `print` shows the tables.

    mesh: devices by axis; shape: cells of the grid, or of particles; block: those of one device; step: what one step
    does; call: what a call of `steps` steps does once beside them; both None where there is no room in memory.
    compile_seconds: of the processor. smaller: the same block on fewer devices.
    """

    experiment: str
    model: str
    precision: str
    integrator: str | None
    target: Target
    mesh: dict[str, int]
    shape: tuple[int, ...]
    block: tuple[int, ...]
    memory: Memory
    step: Tally | None
    call: Tally | None
    steps: int
    compile_seconds: float
    smaller: tuple[Inspection, ...] = ()

    def __str__(self) -> str:
        from simjax.inspect.text_table import as_text

        return as_text(self.as_dict())

    @property
    def seconds(self) -> float:
        """Estimated seconds of a step; not a number where there is no program or nothing is known of the chip."""
        if self.step is None or self.target.chip is None:
            return math.nan
        return self.step.seconds + self.step.exposed

    @property
    def efficiency(self) -> float:
        """Estimated time of a step on one device over that on all, the block of each device being the same."""
        alone = [one for one in (*self.smaller, self) if one.target.count == 1]
        return alone[0].seconds / self.seconds if alone else math.nan

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Collectives of a step; equal ones are counted together."""
        return () if self.step is None else gathered(self.step.exchanges)

    def counts(self) -> dict[str, float]:
        """Collectives of a step by kind."""
        found: dict[str, float] = {}
        for one in self.exchanges:
            found[one.kind] = found.get(one.kind, 0) + one.count
        return found

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, in seconds and bytes, to be kept as JSON."""
        chip = self.target.chip
        return {
            "format": INSPECTION_FORMAT,
            "experiment": self.experiment,
            "model": self.model,
            "precision": self.precision,
            "integrator": self.integrator,
            "target": str(self.target),
            "devices": self.target.count,
            "mesh": self.mesh,
            "shape": list(self.shape),
            "block": list(self.block),
            "chip": None if chip is None else dataclasses.asdict(chip),
            "versions": versions(),
            "compile_cpu_s": round(self.compile_seconds, 2),
            "memory": dataclasses.asdict(self.memory),
            "steps_in_a_call": self.steps,
            "step": _tally(self.step, self),
            "call": _tally(self.call, self),
            "scaling": [one.as_row(self) for one in (*self.smaller, self)] if self.smaller else [],
        }

    def as_row(self, whole: Inspection) -> dict[str, Any]:
        """This size in the table of weak scaling of `whole`."""
        alone = whole.smaller[0].seconds if whole.smaller else math.nan
        return {
            "devices": self.target.count,
            "mesh": self.mesh,
            "shape": list(self.shape),
            "seconds": self.seconds,
            "exposed_s": 0.0 if self.step is None else self.step.exposed,
            "by_limit_s": {} if self.step is None else dict(self.step.by_limit),
            "efficiency": alone / self.seconds,
            "compile_cpu_s": round(self.compile_seconds, 2),
        }


def gathered(exchanges: Iterable[Exchange]) -> tuple[Exchange, ...]:
    """Exchanges that differ in nothing but their place in the program as one, with the mean of their times."""
    found: dict[tuple, list[Exchange]] = {}
    for one in exchanges:
        found.setdefault((one.kind, one.bytes, one.padded, one.is_asynchronous, one.route), []).append(one)
    return tuple(map(_together, found.values()))


def _together(alike: list[Exchange]) -> Exchange:
    count = sum(one.count for one in alike)
    mean = {
        name: sum(one.count * getattr(one, name) for one in alike) / count for name in ("seconds", "beside", "exposed")
    }
    return dataclasses.replace(alike[0], count=count, **mean)


def _tally(tally: Tally | None, of: Inspection) -> dict[str, Any] | None:
    if tally is None:
        return None
    chip = of.target.chip
    exchanges = [
        {
            "kind": one.kind,
            "count": one.count,
            "bytes": one.bytes,
            "padded_bytes": one.padded,
            "asynchronous": one.is_asynchronous,
            "participants": one.participants,
            "links": list(one.route.directions),
            "hops": one.route.hops,
            "messages_on_a_link": one.route.load,
            **({} if chip is None else {"seconds": one.seconds, "beside_s": one.beside, "exposed_s": one.exposed}),
        }
        for one in gathered(tally.exchanges)
    ]
    found = {
        "bytes": tally.work.bytes,
        "operations": tally.work.vector,
        "matrix_operations": tally.work.matrix,
        "exchanges": exchanges,
        "loops_of_unknown_length": tally.unknown_loops,
    }
    if chip is not None and chip.kernels is not None:
        found["launches"] = dict(sorted(tally.launches.items()))
    if chip is None:
        return found
    times = {
        "seconds": tally.seconds + tally.exposed,
        "chip_s": tally.seconds,
        "exposed_s": tally.exposed,
        "by_limit_s": dict(tally.by_limit),
        "limit": tally.limit,
        "compiler_estimate_s": tally.work.cycles / chip.clock,
    }
    return {**times, **found}


def versions() -> dict[str, str]:
    """Versions of jax and of the compilers that are installed."""
    found = {}
    for name in ("jax", "libtpu", "jax-cuda13-plugin"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
