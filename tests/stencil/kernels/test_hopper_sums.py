"""Kernels for GPUs that add up results along lines, interpreted with a search for races, against sums of arrays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stencil_programs import Formula, on_whole_arrays

from simjax.stencil.kernels import hopper_sums
from simjax.stencil.kernels.launch import candidates, launch
from simjax.stencil.kernels.operands import NotLowered, Operand, Sums

COUNT = 4
SUMS = tuple(tuple((k * 2 + field, k) for k in range(COUNT)) for field in range(2)) + (((2 * COUNT, 0),),)


def faces(ndim, axis, dtype="float32"):
    """What a face gives to each of the four cells around it, for both fields there, and to itself.

    It divides by a field: of zeros beyond an array it makes what is not a number.
    """
    dtype = jnp.dtype(dtype)

    def evaluate(read):
        def at(component, k):
            return read(0, component, tuple(k if a == axis else 1 for a in range(ndim)))

        here = (0,) * ndim
        given, profile = read(1, 0, here), read(2, 0, here)
        cells = [
            (k + 1) * given * at(field, k) / at(1 - field, COUNT - 1 - k) for k in range(COUNT) for field in (0, 1)
        ]
        return [*cells, given * read(3) * profile / at(1, 1)]

    block = tuple(COUNT - 1 if a == axis else 2 for a in range(ndim))
    one = (None,) * (ndim - 1) + (0,)
    operands = Operand(2, block, dtype), Operand(1, (0,) * ndim, dtype), Operand(1, one, dtype), Operand(1, None, dtype)
    return Formula(operands, (dtype,) * (2 * COUNT + 1), evaluate)


def by_jax(gpu, program, read, types, shape):
    return [jnp.broadcast_to(value, shape) for value in program.evaluate(read)]


@pytest.fixture
def interpreted(monkeypatch):
    import jax.experimental.pallas.mosaic_gpu as gpu

    # A partial keeps the signature, by which the names of the arguments are chosen.
    options = gpu.InterpretGPUParams(detect_races=True)
    monkeypatch.setattr(gpu, "kernel", functools.partial(gpu.kernel, interpret=options))
    # It does not interpret what is written for registers.
    monkeypatch.setattr(hopper_sums, "computed", by_jax)


@pytest.mark.parametrize(
    ("axis", "interior", "tile"),
    [
        # The last walk has fewer cells than a sum has results.
        (0, (6, 132), (4, 128)),
        # Two rows of 124 sums, four more before the first one, and a few that are left.
        (1, (3, 250), (2, 124)),
        (0, (5, 2, 130), (3, 1, 128)),
        (1, (2, 5, 130), (1, 3, 128)),
        (2, (3, 2, 126), (2, 1, 124)),
    ],
    ids=["2d-walk", "2d-row", "3d-first", "3d-second", "3d-row"],
)
def test_each_cell_has_the_sum_of_what_comes_to_it(interpreted, axis, interior, tile):
    program, sums = faces(len(interior), axis), Sums(axis, SUMS, (2 * COUNT, 1))
    numbers = np.random.default_rng(5)
    arrays = [jnp.asarray(numbers.uniform(1, 2, o.shape(interior)), o.dtype) for o in program.operands]
    found = launch(program, arrays, interior, target="gpu", tile=tile, sums=sums)
    expected = sums.of(on_whole_arrays(program, arrays, interior), len(interior))
    for u, v in zip(found, expected, strict=True):
        assert u.shape == v.shape
        # Sums of four terms up to sixteen, and totals of some thousand positive ones, in single precision.
        np.testing.assert_allclose(u, v, rtol=1e-5 if u.ndim == 0 else 0, atol=1e-5)


def test_walks_to_choose_from_fit_the_shared_memory():
    program, interior = faces(3, 0), (40, 8, 128)
    arrays = [jax.ShapeDtypeStruct(o.shape(interior), o.dtype) for o in program.operands]
    found = candidates(program, arrays, interior, "gpu", Sums(0, SUMS)).tiles
    assert [*found] == [(32, 1, 128), (16, 1, 128), (40, 1, 128)]
    many = Formula(tuple(Operand(100, o.extents, o.dtype) for o in program.operands), program.results, program.evaluate)
    with pytest.raises(NotLowered, match="bytes of fast memory for gpu"):
        candidates(many, arrays, interior, "gpu", Sums(0, SUMS))
