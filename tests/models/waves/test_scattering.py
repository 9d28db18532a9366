"""A glass cylinder scatters light as Mie's series says: what passes a box around it, and what is seen far away."""

import numpy as np
import pytest
from scipy.special import h2vp, hankel2, jv, jvp

import simjax as sj

RADIUS, INDEX = 0.35, 2.0
SIGNAL = "sin(2*pi*(t - 2))*exp(-((t - 2)/0.8)**2)"


def scattered(folder, cells, directions):
    """The scattering width at one wavelength, and the width per angle in directions."""
    found = sj.configure(
        "maxwell_tm",
        grid={"shape": [cells, cells], "lower": [-1.5, -1.5], "upper": [1.5, 1.5]},
        boundaries={"x": "absorbing", "y": "absorbing"},
        coefficients={"permittivity": f"where(x**2 + y**2 < {RADIUS}**2, {INDEX}**2, 1)"},
        physics={"incident": {"lower": [-0.6, -0.6], "upper": [0.6, 0.6], "direction": "x", "signal": SIGNAL}},
        time={"end": 20.0, "output_every": 20.0, "courant": 0.7},
        precision="float64",
        outputs=[{"flux": {"through": {"lower": [-0.75, -0.75], "upper": [0.75, 0.75]}}, "of": "energy"}],
        statistics=[{"of": "flux", "frequencies": [1.0], "name": "around"}],
        output={"report": False, "animation": False, "root": str(folder), "folder": f"cylinder_{cells}"},
    ).run()
    t = np.linspace(0, 20, 200001)
    wave = np.sin(2 * np.pi * (t - 2)) * np.exp(-(((t - 2) / 0.8) ** 2))
    strength = abs(np.sum(wave * np.exp(-2j * np.pi * t)) * t[1]) ** 2
    with sj.open_output(found.folder, "around") as around:
        energy = float(around.energy_flux_spectrum[0, 0])
    return energy / (2 * strength), abs(sj.far_field(found.folder, "around", directions).values[0]) ** 2 / strength


@pytest.mark.slow
def test_a_cylinder_scatters_as_mie_says(tmp_path):
    angles = np.linspace(0, 2 * np.pi, 36, endpoint=False)
    n, x, mx = np.arange(-20, 21), 2 * np.pi * RADIUS, INDEX * 2 * np.pi * RADIUS
    inner, slope = jv(n, mx), INDEX * jvp(n, mx)
    waves = -(slope * jv(n, x) - inner * jvp(n, x)) / (slope * hankel2(n, x) - inner * h2vp(n, x))
    exact = 4 / (2 * np.pi) * np.sum(abs(waves) ** 2)
    pattern = 2 / (np.pi * 2 * np.pi) * abs(np.exp(1j * np.outer(angles, n)) @ waves) ** 2
    errors = []
    for cells in (60, 120):  # ten and twenty cells of a wave in the glass
        width, seen = scattered(tmp_path, cells, angles)
        np.testing.assert_allclose(seen.mean() * 2 * np.pi, width, rtol=0.003)  # both are made of the same integrals
        errors.append((abs(width / exact - 1), abs(seen - pattern).max() / pattern.max()))
    # Second order: an error of 1 % at twenty cells of a wave is what such boxes are asked for.
    assert max(errors[1]) < 0.01
    assert errors[0][0] / errors[1][0] > 3 and errors[0][1] / errors[1][1] > 3
