"""Plans of reverse mode: what is stored and what is computed again, their memory and their cost."""

import logging
import math
from dataclasses import dataclass
from typing import Any, Literal

from simjax.arguments import require_count, require_one_of, shown
from simjax.errors import ConfigurationError
from simjax.schema.storage_section import STORAGE
from simjax.stencil.formulation import fresh_memory_is_dear
from simjax.stepping.checkpointing.binomial_order import fewest_advances

LOG = logging.getLogger("simjax")
# Of the transpose of a step, in steps (0.9 to 1.7 by `python -m benchmarks gradients`).
PULL_BACK = 1.5
# Steps between two states that "every_few" stores.
FEW = 4
# Bytes that a program is given again by the allocator of a CPU, without asking the system: it then keeps all values.
GIVEN_AGAIN = 2**25
# "auto" keeps all values where that is little more, else every stage, or every step, as long as that takes no more than
# this, per device (of each member, in an ensemble), where no device tells how much memory it has.
AUTO_BYTES = 2**31
# Of the memory that a device has it keeps no more than this share: the fields, the parameters and what a step takes
# beside them need room as well, and so does what else the program keeps.
AUTO_SHARE = 0.5


@dataclass(frozen=True)
class Binomial:
    """`states` stored states, replayed in the order that advances the fewest steps again (Griewank, Walther 2000).

    host: whether they live in host memory, where the device has its own. dtype: bfloat16 or float16, in which fields
    are stored in a half or a quarter of their bytes; steps are then replayed from rounded states, and a gradient is
    that much less exact. None: as they are.

    Examples:
        >>> run = sj.load("dye", ["grid.shape=[16,16]"]).differentiable(variables=[], checkpoint=sj.Binomial(5))
    """

    states: int
    host: bool = False
    dtype: str | None = None

    def __post_init__(self):
        require_count("Binomial: states", self.states)
        require_one_of("Binomial: dtype", self.dtype, (None, *STORAGE))

    def __repr__(self) -> str:
        dtype = "" if self.dtype is None else f", dtype={self.dtype}"
        return f"Binomial(states={self.states}{_place(self.host)}{dtype})"

    def stored(self) -> dict[str, Any]:
        """Options of `binomial_scan`, by name."""
        return {"states": self.states, "in_host": self.host, "dtype": self.dtype}


@dataclass(frozen=True)
class Budget:
    """The cheapest plan whose stored states fit into `bytes` per device (of each member, in an ensemble).

    host: whether they live in host memory, where the device has its own; `bytes` are bytes there.

    Examples:
        >>> run = sj.load("dye", ["grid.shape=[16,16]"]).differentiable(variables=[], checkpoint=sj.Budget(2**20))
    """

    bytes: int
    host: bool = False

    def __repr__(self) -> str:
        return f"Budget(bytes={self.bytes}{_place(self.host)})"


def _place(host: bool) -> str:
    return ", host=True" if host else ""


Policy = Literal["none", "every_few", "every_stage", "every_step", "two_level"]
Checkpoint = Policy | Literal["auto", "reverse"] | Binomial | Budget


@dataclass(frozen=True)
class Plan:
    """Reversal of `frames` frames of `steps` steps.

    policy: "none" keeps every intermediate value, "every_few" those of `FEW` steps at a time. frame_states,
    step_states: states stored between frames, and between the steps of one frame. again: steps advanced again (with
    "reverse", taken back), in all. state_bytes: of one state per device. host: whether stored states live in host
    memory. dtype: of their fields, where that is not their own.
    """

    policy: Policy | Literal["binomial", "reverse"]
    frames: int
    steps: int
    frame_states: int
    step_states: int
    again: int
    state_bytes: int
    host: bool = False
    dtype: str | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all stored states per device; with "none" only those at the beginning of steps."""
        return (self.frame_states + self.step_states) * self.state_bytes

    @property
    def cost(self) -> float:
        """Cost of value and gradient in forward runs, if a step's transpose costs `PULL_BACK` steps."""
        reversal = PULL_BACK if self.policy == "none" else 1 + PULL_BACK
        return 1 + reversal + self.again / (self.frames * self.steps)

    def __str__(self) -> str:
        total = self.frames * self.steps
        stored = f"{self.frame_states + self.step_states} states of {readable_bytes(self.state_bytes)} stored"
        return (
            f"{self.policy}: {stored}, {readable_bytes(self.bytes)} per device"
            f"{' in host memory' if self.host else ''}; {self.again} steps "
            f"{'taken back' if self.policy == 'reverse' else 'advanced again'} to reverse {total}; value and gradient "
            f"cost about {self.cost:.1f} forward runs"
        )


def plan(
    checkpoint: Checkpoint,
    *,
    frames: int,
    steps: int,
    state_bytes: int,
    stages: int = 1,
    values: int | None = None,
    memory: int | None = None,
) -> Plan:
    """The plan that `checkpoint` asks for, for a run of `frames` frames of `steps` steps of so many `stages`.

    values: states that hold all that reverse mode needs of a step, where that is known. memory: bytes of the device, by
    which "auto" goes, for each member; None: nobody tells.
    """
    total = frames * steps
    if isinstance(checkpoint, Binomial):
        between, within = _shares(frames, steps, checkpoint.states)
        again = frames * _again(steps, within)
        if between:
            # Each frame runs once more, to store states within it.
            again += steps * (_again(frames, between) + frames)
        return Plan("binomial", frames, steps, between, within, again, state_bytes, checkpoint.host, checkpoint.dtype)
    if isinstance(checkpoint, Budget):
        return _cheapest(checkpoint, frames, steps, state_bytes, stages, values)
    if not isinstance(checkpoint, str):
        raise _no_plan(checkpoint)
    if checkpoint == "auto":
        most = AUTO_BYTES if memory is None else int(AUTO_SHARE * memory)
        found = plan(
            _all_kept(frames, steps, state_bytes, stages, values, most) or "two_level",
            frames=frames,
            steps=steps,
            state_bytes=state_bytes,
            stages=stages,
        )
        if memory is not None:
            LOG.info("checkpoints, of %s: %s", readable_bytes(memory), found)
        return found
    if checkpoint == "two_level":
        inner = group_size(steps)
        between = frames if frames > 1 else 0
        again = total * (2 if between else 1)
        return Plan("two_level", frames, steps, between, -(-steps // inner) + inner, again, state_bytes)
    if checkpoint == "every_few":
        return Plan("every_few", frames, steps, 0, _few_states(frames, steps), 0, state_bytes)
    if checkpoint == "reverse":
        # The first and the last.
        return Plan("reverse", frames, steps, 0, 2, total, state_bytes)
    if checkpoint in ("none", "every_stage", "every_step"):
        states = total * (stages if checkpoint == "every_stage" else 1)
        return Plan(checkpoint, frames, steps, 0, states, 0, state_bytes)
    raise _no_plan(checkpoint)


def _no_plan(checkpoint: Any) -> ConfigurationError:
    return ConfigurationError(
        f"checkpoint={shown(checkpoint)}: expected 'auto', 'none', 'every_few', 'every_stage', 'every_step', "
        "'two_level', 'reverse', Binomial(states=...) or Budget(bytes=...)."
    )


def _all_kept(frames: int, steps: int, state_bytes: int, stages: int, values: int | None, most: int) -> Policy | None:
    """The plan that computes least again of those that keep every step within `most` bytes, if there is one."""
    total = frames * steps
    if values is not None:
        all_values = total * values * state_bytes
        if fresh_memory_is_dear() and all_values > GIVEN_AGAIN:
            if (_few_states(frames, steps) + FEW * values) * state_bytes <= most:
                return "every_few"
        elif all_values <= most:
            return "none"
    if stages > 1 and total * stages * state_bytes <= most:
        return "every_stage"
    return "every_step" if total * state_bytes <= most else None


def _few_states(frames: int, steps: int) -> int:
    """States at the beginning of every `FEW` steps of a frame, and of those that are left."""
    return frames * -(-steps // FEW)


def _again(steps: int, states: int) -> int:
    """Steps advanced while replaying, without those of the first sweep."""
    return fewest_advances(steps, states) - (steps - 1)


def group_size(steps: int) -> int:
    """About the square root of `steps`; a divisor of it if one is near, so that the step is traced once."""
    root = max(1, math.isqrt(steps))
    near = [d for d in range(max(1, root // 2), 2 * root + 1) if steps % d == 0]
    return min(near, key=lambda d: abs(d - root)) if near else root


def _shares(frames: int, steps: int, states: int) -> tuple[int, int]:
    """States to store between frames and within one: as many as `states`, with the fewest steps advanced again."""
    if frames == 1:
        return 0, min(states, steps)
    if states < 2:
        raise ConfigurationError("Binomial(states=1): a run of several frames needs at least 2 stored states.")

    def advanced(between: int) -> int:
        return steps * fewest_advances(frames, between) + frames * fewest_advances(steps, min(states - between, steps))

    between = min(range(1, min(states - 1, frames) + 1), key=advanced)
    return between, min(states - between, steps)


def _cheapest(budget: Budget, frames: int, steps: int, state_bytes: int, stages: int, values: int | None) -> Plan:
    states = budget.bytes // max(state_bytes, 1)
    fewest = 1 if frames == 1 else 2
    if states < fewest:
        raise ConfigurationError(
            f"Budget(bytes={budget.bytes}): a plan stores at least {fewest} states of {state_bytes} bytes; use "
            f"Budget(bytes={fewest * state_bytes}) or more."
        )
    kept = None if budget.host else _all_kept(frames, steps, state_bytes, stages, values, budget.bytes)
    chosen = kept or Binomial(states, budget.host)
    found = plan(chosen, frames=frames, steps=steps, state_bytes=state_bytes, stages=stages)
    LOG.info("checkpoints: %s", found)
    return found


def readable_bytes(count: int) -> str:
    """A number of bytes in the unit that suits it, such as `1.5 GiB`."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"
