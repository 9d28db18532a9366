"""Sums over neighbours in the geometry of bodies, and how they are transposed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.grid import Grid
from simjax.models.flow.bodies.solid_geometry import between, neighbour_sum, pairs_of, peeled, steps_of, straightened

SUMS = {
    "pairs": lambda u: pairs_of(u, 1),
    "steps": lambda u: steps_of(u, 0),
    "steps over a cell": lambda u: steps_of(u, 1, 2),
    "neighbours": lambda u: neighbour_sum(u, u.ndim),
    "between": lambda u: between(u, 0, 0.5),
}


def random(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def test_sums_are_those_of_the_cells_that_they_name():
    u = random((5, 6))
    np.testing.assert_array_equal(pairs_of(u, 1), u[:, :-1] + u[:, 1:])
    np.testing.assert_array_equal(steps_of(u, 0), u[1:] - u[:-1])
    np.testing.assert_array_equal(steps_of(u, 1, 2), u[:, 2:] - u[:, :-2])
    np.testing.assert_array_equal(neighbour_sum(u, 2), u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    np.testing.assert_array_equal(peeled(u, (0, 1, 1)), u[1:-1, 2:-2])


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("shape", [(5, 6), (4, 5, 3)])
def test_transposes_are_transposes(name, shape):
    function = SUMS[name]
    u = random(shape)
    ahead, back = jax.vjp(function, u)
    v = random(ahead.shape, 1)
    # Rounding of sums of a hundred products of order one.
    assert float(jnp.vdot(ahead, v)) == pytest.approx(float(jnp.vdot(u, back(v)[0])), abs=1e-13)
    # Linear: forward mode is the function, and so are the members of a batch.
    np.testing.assert_array_equal(jax.jvp(function, (u,), (u,))[1], ahead)
    np.testing.assert_array_equal(jax.vmap(function)(jnp.stack([u, 2 * u]))[1], 2 * ahead)


def test_reverse_mode_pads_once_for_a_sum_over_neighbours():
    """XLA on a CPU makes a loop of each array that is surrounded by zeros."""

    def padded(function, shape):
        def loss(u):
            return jnp.sum(jnp.sin(function(u)))

        text = jax.jit(jax.grad(loss)).lower(jnp.zeros(shape)).as_text()
        return text.count("stablehlo.pad")

    assert padded(lambda u: neighbour_sum(u, 2), (6, 6)) == 1
    assert padded(lambda u: pairs_of(u, 0), (6, 6)) == 1


def test_straightening_leaves_a_plane_and_takes_its_curvature_off():
    grid = Grid((8, 8))
    x, y = np.meshgrid(*(np.arange(n) + 0.5 for n in grid.shape), indexing="ij")
    plane = jnp.asarray(0.3 * x - 0.8 * y + 1.0)
    # Differences of numbers up to seven.
    np.testing.assert_allclose(straightened(plane, (0.5, 0.5), (0.5, 0.5)), plane[1:-1, 1:-1], atol=1e-14)
    bowl = plane + 0.01 * x**2
    np.testing.assert_allclose(
        straightened(bowl, (0.5, 0.5), (0.5, 0.5)), bowl[1:-1, 1:-1] - 0.5 * 0.005, rtol=0, atol=1e-14
    )
