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

from simjax.jaxpr.linear_map import linear_map
from simjax.stencil.formulation import stores_values
from simjax.stencil.kernels.operands import Sums
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
    fused = _fused.get()

    def of_face(around, given):
        return functools.reduce(lambda found, part: part(found, around, given), parts, None)

    def evaluated(blocks, given):
        values, tree = jax.tree.flatten(of_cell(jax.tree.map(windows.line, blocks), given))
        around = [windows.around(line, ndim) for line in values]
        return of_face(_cells(held_in_reverse(around), tree), given)

    if fused is None and stores_values():
        return evaluated(blocks, given)

    @jax.custom_jvp
    def on_faces(blocks, given):
        return evaluated(blocks, given)

    @on_faces.defjvp
    def _slopes(primals, tangents):
        def transpose(cotangents):
            if fused is None:
                return _transposed_in_parts(of_cell, parts, windows, primals, cotangents, ndim)
            return _transposed(of_cell, of_face, windows, primals, cotangents, ndim, fused)

        forward = linear_map(lambda tangents: jax.jvp(evaluated, primals, tangents)[1], transpose, tangents)
        return on_faces(*primals), forward

    return on_faces(blocks, given)


def _transposed(of_cell: Callable, of_face: Callable, windows: Windows, primals, cotangents, ndim: int, fused: Fused):
    """Cotangents of blocks and of what is given, from those of the faces, by one kernel."""
    blocks, given = primals
    leaves, tree = jax.tree.flatten((blocks, given, cotangents))
    faces = jax.tree.leaves(cotangents)[0].shape

    def by_face(*leaves: Array):
        blocks, given, cotangents = tree.unflatten(leaves)
        values, blocks_tree = jax.tree.flatten(blocks)
        around = _cells([windows.around(windows.line(value), ndim) for value in values], blocks_tree)
        everywhere = jax.tree.map(lambda x: jnp.broadcast_to(x, faces), given)

        def face(around, given):
            return of_face([of_cell(cell, given) for cell in around], given)

        return jax.vjp(face, around, everywhere)[1](cotangents)

    fields, places = len(jax.tree.leaves(blocks)), range(windows.count)
    terms = [tuple((k * fields + field, k) for k in places) for field in range(fields)]
    terms += [((windows.count * fields + j, 0),) for j in range(len(jax.tree.leaves(given)))]
    sums = Sums(windows.axis, tuple(terms))
    found = fused(by_face, ndim, sums=sums)(*leaves)
    added, pulled = jax.tree.unflatten(jax.tree.structure((blocks, given)), found)
    read = jax.tree.map(lambda block, line: jax.linear_transpose(windows.line, block)(line)[0], blocks, added)
    return read, jax.tree.map(lambda x, of: jnp.sum(x) if of.ndim == 0 else x, pulled, given)


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
