"""Electrostatic particle-in-cell: dispersion, conservation, gyration, and the same on any decomposition."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from scipy.optimize import least_squares
from scipy.stats import norm

from simjax.core.domain import Domain
from simjax.core.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.boris import boris
from simjax.models.particle_in_cell import ElectrostaticPlasma, Params
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, unpack
from simjax.particles.mesh import ParticleMesh
from simjax.stepping import Schedule, simulate


def plasma(mesh, shape, lengths, capacity, *, stray=0.5, kind="cic"):
    """A model on a box cut over a device mesh."""
    domain = decompose(Grid(shape, None, lengths), mesh)
    cells = Cells(domain, capacity, (True,) * len(shape))
    return ElectrostaticPlasma(ParticleMesh(cells, 1, kind, (0.5,) * len(shape), stray))


def electrons(count, length, species=1):
    """Electrons (charge -1, mass 1 per unit of charge) whose plasma frequency is one in a box of that volume."""
    share = jnp.full((species,), length / count)
    return Params(-share, share, jnp.asarray(1.0))


def van_der_corput(n, base=2):
    result, factor = np.zeros(n), 1.0 / base
    index = np.arange(n)
    while index.any():
        result += factor * (index % base)
        index, factor = index // base, factor / base
    return result


def first_mode(model, params, position, velocity, schedule, frames):
    """Times, amplitudes of the first wave of E_x as complex numbers, energies and momenta, frame by frame."""

    def run(position, velocity, params):
        species = jnp.zeros(position.shape[1:], jnp.int32)
        state, lost = model.state_from(position, velocity, species, params)

        def observe(t, state, params):
            return t, model.modes(model.electric(state, params), 1), model.diagnostics(t, state, params)

        result = simulate(
            model, INTEGRATORS["direct"], params, state, schedule, frames=frames, observe=observe, checkpoint="none"
        )
        return result.observed, result.clock.status, lost, model.diagnostics(0.0, state, params)

    (t, modes, found), status, lost, first = jax.jit(run)(jnp.asarray(position), jnp.asarray(velocity), params)
    assert int(status) == 0 and int(lost) == 0
    modes = np.asarray(modes)
    return np.asarray(t), modes[:, 0, 0] + 1j * modes[:, 1, 0], jax.tree.map(np.asarray, found), first


def test_landau_damping():
    """A wave of k lambda_D = 1/2 has frequency 1.4157 and decays at 0.15336 (roots of the dispersion relation)."""
    k, count, amplitude = 0.5, 6144, 0.03
    length = 2 * math.pi / k
    quantile = norm.ppf((np.arange(count) + 0.5) / count)
    x = van_der_corput(count) * length
    x = x + amplitude / k * np.sin(k * x)
    params = electrons(count, length)
    model = plasma(None, (64,), (length,), 192, stray=1.0)
    t, mode, found, first = first_mode(
        model, params, x[None], quantile[None], Schedule(interval=0.1, dt=0.05), 100
    )  # fmt: skip
    mode = mode.imag  # a standing wave: density cos, field sin
    # Least squares of A exp(gamma t) cos(omega t + phase), linear in the amplitudes of cosine and sine.
    window = (t > 2) & (t < 9.5)

    def misfit(p):
        grow = np.exp(p[1] * t[window])
        basis = np.stack([grow * np.cos(p[0] * t[window]), grow * np.sin(p[0] * t[window])], 1)
        return basis @ np.linalg.lstsq(basis, mode[window], rcond=None)[0] - mode[window]

    omega, gamma = least_squares(misfit, (1.3, -0.1)).x
    print(omega, gamma, mode[::4])
    assert abs(omega / 1.4156618886045371 - 1) < 0.03
    assert abs(gamma / -0.15335946690960459 - 1) < 0.03
    energy = found["energy"]
    print("energy", np.ptp(energy) / first["field_energy"], np.abs(found["momentum_x"]).max())


def test_two_stream_instability():
    """Two cold beams at k v0 = sqrt(3/8) grow at 1 / sqrt(8)."""
    k, count = 0.6123724356957945, 4096
    length = 2 * math.pi / k
    x = np.repeat((np.arange(count // 2) + 0.5) / (count // 2), 2) * length
    v = np.tile([1.0, -1.0], count // 2)
    x = x + 2e-5 * np.sin(k * x)
    model = plasma(None, (64,), (length,), 96, stray=0.5)
    t, mode, _, _ = first_mode(
        model, electrons(count, length), x[None], v[None], Schedule(interval=0.5, dt=0.1), 58
    )  # fmt: skip
    window = (t > 20) & (t < 29)
    growth = np.polyfit(t[window], np.log(np.abs(mode[window])), 1)[0]
    print(growth, np.abs(mode))
    assert abs(growth / 0.35355339059327373 - 1) < 0.03
