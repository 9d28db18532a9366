"""Plane waves of small amplitude in a gas, oblique to the grid: one period in a box of 3 x 1.5 x 1.5.

The problem of Athena++ (src/pgen/linear_wave.cpp with inputs/hydro/athinput.linear_wave3d): density 1, speed of sound
1, wavelength 1 along (1, 2, 2) / 3, amplitude 1e-6, in the conserved variables.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from gas_runs import PERIODIC, centers, gas, trajectory

from simjax.models.gas.compressible import Params, State

GAMMA = 5 / 3
LENGTHS = (3.0, 1.5, 1.5)
DIRECTION = np.array([1.0, 2.0, 2.0]) / 3
AMPLITUDE = 1e-6


@dataclass(frozen=True)
class LinearWave:
    """A right eigenvector of the Euler equations: changes of density, of momentum along the wave and of energy.

    The gas streams along the wave with velocity `flow`. After time 1 all waves here are where they were.
    """

    momentum: float
    energy: float
    flow: float = 0.0
    density: float = 1.0

    def conserved(self, coordinates):
        """Density, momenta and energy at time 0 and 1, arrays over the points of the broadcastable coordinates."""
        phase = sum(n * np.asarray(x) for n, x in zip(DIRECTION, coordinates, strict=True))
        change = AMPLITUDE * np.sin(2 * np.pi * phase)
        along = self.flow + self.momentum * change
        rest = 1 / (GAMMA * (GAMMA - 1)) + 0.5 * self.flow**2
        return 1 + self.density * change, tuple(n * along for n in DIRECTION), rest + self.energy * change

    def step(self, spacing):
        """Athena++'s step on cubic cells: 0.3 of the spacing over the largest of |u| + c along an axis."""
        return 0.3 * spacing / (1 + abs(self.flow) * DIRECTION.max())


LEFT_SOUND = LinearWave(-1.0, 1 / (GAMMA - 1))
RIGHT_SOUND = LinearWave(1.0, 1 / (GAMMA - 1))
ENTROPY = LinearWave(1.0, 0.5, flow=1.0)


def rms_of_means(state, exact):
    """Athena++'s RMS-L1 error: the root of the sum of squared mean absolute errors of density, momenta and energy."""
    found = [state.density, *state.momentum, state.energy]
    means = [np.abs(np.asarray(u) - v).mean() for u, v in zip(found, [exact[0], *exact[1], exact[2]], strict=True)]
    return float(np.sqrt(np.sum(np.square(means))))


def error_after_a_period(wave, shape, scheme, integrator, **options):
    """The RMS-L1 error at time 1, with Athena++'s step. options: of `gas_runs.trajectory`."""
    model = gas(shape, [PERIODIC] * 3, scheme, upper=LENGTHS)
    density, momentum, energy = exact = wave.conserved(centers(model))
    start = State(jnp.asarray(density), tuple(map(jnp.asarray, momentum)), jnp.asarray(energy), ())
    options |= {"dt": wave.step(LENGTHS[0] / shape[0]), "integrator": integrator}
    end = trajectory(model, start, 1.0, params=Params(jnp.asarray(GAMMA)), **options).state
    return rms_of_means(end, exact)
