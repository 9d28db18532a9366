"""The adapter to the public benchmark Mosaic: an exact solution, the momentum that a cylinder takes, and refusals."""

import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from paths import ROOT

sys.path.append(str(ROOT / "benchmarks" / "referees" / "mosaic_adapter"))
from channel_flow import Channel  # noqa: E402
from solved import pulled_back, refusal, solved  # noqa: E402


@pytest.mark.slow
def test_taylor_and_greens_vortex_in_a_stream_and_its_slope_by_the_viscosity():
    n, steps, dt, viscosity, stream = 16, 4, 0.05, 0.02, (0.3, -0.2)
    x, y = np.meshgrid(*[2 * np.pi * np.arange(n) / n] * 2, indexing="ij")

    def vortex(t):
        a, b = x - stream[0] * t, y - stream[1] * t
        decay = np.exp(-2 * viscosity * t)
        return np.stack([np.sin(a) * np.cos(b), -np.cos(a) * np.sin(b)], axis=-1)[:, :, None] * decay

    start = {"v0": vortex(0.0) + stream, "viscosity": np.array([viscosity]), "dt": np.array([dt])}
    fixed = {"steps": steps, "extent": 2 * np.pi, "channel": None}
    arrays = {name: jnp.asarray(value) for name, value in start.items()}
    end = solved(arrays, **fixed)["result"]
    # The stream carries the vortex by a scheme of fourth order: (0.5 dt)^5 times the steps, and a few times that.
    np.testing.assert_allclose(end, vortex(steps * dt) + stream, rtol=0, atol=1e-6)

    slope = pulled_back(arrays, {"result": end}, wanted=("viscosity",), **fixed)["viscosity"]
    np.testing.assert_allclose(slope[0], np.sum(end * -2 * steps * dt * vortex(steps * dt)), rtol=1e-6)


def past_a_cylinder(n, inflow=None):
    stream = jnp.stack([jnp.full((n, n), 0.5), jnp.zeros((n, n))], axis=-1)[:, :, None]
    arrays = {"v0": stream, "viscosity": jnp.array([0.01]), "dt": jnp.array([0.02])}
    return arrays if inflow is None else arrays | {"inflow_profile": inflow}


@pytest.mark.slow
def test_the_drag_is_what_the_fluid_loses_to_the_cylinder():
    n, extent = 16, 2.0
    fixed = {"extent": extent, "channel": Channel((0.5, 0.5), 0.15, (("periodic",) * 2,) * 2)}
    before, after = (solved(past_a_cylinder(n), steps=steps, **fixed) for steps in (1, 2))
    gain = jnp.sum(after["result"][..., 0] - before["result"][..., 0]) * (extent / n) ** 2 / 0.02
    assert after["drag"][0] < -0.01
    # Sums of 256 cells of order one, over a step of 1/50 and times the area of a cell of 1/64, to a hundred roundings.
    np.testing.assert_allclose(after["drag"][0], gain, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_slope_of_the_drag_by_the_profile_that_flows_in():
    n = 12
    profile = jnp.linspace(0.4, 0.6, n)
    fixed = {"steps": 4, "extent": 1.0, "channel": Channel((0.5, 0.5), 0.15, (("periodic",) * 2, ("no_slip",) * 2))}
    slope = pulled_back(past_a_cylinder(n, profile), {"drag": jnp.ones(1)}, wanted=("inflow_profile",), **fixed)[
        "inflow_profile"
    ]
    way = np.random.default_rng(0).normal(size=n)
    there, back = (solved(past_a_cylinder(n, profile + e * way), **fixed)["drag"][0] for e in (1e-5, -1e-5))
    # Central differences of step 1e-5: 1e-10 of third derivatives, and a hundred roundings over 1e-5.
    np.testing.assert_allclose((there - back) / 2e-5, slope @ way, rtol=1e-7)


SIDES = ("x_lo", "x_hi", "y_lo", "y_hi")


def asked(kinds=("periodic",) * 4, obstacle=None, inflow=None):
    sides = {name: SimpleNamespace(type=SimpleNamespace(value=kind)) for name, kind in zip(SIDES, kinds, strict=True)}
    faces = SimpleNamespace(**sides, is_fully_periodic=set(kinds) == {"periodic"})
    return SimpleNamespace(domain_extent=1.0, boundary_conditions=faces, obstacle=obstacle, inflow_profile=inflow)


def body(shape="cylinder", radius=0.1):
    return SimpleNamespace(shape=SimpleNamespace(value=shape), center=[0.5, 0.5], radius=radius)


def test_what_simjax_does_not_solve_is_refused_in_a_sentence():
    channel = ("neumann", "neumann", "no_slip", "no_slip")
    assert refusal(asked()) is None and refusal(asked(channel, body())) is None
    for inputs, sentence in (
        (asked(channel), "Without an obstacle this adapter has periodic boxes"),
        (asked(inflow=np.ones(4)), "Without an obstacle this adapter has periodic boxes"),
        (asked(channel, body("box", None)), "obstacle: expected a cylinder in the plane"),
        (asked(("dirichlet", *channel[1:]), body()), "expected periodic, no_slip, neumann, got dirichlet"),
    ):
        assert sentence in str(refusal(inputs))
