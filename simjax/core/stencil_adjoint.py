"""The adjoint of a stencil as a stencil: each point gathers from its neighbours.

Mechanically transposed, every displaced read of a stencil becomes an array of its own, padded with zeros to the size
of what was read, and all of them are added. Here the cotangent is surrounded by zeros once, and a padded array is the
same array seen from another corner: the whole transpose is one pass of displaced reads, as the stencil itself is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal


class NotAStencil(Exception):
    """An operation that is not evaluated on a part of its result."""


@dataclass(frozen=True)
class Part:
    """The part of a cotangent that is known: `values` begin at the indices `origin` of the whole."""

    values: Array
    origin: tuple[int, ...]

    @property
    def end(self) -> tuple[int, ...]:
        return tuple(o + n for o, n in zip(self.origin, self.values.shape, strict=True))

    def cut(self, begin: Sequence[int], end: Sequence[int]) -> Array:
        return _cut(self.values, [b - o for b, o in zip(begin, self.origin, strict=True)],
                    [e - o for e, o in zip(end, self.origin, strict=True)])  # fmt: skip


def pull_back(stencil: Callable[..., list[Array]], padded: list[Array], cotangents: list[Array], ndim: int, width: int):
    """Cotangents of `padded`, blocks with `width` ghost cells along the last `ndim` axes, from those of the interior.

    Args:
        stencil: `stencil(*padded)` -> arrays on the interior, for blocks of any size.
        padded, cotangents: of the blocks and of what the stencil returns.

    Raises:
        NotAStencil: its transpose holds an operation that `_evaluate` does not know.
    """
    # What gathers at the outermost ghost cell sees cotangents 2 width away, and the fields around them.
    margin = 2 * width
    blocks = [surrounded(p, margin, ndim, repeat=True) for p in padded]
    around = [surrounded(c, margin, ndim, repeat=False) for c in cotangents]
    _, pull = jax.vjp(stencil, *blocks)
    transposed = jax.make_jaxpr(lambda *cts: pull(list(cts)))(*around)
    parts = [Part(c, (0,) * c.ndim) for c in around]
    found = _evaluate(transposed.jaxpr, transposed.consts, parts, ndim)
    return [_inner(part, p, margin, ndim) for part, p in zip(found, padded, strict=True)]


def _inner(part, p: Array, margin: int, ndim: int) -> Array:
    """The cotangent of `p` out of that of the larger block around it."""
    if not isinstance(part, Part):
        return jnp.zeros_like(p)
    begin = [0] * (p.ndim - ndim) + [margin] * ndim
    end = [b + n for b, n in zip(begin, p.shape, strict=True)]
    if any(b < o for b, o in zip(begin, part.origin, strict=True)) or any(
        e > known for e, known in zip(end, part.end, strict=True)
    ):
        raise NotAStencil("it reads further than its width")
    return part.cut(begin, end)


def surrounded(u: Array, margin: int, ndim: int, repeat: bool) -> Array:
    """`u` with `margin` more cells on every side: repeating the outermost one, or zeros.

    Repeated cells never count, but what is computed from them is multiplied by zero and so must be finite, as it is
    where a field is uniform.
    """
    leading = u.ndim - ndim
    shape = u.shape[:leading] + tuple(n + 2 * margin for n in u.shape[leading:])
    block = lax.dynamic_update_slice(jnp.zeros(shape, u.dtype), u, [0] * leading + [margin] * ndim)
    if not repeat:
        return block
    for axis in range(leading, u.ndim):
        n = u.shape[axis]
        start = [0] * axis + [0] + [margin] * (u.ndim - axis - 1)
        for at, line in ((0, 0), (n + margin, n - 1)):
            edge = lax.slice_in_dim(u, line, line + 1, axis=axis)
            before = [(0, 0)] * leading + [(margin, margin)] * (axis - leading)
            edge = jnp.pad(edge, [*before, (0, 0), *[(0, 0)] * (u.ndim - axis - 1)], mode="edge")
            slab = jnp.broadcast_to(edge, [margin if k == axis else m for k, m in enumerate(edge.shape)])
            start[axis] = at
            block = lax.dynamic_update_slice(block, slab, start)
    return block


def _cut(x: Array, begin: Sequence[int], end: Sequence[int]) -> Array:
    return lax.slice(x, begin, end)


# ---------------------------------------------------------------------- evaluation on parts

POINTWISE = {
    "mul", "neg", "sub", "div", "add_any", "add", "convert_element_type", "select_n", "copy", "real", "imag", "conj",
    "complex", "pcast", "pvary",
}  # fmt: skip
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}


def _evaluate(jaxpr: Jaxpr, consts: Sequence, arguments: Sequence, ndim: int) -> list:
    """The results of a linear jaxpr of parts: parts too, as large as can be known, or arrays that depend on none."""
    environment = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, arguments, strict=True))

    def read(variable):
        return variable.val if isinstance(variable, Literal) else environment[variable]

    for equation in jaxpr.eqns:
        inputs = [read(variable) for variable in equation.invars]
        results = _apply(equation, inputs, ndim)
        environment.update(zip(equation.outvars, results, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _apply(equation, inputs: list, ndim: int) -> list:
    primitive, parameters = equation.primitive, equation.params
    if not any(isinstance(x, Part) for x in inputs):
        found = primitive.bind(*inputs, **parameters)
        return found if primitive.multiple_results else [found]
    name, whole = primitive.name, equation.outvars[0].aval.shape
    if name in CALLS:
        inner = parameters[CALLS[name]]
        inner, consts = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
        return _evaluate(inner, consts, inputs, ndim)
    if name in POINTWISE:
        return [_pointwise(primitive, parameters, inputs, whole)]
    if name == "pad":
        return [_padded(*inputs, parameters["padding_config"], whole, ndim)]
    rule = RULES.get(name)
    if rule is None or len(inputs) != 1:
        raise NotAStencil(f"{name} in its transpose")
    return [rule(inputs[0], parameters, equation.invars[0].aval.shape, whole, ndim)]


def _pointwise(primitive, parameters, inputs: list, whole: tuple[int, ...]) -> Part:
    parts = [x for x in inputs if isinstance(x, Part)]
    begin = tuple(max(p.origin[k] for p in parts) for k in range(len(whole)))
    end = tuple(min(p.end[k] for p in parts) for k in range(len(whole)))
    if any(b >= e for b, e in zip(begin, end, strict=True)):
        raise NotAStencil("parts that do not meet in its transpose")

    def cut(x):
        if isinstance(x, Part):
            return x.cut(begin, end)
        return x if jnp.ndim(x) == 0 else _cut(x, begin, end)

    return Part(primitive.bind(*(cut(x) for x in inputs), **parameters), begin)


def _padded(part, value, config, whole: tuple[int, ...], ndim: int) -> Part:
    """Padding with zeros: seen from another corner along spatial axes, carried out along those before them."""
    if not isinstance(part, Part) or any(within for _, _, within in config):
        raise NotAStencil("interior padding in its transpose")
    leading = len(whole) - ndim
    if any(low or high for low, high, _ in config[:leading]):
        filled = lax.pad(part.values, value, [*config[:leading], *[(0, 0, 0)] * ndim])
        part = Part(filled, (0,) * leading + part.origin[leading:])
    shifted = Part(part.values, (*part.origin[:leading], *(o + c[0] for o, c in
                                                           zip(part.origin[leading:], config[leading:], strict=True))))
    begin = [max(o, 0) for o in shifted.origin]
    end = [min(e, n) for e, n in zip(shifted.end, whole, strict=True)]
    return Part(shifted.cut(begin, end), tuple(begin))


def _reshaped(part: Part, parameters, before: tuple[int, ...], whole: tuple[int, ...], ndim: int) -> Part:
    """Axes before the spatial ones joined, split, added or taken away."""
    if before[len(before) - ndim :] != whole[len(whole) - ndim :] or parameters.get("dimensions_of_reshape"):
        raise NotAStencil("spatial axes reshaped in its transpose")
    size = len(before) - ndim
    if any(part.origin[:size]) or part.values.shape[:size] != before[:size]:
        raise NotAStencil("a part of the components reshaped in its transpose")
    leading = whole[: len(whole) - ndim]
    values = part.values.reshape(leading + part.values.shape[size:])
    return Part(values, (0,) * len(leading) + part.origin[size:])


def _broadcast(part: Part, parameters, before: tuple[int, ...], whole: tuple[int, ...], ndim: int) -> Part:
    places = parameters["broadcast_dimensions"]
    leading = len(whole) - ndim
    if tuple(places[len(before) - ndim :]) != tuple(range(leading, len(whole))) or (
        before[len(before) - ndim :] != whole[leading:]
    ):
        raise NotAStencil("spatial axes broadcast in its transpose")
    size = len(before) - ndim
    values = lax.broadcast_in_dim(part.values, whole[:leading] + part.values.shape[size:], places)
    return Part(values, (0,) * leading + part.origin[size:])


def _summed(part: Part, parameters, before: tuple[int, ...], whole: tuple[int, ...], ndim: int) -> Part:
    axes = parameters["axes"]
    if any(axis >= len(before) - ndim for axis in axes):
        raise NotAStencil("a sum over space in its transpose")
    kept = tuple(o for axis, o in enumerate(part.origin) if axis not in axes)
    return Part(jnp.sum(part.values, axes), kept)


RULES = {
    "reshape": _reshaped,
    "squeeze": _reshaped,
    "expand_dims": _reshaped,
    "broadcast_in_dim": _broadcast,
    "reduce_sum": _summed,
}
