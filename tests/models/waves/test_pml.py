"""Absorbing layers: what they send back, against the same waves in a box so large that nothing returns in time."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from wave_steps import run

from simjax.core.boundary import Neumann, PeriodicSide, SlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import FACE, Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.waves import acoustic, maxwell
from simjax.models.waves.pml import AbsorbingLayer, AbsorbingSide, OpenFace
from simjax.stepping.simulate import integrate

LAYER = AbsorbingSide()


class Pulse(eqx.Module):
    """A pulse without mean, with waves of mostly 1 / frequency."""

    frequency: float

    def __call__(self, t):
        a = np.pi * self.frequency * t - 1.2 * np.pi
        return a * jnp.exp(-a * a)


def _nothing(t, state):
    return None


@dataclasses.dataclass(frozen=True)
class Setting:
    """A box of unit cells with a source at one end, and receivers up to the edge of the layers."""

    shape: tuple[int, ...]
    source: tuple[float, ...]
    receivers: tuple[tuple[float, ...], ...]
    steps: int
    margin: int


PLANE = Setting(
    (60, 20),
    (8.3, 10.2),
    ((8.5, 15.5), (30.5, 10.5), (30.5, 19.0), (56.5, 18.5), (56.5, 1.5), (59.0, 19.5)),
    190,
    70,
)
BOX = Setting((24, 12, 12), (6.3, 6.2, 6.1), ((6.5, 10.5, 6.5), (20.5, 10.5, 6.5), (21.5, 10.5, 10.5)), 100, 36)


def acoustic_model(order):
    def build(domain, sides, cells):
        return acoustic.Acoustic(domain, sides, order=order, layer_cells=cells)

    return build, lambda source, signal, receivers: acoustic.Params(
        jnp.asarray(1.0), jnp.asarray(1.0), source, (signal,), receivers
    )


def maxwell_model(polarisation):
    def build(domain, sides, cells):
        return maxwell.Maxwell(domain, sides, polarisation=polarisation, layer_cells=cells)

    return build, lambda source, signal, receivers: maxwell.Params(
        jnp.asarray(1.0), jnp.asarray(1.0), None, source, (signal,), receivers
    )


def traces(make, setting, wavelength, cells, side):
    """What the receivers record in the box with `cells` more cells on every side."""
    build, parameters = make
    shape = tuple(n + 2 * cells for n in setting.shape)
    grid = Grid(shape, (-float(cells),) * len(shape), tuple(float(n + cells) for n in setting.shape))
    model = build(Domain(grid), [(side, side)] * len(shape), cells)
    params = parameters(jnp.asarray([setting.source]), Pulse(1 / wavelength), jnp.asarray(setting.receivers))
    fields = {name: tuple(jnp.zeros(shape) for _ in layouts) for name, layouts in model.component_layouts().items()}
    dt = 0.9 * float(model.stable_dt(None, params))
    state = model.state_from(fields, params)
    return np.asarray(run(model, params, state, dt, setting.steps, lambda t, s: model.receive(t, s, params))[1])


def reflected(make, setting, wavelength, *thicknesses):
    """The largest error of any trace over its largest value, for layers of so many cells."""
    free = traces(make, setting, wavelength, setting.margin, SlipWall())
    found = [traces(make, setting, wavelength, cells, LAYER) for cells in thicknesses]
    return [(np.abs(trace - free).max(0) / np.abs(free).max(0)).max() for trace in found]


@pytest.mark.parametrize(
    ("make", "wavelength"),
    [
        pytest.param(acoustic_model(2), 10.0, id="acoustic 2"),
        pytest.param(acoustic_model(4), 30.0, id="acoustic 4"),
        pytest.param(maxwell_model("tm"), 30.0, id="maxwell tm"),
        pytest.param(maxwell_model("te"), 10.0, id="maxwell te"),
    ],
)
@pytest.mark.slow
def test_less_than_a_ten_thousandth_comes_back_in_two_dimensions(make, wavelength):
    """Also beside the layer, and 75 degrees from its normal."""
    assert reflected(make, PLANE, wavelength, 12)[0] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [acoustic_model(2), acoustic_model(4), maxwell_model("full")], ids=["acoustic 2", "acoustic 4", "maxwell"]
)
def test_less_than_a_ten_thousandth_comes_back_in_three_dimensions(make):
    assert reflected(make, BOX, 12.0, 12)[0] < 1e-4


@pytest.mark.slow
def test_thicker_layers_reflect_less():
    errors = reflected(acoustic_model(2), PLANE, 10.0, 6, 12, 18)
    assert errors[0] > 10 * errors[1] > 30 * errors[2]


def test_the_layer_is_idle_in_the_interior():
    """Outside the layers a memory neither changes nor acts."""
    domain = Domain(Grid((30, 20), (0.0, 0.0), (3.0, 2.0)))
    layer = AbsorbingLayer(domain, 5, [(LAYER, LAYER), (PeriodicSide(), PeriodicSide())])
    profile = layer.profile(0, FACE, jnp.asarray(1.0))
    inside = np.asarray(profile.weight)[:, 0] == 0
    faces = np.asarray(layer.lines(jnp.arange(30.0)[:, None], 0))[:, 0]
    np.testing.assert_array_equal(faces, [*range(5), *range(25, 30)])
    # Faces 1 to 4 below and 26 to 29 above; the wall face itself is at rest.
    np.testing.assert_array_equal(faces[~inside], [1, 2, 3, 4, 26, 27, 28, 29])
    assert all(not np.asarray(line)[inside].any() for line in (profile.rate, profile.gain))
    assert layer.profile(1, FACE, jnp.asarray(1.0)) is None


@pytest.mark.parametrize("blocks", [2, 5])
def test_thin_blocks_do_the_same_as_the_slabs_of_a_thick_one(blocks):
    layer = AbsorbingLayer(Domain(Grid((20,))), 7, [(LAYER, LAYER)])
    thin = AbsorbingLayer(Domain(Grid((20,)), [("x", blocks)]), 7, [(LAYER, LAYER)])
    assert layer.slabs(0) == ((0, 7), (13, 20))
    assert thin.slabs(0) == ((0, 20 // blocks),)


@pytest.mark.parametrize("sides", [(LAYER, LAYER), (LAYER, SlipWall()), (SlipWall(), LAYER)])
@pytest.mark.parametrize("axis", [0, 1])
def test_adding_to_lines_is_the_transpose_of_reading_them(axis, sides):
    around = [(SlipWall(), SlipWall())] * 2
    around[axis] = sides
    layer = AbsorbingLayer(Domain(Grid((9, 11))), 3, around)
    draw = np.random.default_rng(0)
    u, more = (jnp.asarray(draw.normal(size=(9, 11))) for _ in range(2))
    lines = layer.lines(u, axis)
    weights = jnp.asarray(draw.normal(size=lines.shape))
    sums = layer.added(more, weights, axis)
    # Sums of a hundred products of either sign, in double precision.
    assert float(jnp.sum(u * sums)) == pytest.approx(float(jnp.sum(u * more) + jnp.sum(lines * weights)), abs=1e-13)
    # What is read of the whole field and of the lines comes back to the field, and likewise for adding.
    read = jax.vjp(lambda u: layer.read(u, axis), u)[1]((more, weights))[0]
    np.testing.assert_array_equal(read, sums)
    back = jax.vjp(lambda u, lines: layer.added(u, lines, axis), more, weights)[1](u)
    np.testing.assert_array_equal(back[0], u)
    np.testing.assert_array_equal(back[1], lines)


@pytest.mark.parametrize("shape", [(16, 14), pytest.param((7, 14), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["acoustic", pytest.param("maxwell", marks=pytest.mark.slow)])
def test_loops_carry_the_lines_of_layers_alone(name, shape):
    """Whole memories give the same digits, and keep what is in them elsewhere."""
    kind = {"acoustic": acoustic.Acoustic, "maxwell": maxwell.Maxwell}[name]
    model = kind(Domain(Grid(shape)), [(LAYER, LAYER)] * 2, layer_cells=3)
    draw = np.random.default_rng(0)
    properties = (jnp.asarray(1 + draw.random(shape)) for _ in range(2))
    params = model.Params(*properties)
    fields = {
        field: tuple(jnp.asarray(draw.normal(size=shape)) for _ in layouts)
        for field, layouts in model.component_layouts().items()
    }
    state = jax.tree.map(lambda u: u + 1.0 if u.ndim else u, model.state_from(fields, params))
    condensed = model.condensed(state)
    cells = [sum(u.size for u in jax.tree.leaves(one)) for one in (state, condensed)]
    assert cells[1] < cells[0]
    jax.tree.map(np.testing.assert_array_equal, model.expanded(condensed, state), state)
    dt = 0.5 * float(model.domain.min(model.stable_dt(state, params)))
    scheme, whole = INTEGRATORS["leapfrog"], state

    @jax.jit
    def step(state):
        return scheme.step(model, 0.0, dt, state, params)

    for _ in range(3):
        whole = step(whole)
    found = integrate(model, scheme, params, state, dt=dt, steps=3)
    moved = [float(jnp.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (found, state)), strict=True)]
    assert min(moved) > 1e-6  # every field and every memory
    for a, b in zip(*map(jax.tree.leaves, (found, whole)), strict=True):
        # Compiled in a loop and alone, sums of products are rounded in other ways.
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_waves_do_not_grow_in_the_layers():
    """Thousands of steps with noise everywhere, in a rough medium: the energy only falls."""
    domain = Domain(Grid((26, 30)))
    model = acoustic.Acoustic(domain, [(LAYER, LAYER)] * 2, layer_cells=6)
    rng = np.random.default_rng(0)
    params = acoustic.Params(jnp.asarray(1 + rng.random((26, 30))), jnp.asarray(1 + rng.random((26, 30))))
    noise = jnp.asarray(rng.normal(size=(26, 30)))
    fields = {"pressure": (noise,), "velocity": (jnp.zeros((26, 30)),) * 2}
    state = model.state_from(fields, params)
    dt = 0.99 * float(domain.min(model.stable_dt(state, params)))
    energies = [float(model.energy(0.0, state, params))]
    for _ in range(3):
        state, _ = run(model, params, state, dt, 2000, _nothing)
        energies.append(float(model.energy(0.0, state, params)))
    # Waves are gone at once; what is left is a nearly uniform pressure, which is at rest between the walls.
    assert energies[3] < energies[2] < energies[1] < 0.25 * energies[0]


def test_an_open_face_is_mirrored_evenly():
    edge = jnp.asarray([1.0, 2.0, 3.0])
    places = {"axis": 0, "offset": FACE, "spacing": (1.0,), "t": 0.0, "positions": None}
    np.testing.assert_array_equal(OpenFace().ghost(edge, side=0, width=2, **places), [2.0, 3.0])
    np.testing.assert_array_equal(OpenFace().ghost(edge, side=1, width=2, **places), [0.0, 1.0])
    # At the lower side it is what a side without slope does to a face.
    np.testing.assert_array_equal(Neumann().ghost(edge, side=0, width=2, **places), [2.0, 3.0])


def test_layers_that_fill_the_grid_are_refused():
    with pytest.raises(
        ConfigurationError, match=r"layer_cells = 12: grid.shape\[0\]=24 leaves nothing between the layers"
    ):
        AbsorbingLayer(Domain(Grid((24,))), 12, [(LAYER, LAYER)])


def test_the_derivative_of_a_step_in_the_layer():
    """Decay rates hang on the mean speed, smoothly: checked against central differences."""
    model = acoustic.Acoustic(Domain(Grid((20,))), [(LAYER, LAYER)], layer_cells=6)
    rng = np.random.default_rng(1)
    pressure, direction = (jnp.asarray(rng.normal(size=20)) for _ in range(2))

    @jax.jit
    @jax.value_and_grad
    def square(e):
        params = acoustic.Params(1.5 + e * direction, jnp.asarray(1.0))
        state = model.state_from({"pressure": (pressure,), "velocity": (0 * pressure,)}, params)
        return jnp.sum(run(model, params, state, 0.02, 10, lambda t, s: None)[0].pressure ** 2)

    step = 1e-5
    difference = float(square(step)[0] - square(-step)[0]) / (2 * step)
    # Truncation step^2, rounding 1e-16 / step.
    assert float(square(0.0)[1]) == pytest.approx(difference, rel=1e-7)
