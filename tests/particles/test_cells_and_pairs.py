"""Particles in cells: binning, migration, lists of neighbours, and sums over pairs with their derivatives.

Sums over pairs are compared with plain loops over all pairs and their periodic images; they differ by the order of
sums, so the bounds are some hundreds of roundings of the largest term.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from jax.sharding import PartitionSpec
from particles import pack, scattered, separations, stored, unpack

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles import cells as storage
from simjax.particles.cells import EMPTY, Cells, cells_for, counted
from simjax.particles.migration import rebin, strayed
from simjax.particles.neighbor_list import neighbours_within
from simjax.particles.neighbor_policy import NeighborPolicy, Particles
from simjax.particles.neighbor_slots import own_slot
from simjax.particles.pairs import Pairs
from simjax.status import BLOCK_FULL, CELL_FULL, ESCAPED, LIST_FULL, SKIN_PASSED

ROUNDING = 1e-12
compiled = functools.partial(jax.jit, compiler_options=QUICK)
rebinned = compiled(rebin)
CUTOFF, SKIN, ROWS = 1.0, 0.2, 40
# Periodic and open axes; boxes many, two and one cell wide; 1-D to 3-D.
BOXES = {
    "1-D": ((9.0,), (True,), 12),
    "2-D": ((5.0, 7.3), (True, True), 60),
    "2-D open": ((5.0, 4.0), (False, True), 40),
    "3-D": ((4.0, 3.7, 5.0), (True, True, True), 120),
    "3-D thin": ((1.3, 2.6, 4.0), (True, True, False), 22),
}


def well(separation, here, there, params):
    """A smooth, asymmetric interaction of order one with values, shared parameters and a table by species."""
    depth, table = params
    (a, kind_a), (b, kind_b) = here, there
    square = sum(x * x for x in separation)
    bump = jnp.exp(-2 * square) * table.at[kind_a, kind_b].get(mode="promise_in_bounds")
    return {"energy": depth * bump * a[0] * b[1], "pull": tuple(bump * x * (a[1] + 2 * b[0]) for x in separation)}


class _Set:
    """A random set of particles in one of the boxes, stored in cells."""

    def __init__(self, name: str):
        self.lengths, self.periodic, count = BOXES[name]
        self.position = scattered(count, self.lengths, 0.3, seed=3)
        rng = np.random.default_rng(1)
        self.values = rng.normal(size=(2, count))
        self.species = rng.integers(0, 2, count).astype(np.int32)
        self.params = jnp.asarray(0.7), jnp.asarray([[1.0, 0.4], [0.6, 1.3]])
        self.cells, self.within, self.ids = stored(
            self.position, self.lengths, CUTOFF + SKIN, periodic=self.periodic, capacity=24
        )
        own = jnp.asarray(self.values), jnp.asarray(self.species)
        self.stored = pack(self.cells, jnp.asarray(self.position), own)[2]
        listed = compiled(lambda within, ids: neighbours_within(self.cells, within, ids, CUTOFF + SKIN, ROWS, 128))
        self.neighbours, self.fault = listed(self.within, self.ids)

    def pairs(self, listed: bool, within=None) -> Pairs:
        within = self.within if within is None else within
        return Pairs(self.cells, within, self.ids, CUTOFF, self.neighbours if listed else None)

    def ordered(self, values):
        return np.asarray(unpack(self.cells, self.ids, values, self.position.shape[1]))


@functools.cache
def particles_in(name):
    return _Set(name)


USUAL = ("2-D open", "3-D thin")


@pytest.fixture(params=[pytest.param(n, marks=() if n in USUAL else pytest.mark.slow) for n in BOXES])
def particles(request):
    return particles_in(request.param)


@pytest.mark.slow
def test_packing_and_unpacking_return_what_was_given(particles):
    """Coordinates to rounding (they are kept relative to cells), values bit for bit, ids in order."""
    absolute = particles.ordered(compiled(particles.cells.absolute)(particles.within))
    np.testing.assert_allclose(absolute, particles.position, rtol=0, atol=1e-14 * max(particles.lengths))
    np.testing.assert_array_equal(particles.ordered(particles.stored[0]), particles.values)
    np.testing.assert_array_equal(particles.ordered(particles.ids), np.arange(particles.position.shape[1]))


@pytest.mark.slow
def test_lists_hold_every_near_pair_and_no_other(particles):
    first, second, _ = separations(particles.position, particles.lengths, particles.periodic, CUTOFF + SKIN)
    flat_ids = np.asarray(compiled(particles.cells.pad)(particles.ids + 1)).ravel() - 1
    slots, owner = np.asarray(particles.neighbours.slot), np.asarray(particles.neighbours.owner)
    ids, own = np.asarray(particles.ids).ravel(), np.asarray(own_slot(particles.cells)).ravel()
    listed = sorted(
        (int(ids[k]), int(flat_ids[slot]))
        for column, k in enumerate(owner)
        for slot in slots[:, column]
        if slot != own[k]
    )
    assert listed == sorted(zip(first.tolist(), second.tolist(), strict=True))
    assert int(particles.fault) == 0


def near(separation, here, there, params):
    return jnp.ones_like(separation[0])


@pytest.mark.parametrize("counts", [(1, 0, 0, 0), (16, 0, 1, 0), (17, 2, 0, 0), (0, 33, 5, 16)])
def test_lists_of_crowded_cells_hold_every_near_pair(counts):
    """Of cells with as many particles as words have bits, and one more; the lists end in a row that begins a turn."""
    place = np.concatenate([k + 0.01 + 0.98 * np.linspace(0, 1, n) for k, n in enumerate(counts)])[None]
    cells, within, ids = stored(1.2 * place, (4.8,), 1.2, periodic=(True,), capacity=40)
    first, _, _ = separations(1.2 * place, (4.8,), (True,), CUTOFF)
    neighbours, fault = compiled(lambda x, ids: neighbours_within(cells, x, ids, CUTOFF, 60))(within, ids)
    partners = compiled(lambda x, ids, listed: Pairs(cells, x, ids, CUTOFF, listed).sum(near))(within, ids, neighbours)
    expected = np.bincount(first, minlength=place.size)
    np.testing.assert_array_equal(np.asarray(unpack(cells, ids, partners, place.size)), expected)
    assert int(neighbours.longest) == expected.max()
    assert int(fault) == 0


@pytest.mark.slow
def test_lists_tell_what_does_not_fit():
    particles = particles_in("2-D open")
    first, _, _ = separations(particles.position, particles.lengths, particles.periodic, CUTOFF + SKIN)
    most, count = int(np.bincount(first).max()), particles.position.shape[1]
    make = compiled(neighbours_within, static_argnums=(3, 4, 5))
    faults = [
        int(make(particles.cells, particles.within, particles.ids, CUTOFF + SKIN, rows, columns)[1])
        for rows, columns in ((most, count), (most - 1, count), (most, count - 1))
    ]
    assert faults == [0, LIST_FULL, BLOCK_FULL]


def test_a_list_as_long_as_the_most_neighbours_is_long_enough():
    """Three particles of one device have two neighbours each; both devices tell whether that is too many."""
    cells, within, ids = stored(np.array([[1.3, 1.5, 1.7, 3.5]]), (4.8,), 1.2, periodic=(True,), capacity=8)
    mesh, one_each = make_mesh({"x": 2}), PartitionSpec("x")
    cut = Cells(decompose(cells.domain.grid, mesh), 8, (True,))

    def faults(within, ids):
        return jnp.stack([neighbours_within(cut, within, ids, CUTOFF, rows)[1] for rows in (1, 2)])[None]

    specs = PartitionSpec(None, None, "x"), PartitionSpec(None, "x")
    found = compiled(jax.shard_map(faults, mesh=mesh, in_specs=specs, out_specs=one_each, check_vma=False))(within, ids)
    np.testing.assert_array_equal(found, [[LIST_FULL, 0]] * 2)


@pytest.mark.parametrize(
    ("apart", "moved", "listed"), [(1 + 1e-9, 0.49, 0), (1 + 1e-9, 0.51, 0), (1 - 1e-9, 0.49, 0), (1 - 1e-9, 0.51, 2)]
)
@pytest.mark.slow
def test_lists_serve_until_a_particle_has_moved_by_half_a_skin(apart, moved, listed):
    """Two particles just too far apart to be listed, or just near enough, approach head-on, each by `moved` skins.

    They come nearer than the cutoff when both have moved by half a skin: before, the list has every pair; after, the
    used passes one, which stops the run.
    """
    skin, lengths = NeighborPolicy(CUTOFF, SKIN, max_neighbors=4), (5.0, 5.0)
    apart *= CUTOFF + SKIN
    start = np.array([[2.5 - apart / 2, 2.5 + apart / 2], [2.5, 2.5]])
    cells, within, ids = stored(start, lengths, skin.reach)
    push = pack(cells, jnp.asarray(start), jnp.asarray([[moved * SKIN, -moved * SKIN], [0.0, 0.0]]))[2]

    def of(within, push):
        begun, arranged, fault = skin.arrange(cells, Particles(within, jnp.zeros(within.shape, jnp.int32), ids))
        state = dataclasses.replace(begun, position=begun.position + push)
        counts = (
            pairs.sum(lambda separation, *_: {"count": jnp.ones_like(separation[0])}, (), ())["count"]
            for pairs in (skin.pairs(cells, state, arranged), Pairs(cells, state.position, ids, CUTOFF))
        )
        return skin.skin_used(state, arranged), [jnp.sum(count) for count in counts], fault

    used, counts, fault = compiled(of)(within, push)
    assert fault == 0
    assert (used > 1) == (moved > 0.5)
    assert float(used) == pytest.approx(2 * moved, rel=1e-12)  # rounding
    assert [float(count) for count in counts] == [listed, 2 if moved > 0.5 else 0]


@pytest.mark.parametrize("listed", [True, False], ids=["list", "cells"])
@pytest.mark.slow
def test_pair_sums_are_those_of_all_pairs(particles, listed):
    found = compiled(lambda p: p.sum(well, particles.stored, particles.params))(particles.pairs(listed))
    first, second, apart = separations(particles.position, particles.lengths, particles.periodic, CUTOFF)

    def of(which):
        return jnp.asarray(particles.values[:, which]), jnp.asarray(particles.species[which])

    terms = compiled(well)(tuple(jnp.asarray(apart)), of(first), of(second), particles.params)
    count = particles.position.shape[1]
    for mine, all_terms in zip(jax.tree.leaves(found), jax.tree.leaves(terms), strict=True):
        expected = np.bincount(first, np.asarray(all_terms), count)
        np.testing.assert_allclose(particles.ordered(mine), expected, rtol=0, atol=ROUNDING)


def _loss(particles, listed):
    weights = jax.random.normal(jax.random.key(0), (4, *particles.cells.shape))

    def loss(within, values, params):
        sums = particles.pairs(listed, within).sum(well, (values, particles.stored[1]), params)
        return sum(jnp.sum(jnp.sin(u) * w) for u, w in zip(jax.tree.leaves(sums), weights, strict=False))

    return loss, (particles.within, particles.stored[0], particles.params)


def _directions(particles, arguments):
    keys = iter(jax.random.split(jax.random.key(5), 8))
    there = particles.ids >= 0
    along = jax.tree.map(lambda u: jax.random.normal(next(keys), u.shape), arguments)
    return (jnp.where(there[None], along[0], 0), jnp.where(there[None], along[1], 0), along[2])


@pytest.mark.parametrize(
    "name, listed",
    [
        ("2-D open", True),
        pytest.param("1-D", False, marks=pytest.mark.slow),
        pytest.param("3-D thin", True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_derivatives_of_pair_sums(name, listed):
    """Reverse mode agrees with forward mode to rounding, and both with a difference to its truncation, h^2.

    The interaction jumps at the cutoff by 0.1: the step is too small for a pair to cross it.
    """
    particles = particles_in(name)
    loss, arguments = _loss(particles, listed)
    along = _directions(particles, arguments)
    gradient = compiled(jax.grad(loss, (0, 1, 2)))(*arguments)
    slope = sum(jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(along), strict=True))
    forward = compiled(lambda a, d: jax.jvp(loss, a, d)[1])(arguments, along)
    assert abs(slope - forward) <= 1e3 * ROUNDING * (1 + abs(slope))
    h = 1e-6
    value = compiled(lambda s: loss(*jax.tree.map(lambda u, d: u + s * d, arguments, along)))
    # h^2 times a third derivative of order 1e3, and roundings of the loss, 1e-14, over h.
    assert abs((value(h) - value(-h)) / (2 * h) - slope) < 1e-6 * (1 + abs(slope))


def spring(separation, here, there, params):
    """What two particles give each other up to a sign: an energy and a force."""
    square = sum(x * x for x in separation)
    bump = params * here[0] * there[0] * jnp.exp(-2 * square)
    return {"energy": bump, "pull": tuple(bump * x for x in separation)}


def _springs(name, mesh, signs):
    """Sums by number, and gradients of a function of them in places, masses and the parameter."""
    lengths, periodic, count = BOXES[name]
    position = scattered(count, lengths, 0.3, seed=3)
    mesh = make_mesh(mesh)
    grid = cells_for((0.0,) * len(lengths), lengths, CUTOFF, periodic, [2 if x >= 2 * CUTOFF else 1 for x in lengths])
    cells = Cells(decompose(grid, mesh), 24, periodic)
    weights, mass = np.random.default_rng(0).normal(size=(2, count))

    def evaluated(position, params):
        within, ids, (w, m), lost = storage.pack(cells, position, (jnp.asarray(weights), jnp.asarray(mass)))

        def loss(within, m, params):
            sums = Pairs(cells, within, ids, CUTOFF).sum(spring, m[None], params, signs)
            found = jnp.stack(jax.tree.leaves(sums))
            return cells.domain.sum(jnp.where(ids >= 0, jnp.sum(jnp.sin(found), axis=0) * w, 0)), found

        gradient, found = jax.grad(loss, (0, 1, 2), has_aux=True)(within, m, params)
        by_number = storage.unpack(cells, ids, jnp.concatenate([found, gradient[0], gradient[1][None]]), count)
        return by_number, gradient[2], lost

    run = distribute(evaluated, mesh, in_specs=(PartitionSpec(),) * 2, out_specs=PartitionSpec())
    by_number, of_parameter, lost = jax.device_get(run(jnp.asarray(position), jnp.asarray(0.7)))
    assert int(lost) == 0
    return by_number, of_parameter


@pytest.mark.parametrize(
    "name",
    [
        "1-D",
        pytest.param("3-D thin", marks=pytest.mark.slow),
        pytest.param("2-D", marks=pytest.mark.long),
        pytest.param("2-D open", marks=pytest.mark.long),
        pytest.param("3-D", marks=pytest.mark.long),
    ],
)
@pytest.mark.slow
def test_pairs_looked_at_once_give_both_their_share(name):
    lengths = BOXES[name][0]
    each, slope = _springs(name, {}, None)
    # A box of one cell along an axis is not cut there.
    cut = {axis: 2 for axis, length in zip("xyz", lengths, strict=False) if length >= 2 * CUTOFF}
    for mesh in ({}, cut):
        once, its_slope = _springs(name, mesh, {"energy": 1, "pull": (-1,) * len(lengths)})
        np.testing.assert_allclose(once, each, rtol=0, atol=ROUNDING * (1 + np.abs(each).max()))
        assert abs(its_slope - slope) < ROUNDING * (1 + abs(slope))
    assert np.all(np.abs(each).max(axis=1) > 0.1)


@pytest.mark.slow
def test_second_derivatives_of_pair_sums():
    """A Hessian is symmetric, and the same by list and by cells."""
    particles = particles_in("1-D")
    found = []
    for listed in (True, False):
        loss, arguments = _loss(particles, listed)
        u = _directions(particles, arguments)[0]
        v = jnp.where(particles.ids >= 0, jnp.cos(3 * u), 0)
        gradient = jax.grad(loss)

        def products(d, gradient=gradient, rest=arguments[1:]):
            return jax.grad(lambda x: jnp.vdot(gradient(x, *rest), d))(particles.within)

        left, right = (
            jnp.vdot(a, b)
            for a, b in zip((u, v), compiled(jax.lax.map, static_argnums=0)(products, jnp.stack([v, u])), strict=True)
        )
        assert abs(left - right) < 1e3 * ROUNDING * (1 + abs(left))
        found.append(left)
    assert abs(found[0] - found[1]) < 1e3 * ROUNDING * (1 + abs(found[0]))


def _moved(particles, seed=0, furthest=0.3):
    rng = np.random.default_rng(seed)
    push = rng.uniform(-furthest, furthest, particles.position.shape)
    return push, pack(particles.cells, jnp.asarray(particles.position), jnp.asarray(push))[2]


@pytest.mark.slow
def test_migration_moves_particles_and_loses_none(particles):
    """After a push every particle is in the cell in which it is, with its id, its values and its images."""
    cells = particles.cells
    push, stored_push = _moved(particles)
    for axis, periodic in enumerate(particles.periodic):
        if not periodic:  # towards the middle, so that none leaves
            middle = particles.position[axis] < particles.lengths[axis] / 2
            push[axis] = np.where(middle, 1, -1) * np.abs(push[axis])
            stored_push = pack(cells, jnp.asarray(particles.position), jnp.asarray(push))[2]
    image = jnp.zeros(particles.within.shape, jnp.int32)
    position, image, ids, values, fault = rebinned(
        cells, particles.within + stored_push, image, particles.ids, particles.stored[0]
    )
    assert int(fault) == 0
    half = np.array(cells.domain.grid.spacing).reshape(-1, *(1,) * (cells.ndim + 1)) / 2
    assert np.all(np.abs(position) <= half * (1 + 1e-12))
    count = particles.position.shape[1]
    assert int(counted(cells, ids)) == count
    lengths = np.array(particles.lengths)[:, None]
    turns = np.asarray(unpack(cells, ids, image, count))
    unwrapped = np.asarray(unpack(cells, ids, compiled(cells.absolute)(position), count)) + turns * lengths
    np.testing.assert_allclose(unwrapped, particles.position + push, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(unpack(cells, ids, values, count), particles.values)
    assert np.any(np.asarray(ids) != np.asarray(particles.ids))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.slow
def test_particles_on_faces_between_cells_are_kept(dtype):
    """Particles on every face and corner, and one rounding beside: both cells agree which of them has each."""
    cells = Cells(Domain(Grid((3, 5), (0, 0), (3.9, 5.5))), 256, (True, True))
    half = np.array([[h / 2] for h in cells.domain.grid.spacing], dtype)
    near = [[0, *(np.nextafter(s * h, to, dtype=dtype) for s in (-1, 1) for to in (-9, s * h, 9))] for h in half[:, 0]]
    places = np.stack(np.meshgrid(*near, indexing="ij")).reshape(2, -1)
    count = places.shape[1]
    ids, position = np.full(cells.shape, EMPTY, np.int32), np.zeros((2, *cells.shape), dtype)
    ids[:count] = np.arange(15 * count, dtype=np.int32).reshape(count, 3, 5)
    position[:, :count] = places[:, :, None, None]
    image = jnp.zeros(position.shape, jnp.int32)
    moved, _, after, _, fault = rebinned(cells, jnp.asarray(position), image, jnp.asarray(ids), ())
    assert int(fault) == 0
    np.testing.assert_array_equal(np.sort(after[after >= 0]), np.arange(15 * count))
    # What moved is its old position and a whole cell: a rounding of that sum.
    assert np.all(np.abs(moved) <= half[..., None, None] * (1 + 4 * np.finfo(dtype).eps))


@pytest.mark.slow
def test_migration_tells_what_goes_wrong():
    cells, within, ids = stored(scattered(40, (5.0, 4.0), 0.3), (5.0, 4.0), 1.0, periodic=(False, True))
    image = jnp.zeros(within.shape, jnp.int32)

    def fault(position, cells=cells, ids=ids, image=image):
        return int(rebinned(cells, position, image, ids, ())[-1])

    assert fault(within) == 0
    there = ids >= 0
    first = there & (ids == 0)
    assert fault(jnp.where(first[None], within + 5.0, within)) & SKIN_PASSED
    assert fault(jnp.where(first[None], jnp.nan, within)) & SKIN_PASSED
    outwards = jnp.zeros_like(within).at[0].set(jnp.where(there, -1.0, 0.0))
    assert fault(within + outwards) == ESCAPED
    tight = Cells(cells.domain, 8, cells.periodic)
    crowded = jnp.zeros(tight.shape, jnp.int32).at[:, :2].set(jnp.arange(64).reshape(8, 2, 4).astype(jnp.int32))
    crowded = jnp.where((jnp.arange(5) < 2)[None, :, None], crowded, EMPTY)
    forward = jnp.zeros((2, *tight.shape)).at[0, :, 0].set(1.0)
    nowhere = jnp.zeros(forward.shape, jnp.int32)
    assert fault(forward, tight, crowded, nowhere) == CELL_FULL
    # One particle enters: a full cell has no slot for it, one with a free slot has.
    one = forward.at[:, 1:].set(0).at[:, 0, :, 1:].set(0)
    assert fault(one, tight, crowded, nowhere) == CELL_FULL
    assert fault(one, tight, crowded.at[7, 1, 0].set(EMPTY), nowhere) == 0


def test_particles_too_far_from_their_cells_for_pairs_are_told():
    """Beyond h - cutoff / 2 from the centre of a cell of length h a near partner may be two cells away."""
    cells, within, ids = stored(scattered(40, (5.0, 4.0), 0.3), (5.0, 4.0), 1.0, periodic=(False, True))
    cutoff, inner = 0.8, (ids >= 0) & (jnp.arange(5) == 2)[None, :, None]

    def bits(x):
        moved = jnp.where(inner[None], jnp.asarray([x, 0.0]).reshape(2, 1, 1, 1), within)
        return int(strayed(cells, moved, ids, cutoff))

    assert bits(0.6 - 1e-12) == bits(-0.6 + 1e-12) == 0  # rounding
    assert bits(0.6 + 1e-12) == bits(-0.6 - 1e-12) == bits(jnp.nan) == SKIN_PASSED
    # A particle of the last cell along the open axis is outside the box on its face already.
    last = (ids >= 0) & (jnp.arange(5) == 4)[None, :, None]
    assert int(strayed(cells, within.at[0].set(jnp.where(last, 0.5, within[0])), ids, cutoff)) == ESCAPED
    assert int(strayed(cells, within.at[0].set(jnp.where(last, 0.5 - 1e-12, within[0])), ids, cutoff)) == 0


@pytest.mark.parametrize("axis", [0, 1])
def test_a_cell_that_is_full_along_one_axis_is_told(axis):
    """A full cell and one of its neighbours along this axis, from which one particle comes: no slot is left."""
    cells = Cells(Domain(Grid((3, 3))), 8, (True, True))
    ids = np.full(cells.shape, EMPTY, np.int32)
    ids[:, 1, 1] = np.arange(8)
    beside = (0, 0, 1) if axis == 0 else (0, 1, 0)
    ids[beside] = 8
    position = np.zeros((2, *cells.shape))
    position[(axis, *beside)] = 0.3  # nearly a cell
    image = jnp.zeros(position.shape, jnp.int32)
    assert int(rebinned(cells, jnp.asarray(position), image, jnp.asarray(ids), ())[-1]) == CELL_FULL


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.1, 5.1])
def test_particles_without_a_place_are_counted(wrong):
    position = scattered(30, (5.0, 4.0), 0.3)
    position[0, 3] = wrong
    grid = cells_for((0.0, 0.0), (5.0, 4.0), 1.0, (False, True))
    assert int(pack(Cells(Domain(grid), 16, (False, True)), jnp.asarray(position), ())[-1]) == 1
    assert int(pack(Cells(Domain(Grid((1, 1), (0, 0), (5, 4))), 24, (True, True)), jnp.asarray(position), ())[-1]) >= 6


@pytest.mark.parametrize(
    "arguments, said",
    [
        (((0, 0), (0.9, 4.0), 1.0, (True, True)), "The box is 0.9 long along x, less than the 1"),
        (((0, 0), (5.0, 4.0), 1.0, (True, True), (1, 8)), "mesh.y=8 .* write mesh.y=4"),
    ],
)
def test_boxes_and_blocks_that_are_too_thin_are_refused(arguments, said):
    with pytest.raises(ConfigurationError, match=said):
        cells_for(*arguments)
