"""What a kernel reads and writes, and what it computes at one point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jax import Array


class NotLowered(Exception):
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
