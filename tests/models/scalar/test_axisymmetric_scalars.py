"""Scalars in (r, z): what stays, conservation, order against exact solutions, the step at the axis, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK

import simjax as sj
from simjax.core.boundary import Outflow, SlipWall
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.scalar import advection_diffusion as plain
from simjax.models.scalar.transport import Params, State, Transport
from simjax.stepping.simulate import Schedule, simulate

CLOSED, AXIS = (SlipWall(), SlipWall()), (SlipWall(), Outflow())


def rings(shape, lower, upper, stretched=False):
    ends = zip(shape, lower, upper, strict=True)
    stretch = [lines("formula", "s - 0.5*s*s*(1 - s)", n, a, b) for n, a, b in ends] if stretched else ()
    return Domain(Grid(shape, lower, upper, stretch, axisymmetric=True))


def along_lines(grid):
    """A velocity of which the divergence is a rounding: differences of a stream function on corners of the cells."""
    r, z = (
        np.asarray(grid.stretch[k].faces if grid.stretched else grid.lower[k] + np.arange(n + 1) * h)
        for k, (n, h) in enumerate(zip(grid.shape, grid.mean_spacing, strict=True))
    )
    ends = (r - r[0]) * (r - r[-1]) * (1 + r)
    psi = np.multiply.outer(ends, np.sin(np.pi * (z - z[0]) / (z[-1] - z[0])))
    middle = 0.5 * (r[1:] + r[:-1])[:, None]
    with np.errstate(invalid="ignore"):
        radial = -np.diff(psi, axis=1) / np.diff(z) / r[:, None]
    axial = np.diff(psi, axis=0) / np.diff(r)[:, None] / middle
    return jnp.asarray(np.nan_to_num(radial[:-1])), jnp.asarray(axial[:, :-1])


@pytest.mark.parametrize(
    ("inner", "stretched"), [(0.0, False), pytest.param(0.3, True, marks=pytest.mark.slow)], ids=["axis", "tube"]
)
def test_what_is_the_same_everywhere_stays_and_the_total_too(inner, stretched):
    domain = rings((12, 10), (inner, 0.0), (1.0, 1.5), stretched)
    model, random = Transport(domain, [CLOSED, CLOSED], "van_leer"), np.random.default_rng(0)
    diffusivity, rough = (jnp.asarray(1 + random.random(domain.grid.shape)) for _ in range(2))
    rhs = jax.jit(model.rhs, compiler_options=QUICK)
    params = Params(along_lines(domain.grid), diffusivity)
    # Roundings of fluxes of one over widths of 0.03.
    assert float(jnp.abs(rhs(0.0, State(jnp.full(domain.grid.shape, 1.3)), params).concentration).max()) < 1e-13
    anyhow = tuple(jnp.asarray(u) for u in random.normal(size=(2, *domain.grid.shape)))
    change = rhs(0.0, State(rough), Params(anyhow, diffusivity))
    found, gross = (model.diagnostics(0.0, u, params) for u in (change, jax.tree.map(jnp.abs, change)))
    # A sum of some hundred terms.
    assert abs(float(found["total_concentration"])) < 1e-13 * float(gross["total_concentration"])
    # A hundred volumes add up to that of the cylinder, in rings whose areas are differences of squares: some roundings.
    one = model.diagnostics(0.0, State(jnp.ones(domain.grid.shape)), params)
    np.testing.assert_allclose(float(one["total_concentration"]), np.pi * (1 - inner**2) * 1.5, rtol=1e-14)
    np.testing.assert_allclose(float(one["mean_concentration"]), 1.0, rtol=1e-14)
    assert model.measures()["total_concentration"].units == "m3"


STRAIN, KAPPA, END, START = 0.6, 0.02, 0.5, 0.02


def heat(r, z, t, strain=STRAIN, speed=0.0):
    """A Gaussian that spreads in space in the flow (s r / 2, w - s z): its widths obey equations of their own."""

    def width(rate):
        grown = np.exp(rate * t)
        return START * grown + 2 * KAPPA * ((grown - 1) / rate if rate else t)

    across, along = width(strain), width(-2 * strain)
    size = START**1.5 / (across * np.sqrt(along))
    return size * jnp.exp(-(r**2) / (2 * across) - (z - speed * t) ** 2 / (2 * along))


def heat_errors(model, params, make, **flow):
    """The largest error at the end, beside the axis and elsewhere: the Gaussian is largest there."""
    r, z = model.domain.coordinates((0.5, 0.5))
    schedule = Schedule(END, courant=0.4, max_steps=2000)
    run = jax.jit(
        lambda state: simulate(model, INTEGRATORS["ssprk2"], params, state, schedule, frames=1, checkpoint="none")
    )
    trajectory = run(make(heat(r, z, 0.0, **flow)))
    assert int(trajectory.clock.status) == 0
    return float(jnp.abs(trajectory.state.concentration - heat(r, z, END, **flow)).max())


def strained(n):
    domain = rings((n, 2 * n), (0.0, -1.0), (1.0, 1.0))
    r, z = domain.coordinates((0.0, 0.0))
    ones = jnp.ones(domain.grid.shape)
    params = Params((0.5 * STRAIN * r * ones, -STRAIN * z * ones), jnp.full(domain.grid.shape, KAPPA))
    return heat_errors(Transport(domain, [AXIS, CLOSED], "central"), params, State)


def carried(n):
    domain = rings((n, 2 * n), (0.0, -1.0), (1.0, 1.0))
    params = plain.Params(jnp.asarray(KAPPA), jnp.asarray([0.0, 0.3]))
    model = plain.AdvectionDiffusion(domain, [AXIS, AXIS])
    return heat_errors(model, params, plain.State, strain=0.0, speed=0.3)


@pytest.mark.parametrize("errors", [strained, pytest.param(carried, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_spreading_gaussian_is_met_at_second_order(errors):
    """In a straining flow, and carried along; of second order at the axis too, where the error is largest."""
    coarse, fine = errors(20), errors(40)
    print(coarse, fine)
    assert fine < 0.01  # of one
    assert 1.85 < np.log2(coarse / fine) < 2.15


def test_the_longest_step_keeps_a_scalar_positive_at_the_axis():
    """What leaves the ring around the axis passes a face that is twice as large as on a Cartesian grid."""
    domain = rings((6, 4), (0.0, 0.0), (0.6, 0.4))
    model = Transport(domain, [AXIS, PERIODIC], "upwind")
    start = State(jnp.zeros((6, 4)).at[0, 1].set(1.0))
    still = jnp.zeros((6, 4))
    outwards = Params((still.at[1].set(1.0), still), None)
    spread = Params((still, still), jnp.ones((6, 4)))

    def longest(params):
        dt = jnp.min(model.stable_dt(start, params))
        return jnp.min(start.concentration + dt * model.rhs(0.0, start, params).concentration)

    for params in (outwards, spread):
        # At this step nothing of the cell is left; a longer one takes more than there was.
        np.testing.assert_allclose(float(jax.jit(longest, compiler_options=QUICK)(params)), 0.0, atol=1e-13)


TRANSPORT = {
    "model": sj.Transport,
    "coefficients": {"velocity": ["0", "1"], "diffusivity": "0.1"},
    "boundaries": {"x": "slip", "y": "slip"},
    "initial": {"concentration": "1"},
    "grid": {"shape": [8, 8], "axisymmetric": True},
    "time": {"end": 1.0, "output_every": 1.0},
}
PLAIN = TRANSPORT | {
    "model": sj.AdvectionDiffusion,
    "coefficients": {},
    "physics": {"diffusivity": 0.1, "velocity": [0, 1]},
}


@pytest.mark.parametrize(
    ("given", "change", "message"),
    [
        (TRANSPORT, {"time": {**TRANSPORT["time"], "integrator": "imex_euler"}}, "implicit diffusion: expected a Cart"),
        (TRANSPORT, {"physics": {"scheme": "weno5"}}, "physics.scheme = weno5: .* of second order"),
        (TRANSPORT, {"boundaries": {"x": "outflow", "y": "slip"}}, "boundaries.x.lower = outflow: expected slip"),
        (TRANSPORT, {"boundaries": {"x": "periodic", "y": "slip"}}, "boundaries.x: r does not wrap"),
        (PLAIN, {"physics": {"diffusivity": 0.1, "velocity": [1, 0]}}, r"physics.velocity along r: .*write \[0, w\]"),
        (PLAIN, {"boundaries": {"x": "outflow", "y": "slip"}}, "boundaries.x.lower = outflow: expected slip"),
    ],
    ids=["implicit", "weno5", "axis", "wraps", "radial", "plain-axis"],
)
def test_what_a_scalar_does_not_take_is_told(given, change, message):
    given = dict(given) | change
    with pytest.raises(ConfigurationError, match=message):
        sj.configure(given.pop("model"), **given)


def test_python_callers_are_told_too():
    domain = rings((8, 8), (0.0, 0.0), (1.0, 1.0))
    with pytest.raises(ConfigurationError, match="physics.scheme = central4"):
        Transport(domain, [CLOSED, CLOSED], "central4")
    with pytest.raises(ConfigurationError, match="boundaries.x.lower = outflow: expected slip"):
        plain.AdvectionDiffusion(domain, [(Outflow(), Outflow()), CLOSED])
    with pytest.raises(ConfigurationError, match="implicit diffusion: expected a Cartesian grid"):
        Transport(domain, [CLOSED, CLOSED]).prepare(Params((jnp.zeros((8, 8)),) * 2, jnp.ones((8, 8))))
    model = plain.AdvectionDiffusion(domain, [CLOSED, CLOSED])
    params = plain.Params(jnp.asarray(0.1), jnp.asarray([0.5, 0.0]))
    assert bool(model.unphysical(plain.State(jnp.ones((8, 8))), params)["velocity along r"].all())
