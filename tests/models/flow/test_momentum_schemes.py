"""Schemes by which a flow carries its momentum: orders, what is kept, walls as mirrors, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK
from exact_flows import (
    SLIP,
    STILL,
    TAU,
    advance,
    advected_vortices,
    difference,
    largest,
    parameters,
    random_flow,
    sampled,
)

import simjax as sj
from simjax.core.boundary import Inflow
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.flow.incompressible import Incompressible, State
from simjax.models.flow.passive_scalar import PassiveScalar
from simjax.ops.momentum_advection import SCHEMES
from simjax.stepping.simulate import Schedule

OTHERS = [name for name in SCHEMES if name != "central2"]
UPWIND = [name for name in SCHEMES if name.startswith("upwind")]
WAVY = lines("formula", "s + 0.1*sin(2*pi*s)", 9, 0.0, 0.7)


def slopes_of(model, state):
    """The tendency without pressure."""
    return jax.jit(model.rhs, compiler_options=QUICK)(0.0, state, parameters())


def constrained(model, slopes):
    return jax.jit(model.constrain, compiler_options=QUICK)(0.0, 0.0, slopes, parameters())


# ---------------------------------------------------------------- order


def waves(number):
    """A smooth component of a flow that need not be free of divergence."""
    return lambda t, x, y: 0.6 + 0.2 * number + jnp.sin(x + number) * jnp.cos(2 * y) + 0.5 * jnp.cos(x - y - number)


def carried(functions, component):
    """-sum over j of d(u_j u_i)/dx_j, by derivatives of elementwise functions."""

    def slope(t, x, y):
        x, y = jnp.broadcast_arrays(x, y)
        ones, zeros = jnp.ones_like(x), jnp.zeros_like(x)
        terms = []
        for axis, way in enumerate(((ones, zeros), (zeros, ones))):

            def flux(x, y, axis=axis):
                return functions[axis](t, x, y) * functions[component](t, x, y)

            terms.append(jax.jvp(flux, (x, y), way)[1])
        return -(terms[0] + terms[1])

    return slope


def operator_error(name, n, functions, component):
    model = Incompressible(Domain(Grid((n, n + n // 4), upper=(TAU, TAU))), [PERIODIC] * 2, advection=name)
    found = slopes_of(model, sampled(model, functions)).velocity[component]
    expected = sampled(model, [carried(functions, i) for i in range(2)]).velocity[component]
    return float(jnp.sqrt(jnp.mean((found - expected) ** 2)))


@pytest.mark.parametrize("name, order", [("central2", 2), ("central4", 4), ("upwind3", 2), ("upwind5", 2)])
@pytest.mark.slow
def test_order_of_the_operator_on_a_manufactured_field(name, order):
    """Upwind schemes carry by means of two velocities, and differences of fluxes, which are of second order."""
    functions = (waves(0), waves(1))
    coarse, fine = (operator_error(name, n, functions, 1) for n in (32, 64))
    assert order - 0.1 < np.log2(coarse / fine) < order + 0.1, (coarse, fine)


@pytest.mark.parametrize("name, order", [("upwind3", 3), ("upwind5", 5)])
@pytest.mark.parametrize("speed", [0.7, -0.7])
@pytest.mark.slow
def test_order_of_what_a_uniform_stream_carries_upwind(name, order, speed):
    functions = (lambda t, x, y: speed + 0 * (x + y), lambda t, x, y: jnp.sin(x) + 0.5 * jnp.cos(2 * x) + 0 * y)
    coarse, fine = (operator_error(name, n, functions, 1) for n in (32, 64))
    assert order - 0.1 < np.log2(coarse / fine) < order + 0.1, (coarse, fine)


@pytest.mark.slow
def test_the_whole_flow_is_of_fourth_order_with_central4():
    """Vortices that decay as they are carried along: advection, viscosity and pressure all count."""
    viscosity, end = 0.05, 0.4

    def error(n):
        exact = advected_vortices(viscosity, (0.8, -0.5))
        model = Incompressible(Domain(Grid((n, n), upper=(TAU, TAU))), [PERIODIC] * 2, advection="central4")
        # The fourth-order scheme in time adds 1e-8 of its own at most.
        final = advance(model, parameters(viscosity), sampled(model, exact), Schedule(end, dt=0.02)).state
        return difference(final, sampled(model, exact, end))

    coarse, fine = error(12), error(24)
    assert 3.8 < np.log2(coarse / fine) < 4.2, (coarse, fine)


# ---------------------------------------------------------------- what is kept

BOXES = {
    "2-D periodic": (Grid((12, 9), upper=(1.3, 0.7)), [PERIODIC, PERIODIC]),
    "3-D mixed": (Grid((5, 6, 4), upper=(1.3, 0.7, 1.1)), [SLIP, PERIODIC, SLIP]),
}
each_box = pytest.mark.parametrize("grid, sides", BOXES.values(), ids=BOXES)


@each_box
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.slow
def test_momentum_and_energy(name, grid, sides):
    """Momentum stays along periodic axes; energy stays with a central scheme and falls with an upwind one."""
    model = Incompressible(Domain(grid), sides, advection=name)
    state = random_flow(model)
    assert float(jax.jit(model.diagnostics)(0.0, state, parameters())["max_divergence"]) < 1e-11
    slopes = constrained(model, slopes_of(model, state))
    pairs = list(zip(state.velocity, slopes.velocity, strict=True))
    work, size = (sum(float(jnp.sum(f(u * k))) for u, k in pairs) for f in (lambda x: x, jnp.abs))
    if name == "central4":
        assert abs(work) < 1e-14 * size  # a sum of some hundred terms, of 1e-16 each
    else:
        assert work < -0.05 * size
    for axis, (_, k) in enumerate(pairs):
        if sides[axis] is PERIODIC:
            assert abs(float(jnp.sum(k))) < 1e-13 * float(jnp.sum(jnp.abs(k)))


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.slow
def test_a_uniform_component_stays_uniform(name):
    """In a flow that does not depend on it, on stretched grids and beside walls too where these are taken."""
    stretched = name in UPWIND
    grid = Grid((8, 9, 4), upper=(1.3, 0.7, 1.0), stretch=(None, WAVY if stretched else None, None))
    sides = [PERIODIC, SLIP, PERIODIC]
    model = Incompressible(Domain(grid), sides, advection=name)
    plane = Incompressible(Domain(Grid(grid.shape[:2], upper=(1.3, 0.7), stretch=grid.stretch[:2])), sides[:2])
    if not stretched:
        plane = Incompressible(plane.domain, sides[:2], advection=name)
    u, v = (jnp.repeat(part[..., None], 4, axis=2) for part in random_flow(plane).velocity)
    slopes = slopes_of(model, State((u, v, jnp.full(grid.shape, 1.7))))
    assert largest(slopes.velocity[2]) < 1e-13 * largest(*slopes.velocity)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.slow
def test_slip_walls_are_mirrors(name):
    """Between them a flow is half of that in a periodic box of twice the height, of which it has the tendency."""
    half = Incompressible(Domain(Grid((7, 6), upper=(1.3, 0.7))), [PERIODIC, SLIP], advection=name)
    whole = Incompressible(Domain(Grid((7, 12), upper=(1.3, 1.4))), [PERIODIC, PERIODIC], advection=name)
    u, v = random_flow(half).velocity
    upper = jnp.concatenate([jnp.zeros((7, 1)), -v[:, :0:-1]], axis=1)
    both = State((jnp.concatenate([u, u[:, ::-1]], axis=1), jnp.concatenate([v, upper], axis=1)))
    found, expected = (constrained(m, slopes_of(m, s)) for m, s in ((half, State((u, v))), (whole, both)))
    for one, two in zip(found.velocity, expected.velocity, strict=True):
        np.testing.assert_allclose(one, two[:, :6], rtol=0, atol=1e-12 * largest(two))


@pytest.mark.parametrize("name", UPWIND)
@pytest.mark.slow
def test_upwind_schemes_are_of_second_order_on_a_stretched_grid_with_walls(name):
    """A stream through two walls, of which the lower one drags the fluid along: exp(-V y / nu) between them."""
    speed, viscosity = 1.0, 0.2

    def error(n):
        stretch = (None, lines("formula", "s + 0.05*sin(2*pi*s)", n, 0.0, 1.0))
        walls = (Inflow((1.0, -speed)), Inflow((0.0, -speed)))
        model = Incompressible(Domain(Grid((4, n), stretch=stretch)), [PERIODIC, walls], advection=name)
        still = jnp.full((4, n), -speed)

        def residual(profile):
            return model.rhs(0.0, State((jnp.broadcast_to(profile, (4, n)), still)), parameters(viscosity)).velocity[0]

        # The balance is linear in the profile.
        zero = jnp.zeros(n)
        rest, matrix = jax.jit(lambda: (residual(zero)[0], jax.jacfwd(lambda p: residual(p)[0])(zero)))()
        y = model.domain.coordinates((0.0, 0.5))[1][0]
        end = np.exp(-speed / viscosity)
        exact = (np.exp(-speed * y / viscosity) - end) / (1 - end)
        return largest(np.linalg.solve(np.asarray(matrix), -np.asarray(rest)) - exact)

    coarse, fine = error(32), error(64)
    assert 1.8 < np.log2(coarse / fine) < 2.4, (coarse, fine)


def test_a_constant_scalar_stays_one_beside_central4():
    model = PassiveScalar(Domain(Grid((8, 10))), [PERIODIC, SLIP], "central4", advection="central4")
    flow = random_flow(model.flow)
    params = model.Params(jnp.asarray(0.0), jnp.asarray(0.0), jnp.asarray(0.1))
    slope = jax.jit(model.rhs)(0.0, model.with_flow(flow, jnp.full((8, 10), 2.0)), params).concentration
    # Differences of fluxes of 2 u over spacings of 0.1.
    assert largest(slope) < 1e-13 * 20 * largest(*flow.velocity)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"boundaries": {"y": "no_slip"}}, r"periodic or slip sides, .* got boundaries\.y\.lower = no"),
        (
            {"grid": {"shape": [8, 8], "stretch": {"y": {"tanh": {"strength": 1.0}}}}},
            r"uniform grid, .* got grid\.stretch\.y",
        ),
        (
            {"physics": {"viscosity": 0.1, "pressure_solver": "multigrid"}},
            "multigrid: expected a flow of second",
        ),
        ({"coefficients": {"solid": "x"}}, "without bodies"),
        ({"grid": {"shape": [8, 8], "axisymmetric": True}, "boundaries": {"x": "slip"}}, "Cartesian"),
        ({"outputs": [{"balance": "momentum_x"}]}, "balance of momentum_x: expected physics.advection = central2"),
    ],
)
def test_what_central4_does_not_take(changes, sentence):
    sections = {
        "grid": {"shape": [8, 8]},
        "physics": {"viscosity": 0.1},
        "initial": {"velocity": ["1", "0"]},
        "time": {"end": 0.1, "output_every": 0.1},
    } | changes
    sections["physics"] = {**sections["physics"], "advection": "central4"}
    with pytest.raises(ConfigurationError, match=sentence):
        sj.configure("incompressible", **sections)


def test_models_of_python_refuse_the_same():
    domain = Domain(Grid((8, 8)))
    for sides, more, sentence in (
        ([PERIODIC, STILL], {}, r"periodic or slip sides, .* got boundaries\.y\.lower = no"),
        (
            [PERIODIC, SLIP],
            {"pressure_solver": "tridiagonal"},
            "tridiagonal: expected a flow of second",
        ),
    ):
        with pytest.raises(ConfigurationError, match=sentence):
            Incompressible(domain, sides, advection="central4", **more)
    with pytest.raises(ConfigurationError, match="physics.scheme = van_leer: .*; write central4"):
        PassiveScalar(domain, [PERIODIC, SLIP], "van_leer", advection="central4")
