"""Number of steps in one call of the device, and the speed of the run."""

import contextlib
import math
import time as wall
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from simjax.driver.loop.goodput import COMPILE, GoodputLog
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.driver.start.build import Plan
from simjax.parallel import whole
from simjax.schema.config import AUTO, Config
from simjax.stepping.simulate import Clock, Schedule

# A call should be long against dispatch (0.1 ms) and short against a person's patience.
TARGET_SECONDS = 0.5


class CallLength:
    """Divides frames into calls of about half a second and keeps the clock of the host."""

    def __init__(self, config: Config, programs: CompiledRun, goodput: GoodputLog, instruments: CompiledInstruments):
        on_cpu, elsewhere = programs.seconds
        each = on_cpu if jax.devices()[0].platform == "cpu" else elsewhere
        self.size = programs.size * (programs.members or 1)
        self.step_seconds = each * self.size * programs.stages
        self.config, self.programs, self.goodput = config, programs, goodput
        self.instruments = instruments
        self.compile_seconds = 0.0
        self.compiled_since = goodput.launched  # programs are counted from then on
        self.steps = 0
        self.longest_call = 0
        self.courant_steps = 1
        self.steps_per_frame = 1
        self.limit: float | None = None  # the stable step for which calls are sized, the first measured unless given
        self._called: set[int] = set()
        self._since: tuple[float, int] | None = None
        self._rate = math.nan

    def measure_step(self, limit: float) -> None:
        """Size the calls of a Courant-limited run from the stable step `limit` of its state, unless one is given."""
        limit = self.limit = limit if self.limit is None else self.limit
        time = self.config.time
        every = min(time.output_every, time.end) if time.end > 0 else time.output_every
        if time.tolerance is not None:  # no one can tell how many a frame takes: a call ends with it
            self.steps_per_frame = self.courant_steps = self._affordable()
            return
        step = time.dt if time.dt is not None else (time.courant or 1.0) * limit
        self.steps_per_frame = max(1, math.ceil(every / step)) if math.isfinite(step) else 1
        self.courant_steps = min(self.steps_per_frame + 1 + self.steps_per_frame // 8, self._affordable())

    def _affordable(self) -> int:
        return max(1, round(TARGET_SECONDS / self.step_seconds))

    def pieces(self, schedule: Schedule, done: int = 0) -> Iterator[int]:
        """Steps of each call of one frame of which `done` steps are over: equal pieces, so one program serves.

        Steps between two exchanges or arrangements stay together, so that a run that was cut goes on bit for bit.
        """
        together = self.programs.steps_together
        remaining, single = divmod(schedule.steps - done, together)
        most = max(1, self.instruments.most_steps(schedule, self._affordable()) // together)
        size = max((d for d in _divisors(remaining) if d <= most), default=1)
        if 4 * size < min(most, remaining):  # an awkward number of steps: a shorter last piece costs a compilation
            size = min(most, remaining)
        whole, rest = divmod(remaining, size)
        yield from [size * together] * whole + [n for n in (rest * together, single) if n]

    def require_memory(
        self, plan: Plan, frame: int, state: Any, clock: Clock, sums: Any = (), *, measured: bool = False
    ) -> list[str]:
        """Compile the first call of a run from `frame` on, and return sentences on the memory that the run needs.

        sums: of statistics in time.

        Where steps between exchanges are still to be `measured`, its program is traced only.

        Raises:
            ResourceError: it is more than there is.
            ConfigurationError: the program cannot be made, such as one of kernels or of blocked steps.
        """
        if frame >= plan.total:
            return []
        schedule = plan.schedule_of(frame)
        done = int(np.max(whole(clock.substep)))
        steps = self.steps_of_call(schedule) if schedule.dt is None else next(self.pieces(schedule, done))
        program: Any = self.instruments.advance(schedule, steps)
        until = self.instruments.until(plan, frame, done, steps), *([sums] if self.instruments.in_the_loop else [])
        if self.config.steps_per_exchange == AUTO and not measured:
            program.eval_shape(self.programs.values, self.programs.files, state, clock, *until)
            return []
        with self.timed(program):
            found = self.programs.require_memory(program, state, clock, *until)
        notes = [] if found is None else [found.sentence(self.programs.available_memory)]
        batch, members = getattr(program, "batch", None), self.programs.local_members
        if batch is not None and batch < members:
            notes.append(f"{batch} of {members} members run at a time on each device, which fit into memory.")
        return notes

    def steps_of_call(self, schedule: Schedule) -> int:
        """The most steps of a call whose steps the Courant number or a tolerance limits."""
        return self.instruments.most_steps(schedule, self.courant_steps)

    @contextlib.contextmanager
    def timed(self, program: Callable) -> Iterator[None]:
        """Context manager that times a call; the first call of each program includes its compilation."""
        if id(program) in self._called:
            yield
            return
        begin = wall.monotonic()
        with self.goodput.during(COMPILE):
            yield
        self._called.add(id(program))
        self.compile_seconds += wall.monotonic() - begin
        self._since = None

    def dispatched(self, steps: int) -> None:
        self.longest_call = max(self.longest_call, steps)

    def completed(self, steps: int) -> None:
        """`steps` steps in all are known to be done by now."""
        now = wall.monotonic()
        if self._since is None:
            self._since = now, steps
        elif steps > self._since[1] and now > self._since[0]:
            self._rate = self.size * (steps - self._since[1]) / (now - self._since[0])
        self.steps = steps

    @property
    def rate(self) -> float:
        """Updates of cells or particles per second since compilation; not a number before two frames are done."""
        return self._rate


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return small + [n // d for d in small]
