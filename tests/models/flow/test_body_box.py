"""The box around bodies: outside of it nothing knows of them, and a step in it is that of the whole block."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC

import simjax as sj
from simjax.core.boundary import Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.bodies import body_box
from simjax.models.flow.bodies.body_box import Box, all_of, box_around
from simjax.models.flow.bodies.solid_pressure import cells_beside, is_one_region
from simjax.solvers.capacitance import _altered

WALLS = (sj.NoSlipWall(), sj.NoSlipWall())


def disc(x, y, place=(0.41, 0.52), radius=0.15):
    return jnp.hypot(x - place[0], y - place[1]) - radius


def flow(distance, sides=(PERIODIC, WALLS), shape=(40, 36), solver="auto"):
    solid = sj.Solid(lambda t, *x: distance(*x))
    return sj.Incompressible(Domain(Grid(shape, upper=(1.0, 0.9))), list(sides), solid=solid, pressure_solver=solver)


def whole(model):
    """The distance of cells from the bodies of a model, and along which axes it is periodic."""
    domain = model.domain
    places = domain.coordinates((0.5, 0.5))
    distance = jnp.broadcast_to(model.solid.distance(0.0, *places), domain.grid.shape)
    return np.asarray(distance), [model.projection.layout.is_periodic(axis) for axis in (0, 1)]


def coefficients(model, box):
    """Coefficients at faces in a box, and the operator of the pressure."""
    layout, t = model.projection.layout, jnp.zeros(())
    return jax.jit(lambda: model.solid.immersion(model.domain, layout, t, t.dtype, lambda *_: None, box))()


def plate(x, y):
    """A plate thinner than a cell, between the centres of cells."""
    return jnp.maximum(jnp.abs(x - 0.5) - 0.2, jnp.abs(y - 0.45) - 0.003)


@pytest.mark.parametrize("margin", [0.0, 0.33, 0.77])
@pytest.mark.parametrize("body", [disc, plate])
def test_outside_of_the_box_coefficients_are_those_without_bodies(body, margin):
    model = flow(lambda x, y: body(x + margin / 40, y))
    box = model.around.box
    assert not box.whole
    inside = np.zeros(box.block, bool)
    # Without its rim, on which no source may lie.
    inside[tuple(slice(first + 1, last - 1) for first, last in zip(box.start, box.stop, strict=True))] = True
    found = coefficients(model, all_of(model.domain))
    for values in (*found.ghosts, *found.rate, *found.profile, *found.seeping, *found.faces.closed):
        assert not np.any(np.asarray(values)[~inside])
    for values in (*found.open, *found.projected):
        assert np.all(np.asarray(values)[~inside] == 1)
    assert np.all(np.asarray(found.active)[~inside])


def test_blocks_share_a_box_that_holds_what_each_has_of_bodies():
    distance, periodic = whole(flow(disc))
    alone, cut = Domain(Grid((40, 36))), Domain(Grid((40, 36)), (("x", 2), None))
    one, both = box_around(alone, distance, periodic), box_around(cut, distance, periodic)
    assert both.block == (20, 36) and (both.start[1], both.stop[1]) == (one.start[1], one.stop[1])
    # The disc lies across the cut at 20, so that one block has its end and the other its start.
    assert one.start[0] < 20 < one.stop[0]
    assert (both.start[0], both.stop[0]) == (0, 20)
    turned = box_around(alone, np.roll(distance, -16, 0), periodic)  # across the periodic side
    assert (turned.start[0], turned.stop[0]) == (0, 40)


@pytest.mark.parametrize("gpu", [False, True], ids=["stored", "fused"])
def test_parts_are_put_added_and_spread_as_in_the_whole_block(gpu, monkeypatch):
    monkeypatch.setattr(body_box, "stores_values", lambda: not gpu)
    box, rng = Box((2, 1), (5, 6), (7, 8)), np.random.default_rng(0)
    u, part = rng.standard_normal((7, 8)), rng.standard_normal((3, 5))
    where = (slice(2, 5), slice(1, 6))
    put, added, spread = u.copy(), u.copy(), np.zeros_like(u)
    put[where], spread[where] = part, part
    added[where] += part
    np.testing.assert_array_equal(box.put(jnp.asarray(u), jnp.asarray(part)), put)
    np.testing.assert_array_equal(box.added(jnp.asarray(u), jnp.asarray(part)), added)
    np.testing.assert_array_equal(box.spread(jnp.asarray(part)), spread)
    np.testing.assert_array_equal(box.cut(jnp.arange(7.0)[:, None]), np.arange(2.0, 5.0)[:, None])
    layouts = [center_layout([(Periodic(), Periodic()), (Neumann(), Neumann())])]
    domain = Domain(Grid((7, 8)))
    for own in (box, Box((0, 1), (5, 8), (7, 8))):  # with cells all around, and without
        wide = domain.pad(jnp.asarray(put), layouts[0], 1)
        expected = np.asarray(wide)[tuple(slice(a, b + 2) for a, b in zip(own.start, own.stop, strict=True))]
        (found,) = own.with_neighbours(domain, (jnp.asarray(put),), layouts)
        np.testing.assert_array_equal(found, expected)
    (found,) = box.changed_with_neighbours(domain, (jnp.asarray(u),), (jnp.asarray(part),), layouts)
    np.testing.assert_array_equal(found, put[1:6, 0:7])


@pytest.mark.slow
@pytest.mark.parametrize("turning", [False, True], ids=["at rest", "turning"])
def test_steps_in_the_box_are_those_of_the_whole_block(turning):
    """With conjugate gradients in the place of the direct solve too, beside walls and beside open sides."""
    ends = []
    outflow = ((sj.Inflow((1.0, 0.0)), sj.Outflow()), WALLS)
    for sides in ((PERIODIC, WALLS), outflow):
        for kind in ("box", "block", "multigrid"):
            given = (lambda t, x, y: 0.52 - y, lambda t, x, y: x - 0.41) if turning else None
            solid = sj.Solid(lambda t, x, y: disc(x, y), velocity=given)
            solver = "multigrid" if kind == "multigrid" else "auto"
            domain = Domain(Grid((40, 36), upper=(1.0, 0.9)))
            model = sj.Incompressible(domain, list(sides), solid=solid, pressure_solver=solver)
            if kind == "block":
                object.__setattr__(model.around, "box", all_of(domain))
            assert model.around.direct == (kind != "multigrid") and model.around.box.whole == (kind == "block")
            params = model.Params(jnp.asarray(0.01), jnp.asarray(0.3))
            start = model.state_from({"velocity": (jnp.ones(domain.grid.shape), jnp.zeros(domain.grid.shape))}, params)
            scheme, dt = INTEGRATORS["kutta3"], jnp.asarray(4e-3)

            def run(model=model, params=params, start=start, scheme=scheme, dt=dt):
                parts = scheme.prepare(model, params, dt)
                end = jax.lax.fori_loop(0, 3, lambda k, s: scheme.step(model, k * dt, dt, s, params, parts), start)
                return end.velocity, model.pressure(0.0, end, params), model.diagnostics(0.0, end, params)

            ends.append(jax.jit(run)())
    for first, *others in (ends[:3], ends[3:]):
        # Three steps of rounding in velocities of one and, over a step of 4e-3, in pressures and forces. Residuals of
        # conjugate gradients are a hundred roundings of the pressure's, times h^-2 over the least eigenvalue.
        for other, error in zip(others, (3e-11, 1e-9), strict=True):
            for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True):
                np.testing.assert_allclose(a, b, rtol=0, atol=error * max(1.0, float(jnp.max(jnp.abs(a)))))


def test_one_region_is_told_from_several():
    def known(distance, sides=(PERIODIC, WALLS)):
        return is_one_region(*whole(flow(distance, sides)))

    ring = lambda x, y: jnp.abs(disc(x, y, radius=0.25)) - 0.06  # noqa: E731
    assert known(disc) and not known(ring)
    dam = lambda x, y: jnp.abs(x - 0.5) - 0.1 + 0 * y  # noqa: E731
    assert known(dam)  # around the periodic side
    assert not known(dam, (WALLS, WALLS))
    # A gap of less than a tenth of a cell is not open for certain.
    assert not known(lambda x, y: jnp.maximum(dam(x, y), y - 0.9 + 0.0125 + 0.001), (WALLS, WALLS))


@pytest.mark.parametrize("place", [(0.5, 0.47), (0.41, 0.52), (0.3, 0.13)])
def test_cells_beside_a_small_disc_are_counted(place):
    """Curvature takes off more of a distance there than a share of a cell that does not know of it."""
    model = flow(lambda x, y: disc(x, y, place, 0.1), shape=(24, 32))
    found = coefficients(model, all_of(model.domain))
    altered = int(jnp.sum(_altered(found.operator, model.projection.layout) & found.active))
    assert altered <= cells_beside(*whole(model)) <= altered + 4


@pytest.mark.slow
def test_nothing_is_iterated_around_a_body_in_one_region():
    model, t = flow(disc), jnp.zeros(())
    params = model.Params(jnp.asarray(0.01), jnp.asarray(0.0))
    state = model.state_from({"velocity": (jnp.ones(model.domain.grid.shape),) * 2}, params)
    for one, iterates in ((model, False), (flow(disc, solver="multigrid"), True)):

        def stage(parts, t, one=one):
            return one.with_parts(parts).constrain(t, t + 1e-2, state, params).velocity

        parts = jax.jit(lambda one=one: one.constant_parts(params))()
        assert ("while[" in str(jax.make_jaxpr(stage)(parts, t))) == iterates
