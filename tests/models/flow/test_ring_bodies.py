"""Bodies of revolution in axisymmetric flow: exact flows, what is kept, gradients, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC

import simjax as sj
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.axisymmetric_grid import tapers
from simjax.models.flow.bodies.ring_geometry import (
    means_over_faces,
    moment_of_open,
    moment_of_positive,
    rings_of,
    shares_of_neighbours,
)
from simjax.models.flow.bodies.solid_moments import displaced
from simjax.models.flow.bodies.solids import Solid
from simjax.models.flow.incompressible import Incompressible, Params
from simjax.ops import staggered

CLOSED = (sj.SlipWall(), sj.SlipWall())


def parameters(viscosity):
    return Params(jnp.asarray(viscosity), jnp.asarray(0.0))


def advanced(model, params, steps, dt, integrator="kutta3", start=0.0):
    """The last state, from a uniform stream along the axis."""
    scheme, shape, dt = INTEGRATORS[integrator], model.domain.grid.shape, jnp.asarray(dt)
    begin = model.state_from({"velocity": (jnp.zeros(shape), jnp.full(shape, start))}, params)
    parts = scheme.prepare(model, params, dt)
    return jax.lax.fori_loop(0, steps, lambda k, s: scheme.step(model, k * dt, dt, s, params, parts), begin)


def push(t, x, params):
    return jnp.ones(())


def rings(shape, upper, lower=(0.0, 0.0)):
    return Domain(Grid(shape, lower, upper, axisymmetric=True))


@pytest.mark.parametrize("middle", [-0.4, 0.0, 0.3])
@pytest.mark.parametrize("slopes", [(1.0, 0.3), (-0.3, 1.0), (0.2, -1.0), (-1.0, 0.0), (0.0, 0.7)])
def test_moments_over_a_cell_are_those_of_fine_sums(middle, slopes):
    across, along = slopes
    s = (np.arange(2000) + 0.5) / 1000 - 1
    inside = middle + 0.5 * across * s[:, None] + 0.5 * along * s > 0
    found = moment_of_open(*map(jnp.asarray, (middle, across, along)))
    # A sum of midpoints of a step: by half of a cell of 1/1000 along the steeper axis.
    assert float(found) == pytest.approx(np.mean(s[:, None] * inside), abs=5e-4)
    ends = jnp.asarray(middle - 0.5 * across), jnp.asarray(middle + 0.5 * across)
    expected = np.mean(s * np.maximum(middle + 0.5 * across * s, 0))
    assert float(moment_of_positive(*ends)) == pytest.approx(expected, abs=1e-6)


def test_what_is_open_of_rings_is_exact_for_a_cylinder_and_a_plane():
    """The wall of a pipe that ends between faces displaces what is around it, and faces let through its section."""
    domain, radius = rings((7, 4), (1.0, 1.0)), 0.61
    model = Incompressible(domain, [CLOSED, PERIODIC], solid=Solid(lambda t, r, z: radius - r + 0 * z))
    layout = model.projection.layout
    distance = model.solid.distance(0.0, *domain.coordinates((0.5, 0.5)))
    found = displaced(domain, layout, jnp.broadcast_to(distance, (7, 4)))
    assert float(found.volume) == pytest.approx(np.pi * (1 - radius**2), rel=1e-13)
    wide = domain.pad(jnp.broadcast_to(distance, (7, 4)), layout, 1)
    positive, whole = means_over_faces(wide, 1, (0.5, 0.5), rings_of(domain, layout, distance.dtype))
    r = np.asarray(domain.grid.coordinates(0, 0.5))
    # The integral of 2 pi r (radius - r), between the second and the last faces: beyond sides distances are mirrored.
    amount = lambda a: np.pi * (radius * a**2 - 2 / 3 * a**3)  # noqa: E731
    areas = 2 * np.pi * r[1:-1] / 7
    assert areas @ np.asarray(positive)[1:-1, 0] == pytest.approx(amount(radius) - amount(1 / 7), rel=1e-13)
    assert areas @ np.asarray(whole)[1:-1, 0] == pytest.approx(amount(6 / 7) - amount(1 / 7), rel=1e-13)


@pytest.mark.parametrize("component", [0, 1])
def test_what_bodies_take_over_of_the_laplacian_is_what_it_has(component):
    """What a neighbour across r counts with in the friction of a body is what it counts with in the Laplacian."""
    domain = rings((6, 4), (1.5, 1.0))
    layout = Incompressible(domain, [CLOSED, PERIODIC]).layouts[component]
    shares = shares_of_neighbours(domain, layout, component, jnp.float64)
    taper = jnp.pad(tapers(domain, layout, jnp.zeros((6, 4))), 1, constant_values=1.0)
    for by, share in ((-1, shares[0]), (1, shares[1])):
        for row in range(1, 5):
            one = jnp.zeros((8, 6)).at[1 + row + by, 2].set(1.0)
            found = staggered.laplacian(one, (0.25, 0.25), component, taper)[row, 1]
            assert float(found) == pytest.approx(float(share[row, 0]) / 0.25**2, rel=1e-14)


def pipes(cells):
    """Errors of the flow in pipes whose wall is a body, in the mean square over the greatest velocity, and forces."""
    domain = rings((cells, 4), (1.0, 4 / cells))
    r, dt = domain.coordinates((0.5, 0.5))[0], 0.2 / cells**2

    @jax.jit
    def found(radius):
        solid = Solid(lambda t, r, z: radius - r + 0 * z)
        model = Incompressible(domain, [CLOSED, PERIODIC], (None, push), solid=solid)
        end = advanced(model, parameters(1.0), int(1.5 / dt), dt, "euler")
        error = (end.velocity[1][:, :1] - 0.25 * (radius**2 - r**2)) / (0.25 * radius**2)
        weight = jnp.where(r < radius, r, 0.0)
        volume = np.pi * radius**2 * 4 / cells
        return jnp.sum(weight * error**2) / jnp.sum(weight), end.reaction.force[1] / volume

    places = [jnp.asarray((0.75 * cells + offset) / cells) for offset in (0.1, 0.3, 0.5, 0.7)]
    squares, forces = np.transpose([found(radius) for radius in places])
    return np.sqrt(squares.mean()), forces


@pytest.mark.slow
def test_the_flow_in_a_pipe_between_faces_is_of_second_order():
    """All that drives the fluid is taken by the wall, and its section is exact.

    What still speeds up is 0.7 exp(-5.78 t / radius^2) of the push: 1.2e-6 at the largest radius.
    """
    (coarse, first), (fine, second) = pipes(12), pipes(24)
    np.testing.assert_allclose([*first, *second], 1, rtol=0, atol=2e-6)
    assert np.log2(coarse / fine) > 1.8 and coarse < 3e-3, (coarse, fine)


INNER, OUTER, MIDDLE = 0.2, 0.43, 0.513


def between_spheres(r, z):
    """Stokes flow around a sphere at rest in one that moves along the axis (Williams 1915, Phil. Mag. 29, 526)."""
    rows = [[a**2, 1, 1 / a, 1 / a**3] for a in (INNER, OUTER)]
    rows += [[2 * a**2, 1, 0.5 / a, -0.5 / a**3] for a in (INNER, OUTER)]
    a, b, c, d = np.linalg.solve(rows, [0, 1, 0, 1])
    rho = jnp.hypot(r, z - MIDDLE)
    away = (a * rho**2 + b + c / rho + d / rho**3) * (z - MIDDLE) / rho
    around = -(2 * a * rho**2 + b + 0.5 * c / rho - 0.5 * d / rho**3) * r / rho
    return away * r / rho + around * (z - MIDDLE) / rho, away * (z - MIDDLE) / rho - around * r / rho


def spheres(cells):
    """Root of the mean square error over the volume, for a speed of one; the force on both."""

    def distance(t, r, z):
        rho = jnp.hypot(r, z - MIDDLE)
        return jnp.minimum(rho - INNER, OUTER - rho)

    def along(t, r, z):
        return jnp.where(jnp.hypot(r, z - MIDDLE) > 0.5 * (INNER + OUTER), 1e-3, 0.0)

    solid, domain = Solid(distance, (None, along)), rings((cells // 2, cells), (0.5, 1.0))
    model = Incompressible(domain, [CLOSED, PERIODIC], solid=solid)
    assert model.around.direct
    dt = 0.9 / (0.4 * cells**2)  # nine tenths of the longest step of a viscosity of 0.1
    end = jax.jit(lambda: advanced(model, parameters(0.1), int(1.0 / dt), dt))()
    total, volume = 0.0, 0.0
    for axis, (layout, u) in enumerate(zip(model.layouts, end.velocity, strict=True)):
        r, z = domain.coordinates(layout.offset)
        weight = jnp.where(distance(0.0, r, z) > 0, r, 0.0)
        total += float(jnp.sum(weight * (1e3 * u - between_spheres(r, z)[axis]) ** 2))
        volume += float(jnp.sum(weight))
    return np.sqrt(total / volume), float(end.reaction.force[1]) * 1e3


@pytest.mark.slow
def test_stokes_flow_between_spheres_is_of_second_order_and_the_force_on_both_vanishes():
    (coarse, first), (fine, second) = spheres(16), spheres(32)
    # A Reynolds number of 0.005 is 1e-5 of the flow or so.
    assert np.log2(coarse / fine) > 1.8 and fine < 0.01, (coarse, fine)
    # Roundings of the momentum in a step, over it.
    assert abs(first) < 1e-10 and abs(second) < 1e-10


def past_a_sphere(radius, speed, solver="auto", steps=4, beside=None):
    sides = [CLOSED, (sj.Inflow((0.0, speed)), sj.Outflow())]
    solid = Solid(lambda t, r, z: jnp.hypot(r, z - 0.9) - radius, beside=beside)
    model = Incompressible(rings((12, 24), (1.0, 2.0)), sides, solid=solid, pressure_solver=solver)
    return model, advanced(model, parameters(0.05), steps, 0.02, "midpoint", start=speed)


@pytest.mark.slow
def test_both_solvers_find_one_flow_around_a_sphere():
    ends = []
    for solver in ("spectral", "multigrid"):
        model, end = past_a_sphere(0.33, 1.0, solver)
        assert model.around.method == solver and model.around.direct == (solver == "spectral")
        ends.append(end)
    for u, v in zip(ends[0].velocity, ends[1].velocity, strict=True):
        # Residuals of 2e-14 of the pressure's, of about one, over a cell of 1/12, in eight stages.
        np.testing.assert_allclose(u, v, rtol=0, atol=3e-12)


@pytest.mark.slow
def test_gradient_with_respect_to_the_radius_and_the_inflow():
    def drag(numbers):
        return past_a_sphere(numbers[0], numbers[1], beside=80)[1].reaction.force[1]

    value, given = jax.jit(jax.value_and_grad(drag)), jnp.asarray([0.331, 1.1])
    slope = value(given)[1]
    for k, change in enumerate(1e-6 * np.eye(2)):
        measured = float(value(given + change)[0] - value(given - change)[0]) / 2e-6
        # Central differences: 1e-15 / 1e-6 of rounding and 1e-12 of third derivatives over cells of 1/12.
        assert measured == pytest.approx(float(slope[k]), rel=1e-6)


def test_a_body_that_moves_with_the_fluid_along_the_axis_leaves_it_alone():
    velocity = (None, lambda t, r, z: 0.7 + 0 * z)
    solid = Solid(lambda t, r, z: jnp.hypot(r, z - 0.5 - 0.7 * t) - 0.3, velocity, moving=True)
    model = Incompressible(rings((8, 16), (0.5, 1.0)), [CLOSED, PERIODIC], solid=solid)
    end = jax.jit(lambda: advanced(model, parameters(0.02), 3, 0.02, "midpoint", start=0.7))()
    np.testing.assert_allclose(end.velocity[0], 0.0, atol=1e-13)
    np.testing.assert_allclose(end.velocity[1], 0.7, rtol=0, atol=1e-13)


def refused(**changed):
    sections = {
        "grid": {"shape": [16, 32], "upper": [1.0, 2.0], "axisymmetric": True},
        "boundaries": {"x": {"lower": "slip", "upper": "no_slip"}, "y": "periodic"},
        "physics": {"viscosity": 0.05},
        "coefficients": {"solid": {"ball": {"center": [0, 1], "radius": 0.3}}},
        "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01},
    }
    with pytest.raises(ConfigurationError) as caught:
        sj.configure(Incompressible, **{**sections, **changed}).run()
    return str(caught.value)


def test_motions_off_the_axis_are_refused():
    ball = {"solid": {"ball": {"center": [0, 1], "radius": 0.3}}}
    assert "expected a velocity along r that vanishes on the axis inside of a body" in refused(
        coefficients={**ball, "solid_velocity": ["0.1", "0"]}
    )
    physics = {"viscosity": 0.05, "body": {"density": 2.0}}
    assert "physics.body: expected a Cartesian grid, on which alone its motion is solved for" in refused(
        physics=physics
    )
    physics = {"viscosity": 0.05, "torque_about": [0.0, 1.0]}
    assert "as a flow without swirl turns no body about the axis" in refused(physics=physics)


def test_the_force_along_the_axis_is_the_one_that_is_told():
    solid = Solid(lambda t, r, z: jnp.hypot(r, z - 0.9) - 0.33)
    known = Incompressible(rings((12, 24), (1.0, 2.0)), [CLOSED, PERIODIC], solid=solid).measures()
    assert known["force_y"].units == "m4 s-2" and not {"force_x", "torque_z"} & {*known}
