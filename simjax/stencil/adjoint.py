"""The adjoint of a stencil as a stencil: each point gathers from its neighbours.

Transposed as it stands, every displaced read of a stencil becomes an array of its own, padded with zeros to the size
of what was read, and all of them are added up. Here the cotangent is surrounded by zeros once. What is padded with
zeros is then the same array seen from another corner, and the transpose is displaced reads, as the stencil is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, JaxprEqn

from simjax.jaxpr.replay import computed, replayed
from simjax.stencil.padding import Reach, reach_of, with_room


class NotAStencil(Exception):
    """An operation that cannot be evaluated on a part of its operands."""


@dataclass(frozen=True)
class Part:
    """Known part of an array: `values` begin at the indices `origin` of its spatial axes, which are the last."""

    values: Array
    origin: tuple[int, ...]

    @property
    def leading(self) -> int:
        """Number of axes before the spatial ones; along them everything is known."""
        return self.values.ndim - len(self.origin)

    @property
    def end(self) -> tuple[int, ...]:
        return tuple(o + n for o, n in zip(self.origin, self.values.shape[self.leading :], strict=True))

    def cut(self, begin: Sequence[int], end: Sequence[int]) -> Array:
        """The values at the indices `begin` to `end` of the spatial axes."""
        starts, stops = ([k - o for k, o in zip(at, self.origin, strict=True)] for at in (begin, end))
        whole = self.values.shape[: self.leading]
        return lax.slice(self.values, [0] * self.leading + starts, [*whole, *stops])

    def within(self, shape: Sequence[int], shift: Sequence[int]) -> "Part":
        """The part of an array of another `shape`, in which it lies displaced by `shift`."""
        moved = Part(self.values, tuple(o + d for o, d in zip(self.origin, shift, strict=True)))
        begin = tuple(max(o, 0) for o in moved.origin)
        end = tuple(min(e, n) for e, n in zip(moved.end, shape, strict=True))
        if any(b >= e for b, e in zip(begin, end, strict=True)):
            raise NotAStencil("nothing known of a slice")
        return Part(moved.cut(begin, end), begin)


def gathering(
    stencil: Callable[..., list[Array]], count: int, ndim: int, width: int, reaches: Sequence[Reach] | None = None
) -> Callable[..., list[Array]]:
    """The adjoint of a stencil: `gather(*around, *known)` -> cotangents of the blocks that it read.

    `around` are like these `count` blocks, each with 2 `width` more cells on every side. These only meet cotangents
    that are zero, so they need be no more than finite where differentiated. `known` are the cotangents of what the
    stencil returned, `surrounded_by_zeros` as far as it returns something for `around`.

    Args:
        stencil: `stencil(*blocks)` -> arrays on the interior, shorter by 2 `width` along their last `ndim` axes.
        reaches: of each block, the ghost cells that it reads, of which there are cotangents; None: all.

    `gather` raises:
        NotAStencil: the transpose holds an operation that is not known here.
    """
    margins = [
        [(3 * width - lower, 3 * width - upper) for lower, upper in reach]
        for reach in reaches or [reach_of(width, ndim)] * count
    ]

    def gather(*arrays: Array) -> list[Array]:
        blocks, known = arrays[:count], arrays[count:]
        _, pull = jax.vjp(stencil, *blocks)
        transposed = jax.make_jaxpr(lambda *cotangents: pull(list(cotangents)))(*known)
        found = _of_parts(transposed, ndim)(*(Part(c, (0,) * ndim) for c in known))
        return [_inner(*pieces) for pieces in zip(found, blocks, margins, strict=True)]

    return gather


def _inner(part, block: Array, margins: list[tuple[int, int]]) -> Array:
    """The cotangent of a block without the margins around it."""
    ndim = len(margins)
    begin = tuple(below for below, _ in margins)
    end = tuple(n - above for n, (_, above) in zip(block.shape[block.ndim - ndim :], margins, strict=True))
    if not isinstance(part, Part):
        part = Part(jnp.zeros_like(block), (0,) * ndim)
    if any(b < o for b, o in zip(begin, part.origin, strict=True)) or any(
        e > known for e, known in zip(end, part.end, strict=True)
    ):
        raise NotAStencil("it reads further than its width")
    return part.cut(begin, end)


def surrounded_by_zeros(u: Array, reach: Reach) -> Array:
    """An array with zeros around it, as many at both ends of its last axes as `reach` says."""
    leading = u.ndim - len(reach)

    def zeros(like: Array, count: int) -> Array:
        return jnp.zeros((*u.shape[:leading], count, *like.shape[leading + 1 :]), u.dtype)

    lower, upper = reach[0]
    block = with_room(u, (zeros(u, lower), zeros(u, upper)), reach)
    if not any(reach[0]):
        return block
    # Lines are written into place: a padding would be formed anew in every read of the loop that follows.
    begin = 0 if lower else block.shape[leading] - upper
    return lax.dynamic_update_slice_in_dim(block, zeros(block, lower or upper), begin, leading)


def summed_from_memory(function: Callable, *arguments):
    """`function(*arguments)`, where what is summed up is formed in one loop before.

    XLA's sums on a CPU take in the products in front of them, but not displaced reads, each of which is then stored by
    itself. They do not take in a comparison, and no compiler sees that this one changes nothing.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)

    def result(equation: JaxprEqn, inputs: list) -> list:
        if equation.primitive.name == "reduce_sum":
            (x,) = inputs
            inputs = [jnp.where(x != x, jnp.full_like(x, jnp.nan), x)]
        return computed(equation, inputs)

    return jax.tree.unflatten(jax.tree.structure(shapes), replayed(closed, result)(*jax.tree.leaves(arguments)))


@dataclass(frozen=True)
class _Sum:
    """The sum over all entries of an array, which is not formed yet."""

    of: Array

    def formed(self) -> Array:
        return jnp.sum(self.of)


def summed_together(function: Callable, *arguments):
    """`function(*arguments)`, where sums over whole arrays that are added up are one sum: on a GPU each is a kernel."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)

    def result(equation: JaxprEqn, inputs: list) -> list:
        name, x = equation.primitive.name, inputs[0] if inputs else None
        if name == "reduce_sum" and isinstance(x, Array) and len(equation.params["axes"]) == x.ndim > 0:
            return [_Sum(x)]
        if name in ("add", "add_any") and all(isinstance(x, _Sum) for x in inputs):
            first, second = (x.of for x in inputs)
            if first.shape == second.shape:
                return [_Sum(first + second)]
        return computed(equation, [formed(x) for x in inputs])

    def formed(x):
        return x.formed() if isinstance(x, _Sum) else x

    found = replayed(closed, result)(*jax.tree.leaves(arguments))
    return jax.tree.unflatten(jax.tree.structure(shapes), [formed(x) for x in found])


# ---------------------------------------------------------------------- evaluation on parts


def _of_parts(closed: ClosedJaxpr, ndim: int) -> Callable[..., list]:
    """A linear function of parts: parts, as large as can be known, or arrays where they depend on none."""
    return replayed(closed, lambda equation, inputs: _result(equation, inputs, ndim))


def _result(equation, inputs: list, ndim: int) -> list:
    primitive, parameters = equation.primitive, equation.params
    if not any(isinstance(x, Part) for x in inputs):
        return computed(equation, inputs)
    if primitive.name in ("jit", "pjit"):
        inner = parameters["jaxpr"]
        return _of_parts(inner, ndim)(*inputs)
    if primitive.name in POINTWISE:
        met, origin = _met(inputs, ndim)
        return [Part(primitive.bind(*met, **parameters), origin)]
    if primitive.name == "unstack":
        return _taken_apart(inputs, equation)
    if primitive.name not in RULES:
        raise NotAStencil(f"{primitive.name} in its transpose")
    return [RULES[primitive.name](inputs, equation, ndim)]


def _met(inputs: list, ndim: int) -> tuple[list, tuple[int, ...]]:
    """Parts, and arrays as large as what they are parts of, cut to where all is known; the origin of that."""
    parts = [x for x in inputs if isinstance(x, Part)]
    begin = tuple(max(p.origin[k] for p in parts) for k in range(ndim))
    end = tuple(min(p.end[k] for p in parts) for k in range(ndim))
    if any(b >= e for b, e in zip(begin, end, strict=True)):
        raise NotAStencil("parts that do not meet")

    def cut(x):
        if isinstance(x, Part):
            return x.cut(begin, end)
        if jnp.ndim(x) < ndim:
            return x
        # An axis of one is repeated, and so stays as it is.
        ones = [n == 1 for n in x.shape[x.ndim - ndim :]]
        first = [0 if one else b for b, one in zip(begin, ones, strict=True)]
        last = [1 if one else e for e, one in zip(end, ones, strict=True)]
        return Part(x, (0,) * ndim).cut(first, last)

    return [cut(x) for x in inputs], begin


def _padded(inputs: list, equation, ndim: int) -> Part:
    """Seen from another corner along spatial axes; padded indeed along those before them."""
    part, value = inputs
    config = equation.params["padding_config"]
    if not isinstance(part, Part) or any(within for _, _, within in config):
        raise NotAStencil("padding between cells")
    values = part.values
    if any(any(sides) for sides in config[: part.leading]):
        values = lax.pad(values, value, [*config[: part.leading], *[(0, 0, 0)] * ndim])
    spatial = equation.outvars[0].aval.shape[part.leading :]
    return Part(values, part.origin).within(spatial, [low for low, _, _ in config[part.leading :]])


def _sliced(inputs: list, equation, ndim: int) -> Part:
    (part,), parameters = inputs, equation.params
    if parameters["strides"] is not None and set(parameters["strides"]) != {1}:
        raise NotAStencil("a slice with strides")
    starts, stops = parameters["start_indices"], parameters["limit_indices"]
    spatial = part.values.shape[part.leading :]
    values = lax.slice(part.values, (*starts[: part.leading], *[0] * ndim), (*stops[: part.leading], *spatial))
    size = equation.outvars[0].aval.shape[part.leading :]
    return Part(values, part.origin).within(size, [-start for start in starts[part.leading :]])


def _reshaped(inputs: list, equation, ndim: int) -> Part:
    """Axes before the spatial ones joined, split, added or taken away."""
    (part,), shape = inputs, equation.outvars[0].aval.shape
    _whole(shape, equation.invars[0].aval.shape, ndim)
    return Part(part.values.reshape((*shape[: len(shape) - ndim], *part.values.shape[part.leading :])), part.origin)


def _broadcast(inputs: list, equation, ndim: int) -> Part:
    """Repeated along axes before the spatial ones."""
    (part,), shape = inputs, equation.outvars[0].aval.shape
    places, leading = equation.params["broadcast_dimensions"], len(shape) - ndim
    _whole(shape, equation.invars[0].aval.shape, ndim)
    if tuple(places[part.leading :]) != tuple(range(leading, len(shape))):
        raise NotAStencil("spatial axes exchanged")
    values = lax.broadcast_in_dim(part.values, (*shape[:leading], *part.values.shape[part.leading :]), places)
    return Part(values, part.origin)


def _summed(inputs: list, equation, ndim: int) -> Part:
    (part,), axes = inputs, equation.params["axes"]
    if any(axis >= part.leading for axis in axes):
        raise NotAStencil("a sum over cells")
    return Part(jnp.sum(part.values, axes), part.origin)


def _stacked(inputs: list, equation, ndim: int) -> Part:
    """Side by side along an axis before the spatial ones."""
    axis, leading = equation.params["axis"], len(equation.outvars[0].aval.shape) - ndim
    if axis >= leading:
        raise NotAStencil("a stack of cells")
    met, origin = _met(inputs, ndim)
    return Part(jnp.stack(met, axis), origin)


def _taken_apart(inputs: list, equation) -> list[Part]:
    (part,), axis = inputs, equation.params["axis"]
    if axis >= part.leading:
        raise NotAStencil("cells taken apart")
    return [Part(values, part.origin) for values in jnp.unstack(part.values, axis=axis)]


def _whole(shape: Sequence[int], other: Sequence[int], ndim: int) -> None:
    """Refuse arrays that differ in their spatial axes."""
    if tuple(shape[len(shape) - ndim :]) != tuple(other[len(other) - ndim :]):
        raise NotAStencil("spatial axes of another size")


POINTWISE = {
    "add",
    "add_any",
    "sub",
    "mul",
    "div",
    "neg",
    "select_n",
    "convert_element_type",
    "copy",
    "real",
    "imag",
    "conj",
    "complex",
    "pcast",
    "pvary",
}
RULES = {
    "pad": _padded,
    "slice": _sliced,
    "reshape": _reshaped,
    "squeeze": _reshaped,
    "broadcast_in_dim": _broadcast,
    "reduce_sum": _summed,
    "stack": _stacked,
}
