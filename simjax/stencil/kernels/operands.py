"""Reads and writes of a kernel, and its computation at one point."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.errors import ConfigurationError


class NotLowered(ConfigurationError):
    """A stencil that this target has no kernel for; the message says why."""


@dataclass(frozen=True)
class Operand:
    """An array that a stencil reads.

    Attributes:
        components: the array is (components, *spatial); a scalar is ().
        extents: per spatial axis, by how many cells the array is longer than the interior, or None along an axis of
            length one that is repeated; None for a scalar.
    """

    components: int
    extents: tuple[int | None, ...] | None
    dtype: np.dtype

    def shape(self, interior: Sequence[int]) -> tuple[int, ...]:
        if self.extents is None:
            return ()
        sizes = (1 if e is None else n + e for n, e in zip(interior, self.extents, strict=True))
        return self.components, *sizes


class Unpadded(NamedTuple):
    """An operand whose ghost cells lie beside it, as many on every side.

    Attributes:
        field: (components, *interior).
        ghosts: per axis, the lines at its lower and at its upper end; they include the ghost cells of the axes before.
    """

    field: Array
    ghosts: list[tuple[Array, Array]]


class Program(Protocol):
    """Computation at a point from values at fixed displacements."""

    @property
    def operands(self) -> tuple[Operand, ...]: ...

    @property
    def results(self) -> tuple[np.dtype, ...]:
        """Types of the results, each an array of the interior's shape."""
        ...

    def evaluate(self, read: Callable[..., Any]) -> list[Array]:
        """The results on a piece of the interior.

        Args:
            read: `read(k, component, offset)` is operand k displaced by `offset`, counted from its first cell: an array
                of the piece's shape, or one that broadcasts to it; `read(k)` is a scalar.
        """
        ...


@dataclass(frozen=True)
class Passes:
    """Programs that are evaluated in turn on a tile; each but the last on more cells, for those that come after it.

    Attributes:
        operands: arrays that they read; kept: what passes but the last one compute, one after the other. A program's
            operands are both together.
        margins: per pass, cells around the tile, along each axis, on which it is evaluated.
    """

    operands: tuple[Operand, ...]
    kept: tuple[Operand, ...]
    margins: tuple[tuple[int, ...], ...]
    programs: tuple[Program, ...]

    @property
    def results(self) -> tuple[np.dtype, ...]:
        return self.programs[-1].results


@dataclass(frozen=True)
class Sums:
    """Arrays that results of a program add up to, each result moved along one axis.

    Attributes:
        axis: of the grid.
        terms: by array, the results that it is the sum of, each with the cells by which it is moved: in cell c the
            array has result r in cell c - k for each pair (r, k). It is longer than the results by its largest k.
        totals: results that are added up over all cells, each to a number, which comes after the arrays.
    """

    axis: int
    terms: tuple[tuple[tuple[int, int], ...], ...]
    totals: tuple[int, ...] = ()

    @property
    def longest(self) -> int:
        """Cells by which any result is moved, at most."""
        return max(moved for terms in self.terms for _, moved in terms)

    def of(self, results: Sequence[Array], ndim: int) -> list[Array]:
        """The arrays and totals, of results whose last `ndim` axes are those of the grid."""
        added = [_moved_and_added([(results[r], k) for r, k in terms], self.axis - ndim) for terms in self.terms]
        return added + [jnp.sum(results[r]) for r in self.totals]

    def by_component(self, counts: Sequence[int]) -> "Sums":
        """The same where result r is `counts[r]` results one after the other, and one of them has a total."""
        assert all(counts[r] == 1 for r in self.totals)
        starts = [sum(counts[:r]) for r in range(len(counts))]
        return Sums(
            self.axis,
            tuple(
                tuple((starts[r] + component, k) for r, k in terms)
                for terms in self.terms
                for component in range(counts[terms[0][0]])
            ),
            tuple(starts[r] for r in self.totals),
        )


def _moved_and_added(terms: Sequence[tuple[Array, int]], axis: int) -> Array:
    longest = max(k for _, k in terms)
    total = None
    for result, k in terms:
        around = [(0, 0, 0)] * result.ndim
        around[axis] = (k, longest - k, 0)
        moved = lax.pad(result, jnp.zeros((), result.dtype), around)
        total = moved if total is None else total + moved
    assert total is not None
    return total


def as_passes(program: Program | Passes, ndim: int) -> Passes:
    """A program as the only one that is evaluated."""
    if isinstance(program, Passes):
        return program
    return Passes(program.operands, (), ((0,) * ndim,), (program,))


def ghost_width(operand: Operand) -> int:
    """Number of ghost cells that the operand has on every side."""
    widths = {e for e in operand.extents or ()}
    (extent,) = widths
    assert extent is not None and extent % 2 == 0
    return extent // 2


def operands_of(sources: Sequence, arguments: Sequence[Array | Unpadded], ndim: int) -> list[Array | Unpadded]:
    """The arrays that `sources` names (see `Traced`)."""

    def joined(u: Array) -> Array:
        return u.reshape(-1, *u.shape[u.ndim - ndim :])

    found = []
    for k, entry in sources:
        x = arguments[k]
        if entry is None:
            found.append(jax.tree.map(joined, x))
        else:
            assert not isinstance(x, Unpadded)
            found.append(x[entry])
    return found


def arranged(values: Sequence[Array], shapes: Sequence[tuple[int, ...]], ndim: int) -> list[Array]:
    """Arrays of these shapes, from their components, one after the other."""
    found, start = [], 0
    for shape in shapes:
        count = math.prod(shape[: len(shape) - ndim])
        parts = values[start : start + count]
        found.append(parts[0].reshape(shape) if count == 1 else jnp.stack(parts).reshape(shape))
        start += count
    return found
