"""Kernels of a step of a GPU's program as plain numbers, and the time that the model of `simjax.inspect` gives
them."""

from collections.abc import Sequence
from typing import Any

from simjax.chips import CHIPS
from simjax.inspect.hlo import Program
from simjax.inspect.launches import Launches
from simjax.inspect.links import Switch
from simjax.inspect.time_estimate import Estimator, Tally
from simjax.inspect.work import Work

COLUMNS = ["kind", "launches", "streamed", "bytes", "operations", "products", "times"]
"""Of a row: what starts, how many launches that is, bytes that are read and written as a copy does it (None: as XLA's
own kernels do it), bytes of operands and results, operations on single elements and of matrix products, times in a
step."""


class _Listed(Estimator):
    """Tallies whose launches are told by all that their time follows from."""

    def started(self, launches: Launches | None, work: Work) -> Tally:
        if launches is None:
            return Tally(work)
        row = (launches.kind, launches.count, launches.streamed, work.bytes, work.vector, work.matrix)
        return Tally(work, launches={row: 1.0})  # type: ignore[dict-item]


def kernels_of(program: Program, steps: int, *, within_a_loop: bool = True) -> list[list[Any]]:
    """Rows of one of `steps` steps; those that are alike stand once."""
    listed = _Listed(program, CHIPS["h100"], Switch(1))
    tally = listed.step(steps)[0] if within_a_loop else listed.tally(program[program.entry]) * (1 / steps)
    return sorted([[*row, times] for row, times in tally.launches.items()], key=str)


def seconds_of(rows: Sequence[Sequence[Any]]) -> float:
    """Time of a step from its rows."""
    model = Estimator(Program({}, ""), CHIPS["h100"], Switch(1))
    return sum(
        times * model.started(Launches(kind, count, streamed), Work(moved, vector, matrix)).seconds
        for kind, count, streamed, moved, vector, matrix, times in rows
    )
