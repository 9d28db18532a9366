"""Advection-diffusion: exact solutions at their order, what is conserved, symmetry, and a gradient in closed form."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.core.boundary import Dirichlet, Inflow, Neumann, NoSlipWall, Outflow, PeriodicSide, ScalarSide
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.scalar.advection_diffusion import AdvectionDiffusion, Params, State
from simjax.stepping.simulate import Schedule, simulate

PERIODIC = (PeriodicSide(), PeriodicSide())
DIFFUSIVITY, END = 0.05, 0.2
VELOCITY = (0.8, -0.5, 0.3)
WAVES = (1, 2, 1)


def parameters(ndim, diffusivity=DIFFUSIVITY, velocity=VELOCITY):
    return Params(jnp.asarray(float(diffusivity)), jnp.asarray(velocity[:ndim]))


def box(ndim, n):
    """Sizes that differ from axis to axis, in proportion to `n`, over boxes of different lengths."""
    shape = (n, 3 * n // 2, 5 * n // 4)[:ndim]
    return Grid(shape, (0.0, -1.0, 0.5)[:ndim], (2.0, 1.0, 3.5)[:ndim])


def decaying_wave(t, *x, grid):
    """exp(-kappa |k|^2 t) prod_i sin(k_i (x_i - a_i t) + i): an exact solution that moves, decays, and is not even."""
    k = [2 * np.pi * m / length for m, length in zip(WAVES, grid.lengths, strict=False)]
    product = jnp.exp(jnp.asarray(-DIFFUSIVITY * sum(v * v for v in k)) * t)
    for axis, position in enumerate(x):
        product = product * jnp.sin(k[axis] * (position - VELOCITY[axis] * t) + axis)
    return product


def final_state(model, initial, params, *, end, steps, integrator="rk4", frames=1):
    schedule = Schedule(end / frames, dt=end / steps)
    run = jax.jit(
        lambda params, state: simulate(
            model, INTEGRATORS[integrator], params, state, schedule, frames=frames, checkpoint="none"
        )
    )
    trajectory = run(params, State(initial))
    assert int(trajectory.clock.status) == 0
    return trajectory.state.concentration


def error(sides, scheme, ndim, n, *, steps):
    """Root mean square error against the decaying wave."""
    grid = box(ndim, n)
    domain = Domain(grid)
    x = domain.coordinates((0.5,) * ndim)
    exact = functools.partial(decaying_wave, grid=grid)
    model = AdvectionDiffusion(domain, sides(exact, grid), scheme)
    final = final_state(model, exact(0.0, *x), parameters(ndim), end=END, steps=steps)
    return float(jnp.sqrt(jnp.mean((final - exact(END, *x)) ** 2)))


def periodic(exact, grid):
    return [PERIODIC] * grid.ndim


def prescribed(exact, grid):
    """The exact solution's values on every side, changing in time and along the side."""
    return [(ScalarSide(Dirichlet(exact)), ScalarSide(Dirichlet(exact)))] * grid.ndim


def slopes(exact, grid):
    """The exact solution's outward slopes on every side."""

    def outward(axis, sign):
        def slope(t, *x):
            along = jnp.ones_like(x[axis])
            tangents = [along if k == axis else jnp.zeros_like(v) for k, v in enumerate(x)]
            return sign * jax.jvp(lambda *y: exact(t, *y), x, tuple(tangents))[1]

        return ScalarSide(Neumann(slope))

    return [(outward(axis, -1.0), outward(axis, 1.0)) for axis in range(grid.ndim)]


def mixed(exact, grid):
    """Values below, slopes above."""
    return [(below[0], above[1]) for below, above in zip(prescribed(exact, grid), slopes(exact, grid), strict=True)]


RESOLUTIONS = {1: ((32, 64), 40), 2: ((24, 48), 40), 3: ((16, 32), 20)}
"""Cells along x and steps: fine enough for the leading error to stand almost alone, steps as long as the fourth-order
scheme allows, whose error in time is below a thousandth of that in space."""


@pytest.mark.parametrize(
    ("sides", "ndim"),
    [
        *((sides, ndim) for sides in (periodic, prescribed, slopes, mixed) for ndim in (1, 2)),
        (periodic, 3),
        pytest.param(mixed, 3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_central_differences_are_of_second_order(sides, ndim):
    sizes, steps = RESOLUTIONS[ndim]
    errors = [error(sides, "central", ndim, n, steps=steps) for n in sizes]
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.1


@pytest.mark.parametrize(
    ("ndim", "sizes", "steps"),
    [
        (1, (128, 256), 320),
        (2, (32, 64), 64),
        pytest.param(3, (24, 48), 48, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_upwind_differences_are_of_first_order(ndim, sizes, steps):
    errors = [error(periodic, "upwind", ndim, n, steps=steps) for n in sizes]
    # The next term is of second order with a comparable factor: a few per cent of the error on the coarser grid.
    assert abs(np.log2(errors[0] / errors[1]) - 1) < 0.1


def test_a_gaussian_spreads_and_travels():
    """In free space: width^2 = w^2 + 2 kappa t, peak w / width, centre moving with the velocity."""
    domain = Domain(Grid((256,), (0.0,), (4.0,)))
    (x,) = domain.coordinates((0.5,))
    width, start, end, (a,) = 0.15, 1.2, 1.0, (0.8,)

    def gaussian(t):
        square = width**2 + 2 * 0.01 * t
        return width / np.sqrt(square) * np.exp(-((np.asarray(x) - start - a * t) ** 2) / (2 * square))

    model = AdvectionDiffusion(domain, [(Inflow(), Outflow())], "central")
    final = final_state(model, jnp.asarray(gaussian(0.0)), parameters(1, 0.01, (a,)), end=end, steps=400)
    # Dispersion at second order is a h^2 t / 6 u'''; of a Gaussian, |u'''| is at most 1.38 peak / width^3.
    (h,) = domain.grid.spacing
    spread = np.sqrt(width**2 + 0.02 * end)
    np.testing.assert_allclose(final, gaussian(end), rtol=0, atol=1.1 * a * h**2 * end / 6 * 1.38 * width / spread**4)
    # Moments are free of dispersion at second order but for the centre: exact to the tails cut off at the ends.
    mass, centre = float(final.sum() * h), float((final * x).sum() / final.sum())
    assert mass == pytest.approx(width * np.sqrt(2 * np.pi), rel=1e-9)
    assert centre == pytest.approx(start + a * end, rel=1e-9)
    assert float((final * (x - centre) ** 2).sum() / final.sum()) == pytest.approx(width**2 + 0.02 * end, rel=1e-8)


def random_state(grid, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=grid.shape))


@pytest.mark.parametrize("scheme", ["central", "upwind"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.slow
def test_periodic_advection_conserves_the_mean(scheme, ndim):
    grid = box(ndim, 8)
    model = AdvectionDiffusion(Domain(grid), [PERIODIC] * ndim, scheme)
    start = random_state(grid)
    final = final_state(model, start, parameters(ndim), end=0.2, steps=20)
    assert float(jnp.abs(final - start).max()) > 0.1
    # Twenty steps, each rounding a sum of a thousand values of order one.
    assert float(final.mean()) == pytest.approx(float(start.mean()), abs=1e-15)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_walls_let_nothing_through(ndim):
    grid = box(ndim, 8)
    model = AdvectionDiffusion(Domain(grid), [(NoSlipWall(), NoSlipWall())] * ndim)
    start = random_state(grid)
    final = final_state(model, start, parameters(ndim, velocity=(0.0, 0.0, 0.0)), end=0.2, steps=20)
    assert float(jnp.abs(final - start).max()) > 0.1
    assert float(final.mean()) == pytest.approx(float(start.mean()), abs=1e-15)


def test_a_prescribed_flux_is_what_arrives():
    """The content grows by kappa times the slope at the wall, exactly: the discrete flux telescopes."""
    grid = box(2, 8)
    sides = [(ScalarSide(Neumann(0.7)), ScalarSide(Neumann(-0.2))), (NoSlipWall(), NoSlipWall())]
    model = AdvectionDiffusion(Domain(grid), sides)
    start = random_state(grid)
    final = final_state(model, start, parameters(2, velocity=(0.0, 0.0)), end=0.2, steps=20)
    gained = float((final - start).sum() * grid.cell_volume)
    assert gained == pytest.approx(DIFFUSIVITY * (0.7 - 0.2) * grid.lengths[1] * 0.2, rel=1e-12)


@pytest.mark.parametrize("scheme", ["central", "upwind"])
@pytest.mark.slow
def test_the_mirror_image_has_the_mirrored_solution(scheme):
    """Each axis in turn reversed, with its velocity and its walls."""
    grid = box(2, 6)
    pairs = [(ScalarSide(Dirichlet(0.3)), ScalarSide(Neumann(0.6))), (Inflow(scalar=-0.2), Outflow())]
    start = random_state(grid)

    def solve(pairs, start, velocity):
        model = AdvectionDiffusion(Domain(grid), pairs, scheme)
        return final_state(model, start, parameters(2, velocity=velocity), end=0.1, steps=10, integrator="heun")

    solution = solve(pairs, start, VELOCITY)
    for axis in range(2):
        velocity = tuple(-v if k == axis else v for k, v in enumerate(VELOCITY))
        mirrored = [pair[::-1] if k == axis else pair for k, pair in enumerate(pairs)]
        image = solve(mirrored, jnp.flip(start, axis), velocity)
        # Sums of neighbours run in the other order: a rounding of values of order one in each of ten steps.
        np.testing.assert_allclose(jnp.flip(image, axis), solution, rtol=0, atol=1e-14)


def test_axes_may_be_exchanged():
    """The transposed problem has the transposed solution."""
    grid = box(3, 4)
    start = random_state(grid)
    pairs = [PERIODIC, (Inflow(scalar=0.4), Outflow()), (NoSlipWall(), ScalarSide(Dirichlet(1.0)))]

    def solve(order):
        turned = Grid(*([v[k] for k in order] for v in (grid.shape, grid.lower, grid.upper)))
        model = AdvectionDiffusion(Domain(turned), [pairs[k] for k in order], "upwind")
        params = parameters(3, velocity=tuple(VELOCITY[k] for k in order))
        return final_state(model, start.transpose(order), params, end=0.1, steps=10, integrator="euler")

    solution = solve((0, 1, 2))
    for order in itertools.islice(itertools.permutations(range(3)), 1, None, 2):
        # Terms are summed in the order of the axes.
        np.testing.assert_allclose(solve(order), solution.transpose(order), rtol=0, atol=1e-14)


def test_upwind_makes_no_new_extremes():
    grid = box(2, 16)
    model = AdvectionDiffusion(Domain(grid), [PERIODIC] * 2, "upwind")
    start = (random_state(grid) > 0).astype(float)
    params = parameters(2)
    # At Courant number one of `stable_dt` every new value is a convex combination of old ones.
    dt = 0.999 * float(model.stable_dt(State(start), params))
    final = final_state(model, start, params, end=10 * dt, steps=10, integrator="euler")
    assert float(final.min()) >= 0.0 and float(final.max()) <= 1.0
    assert float(final.max() - final.min()) < 0.9


def test_stable_step_is_the_largest_for_forward_euler():
    """Pure diffusion: the shortest wave neither grows at Courant number one nor decays beyond it."""
    grid = box(2, 8)
    model = AdvectionDiffusion(Domain(grid), [PERIODIC] * 2)
    params = parameters(2, velocity=(0.0, 0.0))
    i, j = np.indices(grid.shape)
    chessboard = jnp.asarray((-1.0) ** (i + j))
    limit = float(model.stable_dt(State(chessboard), params))
    for courant, growth in ((1.0, 1.0), (1.1, 1.2)):
        # One step multiplies the chessboard by 1 - 2 courant.
        final = final_state(model, chessboard, params, end=courant * limit, steps=1, integrator="euler")
        np.testing.assert_allclose(final, -growth * chessboard, rtol=1e-12)


def test_diagnostics_are_those_of_the_field():
    grid = box(2, 8)
    model = AdvectionDiffusion(Domain(grid), [PERIODIC] * 2)
    c = random_state(grid)
    found = model.diagnostics(0.0, State(c), parameters(2))
    expected = {
        "total_concentration": np.sum(c) * np.prod(grid.spacing),
        "mean_concentration": np.mean(c),
        "variance_concentration": np.var(c),
        "minimum_concentration": np.min(c),
        "maximum_concentration": np.max(c),
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(float(value), rel=1e-13)


@pytest.mark.parametrize("checkpoint", ["two_level", "none"])
def test_heat_diffusivity_gradient_in_closed_form(checkpoint):
    """u_t = alpha u_xx, sin x on [0, 2 pi): after n steps of forward Euler u = G^n sin x, G = 1 - alpha dt s, so
    J = h/2 sum (u - B sin x)^2 = pi/2 (G^n - B)^2 and dJ/dalpha = -pi (G^n - B) n G^(n-1) dt s, with
    s = (2/h sin(h/2))^2.
    """
    n, steps, dt, alpha, target = 64, 200, 0.005, 0.5, np.exp(-0.8)
    domain = Domain(Grid((n,), (0.0,), (2 * np.pi,)))
    model = AdvectionDiffusion(domain, [PERIODIC])
    (x,) = domain.coordinates((0.5,))
    (h,) = domain.grid.spacing

    @jax.jit
    @jax.value_and_grad
    def misfit(diffusivity):
        trajectory = simulate(
            model,
            INTEGRATORS["euler"],
            Params(diffusivity, jnp.zeros(1)),
            State(jnp.sin(x)),
            Schedule(dt * steps, dt=dt),
            frames=1,
            checkpoint=checkpoint,
        )
        return h / 2 * domain.sum((trajectory.state.concentration - target * jnp.sin(x)) ** 2)

    value, slope = misfit(jnp.asarray(alpha))
    # Two hundred steps of rounding on a solution that decays: a few tens of eps.
    assert float(value) == pytest.approx(0.03875117183391284, rel=1e-12)
    assert float(slope) == pytest.approx(-0.29972667081201926, rel=1e-12)
    # The same from the closed form above.
    s = (2 / h * np.sin(h / 2)) ** 2
    growth = 1 - alpha * dt * s
    assert float(value) == pytest.approx(np.pi / 2 * (growth**steps - target) ** 2, rel=1e-12)
    expected = -np.pi * (growth**steps - target) * steps * growth ** (steps - 1) * dt * s
    assert float(slope) == pytest.approx(expected, rel=1e-12)
