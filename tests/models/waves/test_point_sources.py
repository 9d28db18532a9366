"""Sources and receivers off the grid: interpolation, adjointness, images at walls, derivatives, decomposition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from jax.sharding import PartitionSpec

from simjax.core.boundary import SlipWall, center_layout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.waves.pml import FreeSurface
from simjax.models.waves.point_sources import SampledSignal, kernel, locate, receive, spread
from simjax.parallel import decompose, distribute, make_mesh

GRID = Grid((16, 24), (0.0, -1.0), (2.0, 2.0))
PLACES = jnp.asarray([[0.03, 1.95], [1.99, -0.97], [1.0, 0.4], [0.71, -0.3]])


def layout(*sides):
    return center_layout([[side.scalar_boundary() for side in pair] for pair in sides])


WALLED = layout((SlipWall(), FreeSurface()), (FreeSurface(), SlipWall()))
WRAPPED = layout(PERIODIC, PERIODIC)


@functools.partial(jax.jit, static_argnums=0)
def interpolated(kind, field, places):
    domain = Domain(GRID)
    return receive(domain, locate(domain, kind, places), field)


def wave(lengths, x, y, even):
    """A wave that goes on periodically, or as its even or odd image beyond each side of the box."""
    if not even:
        return jnp.sin(2 * jnp.pi * x / lengths[0] + 0.3) * jnp.cos(4 * jnp.pi * y / lengths[1] - 0.7)
    return jnp.cos(1.5 * jnp.pi * x / lengths[0]) * jnp.sin(2.5 * jnp.pi * (y + 1) / lengths[1])


@pytest.mark.parametrize(("kind", "even"), [(WRAPPED, False), (WALLED, True)])
def test_waves_are_interpolated_up_to_the_sides(kind, even):
    domain = Domain(GRID)
    field = wave(GRID.lengths, *domain.coordinates((0.5, 0.5)), even)
    found = interpolated(kind, field, PLACES)
    exact = wave(GRID.lengths, PLACES[:, 0], PLACES[:, 1], even)
    # The kernel's error is below 1e-3 for waves of four cells; these have ten and more.
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-3)


def test_a_point_on_the_grid_is_its_cell():
    field = jnp.asarray(np.random.default_rng(0).normal(size=GRID.shape))
    x = [GRID.coordinates(axis, 0.5) for axis in range(2)]
    places = jnp.asarray([[x[0][5], x[1][7]], [x[0][0], x[1][23]]])
    # sinc vanishes at whole numbers to rounding.
    expected = [field[5, 7], field[0, 23]]
    np.testing.assert_allclose(interpolated(WRAPPED, field, places), expected, rtol=0, atol=1e-13)


def test_the_kernel_hardly_changes_the_mean():
    """Shifted kernels sum to one within the error of the window."""
    cells = jnp.arange(-8.0, 9.0)
    sums = [float(kernel(cells - shift).sum()) for shift in np.linspace(0, 1, 11)]
    np.testing.assert_allclose(sums, 1, rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", [WRAPPED, WALLED])
@pytest.mark.slow
def test_spreading_is_the_adjoint_of_receiving(kind):
    domain, rng = Domain(GRID), np.random.default_rng(1)
    points = locate(domain, kind, PLACES)
    field, amounts = jnp.asarray(rng.normal(size=GRID.shape)), jnp.asarray(rng.normal(size=4))
    left = jnp.vdot(receive(domain, points, field), amounts)
    right = jnp.vdot(field, spread(points, amounts, jnp.zeros(GRID.shape)))
    np.testing.assert_allclose(left, right, rtol=1e-13)


@pytest.mark.parametrize("kind", [WRAPPED, WALLED])
@pytest.mark.slow
def test_derivative_with_respect_to_the_position(kind):
    field = jnp.asarray(np.random.default_rng(2).normal(size=GRID.shape))

    def value(places):
        return jnp.sum(interpolated(kind, field, places) ** 2)

    slope = jax.jit(jax.grad(value))(PLACES)
    step = 1e-5
    for index in np.ndindex(*PLACES.shape):
        ahead, behind = (float(value(PLACES.at[index].add(s))) for s in (step, -step))
        # Central differences: truncation step^2 / h^3 of a rough field, rounding 1e-16 / step.
        np.testing.assert_allclose(slope[index], (ahead - behind) / (2 * step), rtol=0, atol=1e-5 * abs(slope).max())


@pytest.mark.parametrize("sizes", [{"x": 2, "y": 4}, {"x": 8}])
@pytest.mark.parametrize("kind", [WRAPPED, WALLED])
@pytest.mark.slow
def test_decomposition_changes_nothing(sizes, kind):
    mesh = make_mesh(sizes)

    def run(domain):
        def both(field, amounts, places):
            points = locate(domain, kind, places)
            return receive(domain, points, field), spread(points, amounts, field)

        return both

    domain = decompose(GRID, mesh)
    cut, whole = domain.spec(), PartitionSpec()
    field = jnp.asarray(np.random.default_rng(3).normal(size=GRID.shape))
    amounts = jnp.asarray([1.0, -2.0, 0.5, 3.0])
    found = distribute(run(domain), mesh, in_specs=(cut, whole, whole), out_specs=(whole, cut))(field, amounts, PLACES)
    expected = run(Domain(GRID))(field, amounts, PLACES)
    for a, b in zip(found, expected, strict=True):
        # Sums of 64 terms in another order.
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


def test_a_sampled_signal_is_linear_between_samples_and_zero_outside():
    signal = SampledSignal(jnp.asarray([0.0, 1.0, 3.0]), jnp.asarray([2.0, 4.0, 0.0]))
    times = [-0.5, 0.0, 0.25, 1.0, 2.0, 3.5]
    np.testing.assert_allclose([float(signal(t)) for t in times], [0.0, 2.0, 2.5, 4.0, 2.0, 0.0], rtol=1e-15)
    slope = jax.grad(lambda values: SampledSignal(signal.times, values)(2.5))(signal.values)
    np.testing.assert_allclose(slope, [0.0, 0.25, 0.75], rtol=1e-15)


def test_wrong_shapes_and_too_small_grids_are_refused():
    with pytest.raises(ConfigurationError, match=r"shape \(points, 2\)"):
        locate(Domain(GRID), WRAPPED, jnp.ones((3, 1)))
    small = Domain(Grid((4, 24)))
    with pytest.raises(ConfigurationError, match="more than 4 cells along x"):
        locate(small, WRAPPED, PLACES)
