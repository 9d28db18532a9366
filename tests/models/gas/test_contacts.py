"""Contacts between gases of very different density: what no flux changes must stay, and safeguards are counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from exact_riemann import SOD
from gas_runs import CLOSED, IDEAL, MUSCL, OPEN, PERIODIC, gas, run, start, tube

from simjax.models.gas.compressible import Params
from simjax.ops.gas import GasScheme

FIRST = GasScheme("first_order", "primitive", "hllc")
WEIGHTED = GasScheme("weno5", "primitive", "hllc")


@pytest.mark.parametrize("scheme", [FIRST, MUSCL, WEIGHTED], ids=["first", "mc", "weno"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_contact_at_rest_stays_to_the_last_bit(scheme, dtype):
    """HLLC keeps it; mixed with a first-order flux, one of 1 : 1000 lost 50 over three cells."""
    model = gas((24,), [OPEN], scheme, count_limited=True)
    params = Params(jnp.asarray(1.4, dtype))
    (x,) = model.domain.coordinates((0.5,), dtype)

    @jax.jit
    def slope(ratio):
        state = start(model, jnp.where(x < 0.5, 1, ratio), (0.0,), 1.0, params=params, dtype=dtype)
        return model.rhs(0.0, state, params), model.diagnostics(0.0, state, params)["limited_faces"]

    for ratio in (19.5, 1e3, 1e6, 1e9):
        tendency, limited = slope(jnp.asarray(ratio, dtype))
        assert not any(np.any(u) for u in jax.tree.leaves(tendency)), ratio
        assert float(limited) == 0


def test_faces_with_a_limited_flux_are_counted_once():
    """Parabolas through a strong jump are not positive: where the jump is along a periodic axis does not matter."""
    line, plane = (
        gas(shape, sides, WEIGHTED, count_limited=True)
        for shape, sides in (((16,), [PERIODIC]), ((16, 4), [PERIODIC, CLOSED]))
    )
    # Not uniform on either side: there would be no parabola.
    pressure = jnp.where(jnp.arange(16) < 8, 1e5, 1e-5) * jnp.linspace(1, 1.15, 16)
    count, in_plane = (
        jax.jit(lambda state, m=model: m.diagnostics(0.0, state, IDEAL)["limited_faces"], compiler_options=QUICK)
        for model in (line, plane)
    )
    found = {float(count(start(line, 1.0, (0.0,), jnp.roll(pressure, by)))) for by in range(16)}
    assert len(found) == 1 and (once := found.pop()) > 0
    assert float(in_plane(start(plane, 1.0, (0.0, 0.0), pressure[:, None]))) == 4 * once


def test_faces_of_walls_are_counted():
    """A gas between walls and its mirror image have each wall's face once, and all other faces twice."""
    closed, mirrored = (
        gas((cells,), [side], WEIGHTED, count_limited=True) for cells, side in ((8, CLOSED), (16, PERIODIC))
    )
    pressure = jnp.asarray([1e5, 1e-5, 1.0, 1e5, 1e-5, 1e5, 1.0, 1e-5])
    counts = [
        float(jax.jit(lambda state, m=m: m.diagnostics(0.0, state, IDEAL)["limited_faces"])(start(m, 1.0, (0.0,), p)))
        for m, p in ((closed, pressure), (mirrored, jnp.concatenate([pressure, pressure[::-1]])))
    ]
    # Two faces inside, and one of the two walls.
    assert counts == [3, 5]


@pytest.mark.parametrize("scheme", [FIRST, MUSCL])
def test_a_shock_tube_needs_no_safeguard(scheme):
    model = gas((64,), [OPEN], scheme, count_limited=True)
    state = run(model, tube(model, SOD), 0.1)
    assert float(jax.jit(lambda s: model.diagnostics(0.0, s, IDEAL)["limited_faces"])(state)) == 0
