"""Implicit viscosity: the Stokes problem of a stage, orders in time, steps beyond the explicit limit, refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK
from exact_flows import SLIP, STILL, TAU, advance, difference, largest, parameters, random_flow, sampled
from scipy.linalg import expm

import simjax as sj
from simjax.core.boundary import Inflow, NoSlipWall, Outflow
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.flow.incompressible import ImplicitlyViscous, State
from simjax.stepping.simulate import Schedule


def lid(t, *x):
    return 1 + 0.5 * jnp.sin(3 * t) + 0.3 * jnp.cos(TAU * x[0])


def narrow(n, axis=1, ndim=2):
    """Cells that are ten times narrower at walls than between them."""
    line = lines("formula", "tanh(4*(s - 0.5))", n, 0.0, 1.0)
    return tuple(line if k == axis else None for k in range(ndim))


MOVED = (NoSlipWall(), NoSlipWall((lid, 0.0)))
WAVY = lines("formula", "s + 0.1*sin(2*pi*s)", 9, 0.0, 1.0)
BOXES = {
    "stretched walls": (Grid((6, 10), stretch=narrow(10)), [PERIODIC, MOVED]),
    "through walls": (Grid((5, 8), stretch=narrow(8)), [SLIP, (Inflow((0.2, 0.4)), Inflow((0.0, 0.4)))]),
    "stretched ring": (Grid((6, 9), stretch=(None, WAVY)), [PERIODIC] * 2),
    "space": (Grid((4, 6, 5)), [PERIODIC, STILL, SLIP]),
}


@pytest.mark.parametrize("grid, sides", BOXES.values(), ids=BOXES)
@pytest.mark.slow
def test_a_stage_solves_its_stokes_problem(grid, sides):
    """u - a nu lap(u) - r is a gradient, and u has no divergence, with a step a hundred times too long otherwise."""
    model, params = ImplicitlyViscous(Domain(grid), sides), parameters(0.3)
    rng = np.random.default_rng(0)
    right = State(tuple(jnp.asarray(rng.normal(size=grid.shape)) for _ in model.layouts))

    @jax.jit
    def look(right):
        found = model.implicit_solve(0.3, 2.0, right, params, None)
        found = State(model.domain.impose(found.velocity, model.layouts, 0.3))
        spread = model.implicit_rhs(0.3, found, params).velocity
        left = [u - 2.0 * k - r for u, k, r in zip(found.velocity, spread, right.velocity, strict=True)]
        walls, projection = model.projection.still_walls(), model.projection
        left = model.domain.impose(tuple(left), walls)
        slopes = projection.gradient(projection.potential(projection.divergence(left, 0.0, walls)))
        rest = [one - two for one, two in zip(left, slopes, strict=True)]
        return found.velocity, rest, left, model.diagnostics(0.3, found, params)["max_divergence"]

    velocity, rest, left, divergence = look(right)
    # Roundings of what viscosity does in the narrowest cell.
    stiff = 4 * 2.0 * 0.3 / min(np.min(grid.widths(axis)) for axis in range(grid.ndim)) ** 2
    assert largest(*rest) < 1e-15 * stiff * max(largest(*velocity), largest(*left))
    assert divergence < 1e-11 * largest(*velocity)


@pytest.mark.slow
def test_a_shear_between_walls_decays_at_second_order_in_time():
    """As the exponential of what viscosity is on these cells, with steps thirty times the explicit limit and more."""
    grid, viscosity, end = Grid((2, 12), stretch=narrow(12)), 1.0, 0.1
    model = ImplicitlyViscous(Domain(grid), [PERIODIC, STILL])
    y = model.domain.coordinates((0.0, 0.5))[1]
    start = State((jnp.broadcast_to(jnp.sin(np.pi * y) + 0.2 * y, grid.shape), jnp.zeros(grid.shape)))

    def slope(profile):
        state = State((jnp.broadcast_to(profile, grid.shape), jnp.zeros(grid.shape)))
        return model.implicit_rhs(0.0, state, parameters(viscosity)).velocity[0][0]

    exact = expm(end * np.asarray(jax.jit(jax.jacfwd(slope))(jnp.zeros(12)))) @ np.asarray(start.velocity[0][0])
    scheme = sj.INTEGRATORS["ars222"]
    step = jax.jit(lambda dt, u: scheme.step(model, 0.0, dt, u, parameters(viscosity), None), compiler_options=QUICK)
    errors = []
    for steps in (4, 8):
        state = start
        for _ in range(steps):
            state = step(jnp.asarray(end / steps), state)
        errors.append(largest(np.asarray(state.velocity[0][0]) - exact))
    assert 1.8 < np.log2(errors[0] / errors[1]) < 2.3, errors


@pytest.mark.slow
def test_a_flow_under_a_lid_is_of_second_order_in_time():
    """With pressure, advection and a wall whose speed depends on time and place, against a third of the last step."""
    grid = Grid((8, 12), stretch=narrow(12))
    model, params = ImplicitlyViscous(Domain(grid), [PERIODIC, MOVED]), parameters(0.05)
    start = sampled(model, (lambda t, x, y: jnp.sin(TAU * x) * jnp.sin(np.pi * y), lambda t, x, y: 0 * (x + y)))
    start = jax.jit(model.constrain)(0.0, 0.0, start, params)

    def end(steps):
        return advance(model, params, start, Schedule(0.4, dt=0.4 / steps), integrator="ars222").state

    one, two, three = (end(steps) for steps in (10, 20, 40))
    assert 1.8 < np.log2(difference(one, two) / difference(two, three)) < 2.3


@pytest.mark.slow
def test_a_kept_bulk_velocity_drives_a_channel_with_long_steps():
    """Between walls 12 nu U / H^2, on n equal cells 1 + 2 / n^2 times less; steps are fifty times the limit."""
    model = ImplicitlyViscous(Domain(Grid((2, 9), upper=(1.3, 0.7))), [PERIODIC, STILL])
    params = dataclasses.replace(parameters(0.5), bulk_velocity=(jnp.asarray(0.8), None))
    state = State((jnp.zeros((2, 9)), jnp.zeros((2, 9))))
    run = advance(model, params, state, Schedule(6.0, dt=0.3), observe=model.diagnostics, integrator="ars222")
    assert abs(float(jnp.mean(run.state.velocity[0])) - 0.8) < 1e-14
    # A step leaves a seventh of the slowest transient, and twenty of them 1e-17.
    assert float(run.observed["driving_x"][0]) == pytest.approx(12 * 0.5 * 0.8 / 0.7**2 / (1 + 2 / 81), rel=1e-11)


@pytest.mark.slow
def test_gradient_agrees_with_differences():
    grid = Grid((4, 6), stretch=narrow(6))
    model = ImplicitlyViscous(Domain(grid), [PERIODIC, MOVED])
    start = random_flow(model)

    def energy(viscosity, size):
        params = parameters(viscosity)
        state = jax.tree.map(lambda u: size * u, start)
        state = sj.INTEGRATORS["ars222"].step(model, 0.0, jnp.asarray(0.2), state, params, None)
        return model.diagnostics(0.2, state, params)["kinetic_energy"]

    found = jax.jit(jax.value_and_grad(energy, (0, 1)), compiler_options=QUICK)
    at = [jnp.asarray(0.3), jnp.asarray(0.5)]
    gradients = found(*at)[1]
    for number, gradient in enumerate(gradients):
        above, below = (
            float(found(*(a + by if k == number else a for k, a in enumerate(at)))[0]) for by in (1e-5, -1e-5)
        )
        # A central difference: 1e-10 of truncation, and 1e-14 / 1e-5 of what the solves leave.
        assert float(gradient) == pytest.approx((above - below) / 2e-5, rel=1e-6)


# ---------------------------------------------------------------- configurations


def configured(**changes):
    sections = {
        "grid": {"shape": [8, 8], "stretch": {"y": {"tanh": {"strength": 1.5}}}},
        "physics": {"viscosity": 0.1},
        "boundaries": {"y": "no_slip"},
        "initial": {"velocity": ["1", "0"]},
        "time": {"end": 0.1, "output_every": 0.1, "integrator": "ars222"},
        "precision": "float64",
    } | changes
    return sj.configure("incompressible", **sections)


@pytest.mark.slow
def test_the_integrator_says_that_viscosity_is_implicit():
    run = configured()
    assert isinstance(run.model, ImplicitlyViscous)
    assert not isinstance(configured(time={"end": 0.1, "output_every": 0.1}).model, ImplicitlyViscous)


@pytest.mark.parametrize(
    "changes, sentence",
    [
        (
            {
                "boundaries": {
                    "y": "no_slip",
                    "x": {"lower": {"kind": "inflow", "velocity": [1, 0]}, "upper": "outflow"},
                }
            },
            "expected periodic, no_slip, slip and inflow sides alone",
        ),
        ({"boundaries": {"y": "wall_model"}}, "implicit viscosity: expected walls with a resolved layer"),
        ({"grid": {"shape": [8, 8]}, "coefficients": {"solid": "x"}}, "without bodies"),
        ({"grid": {"shape": [8, 8], "axisymmetric": True}, "boundaries": {"x": "slip"}}, "Cartesian"),
        ({"outputs": [{"balance": "momentum_x"}]}, "does not know what implicit viscosity takes"),
    ],
)
def test_flows_whose_viscosity_stays_explicit(changes, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        configured(**changes)


def test_models_of_python_refuse_the_same():
    with pytest.raises(ConfigurationError, match="slip and inflow sides alone"):
        ImplicitlyViscous(Domain(Grid((8, 8))), [(Inflow((1.0, 0.0)), Outflow()), STILL])
    with pytest.raises(ConfigurationError, match="of second order"):
        ImplicitlyViscous(Domain(Grid((8, 8))), [PERIODIC] * 2, advection="central4")
