"""The dynamic coefficient: the identity that it rests on, known answers, laminar flows, energy, and gradients."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK
from exact_flows import SLIP, STILL, TAU, largest, parameters, random_flow
from jax.sharding import PartitionSpec

import simjax as sj
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.flow.bodies.solids import Solid
from simjax.models.flow.incompressible import Incompressible, State
from simjax.ops import germano
from simjax.parallel import decompose, distribute, make_mesh

DYNAMIC = "dynamic_smagorinsky"
WEIGHTS = (1 / 6, 4 / 6, 1 / 6)


def noise(*shape, seed=0, count=1):
    return [jnp.asarray(u) for u in np.random.default_rng(seed).normal(size=(count, *shape))]


def rolled(u, axes):
    """The test filter of a periodic field."""
    for axis in axes:
        u = sum(w * np.roll(u, k, axis) for w, k in zip(WEIGHTS, (1, 0, -1), strict=True))
    return u


# ---------------------------------------------------------------- algebra


def test_germanos_identity():
    """Stress under both filters less the filtered stress under one is the stress of the flow that this one leaves."""
    velocity = noise(5, 6, 7, count=3)
    both, one = germano.resolved_stress(velocity, (0, 2)), germano.resolved_stress(velocity, (2,))
    left = germano.resolved_stress([germano.filtered(u, (2,), 3) for u in velocity], (0,))
    for part, stress in both.items():
        found = stress - germano.filtered(one[part], (0,), 3)
        np.testing.assert_allclose(found, left[part], rtol=0, atol=1e-14)  # roundings of numbers of order one
        u, v = velocity[part[0]], velocity[part[1]]
        product, left_u, left_v = (germano.filtered(x, (0, 2), 3) for x in (u * v, u, v))
        direct = product - left_u * left_v
        np.testing.assert_allclose(stress, direct, rtol=0, atol=1e-14)


def test_the_filter_is_as_wide_as_the_model_takes_it_to_be():
    """A box filter of the width D takes x^2 to x^2 + D^2 / 12; the model has D / h to the power 2 of filtered axes."""
    x = np.arange(5.0)
    moment = germano.filtered(jnp.asarray(x**2), (0,), 1) - x[1:-1] ** 2
    # Rounding of numbers of order ten.
    np.testing.assert_allclose(moment, 2**2 / 12, rtol=0, atol=1e-14)
    rates = np.array([-2.0, 1.0, 1.0])
    gradient = [[np.full((3, 3, 3), rate if i == j else 0.0) for j in range(3)] for i, rate in enumerate(rates)]
    filters = ((0, 1, 2), (0, 2))

    @functools.partial(jax.jit, compiler_options=QUICK)
    def stresses(gradient):
        return [germano.modelled_stress(gradient, axes) for axes in filters]

    for axes, found in zip(filters, stresses(gradient), strict=True):
        for i, rate in enumerate(rates):
            # 2 |S| S (1 - a) of a uniform strain, |S| = sqrt(12); a few roundings of it.
            expected = 2 * 12**0.5 * rate * (1 - 2 ** (2 * len(axes) / 3))
            np.testing.assert_allclose(found[i, i], expected, rtol=1e-14)


@pytest.mark.slow
def test_round_strain_has_the_length_that_algebra_says():
    """L = G G^T h^2 / 3, M = 2 |S| S (1 - 4): l^2 = h^2 / (18 sqrt(12)) with G = diag(-2, 1, 1), none if it is -G."""
    h, rates = 0.3, np.array([-2.0, 1.0, 1.0])
    places = np.meshgrid(*(h * np.arange(3.0),) * 3, indexing="ij")
    for sign, expected in ((1, h**2 / (18 * 12**0.5)), (-1, 0.0)):
        velocity = [jnp.asarray(sign * rate * x) for rate, x in zip(rates, places, strict=True)]
        gradient = [
            [jnp.full((3, 3, 3), sign * rate if i == j else 0.0) for j in range(3)] for i, rate in enumerate(rates)
        ]
        found = germano.squared_length(*germano.contractions(velocity, gradient, (0, 1, 2)))
        # Rounding of products of second differences; where energy would come back it is clipped to zero exactly.
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)


# ---------------------------------------------------------------- of flows


def by_definition(model, state):
    """l^2 in a periodic box, formed with rolled arrays as the papers have it."""
    ndim, h = model.domain.grid.ndim, model.domain.grid.spacing
    face = [np.asarray(u) for u in state.velocity]
    u = [0.5 * (a + np.roll(a, -1, i)) for i, a in enumerate(face)]
    axes = range(ndim)
    gradient = [
        [
            (np.roll(face[i], -1, i) - face[i]) / h[i]
            if i == j
            else (np.roll(u[i], -1, j) - np.roll(u[i], 1, j)) / (2 * h[j])
            for j in axes
        ]
        for i in axes
    ]
    strain = np.array([[0.5 * (gradient[i][j] + gradient[j][i]) for j in axes] for i in axes])
    size = np.sqrt(2 * np.sum(strain**2, axis=(0, 1)))
    wide = np.array([[rolled(s, axes) for s in row] for row in strain])
    wide_size = np.sqrt(2 * np.sum(wide**2, axis=(0, 1)))
    above = below = 0.0
    for i, j in itertools.product(axes, axes):
        stress = rolled(u[i] * u[j], axes) - rolled(u[i], axes) * rolled(u[j], axes)
        model_stress = 2 * (rolled(size * strain[i, j], axes) - 4 * wide_size * wide[i, j])
        above, below = above + np.mean(stress * model_stress), below + np.mean(model_stress**2)
    return above / below


def coefficient(model, state):
    return float(jax.jit(model.diagnostics, compiler_options=QUICK)(0.0, state, parameters())["mean_coefficient"])


@pytest.mark.slow
def test_coefficient_of_a_box_is_that_of_its_definition_whatever_the_flow_is_scaled_by():
    model = Incompressible(Domain(Grid((6, 8, 5), upper=(1.2, 1.6, 1.0))), [PERIODIC] * 3, turbulence=DYNAMIC)
    state = random_flow(model, seed=3)
    expected = by_definition(model, state) / 0.2**2
    assert expected < -0.001
    assert coefficient(model, state) == 0
    # The flow that runs backwards has the same stress, and the opposite of the model's.
    state = jax.tree.map(jnp.negative, state)
    assert coefficient(model, state) == pytest.approx(-expected, rel=1e-11)
    moved = State(tuple(3 * u + k for k, u in enumerate(state.velocity)))
    assert coefficient(model, moved) == pytest.approx(-expected, rel=1e-11)


@pytest.mark.parametrize("wave", [0.0, 1.0], ids=["uniform", "shear"])
@pytest.mark.slow
def test_flows_without_turbulence_have_no_eddies(wave):
    """A stream, and a shear that depends on the place along which it is filtered; both beside walls that slip."""
    grid = Grid((6, 8, 5))
    model = Incompressible(Domain(grid), [PERIODIC, SLIP, PERIODIC], turbulence=DYNAMIC)
    z = model.domain.coordinates((0.0, 0.5, 0.5))[2]
    u = jnp.broadcast_to(0.7 + wave * jnp.sin(TAU * z), grid.shape)
    state = State((u, jnp.zeros(grid.shape), jnp.full(grid.shape, 0.3)))
    found = jax.jit(model.diagnostics, compiler_options=QUICK)(0.0, state, parameters())
    assert float(found["mean_coefficient"]) < 1e-12 and float(found["mean_eddy_viscosity"]) < 1e-15


@pytest.mark.slow
def test_in_a_channel_the_coefficient_depends_on_the_distance_from_the_wall_and_takes_energy():
    stretch = (None, lines("formula", "s + 0.1*sin(2*pi*s)", 6, 0.0, 1.0), None)
    grid = Grid((5, 6, 4), stretch=stretch)
    model = Incompressible(Domain(grid), [PERIODIC, STILL, PERIODIC], turbulence=DYNAMIC)
    state = random_flow(model)

    @jax.jit
    def look(state):
        layouts = model.layouts_for(0.0, state)
        (length,) = model.momentum._squared_lengths(0.0, state.velocity, layouts)
        return length, model.rhs(0.0, state, parameters())

    length, slopes = look(state)
    lines_of = np.asarray(length)[:1, :, :1]
    np.testing.assert_array_equal(length, np.broadcast_to(lines_of, grid.shape))
    assert np.all(length >= 0) and np.std(lines_of) > 0.1 * np.mean(lines_of) > 0
    still = Incompressible(Domain(grid), [PERIODIC, STILL, PERIODIC])
    widths = grid.widths(1) / grid.mean_spacing[1]
    own = [widths, 0.5 * (widths + np.roll(widths, 1)), widths]

    def work(slopes):
        pairs = zip(own, state.velocity, slopes.velocity, strict=True)
        return sum(float(np.sum(w[None, :, None] * np.asarray(u * k))) for w, u, k in pairs)

    taken = work(slopes) - work(jax.jit(still.rhs)(0.0, state, parameters()))
    assert taken < -1e-3 * largest(*state.velocity) ** 2


@pytest.mark.slow
def test_the_coefficient_does_not_depend_on_the_decomposition():
    """Of a channel that is cut along the axis of the mean and across it."""
    mesh, grid, sides = make_mesh({"x": 2, "y": 4}), Grid((8, 12)), [PERIODIC, STILL]
    whole = Incompressible(Domain(grid), sides, turbulence=DYNAMIC)
    cut = Incompressible(decompose(grid, mesh), sides, turbulence=DYNAMIC)
    state = random_flow(whole)

    def look(state):
        return cut.diagnostics(0.0, state, parameters())["mean_coefficient"]

    run = distribute(look, mesh, in_specs=(cut.partition_specs(state, parameters())[0],), out_specs=PartitionSpec())
    expected = coefficient(whole, state)
    assert expected > 0
    # Sums of some ten terms in another order.
    assert float(jax.jit(run, compiler_options=QUICK)(state)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_gradient_agrees_with_differences():
    """Of a flow that is at rest in places, where square roots have no derivative."""
    grid = Grid((6, 8))
    model = Incompressible(Domain(grid), [PERIODIC, STILL], turbulence=DYNAMIC)
    shape = random_flow(model)
    still = jnp.asarray(np.arange(8) < 4)[None, :]

    def energy(size):
        state = State(tuple(jnp.where(still, 0, size * u + size**2 * jnp.roll(u, 1, 0)) for u in shape.velocity))
        slopes = model.rhs(0.0, state, parameters(0.01))
        return model.diagnostics(0.0, jax.tree.map(lambda u, k: u + 0.01 * k, state, slopes), parameters(0.01))[
            "kinetic_energy"
        ]

    found = jax.jit(jax.value_and_grad(energy), compiler_options=QUICK)
    at, by = jnp.asarray(0.7), 1e-5
    difference = (float(found(at + by)[0]) - float(found(at - by)[0])) / (2 * by)
    # A central difference: 1e-10 of truncation, and 1e-16 / 1e-5 of rounding.
    assert float(found(at)[1]) == pytest.approx(difference, rel=1e-6)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"boundaries": {"x": "no_slip", "y": "slip"}}, "expected a uniform periodic axis"),
        ({"coefficients": {"solid": "x"}}, "without bodies"),
        ({"physics": {"viscosity": 0.1, "turbulence": DYNAMIC, "turbulence_constant": 0.1}}, "leave the constant out"),
    ],
)
def test_what_the_dynamic_model_does_not_take(changes, sentence):
    sections = {
        "grid": {"shape": [8, 8]},
        "physics": {"viscosity": 0.1, "turbulence": DYNAMIC},
        "initial": {"velocity": ["1", "0"]},
        "time": {"end": 0.1, "output_every": 0.1},
    } | changes
    with pytest.raises(ConfigurationError, match=sentence):
        sj.configure("incompressible", **sections)


def test_models_of_python_refuse_the_same():
    domain = Domain(Grid((8, 8)))
    with pytest.raises(ConfigurationError, match="expected a uniform periodic axis"):
        Incompressible(domain, [STILL, SLIP], turbulence=DYNAMIC)
    with pytest.raises(ConfigurationError, match="without bodies"):
        Incompressible(domain, [PERIODIC, SLIP], solid=Solid(lambda t, x, y: x + y), turbulence=DYNAMIC)
