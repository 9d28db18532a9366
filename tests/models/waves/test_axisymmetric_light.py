"""Light in (r, z): modes of a round cavity, energy, the longest step, currents on the axis and in rings, refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK
from scipy.special import j0, j1, jn_zeros
from wave_steps import run

import simjax as sj
from simjax.core.boundary import SlipWall
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.waves.maxwell import Maxwell, Params
from simjax.models.waves.pml import AbsorbingSide

CONDUCTOR = (SlipWall(), SlipWall())
LAYERS = (AbsorbingSide(), AbsorbingSide())
GLASS = Params(jnp.asarray(1.7), jnp.asarray(0.6))
TM, TE = (jn_zeros(order, 1)[0] for order in (0, 1))
SPEED = 1 / np.sqrt(1.7 * 0.6)


def started(model, params, electric=None):
    """At rest but for an electric field."""
    fields = {
        name: tuple(jnp.zeros(model.domain.grid.shape) for _ in layouts)
        for name, layouts in model.component_layouts().items()
    }
    return model.state_from(fields if electric is None else fields | {"electric": electric}, params)


# Each with E_z, E_r or E_phi of a cavity of radius and height one, by (r, z) of every component, and its frequency.
def tm010(z, r, k=TM):
    return (0 * r[0] * z[0], j0(k * r[1]) + 0 * z[1]), k * SPEED


def tm011(z, r, k=TM, m=np.pi):
    return (m / k * j1(k * r[0]) * np.sin(m * z[0]), j0(k * r[1]) * np.cos(m * z[1])), np.hypot(k, m) * SPEED


def te011(z, r, k=TE, m=np.pi):
    return (j1(k * r[0]) * np.sin(m * z[0]),), np.hypot(k, m) * SPEED


def mode_error(polarisation, mode, n):
    model = Maxwell(Domain(Grid((n, n), axisymmetric=True)), [CONDUCTOR] * 2, polarisation=polarisation)
    places = [[np.asarray(x) for x in model.domain.coordinates(layout.offset)] for layout in model.electric_layouts]
    fields, frequency = mode(r=[place[0] for place in places], z=[place[1] for place in places])
    begun = tuple(map(jnp.asarray, fields))
    steps = 5 * n // 2
    end, _ = run(model, GLASS, started(model, GLASS, begun), 1 / steps, steps, lambda t, state: t)
    return max(float(jnp.abs(u - v * np.cos(frequency)).max()) for u, v in zip(end.electric, begun, strict=True))


@pytest.mark.parametrize(("polarisation", "mode"), [("te", tm010), ("te", tm011), ("tm", te011)])
@pytest.mark.slow
def test_modes_of_a_round_cavity_oscillate_at_second_order(polarisation, mode):
    """Of cylinders of the unit radius, ended by conductors: frequencies c j / R of zeros j of J0 and J1."""
    errors = [mode_error(polarisation, mode, n) for n in (16, 32)]
    print(errors)
    assert errors[1] < 0.005  # of one
    assert 1.85 < np.log2(errors[0] / errors[1]) < 2.15  # the largest error, so also on the axis


def rough(shape, seed):
    return jnp.asarray(1 + np.random.default_rng(seed).random(shape))


@pytest.mark.parametrize(("polarisation", "inner"), [("te", 0.0), ("tm", 0.0), ("te", 0.5)])
@pytest.mark.slow
def test_energy_stays_in_a_rough_medium(polarisation, inner):
    """With cells that differ in width, from the axis and around an inner conductor."""
    shape, lower, upper = (8, 6), (inner, 0.0), (1.0, 1.5)
    stretch = [lines("formula", "s - 0.3*s*s*(1 - s)", n, a, b) for n, a, b in zip(shape, lower, upper, strict=True)]
    grid = Grid(shape, lower, upper, stretch, axisymmetric=True)
    model = Maxwell(Domain(grid), [CONDUCTOR] * 2, polarisation=polarisation)
    params = Params(rough(shape, 0), rough(shape, 1))
    start = started(model, params, tuple(rough(shape, 2 + k) for k in range(len(model.electric_layouts))))
    start = model.constrain(0.0, 0.0, start, params)
    dt = float(model.stable_dt(start, params))
    end, energy = run(model, params, start, dt, 60, lambda t, state: model.energy(t, state, params))
    # Sums of a hundred terms over 60 steps, at the longest step, which keeps the energy positive.
    np.testing.assert_allclose(energy, energy[0], rtol=1e-12)
    assert all(float(jnp.abs(u - v).max()) > 0.1 for u, v in zip(end.electric, start.electric, strict=True))


def test_energy_is_that_of_the_whole_body():
    """Of a constant field along the axis in a uniform medium: eps E^2 / 2 times the volume inside the outer faces."""
    model = Maxwell(Domain(Grid((8, 4), upper=(2.0, 1.5), axisymmetric=True)), [CONDUCTOR, PERIODIC], polarisation="te")
    still = jnp.zeros((8, 4))
    energy = float(model.energy(0.0, started(model, GLASS, (still, still + 3.0)), GLASS))
    # The last half cell belongs to the outer wall, where E vanishes.
    np.testing.assert_allclose(energy, 0.5 * 1.7 * 9 * np.pi * 1.875**2 * 1.5, rtol=1e-13)
    assert model.measures()["energy"].units == "J"


@pytest.mark.parametrize(("polarisation", "least"), [("te", 0.97), ("tm", 0.99)])
@pytest.mark.slow
def test_the_longest_step_is_just_below_that_of_the_operator(polarisation, least):
    """The operator as a matrix; E on the axis has the highest frequency."""
    model = Maxwell(
        Domain(Grid((8, 4), upper=(0.8, 0.4), axisymmetric=True)), [CONDUCTOR, PERIODIC], polarisation=polarisation
    )
    count = len(model.electric_layouts)

    def accelerated(electric):
        state, prepared = started(model, GLASS, tuple(electric)), model.prepare(GLASS)
        state = model.constrain(0.0, 0.0, state, GLASS)
        moved = model.drift(0.0, 1.0, model.kick(0.0, 1.0, state, GLASS, prepared), GLASS, prepared)
        return jnp.stack(model.constrain(0.0, 0.0, moved, GLASS).electric) - jnp.stack(state.electric)

    matrix = jax.jit(jax.jacfwd(accelerated), compiler_options=QUICK)(jnp.zeros((count, 8, 4)))
    frequency = np.sqrt(np.linalg.eigvals(-np.asarray(matrix).reshape(32 * count, -1)).real.max())
    assert least < float(model.stable_dt(None, GLASS)) * frequency / 2 <= 1


class Steady(eqx.Module):
    """A current that does not change."""

    def __call__(self, t):
        return 2.0 + 0 * t


@pytest.mark.parametrize(("polarisation", "radius", "length"), [("te", 0.0, 1.0), ("tm", 0.5, np.pi)])
@pytest.mark.slow
def test_a_current_does_the_work_of_its_field(polarisation, radius, length):
    """dW/dt = -q E along an element on the axis; along a ring E times its length, 2 pi r."""
    model = Maxwell(Domain(Grid((8, 12), axisymmetric=True)), [CONDUCTOR] * 2, polarisation=polarisation)
    place = jnp.asarray([[radius, 0.37]])
    params = Params(GLASS.permittivity, GLASS.permeability, None, place, (Steady(),), place)
    dt = 0.02

    def look(t, state):
        return model.energy(t, state, params), model.receive(t, state, params)[0]

    _, (energy, field) = run(model, params, started(model, params), dt, 30, look)
    work = -2.0 * length * dt * np.cumsum(0.5 * (np.asarray(field)[1:] + np.asarray(field)[:-1]))
    # The point lies on the faces across r, so that spreading and recording are adjoint: to rounding.
    np.testing.assert_allclose(np.asarray(energy)[1:] - energy[0], work, rtol=1e-11)


class Current(eqx.Module):
    """The current of a dipole moment exp(-s^2), s = (t - 0.35) / 0.1."""

    def __call__(self, t):
        return jax.grad(moment)(t)


def moment(t):
    return jnp.exp(-(((t - 0.35) / 0.1) ** 2))


@pytest.mark.slow
def test_an_element_on_the_axis_shines_as_hertz_s_dipole():
    """Before anything comes back from the conductor: E_z is -(p / R^3 + p' / (c R^2) + p'' / (c^2 R)) / (4 pi eps) in
    its plane, and 2 (p / R^3 + p' / (c R^2)) / (4 pi eps) on the axis."""
    n, steps, eps = 60, 120, 0.8
    grid = Grid((n, 2 * n), (0.0, -1.0), (1.0, 1.0), axisymmetric=True)
    model = Maxwell(Domain(grid), [CONDUCTOR, LAYERS], polarisation="te")
    receivers = jnp.asarray([[0.5, 0.0], [0.0, 0.5]])
    params = Params(jnp.asarray(eps), jnp.asarray(1 / eps), None, jnp.zeros((1, 2)), (Current(),), receivers)
    _, found = run(model, params, started(model, params), 0.95 / steps, steps, lambda t, s: model.receive(t, s, params))
    found, R = np.asarray(found), 0.5
    times = 0.95 / steps * jnp.arange(1.0, steps + 1) - R
    p, first, second = (jax.vmap(f)(times) for f in (moment, Current(), jax.grad(Current())))
    near = p / R**3 + first / R**2
    exact = np.stack([-(near + second / R), 2 * near], axis=1) / (4 * np.pi * eps)
    error = np.abs(found - exact).max(axis=0) / np.abs(exact).max(axis=0)
    print(error)
    assert error.max() < 0.09  # of second order in the six cells of the pulse: 0.08 here, 0.019 of twice as many


LIGHT = {
    "grid": {"shape": [16, 32], "lower": [0, -1], "axisymmetric": True},
    "boundaries": {"x": "conductor", "y": "absorbing"},
    "initial": {"electric": ["0", "0"], "magnetic": "0"},
    "time": {"end": 1.0, "output_every": 1.0},
    "physics": {"layer_cells": 4},
}
RING = {"sources": [{"position": [0.0, 0], "signal": "sin(t)"}]}


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        ("maxwell_te", {"physics": {"order": 4}}, "physics.order = 4: expected a Cartesian grid"),
        (
            "maxwell_te",
            {"boundaries": {"x": {"lower": "conductor", "upper": "absorbing"}, "y": "conductor"}},
            "boundaries.x.upper = absorbing: expected conductor on an axisymmetric grid",
        ),
        ("maxwell_te", {"physics": {"sources": [{"position": [0.3, 0], "signal": "sin(t)"}]}}, "points lie on the"),
        ("maxwell_te", {"physics": RING | {"along": "x"}}, "physics.along = x: .*; write y"),
        (
            "maxwell_tm",
            {"initial": {"electric": "0", "magnetic": ["0", "0"]}, "physics": RING},
            "expected a radius above 0, as sources are rings",
        ),
    ],
    ids=["order", "layer", "off the axis", "across", "ring"],
)
def test_what_light_does_not_take_is_told(model, change, message):
    with pytest.raises(ConfigurationError, match=message):
        sj.configure(model, **(LIGHT | change))


def test_python_callers_are_told_too():
    domain = Domain(Grid((16, 16), axisymmetric=True))
    with pytest.raises(ConfigurationError, match="boundaries.x.upper = absorbing: expected conductor"):
        Maxwell(domain, [(SlipWall(), AbsorbingSide()), CONDUCTOR], layer_cells=4)
    place, signals = jnp.asarray([[0.3, 0.0]]), (jnp.sin,)
    params = Params(jnp.asarray(1.0), jnp.asarray(1.0), None, place, signals)
    off, ring = (Maxwell(domain, [CONDUCTOR] * 2, polarisation=name) for name in ("te", "tm"))
    assert bool(off.unphysical(None, params)["a source off the axis"].all())
    assert not bool(ring.unphysical(None, params)["a ring on the axis"].any())
    with pytest.raises(ConfigurationError, match="physics.along = x: expected a Cartesian grid, .*; write y"):
        Maxwell(domain, [CONDUCTOR] * 2, polarisation="te", along="x").prepare(params)
