"""The direct Poisson solve: exact for the discrete operator, the same on every mesh, differentiable by another."""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from jax.sharding import PartitionSpec

from simjax.core.boundary import Dirichlet, Extrapolated, Neumann, Periodic, center_layout, face_layout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.ops.difference import laplacian
from simjax.parallel import decompose, distribute, make_mesh
from simjax.solvers.lines import EVEN, ODD, PERIODIC, solve_lines
from simjax.solvers.poisson import solve_poisson

KINDS = {"periodic": Periodic, "neumann": Neumann, "dirichlet": Dirichlet}
# Sizes differ from axis to axis; the planes and boxes that are cut are divisible by every mesh below.
GRIDS = {
    1: Grid((12,), (0.0,), (1.3,)),
    2: Grid((6, 9), (0.0, -1.0), (2.0, 1.3)),
    3: Grid((4, 5, 3), (0.0, -1.0, 0.2), (2.0, 1.3, 0.9)),
}
PLANE, BOX = Grid((16, 24), (0.0, -1.0), (2.0, 1.3)), Grid((8, 12, 4), (0.0, -1.0, 0.2), (2.0, 1.3, 0.9))
MESHES = {
    "2x4": (PLANE, {"x": 2, "y": 4}),
    "8x1": (PLANE, {"x": 8}),
    "1x8": (PLANE, {"y": 8}),
    "2x2x2": (BOX, {"x": 2, "y": 2, "z": 2}),
    "1x1x2": (BOX, {"z": 2}),
    # Four blocks of y do not fit on six cells of x: half of the waves along z take over blocks twice.
    "2x4x1": (Grid((6, 8, 16), (0.0, -1.0, 0.2), (2.0, 1.3, 0.9)), {"x": 2, "y": 4}),
    "3x1": (Grid((9, 15), (0.0, -1.0), (2.0, 1.3)), {"x": 3}),
}
# Every pair; of triples, every choice once, in an order that puts each kind on each axis.
COMBINATIONS = [kinds for ndim in (1, 2) for kinds in itertools.product(KINDS, repeat=ndim)] + [
    kinds[turn % 3 :] + kinds[: turn % 3]
    for turn, kinds in enumerate(itertools.combinations_with_replacement(KINDS, 3))
]
MIXED = {"open above": (Neumann, Dirichlet), "open below": (Dirichlet, Neumann)}
COMBINATIONS += [
    ("open above",),
    ("open below", "periodic"),
    ("neumann", "open above"),
    ("open below", "open above", "dirichlet"),
]
DECOMPOSED = [
    ("2x4", ("periodic", "periodic")),
    ("2x4", ("neumann", "dirichlet")),
    ("2x4", ("open above", "neumann")),
    ("2x4", ("neumann", "periodic")),
    ("8x1", ("dirichlet", "periodic")),
    ("1x8", ("periodic", "neumann")),
    ("2x2x2", ("periodic", "neumann", "dirichlet")),
    ("2x2x2", ("neumann", "neumann", "neumann")),
    ("2x2x2", ("periodic", "periodic", "periodic")),
    ("1x1x2", ("periodic", "periodic", "periodic")),
    ("1x1x2", ("periodic", "neumann", "periodic")),
    ("2x4x1", ("periodic", "periodic", "periodic")),
    ("3x1", ("periodic", "periodic")),
]


def layout_of(kinds):
    pairs = (MIXED.get(kind) or (KINDS[kind],) * 2 for kind in kinds)
    return center_layout([(lower(), upper()) for lower, upper in pairs])


def is_singular(kinds):
    return not {"dirichlet", *MIXED} & {*kinds}


def source_on(grid, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=grid.shape))


@functools.cache
def solver(grid, kinds, mesh=None, method="auto"):
    """The compiled solve on whole arrays, on one device or on a mesh given as its items."""
    devices = make_mesh(dict(mesh)) if mesh else None
    domain = decompose(grid, devices)

    def solve(source):
        return solve_poisson(domain, layout_of(kinds), source, method)

    return distribute(solve, devices, in_specs=domain.spec(), out_specs=domain.spec())


@pytest.mark.parametrize("kinds", COMBINATIONS, ids="-".join)
@pytest.mark.slow
def test_residual_is_rounding(kinds):
    grid = GRIDS[len(kinds)]
    source = source_on(grid)
    phi = solver(grid, kinds)(source)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def applied(phi):
        return Domain(grid).apply(lambda p: laplacian(p, grid.spacing), phi, layout_of(kinds), width=1)

    residual = applied(phi) - source
    if is_singular(kinds):
        # Solvable only without the mean: the solve ignores it, and takes the solution of mean zero.
        residual = residual + source.mean()
        assert abs(phi.mean()) < 1e-15 * jnp.abs(phi).max() * grid.cells
    # Of an operator of norm sum(4 / h^2), each value of phi carries a few roundings.
    scale = sum(4 / h**2 for h in grid.spacing) * float(jnp.abs(phi).max())
    np.testing.assert_allclose(residual, 0, atol=20 * np.finfo(float).eps * scale)


@pytest.mark.parametrize("kinds", [("periodic", "neumann"), ("neumann", "neumann")], ids="-".join)
def test_the_mean_of_a_singular_source_changes_nothing(kinds):
    grid = GRIDS[2]
    source = source_on(grid)
    solve = solver(grid, kinds)
    # Rounding of the shifted source, amplified by the longest wave's inverse eigenvalue, below one here.
    np.testing.assert_allclose(solve(source + 3.0), solve(source), rtol=0, atol=1e-14)


@pytest.mark.parametrize(("mesh", "kinds"), DECOMPOSED)
def test_decomposed_equals_undecomposed(mesh, kinds):
    grid, sizes = MESHES[mesh]
    source = source_on(grid)
    alone, cut = solver(grid, kinds)(source), solver(grid, kinds, tuple(sizes.items()))(source)
    # One device transforms periodic axes together, a mesh one by one: sums are ordered otherwise, over 16 x 24 waves.
    np.testing.assert_allclose(cut, alone, rtol=0, atol=1e-14 * float(jnp.abs(alone).max()) * 10)


def waves(solve):
    """A nonlinear loss whose gradient differs from cell to cell."""
    return lambda source: jnp.sum(source_on(source, 2) * jnp.sin(20 * solve(source)))


@pytest.mark.parametrize("kinds", [("neumann", "dirichlet"), ("periodic", "neumann")], ids="-".join)
def test_gradient_matches_finite_differences(kinds):
    grid = GRIDS[2]
    loss = jax.jit(waves(solver(grid, kinds)))
    source, direction = source_on(grid), source_on(grid, 1)
    gradient = jax.jit(jax.grad(loss))(source)
    e = 1e-3
    near, far = ((loss(source + k * e * direction) - loss(source - k * e * direction)) / (2 * k * e) for k in (1, 2))
    # Fourth-order differences: e^4 = 1e-12 of truncation beside eps / e = 2e-13 of rounding, in units of the loss.
    scale = float(jnp.linalg.norm(gradient) * jnp.linalg.norm(direction))
    np.testing.assert_allclose(jnp.vdot(gradient, direction), (4 * near - far) / 3, rtol=0, atol=1e-11 * scale)


@pytest.mark.parametrize(("mesh", "kinds"), DECOMPOSED)
@pytest.mark.slow
def test_gradients_are_equal_on_every_mesh(mesh, kinds):
    grid, sizes = MESHES[mesh]
    source = source_on(grid)
    alone, cut = (
        jax.jit(jax.grad(waves(solver(grid, kinds, mesh))), compiler_options=QUICK)(source)
        for mesh in (None, tuple(sizes.items()))
    )
    np.testing.assert_allclose(cut, alone, rtol=0, atol=1e-13 * float(jnp.abs(alone).max()))


@pytest.mark.parametrize(("mesh", "kinds"), DECOMPOSED)
@pytest.mark.slow
def test_two_all_to_alls_per_cut_axis(mesh, kinds):
    grid, sizes = MESHES[mesh]
    program = solver(grid, kinds, tuple(sizes.items())).lower(source_on(grid)).compile().as_text()
    calls = re.findall(r" (all-to-all|all-gather|all-reduce|collective-permute)(?:-start)?\(", program)
    # One there and one back; nothing else talks, least of all a gather of the field.
    assert calls == ["all-to-all"] * 2 * len(sizes)


@pytest.mark.parametrize("ends", [PERIODIC, EVEN, ODD])
def test_lines_that_are_cut_into_blocks_are_solved(ends):
    """Of four blocks, whose waves are complex numbers, against the matrices of the second difference."""
    n, h, eigenvalues = 8, 0.3, np.array([-0.1, -2.0, -50.0])
    right = np.random.default_rng(0).normal(size=(3, n))
    matrix = -2 * np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)
    matrix[0, n - 1 if ends == PERIODIC else 0] += -1 if ends == ODD else 1
    matrix[n - 1, 0 if ends == PERIODIC else n - 1] += -1 if ends == ODD else 1

    def solve(right, eigenvalues):
        return solve_lines(right, eigenvalues, ("x",), axis=-1, spacing=h, ends=ends)

    cut = PartitionSpec(None, "x")
    found = distribute(solve, make_mesh({"x": 4}), in_specs=(cut, PartitionSpec()), out_specs=cut)(
        jnp.asarray(right), jnp.asarray(eigenvalues[:, None])
    )
    lines = zip(eigenvalues, right, strict=True)
    expected = [np.linalg.solve(matrix / h**2 + value * np.eye(n), line) for value, line in lines]
    # Rounding times the condition of the matrices, at most 44 / 0.1.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_leading_axes_are_independent_problems():
    grid, kinds = GRIDS[2], ("periodic", "dirichlet")
    sources = jnp.stack([source_on(grid, k) for k in range(3)])
    together = jax.vmap(solver(grid, kinds))(sources)
    leading = jax.jit(lambda s: solve_poisson(Domain(grid), layout_of(kinds), s))(sources)
    for k in range(3):
        one = solver(grid, kinds)(sources[k])
        # Batched products may be summed in another order.
        np.testing.assert_allclose(together[k], one, rtol=0, atol=1e-14)
        np.testing.assert_allclose(leading[k], one, rtol=0, atol=1e-14)


def test_sides_that_are_no_mirror_are_refused():
    layout = center_layout([(Periodic(), Periodic()), (Neumann(), Extrapolated())])
    with pytest.raises(ConfigurationError, match="takes periodic, Neumann and Dirichlet sides; got Neumann and Extrap"):
        solve_poisson(Domain(GRIDS[2]), layout, source_on(GRIDS[2]))


def test_staggered_fields_are_refused():
    grid = GRIDS[2]
    layout = face_layout(1, [(Periodic(), Periodic())] * 2)
    with pytest.raises(ConfigurationError, match=r"cell-centred fields; got offset \(0.5, 0.0\)"):
        solve_poisson(Domain(grid), layout, source_on(grid))


@pytest.mark.parametrize(
    ("grid", "sizes", "sentence"),
    [
        (Grid((16,)), {"x": 2}, "one-dimensional solve cannot be decomposed .* set mesh.x=1"),
        (
            Grid((6, 10)),
            {"x": 3, "y": 2},
            "cannot hand the . blocks of . to another axis .* sizes divisible by 6",
        ),
    ],
)
def test_meshes_that_no_transposition_fits_are_refused(grid, sizes, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        kinds = ("periodic",) * grid.ndim
        solver(grid, kinds, tuple(sizes.items()))(source_on(grid))
