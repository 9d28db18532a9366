"""The time of a step, estimated from the scheduled program: work on the chip, and exchanges that nothing hides.

Instructions run one after the other. Each takes the longest of its bytes over the memory's bandwidth and its operations
over the rate of the unit that does them. An exchange begins when its links are free and takes the bytes that the
busiest link carries over that link's bandwidth, and the latency of its longest way. A synchronous one stops the chip.
Of an asynchronous one only what is left is waited for, when its result is asked for.

On a GPU every kernel takes a launch beside its work, and none is shorter than a least time; bandwidths are those that
kernels were measured to reach (`chips.Kernels`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

from simjax.chips import Chip, Kernels
from simjax.inspect.hlo import Computation, Instruction, Program
from simjax.inspect.launches import READ_BACK, Launches, launches_of
from simjax.inspect.links import Route, Switch, Torus, exchanges
from simjax.inspect.work import COLLECTIVES, Work, work_of


@dataclass(frozen=True)
class Exchange:
    """A collective of the program.

    count: how often it runs; bytes: of the values that a device gives to it each time; padded: the same as they lie in
    memory; is_asynchronous: other work can run meanwhile. seconds: that it takes by itself; beside: seconds of work
    that stand between its start and its end; exposed: seconds for which the chip waits for it.
    """

    kind: str
    count: float
    bytes: int
    padded: int
    is_asynchronous: bool
    route: Route
    participants: int
    seconds: float = 0.0
    beside: float = 0.0
    exposed: float = 0.0

    def __mul__(self, times: float) -> Exchange:
        return dataclasses.replace(self, count=self.count * times)


@dataclass(frozen=True)
class Tally:
    """Work and exchanges of a part of a program.

    seconds: of work on the chip; by_limit: the same by what bounds it; launches: of a GPU, by what starts;
    unknown_loops: those whose length the text does not tell, and whose turns are counted once.
    """

    work: Work = Work()
    seconds: float = 0.0
    by_limit: dict[str, float] = field(default_factory=dict)
    exchanges: tuple[Exchange, ...] = ()
    launches: dict[str, float] = field(default_factory=dict)
    unknown_loops: int = 0

    @property
    def exposed(self) -> float:
        """Seconds in which the chip waits for exchanges."""
        return sum(one.count * one.exposed for one in self.exchanges)

    @property
    def limit(self) -> str:
        """The bound of the part that takes longest: memory, vector unit, matrix unit, launches or exchanges."""
        return max({**self.by_limit, "exchanges": self.exposed}.items(), key=lambda pair: pair[1])[0]

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.work + other.work,
            self.seconds + other.seconds,
            _sums(self.by_limit, other.by_limit),
            (*self.exchanges, *other.exchanges),
            _sums(self.launches, other.launches),
            self.unknown_loops + other.unknown_loops,
        )

    def __mul__(self, times: float) -> Tally:
        return Tally(
            self.work * times,
            self.seconds * times,
            _scaled(self.by_limit, times),
            tuple(one * times for one in self.exchanges),
            _scaled(self.launches, times),
            self.unknown_loops,
        )


def _sums(these: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    return {name: these.get(name, 0.0) + others.get(name, 0.0) for name in (these | others)}


def _scaled(these: dict[str, float], times: float) -> dict[str, float]:
    return {name: value * times for name, value in these.items()}


LIMITS = ("memory", "vector unit", "matrix unit")
LAUNCHES = "launches"
"""Limit of a kernel of a GPU that is shorter than the least time, and name of the gap before any kernel."""


class Estimator:
    """Tallies of the parts of a program on devices that links join; without a chip nothing takes time."""

    def __init__(self, program: Program, chip: Chip | None, network: Torus | Switch):
        self.program, self.chip, self.network = program, chip, network

    def step(self, steps: int) -> tuple[Tally, Tally]:
        """Tallies of one of `steps` steps, which a loop takes, and of what a call does once beside that loop."""
        entry = self.program[self.program.entry]
        loop = self._longest_loop(entry)
        if loop is None:
            return self.tally(entry) * (1 / steps), Tally()
        return self._loop(loop) * (1 / steps), self.tally(entry, without=loop)

    def _longest_loop(self, within: Computation) -> Instruction | None:
        found = [(self._loop(one).work, one) for one in within.instructions if one.op == "while"]
        if not found:
            return None
        return max(found, key=lambda pair: (pair[0].bytes + pair[0].vector, pair[1].name))[1]

    def _loop(self, loop: Instruction) -> Tally:
        turns, body = self.program.trip_count(loop), self.tally(self.program[loop.called("body") or ""])
        if turns is not None:
            return body * turns
        once = self.tally(self.program[loop.called("condition") or ""]) if self._kernels else Tally()
        return body + once + self.started(READ_BACK, Work()) + Tally(unknown_loops=1)

    def tally(self, part: Computation, without: Instruction | None = None) -> Tally:
        """Work and exchanges of a computation from its first instruction to its last."""
        timeline = _Timeline()
        for one in part.instructions:
            kind = one.op.removesuffix("-start").removesuffix("-done")
            if one is without:
                continue
            if one.op == "while":
                timeline.run(self._loop(one))
            elif one.op in ("conditional", "call"):
                branches = [self.tally(self.program[name]) for name in one.calls]
                timeline.run(max(branches, key=lambda tally: (tally.work.bytes + tally.work.vector, tally.exposed)))
                if one.op == "conditional":
                    timeline.run(self.started(READ_BACK, Work()))
            elif one.op == "async-start":
                inner = self.program[one.calls[0]].root
                if inner.op in COLLECTIVES:
                    timeline.start(one.name, self._exchange(inner, self.program[one.calls[0]], is_asynchronous=True))
            elif kind in COLLECTIVES and not one.op.endswith("-done"):
                if one.op.endswith("-start") and not one.is_synchronous:
                    timeline.start(one.name, self._exchange(one, part, is_asynchronous=True))
                else:
                    timeline.wait(self._exchange(one, part, is_asynchronous=False))
            elif one.op.endswith("-done") and timeline.has(one.operands):
                timeline.end(one.operands[0])
            else:
                timeline.run(self._work(part, one))
        return timeline.tally

    def _work(self, part: Computation, one: Instruction) -> Tally:
        work = work_of(self.program, part, one)
        if self.chip is None:
            return Tally(work)
        if self._kernels:
            return self.started(launches_of(part, one), work)
        times = (work.bytes / self.chip.bandwidth, work.vector / self.chip.vector, work.matrix / self.chip.matrix)
        longest = max(times)
        return Tally(work, longest, {LIMITS[times.index(longest)]: longest})

    @property
    def _kernels(self) -> Kernels | None:
        return None if self.chip is None else self.chip.kernels

    def started(self, launches: Launches | None, work: Work) -> Tally:
        """Time of launches on a GPU: a gap for each, and the longest of bytes, operations and the least time."""
        chip, kernels = self.chip, self._kernels
        if chip is None or kernels is None or launches is None:
            return Tally(work)
        moved = work.bytes / kernels.fused
        if launches.streamed is not None:
            moved = launches.streamed / kernels.streamed
        times = {
            **dict(zip(LIMITS, (moved, work.vector / chip.vector, work.matrix / chip.matrix), strict=True)),
            LAUNCHES: launches.count * kernels.least,
        }
        limit, gap = max(times, key=lambda name: times[name]), launches.count * kernels.launch
        by_limit = _sums({limit: times[limit]}, {LAUNCHES: gap})
        return Tally(work, times[limit] + gap, by_limit, launches={launches.kind: float(launches.count)})

    def _exchange(self, one: Instruction, part: Computation, *, is_asynchronous: bool) -> Exchange:
        """A collective by itself: bytes sent, links used, time taken."""
        kind = one.op.removesuffix("-start")
        sent = [*part.operand_shapes(one)]
        size, padded = sum(shape.bytes for shape in sent), sum(shape.padded_bytes for shape in sent)
        route, participants = self._route(kind, one)
        if self.chip is None:
            return Exchange(kind, 1, size, padded, is_asynchronous, route, participants)
        through = padded / participants if kind in ("all-to-all", "reduce-scatter") else padded
        if kind == "all-reduce":  # scattered sums, then gathered: around the ring twice
            through, load, hops = 2 * padded * (participants - 1) / max(participants, 1), 1, 2 * route.hops
        else:
            load, hops = route.load, route.hops
        seconds = load * through / self.chip.link_bandwidth + hops * self.chip.latency if route.hops else 0.0
        return Exchange(kind, 1, size, padded, is_asynchronous, route, participants, seconds)

    def _route(self, kind: str, one: Instruction) -> tuple[Route, int]:
        if kind == "collective-permute":
            return _routed(self.network, one.pairs), 2
        groups = one.groups or (tuple(range(self.network.count)),)
        return _routed_groups(self.network, groups), len(groups[0])


@functools.lru_cache(maxsize=256)
def _routed(network: Torus | Switch, messages: Iterable[tuple[int, int]]) -> Route:
    return network.route(messages)


@functools.lru_cache(maxsize=256)
def _routed_groups(network: Torus | Switch, groups: tuple[tuple[int, ...], ...]) -> Route:
    return network.route(exchanges(groups))


class _Timeline:
    """Time on one chip while instructions run and messages travel."""

    def __init__(self):
        self._now = 0.0
        self._free: dict[str, float] = {}
        self._under_way: dict[str, tuple[Exchange, float, float, float]] = {}
        self._local = 0.0
        self.tally = Tally()

    def run(self, part: Tally) -> None:
        """Work, perhaps with exchanges of its own."""
        self._now += part.seconds + part.exposed
        self._local += part.seconds
        self.tally += part

    def wait(self, one: Exchange) -> None:
        """An exchange for which the chip stops."""
        self.start("", one)
        self.end("")

    def start(self, name: str, one: Exchange) -> None:
        begin = max([self._now, *(self._free.get(way, 0.0) for way in one.route.directions)])
        finish = begin + one.seconds
        self._free |= dict.fromkeys(one.route.directions, finish)
        self._under_way[name] = one, self._local, finish, self._now

    def has(self, names: tuple[str, ...]) -> bool:
        return bool(names) and names[0] in self._under_way

    def end(self, name: str) -> None:
        one, before, finish, _ = self._under_way.pop(name)
        exposed = max(0.0, finish - self._now)
        self._now += exposed
        done = dataclasses.replace(one, beside=self._local - before, exposed=exposed)
        self.tally += Tally(exchanges=(done,))
