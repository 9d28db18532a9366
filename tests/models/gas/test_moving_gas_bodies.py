"""Bodies that move in a gas: pistons against exact solutions, streams that they drift with, balances, derivatives."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from gas_runs import IDEAL, MUSCL, OPEN, PERIODIC, WENO, centers, gas, run, seen, start
from scipy.optimize import brentq

import simjax as sj
from simjax.errors import ConfigurationError
from simjax.models.flow.bodies.solids import Solid
from simjax.models.gas.bodies.moving_surface import cells_off, gas_share, own_share
from simjax.models.gas.compressible import Params

VISCOUS = Params(jnp.asarray(1.4), jnp.asarray(0.05), jnp.asarray(0.1))


def piston(place, speed):
    """A body that fills a tube up to a place, a function of time."""
    return Solid(lambda t, x: x - place(t), (lambda t, x: speed(t) + 0 * x,), True)


def drifting(centre, velocity, radius):
    """A ball that moves at a constant velocity."""

    def distance(t, *x):
        parts = (a - b - v * t for a, b, v in zip(x, centre, velocity, strict=True))
        return jnp.sqrt(sum(one**2 for one in parts)) - radius

    return Solid(distance, tuple(lambda t, *x, v=v: v + 0 * x[0] for v in velocity), True)


# ---------------------------------------------------------------------- pistons


def error_before_a_piston(cells, gain, scheme=MUSCL, end=0.3):
    """Mean and largest error of pressure before a piston that gains speed as the square of time, and of its force.

    Where characteristics have not met, u is that of the piston when the one that runs there left it, and
    c = 1 + 0.2 u (Landau and Lifshitz 1987, Fluid Mechanics, section 101).
    """

    def place(t):
        return 0.4 + gain * t**3 / 3

    def speed(t):
        return gain * t**2

    model = gas((cells,), [OPEN], scheme, solid=piston(place, speed))
    after = run(model, start(model, 1.4, (0.0,), 1.0), end)
    pressure, x = np.asarray(seen(model, after)[2]), np.asarray(centers(model)[0])
    left = [
        brentq(lambda t, x=x: place(t) + (1 + 1.2 * speed(t)) * (end - t) - x, 0, end)
        if place(end) < x < 0.4 + end
        else 0
        for x in x
    ]
    error = np.abs(pressure - (1 + 0.2 * speed(np.array(left))) ** 7)[x > place(end)]
    force = -float(model.diagnostics(end, after, IDEAL)["force_x"])
    return error.sum() / cells, error.max(), abs(force / (1 + 0.2 * speed(end)) ** 7 - 1)


@pytest.mark.parametrize("gain", [pytest.param(6.0, marks=pytest.mark.slow), -6.0], ids=["pushes", "withdraws"])
def test_a_piston_that_gains_speed_is_of_second_order(gain):
    coarse, fine = (error_before_a_piston(cells, gain) for cells in (50, 100))
    # Orders of 2.05 and 1.85 of the mean, 2.0 and 1.8 of the largest error.
    assert coarse[0] / fine[0] > 3.2 and coarse[1] / fine[1] > 2.7, (coarse, fine)
    # Of the pressure at the piston, in which a front 0.54 c fast has risen over 30 cells.
    assert fine[1] < 5e-3 and fine[2] < 0.01, fine


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [MUSCL, WENO], ids=["muscl", "weno"])
def test_a_piston_at_constant_speed_drives_a_shock(scheme):
    speed, end = 0.5, 0.25
    model = gas((128,), [OPEN], scheme, solid=piston(lambda t: 0.3 + speed * t, lambda t: speed))
    after = run(model, start(model, 1.4, (0.0,), 1.0), end)
    pressure, x = np.asarray(seen(model, after)[2]), np.asarray(centers(model)[0])
    # Rankine-Hugoniot: a shock behind which the gas moves with the piston.
    mach = 0.6 * speed + math.sqrt((0.6 * speed) ** 2 + 1)
    behind = 1 + 2.8 / 2.4 * (mach**2 - 1)
    first = np.argmax(x > 0.3 + speed * end)
    np.testing.assert_allclose(pressure[first : first + 5], behind, rtol=3e-3)
    i = np.flatnonzero(pressure > 0.5 * (1 + behind))[-1]
    share = (pressure[i] - 0.5 * (1 + behind)) / (pressure[i] - pressure[i + 1])
    # The start, from a jump, costs a cell.
    assert x[i] + share / 128 == pytest.approx(0.3 + mach * end, abs=1.5 / 128)
    found = model.diagnostics(end, after, IDEAL)
    assert -float(found["force_x"]) == pytest.approx(behind, rel=3e-3)
    # Of the mass that the piston sweeps in a time.
    assert abs(float(found["mass_from_bodies"])) < 3e-3 * 1.4 * speed


@pytest.mark.slow
def test_a_piston_that_withdraws_at_once_draws_a_fan():
    speed, end = -0.5, 0.2
    model = gas((128,), [OPEN], MUSCL, solid=piston(lambda t: 0.7 + speed * t, lambda t: speed))
    after = run(model, start(model, 1.4, (0.0,), 1.0), end)
    pressure, x = np.asarray(seen(model, after)[2]), np.asarray(centers(model)[0])
    velocity = np.clip(((x - 0.7) / end - 1) / 1.2, speed, 0)
    error = np.abs(pressure - (1 + 0.2 * velocity) ** 7)[x > 0.7 + speed * end]
    # The start, from a jump, costs a cell or so of the fan, over which pressure falls by 0.52.
    assert error.sum() / 128 < 1.5 * 0.52 / 128 and error[:5].max() < 3e-3


# ---------------------------------------------------------------------- streams


@pytest.mark.parametrize("params", [IDEAL, VISCOUS], ids=["slip", "no slip"])
def test_a_body_that_drifts_with_a_stream_leaves_it_alone(params):
    velocity = 0.4, -0.3
    model = gas((24, 24), [PERIODIC] * 2, MUSCL, solid=drifting((0.47, 0.52), velocity, 0.2))
    tendency = jax.jit(lambda t, state: model.rhs(t, state, params), compiler_options=QUICK)
    slope = tendency(0.07, start(model, 1.3, velocity, 0.7, params=params))
    # Images of a uniform state are it; rounding of pressures over spacings.
    assert all(float(jnp.abs(one).max()) < 1e-11 for one in jax.tree.leaves(slope))


@pytest.mark.slow
def test_a_cylinder_that_moves_is_as_one_in_a_stream():
    """A frame that moves along sees the same pressure after the same start."""
    speed, end, radius = 0.4, 0.3, 0.2

    def pressed(solid, velocity):
        model = gas((60, 40), [OPEN] * 2, MUSCL, (-0.75, -0.5), (0.75, 0.5), solid=solid)
        after = run(model, start(model, 1.4, (velocity, 0.0), 1.0), end)
        return np.asarray(seen(model, after)[2]), *(np.asarray(x) for x in centers(model))

    def distance(t, x, y):
        return jnp.hypot(x, y) - radius

    fixed, x, y = pressed(Solid(distance), -speed)
    moving, _, _ = pressed(drifting((-speed * end, 0.0), (speed, 0.0), radius), 0.0)
    # The body is then at zero in both.
    off = np.hypot(x, y) > radius
    near = off & (np.hypot(x, y) < 2 * radius)
    error = np.abs(moving - fixed)[near].mean()
    # The sound of a start from a jump, sharp or over a cell: of second order but at its front.
    assert error < 0.04 * np.abs(fixed - 1)[near].max()


# ---------------------------------------------------------------------- balances, devices, derivatives


@pytest.mark.parametrize("params", [IDEAL, pytest.param(VISCOUS, marks=pytest.mark.slow)], ids=["slip", "no slip"])
def test_a_box_gains_what_bodies_give(params):
    model = gas((24, 24), [PERIODIC] * 2, MUSCL, solid=drifting((0.48, 0.48), (0.7, -0.3), 0.27))
    bump = 0.2 * sum(jnp.sin(2 * jnp.pi * x) for x in centers(model))
    state, t = start(model, 1 + bump / 2, [0.5 + bump] * 2, 1 + bump, params=params), 0.03

    @functools.partial(jax.jit, compiler_options=QUICK)
    def both(state):
        def amounts(t, state):
            found = model.diagnostics(t, state, params)
            return {name: found[name] for name in ("mass", "momentum_x", "momentum_y", "energy")}

        rate = model.rhs(t, state, params)
        return jax.jvp(amounts, (t, state), (1.0, rate))[1], model.diagnostics(t, state, params)

    gained, found = both(state)
    names = {
        "mass": "mass_from_bodies",
        "momentum_x": "force_x",
        "momentum_y": "force_y",
        "energy": "energy_from_bodies",
    }
    for name, told in names.items():
        sign = -1 if told.startswith("force") else 1
        # Sums of a thousand rates, which are of order 100.
        np.testing.assert_allclose(sign * float(found[told]), float(gained[name]), atol=1e-11)
    assert abs(float(found["force_x"])) > 0.01


def test_shares_are_smooth_and_sum_to_lengths():
    model = gas((16,), [OPEN], MUSCL)
    for place in (0.31, 0.34375, 0.36):
        # Any multiple of a distance.
        off = cells_off(model.domain, model.plain, 3.0 * (centers(model)[0] - place))
        np.testing.assert_allclose(np.asarray(off), (np.asarray(centers(model)[0]) - place) * 16, atol=1e-13)
        assert float(gas_share(off).sum()) / 16 == pytest.approx(1 - place, rel=1e-12)
    cells = jnp.array([-0.5, 0.0, 0.5, 1.0, 1.5])
    np.testing.assert_allclose(own_share(cells), [0, 0, 0.5, 1, 1])
    slope = jax.vmap(jax.grad(own_share))(cells)
    # A smooth step: its slope vanishes at both ends.
    np.testing.assert_allclose(slope, [0, 0, 1.5, 0, 0])


def force_after_steps(place, velocity, wind):
    """The force along x on a ball that drifts through a wind, after three steps."""
    solid = drifting(place, velocity, 0.2)
    model = gas((24, 24), [PERIODIC] * 2, MUSCL, solid=Solid(solid.distance, solid.velocity, True, 300))
    state = start(model, 1.0, wind, 1.0)
    for step in range(3):
        slope = model.rhs(0.004 * step, state, IDEAL)
        state = jax.tree.map(lambda u, k: u + 0.004 * k, state, slope)
    return model.diagnostics(0.012, state, IDEAL)["force_x"]


@pytest.mark.slow
def test_the_state_does_not_jump_as_the_surface_passes_a_cell():
    """The push of a body on the gas, over starts within a cell, changes as its derivative says."""

    def force(place):
        return force_after_steps((place, 0.5), (0.6, 0.2), (0.1, 0.0))

    places = 0.5 + jnp.linspace(0, 1 / 24, 41)
    value, slope = jax.jit(lambda places: jax.lax.map(jax.value_and_grad(force), places), compiler_options=QUICK)(
        places
    )
    step = places[1] - places[0]
    # The mean of the derivative is the secant to the error of the trapezoidal rule; a jump would add to one alone.
    change, mean = value[1:] - value[:-1], 0.5 * step * (slope[1:] + slope[:-1])
    assert float(jnp.abs(change - mean).max()) < 0.1 * float(jnp.abs(change).max())


CONFIGURED = {
    "grid": {"shape": [48, 32], "upper": [1.5, 1.0]},
    "physics": {"reconstruction": "mc", "variables": "primitive"},
    "parameters": {"speed": 0.6},
    "boundaries": {"x": "outflow", "y": "slip"},
    "coefficients": {
        "solid": {"ball": {"center": ["0.5 + speed*t", 0.5], "radius": 0.2}},
        "solid_velocity": ["speed", "0"],
    },
    "initial": {"density": 1.4, "velocity": ["0", "0"], "pressure": 1},
    "time": {"end": 0.06, "output_every": 0.06, "dt": 0.01},
    "precision": "float64",
}


@pytest.mark.slow
def test_a_body_that_moves_across_devices_is_that_of_one(tmp_path):
    def last(**changes):
        output = {"root": str(tmp_path), "report": False, "animation": False}
        folder = sj.configure("compressible", **CONFIGURED, **changes, output=output).run().folder
        with sj.open_run(folder) as found:
            return found["pressure"].isel(time=-1).load(), found["force_x"].isel(time=-1).load()

    whole, split = last(), last(mesh={"x": 2, "y": 4})
    # The body pushes back: nothing is compared with nothing.
    assert np.isfinite(whole[0]).all() and abs(float(whole[1])) > 0.1
    # Roundings of six steps.
    np.testing.assert_allclose(split[0], whole[0], rtol=1e-13)
    np.testing.assert_allclose(split[1], whole[1], rtol=1e-11)
    # It pushes the gas before it.
    assert float(whole[0].sel(x=0.78, y=0.5, method="nearest")) > 1.1


@pytest.mark.slow
def test_force_has_a_derivative_by_the_speed():
    def force(speed):
        return force_after_steps((0.5, 0.5), (speed, 0.0), (0.0, 0.1))

    program = jax.jit(force, compiler_options=QUICK)
    slope, step = jax.jit(jax.grad(force), compiler_options=QUICK)(0.6), 1e-5
    expected = (program(0.6 + step) - program(0.6 - step)) / (2 * step)
    # Rounding over the step, and its square times a third derivative.
    assert float(slope) == pytest.approx(float(expected), rel=1e-5)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "coefficients, told",
    [
        ({"solid": "sqrt(x**2 + y**2) - 0.1 - t"}, "solid_velocity is missing"),
        ({"solid_velocity": ["1", "0"]}, "expected beside coefficients.solid"),
    ],
)
def test_what_is_missing_of_a_motion_is_told(coefficients, told):
    with pytest.raises(ConfigurationError, match=told):
        sj.configure(sj.Compressible, **{**CONFIGURED, "coefficients": coefficients})


@pytest.mark.parametrize(
    "solid, told",
    [
        (Solid(lambda t, x, y: x - t, moving=True), "velocity of bodies that move"),
        (Solid(lambda t, x, y: x - 0.5, free=("x",)), "at rest or that move as they are told"),
    ],
)
def test_motions_that_a_gas_does_not_take_are_refused(solid, told):
    with pytest.raises(ConfigurationError, match=told):
        gas((16, 16), [PERIODIC] * 2, MUSCL, solid=solid)
