"""What a GPU runs in the place of loops over pairs: the same lists, sums and derivatives, in one operation each.

It is traced for a GPU and runs on this machine. Sums are in another order than the loops', so bounds are some hundreds
of roundings of numbers of order one to ten; lists and places are equal bit for bit.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from jax.extend.core import jaxprs_in_params
from particles import pack, scattered, stored
from test_cells_and_pairs import BOXES, CUTOFF, ROUNDING, SKIN, well

from simjax.jaxpr.platform import tracing_for
from simjax.particles import all_pairs
from simjax.particles.id_lookup import partners_of, slots_of
from simjax.particles.migration import rebin
from simjax.particles.neighbor_list import neighbours_within, of_every_slot
from simjax.particles.neighbor_slots import own_slot
from simjax.particles.one_pass import COPIES, by_cell, summed
from simjax.particles.pairs import Pairs
from simjax.status import BLOCK_FULL, LIST_FULL

ROWS, PARTICLES = 40, 128
compiled = functools.partial(jax.jit, compiler_options=QUICK)


def on_both(function, *arguments):
    """Results of a function traced for this machine and for a GPU."""
    results = []
    for name in ("cpu", "gpu"):
        with tracing_for(name):
            # A function of its own each time, as jax remembers what it has traced.
            results.append(compiled(lambda *arguments: function(*arguments))(*arguments))
    return results


def in_box(name):
    lengths, periodic, count = BOXES[name]
    position = scattered(count, lengths, 0.3, seed=3)
    cells, within, ids = stored(position, lengths, CUTOFF + SKIN, periodic=periodic, capacity=24)
    rng = np.random.default_rng(1)
    own = jnp.asarray(rng.normal(size=(2, count))), jnp.asarray(rng.integers(0, 2, count).astype(np.int32))
    values = pack(cells, jnp.asarray(position), own)[2]
    return cells, within, ids, values, (jnp.asarray(0.7), jnp.asarray([[1.0, 0.4], [0.6, 1.3]]))


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("listed", [True, False], ids=["list", "cells"])
@pytest.mark.slow
def test_sums_and_derivatives_are_those_of_the_loops(name, listed):
    cells, within, ids, values, params = in_box(name)
    weights = jax.random.normal(jax.random.key(0), (4, *cells.shape))

    def of(within, values, params):
        neighbours = None
        if listed:
            neighbours, _ = neighbours_within(cells, within, ids, CUTOFF + SKIN, ROWS, PARTICLES)

        def loss(within, floating, params):
            found = Pairs(cells, within, ids, CUTOFF, neighbours).sum(well, (floating, values[1]), params)
            loss = sum(jnp.sum(jnp.sin(u) * w) for u, w in zip(jax.tree.leaves(found), weights, strict=False))
            return loss, found

        arguments = within, values[0], params
        along = jax.tree.map(jnp.cos, arguments)
        gradient, found = jax.grad(loss, (0, 1, 2), has_aux=True)(*arguments)
        return found, gradient, jax.jvp(lambda *a: loss(*a)[0], arguments, along)[1]

    looped, at_once = on_both(of, within, values, params)
    assert float(jnp.max(jnp.abs(looped[0]["energy"]))) > 0.1
    for one, other in zip(jax.tree.leaves(looped), jax.tree.leaves(at_once), strict=True):
        scale = 1 + float(jnp.max(jnp.abs(one)))
        np.testing.assert_allclose(other, one, rtol=0, atol=100 * ROUNDING * scale)


@pytest.mark.parametrize("pairs", [10**6, 5000])
@pytest.mark.slow
def test_sums_over_all_pairs_and_their_derivatives_are_those_of_the_loops(pairs, monkeypatch):
    """In one tile for a GPU, and in some with room that nothing fills."""
    monkeypatch.setattr(all_pairs, "PAIRS", pairs)
    cells, within, ids, values, params = in_box("2-D open")
    weights = jax.random.normal(jax.random.key(0), (3, *cells.shape))
    tile = 5
    assert ids.size % tile and (pairs >= ids.size**2 or ids.size % (pairs // ids.size))

    def of(within, floating, params):
        def loss(within, floating, params):
            found = all_pairs.AllPairs(cells, within, ids, tile).sum(well, (floating, values[1]), params)
            return sum(jnp.sum(jnp.sin(u) * w) for u, w in zip(jax.tree.leaves(found), weights, strict=True)), found

        arguments = within, floating, params
        gradient, found = jax.grad(loss, (0, 1, 2), has_aux=True)(*arguments)
        return found, gradient, jax.jvp(lambda *a: loss(*a)[0], arguments, jax.tree.map(jnp.cos, arguments))[1]

    looped, at_once = on_both(of, within, values[0], params)
    assert float(jnp.max(jnp.abs(looped[0]["energy"]))) > 0.1
    for one, other in zip(jax.tree.leaves(looped), jax.tree.leaves(at_once), strict=True):
        scale = 1 + float(jnp.max(jnp.abs(one)))
        np.testing.assert_allclose(other, one, rtol=0, atol=100 * ROUNDING * scale)


IN_BOXES = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "2-D open" else pytest.mark.slow) for n in BOXES]
)


@IN_BOXES
def test_lists_are_those_of_the_loops(name):
    """The same partners in the same order, row by row, of each particle."""
    cells, within, ids, *_ = in_box(name)
    looped, at_once = on_both(
        lambda within, ids: neighbours_within(cells, within, ids, CUTOFF + SKIN, ROWS, PARTICLES), within, ids
    )
    assert_same_lists(cells, looped, at_once)


def assert_same_lists(cells, looped, at_once):
    (looped, fault), (at_once, other_fault) = looped, at_once
    assert int(fault) == int(other_fault) == 0
    assert int(looped.longest) == int(at_once.longest) > 0
    columns = [np.asarray(neighbours.place).ravel() for neighbours in (looped, at_once)]
    there = columns[0] < looped.owner.size
    np.testing.assert_array_equal(there, columns[1] < at_once.owner.size)
    np.testing.assert_array_equal(np.asarray(at_once.owner)[columns[1][there]], np.flatnonzero(there))
    expected = np.asarray(by_cell(cells, looped.slot)).T[columns[0][there]]
    np.testing.assert_array_equal(np.asarray(at_once.slot)[columns[1][there]], expected)


@pytest.mark.parametrize("counts", [(1, 0, 0, 0), (33, 0, 5, 32)])
def test_lists_of_crowded_cells_are_those_of_the_loops(counts):
    """Of cells with as many particles as words have bits, and one more."""
    place = np.concatenate([k + 0.01 + 0.98 * np.linspace(0, 1, n) for k, n in enumerate(counts)])[None]
    cells, within, ids = stored(1.2 * place, (4.8,), 1.2, periodic=(True,), capacity=40)
    looped, at_once = on_both(lambda x, ids: neighbours_within(cells, x, ids, CUTOFF, 80), within, ids)
    if sum(counts) > 1:
        assert_same_lists(cells, looped, at_once)
    else:
        assert int(at_once[0].longest) == 0
        own = np.asarray(at_once[0].own)
        np.testing.assert_array_equal(at_once[0].slot, np.broadcast_to(own[:, None], at_once[0].slot.shape))


def test_lists_tell_what_does_not_fit():
    cells, within, ids, *_ = in_box("2-D open")
    count = int(jnp.sum(ids >= 0))
    with tracing_for("gpu"):
        make = compiled(
            lambda rows, columns: neighbours_within(cells, within, ids, CUTOFF + SKIN, rows, columns),
            static_argnums=(0, 1),
        )
        most = int(make(ROWS, count)[0].longest)
        faults = [int(make(*room)[1]) for room in ((most, count), (most - 1, count), (most, count - 1))]
    assert faults == [0, LIST_FULL, BLOCK_FULL]


@pytest.mark.slow
def test_a_list_leaves_out_what_it_is_told():
    cells, within, ids, values, params = in_box("2-D open")
    # Of the first particle of each of them, one that is a partner of none.
    partners = jnp.where(ids[None] == 0, jnp.min(jnp.where(ids == 1, own_slot(cells), 10**6)), own_slot(cells)[None])

    def of(within):
        neighbours, _ = neighbours_within(cells, within, ids, CUTOFF + SKIN, ROWS, PARTICLES)
        first, _ = neighbours_within(cells, within, ids, CUTOFF + SKIN, ROWS, PARTICLES)
        slots = partners.reshape(1, -1)[:, neighbours.owner]
        left = first.without(cells, slots)
        sums = [Pairs(cells, within, ids, CUTOFF + SKIN, n) for n in (neighbours, left, of_every_slot(cells, partners))]
        return [pairs.sum(lambda separation, *_: jnp.ones_like(separation[0])) for pairs in sums]

    looped, at_once = on_both(of, within)
    for one, other in zip(looped, at_once, strict=True):
        np.testing.assert_array_equal(one, other)
    counts = [int(jnp.sum(u)) for u in at_once]
    assert counts[0] - counts[1] == counts[2]


@IN_BOXES
def test_particles_move_to_the_same_slots(name):
    cells, within, ids, values, _ = in_box(name)
    push = 0.4 * jax.random.normal(jax.random.key(2), within.shape)
    image = jnp.zeros(within.shape, jnp.int32)
    looped, at_once = on_both(
        lambda within, values: rebin(cells, within + jnp.where(ids[None] >= 0, push, 0), image, ids, values),
        within,
        values,
    )
    for one, other in zip(jax.tree.leaves(looped), jax.tree.leaves(at_once), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_particles_are_found_by_id_in_the_same_slots():
    cells, within, ids, *_ = in_box("3-D thin")
    count = int(jnp.sum(ids >= 0))
    bonds = np.stack([np.arange(count - 1), np.arange(1, count)], axis=1)
    position = np.asarray(cells.absolute(within))[:, ids >= 0][:, np.argsort(ids[ids >= 0])]
    names = pack(cells, jnp.asarray(position), jnp.asarray(partners_of(count, bonds)))[2]
    looped, at_once = on_both(lambda within, names: slots_of(cells, within, ids, names), within, names)
    np.testing.assert_array_equal(looped[0], at_once[0])
    # Squares of distances, whose three terms are rounded and contracted in another order.
    np.testing.assert_allclose(looped[1], at_once[1], rtol=1e-13)
    assert int(jnp.sum(jnp.isfinite(at_once[1]))) > count / 4


# ------------------------------------------------------------------ one pass, and no loop


def operations(jaxpr):
    """Names of all operations of a traced program, with those within them."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jaxprs_in_params(equation.params):
            yield from operations(inner)


def traced(name, *, listed):
    """Operations of the making of a list, of sums with it, and of their derivative."""
    cells, within, ids, values, params = in_box("2-D open")

    def made(within):
        return neighbours_within(cells, within, ids, CUTOFF + SKIN, ROWS, PARTICLES)[0] if listed else None

    def sums(within, params, neighbours):
        return Pairs(cells, within, ids, CUTOFF, neighbours).sum(well, values, params)

    def derivative(within, params, neighbours):
        found, pull = jax.vjp(lambda within, params: sums(within, params, neighbours), within, params)
        return pull(found)

    with tracing_for(name):
        neighbours = jax.eval_shape(made, within)
        return [
            list(operations(jax.make_jaxpr(function)(*arguments).jaxpr))
            for function, arguments in (
                (made, (within,)),
                (sums, (within, params, neighbours)),
                (derivative, (within, params, neighbours)),
            )
        ]


@pytest.mark.parametrize("listed", [True, False], ids=["list", "cells"])
def test_a_gpu_runs_no_loop(listed):
    for names in traced("gpu", listed=listed):
        assert not {"scan", "while", "cond"} & set(names)
    # Energy and two components of a pull, each a sum over the candidates; nothing is scattered.
    _, sums, derivative = traced("gpu", listed=listed)
    assert sums.count("reduce_sum") == 3
    assert "scatter-add" not in sums
    looped = traced("cpu", listed=listed)
    assert all("scan" in names for names in looped[not listed :])


def test_each_sum_of_a_pass_has_an_expression_of_its_own():
    """XLA keeps apart only what it does not know to be equal; and more sums than get copies are summed as they are."""
    index = jnp.asarray(np.random.default_rng(0).integers(0, 2**31 - 1, (3, 5)), jnp.int32)

    def of(count):
        return lambda index: [jnp.sin(index.astype(jnp.float64)) + k for k in range(count)]

    for count, expressions in ((COPIES, COPIES), (COPIES + 1, 1)):
        found = summed(of(count), index)
        expected = [np.sum(np.sin(np.asarray(index, float)) + k, axis=1) for k in range(count)]
        # Roundings of five numbers as large as the count.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * COPIES)
        text = jax.jit(lambda index, count=count: summed(of(count), index)).lower(index).as_text()
        assert len({line.split("=")[1] for line in text.splitlines() if "stablehlo.convert" in line}) == expressions
