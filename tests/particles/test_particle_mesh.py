"""Deposition on a mesh and interpolation from it: conservation, exactness, adjointness, any decomposition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PLAIN
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, pack, unpack
from simjax.particles.current_deposition import transported
from simjax.particles.mesh import ParticleMesh

COUNT = 600
CAPACITY = {1: 120, 2: 56, 3: 40}
CASES = [
    # axes, cells, mesh cells per cell or of the whole box, shape, offset of nodes, stray
    (1, (8,), 1, "cic", 0.5, 0.5),
    (2, (8, 4), 2, "tsc", 0.0, 0.5),
    (2, (8, 4), 1, "tsc", 0.5, 1.0),
    (3, (4, 4, 4), 1, "cic", 0.5, 0.5),
    (3, (4, 4, 4), 3, "ngp", 0.5, 0.0),
    (1, (12,), (20,), "tsc", 0.0, 0.5),  # cells begin within mesh cells: three of a block on five
    (2, (8, 4), (12, 4), "cic", 0.5, 0.5),
    (3, (4, 4, 4), (6, 6, 10), "pcs", 0.5, 0.25),
    (3, (4, 4, 4), 2, "tsc", 0.5, 0.5),  # 216 nodes: more than are summed one by one (`MOST_NODES`)
]
compiled = functools.partial(jax.jit, compiler_options=PLAIN)
deposit, interpolate = compiled(ParticleMesh.deposit), compiled(ParticleMesh.interpolate)
MESHES = {1: {"x": 4}, 2: {"x": 4, "y": 2}, 3: {"x": 2, "y": 2, "z": 2}}


def mesh_of(setup, device_mesh=None):
    ndim, shape, finer, kind, offset, stray = setup
    domain = decompose(Grid(shape, None, range(1, ndim + 1)), device_mesh)
    return ParticleMesh(Cells(domain, CAPACITY[ndim], (True,) * ndim), finer, kind, (offset,) * ndim, stray)


def strayed(mesh, position, attributes):
    """Particles in their cells, moved by at most the stray; also where they are, in the order of ids."""
    position, away = position
    within, ids, attributes, lost = pack(mesh.cells, position, (away, attributes))
    away, attributes = attributes
    h = jnp.asarray(mesh.domain.grid.spacing).reshape(-1, *(1,) * (mesh.cells.ndim + 1))
    return jnp.where(ids >= 0, within + mesh.stray * h * away, 0), ids, attributes, lost


@functools.cache
def both_ways(setup, cut: bool):
    """Charges, fields, what they give, and its derivative, of one setup."""
    ndim = setup[0]
    devices = make_mesh(MESHES[ndim]) if cut else None
    mesh = mesh_of(setup, devices)
    draw = np.random.default_rng(ndim)
    position = draw.uniform(0, 1, (ndim, COUNT)) * np.arange(1, ndim + 1)[:, None]
    away = draw.uniform(-1, 1, (ndim, COUNT))
    charge = draw.normal(size=(2, COUNT))
    field = draw.normal(size=(3, *mesh.domain.grid.shape))

    def run(position, away, charge, field):
        where, ids, values, lost = strayed(mesh, (position, away), charge)
        density = mesh.deposit(where, ids, values)
        found = mesh.interpolate(where, ids, field)
        coordinates = unpack(mesh.cells, ids, mesh.cells.absolute(where), COUNT)
        return density, unpack(mesh.cells, ids, found, COUNT), coordinates, lost

    spec = mesh.domain.spec(ndim + 1)
    alone = PartitionSpec()
    program = distribute(run, devices, in_specs=(alone, alone, alone, spec), out_specs=(spec, alone, alone, alone))
    density, found, coordinates, lost = compiled(program)(*map(jnp.asarray, (position, away, charge, field)))
    assert int(lost) == 0
    return tuple(map(np.asarray, (charge, field, density, found, coordinates)))


@pytest.mark.parametrize("setup", CASES, ids=str)
@pytest.mark.slow
def test_charge_is_conserved(setup):
    charge, _, density, _, _ = both_ways(setup, False)
    # Rounding of a few hundred terms of order one.
    np.testing.assert_allclose(density.reshape(2, -1).sum(1), charge.sum(1), atol=1e-12)


@pytest.mark.parametrize("setup", CASES, ids=str)
@pytest.mark.slow
def test_interpolation_is_the_transpose_of_deposition(setup):
    charge, field, density, found, _ = both_ways(setup, False)
    np.testing.assert_allclose(np.sum(density[0] * field[1]), np.sum(charge[0] * found[1]), atol=1e-11)


@pytest.mark.parametrize("setup", CASES, ids=str)
def test_weights_are_those_of_the_literature(setup):
    """A sum over all nodes for each particle, written with distances around the periodic box."""
    ndim, shape, finer, kind, offset, _ = setup
    _, field, _, found, coordinates = both_ways(setup, False)
    weights = np.ones((COUNT,) + (1,) * ndim)
    for axis in range(ndim):
        n = finer[axis] if isinstance(finer, tuple) else shape[axis] * finer
        d = coordinates[axis][:, None] / (axis + 1) * n - (np.arange(n) + offset)
        d = np.abs((d + n / 2) % n - n / 2)
        if kind == "ngp":
            one = np.where(d < 0.5, 1.0, 0.0)
        elif kind == "cic":
            one = np.maximum(1 - d, 0)
        elif kind == "pcs":
            one = np.where(d < 1, (4 - 6 * d**2 + 3 * d**3) / 6, np.maximum(2 - d, 0) ** 3 / 6)
        else:
            one = np.where(d < 0.5, 0.75 - d**2, 0.5 * np.maximum(1.5 - d, 0) ** 2)
        weights = weights * one.reshape(COUNT, *(n if k == axis else 1 for k in range(ndim)))
    expected = np.einsum("pn,cn->cp", weights.reshape(COUNT, -1), field.reshape(3, -1))
    # Distances of order ten cells lose a digit or two in this sum.
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("setup", CASES, ids=str)
@pytest.mark.slow
def test_decomposition_changes_no_bit(setup):
    """Sums over slots and over neighbouring cells are taken in one order."""
    for one, other in zip(both_ways(setup, False), both_ways(setup, True), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["cic", "tsc"])
@pytest.mark.slow
def test_linear_fields_are_exact(kind):
    """Away from where the box closes, a linear field comes back as it is."""
    mesh = ParticleMesh(Cells(Domain(Grid((6, 6))), 8, (True, True)), 2, kind)
    draw = np.random.default_rng(0)
    position = jnp.asarray(draw.uniform(-1, 1, (2, *mesh.cells.shape)) / 12)
    ids = jnp.zeros(mesh.cells.shape, jnp.int32)
    x, y = mesh.domain.coordinates((0.5, 0.5))
    found = interpolate(mesh, position, ids, 1 + 2 * x - 3 * y)
    px, py = mesh.cells.absolute(position)
    inner = (slice(None), slice(1, -1), slice(1, -1))
    np.testing.assert_allclose(found[inner], (1 + 2 * px - 3 * py)[inner], atol=1e-14)


def test_edges_of_nearest_grid_points_lose_nothing():
    """Particles exactly between two nodes, and at the sides of their cells, go to one node each."""
    mesh = ParticleMesh(Cells(Domain(Grid((4,), None, (4.0,))), 8, (True,)), 1, "ngp", stray=0.0)
    tiny = np.array([-0.5, -0.5 + 1e-17, 0.0, 1e-20, -1e-20, 0.5, 0.5 - 1e-17, 0.25])
    position = jnp.asarray(np.broadcast_to(tiny[:, None], (1, 8, 4)))
    for offset in (0.0, 0.5):
        mesh = ParticleMesh(mesh.cells, 1, "ngp", (offset,), 0.0)
        total = deposit(mesh, position, jnp.zeros((8, 4), jnp.int32), jnp.ones((8, 4)))
        assert float(total.sum()) == 32


def test_particles_too_far_away_are_not_lost_in_silence():
    mesh = ParticleMesh(Cells(Domain(Grid((4,), None, (4.0,))), 8, (True,)), 1, "cic", stray=0.5)
    position = jnp.zeros((1, 8, 4)).at[0, 2, 1].set(1.2)
    ids = jnp.zeros((8, 4), jnp.int32)
    assert np.isnan(deposit(mesh, position, ids, jnp.ones((8, 4)))).any()
    assert float(mesh.beyond(position, ids)) == pytest.approx(0.7)
    # An empty slot may hold anything.
    assert np.isfinite(deposit(mesh, position, ids.at[2, 1].set(-1), jnp.ones((8, 4)))).all()


@pytest.mark.slow
def test_derivatives():
    """First and second derivatives in positions, charges and fields against differences, where weights are smooth."""
    mesh = ParticleMesh(Cells(Domain(Grid((4, 3), None, (4.0, 3.0))), 8, (True, True)), 1, "tsc", (0.0, 0.0))
    draw = np.random.default_rng(1)
    ids = jnp.asarray(draw.integers(-1, 1, mesh.cells.shape, np.int32))
    shapes = (2, *mesh.cells.shape), mesh.cells.shape, (4, 3)
    at = tuple(jnp.asarray(draw.uniform(-0.4, 0.4, shape)) for shape in shapes)
    along = tuple(jnp.asarray(draw.normal(size=v.shape)) for v in at)

    def value(position, charge, field):
        density = mesh.deposit(position, ids, charge)
        return jnp.sum(density**2 * field) + jnp.sum(mesh.interpolate(position, ids, field * density) ** 2)

    def moved(e):
        return value(*(a + e * b for a, b in zip(at, along, strict=True)))

    reverse = jax.jit(jax.grad(value, (0, 1, 2)))(*at)
    slope = sum(float(jnp.vdot(a, b)) for a, b in zip(reverse, along, strict=True))
    first = jax.jit(jax.jacfwd(moved))
    e = 1e-4
    # Central differences: an error of e^2 times a third derivative of order 1e3, against values of order 1e2.
    assert slope == pytest.approx(float(moved(e) - moved(-e)) / (2 * e), rel=1e-6)
    assert slope == pytest.approx(float(first(0.0)), rel=1e-12)
    curvature = float(jax.jit(jax.jacfwd(first))(0.0))
    assert curvature == pytest.approx(float(first(e) - first(-e)) / (2 * e), rel=1e-6)


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.slow
def test_currents_obey_continuity(ndim):
    """What passes between nodes is what they lose."""
    shape = (5, 4, 3)[:ndim]
    mesh = ParticleMesh(Cells(Domain(Grid(shape)), 8, (True,) * ndim), 1, "cic", (0.0,) * ndim, stray=1.0)
    draw = np.random.default_rng(2)
    h = np.asarray(mesh.domain.grid.spacing).reshape(-1, *(1,) * (ndim + 1))
    before = jnp.asarray(draw.uniform(-0.5, 0.5, (ndim, *mesh.cells.shape)) * h)
    after = before + jnp.asarray(draw.uniform(-1, 1, before.shape) * h)
    ids, charge = jnp.zeros(mesh.cells.shape, jnp.int32), jnp.asarray(draw.normal(size=mesh.cells.shape))
    passed = compiled(transported)(mesh, before, after, ids, charge)
    lost = deposit(mesh, before, ids, charge) - deposit(mesh, after, ids, charge)
    left = sum(p - jnp.roll(p, 1, axis) for axis, p in enumerate(passed))
    np.testing.assert_allclose(left, lost, atol=1e-14)


@pytest.mark.parametrize(
    ("periodic", "options", "words"),
    [
        ((True, False), {}, "axis y is not periodic"),
        ((True, True), {"shape": "cubic"}, "shape='cubic': expected one of 'ngp', 'cic', 'tsc'"),
        ((True, True), {"finer": 0}, "at least 1"),
    ],
)
def test_refusals(periodic, options, words):
    with pytest.raises(ConfigurationError, match=words):
        ParticleMesh(Cells(Domain(Grid((4, 4))), 8, periodic), **options)
