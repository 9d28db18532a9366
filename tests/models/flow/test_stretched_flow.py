"""Incompressible flow on stretched grids: order, what is conserved, gradients, and boundary layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK
from exact_flows import (
    SLIP,
    STILL,
    TAU,
    Manufactured,
    advance,
    advected_vortices,
    difference,
    largest,
    parameters,
    random_flow,
    sampled,
)

import simjax as sj
from simjax.core.boundary import Inflow, NoSlipWall
from simjax.core.domain import Domain
from simjax.core.mappings import faces_and_centers, lines, tanh
from simjax.errors import ConfigurationError
from simjax.grid import Grid, Lines
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow import passive_scalar
from simjax.models.flow.incompressible import Incompressible, State
from simjax.stepping.simulate import Schedule, integrate

WAVY, WALLS = "s + 0.1*sin(2*pi*s)", "tanh(1.5*(2*s - 1))"  # widths differ by factors of four and of six
BOXES = {
    "2-D periodic": ((12, 9), [PERIODIC, PERIODIC], (WAVY, WAVY)),
    "2-D walls": ((7, 10), [STILL, SLIP], (None, WALLS)),
    "3-D mixed": ((5, 6, 4), [STILL, PERIODIC, SLIP], (WALLS, None, "exp(2*s)")),
}
each_box = pytest.mark.parametrize("shape, sides, formulas", BOXES.values(), ids=BOXES)


def stretched(shape, formulas, upper=(1.3, 0.7, 1.1)):
    upper = upper[: len(shape)]
    axes = zip(formulas, shape, upper, strict=True)
    return Grid(shape, upper=upper, stretch=[f if f is None else lines("formula", f, n, 0.0, b) for f, n, b in axes])


def volumes(model):
    """Of the cells of each component of the velocity, in mean ones."""
    grid, found = model.domain.grid, []
    for component in range(grid.ndim):
        widths = [grid.widths(axis) / grid.mean_spacing[axis] for axis in range(grid.ndim)]
        own = widths[component]
        before = own[-1] if model.layouts[0].is_periodic(component) else own[0]
        widths[component] = 0.5 * (own + np.concatenate([[before], own[:-1]]))
        found.append(np.prod(np.meshgrid(*widths, indexing="ij"), axis=0))
    return found


@each_box
@pytest.mark.slow
def test_without_viscosity_energy_and_momentum_are_kept_and_no_divergence_is_left(shape, sides, formulas):
    model = Incompressible(Domain(stretched(shape, formulas)), sides)
    state = random_flow(model)

    @jax.jit
    def look(state):
        slopes = model.rhs(0.0, state, parameters()).velocity
        return slopes, model.diagnostics(0.0, state, parameters()), model.constrain(0.0, 0.0, state, parameters())

    slopes, diagnostics, again = look(state)
    narrowest = min(model.domain.grid.widths(axis).min() for axis in range(len(shape)))
    # Velocities of order one, to some roundings, over the least width.
    assert diagnostics["max_divergence"] < 1e-14 * largest(*state.velocity) / narrowest
    assert difference(state, again) < 1e-13
    weighed = [v * u for v, u in zip(volumes(model), state.velocity, strict=True)]
    energy = 0.5 * sum(float(jnp.vdot(v, u)) for v, u in zip(weighed, state.velocity, strict=True)) / np.prod(shape)
    assert float(diagnostics["kinetic_energy"]) == pytest.approx(energy, rel=1e-14)
    powers = [v * k for v, k in zip(weighed, slopes, strict=True)]
    # A sum of a few hundred terms, each to rounding.
    assert abs(sum(np.sum(p) for p in powers)) < 1e-14 * sum(np.sum(np.abs(p)) for p in powers)
    assert largest(*slopes) > 0.1
    if all(pair is PERIODIC for pair in sides):
        for v, k in zip(volumes(model), slopes, strict=True):
            assert abs(np.sum(v * k)) < 1e-14 * np.sum(np.abs(v * k))


def test_viscosity_removes_energy_at_twice_the_enstrophy():
    """As on uniform grids: the Laplacian is grad div - curl curl exactly."""
    model, viscosity = Incompressible(Domain(stretched((12, 9), (WAVY, WAVY))), [PERIODIC] * 2), 0.3
    state = random_flow(model)

    @jax.jit
    def look(state):
        return model.rhs(0.0, state, parameters(viscosity)).velocity, model.diagnostics(0.0, state, parameters())

    slopes, diagnostics = look(state)
    terms = zip(volumes(model), state.velocity, slopes, strict=True)
    loss = sum(float(np.sum(v * u * k)) for v, u, k in terms) / model.domain.grid.cells
    assert loss == pytest.approx(-2 * viscosity * float(diagnostics["enstrophy"]), rel=1e-12)


@pytest.mark.slow
def test_equal_widths_give_the_flow_of_a_uniform_grid():
    shape, lid = (6, 8), NoSlipWall((0.8, 0.0))
    results = []
    for grid in (Grid(shape, upper=(1.3, 0.7)), stretched(shape, ("s", "s"))):
        model, params = Incompressible(Domain(grid), [PERIODIC, (NoSlipWall(), lid)]), parameters(0.05, 0.1)

        @jax.jit
        def look(state, model=model, params=params):
            state = model.constrain(0.0, 0.0, state, params)
            looked = model.observe(0.0, state, params), model.diagnostics(0.0, state, params)
            looked[1].pop("max_divergence")  # rounding itself
            return state, model.rhs(0.0, state, params), looked, jnp.min(model.stable_dt(state, params))

        random = np.random.default_rng(0)
        results.append(look(State(tuple(jnp.asarray(random.normal(size=shape)) for _ in shape))))
    # Rounding, times the hundred over which second differences of the velocity enter the pressure.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11), *results)


def test_a_uniform_velocity_stays_one():
    model = Incompressible(Domain(stretched((8, 6), (WAVY, WAVY))), [PERIODIC] * 2)
    state = State((jnp.full((8, 6), 2.0), jnp.full((8, 6), -1.0)))
    assert (
        largest(*jax.jit(model.rhs)(0.0, state, parameters(0.1)).velocity) < 1e-12
    )  # rounding of 4 over the least width


@pytest.mark.slow
def test_advected_decaying_vortices_are_of_second_order():
    exact, end = advected_vortices(0.05, (1.0, 0.6)), 0.8

    def errors(n):
        """Of the velocity at the end; of the pressure and the vorticity at the start, which the drift leaves."""
        grid = stretched((n, n), ("s + 0.08*sin(2*pi*s)",) * 2, (TAU, TAU))
        model, params = Incompressible(Domain(grid), [PERIODIC] * 2), parameters(0.05)
        start, (x, y) = sampled(model, exact), model.domain.coordinates((0.5, 0.5))
        observed = jax.jit(model.observe)(0.0, start, params)
        schedule = Schedule(end, dt=end / 100)  # as on uniform grids: errors in time are nothing beside those in space
        final = advance(model, params, start, schedule, integrator="ssprk3").state
        return np.array(
            [
                difference(final, sampled(model, exact, end)),
                largest(observed["pressure"] - (jnp.cos(2 * x) + jnp.cos(2 * y)) / 4),
                largest(observed["vorticity"] - 2 * jnp.sin(x) * jnp.sin(y)),
            ]
        )

    coarse, fine = errors(24), errors(48)
    orders = np.log2(coarse / fine)
    assert np.all((orders > 1.8) & (orders < 2.2)), (coarse, fine, orders)


@pytest.mark.slow
def test_flow_under_a_moving_lid_is_of_second_order():
    end, case = 0.3, Manufactured
    lid = NoSlipWall((case.u, 0.0))

    def error(n):
        grid = stretched((n, n), ("tanh(1.2*(2*s - 1))",) * 2, (1.0, 1.0))
        model = Incompressible(Domain(grid), [STILL, (NoSlipWall(), lid)], (case.force_x, case.force_y))
        schedule = Schedule(end, dt=end / (0.5 * n * n))  # within the diffusive limit of the finest cells
        start = sampled(model, (case.u, case.v))
        final = advance(model, parameters(case.viscosity), start, schedule, integrator="ssprk3").state
        return difference(final, sampled(model, (case.u, case.v), end))

    coarse, fine = error(24), error(48)
    assert 1.9 <= np.log2(coarse / fine) <= 2.1, (coarse, fine)


@pytest.mark.slow
def test_a_decaying_flow_in_space_is_of_second_order():
    """Arnold, Beltrami and Childress' flow, whose vorticity is its velocity: it decays as exp(-nu t)."""
    viscosity, end, (a, b, c) = 0.05, 0.2, (1.0, 0.8, 0.6)
    exact = (
        lambda t, x, y, z: jnp.exp(-viscosity * t) * (a * jnp.sin(z) + c * jnp.cos(y)),
        lambda t, x, y, z: jnp.exp(-viscosity * t) * (b * jnp.sin(x) + a * jnp.cos(z)),
        lambda t, x, y, z: jnp.exp(-viscosity * t) * (c * jnp.sin(y) + b * jnp.cos(x)),
    )

    def error(n):
        grid = stretched((n,) * 3, ("s + 0.08*sin(2*pi*s)",) * 3, (TAU,) * 3)
        model = Incompressible(Domain(grid), [PERIODIC] * 3)
        final = advance(model, parameters(viscosity), sampled(model, exact), Schedule(end, dt=0.02)).state
        return difference(final, sampled(model, exact, end))

    coarse, fine = error(16), error(32)
    assert 1.85 <= np.log2(coarse / fine) <= 2.1, (coarse, fine)


def stokes_error(cells: int, formula: str | None, depth: float = 0.02) -> float:
    """Largest error, after a period, of the layer of thickness `depth` beside a wall that oscillates in its plane.

    Stokes' second problem, with a wall at rest at y = 1.
    """

    def u(t, x, y):
        """The real part of sinh(k (1 - y)) / sinh(k) exp(i 2 pi t), k = (1 + i) / depth."""
        inwards = jax.lax.complex((1 - y) / depth, (1 - y) / depth)
        share = jnp.sinh(inwards) / np.sinh(np.complex128((1 + 1j) / depth))
        return jnp.real(share) * jnp.cos(TAU * t) - jnp.imag(share) * jnp.sin(TAU * t) + 0 * x

    grid, params = stretched((2, cells), (None, formula), (1.0, 1.0)), parameters(np.pi * depth**2)
    model = Incompressible(Domain(grid), [PERIODIC, (NoSlipWall((u, 0.0)), NoSlipWall())])
    start = sampled(model, (u, lambda t, x, y: 0 * (x + y)))
    final = advance(model, params, start, Schedule(1.0, dt=1 / 600), integrator="ssprk3").state
    return largest(final.velocity[0] - sampled(model, (u, u), 1.0).velocity[0])


@pytest.mark.slow
def test_an_oscillating_boundary_layer_is_better_than_with_four_times_the_cells():
    fine = stokes_error(24, "exp(4*s)")
    # 0.0071 beside 0.0220 of 96 equal cells; of 24 it is 0.095.
    assert fine < 0.4 * stokes_error(96, None)


@pytest.mark.slow
def test_gradient_with_respect_to_the_strength_of_a_stretching():
    shape = (4, 10)
    grid = Grid(shape, stretch={"y": lines("formula", "tanh(1.5*s)", 10, 0.0, 1.0)})
    lid = NoSlipWall((0.8, 0.0))

    def loss(strength):
        domain = sj.Domain(grid, lines=[None, faces_and_centers(tanh(strength, "upper"), 10, 0.0, 1.0, jnp)])
        model = Incompressible(domain, [PERIODIC, (NoSlipWall(), lid)])
        x, y = domain.coordinates((0.5, 0.5))
        start = State((jnp.sin(TAU * x) * y * y, jnp.cos(TAU * x) * y * (1 - y)))
        params = parameters(0.02)
        start = model.constrain(0.0, 0.0, start, params)
        end = integrate(model, INTEGRATORS["euler"], params, start, dt=1e-3, steps=3)
        numbers = model.diagnostics(0.0, end, params)
        return numbers["kinetic_energy"] + 0.01 * numbers["enstrophy"] + jnp.sum(model.pressure(0.0, end, params) ** 3)

    step, value = 1e-5, jax.jit(loss, compiler_options=QUICK)
    slope = (value(1.5 + step) - value(1.5 - step)) / (2 * step)
    found = jax.jit(jax.grad(loss), compiler_options=QUICK)(1.5)
    assert abs(found - slope) < 1e-7 * abs(slope), (found, slope)  # the difference's rounding over its step


@pytest.mark.parametrize("scheme", ["van_leer", pytest.param("weno5", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_scalar_is_conserved_and_a_constant_stays_one(scheme):
    shape = (12, 10)
    grid = stretched(shape, (WAVY, WALLS))
    model = passive_scalar.PassiveScalar(Domain(grid), [PERIODIC, STILL], scheme)
    params = passive_scalar.Params(*map(jnp.asarray, (0.01, 0.0, 0.02)))
    random = np.random.default_rng(1)
    velocity = random_flow(model.flow).velocity
    start = passive_scalar.State(velocity, jnp.asarray(random.normal(size=shape)))
    end = jax.jit(lambda state: integrate(model, INTEGRATORS["euler"], params, state, dt=1e-3, steps=3))(start)
    totals = [float(model.diagnostics(0.0, state, params)["total_concentration"]) for state in (start, end)]
    assert abs(totals[1] - totals[0]) < 1e-15  # of 120 cells with 0.91 in all
    assert largest(end.concentration - start.concentration) > 0.01
    if scheme == "van_leer":  # in two directions schemes of high order have another divergence
        kept = jax.jit(model.rhs)(0.0, passive_scalar.State(velocity, jnp.full(shape, 3.0)), params).concentration
        assert largest(kept) < 1e-11  # rounding of three times velocities of order one over the least width, 0.02


@pytest.mark.slow
def test_diffusion_of_a_scalar_is_of_second_order_beside_a_scheme_of_high_order():
    def error(n):
        grid = stretched((n, n), ("s + 0.08*sin(2*pi*s)",) * 2, (TAU, TAU))
        model = passive_scalar.PassiveScalar(Domain(grid), [PERIODIC] * 2, "weno5")
        x, y = model.domain.coordinates((0.5, 0.5))
        state = passive_scalar.State((jnp.zeros((n, n)),) * 2, jnp.sin(x) * jnp.cos(y))
        params = passive_scalar.Params(*map(jnp.asarray, (0.0, 0.0, 0.3)))
        return largest(jax.jit(model.rhs)(0.0, state, params).concentration + 0.6 * jnp.sin(x) * jnp.cos(y))

    coarse, fine = error(24), error(48)
    assert 1.85 <= np.log2(coarse / fine) <= 2.1, (coarse, fine)


def test_the_time_step_follows_the_smallest_cells():
    grid, viscosity = stretched((8, 6), (WAVY, WALLS)), 0.3
    model = Incompressible(Domain(grid), [PERIODIC, SLIP])
    state = State((jnp.full((8, 6), 2.0), jnp.full((8, 6), -1.0)))
    narrow = [grid.widths(axis).min() for axis in range(2)]
    rate = 2 / narrow[0] + 1 / narrow[1] + 2 * viscosity * sum(1 / h**2 for h in narrow)
    assert float(jnp.min(model.stable_dt(state, parameters(viscosity, 0.1)))) == pytest.approx(1 / (rate + 0.1))


def test_the_energy_of_a_flow_through_the_box_is_that_of_its_velocity():
    """Of both faces in the sides of x, half a cell of unequal width each, one is stored."""
    wind = Inflow((1.0, 0.0))
    model = Incompressible(Domain(stretched((6, 4), ("exp(2*s)", WALLS))), [(wind, wind), SLIP])
    state = State((jnp.ones((6, 4)), jnp.zeros((6, 4))))
    energy = jax.jit(model.diagnostics)(0.0, state, parameters())["kinetic_energy"]
    assert abs(energy - 0.5) < 1e-15  # of 24 terms


def test_prescribed_velocities_balance_by_the_areas_of_faces():
    """What comes in along a wall of unequal cells as 2 y, and leaves by the next wall everywhere alike."""
    grid = Grid((4, 4), stretch={"y": Lines([0.0, 0.1, 0.3, 0.6, 1.0])})
    sheared = Inflow((lambda t, x, y: 2 * y, 0.0))
    Incompressible(Domain(grid), [(sheared, NoSlipWall()), (NoSlipWall(), Inflow((0.0, 1.0)))])
    with pytest.raises(ConfigurationError, match="1 m2 s-1 flows in at boundaries.x.lower, 1.1 m2 s-1 flows out"):
        Incompressible(Domain(grid), [(sheared, NoSlipWall()), (NoSlipWall(), Inflow((0.0, 1.1)))])


def test_a_pressure_solver_for_uniform_grids_is_refused():
    with pytest.raises(ConfigurationError, match="tridiagonal: expected a uniform grid, .* got grid.stretch.y"):
        Incompressible(Domain(stretched((4, 6), (None, WALLS))), [PERIODIC, STILL], pressure_solver="tridiagonal")
