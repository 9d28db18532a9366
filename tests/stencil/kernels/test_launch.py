"""Kernels evaluated tile by tile, interpreted, against the same formulas on whole arrays."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stencil_programs import (
    Formula,
    arrays_of,
    coupled_steps,
    diffusion,
    on_whole_arrays,
    shapes_of,
    staggered,
    unpadded,
    wide,
)

from simjax.stencil.kernels import intrinsics, tpu_blocks
from simjax.stencil.kernels.cost import bytes_per_cell
from simjax.stencil.kernels.launch import launch
from simjax.stencil.kernels.operands import NotLowered, Operand, as_passes
from simjax.stencil.kernels.tiles import block_of, bytes_of_blocks, granule, memory_of, reach, tile_of

CASES = {
    "diffusion-1d": (diffusion(1, "float64"), (103,), (20,)),
    # Rows in loops of 4, with some left over, and more columns than are computed at once.
    "diffusion-2d": (diffusion(2, "float64"), (22, 1030), (10, 1030)),
    "diffusion-3d": (diffusion(3, "float64"), (5, 9, 6), (2, 9, 5)),
    "staggered-2d": (staggered(2, "float64"), (13, 10), (8, 4)),
    "staggered-3d": (staggered(3, "float64"), (5, 9, 6), (3, 8, 6)),
    "bfloat16": (diffusion(2, "bfloat16"), (13, 10), None),
    "passes-1d": (coupled_steps((40,), "float64"), (103,), (20,)),
    "passes-2d": (coupled_steps((13, 10), "float64"), (13, 10), (8, 4)),
    "passes-3d": (coupled_steps((5, 9, 6), "float64"), (5, 9, 6), (3, 8, 6)),
}


def close(found, expected):
    # Sums of ten terms of size one, and in two bytes a rounding of the result.
    assert found.dtype == expected.dtype
    kind = jnp.float32 if found.dtype == jnp.bfloat16 else found.dtype
    eps = float(jnp.finfo(found.dtype).eps)
    np.testing.assert_allclose(
        found.astype(kind), expected.astype(kind), rtol=2 * eps, atol=20 * float(jnp.finfo(kind).eps)
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_tiles_together_are_the_whole(name):
    program, interior, tile = CASES[name]
    arrays = arrays_of(program, interior)
    found = jax.jit(lambda *arrays: launch(program, arrays, interior, target="interpret", tile=tile))(*arrays)
    for u, v in zip(found, on_whole_arrays(program, arrays, interior), strict=True):
        close(u, v)


@pytest.mark.parametrize(
    ("program", "interior", "tile"),
    [
        (staggered(2, "float64"), (20, 6), (20, 6)),
        # The last tile has fewer rows than there are ghost cells: the one before it meets the wall too.
        (wide(2, 3, "float64"), (130, 6), (128, 6)),
        (staggered(3, "float64"), (5, 9, 6), (2, 9, 6)),
        (wide(3, 2, "float64"), (5, 9, 6), (4, 9, 6)),
        # Tiles that cut another axis: a padded copy.
        (wide(2, 3, "float64"), (12, 9), (8, 4)),
        (diffusion(1, "float64"), (40,), (16,)),
        (coupled_steps((20, 6), "float64"), (130, 6), (128, 6)),
        (coupled_steps((5, 9, 6), "float64"), (9, 9, 6), (4, 9, 6)),
    ],
    ids=["2d", "2d-wall", "3d", "3d-wall", "cut", "1d", "passes-2d", "passes-3d"],
)
@pytest.mark.slow
def test_ghost_lines_beside_a_field_are_as_good_as_around_it(program, interior, tile):
    arrays = arrays_of(program, interior)
    found = jax.jit(lambda arrays: launch(program, arrays, interior, target="interpret", tile=tile))(
        unpadded(program, arrays)
    )
    for u, v in zip(found, on_whole_arrays(program, arrays, interior), strict=True):
        close(u, v)


@pytest.mark.parametrize("mapped", [(0, 0, 0, 0, 0, 0), (0, None, None, None, None, 0)], ids=["all", "some"])
@pytest.mark.slow
def test_members_are_independent(mapped):
    program, interior = staggered(2, "float64"), (7, 6)
    single = arrays_of(program, interior)
    arrays = [u if axis is None else jnp.stack([u, 2 * u]) for u, axis in zip(single, mapped, strict=True)]
    found = jax.jit(jax.vmap(lambda *arrays: launch(program, arrays, interior, target="interpret"), in_axes=mapped))(
        *arrays
    )
    for m in range(2):
        member = [u if axis is None else u[m] for u, axis in zip(arrays, mapped, strict=True)]
        for u, v in zip(found, on_whole_arrays(program, member, interior), strict=True):
            close(u[m], v)


PROGRAMS = [diffusion(1), diffusion(2), diffusion(3), staggered(2), staggered(3), diffusion(2, "bfloat16")]
INTERIORS = {
    1: [(60,), (100_003,), (2**20,)],
    2: [(20, 30), (1000, 1003), (4096, 4096), (64, 100_000)],
    3: [(12, 9, 30), (65, 70, 131), (256, 256, 256)],
}


@pytest.mark.parametrize("target", ["tpu", "gpu"])
def test_tiles_fit_and_stay_inside(target):
    for program in PROGRAMS:
        ndim = len(program.operands[0].extents)
        units = granule(target, ndim, program.results[0].itemsize)
        for interior in INTERIORS[ndim]:
            tile = tile_of(program, interior, target)
            assert bytes_of_blocks(program, tile, interior, target)[1] <= memory_of(target).capacity
            cut = [t < n for t, n in zip(tile, interior, strict=True)]
            assert all(t % unit == 0 for t, unit, cut in zip(tile, units, cut, strict=True) if cut)
            for operand in program.operands[:-1]:
                block, sizes = (of(operand, tile, interior, target) for of in (block_of, reach))
                if target == "gpu":  # the copy engine takes 256 cells along an axis, and rows of 16 bytes
                    # In three dimensions it takes a plane at a time.
                    assert max(block[-2:]) <= 256 and all(
                        n * operand.dtype.itemsize % 16 == 0 for n in (block[-1], sizes[-1])
                    )
                    continue
                if not any(operand.extents):
                    assert sizes == operand.shape(interior)[1:]
                    continue
                for n, t, b, size, e in zip(interior, tile, block, sizes, operand.extents, strict=True):
                    assert e is None or (math.ceil(n / t) - 1) * t + b <= size


@pytest.mark.parametrize(("width", "most"), [(1, 1.11), (2, 1.18), (4, 1.4)])
def test_planes_that_stream_are_brought_about_once(width, most):
    """Of one read and one write: 32 x 128 cells of a plane with those around them, for 32 planes and those beyond them.

    (34 x 136) / (32 x 128) x 34 / 32 = 1.20 reads, and a write, where one cell on either side is read.
    """
    program, interior = wide(3, width), (256,) * 3
    program = Formula((replace(program.operands[0], components=1),), program.results, program.evaluate)
    tile = tile_of(program, interior, "gpu")
    once = 2 * 4
    assert once < bytes_per_cell(as_passes(program, 3), tile, interior, "gpu") < most * once
    # As many tiles as there are multiprocessors, and hardly fewer.
    assert 120 <= math.prod(math.ceil(n / t) for n, t in zip(interior, tile, strict=True)) <= 132


def test_blocks_are_assembled_where_they_fit():
    """Tiles of a field with its ghost cells beside it cut the first axis: by multiples of 128 rows, or by planes."""

    def tile(program, interior):
        arrays = jax.eval_shape(lambda *u: unpadded(program, u), *shapes_of(program, interior))
        return tpu_blocks.tile_of(program, arrays, interior)

    assert tile(diffusion(2), (4096, 4096)) == (256, 4096)
    size, *rest = tile(wide(3, 2), (256, 64, 256))
    assert size % 2 == 0 and size < 256 and rest == [64, 256]
    assert tile(diffusion(2), (4096, 100_000)) is None and tile(diffusion(1), (4096,)) is None


def test_long_rows_are_cut_and_short_ones_are_not():
    """The halo of a row that is cut is one of 128 columns on a TPU."""
    assert tile_of(diffusion(2), (1024, 1024), "tpu")[-1] == 1024
    assert tile_of(diffusion(2), (64, 100_000), "tpu")[-1] < 100_000


def test_only_what_lies_outside_is_copied():
    program, interior = diffusion(2), (64, 256)
    (array,) = shapes_of(program, interior)
    assert array.shape[1:] == (66, 258)
    assert reach(program.operands[0], (32, 256), interior, "tpu") == (72, 258)
    assert reach(program.operands[0], (16, 128), interior, "gpu") == (66, 260)
    jaxpr = jax.make_jaxpr(lambda u: launch(program, [u], interior, target="interpret", tile=(32, 256)))(array)
    assert "pad[" not in str(jaxpr)


def test_refusals_name_numbers():
    interior = (64, 256)
    for target, dtype in (("tpu", "float64"), ("gpu", "float64"), ("interpret", "complex128")):
        program = diffusion(2, dtype)
        with pytest.raises(NotLowered, match=f"No kernel for {target} computes with {dtype}; it may be .*float32"):
            jax.eval_shape(lambda *u: launch(program, u, interior, target=target), *shapes_of(program, interior))  # noqa: B023
    many = Operand(500, (2, 2), jnp.dtype("float32"))
    with pytest.raises(NotLowered, match=r"takes \d+ bytes of fast memory for gpu, which has 225280"):
        tile_of(Formula((many,), (many.dtype,), lambda read: [read(0, 0, (1, 1))]), interior, "gpu")
    with pytest.raises(ValueError, match=r"Operand 0 of a kernel is float64\[1,66,256\]; expected float64\[1,66,258\]"):
        launch(diffusion(2, "float64"), [jnp.zeros((1, 66, 256))], interior, target="interpret")


@pytest.mark.parametrize(
    ("name", "reference", "points"),
    [
        ("sqrt", np.sqrt, [0.0, 1e-30, 0.3, 7e8, np.inf]),
        ("expm1", np.expm1, [-200.0, -2.0, -1e-6, 0.0, 3e-9, 1e-3, 0.7, 200.0]),
        ("log1p", np.log1p, [-0.9, -1e-6, 0.0, 3e-9, 1e-3, 0.7, 1e8, np.inf]),
        ("cbrt", np.cbrt, [-27.0, -1e-9, 0.0, 1e-9, 2.0]),
        ("floor", np.floor, [-3.0, -2.5, -0.1, 0.0, 0.9, 5.0, 1e20, -1e20]),
        ("ceil", np.ceil, [-3.0, -2.5, -0.1, 0.0, 0.9, 5.0, 1e20, -1e20]),
        ("is_finite", np.isfinite, [1.0, np.inf, -np.inf, np.nan]),
        ("sign", np.sign, [3.0, 0.0, -1e-30, np.inf, np.nan]),
        ("logistic", lambda x: 1 / (1 + np.exp(-x)), [-3.0, 0.0, 4.0, np.inf, -np.inf]),
    ],
)
@pytest.mark.slow
def test_functions_that_a_gpu_lacks(name, reference, points):
    x = np.asarray(points, np.float32)
    found = intrinsics.SUBSTITUTES["gpu"][name](jnp.asarray(x))
    # A few roundings of single precision, amplified by the exponent for exp of a logarithm.
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, reference(x.astype(np.float64)).astype(np.float32), rtol=2e-6)


def test_powers_that_a_gpu_lacks():
    x, y = jnp.asarray([0.0, 0.0, 0.5, 3.0], jnp.float32), jnp.asarray([0.0, 1.4, 1.4, -2.5], jnp.float32)
    np.testing.assert_allclose(
        intrinsics.power(x, y), np.asarray(x, np.float64) ** np.asarray(y, np.float64), rtol=2e-6
    )
    np.testing.assert_allclose(intrinsics.integer_power(x[2:], y=-3), np.asarray(x[2:], np.float64) ** -3, rtol=1e-6)
    assert not intrinsics.negation(jnp.asarray(True))
