"""Loops over steps, by what reverse mode keeps of them."""

import functools
from collections.abc import Callable

import jax
from jax import lax

from simjax.jaxpr.invariants import formed_before
from simjax.jaxpr.platform import launches_count, platform
from simjax.jaxpr.stages import STAGES
from simjax.jaxpr.varying import steady_carry
from simjax.stepping.checkpointing.binomial_scan import binomial_scan
from simjax.stepping.checkpointing.closed_loop_body import closed
from simjax.stepping.checkpointing.plan import FEW, Binomial, Policy, group_size


def repeat(step: Callable, carry, steps: int, checkpoint: Policy | Binomial, *, in_pairs: bool):
    """`step` applied `steps` times; what reverse mode stores is set by `checkpoint`.

    `in_pairs`: two in a loop body on an accelerator, where nothing is computed again: that saves a copy of the carry.
    On a CPU the state is advanced in place, and two sets of temporaries would leave the caches: waves on 1024 x 1024
    cells would take twice as long.
    """
    step, carry = steady_carry(step, carry)
    if launches_count():
        step = formed_before(step, carry)

    def body(carry, _):
        return step(carry), None

    if isinstance(checkpoint, Binomial):
        return binomial_scan(lambda carry: (step(carry), None), carry, length=steps, **checkpoint.stored())[0]
    if checkpoint == "none":
        unroll = 2 if in_pairs and steps % 2 == 0 and platform() != "cpu" else 1
        return lax.scan(body, carry, None, length=steps, unroll=unroll)[0]
    if checkpoint == "every_few":
        groups, rest = divmod(steps, FEW)
        few = _few_steps(step, carry, FEW)
        carry = lax.scan(lambda carry, _: (few(carry), None), carry, None, length=groups)[0] if groups else carry
        return _few_steps(step, carry, rest)(carry) if rest else carry
    body = jax.checkpoint(body, prevent_cse=False, policy=STAGES if checkpoint == "every_stage" else None)
    inner = group_size(steps)
    if checkpoint in ("every_step", "every_stage") or inner == 1:  # groups of one step would only be advanced once more
        return lax.scan(body, carry, None, length=steps)[0]
    groups, rest = divmod(steps, inner)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def group(carry, _):
        return lax.scan(body, carry, None, length=inner)[0], None

    carry = lax.scan(group, carry, None, length=groups)[0]
    return lax.scan(body, carry, None, length=rest)[0] if rest else carry


def _few_steps(step: Callable, carry, count: int) -> Callable:
    """`count` steps as a function of the carry, which reverse mode stores; it takes them again and keeps all values.

    A loop is one body, but what it keeps is written into arrays for all of its turns, which are filled with zeros and
    copied before. Differentiated, the steps are written one after the other: what reverse mode needs stays where it was
    formed, or is formed where it is read, and derivatives by parameters are added up for all steps at once.
    """
    leaves, tree = jax.tree.flatten(carry)
    one, seen, _ = closed(lambda carry: (step(carry), None), leaves, tree)

    @jax.custom_jvp
    def few(leaves, seen):
        return lax.scan(lambda leaves, _: (one(leaves, seen)[0], None), leaves, None, length=count)[0]

    def written_out(leaves, seen):
        for _ in range(count):
            leaves = one(leaves, seen)[0]
        return leaves

    few.defjvp(lambda primals, tangents: jax.jvp(written_out, primals, tangents))
    again = jax.checkpoint(few, prevent_cse=False)
    return lambda carry: tree.unflatten(again(tree.flatten_up_to(carry), seen))
