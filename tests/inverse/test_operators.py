"""Observation operators: what they are exact for, their order, decomposition, derivatives and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import check_decompositions, random
from case import smooth_field
from jax.sharding import PartitionSpec
from readings import ENDS, LOWERS, PLACES, STARTS, UPPERS, of_wave
from refusals import refusals

from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.instruments.everything import Snapshot
from simjax.instruments.histogram import Histogram
from simjax.instruments.image import Image
from simjax.instruments.operators import BoxAverage, LineOfSight, PointSensors, Spectrum
from simjax.instruments.planes import Slice
from simjax.parallel import decompose, distribute, make_mesh

GRID = Grid((16, 24), (0.0, -1.0), (2.0, 2.0))
OPERATORS = {
    "snapshot": Snapshot("u"),
    "points": PointSensors("u", PLACES),
    "line of sight": LineOfSight("u", STARTS, ENDS),
    "box average": BoxAverage("u", LOWERS, UPPERS),
    "spectrum": Spectrum("u", 4),
    "slice across x": Slice("u", 0, 1.93),
    "slice across y": Slice("u", 1, -0.4),
    "image": Image("u", [[1.9, 0.02, 0.7], [-0.9, 1.99, 0.3, 0.31]]),
}
WALLS, WRAPS = (False, False), (True, True)


def affine(grid, offset):
    """2 - x + 3 y ... at the stored positions."""
    x = np.meshgrid(*(grid.coordinates(axis, offset[axis]) for axis in range(grid.ndim)), indexing="ij")
    return jnp.asarray(2 + sum(c * v for c, v in zip((-1.0, 3.0, 0.5), x, strict=False)))


def affine_at(points):
    return 2 + np.asarray(points) @ np.asarray((-1.0, 3.0, 0.5))[: np.shape(points)[1]]


def measured(operator, grid, field, offset, periodic):
    operator.check(grid)
    found = np.asarray(jax.jit(lambda u: operator.measure(Domain(grid), u, offset, periodic))(field))
    assert found.shape == operator.shape(grid)
    return found


@pytest.mark.parametrize("offset", [(0.5, 0.5), (0.0, 0.5), (0.5, 0.0)])
def test_points_and_lines_are_exact_for_linear_fields_up_to_the_walls(offset):
    field = affine(GRID, offset)
    found = measured(PointSensors("u", PLACES), GRID, field, offset, WALLS)
    # A few roundings of numbers up to 10.
    np.testing.assert_allclose(found, affine_at(PLACES), rtol=0, atol=1e-13)
    found = measured(LineOfSight("u", STARTS, ENDS), GRID, field, offset, WALLS)
    lengths = np.linalg.norm(np.subtract(ENDS, STARTS), axis=1)
    np.testing.assert_allclose(found, lengths * affine_at(np.add(STARTS, ENDS) / 2), rtol=0, atol=1e-12)


def test_points_of_one_and_three_axes_and_of_a_single_cell():
    line, box = Grid((8,)), Grid((4, 5, 6))
    found = measured(PointSensors("u", [[0.0], [0.77]]), line, affine(line, (0.5,)), (0.5,), (False,))
    np.testing.assert_allclose(found, affine_at([[0.0], [0.77]]), rtol=0, atol=1e-14)
    places = [[0.0, 1.0, 0.3], [0.5, 0.52, 0.99]]
    found = measured(PointSensors("u", places), box, affine(box, (0.5,) * 3), (0.5,) * 3, (False,) * 3)
    np.testing.assert_allclose(found, affine_at(places), rtol=0, atol=1e-14)
    for wraps in (False, True):
        found = measured(PointSensors("u", [[0.2], [0.9]]), Grid((1,)), jnp.asarray([3.0]), (0.5,), (wraps,))
        np.testing.assert_allclose(found, [3.0, 3.0], rtol=1e-15)


@pytest.mark.parametrize("offset", [0.5, 0.0])
def test_points_wrap_on_periodic_axes(offset):
    """At both ends of the axis the value is between the last and the first, the same at both."""
    grid, field = Grid((8,)), random((8,))
    found = measured(PointSensors("u", [[0.0], [1.0], [0.99]]), grid, field, (offset,), (True,))
    ends = 0.5 * (field[-1] + field[0]) if offset else field[0]
    late = 0.58 * field[-1] + 0.42 * field[0] if offset else 0.08 * field[-1] + 0.92 * field[0]
    np.testing.assert_allclose(found, [ends, ends, late], rtol=0, atol=1e-14)


def wave(grid, offset):
    x, y = np.meshgrid(*(grid.coordinates(axis, offset[axis]) for axis in range(2)), indexing="ij")
    return jnp.asarray(np.sin(np.pi * x + 0.3) * np.cos(2 * np.pi / 3 * y - 0.7))


@pytest.mark.parametrize("offset", [(0.5, 0.5), (0.0, 0.5)])
@pytest.mark.slow
def test_every_operator_converges_to_second_order(offset):
    """Points, rays and boxes across a periodic wave, against itself, quadrature and its primitive."""
    for name, right in of_wave(boxes=4).items():
        errors = []
        for n in (32, 128):
            grid = Grid((n, 3 * n // 2), GRID.lower, GRID.upper)
            errors.append(np.abs(measured(OPERATORS[name], grid, wave(grid, offset), offset, WRAPS) - right).max())
        # A quarter of the spacing: a sixteenth of the error. Where a place lies in its cell changes by how much.
        assert errors[1] < errors[0] / 8, (name, errors)
        # |u''| h^2 / 8 of multilinear interpolation per axis is 5e-4 on the finer grid, over lengths of at most 4.
        assert errors[1] < 2e-3, (name, errors)


@pytest.mark.parametrize("offset", [(0.5, 0.5), (0.0, 0.5), (0.5, 0.0)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.slow
def test_slices_are_exact_for_linear_fields_up_to_the_walls(offset, axis):
    other = GRID.coordinates(1 - axis, offset[1 - axis])
    for position in (GRID.lower[axis], 0.31, GRID.upper[axis]):
        found = measured(Slice("u", axis, position), GRID, affine(GRID, offset), offset, WALLS)
        points = np.stack([np.full_like(other, position), other][:: 1 - 2 * axis], axis=1)
        np.testing.assert_allclose(found, affine_at(points), rtol=0, atol=1e-13)


def test_histograms_count_edges_once_and_leave_out_what_is_beyond():
    # Two at the lower edge, one at an inner edge, one at the last edge; three beyond or no numbers.
    values = jnp.asarray([0.0, 0.0, 0.5, 1.0, -0.1, 1.1, np.nan, 0.3])
    found = measured(Histogram("u", 2, 0.0, 1.0), Grid((8,)), values, (0.5,), (True,))
    np.testing.assert_array_equal(found, [3 / 8, 2 / 8])


@pytest.mark.parametrize("offset", [(0.5, 0.5), (0.0, 0.5), (0.5, 0.0)])
@pytest.mark.parametrize("periodic", [WALLS, WRAPS])
def test_box_averages_weigh_cells_by_their_volume_in_the_box(offset, periodic):
    operator = BoxAverage("u", LOWERS, UPPERS)
    ones = measured(operator, GRID, jnp.ones(GRID.shape), offset, periodic)
    np.testing.assert_allclose(ones, 1, rtol=1e-13)
    if offset == (0.5, 0.5):
        field = random(GRID.shape)
        found = measured(operator, GRID, field, offset, periodic)
        x, y = (GRID.lower[a] + GRID.spacing[a] * np.arange(GRID.shape[a] + 1) for a in range(2))
        for value, (a, b), (c, d) in zip(found, LOWERS, UPPERS, strict=True):
            wide = np.clip(np.minimum(c, x[1:]) - np.maximum(a, x[:-1]), 0, None)
            high = np.clip(np.minimum(d, y[1:]) - np.maximum(b, y[:-1]), 0, None)
            assert value == pytest.approx(wide @ np.asarray(field) @ high / ((c - a) * (d - b)), abs=1e-13)
    elif periodic == WRAPS:
        whole = measured(operator, GRID, random(GRID.shape), offset, periodic)[0]
        np.testing.assert_allclose(whole, random(GRID.shape).mean(), rtol=0, atol=1e-14)


def test_a_snapshot_is_the_field():
    field = random(GRID.shape)
    np.testing.assert_array_equal(measured(Snapshot("u"), GRID, field, (0.0, 0.5), WALLS), field)


def shells_of(field, lengths, count):
    """Energies of shells by numpy's FFT."""
    energy = 0.5 * np.abs(np.fft.fftn(field) / field.size) ** 2
    k = [np.fft.fftfreq(n) * n * max(lengths) / side for n, side in zip(field.shape, lengths, strict=True)]
    radius = np.sqrt(sum(v**2 for v in np.meshgrid(*k, indexing="ij")))
    return np.asarray([energy[np.floor(radius + 0.5) == j].sum() for j in range(count)]), energy.sum()


@pytest.mark.parametrize("grid", [Grid((16,)), Grid((15, 12)), GRID, Grid((8, 6, 10))], ids=lambda g: str(g.shape))
def test_spectra_are_those_of_numpy_and_add_up_to_the_energy(grid):
    ndim = grid.ndim
    field = np.asarray(random(grid.shape))
    shells = 2 if ndim == 3 else 5
    found = measured(Spectrum("u", shells), grid, jnp.asarray(field), (0.5,) * ndim, (True,) * ndim)
    expected, energy = shells_of(field, grid.lengths, shells + 1)
    # Normalised transforms of a few hundred numbers of order one.
    np.testing.assert_allclose(found, expected[1:], rtol=0, atol=1e-14)
    np.testing.assert_allclose(energy, 0.5 * np.mean(field**2), rtol=1e-13)
    x = np.meshgrid(*(grid.coordinates(axis, 0.5) / grid.lengths[axis] for axis in range(ndim)), indexing="ij")
    low = 0.7 + np.cos(2 * np.pi * x[0]) - 0.5 * np.sin(2 * np.pi * x[-1] + 1)
    found = measured(Spectrum("u", shells), grid, jnp.asarray(low), (0.5,) * ndim, (True,) * ndim)
    np.testing.assert_allclose(found.sum() + 0.5 * low.mean() ** 2, 0.5 * np.mean(low**2), rtol=1e-13)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.slow
def test_neither_values_nor_derivatives_depend_on_the_decomposition(name):
    operator, offset = OPERATORS[name], (0.5, 0.0)
    periodic = WRAPS if name == "spectrum" else (False, True)

    def measure(domain, field):
        return operator.measure(domain, field, offset, periodic)

    field = smooth_field(GRID, offset, 1)
    meshes = [{"x": 2, "y": 4}] if name == "snapshot" else [{"x": 2, "y": 4}, {"x": 8}]
    check_decompositions(measure, GRID, meshes, (field,), (True,), operator.spec)


def test_spectra_of_one_axis_are_cut_too():
    operator, grid = Spectrum("u", 3), Grid((16,))
    check_decompositions(
        lambda domain, u: operator.measure(domain, u, (0.5,), (True,)),
        grid,
        [{"x": 8}],
        (random((16,)),),
        (True,),
        operator.spec,
    )


@pytest.mark.slow
def test_members_and_space_share_a_mesh():
    """Under vmap inside the distributed function each member reads what it reads alone."""
    sizes = {"ensemble": 2, "x": 2, "y": 2}
    mesh = make_mesh(sizes)
    domain = decompose(GRID, mesh)
    operators = [OPERATORS[name] for name in ("points", "line of sight", "box average", "spectrum")]

    def measure(field):
        return [operator.measure(domain, field, (0.5, 0.5), WRAPS) for operator in operators]

    cut = PartitionSpec("ensemble", *domain.spec())
    run = distribute(jax.vmap(measure), mesh, in_specs=cut, out_specs=PartitionSpec("ensemble"))
    fields = random((4, *GRID.shape))
    found = run(fields)
    for operator, values in zip(operators, found, strict=True):
        alone = [measured(operator, GRID, u, (0.5, 0.5), WRAPS) for u in fields]
        # Sums of a few hundred terms in another order.
        np.testing.assert_allclose(values, alone, rtol=0, atol=1e-12)


def test_a_nan_elsewhere_does_not_reach_a_point():
    field = random(GRID.shape).at[0, 0].set(jnp.nan)
    value, slope = jax.value_and_grad(
        lambda u: PointSensors("u", PLACES[2:4]).measure(Domain(GRID), u, (0.5, 0.5), WALLS).sum()
    )(field)
    assert np.isfinite(value) and np.isfinite(np.asarray(slope)).all()


def test_positions_keep_their_digits_in_single_precision():
    """On an axis of a million cells float32 positions would be wrong by a sixteenth of a cell."""
    grid = Grid((2**20,), (0.0,), (2.0**20,))
    field = jnp.asarray(np.arange(2**20) % 1024, jnp.float32)
    place = 1_000_000.3
    found = measured(PointSensors("u", [[place]]), grid, field, (0.5,), (True,))
    assert found.dtype == np.float32
    # One rounding of a number up to 1024 in float32.
    np.testing.assert_allclose(found, (place - 0.5) % 1024, rtol=0, atol=1.3e-4)
    average = measured(BoxAverage("u", [[place]], [[place + 2]]), grid, field, (0.5,), (True,))
    np.testing.assert_allclose(average, (place + 0.5) % 1024, rtol=0, atol=2.6e-4)


REFUSALS = {
    "outside": (
        lambda: PointSensors("u", [[0.5, 0.0], [0.5, 2.1]]).check(GRID),
        "Points.positions[1]=(0.5, 2.1) of 'u' lies outside of the domain; write positions with 0 <= x <= 2, "
        "-1 <= y <= 2.",
    ),
    "rank": (
        lambda: PointSensors("u", [[0.5]]).check(GRID),
        "Points.positions of 'u' has 1 coordinates per point for a grid of 2 axes; write x, y of each point.",
    ),
    "no rows": (
        lambda: PointSensors("u", [0.5, 0.5]),
        "Points.positions has shape (2,); write one row of coordinates per point, such as [[0.1, 0.2]].",
    ),
    "not finite": (
        lambda: PointSensors("u", [[0.5, 0.5], [0.5, float("nan")]]),
        "Points.positions[1]=(0.5, nan) is not finite; write numbers.",
    ),
    "ray outside": (
        lambda: LineOfSight("u", [[0.0, 0.0]], [[3.0, 0.0]]).check(GRID),
        "LineOfSight.ends[0]=(3, 0) of 'u' lies outside of the domain; write positions with 0 <= x <= 2, -1 <= y <= 2.",
    ),
    "ray of no length": (
        lambda: LineOfSight("u", [[0.0, 0.0]], [[0.0, 0.0]]),
        "LineOfSight.ends[0]=(0, 0) is where the segment starts; write another point.",
    ),
    "unpaired": (
        lambda: LineOfSight("u", [[0.0, 0.0]], [[1.0, 0.0], [0.5, 0.5]]),
        "LineOfSight.starts has shape (1, 2) and LineOfSight.ends (2, 2); write equally many points in both.",
    ),
    "box upside down": (
        lambda: BoxAverage("u", [[0.0, 0.5]], [[1.0, 0.5]]),
        "BoxAverage.uppers[0]=(1, 0.5) must lie above BoxAverage.lowers[0]=(0, 0.5) along every axis; exchange what "
        "is the other way round.",
    ),
    "no shells": (lambda: Spectrum("u", 0), "Spectrum.shells=0: expected at least one; write shells=1 or more."),
    "shells unresolved": (
        lambda: Spectrum("u", 11).check(GRID),
        "Spectrum.shells=11: Grid.shape=(16, 24) resolves 10 complete shells; write at most as many or refine the "
        "grid.",
    ),
    "spectrum between walls": (
        lambda: Spectrum("u", 2).measure(Domain(GRID), jnp.zeros(GRID.shape), (0.5, 0.5), (True, False)),
        "Spectrum of 'u' needs a domain that is periodic along every axis, which y is not; make its sides periodic or "
        "observe with BoxAverage.",
    ),
    "sides of another grid": (
        lambda: PointSensors("u", PLACES).measure(Domain(GRID), jnp.zeros(GRID.shape), (0.5, 0.5), (True,)),
        "periodic=(True,) has 1 entries for a grid of 2 axes; write one True or False per axis.",
    ),
}


test_refusals_say_what_came_and_what_to_write = refusals(REFUSALS)
