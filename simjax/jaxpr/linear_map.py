"""Linear maps that carry their own transpose, for reverse mode."""

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import ad, batching, mlir

from simjax.jaxpr.platform import platform
from simjax.jaxpr.varying import cast_varying, repeated, type_of, varying_axes

Leaves = list[Array]


def linear_map(forward: Callable, transpose: Callable, x):
    """`forward(x)`, a linear function of a tree of floating-point arrays, which reverse mode transposes by `transpose`.

    Both may close over traced values. Derivatives with respect to these are those of the functions as written: in
    forward mode, after transposition, and over members. (A `custom_jvp` rule has no say in how it is transposed, a
    `custom_vjp` function has no forward mode, and `linear_call` neither members nor derivatives of what it closes
    over.)
    """
    leaves, tree = jax.tree.flatten(x)
    ahead, back, tree_out = _both(forward, transpose, tree, leaves)
    typed = _typed(leaves, back.out_avals)
    if any(a is not b for a, b in zip(typed, leaves, strict=True)):
        leaves = typed
        ahead, back, tree_out = _both(forward, transpose, tree, leaves)
    out = linear_map_p.bind(*ahead.consts, *back.consts, *leaves, ahead=_of_consts(ahead), back=_of_consts(back))
    return tree_out.unflatten(out)


def _both(forward: Callable, transpose: Callable, tree, leaves: Sequence):
    """Both directions, traced for leaves of a tree, and the tree of the results."""
    ahead, shapes = jax.make_jaxpr(lambda *leaves: forward(tree.unflatten(leaves)), return_shape=True)(*leaves)
    results, tree_out = jax.tree.flatten(shapes)
    back = jax.make_jaxpr(lambda *results: jax.tree.leaves(transpose(tree_out.unflatten(results))))(*results)
    return ahead, back, tree_out


def _typed(leaves: Leaves, cotangents: Sequence) -> Leaves:
    """Leaves that vary between devices as their cotangents do: jax sums these where the leaf is the same on several."""
    return [cast_varying(x, sorted(varying_axes(c))) for x, c in zip(leaves, cotangents, strict=True)]


class Pair(Hashable, Protocol):
    """A linear function and its transpose, which close over no arrays; pairs that are equal are the same function."""

    def forward(self, x: Any, /) -> Any: ...

    def transpose(self, cotangents: Any, /) -> Any: ...


def fixed_linear_map(pair: Pair, x):
    """`pair.forward(x)` as by `linear_map`, traced once for all `x` of one type on each platform."""
    leaves, tree = jax.tree.flatten(x)

    def traced(leaves: Leaves):
        return _traced(pair, tree, tuple(type_of(leaf) for leaf in leaves), platform())

    ahead, back, tree_out = traced(leaves)
    typed = _typed(leaves, back.results)
    if any(a is not b for a, b in zip(typed, leaves, strict=True)):
        leaves = typed
        ahead, back, tree_out = traced(leaves)
    return tree_out.unflatten(linear_map_p.bind(*leaves, ahead=ahead, back=back))


@functools.lru_cache(maxsize=4096)
def _traced(pair: Pair, tree, types: tuple, platform: str):
    ahead, back, tree_out = _both(pair.forward, pair.transpose, tree, types)
    return _of_consts(ahead), _of_consts(back), tree_out


@dataclass(frozen=True, eq=False)
class Half:
    """One direction: `run(kept, x)` -> leaves of types `results`, where `kept` are the `count` values closed over."""

    run: Callable[[Sequence, Sequence], Leaves]
    count: int
    results: list


def _of_consts(closed: ClosedJaxpr) -> Half:
    def run(kept, x):
        return repeated(ClosedJaxpr(closed.jaxpr, list(kept)))(*x)

    return Half(run, len(closed.consts), closed.out_avals)


def _split(operands: Sequence, ahead: Half, back: Half) -> tuple[Sequence, Sequence, Sequence]:
    """Split the operands into what each direction keeps, and the argument."""
    first, second = ahead.count, ahead.count + back.count
    return operands[:first], operands[first:second], operands[second:]


def _value(*operands, ahead: Half, back: Half):
    kept, _, x = _split(operands, ahead, back)
    return ahead.run(kept, x)


def _push_forward(primals, tangents, *, ahead: Half, back: Half):
    kept, others, x = _split(primals, ahead, back)
    slopes, _, directions = _split(tangents, ahead, back)
    out = linear_map_p.bind(*primals, ahead=ahead, back=back)
    pushed = [jnp.zeros_like(y) for y in out]
    if not all(isinstance(d, ad.Zero) for d in directions):
        directions = [ad.instantiate_zeros(d) for d in directions]
        pushed = linear_map_p.bind(*kept, *others, *directions, ahead=ahead, back=back)
    moving = [k for k, slope in enumerate(slopes) if not isinstance(slope, ad.Zero)]
    if moving:

        def of(*values):
            changed = dict(zip(moving, values, strict=True))
            return ahead.run([changed.get(k, v) for k, v in enumerate(kept)], x)

        more = jax.jvp(of, tuple(kept[k] for k in moving), tuple(slopes[k] for k in moving))[1]
        pushed = [a + b for a, b in zip(pushed, more, strict=True)]
    return out, pushed


def _pull_back(cotangents, *operands, ahead: Half, back: Half):
    kept, others, x = _split(operands, ahead, back)
    cotangents = [ad.instantiate_zeros(c) for c in cotangents]
    pulled = linear_map_p.bind(*others, *kept, *cotangents, ahead=back, back=ahead)
    # Parts of the argument may be constants.
    wanted = [c if ad.is_undefined_primal(u) else None for u, c in zip(x, pulled, strict=True)]
    return [None] * (len(kept) + len(others)) + wanted


def _over_members(operands, dims, *, ahead: Half, back: Half):
    members = next(u.shape[d] for u, d in zip(operands, dims, strict=True) if d is not None)
    kept, others, x = _split(operands, ahead, back)
    kept_dims, other_dims, x_dims = _split(dims, ahead, back)
    x = [
        jnp.broadcast_to(u[None], (members, *u.shape)) if d is None else jnp.moveaxis(u, d, 0)
        for u, d in zip(x, x_dims, strict=True)
    ]
    ahead, shapes = _mapped(ahead, kept, kept_dims, x)
    back, _ = _mapped(back, others, other_dims, shapes)
    out = linear_map_p.bind(*kept, *others, *x, ahead=ahead, back=back)
    return out, [0] * len(out)


def _mapped(half: Half, kept: Sequence, dims: Sequence, x: Sequence) -> tuple[Half, list]:
    """One direction for all members, and the shapes of its results."""
    function = jax.vmap(half.run, in_axes=(list(dims), 0))
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(list(kept), list(x))
    return Half(lambda kept, x: repeated(closed)(*kept, *x), half.count, closed.out_avals), shapes


linear_map_p = Primitive("linear_map")
linear_map_p.multiple_results = True
linear_map_p.def_impl(_value)
linear_map_p.def_abstract_eval(lambda *_, ahead, back: ahead.results)
ad.primitive_jvps[linear_map_p] = _push_forward
ad.primitive_transposes[linear_map_p] = _pull_back
batching.primitive_batchers[linear_map_p] = _over_members
mlir.register_lowering(linear_map_p, mlir.lower_fun(_value, multiple_results=True))


def with_transpose(transpose: Callable, function: Callable, *arguments):
    """`function(*arguments)`, which reverse mode transposes by `transpose(arguments, cotangents)`."""

    @jax.custom_jvp
    def value(*arguments):
        return function(*arguments)

    @value.defjvp
    def _slopes(primals, tangents):
        back = functools.partial(transpose, primals)
        forward = linear_map(lambda tangents: jax.jvp(function, primals, tangents)[1], back, tangents)
        return value(*primals), forward

    return value(*arguments)
