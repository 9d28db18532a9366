"""Gravity: orbits, sums over images, growth of density waves, decompositions and gradients."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import paths
import pytest
from ewald import ewald
from jax import lax
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.gravity.cosmology import FlatLambdaCDM
from simjax.models.gravity.force_solvers import DirectSummation, Params, ParticleMeshGravity, PeriodicGravity
from simjax.models.gravity.gravity import Gravity
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, unpack
from simjax.particles.ewald import MeshSum, mesh_sum, split_at
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.status import OK
from simjax.stepping.simulate import Schedule, simulate

# In every run of the tests are those of the parts: test_cells_and_pairs, test_pair_potentials, test_particle_mesh.
pytestmark = pytest.mark.slow

REFERENCE = json.loads((paths.REFERENCE / "orbits.json").read_text())
REPLICATED = PartitionSpec()


def params(softening=0.0):
    return Params(jnp.asarray(1.0), jnp.asarray(softening))


# ---------------------------------------------------------------------- orbits


SAMPLES = 400


@pytest.fixture(scope="module")
def orbit():
    """`orbit(position, velocity, mass, dt, steps)` -> positions, velocities and diagnostics after each `steps` steps.

    In a plane, in a box smaller than the orbits: what is summed directly may leave it.
    """
    cells = Cells(Domain(Grid((1, 1), (-0.98, -0.5), (0.98, 0.5))), 8, (False, False))
    model = Gravity(cells, DirectSummation(tile=4))

    @jax.jit
    def run(position, velocity, mass, dt, steps):
        dt = jnp.asarray(dt)

        def step(k, state):
            return model.step(k, k.astype(dt.dtype) * dt, dt, state, params(), None)

        def sample(state, _):
            state = lax.fori_loop(0, steps, step, state)
            x, v = (unpack(cells, state.ids, u, mass.size) for u in (cells.absolute(state.position), state.velocity))
            return state, (x, v, model.diagnostics(dt, state, params()))

        state, lost = model.state_from(position, velocity, mass, params())
        return (*lax.scan(sample, state, None, length=SAMPLES)[1], lost)

    return run


def two_bodies(e):
    """Half of the separation each: the relative orbit has G M = 1 and semi-major axis 1."""
    x = np.array([[0.5, -0.5], [0.0, 0.0]]) * (1 - e)
    v = np.array([[0.0, 0.0], [0.5, -0.5]]) * math.sqrt((1 + e) / (1 - e))
    return jnp.asarray(x), jnp.asarray(v), jnp.asarray([0.5, 0.5])


@pytest.mark.parametrize("table", REFERENCE["kepler"], ids=lambda table: f"e={table['e']}")
def test_kepler_orbits_to_second_order(orbit, table):
    errors = []
    for steps in (4, 8):
        dt = table["T"] / (SAMPLES * steps)
        x, v, found, lost = orbit(*two_bodies(table["e"]), dt, jnp.asarray(steps, jnp.int32))
        assert int(lost) == 0
        relative = np.concatenate([x[:, :, 0] - x[:, :, 1], v[:, :, 0] - v[:, :, 1]], axis=1)
        for row in table["table"]:
            exact = [row[name] for name in ("x", "y", "vx", "vy")]
            errors.append(np.abs(relative[round(row["t_over_T"] * SAMPLES) - 1] - exact).max())
        # A central force on both along one line: L changes by rounding, added up over 3200 steps.
        momentum = np.asarray(found["angular_momentum_z"])
        assert np.abs(momentum - table["L"] / 4).max() < 1e-13
        assert np.abs(found["energy"][-1] - table["energy"] / 4) < 1e-5
    coarse, fine = np.reshape(errors, (2, -1))
    # The next order is a hundredth of the error at these steps.
    assert np.abs(coarse / fine - 4).max() < 0.1
    assert fine.max() < 1e-3


def test_energy_of_an_orbit_stays_bounded(orbit):
    # 94 periods of 200 steps, sampled at all phases.
    x, v, found, _ = orbit(*two_bodies(0.5), 2 * math.pi / 200, jnp.asarray(47, jnp.int32))
    error = np.abs(np.asarray(found["energy"]) + 0.125)
    assert error.max() < 0.01 * 0.125
    # What an energy that drifts would not do; phases fall a little differently in both.
    assert error[-100:].max() < 1.05 * error[:100].max()


def test_three_bodies_on_one_curve(orbit):
    start, states = REFERENCE["figure_eight"]["initial"], REFERENCE["figure_eight"]["states"]
    v = np.array([start["vx3"], start["vy3"]])
    x = np.array([start["x1"], start["y1"]])
    position, velocity = np.stack([x, -x, 0 * x], axis=1), np.stack([-v / 2, -v / 2, v], axis=1)
    errors = []
    for steps in (4, 8):
        args = jnp.asarray(position), jnp.asarray(velocity), jnp.ones(3), start["T"] / (SAMPLES * steps)
        x, v, found, _ = orbit(*args, jnp.asarray(steps, jnp.int32))
        seen = np.concatenate([np.swapaxes(u, 1, 2).reshape(SAMPLES, -1) for u in (x, v)], axis=1)
        quarter = next(s for s in states if s["t_over_T"] == 0.25)
        errors.append(np.abs(seen[SAMPLES // 4 - 1] - quarter["state"]).max())
        for name in ("momentum_x", "momentum_y", "angular_momentum_z"):
            assert np.abs(found[name]).max() < 1e-12  # zero at the start
        assert np.abs(found["energy"] - REFERENCE["figure_eight"]["energy"]).max() < 1e-3
    assert abs(errors[0] / errors[1] - 4) < 0.1
    assert errors[1] < 1e-4


# ---------------------------------------------------------------------- periodic boxes


@pytest.mark.long
def test_two_bodies_in_a_periodic_box():
    """P3M against Ewald's sum, over near and far separations."""
    cells = Cells(Domain(Grid((2, 2, 2))), 8, (True,) * 3)
    skin = NeighborPolicy(0.5, 0.0)
    model = Gravity(cells, PeriodicGravity(skin, mesh_sum(0.5, 1e-4, 8, "tsc")))

    @jax.jit
    def accelerations(position, mass):
        state, lost = model.state_from(position, 0 * position, mass, params())
        return unpack(cells, state.ids, state.acceleration, 2), lost

    mass = np.array([1.0, 2.0])
    rng = np.random.default_rng(0)
    for distance in (0.01, 0.1, 0.3, 0.45, 0.6):
        x = rng.uniform(0, 1, 3)
        direction = rng.normal(size=3)
        position = np.mod(np.stack([x, x + distance * direction / np.linalg.norm(direction)], axis=1), 1)
        found, lost = accelerations(jnp.asarray(position), jnp.asarray(mass))
        assert int(lost) == 0
        exact = -ewald(position, mass, (1, 1, 1), alpha=4.0)[1]
        # alpha h = 0.34: the mesh errs by some thousandths of the largest smooth attraction, about alpha^2 m / 2.
        assert np.abs(found - exact).max() < 5e-3 * split_at(0.5, 1e-4) ** 2 * mass.max() / 2
        total = np.asarray(found) @ mass
        assert np.abs(total).max() < 1e-12 * np.abs(found).max()


def test_a_skin_wider_than_the_mesh_lets_particles_stray_is_refused():
    cells = Cells(Domain(Grid((2, 2, 2))), 8, (True,) * 3)
    with pytest.raises(ConfigurationError, match="write stray=0.8"):
        PeriodicGravity(NeighborPolicy(0.4, 0.1), mesh_sum(0.4, 1e-3, 8)).arrange(cells, None)


@pytest.fixture(scope="module")
def wave():
    """`wave(expansion)(displacement, velocity, dt, start)` -> displacement after 200 steps of particles of a wave.

    One axis, 64 particles and 64 mesh cells: sheets whose exact motion is known until they cross.
    """
    count = 64
    cells = Cells(Domain(Grid((8,))), 16, (True,))
    rest = (np.arange(count) + 0.25) / count

    def of(expansion, constant):
        attraction = ParticleMeshGravity(MeshSum(0.0, 8, "tsc"))
        model = Gravity(cells, attraction, expansion=expansion)
        shared = Params(jnp.asarray(constant), jnp.asarray(0.0))

        @jax.jit
        def run(amplitude, velocity, start, dt):
            dt = jnp.asarray(dt)
            shape = jnp.sin(2 * math.pi * rest)
            position, velocity = (rest + amplitude * shape)[None], (velocity * shape)[None]
            state, lost = model.state_from(position, velocity, jnp.full(count, 1 / count), shared)

            def step(carry, k):
                state, fault = carry
                state, arrangement, bits = model.arrange(state, shared)
                state = model.step(k, start + k.astype(dt.dtype) * dt, dt, state, shared, arrangement)
                return (state, fault | bits), None

            numbers = jnp.arange(200, dtype=jnp.int32)
            (state, fault), _ = lax.scan(step, (state, lost), numbers)
            moved = (
                unpack(cells, state.ids, cells.absolute(state.position) + state.image.astype(dt.dtype), count)[0] - rest
            )
            return 2 * jnp.mean(moved * shape), jnp.abs(moved - 2 * jnp.mean(moved * shape) * shape).max(), fault

        return run

    return of


def test_cold_matter_collapses_at_its_rate(wave):
    """A wave of particles at rest grows as cosh(sqrt(4 pi G rho) t), whatever its wavelength."""
    rate, t = math.sqrt(4 * math.pi), 1.0
    amplitude, shape_error, fault = wave(None, 1.0)(1e-3, 0.0, 0.0, t / 200)
    assert int(fault) == OK
    # A mesh cell is a 64th of the wave: aliases weaken its attraction by about (1/64)^2 and its growth by rate t times
    # that; the scheme's error is (rate dt)^2 / 24.
    assert abs(math.acosh(float(amplitude) / 1e-3) / (rate * t) - 1) < 2e-3


@pytest.mark.parametrize("matter", [1.0, 0.3])
def test_zeldovich_waves(wave, matter):
    """Sheets move along straight lines with the growing mode until they cross, however steep the wave has become."""
    universe = FlatLambdaCDM(1.0, matter)
    first, last = 0.1, 0.5
    start, end = universe.time_of(first), universe.time_of(last)

    def growth(a):
        """The growing mode H(a) times the integral of da / (a H)^3, = a for matter alone."""
        hubble = lambda a: np.sqrt(matter / a**3 + 1 - matter)  # noqa: E731
        nodes, weights = np.polynomial.legendre.leggauss(40)
        s = math.sqrt(a) * (nodes + 1) / 2  # a = s^2 takes the root out of the integrand
        integrand = 2 * s / (s**2 * hubble(s**2)) ** 3
        return 2.5 * matter * hubble(a) * math.sqrt(a) / 2 * np.sum(weights * integrand)

    hubble = math.sqrt(matter / first**3 + 1 - matter)
    slope = (growth(first * 1.0001) - growth(first / 1.0001)) / (first * (1.0001 - 1 / 1.0001))
    steep = 0.6 / (2 * math.pi)  # density from 0.6 to 2.5 times the mean at the end
    amplitude = steep * growth(first) / growth(last)
    velocity = first**2 * (first * hubble) * slope * amplitude / growth(first)
    constant = 3 * matter / (8 * math.pi)
    found, shape_error, fault = wave(universe, constant)(amplitude, velocity, start, (end - start) / 200)
    assert int(fault) == OK
    # As above: aliases of the mesh.
    assert abs(float(found) / steep - 1) < 5e-3
    assert float(shape_error) < 0.02 * steep


def test_scale_factors():
    """(da/dt)^2 = H0^2 (M / a + (1 - M) a^2), and integrals over steps of a power known in closed form."""
    for matter in (1.0, 0.3):
        universe = FlatLambdaCDM(0.7, matter)
        for a in (0.05, 1.0, 1.5):
            t = jnp.asarray(universe.time_of(a))
            found, slope = jax.value_and_grad(universe.scale_factor)(t)
            assert abs(found - a) < 1e-14 * a
            assert abs(slope**2 / (0.49 * (matter / a + (1 - matter) * a**2)) - 1) < 1e-13
        late = FlatLambdaCDM(0.7, matter, first=0.2)
        assert abs(late.scale_factor(jnp.asarray(0.0)) - 0.2) < 1e-14
        assert abs(late.time_of(0.5) - (universe.time_of(0.5) - universe.time_of(0.2))) < 1e-14
    einstein = FlatLambdaCDM(1.0)
    t, dt = jnp.asarray(0.3), jnp.asarray(0.03)
    scale = 1.5 ** (-2 / 3)
    # Eight nodes over a tenth of the age: exact to rounding.
    assert abs(einstein.kick_length(t, dt) - scale * 3 * (0.33 ** (1 / 3) - 0.3 ** (1 / 3))) < 1e-14
    assert abs(einstein.drift_length(t, dt) - scale**2 * -3 * (0.33 ** (-1 / 3) - 0.3 ** (-1 / 3))) < 1e-14


def test_a_universe_of_nothing_is_refused():
    with pytest.raises(ConfigurationError, match="matter=0"):
        FlatLambdaCDM(1.0, 0.0)


# ---------------------------------------------------------------------- devices and gradients

COUNT = 60


def scene():
    rng = np.random.default_rng(3)
    position = rng.uniform(0, 1, (3, COUNT)) * np.array([[2], [1], [1]])
    velocity, mass = 0.3 * rng.normal(size=(3, COUNT)), rng.uniform(0.5, 1.5, COUNT) / COUNT
    velocity -= (velocity @ mass)[:, None] / mass.sum()
    return tuple(jnp.asarray(u) for u in (position, velocity, mass))


ATTRACTIONS = {
    "direct": (False, DirectSummation()),
    "p3m": (True, PeriodicGravity(NeighborPolicy(0.45, 0.05), mesh_sum(0.45, 1e-3, 4, "tsc"))),
}


def measured(name, sizes):
    """A run of six steps on a mesh of devices: a loss, its gradient, and the end."""
    periodic, attraction = ATTRACTIONS[name]
    mesh = make_mesh(sizes)
    cells = Cells(decompose(Grid((4, 2, 2), (0,) * 3, (2, 1, 1)), mesh), 16, (periodic,) * 3)
    model = Gravity(cells, attraction, steps_per_arrangement=2)

    def run(position, velocity, mass, shared):
        state, lost = model.state_from(position, velocity, mass, shared)
        found = simulate(model, None, shared, state, Schedule(interval=0.06, dt=0.01), frames=1)
        end = found.state
        x, v = (unpack(cells, end.ids, u, COUNT) for u in (cells.absolute(end.position), end.velocity))
        return jnp.sum(v * v) + jnp.sum(jnp.sin(x)), (x, v, found.clock.status | lost)

    on_devices = distribute(run, mesh, in_specs=(REPLICATED,) * 4, out_specs=REPLICATED)
    both = jax.jit(jax.value_and_grad(on_devices, (0, 1, 2, 3), has_aux=True))
    return on_devices, both(*scene(), params(0.05))


@functools.cache
def alone(name):
    """A run on one device."""
    return measured(name, {})


each_attraction = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n == "direct" else pytest.mark.long) for n in ATTRACTIONS]
)


def on_devices():
    """Each attraction cut in two ways; with the long ones all but the cheapest."""
    return [
        pytest.param(
            name,
            sizes,
            id=f"{name} {'x'.join(str(n) for n in sizes.values())}",
            marks=pytest.mark.slow if name == "direct" and len(sizes) == 2 else pytest.mark.long,
        )
        for name in ATTRACTIONS
        for sizes in ({"x": 4, "y": 2}, {"x": 2, "y": 2, "z": 2})
    ]


@pytest.mark.parametrize(("name", "sizes"), on_devices())
def test_devices_find_what_one_finds(name, sizes):
    (value, end), slopes = alone(name)[1]
    (other, other_end), other_slopes = measured(name, sizes)[1]
    assert int(end[-1]) == int(other_end[-1]) == OK
    # Sums over devices are taken in another order: rounding, over six steps.
    assert abs(value - other) < 1e-12 * abs(value)
    for a, b in zip(end[:2], other_end[:2], strict=True):
        assert np.abs(a - b).max() < 1e-12
    for a, b in zip(jax.tree.leaves(slopes), jax.tree.leaves(other_slopes), strict=True):
        assert np.abs(a - b).max() < 1e-9 * np.abs(a).max()


@each_attraction
def test_gradients_are_slopes(name):
    """In positions, velocities, masses, the constant of gravitation and the softening, against central differences."""
    run, (_, slopes) = alone(name)
    start = (*scene(), params(0.05))
    rng = np.random.default_rng(5)
    direction = jax.tree.map(lambda u: jnp.asarray(rng.normal(size=u.shape)) * jnp.abs(u).max(), start)
    along = sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(slopes), jax.tree.leaves(direction), strict=True))
    epsilon = 1e-5

    def at(s):
        return run(*jax.tree.map(lambda u, d: u + s * epsilon * d, start, direction))[0]

    # Central differences: epsilon^2 times third derivatives, and rounding over epsilon.
    assert abs((at(1) - at(-1)) / (2 * epsilon) - along) < 1e-6 * abs(along)


@each_attraction
def test_momentum_is_kept(name):
    """All forces are opposite and equal, those through the mesh too."""
    (_, end), _ = alone(name)[1]
    # Zero at the start: rounding of sums over 60 particles and six steps.
    assert np.abs(end[1] @ scene()[2]).max() < 1e-14
