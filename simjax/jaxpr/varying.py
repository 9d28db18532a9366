"""Varying types inside `shard_map`: over which mesh axes a value may differ between devices.

The one home for what jax versions name differently here.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax._src import config
from jax.core import AbstractValue
from jax.extend.core import ClosedJaxpr, JaxprEqn

from simjax.jaxpr.invariants import formed_before
from simjax.jaxpr.platform import launches_count
from simjax.jaxpr.replay import computed, replayed


def type_of(x):
    """Shape, dtype and varying axes of an array or a tracer: equal and hashable where these are equal."""
    return jax.typeof(x)


def varying_axes(x) -> frozenset[str]:
    """Mesh axes over which `x` is typed as varying; empty outside `shard_map`."""
    kind = x if isinstance(x, jax.ShapeDtypeStruct | AbstractValue) else jax.typeof(x)
    return frozenset(getattr(getattr(kind, "manual_axis_type", None), "varying", frozenset()))


def varies_beyond(x, names: Sequence[str]) -> bool:
    """Tell whether `x` may differ between devices along mesh axes other than `names`, as what is a member's does."""
    return not varying_axes(x) <= {*names}


def cast_varying(x, names):
    """`x` typed as varying over `names` too. Its transpose sums gradients over those axes, once."""
    missing = tuple(name for name in names if name not in varying_axes(x))
    return lax.pcast(x, missing, to="varying") if missing else x


def match_varying(tree, like):
    """Each leaf of `tree` cast to vary over what the matching leaf of `like` (arrays or shapes) varies over."""
    return jax.tree.map(lambda x, y: cast_varying(x, sorted(varying_axes(y))), tree, like)


def vary_like(tree, like):
    """Every leaf of `tree` cast to vary over all axes over which any leaf of `like` varies."""
    axes = sorted(frozenset().union(*(varying_axes(leaf) for leaf in jax.tree.leaves(like))))
    return jax.tree.map(lambda x: cast_varying(x, axes), tree)


def mosaic_kernel(gpu: Any, body: Callable[..., None], results: Sequence, scratch: Mapping[str, Any], **others: Any):
    """`gpu.kernel` of `jax.experimental.pallas.mosaic_gpu`: names of results and scratch are by version."""
    renamed = "out_type" in signature(gpu.kernel).parameters
    names = ("out_type", "scratch_types") if renamed else ("out_shape", "scratch_shapes")
    return gpu.kernel(body, **dict(zip(names, (results, scratch), strict=True)), **others)


def repeated(closed: ClosedJaxpr) -> Callable[..., list]:
    """Replay a traced program as a function of arguments that may vary over more axes than those it was traced for.

    A cast of what varies already is left out, where jax refuses it: within loops over members, what was the same on all
    devices when it was traced may have become a member's.
    """

    def result(equation: JaxprEqn, inputs: list) -> list:
        if equation.primitive.name in ("pvary", "pcast"):
            return [cast_varying(x, sorted(varying_axes(equation.outvars[0].aval))) for x in inputs]
        return computed(equation, inputs)

    return replayed(closed, result)


def unchecked() -> AbstractContextManager:
    """A context in which operations are not asked over which axes their operands vary.

    Interpreted Pallas kernels mix indices that do not vary with blocks that do. jax offers this only for a whole
    `shard_map`, where it would also turn off what makes the transposes of collectives right.
    """
    return config._check_vma(False)


def steady_carry(body, carry):
    """`carry` and `body` (carry -> carry) cast so that the loop's types no longer change from step to step.

    A carry may start out the same on all devices and come back varying, or the other way round; a scan or a
    conditional needs one type.
    """
    # Traced once for its types and for its use, in loops within loops; `inline` leaves no trace of it in the program.
    body = jax.jit(body, inline=True)
    if not jax.sharding.get_abstract_mesh().manual_axes:  # outside `shard_map` nothing varies
        return body, carry
    out = jax.eval_shape(body, carry)
    carry = match_varying(carry, out)
    return lambda c: match_varying(body(c), carry), carry


def taken_where(condition, step, carry, *, both: bool):
    """`step(carry)` where a scalar condition holds, else `carry`.

    both: whether the step is computed in any case. Members of an ensemble do so anyway, and over devices jax cannot
    batch a condition whose branches cast or reduce.
    """
    step, carry = steady_carry(step, carry)
    if launches_count():  # what a loop around the condition forms before it is not to be in a branch
        step = formed_before(step, carry)
    if both:
        return jax.tree.map(lambda new, old: jnp.where(condition, new, old), step(carry), carry)
    return lax.cond(condition, step, lambda carry: carry, carry)
