"""The implicit diffusion solve: few iterations at any size, the same on every mesh, implicit derivatives."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from jax.sharding import PartitionSpec

from simjax.core.boundary import Dirichlet, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.ops.scalar_fluxes import face_diffusivity
from simjax.parallel import decompose, distribute, make_mesh
from simjax.solvers.elliptic import elliptic
from simjax.solvers.multigrid import Gathering, multigrid, solve_elliptic

WALLS = {"p": Periodic(), "d": Dirichlet(), "n": Neumann()}
MIXED = ("dn", "nd", "pp")
MOST_ITERATIONS = 15


def walls(*kinds):
    """A layout from two letters per axis: its lower and its upper side."""
    return center_layout([tuple(WALLS[kind] for kind in pair) for pair in kinds])


def operator_of(domain, layout, kappa):
    """A from diffusivities at the cell centres of this block."""
    ndim = domain.grid.ndim
    edges = [
        pair if layout.is_periodic(axis) else (Neumann(), Neumann()) for axis, pair in enumerate(layout.boundaries)
    ]
    padded = domain.pad(kappa, center_layout(edges), 1)
    return elliptic(domain, layout, [face_diffusivity(padded, axis, ndim) for axis in range(ndim)])


def fraction(grid):
    """Cell centres in units of the box, per axis."""
    x = np.meshgrid(*(grid.coordinates(axis, 0.5) for axis in range(grid.ndim)), indexing="ij")
    return [(v - a) / length for v, a, length in zip(x, grid.lower, grid.lengths, strict=True)]


def uniform(x):
    return np.ones_like(x[0])


def smooth(x):
    """Contrast 1000."""
    return np.exp(0.5 * np.log(1e3) * np.prod([np.sin(4 * np.pi * v + k) for k, v in enumerate(x)], axis=0))


def gentle(x):
    """Contrast 10, along one axis and across."""
    return np.exp(0.5 * np.log(10) * np.prod([np.sin(2 * np.pi * v + k) for k, v in enumerate(x)], axis=0))


def layers(x):
    """A slanted interface with a jump by 1000, along no line of cells."""
    return np.where(x[-1] + 0.3 * x[0] > 0.53, 1e3, 1.0)


def inclusion(x, inside=1e6):
    return np.where(sum((v - 0.45) ** 2 for v in x) < 0.07, inside, 1.0)


def obstacle(x):
    """A body that nothing enters."""
    return inclusion(x, 0.0)


def chessboard(x):
    """Squares that touch at corners with a jump by 1000."""
    return np.where(sum(np.floor(5 * v) for v in x) % 2 == 0, 1e3, 1.0)


def rough(x):
    """White noise from cell to cell: nine tenths within a factor of 27 of one, up or down."""
    return np.exp(2 * np.asarray(noise(x[0].shape, 2)))


def noise(shape, seed=1):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


@functools.cache
def solver(grid, layout_of, shift, tolerance=1e-8):
    """(kappa, right) -> solution, compiled."""
    layout, domain = walls(*layout_of), Domain(grid)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def run(kappa, right):
        operator = operator_of(domain, layout, kappa)
        return solve_elliptic(operator, multigrid(operator), right, shift, tolerance=tolerance)

    return run


def residual(grid, layout_of, kappa, shift, x, right):
    """|right - A x| / |right|, and how far rounding alone may carry it: eps |diagonal x| / |right|."""

    @functools.partial(jax.jit, compiler_options=QUICK)
    def norms(kappa, x, right):
        operator = operator_of(Domain(grid), walls(*layout_of), kappa)
        return [jnp.linalg.norm(u) for u in (right - operator(x, shift), operator.diagonal(shift) * x, right)]

    left, size, scale = map(float, norms(jnp.asarray(kappa), x, right))
    return left / scale, np.finfo(float).eps * size / scale


FEW = [(shape, smooth) for shape in ((33, 47), (90,))] + [
    (shape, diffusivity) for shape in ((64, 64),) for diffusivity in (uniform, layers, inclusion)
]
SIZES = ((13, 22, 31), (97, 61), (128, 128), (512, 512), (32, 32, 32))
MANY = [
    (shape, smooth)
    for shape in (
        (64, 64),
        (13, 22, 31),
        (128, 128),
        (256, 256),
        (16, 16, 16),
        (32, 32, 32),
        (64, 64, 64),
        (97, 61),
    )
] + [
    (shape, diffusivity)
    for shape in (
        (33, 47),
        (97, 61),
        (128, 128),
        (256, 256),
        (512, 512),
        (1024, 256),
        (16, 16, 16),
        (32, 32, 32),
        (64, 64, 64),
        (96, 96, 96),
    )
    for diffusivity in (uniform, layers, inclusion)
]


@pytest.mark.parametrize(
    ("shape", "diffusivity"),
    [*FEW, *(pytest.param(*case, marks=pytest.mark.slow if case[0] in SIZES else pytest.mark.long) for case in MANY)],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
@pytest.mark.slow
def test_few_iterations_at_any_size(shape, diffusivity):
    """Mixed walls, no shift (a steady problem, the hardest), white noise on the right."""
    grid = Grid(shape)
    kappa, right = jnp.asarray(diffusivity(fraction(grid))), noise(shape)
    found = solver(grid, MIXED[: grid.ndim], 0.0)(kappa, right)
    assert int(found.iterations) <= MOST_ITERATIONS
    left, rounding = residual(grid, MIXED[: grid.ndim], kappa, 0.0, found.solution, right)
    assert left < 1e-8 + rounding and rounding < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "diffusivity"),
    [*itertools.product([(64, 64), (256, 256), (32, 32, 32), (64, 64, 64)], [chessboard, rough])],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_iterations_where_coarse_cells_average_over_jumps(shape, diffusivity):
    """As above, with coefficients that no coarse grid resolves."""
    grid = Grid(shape)
    kappa, right = jnp.asarray(diffusivity(fraction(grid))), noise(shape)
    found = solver(grid, MIXED[: grid.ndim], 0.0)(kappa, right)
    # Measured: 13 to 19 on chessboards and 16 to 23 on noise, where each doubling of the cells per axis adds three or
    # four; up to 25 with other noise at these sizes.
    assert int(found.iterations) <= 25
    left, rounding = residual(grid, MIXED[: grid.ndim], kappa, 0.0, found.solution, right)
    assert left < 1e-8 + rounding and rounding < 1e-7


@pytest.mark.parametrize(
    ("shape", "upper", "kinds", "diffusivity"),
    [
        ((96, 64), (1.0, 1.0), ("nn", "nn"), smooth),
        ((96, 64), (1.0, 1.0), ("pp", "pp"), layers),
        pytest.param((40, 24, 32), (1.0, 1.0, 1.0), ("pp", "nn", "pp"), smooth, marks=pytest.mark.slow),
        ((64, 64), (1.0, 1.0), ("dn", "nd"), obstacle),
        ((64, 64), (1.0, 1.0), ("nn", "pp"), obstacle),
        pytest.param((32, 32, 32), (1.0, 1.0, 1.0), ("pp", "nn", "nn"), obstacle, marks=pytest.mark.slow),
        ((64, 64), (1.0, 1.0), ("dd", "pp"), chessboard),
        # Cells four and ten times longer than wide.
        ((64, 64), (1.0, 0.25), ("dn", "nd"), smooth),
        ((64, 64), (10.0, 1.0), ("dn", "pp"), layers),
    ],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
@pytest.mark.slow
def test_few_iterations_without_walls_around_obstacles_and_in_long_cells(shape, upper, kinds, diffusivity):
    grid = Grid(shape, upper=upper)
    kappa = jnp.asarray(diffusivity(fraction(grid)))
    right = jnp.where(kappa > 0, noise(shape), 0.0)
    if "d" not in "".join(kinds):
        right = jnp.where(kappa > 0, right - jnp.mean(right, where=kappa > 0), 0.0)
    found = solver(grid, kinds, 0.0)(kappa, right)
    assert int(found.iterations) <= MOST_ITERATIONS
    left, rounding = residual(grid, kinds, kappa, 0.0, found.solution, right)
    assert left < 1e-8 + rounding and rounding < 1e-7
    # Nothing is solved for inside a body.
    np.testing.assert_array_equal(np.asarray(found.solution)[np.asarray(kappa) == 0], 0.0)


@pytest.mark.parametrize(
    "diffusivity",
    [uniform, *(pytest.param(f, marks=pytest.mark.slow) for f in (layers, gentle))],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize(
    ("sizes", "bound"),
    [
        pytest.param([(32, 32), (64, 64), (128, 128)], 0.175, id="2-D"),
        pytest.param([(8, 8, 8), (16, 16, 16), (32, 32, 32)], 0.25, id="3-D", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_one_cycle_reduces_errors_by_a_factor_independent_of_size(sizes, bound, diffusivity):
    """The V-cycle alone, in the energy norm, without conjugate gradients.

    k steps of the fourth-kind Chebyshev smoother give at most C / (C + 4 k (k + 1) / 3), C / (C + 16) here, with C the
    constant of approximation by the coarse grid, which does not know the size: below 3.4 in 2-D and 5.3 in 3-D. A
    smoother alone tends to one as 1 - O(h^2).
    """
    factors = [_convergence_factor(Grid(shape), diffusivity) for shape in sizes]
    assert max(factors) < bound
    # From the second size on it has settled.
    assert factors[-1] < factors[-2] + 0.05


def _convergence_factor(grid, diffusivity):
    layout = walls(*MIXED[: grid.ndim])

    @functools.partial(jax.jit, compiler_options=QUICK)
    def norms(kappa, error):
        operator = operator_of(Domain(grid), layout, kappa)
        hierarchy = multigrid(operator)
        inverses = hierarchy.inverses(0.0)

        def cycle(error, _):
            image = operator(error, 0.0)
            error = error - hierarchy.cycle(image, 0.0, inverses)
            size = jnp.sqrt(jnp.sum(error * operator(error, 0.0)))
            return error / size, size

        return jax.lax.scan(cycle, error, None, length=15)[1]

    return float(norms(jnp.asarray(diffusivity(fraction(grid))), noise(grid.shape))[-1])


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        ((24, 36), ("dn", "pp")),
        ((27, 14), ("nn", "dn")),
        pytest.param((12, 10, 9), MIXED, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("diffusivity", [smooth, obstacle], ids=lambda f: f.__name__)
@pytest.mark.slow
def test_the_preconditioner_is_symmetric_and_positive(shape, kinds, diffusivity):
    grid = Grid(shape)
    x, y = noise(shape, 2), noise(shape, 3)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def cycles(kappa, x, y):
        hierarchy = multigrid(operator_of(Domain(grid), walls(*kinds), kappa))
        inverses = hierarchy.inverses(0.7)
        return hierarchy.cycle(x, 0.7, inverses), hierarchy.cycle(y, 0.7, inverses)

    mx, my = cycles(jnp.asarray(diffusivity(fraction(grid))), x, y)
    one, other, size = float(jnp.sum(mx * y)), float(jnp.sum(x * my)), float(jnp.sum(x * mx) + jnp.sum(y * my))
    # Some hundred roundings of sums over a thousand cells.
    assert abs(one - other) < 1e-13 * size
    assert float(jnp.sum(x * mx)) > 0 and float(jnp.sum(y * my)) > 0


LAYOUTS = {
    (64, 48): [{"x": 2, "y": 4}, {"x": 8}, {"y": 8}],
    (36, 40): [{"x": 4, "y": 2}],
    (16, 24, 16): [{"x": 2, "y": 2, "z": 2}],
}


@pytest.mark.parametrize("gathered_cells", [pytest.param(0, marks=pytest.mark.slow), 4096])
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        pytest.param(shape, sizes, marks=[pytest.mark.slow] if len(shape) == 3 or len(sizes) == 1 else [])
        for shape, meshes in LAYOUTS.items()
        for sizes in meshes
    ],
    ids=str,
)
@pytest.mark.slow
def test_the_solution_is_the_same_on_every_mesh(shape, sizes, gathered_cells):
    """Levels divided as long as blocks halve, or gathered at once: the same hierarchy, so the same iterations."""
    grid, kinds = Grid(shape), MIXED[: len(shape)]
    kappa, right = jnp.asarray(smooth(fraction(grid))), noise(shape)

    def on(domain):
        def run(kappa, right):
            operator = operator_of(domain, walls(*kinds), kappa)
            found = solve_elliptic(operator, multigrid(operator, gathered_cells), right, 1.0, tolerance=1e-14)
            return found.solution, found.iterations

        return run

    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    spec = domain.spec()
    run = distribute(on(domain), mesh, in_specs=(spec, spec), out_specs=(spec, PartitionSpec()))
    x, iterations = jax.jit(run, compiler_options=QUICK)(kappa, right)
    expected, wanted = jax.jit(on(Domain(grid)), compiler_options=QUICK)(kappa, right)
    assert int(iterations) == int(wanted)
    # Only the order of sums in scalar products differs.
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12 * float(jnp.abs(expected).max()))


def test_a_hierarchy_stays_divided_while_blocks_halve():
    grid, mesh, levels = Grid((64, 48)), make_mesh({"x": 2, "y": 4}), []
    domain = decompose(grid, mesh)

    def look(kappa):
        for level in multigrid(operator_of(domain, walls("dn", "pp"), kappa), 0).levels:
            gathers = any(isinstance(transfer, Gathering) for transfer in level.transfers)
            levels.append((level.operator.domain.grid.shape, level.operator.domain.block_shape, gathers))
        return kappa

    jax.eval_shape(distribute(look, mesh, in_specs=(domain.spec(),), out_specs=domain.spec()), jnp.ones(grid.shape))
    # Blocks of 8 x 3 do not halve, and what they would leave is solved directly.
    assert levels == [((64, 48), (32, 12), False), ((32, 24), (16, 6), False), ((16, 12), (8, 3), True)]


@pytest.mark.slow
def test_derivatives_are_those_of_the_dense_solve():
    """With respect to the right side, the diffusivity and the shift, forward and reverse."""
    grid, kinds = Grid((9, 7)), ("dn", "pp")
    kappa, right, weight = jnp.asarray(smooth(fraction(grid))), noise(grid.shape), noise(grid.shape, 4)

    def loss(kappa, right, shift):
        operator = operator_of(Domain(grid), walls(*kinds), kappa)
        x = solve_elliptic(operator, multigrid(operator), right, shift, tolerance=1e-14).solution
        return jnp.sum(weight * x**2)

    def dense(kappa, right, shift):
        operator = operator_of(Domain(grid), walls(*kinds), kappa)
        units = jnp.eye(right.size).reshape(right.size, *grid.shape)
        matrix = jax.vmap(lambda unit: operator(unit, shift))(units).reshape(right.size, right.size)
        x = jnp.linalg.solve(matrix, right.ravel()).reshape(grid.shape)
        return jnp.sum(weight * x**2)

    arguments = kappa, right, jnp.asarray(0.4)
    found = jax.jit(jax.grad(loss, argnums=(0, 1, 2)), compiler_options=QUICK)(*arguments)
    expected = jax.jit(jax.grad(dense, argnums=(0, 1, 2)), compiler_options=QUICK)(*arguments)
    for a, b in zip(found, expected, strict=True):
        # The condition, about a thousand times the contrast, times rounding.
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * float(jnp.abs(b).max()))
    _, slope = jax.jit(lambda *a: jax.jvp(loss, a, (kappa, weight, jnp.ones(()))), compiler_options=QUICK)(*arguments)
    whole = sum(jnp.sum(g * t) for g, t in zip(expected, (kappa, weight, 1.0), strict=True))
    assert float(slope) == pytest.approx(float(whole), rel=1e-10)


@pytest.mark.slow
def test_closed_walls_conserve_to_rounding_at_any_tolerance():
    grid = Grid((32, 20))
    kappa, right = jnp.asarray(smooth(fraction(grid))), noise(grid.shape) + 1
    found = solver(grid, ("nn", "pp"), 0.5, tolerance=1e-3)(kappa, right)
    assert residual(grid, ("nn", "pp"), kappa, 0.5, found.solution, right)[0] > 1e-8
    assert float(jnp.sum(0.5 * found.solution)) == pytest.approx(float(jnp.sum(right)), rel=1e-14)


@pytest.mark.slow
def test_layers_conduct_exactly():
    """A steady flux through three layers: the solution is linear in each, and exact on the grid."""
    grid = Grid((12,), (0.0,), (3.0,))
    (x,) = (3 * v for v in fraction(grid))
    kappa = np.where(x < 1, 1.0, np.where(x < 2, 1e4, 0.02))
    layout = center_layout([(Dirichlet(), Dirichlet())])
    operator = operator_of(Domain(grid), layout, jnp.asarray(kappa))
    # Two at the upper wall, as its ghost cell would have it.
    right = jnp.zeros(12).at[-1].set(2.0 * 2 * 0.02 / 0.25**2)
    found = solve_elliptic(operator, multigrid(operator), right, 0.0, tolerance=1e-14).solution
    flux = 2.0 / (1 / 1.0 + 1 / 1e4 + 1 / 0.02)
    exact = flux * (np.minimum(x, 1) / 1.0 + np.clip(x - 1, 0, 1) / 1e4 + np.maximum(x - 2, 0) / 0.02)
    np.testing.assert_allclose(found, exact, rtol=1e-11)


@pytest.mark.parametrize("kinds", [("dd", "pp"), ("dn", "dd")], ids=str)
@pytest.mark.slow
def test_smooth_coefficients_are_of_second_order(kinds):
    """x - div(k grad x) = f for a chosen x; walls where x or its slope vanishes."""

    def error(n):
        grid = Grid((n, n + n // 2))
        x, y = fraction(grid)
        k = 1 + 0.5 * np.sin(2 * np.pi * x + 1) * np.cos(2 * np.pi * y)
        kx, ky = (
            np.pi * np.cos(2 * np.pi * x + 1) * np.cos(2 * np.pi * y),
            -np.pi * np.sin(2 * np.pi * x + 1) * np.sin(2 * np.pi * y),
        )
        a = np.pi if kinds[0] == "dd" else np.pi / 2
        b = 2 * np.pi
        u, ux, uy = np.sin(a * x) * np.sin(b * y), a * np.cos(a * x) * np.sin(b * y), b * np.sin(a * x) * np.cos(b * y)
        right = u - (kx * ux + ky * uy - k * (a**2 + b**2) * u)
        found = solver(grid, kinds, 1.0)(jnp.asarray(k), jnp.asarray(right)).solution
        return float(jnp.max(jnp.abs(found - u)))

    errors = [error(n) for n in (16, 32)]
    # The next term is smaller by h^2 (h at walls): a tenth of the order at these sizes.
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.2


@pytest.mark.slow
def test_single_precision_converges_to_its_rounding():
    grid = Grid((64, 32))
    kappa, right = (jnp.asarray(v, jnp.float32) for v in (smooth(fraction(grid)), noise(grid.shape)))
    found = solver(grid, ("dn", "pp"), 0.0)(kappa, right)
    assert found.solution.dtype == jnp.float32 and int(found.iterations) <= MOST_ITERATIONS
    assert float(found.residual) < 1.3e-6


@pytest.mark.slow
def test_a_solve_that_does_not_converge_cannot_pass():
    grid = Grid((32, 32))
    operator = operator_of(Domain(grid), walls("dn", "pp"), jnp.asarray(smooth(fraction(grid))))

    @functools.partial(jax.jit, compiler_options=QUICK)
    def run(right):
        return solve_elliptic(operator, multigrid(operator), right, 0.0, tolerance=1e-8, limit=3)

    found = run(noise(grid.shape))
    assert int(found.iterations) == 3 and float(found.residual) > 1e-8
    assert bool(jnp.all(jnp.isnan(found.solution)))
