"""Troubles of a gas lie where they are: beside jumps, at sonic points, at walls, not in bodies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from exact_riemann import RiemannProblem
from gas_runs import CLOSED, IDEAL, MUSCL, OPEN, PERIODIC, centers, gas, run, start

from simjax.core.boundary import Outflow, SlipWall
from simjax.models.flow.bodies.solids import Solid
from simjax.models.gas.boundaries import GasInflow, GasWall
from simjax.models.gas.compressible import Params
from simjax.models.troubles import numbers_of
from simjax.ops.gas import GasScheme

WEIGHTED = GasScheme("weno5", "primitive", "hllc")
FIRST = GasScheme("first_order", "primitive", "hllc")
TRANSONIC = RiemannProblem((1.0, 0.75, 1.0), (0.125, 0.0, 0.1), origin=0.3)
"""Problem 1 of Toro: the left rarefaction passes the speed of sound, for ever at its origin."""


def found(model, name, state, params=IDEAL):
    """A trouble in every cell."""
    look = jax.jit(lambda state: model.trouble(name, 0.0, state, params), compiler_options=QUICK)
    return np.asarray(look(state))


def numbers(model, name, state, params=IDEAL):
    """The number of cells with a trouble, the worst of them, and its place."""
    chosen = [one for one in model.troubles if one.name == name]
    look = jax.jit(
        lambda state: numbers_of(model, chosen, 0.0, state, params, state.density.dtype), compiler_options=QUICK
    )
    return {key.removeprefix(f"{name}_"): float(value) for key, value in look(state).items()}


def of_exact(model, problem, time, axis=0, sign=1):
    """The exact state of a Riemann problem along an axis, or of its mirror image."""
    at = np.asarray(centers(model)[axis])
    length = model.domain.grid.upper[axis]
    density, u, pressure = problem.sample(at if sign > 0 else length - at, time)
    velocity = [sign * u if k == axis else 0.0 for k in range(model.domain.grid.ndim)]
    return start(model, density, velocity, pressure)


# ---------------------------------------------------------------------- limited faces


def test_limited_faces_lie_beside_a_jump():
    """Cells share the faces that diagnostics count, all within reach of the one jump, wherever it is."""
    model, count = gas((32,), [OPEN], WEIGHTED, count_limited=True), 32
    # Not uniform on either side: there would be no parabola.
    rough = jnp.linspace(1, 1.15, count)
    seen = {}

    @functools.partial(jax.jit, compiler_options=QUICK)
    def look(state):
        told = numbers_of(model, model.troubles[:1], 0.0, state, IDEAL, float)
        return told, model.trouble("limited", 0.0, state, IDEAL), model.diagnostics(0.0, state, IDEAL)

    for first in (10, 17):  # number of the first cell beyond the jump
        state = start(model, 1.0, (0.0,), jnp.where(jnp.arange(count) < first, 1e5, 1e-5) * rough)
        told, share, diagnostics = jax.tree.map(np.asarray, look(state))
        cells = np.flatnonzero(share)
        assert cells.size and np.all(np.abs(cells - (first - 0.5)) < 3)  # three cells on either side of a face count
        # No limited face is an end of the grid, so that each has two cells of two faces.
        assert np.sum(share) == diagnostics["limited_faces"] > 0
        assert told["limited_cells"] == cells.size and told["limited_worst"] == np.max(share)
        assert told["limited_x"] == pytest.approx((np.argmax(share) + 0.5) / count, abs=1e-15)
        seen[first] = share
        mirrored = look(start(model, 1.0, (0.0,), (jnp.where(jnp.arange(count) < first, 1e5, 1e-5) * rough)[::-1]))[1]
        np.testing.assert_array_equal(mirrored[::-1], share)
    np.testing.assert_array_equal(seen[17][7:], seen[10][:-7])


@pytest.mark.slow
def test_limited_faces_of_a_blast_are_a_ring_at_its_shock():
    model = gas((32, 32), [OPEN] * 2, WEIGHTED)
    x, y = centers(model)
    hot = jnp.where((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.01, 1e3, 1e-3)
    state = run(model, start(model, 1.0, (0.0, 0.0), hot), 0.002)
    limited = np.argwhere(found(model, "limited", state) > 0)
    ahead = found(model, "low_pressure", state) < 2e-3  # the gas that the shock has not reached
    behind = np.argwhere(~ahead)
    distance = np.abs(limited[:, None] - behind[None]).max(axis=-1).min(axis=1)
    assert len(limited) > 50
    # Two cells more than fluxes read on either side of the shock, which the scheme has over two cells.
    assert np.all(distance <= 4)
    inner = np.argwhere(ahead)
    assert np.all(np.abs(limited[:, None] - inner[None]).max(axis=-1).min(axis=1) <= 4)


def test_a_smooth_gas_has_no_limited_faces():
    model = gas((32,), [PERIODIC], WEIGHTED)
    (x,) = centers(model)
    told = numbers(model, "limited", start(model, 1 + 0.2 * jnp.sin(2 * jnp.pi * x), (1.0,), 1.0))
    assert told["cells"] == told["worst"] == 0 and np.isnan(told["x"])


# ---------------------------------------------------------------------- sonic points


@pytest.mark.parametrize(("axis", "sign"), [(0, 1), (0, -1), (1, 1)])
def test_a_sonic_point_is_where_the_fan_passes_the_speed_of_sound(axis, sign):
    shape = [4, 4]
    shape[axis] = 100
    model = gas(shape, [OPEN, OPEN], FIRST)
    state = of_exact(model, TRANSONIC, 0.2, axis, sign)
    jump = np.moveaxis(found(model, "sonic", state), axis, 0)
    cells = np.flatnonzero(jump[:, 0])
    # u - c vanishes at the origin, a face of the grid: the cells on both sides of it are marked, and no others.
    np.testing.assert_array_equal(cells, [29, 30] if sign > 0 else [69, 70])
    _, u, _ = TRANSONIC.sample(np.array([0.295, 0.305]), 0.2)
    # In the fan c = u - (x - origin) / t.
    c = u - np.array([-0.005, 0.005]) / 0.2
    np.testing.assert_allclose(jump[cells], (u[1] - u[0]) / c.mean(), rtol=1e-10)  # of differences of a hundredth
    told = numbers(model, "sonic", state)
    assert told["cells"] == 8
    assert told["xy"[axis]] == pytest.approx(0.295 if sign > 0 else 0.695, abs=1e-12)


def test_a_fault_of_entropy_is_worse_than_a_fan_and_at_its_place():
    """A flux without enough dissipation leaves a jump there; a fan that is resolved counts as none."""
    model = gas((100,), [OPEN], FIRST)
    state = of_exact(model, TRANSONIC, 0.2)
    smooth = numbers(model, "sonic", state)
    (x,) = centers(model)
    # Half of the fan cut out: what is left of it meets in a jump.
    _, u, p = TRANSONIC.sample(np.where(np.abs(x - 0.3) < 0.05, np.where(x < 0.3, 0.25, 0.35), x), 0.2)
    density, _, _ = TRANSONIC.sample(np.where(np.abs(x - 0.3) < 0.05, np.where(x < 0.3, 0.25, 0.35), x), 0.2)
    fault = numbers(model, "sonic", start(model, density, (u,), p))
    assert fault["cells"] == 2 and fault["x"] == pytest.approx(0.295)
    assert fault["worst"] > 5 * smooth["worst"]  # ten cells of the fan at once
    fine = gas((1000,), [OPEN], FIRST)
    resolved = numbers(fine, "sonic", of_exact(fine, TRANSONIC, 0.2))
    assert resolved["cells"] == 0 and 0 < resolved["worst"] < 0.01
    assert resolved["x"] == pytest.approx(0.2995)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        # A shock that stands: u - c falls through zero.
        ((1.0, 2.0 * np.sqrt(1.4), 1.0), (8 / 3, 0.75 * np.sqrt(1.4), 4.5)),
        # A contact: u lies between the speeds of sound of both gases.
        ((0.125, 2.0, 1.0), (1.0, 2.0, 1.0)),
        # One in a gas that is compressed: u - c rises through zero as c falls by more than u.
        ((0.125, 2.0, 1.0), (1.0, 1.5, 1.0)),
    ],
    ids=["shock", "contact", "compressed"],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_shocks_and_contacts_have_no_sonic_points(left, right, sign):
    model = gas((20,), [OPEN], FIRST)
    first = jnp.arange(20) < 10
    density, u, p = (jnp.where(first, a, b)[::sign] for a, b in zip(left, right, strict=True))
    assert not found(model, "sonic", start(model, density, (sign * u,), p)).any()


def test_a_uniform_sonic_stream_has_no_sonic_point():
    model = gas((8,), [OPEN], FIRST)
    assert not found(model, "sonic", start(model, 1.4, (1.0,), 1.0)).any()


# ---------------------------------------------------------------------- walls


@pytest.mark.slow
def test_the_flux_through_a_wall_is_that_of_the_profile():
    """Between walls of which one is warmer at places: k dT/dx of a profile that is linear across, and its place."""
    k, errors = 0.3, []
    for n in (16, 32):
        walls = GasWall(temperature=1.0), GasWall(temperature=lambda t, x, y: 2 + 0.5 * jnp.sin(2 * jnp.pi * y))
        model = gas((n, n), [walls, PERIODIC], MUSCL)
        x, y = centers(model)
        steep = 1 + 0.5 * jnp.sin(2 * jnp.pi * y)
        params = Params(jnp.asarray(1.4), conductivity=jnp.asarray(k))
        state = start(model, 1 / (1 + x * steep), (0.0, 0.0), 1.0, params=params)
        flux = found(model, "wall_flux", state, params)
        assert not flux[1:-1].any()
        exact, warm = k * np.asarray(steep[0]), np.asarray(1 + steep[0])
        # Ghosts T_w^2 / T stand for a line but for the square of its step s T_w across half a cell: of the flux s / 2.
        step = np.asarray(steep[0]) / (2 * n)
        np.testing.assert_allclose(flux[0], exact * (1 - step / 2), rtol=1.1 * step.max() ** 2)
        np.testing.assert_allclose(flux[-1], exact * (1 + step / warm / 2), rtol=1.1 * step.max() ** 2)
        errors.append(np.abs(flux[0] / exact - 1).max())
        told = numbers(model, "wall_flux", state, params)
        assert told["worst"] == flux.max() and "cells" not in told
        # The warm wall has the larger one, where it is warmest: a quarter along y, on a face.
        assert told["x"] == 1 - 0.5 / n and told["y"] in ((n / 4 - 0.5) / n, (n / 4 + 0.5) / n)
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)


@pytest.mark.slow
def test_what_passes_an_open_side_is_no_flux_through_a_wall():
    stream = GasInflow(density=1.0, pressure=1.0, velocity=(1.0, 0.0))
    model = gas((8, 8), [(stream, Outflow()), CLOSED], MUSCL)
    params = Params(jnp.asarray(1.4), conductivity=jnp.asarray(0.1))
    state = start(model, 1.0, (1.0, 0.0), 1.0, params=params)
    assert numbers(model, "wall_flux", state, params)["worst"] < 1e-14  # a rounding of the energy 3
    stress = found(model, "wall_stress", state, params)
    np.testing.assert_allclose(stress[:, [0, -1]], 1.0, rtol=1e-14)  # the pressure, to rounding
    assert not stress[:, 1:-1].any()


@pytest.mark.slow
def test_a_wall_takes_pressure_and_friction():
    """In a shear between a wall at rest and one that moves: sqrt(p^2 + (mu du/dy)^2), and the work of the latter."""
    mu, speed, p = 0.5, 3.0, 2.0
    walls = GasWall(), GasWall(velocity=(speed, 0.0))
    model = gas((4, 8), [PERIODIC, walls], MUSCL)
    params = Params(jnp.asarray(1.4), viscosity=jnp.asarray(mu))
    state = start(model, 1.0, (speed * centers(model)[1], 0.0), p, params=params)
    # A linear profile has an exact slope at walls, to the rounding of differences over an eighth of the length.
    stress = found(model, "wall_stress", state, params)
    np.testing.assert_allclose(stress[:, [0, -1]], np.hypot(p, mu * speed), rtol=1e-12)
    flux = found(model, "wall_flux", state, params)
    np.testing.assert_allclose(flux[:, -1], mu * speed**2, rtol=1e-12)
    assert np.all(flux[:, 0] < 1e-12)


def test_the_axis_of_an_axisymmetric_grid_is_no_wall():
    from simjax.core.domain import Domain
    from simjax.grid import Grid
    from simjax.models.gas.compressible import Compressible

    domain = Domain(Grid((8, 8), axisymmetric=True))
    model = Compressible(domain, [(SlipWall(), SlipWall()), OPEN], MUSCL)
    stress = found(model, "wall_stress", start(model, 1.0, (0.0, 0.0), 2.0))
    np.testing.assert_allclose(stress[-1], 2.0, rtol=1e-14)
    assert not stress[:-1].any()


# ---------------------------------------------------------------------- jumps, least values, floors


def test_jumps_are_relative_to_the_lower_pressure():
    model = gas((8, 8), [OPEN, CLOSED], FIRST)
    pressure = np.full((8, 8), 2.0)
    pressure[5, 2] = 0.5
    steep = found(model, "steep", start(model, 1.0, (0.0, 0.0), pressure))
    expected = np.zeros((8, 8))
    for cell in ((5, 2), (4, 2), (6, 2), (5, 1), (5, 3)):
        expected[cell] = 3.0  # (2 - 0.5) / 0.5
    np.testing.assert_allclose(steep, expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_lowest_pressure_and_density_have_their_places(dtype):
    model = gas((8, 6), [OPEN, CLOSED], FIRST, lower=(1.0, 0.0), upper=(5.0, 3.0))
    density, pressure = np.ones((2, 8, 6))
    density[2, 4], pressure[5, 1] = 0.25, 1e-3
    params = jax.tree.map(lambda x: x.astype(dtype), IDEAL)
    state = start(model, density, (0.0, 0.0), pressure, params=params, dtype=dtype)
    low = numbers(model, "low_density", state, params)
    assert (low["worst"], low["x"], low["y"]) == (0.25, 2.25, 2.25)
    low = numbers(model, "low_pressure", state, params)
    assert low["worst"] == pytest.approx(1e-3, rel=1e-4) and (low["x"], low["y"]) == (3.75, 0.75)


def test_cells_at_a_floor_are_marked():
    model = gas((8,), [OPEN], FIRST)
    params = Params(jnp.asarray(1.4), density_floor=jnp.asarray(0.1), pressure_floor=jnp.asarray(0.2))
    density, pressure = np.ones(8), np.ones(8)
    density[2], pressure[5], pressure[6] = 0.1, 0.2, 0.21
    marked = found(model, "at_floor", start(model, density, (0.0,), pressure, params=params), params)
    np.testing.assert_array_equal(np.flatnonzero(marked), [2, 5])


@pytest.mark.slow
def test_bodies_have_no_troubles():
    """What is left inside of a body is not looked at: a jump, a vacuum, and cells at a floor."""
    solid = Solid(lambda t, x, y: jnp.hypot(x - 0.5, y - 0.5) - 0.3)
    model = gas((24, 24), [PERIODIC] * 2, MUSCL, solid=solid)
    params = Params(jnp.asarray(1.4), pressure_floor=jnp.asarray(1e-6))
    x, y = centers(model)
    inside = jnp.hypot(x - 0.5, y - 0.5) < 0.1
    state = start(model, jnp.where(inside, 1e-6, 1.0), (0.0, 0.0), jnp.where(inside, 1e-6, 1.0), params=params)
    assert numbers(model, "low_pressure", state, params)["worst"] == pytest.approx(1.0)
    assert numbers(model, "low_density", state, params)["worst"] == 1.0
    # Ghost cells follow the gas by a quadratic: to rounding.
    for name in ("limited", "at_floor", "sonic", "steep"):
        assert numbers(model, name, state, params)["worst"] < 1e-12, name
