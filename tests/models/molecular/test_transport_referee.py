"""The estimator of diffusion and viscosity that reads simjax and LAMMPS, on motions whose coefficients are known."""

import importlib

import numpy as np
from paths import ROOT


def test_a_random_walk_and_a_stress_with_a_known_memory(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "referees"))
    referee = importlib.import_module("lammps_transport")
    random, samples, diffusion, decay = np.random.default_rng(3), 60_000, 0.4, 0.2
    walk = np.cumsum(random.normal(scale=np.sqrt(2 * diffusion * referee.SAMPLE), size=(samples, 3, 8)), axis=0)
    keep = np.exp(-referee.SAMPLE / decay)
    # Shear stresses with the memory exp(-t / decay), of two diagonal ones half the variance of a difference.
    kicks = random.normal(scale=np.sqrt(1 - keep**2), size=(samples, 6))
    stresses = np.zeros((samples, 6))
    for now, kick in enumerate(kicks):
        stresses[now] = keep * stresses[now - 1] + kick
    stresses[:, :3] *= np.sqrt(2)

    found, viscosity = referee.coefficients(stresses, np.full(samples, 2.0), walk)

    # 375 independent displacements of 8 particles along three axes: 1.5 %, of which four.
    np.testing.assert_allclose(found, diffusion, rtol=0.06)
    # 3750 times the memory of five stresses, over which its integral to ten times its length is known to 3 %.
    expected = referee.LENGTH**3 / 2 * decay
    np.testing.assert_allclose(viscosity, expected, rtol=0.09)
