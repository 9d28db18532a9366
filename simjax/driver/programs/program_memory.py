"""Memory of compiled programs: what a run needs on each device, and how many members of an ensemble fit at once."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from simjax.driver.start.environment import available_memory
from simjax.errors import ResourceError
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.stepping.checkpointing.plan import readable_bytes

LOG = logging.getLogger("simjax")
# Share of the memory that batches of members fill: runs took up to 1.16 times what was told (docs/performance.md).
FILLED = 0.8
# A frame is written while the next one is computed.
FRAMES = 2


@dataclass(frozen=True)
class ProgramMemory:
    """Bytes of one compiled program on each device.

    arguments: what goes in. results: what comes out beside it, not in its place. working: in between. code: its own.
    """

    arguments: int
    results: int
    working: int
    code: int

    @property
    def added(self) -> int:
        """Bytes beside the arguments."""
        return self.results + self.working + self.code

    @property
    def total(self) -> int:
        return self.arguments + self.added


def memory_of(program: Any, *arguments: Any) -> ProgramMemory | None:
    """Memory of a jitted program called with `arguments`; None where the compiler does not tell.

    The program is compiled here; a call with the same arguments does not compile it again.

    Raises:
        ResourceError: the compiler finds no room for it on the device.
    """
    try:
        stats = program.lower(*arguments).compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise ResourceError(str(error).partition("\n")[0]) from error
    if stats is None:
        return None
    return ProgramMemory(
        stats.argument_size_in_bytes,
        stats.output_size_in_bytes - stats.alias_size_in_bytes,
        stats.temp_size_in_bytes,
        stats.generated_code_size_in_bytes,
    )


def usable_memory(config: Config) -> int | None:
    """Bytes that a run may use on each device, the least of what processes find; None where nobody says."""
    if config.limits.memory is not None:
        return int(config.limits.memory * 2**30)
    found = processes().gather(available_memory())
    known = [memory for memory in found if memory is not None]
    return min(known) if known else None


# ---------------------------------------------------------------------- a run


@dataclass(frozen=True)
class RunMemory:
    """Bytes that a run needs on each device.

    state: with all that goes into a step. working: the most that a program takes beside it. frames: those on their way
    to the disk.
    """

    state: int
    working: int
    frames: int

    @property
    def needed(self) -> int:
        return self.state + self.working + self.frames

    def __str__(self) -> str:
        parts = [f"state {readable_bytes(self.state)}", f"working memory {readable_bytes(self.working)}"]
        return ", ".join([*parts, f"observed frames {readable_bytes(self.frames)}"])

    def sentence(self, available: int | None) -> str:
        """Say how many bytes a device needs, and how many are `available` if that is known."""
        of = "" if available is None else f" of {readable_bytes(available)}"
        return f"Memory on each device: {readable_bytes(self.needed)}{of} ({self})."

    def require(self, available: int | None, advice: str) -> None:
        """Raises ResourceError where more is needed than is `available`. advice: what to write instead."""
        if available is not None and self.needed > available:
            raise ResourceError(
                f"{self.needed / 2**30:.3g} GiB per device are needed and {available / 2**30:.3g} GiB are available: "
                f"{self}; use {advice}."
            )


def least_memory(state: int, members: int, *, donated: bool) -> RunMemory:
    """Memory that a run needs at least, from shapes alone: before anything is compiled or put on a device.

    Args:
        state: bytes of a member's state on one device.
        members: on one device.
        donated: whether a step may put a state in the place of the one before: one member's step needs another then.
    """
    return RunMemory(members * state, state if donated else members * state, 0)


def run_memory(step: ProgramMemory | None, look: ProgramMemory | None, *, cut: bool) -> RunMemory | None:
    """Memory of a run from its programs: `step` advances its state, `look` observes it; None where one is unknown.

    cut: whether its fields are in parts on several devices.
    """
    if step is None or look is None:
        return None
    # A CPU's devices share the memory of the host, which puts together what they hold in parts.
    copies = 2 if cut and jax.default_backend() == "cpu" else 1
    return RunMemory(step.arguments, max(step.added, look.working + look.code), copies * FRAMES * look.results)


# ---------------------------------------------------------------------- members


class MemberProgram:
    """A program over members, of which as many run at once as fit into memory.

    The number is found at the first call: all of them, or what is left room for beside the arguments and results of
    all. A member's results do not depend on it.

    Args:
        make: the jitted program with so many members at once.
        members: on each device.
        room: bytes on each device for the program; None where nobody says.
    """

    def __init__(self, make: Callable[[int], Any], members: int, room: Callable[[], int | None]):
        self._make, self._members, self._room = make, members, room
        self._whole = make(members)
        self.batch: int | None = None
        self._program: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self._chosen(arguments)(*arguments)

    def lower(self, *arguments: Any) -> Any:
        return self._chosen(arguments).lower(*arguments)

    def eval_shape(self, *arguments: Any) -> Any:
        return self._whole.eval_shape(*arguments)

    def trace(self, *arguments: Any) -> Any:
        return self._whole.trace(*arguments)

    def _chosen(self, arguments: Sequence[Any]) -> Any:
        if self._program is None:
            self.batch, self._program = self._choose(arguments)
        return self._program

    def _choose(self, arguments: Sequence[Any]) -> tuple[int, Any]:
        """The largest batch that fits, or nearly, and its program: each that does not tells how much smaller to go."""
        room, batch, program = self._room(), self._members, self._whole
        while room is not None and batch > 1:
            # A program takes a + b batch bytes, where b is what lies in between, over the batch.
            fewer = batch // 2
            try:
                memory = memory_of(program, *arguments)
                if memory is None or memory.total <= room:
                    break
                fitting = batch - math.ceil((memory.total - room) * batch / max(memory.working, 1))
                fewer = min(fitting, batch - 1 if batch == self._members else fewer)
            except ResourceError:
                LOG.info("%d members at once find no room on the device", batch)
            batch = even_batch(self._members, max(1, fewer))
            program = self._make(batch)
        return batch, program


def over_members(fn: Callable, in_axes: tuple, members: int, batch: int) -> Callable:
    """`fn` over the members of a device, so many at once; in_axes: 0 of arguments with members, None of others."""
    mapped = jax.vmap(fn, in_axes=in_axes)
    if batch >= members:
        return mapped

    def in_batches(*args):
        shared = [arg for arg, axis in zip(args, in_axes, strict=True) if axis is None]
        own = [arg for arg, axis in zip(args, in_axes, strict=True) if axis is not None]

        def one(own_args):
            rest, each = iter(shared), iter(own_args)
            return fn(*(next(rest) if axis is None else next(each) for axis in in_axes))

        return jax.lax.map(one, own, batch_size=batch)

    return in_batches


def even_batch(members: int, most: int) -> int:
    """The largest batch up to `most` that divides the members, unless it is less than half of that.

    A last batch of another size is one more program.
    """
    found = max(d for d in range(1, most + 1) if members % d == 0)
    return found if 2 * found > most else most
