"""Media given as functions of place: means within cells along surfaces and across, what light makes of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sparse
from case import PERIODIC
from jax.sharding import PartitionSpec
from scipy.sparse.linalg import spsolve
from wave_steps import run

import simjax as sj
from simjax.core.boundary import SlipWall
from simjax.core.mappings import lines
from simjax.driver.programs.field_run import CompiledFieldRun
from simjax.driver.start.build import PARTS
from simjax.models.waves import wave_surfaces
from simjax.models.waves.wave_surfaces import LATTICES

CONDUCTOR = (SlipWall(), SlipWall())
ONE = jnp.asarray(1.0)


class Disc(eqx.Module):
    """The permittivity of a round body in a void."""

    inside: jax.Array
    radius: float = 0.3

    def __call__(self, x, y, *z):
        return jnp.where((x - 0.513) ** 2 + (y - 0.489) ** 2 < self.radius**2, self.inside, 1.0)


DISC = Disc(jnp.asarray(6.25))


def light(grid, polarisation="te", sides=PERIODIC):
    return sj.Maxwell(sj.Domain(grid), [sides] * grid.ndim, polarisation=polarisation)


@eqx.filter_jit
def averaged(model, permittivity):
    return model.averaged(model.Params(permittivity, ONE)).permittivity


@eqx.filter_jit
def mean(model, layout, of):
    return wave_surfaces.mean(model.domain, layout, of)


@pytest.mark.parametrize(
    ("normal", "sides"),
    [(0, CONDUCTOR), (1, PERIODIC), pytest.param(2, PERIODIC, marks=pytest.mark.slow)],
    ids=["x", "y", "z"],
)
def test_a_plane_along_the_grid_has_a_harmonic_mean_across_it_and_arithmetic_ones_along(normal, sides):
    """In cells of different widths; the share of each medium around every value is that of its cell."""
    ndim, place, (below, above) = max(2, normal + 1), 0.43, (2.0, 6.0)
    stretch = tuple(lines("formula", "s - 0.1*sin(2*pi*s)", 8, 0.0, 1.0) if k == normal else None for k in range(ndim))
    grid = sj.Grid(tuple(8 if k == normal else 4 for k in range(ndim)), stretch=stretch)
    model = light(grid, "te" if ndim == 2 else "full", sides)
    found = averaged(model, lambda *x: jnp.where(x[normal] < place, below, above))
    ends = np.append(grid.coordinates(normal, 0.0), 1.0)
    faces, middles = ends[:-1], (ends[1:] + ends[:-1]) / 2
    # Before the first face there is half of the last cell, or the image of half of the first.
    middles = np.concatenate([[middles[-1] - 1 if sides is PERIODIC else -middles[0]], middles])
    for axis, values in enumerate(found):
        across = axis == normal
        low, high = (faces, ends[1:]) if across else (middles[:-1], middles[1:])
        share = np.clip((place - low) / (high - low), 0, 1)
        if sides is PERIODIC and not across:
            share[0] = middles[1] / (middles[1] - middles[0])
        exact = 1 / (share / below + (1 - share) / above) if across else share * below + (1 - share) * above
        line = np.moveaxis(np.asarray(values), normal, 0)
        # A plane is found to half the distance of two places; the derivative by the share is at most 4.
        np.testing.assert_allclose(
            line,
            np.broadcast_to(exact.reshape((-1,) + (1,) * (ndim - 1)), line.shape),
            rtol=0,
            atol=4 / (2 * LATTICES[ndim][0]),
        )


@pytest.mark.parametrize(
    ("ndim", "typical", "most"), [(2, 0.03, 0.25), pytest.param(3, 0.05, 0.35, marks=pytest.mark.slow)]
)
def test_an_oblique_plane_is_weighed_with_the_squares_of_its_normal(ndim, typical, most):
    """Angles are off by 2.5 degrees, and 12 at most, in a plane, in space by 5 and 22: sines of twice that."""
    normal = np.array([0.8, 0.37, 0.48])[:ndim] / np.linalg.norm([0.8, 0.37, 0.48][:ndim])
    # Cells of three shapes, in which the plane has another normal than in numbers of cells.
    model = light(sj.Grid((24, 30) if ndim == 2 else (12, 16, 10)), "te" if ndim == 2 else "full", CONDUCTOR)

    def plane(*x):
        return jnp.where(sum(n * (u - 0.5) for n, u in zip(normal, x, strict=True)) < 0, 1.0, 5.0)

    for axis, (layout, values) in enumerate(zip(model.electric_layouts, averaged(model, plane), strict=True)):
        along, across = (np.asarray(mean(model, layout, f)) for f in (plane, lambda *x: 1 / plane(*x)))
        inner = tuple(slice(2, -2) for _ in range(ndim))  # walls mirror the plane
        mixed = (across - 1 / along)[inner] > 0.1
        weights = ((1 / values - 1 / along)[inner] / (across - 1 / along)[inner])[mixed]
        assert weights.size > 8
        assert np.abs(weights - normal[axis] ** 2).mean() < typical
        assert np.abs(weights - normal[axis] ** 2).max() < most


def permittivity_of_an_array(electric, n):
    """Of periodic cells with these values on edges along x and y, for a static field along x, over that of the void."""
    step = sparse.csr_matrix((np.ones(n), (range(n), np.roll(range(n), -1))), shape=(n, n)) - sparse.identity(n)
    one = sparse.identity(n)
    gradient = n * sparse.vstack([sparse.kron(step, one), sparse.kron(one, step)]).tocsr()
    values, outer = np.concatenate([np.ravel(u) for u in electric]), np.repeat([1.0, 0.0], n * n)
    inner = gradient[:, 1:]  # the potential is known but for a constant
    potential = spsolve((inner.T @ sparse.diags(values) @ inner).tocsc(), -inner.T @ (values * outer))
    return np.sum(values[: n * n] * (outer + inner @ potential)[: n * n]) / n**2


def test_a_static_field_across_a_round_body():
    """Rayleigh's series for a square array of cylinders (1892, Phil. Mag. 34, 481), in which two terms are enough."""
    share, contrast = np.pi * 0.3**2, (6.25 + 1) / (6.25 - 1)
    fourth = 0.305827 * share**4 * contrast / (contrast**2 - 1.402958 * share**8)
    exact = 1 + 2 * share / (contrast - share - fourth - 0.013362 * share**8 / contrast)
    errors = {}
    for n in (16, 32):
        model = light(sj.Grid((n, n)))
        plain = [mean(model, layout, DISC) for layout in model.electric_layouts]
        errors[n] = [permittivity_of_an_array(e, n) / exact - 1 for e in (averaged(model, DISC), plain)]
    # What is left out couples the components of E: a part of first order, a fifth of that without means across.
    for n, most in ((16, 0.01), (32, 0.005)):
        assert abs(errors[n][0]) < most and abs(errors[n][0]) < 0.25 * abs(errors[n][1])


@pytest.mark.parametrize("polarisation", ["tm", "te"])
def test_energy_stays_in_a_body_of_a_formula(polarisation):
    grid = sj.Grid((10, 8))
    model = light(grid, polarisation, CONDUCTOR)
    params = jax.jit(lambda disc: model.averaged(model.Params(disc, lambda x, y: 1 + 0.5 * jnp.sin(3 * x + y))))(DISC)
    rng = np.random.default_rng(1)
    fields = {
        name: tuple(jnp.asarray(rng.normal(size=grid.shape)) for _ in layouts)
        for name, layouts in model.component_layouts().items()
    }
    start = model.constrain(0.0, 0.0, model.state_from(fields, params), params)
    dt = 0.999 * model.stable_dt(start, params)
    _, energy = run(model, params, start, dt, 60, lambda t, state: model.energy(t, state, params))
    # Rounding: sums of some hundred numbers over 60 steps.
    np.testing.assert_allclose(energy, energy[0], rtol=1e-13)


def test_means_do_not_depend_on_the_decomposition():
    grid = sj.Grid((16, 16), stretch=(lines("formula", "s - 0.1*sin(2*pi*s)", 16, 0.0, 1.0), None))
    mesh = sj.make_mesh({"x": 2, "y": 4})

    def means(domain):
        model = sj.Maxwell(domain, [PERIODIC, CONDUCTOR], polarisation="te")
        return lambda disc: model.averaged(model.Params(disc, disc, disc))

    spec = PartitionSpec("x", "y")
    cut = sj.Maxwell.Params((spec, spec), (spec,), (spec, spec))
    found = sj.distribute(means(sj.decompose(grid, mesh)), mesh, in_specs=PartitionSpec(), out_specs=cut)(DISC)
    whole = jax.jit(means(sj.Domain(grid)))(DISC)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
        # The same places; sums of them may be fused in other ways.
        np.testing.assert_allclose(one, other, rtol=1e-14)


class Slope(eqx.Module):
    """A permittivity that rises along x."""

    strength: jax.Array

    def __call__(self, x, y):
        return 1.5 + self.strength * x


@pytest.mark.parametrize(
    "given", [DISC, Slope(jnp.asarray(0.0)), Slope(jnp.asarray(0.7))], ids=["disc", "flat", "slope"]
)
def test_derivatives_by_numbers_of_a_formula(given):
    """Also where a medium varies by nothing, and has no normal."""
    model = light(sj.Grid((6, 8)), sides=CONDUCTOR)
    weights = [jnp.asarray(np.random.default_rng(k).normal(size=(6, 8))) for k in range(2)]
    number = jax.tree.leaves(given)[0]

    @jax.jit
    @jax.value_and_grad
    def total(value):
        found = averaged(model, eqx.tree_at(lambda f: jax.tree.leaves(f)[0], given, value))
        return sum(jnp.sum(w * u) for w, u in zip(weights, found, strict=True))

    step = 1e-5
    difference = float(total(number + step)[0] - total(number - step)[0]) / (2 * step)
    # The central difference's rounding.
    assert float(total(number)[1]) == pytest.approx(difference, rel=1e-7, abs=1e-8)


@pytest.mark.slow
def test_formulas_of_a_configuration_are_averaged_once():
    medium = {"permittivity": "where(x < edge, 2, 6)", "permeability": "1 + noise(2)**2", "conductivity": 0.1}
    simulation = sj.configure(
        "maxwell_te",
        grid={"shape": [12, 16]},
        parameters={"edge": 0.43},
        coefficients=medium,
        initial={},
        time={"end": 0.1, "output_every": 0.1},
        precision="float64",
    )
    # Noise is known at centres alone, and a constant is a number.
    assert simulation.params.permeability.shape == (12, 16) and simulation.params.conductivity.shape == ()
    once = CompiledFieldRun(simulation.config).files[PARTS].tree.media
    expected = averaged(light(sj.Grid((12, 16))), lambda x, y: jnp.where(x < 0.43, 2.0, 6.0))
    assert once.keys() == {"permittivity"}
    for one, other in zip(once["permittivity"], expected, strict=True):
        # The same places, sums of which may be fused in other ways.
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_a_formula_that_is_not_positive_is_found():
    model = light(sj.Grid((8, 8)))
    params = model.Params(lambda x, y: jnp.where(x < 0.3, -0.5, 4.0), ONE)
    (wrong,) = model.unphysical(None, params).values()
    # Cells in which there is some of it; beside them edges may see it.
    assert np.asarray(wrong)[:3].all() and not np.asarray(wrong)[4:7].any()
