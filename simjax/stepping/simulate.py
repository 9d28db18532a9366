"""Time stepping: nested scans that reverse mode can afford."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.arguments import as_of_jax, require_one_of
from simjax.core.model import GridModel, Model, SelfSteppingModel
from simjax.errors import ConfigurationError
from simjax.integrators.integrator import Integrator
from simjax.integrators.storage import Stored
from simjax.jaxpr.platform import launches_count
from simjax.jaxpr.varying import steady_carry, vary_like
from simjax.notebook import all_in_a_line
from simjax.status import (
    FRAME_UNFINISHED,
    OK,
    spoiled,
)
from simjax.stepping.arguments_of_runs import require_kinds, require_recorded, shapes_told
from simjax.stepping.checkpointing.binomial_scan import binomial_scan, stored_type
from simjax.stepping.checkpointing.host_memory import device_memory, members_of, require_host_memory
from simjax.stepping.checkpointing.loops import repeat
from simjax.stepping.checkpointing.plan import Binomial, Checkpoint, Plan, Policy, plan
from simjax.stepping.checkpointing.reversible_scan import reversed_scan
from simjax.stepping.clock import (
    Clock,
    Number,
    Schedule,
    clock_at_start,
    clock_of,
    numbers_of,
    tick_fixed,
    ticked_fixed,
    time_of,
)
from simjax.stepping.controlled import controlled_steps, require_control
from simjax.stepping.faults import is_traced, raise_on_fault
from simjax.stepping.one_step import (
    arranged_steps,
    courant_step,
    fixed_step,
    if_good,
    prepared_scheme,
    real_dtype,
    required,
    take_step,
)
from simjax.stepping.temporal_blocking import blocked, step_of
from simjax.stepping.undone_steps import reversible, undo_step
from simjax.stepping.watching import Gathered, Sight, advance_watching

OnFault = Literal["raise", "nan", "keep"]
"""The fate of a run that does not come to its end, see `simulate`."""


class Trajectory(eqx.Module):
    """Result of `simulate`.

    state: the last one, a tree like the first. clock: where the run is in time, with its status. observed: what
    `observe` returned at the end of each frame, arrays `(frames, ...)`; None where nothing was asked for. sums:
    `stepping.moments.Sums` over all steps by name; None where nothing was gathered. recorded: what `record` returned at
    the start and after every step, arrays `(steps + 1, ...)`.

    Examples:
        >>> line = sj.AdvectionDiffusion(sj.Domain(sj.Grid((32,))), [(sj.PeriodicSide(), sj.PeriodicSide())])
        >>> params = line.Params(jnp.asarray(0.01), jnp.ones(1))
        >>> start = line.State(jnp.sin(2 * jnp.pi * jnp.linspace(0, 1, 32)))
        >>> end = sj.simulate(line, sj.INTEGRATORS["rk4"], params, start, sj.Schedule(0.1, dt=0.01), frames=3)
        >>> int(end.clock.step), end.observed
        (30, None)
    """

    state: Any
    clock: Clock
    observed: Any
    sums: Any = None
    recorded: Any = None

    __repr__ = all_in_a_line


def advance(
    model: Model,
    integrator: Integrator | None,
    params,
    state,
    clock: Clock,
    schedule: Schedule,
    *,
    steps: int,
    until,
    checkpoint: Policy | Binomial | None = None,
    record: Callable | None = None,
) -> Any:
    """`steps` steps, none of them beyond the end of frame number `until`: the new (state, clock).

    record: as of `simulate`; what it gives before every step, arrays `(steps, ...)`, is then a third result.

    checkpoint: what reverse mode keeps; None: nothing is differentiated, and what a `Stored` scheme keeps in 16 bits
    takes 16 bits of memory between steps.

    Transactional: if the result is not finite or not physical, the state and clock it was given are returned with
    a status bit set, and every later call returns them unchanged. So the last good state is never lost, and an
    ensemble member that diverged stays where it was without touching the others.

    Examples:
        >>> line = sj.AdvectionDiffusion(sj.Domain(sj.Grid((32,))), [(sj.PeriodicSide(), sj.PeriodicSide())])
        >>> params = line.Params(jnp.asarray(0.01), jnp.ones(1))
        >>> start, schedule = line.State(jnp.ones(32)), sj.Schedule(0.1, dt=0.01)
        >>> state, clock = sj.advance(
        ...     line, sj.INTEGRATORS["rk4"], params, start, sj.Clock.zero(jnp.float64), schedule, steps=4, until=1
        ... )
        >>> int(clock.step), sj.status_of(clock, schedule)
        (4, 'no fault')
    """
    require_kinds(model, params=params, state=state, schedule=schedule, clock=clock, steps=steps)
    params = vary_like(params, state)
    begin = state, clock
    if isinstance(model, SelfSteppingModel):
        after = arranged_steps(model, params, begin, schedule, steps, checkpoint or "none")
    else:
        scheme = required(model, integrator)
        after = _integrated_steps(model, scheme, params, begin, schedule, steps, until, checkpoint, record)
    *after, found = after if record is not None else (*after, None)
    after = if_good(model, params, begin, tuple(after))
    return after if record is None else (*after, found)


def _integrated_steps(
    model: Model,
    integrator: Integrator,
    params,
    begin,
    schedule: Schedule,
    steps: int,
    until,
    checkpoint: Policy | Binomial | None,
    record: Callable | None = None,
):
    """(state, clock) after steps that a scheme takes, and what was recorded, if anything was."""
    state, clock = begin
    packing = integrator.packing() if isinstance(integrator, Stored) and checkpoint is None else None
    integrator = packing or integrator
    prepared = prepared_scheme(model, integrator, params, state, schedule)
    # Multi-stage steps gain nothing from it.
    in_pairs = integrator.stages == 1
    if schedule.tolerance is not None:
        require_control(model, integrator, params)
    several = model.domain.steps_per_exchange if packing is None else 0
    if several and steps >= several:
        steps_at_once = _several_steps(model, integrator, params, prepared, state, schedule, until)
        begin = repeat(steps_at_once, begin, steps // several, checkpoint or "none", in_pairs=in_pairs)
        steps %= several
        if not steps:
            return begin
        return _integrated_steps(model, integrator, params, begin, schedule, steps, until, checkpoint)
    of_lines, whole = model if packing is None and isinstance(model, GridModel) else None, state
    if of_lines is not None:
        state = of_lines.condensed(state)

    def by_clock(carry):
        state, clock = carry
        return take_step(model, integrator, params, state, clock, schedule, until, prepared)

    def by_numbers(carry):
        state, *numbers = carry
        state, clock = by_clock((state, clock_of(*numbers)))
        return state, *numbers_of(clock)

    def by_count(carry):
        state, count, status = carry
        before, after = (ticked_fixed(clock, schedule, n) for n in (count, count + 1))
        state = step_of(model, integrator, time_of(before, schedule), after.dt, before.step, state, params, prepared)
        wrong = model.fault(time_of(after, schedule), params)
        return state, count + 1, status if wrong is None else status | wrong

    # Of a fixed length the number of steps tells the time: a loop then carries no clock, whose parts are a launch each.
    counted, together = schedule.dt is not None, launches_count()
    if schedule.tolerance is not None and checkpoint is None:
        return controlled_steps(by_clock, model.domain, begin, steps, until)
    if counted:
        step, carry = by_count, (state, jnp.zeros_like(clock.step), clock.status)
    elif together:
        step, carry = by_numbers, (state, *numbers_of(clock))
    else:
        step, carry = by_clock, (state, clock)
    found = ()
    if record is not None:
        read = _reading(record, clock, schedule, of_lines, whole)
        (state, *time), *found = repeat(step, carry, steps, checkpoint or "none", in_pairs=in_pairs, read=read)
    elif packing is None:
        state, *time = repeat(step, carry, steps, checkpoint or "none", in_pairs=in_pairs)
    else:
        state, *time = _packed_steps(model, packing, params, carry, step, steps)
    if of_lines is not None:
        state = of_lines.expanded(state, whole)
    if not counted:
        return state, clock_of(*time) if together else time[0]
    after = ticked_fixed(clock, schedule, jnp.full_like(clock.step, steps))
    return state, eqx.tree_at(lambda c: c.status, after, time[1]), *found


def _reading(record: Callable, clock: Clock, schedule: Schedule, of_lines: GridModel | None, whole) -> Callable:
    """A function of a carry of counted steps that gives what is recorded of it."""

    def read(carry):
        t = time_of(ticked_fixed(clock, schedule, carry[1]), schedule)
        return record(t, carry[0] if of_lines is None else of_lines.expanded(carry[0], whole))

    return read


def _packed_steps(model: Model, integrator: Stored, params, carry, step: Callable, steps: int):
    """The carry after steps between which fields, its first part, take 16 bits of memory."""
    assert isinstance(model, GridModel)

    def packed_step(carry):
        kept, *time = carry
        state, *time = step((integrator.unpacked(model, kept, params), *time))
        return integrator.packed(model, state, params), *time

    state, *time = carry
    packed = integrator.packed(model, state, params), *time
    kept, *time = repeat(packed_step, packed, steps, "none", in_pairs=integrator.stages == 1)
    return integrator.unpacked(model, kept, params), *time


def _several_steps(model, integrator, params, prepared, state, schedule: Schedule, until) -> Callable:
    """(state, clock) -> the same after `Domain.steps_per_exchange` steps."""
    count = model.domain.steps_per_exchange
    if schedule.tolerance is not None:
        raise ConfigurationError(
            f"steps_per_exchange={count} with Schedule.tolerance: expected 0, as the errors of all devices decide on "
            "every step; write steps_per_exchange=0 or a fixed dt."
        )
    if schedule.dt is None and count > 1:
        raise ConfigurationError(
            f"steps_per_exchange={count} with steps limited by the Courant number, which all devices have to agree on "
            "at every step; write steps_per_exchange=1 or a fixed time.dt."
        )
    block = blocked(model, integrator, params, prepared, state, count, real_dtype(state))

    def take(state, t, dt, number):
        return block.advance(state, (t[None], dt[None], number[None]))

    def advance(carry):
        state, clock = carry
        if schedule.dt is None:
            return courant_step(model, integrator, params, state, clock, schedule, until, take)
        clock, times = lax.scan(lambda clock, _: tick_fixed(clock, schedule), clock, None, length=count)
        return block.advance(state, times), clock

    return advance


def simulate(
    model: Model,
    integrator: Integrator | None,
    params,
    state,
    schedule: Schedule,
    *,
    frames: int,
    clock: Clock | None = None,
    observe: Callable | None = None,
    record: Callable | None = None,
    checkpoint: Checkpoint = "auto",
    on_fault: OnFault = "raise",
    gathered: Gathered | None = None,
) -> Trajectory:
    """Advance `frames` frames of `schedule` from `state`, observing at the end of each.

    Args:
        model, integrator: the equations and the scheme; None for a model that takes its own steps, as particles do.
        params: the model's parameters; differentiable.
        state: initial state, already constrained (as `model.init` functions return it); differentiable.
        schedule: frames and steps.
        clock: where to go on from; by default the start.
        observe: `observe(t, state, params)` -> any tree of arrays; by default nothing is recorded.
        record: `record(t, state)` -> a tree of arrays, at the start and after every step, of a fixed length: few
            numbers, such as what microphones hear, as all are kept. What it is made of is formed beforehand, once.
        checkpoint: what reverse mode keeps. "auto": of a leapfrog "none", on a CPU "every_few" of longer runs; else
            "every_stage" or "every_step", if that takes at most half of an accelerator's memory, with all members, or
            2 GiB for each member on a CPU and where several processes have to agree; else "two_level". "every_step":
            each step's beginning, from which it is computed again; "every_few": every fourth, from which four are;
            "every_stage": the stages of each step, without the linear solves and transforms that made them;
            "two_level": about the square root of the steps in a frame, and one state per frame; "none": every value;
            `Binomial(states)`: so many states, for the fewest steps computed again; `Budget(bytes)`: the cheapest of
            these that fits, logged; "reverse": the first state and the last, between which leapfrog goes back step by
            step, with steps of fixed length in models that lose nothing; rounding grows on both ways. `Binomial`,
            `Budget` and "reverse" have no forward mode alone. `checkpointing.plan.plan` tells memory and cost.
        on_fault: what becomes of a run that a fault stopped on the way: a state that is not finite or not physical, a
            step that collapsed, a frame with too few steps. "raise": NumericalError with the cause and the time; where
            the run is traced (in jit, vmap or shard_map) nothing can be raised, and it is "nan". "nan": the final state
            and what was observed after the fault are NaN, and so are gradients. "keep": both are those of the last good
            state, for callers that ask the clock's status. `status_of(clock, schedule)` says what happened.
        gathered: sums over the states after every step, see `stepping.watching.Gathered`; not with "reverse".

    Returns:
        A `Trajectory`; leaves of `observed` have a leading axis of length `frames`. The status in its clock is
        not zero if the run stopped early on a fault; the clock stands where the state was good last.

    Raises:
        ConfigurationError: params or state of another kind or shape than the model's, or an integrator that is none.
        NumericalError: the run stopped early, with `on_fault="raise"`.

    Examples:
        >>> line = sj.AdvectionDiffusion(sj.Domain(sj.Grid((32,))), [(sj.PeriodicSide(), sj.PeriodicSide())])
        >>> params = line.Params(jnp.asarray(0.01), jnp.ones(1))
        >>> start = line.State(jnp.sin(2 * jnp.pi * jnp.linspace(0, 1, 32)))
        >>> def peak(t, state, params):
        ...     return jnp.max(state.concentration)
        >>> schedule = sj.Schedule(0.1, dt=0.01)
        >>> end = sj.simulate(line, sj.INTEGRATORS["rk4"], params, start, schedule, frames=3, observe=peak)
        >>> end.observed.shape
        (3,)
    """
    require_one_of("simulate: on_fault", on_fault, ("raise", "nan", "keep"))
    require_kinds(model, params=params, state=state, schedule=schedule, clock=clock, frames=frames, observe=observe)
    params, state = jax.tree.map(as_of_jax, (params, state))
    if not isinstance(model, SelfSteppingModel):
        required(model, integrator)
    require_recorded(record, model, schedule, gathered)
    start = clock_at_start(real_dtype(state), schedule) if clock is None else clock
    given, params = params, vary_like(params, state)  # what is observed is made of those that all devices share
    begin = state, start
    if gathered is not None:
        begin = *begin, gathered.zero(time_of(start, schedule), state, real_dtype(state))
    chosen = _planned(model, integrator, params, checkpoint, frames, schedule, begin)
    if gathered is not None and chosen.policy == "reverse":
        raise ConfigurationError(
            "checkpoint='reverse' with statistics: expected a plan that keeps their sums, which no step back restores; "
            "use 'two_level' or Binomial(states=...)."
        )

    def look(carry):
        state, clock = carry[:2]
        observed = None if observe is None else observe(time_of(clock, schedule), state, given)
        return observed if on_fault == "keep" else spoiled(observed, clock.status)

    with shapes_told(model, params, state):
        carry, seen = _all_frames(model, integrator, params, begin, schedule, frames, chosen, look, gathered, record)
    (state, end, *sums), (observed, recorded) = carry, seen
    if record is not None:
        last = record(time_of(end, schedule), state)
        recorded = jax.tree.map(lambda u, v: jnp.concatenate([u.reshape(-1, *v.shape), v[None]]), recorded, last)
    if on_fault == "raise" and not is_traced(end):
        raise_on_fault(end, schedule)
    ended = (state, sums[0] if sums else None, recorded)
    state, last, recorded = ended if on_fault == "keep" else spoiled(ended, end.status)
    return Trajectory(state, end, observed, last, recorded)


def _all_frames(
    model: Model,
    integrator: Integrator | None,
    params,
    carry,
    schedule: Schedule,
    frames: int,
    chosen: Plan,
    look: Callable,
    gathered: Gathered | None,
    record: Callable | None,
):
    """(state, clock), and sums where some are gathered, after all frames, and what `look(carry)` gives after each, with
    what was recorded before its steps."""

    def one(carry, _=None):
        state, clock, *sums = carry
        until = clock.frame + 1
        steps: dict[str, Any] = {"steps": schedule.steps, "until": until, "checkpoint": _within(chosen)}
        arguments, found = (model, integrator, params, state, clock, schedule), None
        if record is not None:
            state, clock, found = advance(*arguments, **steps, record=record)
        elif gathered is None:
            state, clock = advance(*arguments, **steps)
        else:
            sight = Sight(gatherings=gathered.gatherings, starts=gathered.starts(clock.frame))
            state, clock, _, *sums, _ = advance_watching(*arguments, **steps, sight=sight, sums=sums[0])
        carry = state, _note_unfinished(clock, until), *sums
        return carry, (look(carry), found)

    frame: Callable = jax.jit(one, inline=True)  # traced once, for its types and for its use
    _, begin = steady_carry(lambda carry: frame(carry)[0], carry)
    if chosen.policy == "reverse":
        return _reversed_run(model, integrator, params, schedule, frame, look, begin, frames, record)
    if chosen.policy == "binomial" and frames > 1:
        between = Binomial(chosen.frame_states, chosen.host, chosen.dtype)
        return binomial_scan(frame, begin, length=frames, **between.stored())
    if chosen.policy == "two_level" and frames > 1:
        frame = jax.checkpoint(frame, prevent_cse=False)
    return lax.scan(frame, begin, None, length=frames)


def integrate(
    model: Model,
    integrator: Integrator | None,
    params,
    state,
    *,
    dt: Number,
    steps: int,
    t0: Number = 0.0,
    checkpoint: Checkpoint = "auto",
    on_fault: OnFault = "raise",
):
    """The state `steps` steps of `dt` after `state`: `simulate` without frames, a schedule and a clock.

    Works under jit, vmap and `distribute`, and is differentiable in `params`, `state`, `dt` and `t0`.

    Args:
        model, integrator, params, state: as of `simulate`.
        dt: length of every step, in units of time; may be traced, so that one program serves for all.
        steps: how many, a plain int.
        t0: time of `state`; may be traced.
        checkpoint, on_fault: as of `simulate`.

    Raises:
        NumericalError: the run stopped early, with `on_fault="raise"`.

    Examples:
        >>> line = sj.AdvectionDiffusion(sj.Domain(sj.Grid((32,))), [(sj.PeriodicSide(), sj.PeriodicSide())])
        >>> params = line.Params(jnp.asarray(0.01), jnp.ones(1))
        >>> end = sj.integrate(line, sj.INTEGRATORS["rk4"], params, line.State(jnp.ones(32)), dt=0.01, steps=10)
        >>> float(end.concentration[0])
        1.0
    """
    schedule = Schedule(steps=steps, start=t0, dt=dt)
    return simulate(
        model, integrator, params, state, schedule, frames=1, checkpoint=checkpoint, on_fault=on_fault
    ).state


def _planned(model: Model, integrator, params, checkpoint: Checkpoint, frames: int, schedule: Schedule, carry) -> Plan:
    dtype = checkpoint.dtype if isinstance(checkpoint, Binomial) else None
    if dtype is not None and isinstance(model, SelfSteppingModel):
        raise ConfigurationError(
            f"checkpoint={checkpoint}: expected a model of fields, as places of particles need all their digits; leave "
            "out dtype."
        )
    state, *rest = carry
    kept = jax.eval_shape(model.condensed, state) if isinstance(model, GridModel) else state
    # Shapes are those of this device's blocks.
    size = sum(leaf.size * stored_type(leaf, dtype).itemsize for leaf in jax.tree.leaves((kept, rest)))
    stages, values = 1, None
    if integrator is not None and not isinstance(model, SelfSteppingModel):
        stages, values = integrator.kept_stages(model), integrator.kept_values()
    memory = device_memory() if isinstance(checkpoint, str) and checkpoint == "auto" else None
    if memory is not None:
        memory //= members_of((params, *carry))
    found = plan(
        checkpoint, frames=frames, steps=schedule.steps, state_bytes=size, stages=stages, values=values, memory=memory
    )
    if found.host:
        require_host_memory()
    return found


def _note_unfinished(clock: Clock, until: Array) -> Clock:
    """Add the fault of an unfinished frame, unless another fault stopped it."""
    unfinished = (clock.frame < until) & (clock.status == OK)
    short = jnp.where(unfinished, FRAME_UNFINISHED, OK).astype(clock.status.dtype)
    return eqx.tree_at(lambda c: c.status, clock, clock.status | short)


def _within(chosen: Plan) -> Policy | Binomial:
    """Plan of reverse mode within a frame."""
    if chosen.policy == "binomial":
        return Binomial(chosen.step_states, chosen.host, chosen.dtype)
    return "none" if chosen.policy == "reverse" else chosen.policy


def _reversed_run(model, integrator, params, schedule: Schedule, frame, look, begin, frames: int, record):
    """Integrate all frames with steps that reverse mode inverts instead of storing."""
    scheme = reversible(model, integrator, params, schedule)
    prepared = prepared_scheme(model, scheme, params, begin[0], schedule)

    def step(carry):
        state, clock = carry
        return fixed_step(model, scheme, params, state, clock, schedule, prepared)

    def back(carry):
        state, clock = carry
        return undo_step(model, scheme, params, state, clock, schedule, prepared)

    def read(carry):
        state, clock = carry
        return None if record is None else record(time_of(clock, schedule), state)

    def moving(carry):
        after, seen = frame(carry)
        return after, (*seen, after[1].step != carry[1].step)

    return reversed_scan(moving, step, back, look, begin, frames=frames, steps=schedule.steps, read=read)
