"""Face values at strong shocks that stand in the grid are those of limited slopes, and nowhere else."""

import jax.numpy as jnp
import numpy as np
import pytest

from simjax.ops.crossing_shocks import strength
from simjax.ops.reconstruction import minmod
from simjax.ops.riemann import Primitive
from simjax.ops.standing_shocks import limited_at_shocks, share_of


def shock(mach, speed=0.0):
    """The states before and behind a shock that moves at `speed` c through the grid, against the stream if positive."""
    density, pressure = 2.4 * mach**2 / (0.4 * mach**2 + 2), 1 + 2.8 / 2.4 * (mach**2 - 1)
    return [(1.4, mach - speed, 1.0), (1.4 * density, mach / density - speed, pressure)]


def cell(state):
    density, u, pressure = (jnp.asarray([float(v)]) for v in state)
    return Primitive(density, (u,), pressure)


def share(before, behind, part=0.5):
    """Share in a cell that has so much of the change of each number."""
    midst = [a + part * (b - a) for a, b in zip(before, behind, strict=True)]
    return float(share_of(cell(before), cell(midst), cell(behind), 0)[0])


@pytest.mark.parametrize(
    "states, expected",
    [
        (shock(10.0), 1.0),
        (shock(10.0, 10.0), 0.0),
        (shock(10.0, -5.0), 0.0),
        (shock(1.1), 0.0),
        (shock(10.0)[::-1], 0.0),
        ([(1.4, 0.0, 1.0), (1.4, 0.0, 50.0)], 0.0),
    ],
    ids=["at rest", "into a gas at rest", "with the stream", "weak", "expansion", "all at rest"],
)
def test_strong_shocks_at_rest_are_told_from_others(states, expected):
    # The momentum of both sides is the same to rounding.
    assert share(*states) == pytest.approx(expected, abs=1e-12)


def test_a_shock_without_a_cell_in_its_midst_keeps_its_states():
    assert [share(*shock(10.0), part) for part in (0.0, 0.125, 0.25, 0.75, 1.0)] == pytest.approx([0, 0.5, 1, 1, 0])


def test_the_share_of_a_shock_falls_as_it_moves():
    """The slow shock of Arora and Roe (1997): momentum changes by 0.31 of 3.28, 0.19 of `PASSING`."""
    assert share((1.0, 3.44, 1.0), (3.86, 0.81, 10.3334)) == pytest.approx(1 - (3.44 - 3.1266) / 3.2833 / 0.5, abs=1e-4)


def test_a_shock_counts_by_the_lesser_of_drop_and_rise():
    """From 0.3 to 0.6 in units of sqrt(p / rho); a change of pressure, in units of p, counts 1.4 times."""
    cases = (0.9, 80.0), (20.0, -3.6 / 1.4)
    found = [float(strength(*map(jnp.asarray, (drop, rise, 2.0, 8.0)))) for drop, rise in cases]
    np.testing.assert_allclose(found, [0.5, 0.5], rtol=1e-12)


def around_a_jump(before, behind):
    """Six cells around a face: two of a state, one of the mean, three of another state, all rough by a thousandth."""
    rng, midst = np.random.default_rng(3), [0.5 * (a + b) for a, b in zip(before, behind, strict=True)]
    states = (before, before, midst, behind, behind, behind)
    return [cell([v * (1 + 1e-3 * rng.uniform(-1, 1)) for v in state]) for state in states]


def limited(cells):
    """Values at the face from ones of 7, and those of minmod."""
    sides = cell((7.0, 7.0, 7.0)), cell((7.0, 7.0, 7.0))
    found = limited_at_shocks(sides, cells, cells, 0)
    (a, b, c, d) = ([float(v[0]) for v in (w.density, w.velocity[0], w.pressure)] for w in cells[1:5])
    left = [y + 0.5 * float(minmod(jnp.asarray(y - x), jnp.asarray(z - y))) for x, y, z in zip(a, b, c, strict=True)]
    right = [y + 0.5 * float(minmod(jnp.asarray(y - x), jnp.asarray(z - y))) for x, y, z in zip(d, c, b, strict=True)]
    return [[float(w.density[0]), float(w.velocity[0][0]), float(w.pressure[0])] for w in found], [left, right]


def test_beside_a_standing_shock_slopes_are_limited():
    found, slopes = limited(around_a_jump(*shock(10.0)))
    # The rough momenta differ by up to 2e-3, which takes as much as 4e-3 off the share.
    np.testing.assert_allclose(found, slopes, atol=4e-3 * 120)
    np.testing.assert_allclose(np.asarray(found)[:, :2], np.asarray(slopes)[:, :2], atol=4e-3 * 7)


def test_other_values_stay():
    for before, behind in (shock(10.0, 10.0), shock(1.1)):
        np.testing.assert_array_equal(limited(around_a_jump(before, behind))[0], np.full((2, 3), 7.0))
