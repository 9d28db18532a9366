"""Functions of the cells around a face, transposed face by face.

Such a function is made of operations on single numbers, once the cells around each face are given. So is its transpose:
from the cotangent of a face it forms those of the cells around it, which are then added up, cell by cell. Written so,
it can be one kernel, as the function can; what lies between is computed again and stays in registers.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.jaxpr.linear_map import with_transpose
from simjax.stencil.formulation import stores_values
from simjax.stencil.kernels.operands import Sums
from simjax.stencil.kernels.tiles import rows_of_16_bytes
from simjax.stencil.materialise import held, held_in_reverse, in_one_kernel

Fused = Callable[..., Callable]
"""`fused(function, ndim)` is the function as a kernel, `fused(function, ndim, sums=sums)` sums of its results
(`kernels.primitive.lowered`)."""

_fused: ContextVar[Fused | None] = ContextVar("_fused", default=None)


@contextmanager
def transposed_by(fused: Fused | None) -> Iterator[None]:
    """Trace functions of windows to be transposed as kernels; None: as XLA forms them."""
    token = _fused.set(fused)
    try:
        yield
    finally:
        _fused.reset(token)


@dataclass(frozen=True)
class Windows:
    """The cells around each face along one axis.

    line: of a block the cells that faces along the axis read. axis: of the grid. count: cells around a face, of which
    the first is as many cells after the first one of the line as the face is after the first face.
    """

    line: Callable[[Array], Array]
    axis: int
    count: int

    def around(self, line: Array, ndim: int) -> list[Array]:
        """The cells of a line around each face, one array for each place."""
        axis = line.ndim - ndim + self.axis
        faces = line.shape[axis] - self.count + 1
        return [lax.slice_in_dim(line, k, k + faces, axis=axis) for k in range(self.count)]


def of_windows(
    of_cell: Callable, parts: Sequence[Callable], windows: Windows, blocks: Any, given: Any, ndim: int
) -> Any:
    """Values on all faces, as the last of `parts` gives them.

    Each is `part(found, around, given)`: `found` is what the part before gave (None before the first), and `around`
    lists what `of_cell` gives of the cells around each face.

    Args:
        of_cell: `of_cell(blocks, given)`, from a tree of arrays to another one, cell by cell.
        parts: from trees of arrays on the faces to another one, face by face.
        blocks: arrays with ghost cells, of which the last `ndim` axes are the spatial ones; given: arrays on the faces
            and scalars.

    The transpose is formed face by face: as one kernel where `transposed_by` says so, by XLA on a GPU part by part. XLA
    on a CPU transposes the function as it stands: it stores values (`stencil.materialise`), those of cells once and not
    for each face beside them.
    """
    evaluated = functools.partial(_on_faces, of_cell, parts, windows, ndim)
    fused = _fused.get()
    if fused is None and stores_values():
        return evaluated(blocks, given)

    def transpose(primals, cotangents):
        if fused is None:
            return _transposed_in_parts(of_cell, parts, windows, primals, cotangents, ndim)
        return _transposed(of_cell, parts, windows, primals, cotangents, ndim, fused)

    return with_transpose(transpose, evaluated, blocks, given)


def differences_of_windows(
    of_cell: Callable, parts: Sequence[Callable], windows: Windows, blocks: Any, given: Any, ndim: int
) -> Any:
    """Differences u[j + 1] - u[j] on the n cells between n + 1 faces, of the values u that `of_windows` gives there.

    A kernel for the transpose forms the cotangents of faces from those of the cells beside them as it goes: they are
    not stored.
    """
    fused = _fused.get()

    def difference(u: Array) -> Array:
        return difference_of_neighbors(u, u.ndim - ndim + windows.axis)

    if fused is None:
        return jax.tree.map(difference, of_windows(of_cell, parts, windows, blocks, given, ndim))

    def evaluated(blocks, given):
        return jax.tree.map(difference, _on_faces(of_cell, parts, windows, ndim, blocks, given))

    def transpose(primals, cotangents):
        return _transposed(of_cell, parts, windows, primals, cotangents, ndim, fused, of_differences=True)

    return with_transpose(transpose, evaluated, blocks, given)


def difference_of_neighbors(u: Array, axis: int) -> Array:
    """u[j + 1] - u[j] along an axis of an array."""
    n = u.shape[axis]
    return lax.slice_in_dim(u, 1, n, axis=axis) - lax.slice_in_dim(u, 0, n - 1, axis=axis)


def _on_faces(of_cell: Callable, parts: Sequence[Callable], windows: Windows, ndim: int, blocks, given):
    values, tree = jax.tree.flatten(of_cell(jax.tree.map(windows.line, blocks), given))
    around = [windows.around(line, ndim) for line in values]
    return _of_face(parts, _cells(held_in_reverse(around), tree), given)


def _of_face(parts: Sequence[Callable], around, given):
    """Result of the last part, from the cells around a face."""
    return functools.reduce(lambda found, part: part(found, around, given), parts, None)


def _transposed(
    of_cell: Callable,
    parts: Sequence[Callable],
    windows: Windows,
    primals,
    cotangents,
    ndim: int,
    fused: Fused,
    of_differences: bool = False,
):
    """Cotangents of blocks and of what is given, by one kernel, from those of the faces or of differences of these."""
    blocks, given = primals
    if of_differences:
        cells = jax.tree.leaves(cotangents)[0].shape[-ndim:]
        faces = tuple(n + (k == windows.axis) for k, n in enumerate(cells))
        cotangents = jax.tree.map(lambda c: _with_room(c, ndim), cotangents)
    else:
        faces = jax.tree.leaves(cotangents)[0].shape[-ndim:]
    leaves, tree = jax.tree.flatten((blocks, given, cotangents))

    def by_face(*leaves: Array):
        blocks, given, cotangents = tree.unflatten(leaves)
        if of_differences:
            cotangents = jax.tree.map(lambda c: _of_faces(c, windows.axis, faces), cotangents)
        values, blocks_tree = jax.tree.flatten(blocks)
        around = _cells([windows.around(windows.line(value), ndim) for value in values], blocks_tree)
        everywhere = jax.tree.map(lambda x: jnp.broadcast_to(x, faces), given)

        def face(around, given):
            return _of_face(parts, [of_cell(cell, given) for cell in around], given)

        return jax.vjp(face, around, everywhere)[1](cotangents)

    fields, places = len(jax.tree.leaves(blocks)), range(windows.count)
    numbers, arrays = ([j for j, x in enumerate(jax.tree.leaves(given)) if (x.ndim == 0) == s] for s in (True, False))
    results = windows.count * fields
    terms = [tuple((k * fields + field, k) for k in places) for field in range(fields)]
    terms += [((results + j, 0),) for j in arrays]
    sums = Sums(windows.axis, tuple(terms), tuple(results + j for j in numbers))
    found = fused(by_face, ndim, sums=sums)(*leaves)
    added = jax.tree.unflatten(jax.tree.structure(blocks), found[:fields])
    pulled = [x for _, x in sorted(zip((*arrays, *numbers), found[fields:], strict=True), key=lambda pair: pair[0])]
    read = jax.tree.map(lambda block, line: jax.linear_transpose(windows.line, block)(line)[0], blocks, added)
    return read, jax.tree.unflatten(jax.tree.structure(given), pulled)


def _with_room(cotangent: Array, ndim: int) -> Array:
    """Cotangents of cells with a zero on every side, and so many zeros after each row that a GPU can address it.

    The same array serves all axes, whichever of them differences are taken along.
    """
    row = rows_of_16_bytes((cotangent.shape[-1] + 2,), cotangent.dtype)[0]
    around = [(0, 0, 0)] * (cotangent.ndim - ndim) + [(1, 1, 0)] * (ndim - 1) + [(1, row - 1 - cotangent.shape[-1], 0)]
    return lax.pad(cotangent, jnp.zeros((), cotangent.dtype), around)


def _of_faces(cotangent: Array, axis: int, faces: Sequence[int]) -> Array:
    """Cotangents of faces, of those of differences `_with_room`: a face is above one cell and below the next.

    axis: that of differences; faces: along each axis of the grid.
    """
    leading, cells = cotangent.ndim - len(faces), cotangent
    for k, count in enumerate(faces):
        begin, end = (0, count + 1) if k == axis else (1, count + 1)
        cells = lax.slice_in_dim(cells, begin, end, axis=leading + k)
    return -difference_of_neighbors(cells, leading + axis)


def _transposed_in_parts(
    of_cell: Callable, parts: Sequence[Callable], windows: Windows, primals, cotangents, ndim: int
):
    """Cotangents of blocks and of what is given, from those of the faces, by kernels that XLA makes for each part.

    What a part gives is stored, and its cotangents are. What lies within a part is computed again for its transpose,
    from the blocks and from what the part before gave. These are held for it: XLA would else store what it computed
    within the part the first time. So many derivatives lie there that this was two to four times the memory traffic.
    """
    blocks, given = held(primals[0]), primals[1]

    def spread(like: Array):
        """Numbers that are given as arrays: the terms of all parts are added before they are summed over faces."""
        return jax.tree.map(lambda x: jnp.broadcast_to(x, like.shape) if x.ndim == 0 else x, given)

    def apply(part, found, blocks, of_cells, of_faces):
        values, tree = jax.tree.flatten(of_cell(jax.tree.map(windows.line, blocks), of_cells))
        return part(found, _cells([windows.around(line, ndim) for line in values], tree), of_faces)

    everywhere = spread(windows.line(jax.tree.leaves(blocks)[0])), spread(jax.tree.leaves(cotangents)[0])
    found, pulled = [None], []
    with in_one_kernel():
        for part in parts[:-1]:
            found.append(apply(part, found[-1], blocks, *everywhere))
        for part, before in zip(reversed(parts), reversed(found), strict=True):
            blocks, before = held((blocks, before))
            cotangents = held(cotangents) if pulled else cotangents
            cotangents, *terms = jax.vjp(functools.partial(apply, part), before, blocks, *everywhere)[1](cotangents)
            pulled.append(terms)
    added, *sums = jax.tree.map(lambda *terms: functools.reduce(jnp.add, terms), *pulled)

    def total(of: Array, cells: Array, faces: Array) -> Array:
        return jnp.sum(cells) + jnp.sum(faces) if of.ndim == 0 else faces

    return held(added), jax.tree.map(total, given, *sums)


def _cells(columns: list[list[Array]], tree) -> list:
    """Trees of the cells around each face, from the cells of each of their leaves."""
    return [tree.unflatten(cell) for cell in zip(*columns, strict=True)]
