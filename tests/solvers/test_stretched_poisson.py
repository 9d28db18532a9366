"""The Poisson solve on stretched grids: exact for the discrete operator, on every mesh, differentiable in widths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from jax.sharding import PartitionSpec

from simjax.core.boundary import Dirichlet, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.core.mappings import faces_and_centers, lines, tanh
from simjax.grid import Grid
from simjax.ops import staggered
from simjax.parallel import decompose, distribute, make_mesh
from simjax.solvers.poisson import solve_poisson

WAVES = (Periodic(), Periodic())
WALLS = (Neumann(), Neumann())
HELD = (Dirichlet(0.0), Dirichlet(0.0))


def stretched(shape, *formulas):
    lengths = (2.0, 1.3, 0.9)[: len(shape)]
    axes = zip(formulas, shape, lengths, strict=True)
    return Grid(shape, upper=lengths, stretch=[f if f is None else lines("formula", f, n, 0.0, b) for f, n, b in axes])


WAVY, FINE = "s + 0.1*sin(2*pi*s)", "tanh(1.5*s)"
PLANE = stretched((16, 24), WAVY, FINE)
BOX = stretched((8, 12, 4), FINE, None, WAVY)
EACH = pytest.mark.parametrize(
    ("grid", "sides", "mesh"),
    [
        (PLANE, [WAVES, WALLS], {"x": 2, "y": 4}),
        (stretched((16, 24), None, FINE), [WAVES, HELD], {"x": 8}),
        (BOX, [HELD, WAVES, WALLS], {"x": 2, "y": 2, "z": 2}),
        (stretched((1, 2), WAVY, WAVY), [WALLS, WAVES], None),
    ],
    ids=["2x4", "8x1", "2x2x2", "few cells"],
)


def source_on(grid):
    return jnp.asarray(np.random.default_rng(0).normal(size=grid.shape))


def solver(grid, layout, mesh, method="auto"):
    devices = make_mesh(mesh) if mesh else None
    domain = decompose(grid, devices)
    solve = distribute(
        lambda source: solve_poisson(domain, layout, source, method),
        devices,
        in_specs=domain.spec(),
        out_specs=domain.spec(),
    )
    return jax.jit(solve, compiler_options=QUICK)


@EACH
@pytest.mark.slow
def test_the_residual_is_rounding_on_every_mesh(grid, sides, mesh):
    layout, source, domain = center_layout(sides), source_on(grid), Domain(grid)
    phi = solver(grid, layout, None)(source)
    laplacian = jax.jit(lambda phi: domain.apply_spaced(lambda p, h: staggered.laplacian(p, h), phi, layout, 1))
    widths = np.meshgrid(*(grid.widths(axis) / grid.mean_spacing[axis] for axis in range(grid.ndim)), indexing="ij")
    volumes, singular = np.prod(widths, axis=0), HELD not in sides
    residual = laplacian(phi) - source + (float(np.mean(volumes * source)) if singular else 0.0)
    # Of an operator of norm sum(4 / h^2), each value of phi carries a few roundings.
    scale = sum(4 / grid.widths(axis).min() ** 2 for axis in range(grid.ndim)) * float(jnp.abs(phi).max())
    np.testing.assert_allclose(residual, 0, atol=20 * np.finfo(float).eps * scale)
    if singular:
        assert abs(np.mean(volumes * phi)) < 1e-15 * float(jnp.abs(phi).max()) * grid.cells
    if mesh:
        # Sums over up to 24 modes in another order.
        np.testing.assert_allclose(
            solver(grid, layout, mesh)(source), phi, rtol=0, atol=1e-13 * float(jnp.abs(phi).max())
        )


def test_multigrid_has_the_same_solution():
    layout, source = center_layout([WAVES, WALLS]), source_on(PLANE)
    phi = solver(PLANE, layout, None)(source)
    # A residual of a hundred roundings, times the condition, some thousands.
    np.testing.assert_allclose(solver(PLANE, layout, None, "multigrid")(source), phi, rtol=0, atol=1e-11)


@pytest.mark.slow
def test_gradients_in_the_places_of_cells_are_those_of_one_device_and_of_differences():
    layout, source = center_layout([WAVES, WALLS]), source_on(PLANE)

    def loss_on(mesh):
        devices = make_mesh(mesh) if mesh else None

        def loss(strength, source):
            places = faces_and_centers(tanh(strength, "lower"), 24, 0.0, 1.3, jnp)
            found = decompose(PLANE, devices)
            domain = Domain(PLANE, found.split, lines=[None, places])
            return domain.sum(jnp.sin(20 * solve_poisson(domain, layout, source)))

        run = distribute(
            loss, devices, in_specs=(PartitionSpec(), decompose(PLANE, devices).spec()), out_specs=PartitionSpec()
        )
        return jax.jit(jax.value_and_grad(run), compiler_options=QUICK)

    (value, slope), cut = (loss_on(mesh)(1.5, source) for mesh in (None, {"x": 2, "y": 4}))
    np.testing.assert_allclose(cut, (value, slope), rtol=1e-10)  # sums in another order
    step = 1e-5
    near = [loss_on(None)(1.5 + k * step, source)[0] for k in (1, -1)]
    assert abs((near[0] - near[1]) / (2 * step) - slope) < 1e-7 * abs(slope)  # its rounding over its step
