"""Bodies in a gas on grids whose cells differ in width: walls of second order, what passes them, what is refused."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from gas_rings import fluid, orders_around_a_ring
from gas_runs import IDEAL, MUSCL, PERIODIC, WENO, centers, start

from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.instruments.body_surface import nearest_points
from simjax.models.flow.bodies.solids import Solid
from simjax.models.gas.boundaries import GasInflow, GasOutflow
from simjax.models.gas.compressible import Compressible

MILD = "s + 0.02*sin(2*pi*s)"
"""Widths from 0.87 to 1.13 of the mean, smooth where it wraps."""


def gas(shape, sides, scheme, lower, upper, text=MILD, **options):
    stretch = [lines("formula", text, n, a, b) for n, a, b in zip(shape, lower, upper, strict=True)]
    return Compressible(Domain(Grid(shape, stretch=stretch)), sides, scheme, **options)


@pytest.mark.parametrize("scheme", [pytest.param(WENO, marks=pytest.mark.slow), MUSCL], ids=["weno", "muscl"])
def test_a_stream_along_an_inclined_wall_stays_one(scheme):
    sine, cosine = math.sin(0.2), math.cos(0.2)
    wall = Solid(lambda t, x, y: cosine * y - sine * (x + 1.2))
    inflow = GasInflow(density=1.4, pressure=1.0, velocity=(cosine, sine))
    sides = [(inflow, GasOutflow()), (GasOutflow(), GasOutflow())]
    model = gas((24, 24), sides, scheme, (0.0, 0.0), (1.0, 1.0), solid=wall)
    inside = fluid(model)
    state = start(model, jnp.where(inside, 1.4, 0.5), [jnp.where(inside, u, 0.1) for u in (cosine, sine)], 1.0)
    slope = jax.jit(lambda state: model.rhs(0.0, state, IDEAL), compiler_options=QUICK)(state)
    # Images of a uniform state are it: rounding of pressures over spacings. Beside a side cells are mirrored in it, so
    # that their widths jump in their slope, and the normal of a wall that meets the side is off by 3e-6. The side below
    # is farther off than ghost cells reach.
    assert all(float(jnp.abs(one[1:-1]).max()) < 1e-11 for one in jax.tree.leaves(slope))
    assert all(float(jnp.abs(one).max()) < 1e-3 for one in jax.tree.leaves(slope))


def test_images_of_a_field_of_second_degree_are_exact():
    """Where they lie and from which cells, along axes of other widths."""
    ring = Solid(lambda t, x, y: jnp.hypot(x, y) - 0.31)
    model = gas((40, 36), [PERIODIC] * 2, MUSCL, (-1.0, -0.9), (1.0, 0.9), solid=ring)
    ghosts = model.bodies.cells(model.domain, model.plain, 0.0, jnp.zeros(()).dtype)
    x, y = (jnp.broadcast_to(one, model.domain.grid.shape) for one in centers(model))
    field = 1 + 0.3 * x - 0.2 * y + 0.5 * x * y + 0.4 * x**2 - 0.7 * y**2
    padded = model.domain.pad(field, model.plain, ghosts.halo)
    found, used = ghosts.at_images(padded), np.asarray(ghosts.index) < field.size
    apart = ghosts.depth + ghosts.image
    a, b = (ghosts.of_cells(u) + n * apart for u, n in zip((x, y), ghosts.normal, strict=True))
    exact = 1 + 0.3 * a - 0.2 * b + 0.5 * a * b + 0.4 * a**2 - 0.7 * b**2
    # Few cells of the gas decide on some curvatures, which a ridge then draws to zero. Cells of one width would be
    # wrong by 7e-4, linear interpolation by 4e-4.
    assert used.any()
    np.testing.assert_allclose(np.asarray(found)[used], np.asarray(exact)[used], atol=1e-4)
    # Of a circle: the normal points away from its centre, and the depth is the way to it.
    r = np.hypot(np.asarray(a), np.asarray(b))[used]
    np.testing.assert_allclose(r, 0.31 + np.asarray(ghosts.image)[used], atol=2e-3)


def test_a_box_gains_what_bodies_give():
    ball = Solid(lambda t, x, y: jnp.hypot(x - 0.48, y - 0.48) - 0.27)
    model = gas((24, 28), [PERIODIC] * 2, MUSCL, (0.0, 0.0), (1.0, 1.3), solid=ball)
    bump = 0.2 * sum(jnp.sin(2 * jnp.pi * x / length) for x, length in zip(centers(model), (1.0, 1.3), strict=True))
    state = start(model, 1 + bump / 2, [0.5 + bump] * 2, 1 + bump)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def both(state):
        return model.rhs(0.0, state, IDEAL), model.diagnostics(0.0, state, IDEAL)

    slope, found = both(state)
    cell = np.outer(*(model.domain.grid.widths(axis) for axis in (0, 1)))
    gained = {f"force_{axis}": -m for axis, m in zip("xy", slope.momentum, strict=True)}
    gained |= {"mass_from_bodies": slope.density, "energy_from_bodies": slope.energy}
    for name, rate in gained.items():
        # Sums of a thousand rates, which are of order 100.
        np.testing.assert_allclose(float(found[name]), float(jnp.sum(rate * cell)), atol=1e-11)
    assert abs(float(found["force_x"])) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [WENO, MUSCL], ids=["weno", "muscl"])
def test_a_vortex_between_curved_walls_is_of_second_order(scheme):
    mean, largest = orders_around_a_ring(gas, scheme)
    assert mean > 1.8 and largest > 1.5


def test_cells_that_are_long_and_narrow_beside_a_surface_are_refused():
    ball = Solid(lambda t, x, y: jnp.hypot(x - 0.5, y - 0.5) - 0.2)
    with pytest.raises(ConfigurationError, match="at most 1.5 times as long as wide"):
        gas((24, 48), [PERIODIC] * 2, MUSCL, (0.0, 0.0), (1.0, 1.0), solid=ball)


@pytest.mark.slow
def test_a_surface_that_is_thinner_than_the_mean_width_of_cells_is_read():
    core = "0.05*(2*s - 1) + 0.95*(2*s - 1)**7"
    ball = Solid(lambda t, x, y: jnp.hypot(x, y) - 0.15)
    model = gas((48, 48), [PERIODIC] * 2, MUSCL, (-10.0, -10.0), (10.0, 10.0), core, solid=ball)
    assert model.domain.grid.widths(0).min() < 0.03 and model.domain.grid.mean_spacing[0] > 0.4
    points = nearest_points([[0.18 * math.cos(a), 0.18 * math.sin(a)] for a in (0.3, 1.9, 4.0)])
    read = model.along_bodies(0.0, start(model, 1.4, (0.0, 0.0), 0.9), IDEAL, points)
    found = np.hypot(np.asarray(read["position_x"]), np.asarray(read["position_y"]))
    # Distances are linear between cells: the square of a cell over eight radii.
    np.testing.assert_allclose(found, 0.15, atol=1e-3)
    # Any weights of a uniform pressure give it, to rounding; where the surface is passed over it is no number.
    np.testing.assert_allclose(np.asarray(read["pressure"]), 0.9, rtol=1e-12)
