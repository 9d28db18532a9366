"""Compressible gas: exact solutions at their order, what is conserved, symmetry, equilibria, derivatives, extremes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from exact_riemann import SOD, TWO_RAREFACTIONS, RiemannProblem
from gas_runs import CLOSED, IDEAL, MUSCL, OPEN, PERIODIC, WENO, centers, gas, run, seen, start, tube

from simjax.core.boundary import Inflow, NoSlipWall, Outflow
from simjax.errors import ConfigurationError
from simjax.integrators.table import INTEGRATORS
from simjax.models.gas.boundaries import GasInflow, GasWall
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import SCHEMES, GasScheme
from simjax.ops.riemann import FLUXES
from simjax.stepping.simulate import Schedule, simulate

SIMPLE = GasScheme("minmod", "primitive", "rusanov")


# ---------------------------------------------------------------------- exact solutions with waves


@pytest.mark.parametrize("scheme, cells", [(WENO, 3), (MUSCL, 3), (SIMPLE, 6)], ids=["weno", "muscl", "simple"])
def test_sod(scheme, cells):
    model = gas((200,), [OPEN], scheme)
    density, (velocity,), pressure = seen(model, run(model, tube(model, SOD), 0.2))
    exact = SOD.sample(centers(model)[0], 0.2)
    # The contact (0.161) is spread over about as many cells as given, the shock (0.141) over one; the rest is smooth.
    assert float(jnp.abs(density - exact[0]).mean()) < (cells * 0.161 + 0.141) / 200
    # Neither velocity nor pressure jumps at the contact: one cell of the shock's 0.93 and 0.2, as much in the fan.
    assert float(jnp.abs(velocity - exact[1]).mean()) < 2 * 0.93 / 200
    assert float(jnp.abs(pressure - exact[2]).mean()) < 4 * 0.2 / 200
    assert float(density.max()) < 1 + 1e-4 and float(pressure.min()) > 0.1 * (1 - 1e-3)


@pytest.mark.parametrize("scheme, share", [(WENO, 1.0), (MUSCL, 1.0), (SIMPLE, 1.5)], ids=["weno", "muscl", "simple"])
@pytest.mark.slow
def test_two_rarefactions_stay_positive(scheme, share):
    model = gas((200,), [OPEN], scheme)
    density, (velocity,), pressure = seen(model, run(model, tube(model, TWO_RAREFACTIONS), 0.15))
    exact = TWO_RAREFACTIONS.sample(centers(model)[0], 0.15)
    assert float(density.min()) > 0 and float(pressure.min()) > 0
    # The first steps heat the middle, where density nearly vanishes and velocity is carried by nothing: a spurious
    # temperature over some twenty cells. Where there is gas the error is that of a smooth flow with two kinks, whose
    # heads, 2 cells of a slope of 10, are smeared.
    assert float(jnp.abs(density - exact[0]).mean()) < share * 0.007
    assert float(jnp.abs(density * velocity - exact[0] * exact[1]).mean()) < share * 0.012
    assert float(jnp.abs(pressure - exact[2]).mean()) < share * 0.004


@pytest.mark.parametrize(
    "ndim, axis", [pytest.param(2, 0, marks=pytest.mark.slow), (2, 1), pytest.param(3, 2, marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_tubes_along_every_axis_are_the_same(ndim, axis):
    line = gas((32,), [OPEN])
    wanted = run(line, tube(line, SOD), 0.05, dt=0.0025, integrator="euler")
    shape = tuple(32 if k == axis else 4 for k in range(ndim))
    model = gas(shape, [OPEN if k == axis else PERIODIC for k in range(ndim)])
    found = run(model, tube(model, SOD, axis), 0.05, dt=0.0025, integrator="euler")
    pairs = (found.density, wanted.density), (found.momentum[axis], wanted.momentum[0]), (found.energy, wanted.energy)
    for u, v in pairs:
        line_by_line = jnp.moveaxis(u, axis, -1).reshape(-1, 32)
        # Twenty steps of values of order one, each rounded a few times; WENO weights amplify that tenfold.
        np.testing.assert_allclose(line_by_line, np.broadcast_to(v, line_by_line.shape), rtol=0, atol=2e-13)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [WENO, MUSCL, SIMPLE], ids=["weno", "muscl", "simple"])
def test_left_going_waves_are_the_mirror_image_of_right_going_ones(scheme):
    model = gas((60,), [OPEN], scheme)
    problem = RiemannProblem((1.0, 0.3, 2.0), (0.4, -0.2, 0.3))
    image = RiemannProblem((0.4, 0.2, 0.3), (1.0, -0.3, 2.0))
    right, left = (run(model, tube(model, p), 0.1, dt=0.002, integrator="euler") for p in (problem, image))
    # As written the arithmetic is the same to the last bit; fused multiply-adds are formed in another order.
    np.testing.assert_allclose(left.density[::-1], right.density, rtol=0, atol=1e-13)
    np.testing.assert_allclose(-left.momentum[0][::-1], right.momentum[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(left.energy[::-1], right.energy, rtol=0, atol=2e-13)


HALF = 8.0
"""Half the side of the vortex's box: its images' swirl at the edge, exp(-32), is below every error here."""


def vortex(model, t, ndim=2):
    """The isentropic vortex that moves along the diagonal; along z it is uniform and moves too."""
    x = [v - t - 2 * HALF * jnp.round((v - t) / (2 * HALF)) for v in centers(model)]
    square = x[0] ** 2 + x[1] ** 2
    swirl = 5 / (2 * np.pi) * jnp.exp((1 - square) / 2)
    heat = 1 - 0.4 / 2.8 * swirl**2
    velocity = [1 - swirl * x[1], 1 + swirl * x[0]] + [1.0] * (ndim - 2)
    return start(model, heat**2.5, velocity, heat**3.5)


def vortex_model(scheme, n, ndim=2):
    low, high = (-HALF, -HALF, 0.0)[:ndim], (HALF, HALF, 1.0)[:ndim]
    return gas((n, n, 4)[:ndim], [PERIODIC] * ndim, scheme, low, high)


def tendency_error(scheme, n):
    """Mean error of all tendencies of the vortex."""
    model = vortex_model(scheme, n)
    state, wanted = jax.jvp(lambda t: vortex(model, t), (0.0,), (1.0,))
    found = jax.jit(lambda state: model.rhs(0.0, state, IDEAL), compiler_options=QUICK)(state)
    return sum(float(jnp.abs(a - b).mean()) for a, b in zip(*map(jax.tree.leaves, (found, wanted)), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(WENO, id="characteristic"),
        pytest.param(GasScheme("weno5", "primitive", "rusanov"), id="primitive", marks=pytest.mark.long),
    ],
)
def test_tendencies_of_a_vortex_are_of_fifth_order(scheme):
    """Its entropy is uniform, and no wave jumps on its axes: what misleads weights of characteristic variables."""
    order = np.log(tendency_error(scheme, 64) / tendency_error(scheme, 128)) / np.log(2)
    # The weights reach their ideal ones late: 5.2 and 5.3 here, 5.0 from 128 to 192 cells.
    assert 4.9 < order < 5.5


def vortex_errors(scheme, sizes, ndim=2, end=0.5):
    errors = []
    for n in sizes:
        model = vortex_model(scheme, n, ndim)
        # Courant number 0.5: the error of rk4 in time is a hundredth of that in space.
        steps = int(np.ceil(end * n / (2 * HALF) * 4))
        last = run(model, vortex(model, 0.0, ndim), end, dt=end / steps, integrator="rk4", quick=False)
        errors.append(float(jnp.abs(last.density - vortex(model, end, ndim).density).mean()))
    return errors


@pytest.mark.slow
def test_tendencies_of_a_vortex_are_of_second_order():
    # Limiters clip the extrema, where the tendency is of first order: on lines, a share h of all cells. The order is
    # approached late: 1.80 from 64 to 128 cells, 1.894 here, 1.93 from 192 to 256.
    assert np.log(tendency_error(MUSCL, 128) / tendency_error(MUSCL, 192)) / np.log(1.5) > 1.88


@pytest.mark.parametrize("ndim", [pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.long)])
def test_isentropic_vortex_at_fifth_order(ndim):
    errors = vortex_errors(WENO, (64, 96), ndim)
    assert np.log(errors[0] / errors[1]) / np.log(1.5) > 4.9, errors


SIZE = 1e-7
"""Relative amplitude of linear waves: nonlinear terms are 1e-7 of them, rounding 1e-9."""


def linear_wave(model, kind, t):
    """A wave of one family on the diagonal of the box, moving at its own speed for background (1, 0 or n, 1/gamma)."""
    lengths = model.domain.grid.lengths
    k = np.array([2 * np.pi / length for length in lengths])
    norm = np.linalg.norm(k)
    n = k / norm
    s = SIZE * jnp.sin(sum(a * v for a, v in zip(k, centers(model), strict=True)) - norm * t)
    if kind == "acoustic":
        return 1 + s, [s * a for a in n], (1 + 1.4 * s) / 1.4
    if kind == "entropy":
        return 1 + s, [a + 0 * s for a in n], 1 / 1.4 + 0 * s
    across = np.array([-n[1], n[0], 0.0][: len(n)])
    return 1 + 0 * s, [a + b * s for a, b in zip(n, across, strict=True)], 1 / 1.4 + 0 * s


def wave_order(scheme, kind, ndim, sizes):
    errors = []
    for n in sizes:
        model = gas((n, n, n)[:ndim], [PERIODIC] * ndim, scheme, upper=(1.0, 2.0, 1.5)[:ndim])
        # Courant number 0.4 on the coarse grid; then the error in time falls as fast as that in space.
        steps = int(1.25 * ndim * sizes[0] * (n / sizes[0]) ** (5 / 3 if scheme.reconstruction == "weno5" else 1.0))
        end = run(model, start(model, *linear_wave(model, kind, 0.0)), 0.25, dt=0.25 / steps)
        density, velocity, _ = linear_wave(model, kind, 0.25)
        parts = [(end.density, density), *zip(end.momentum, (density * u for u in velocity), strict=True)]
        errors.append(sum(float(jnp.abs(a - b).mean()) for a, b in parts) / SIZE)
    return np.log2(errors[0] / errors[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "flux, variables", [("rusanov", "primitive"), pytest.param("hllc", "characteristic", marks=pytest.mark.slow)]
)
def test_sound_in_one_dimension_is_of_fifth_order_with_any_flux(flux, variables):
    # Weights approach their ideal values like h^2.
    assert abs(wave_order(GasScheme("weno5", variables, flux), "acoustic", 1, (16, 32)) - 5) < 0.2


@pytest.mark.slow
def test_entropy_waves_in_one_dimension_are_of_second_order():
    # Limiters clip the extrema, which smears the slope.
    assert wave_order(GasScheme("van_leer", "primitive", "hllc"), "entropy", 1, (64, 128)) > 1.8


@pytest.mark.parametrize(
    "kind, ndim, sizes",
    [
        pytest.param("acoustic", 2, (16, 32), marks=pytest.mark.slow),
        *(pytest.param(kind, 2, (16, 32), marks=pytest.mark.long) for kind in ("entropy", "shear")),
        *(pytest.param(kind, 3, (12, 24), marks=pytest.mark.long) for kind in ("acoustic", "entropy", "shear")),
    ],
)
def test_oblique_waves_are_of_fifth_order(kind, ndim, sizes):
    assert abs(wave_order(WENO, kind, ndim, sizes) - 5) < 0.3


def test_what_a_uniform_stream_carries_alone_is_of_fifth_order():
    """Shear and a scalar, whose stream has the same mass, push and pressure in all cells, to the last bit."""

    def error(n):
        model = gas((n, 4), [PERIODIC] * 2, GasScheme("weno5", "primitive", "hllc"), scalars=1)
        wave = np.sin(2 * np.pi * (np.arange(n) + 0.5) / n)[:, None]
        slope = 2 * np.pi * np.cos(2 * np.pi * (np.arange(n) + 0.5) / n)[:, None]
        first = start(model, 1.0, (0.5, wave), 1.0, (1 + 0.5 * wave)[None])
        found = jax.jit(lambda state: model.rhs(0.0, state, IDEAL), compiler_options=QUICK)(first)
        wanted = (-0.5 * slope, -0.25 * slope)
        return [float(np.abs(a - b).mean()) for a, b in zip((found.momentum[1], found.scalars[0]), wanted, strict=True)]

    for coarse, fine in zip(error(24), error(48), strict=True):
        # Weights approach their ideal values like h^2; without curvature of the flux it is 2.
        assert np.log2(coarse / fine) > 4.7


# ---------------------------------------------------------------------- conservation


def rough(model, scalars=0, params=IDEAL):
    """Independent random numbers in every cell."""
    rng = np.random.default_rng(0)
    shape = model.domain.grid.shape
    density, pressure = np.exp(0.5 * rng.normal(size=(2, *shape)))
    velocity = rng.normal(size=(len(shape), *shape))
    return start(model, density, velocity, pressure, rng.uniform(size=(scalars, *shape)), params)


@pytest.mark.parametrize("ndim, scheme", [(1, SIMPLE), (2, WENO), pytest.param(3, SIMPLE, marks=pytest.mark.slow)])
def test_periodic_totals_stay(ndim, scheme):
    model = gas((24, 8, 6)[:ndim], [PERIODIC] * ndim, scheme, scalars=1)
    first = rough(model, 1)
    last = run(model, first, 0.01, dt=0.001, integrator="euler")
    assert float(jnp.abs(last.density - first.density).max()) > 0.01
    for before, after in zip(jax.tree.leaves(first), jax.tree.leaves(last), strict=True):
        # Ten steps of sums of up to a thousand values of order one.
        assert float(after.sum()) == pytest.approx(float(before.sum()), abs=1e-14 * before.size)


@pytest.mark.slow
def test_closed_boxes_keep_mass_scalars_and_energy_with_that_of_gravity():
    gravity = jnp.asarray([0.3, -0.7])
    params = Params(jnp.asarray(1.4), gravity=gravity)
    model = gas((12, 16), [CLOSED, CLOSED], gravity_axes=(0, 1), scalars=1)
    first = rough(model, 1, params)
    last = run(model, first, 0.01, dt=0.001, params=params, integrator="euler")

    def energy(state):
        height = sum(-g * v for g, v in zip(gravity, centers(model), strict=True))
        return float(jnp.sum(state.energy + state.density * height))

    for before, after in ((first.density, last.density), (first.scalars[0], last.scalars[0])):
        assert float(jnp.abs(after - before).max()) > 0.01
        assert float(after.sum()) == pytest.approx(float(before.sum()), abs=1e-14 * before.size)
    assert energy(last) == pytest.approx(energy(first), abs=1e-13 * first.energy.size)


@pytest.mark.slow
def test_scalars_stay_between_their_extremes_and_uniform_ones_uniform():
    model = gas((40,), [PERIODIC], MUSCL, scalars=2)
    (x,) = centers(model)
    step = jnp.where(jnp.abs(x - 0.4) < 0.2, 1.0, 0.0)
    state = start(model, 1 + 0.5 * jnp.sin(2 * jnp.pi * x), (1 + 0.5 * jnp.cos(2 * jnp.pi * x),), 1.0, (step, 0.3))
    fields = model.observe(0.0, run(model, state, 0.3), IDEAL)
    # The limited value upwind of a face lies between its neighbours; a few hundred roundings.
    assert float(fields["scalars_0"].min()) > -1e-13 and float(fields["scalars_0"].max()) < 1 + 1e-13
    np.testing.assert_allclose(fields["scalars_1"], 0.3, rtol=0, atol=1e-13)


# ---------------------------------------------------------------------- equilibria, walls, viscous terms


@pytest.mark.parametrize("axis, scheme", [(0, WENO), (1, MUSCL)])
@pytest.mark.slow
def test_an_atmosphere_at_rest_stays_at_rest(axis, scheme):
    """Isothermal, p[j + 1] - p[j] = h g (rho[j] + rho[j + 1]) / 2, between walls: over four scale heights."""
    n, heat = 32, 0.25
    pull = np.zeros(2)
    pull[axis] = -1.0
    params = Params(jnp.asarray(1.4), gravity=jnp.asarray(pull))
    shape = tuple(n if k == axis else 4 for k in range(2))
    model = gas(shape, [CLOSED if k == axis else PERIODIC for k in range(2)], scheme, gravity_axes=(axis,))
    drop = 1 / (2 * n * heat)
    pressure = ((1 - drop) / (1 + drop)) ** np.arange(n)
    pressure = pressure.reshape(tuple(n if k == axis else 1 for k in range(2)))
    first = start(model, pressure / heat, (0.0, 0.0), pressure, params=params)
    state = run(model, first, 1.0, params=params, integrator="euler")
    # A sound wave crosses the box in two times one; rounding of the pressure at the bottom, over the thin gas on top.
    assert float(jnp.abs(state.momentum[axis]).max()) < 1e-14
    np.testing.assert_allclose(state.density, np.broadcast_to(pressure / heat, shape), rtol=1e-12)


@pytest.mark.slow
def test_free_fall_of_a_periodic_gas():
    params = Params(jnp.asarray(1.4), gravity=jnp.asarray([0.5, -2.0]))
    model = gas((8, 8), [PERIODIC, PERIODIC], gravity_axes=(0, 1))
    first = start(model, 1.0, (0.1, 0.2), 1.0, params=params)
    state = run(model, first, 0.1, dt=0.01, params=params, integrator="heun")
    # u = u0 + g t, and the work done is kinetic: both exact at any order but for rounding.
    np.testing.assert_allclose(state.momentum[0], 0.15, rtol=1e-13)
    np.testing.assert_allclose(state.momentum[1], 0.0, atol=1e-14)
    np.testing.assert_allclose(state.energy, 2.5 + 0.5 * 0.15**2, rtol=1e-13)


def couette(n, axis):
    """Largest errors of velocity and temperature, some diffusive times after the exact solution was the start."""
    along = 1 - axis
    wall = tuple(2.0 if a == along else 0.0 for a in range(2))
    pair = GasWall(temperature=1.0), GasWall(wall, temperature=1.0)
    mu, k = 2.0, 20.0
    params = Params(jnp.asarray(1.4), jnp.asarray(mu), jnp.asarray(k))
    shape = tuple(n if a == axis else 4 for a in range(2))
    upper = tuple(1.0 if a == axis else 4 / n for a in range(2))
    sides = [pair if a == axis else PERIODIC for a in range(2)]
    model = gas(shape, sides, MUSCL, upper=upper, gas_constant=2.0)
    y = centers(model)[axis]
    heat = 2.0 * (1 + mu * 2.0**2 / (2 * k) * y * (1 - y))
    velocity = tuple(2.0 * y if a == along else 0.0 for a in range(2))
    first = start(model, 10 / heat, velocity, 10.0, params=params)
    state = run(model, first, 0.5, params=params, integrator="euler")
    density, velocities, pressure = seen(model, state, params)
    deviation = pressure / density / 2.0 - heat / 2.0
    return float(jnp.abs(velocities[along] - 2.0 * y).max()), float(jnp.abs(deviation).max())


@pytest.mark.slow
def test_couette_flow_between_walls_of_one_temperature():
    """u = U y, T = T_w + mu U^2 / (2 k) y (1 - y): the work of friction is conducted to the walls."""
    coarse, fine = couette(6, 1), couette(12, 1)
    np.testing.assert_allclose(couette(6, 0), coarse, rtol=1e-6)
    # The temperature is a parabola, 0.05 high: h^2 of its curvature 0.4, over eight, at both walls.
    assert coarse[1] < 0.4 / 36 / 4 and coarse[1] / fine[1] > 3.8
    # Velocity is linear, which is exact but for the change of the pressure by that of the temperature.
    assert coarse[0] < 2e-5


@pytest.mark.slow
def test_a_closed_adiabatic_box_turns_motion_into_heat():
    params = Params(jnp.asarray(1.4), jnp.asarray(0.05), jnp.asarray(0.1))
    model = gas((12, 10), [(NoSlipWall(), NoSlipWall())] * 2, MUSCL)
    first = rough(model, params=params)
    last = run(model, first, 0.02, params=params, integrator="euler")
    assert float(last.energy.sum()) == pytest.approx(float(first.energy.sum()), rel=1e-13)
    assert float(last.density.sum()) == pytest.approx(float(first.density.sum()), rel=1e-13)

    def motion(state):
        return float(sum((m * m / state.density).sum() for m in state.momentum))

    assert motion(last) < 0.7 * motion(first)


@pytest.mark.slow
def test_supersonic_inflow_fills_the_tube():
    inflow = GasInflow(1.3, 0.8, (3.0,), (0.6,))
    model = gas((40,), [(inflow, Outflow())], scalars=1)
    state = run(model, start(model, 1.0, (3.0,), 1.0, (0.0,)), 1.0, integrator="heun")
    fields = model.observe(0.0, state, IDEAL)
    # All waves move to the right at 2 or more and have left by half the time; what lags behind is below rounding.
    for name, value in (("density", 1.3), ("velocity_x", 3.0), ("pressure", 0.8), ("scalars_0", 0.6)):
        np.testing.assert_allclose(fields[name], value, rtol=1e-6)


# ---------------------------------------------------------------------- derivatives


@functools.cache
def sod_derivatives(flux="hllc_all_speed", pressures=(1.0,)):
    """Totals and plateau of Sod's problem, and their derivatives with respect to the pressure on the left, for each."""
    n, t = 100, 0.2
    model = gas((n,), [OPEN], GasScheme(flux=flux))
    (x,) = centers(model)

    def outcome(pressure):
        problem = RiemannProblem((1.0, 0.0, pressure), SOD.right)
        first = tube(model, problem)
        trajectory = simulate(
            model, INTEGRATORS["heun"], IDEAL, first, Schedule(t, dt=t / 120), frames=1, checkpoint="none"
        )
        last = trajectory.state
        plateau = (x > 0.72) & (x < 0.80)
        level = 0.4 * (last.energy - 0.5 * last.momentum[0] ** 2 / last.density)
        mean = jnp.mean(level, where=plateau)
        return jnp.stack([last.momentum[0].sum() / n, last.energy.sum() / n, mean])

    def both(pressure):
        values, pull = jax.vjp(outcome, pressure)
        return values, jax.vmap(pull)(jnp.eye(3))[0]

    return jax.jit(jax.vmap(both), compiler_options=QUICK)(jnp.asarray(pressures))


@pytest.mark.slow
def test_derivatives_of_totals_through_shocks_are_exact():
    (values,), (slopes,) = sod_derivatives()
    # Total momentum (pL - pR) t, total energy (x0 pL + (1 - x0) pR) / (gamma - 1): to the rounding of 120 steps.
    assert float(values[0]) == pytest.approx(0.9 * 0.2, rel=1e-12)
    assert float(slopes[0]) == pytest.approx(0.2, rel=1e-10)
    assert float(slopes[1]) == pytest.approx(1.25, rel=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("flux", ["hllc_all_speed", "hllc"])
def test_derivatives_of_the_pressure_between_the_waves_are_right_in_the_mean(flux):
    """While the shock passes four cells. Around it weights switch and the curvature of the flux is bounded, so that the
    derivative at one pressure is that of single cells."""
    pressures, small = tuple(np.linspace(0.9, 1.1, 9).tolist()), 1e-4

    def between(pressure):
        return RiemannProblem((1.0, 0.0, pressure), SOD.right).star()[0]

    values, slopes = (np.asarray(u)[:, 2] for u in sod_derivatives(flux, pressures))
    # The plateau is flat but for the tails of contact and shock.
    np.testing.assert_allclose(values, [between(p) for p in pressures], rtol=1e-3)
    exact = np.array([between(p + small) - between(p - small) for p in pressures]) / (2 * small)
    error = slopes / exact - 1
    # Single ones are off by 2.8 and 3.8 % in the root mean square, so that a mean of nine is by one.
    assert np.sqrt(np.mean(error**2)) < 0.05
    assert abs(error.mean()) < 0.025


# ---------------------------------------------------------------------- extremes


EXTREMES = {
    "near vacuum": RiemannProblem((1.0, -3.7, 0.4), (1.0, 3.7, 0.4)),
    "blast": RiemannProblem((1.0, 0.0, 1e3), (1.0, 0.0, 1e-2)),
    "blast of ten billion": RiemannProblem((1.0, 0.0, 1e5), (1.0, 0.0, 1e-5)),
    "mach 3": RiemannProblem((27 / 7, 4 * 35**0.5 / 9, 31 / 3), (1.0, 0.0, 1.0)),
    "cold streams": RiemannProblem((1.0, 1.0, 1e-4), (1.0, -1.0, 1e-4)),
}


def steps_of(model, params, state, steps, courant=0.5):
    """`steps` steps at a Courant number: the time reached and the state."""

    def step(carry, _):
        t, state = carry
        dt = courant * model.stable_dt(state, params)
        return (t + dt, INTEGRATORS["ssprk3"].step(model, t, dt, state, params, None)), None

    zero = jnp.zeros((), state.density.dtype)
    return jax.lax.scan(step, (zero, state), None, length=steps)[0]


@pytest.mark.parametrize(
    "scheme, dtype", [(WENO, np.float32), pytest.param(WENO, np.float64, marks=pytest.mark.slow), (SIMPLE, np.float32)]
)
@pytest.mark.slow
def test_extremes_stay_positive(scheme, dtype):
    model = gas((100,), [OPEN], scheme)
    params = Params(jnp.asarray(1.4, dtype))
    states = [tube(model, problem, params=params, dtype=dtype) for problem in EXTREMES.values()]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    go = jax.jit(jax.vmap(lambda state: steps_of(model, params, state, 80)), compiler_options=QUICK)
    times, ends = go(together)
    for k, (name, problem) in enumerate(EXTREMES.items()):
        density, _, pressure = seen(model, jax.tree.map(lambda leaf, k=k: leaf[k], ends), params)
        assert density.dtype == dtype
        # Also false for what is not a number.
        assert float(density.min()) > 0 and float(pressure.min()) > 0, name
        exact = problem.sample(centers(model)[0], float(times[k]))[0]
        # The thin shell behind a strong shock is a few cells wide here; everything else is where it belongs.
        assert float(np.abs(np.asarray(density) - exact).mean()) < 0.1 * float(np.ptp(exact)), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme", [pytest.param(WENO, id="weno", marks=pytest.mark.long), pytest.param(SIMPLE, id="simple")]
)
def test_a_point_blast_in_a_box_stays_positive_and_symmetric(scheme):
    """A hundred-thousandfold pressure in four cells, until its shock has met the walls and itself."""
    n = 40
    model = gas((n, n), [CLOSED, CLOSED], scheme)
    x, y = centers(model)
    middle = (jnp.abs(x - 0.5) < 1 / n) & (jnp.abs(y - 0.5) < 1 / n)
    state = run(model, start(model, 1.0, (0.0, 0.0), jnp.where(middle, 1e4, 0.1)), 0.06, courant=0.5, most=3000)
    density, _, pressure = seen(model, state)
    assert float(density.min()) > 0 and float(pressure.min()) > 0
    assert float(density.sum()) == pytest.approx(n * n, rel=1e-12)
    # Rounding grows with the flow, which is unstable where shocks cross; it stays far below what is seen.
    np.testing.assert_allclose(density.T, density, rtol=1e-8)
    np.testing.assert_allclose(density[::-1], density, rtol=1e-8)


def test_floors_raise_what_lies_below_them_and_are_counted():
    params = Params(jnp.asarray(1.4), density_floor=jnp.asarray(0.5), pressure_floor=jnp.asarray(0.2))
    model = gas((4,), [PERIODIC])
    low = start(model, jnp.asarray([1.0, 0.1, 1.0, 2.0]), (0.3,), jnp.asarray([1.0, 1.0, 0.01, 3.0]))
    raised = model.constrain(0.0, 0.1, low, params)
    density, (velocity,), pressure = seen(model, raised)
    np.testing.assert_allclose(density, [1.0, 0.5, 1.0, 2.0], rtol=1e-15)
    np.testing.assert_allclose(pressure, [1.0, 1.0, 0.2, 3.0], rtol=1e-14)
    np.testing.assert_allclose(velocity, 0.3, rtol=1e-15)
    assert float(model.diagnostics(0.0, raised, params)["cells_at_floor"]) == 2
    assert model.constrain(0.0, 0.1, low, IDEAL) is low


@pytest.mark.parametrize(("viscosity", "conductivity"), [(3.0, 0.0), (0.0, 2.0)], ids=["viscosity", "conduction"])
def test_friction_and_conduction_limit_the_step_as_a_second_difference_does(viscosity, conductivity):
    """At rest, 1 / dt is the sum of c / h and 2 D / h^2 with D = 4/3 mu / rho, or k (gamma - 1) / rho for R = 1."""
    gamma, density, cells = 1.4, 0.7, (4, 5)
    params = Params(jnp.asarray(gamma), viscosity=jnp.asarray(viscosity), conductivity=jnp.asarray(conductivity))
    model = gas(cells, [PERIODIC] * 2)
    state = start(model, density, (0.0, 0.0), 1.3, params=params)
    diffusivity = max(4 / 3 * viscosity, (gamma - 1) * conductivity) / density
    rate = sum(n * (gamma * 1.3 / density) ** 0.5 + 2 * diffusivity * n**2 for n in cells)
    found = jax.jit(model.stable_dt, compiler_options=QUICK)(state, params)
    # Rounding.
    assert float(found) == pytest.approx(1 / rate, rel=1e-12)


# ---------------------------------------------------------------------- what is told


def test_diagnostics_are_those_of_the_state():
    model = gas((6, 8), [PERIODIC, CLOSED], scalars=1)
    state = rough(model, 1)
    found = model.diagnostics(0.0, state, IDEAL)
    density, velocity, pressure = (np.asarray(v) for v in seen(model, state))
    volume = 1 / 48
    wanted = {
        "mass": density.sum() * volume,
        "momentum_x": (density * velocity[0]).sum() * volume,
        "momentum_y": (density * velocity[1]).sum() * volume,
        "scalar_0": float(state.scalars[0].sum()) * volume,
        "energy": (2.5 * pressure + 0.5 * density * (velocity**2).sum(0)).sum() * volume,
        "max_mach": np.sqrt((velocity**2).sum(0) * density / (1.4 * pressure)).max(),
        "minimum_density": density.min(),
        "minimum_pressure": pressure.min(),
    }
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert float(found[name]) == pytest.approx(float(value), rel=1e-12), name


def test_sides_that_a_gas_cannot_have_are_refused():
    with pytest.raises(ConfigurationError, match=r"boundaries.x: Compressible takes .*got Inflow"):
        gas((8,), [(Inflow(), Outflow())])
    with pytest.raises(ConfigurationError, match=r"boundaries.y: a velocity of 1 value.*one per axis"):
        gas((8, 8), [PERIODIC, (GasInflow(1.0, 1.0, (1.0,)), Outflow())])
    with pytest.raises(ConfigurationError, match=r"boundaries.x: scalars of 1 value.*one per scalar"):
        gas((8,), [(GasInflow(1.0, 1.0, (1.0,), (0.5,)), Outflow())])


def test_configurations_name_every_scheme():
    options = {field.name: field.metadata["kind"] for field in dataclasses.fields(Compressible.Keys)}
    assert set(options["reconstruction"].options) == set(SCHEMES)
    assert set(options["flux"].options) == set(FLUXES)


def test_what_lies_beyond_an_inflow_is_its_density():
    """Closures and other readers of the fields get the inflow's density beyond a side, where fluxes take p / rho."""
    model = gas((8,), [(GasInflow(1.3, 2.0, (0.4,)), Outflow())])
    (layout,) = model.component_layouts()["density"]
    padded = model.domain.pad(jnp.linspace(0.5, 0.9, 8), layout, 1)
    assert (float(padded[0]), float(padded[-1])) == (1.3, 0.9)
