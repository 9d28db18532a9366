"""Transport of a scalar: orders, bounds, conservation, exact solutions, derivatives, implicit diffusion."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK
from scalars import faces, march, once, places, random_field, uniform

from simjax.core.boundary import Dirichlet, Inflow, Neumann, Outflow, ScalarSide, SlipWall
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.scalar.transport import Params, State, Transport
from simjax.ops.scalar_fluxes import SCHEMES
from simjax.stepping.simulate import Schedule, simulate

LIMITED = ("minmod", "van_leer", "mc")


def slow_unless(usual, values):
    """`values` as parameters, tuples as several; those that the `usual` ones stand for are slow."""
    return [
        pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=[] if v in usual else pytest.mark.slow)
        for v in values
    ]


SLIP = (SlipWall(), SlipWall())
OPEN = (Inflow(), Outflow())


def swirl(grid):
    """A velocity along closed lines, differences of a stream function on corners: its divergence is a rounding."""
    x, y = places(grid, (0.0, 0.0))
    psi = np.sin(np.pi * x) ** 2 * np.sin(np.pi * y) ** 2 / np.pi
    h = grid.spacing
    return jnp.asarray((np.roll(psi, -1, 1) - psi) / h[1]), jnp.asarray(-(np.roll(psi, -1, 0) - psi) / h[0])


# ---------------------------------------------------------------------- order

ORDERS = [
    # Its diffusion widens the Gaussian by a few per cent, and its error grows a little slower than the spacing.
    ("upwind", 1, (400, 800), 0.15),
    ("central", 2, (64, 128), 0.1),
    ("central4", 4, (32, 64), 0.15),
    # Limiters are of first order in a cell or two at each extremum: in the mean a little below the second order.
    ("minmod", 2, (128, 256), 0.35),
    ("van_leer", 2, (128, 256), 0.35),
    ("mc", 2, (128, 256), 0.35),
    ("weno5", 5, (32, 64), 0.35),
]


@pytest.mark.parametrize(("scheme", "order", "sizes", "slack"), ORDERS)
@pytest.mark.slow
def test_a_gaussian_travels_at_the_scheme_s_order(scheme, order, sizes, slack):
    """Once around a periodic line; mean error. Steps are short enough for the time error to be below a hundredth."""

    def error(n):
        grid = Grid((n,))
        (x,) = places(grid)
        start = np.exp(-((np.mod(x, 1) - 0.5) ** 2) / (2 * 0.1**2))
        model = Transport(Domain(grid), [PERIODIC], scheme)
        final = march(model, Params(uniform(grid, 1.0)), start, end=1.0, steps=6 * n, integrator="rk4")
        return float(jnp.mean(jnp.abs(final - start)))

    errors = [error(n) for n in sizes]
    # The tails of a Gaussian ten widths long join at 4e-6 with a kink that no scheme sees at these errors.
    assert np.log2(errors[0] / errors[1]) > order - slack
    assert order == 1 or np.log2(errors[0] / errors[1]) < order + 1


FINENESS = {"upwind": ((32, 64), 1), "central": ((16, 32), 2), "central4": ((16, 32), 4), "weno5": ((32, 64), 5)}
ORDERED = [("upwind", 1), ("central", 2), ("central4", 3), ("weno5", 2)]


@pytest.mark.parametrize(
    "scheme, ndim", slow_unless(ORDERED, [(scheme, ndim) for scheme in FINENESS for ndim in (1, 2, 3)])
)
@pytest.mark.slow
def test_variable_velocity_keeps_the_order_in_any_dimension(scheme, ndim):
    """-div(u c) at cell centres against the exact one, u and c smooth, u changing sign, with divergence."""
    sizes, order = FINENESS[scheme]

    def error(n):
        grid = Grid((n, n + 4, n - 4)[:ndim], (0.0,) * ndim, (2 * np.pi,) * ndim)

        def carried(axis, *x):
            return jnp.sin(x[axis] + 0.3 + sum(x)) + 0.4

        def scalar(*x):
            return 2 + sum(jnp.cos(v + k) for k, v in enumerate(x)) / ndim

        velocity = tuple(jnp.asarray(carried(axis, *faces(grid, axis))) for axis in range(ndim))
        x = tuple(jnp.asarray(v) for v in places(grid))
        model = Transport(Domain(grid), [PERIODIC] * ndim, scheme)
        found = once(model, Params(velocity), scalar(*x))
        exact = jnp.zeros(grid.shape)
        for axis in range(ndim):
            along = tuple(jnp.ones_like(v) if k == axis else jnp.zeros_like(v) for k, v in enumerate(x))
            exact = exact - jax.jvp(lambda *y, axis=axis: carried(axis, *y) * scalar(*y), x, along)[1]
        return float(jnp.mean(jnp.abs(found - exact)))

    errors = [error(n) for n in sizes]
    slope = np.log(errors[0] / errors[1]) / np.log(sizes[1] / sizes[0])
    # On grids this fine weno5's weights are nearly ideal and its two sides' errors of fifth order partly cancel.
    assert order - 0.35 < slope < order + 1.5


# ---------------------------------------------------------------------- bounds and conservation


@pytest.mark.parametrize("scheme", slow_unless(["mc"], ["upwind", *LIMITED]))
@pytest.mark.slow
def test_total_variation_does_not_grow(scheme):
    grid = Grid((100,))
    model = Transport(Domain(grid), [PERIODIC], scheme)
    state = jnp.asarray(np.where(np.abs(places(grid)[0] - 0.5) < 0.2, 1.0, 0.0)) + 0.3 * random_field((100,))
    params = Params(uniform(grid, -1.0))
    # Harten's condition for limited slopes holds up to half the Courant number.
    dt = 0.5 * float(model.stable_dt(State(state), params)[0])
    variations = [float(jnp.sum(jnp.abs(state - jnp.roll(state, 1))))]
    for _ in range(4):
        state = march(model, params, state, end=5 * dt, steps=5, integrator="ssprk3")
        variations.append(float(jnp.sum(jnp.abs(state - jnp.roll(state, 1)))))
    # A rounding per cell.
    assert np.all(np.diff(variations) <= 100 * 1e-16)
    assert variations[-1] > 1.5


@pytest.mark.parametrize("scheme", slow_unless(["upwind", "mc"], ["upwind", *LIMITED]))
@pytest.mark.slow
def test_swirling_makes_no_new_extremes(scheme):
    grid = Grid((32, 32))
    model = Transport(Domain(grid), [SLIP, SLIP], scheme)
    start, params = (random_field(grid.shape) > 0.5).astype(float), Params(swirl(grid))
    dt = 0.45 * float(jnp.min(model.stable_dt(State(start), params)))
    final = march(model, params, start, end=20 * dt, steps=20)
    # Roundings of twenty steps.
    assert float(final.min()) >= -1e-14 and float(final.max()) <= 1 + 1e-14
    assert float(final.max() - final.min()) > 0.1


def test_weno_hardly_overshoots():
    grid = Grid((100,))
    start = np.where(np.abs(places(grid)[0] - 0.5) < 0.2, 1.0, 0.0)
    model = Transport(Domain(grid), [PERIODIC], "weno5")
    final = march(model, Params(uniform(grid, 1.0)), start, end=1.0, steps=300)
    # Essentially non-oscillatory: of a unit jump a few per cent at most; central differences make 30 %.
    assert float(final.min()) > -0.03 and float(final.max()) < 1.03
    assert float(jnp.mean(jnp.abs(final - start))) < 0.05


CONSERVING = [*((scheme, "ssprk3") for scheme in SCHEMES), ("mc", "ars222")]
SIDES = {"periodic": [PERIODIC, PERIODIC], "walls": [SLIP, SLIP]}
CONSERVED = [
    ("upwind", "ssprk3", "walls"),
    ("mc", "ars222", "walls"),
    ("weno5", "ssprk3", "periodic"),
]


@pytest.mark.parametrize(
    "scheme, integrator, sides", slow_unless(CONSERVED, [(*how, sides) for sides in SIDES for how in CONSERVING])
)
def test_mass_is_conserved_to_rounding(scheme, integrator, sides):
    """With a velocity that has divergence, and diffusivities that differ by 1000 from cell to cell."""
    grid = Grid((16, 12))
    model = Transport(Domain(grid), SIDES[sides], scheme)
    velocity = (random_field(grid.shape, 1) - 0.5, random_field(grid.shape, 2) - 0.5)
    params = Params(velocity, 10.0 ** (3 * random_field(grid.shape, 3) - 4))
    start = 1 + random_field(grid.shape, 4)
    final = march(model, params, start, end=0.02, steps=4, integrator=integrator)
    assert float(jnp.max(jnp.abs(final - start))) > 1e-3
    # Two hundred cells of size one.
    assert float(jnp.sum(final)) == pytest.approx(float(jnp.sum(start)), rel=1e-14)


@pytest.mark.parametrize("scheme", ["upwind", "van_leer", "central"])
def test_a_constant_stays_constant_in_a_solenoidal_flow(scheme):
    grid = Grid((24, 16))
    model = Transport(Domain(grid), [SLIP, SLIP], scheme)
    rhs = once(model, Params(swirl(grid)), jnp.full(grid.shape, 3.0))
    # Differences of velocities of order one over a spacing of 1/24.
    assert float(jnp.max(jnp.abs(rhs))) < 3 * 24 * 1e-15


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.slow
def test_leftwards_is_rightwards_mirrored_and_axes_are_alike(scheme):
    grid = Grid((14, 12))
    c, u, v = (random_field(grid.shape, k) - 0.5 for k in range(3))

    def rhs(grid, c, *velocity):
        model = Transport(Domain(grid), [PERIODIC] * 2, scheme)
        return once(model, Params(velocity), c)

    expected = rhs(grid, c, u, v)
    # A mirrored lower face is the upper face of the mirrored cell.
    mirrored = rhs(grid, c[::-1], -jnp.roll(u[::-1], 1, 0), v[::-1])
    np.testing.assert_allclose(mirrored[::-1], expected, rtol=0, atol=1e-13)
    turned = rhs(Grid((12, 14), upper=(1.0, 1.0)), c.T, v.T, u.T)
    np.testing.assert_allclose(turned.T, expected, rtol=0, atol=1e-13)


def test_open_sides_let_a_pulse_out_and_the_inflow_in():
    grid = Grid((80,), (0.0,), (2.0,))
    (x,) = places(grid)
    model = Transport(Domain(grid), [(Inflow(scalar=0.5), Outflow())], "mc")
    # 1 + x/4 along x: faces at the outflow continue the line.
    velocity = jnp.asarray(1 + 0.25 * faces(grid, 0)[0])
    final = march(model, Params((velocity,)), np.exp(-((x - 1) ** 2) / 0.02), end=6.0, steps=600)
    # Steady: (1 + x/4) c is what flows in.
    exact = 0.5 / (1 + 0.25 * x)
    # Second order: h^2 / 4 = 1.6e-4 times derivatives of a quarter and less.
    np.testing.assert_allclose(final[:-2], exact[:-2], rtol=1.2e-4)
    # The outflow takes the last cell's slope for zero: half a cell times c' / c there.
    np.testing.assert_allclose(final, exact, rtol=2.2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "order"), [pytest.param("weno5", 4, marks=pytest.mark.long), ("mc", 1.7)])
def test_a_swirl_that_turns_back_restores_what_it_deformed(scheme, order):
    """LeVeque (1996), SIAM J. Numer. Anal. 33, 627: the velocity times cos(pi t / T), back at T."""

    def error(n):
        grid = Grid((n, n))
        x, y = places(grid)
        velocity = tuple(
            jnp.asarray(s * np.sin(np.pi * a) ** 2 * np.sin(2 * np.pi * b))
            for s, (a, b) in ((1, faces(grid, 0)), (-1, faces(grid, 1)[::-1]))
        )
        start = np.exp(-((x - 0.5) ** 2 + (y - 0.7) ** 2) / 0.015)
        model = Transport(Domain(grid), [PERIODIC] * 2, scheme, factor=lambda t: jnp.cos(np.pi * t / 1.0))
        final = march(model, Params(velocity), start, end=1.0, steps=4 * n, integrator="rk4")
        return float(jnp.mean(jnp.abs(final - start)))

    errors = [error(n) for n in (64, 128)]
    assert np.log2(errors[0] / errors[1]) > order


@pytest.mark.parametrize("scheme", ["upwind", "mc", "weno5"])
def test_a_reversed_flow_is_upwinded_from_the_other_side(scheme):
    grid = Grid((24,))
    c, velocity = random_field((24,)), random_field((24,), 1)
    backwards = Transport(Domain(grid), [PERIODIC], scheme, factor=lambda t: -1.0)
    np.testing.assert_array_equal(
        once(backwards, Params((velocity,)), c),
        once(Transport(Domain(grid), [PERIODIC], scheme), Params((-velocity,)), c),
    )


# ---------------------------------------------------------------------- sources and diffusion


def layered(grid):
    (x,) = places(grid)
    return jnp.asarray(np.where(x < 0.25, 2.0, 0.01))


@pytest.mark.parametrize("integrator", slow_unless(["ars443"], ["imex_euler", "ars222", "ars343", "ars443"]))
def test_one_long_step_reaches_the_steady_state_of_layers(integrator):
    """Values at both walls; flux = 1 / sum of resistances. Stiff modes are gone after one step of a thousand times
    the slowest time."""
    grid = Grid((16,))
    sides = [(ScalarSide(Dirichlet(1.0)), ScalarSide(Dirichlet(lambda t, *x: 0.0 * t)))]
    model = Transport(Domain(grid), sides, "upwind", tolerance=1e-12)
    params = Params(uniform(grid, 0.0), layered(grid))
    final = march(model, params, random_field(grid.shape), end=1e6, steps=2, integrator=integrator)
    (x,) = places(grid)
    flux = 1 / (0.25 / 2.0 + 0.75 / 0.01)
    exact = 1 - flux * (np.minimum(x, 0.25) / 2.0 + np.maximum(x - 0.25, 0) / 0.01)
    # What is left of the start: at most 1 / (1 + rate dt), rate about 0.1, once or twice.
    np.testing.assert_allclose(final, exact, rtol=0, atol=3e-5)


@pytest.mark.parametrize(
    ("integrator", "steps", "order"),
    [
        pytest.param("imex_euler", (20, 40), 1, marks=pytest.mark.slow),
        ("ars222", (10, 20), 2),
        pytest.param("ars343", (8, 16), 3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_implicit_diffusion_tends_to_explicit_diffusion(integrator, steps, order):
    """With sources and walls that vary in time and along them; the difference is of the scheme's order in dt."""
    grid = Grid((12, 10))
    warm = ScalarSide(Dirichlet(lambda t, *x: 0.2 * t + 0.1 * x[1]))
    given = ScalarSide(Neumann(lambda t, *x: 0.3 * t))

    def source(t, x, params):
        return jnp.cos(3 * t) * jnp.sin(2 * x[0])

    model = Transport(Domain(grid), [(warm, given), PERIODIC], "central", source=source, tolerance=1e-12)
    x, y = places(grid)
    params = Params(uniform(grid, 0.4, -0.3), jnp.asarray(0.03 * (1 + 0.5 * np.sin(2 * np.pi * y) * x)))
    start = np.cos(2 * np.pi * y) * np.cos(np.pi * x / 2)
    explicit = march(model, params, start, end=0.4, steps=160, integrator="rk4")
    errors = [
        float(jnp.max(jnp.abs(march(model, params, start, end=0.4, steps=n, integrator=integrator) - explicit)))
        for n in steps
    ]
    # Walls that move make the stiff part depend on time, which lowers the order of all one-step schemes a little.
    assert order - 0.5 < np.log2(errors[0] / errors[1]) < order + 0.7


@pytest.mark.parametrize(
    ("integrator", "steps"),
    [pytest.param("rk4", 3, marks=pytest.mark.slow), pytest.param("ars222", 2, marks=pytest.mark.long)],
)
def test_variable_diffusion_and_velocity_are_of_second_order(integrator, steps):
    """A chosen solution in 2-D with the source that makes it one, periodic along x and given at walls along y."""

    def exact(t, x, y):
        return jnp.sin(x + t) * (1 + 0.3 * y**2) + 2

    def speed(x, y):
        return 0.5 + 0.2 * jnp.sin(x), 0.3 * jnp.cos(x) * y * (1 - y)

    def kappa(x, y):
        return 0.1 * (1 + 0.5 * jnp.cos(x) * y)

    def source(t, place, params):
        x, y = jnp.broadcast_arrays(*place)
        one, no = jnp.ones_like(x), jnp.zeros_like(x)
        along = ((one, no), (no, one))

        def gradient(f, x, y):
            return [jax.jvp(f, (x, y), d)[1] for d in along]

        def through(axis):
            def flux(x, y):
                slope = gradient(lambda x, y: exact(t, x, y), x, y)[axis]
                return speed(x, y)[axis] * exact(t, x, y) - kappa(x, y) * slope

            return flux

        change = jax.jvp(lambda s: exact(s, x, y), (t,), (jnp.ones_like(t),))[1]
        return change + sum(jax.jvp(through(axis), (x, y), along[axis])[1] for axis in range(2))

    def error(n):
        grid = Grid((n, n // 2), (0.0, 0.0), (2 * np.pi, 1.0))
        wall = (
            ScalarSide(Dirichlet(lambda t, x, y: exact(t, x, y))),
            ScalarSide(Neumann(lambda t, x, y: jnp.sin(x + t) * 0.6)),
        )
        model = Transport(Domain(grid), [PERIODIC, wall], "central", source=source)
        velocity = tuple(jnp.asarray(speed(*faces(grid, axis))[axis]) for axis in range(2))
        params = Params(velocity, jnp.asarray(kappa(*places(grid))))
        start = exact(0.0, *places(grid))
        final = march(model, params, start, end=0.3, steps=steps * n, integrator=integrator)
        return float(jnp.mean(jnp.abs(final - exact(0.3, *places(grid)))))

    errors = [error(n) for n in (16, 32)]
    # In the mean; the cells at walls converge more slowly at first.
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.1


# ---------------------------------------------------------------------- derivatives


def test_heat_diffusivity_gradient_in_closed_form():
    """u_t = alpha u_xx, sin x on [0, 2 pi): n steps of forward Euler are u = G^n sin x, G = 1 - alpha dt s, so
    dJ/dalpha of J = h/2 sum (u - B sin x)^2 is known to rounding; here alpha is a field of equal values.
    """
    n, steps, dt, target = 64, 200, 0.005, np.exp(-0.8)
    grid = Grid((n,), (0.0,), (2 * np.pi,))
    model, (x,), (h,) = Transport(Domain(grid), [PERIODIC], "central"), places(grid), grid.spacing

    @functools.partial(jax.jit, compiler_options=QUICK)
    @jax.value_and_grad
    def misfit(diffusivity):
        trajectory = simulate(
            model,
            INTEGRATORS["euler"],
            Params(uniform(grid, 0.0), diffusivity),
            State(jnp.sin(jnp.asarray(x))),
            Schedule(dt * steps, dt=dt),
            frames=1,
        )
        return h / 2 * jnp.sum((trajectory.state.concentration - target * np.sin(x)) ** 2)

    value, slope = misfit(jnp.full(n, 0.5))
    # Two hundred steps of rounding on a solution that decays.
    assert float(value) == pytest.approx(0.03875117183391284, rel=1e-12)
    assert float(jnp.sum(slope)) == pytest.approx(-0.29972667081201926, rel=1e-12)


@pytest.mark.parametrize("integrator", ["ssprk3", pytest.param("ars343", marks=pytest.mark.slow)])
def test_heat_diffusivity_gradient_of_the_equation(integrator):
    """The same of the differential equation: J = pi/2 (e^-alpha - e^-0.8)^2, through explicit and implicit steps."""
    n, steps = 64, 100 if integrator == "ssprk3" else 20
    grid = Grid((n,), (0.0,), (2 * np.pi,))
    model, (x,), (h,) = Transport(Domain(grid), [PERIODIC], tolerance=1e-11), places(grid), grid.spacing

    @functools.partial(jax.jit, compiler_options=QUICK)
    @jax.value_and_grad
    def misfit(diffusivity):
        trajectory = simulate(
            model,
            INTEGRATORS[integrator],
            Params(uniform(grid, 0.0), diffusivity),
            State(jnp.sin(jnp.asarray(x))),
            Schedule(1.0, dt=1 / steps),
            frames=1,
        )
        return h / 2 * jnp.sum((trajectory.state.concentration - np.exp(-0.8) * np.sin(x)) ** 2)

    value, slope = misfit(jnp.full(n, 0.5))
    # The discrete rate is 1 - h^2/12 = 1 - 8e-4 of the true one; the misfit's slope is four times as sensitive.
    assert float(value) == pytest.approx(0.03881810488883735, rel=4e-3)
    assert float(jnp.sum(slope)) == pytest.approx(-0.2995434709256138, rel=4e-3)


@pytest.mark.parametrize("scheme", slow_unless(["central4"], ["central4", "weno5"]))
def test_velocity_gradient_of_the_equation(scheme):
    """sin(2 (x - c t)) at t = 1 against the same with c - 0.1: J and dJ/dc in closed form."""
    grid = Grid((128,), (0.0,), (2 * np.pi,))
    model, (x,), (h,) = Transport(Domain(grid), [PERIODIC], scheme), places(grid), grid.spacing
    wanted = np.sin(2 * (x - 0.7))

    @functools.partial(jax.jit, compiler_options=QUICK)
    @jax.value_and_grad
    def misfit(velocity):
        trajectory = simulate(
            model,
            INTEGRATORS["ssprk3"],
            Params((velocity,)),
            State(jnp.asarray(np.sin(2 * x))),
            Schedule(1.0, dt=0.01),
            frames=1,
        )
        return h / 2 * jnp.sum((trajectory.state.concentration - wanted) ** 2)

    value, slope = misfit(jnp.full(128, 0.8))
    # Waves of 64 cells: fourth order in space and third in time leave 1e-5 of a phase of 0.2.
    assert float(value) == pytest.approx(0.0626226926148593, rel=2e-4)
    assert float(jnp.sum(slope)) == pytest.approx(1.2482762202387296, rel=2e-4)


def test_diagnostics_are_those_of_the_field():
    grid = Grid((8, 6), upper=(2.0, 3.0))
    c = random_field(grid.shape)
    found = Transport(Domain(grid), [PERIODIC] * 2).diagnostics(0.0, State(c), Params(uniform(grid, 0.0, 0.0)))
    expected = {
        "total_concentration": 6 * np.mean(c),
        "mean_concentration": np.mean(c),
        "variance_concentration": np.var(c),
        "minimum_concentration": np.min(c),
        "maximum_concentration": np.max(c),
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(float(value), rel=1e-13)
