"""A tile, piece by piece: as much at once as fits the registers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

Begin = list[Any]
"""Indices of a piece's first cell; traced ones are multiples of the piece's size."""


def for_pieces(
    tile: Sequence[int], piece: Sequence[int], compute: Callable[[Begin, tuple[int, ...]], None], *, equal: bool = False
) -> None:
    """`compute(begin, shape)` for every piece of a tile.

    Loops run over all axes but the last one, along which begins are known when the kernel is compiled. What is left
    over is a smaller piece; with `equal`, one as large as the others, of which a part has been computed already.
    """

    def along(axis: int, begin: Begin, shape: tuple[int, ...]) -> None:
        if axis == len(tile):
            compute(begin, shape)
            return
        count, rest = divmod(tile[axis], piece[axis])
        whole = count * piece[axis]
        if axis == len(tile) - 1 or count == 1:
            for at in range(0, whole, piece[axis]):
                along(axis + 1, [*begin, at], (*shape, piece[axis]))
        elif count:
            # A `fori_loop` counts in 64 bits where jax has them, which Mosaic cannot convert.
            def body(k):
                along(axis + 1, [*begin, k * np.int32(piece[axis])], (*shape, piece[axis]))
                return k + np.int32(1)

            lax.while_loop(lambda k: k < np.int32(count), body, np.int32(0))
        if rest and equal:
            along(axis + 1, [*begin, tile[axis] - piece[axis]], (*shape, piece[axis]))
        elif rest:
            along(axis + 1, [*begin, whole], (*shape, rest))

    along(0, [], ())
