"""Bars of Athena++'s regression tests that take seconds; `benchmarks/referees/athena.py` has them all."""

import numpy as np
import pytest
from exact_riemann import RiemannProblem
from gas_runs import OPEN, PERIODIC, WENO, gas, trajectory, tube
from linear_waves import ENTROPY, LEFT_SOUND, error_after_a_period

pytestmark = pytest.mark.slow


# tst/regression/scripts/tests/hydro4/hydro_linwave_3d.py at 32 x 16 x 16.
@pytest.mark.parametrize(("wave", "bar"), [(LEFT_SOUND, 5.6e-9), (ENTROPY, 4.05e-9)], ids=["sound", "entropy"])
def test_oblique_waves_are_within_athenas_bars_for_fourth_order(wave, bar):
    assert error_after_a_period(wave, (32, 16, 16), WENO, "rk4") <= bar


def test_a_shock_tube_is_the_same_along_every_axis():
    sod = RiemannProblem((1.0, 0.0, 1.0), (0.125, 0.0, 0.1))
    energies, steps = [], []
    for axis in range(3):
        shape = tuple(32 if k == axis else 4 for k in range(3))
        model = gas(shape, [OPEN if k == axis else PERIODIC for k in range(3)], WENO)
        end = trajectory(model, tube(model, sod, axis), 0.2)
        energies.append(np.moveaxis(end.state.energy, axis, 0))
        steps.append(int(end.clock.step))
    assert steps[0] == steps[1] == steps[2] > 10
    for other in energies[1:]:
        # A hundred roundings of energies of order one: sums over axes are taken in another order.
        np.testing.assert_allclose(other[:, 0, 0], energies[0][:, 0, 0], rtol=0, atol=2e-14)
