"""Forces of angles close to a straight line and to one that is folded: slopes of the energy, to rounding."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.core.domain import Domain
from simjax.models.molecular.bonds import Bending, HarmonicAngle, HarmonicCosine
from simjax.models.molecular.many_body import StillingerWeber, StillingerWeberParams
from simjax.models.molecular.part_registry import ANGLES
from simjax.particles.cells import Cells, cells_for, pack, unpack
from simjax.particles.pairs import Pairs

STIFFNESS, LENGTHS = 3.0, (0.8, 1.3)
AWAY = {jnp.float32: (0.7, 1e-2, 3e-4, 1e-4), jnp.float64: (0.7, 1e-2, 3e-4, 1e-8, 1e-12)}
"""Radians from the line."""


def sides(away, folded):
    """Two lines from a particle, and the direction in which the end of the second makes the angle larger."""
    cosine, sine = math.cos(away), math.sin(away)
    second = (cosine, sine, 0.0) if folded else (-cosine, sine, 0.0)
    larger = (-sine, cosine, 0.0) if folded else (-sine, -cosine, 0.0)
    return np.array([1.0, 0, 0]) * LENGTHS[0], np.array(second) * LENGTHS[1], np.array(larger)


def slope(angle, first, second, params, dtype):
    """Of the energy in the place of the end of the second line."""
    first, second = (jnp.asarray(u, dtype)[:, None] for u in (first, second))
    params = jax.tree.map(lambda p: jnp.asarray(p, dtype), params)
    return np.asarray(_slope(angle, first, second, params))[:, 0]


@functools.partial(jax.jit, static_argnums=0)
def _slope(angle, first, second, params):
    return jax.grad(lambda u: angle.of_sides(first, u, params)[0])(second)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("rest", [math.pi, math.pi - 0.5, 2.0, 0.0])
def test_the_force_of_a_harmonic_angle_is_the_slope_however_near_to_a_line(rest, folded, dtype):
    eps = float(jnp.finfo(dtype).eps)
    for away in AWAY[dtype]:
        first, second, larger = sides(away, folded)
        turned = away - rest if folded else (math.pi - rest) - away
        wanted = STIFFNESS * turned / LENGTHS[1] * larger
        found = slope(HarmonicAngle(), first, second, (STIFFNESS, rest), dtype)
        # Rounding of a dozen operations; of unit vectors, whose lengths have eps, at right angles to `away`; and of an
        # angle at rest that is no end.
        error = (20 * eps + 10 * (eps / away) ** 2) * abs(turned)
        error += 0 if rest in (0.0, math.pi) else 8 * eps
        np.testing.assert_allclose(found, wanted, rtol=0, atol=error * STIFFNESS / LENGTHS[1], err_msg=f"{away:g}")


def test_in_line_the_force_is_zero_and_its_slopes_are_those_of_a_spring():
    first, second, _ = sides(0.0, False)
    for rest in (math.pi, 2.0):
        assert not np.any(slope(HarmonicAngle(), first, second, (STIFFNESS, rest), jnp.float64))

    def energy(u):
        return HarmonicAngle().of_sides(jnp.asarray(first)[:, None], u[:, None], (STIFFNESS, math.pi))[0]

    curved = jax.jit(jax.hessian(energy))
    # Two ways across the line of a stick that turns, and nothing along it.
    wanted = np.diag([0, 1, 1]) * STIFFNESS / LENGTHS[1] ** 2
    for away in (0.0, 1e-9, 1e-5):
        curvature = curved(jnp.asarray(sides(away, False)[1]))
        np.testing.assert_allclose(curvature, wanted, rtol=0, atol=1e-12 + 10 * away)
    # On both sides of where the series ends.
    ends = 2 * np.arcsin(np.sqrt(1e-4)) * np.array([1 - 1e-9, 1 + 1e-9])
    below, above = (curved(jnp.asarray(sides(end, False)[1])) for end in ends)
    np.testing.assert_allclose(below, above, rtol=0, atol=1e-7)  # the ends are apart by 4e-11, and slopes of order one


@pytest.mark.parametrize("folded", [False, True])
def test_forces_of_the_cosine_are_slopes_near_to_a_line(folded):
    for away in AWAY[jnp.float64]:
        first, second, larger = sides(away, folded)
        sine, cosine = math.sin(away), math.cos(away) if folded else -math.cos(away)
        for angle, params, wanted in (
            (HarmonicCosine(), (STIFFNESS, 2.0), -STIFFNESS * (cosine - math.cos(2.0)) * sine),
            (Bending(), STIFFNESS, -STIFFNESS * sine),
        ):
            found = slope(angle, first, second, params, jnp.float64)
            # Rounding of terms of order one that cancel.
            np.testing.assert_allclose(found, wanted / LENGTHS[1] * larger, rtol=0, atol=1e-14, err_msg=f"{away:g}")


def energy_of_three(away, folded):
    """Stillinger and Weber's, in 19 digits."""
    across = np.array([np.cos(away) if folded else -np.cos(away), np.sin(away), np.longdouble(0)])
    a, b = np.array([1, 0, 0], np.longdouble) * np.longdouble(LENGTHS[0]), across * np.longdouble(LENGTHS[1])
    total = np.longdouble(0)
    for u, v in ((a, b), (-a, b - a), (a - b, -b)):  # from the vertex, from the end of each side
        r, q = np.sqrt(u @ u), np.sqrt(v @ v)
        if r < 1.8 and q < 1.8:
            reach = np.exp(1.2 / (r - 1.8) + 1.2 / (q - 1.8))
            total += 21 * (u @ v / (r * q) + np.longdouble(1) / 3) ** 2 * reach
    apart = np.sqrt((a - b) @ (a - b))
    if apart < 1.8:
        total += 7.049556277 * (0.6022245584 / apart**4 - 1) * np.exp(1 / (apart - 1.8))
    return total


@pytest.mark.slow
@pytest.mark.parametrize("folded", [False, True])
def test_forces_of_stillinger_and_weber_are_slopes_near_to_a_line(folded):
    """Those across the longer side, where pairs have none; ends do not see each other, unless the line is folded."""
    cells = Cells(Domain(cells_for((0.0,) * 3, (6.0,) * 3, 1.8, (False,) * 3)), 8, (False,) * 3)
    p = StillingerWeberParams.silicon()

    @jax.jit
    def force(position):
        within, ids, _, _ = pack(cells, position, ())
        found = StillingerWeber().evaluate(Pairs(cells, within, ids, 1.8), jnp.zeros_like(ids), p)
        return unpack(cells, ids, found["force"], 3)

    for away in (0.3, 3e-4, 1e-8):
        first, second, larger = sides(away, folded)
        vertex = np.full(3, 3.1)
        found = force(jnp.asarray(np.stack([vertex, vertex + first, vertex + second], axis=1)))[:, 2] @ larger

        # Central differences: h^2 times third derivatives of order 1e3, folded ones 1e6 as the ends come near.
        h = np.longdouble(1e-6)
        turned = -1 if not folded else 1
        ahead, behind = (energy_of_three(np.longdouble(away) + step, folded) for step in (h, -h))
        wanted = -turned * (ahead - behind) / (2 * h) / LENGTHS[1]
        assert found == pytest.approx(float(wanted), abs=1e-8, rel=1e-9), away


def test_every_angle_is_here():
    assert {*ANGLES} == {"harmonic", "harmonic_cosine", "bending"}
