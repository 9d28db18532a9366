"""Sponges: what returns from one, what it leaves alone, and that it is the same on any mesh and differentiable."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configurations import refusal

import simjax as sj
from simjax.config import validate
from simjax.driver.start.build import build_model, initial_fields_and_state, named_values
from simjax.grid import LOWER, UPPER, Grid
from simjax.models.sponge import Layer
from simjax.stepping.simulate import Schedule, simulate

SCALAR = {
    "model": "advection_diffusion",
    "grid": {"shape": [20, 16], "upper": [2, 1]},
    "precision": "float64",
    "physics": {"diffusivity": 0.0, "velocity": [0.0, 0.0]},
    "boundaries": {"x": {"lower": "no_slip", "upper": "outflow"}, "y": "periodic"},
    "initial": {"concentration": "1 + x*y"},
    "parameters": {"strength": 3.0, "width": 0.7},
    "sponge": {
        "x": {"upper": {"width": "width", "strength": "strength"}},
        "y": {"lower": {"width": 0.25, "strength": "2*strength"}, "upper": {"width": 0.25, "strength": 4}},
        "towards": {"concentration": "0.5*x*x"},
    },
    "time": {"end": 0.5, "output_every": 0.5, "dt": 0.01, "integrator": "rk4"},
}
GAS = {
    "model": "compressible",
    "grid": {"shape": [24, 16], "upper": [1.5, 1]},
    "precision": "float64",
    "physics": {"reconstruction": "mc"},
    "boundaries": {"x": {"lower": "slip", "upper": "outflow"}, "y": "periodic"},
    "initial": {
        "density": "1 + 0.2*exp(-20*((x - 1)**2 + (y - 0.4)**2))",
        "velocity": ["0.3", "0.1*sin(2*pi*y)"],
        "pressure": "(1 + 0.2*exp(-20*((x - 1)**2 + (y - 0.4)**2)))/1.4",
    },
    "sponge": {
        "x": {"upper": {"width": 0.5, "strength": 15}},
        "towards": {"density": 1, "velocity": ["0.3", "0"], "pressure": "1/1.4"},
    },
    "time": {"end": 0.2, "output_every": 0.2, "courant": 0.4},
}
LINE = GAS | {
    "grid": {"shape": [24], "upper": [1.5]},
    "boundaries": {"x": {"lower": "slip", "upper": "outflow"}},
    "initial": {"density": "1 + 0.1*sin(9*x)", "velocity": ["0.1*cos(7*x)"], "pressure": "1/1.4 + 0.05*sin(8*x)"},
    "sponge": {
        "x": {"upper": {"width": 0.5, "strength": 15}},
        "towards": {"density": 1, "velocity": ["0.3"], "pressure": "1/1.4"},
    },
}
FLOW = {
    "model": "incompressible",
    "grid": {"shape": [24, 16], "upper": [1.5, 1]},
    "precision": "float64",
    "physics": {"viscosity": 1e-3},
    "boundaries": {
        "x": {"lower": {"kind": "inflow", "velocity": ["1", "0"]}, "upper": {"kind": "open", "backflow": 1}},
        "y": {"lower": "slip", "upper": "no_slip"},
    },
    "initial": {"velocity": ["1 + 0.5*sin(2*pi*y)", "sin(3*x)"]},
    "sponge": {"x": {"upper": {"width": 0.5, "strength": 15}}, "towards": {"velocity": ["1", "0.2*t"]}},
    "time": {"end": 0.1, "output_every": 0.1, "dt": 0.01},
}


def changed(base, **sections):
    """A configuration with some sections in the place of others."""
    return {**base, **sections}


def rate_of(x, y):
    """sigma of `SCALAR`, written out."""
    right = np.clip((x - 1.3) / 0.7, 0, 1) ** 2
    below, above = (np.clip(1 - distance / 0.25, 0, 1) ** 2 for distance in (y, 1 - y))
    return 3.0 * right + 6.0 * below + 4.0 * above


def configured(base, root=None, **sections):
    """A run of a configuration from Python."""
    output = {} if root is None else {"output": {"root": str(root), "report": False, "animation": False}}
    given = {name: value for name, value in base.items() if name != "model"} | sections | output
    return sj.configure(base["model"], **given)


# ------------------------------------------------------------------ what it does


@pytest.mark.parametrize("side", [LOWER, UPPER])
def test_the_rate_grows_with_the_square_of_the_depth(side):
    grid, layer = Grid((4,), (-1.0,), (3.0,)), Layer(0, side, jnp.asarray(2.0), jnp.asarray(5.0))
    distance = jnp.asarray([0.0, 0.5, 1.0, 2.0, 3.5])
    position = -1 + distance if side == LOWER else 3 - distance
    np.testing.assert_allclose(layer.rate(position, grid), [5, 5 * 0.5625, 5 * 0.25, 0, 0], rtol=1e-14)


@pytest.mark.slow
def test_a_scalar_at_rest_decays_to_what_it_is_drawn_to(tmp_path):
    """c = c_0 + (c(0) - c_0) exp(-sigma t); layers add up in corners."""
    end = configured(SCALAR, tmp_path).run().ds.concentration.isel(time=-1)
    x, y = end.x.values, end.y.values[:, None]
    far = 0.5 * x * x
    exact = far + (1 + x * y - far) * np.exp(-0.5 * rate_of(x, y))
    assert np.exp(-0.5 * rate_of(x, y)).min() < 0.05
    # Fourth order: (sigma dt)^5 / 120 in each of 50 steps, with sigma up to 8.
    np.testing.assert_allclose(end.values, exact, rtol=0, atol=1e-6)


def prepared(given):
    """Model, parameters and first state of a configuration, on one device."""
    config = validate(given)
    values = {name: jnp.asarray(value) for name, value in named_values(config).items()}
    domain = sj.Domain(Grid(config.grid.shape, config.grid.lower, config.grid.upper))
    model, params = build_model(config, domain, values, {})
    return model, params, initial_fields_and_state(config, model, params, values, 0, {}, jnp.float64)[1]


def sponge_alone(given):
    """What a sponge adds to the tendency."""
    model, params, state = prepared(given)
    plain, own, _ = prepared({name: value for name, value in given.items() if name != "sponge"})
    both = jax.jit(lambda s: (model.rhs(0.3, s, params), plain.rhs(0.3, s, own)))(state)
    return state, jax.tree.map(jnp.subtract, *both)


@pytest.mark.slow
def test_components_on_faces_have_the_rate_of_their_faces():
    state, added = sponge_alone(FLOW)
    for u, found, far, offset in zip(state.velocity, added.velocity, (1.0, 0.06), (0.0, 0.5), strict=True):
        x = (np.arange(24)[:, None] + offset) / 16
        exact = -15 * np.clip((x - 1) / 0.5, 0, 1) ** 2 * (u - far)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-12)
    assert jnp.abs(added.velocity[0]).max() > 1


@pytest.mark.slow
def test_density_velocity_and_pressure_of_a_gas_each_have_the_rate():
    """What is kept are mass, momentum and energy; in the state that it is drawn to a gas does not change."""
    _, added = sponge_alone(changed(LINE, initial={"density": "1", "velocity": ["0.3"], "pressure": "1/1.4"}))
    assert max(float(jnp.abs(u).max()) for u in jax.tree.leaves(added)) < 1e-14
    state, added = sponge_alone(LINE)
    rate, u = 15 * np.clip(((np.arange(24) + 0.5) / 16 - 1) / 0.5, 0, 1) ** 2, state.momentum[0] / state.density
    pressure = 0.4 * (state.energy - 0.5 * state.density * u * u)
    falls = -rate * (state.density - 1), -rate * (u - 0.3), -rate * (pressure - 1 / 1.4)
    np.testing.assert_allclose(added.density, falls[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(added.momentum[0], u * falls[0] + state.density * falls[1], rtol=0, atol=1e-13)
    energy = falls[2] / 0.4 + 0.5 * u * u * falls[0] + state.density * u * falls[1]
    np.testing.assert_allclose(added.energy, energy, rtol=0, atol=1e-12)
    assert min(float(jnp.abs(u).max()) for u in jax.tree.leaves(added)) > 0.01


@pytest.mark.slow
def test_sound_comes_back_from_a_wall_behind_a_sponge_as_weak_as_said(tmp_path):
    """By exp(-2 strength width / (3 c)) = 0.018: measured 0.0165; 0.89 without."""

    def pressure(length, **sections):
        pulse = "0.001*exp(-((x - 0.5)/0.05)**2)"
        tube = {
            "model": "compressible",
            "grid": {"shape": [128 * length], "upper": [length]},
            "precision": "float64",
            "initial": {"density": f"1 + {pulse}", "velocity": [pulse], "pressure": f"1/1.4 + {pulse}"},
            "boundaries": {"x": "slip"},
            "time": {"end": 1.6, "output_every": 1.6, "courant": 0.4},
            **sections,
        }
        return configured(tube, tmp_path).run().ds.pressure.isel(time=-1).values[:80]

    far, bare = pressure(2), pressure(1)
    towards = {"density": 1, "velocity": ["0"], "pressure": "1/1.4"}
    soft = pressure(1, sponge={"x": {"upper": {"width": 0.3, "strength": 20}}, "towards": towards})
    assert np.abs(bare - far).max() > 0.8e-3
    assert 0.012e-3 < np.abs(soft - far).max() < np.exp(-2 * 20 * 0.3 / 3) * 1e-3


# ------------------------------------------------------------------ steps


@pytest.mark.slow
def test_its_rate_shortens_the_steps():
    model, params, state = prepared(LINE)
    plain, own, _ = prepared({name: value for name, value in LINE.items() if name != "sponge"})
    limits = [float(m.stable_dt(state, p)) for m, p in ((model, params), (plain, own))]
    assert 1 / limits[0] == pytest.approx(1 / limits[1] + 15, rel=1e-12)
    model, params, state = prepared(SCALAR)  # nothing else limits the step; rates of two axes add up
    assert float(model.stable_dt(state, params)) == pytest.approx(1 / 9, rel=1e-12)


@pytest.mark.slow
def test_a_strength_far_above_that_of_the_cells_stays_stable(tmp_path):
    """Three hundred times the rate at which sound crosses a cell; explicit steps of that rate would end at once."""
    strong = {**GAS["sponge"], "x": {"upper": {"width": 0.5, "strength": 5e3}}}
    end = configured(GAS, tmp_path, sponge=strong).run().ds.isel(time=-1)
    assert np.abs(end.pressure.values[:, -4:] - 1 / 1.4).max() < 1e-3


# ------------------------------------------------------------------ any mesh, gradients, other terms


@pytest.mark.slow
@pytest.mark.parametrize("base", [SCALAR, GAS, FLOW], ids=["scalar", "gas", "flow"])
def test_it_is_the_same_on_any_mesh(base, tmp_path):
    one, four = (configured(base, tmp_path, mesh=mesh).run().ds for mesh in ({"x": 1}, {"x": 2, "y": 2}))
    for name in one.data_vars:
        if {"x", "y"} <= {d[0] for d in one[name].dims} and "time" in one[name].dims:
            # Sums of the pressure solve are taken in another order.
            np.testing.assert_allclose(four[name], one[name], rtol=0, atol=1e-11, err_msg=name)


@pytest.mark.slow
def test_gradients_by_width_strength_and_what_it_draws_to_are_those_of_differences():
    given = changed(
        LINE,
        parameters={"strength": 15.0, "width": 0.5, "far": 1.0},
        sponge={
            "x": {"upper": {"width": "width", "strength": "strength"}},
            "towards": {"density": "far", "velocity": ["0.3"], "pressure": "far/1.4"},
        },
    )
    config = validate(given)
    known = {name: jnp.asarray(value) for name, value in named_values(config).items()}
    domain = sj.Domain(Grid(config.grid.shape, config.grid.lower, config.grid.upper))

    def loss(numbers):
        values = known | dict(zip(("strength", "width", "far"), numbers, strict=True))
        model, params = build_model(config, domain, values, {})
        state = initial_fields_and_state(config, model, params, values, 0, {}, jnp.float64)[1]
        end = simulate(model, sj.INTEGRATORS["euler"], params, state, Schedule(0.05, dt=0.01), frames=1).state
        return jnp.sum(end.energy**2) / end.energy.size

    at, loss = jnp.asarray([15.0, 0.5, 1.0]), jax.jit(loss)
    slope, steps = jax.jit(jax.grad(loss))(at), jnp.asarray([1e-4, 1e-6, 1e-6])
    numerical = [(loss(at + h * e) - loss(at - h * e)) / (2 * h) for h, e in zip(steps, jnp.eye(3), strict=True)]
    assert jnp.abs(slope).min() > 1e-6
    np.testing.assert_allclose(slope, numerical, rtol=1e-5)


@pytest.mark.slow
def test_a_closure_acts_beside_it():
    closed = changed(SCALAR, closure={"concentration": "2*concentration"})
    model, params, state = prepared(closed)
    plain, own, _ = prepared({name: value for name, value in closed.items() if name not in ("sponge", "closure")})
    found = model.rhs(0.0, state, params).concentration - plain.rhs(0.0, state, own).concentration
    x, y = ((np.arange(20) + 0.5)[:, None] / 10, (np.arange(16) + 0.5) / 16)
    exact = 2 * (1 + x * y) - rate_of(x, y) * (1 + x * y - 0.5 * x * x)
    np.testing.assert_allclose(found, exact, rtol=1e-12)


# ------------------------------------------------------------------ configurations


def test_a_configuration_is_read_as_it_is_written():
    for base in (SCALAR, GAS, FLOW):
        config = validate(base)
        assert validate(config.write()) == config
    assert validate(changed(GAS, sponge=None)).sponge is None
    layer, towards = {"width": 0.2, "strength": 3}, {"concentration": 0}
    one, two = ({"x": sides, "towards": towards} for sides in (layer, {"lower": layer, "upper": layer}))
    assert validate(changed(SCALAR, sponge=one)) == validate(changed(SCALAR, sponge=two))


LAYER = {"width": 0.2, "strength": 30}
WAVES = {
    "model": "acoustic",
    "grid": {"shape": [16]},
    "initial": {"pressure": "0"},
    "sponge": {"x": LAYER, "towards": {"pressure": 0}},
    "time": {"end": 1.0, "output_every": 1.0},
}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (WAVES, "model=acoustic has no tendency that a term can be added to; write absorbing sides"),
        (changed(GAS, sponge={"towards": {"density": 1}}), "sponge has no layer: expected one beside a side"),
        (changed(GAS, sponge={"x": LAYER}), "sponge.towards"),
        (changed(GAS, sponge={"x": {"width": 0.2}, "towards": {"density": 1}}), "sponge.x.strength is missing"),
        (
            changed(GAS, sponge={"x": {"upper": {"width": -1, "strength": 3}}, "towards": {"density": 1}}),
            "a number > 0",
        ),
        (changed(GAS, sponge={"x": {"uper": LAYER}, "towards": {"density": 1}}), "did you mean"),
        (changed(GAS, sponge={"z": LAYER, "towards": {"density": 1}}), "sponge.z"),
        (changed(GAS, sponge={"x": LAYER, "towards": {"velocity": 0}}), "a list of 2 formula(s)"),
        (changed(GAS, sponge={"x": {"width": "x", "strength": 3}, "towards": {"density": 1}}), "sponge.x.width"),
        (changed(GAS, outputs=[{"balance": "mass"}]), "expected no section sponge"),
    ],
)
def test_what_cannot_be_is_refused(given, words):
    assert words in refusal(given)


@pytest.mark.slow
def test_checks_of_what_is_conserved_are_not_shown(tmp_path):
    """A closed box of gas keeps its mass and energy, one with a sponge does not claim to."""

    def told(**sections):
        closed = changed(GAS, boundaries={"x": "slip", "y": "periodic"}, **sections)
        run = sj.configure(
            "compressible",
            **{name: value for name, value in closed.items() if name != "model"},
            output={"root": str(tmp_path), "animation": False},
        ).run()
        return (
            [check.name for check in run.checks] if hasattr(run, "checks") else (run.folder / "report.html").read_text()
        )

    assert "is conserved" in str(told(sponge=None)) and "is conserved" not in str(told())
