"""Incompressible flow against exact solutions at second order, its conserved quantities and its symmetries."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
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

from simjax.core.boundary import Inflow, NoSlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.flow.incompressible import Incompressible, State
from simjax.models.gas.boundaries import GasOutflow
from simjax.stepping.simulate import Schedule

# ---------------------------------------------------------------- order


@pytest.mark.slow
def test_advected_decaying_vortices_at_second_order():
    viscosity, end = 0.05, 0.8
    exact = advected_vortices(viscosity, (1.0, 0.6))

    def error(n):
        model = Incompressible(Domain(Grid((n, n), upper=(TAU, TAU))), [PERIODIC, PERIODIC])
        # Third order in time with eighty steps: about 1e-6, nothing beside the 1e-3 of space.
        schedule = Schedule(end, dt=end / 80)
        final = advance(model, parameters(viscosity), sampled(model, exact), schedule, integrator="ssprk3").state
        return difference(final, sampled(model, exact, end))

    coarse, fine = error(32), error(64)
    assert 1.9 <= np.log2(coarse / fine) <= 2.1, (coarse, fine)
    assert fine < 4e-3


@pytest.mark.slow
def test_kinetic_energy_and_pressure_of_decaying_vortices():
    """E = exp(-4 nu t) / 4, p = (cos 2x + cos 2y) / 4, vorticity = 2 sin x sin y."""
    viscosity, errors = 0.01, []
    for n in (32, 64):
        model = Incompressible(Domain(Grid((n, n), upper=(TAU, TAU))), [PERIODIC, PERIODIC])
        state, params = sampled(model, advected_vortices(viscosity, (0.0, 0.0))), parameters(viscosity)
        observed = jax.jit(model.observe)(0.0, state, params)
        diagnostics = jax.jit(model.diagnostics)(0.0, state, params)
        assert abs(float(diagnostics["kinetic_energy"]) - 0.25) < 1e-14  # the sampled sum is exact for these waves
        x, y = model.domain.coordinates((0.5, 0.5))
        errors.append(
            [
                largest(observed["pressure"] - (jnp.cos(2 * x) + jnp.cos(2 * y)) / 4),
                largest(observed["vorticity"] - 2 * jnp.sin(x) * jnp.sin(y)),
            ]
        )
    orders = np.log2(errors[0]) - np.log2(errors[1])
    assert np.all(np.abs(orders - 2) < 0.1), (errors, orders)
    # Published example: nu = 0.01, t = 10 gives E = 0.16758001150890983; here to second order on 64^2.
    final = advance(model, params, state, Schedule(10.0, dt=0.1), integrator="ssprk3", observe=model.diagnostics)
    assert float(final.observed["kinetic_energy"][0]) == pytest.approx(0.16758001150890983, rel=5e-4)


def test_manufactured_flow_under_a_moving_lid_at_second_order():
    end, case = 0.3, Manufactured
    lid = NoSlipWall((case.u, 0.0))

    def error(n):
        model = Incompressible(Domain(Grid((n, n))), [STILL, (NoSlipWall(), lid)], (case.force_x, case.force_y))
        # Within the diffusive limit of the finest grid; third order in time falls faster than h^2.
        schedule = Schedule(end, dt=end / (4 * n))
        start = sampled(model, (case.u, case.v))
        final = advance(model, parameters(case.viscosity), start, schedule, integrator="ssprk3").state
        return difference(final, sampled(model, (case.u, case.v), end))

    coarse, fine = error(32), error(64)
    assert 1.9 <= np.log2(coarse / fine) <= 2.1, (coarse, fine)


# ---------------------------------------------------------------- conservation

BOXES = {
    "2-D periodic": ((12, 9), [PERIODIC, PERIODIC]),
    "2-D no slip": ((7, 10), [STILL, STILL]),
    "2-D slip and periodic": ((8, 5), [SLIP, PERIODIC]),
    "2-D one cell": ((1, 6), [PERIODIC, STILL]),
    "3-D periodic": ((6, 5, 4), [PERIODIC] * 3),
    "3-D mixed": ((4, 6, 5), [STILL, PERIODIC, SLIP]),
}
each_box = pytest.mark.parametrize("shape, sides", BOXES.values(), ids=BOXES)


def box(shape, sides, **kwargs):
    lengths = (1.3, 0.7, 1.1)[: len(shape)]
    return Incompressible(Domain(Grid(shape, upper=lengths)), sides, **kwargs)


@each_box
def test_projection_leaves_no_divergence_and_projects(shape, sides):
    """div(P u) = 0, P P u = P u, P u orthogonal to u - P u: all to rounding."""
    model = box(shape, sides)
    rng = np.random.default_rng(3)
    raw = model.domain.impose(tuple(jnp.asarray(rng.normal(size=shape)) for _ in shape), model.layouts)
    project = jax.jit(model.constrain)
    once = project(0.0, 0.0, State(raw), parameters())
    twice = project(0.0, 0.0, once, parameters())
    diagnostics = jax.jit(model.diagnostics)(0.0, once, parameters())
    # Velocities of order one over spacings of at least 0.07: differences of 1e-15 over 0.07, summed over axes.
    assert float(diagnostics["max_divergence"]) < 2e-13
    assert difference(once, twice) < 1e-14
    removed = [u - p for u, p in zip(raw, once.velocity, strict=True)]
    inner = sum(float(jnp.vdot(p, g)) for p, g in zip(once.velocity, removed, strict=True))
    assert abs(inner) < 1e-13 * sum(float(jnp.vdot(u, u)) for u in raw)


@each_box
@pytest.mark.slow
def test_advection_does_no_work(shape, sides):
    """<u, rhs(u)> = 0 without viscosity, for any flow that obeys its walls and continuity."""
    model = box(shape, sides)
    state = random_flow(model)
    slopes = jax.jit(model.rhs)(0.0, state, parameters()).velocity
    work = sum(float(jnp.vdot(u, k)) for u, k in zip(state.velocity, slopes, strict=True))
    fastest = largest(*state.velocity)
    size = fastest**3 / min(model.domain.grid.spacing) * model.domain.grid.cells
    assert abs(work) <= 1e-14 * size
    assert 1 in shape or largest(*slopes) > 0.1 * fastest**2, "advection vanishes: nothing is tested"


def test_viscosity_removes_energy_at_twice_the_enstrophy():
    """d(energy)/dt = -2 nu enstrophy holds exactly for the discrete operators of a periodic flow."""
    for shape in ((12, 9), (6, 5, 4)):
        model, viscosity = box(shape, [PERIODIC] * len(shape)), 0.3
        state = random_flow(model)
        slopes = jax.jit(model.rhs)(0.0, state, parameters(viscosity)).velocity
        loss = sum(float(jnp.vdot(u, k)) for u, k in zip(state.velocity, slopes, strict=True)) / model.domain.grid.cells
        enstrophy = float(jax.jit(model.diagnostics)(0.0, state, parameters())["enstrophy"])
        assert loss == pytest.approx(-2 * viscosity * enstrophy, rel=1e-12)


@pytest.mark.slow
def test_momentum_is_conserved_to_rounding():
    for shape in ((12, 9), (6, 5, 4)):
        model = box(shape, [PERIODIC] * len(shape))
        state = random_flow(model)
        final = advance(model, parameters(0.02), state, Schedule(0.02, dt=0.002), integrator="euler").state
        assert difference(state, final) > 0.1, "the flow must have changed"
        for before, after in zip(state.velocity, final.velocity, strict=True):
            # Sums of about a hundred numbers of order one, each rounded ten times.
            assert abs(float(jnp.sum(after) - jnp.sum(before))) < 1e-12


def test_drag_damps_a_uniform_flow_as_its_scheme_says():
    """du/dt = -r u by the classical scheme: 1 - z + z^2/2 - z^3/6 + z^4/24 per step, z = r dt."""
    model, steps, z = box((5, 4), [PERIODIC] * 2), 10, 0.7 * 0.1
    state = State((jnp.full((5, 4), 2.0), jnp.full((5, 4), -1.0)))
    final = advance(model, parameters(0.01, 0.7), state, Schedule(1.0, dt=0.1)).state
    factor = (1 - z + z**2 / 2 - z**3 / 6 + z**4 / 24) ** steps
    for u, start in zip(final.velocity, (2.0, -1.0), strict=True):
        np.testing.assert_allclose(u, start * factor, rtol=1e-13)


def test_fluid_at_rest_under_gravity_stays_at_rest_in_a_hydrostatic_pressure():
    model = box((5, 8), [STILL, STILL], forces=(None, lambda t, x, params: jnp.full_like(x[1], -9.81)))
    state = State((jnp.zeros((5, 8)),) * 2)
    final = advance(model, parameters(0.1), state, Schedule(0.05, dt=0.01), integrator="euler").state
    assert largest(*final.velocity) < 1e-14
    pressure = jax.jit(model.pressure)(0.0, state, parameters(0.1))
    y = model.domain.coordinates((0.5, 0.5))[1]
    np.testing.assert_allclose(pressure, jnp.broadcast_to(-9.81 * (y - 0.35), (5, 8)), atol=1e-13)


# ---------------------------------------------------------------- symmetry


def lid_flow(shape, sides, seed=5):
    model = box(shape, sides)
    return model, random_flow(model, seed)


@pytest.mark.slow
def test_exchanging_the_axes_exchanges_the_flow():
    shape, schedule = (8, 6), Schedule(0.05, courant=0.5, max_steps=20)
    lid = NoSlipWall((0.8, 0.0))
    model, state = lid_flow(shape, [SLIP, (NoSlipWall(), lid)])
    turned = Incompressible(Domain(Grid(shape[::-1], upper=(0.7, 1.3))), [(NoSlipWall(), NoSlipWall((0.0, 0.8))), SLIP])
    final = advance(model, parameters(0.05), state, schedule, integrator="heun").state
    other = State(tuple(u.T for u in state.velocity[::-1]))
    other = advance(turned, parameters(0.05), other, schedule, integrator="heun").state
    assert difference(final, state) > 0.1, "the flow must have changed"
    assert difference(final, State(tuple(u.T for u in other.velocity[::-1]))) < 1e-13


def mirrored(state, axis, wall):
    """The flow seen in a mirror normal to `axis`: faces i and n - i change places, their velocity its sign."""
    velocity = []
    for component, u in enumerate(state.velocity):
        if component != axis:
            velocity.append(jnp.flip(u, axis))
            continue
        flipped = -jnp.roll(jnp.flip(u, axis), 1, axis)
        velocity.append(flipped if not wall else jnp.where(jnp.arange(u.shape[axis])[:, None] == 0, 0.0, flipped))
    return State(tuple(velocity))


@pytest.mark.parametrize("sides", [PERIODIC, STILL, SLIP], ids=["periodic", "no slip", "slip"])
@pytest.mark.slow
def test_a_mirror_image_flows_as_the_mirror_image(sides):
    shape, schedule = (9, 6), Schedule(0.05, dt=0.01)
    model, state = lid_flow(shape, [sides, (NoSlipWall(), NoSlipWall((0.8, 0.0)))])
    image = box(shape, [sides, (NoSlipWall(), NoSlipWall((-0.8, 0.0)))])
    final = advance(model, parameters(0.05), state, schedule, integrator="euler").state
    wall = sides is not PERIODIC
    other = advance(image, parameters(0.05), mirrored(state, 0, wall), schedule, integrator="euler").state
    assert difference(final, state) > 0.1, "the flow must have changed"
    assert difference(mirrored(final, 0, wall), other) < 1e-13


@pytest.mark.slow
def test_a_flow_uniform_along_one_axis_is_the_two_dimensional_flow():
    """Whichever axis it is uniform along: this ties all three components of the 3-D operators to the 2-D ones."""
    sides = [PERIODIC, (NoSlipWall(), NoSlipWall((0.8, 0.0)))]
    flat, state = lid_flow((8, 6), sides)
    schedule, params = Schedule(0.05, dt=0.01), parameters(0.05)
    final = advance(flat, params, state, schedule, integrator="euler").state
    for across in range(3):
        plane = [axis for axis in range(3) if axis != across]
        order = {plane[0]: 0, plane[1]: 1}
        speed = [0.0, 0.0, 0.0]
        speed[plane[0]] = 0.8
        all_sides = [PERIODIC] * 3
        all_sides[plane[1]] = (NoSlipWall(), NoSlipWall(tuple(speed)))
        sizes = [3, 3, 3]
        lengths = [1.0, 1.0, 1.0]
        for axis, k in order.items():
            sizes[axis], lengths[axis] = (8, 6)[k], (1.3, 0.7)[k]
        model = Incompressible(Domain(Grid(sizes, upper=lengths)), all_sides)

        def extruded(u, across=across, sizes=tuple(sizes)):
            return jnp.broadcast_to(jnp.expand_dims(u, across), sizes)

        velocity = [jnp.zeros(sizes)] * 3
        for axis, k in order.items():
            velocity[axis] = extruded(state.velocity[k])
        other = advance(model, params, State(tuple(velocity)), schedule, integrator="euler").state
        assert largest(other.velocity[across]) < 1e-14
        for axis, k in order.items():
            assert largest(other.velocity[axis] - extruded(final.velocity[k])) < 1e-13


# ---------------------------------------------------------------- walls

# Closed series, times in H^2 / nu: Couette's u(H/2) / U and Poiseuille's u(H/2) / (G H^2 / 8 nu).
COUETTE = {0.01: 0.00040695201744495035, 0.05: 0.1138441965707046, 0.1: 0.26275626981012545, 0.2: 0.4115664301261921}
POISEUILLE = {0.01: 0.0799922973344599, 0.05: 0.3703863178835388, 0.1: 0.615352514262608, 0.2: 0.8566368905374433}


@pytest.mark.parametrize("lid, force, series, axis", [(1.0, 0.0, COUETTE, 0), (0.0, 8.0, POISEUILLE, 1)])
@pytest.mark.slow
def test_start_up_of_couette_and_poiseuille_flow_at_second_order(lid, force, series, axis):
    """From rest between walls normal to `axis`; the middle of an odd number of cells is a cell."""
    along, moving = 1 - axis, tuple(lid * (k != axis) for k in range(2))

    def middle(n):
        shape = (2, n) if axis == 1 else (n, 2)
        sides = [PERIODIC, PERIODIC]
        sides[axis] = (NoSlipWall(), NoSlipWall(moving))
        forces = [None, None]
        forces[along] = lambda t, x, params: jnp.full_like(x[axis], force)
        model = Incompressible(Domain(Grid(shape)), sides, forces)
        observe = lambda t, state, params: jnp.take(state.velocity[along], n // 2, axis=axis)[0]  # noqa: E731
        state = State((jnp.zeros(shape),) * 2)
        schedule = Schedule(0.01, dt=0.4 / n**2)
        return advance(
            model, parameters(1.0), state, schedule, frames=20, integrator="midpoint", observe=observe
        ).observed

    frames = np.array([round(t / 0.01) - 1 for t in series])
    errors = [np.abs(middle(n)[frames] - np.array([*series.values()])).max() for n in (11, 33)]
    order = np.log(errors[0] / errors[1]) / np.log(3)
    assert 1.85 <= order <= 2.15, (errors, order)
    assert errors[1] < 1e-3


# Steady flow under a lid at Re = 100: extrapolated from 512^2 (agrees with Botella and Peyret 1998 to 8e-6 at Re 1000;
# Marchi, Suero and Araki 2009 have -0.2140417, 0.1795728, -0.253803).
CAVITY = {"u_min": -0.21404244425077193, "v_max": 0.1795729675565961, "v_min": -0.253803266003406}


@functools.cache
def cavity_extrema(n):
    """Extrema of u on x = 1/2 and of v on y = 1/2, by the parabola through the three largest values."""
    model = Incompressible(Domain(Grid((n, n))), [STILL, (NoSlipWall(), NoSlipWall((1.0, 0.0)))])
    state = State((jnp.zeros((n, n)),) * 2)
    # Stable for Euler: diffusion needs dt < h^2 / (4 nu), advection dt < 2 nu / u^2. The steady state knows no dt.
    schedule = Schedule(24.0, dt=0.8 / (4 * 0.01 * n**2))
    u, v = advance(model, parameters(0.01), state, schedule, integrator="euler", options=None).state.velocity
    u, v = np.asarray(u)[n // 2], np.asarray(v)[:, n // 2]
    return {"u_min": -summit(-u), "v_max": summit(v), "v_min": -summit(-v)}


def summit(values):
    k = int(np.argmax(values))
    below, here, above = values[k - 1 : k + 2]
    return here + (above - below) ** 2 / (8 * (2 * here - above - below))


def relative_errors(n):
    return {name: abs(value / CAVITY[name] - 1) for name, value in cavity_extrema(n).items()}


@pytest.mark.slow
def test_cavity_converges_at_second_order():
    coarse, fine = relative_errors(32), relative_errors(64)
    for name in CAVITY:
        assert fine[name] < 0.02, fine
        assert 1.8 <= np.log2(coarse[name] / fine[name]) <= 2.2, (name, coarse, fine)


@pytest.mark.slow
def test_cavity_on_a_fine_grid():
    assert max(relative_errors(128).values()) < 0.005


@pytest.mark.slow
def test_taylor_green_vortex_in_three_dimensions():
    """Re = 100: energy at t = 1..10 and the peak of dissipation, against a spectral solution converged to 1e-4."""
    energy = {
        1: 0.11748093391276405,
        2: 0.10904760902952829,
        4: 0.08681884487022272,
        6: 0.06123809215512848,
        8: 0.03997411267998671,
        10: 0.026199697575884976,
    }
    n, viscosity = 64, 0.01
    model = Incompressible(Domain(Grid((n,) * 3, upper=(TAU,) * 3)), [PERIODIC] * 3)
    state = sampled(
        model,
        (
            lambda t, x, y, z: jnp.sin(x) * jnp.cos(y) * jnp.cos(z),
            lambda t, x, y, z: -jnp.cos(x) * jnp.sin(y) * jnp.cos(z),
            lambda t, x, y, z: 0.0 * (x + y + z),
        ),
    )
    schedule = Schedule(0.2, dt=0.05)
    observed = advance(
        model,
        parameters(viscosity),
        state,
        schedule,
        frames=50,
        integrator="kutta3",
        observe=model.diagnostics,
        options=None,
    ).observed
    for t, expected in energy.items():
        # Second order at this resolution: the grid's error is about 1e-3 before the peak and 1e-2 after it.
        assert float(observed["kinetic_energy"][5 * t - 1]) == pytest.approx(expected, rel=0.02)
    dissipation = 2 * viscosity * np.asarray(observed["enstrophy"])
    assert dissipation.max() == pytest.approx(0.012975433794095893, rel=0.02)
    assert 0.2 * (1 + dissipation.argmax()) == pytest.approx(4.8868, abs=0.21)


# ---------------------------------------------------------------- refusals


def test_refuses_what_it_cannot_solve():
    plane = Domain(Grid((4, 4)))
    with pytest.raises(ConfigurationError, match=r"boundaries\.y: .*got GasOutflow"):
        Incompressible(plane, [PERIODIC, (Inflow(), GasOutflow())])
    with pytest.raises(ConfigurationError, match="expected at least 2 axes for model=incompressible"):
        Incompressible(Domain(Grid((4,))), [PERIODIC])
