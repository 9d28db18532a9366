"""The ways to solve a Poisson equation: the same solution and gradient, and the exchanges that each was made for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from collectives import collectives
from jax.sharding import PartitionSpec
from test_poisson import DECOMPOSED, MESHES, MIXED, solver, source_on, waves

from simjax.core.boundary import Neumann, Periodic, center_layout
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.flow.incompressible import Incompressible
from simjax.parallel import decompose, distribute, make_mesh, prepend_axis
from simjax.solvers import dft, exchange, poisson, spectral, transforms
from simjax.solvers.fourier import FourierBasis
from simjax.solvers.poisson import solve_poisson

CUT_OTHERWISE = [
    ("8x1", ("periodic", "periodic")),
    ("1x8", ("dirichlet", "dirichlet")),
    ("2x4", ("neumann", "neumann")),
]
USUAL = (("1x8", ("periodic", "neumann")),)
# The tridiagonal method takes the same condition at both ends of an axis only.
EVEN = [(mesh, kinds) for mesh, kinds in DECOMPOSED if not {*kinds} & {*MIXED}]
EVERY = [pytest.param(*case, marks=[] if case in USUAL else pytest.mark.slow) for case in EVEN + CUT_OTHERWISE]
SOME = [pytest.param(*case, marks=pytest.mark.slow) for case in DECOMPOSED[::2]]


@pytest.fixture
def as_on_tpus(monkeypatch):
    """Exchanges in pieces, of any size in batches, and transforms by matrices, as they are compiled for a TPU."""
    for module in (dft, exchange, poisson, spectral):
        monkeypatch.setattr(module, "platform", lambda: "tpu")
    monkeypatch.setattr(exchange, "LEAST_MESSAGE", 1)
    solver.cache_clear()
    yield
    solver.cache_clear()


def assert_same_solution(mesh, kinds, method, tolerance):
    """Solution and gradient are those of transforms on one device, to `tolerance` of their largest value."""
    grid, sizes = MESHES[mesh]
    source = source_on(grid)
    outcomes = []
    for solve in (solver(grid, kinds, tuple(sizes.items()), method), solver(grid, kinds, None, "spectral")):
        outcomes.append((solve(source), jax.jit(jax.grad(waves(solve)), compiler_options=QUICK)(source)))
    for found, expected, slack in zip(*outcomes, (1, 10), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=slack * tolerance * float(jnp.abs(expected).max()))


@pytest.mark.parametrize(("mesh", "kinds"), EVERY)
@pytest.mark.slow
def test_an_axis_left_cut_changes_nothing(mesh, kinds):
    # Rounding of a few dozen sums; for the gradient, of the phase 20 phi.
    assert_same_solution(mesh, kinds, "tridiagonal", 1e-14)


@pytest.mark.parametrize("method", ["spectral", "tridiagonal"])
@pytest.mark.parametrize(("mesh", "kinds"), SOME)
def test_pieces_and_matrices_change_nothing(as_on_tpus, mesh, kinds, method):
    if (mesh, kinds) not in EVEN and method == "tridiagonal":
        with pytest.raises(ConfigurationError, match="pressure is given at a side"):
            assert_same_solution(mesh, kinds, method, 1e-14)
    else:
        assert_same_solution(mesh, kinds, method, 1e-14)


@pytest.mark.parametrize(("mesh", "kinds"), SOME)
def test_multigrid_converges_to_the_same_solution(mesh, kinds):
    # A residual of 100 roundings, 2e-14, and up to a thousand times that where errors are smooth.
    assert_same_solution(mesh, kinds, "multigrid", 2e-11)


def test_a_closed_box_of_a_few_cells_is_solved_by_its_modes():
    grid, kinds = Grid((6, 8)), ("neumann", "neumann")
    found, expected = (solver(grid, kinds, None, method)(source_on(grid)) for method in ("multigrid", "spectral"))
    # Rounding of 48 modes.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * float(jnp.abs(expected).max()))


@pytest.mark.slow
def test_multigrid_that_does_not_converge_is_not_a_number(monkeypatch):
    monkeypatch.setattr(poisson, "MOST_ITERATIONS", 1)
    grid = MESHES["2x4"][0]
    solver.cache_clear()
    assert np.all(np.isnan(solver(grid, ("periodic", "neumann"), None, "multigrid")(source_on(grid))))
    solver.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tridiagonal", "multigrid"])
def test_fields_of_an_ensemble_are_solved_each_by_itself(method):
    grid, kinds = MESHES["2x4"][0], ("periodic", "neumann")
    mesh = make_mesh({"ensemble": 2, "x": 2, "y": 2})
    domain = decompose(grid, mesh)
    layout = center_layout([(Periodic(), Periodic()), (Neumann(), Neumann())])
    spec = prepend_axis(domain.spec(), "ensemble")
    run = distribute(jax.vmap(lambda s: solve_poisson(domain, layout, s, method)), mesh, in_specs=spec, out_specs=spec)
    sources = jnp.stack([source_on(grid, k) for k in range(4)])
    found = run(sources)
    for k in range(4):
        alone = solver(grid, kinds, None, "spectral")(sources[k])
        np.testing.assert_allclose(found[k], alone, rtol=0, atol=2e-11 * float(jnp.abs(alone).max()))


def test_an_axis_left_cut_saves_its_exchanges():
    """Whole fields: none with one cut axis, one there and one back with two; beside them, the ghosts and two sums."""
    for sizes, exchanges in (({"x": 8}, 0), ({"x": 2, "y": 4}, 1)):
        mesh = make_mesh(sizes)
        domain = decompose(Grid((64, 64)), mesh)
        layout = center_layout([(Periodic(), Periodic())] * 2)
        run = distribute(
            lambda s, d=domain, k=layout: solve_poisson(d, k, s, "tridiagonal"),
            mesh,
            in_specs=domain.spec(),
            out_specs=domain.spec(),
        )
        assert collectives(run, jnp.ones((64, 64))) == {"all-to-all": 2 * exchanges + 2, "all-reduce": 2}


@pytest.mark.parametrize("sizes", [{"x": 5}, {"x": 2, "y": 4}], ids=str)
@pytest.mark.slow
def test_pieces_are_the_same_bits(monkeypatch, sizes):
    """Rings of odd and even lengths, one and two mesh axes: `all_to_all`, there and back."""
    mesh, names = make_mesh(sizes), tuple(reversed(sizes))
    count = int(np.prod([*sizes.values()]))
    u = jnp.asarray(np.random.default_rng(0).normal(size=(2, 2 * count, 4 * count)))
    monkeypatch.setattr(exchange, "LEAST_MESSAGE", 1)

    def there(v):
        return exchange.exchange_then(lambda w: jnp.cumsum(w, 1), v, names, split=2, concatenate=1)

    def back(v):
        return exchange.then_exchange(lambda w: jnp.cumsum(w, 1), v, names, split=1, concatenate=2)

    rows, columns = PartitionSpec(None, names, None), PartitionSpec(None, None, names)
    results = []
    for platform in ("cpu", "tpu"):
        monkeypatch.setattr(exchange, "platform", lambda name=platform: name)
        runs = [(there, rows, columns), (back, columns, rows)]
        results.append([distribute(f, mesh, in_specs=i, out_specs=o)(u) for f, i, o in runs])
    for plain, pieces in zip(*results, strict=True):
        np.testing.assert_array_equal(pieces, plain)


@pytest.mark.slow
def test_spectra_in_pieces_are_the_same(as_on_tpus, monkeypatch):
    grid, mesh = Grid((16, 32)), make_mesh({"x": 2, "y": 4})
    domain = decompose(grid, mesh)
    basis = FourierBasis(domain)
    u = source_on(grid)

    def there_and_back(v):
        return basis.inverse(basis.forward(v))

    def run():
        there = distribute(basis.forward, mesh, in_specs=domain.spec(), out_specs=basis.spec)(u)
        cut = distribute(lambda v: there_and_back(v), mesh, in_specs=domain.spec(), out_specs=domain.spec())
        return there, jax.jit(jax.grad(lambda v: jnp.sum(jnp.sin(cut(v)))))(u)

    found = run()
    for module in (dft, exchange):
        monkeypatch.setattr(module, "platform", lambda: "cpu")
    for pieces, plain in zip(found, run(), strict=True):
        np.testing.assert_allclose(pieces, plain, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [5, 8])
@pytest.mark.parametrize("kind", ["COSINE", pytest.param("SINE", marks=pytest.mark.slow)])
def test_long_cosine_transforms_are_the_defining_sums(monkeypatch, kind, n):
    monkeypatch.setattr(transforms, "LONGEST_PRODUCT", 1)
    transform, u = getattr(transforms, kind), np.random.default_rng(0).normal(size=(n, 3))
    waves = np.asarray(transform.half_waves(jnp.arange(n), n))[:, None]
    rows = (np.cos if kind == "COSINE" else np.sin)(np.pi * waves * (np.arange(n) + 0.5) / n)
    found, back = jax.jit(lambda u: (v := transform.forward(u, 0), transform.inverse(v, 0)))(jnp.asarray(u))
    np.testing.assert_allclose(found, rows @ u, rtol=0, atol=1e-13)
    np.testing.assert_allclose(back, u, rtol=0, atol=1e-13)


def test_the_choice_is_transforms_on_one_device_and_on_processors():
    domain = decompose(Grid((64, 64)), make_mesh({"x": 8}))
    assert poisson.choose(domain, [transforms.FOURIER] * 2, 4) == "spectral"


def test_on_a_pod_the_choice_leaves_an_axis_cut(as_on_tpus):
    """Not with blocks of thousands of cells, whose own systems are long products, and never on one device."""
    pod = poisson.Domain(Grid((16384, 16384)), (("x", 16), ("y", 16)))
    assert poisson.choose(pod, [transforms.FOURIER] * 2, 4) == "tridiagonal"
    few = poisson.Domain(Grid((16384, 16384)), (("x", 2), None))
    assert poisson.choose(few, [transforms.FOURIER] * 2, 4) == "spectral"
    assert poisson.choose(few.unsplit(), [transforms.FOURIER] * 2, 4) == "spectral"


def test_unknown_methods_are_refused():
    with pytest.raises(ConfigurationError, match="pressure_solver"):
        Incompressible(decompose(Grid((8, 8)), None), [], pressure_solver="fast")
