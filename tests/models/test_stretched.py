"""Grids whose cells differ in width: order, conservation, gradients, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK
from cases import CASES

import simjax as sj
from simjax.config import load_config
from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.core.mappings import faces_and_centers, geometric, lines, tanh
from simjax.errors import ConfigurationError
from simjax.grid import Grid, Lines
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow import passive_scalar
from simjax.models.scalar import advection_diffusion, burgers, transport
from simjax.stepping.simulate import integrate

WAVY = "s + 0.1*sin(2*pi*s)"  # widths differ by a factor of four
FIXED = (sj.ScalarSide(sj.Dirichlet(0.0)), sj.ScalarSide(sj.Dirichlet(1.0)))


def wavy(cells: int, ndim: int = 1) -> Grid:
    return Grid((cells,) * ndim, stretch=[lines("formula", WAVY, cells, 0.0, 1.0)] * ndim)


@jax.jit
def rhs(model, state, params):
    """The tendency at the start, in one program."""
    return model.rhs(0.0, state, params)


def tendency_error(cells: int, ndim: int, scheme: str, diffusivity: float | None = None) -> float:
    """Mean error of dc/dt of a smooth field in a shearing flow without divergence."""
    grid = wavy(cells, ndim)
    model = transport.Transport(Domain(grid), [PERIODIC] * ndim, scheme)
    speeds = (1.0, 0.5, -0.7)[:ndim]
    velocity = tuple(jnp.full(grid.shape, speed) for speed in speeds)
    kappa = None if diffusivity is None else jnp.full(grid.shape, diffusivity)
    phase = 2 * np.pi * sum(model.domain.coordinates((0.5,) * ndim))
    c = transport.State(jnp.sin(phase))
    found = rhs(model, c, transport.Params(velocity, kappa)).concentration
    exact = -2 * np.pi * sum(speeds) * jnp.cos(phase) - (diffusivity or 0.0) * ndim * 4 * np.pi**2 * jnp.sin(phase)
    return float(jnp.mean(jnp.abs(found - exact)))


@pytest.mark.parametrize(
    ("scheme", "ndim", "cells", "order"),
    [
        ("weno5", 1, 64, 5),
        ("van_leer", 2, 48, 2),
        pytest.param("central4", 2, 24, 4, marks=pytest.mark.slow),
        pytest.param("weno5", 3, 24, 5, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_schemes_keep_their_order_where_the_stretching_is_smooth(scheme, ndim, cells, order):
    coarse, fine = (tendency_error(n, ndim, scheme) for n in (cells, 2 * cells))
    assert np.log2(coarse / fine) > order - 0.25  # limiters lose a little at extrema


@pytest.mark.slow
def test_diffusion_is_of_second_order():
    coarse, fine = (tendency_error(n, 2, "central", 0.3) for n in (24, 48))
    assert 1.8 < np.log2(coarse / fine) < 2.2


@pytest.mark.parametrize("scheme", ["weno5", pytest.param("van_leer", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_what_leaves_a_cell_enters_the_next_and_a_constant_stays_one(scheme):
    grid = wavy(16, 2)
    model = transport.Transport(Domain(grid), [PERIODIC] * 2, scheme)
    flow = tuple(jnp.asarray(np.random.default_rng(k).normal(size=grid.shape)) for k in range(2))
    params = transport.Params(flow, jnp.exp(flow[0]))
    change = rhs(model, transport.State(flow[1]), params).concentration
    weighed = model.volumes(change.dtype) * change
    assert abs(jnp.sum(weighed)) < 1e-13 * jnp.sum(jnp.abs(weighed))  # a sum of 256 terms, each to rounding
    still = transport.Params((jnp.full(grid.shape, 0.7), jnp.full(grid.shape, -0.4)), jnp.exp(flow[0]))
    kept = rhs(model, transport.State(jnp.full(grid.shape, 3.0)), still).concentration
    assert jnp.max(jnp.abs(kept)) < 1e-12  # rounding of 3 over the least width


def test_burgers_conserves_on_a_stretched_plane():
    model = burgers.Burgers(Domain(wavy(16, 2)), [PERIODIC] * 2)
    start = burgers.State(jnp.asarray(np.random.default_rng(0).normal(size=(16, 16))))
    end = integrate(model, INTEGRATORS["ssprk3"], burgers.Params(jnp.asarray(0.01)), start, dt=1e-3, steps=5)
    totals = [model.diagnostics(0.0, state, None)["total_concentration"] for state in (start, end)]
    assert abs(totals[1] - totals[0]) < 1e-14


@pytest.mark.parametrize("scheme", ["central", "upwind"])
@pytest.mark.slow
def test_a_constant_velocity_is_carried_as_by_transport(scheme):
    """The same fluxes, hence the same order and the same totals."""
    domain = Domain(wavy(12, 2))
    model = advection_diffusion.AdvectionDiffusion(domain, [FIXED, PERIODIC], scheme)
    other = transport.Transport(domain, [FIXED, PERIODIC], scheme)
    kappa, speeds = jnp.asarray(0.3), jnp.asarray([0.7, -0.4])
    c = jnp.asarray(np.random.default_rng(1).normal(size=(12, 12)))
    flow = transport.Params(tuple(jnp.full((12, 12), speed) for speed in speeds), jnp.full((12, 12), kappa))
    # A wall lets nothing through a side of transport unless it is open: there both have the value of the side.
    state, params = advection_diffusion.State(c), advection_diffusion.Params(kappa, speeds)
    found, expected = rhs(model, state, params).concentration, rhs(other, transport.State(c), flow).concentration
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * float(jnp.abs(expected).max()))
    seen, known = model.diagnostics(0.0, state, params), other.diagnostics(0.0, transport.State(c), flow)
    for name, value in seen.items():
        assert abs(value - known[name]) < 1e-14
    assert jnp.min(model.stable_dt(state, params)) == pytest.approx(jnp.min(other.stable_dt(transport.State(c), flow)))


def layer_error(grid: Grid, steepness: float = 40.0) -> float:
    """Largest error of the steady boundary layer of u dc/dx = kappa d2c/dx2, with u / kappa = `steepness`."""
    model = transport.Transport(Domain(grid), [FIXED], "central", tolerance=1e-13)
    params = transport.Params((jnp.ones(grid.shape),), jnp.full(grid.shape, 1 / steepness))
    x = model.domain.coordinates((0.5,))[0]
    exact = jnp.expm1(steepness * x) / jnp.expm1(steepness)

    @jax.jit
    def residual(c):
        return model.rhs(0.0, transport.State(c), params).concentration

    at_zero = residual(jnp.zeros_like(exact))  # the tendency is linear but for what the walls prescribe
    slope = np.stack([residual(unit) - at_zero for unit in jnp.eye(exact.size)], axis=1)
    return float(np.max(np.abs(np.linalg.solve(slope, -np.asarray(at_zero)) - exact)))


@pytest.mark.slow
def test_a_boundary_layer_is_as_good_as_with_four_times_the_cells():
    stretched = Grid((24,), stretch=[lines("formula", "tanh(2*s)", 24, 0.0, 1.0)])
    assert layer_error(stretched) < layer_error(Grid((96,)))
    assert layer_error(Grid((24,))) > 8 * layer_error(stretched)


def test_a_given_slope_is_the_flux_through_the_wall():
    grid = Grid((12,), stretch=[lines("formula", "tanh(1.5*s)", 12, 0.0, 1.0)])
    sides = [(sj.ScalarSide(sj.Neumann(0.3)), sj.ScalarSide(sj.Neumann(2.0)))]
    model = transport.Transport(Domain(grid), sides)
    params = transport.Params((jnp.zeros(12),), jnp.full(12, 0.5))
    change = rhs(model, transport.State(jnp.asarray(np.random.default_rng(1).normal(size=12))), params)
    gained = jnp.sum(model.domain.spacing(model.layout)[0] * change.concentration)
    assert abs(gained - 0.5 * (0.3 + 2.0)) < 1e-12


def test_implicit_diffusion_solves_the_same_equation():
    grid = Grid((12, 8), stretch=[lines("formula", WAVY, 12, 0.0, 1.0), lines("formula", "tanh(1.5*s)", 8, 0.0, 1.0)])
    model = transport.Transport(Domain(grid), [PERIODIC, FIXED], "weno5", tolerance=1e-13)
    random = np.random.default_rng(2)
    params = transport.Params((jnp.zeros(grid.shape),) * 2, jnp.exp(jnp.asarray(random.normal(size=grid.shape))))
    right, dt = transport.State(jnp.asarray(random.normal(size=grid.shape))), 0.1

    @jax.jit
    def left_side(right):
        solved = model.implicit_solve(0.0, dt, right, params, model.prepare(params))
        return solved.concentration - dt * model.implicit_rhs(0.0, solved, params).concentration

    left = left_side(right)
    np.testing.assert_allclose(left, right.concentration, atol=1e-10)  # of a solve to 1e-13, times its condition


@pytest.mark.slow
def test_gradient_with_respect_to_the_strength_of_a_stretching():
    cells, grid = 16, Grid((16,), stretch=[lines("formula", "tanh(1.5*s)", 16, 0.0, 1.0)])

    def loss(strength):
        domain = Domain(grid, lines=[faces_and_centers(tanh(strength, "upper"), cells, 0.0, 1.0, jnp)])
        model = transport.Transport(domain, [FIXED], "van_leer")
        x = domain.coordinates((0.5,))[0]
        params = transport.Params((jnp.ones(cells),), jnp.full(cells, 0.05))
        start = transport.State(x * x)
        end = integrate(model, INTEGRATORS["ssprk2"], params, start, dt=1e-3, steps=10)
        return model.diagnostics(0.0, end, params)["variance_concentration"] + end.concentration[-2]

    step, loss = 1e-5, jax.jit(loss)
    slope = (loss(1.5 + step) - loss(1.5 - step)) / (2 * step)
    assert (
        abs(jax.jit(jax.grad(loss))(1.5) - slope) < 1e-7 * abs(slope) + 1e-9
    )  # the difference's rounding over its step


def test_the_time_step_follows_the_smallest_cells():
    grid = Grid((16,), stretch=[lines("formula", "tanh(2*s)", 16, 0.0, 1.0)])
    model = transport.Transport(Domain(grid), [FIXED])
    params = transport.Params((jnp.full(16, 2.0),), None)
    least = jnp.min(model.stable_dt(transport.State(jnp.ones(16)), params))
    assert abs(least - grid.widths(0).min() / 2.0) < 1e-15


def test_mappings():
    faces, centers = faces_and_centers(geometric(1.2, 10, "lower"), 10, 1.0, 3.0)
    widths = np.diff(faces)
    # Differences of faces of order one over widths of a twelfth: some roundings of 1e-16 over 0.07.
    np.testing.assert_allclose(widths[1:] / widths[:-1], 1.2, rtol=1e-12)
    assert faces[0] == 1.0 and faces[-1] == 3.0
    both = np.diff(faces_and_centers(tanh(2.0), 12, 0.0, 1.0)[0])
    np.testing.assert_allclose(both, both[::-1], rtol=1e-12)  # as above
    assert both[0] < both[5] / 5


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Lines([0.0, 0.5, 0.4, 1.0]), "face 2 at 0.4 is not above face 1 at 0.5"),
        (lambda: Lines([0.0, 1e-6, 1.0]), "cell 0 is 1e-06 wide, 2e-06 of the mean 0.5"),
        (lambda: Lines([0.0, 0.5, 1.0], [0.6, 0.7]), "one number inside each of the 2 cells"),
        (lambda: Grid((4,), stretch=[Lines([0.0, 0.4, 1.0])]), "3 faces along x, where a grid of 4 cells has 5"),
        (lambda: Grid((2,), (0.0,), (2.0,), [Lines([0.0, 0.4, 1.0])]), "from 0 to 1, where the box is from 0 to 2"),
        (lambda: Grid((2,), stretch=[Lines([0.0, 0.4, 1.0])]).spacing, "stretched along x"),
        (lambda: lines("formula", "1 - s", 8, 0.0, 1.0), "a formula of s that increases"),
    ],
)
def test_what_is_no_stretching_is_refused_with_its_numbers(make, said):
    with pytest.raises(ConfigurationError, match=said):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gas-2d-walls", "acoustic-2d", "maxwell-2d"])
def test_equal_cells_given_as_faces_are_those_of_a_uniform_grid(name):
    """With walls, gravity, friction, layers, free surfaces, sources and rough media: run, diagnostics and time step."""
    case = next(case for case in CASES if case.name == name)
    ends = zip(case.grid.lower, case.grid.upper, case.grid.shape, strict=True)
    same = Grid(case.grid.shape, stretch=[Lines(np.linspace(a, b, n + 1)) for a, b, n in ends])
    start, params, found = case.initial_state(), case.params(), []
    for domain in (Domain(case.grid), Domain(same)):
        model, run = case.build(domain), case.runner(domain)

        def seen(state, params, model=model, run=run):
            step = jnp.min(model.stable_dt(state, params))
            return run(params, state), model.diagnostics(0.0, state, params), model.observe(0.0, state, params), step

        found.append(jax.jit(seen, compiler_options=QUICK)(start, params))
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        # Rounding of widths and of a few steps.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13 * float(jnp.abs(one).max()))


def test_what_a_scheme_of_high_order_does_not_resolve_is_refused():
    abrupt = Lines([0.0, 1.0, 2.0, 3.0, 4.0, 44.0, 45.0, 46.0, 47.0])
    domain, plane = Domain(Grid((8,), stretch=[abrupt])), Domain(Grid((8, 4), stretch={"x": abrupt}))
    for make in (
        lambda scheme: passive_scalar.PassiveScalar(plane, [(PeriodicSide(), PeriodicSide())] * 2, scheme),
        lambda scheme: transport.Transport(domain, [FIXED], scheme),
        lambda scheme: burgers.Burgers(domain, [FIXED], scheme),
    ):
        make("van_leer")
        with pytest.raises(ConfigurationError, match="physics.scheme=weno5: cells along x change too abruptly"):
            make("weno5")


PLANE = ["model=transport", "grid.shape=[8,4]", "coefficients={velocity: [1, 0], diffusivity: 0.1}"]
SHORT = [*PLANE, "initial={concentration: x}", "time={end: 0.1, output_every: 0.1}"]


def test_configurations_and_files_of_faces(tmp_path):
    given = tmp_path / "faces.txt"
    given.write_text("0, 0.1\n0.3 0.6\n1\n")
    config = load_config(None, [*SHORT, f"grid.stretch.y.file={given}"])
    assert config.grid.stretch.y == ("faces", (0.0, 0.1, 0.3, 0.6, 1.0))
    assert config.write()["grid"]["stretch"]["y"] == {"faces": [0.0, 0.1, 0.3, 0.6, 1.0]}
    given.write_text("0 0.5 1")
    with pytest.raises(
        ConfigurationError, match=r"grid.stretch.y.file: 3 faces along y, where a grid of 4 cells has 5"
    ):
        load_config(None, [*SHORT, f"grid.stretch.y.file={given}"])
    with pytest.raises(ConfigurationError, match="grid.stretch.z: grid.shape=.* has no axis z"):
        load_config(None, [*SHORT, "grid.stretch.z.tanh.strength=1"])


def test_a_family_that_takes_uniform_grids_says_so():
    with pytest.raises(
        ConfigurationError, match="model=vorticity takes uniform grids only.*incompressible.*compressible"
    ):
        load_config("turbulence_2d", ["grid.stretch.x.tanh.strength=1"])
