"""What a flow is along the surface of bodies: order, decompositions, derivatives, and the force that it adds up to."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import check_decompositions, random
from case import PERIODIC, QUICK
from jax.sharding import PartitionSpec

import simjax as sj
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.bodies.solid_reaction import still
from simjax.models.flow.bodies.solid_scalars import SolidSurface
from simjax.models.flow.bodies.solids import Solid
from simjax.models.flow.incompressible import Incompressible, Params, State
from simjax.models.flow.passive_scalar import Params as ScalarParams
from simjax.models.flow.passive_scalar import PassiveScalar
from simjax.models.flow.passive_scalar import State as ScalarState

INNER, OUTER, MIDDLE = 0.2, 0.43, (0.513, 0.488)
SLOPE = INNER**2 / (INNER**2 - OUTER**2)
"""Of the flow between a cylinder that turns with one and one at rest: u = SLOPE (r - OUTER^2 / r)."""
PARAMS = Params(jnp.asarray(0.1), jnp.asarray(0.0))
RAYS = sj.rays_around(MIDDLE, 24)


def radius(x, y):
    return jnp.sqrt((x - MIDDLE[0]) ** 2 + (y - MIDDLE[1]) ** 2)


def annulus(t, x, y):
    return jnp.minimum(radius(x, y) - INNER, OUTER - radius(x, y))


def turning(t, x, y):
    return radius(x, y) < 0.5 * (INNER + OUTER)


TURNS = (
    lambda t, x, y: jnp.where(turning(t, x, y), MIDDLE[1] - y, 0.0),
    lambda t, x, y: jnp.where(turning(t, x, y), x - MIDDLE[0], 0.0),
)


def grid_of(cells, stretched):
    along_x = lines("formula", "s + 0.05*sin(2*pi*s)", cells, 0.0, 1.0)
    return Grid((cells, cells), stretch=(along_x, None) if stretched else ())


def at_rest(pressure):
    return dataclasses.replace(still(Domain(Grid(pressure.shape)), pressure), pressure=pressure)


def exact_errors(cells, stretched):
    """The largest errors of place, pressure, friction and flux, of fields that are exact in the fluid, and 9 in bodies.

    The pressure is the integral of u^2 / r, and log(r) is conducted.
    """
    domain = Domain(grid_of(cells, stretched))
    surface = SolidSurface(
        Solid(annulus, TURNS), value=lambda t, x, y: jnp.log(jnp.where(turning(t, x, y), INNER, OUTER))
    )
    model = PassiveScalar(domain, [PERIODIC, PERIODIC], surface=surface)

    def exact(of, offset):
        x, y = domain.coordinates(offset)
        return jnp.where(annulus(0.0, x, y) > 0, of(x - MIDDLE[0], y - MIDDLE[1], radius(x, y)), 9.0)

    def pressure(r):
        return SLOPE**2 * (r**2 / 2 - 2 * OUTER**2 * jnp.log(r) - OUTER**4 / (2 * r**2))

    u = exact(lambda x, y, r: -y * SLOPE * (1 - OUTER**2 / r**2), (0.0, 0.5))
    v = exact(lambda x, y, r: x * SLOPE * (1 - OUTER**2 / r**2), (0.5, 0.0))
    p, c = exact(lambda x, y, r: pressure(r), (0.5, 0.5)), exact(lambda x, y, r: jnp.log(r), (0.5, 0.5))
    state = ScalarState((u, v), c, reaction=at_rest(p))
    params = ScalarParams(jnp.asarray(0.1), jnp.asarray(0.0), jnp.asarray(1.0))
    angles = 2 * np.pi * np.arange(24) / 24
    ways = np.stack([np.cos(angles), np.sin(angles)], 1)
    outside = sj.nearest_points(np.asarray(MIDDLE) + 0.4 * ways)
    found = jax.jit(
        lambda: [model.along_bodies(0.0, state, params, points) for points in (RAYS, outside)], compiler_options=QUICK
    )()
    errors = []
    for one, r, sign in zip(found, (INNER, OUTER), (1, -1), strict=True):
        friction = ways[:, 0] * one["shear_stress_y"] - ways[:, 1] * one["shear_stress_x"]
        errors.append(
            [
                np.hypot(one["position_x"] - MIDDLE[0], one["position_y"] - MIDDLE[1]) / r - 1,
                np.hypot(one["normal_x"] - sign * ways[:, 0], one["normal_y"] - sign * ways[:, 1]),
                (one["pressure"] - pressure(r)) / (pressure(OUTER) - pressure(INNER)),
                friction / (sign * 0.1 * SLOPE * 2 * OUTER**2 / r**2) - 1,
                one["concentration"] - np.log(r),
                one["concentration_flux"] * r / -sign - 1,
            ]
        )
    return np.abs(errors).max((0, 2))


@pytest.mark.slow
def test_what_is_read_of_exact_fields_is_of_second_order():
    coarse, fine = exact_errors(24, False), exact_errors(48, False)
    assert (np.log2(coarse / fine)[[0, 1, 2, 3, 5]] > 1.8).all()
    # 9.6 cells over the radius: h^2 / r^2 = 0.011 times numbers of order one, and three of the pressure's quadratic.
    assert (fine < [2e-3, 3e-3, 0.04, 0.012, 1e-12, 0.01]).all()


@pytest.mark.slow
def test_cells_of_other_widths_change_errors_little():
    # Cells are wider by 1.3 at most: 1.3^2 = 1.7 times the errors of even ones.
    assert (exact_errors(48, True) < [3e-3, 5e-3, 0.08, 0.02, 1e-12, 0.02]).all()


def model_of(domain, distance):
    return Incompressible(domain, [PERIODIC, PERIODIC], solid=Solid(distance, None, beside=0))


@pytest.mark.parametrize("stretched", [False, True])
@pytest.mark.slow
def test_neither_values_nor_derivatives_depend_on_the_decomposition(stretched):
    grid = grid_of(16, stretched)
    x, y = Domain(grid).coordinates((0.5, 0.5))
    places = sj.nearest_points([[0.2, 0.2], [0.5, 0.4], [0.98, 0.02]])  # the last one in another block than its body

    def read(domain, u, v, p, distance):
        state = State((u, v), reaction=at_rest(p))
        found = model_of(domain, distance).along_bodies(0.0, state, PARAMS, places)
        return jnp.stack([found[name] for name in sorted(found)])

    fields = (*random((3, 16, 16)), jnp.asarray(radius(x, y) - INNER))
    check_decompositions(read, grid, [{"x": 2, "y": 4}], fields, (True,) * 4, lambda domain: PartitionSpec())


@pytest.mark.slow
def test_derivatives_with_respect_to_the_shape_are_those_of_differences():
    domain = Domain(Grid((16, 16)))
    u, v, p = random((3, 16, 16))
    places = sj.nearest_points([[0.3, 0.61], [0.52, 0.45]])

    def read(shape):
        x, y = domain.coordinates((0.5, 0.5))
        distance = jnp.sqrt((x - shape[0]) ** 2 + (y - MIDDLE[1]) ** 2) - shape[1]
        state = State((u, v), reaction=at_rest(p))
        found = model_of(domain, distance).along_bodies(0.0, state, PARAMS, places)
        return jnp.concatenate([found[name] for name in sorted(found)])

    shape, step = jnp.asarray([MIDDLE[0], INNER]), 1e-6
    slopes = jax.jit(jax.jacrev(read), compiler_options=QUICK)(shape)
    values = jax.jit(read, compiler_options=QUICK)
    for k, change in enumerate(step * np.eye(2)):
        measured = (values(shape + change) - values(shape - change)) / (2 * step)
        # Differences: 1e-12 of third derivatives in cells of 1/16, and 1e-15 / 1e-6 of rounding.
        np.testing.assert_allclose(slopes[:, k], measured, rtol=1e-5, atol=1e-6 * np.abs(slopes).max())


def forces_on_an_array(cells):
    """The force that drives the fluid through an array of cylinders, and what adds up along the surface."""

    def push(t, x, params):
        return jnp.ones(())

    solid = Solid(lambda t, x, y: radius(x, y) - INNER)
    model = Incompressible(Domain(Grid((cells, cells))), [PERIODIC, PERIODIC], (push, None), solid=solid)
    dt, scheme, params = jnp.asarray(0.2 / cells**2), INTEGRATORS["euler"], Params(jnp.asarray(1.0), jnp.asarray(0.0))
    count = 72
    rays = sj.rays_around(MIDDLE, count)

    def end():
        parts = scheme.prepare(model, params, dt)
        start = model.state_from({"velocity": (jnp.zeros((cells, cells)),) * 2}, params)
        state = jax.lax.fori_loop(0, cells**2, lambda k, s: scheme.step(model, k * dt, dt, s, params, parts), start)
        return state.reaction.force[0], model.along_bodies(0.0, state, params, rays)

    force, found = jax.jit(end)()
    each = found["shear_stress_x"] - found["pressure"] * found["normal_x"]
    return float(force), float(jnp.sum(each)) * 2 * np.pi * INNER / count


@pytest.mark.slow
def test_pressure_and_friction_add_up_to_the_force_on_the_body():
    errors = []
    for cells in (16, 32):
        force, found = forces_on_an_array(cells)
        errors.append(abs(found / force - 1))
    # 3.2 and 6.4 cells over the radius: h^2 / r^2 = 0.1 and 0.024.
    assert errors[0] < 0.1 and errors[1] < 0.024 and errors[1] < 0.6 * errors[0]


@pytest.mark.slow
def test_a_point_in_space_is_that_nearest_to_its_place():
    domain = Domain(Grid((12, 12, 12)))
    middle, sides = np.array([0.5, 0.47, 0.52]), [PERIODIC] * 3
    places = middle + np.array([[0.3, 0.0, 0.0], [0.1, -0.2, 0.15]])
    ball = Solid(lambda t, *x: jnp.sqrt(sum((a - b) ** 2 for a, b in zip(x, middle, strict=True))) - 0.25)
    model = Incompressible(domain, sides, solid=ball)
    x = domain.coordinates((0.5, 0.5, 0.5))
    zero = jnp.zeros(domain.grid.shape)
    state = State((zero,) * 3, reaction=at_rest(zero + x[0]))
    found = jax.jit(lambda: model.along_bodies(0.0, state, PARAMS, sj.nearest_points(places)), compiler_options=QUICK)()
    ways = (places - middle) / np.linalg.norm(places - middle, axis=1, keepdims=True)
    position = np.stack([found[f"position_{axis}"] for axis in "xyz"], 1)
    # Distances linear between centres are off by h^2 / (4 r) = 0.007 at most, normals by (h / r)^2 / 3 = 0.04.
    np.testing.assert_allclose(position, middle + 0.25 * ways, atol=0.01)
    np.testing.assert_allclose(np.stack([found[f"normal_{axis}"] for axis in "xyz"], 1), ways, atol=0.05)
    np.testing.assert_allclose(found["pressure"], position[:, 0], atol=1e-5)  # linear: exact but for the ridge


def test_what_has_no_surface_is_refused():
    model = Incompressible(Domain(Grid((8, 8))), [PERIODIC, PERIODIC])
    with pytest.raises(ConfigurationError, match=r"no bodies in this flow; make it with solid=Solid\(distance\)"):
        model.along_bodies(0.0, None, PARAMS, RAYS)
    with pytest.raises(ConfigurationError, match="expected the two coordinates of a point in a plane"):
        sj.rays_around((0.5, 0.5, 0.5), 8)
