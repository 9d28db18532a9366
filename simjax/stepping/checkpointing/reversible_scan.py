"""A loop that reverse mode runs backwards in time instead of storing its states."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from simjax.jaxpr.varying import steady_carry
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


def reversed_scan(
    frame: Callable,
    step: Callable,
    back: Callable,
    look: Callable,
    carry,
    *,
    frames: int,
    steps: int,
    read: Callable,
):
    """`lax.scan(lambda carry, _: frame(carry), carry, length=frames)`, storing two carries for reverse mode.

    Reverse mode needs the carry before every step; from that after it, `back(carry)` finds it again, so that of all
    carries only the first and the last are kept. What a frame puts out is stored and transposed as ever. Closed-over
    values, derivatives and varying axes are as of `stepping.checkpointing.binomial_scan.binomial_scan`.

    Args:
        frame: `frame(carry) -> (carry, (output, found, moved))`: `steps` times `step`, then `output = look(carry)`; or
            the carry as given if `moved` is false.
        step, back: carry -> carry, inverses of each other to rounding.
        read: `found` is what `read(carry)` gives before every step, None or arrays `(steps, ...)`.

    Returns the last carry, and the outputs and what was read, with an axis of frames in front.
    """
    _, carry = steady_carry(lambda c: frame(c)[0], carry)
    leaves, tree = jax.tree.flatten(carry)
    whole, seen_whole, kind = closed(frame, leaves, tree)
    forth, seen_forth, _ = closed(lambda c: (step(c), read(c)), leaves, tree)
    undone, seen_undone, _ = closed(lambda c: (back(c), None), leaves, tree)
    shown, seen_shown, _ = closed(lambda c: (c, look(c)), leaves, tree)

    def run(leaves: Leaves, seen: tuple[Leaves, ...]) -> tuple[Leaves, Leaves]:
        return lax.scan(lambda leaves, _: whole(leaves, seen[0]), leaves, None, length=frames)

    def run_and_keep(leaves, seen):
        ends, outputs = run(leaves, seen)
        return (ends, outputs), (leaves, ends, outputs[-1], seen)

    def run_backwards(kept, cotangents):
        first, last, moved, seen = kept
        bodies = _Body(forth, seen[1]), _Body(undone, seen[2]), _Body(shown, seen[3])
        flowing, summed, watched = _backwards(*bodies, first, last, moved, cotangents, steps)
        unseen = [[None] * len(seen[k]) for k in (0, 2)]
        return flowing, (unseen[0], summed, unseen[1], watched)

    reversible = jax.custom_vjp(run)
    reversible.defvjp(run_and_keep, run_backwards)
    ends, outputs = reversible(leaves, (seen_whole, seen_forth, seen_undone, seen_shown))
    observed, found, _ = jax.tree.unflatten(kind, outputs)
    return jax.tree.unflatten(tree, ends), (observed, found)


class _Body(NamedTuple):
    """A loop's body on leaves and what it closed over."""

    step: Callable
    seen: Leaves


def _backwards(forth: _Body, undone: _Body, shown: _Body, first: Leaves, last: Leaves, moved, cotangents, steps: int):
    """Cotangents of the first carry, and of what a step and a look have seen."""

    def reverse_step(number, read, moving):
        leaves, flowing, summed = moving
        # The first carry itself: what it holds need not have come from a step.
        leaves = lax.cond(number == 0, lambda: first, lambda: undone.step(leaves, undone.seen)[0])
        flowing, more = pull_back(*forth, leaves, flowing, read)
        return leaves, flowing, sums(summed, more)

    def reverse_frame(moving, entry):
        (leaves, flowing, summed), watched = moving
        number, went, outputs, read = entry
        flowing, more = pull_back(*shown, leaves, flowing, outputs)
        begin, last_step = (leaves, flowing, summed), (number + 1) * steps - 1

        def reverse():
            def one(k, moving):
                own = [lax.dynamic_index_in_dim(y, steps - 1 - k, 0, keepdims=False) for y in read]
                return reverse_step(last_step - k, own, moving)

            return lax.fori_loop(0, steps, one, begin)

        return (lax.cond(went, reverse, lambda: begin), sums(watched, more)), None

    ends, outputs = cotangents
    outputs = [y for y in outputs if y.dtype != jax.dtypes.float0]
    begin = (last, chosen(ends, inexact(last)), zeros_of(forth.seen)), zeros_of(shown.seen)
    reads = jax.eval_shape(forth.step, last, forth.seen)[1]
    looked = len(outputs) - sum(inexact(reads))
    entries = jnp.arange(moved.shape[0], dtype=jnp.int32), moved, outputs[:looked], outputs[looked:]
    ((_, flowing, summed), watched), _ = lax.scan(reverse_frame, begin, entries, reverse=True)
    return cotangents_of(first, flowing), cotangents_of(forth.seen, summed), cotangents_of(shown.seen, watched)
