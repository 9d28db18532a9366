"""Eddy viscosities of a flow, a frame that turns, and a mean velocity that is kept: exact cases, what is conserved."""

import dataclasses

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
    difference,
    largest,
    parameters,
    random_flow,
    sampled,
)

import simjax as sj
from simjax.core.boundary import Dirichlet, NoSlipWall
from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.flow.incompressible import Incompressible, Params, State
from simjax.models.flow.passive_scalar import PassiveScalar
from simjax.ops.eddy_viscosity import VISCOSITIES, smagorinsky, vreman, wale
from simjax.ops.stress import stress_divergence
from simjax.stepping.simulate import Schedule

WAVY = lines("formula", "s + 0.1*sin(2*pi*s)", 9, 0.0, 0.7)
BOXES = {
    "2-D periodic": (Grid((12, 9), upper=(1.3, 0.7)), [PERIODIC, PERIODIC]),
    "2-D stretched walls": (Grid((8, 9), upper=(1.3, 0.7), stretch=(None, WAVY)), [PERIODIC, STILL]),
    "3-D mixed": (Grid((5, 6, 4), upper=(1.3, 0.7, 1.1)), [STILL, PERIODIC, SLIP]),
}
each_box = pytest.mark.parametrize("grid, sides", BOXES.values(), ids=BOXES)


def numbers(viscosity=0.0, **others):
    return dataclasses.replace(parameters(viscosity), **{k: jnp.asarray(v) for k, v in others.items()})


def volumes(model):
    """Of the cells of each component, in mean ones; the lower wall's face has what no force can move."""
    grid, found = model.domain.grid, []
    for component in range(grid.ndim):
        widths = [grid.widths(axis) / grid.mean_spacing[axis] for axis in range(grid.ndim)]
        own = widths[component]
        widths[component] = 0.5 * (own + np.roll(own, 1))
        found.append(np.prod(np.meshgrid(*widths, indexing="ij"), axis=0))
    return found


def work(model, state, slopes):
    """The rate of change of the mean kinetic energy."""
    terms = zip(volumes(model), state.velocity, slopes.velocity, strict=True)
    return sum(float(np.sum(v * u * k)) for v, u, k in terms) / model.domain.grid.cells


# ---------------------------------------------------------------- stress


def test_stress_of_linear_fields_is_exact():
    """div(2 nu S) = 2 S grad nu where nu and the velocity are linear, a compressible one too."""
    rates = np.array([[0.3, -0.7, 0.2], [1.1, 0.5, -0.4], [0.6, 0.9, -1.3]])
    rise, h = np.array([0.4, -0.3, 0.8]), (0.1, 0.2, 0.3)

    def places(offset):
        axes = [h[k] * (np.arange(5) + offset[k]) for k in range(3)]
        return np.stack(np.meshgrid(*axes, indexing="ij"))

    velocity = [np.tensordot(rates[i], places([0.5 * (k != i) for k in range(3)]), 1) for i in range(3)]
    found = stress_divergence(
        [jnp.asarray(u) for u in velocity], jnp.asarray(2 + np.tensordot(rise, places([0.5] * 3), 1)), h
    )
    for k, expected in zip(found, (rates + rates.T) @ rise, strict=True):
        np.testing.assert_allclose(k, expected, rtol=0, atol=1e-12)  # roundings of 3 over 0.1^2


@each_box
@pytest.mark.slow
def test_a_constant_eddy_viscosity_is_a_viscosity(grid, sides):
    model = Incompressible(Domain(grid), sides)
    state = random_flow(model)

    @jax.jit
    def flow(params):
        return model.constrain(0.0, 0.0, model.rhs(0.0, state, params), params), jnp.min(model.stable_dt(state, params))

    one, step = flow(numbers(0.3))
    other, same = flow(numbers(0.1, eddy_viscosity=np.full(grid.shape, 0.2)))
    assert difference(one, other) < 1e-13 * largest(*one.velocity)
    # A field of viscosities limits the step cell by cell, where the flow is not fastest at the narrowest cell too.
    assert float(same) == pytest.approx(float(step), rel=1e-12)


class Thickening(Manufactured):
    """The manufactured flow where the viscosity grows from wall to wall, by 1 + x + y^2 / 2 times its own."""

    @staticmethod
    def extra(x, y):
        return 0.05 * (x + 0.5 * y * y)

    @classmethod
    def friction(cls, component):
        """The force against div(2 nu_t S), by derivatives of elementwise functions."""

        def along(f, axis):
            def slope(t, x, y):
                x, y = jnp.broadcast_arrays(x, y)
                ones, zeros = jnp.ones_like(x), jnp.zeros_like(x)
                return jax.jvp(lambda x, y: f(t, x, y), (x, y), (zeros, ones) if axis else (ones, zeros))[1]

            return slope

        u = (cls.u, cls.v)

        def stress(axis):
            return lambda t, x, y: (
                cls.extra(x, y) * (along(u[component], axis)(t, x, y) + along(u[axis], component)(t, x, y))
            )

        def force(t, position, params):
            own = (cls.force_x, cls.force_y)[component](t, position, params)
            return own - sum(along(stress(axis), axis)(t, *position) for axis in range(2))

        return force


@pytest.mark.slow
def test_manufactured_flow_with_a_viscosity_field_at_second_order():
    end, case = 0.2, Thickening

    def error(n):
        domain = Domain(Grid((n, n)))
        sides = [STILL, (NoSlipWall(), NoSlipWall((case.u, 0.0)))]
        model = Incompressible(domain, sides, (case.friction(0), case.friction(1)))
        eddies = jnp.broadcast_to(case.extra(*domain.coordinates((0.5, 0.5))), (n, n))
        params = numbers(case.viscosity, eddy_viscosity=eddies)
        # Within the diffusive limit; third order in time is nothing beside the error of space.
        schedule = Schedule(end, dt=end / (5 * n))
        final = advance(model, params, sampled(model, (case.u, case.v)), schedule, integrator="ssprk3").state
        return difference(final, sampled(model, (case.u, case.v), end))

    coarse, fine = error(16), error(32)
    assert 1.8 <= np.log2(coarse / fine) <= 2.2, (coarse, fine)


# ---------------------------------------------------------------- turbulence models


def plain(*rows):
    return [[jnp.asarray(float(g)) for g in row] for row in rows]


def test_viscosities_of_simple_flows():
    """Pure shear, rotation, strain in a plane and round an axis, with the width 0.5 in space."""
    flows = {
        "shear": plain((0, 2, 0), (0, 0, 0), (0, 0, 0)),
        "rotation": plain((0, -2, 0), (2, 0, 0), (0, 0, 0)),
        "plane strain": plain((2, 0, 0), (0, -2, 0), (0, 0, 0)),
        "round strain": plain((2, 0, 0), (0, -1, 0), (0, 0, -1)),
    }
    expected = {
        smagorinsky: (2.0, 0.0, 4.0, 12**0.5),
        # sqrt of the second invariant of g g^T over its trace: 0, 16 / 8, 16 / 8, (4 + 4 + 1) / 6.
        vreman: (0.0, 2**0.5, 2**0.5, 1.5**0.5),
        # g g has the parts -+4 in both places of a plane: s : s = 2 / 3 * 16; round the axis (4, 1, 1): s : s = 6.
        wale: (
            0.0,
            (32 / 3) ** 0.25,
            (32 / 3) ** 1.5 / (8**2.5 + (32 / 3) ** 1.25),
            6**1.5 / (6**2.5 + 6**1.25),
        ),
    }
    for function, rates in expected.items():
        for name, rate in zip(flows, rates, strict=True):
            assert float(function(flows[name], [0.5] * 3)) == pytest.approx(0.25 * rate, rel=1e-14), (function, name)
            plane = [row[:2] for row in flows[name][:2]]
            if name != "round strain":  # a plane is a slab of space
                assert float(function(plane, [0.5] * 2)) == pytest.approx(0.25 * rate, rel=1e-14), (function, name)


def test_near_a_wall_wale_grows_with_the_third_power_of_the_distance():
    """u = (y + x y, -y^2 / 2, x y) beside a wall at y = 0."""

    def found(function, y, x=0.3):
        return float(function(plain((y, 1 + x, 0), (0, -y, 0), (y, x, 0)), [0.1] * 3))

    for function, power, off in ((wale, 3, 0.05), (vreman, 1, 0.05), (smagorinsky, 0, 0.05)):
        measured = np.log10(found(function, 1e-2) / found(function, 1e-3))
        assert measured == pytest.approx(power, abs=off)


@pytest.mark.parametrize("name", VISCOSITIES)
@pytest.mark.slow
def test_only_smagorinsky_changes_a_laminar_channel(name):
    model = Incompressible(Domain(Grid((4, 10))), [PERIODIC, STILL], turbulence=name)
    y = model.domain.coordinates((0.0, 0.5))[1]
    state = State((jnp.broadcast_to(4 * y * (1 - y), (4, 10)), jnp.zeros((4, 10))))
    eddies = jax.jit(model.diagnostics)(0.0, state, numbers(0.1))["mean_eddy_viscosity"]
    # C^2 times the cell's area times the mean of |4 - 8 y|, 3.5 in place of 3.6 beside the walls.
    assert float(eddies) == (pytest.approx(0.17**2 * 0.25 * 0.1 * 1.98, rel=1e-12) if name == "smagorinsky" else 0.0)


@each_box
@pytest.mark.parametrize("name", VISCOSITIES)
@pytest.mark.slow
def test_eddies_take_energy_and_leave_momentum(name, grid, sides):
    model = Incompressible(Domain(grid), sides, turbulence=name)
    state = random_flow(model)
    slopes = jax.jit(model.rhs)(0.0, state, numbers())
    taken = work(model, state, slopes)
    still = work(model, state, jax.jit(Incompressible(Domain(grid), sides).rhs)(0.0, state, numbers()))
    assert taken < -1e-3 * abs(largest(*state.velocity)) ** 2 and abs(still) < 1e-12 * abs(taken) + 1e-11
    for axis, (v, k) in enumerate(zip(volumes(model), slopes.velocity, strict=True)):
        if all(pair is PERIODIC or (pair is SLIP and k != axis) for k, pair in enumerate(sides)):
            assert abs(np.sum(v * np.asarray(k))) < 1e-13 * np.sum(np.abs(v * np.asarray(k)))


def vortices(model):
    """Taylor-Green vortices in space."""
    return sampled(
        model,
        (
            lambda t, x, y, z: jnp.sin(x) * jnp.cos(y) * jnp.cos(z),
            lambda t, x, y, z: -jnp.cos(x) * jnp.sin(y) * jnp.cos(z),
            lambda t, x, y, z: 0.0 * (x + y + z),
        ),
    )


@pytest.mark.slow
def test_taylor_green_vortices_lose_the_energy_that_smagorinskys_model_says():
    """-dE/dt = C^2 D^2 <|S|^3> at second order, and as a step of the run does to the order of the scheme."""
    x, y, z = np.meshgrid(*(TAU * (np.arange(48) + 0.5) / 48,) * 3, indexing="ij")
    strain = 4 * (np.cos(x) * np.cos(y) * np.cos(z)) ** 2 + (np.sin(x) * np.cos(y) * np.sin(z)) ** 2
    strain += (np.cos(x) * np.sin(y) * np.sin(z)) ** 2
    theory, errors = np.mean(strain**1.5), []
    for n in (16, 32):
        model = Incompressible(Domain(Grid((n,) * 3, upper=(TAU,) * 3)), [PERIODIC] * 3, turbulence="smagorinsky")
        state, constant = vortices(model), 0.17 * TAU / n
        loss = -work(model, state, jax.jit(model.rhs, compiler_options=QUICK)(0.0, state, numbers()))
        errors.append(loss / constant**2 / theory - 1)
    assert 1.9 < np.log2(errors[0] / errors[1]) < 2.1 and abs(errors[1]) < 0.02, errors


@pytest.mark.slow
def test_gradients_agree_with_differences():
    """Of a flow with a shear layer at rest in places, where square roots have no derivative."""
    grid = Grid((8, 6))
    model = Incompressible(Domain(grid), [PERIODIC, STILL], turbulence="wale")
    x, y = model.domain.coordinates((0.0, 0.5))
    wave = jnp.where(y > 0.5, jnp.sin(TAU * x) * (y - 0.5) ** 2, 0.0)
    field = jnp.asarray(np.random.default_rng(2).uniform(0.01, 0.02, grid.shape))

    def energy(constant, eddies, size):
        params = numbers(0.01, turbulence_constant=constant, eddy_viscosity=eddies)
        state = State((size * wave, 0.0 * wave))
        slopes = model.rhs(0.0, state, params)
        state = model.constrain(0.0, 0.1, jax.tree.map(lambda u, k: u + 0.05 * k, state, slopes), params)
        return model.diagnostics(0.0, state, params)["kinetic_energy"]

    found = jax.jit(jax.value_and_grad(energy, (0, 1, 2)), compiler_options=QUICK)
    at, way = (jnp.asarray(0.5), field, jnp.asarray(3.0)), (jnp.asarray(1.0), field, jnp.asarray(1.0))
    gradients = found(*at)[1]
    for number, gradient in enumerate(gradients):
        moved = (
            [a + by * w if k == number else a for k, (a, w) in enumerate(zip(at, way, strict=True))]
            for by in (1e-5, -1e-5)
        )
        above, below = (float(found(*place)[0]) for place in moved)
        # A central difference: 1e-10 of truncation, and 1e-16 / 1e-5 of rounding beside slopes of 1e-4 and more.
        assert float(jnp.vdot(gradient, way[number])) == pytest.approx((above - below) / 2e-5, rel=1e-5)


@pytest.mark.slow
def test_eddies_carry_a_scalar_at_their_own_rate():
    """A constant nu_t is a diffusivity nu_t / Pr_t; fluxes through walls count it."""
    grid = Grid((8, 9), upper=(1.3, 0.7), stretch=(None, WAVY))
    sides = [PERIODIC, (NoSlipWall(scalar=Dirichlet(1.0)), NoSlipWall())]
    rng = np.random.default_rng(1)
    c = jnp.asarray(rng.normal(size=grid.shape))
    for scheme in ("central", "van_leer"):
        model = PassiveScalar(Domain(grid), sides, scheme)
        state = model.with_flow(random_flow(model.flow), c)

        @jax.jit
        def look(params, model=model, state=state):
            through = model.passing(0.0, state, params, FacePlane(1, 0))["concentration"]
            return model.rhs(0.0, state, params).concentration, through, jnp.min(model.stable_dt(state, params))

        flow = (jnp.asarray(0.1), jnp.asarray(0.0))
        one = look(model.Params(*flow, jnp.asarray(0.1 + 0.2 / 0.5)))
        eddies = jnp.full(grid.shape, 0.2)
        other = look(model.Params(*flow, jnp.asarray(0.1), eddy_viscosity=eddies, turbulent_prandtl=jnp.asarray(0.5)))
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


# ---------------------------------------------------------------- a kept mean velocity, a frame that turns


@pytest.mark.slow
def test_a_kept_bulk_velocity_drives_a_channel_as_its_pressure_drop_does():
    """Between walls 12 nu U / H^2, on n equal cells 1 + 2 / n^2 times less; the mean is U from any start."""
    model = Incompressible(Domain(Grid((2, 9), upper=(1.3, 0.7))), [PERIODIC, STILL])
    params = dataclasses.replace(parameters(0.5), bulk_velocity=(jnp.asarray(0.8), None))
    state = State((jnp.zeros((2, 9)), jnp.zeros((2, 9))))
    run = advance(model, params, state, Schedule(0.9, dt=3e-3), observe=model.diagnostics)
    assert abs(float(jnp.mean(run.state.velocity[0])) - 0.8) < 1e-14
    # Transients fall by exp(-nu (2 pi / H)^2 t), 1e-15.
    assert float(run.observed["driving_x"][0]) == pytest.approx(12 * 0.5 * 0.8 / 0.7**2 / (1 + 2 / 81), rel=1e-11)


def test_a_kept_bulk_velocity_is_a_mean_over_the_volume_and_adds_no_divergence():
    grid = Grid((12, 9), upper=(1.3, 0.7), stretch=(lines("formula", "s + 0.1*sin(2*pi*s)", 12, 0.0, 1.3), WAVY))
    model = Incompressible(Domain(grid), [PERIODIC, STILL])
    start = random_flow(model)
    params = dataclasses.replace(parameters(), bulk_velocity=(jnp.asarray(0.8), None))
    moved = jax.jit(model.constrain)(0.0, 0.0, start, params)
    assert abs(np.sum(volumes(model)[0] * moved.velocity[0]) / grid.cells - 0.8) < 1e-14
    assert (
        difference(
            moved, State((start.velocity[0] + jnp.mean(moved.velocity[0] - start.velocity[0]), start.velocity[1]))
        )
        < 1e-13
    )


@each_box
@pytest.mark.slow
def test_a_frame_that_turns_does_no_work(grid, sides):
    model = Incompressible(Domain(grid), sides)
    state, rotation = random_flow(model), [0.7] if grid.ndim == 2 else [0.7, -0.4, 1.1]
    turning, still = (jax.jit(model.rhs)(0.0, state, p) for p in (numbers(rotation=rotation), numbers()))
    added = jax.tree.map(jnp.subtract, turning, still)
    assert abs(work(model, state, added)) < 1e-13 * largest(*state.velocity) ** 2
    assert largest(*added.velocity) > 0.5


@pytest.mark.slow
def test_inertial_oscillations_are_circles():
    """u + i v = exp(-2 i W t), and about a tilted axis the velocity along it stays."""
    schedule = Schedule(1.0, dt=0.01)
    flat = Incompressible(Domain(Grid((4, 3))), [PERIODIC] * 2)
    state = State((jnp.ones((4, 3)), jnp.zeros((4, 3))))
    end = advance(flat, numbers(rotation=[1.5]), state, schedule).state.velocity
    # Fourth order: (2 W dt)^5 / 120 a step.
    np.testing.assert_allclose(end[0], np.cos(3.0), atol=1e-8)
    np.testing.assert_allclose(end[1], -np.sin(3.0), atol=1e-8)
    box, axis = Incompressible(Domain(Grid((3, 4, 2))), [PERIODIC] * 3), np.array([2.0, -1.0, 2.0]) / 3
    start = np.array([1.0, 0.5, -0.3])
    state = State(tuple(jnp.full((3, 4, 2), u) for u in start))
    end = np.array([u[0, 0, 0] for u in advance(box, numbers(rotation=1.5 * axis), state, schedule).state.velocity])
    along = axis * (axis @ start)
    across = start - along
    np.testing.assert_allclose(end, along + np.cos(3.0) * across - np.sin(3.0) * np.cross(axis, across), atol=1e-8)


# ---------------------------------------------------------------- configurations

FLOW = {
    "model": "incompressible",
    "grid": {"shape": [8, 8]},
    "initial": {"velocity": ["sin(2*pi*y)", "0"]},
    "time": {"end": 0.1, "output_every": 0.1},
}


@pytest.mark.slow
def test_a_configuration_has_all_of_it():
    run = sj.configure(
        **FLOW,
        physics={
            "viscosity": 0.01,
            "turbulence": "vreman",
            "turbulence_constant": 0.1,
            "rotation": [0.5],
            "bulk_velocity": [None, 0.2],
        },
        coefficients={"eddy_viscosity": "0.01*(1 + x)"},
    )
    params = run.params
    assert float(params.turbulence_constant) == pytest.approx(0.1)
    assert params.bulk_velocity[0] is None and float(params.bulk_velocity[1]) == pytest.approx(0.2)
    np.testing.assert_allclose(params.eddy_viscosity[:, 0], 0.01 * (1 + (np.arange(8) + 0.5) / 8), rtol=1e-6)
    found = jax.jit(run.model.diagnostics)(0.0, run.state, params)
    assert {"mean_eddy_viscosity", "driving_y"} <= set(found) <= set(run.model.measures())
    assert "driving_x" not in found


@pytest.mark.parametrize(
    "sections, told",
    [
        ({"physics": {"turbulence_constant": 0.1}}, "expected beside physics.turbulence"),
        ({"physics": {"rotation": [0.0, 0.0, 1.0]}}, "expected one number in a plane"),
        ({"physics": {"bulk_velocity": [1.0]}}, "one number or null for each of 2 axes"),
        ({"physics": {"bulk_velocity": [1.0, None]}, "boundaries": {"x": "no_slip"}}, "expected a periodic axis"),
        ({"physics": {"bulk_velocity": [1.0, None]}, "coefficients": {"solid": "x - 0.3"}}, "without bodies"),
        ({"coefficients": {"eddy_viscosity": "x - 0.5"}}, "at least 0"),
    ],
)
def test_refuses_what_it_cannot_do(sections, told):
    physics = {"viscosity": 0.01, **sections.get("physics", {})}
    with pytest.raises(ConfigurationError, match=told):
        sj.configure(**{**FLOW, **sections, "physics": physics}).params  # noqa: B018


def test_refuses_an_unknown_turbulence_model():
    with pytest.raises(ConfigurationError, match="Incompressible.turbulence='k'"):
        Incompressible(Domain(Grid((4, 4))), [PERIODIC] * 2, turbulence="k")
    with pytest.raises(ConfigurationError, match="turbulence_constant=-1"):
        Params(jnp.asarray(0.1), jnp.asarray(0.0), turbulence_constant=jnp.asarray(-1.0))
