"""Blocks and the ghost lines around them, on one device; reverse mode touches only edges."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax

from simjax.grid import LOWER, UPPER
from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.linear_map import fixed_linear_map
from simjax.stencil.formulation import gathers_in_reverse, stores_values
from simjax.stencil.materialise import formed_once, held

Sides = tuple[Array, Array]
"""Lines at the lower and at the upper end of an axis."""
Reach = tuple[tuple[int, int], ...]
"""Ghost cells of a block at the lower and at the upper end of each axis."""


def reach_of(width: int, ndim: int) -> Reach:
    """`width` ghost cells at both ends of every axis."""
    return ((width, width),) * ndim


@dataclass(frozen=True)
class Edges:
    """Fields, and their outermost lines at both ends of `axes`, at most `width` thick."""

    axes: tuple[int, ...]
    ndim: int
    width: int

    def forward(self, fields: list[Array]) -> tuple[list[Array], list[list[Sides]]]:
        def thickness(u: Array, axis: int) -> int:
            return min(self.width, u.shape[axis - self.ndim])

        edges = [[_ends(u, axis - self.ndim, thickness(u, axis)) for axis in self.axes] for u in fields]
        return fields, edges

    def transpose(self, cotangents) -> list[Array]:
        fields, edges = cotangents
        add = _with_ends_added if gathers_in_reverse() else _with_ends_padded
        return [add(u, pieces, self.axes, self.ndim) for u, pieces in zip(fields, edges, strict=True)]


def with_edges(
    fields: list[Array], axes: Sequence[int], ndim: int, width: int
) -> tuple[list[Array], list[list[Sides]]]:
    """The fields, and the outermost lines of each at both ends of each of the `axes`, at most `width` thick."""
    edges = Edges(tuple(axes), ndim, width)
    return fixed_linear_map(edges, fields) if _flows(fields) else edges.forward(fields)


def _ends(u: Array, axis: int, width: int) -> Sides:
    n = u.shape[axis]
    return lax.slice_in_dim(u, 0, width, axis=axis), lax.slice_in_dim(u, n - width, n, axis=axis)


def _with_ends_added(u: Array, pieces: list[Sides], axes: Sequence[int], ndim: int) -> Array:
    """In place, line by line: XLA on a CPU would store a padded line as an array of the block's size."""
    for axis, sides in zip(axes, pieces, strict=True):
        for side, line in enumerate(sides):
            start = [0] * u.ndim
            if side:
                start[axis - ndim] = u.shape[axis - ndim] - line.shape[axis - ndim]
            there = lax.dynamic_slice(u, start, line.shape)
            u = lax.dynamic_update_slice(u, formed_once(there + line), start)
    return formed_once(u)


def _with_ends_padded(u: Array, pieces: list[Sides], axes: Sequence[int], ndim: int) -> Array:
    """All in one kernel of a GPU, where in place each line would be one."""
    for axis, (lower, upper) in zip(axes, pieces, strict=True):
        for line, last in ((lower, False), (upper, True)):
            beyond = u.shape[axis - ndim] - line.shape[axis - ndim]
            room = [(0, 0, 0)] * u.ndim
            room[axis - ndim] = (beyond, 0, 0) if last else (0, beyond, 0)
            u = u + lax.pad(line, jnp.zeros((), u.dtype), room)
    return u


def lines(edge: Array, ghosts: list[Sides], axis: int, ndim: int, begin: int, end: int) -> Array:
    """Lines `edge` of a block, `begin` to `end` along `axis`, between the ghost lines of the axes before it."""
    for k, sides in enumerate(ghosts):
        lower, upper = (lax.slice_in_dim(v, begin, end, axis=axis - ndim) for v in sides)
        edge = jnp.concatenate([lower, edge, upper], axis=k - ndim)
    return edge


def strip(field: Array, ghosts: list[Sides], axis: int, begin: int, width: int) -> Array:
    """`width` lines of a field from line `begin` on, with the `width` cells around them on every side."""
    ndim = len(ghosts)
    where, n = axis - ndim, field.shape[axis - ndim]

    def cut(u: Array, first: int, last: int) -> Array:
        return lax.slice_in_dim(u, first, last, axis=u.ndim + where)

    def beside(first: int) -> Array:
        return lines(cut(field, first, first + width), ghosts[:axis], axis, ndim, first, first + width)

    below, above = ghosts[axis]
    below, above = beside(begin - width) if begin else below, beside(begin + width) if begin + width < n else above
    around: list[Sides] = []
    for k, (lower, upper) in enumerate(ghosts):
        # Lines of later axes have ghost cells along this one.
        end = begin + (width if k < axis else 3 * width)
        around.append((below, above) if k == axis else (cut(lower, begin, end), cut(upper, begin, end)))
    return assembled([cut(field, begin, begin + width)], [around], width)[0]


@dataclass(frozen=True)
class Padding:
    """Blocks with those of their ghost cells around them that the reaches hold; `once`: by `formed_together`."""

    reaches: tuple[Reach, ...]
    width: int
    once: bool

    def forward(self, pieces: tuple[list[Array], list[list[Sides]]]) -> list[Array]:
        return (formed_together if self.once else assembled)(*pieces, self.width, self.reaches)

    def transpose(self, blocks: list[Array]) -> tuple[list[Array], list[list[Sides]]]:
        # Each is a sum over many displaced reads, which the kernel of every line cut from it would form again.
        blocks = held(blocks) if self.once else blocks
        return disassembled(blocks, len(self.reaches[0]), self.width, self.reaches)


@part("halo exchange")
def padded(
    fields: list[Array],
    ghosts: list[list[Sides]],
    width: int,
    reaches: Sequence[Reach] | None = None,
    *,
    for_many: bool = False,
) -> list[Array]:
    """The blocks with their ghost lines around them (`assembled`).

    for_many: for a stencil of many reads, for which they are put into memory (`formed_together`) where nothing else is.
    """
    reaches = tuple(reaches or [reach_of(width, len(ghosts[0]))] * len(fields))
    padding = Padding(reaches, width, for_many and not stores_values())
    return fixed_linear_map(padding, (fields, ghosts)) if _flows(fields) else padding.forward((fields, ghosts))


def formed_together(
    fields: list[Array], ghosts: list[list[Sides]], width: int, reaches: Sequence[Reach]
) -> list[Array]:
    """The blocks of `assembled`, put into memory: those of all fields of one shape by one kernel of a GPU.

    Written into a block, each line of each field would be a kernel.
    """
    kinds = [(u.shape, u.dtype, reach) for u, reach in zip(fields, reaches, strict=True)]
    blocks: list[Array] = list(fields)
    for shape, dtype, reach in dict.fromkeys(kinds):
        members = [k for k, kind in enumerate(kinds) if kind == (shape, dtype, reach)]
        block = jnp.stack([fields[k] for k in members])
        for axis in range(len(reach)):
            lower, upper = (
                jnp.stack([_wanted(ghosts[k], reach, axis, side, width) for k in members]) for side in (LOWER, UPPER)
            )
            block = _between(block, (lower, upper), block.ndim - len(reach) + axis)
        for k, one in zip(members, held(block), strict=True):
            blocks[k] = one
    return blocks


def assembled(
    fields: list[Array], ghosts: list[list[Sides]], width: int, reaches: Sequence[Reach] | None = None
) -> list[Array]:
    """The padded blocks: lines of the first axis joined on, room made along the others, ghost lines written into it.

    XLA on a CPU fuses a concatenation along all axes into every neighbour read of the stencil that follows and pays
    index arithmetic per cell; written this way the block is formed once and the stencil vectorises. XLA on a GPU takes
    all of it into the kernel of the stencil.

    ghosts: `width` lines at both ends of each axis, with the ghost cells of the axes before it. reaches: of each field
    the ghost cells that its block has; None: all.
    """
    reaches = reaches or [reach_of(width, len(ghosts[0]))] * len(fields)
    return [_assembled(*pieces, width) for pieces in zip(fields, ghosts, reaches, strict=True)]


def joined(
    fields: list[Array], ghosts: list[list[Sides]], width: int, reaches: Sequence[Reach] | None = None
) -> list[Array]:
    """The blocks of `assembled` as concatenations along every axis.

    Of a stencil's transpose with its sums, XLA on a GPU takes in these; what is written into place it stores before.
    """
    reaches = reaches or [reach_of(width, len(ghosts[0]))] * len(fields)
    blocks = []
    for u, around, reach in zip(fields, ghosts, reaches, strict=True):
        for axis in range(len(reach)):
            ends = _wanted(around, reach, axis, LOWER, width), _wanted(around, reach, axis, UPPER, width)
            u = _between(u, ends, u.ndim - len(reach) + axis)
        blocks.append(u)
    return blocks


def _assembled(u: Array, around: list[Sides], reach: Reach, width: int) -> Array:
    ndim = len(around)
    leading = u.ndim - ndim

    def wanted(axis: int, side: int) -> Array:
        return _wanted(around, reach, axis, side, width)

    block = with_room(u, (wanted(0, LOWER), wanted(0, UPPER)), reach)
    written = [(k, side) for k in range(min(1, ndim - 1), ndim) for side in (LOWER, UPPER) if reach[k][side]]
    if not written and sum(reach[0]) > 1:
        # Lines that are joined alone XLA takes apart again, and copies the field for each displaced read.
        written = [(0, LOWER if reach[0][LOWER] else UPPER)]
    for axis, side in written:
        start = [0] * (leading + axis + 1) + [lower for lower, _ in reach[axis + 1 :]]
        if side == UPPER:
            start[leading + axis] = block.shape[leading + axis] - reach[axis][UPPER]
        block = lax.dynamic_update_slice(block, wanted(axis, side), start)
    return block


def _wanted(around: list[Sides], reach: Reach, axis: int, side: int, width: int) -> Array:
    """Ghost lines of an axis, and of their own ghost cells those that the block has."""
    line, count = around[axis][side], reach[axis][side]
    leading = line.ndim - len(reach)
    first = width - count if side == LOWER else 0
    line = lax.slice_in_dim(line, first, first + count, axis=leading + axis)
    for k, (lower, upper) in enumerate(reach[:axis]):
        n = line.shape[leading + k]
        line = lax.slice_in_dim(line, width - lower, n - width + upper, axis=leading + k)
    return line


def with_room(u: Array, ends: Sides, reach: Reach) -> Array:
    """An array between the lines `ends` of its first spatial axis, and zeros for ghost cells along the others.

    With zeros along the first axis too, XLA's loop on a CPU would not vectorise: a step takes 1.5 to 2.5 times as long.
    Along a line there are zeros alone.
    """
    ndim = len(reach)
    leading, joined = u.ndim - ndim, min(1, ndim - 1)
    block = _between(u, ends, leading) if joined else u
    if not any(map(any, reach[joined:])):
        return block
    room = [(0, 0, 0)] * (leading + joined) + [(lower, upper, 0) for lower, upper in reach[joined:]]
    return lax.pad(block, jnp.zeros((), u.dtype), room)


def _between(u: Array, ends: Sides, where: int) -> Array:
    """An array between lines along one of its axes, of which there may be none."""
    parts = [x for x in (ends[LOWER], u, ends[UPPER]) if x.shape[where]]
    return jnp.concatenate(parts, axis=where) if len(parts) > 1 else u


def disassembled(
    blocks: list[Array], ndim: int, width: int, reaches: Sequence[Reach] | None = None
) -> tuple[list[Array], list[list[Sides]]]:
    """Take apart what `assembled` puts together; its transpose."""
    reaches = reaches or [reach_of(width, ndim)] * len(blocks)
    pieces = [_disassembled(block, width, reach) for block, reach in zip(blocks, reaches, strict=True)]
    return [u for u, _ in pieces], [around for _, around in pieces]


def _disassembled(block: Array, width: int, reach: Reach) -> tuple[Array, list[Sides]]:
    ndim = len(reach)
    whole = [slice(None)] * (block.ndim - ndim)
    sizes = block.shape[block.ndim - ndim :]
    inner = [slice(lower, n - upper) for n, (lower, upper) in zip(sizes, reach, strict=True)]

    def lines(axis: int, side: int) -> Array:
        """Cotangents of ghost lines, zero where the block has none of their cells."""
        count, n = reach[axis][side], sizes[axis]
        own = slice(0, count) if side == LOWER else slice(n - count, n)
        line = block[(*whole, *[slice(None)] * axis, own, *inner[axis + 1 :])]
        beyond = [(width - lower, width - upper, 0) for lower, upper in reach[:axis]]
        beyond.append((width - count, 0, 0) if side == LOWER else (0, width - count, 0))
        room = [(0, 0, 0)] * len(whole) + beyond + [(0, 0, 0)] * (ndim - axis - 1)
        return lax.pad(line, jnp.zeros((), line.dtype), room) if any(map(any, beyond)) else line

    return block[(*whole, *inner)], [(lines(axis, LOWER), lines(axis, UPPER)) for axis in range(ndim)]


def assembled_within(
    fields: list[Array], ghosts: list[list[Sides]], width: int, margin: int, reaches: Sequence[Reach] | None = None
) -> list[Array]:
    """The padded blocks with `margin` more cells on every side, which repeat the outermost ones."""
    return assembled(fields, [further(around, margin) for around in ghosts], width + margin, reaches)


def further(ghosts: list[Sides], margin: int) -> list[Sides]:
    """Ghost lines of a block with `margin` more cells outwards, which repeat the outermost ones."""
    ndim = len(ghosts)

    def one(line: Array, axis: int, side: int) -> Array:
        around = [(margin, margin) if k < axis else (0, 0) for k in range(ndim)]
        around[axis] = (margin, 0) if side == LOWER else (0, margin)
        return jnp.pad(line, [(0, 0)] * (line.ndim - ndim) + around, mode="edge")

    return [(one(lower, axis, LOWER), one(upper, axis, UPPER)) for axis, (lower, upper) in enumerate(ghosts)]


def _flows(fields: list[Array]) -> bool:
    """Tell whether gradients can flow through the fields: all have floating-point numbers."""
    return all(jnp.issubdtype(u.dtype, jnp.inexact) for u in fields)
