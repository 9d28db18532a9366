"""Transforms of unknowns: inverses, the filter's variance and symmetry, mirrors, decomposition, refusals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import check_decompositions, random
from refusals import refusals

from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.inverse.methods.latent_transforms import Bounded, Positive, Scaled, Smooth, Symmetric, chain
from simjax.parallel import decompose, distribute, make_mesh

GRID = Grid((8, 12), (0.0, -1.0), (2.0, 2.0))
ALONE = Domain(GRID)
POINTWISE = {
    "positive": Positive(),
    "bounded": Bounded(-1.0, 3.0),
    "scaled": Scaled(-2.5, 0.3),
    "chain": chain([Scaled(0.4, -1.0), Positive(), Bounded(0.2, 0.9)]),
    "nothing": chain([]),
}


def test_reflection_turns_an_axis_around_on_every_mesh():
    field = random((3, *GRID.shape))
    for sizes, axis in itertools.product(({}, {"x": 2, "y": 4}, {"x": 8}, {"y": 3}), (0, 1)):
        mesh = make_mesh(sizes)
        domain = decompose(GRID, mesh)
        turn = distribute(
            lambda u, d=domain, a=axis: d.reflect(u, a), mesh, in_specs=domain.spec(3), out_specs=domain.spec(3)
        )
        np.testing.assert_array_equal(turn(field), np.flip(field, axis + 1))


@pytest.mark.parametrize("name", POINTWISE)
def test_the_latent_value_of_a_guess_stands_for_the_guess(name):
    transform, latent = POINTWISE[name], random((5,))
    physical = transform.physical(latent, ALONE)
    assert physical.dtype == latent.dtype and physical.shape == latent.shape
    # Logarithms and exponentials of numbers of order one.
    np.testing.assert_allclose(transform.latent(physical, ALONE), latent, rtol=0, atol=1e-13)
    np.testing.assert_allclose(transform.physical(transform.latent(physical, ALONE), ALONE), physical, rtol=1e-14)


def test_bounds_hold_far_out_and_slopes_stay_finite():
    far = jnp.asarray([-1e4, -40.0, 0.0, 40.0, 1e4])
    value, slope = jax.vmap(jax.value_and_grad(lambda x: Bounded(-1.0, 3.0).physical(x, ALONE)))(far)
    np.testing.assert_allclose(value, [-1.0, -1.0, 1.0, 3.0, 3.0], rtol=1e-15)
    np.testing.assert_allclose(slope, [0.0, 0.0, 1.0, 0.0, 0.0], rtol=0, atol=1e-15)


def test_a_chain_is_applied_in_order():
    assert float(chain([Scaled(2.0), Positive()]).physical(jnp.asarray(1.0), ALONE)) == pytest.approx(np.exp(2.0))
    assert float(chain([Positive(), Scaled(2.0)]).physical(jnp.asarray(1.0), ALONE)) == pytest.approx(2 * np.e)


@pytest.mark.parametrize("length", [0.1, 0.43, 1.0])
def test_an_impulse_is_spread_to_the_variance_asked_for(length):
    """In every direction, also where spacings differ, and to a Gaussian where the passes are many."""
    grid = Grid((80, 60), (-8.0, -8.0), (8.0, 8.0))
    impulse = jnp.zeros(grid.shape).at[40, 30].set(1.0)
    found = np.asarray(jax.jit(lambda u: Smooth(length, (True, False)).physical(u, Domain(grid)))(impulse))
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-13)
    x = [grid.coordinates(axis, 0.5) for axis in range(2)]
    for axis, sums in enumerate((found.sum(axis=1), found.sum(axis=0))):
        mean = sums @ x[axis]
        np.testing.assert_allclose(sums @ (x[axis] - mean) ** 2, length**2, rtol=1e-12)
    if length == 1.0:
        distance = (x[0] - x[0][40])[:, None] ** 2 + (x[1] - x[1][30])[None, :] ** 2
        gaussian = np.exp(-0.5 * distance) / (2 * np.pi) * grid.cell_volume
        # The excess kurtosis of p passes is -1 / p, an eighth of which the peak is off: (h / length)^2 / 16 per axis.
        np.testing.assert_allclose(found, gaussian, rtol=0, atol=0.01 * gaussian.max())


@pytest.mark.parametrize("periodic", [(True, False), (False, True)])
def test_the_filter_is_symmetric_and_keeps_constants_and_sums(periodic):
    """<S u, v> = <u, S v>: the filter of a gradient is the gradient of the filter."""
    smooth = jax.jit(lambda u: Smooth(0.5, periodic).physical(u, ALONE))
    u, v = random(GRID.shape), random(GRID.shape, 1)
    # A few roundings per pass, 16 passes.
    np.testing.assert_allclose(jnp.vdot(smooth(u), v), jnp.vdot(u, smooth(v)), rtol=0, atol=1e-13)
    np.testing.assert_allclose(smooth(u).sum(), u.sum(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(smooth(jnp.full(GRID.shape, 1.7)), 1.7, rtol=1e-14)


def test_a_smooth_field_has_zero_slope_at_walls_and_wraps_elsewhere():
    """The first eigenvector of the stencil between walls and on a circle, damped by exp(-(k length)^2 / 2)."""
    grid, length = Grid((64,)), 0.1
    x = jnp.asarray(grid.coordinates(0, 0.5))
    for wave, k, periodic in ((jnp.cos(jnp.pi * x), np.pi, False), (jnp.sin(2 * jnp.pi * x), 2 * np.pi, True)):
        found = jax.jit(lambda u, p=periodic: Smooth(length, (p,)).physical(u, Domain(grid)))(wave)
        # The binomial's symbol cos(k h / 2)^2 is that of a Gaussian to (k h)^4 / 96 per pass, 81 of them.
        np.testing.assert_allclose(found, wave * np.exp(-0.5 * (k * length) ** 2), rtol=0, atol=2e-4)


@pytest.mark.parametrize("sign", [1, -1])
def test_symmetric_fields_are_their_own_mirror(sign):
    for axis in (0, 1):
        transform, u = Symmetric(axis, sign), random(GRID.shape)
        once = transform.physical(u, ALONE)
        np.testing.assert_array_equal(once, sign * np.flip(once, axis))
        np.testing.assert_array_equal(transform.physical(once, ALONE), once)
        np.testing.assert_array_equal(transform.physical(transform.latent(once, ALONE), ALONE), once)


FIELDS = {
    "smooth": Smooth(0.3, (True, False)),
    "even": Symmetric(0),
    "odd": Symmetric(1, -1),
    "chain": chain([Smooth(0.3, (False, True)), Symmetric(1), Scaled(0.5), Positive()]),
}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.slow
def test_neither_values_nor_derivatives_depend_on_the_decomposition(name):
    transform = FIELDS[name]
    check_decompositions(
        lambda domain, u: transform.physical(u, domain),
        GRID,
        [{"x": 2, "y": 4}],
        (random(GRID.shape),),
        (True,),
        lambda domain: domain.spec(),
    )


def test_transforms_map_over_members_and_keep_single_precision():
    members = random((3, *GRID.shape)).astype(jnp.float32)
    transform = FIELDS["chain"]
    found = jax.jit(jax.vmap(lambda u: transform.physical(u, ALONE)))(members)
    assert found.dtype == np.float32
    for u, one in zip(members, found, strict=True):
        np.testing.assert_allclose(one, jax.jit(lambda v: transform.physical(v, ALONE))(u), rtol=1e-5)


REFUSALS = {
    "bounds": (
        lambda: Bounded(2.0, 1.0),
        "Bounded.lower=2 must be below Bounded.upper=1, both finite; exchange them or write Positive.",
    ),
    "guess out of bounds": (
        lambda: Bounded(0.0, 1.0).latent(jnp.asarray([0.5, 1.0]), ALONE),
        "A guess of a Bounded unknown must lie between 0 and 1, got 1; write 0.5 or widen the bounds.",
    ),
    "guess not positive": (
        lambda: chain([Scaled(2.0), Positive()]).latent(jnp.asarray(-3.0), ALONE),
        "A guess of a Positive unknown must be positive and finite, got -3; write a positive number or another "
        "transform.",
    ),
    "scale": (
        lambda: Scaled(0.0),
        "Scaled.scale=0 and Scaled.shift=0 must be finite and the scale not zero; write the size of a usual change as "
        "the scale.",
    ),
    "length": (
        lambda: Smooth(-0.1, (True,)),
        "Smooth.length must be positive and finite, got -0.1; write a distance in units of the domain.",
    ),
    "sides": (
        lambda: Smooth(0.1, (True,)).physical(jnp.zeros(GRID.shape), ALONE),
        "Smooth.periodic=(True,) has 1 entries for a grid of 2 axes; write one True or False per axis.",
    ),
    "no field": (
        lambda: Smooth(0.1, (True, True)).physical(jnp.asarray(1.0), ALONE),
        "Smooth is a transform of fields, here of blocks of (8, 12) cells; got an unknown of shape (), for which "
        "leave it out.",
    ),
    "axis": (lambda: Symmetric(3), "Symmetric.axis=3: expected the number of an axis; write 0, 1 or 2."),
    "axis beyond the grid": (
        lambda: Symmetric(2).physical(jnp.zeros(GRID.shape), ALONE),
        "Symmetric.axis=2 is not an axis of a grid of 2; write a number below 2.",
    ),
    "sign": (lambda: Symmetric(0, 0), "Symmetric.sign=0: expected a sign; write 1 (even) or -1 (odd)."),
}


test_refusals_say_what_came_and_what_to_write = refusals(REFUSALS)
