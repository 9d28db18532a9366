"""Ghost cells, exchange between devices, walls and reductions, against what they must be by construction."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PLAIN, QUICK
from jax.sharding import PartitionSpec

from simjax.core.boundary import (
    Dirichlet,
    FieldLayout,
    Ghosts,
    Inflow,
    Neumann,
    NoSlipWall,
    Outflow,
    Periodic,
    PositiveDirichlet,
    ScalarSide,
    SlipWall,
    center_layout,
    face_layout,
)
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError, ResourceError
from simjax.grid import CENTER, FACE, LOWER, UPPER, Grid
from simjax.ops.difference import laplacian, shift
from simjax.parallel import decompose, distribute, folded_ring, make_mesh

WRAP = (Periodic(), Periodic())
MESHES = {
    "1-D": (Grid((24,)), {"x": 8}),
    "1-D alone": (Grid((5,)), {}),
    "2-D 2x4": (Grid((6, 12)), {"x": 2, "y": 4}),
    "2-D 8x1": (Grid((24, 3)), {"x": 8}),
    "2-D alone": (Grid((4, 7)), {}),
    "3-D 2x2x2": (Grid((6, 8, 6)), {"x": 2, "y": 2, "z": 2}),
    "3-D 1x4x2": (Grid((3, 12, 6)), {"y": 4, "z": 2}),
    "3-D alone": (Grid((3, 4, 5)), {}),
}
each_mesh = pytest.mark.parametrize("grid, sizes", MESHES.values(), ids=MESHES)


def blockwise(domain, mesh, fn, *arrays, options=QUICK):
    """`fn` of this block's arrays on every device, its results as numpy arrays, whole fields or stacked blocks."""
    specs = tuple(domain.spec(a.ndim) for a in arrays)
    run = distribute(fn, mesh, in_specs=specs, out_specs=domain.spec())
    return jax.tree.map(np.asarray, jax.jit(run, compiler_options=options)(*arrays))


def blocks_of(stacked, domain, width):
    """(slices of the globally padded field, this block's padded field) for every block of stacked results."""
    counts = [1 if entry is None else entry[1] for entry in domain.split]
    for index in itertools.product(*map(range, counts)):
        padded = tuple(
            slice(i * (n + 2 * width), (i + 1) * (n + 2 * width))
            for i, n in zip(index, domain.block_shape, strict=True)
        )
        whole = tuple(slice(i * n, (i + 1) * n + 2 * width) for i, n in zip(index, domain.block_shape, strict=True))
        yield whole, stacked[padded]


def global_index(shape):
    """A field that holds its own global index: no two cells are alike."""
    return jnp.asarray(np.arange(np.prod(shape), dtype=float).reshape(shape))


@each_mesh
@pytest.mark.slow
def test_every_ghost_of_a_periodic_field_is_the_cell_it_stands_for(grid, sizes):
    """Exact, corners included: a field that encodes its coordinates, for halos of one to three cells."""
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    layout = center_layout([WRAP] * grid.ndim)
    field = global_index(grid.shape)
    widths = (1, 2, 3)
    found = blockwise(domain, mesh, lambda u: [domain.pad(u, layout, width) for width in widths], field)
    for width, padded in zip(widths, found, strict=True):
        expected = np.pad(np.asarray(field), width, mode="wrap")
        for where, block in blocks_of(padded, domain, width):
            np.testing.assert_array_equal(block, expected[where])


def polynomial(degree, coefficients):
    """u(t, *x): a product over axes of polynomials of `degree`, times a function of time."""

    def u(t, *x):
        product = 1.0
        for c, v in zip(coefficients, x, strict=False):
            product = product * (c[0] + c[1] * v + (c[2] * v * v if degree == 2 else 0.0 * v))
        return product * (1 + t)

    return u


def slope_along(axis, coefficients, sign):
    """du/dn of the quadratic `polynomial` at a side normal to `axis`, n pointing outwards."""

    def slope(t, *x):
        product = sign * (coefficients[axis][1] + 2 * coefficients[axis][2] * x[axis])
        for k, (c, v) in enumerate(zip(coefficients, x, strict=False)):
            if k != axis:
                product = product * (c[0] + c[1] * v + c[2] * v * v)
        return product * (1 + t)

    return slope


@pytest.mark.parametrize("kind", ["dirichlet", "neumann"])
@each_mesh
@pytest.mark.slow
def test_wall_ghosts_continue_the_polynomials_they_are_exact_for(grid, sizes, kind):
    """Odd reflection is exact for linear functions, even reflection for quadratic ones.

    Checked in every ghost cell, edges and corners included, for centred and face fields, halos of one and two
    cells, with wall values that depend on time and on the position along the wall.
    """
    mesh = make_mesh(sizes)
    grid = Grid(grid.shape, (-0.3, 0.2, 1.0)[: grid.ndim], (0.9, 1.6, 1.5)[: grid.ndim])
    domain = decompose(grid, mesh)
    coefficients = [(1.0, 0.7, -0.4), (-0.6, 1.1, 0.5), (0.8, -0.9, 0.6)][: grid.ndim]
    exact = polynomial(1 if kind == "dirichlet" else 2, coefficients)
    if kind == "dirichlet":
        boundaries = ((Dirichlet(exact), Dirichlet(exact)),) * grid.ndim
    else:
        boundaries = tuple(
            (Neumann(slope_along(k, coefficients, -1)), Neumann(slope_along(k, coefficients, 1)))
            for k in range(grid.ndim)
        )
    t, width = 0.4, 2
    offsets = list(itertools.product((CENTER, FACE), repeat=grid.ndim))
    layouts = [FieldLayout(offset, boundaries) for offset in offsets]
    fields = [jnp.asarray(exact(t, *positions(grid, offset, 0)) * np.ones(grid.shape)) for offset in offsets]
    found = blockwise(
        domain,
        mesh,
        lambda *u: [domain.pad(v, layout, width, t) for v, layout in zip(u, layouts, strict=True)],
        *fields,
    )
    for offset, padded in zip(offsets, found, strict=True):
        expected = exact(t, *positions(grid, offset, width))
        for where, block in blocks_of(padded, domain, width):
            # A few roundings of numbers up to the largest value, amplified by reflecting three times in a corner.
            np.testing.assert_allclose(block, expected[where], rtol=0, atol=1e-13 * np.abs(expected).max())


def positions(grid, offset, ghosts):
    axes = [
        grid.lower[axis] + (np.arange(-ghosts, grid.shape[axis] + ghosts) + offset[axis]) * grid.spacing[axis]
        for axis in range(grid.ndim)
    ]
    return np.meshgrid(*axes, indexing="ij", sparse=True)


@pytest.mark.parametrize("offset", [CENTER, FACE])
@pytest.mark.parametrize("side", [LOWER, UPPER])
@pytest.mark.slow
def test_wall_ghosts_by_hand(side, offset):
    """Three cells 5, 7, 4 of spacing 1/3 beside a wall, written out from the definitions of `Boundary.ghost`."""
    u, h = jnp.asarray([5.0, 7.0, 4.0]), 1 / 3
    domain = Domain(Grid((3,)))
    inwards = [5.0, 7.0, 4.0] if side == LOWER else [4.0, 7.0, 5.0]
    value, slope = 2.0, 6.0
    wall = (4 * 4.0 - 7.0 + 2 * h * slope) / 3
    expected = {
        ("dirichlet", LOWER, CENTER): [2 * value - inwards[0], 2 * value - inwards[1]],
        ("dirichlet", UPPER, CENTER): [2 * value - inwards[0], 2 * value - inwards[1]],
        ("dirichlet", LOWER, FACE): [2 * value - inwards[1], 2 * value - inwards[2]],
        ("dirichlet", UPPER, FACE): [value, 2 * value - inwards[0]],
        ("neumann", LOWER, CENTER): [inwards[0] + h * slope, inwards[1] + 3 * h * slope],
        ("neumann", UPPER, CENTER): [inwards[0] + h * slope, inwards[1] + 3 * h * slope],
        ("neumann", LOWER, FACE): [inwards[1] + 2 * h * slope, inwards[2] + 4 * h * slope],
        ("neumann", UPPER, FACE): [wall, inwards[0] + 2 * h * slope],
    }
    for name, boundary in (("dirichlet", Dirichlet(value)), ("neumann", Neumann(slope))):
        for width in (1, 2):
            padded = np.asarray(domain.pad(u, FieldLayout((offset,), ((boundary, boundary),)), width))
            ghosts = padded[:width][::-1] if side == LOWER else padded[-width:]
            np.testing.assert_allclose(ghosts, expected[name, side, offset][:width], rtol=1e-15)


@each_mesh
def test_pad_and_its_transpose_are_adjoint(grid, sizes):
    """<pad u, v> = <u, pad^T v>, which reverse mode relies on, through exchanges, walls and corners."""
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    kinds = [WRAP, (Dirichlet(0.0), Neumann(0.0)), (Neumann(0.0), Dirichlet(0.0))]
    for shifted in range(2):
        layout = face_layout(0, [kinds[(k + shifted) % 3] for k in range(grid.ndim)])
        run = distribute(
            lambda u, layout=layout: domain.pad(u, layout, 2), mesh, in_specs=domain.spec(), out_specs=domain.spec()
        )
        rng = np.random.default_rng(0)
        u = jnp.asarray(rng.normal(size=grid.shape))
        v = jnp.asarray(rng.normal(size=jax.eval_shape(run, u).shape))

        def there_and_back(u, v, run=run):
            padded, transpose = jax.vjp(run, u)
            return padded, transpose(v)[0]

        padded, returned = jax.jit(there_and_back, compiler_options=QUICK)(u, v)
        left, right = float(jnp.vdot(padded, v)), float(jnp.vdot(u, returned))
        # Both are sums of up to 2000 products of order one.
        assert abs(left - right) <= 1e-12 * float(jnp.linalg.norm(padded) * jnp.linalg.norm(v))


@each_mesh
@pytest.mark.slow
def test_fields_padded_together_or_one_member_at_a_time_are_the_same(grid, sizes):
    """Several fields share one message; leading axes are carried along. Neither changes a bit."""
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    walls = center_layout([(Dirichlet(0.3), Neumann(0.2))] * grid.ndim)
    wrapped = center_layout([WRAP] * grid.ndim)
    u, v = global_index(grid.shape), jnp.cos(global_index(grid.shape))

    def compare(u, v):
        together = domain.pad((u, v), (walls, wrapped), 2)
        apart = domain.pad(u, walls, 2), domain.pad(v, wrapped, 2)
        stacked = domain.pad(jnp.stack([u, v]), walls, 2)
        by_member = jnp.stack([domain.pad(u, walls, 2), domain.pad(v, walls, 2)])
        mapped = jax.vmap(lambda w: domain.pad(w, walls, 2))(jnp.stack([u, v]))
        return together, apart, (stacked[0], stacked[1]), (by_member[0], by_member[1]), (mapped[0], mapped[1])

    together, apart, stacked, by_member, mapped = blockwise(domain, mesh, compare, u, v, options=PLAIN)
    for a, b in ((together, apart), (stacked, by_member), (mapped, by_member)):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])


@pytest.mark.parametrize("width", [1, 2])
@each_mesh
@pytest.mark.slow
def test_apply_is_the_stencil_of_the_padded_block_with_and_without_overlap(grid, sizes, width):
    """Bit for bit, also where blocks are too thin to have an interior."""
    mesh = make_mesh(sizes)
    layouts = tuple(center_layout([pair] * grid.ndim) for pair in (WRAP, (Dirichlet(0.3), Neumann(0.2))))
    h = grid.spacing

    def stencil(u, v):
        product = shift(u, grid.ndim, 0, width, width) * shift(v, grid.ndim, grid.ndim - 1, -width, width)
        return {"product": product, "laplacian": laplacian(u, h, width)}

    u, v = jnp.sin(global_index(grid.shape)), jnp.cos(global_index(grid.shape))
    plain, stitched = decompose(grid, mesh), decompose(grid, mesh, overlap=True)
    expected = blockwise(plain, mesh, lambda *f: stencil(*plain.pad(f, layouts, width)), u, v, options=PLAIN)
    for domain in (plain, stitched):
        found = blockwise(domain, mesh, lambda *f, d=domain: d.apply(stencil, f, layouts, width), u, v, options=PLAIN)
        assert found["product"].shape == grid.shape
        np.testing.assert_array_equal(found["product"], expected["product"])
        np.testing.assert_array_equal(found["laplacian"], expected["laplacian"])


@pytest.mark.parametrize("name", ["1-D alone", "2-D 2x4", "3-D 2x2x2"])
@pytest.mark.slow
def test_a_stencil_of_single_cells_needs_no_ghost_cells_beside_any_side(name):
    """Padded by nothing a field is itself, and `apply` the function of it, with its gradient, overlap or not."""
    grid, sizes = MESHES[name]
    mesh = make_mesh(sizes)
    pairs = [WRAP, *(2 * (kind,) for kind in (Dirichlet(0.3), Neumann(0.2), Ghosts(0.4), PositiveDirichlet(0.5)))]
    layouts = tuple(of([pair] * grid.ndim) for pair in pairs for of in (center_layout, lambda b: face_layout(0, b)))
    u = jnp.sin(global_index(grid.shape))
    for domain in (decompose(grid, mesh), decompose(grid, mesh, overlap=True)):

        def look(u, domain=domain):
            fields = tuple((k + 1) * u for k in range(len(layouts)))

            def total(u):
                return jnp.sum(domain.apply(lambda *f: f[0] * f[-1], (*fields[:-1], u), layouts, 0))

            return domain.pad(fields, layouts, 0), jax.grad(total)(u)

        padded, gradient = blockwise(domain, mesh, look, u)
        for k, block in enumerate(padded):
            np.testing.assert_array_equal(block, (k + 1) * u)
        np.testing.assert_array_equal(gradient, u)


def test_an_axis_of_one_cell():
    """Its periodic neighbour is itself; at walls the only cell is reflected."""
    u = jnp.asarray([[3.0, 4.0]])
    domain = Domain(Grid((1, 2)))
    found = domain.pad(u, center_layout([WRAP, WRAP]), 1)
    np.testing.assert_array_equal(found[:, 1:3], [[3.0, 4.0]] * 3)
    walls = (Dirichlet(1.0), Neumann(0.5))
    found = domain.pad(u, center_layout([walls, WRAP]), 1)
    np.testing.assert_allclose(found[:, 1:3], [[-1.0, -2.0], [3.0, 4.0], [3.5, 4.5]], rtol=1e-15)
    alone = Domain(Grid((1,))).pad(jnp.asarray([3.0]), FieldLayout((FACE,), ((Dirichlet(3.0), Neumann(0.5)),)), 1)
    np.testing.assert_allclose(alone, [3.0, 3.0, 3.5], rtol=1e-15)


@each_mesh
@pytest.mark.slow
def test_positions_do_not_depend_on_the_decomposition(grid, sizes):
    """Nor do formulas of them: bit for bit in code as it is written, before the compiler fuses products into sums."""
    mesh = make_mesh(sizes)
    grid = Grid(grid.shape, (-0.3, 0.2, 1.0)[: grid.ndim], (0.9, 1.6, 1.5)[: grid.ndim])
    domain = decompose(grid, mesh)
    offset = (CENTER, FACE, CENTER)[: grid.ndim]

    def formula(d):
        x = d.coordinates(offset)
        total = sum(0.3 * v - 0.7 * v * v for v in x)
        return [jnp.broadcast_to(v, d.block_shape) for v in (*x, total)]

    run = distribute(lambda: formula(domain), mesh, in_specs=(), out_specs=domain.spec())
    found = jax.tree.map(np.asarray, jax.jit(run, compiler_options=PLAIN)())
    alone = jax.jit(lambda: formula(domain.unsplit()), compiler_options=PLAIN)()
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(one, other)
    for axis, x in enumerate(positions(grid, offset, 0)):
        np.testing.assert_allclose(found[axis], np.broadcast_to(x, grid.shape), rtol=0, atol=1e-15)
        along = np.moveaxis(found[axis], axis, 0).reshape(grid.shape[axis], -1)[:, 0]
        np.testing.assert_allclose(along, grid.coordinates(axis, offset[axis]), rtol=0, atol=1e-15)


@each_mesh
@pytest.mark.slow
def test_impose_sets_the_lower_wall_face_and_nothing_else(grid, sizes):
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    value = lambda t, *x: 10 + t + sum(x[1:], 0.0 * x[0])  # noqa: E731
    layout = face_layout(0, [(Dirichlet(value), Dirichlet(0.0))] + [WRAP] * (grid.ndim - 1))
    free = face_layout(0, [(Neumann(0.0), Dirichlet(0.0))] + [WRAP] * (grid.ndim - 1))
    u = jnp.cos(global_index(grid.shape))
    found, kept = blockwise(domain, mesh, lambda u: (domain.impose(u, layout, 0.5), domain.impose(u, free)), u)
    x = positions(grid, layout.offset, 0)
    expected = np.array(u)
    expected[0] = (10.5 + sum(x[1:], 0.0 * x[0]))[0]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-15)
    np.testing.assert_array_equal(found[1:], expected[1:])
    np.testing.assert_array_equal(kept, u)


@each_mesh
@pytest.mark.slow
def test_reductions_are_over_the_whole_grid(grid, sizes):
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    rng = np.random.default_rng(1)
    u, v = (jnp.asarray(rng.normal(size=grid.shape)) for _ in range(2))

    def reduce(u, v):
        return domain.sum((u, v)), domain.mean(u), domain.dot((u, v), (v, v)), domain.max(u), domain.min(u)

    specs = (domain.spec(), domain.spec())
    found = distribute(reduce, mesh, in_specs=specs, out_specs=PartitionSpec())(u, v)
    u, v = np.asarray(u), np.asarray(v)
    expected = u.sum() + v.sum(), u.mean(), (u * v).sum() + (v * v).sum(), u.max(), u.min()
    # Sums of up to 300 numbers of order one, in another order.
    np.testing.assert_allclose(found[:3], expected[:3], rtol=0, atol=1e-13 * u.size)
    assert (float(found[3]), float(found[4])) == expected[3:]
    broken = u.copy()
    broken[(-1,) * grid.ndim] = np.nan
    found = distribute(reduce, mesh, in_specs=specs, out_specs=PartitionSpec())(jnp.asarray(broken), v)
    assert np.isnan(found[3]) and np.isnan(found[4]), "one NaN on one device must reach the extrema of all"


@each_mesh
@pytest.mark.slow
def test_what_depends_on_one_axis_is_added_up_over_all(grid, sizes):
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)

    def reduce():
        x = jnp.broadcast_to(domain.coordinates((CENTER,) * grid.ndim)[0], domain.block_shape)
        return domain.sum(x), domain.max(x)

    total, largest = distribute(reduce, mesh, in_specs=(), out_specs=PartitionSpec())()
    x = grid.coordinates(0, CENTER)
    assert float(total) == pytest.approx(x.sum() * grid.cells / len(x), rel=1e-13)  # a sum in another order
    assert float(largest) == pytest.approx(x.max(), rel=1e-15)


@each_mesh
@pytest.mark.slow
def test_gradients_of_reductions(grid, sizes):
    """d sum(u^2) / du = 2 u on every device; an extremum is a constant to reverse mode."""
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    u = jnp.cos(global_index(grid.shape))
    loss = distribute(
        lambda u: domain.dot(u, u) + domain.max(u) * 3 - domain.min(u),
        mesh,
        in_specs=domain.spec(),
        out_specs=PartitionSpec(),
    )
    np.testing.assert_allclose(jax.grad(loss)(u), 2 * np.asarray(u), rtol=1e-15)


def test_a_side_says_what_every_field_gets():
    wall, slip, inflow, outflow = NoSlipWall((0.1, 0.2)), SlipWall(), Inflow((0.3, 0.4), scalar=0.5), Outflow()
    assert [wall.velocity_boundary(i, 0) for i in (0, 1)] == [Dirichlet(0.1), Dirichlet(0.2)]
    assert [NoSlipWall().velocity_boundary(i, 1) for i in (0, 1)] == [Dirichlet(0.0)] * 2
    assert [slip.velocity_boundary(i, 1) for i in (0, 1)] == [Neumann(0.0), Dirichlet(0.0)]
    assert [inflow.velocity_boundary(i, 0) for i in (0, 1)] == [Dirichlet(0.3), Dirichlet(0.4)]
    assert [outflow.velocity_boundary(i, 0) for i in (0, 1)] == [Neumann(0.0)] * 2
    scalars = [side.scalar_boundary() for side in (wall, slip, inflow, outflow)]
    assert scalars == [Neumann(0.0), Neumann(0.0), Dirichlet(0.5), Neumann(0.0)]
    with pytest.raises(TypeError, match="use a wall or an inflow"):
        ScalarSide(Dirichlet(1.0)).velocity_boundary(0, 0)


def test_folded_ring_keeps_neighbours_within_two_links():
    for count in (8, 16):
        ring = folded_ring(count)
        assert sorted(ring) == list(range(count))
        assert max(abs(a - b) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)) <= 2


REFUSALS = {
    "not divisible": (
        lambda: Domain(Grid((100,)), (("x", 8),)),
        "Grid.shape[0]=100 is not divisible by mesh axis 'x' of 8; use 96 or 104, or mesh.x=5.",
    ),
    "fewer cells than blocks": (
        lambda: Domain(Grid((4, 3)), (None, ("y", 4))),
        "Grid.shape[1]=3 is not divisible by mesh axis 'y' of 4; use 4, or mesh.y=3.",
    ),
    "split of another rank": (
        lambda: Domain(Grid((4, 4)), (None,)),
        "Domain.split=(None,): expected ('x', 2), mesh axis and count, or None for 2 axes.",
    ),
    "halo wider than the block": (
        lambda: Domain(Grid((12, 6)), (("x", 6), None)).pad(jnp.zeros((2, 6)), center_layout([WRAP, WRAP]), 3),
        "A block has 2 cells along x, fewer than the 3 that a stencil with a halo of 3 needs; "
        "use mesh.x=4 or a finer grid.",
    ),
    "halo wider than the grid": (
        lambda: Domain(Grid((2, 6))).pad(jnp.zeros((2, 6)), center_layout([WRAP, WRAP]), 3),
        "A block has 2 cells along x, fewer than the 3 that a stencil with a halo of 3 needs; use at least 3 cells.",
    ),
    "wall face without the face behind it": (
        lambda: Domain(Grid((8,)), (("x", 8),)).pad(jnp.zeros(1), face_layout(0, [(Dirichlet(), Dirichlet())]), 1),
        "A block has 1 cells along x, fewer than the 2 that a stencil with a halo of 1 needs; "
        "use mesh.x=4 or a finer grid.",
    ),
    "mesh axis beyond the grid": (
        lambda: decompose(Grid((8, 8)), make_mesh({"z": 2})),
        "mesh.z=2 but the grid has 2 axes; set it to 1.",
    ),
    "unknown mesh axis": (
        lambda: make_mesh({"w": 2}),
        "mesh axis 'w' is unknown; write ensemble, x, y or z.",
    ),
    "too many devices": (
        lambda: make_mesh({"x": 4, "y": 4}),
        "mesh {'x': 4, 'y': 4} needs 16 devices, 8 are present; choose sizes whose product is at most 8.",
    ),
    "four axes": (
        lambda: Grid((2, 2, 2, 2)),
        "Grid.shape=(2, 2, 2, 2) has 4 axes; write 1, 2 or 3 sizes.",
    ),
    "no cells": (lambda: Grid((4, 0)), "Grid.shape[1]=0: expected at least one cell."),
    "empty box": (
        lambda: Grid((4,), (1.0,), (1.0,)),
        "Grid.upper[0]=1.0 must be finite and above Grid.lower[0]=1.0.",
    ),
    "infinite box": (
        lambda: Grid((4,), (0.0,), (float("inf"),)),
        "Grid.upper[0]=inf must be finite and above Grid.lower[0]=0.0.",
    ),
    "layouts missing": (
        lambda: Domain(Grid((4,))).pad((jnp.zeros(4),) * 3, (center_layout([WRAP]),) * 2, 1),
        "3 fields need as many layouts; got 2.",
    ),
}


@pytest.mark.parametrize("attempt, sentence", REFUSALS.values(), ids=REFUSALS)
def test_refusals_say_what_came_and_what_to_write(attempt, sentence):
    with pytest.raises((ConfigurationError, ResourceError)) as caught:
        attempt()
    assert str(caught.value) == sentence
