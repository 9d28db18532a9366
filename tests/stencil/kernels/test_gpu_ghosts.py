"""Ghost lines written around tiles in a GPU's shared memory, by the kernel's own code on plain arrays.

Kernels for GPUs are interpreted on newer versions of jax only (`test_hopper.py`). Here arrays of numpy stand for the
memories and Python's loops for the kernel's, so that every index is checked on every version.
"""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from stencil_programs import arrays_of, unpadded, wide

from simjax.stencil.kernels import gpu_ghosts, register_tiles
from simjax.stencil.kernels.tiles import block_of, lead


class Memory:
    """An array that is read and written as a reference of a kernel."""

    def __init__(self, values):
        self.values = values

    def __getitem__(self, where):
        return self.values[_plain(where)]

    def __setitem__(self, where, values):
        self.values[_plain(where)] = values


def _plain(where):
    return tuple(
        slice(int(w.start), int(w.start) + w.size) if hasattr(w, "size") and hasattr(w, "start") else w for w in where
    )


def brought(array, begin, shape):
    """Copy as the engine does: the part of an array that begins at `begin`, and zeros beyond its ends."""
    block = np.zeros(shape, array.dtype)
    inside = [slice(max(b, 0), min(b + n, whole)) for b, n, whole in zip(begin, shape, array.shape, strict=True)]
    there = [slice(s.start - b, s.stop - b) for s, b in zip(inside, begin, strict=True)]
    if all(s.stop > s.start for s in inside):
        block[tuple(there)] = array[tuple(inside)]
    return block


@pytest.fixture
def plain_loops(monkeypatch):
    def while_loop(condition, body, k):
        while condition(k):
            k = body(k)

    monkeypatch.setattr(register_tiles, "lax", SimpleNamespace(while_loop=while_loop))
    monkeypatch.setattr(
        gpu_ghosts, "pl", SimpleNamespace(when=lambda holds: lambda f: f() if holds else None, ds=gpu_ghosts.pl.ds)
    )


@pytest.mark.parametrize(
    ("width", "interior", "tile"),
    [
        (1, (300,), (128,)),
        (2, (300,), (128,)),
        (1, (9, 260), (4, 128)),
        # The last tile has fewer rows than there are ghost cells.
        (3, (5, 132), (4, 128)),
        (2, (2, 128), (4, 128)),
    ],
)
def test_every_tile_has_the_ghost_cells_of_the_whole_array(plain_loops, width, interior, tile):
    program = wide(len(interior), width)
    operand, whole = program.operands[0], np.asarray(arrays_of(program, interior)[0])
    bare = unpadded(program, [whole])[0]
    field = np.asarray(bare.field)
    lines = [np.asarray(u) for u in gpu_ghosts.lines_of(bare, operand, tile)]
    gpu = SimpleNamespace(
        layout_cast=lambda u, _: u,
        Layout=SimpleNamespace(WG_STRIDED=lambda shape, vec_size: None),
        commit_smem=lambda: None,
    )
    for corner in itertools.product(*(range(0, n, t) for n, t in zip(interior, tile, strict=True))):
        begin = [c - width for c in corner]
        begin[-1] -= lead(operand)
        # The copy engine faults elsewhere: found on an H200.
        assert begin[-1] * operand.dtype.itemsize % 16 == 0
        block = brought(field, [0, *begin], (2, *block_of(operand, tile, interior, "gpu")))
        columns = brought(lines[-1], [0, *corner[:-1], 0], gpu_ghosts.columns_of(operand, tile))
        memories = Memory(block), [Memory(u) for u in lines], Memory(columns)
        gpu_ghosts.write_lines(gpu, *memories, operand, interior, tile, [np.int32(c) for c in corner])
        ends = [min(c + t, n) + 2 * width for c, t, n in zip(corner, tile, interior, strict=True)]
        cells = [slice(c, end) for c, end in zip(corner, ends, strict=True)]
        expected = whole[(slice(None), *cells)]
        found = block[..., lead(operand) :][(slice(None), *(slice(0, n) for n in expected.shape[1:]))]
        np.testing.assert_array_equal(found, expected, err_msg=f"tile at {corner}")
