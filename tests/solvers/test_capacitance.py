"""The direct solve around bodies: exact with its sources, whatever the sides are, and an approximation without them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.core.boundary import Dirichlet, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.models.flow.bodies.solids import Solid
from simjax.solvers import poisson
from simjax.solvers.capacitance import unobstructed
from simjax.solvers.elliptic import elliptic
from simjax.solvers.multigrid import solve_elliptic

WRAPPED, STILL, OPEN = (Periodic(), Periodic()), (Neumann(), Neumann()), (Dirichlet(0.0), Dirichlet(0.0))
OUTLET, INLET = (Neumann(), Dirichlet(0.0)), (Dirichlet(0.0), Neumann())
TOLERANCE = 1e-12


def around(inside, sides, partly=0.6):
    """The operator whose faces are closed where a neighbour is inside of a body, and partly open one cell off it."""
    shape = inside.shape
    domain, layout = Domain(Grid(shape, upper=tuple(1.0 + 0.5 * k for k in range(len(shape))))), center_layout(sides)
    faces = []
    for axis, pair in enumerate(sides):
        ends = [(int(k == axis),) * 2 for k in range(len(shape))]
        wide = np.pad(inside, ends, mode="wrap" if pair is WRAPPED else "edge")
        lower, upper = (np.take(wide, range(k, shape[axis] + 1 + k), axis) for k in (0, 1))
        other = (axis + 1) % len(shape)
        beside = np.roll(lower, 1, other) | np.roll(upper, -1, other)
        faces.append(jnp.asarray(np.where(lower | upper, 0.0, np.where(beside, partly, 1.0))))
    return elliptic(domain, layout, faces), layout


def ball(shape, radius=0.2):
    x = np.meshgrid(*((np.arange(n) + 0.5) / n - 0.47 for n in shape), indexing="ij")
    return sum(v * v for v in x) < radius**2


def solved(operator, layout, capacity, shift=0.0):
    """The solution for noise without a mean, the iterations, and the residual formed anew, over the right side."""
    connected = np.asarray(operator.diagonal(0.0) > 0)
    right = np.where(connected, np.random.default_rng(0).standard_normal(connected.shape), 0.0)
    if operator.closed:
        right = np.where(connected, right - right.sum() / connected.sum(), 0.0)
    right = jnp.asarray(right)
    inverse = jax.jit(lambda: unobstructed(operator, layout, capacity))()
    found = jax.jit(lambda b: solve_elliptic(operator, inverse, b, shift, tolerance=TOLERANCE, limit=100))(right)
    left = jnp.linalg.norm(operator(found.solution, shift) - right) / jnp.linalg.norm(right)
    return inverse, int(found.iterations), float(left)


@pytest.mark.parametrize(
    "sides", [(WRAPPED, WRAPPED), (STILL, OPEN), (OUTLET, WRAPPED), (WRAPPED, INLET), (STILL, STILL)], ids=str
)
@pytest.mark.slow
def test_one_iteration_with_sources(sides):
    operator, layout = around(ball((12, 14)), sides)
    _, iterations, residual = solved(operator, layout, 64)
    # Rounding of a direct solve: 2e-16 times the ratio of the largest and the least eigenvalue, below 1e3.
    assert iterations == 1 and residual < TOLERANCE


@pytest.mark.slow
def test_a_shift_that_holds_constants_does_not_hold_back_the_solve():
    """A solution of a closed box with a mean would leave that times the shift, which no constant source takes away."""
    _, iterations, residual = solved(*around(ball((24, 20)), (STILL, STILL)), 128, 1e-6)
    # The inverse knows nothing of the shift, 1e-7 of the least eigenvalue: seven decades in an iteration.
    assert iterations <= 3 and residual < TOLERANCE


@pytest.mark.slow
def test_iterations_without_sources_do_not_grow_with_the_grid():
    found = [solved(*around(ball(shape), (WRAPPED, WRAPPED)), 0) for shape in ((16, 16), (64, 64))]
    # The energy outside of a disc over that of its continuation lies between 1/2 and 1: 12 decades take 16 steps at
    # the rate of 0.17; partly open faces, which reach out one cell, add a few.
    assert all(iterations <= 24 and residual < 1e-11 for _, iterations, residual in found)
    assert abs(found[0][1] - found[1][1]) <= 4


@pytest.mark.parametrize("why", ["several regions", "a list that is too short"])
@pytest.mark.slow
def test_without_an_inverse_of_its_matrix_it_is_the_plain_solve(why):
    inside = ball((16, 16))
    if why == "several regions":  # a ring with fluid in it, which is a region of its own
        inside = ball((16, 16), 0.35) & ~inside
    operator, layout = around(inside, (WRAPPED, WRAPPED))
    capacity = 8 if why != "several regions" else 128
    inverse = jax.jit(lambda: unobstructed(operator, layout, capacity))()
    assert not np.any(inverse.sources.matrix)
    plain = jax.jit(lambda: unobstructed(operator, layout))()
    right = jnp.asarray(np.random.default_rng(1).standard_normal((16, 16)))
    expected = plain.cycle(right, 0.0, ())
    # The same transforms, once more.
    np.testing.assert_allclose(inverse.cycle(right, 0.0, ()), expected, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_the_list_is_as_long_as_the_cells_that_a_surface_alters():
    """Counted beforehand from the distance alone, around a body that a side cuts too."""
    solid = Solid(lambda t, x, y: jnp.minimum(jnp.hypot(x - 0.41, y - 0.52) - 0.23, jnp.hypot(x - 0.7, y) - 0.2))
    sides = [(sj.PeriodicSide(), sj.PeriodicSide()), (sj.NoSlipWall(), sj.NoSlipWall())]
    model = sj.Incompressible(Domain(Grid((40, 48))), sides, solid=solid)
    params = model.Params(jnp.asarray(0.01), jnp.asarray(0.0))
    immersion, _ = jax.jit(lambda: model.constant_parts(params))()
    sources = immersion.inverse.sources
    assert 0.9 * model.around.capacity <= int(jnp.sum(sources.there)) <= model.around.capacity
    assert np.any(sources.matrix)


@pytest.mark.parametrize(
    "sides",
    [
        (WRAPPED, WRAPPED),
        (STILL, WRAPPED),
        pytest.param((WRAPPED, OPEN, WRAPPED), marks=pytest.mark.slow),
        (OUTLET, STILL),
    ],
)
def test_a_part_of_the_solve_is_found_by_products(sides, monkeypatch):
    shape, start, stop = (12, 15, 9)[: len(sides)], (3, 0, 2)[: len(sides)], (7, 15, 5)[: len(sides)]
    domain, layout = Domain(Grid(shape)), center_layout(sides)
    right = jnp.asarray(np.random.default_rng(2).standard_normal(shape))
    expected = poisson.spectral_inverse(domain, layout, right)[tuple(map(slice, start, stop))]
    for products in (False, True):
        monkeypatch.setattr(poisson, "transforms_in_part_by_products", lambda products=products: products)
        found = poisson.spectral_inverse_within(domain, layout, right, start, stop)
        # Sums over 15 waves along an axis.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * float(jnp.max(jnp.abs(expected))))


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.slow
def test_sources_are_found_in_a_window_as_in_the_whole_grid(products, monkeypatch):
    monkeypatch.setattr(poisson, "transforms_in_part_by_products", lambda: products)
    operator, layout = around(ball((24, 20)), (WRAPPED, STILL))
    right = jnp.asarray(np.random.default_rng(3).standard_normal((24, 20)))
    found = [
        jax.jit(lambda within=within: unobstructed(operator, layout, 96, True, within).cycle(right, 0.0, ()))()
        for within in (None, ((3, 3), (21, 17)))
    ]
    # Two solves of rounding.
    np.testing.assert_allclose(*found, rtol=0, atol=1e-13 * float(jnp.max(jnp.abs(found[0]))))
