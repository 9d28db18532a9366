"""Operators that read several fields: fluxes through surfaces, and means over pairs of points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import check_decompositions, random
from jax.sharding import PartitionSpec
from refusals import refusals

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid, Lines
from simjax.instruments.instrument import View
from simjax.instruments.spectra import VectorSpectrum
from simjax.instruments.surfaces import SurfaceIntegral, faces_of_box, plane
from simjax.instruments.two_points import Correlation, StructureFunction

GRID = Grid((16, 8), (0.0, -1.0), (2.0, 1.0))
OFFSETS = {"u_x": (0.0, 0.5), "u_y": (0.5, 0.0), "p": (0.5, 0.5), "q": (0.5, 0.5)}
WRAPS, CHANNEL = (True, True), (True, False)
LOWER, UPPER = (0.25, -0.5), (1.5, 0.75)
OPERATORS = {
    "flux through a box": SurfaceIntegral("flux", ("u_x", "u_y"), faces_of_box(LOWER, UPPER)),
    "integral over a plane": SurfaceIntegral("integral", ("p",), plane(GRID, 0, 0.33)),
    "structure function along x": StructureFunction("s", ("u_x",), 0, (1, 3, 8, 16), 3),
    "structure function across": StructureFunction("s", ("u_x", "u_y"), 1, (0, 2), 2),
    "correlation": Correlation("r", ("p", "q"), 0, (0, 1, 5)),
    "spectrum along x": VectorSpectrum("e", ("u_x", "u_y"), 7, 0),
    "covariance": Correlation("r", ("p",), 1, (0, 3), normalised=False),
}


def read(operator, domain, fields, periodic=WRAPS):
    return operator.read(View(domain, periodic, dict(zip(OFFSETS, fields, strict=True)), dict, OFFSETS))


def fields_of(grid=GRID):
    # Powers of different sizes, so that no component can stand for another.
    return tuple(random((4, *grid.shape)) * jnp.asarray([1.0, 2.0, 3.0, 4.0])[:, None, None])


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.slow
def test_neither_values_nor_derivatives_depend_on_the_decomposition(name):
    operator = OPERATORS[name]

    def measure(domain, *fields):
        return read(operator, domain, fields)

    many = [{"x": 2, "y": 4}, {"x": 8}]
    check_decompositions(measure, GRID, many, fields_of(), (True,) * 4, lambda domain: PartitionSpec())


@pytest.mark.parametrize("stretched", [False, True])
def test_the_flux_through_a_box_is_the_integral_of_the_divergence(stretched):
    grid = GRID
    if stretched:
        faces = np.sort(np.concatenate([[-1, 1, LOWER[1], UPPER[1]], np.linspace(-0.9, 0.9, 5)]))
        grid = Grid(GRID.shape, GRID.lower, GRID.upper, stretch=(None, Lines(faces)))
    u = fields_of(grid)
    operator = SurfaceIntegral("flux", ("u_x", "u_y"), faces_of_box(LOWER, UPPER))
    operator.check(grid)
    found = jax.jit(lambda *u: read(operator, Domain(grid), u, CHANNEL))(*u)
    x, y = (np.append(grid.coordinates(k, 0.0), grid.upper[k]) for k in range(2))
    u_x, u_y = (np.asarray(one) for one in u[:2])
    inside = np.ix_((x[:-1] >= LOWER[0]) & (x[1:] <= UPPER[0]), (y[:-1] >= LOWER[1]) & (y[1:] <= UPPER[1]))
    # What lies beyond the box is out of both; the last row, whose upper face is a wall, does not count here.
    out = (np.roll(u_x, -1, 0) - u_x) * np.diff(y) + (np.roll(u_y, -1, 1) - u_y) * np.diff(x)[:, None]
    # Sums of some forty numbers of order one in another order.
    assert float(found) == pytest.approx(out[inside].sum(), abs=1e-12)


@pytest.mark.slow
def test_integrals_of_scalars_weigh_by_area_and_interpolate_linearly():
    p = jnp.asarray(1 + GRID.coordinates(0, 0.5)[:, None] + 0 * GRID.coordinates(1, 0.5))
    fields = [p] * 4
    for x in (0.1, 0.8, 1.9):
        found = read(SurfaceIntegral("integral", ("p",), plane(GRID, 0, x)), Domain(GRID), fields, (False, True))
        assert float(found) == pytest.approx((1 + x) * 2, rel=1e-14)
    found = read(SurfaceIntegral("i", ("p",), faces_of_box((0.5, -0.3), (1.0, 0.4))), Domain(GRID), fields, CHANNEL)
    assert float(found) == pytest.approx((1.5 + 2.0) * 0.7 + 2 * 0.5 * 1.75, rel=1e-13)


def test_pairs_are_those_of_numpy_and_of_its_transforms():
    u_x, u_y, p, q = (np.asarray(u) for u in fields_of())
    fields, domain = fields_of(), Domain(GRID)
    found = read(OPERATORS["structure function along x"], domain, fields)
    expected = [((np.roll(u_x, -n, 0) - u_x) ** 3).mean() for n in (1, 3, 8, 16)]
    # Means of a hundred numbers of order one in another order; a whole period apart is no distance.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    found = read(OPERATORS["structure function across"], domain, fields)
    squares = [np.mean([((np.roll(u, -n, 1) - u) ** 2).mean() for u in (u_x, u_y)]) for n in (0, 2)]
    np.testing.assert_allclose(found, squares, rtol=0, atol=1e-13)
    p, q = p - p.mean(), q - q.mean()
    spectrum = np.conj(np.fft.fft(p, axis=0)) * np.fft.fft(q, axis=0)
    by_transform = np.fft.ifft(spectrum, axis=0).real.mean(axis=1) / 16 / (p.std() * q.std())
    found = read(OPERATORS["correlation"], domain, fields)
    np.testing.assert_allclose(found, by_transform[[0, 1, 5]], rtol=0, atol=1e-13)
    same = read(Correlation("r", ("p",), 0, (0, 4)), domain, fields)
    # A field beside itself: one; S2 = 2 (1 - correlation) variance.
    assert float(same[0]) == pytest.approx(1, rel=1e-14)
    increments = read(StructureFunction("s", ("p",), 0, (4,)), domain, fields)
    assert float(increments[0]) == pytest.approx(2 * (1 - float(same[1])) * p.var(), rel=1e-12)


@pytest.mark.slow
def test_lines_of_a_stretched_grid_count_with_what_they_stand_for():
    faces = np.asarray([0.0, 0.1, 0.5, 0.6, 1.0])
    grid, field, weights = Grid((9, 4), upper=(3.0, 1.0), stretch=(None, Lines(faces))), random((9, 4)), np.diff(faces)
    view, u = View(Domain(grid), (True, False), {"u": field}, dict, {"u": (0.5, 0.5)}), np.asarray(field)
    # Sums of a few dozen terms of order one: some hundred roundings.
    modes = np.abs(np.fft.fft(u, axis=0) / 9) ** 2 @ weights
    spectrum = VectorSpectrum("e", ("u",), 4, 0).read(view)
    np.testing.assert_allclose(spectrum, 0.5 * (modes[1:5] + modes[:4:-1]), rtol=1e-13)
    increments = ((np.roll(u, -2, axis=0) - u) ** 2).mean(0) @ weights
    np.testing.assert_allclose(StructureFunction("s", ("u",), 0, (2,)).read(view), [increments], rtol=1e-13)
    rest = u - u.mean(0) @ weights
    wanted = (rest * np.roll(rest, -2, axis=0)).mean(0) @ weights / ((rest**2).mean(0) @ weights)
    # A correlation of random numbers is about a tenth of their variance.
    np.testing.assert_allclose(Correlation("r", ("u",), 0, (2,)).read(view), [wanted], rtol=1e-12)
    with pytest.raises(ConfigurationError, match="along y: expected cells of one width along it"):
        VectorSpectrum("e", ("u",), 1, 1).check(grid)


@pytest.mark.slow
def test_a_field_that_does_not_vary_has_a_slope():
    flat = jnp.ones(GRID.shape)
    value, slope = jax.value_and_grad(lambda p: read(OPERATORS["correlation"], Domain(GRID), (p, p, p, p)).sum())(flat)
    assert float(value) == 0 and np.isfinite(slope).all()


test_what_does_not_fit_is_refused = refusals(
    {
        "two components of three": (
            lambda: SurfaceIntegral("flux", ("u_x", "u_y"), ()).check(Grid((4, 4, 4))),
            "SurfaceIntegral of 'flux' has 2 components for a grid of 3 axes; write one for each of x, y, z, or a "
            "single scalar.",
        ),
        "a plane outside": (
            lambda: SurfaceIntegral("flux", ("p",), plane(GRID, 1, 2.0)).check(GRID),
            "SurfaceIntegral of 'flux' has a face at y=2 outside of the domain; write -1 <= y <= 1.",
        ),
        "a wall": (
            lambda: read(OPERATORS["covariance"], Domain(GRID), fields_of(), CHANNEL),
            "Correlation of 'r' along y: expected a periodic axis.",
        ),
        "other places": (
            lambda: read(Correlation("r", ("p", "u_x"), 0, (1,)), Domain(GRID), fields_of()),
            "Correlation of 'p' and 'u_x', which lie at other places of a cell: expected fields at the same places, "
            "such as two at the centres.",
        ),
        "beyond the box": (
            lambda: StructureFunction("s", ("p",), 0, (1, 17)).check(GRID),
            "StructureFunction.cells=(1, 17): expected separations from 0 to the 16 cells along x.",
        ),
    }
)
