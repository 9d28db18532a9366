"""Observation operators on stretched grids: true places, true volumes, order, decomposition, refusals,
and places that change with a parameter."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import check_decompositions, random
from case import smooth_field
from readings import ENDS, LOWERS, PLACES, STARTS, UPPERS, of_wave, wave

from simjax.core.domain import Domain
from simjax.core.mappings import faces_and_centers, lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid, Lines
from simjax.instruments.histogram import Histogram
from simjax.instruments.instrument import View
from simjax.instruments.operators import BoxAverage, LineOfSight, PointSensors, Spectrum
from simjax.instruments.planes import Slice
from simjax.instruments.surfaces import SurfaceIntegral, faces_of_box

LOWER, UPPER = (0.0, -1.0), (2.0, 2.0)
OPERATORS = {
    "points": PointSensors("u", PLACES),
    "line of sight": LineOfSight("u", STARTS, ENDS),
    "box average": BoxAverage("u", LOWERS[:3], UPPERS[:3]),
    "slice": Slice("u", 0, 1.93),
    "histogram": Histogram("u", 4, -1.0, 1.0),
}
WALLS, WRAPS = (False, False), (True, True)


def stretched(cells: int) -> Grid:
    """Along x finest at the upper wall, along y wavy and smooth where it wraps."""
    shape = cells, 3 * cells // 2
    return Grid(
        shape,
        stretch=[
            lines("formula", "s - 0.12*sin(2*pi*s)", shape[0], LOWER[0], UPPER[0]),
            lines("formula", "s + 0.1*sin(2*pi*s)", shape[1], LOWER[1], UPPER[1]),
        ],
    )


GRID = stretched(16)


def measured(operator, grid, field, offset, periodic):
    operator.check(grid)
    return np.asarray(jax.jit(lambda u: operator.measure(Domain(grid), u, offset, periodic))(field))


def places(grid, offset):
    return np.meshgrid(*(grid.coordinates(axis, offset[axis]) for axis in range(2)), indexing="ij")


def linear(x, y):
    return 2 - x + 3 * y


@pytest.mark.parametrize("offset", [(0.5, 0.5), (0.0, 0.5)])
def test_linear_fields_are_read_exactly_up_to_the_walls(offset):
    field = jnp.asarray(linear(*places(GRID, offset)))
    # A few roundings of numbers up to 10, and sums of up to 100 of them along a line.
    found = measured(OPERATORS["points"], GRID, field, offset, WALLS)
    np.testing.assert_allclose(found, linear(*np.transpose(PLACES)), rtol=0, atol=1e-13)
    found = measured(OPERATORS["slice"], GRID, field, offset, WALLS)
    np.testing.assert_allclose(found, linear(1.93, GRID.coordinates(1, offset[1])), rtol=0, atol=1e-13)
    found = measured(OPERATORS["line of sight"], GRID, field, offset, WALLS)
    lengths = np.linalg.norm(np.subtract(ENDS, STARTS), axis=1)
    np.testing.assert_allclose(found, lengths * linear(*(np.add(STARTS, ENDS) / 2).T), rtol=0, atol=1e-12)


@pytest.mark.parametrize("offset", [(0.5, 0.5), (0.0, 0.5)])
@pytest.mark.slow
def test_every_operator_converges_to_second_order(offset):
    for name, right in of_wave(boxes=3).items():
        errors = []
        for n in (32, 128):
            grid = stretched(n)
            field = jnp.asarray(wave(*places(grid, offset)))
            errors.append(np.abs(measured(OPERATORS[name], grid, field, offset, WRAPS) - right).max())
        # A quarter of the spacing: a sixteenth of the error. Where a place lies in its cell changes by how much.
        assert errors[1] < errors[0] / 8, (name, errors)


@pytest.mark.parametrize("periodic", [WALLS, WRAPS])
def test_boxes_and_histograms_weigh_by_volume(periodic):
    for offset in ((0.5, 0.5), (0.0, 0.5), (0.5, 0.0)):
        ones = measured(OPERATORS["box average"], GRID, jnp.ones(GRID.shape), offset, periodic)
        np.testing.assert_allclose(ones, 1, rtol=1e-13)  # sums of 400 shares
    field = random(GRID.shape)
    x, y = (np.asarray(line.faces) for line in GRID.stretch)
    found = measured(OPERATORS["box average"], GRID, field, (0.5, 0.5), periodic)
    for value, (a, b), (c, d) in zip(found, LOWERS[:3], UPPERS[:3], strict=True):
        wide = np.clip(np.minimum(c, x[1:]) - np.maximum(a, x[:-1]), 0, None)
        high = np.clip(np.minimum(d, y[1:]) - np.maximum(b, y[:-1]), 0, None)
        assert value == pytest.approx(wide @ np.asarray(field) @ high / ((c - a) * (d - b)), abs=1e-13)
    volumes = np.outer(np.diff(x), np.diff(y)) / 6
    expected = np.histogram(np.asarray(field), 4, (-1.0, 1.0), weights=volumes)[0]
    found = measured(OPERATORS["histogram"], GRID, field, (0.5, 0.5), periodic)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("offset", [(0.5, 0.5), (0.0, 0.5), (0.5, 0.0)])
@pytest.mark.slow
def test_a_stretching_that_is_none_reads_as_a_uniform_grid(offset):
    faces = [np.linspace(a, b, n + 1) for a, b, n in zip(LOWER, UPPER, (8, 12), strict=True)]
    same = Grid((8, 12), stretch=[Lines(x) for x in faces])
    plain, field = Grid((8, 12), LOWER, UPPER), random((8, 12))
    for periodic in (WALLS, (True, False)):
        for name in ("points", "box average", "slice", "histogram"):  # of lines the samples lie elsewhere
            found, expected = (measured(OPERATORS[name], grid, field, offset, periodic) for grid in (same, plain))
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)  # rounding of the places


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.slow
def test_neither_values_nor_derivatives_depend_on_the_decomposition(name):
    operator, offset = OPERATORS[name], (0.5, 0.0)
    field = smooth_field(GRID, offset, 1)
    check_decompositions(
        lambda domain, u: operator.measure(domain, u, offset, (False, True)),
        GRID,
        [{"x": 2, "y": 4}],
        (field,),
        (True,),
        operator.spec,
    )


def test_a_spectrum_is_refused():
    with pytest.raises(ConfigurationError, match="cells of one width along every axis, .* stretched along x, y"):
        Spectrum("u", 2).check(GRID)


def moved(domain, amount):
    """The domain, with the cells of `stretched` where the sine of the first axis has this amplitude."""
    shape, pi = domain.grid.shape, np.pi
    along_x = faces_and_centers(lambda s: s - amount * jnp.sin(2 * pi * s), shape[0], LOWER[0], UPPER[0], jnp)
    along_y = faces_and_centers(lambda s: s + 0.1 * jnp.sin(2 * pi * s), shape[1], LOWER[1], UPPER[1], jnp)
    return dataclasses.replace(domain, lines=(along_x, along_y))


FLUX = SurfaceIntegral("flux", ("u", "u"), faces_of_box((0.2, -0.6), (1.7, 1.5)))
MOVING = OPERATORS | {"flux": FLUX}


def reading(operator, domain, u, offset, periodic):
    return operator.read(View(domain, periodic, {"u": u}, dict, {"u": offset}))


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.slow
def test_places_that_change_with_a_parameter_are_read_as_given_ones_and_have_derivatives(name):
    operator, offset, periodic = MOVING[name], (0.5, 0.0), (False, True)
    field = smooth_field(GRID, offset, 1)

    @jax.jit
    def seen(amount, u=field):
        return reading(operator, moved(Domain(GRID), amount), u, offset, periodic)

    given = jax.jit(lambda u: reading(operator, Domain(GRID), u, offset, periodic))(field)
    # Places of the same formula, rounded by numpy and by XLA; the sums are of some hundred numbers of order one.
    np.testing.assert_allclose(seen(0.12), given, rtol=0, atol=1e-12)
    step = 1e-6
    difference = (seen(0.12 + step) - seen(0.12 - step)) / (2 * step)
    assert np.abs(difference).max() > 0.01
    # Roundings of 1e-15 over the step; its square times third derivatives of up to (2 pi)^3.
    np.testing.assert_allclose(jax.jacfwd(seen)(0.12), difference, rtol=0, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["points", "line of sight", "slice", "flux"])
def test_derivatives_by_such_a_parameter_do_not_depend_on_the_decomposition(name):
    operator, offset, periodic = MOVING[name], (0.5, 0.0), (False, True)
    check_decompositions(
        lambda domain, u, amount: reading(operator, moved(domain, amount), u, offset, periodic),
        GRID,
        [{"x": 2, "y": 4}],
        (smooth_field(GRID, offset, 1), jnp.asarray(0.12)),
        (True, False),
        operator.spec,
    )


def test_a_reading_is_continuous_where_a_value_passes_its_place():
    # The fifth centre along x lies at the sensor where the amplitude is `passing`.
    share = 4.5 / 16
    passing = (share - 0.25) / np.sin(2 * np.pi * share)
    sensor = PointSensors("u", [[2 * 0.25, 0.3]])
    field = random(GRID.shape)

    @jax.jit
    def seen(amount):
        return reading(sensor, moved(Domain(GRID), amount), field, (0.5, 0.5), WALLS)[0]

    near, slope = 1e-9, jax.jit(jax.grad(seen))
    slopes = [float(slope(passing + sign * 1e-5)) for sign in (-1, 1)]
    # The reading goes on, to its slope times the distance and rounding; the slope is another one.
    assert float(seen(passing + near) - seen(passing - near)) == pytest.approx(sum(slopes) * near, rel=1e-3, abs=1e-14)
    assert abs(slopes[1] - slopes[0]) > 0.1 * max(map(abs, slopes))
