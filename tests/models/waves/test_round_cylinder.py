"""Exact light around a round cylinder and the reading of resonances, to which `referees/meep.py` holds simjax."""

import runpy

import numpy as np
import pytest
from paths import ROOT
from scipy.special import h1vp, hankel1, jv, jvp

EXACT = runpy.run_path(str(ROOT / "benchmarks" / "referees" / "round_cylinder.py"))
SOURCE, RADIUS, K = (-1.25, 0.25), 0.5, 4.7


def test_a_cylinder_of_index_one_is_not_seen():
    probes = [(1.0, 0.0), (0.1, 0.25), (-0.6, -0.4)]
    distances = [np.hypot(x - SOURCE[0], y - SOURCE[1]) for x, y in probes]
    found = EXACT["line_current_field"](K, 1.0, RADIUS, SOURCE, probes)
    # The series inside is left after 40 orders: (r / distance of the source)^40 at most.
    np.testing.assert_allclose(found, -K / 4 * hankel1(0, K * np.array(distances)), rtol=1e-6)


def test_the_field_is_continuous_and_smooth_at_the_surface():
    step = 1e-4
    for angle in (0.2, 2.0, 3.0):
        ring = [((RADIUS + k * step) * np.cos(angle), (RADIUS + k * step) * np.sin(angle)) for k in (-2, -1, 1, 2)]
        a, b, c, d = EXACT["line_current_field"](K, 1.5, RADIUS, SOURCE, ring)
        # Extrapolated to the surface from both sides; second derivatives of order k^2 n^2 are 50.
        assert abs((2 * b - a) - (2 * c - d)) < 100 * step**2
        assert abs((b - a) - (d - c)) / step < 200 * step


@pytest.mark.parametrize("polarisation", ["tm", "te"])
def test_a_resonance_sends_out_waves_and_takes_none(polarisation):
    index, m = 2.5, 5
    z = 2 * np.pi * RADIUS * EXACT["resonance"](1.0, m, index, RADIUS, polarisation)
    inside, outside = jvp(m, index * z) / jv(m, index * z), h1vp(m, z) / hankel1(m, z)
    ratio = index if polarisation == "tm" else 1 / index
    assert abs(ratio * inside - outside) < 1e-10
    assert -z.imag > 0.001


def test_modes_are_read_from_a_series():
    t, modes = 0.2 * np.arange(200), {0.93 - 0.003j: 1.0, 0.7 - 0.01j: 0.5j, 0.95 - 0.02j: 0.2}
    series = sum((np.exp(-2j * np.pi * f * t) * amplitude).real for f, amplitude in modes.items())
    found, amplitudes = EXACT["decaying_modes"](series, 0.2, count=6)
    for f, amplitude in modes.items():
        nearest = np.argmin(np.abs(found - f))
        # Rounding, times the condition of modes whose frequencies differ by a hundredth.
        assert abs(found[nearest] - f) < 1e-9
        assert abs(amplitudes[nearest] - amplitude / 2) < 1e-8
