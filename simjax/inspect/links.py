"""Messages between devices on their links: hops, and the number of messages that share one link."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Place = tuple[int, ...]


@dataclass(frozen=True)
class Route:
    """A route of messages that travel at the same time. load: of the busiest link, in messages; hops: of the longest
    way; directions: links that are used, such as "x+"."""

    load: int
    hops: int
    directions: tuple[str, ...]


@dataclass(frozen=True)
class Torus:
    """Devices at places of a torus, whose axes close where `wraps`; messages go along one axis after the other."""

    places: tuple[Place, ...]
    shape: tuple[int, ...]
    wraps: tuple[bool, ...]

    @property
    def count(self) -> int:
        """Number of devices."""
        return len(self.places)

    def route(self, messages: Iterable[tuple[int, int]]) -> Route:
        """The way of messages from a device to another, both by number."""
        loads: Counter[tuple[Place, str]] = Counter()
        hops = 0
        for sender, receiver in messages:
            links = [*self._links(self.places[sender], self.places[receiver])]
            loads.update(links)
            hops = max(hops, len(links))
        return Route(max(loads.values(), default=0), hops, tuple(sorted({way for _, way in loads})))

    def _links(self, begin: Place, end: Place) -> Iterable[tuple[Place, str]]:
        place = list(begin)
        for axis, length in enumerate(self.shape):
            ahead = end[axis] - place[axis]
            if self.wraps[axis]:  # the shorter way; of those halfway around every second one takes either
                twice = 2 * (ahead % length)
                ahead = 1 if twice < length or (twice == length and place[axis] % 2 == 0) else -1
            step = 1 if ahead > 0 else -1
            while place[axis] != end[axis]:
                yield tuple(place), "xyz"[axis] + ("+" if step > 0 else "-")
                place[axis] = (place[axis] + step) % length


@dataclass(frozen=True)
class Switch:
    """Devices, `count` of them, that all reach each other through a switch: each has one link for each direction."""

    count: int

    def route(self, messages: Iterable[tuple[int, int]]) -> Route:
        """The way of messages from a device to another, both by number."""
        moved = [(sender, receiver) for sender, receiver in messages if sender != receiver]
        loads = Counter(sender for sender, _ in moved) | Counter(("to", receiver) for _, receiver in moved)
        return Route(max(loads.values(), default=0), 1 if moved else 0, ("switch",) if moved else ())


def exchanges(groups: Iterable[Sequence[int]]) -> Iterable[tuple[int, int]]:
    """All messages of devices that each send something to each other one of their group."""
    for group in groups:
        yield from itertools.permutations(group, 2)
