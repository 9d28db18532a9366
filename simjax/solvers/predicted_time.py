"""Predicted times of the ways to solve a Poisson equation on a mesh of TPUs, from bytes, messages and passes.

Figures are those of a TPU v5e (`simjax.chips`). They rank the ways; no time was measured.
"""

import math
from collections.abc import Sequence

from simjax.chips import CHIPS
from simjax.core.domain import Domain

CHIP = CHIPS["v5e"]
PRODUCTS = 3e13
"""Operations per second of matrix products in full float32 precision."""
PASSES = 10
"""Times that a transform of one axis reads or writes a field."""
ITERATIONS = 10
"""Assumed number of steps of conjugate gradients, with a V-cycle each."""
CYCLE_PASSES = 40
"""Times that an iteration reads or writes a field of the finest level."""


def exchange_time(size: int, rings: Sequence[int]) -> float:
    """Seconds to hand on a block of `size` bytes along rings of devices, one after the other, both ways round."""
    seconds = 0.0
    for count in rings:
        # A piece for each device, over as many links as lie between.
        hops = sum(min(s, count - s) for s in range(1, count)) / 2
        messages = 2 * math.ceil(math.log2(count)) - 1
        seconds += size / count * hops / CHIP.link_bandwidth + messages * CHIP.latency
    return seconds


def transform_time(domain: Domain, itemsize: int, exchanges: Sequence[Sequence[int]], left: int | None = None) -> float:
    """Seconds of transforms and exchanges there and back; `left`: the axis solved where it is cut (`solvers.lines`).

    `exchanges` are the rings along which a field is handed on before a transform, one entry per exchange; the last one
    is that of the left axis' ghosts.
    """
    size = math.prod(domain.block_shape) * itemsize
    seconds = 2 * domain.grid.ndim * PASSES * size / CHIP.bandwidth
    fields, ghosts = (exchanges[:-1], exchanges[-1]) if left is not None else (exchanges, ())
    seconds += 2 * sum(exchange_time(size, rings) for rings in fields)
    if left is not None:
        cells = domain.grid.shape[left] // math.prod(ghosts)
        seconds += 2 * exchange_time(2 * size // cells, ghosts)
        seconds += 4 * cells * (size / itemsize) / PRODUCTS
        seconds += 2 * math.log2(math.prod(ghosts)) * CHIP.latency  # two sums, for the mean
    return seconds


def multigrid_time(domain: Domain, itemsize: int, gathered_cells: int) -> float:
    """Seconds of conjugate gradients with V-cycles: halo exchanges that wait for each other, and passes over memory."""
    ndim, cut = domain.grid.ndim, len(domain.names)
    devices = math.prod(entry[1] for entry in domain.split if entry is not None)
    levels = max(1, math.ceil(math.log(max(domain.grid.cells / gathered_cells, 2), 2**ndim)))
    # Six products with the operator and a restriction and prolongation per axis on a level; one more per iteration.
    exchanges = 6 + 2 * ndim
    side = math.prod(domain.block_shape) / min(domain.block_shape) * itemsize
    sides = (side / 2 ** (k * (ndim - 1)) for k in range(levels))
    seconds = sum(exchanges * cut * (CHIP.latency + size / CHIP.link_bandwidth) for size in sides)
    seconds += 3 * math.log2(devices) * CHIP.latency
    return ITERATIONS * (seconds + CYCLE_PASSES * math.prod(domain.block_shape) * itemsize / CHIP.bandwidth)
