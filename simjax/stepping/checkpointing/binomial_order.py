"""The order in which a chain of steps is replayed backwards from few stored states, with the fewest evaluations.

Griewank and Walther 2000, ACM Trans. Math. Softw. 26, 19: with s stored states and every step advanced again at most r
times, binomial(s + r, s) steps can be reversed, and no order reverses more.
"""

import math
from typing import NamedTuple

import numpy as np


class Replay(NamedTuple):
    """Order in which to stand before each step, from the last to the first. All entries are int32.

    load: `(steps,)`, the slot to begin from. first: `(steps + 1,)`; then stretches first[j] to first[j + 1] - 1, each
    of `count` steps, ending with a store in `slot`. rest: `(steps,)`, the steps that are left after them.
    """

    load: np.ndarray
    first: np.ndarray
    rest: np.ndarray
    count: np.ndarray
    slot: np.ndarray

    @property
    def advanced(self) -> int:
        """Steps advanced while replaying, the first sweep included."""
        return int(self.count.sum() + self.rest.sum())


def reach(states: int, repeats: int) -> int:
    """Number of steps that `states` stored states reverse, advancing none of them more than `repeats` times."""
    return math.comb(states + repeats, states) if repeats >= 0 else 0


def fewest_advances(steps: int, states: int) -> int:
    """Steps that any order advances at least, in order to reverse `steps` of them from `states` stored states."""
    repeats = _repeats(steps, states)
    return repeats * steps - (math.comb(states + repeats, states + 1) if repeats else 0)


def replay(steps: int, states: int) -> Replay:
    """The best order for `steps` steps and `states` stored states, that of the beginning among them."""
    stored, free = [(0, 0)], list(range(states - 1, 0, -1))
    load, first, rest, count, slot = [], [0], [], [], []
    for step in reversed(range(steps)):
        position, at = stored[-1]
        load.append(at)
        while free and step > position:
            ahead = _split(step - position + 1, len(free) + 1)
            position += ahead
            stored.append((position, free.pop()))
            count.append(ahead)
            slot.append(stored[-1][1])
        first.append(len(count))
        rest.append(step - position)
        if step == position:
            free.append(stored.pop()[1])
    return Replay(*(np.asarray(entry, np.int32) for entry in (load, first, rest, count, slot)))


def _repeats(steps: int, states: int) -> int:
    """The least number of times that some step must be advanced."""
    low, high = 0, 1
    while reach(states, high) < steps:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if reach(states, middle) < steps else (low, middle)
    return low


def _split(steps: int, states: int) -> int:
    """Number of steps to the next store: what then lies on either side is reversed best."""
    repeats = _repeats(steps, states)
    return min(reach(states, repeats - 1), steps - reach(states - 1, repeats - 1))
