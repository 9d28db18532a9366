"""Conjugate gradients: finite termination, tolerances, many systems at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.parallel import decompose, distribute, make_mesh
from simjax.solvers.krylov import conjugate_gradient

GRID = Grid((16,))
DIAGONAL = jnp.asarray(1.0 + np.arange(16) % 4)


def solve(domain, diagonal, right, tolerance=1e-12, limit=20, **options):
    return conjugate_gradient(lambda x: diagonal * x, right, domain=domain, tolerance=tolerance, limit=limit, **options)


def noise(*shape):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape))


def test_as_many_iterations_as_distinct_eigenvalues():
    right = noise(16)
    found = jax.jit(lambda b: solve(Domain(GRID), DIAGONAL, b))(right)
    assert int(found.iterations) == 4
    np.testing.assert_allclose(found.solution, right / DIAGONAL, rtol=1e-12)
    assert float(found.residual) < 1e-12


def test_the_exact_inverse_takes_one_iteration():
    found = solve(Domain(GRID), DIAGONAL, noise(16), precondition=lambda r: r / DIAGONAL)
    assert int(found.iterations) == 1


def test_the_tolerance_is_that_of_the_residual():
    diagonal, right = jnp.asarray(np.geomspace(1, 1e3, 16)), noise(16)
    for tolerance in (1e-2, 1e-5):
        found = solve(Domain(GRID), diagonal, right, tolerance, limit=40)
        left = float(jnp.linalg.norm(right - diagonal * found.solution) / jnp.linalg.norm(right))
        assert left <= tolerance and left == pytest.approx(float(found.residual), rel=1e-6)


def test_nothing_on_the_right_gives_nothing():
    found = solve(Domain(GRID), DIAGONAL, jnp.zeros(16))
    assert int(found.iterations) == 0 and not np.any(found.solution) and float(found.residual) == 0


def test_too_few_iterations_and_broken_numbers_are_not_a_solution():
    assert np.all(np.isnan(solve(Domain(GRID), DIAGONAL, noise(16), limit=2).solution))
    broken = solve(Domain(GRID), DIAGONAL, noise(16).at[3].set(jnp.nan))
    assert np.all(np.isnan(broken.solution)) and int(broken.iterations) <= 1


@pytest.mark.parametrize("sizes", [{"ensemble": 2, "x": 4}, {"ensemble": 4, "x": 2}], ids=str)
@pytest.mark.slow
def test_an_ensemble_that_is_cut_iterates_together_and_each_member_as_if_alone(sizes):
    """Members that need one to five iterations, on devices that would otherwise leave the loop at different times."""
    kinds = np.asarray([1, 2, 4, 5, 3, 1, 2, 4])
    diagonals = jnp.asarray(1.0 + np.arange(16)[None, :] % kinds[:, None])
    right = noise(8, 16)
    mesh = make_mesh(sizes)
    domain = decompose(GRID, mesh)
    spec = PartitionSpec("ensemble", "x")
    run = distribute(
        jax.vmap(lambda d, b: solve(domain, d, b)[:2]),
        mesh,
        in_specs=(spec, spec),
        out_specs=(spec, PartitionSpec("ensemble")),
    )
    x, iterations = run(diagonals, right)
    np.testing.assert_array_equal(iterations, kinds)
    one = jax.jit(lambda d, b: solve(Domain(GRID), d, b).solution)
    alone = [one(d, b) for d, b in zip(diagonals, right, strict=True)]
    # Sums over devices are in another order.
    np.testing.assert_allclose(x, jnp.stack(alone), rtol=1e-11)
