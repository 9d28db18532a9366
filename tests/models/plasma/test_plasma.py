"""Particle-in-cell plasmas: dispersion, conservation, gyration, and the same on any decomposition."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from scipy.optimize import least_squares
from scipy.stats import norm

from simjax.grid import Grid
from simjax.models.plasma import electromagnetic
from simjax.models.plasma.boris import boosted, boris, lorentz_factor
from simjax.models.plasma.electromagnetic import ElectromagneticPlasma
from simjax.models.plasma.electrostatic import ElectrostaticPlasma, Params
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, unpack
from simjax.particles.mesh import ParticleMesh
from simjax.stepping.simulate import Schedule, simulate

# In every run of the tests are those of the parts: test_cells_and_pairs, test_pair_potentials, test_particle_mesh.
pytestmark = pytest.mark.slow


def plasma(mesh, shape, lengths, capacity, *, stray=0.5, kind="cic", finer=1):
    """A model on a box cut over a device mesh."""
    domain = decompose(Grid(shape, None, lengths), mesh)
    cells = Cells(domain, capacity, (True,) * len(shape))
    return ElectrostaticPlasma(ParticleMesh(cells, finer, kind, (0.5,) * len(shape), stray))


def electrons(count, length):
    """Electrons (charge -1, mass 1 per unit of charge) whose plasma frequency is one in a box of that volume."""
    share = jnp.full((1,), length / count)
    return Params(-share, share, jnp.asarray(1.0))


def first_mode(model, params, position, velocity, species, schedule, frames):
    """Times, and amplitudes of the first wave of E_x as complex numbers, at the ends of frames."""

    def run(position, velocity, species, params):
        state, lost = model.state_from(position, velocity, species, params)

        def observe(t, state, params):
            return t, model.modes(model.electric(state, params), 1)

        result = simulate(model, None, params, state, schedule, frames=frames, observe=observe, checkpoint="none")
        return result.observed, result.clock.status, lost

    arguments = jnp.asarray(position), jnp.asarray(velocity), jnp.asarray(species, jnp.int32), params
    (t, modes), status, lost = jax.jit(run)(*arguments)
    assert int(status) == 0 and int(lost) == 0
    modes = np.asarray(modes)
    return np.asarray(t), modes[:, 0, 0] + 1j * modes[:, 1, 0]


@pytest.mark.slow
def test_landau_damping():
    """A wave of k lambda_D = 1/2 has frequency 1.41566 and decays at 0.15336: roots of the dispersion relation.

    Beams of equally spaced velocities, each a species with its share of the Maxwellian: no noise, and free streaming
    repeats itself only after 2 pi / (k dv) = 63. TSC on 64 cells makes the force weaker by 0.25 %.
    """
    k, dv, places, amplitude = 0.5, 0.2, 64, 0.01
    length = 2 * math.pi / k
    v = np.arange(-25, 26) * dv
    share = norm.pdf(v) * dv
    share = jnp.asarray(share / share.sum() * length / places)
    params = Params(-share, share, jnp.asarray(1.0))
    beam, place = np.meshgrid(np.arange(v.size), np.arange(places), indexing="ij")
    x = ((place + 0.382 * beam % 1) / places * length).ravel()
    x = x + amplitude / k * np.sin(k * x)
    model = plasma(None, (32,), (length,), 128, stray=1.0, kind="tsc", finer=2)
    schedule = Schedule(interval=0.2, dt=0.2 / 3)  # the fastest cross 0.85 of a cell in a step
    t, mode = first_mode(model, params, x[None], v[beam.ravel()][None], beam.ravel(), schedule, 50)
    window = t > 3  # the next root has decayed to a fiftieth

    def misfit(root):
        """What is left of the wave (density a cosine, field a sine) by the best combination of two of that root."""
        waves = np.exp(root[1] * t[window]) * np.stack([np.cos(root[0] * t[window]), np.sin(root[0] * t[window])])
        return waves.T @ np.linalg.lstsq(waves.T, mode.imag[window], rcond=None)[0] - mode.imag[window]

    omega, gamma = least_squares(misfit, (1.3, -0.1)).x
    assert omega == pytest.approx(1.4156618886045371, rel=0.03)
    assert gamma == pytest.approx(-0.15335946690960459, rel=0.03)


@pytest.mark.slow
def test_two_stream_instability():
    """Two cold beams at k v0 = sqrt(3/8) grow at 1 / sqrt(8)."""
    k, count = 0.6123724356957945, 2048
    length = 2 * math.pi / k
    x = np.repeat((np.arange(count // 2) + 0.5) / (count // 2), 2) * length
    x, v = x + 2e-5 * np.sin(k * x), np.tile([1.0, -1.0], count // 2)
    model = plasma(None, (32,), (length,), 96)
    schedule = Schedule(interval=0.6, dt=0.2)
    t, mode = first_mode(model, electrons(count, length), x[None], v[None], 0 * x, schedule, 48)
    window = t > 20  # the stable waves are then a hundredth of the growing one
    growth = np.polyfit(t[window], np.log(np.abs(mode[window])), 1)[0]
    assert growth == pytest.approx(0.35355339059327373, rel=0.03)


def test_gyration_keeps_the_energy_and_the_radius():
    """In a pure magnetic field the speed is kept to rounding, and positions stay on a circle."""
    dt, steps, one = 0.3, 400, jnp.ones((1, 1))
    magnetic, electric = jnp.asarray([0.0, 0.0, 2.0]).reshape(3, 1), jnp.zeros((3, 1))

    def step(carry, _):
        x, v = carry
        v = boris(v, electric, magnetic, one, dt)
        return (x + dt * v, v), (x + 0.5 * dt * v, v)

    start = jnp.zeros((3, 1)), jnp.asarray([1.0, 0.0, 0.5]).reshape(3, 1)
    x, v = (np.asarray(u)[:, :, 0] for u in jax.lax.scan(step, start, None, length=steps)[1])
    # A random walk of 400 roundings. Half the angle of a turn has the tangent omega dt / 2: the middles of the straight
    # pieces lie on the circle of the exact motion, whose centre is v x B / (omega |B|) away.
    np.testing.assert_allclose(np.sum(v**2, 1), 1.25, rtol=1e-13)
    centre = x[:, :2] + np.stack([v[:, 1], -v[:, 0]], 1) / 2
    np.testing.assert_allclose(centre, np.tile(centre[:1], (steps, 1)), atol=1e-13)
    np.testing.assert_allclose(np.linalg.norm(x[:, :2] - centre[0], axis=1), 0.5, rtol=1e-12)


@pytest.mark.parametrize("light", [None, 1.0])
def test_drift_across_both_fields(light):
    """A particle that moves with E x B / B^2 feels no force: Boris's push keeps it to rounding without relativity.

    With relativity the drift is kept on average, to the second order of the step.
    """
    electric, magnetic = jnp.asarray([0.2, 0.0, 0.0]).reshape(3, 1), jnp.asarray([0.0, 0.0, 1.0]).reshape(3, 1)
    drift = np.asarray([0.0, -0.2, 0.0])
    gamma = 1 if light is None else 1 / math.sqrt(1 - 0.2**2)
    u, dt = jnp.asarray(gamma * drift).reshape(3, 1), 0.1
    light = None if light is None else jnp.asarray(light)

    def step(u, _):
        u = boris(u, electric, magnetic, jnp.ones((1, 1)), dt, light)
        return u, u

    found = jax.lax.scan(step, u, None, length=200)[1][:, :, 0]
    mean = np.mean(found, 0)
    # (omega dt)^2 / 4 of the drift: what half a kick before and after a turn leaves.
    np.testing.assert_allclose(mean, gamma * drift, atol=0.2 * dt**2)


def test_velocities_add_as_those_of_relativity_do():
    """Along a line (v + w) / (1 + v w / c^2); across it gamma of both is the product."""
    light = jnp.asarray(2.0)
    v, w = 1.2, -0.5
    # Tolerances are some ten roundings; the sum of Galilei is a seventh off.
    gamma = 1 / math.sqrt(1 - w * w / 4)
    u = boosted(jnp.asarray([gamma * w, 0.0, 0.0]), jnp.asarray([v, 0.0, 0.0]), light)
    assert u.shape == (3,)
    np.testing.assert_allclose(u / lorentz_factor(u, light), [(v + w) / (1 + v * w / 4), 0, 0], rtol=1e-14)
    u = boosted(jnp.asarray([0.0, gamma * w, 0.0]), jnp.asarray([v, 0.0, 0.0]), light)
    np.testing.assert_allclose(lorentz_factor(u, light), gamma / math.sqrt(1 - v * v / 4), rtol=1e-14)
    np.testing.assert_allclose(u[1], gamma * w, rtol=1e-14)


def cloud(count, lengths, seed=0):
    """Positions, velocities with three components, and two species of opposite charge."""
    draw = np.random.default_rng(seed)
    position = draw.uniform(0, 1, (len(lengths), count)) * np.asarray(lengths)[:, None]
    return jnp.asarray(position), jnp.asarray(draw.normal(size=(3, count))), jnp.arange(count, dtype=jnp.int32) % 2


def box(cut, shape, magnetic=None):
    """(value and gradient of the field energy after some steps with what else there is, arguments)."""
    mesh = make_mesh(cut)
    lengths = tuple(float(n) for n in shape)
    model = plasma(mesh, shape, lengths, 40, kind="cic")
    position, velocity, species = cloud(6 * math.prod(shape), lengths)
    count = species.size
    params = Params(
        jnp.asarray([-0.1, 0.1]),
        jnp.asarray([0.1, 0.4]),
        jnp.asarray(1.0),
        None if magnetic is None else jnp.asarray(magnetic),
    )
    velocity = 0.5 * (velocity if magnetic is not None else velocity[: len(shape)])

    def run(amplitude, params):
        state, lost = model.state_from(position, amplitude * velocity, species, params)
        begin = model.diagnostics(0.0, state, params)
        end = simulate(
            model,
            None,
            params,
            state,
            Schedule(interval=1.0, dt=0.1),
            frames=1,
            checkpoint="every_step",
        )
        state = end.state
        found = model.diagnostics(0.0, state, params)
        where = unpack(model.cells, state.ids, model.cells.absolute(state.position), count)
        return found["field_energy"], (where, begin, found, lost, end.clock.status)

    both = jax.value_and_grad(run, has_aux=True)
    alone = PartitionSpec()
    return distribute(both, mesh, in_specs=(alone, alone), out_specs=alone)(jnp.asarray(1.0), params)


@functools.cache
def plane(cuts):
    """Two dimensions in a magnetic field."""
    return box(dict(cuts), (8, 16), (0.2, -0.3, 0.5))


@pytest.mark.slow
def test_conservation():
    """Charge and particles exactly; momentum to rounding but for what B turns; energy to the mesh's heating."""
    (_, (_, begin, end, lost, status)), _ = plane(())
    assert int(lost) == 0 and int(status) == 0
    assert int(begin["particles"]) == int(end["particles"]) == 768
    assert float(end["charge"]) == pytest.approx(0, abs=1e-13)
    # Cells of a few Debye lengths and 6 particles in each: noise heats, by less than a hundredth in a time unit.
    assert float(end["energy"]) == pytest.approx(float(begin["energy"]), rel=1e-2)


@pytest.mark.parametrize(
    ("shape", "cut"),
    [
        pytest.param((8, 16), {"x": 2, "y": 4}, marks=pytest.mark.long),
        pytest.param((8,), {"x": 4}, marks=pytest.mark.slow),
        pytest.param((4, 4, 8), {"x": 2, "y": 2, "z": 2}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_decomposed_runs_agree(shape, cut):
    """Trajectories, the field energy and its derivative in the velocities' amplitude."""
    if shape == (8, 16):
        one, many = plane(()), plane(tuple(cut.items()))
    else:
        one, many = box({}, shape), box(cut, shape)
    (energy, (where, begin, end, _, status)), slope = one
    (energy_cut, (where_cut, _, _, _, status_cut)), slope_cut = many
    assert int(status) == int(status_cut) == 0
    # The transforms differ in their rounding; ten steps hardly amplify it.
    np.testing.assert_allclose(where_cut, where, atol=1e-9)
    assert float(energy_cut) == pytest.approx(float(energy), rel=1e-9)
    assert float(slope_cut) == pytest.approx(float(slope), rel=1e-9)
    if len(shape) != 2:
        # Without a magnetic field: all momenta.
        for name in ("momentum_x", "momentum_y", "momentum_z")[: len(shape)]:
            assert float(end[name]) == pytest.approx(float(begin[name]), abs=1e-12)


def radiating(cut):
    """An electromagnetic plasma after 200 steps, and what it looked like on the way."""
    mesh = make_mesh(cut)
    model = ElectromagneticPlasma(Cells(decompose(Grid((8, 8), None, (8.0, 8.0)), mesh), 40, (True, True)))
    position, velocity, species = cloud(512, (8.0, 8.0))
    params = electromagnetic.Params(
        jnp.asarray([-0.1, 0.1]), jnp.asarray([0.1, 0.3]), jnp.asarray(1.0), permeability=jnp.asarray(1.0)
    )

    def run(params):
        state, lost = model.state_from(position, 0.5 * velocity, species, params)

        def observe(t, state, params):
            particles = model.arrange(state, params)[0].particles
            where = unpack(model.cells, particles.ids, model.cells.absolute(particles.position), 512)
            return model.diagnostics(t, state, params), where

        result = simulate(
            model,
            None,
            params,
            state,
            Schedule(interval=10.0, dt=0.5),
            frames=10,
            observe=observe,
            checkpoint="none",
        )
        return *result.observed, model.diagnostics(0.0, state, params), result.clock.status, lost

    return distribute(run, mesh, in_specs=(PartitionSpec(),), out_specs=PartitionSpec())(params)


@pytest.mark.slow
def test_gauss_law_is_kept_by_the_currents():
    """What Gauss's law leaves over stays at rounding for 200 steps; the energy stays but for the mesh's heating."""
    seen, where, begin, status, lost = radiating({})
    assert int(status) == 0 and int(lost) == 0
    # Charge densities are of order 0.3 and the field takes 200 changes of rounding.
    assert np.max(seen["gauss"]) < 1e-13
    np.testing.assert_allclose(seen["charge"], 0, atol=1e-13)
    # Eight particles in a cell: a hundred time units of noise.
    np.testing.assert_allclose(seen["energy"], begin["energy"], rtol=0.05)
    cut, where_cut, _, status_cut, _ = radiating({"x": 2, "y": 4})
    assert int(status_cut) == 0
    # After 20 steps; over 200 the particles' chaos makes 1e-8 of rounding.
    np.testing.assert_allclose(where_cut[0], where[0], atol=1e-9)
    np.testing.assert_allclose(cut["energy"][0], seen["energy"][0], rtol=1e-9)
