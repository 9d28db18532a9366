"""A loop that reverse mode replays from a given number of stored states."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.jaxpr.varying import match_varying, steady_carry
from simjax.stepping.checkpointing import host_memory
from simjax.stepping.checkpointing.binomial_order import Replay, replay
from simjax.stepping.checkpointing.closed_loop_body import (
    Leaves,
    chosen,
    closed,
    cotangents_of,
    inexact,
    pull_back,
    sums,
    zeros_of,
)

FEW = 64
"""Entries of an array below which it keeps its digits: numbers beside the fields, which take no memory."""


def binomial_scan(body: Callable, carry, *, length: int, states: int, in_host: bool = False, dtype: str | None = None):
    """`lax.scan(lambda carry, _: body(carry), carry, length=length)`, storing only `states` carries for reverse mode.

    Steps are advanced again in the order that needs the fewest (`stepping.checkpointing.binomial_order`). The size of
    the compiled program does not depend on `length`. With `in_host` the fields among what is stored live in host
    memory. With `dtype` they are stored in that type, and steps are advanced again from what it leaves of them. `body`
    may close over traced values; gradients reach them. Forward over reverse mode works; there is neither forward mode
    alone nor reverse over reverse. A closed-over value that is the same on all devices has its gradient summed over
    them in every step: cast it with `vary_like` beforehand.
    """
    _, carry = steady_carry(lambda c: body(c)[0], carry)
    leaves, tree = jax.tree.flatten(carry)
    step, seen, output = closed(body, leaves, tree)
    order = replay(length, states)

    @jax.custom_vjp
    def run(leaves: Leaves, seen: Leaves) -> tuple[Leaves, Leaves]:
        # By the loop that the sweep with stores uses: under a gradient of jit(vmap(...)), jax (0.10 and 0.12) takes the
        # members' axis to be where this function puts it, and a scan puts it elsewhere than the sweep does.
        return _run(step, leaves, seen, 0, length, _room(step, leaves, seen, length))

    def run_and_store(leaves, seen):
        slots = _slots(leaves, states, in_host, dtype)
        ends, outputs, slots = _first_sweep(step, leaves, seen, order, length, slots)
        return (ends, outputs), (slots, seen)

    types = [u.dtype for u in leaves]

    def replay_backwards(kept, cotangents):
        slots, seen = kept
        return _replayed(step, slots, types, seen, cotangents, order, length)

    run.defvjp(run_and_store, replay_backwards)
    ends, outputs = run(leaves, seen)
    return jax.tree.unflatten(tree, ends), jax.tree.unflatten(output, outputs)


def _advance(step: Callable, leaves: Leaves, seen: Leaves, count) -> Leaves:
    return lax.fori_loop(0, count, lambda _, leaves: step(leaves, seen)[0], leaves)


def _slots(leaves: Leaves, states: int, in_host: bool, dtype: str | None) -> Leaves:
    """Zeros for so many states, where they are to live, of the type in which they are stored."""
    stored = [u.astype(stored_type(u, dtype)) for u in leaves]
    zeros = match_varying([jnp.zeros((states, *u.shape), u.dtype) for u in stored], leaves)
    return [host_memory.room(states, u) if in_host and u.ndim else zero for zero, u in zip(zeros, stored, strict=True)]


def stored_type(u: Array, dtype: str | None) -> jnp.dtype:
    """The type in which an array of a carry is stored, where fields are in `dtype`; None: in their own."""
    field = u.size >= FEW and jnp.issubdtype(u.dtype, jnp.floating)
    return jnp.dtype(dtype) if field and dtype is not None else u.dtype


def _store(slots: Leaves, leaves: Leaves, slot) -> Leaves:
    stored = [u.astype(s.dtype) for s, u in zip(slots, leaves, strict=True)]
    return [
        host_memory.store(s, u, slot) if host_memory.in_host(s) else lax.dynamic_update_index_in_dim(s, u, slot, 0)
        for s, u in zip(slots, stored, strict=True)
    ]


def _load(slots: Leaves, types: Sequence[jnp.dtype], slot) -> Leaves:
    stored = [
        host_memory.load(s, slot) if host_memory.in_host(s) else lax.dynamic_index_in_dim(s, slot, 0, keepdims=False)
        for s in slots
    ]
    return [u.astype(dtype) for u, dtype in zip(stored, types, strict=True)]


def _room(step: Callable, leaves: Leaves, seen: Leaves, length: int) -> Leaves:
    """Zeros where the outputs of all steps go."""
    shapes = jax.eval_shape(step, leaves, seen)[1]
    return match_varying([jnp.zeros((length, *y.shape), y.dtype) for y in shapes], shapes)


def _run(step: Callable, leaves: Leaves, seen: Leaves, first, last, outputs: Leaves) -> tuple[Leaves, Leaves]:
    """Steps `first` to `last` - 1, their outputs put in place."""

    def one(number, moving):
        leaves, outputs = moving
        leaves, found = step(leaves, seen)
        return leaves, _store(outputs, found, number)

    return lax.fori_loop(first, last, one, (leaves, outputs))


def _first_sweep(step: Callable, leaves: Leaves, seen: Leaves, order: Replay, length: int, slots: Leaves):
    """Take all steps; give the last carry, all outputs, and the states stored on the way."""
    outputs = _room(step, leaves, seen, length)
    # Stores after the first of the steps, and the number of steps up to each.
    stores = order.first[1]
    counts = jnp.asarray([*order.count[:stores], length - sum(order.count[:stores])], jnp.int32)
    slot = jnp.asarray([0, *order.slot[:stores]], jnp.int32)

    def stretch(moving, entry):
        number, leaves, outputs, slots = moving
        count, slot = entry
        slots = _store(slots, leaves, slot)
        leaves, outputs = _run(step, leaves, seen, number, number + count, outputs)
        return (number + count, leaves, outputs, slots), None

    begin = (jnp.zeros((), jnp.int32), leaves, outputs, slots)
    return lax.scan(stretch, begin, (counts, slot))[0][1:]


def _replayed(
    step: Callable, slots: Leaves, types: Sequence[jnp.dtype], seen: Leaves, cotangents, order: Replay, length: int
):
    """Cotangents of the first carry and of what was seen, from those of the last carry and the outputs.

    types: of the carry.
    """

    def stretch(number, moving):
        leaves, slots = moving
        leaves = _advance(step, leaves, seen, jnp.asarray(order.count)[number])
        return leaves, _store(slots, leaves, jnp.asarray(order.slot)[number])

    def reverse(moving, entry):
        slots, carry, summed = moving
        load, first, last, rest, outputs = entry
        leaves = _load(slots, types, load)
        if order.first[-1] > order.first[1]:
            leaves, slots = lax.fori_loop(first, last, stretch, (leaves, slots))
        leaves = _advance(step, leaves, seen, rest)
        carry, more = pull_back(step, seen, leaves, carry, outputs)
        return (slots, carry, sums(summed, more)), None

    ends, outputs = cotangents
    # What the first sweep stored is not stored again.
    load, first = order.load.copy(), order.first.copy()
    load[0] = order.slot[first[1] - 1] if first[1] else 0
    first[0] = first[1]
    outputs = [jnp.flip(y, 0) for y in outputs if y.dtype != jax.dtypes.float0]
    begin = (slots, chosen(ends, inexact(slots)), zeros_of(seen))
    entries = (load, first[:-1], first[1:], order.rest, outputs)
    _, carry, summed = lax.scan(reverse, begin, entries, length=length)[0]
    return cotangents_of(slots, carry), cotangents_of(seen, summed)
