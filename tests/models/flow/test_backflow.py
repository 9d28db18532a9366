"""Fluid that comes in through open sides: what the pressure takes of its energy, so that vortices may cross them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from exact_flows import STILL, advance, parameters

import simjax as sj
from simjax.core.boundary import Inflow, SlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError, NumericalError
from simjax.grid import LOWER, UPPER, Grid
from simjax.models.flow.incompressible import Incompressible
from simjax.models.flow.sides.openings import STEEP, Opening, OpenSide
from simjax.stepping.simulate import Schedule

SLIP = (SlipWall(), SlipWall())
OPEN, HELD = OpenSide(), OpenSide(backflow=1.0)


def vortex(n, place, strength, width=0.02, stream=0.0):
    """The velocity of a vortex around `place` on the unit square, without divergence on the grid."""
    x = jnp.arange(n + 1) / n
    flow = strength * jnp.exp(-((x[:, None] - place[0]) ** 2 + (x[None] - place[1]) ** 2) / width)
    return stream + n * jnp.diff(flow, axis=1)[:-1], -n * jnp.diff(flow, axis=0)[:, :-1]


def begun(model, params, velocity):
    """A state that obeys walls and divergence."""
    state = model.state_from({"velocity": velocity}, params)
    for _ in range(2):
        state = jax.jit(model.constrain)(0.0, 0.0, state, params)
    return state


def energies(model, params, state, courant, steps):
    """Kinetic energy at the start and after every step, and the time at the end."""
    integrator = sj.INTEGRATORS["kutta3"]

    def energy(t, state):
        return model.diagnostics(t, state, params)["kinetic_energy"]

    def step(carry, _):
        t, state = carry
        dt = courant * model.stable_dt(state, params)
        after = integrator.step(model, t, dt, state, params)
        return (t + dt, after), energy(t + dt, after)

    (t, _), found = jax.jit(lambda s: jax.lax.scan(step, (jnp.zeros(()), s), length=steps))(state)
    return np.concatenate([[energy(0.0, state)], found]), float(t)


@pytest.mark.slow
@pytest.mark.parametrize("courant", [0.4, 0.9])
@pytest.mark.parametrize(
    ("sides", "place"),
    [
        ([(SlipWall(), HELD), SLIP], (0.8, 0.5)),
        ([SLIP, (HELD, SlipWall())], (0.5, 0.1)),
        ([(HELD, HELD)] * 2, (0.8, 0.9)),
    ],
    ids=["one side", "below", "all sides"],
)
def test_the_energy_of_a_vortex_at_an_open_side_falls_in_every_step(sides, place, courant):
    """At a Reynolds number of 30000, its speed over the viscosity, at one of 24 over cells of 0.03."""
    model, params = Incompressible(Domain(Grid((32, 32))), sides), parameters(1e-5)
    energy, end = energies(model, params, begun(model, params, vortex(32, place, 0.05)), courant, 250)
    assert end > 1.5  # the vortex has turned once and more
    assert np.all(np.diff(energy) < 0) and energy[-1] < 0.8 * energy[0], energy


@pytest.mark.slow
def test_without_it_the_energy_of_such_a_vortex_grows_without_bound():
    model, params = Incompressible(Domain(Grid((32, 32))), [(SlipWall(), OPEN), SLIP]), parameters(1e-5)
    energy, _ = energies(model, params, begun(model, params, vortex(32, (0.8, 0.5), 0.05)), 0.4, 600)
    assert not np.max(energy) < 10 * energy[0], np.max(energy) / energy[0]


@pytest.mark.slow
def test_a_flow_that_leaves_everywhere_does_not_notice():
    """To the last bit but one: the same numbers, in another program."""

    def end(out):
        model = Incompressible(Domain(Grid((24, 24))), [(Inflow((1.0, 0.0)), out), PERIODIC])
        params = parameters(1e-4)
        state = begun(model, params, vortex(24, (0.5, 0.5), 0.04, 0.045, 1.0))
        return advance(model, params, state, Schedule(0.6, dt=0.02), integrator="heun").state

    ends = [end(out) for out in (OPEN, HELD)]
    assert float(jnp.ptp(ends[0].outlets[0])) > 0.2  # a vortex is in the side
    for one, other in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("part", [1.0, 0.5])
@pytest.mark.parametrize("turned", [False, True], ids=["from below", "from above"])
def test_fluid_is_drawn_from_rest_as_bernoulli_has_it(part, turned):
    """Without friction du/dt = (p - part u^2 / 2) / L, so u = U tanh(U part t / (2 L)), U^2 = 2 p / part."""
    pressure, length = 0.5, 2.0
    ends = (OpenSide(pressure, part), OPEN)
    model = Incompressible(Domain(Grid((8, 4), (0.0, 0.0), (length, 1.0))), [ends[::-1] if turned else ends, SLIP])
    params, still = parameters(0.0), (jnp.zeros((8, 4)),) * 2
    end = advance(model, params, begun(model, params, still), Schedule(3.0, dt=0.05), integrator="rk4").state
    most = np.sqrt(2 * pressure / part)
    exact = most * np.tanh(3.0 * most * part / (2 * length)) * (-1 if turned else 1)
    # Fourth order: 0.05^4 of a rate of one; the side's own face is an unknown as well.
    np.testing.assert_allclose(end.velocity[0], exact, rtol=0, atol=1e-7)
    np.testing.assert_allclose(end.outlets[0], exact, rtol=0, atol=1e-7)


def entering(normal, along, side=UPPER):
    """`Opening.entering` where a velocity is the same all along an upper or lower side across x."""
    domain = Domain(Grid((4, 4)))
    model = Incompressible(domain, [(HELD, HELD), PERIODIC])
    velocity = (jnp.full((4, 4), normal), jnp.full((4, 4), along))
    one = Opening(0, side, 0.0, 1.0)
    return one.entering(domain, model.layouts, 0.0, velocity, jnp.full((1, 4), normal))[0, 0]


def test_no_energy_enters_and_none_is_taken_from_what_leaves_steeply():
    above, below = jax.jit(entering), jax.jit(lambda normal, along: entering(normal, along, LOWER))
    for angle in np.linspace(-np.pi / 2, np.pi / 2, 41):
        normal, along = 3 * np.sin(angle), 3 * np.cos(angle)
        taken, mirrored = float(above(normal, along)), float(below(-normal, along))
        assert taken == pytest.approx(mirrored, rel=1e-14)
        assert (4.5 - taken) * normal >= -1e-14  # what leaves, less what the pressure takes
        if normal <= 0:
            assert taken == pytest.approx(4.5, rel=1e-14)
        if np.sin(angle) >= STEEP:
            assert taken == 0
    assert 0 < float(entering(0.5 * STEEP, np.sqrt(1 - (0.5 * STEEP) ** 2))) == pytest.approx(0.25, rel=1e-14)


def test_it_is_differentiable_where_fluid_turns_around_and_at_rest():
    value, slope = jax.jit(entering), jax.jit(jax.grad(entering, argnums=(0, 1)))
    assert slope(0.0, 0.0) == (0.0, 0.0)
    h = 1e-6
    for normal in (-h, h, STEEP - h, STEEP + h):  # on both sides of where the form of the function changes
        along = np.sqrt(1 - normal**2)
        numerical = (value(normal + h / 4, along) - value(normal - h / 4, along)) / (h / 2)
        # Second derivatives are of the order of 6 / STEEP^2, and differences have 1e-16 / h.
        np.testing.assert_allclose(slope(normal, along)[0], numerical, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_gradients_through_a_side_that_fluid_enters_are_those_of_differences():
    def energy(numbers):
        part, pressure, strength = numbers
        sides = [(SlipWall(), OpenSide(pressure, part)), SLIP]
        model, params = Incompressible(Domain(Grid((12, 12))), sides), parameters(1e-3)
        state = model.state_from({"velocity": tuple(strength * u for u in vortex(12, (0.85, 0.5), 0.2))}, params)
        state = model.constrain(0.0, 0.0, state, params)
        dt, heun = 0.01, sj.INTEGRATORS["heun"]
        state, _ = jax.lax.scan(lambda s, k: (heun.step(model, dt * k, dt, s, params), None), state, jnp.arange(8.0))
        return model.diagnostics(8 * dt, state, params)["kinetic_energy"]

    at, energy = jnp.asarray([0.7, 0.1, 1.0]), jax.jit(energy)
    slope = jax.jit(jax.grad(energy))(at)
    step = 1e-5
    numerical = [(energy(at + step * e) - energy(at - step * e)) / (2 * step) for e in jnp.eye(3)]
    # A pressure that is the same all along the only open side moves nothing.
    assert abs(slope[1]) < 1e-12 and min(abs(slope[0]), abs(slope[2])) > 1e-3, slope
    np.testing.assert_allclose(slope, numerical, rtol=1e-6, atol=1e-10)


@pytest.mark.slow
def test_a_fluid_at_rest_around_a_body_has_the_pressure_of_its_open_sides(tmp_path):
    """The pressure that acts around bodies is held to that of the sides; once it grew by the step."""
    run = sj.configure(
        Incompressible,
        grid={"shape": [24, 12], "upper": [2, 1]},
        physics={"viscosity": 0.05},
        initial={"velocity": ["0", "0"]},
        precision="float64",
        boundaries={
            "x": {"lower": {"kind": "open", "pressure": 1.0}, "upper": {"kind": "open", "pressure": 1.0}},
            "y": "slip",
        },
        coefficients={"solid": "sqrt((x - 0.5)**2 + (y - 0.5)**2) - 0.15"},
        time={"end": 0.2, "output_every": 0.1, "dt": 0.01},
        output={"root": str(tmp_path)},
    )
    found = run.run().ds
    assert float(abs(found.velocity_x).max()) < 1e-12
    outside = np.abs(found.pressure.isel(time=-1).values[:, 12:] - 1)
    assert outside.max() < 1e-10, outside.max()


@pytest.mark.slow
def test_a_pressure_around_a_body_falls_to_that_of_the_open_side(tmp_path):
    """Far behind a body in a channel it is on the line of the friction of a flow without one, zero on the side."""
    run = sj.configure(
        Incompressible,
        grid={"shape": [64, 16], "upper": [4, 1]},
        physics={"viscosity": 0.2},
        initial={"velocity": ["6*y*(1 - y)", "0"]},
        precision="float64",
        boundaries={
            "x": {"lower": {"kind": "inflow", "velocity": ["6*y*(1 - y)", "0"]}, "upper": "open"},
            "y": "no_slip",
        },
        coefficients={"solid": "sqrt((x - 1)**2 + (y - 0.5)**2) - 0.2"},
        time={"end": 2.0, "output_every": 1.0, "courant": 0.8},
        output={"root": str(tmp_path)},
    )
    along = run.run().ds.pressure.isel(time=-1).values[8, -8:]
    exact = 12 * 0.2 * (4 - (np.arange(56, 64) + 0.5) / 16)  # dp/dx = -12 nu U / H^2
    # The grid's own friction is that of 16 cells, with an error of 1 / 16^2 of it.
    np.testing.assert_allclose(along, exact, rtol=0.02, atol=0.01)


@pytest.mark.long
def test_the_wake_of_a_body_at_re_3000_two_diameters_before_the_side_lives_with_it_alone(tmp_path):
    """Vortices that leave draw fluid back in at a quarter of the stream's speed; without it the run ends after ten."""

    def fastest(backflow):
        run = sj.configure(
            Incompressible,
            grid={"shape": [96, 96], "lower": [-3.5, -3], "upper": [2.5, 3]},
            physics={"viscosity": 1 / 3000, "turbulence": "smagorinsky"},
            initial={"velocity": ["1", "0.2*exp(-x**2 - y**2)"]},
            boundaries={
                "x": {
                    "lower": {"kind": "inflow", "velocity": ["1", "0"]},
                    "upper": {"kind": "open", "backflow": backflow},
                },
                "y": "slip",
            },
            coefficients={"solid": "sqrt(x**2 + (y - 0.02)**2) - 0.5"},
            time={"end": 25.0, "output_every": 1.0, "courant": 0.8},
            output={"root": str(tmp_path), "report": False, "animation": False, "fields": ["velocity"]},
        )
        u = run.run().ds.velocity_x.values
        assert u[:, :, -1].min() < -0.1  # fluid comes back in
        return np.abs(u).max()

    assert fastest(1) < 3  # 2.0
    with pytest.raises(NumericalError):
        fastest(0)


def test_a_negative_part_is_refused():
    with pytest.raises(ConfigurationError, match=r"OpenSide\.backflow=-1: expected a finite number at least 0"):
        OpenSide(backflow=-1.0)


def test_a_side_without_it_has_the_program_of_before():
    plain = Incompressible(Domain(Grid((8, 8))), [(SlipWall(), OpenSide(0.3)), STILL])
    assert plain.openings[0].backflow is None
