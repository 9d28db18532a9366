"""Atmospheres at rest between sides with a pressure of their own: it stands at the side, not half a cell beyond."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gas_runs import CLOSED, MUSCL, OPEN, PERIODIC, WENO, centers, gas, run, start

from simjax.core.boundary import Outflow, SlipWall
from simjax.models.gas.boundaries import GasInflow, GasOutflow
from simjax.models.gas.compressible import Params
from simjax.ops.gas import GasScheme

HEAT, PULL = 0.5, -1.0
FALL = Params(jnp.asarray(1.4), gravity=jnp.asarray([PULL]))
FIRST = GasScheme("first_order", "primitive", "hllc")
BOTTOM = {"wall": lambda p: SlipWall(), "inflow": lambda p: GasInflow(p / HEAT, p), "outflow": GasOutflow}
TOP = {**BOTTOM, "open": lambda p: Outflow()}


def pairs(names):
    lower, upper = names.split("-")
    return BOTTOM[lower], TOP[upper]


@pytest.mark.parametrize("names", ["outflow-outflow", "inflow-outflow", "wall-inflow", "wall-open"])
@pytest.mark.parametrize(
    "scheme", [FIRST, MUSCL, pytest.param(WENO, marks=pytest.mark.slow)], ids=["first", "mc", "weno"]
)
def test_an_atmosphere_between_any_sides_rests_to_rounding(names, scheme):
    """p[j + 1] - p[j] = h g (rho[j] + rho[j + 1]) / 2, and the same over the half cell between a side and its cell."""
    n = 16
    half = PULL / (2 * n * HEAT)
    step, at_side = (1 + half) / (1 - half), (1 + half / 2) / (1 - half / 2)
    pressure = at_side * step ** np.arange(n)
    lower, upper = pairs(names)
    model = gas((n,), [(lower(1.0), upper(pressure[-1] * at_side))], scheme, gravity_axes=(0,))
    state = start(model, pressure / HEAT, (0.0,), pressure, params=FALL)
    slope = jax.jit(lambda state: model.rhs(0.0, state, FALL))(state)
    # Roundings of pressures of one, over the width of a cell.
    for u in jax.tree.leaves(slope):
        np.testing.assert_allclose(u, 0, atol=1e-13)


@pytest.mark.parametrize(
    "names",
    ["outflow-outflow", *(pytest.param(names, marks=pytest.mark.slow) for names in ("inflow-outflow", "wall-inflow"))],
)
@pytest.mark.parametrize("scheme", [FIRST, pytest.param(WENO, marks=pytest.mark.slow)], ids=["first", "weno"])
def test_winds_of_the_exact_atmosphere_fall_at_second_order(names, scheme):
    """0.038, 0.022 and 0.012 at 32, 64 and 128 cells where pressure stood half a cell beyond the side."""
    winds = []
    for n in (16, 32):
        lower, upper = pairs(names)
        model = gas((n,), [(lower(1.0), upper(float(np.exp(PULL / HEAT))))], scheme, gravity_axes=(0,))
        pressure = jnp.exp(PULL * centers(model)[0] / HEAT)
        last = run(model, start(model, pressure / HEAT, (0.0,), pressure, params=FALL), 1.0, params=FALL)
        winds.append(float(jnp.abs(last.momentum[0] / last.density).max()))
    assert winds[0] < 0.003 and winds[0] / winds[1] > 3.5


def test_gravity_beyond_a_side_does_not_matter_across_another_axis():
    """Along y the gas rests on its own pressure, whatever flows through sides across x."""
    params = Params(jnp.asarray(1.4), gravity=jnp.asarray([0.0, PULL]))
    across = GasInflow(2.0, 1.0, (0.3, 0.0)), GasOutflow(1.0)
    model = gas((6, 8), [across, CLOSED], MUSCL, gravity_axes=(1,))
    plain = gas((6, 8), [OPEN, CLOSED], MUSCL, gravity_axes=(1,))
    periodic = gas((6, 8), [PERIODIC, CLOSED], MUSCL, gravity_axes=(1,))
    found = [
        jax.jit(lambda state, m=m: m.rhs(0.0, state, params))(start(m, 2.0, (0.3, 0.0), 1.0, params=params))
        for m in (model, plain, periodic)
    ]
    for slope in found[:2]:
        for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(found[2]), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-13)
