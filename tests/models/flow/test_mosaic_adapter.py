"""The adapter to the public benchmark Mosaic beside an exact solution."""

import runpy

import jax.numpy as jnp
import numpy as np
from paths import ROOT

ADAPTER = ROOT / "benchmarks" / "referees" / "mosaic_adapter" / "periodic_flow.py"


def test_taylor_and_greens_vortex_in_a_stream_and_its_slope_by_the_viscosity():
    flow = runpy.run_path(str(ADAPTER))
    n, steps, dt, viscosity, stream = 16, 4, 0.05, 0.02, (0.3, -0.2)
    x, y = np.meshgrid(*[2 * np.pi * np.arange(n) / n] * 2, indexing="ij")

    def vortex(t):
        a, b = x - stream[0] * t, y - stream[1] * t
        decay = np.exp(-2 * viscosity * t)
        return np.stack([np.sin(a) * np.cos(b), -np.cos(a) * np.sin(b)], axis=-1)[:, :, None] * decay

    start = {"v0": vortex(0.0) + stream, "viscosity": np.array([viscosity]), "dt": np.array([dt])}
    fixed = {"steps": steps, "extent": 2 * np.pi}
    arrays = {name: jnp.asarray(value) for name, value in start.items()}
    end = flow["final_velocity"](arrays["v0"], arrays["viscosity"], arrays["dt"], **fixed)
    # The stream carries the vortex by a scheme of fourth order: (0.5 dt)^5 times the steps, and a few times that.
    np.testing.assert_allclose(end, vortex(steps * dt) + stream, rtol=0, atol=1e-6)

    slope = flow["pulled_back"](arrays, end, wanted=("viscosity",), **fixed)["viscosity"]
    np.testing.assert_allclose(slope[0], np.sum(end * -2 * steps * dt * vortex(steps * dt)), rtol=1e-6)
