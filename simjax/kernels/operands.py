"""What a kernel reads and writes, and what it computes at one point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from jax import Array

from simjax.core.errors import ConfigurationError


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
    """What is computed at a point from values at fixed displacements."""

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


def ghost_width(operand: Operand) -> int:
    """How many ghost cells the operand has on every side."""
    widths = {e for e in operand.extents or ()}
    (extent,) = widths
    assert extent is not None and extent % 2 == 0
    return extent // 2
