"""Loops over steps, by what reverse mode keeps of them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.jaxpr.invariants import formed_before
from simjax.jaxpr.platform import launches_count, platform
from simjax.jaxpr.stages import STAGES
from simjax.jaxpr.varying import steady_carry
from simjax.stepping.checkpointing.binomial_scan import binomial_scan
from simjax.stepping.checkpointing.closed_loop_body import closed
from simjax.stepping.checkpointing.plan import FEW, Binomial, Policy, group_size


def repeat(
    step: Callable, carry, steps: int, checkpoint: Policy | Binomial, *, in_pairs: bool, read: Callable | None = None
) -> Any:
    """`step` applied `steps` times; what reverse mode stores is set by `checkpoint`.

    `in_pairs`: two in a loop body on an accelerator, where nothing is computed again: that saves a copy of the carry.
    On a CPU the state is advanced in place, and two sets of temporaries would leave the caches: waves on 1024 x 1024
    cells would take twice as long.

    read: `read(carry) -> tree of arrays`, taken before every step. The result is then a pair of the carry and what was
    read, each array `(steps, ...)`, which no plan stores with the carries.
    """
    carry, found = _with_readings(step, carry, steps, checkpoint, in_pairs, read or (lambda carry: None))
    return carry if read is None else (carry, found)


def _with_readings(
    step: Callable, carry, steps: int, checkpoint: Policy | Binomial, in_pairs: bool, read: Callable
) -> tuple:
    """The carry after all steps, and what was read before each."""
    step, carry = steady_carry(step, carry)
    if launches_count():
        step = formed_before(step, carry)

    def body(carry, _):
        found = read(carry)
        return step(carry), found

    if isinstance(checkpoint, Binomial):
        return binomial_scan(lambda carry: body(carry, None), carry, length=steps, **checkpoint.stored())
    if checkpoint == "none":
        unroll = 2 if in_pairs and steps % 2 == 0 and platform() != "cpu" else 1
        return lax.scan(body, carry, None, length=steps, unroll=unroll)
    if checkpoint == "every_few":
        groups, rest = divmod(steps, FEW)
        few = _few_steps(body, carry, FEW)
        carry, found = lax.scan(lambda carry, _: few(carry), carry, None, length=groups) if groups else (carry, None)
        return _and_the_rest(carry, found, _few_steps(body, carry, rest) if rest else None)
    body = jax.checkpoint(body, prevent_cse=False, policy=STAGES if checkpoint == "every_stage" else None)
    inner = group_size(steps)
    if checkpoint in ("every_step", "every_stage") or inner == 1:  # groups of one step would only be advanced once more
        return lax.scan(body, carry, None, length=steps)
    groups, rest = divmod(steps, inner)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def group(carry, _):
        return lax.scan(body, carry, None, length=inner)

    carry, found = lax.scan(group, carry, None, length=groups)
    return _and_the_rest(carry, found, (lambda carry: lax.scan(body, carry, None, length=rest)) if rest else None)


def _and_the_rest(carry, found, last: Callable | None) -> tuple:
    """The carry after the `last` steps too, and what was read before all: `found`, `(groups, steps, ...)`, and more."""
    found = jax.tree.map(lambda u: u.reshape(-1, *u.shape[2:]), found)
    if last is None:
        return carry, found
    carry, more = last(carry)
    return carry, more if found is None else jax.tree.map(lambda *parts: jnp.concatenate(parts), found, more)


def _as_carried(u: Array, before: Array) -> Array:
    """A number after steps, with an axis of members where it had one before, as a loop's carry keeps it."""
    return lax.select(jnp.ones((), bool), u, before) if u.ndim == 0 else u


def _few_steps(body: Callable, carry, count: int) -> Callable:
    """`count` steps as a function of the carry, which reverse mode stores; it takes them again and keeps all values.

    A loop is one body, but what it keeps is written into arrays for all of its turns, which are filled with zeros and
    copied before. Differentiated, the steps are written one after the other: what reverse mode needs stays where it was
    formed, or is formed where it is read, and derivatives by parameters are added up for all steps at once.
    """
    leaves, tree = jax.tree.flatten(carry)
    one, seen, output = closed(lambda carry: body(carry, None), leaves, tree)

    @jax.custom_jvp
    def few(leaves, seen):
        return lax.scan(lambda leaves, _: one(leaves, seen), leaves, None, length=count)

    def written_out(leaves, seen):
        found, before = [], leaves
        for _ in range(count):
            leaves, own = one(leaves, seen)
            found.append(own)
        leaves = [_as_carried(u, old) for u, old in zip(leaves, before, strict=True)]
        return leaves, [jnp.stack(parts) for parts in zip(*found, strict=True)]

    few.defjvp(lambda primals, tangents: jax.jvp(written_out, primals, tangents))
    again = jax.checkpoint(few, prevent_cse=False)

    def taken(carry):
        leaves, found = again(tree.flatten_up_to(carry), seen)
        return tree.unflatten(leaves), output.unflatten(found)

    return taken
