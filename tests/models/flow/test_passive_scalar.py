"""A passive scalar in incompressible flow: order, conservation, bounds, and the flow that it leaves alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK

from simjax.config.validate import validate
from simjax.core.boundary import NoSlipWall, SlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow import incompressible
from simjax.models.flow.passive_scalar import Params, PassiveScalar, State
from simjax.ops.scalar_fluxes import SCHEMES
from simjax.stepping.simulate import Schedule, simulate

TAU = 2 * np.pi
BOX = [(NoSlipWall(), SlipWall()), (NoSlipWall(), NoSlipWall((1.0, 0.0)))]


def parameters(viscosity=0.01, diffusivity=0.0, drag=0.0):
    return Params(*map(jnp.asarray, (viscosity, drag, diffusivity)))


def advance(model, params, state, schedule, *, frames=1, integrator="ssprk3"):
    """The state at the end."""
    run = jax.jit(
        lambda p, s: simulate(model, INTEGRATORS[integrator], p, s, schedule, frames=frames, checkpoint="none"),
        compiler_options=QUICK,
    )
    trajectory = run(params, state)
    assert int(trajectory.clock.status) == 0
    return trajectory.state


def stirred(model, seed=0):
    """White noise that obeys walls and continuity, and cells without and full of dye at random."""
    rng, shape = np.random.default_rng(seed), model.domain.grid.shape
    velocity = tuple(jnp.asarray(rng.normal(size=shape)) for _ in shape)
    dye = jnp.asarray(rng.integers(0, 2, size=shape), jnp.float64)
    return jax.jit(model.constrain)(0.0, 0.0, State(velocity, dye), parameters())


# ---------------------------------------------------------------- order


class Carried:
    """Dye in Taylor-Green vortices on a drift: what a source of c_t + u . grad c - D lap c keeps as it is given."""

    viscosity, diffusivity, drift = 0.05, 0.02, (1.0, 0.6)

    @classmethod
    def velocity(cls, t, x, y):
        (a, b), decay = cls.drift, jnp.exp(-2 * cls.viscosity * t)
        return (
            a + jnp.sin(x - a * t) * jnp.cos(y - b * t) * decay,
            b - jnp.cos(x - a * t) * jnp.sin(y - b * t) * decay,
        )

    @staticmethod
    def dye(t, x, y):
        return jnp.sin(x + 0.3) * jnp.cos(2 * y - t) + 0.5 * jnp.cos(2 * x + y)

    @classmethod
    def source(cls, t, coordinates, params):
        x, y = jnp.broadcast_arrays(*coordinates)

        def one(t, x, y):
            c_t, c_x, c_y = (jax.grad(cls.dye, k)(t, x, y) for k in range(3))
            curvature = sum(jax.grad(jax.grad(cls.dye, k), k)(t, x, y) for k in (1, 2))
            u, v = cls.velocity(t, x, y)
            return c_t + u * c_x + v * c_y - cls.diffusivity * curvature

        rates = jax.vmap(one, in_axes=(None, 0, 0))(jnp.asarray(t, x.dtype), x.ravel(), y.ravel())
        return rates.reshape(x.shape)


# With limiters of second order but at extremes, whose part of the mean error falls faster or slower with the number of
# cells that they take.
@pytest.mark.parametrize(
    "scheme, least, most", [pytest.param("central", 1.9, 2.1, marks=pytest.mark.slow), ("van_leer", 1.65, 2.5)]
)
@pytest.mark.slow
def test_second_order_in_a_flow_that_moves(scheme, least, most):
    end = 0.5

    def error(n):
        model = PassiveScalar(
            Domain(Grid((n, n), upper=(TAU, TAU))), [PERIODIC, PERIODIC], scheme, source=Carried.source
        )
        x = model.domain.coordinates(model.layout.offset)

        def at(t):
            velocity = (
                Carried.velocity(t, *model.domain.coordinates(kind.offset))[i]
                for i, kind in enumerate(model.flow.layouts)
            )
            return State(tuple(velocity), Carried.dye(t, *x))

        # Third order in time with sixty steps: nothing beside the errors of space.
        params = parameters(Carried.viscosity, Carried.diffusivity)
        final = advance(model, params, at(0.0), Schedule(end, dt=end / 60))
        return float(jnp.mean(jnp.abs(final.concentration - at(end).concentration)))

    coarse, fine = error(32), error(64)
    assert least <= np.log2(coarse / fine) <= most, (coarse, fine)
    assert fine < 4e-3


@pytest.mark.slow
def test_at_schmidt_number_one_the_scalar_moves_as_a_third_component_of_velocity():
    """In a flow that is the same along z, w obeys the scalar's equation with viscosity for diffusivity."""
    grid = Grid((12, 8, 2))
    sides = [(SlipWall(), SlipWall()), PERIODIC, PERIODIC]  # no flux of w at slip walls, none of the scalar
    model = PassiveScalar(Domain(grid), sides, "central")
    plane = stirred(PassiveScalar(Domain(Grid((12, 8))), sides[:2]))
    u, v, w = (jnp.broadcast_to(a[..., None], grid.shape) for a in (*plane.velocity, plane.concentration))
    state = State((u, v, w), w)
    final = advance(model, parameters(0.02, 0.02), state, Schedule(0.1, dt=0.01))
    moved = float(jnp.abs(final.concentration - w).max())
    assert moved > 0.1
    # The projection leaves rounding in w.
    np.testing.assert_allclose(final.concentration, final.velocity[2], rtol=0, atol=1e-13)


# ---------------------------------------------------------------- what is kept


@pytest.mark.slow
def test_the_scalar_is_conserved_and_a_constant_stays():
    """In a box with a moving lid, from white noise: fluxes cancel in pairs and vanish at walls."""
    params = parameters(diffusivity=0.01)
    for name, scheme in SCHEMES.items():
        model = PassiveScalar(Domain(Grid((16, 12))), BOX, name)
        slope = jax.jit(lambda s, m=model: m.rhs(0.0, s, params).concentration, compiler_options=QUICK)
        state = stirred(model)
        of_noise, of_ones = slope(state), slope(State(state.velocity, jnp.ones((16, 12))))
        largest = float(jnp.abs(of_noise).max())
        # A sum over 192 cells.
        assert abs(float(jnp.sum(of_noise))) < 1e-13 * largest, name
        # What the projection leaves of the divergence; the wide fluxes of high order have a divergence of their own.
        assert scheme.reach or float(jnp.abs(of_ones).max()) < 1e-13 * largest, name


@pytest.mark.slow
def test_limited_schemes_keep_to_the_range_of_the_start():
    """Cells full and empty at random, no diffusion, half the step at which an upwind scheme is monotone."""
    schedule, beyond = Schedule(0.2, courant=0.5, max_steps=60), {}
    for scheme in ("van_leer", "central"):
        model = PassiveScalar(Domain(Grid((16, 12))), BOX, scheme)
        c = advance(model, parameters(0.001), stirred(model), schedule).concentration
        beyond[scheme] = max(-float(c.min()), float(c.max()) - 1)
    assert beyond["van_leer"] < 1e-13
    assert beyond["central"] > 0.05  # the test sees what it looks for


@pytest.mark.slow
def test_diffusivity_limits_the_step():
    """At steps of the limit of kutta3, with D far above the viscosity, the variance falls to what diffusion leaves."""
    model = PassiveScalar(Domain(Grid((16, 12))), BOX, "central")
    params = parameters(viscosity=0.001, diffusivity=0.5)
    state = stirred(model)
    assert 2 * 0.5 * (16**2 + 12**2) * float(model.stable_dt(state, params)) < 1
    c = advance(model, params, state, Schedule(0.1, courant=1.0, max_steps=200), integrator="kutta3").concentration
    # The slowest wave falls by exp(-D pi^2 t) = 0.6 in size, white noise of 192 waves to about one of them.
    assert float(jnp.var(c)) < 0.05 * float(jnp.var(state.concentration))


def test_the_flow_does_not_feel_the_scalar():
    model = PassiveScalar(Domain(Grid((16, 12))), BOX)
    alone = incompressible.Incompressible(Domain(Grid((16, 12))), BOX)
    state, params = stirred(model), parameters(diffusivity=0.02)

    def tendency(model):
        return jax.jit(lambda p, s: model.rhs(0.0, s, p).velocity, compiler_options=QUICK)

    flow = incompressible.State(state.velocity)
    for found, expected in zip(tendency(model)(params, state), tendency(alone)(params, flow), strict=True):
        # To rounding: the compiler contracts products and sums differently in the two programs.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * float(jnp.abs(expected).max()))


# ---------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"physics": {"viscosity": 0.01, "diffusivity": -1}}, "physics.diffusivity = -1"),
        ({"physics": {"viscosity": 0.01, "scheme": "van_lear"}}, "did you mean 'van_leer'"),
        ({"boundaries": {"x": {"lower": "dirichlet", "upper": "slip"}}}, "boundaries.x.lower = 'dirichlet'"),
        ({"forcing": {"dye": 1}}, "forcing.dye"),
    ],
)
def test_what_a_configuration_may_not_say(keys, said):
    base = {"model": "passive_scalar", "physics": {"viscosity": 0.01}, "grid": {"shape": [16, 16]}, "time": {}}
    with pytest.raises(ConfigurationError, match=said):
        validate({**base, **keys})
