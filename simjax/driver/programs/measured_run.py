"""The shapes of a run's arrays and the memory that it needs, which is refused before it is taken."""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from simjax.core.domain import Domain
from simjax.driver.programs import program_memory
from simjax.driver.programs.placed_run import PlacedRun
from simjax.schema.config import Config
from simjax.stepping.simulate import Clock


class MeasuredRun(PlacedRun):
    """A run on its devices with the sizes of its arrays: of its state, of what is observed, of its programs.

    `size` counts one member's cells or particles.
    """

    smaller: str
    """Advice that makes a member's state smaller."""
    regrows = False
    """True where a run may need more room than it was given; its calls then keep the state that goes in."""

    domain: Domain
    size: int
    files: Any
    values: Any
    _member: Any

    def __init__(self, config: Config, given: Sequence[str], absent: Sequence):
        super().__init__(config, given, absent)
        self.available_memory = None if absent else program_memory.usable_memory(config)  # absent devices do not tell

    @abc.abstractmethod
    def observe(self) -> Callable:
        """Compiled `(values, files, state, clock, t) -> (arrays, diagnostics, status)`.

        status: bits of `status` that are set where the observation itself lacked room.
        """

    def clock_at_start(self) -> Clock:
        """The clock of one member before the first step."""
        return Clock.zero(self.dtype, controlled=self.config.time.tolerance is not None)

    @functools.cached_property
    def _clock(self) -> Any:
        """Shapes and dtypes of one member's clock."""
        return jax.eval_shape(self.clock_at_start)

    # ------------------------------------------------------------------ shapes

    @property
    def member_shapes(self) -> Any:
        """Shapes and dtypes of one member's whole state."""
        return self._member

    def observed_shapes(self):
        """Shapes and dtypes of the fields and diagnostics that `observe` returns."""
        time = jax.ShapeDtypeStruct((), self.dtype)
        return self.observe().eval_shape(self.values, self.files, *self.template(self.room()), time)

    def template(self, room: Mapping[str, Any]):
        """Shapes, dtypes and shardings of (state, clock), to restore a checkpoint onto these devices.

        room: that of the checkpoint, which these programs have from now on.
        """
        clock = self._clock
        specs = self.state_specs, jax.tree.map(lambda _: self._one, clock)
        lead = () if self.members is None else (self.members,)
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(lead + leaf.shape, leaf.dtype, sharding=sharding),
            (self._member, clock),
            self._shardings(specs),
        )

    # ------------------------------------------------------------------ memory

    def state_bytes(self) -> int:
        """Bytes of one member's state on one device."""
        devices = math.prod(dict(self.mesh.shape)[name] for name in self.domain.names) if self.mesh else 1
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self._member)) // devices

    def _room_for_members(self) -> int | None:
        """Bytes that a program over members may fill, beside frames on their way to the disk."""
        if self.available_memory is None:
            return None
        return int(program_memory.FILLED * self.available_memory) - self.frame_bytes()

    def frame_bytes(self) -> int:
        """Bytes on each device of the frames that are on their way to the disk."""
        parts = 1 if self.mesh is None else self.mesh.size
        frame = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.observed_shapes()))
        return program_memory.FRAMES * frame // parts

    def require_least_memory(self, frames: int = 0) -> None:
        """Raises ResourceError where not even the state and `frames` bytes fit, before anything is compiled or put on
        a device."""
        least = program_memory.least_memory(self.state_bytes(), self.local_members, donated=not self.regrows)
        dataclasses.replace(least, frames=frames).require(self.available_memory, self._memory_advice)

    def require_memory(self, program: Callable, state, clock, *until) -> program_memory.RunMemory | None:
        """The memory that the run needs, of which `program` is what advances the state; both are compiled here.

        Raises:
            ResourceError: it is more than there is.
        """
        given = self.values, self.files, state, clock
        look = program_memory.memory_of(self.observe(), *given, jax.device_put(np.zeros((), self.dtype)))
        step = program_memory.memory_of(program, *given, *until)
        found = program_memory.run_memory(step, look, cut=self.mesh is not None)
        if found is not None:
            found.require(self.available_memory, self._memory_advice)
        return found

    @property
    def _memory_advice(self) -> str:
        """Advice where memory is short."""
        members = "a smaller ensemble.group or ensemble.size, " if self.members is not None else ""
        precision = "precision=float32, " if self.config.precision == "float64" else ""
        axes = "mesh.x, mesh.y" if self.config.ndim > 1 else "mesh.x"
        return f"{self.smaller}, {precision}{members}or more devices ({axes})"
