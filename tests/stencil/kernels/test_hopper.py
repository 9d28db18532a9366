"""Kernels for GPUs, interpreted with a search for races, against the same formulas on whole arrays."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from stencil_programs import arrays_of, coupled_steps, diffusion, on_whole_arrays, staggered, unpadded, wide

from simjax.stencil.kernels import hopper, hopper_planes
from simjax.stencil.kernels.launch import launch


def by_jax(gpu, program, read, types, shape):
    return [jnp.broadcast_to(value, shape) for value in program.evaluate(read)]


@pytest.fixture
def interpreted(monkeypatch):
    """The interpreter takes an index below zero for zero, where the copy engine reads zeros. So fields, and the planes
    beside them, get zeros before their first cells here, and the blocks begin so much later.
    """
    import jax.experimental.pallas.mosaic_gpu as gpu

    kernel, inputs, place, before = gpu.kernel, hopper.inputs_of, hopper._place, 4
    of_planes, cells = hopper_planes.inputs_of, hopper_planes._cells

    def with_zeros_before(x, operand, tile):
        field, *lines = inputs(x, operand, tile)
        return [jnp.pad(field, [(0, 0)] + [(before, 0)] * (field.ndim - 1)) if lines else field, *lines]

    def later(operand, corner, block, bare):
        return place(operand, [c + np.int32(before) for c in corner] if bare else corner, block, bare)

    def planes_with_zeros_before(x, operand, tile):
        found = of_planes(x, operand, tile)
        around = [(0, 0), (0, 0), (before, 0), (before, 0)]
        return [jnp.pad(u, around) for u in found[:2]] + found[2:] if len(found) > 1 else found

    def cells_later(operand, corner, tile, width=0):
        return cells(operand, [c + np.int32(before) for c in corner] if width else corner, tile, width)

    # A partial keeps the signature, by which the names of the arguments are chosen.
    monkeypatch.setattr(gpu, "kernel", functools.partial(kernel, interpret=gpu.InterpretGPUParams(detect_races=True)))
    monkeypatch.setattr(hopper, "inputs_of", with_zeros_before)
    # It does not interpret what is written for registers either.
    for kernels in (hopper, hopper_planes):
        monkeypatch.setattr(kernels, "computed", by_jax)
    monkeypatch.setattr(hopper, "_place", later)
    monkeypatch.setattr(hopper_planes, "inputs_of", planes_with_zeros_before)
    monkeypatch.setattr(hopper_planes, "_cells", cells_later)


@pytest.mark.parametrize("beside", [False, True], ids=["padded", "beside"])
@pytest.mark.parametrize(
    ("program", "interior", "tile"),
    [
        (diffusion(1), (300,), (128,)),
        # The last tile has fewer rows than there are ghost cells.
        (wide(2, 3), (5, 132), (4, 128)),
        (staggered(2), (7, 140), (4, 128)),
        (coupled_steps((7, 140), target="gpu"), (7, 140), (4, 128)),
        pytest.param(staggered(3), (3, 4, 132), (2, 3, 128), marks=pytest.mark.slow),
        # The last tile along x has one plane, and planes of the first one come where others were.
        pytest.param(wide(3, 2), (4, 3, 132), (3, 2, 128), marks=pytest.mark.slow),
        pytest.param(
            coupled_steps((4, 3, 132), target="gpu", steps=1), (4, 3, 132), (3, 2, 128), marks=pytest.mark.slow
        ),
    ],
    ids=["1d", "2d-wall", "2d", "passes", "3d", "3d-wall", "3d-passes"],
)
def test_tiles_together_are_the_whole(interpreted, program, interior, tile, beside):
    arrays = arrays_of(program, interior)
    found = launch(program, unpadded(program, arrays) if beside else arrays, interior, target="gpu", tile=tile)
    for u, v in zip(found, on_whole_arrays(program, arrays, interior), strict=True):
        # Sums of twenty terms of sizes up to ten, in single precision.
        np.testing.assert_allclose(u, v, rtol=1e-5, atol=1e-5)
