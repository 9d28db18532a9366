"""Scalars beside heat that act on a flow: against linear theory, against each other, their totals, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from configurations import changed
from exact_flows import advance

import simjax as sj
from simjax.config import validate
from simjax.core.boundary import Dirichlet, NoSlipWall, SlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.flow.boussinesq import Boussinesq, Params
from simjax.models.flow.passive_scalar import PassiveScalar
from simjax.stepping.simulate import Schedule

BOX = {
    "model": "boussinesq",
    "grid": {"shape": [16, 16]},
    "physics": {
        "viscosity": 0.01,
        "diffusivity": 0.01,
        "gravity": [0, -1],
        "scalar_diffusivity": [0.001, 0.02],
        "scalar_expansion": [-1, 0.5],
    },
    "boundaries": {"x": "no_slip", "y": "slip"},
    "initial": {"velocity": ["0", "0"], "temperature": "y", "scalars": ["sin(2*x + y)", "where(x<0.5, 1, 0)"]},
    "time": {"end": 0.4, "output_every": 0.2, "dt": 0.02},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}


def numbers(diffusivity, expansion, viscosity=0.7, heat=1.0, gravity=1.0):
    """Parameters with a thermal expansion of one and gravity along the second axis."""
    values = (viscosity, 0.0, heat, 1.0, 0.0)
    return Params(
        *map(jnp.asarray, values),
        jnp.asarray([0.0, -gravity]),
        scalar_diffusivity=jnp.asarray(diffusivity),
        scalar_expansion=jnp.asarray(expansion),
    )


def fastest_of(wavenumbers, viscosity, diffusivities, pulls):
    """The largest real growth rate of (s + nu K^2) K^2 / k^2 = -sum_i pull_i / (s + kappa_i K^2).

    pulls: gravity times expansion times the slope upwards. With two scalars a cubic (Stern 1960, Tellus 12, 172; Baines
    and Gill 1969, J. Fluid Mech. 37, 289).
    """
    across, upwards = wavenumbers
    square = across**2 + upwards**2
    decay = [-number * square for number in (viscosity, *diffusivities)]
    total = np.poly(decay)
    for number, pull in enumerate(pulls):
        others = [rate for place, rate in enumerate(decay) if place not in (0, number + 1)]
        total = np.polyadd(total, pull * across**2 / square * np.poly(others))
    return max(root.real for root in np.roots(total) if abs(root.imag) < 1e-9 * abs(root))


@pytest.mark.slow
def test_salt_fingers_grow_as_linear_theory_says():
    """Warm and salty above cool and fresh, between slip walls; salt diffuses at a tenth of the heat."""
    pulls, diffusivities, across = (8e3, -6e3), (1.0, 0.1), 6.0
    rate = fastest_of((across, np.pi), 0.7, diffusivities, pulls)
    assert rate > 1  # without the salt, or if it were light, the layer would be stable
    params = numbers([0.1], [pulls[1] / pulls[0]], gravity=pulls[0])
    errors = []
    for n in (8, 16):
        wall = [SlipWall(Dirichlet(value), (value,)) for value in (0.0, 1.0)]
        model = Boussinesq(Domain(Grid((n, n), upper=(2 * np.pi / across, 1.0))), [PERIODIC, tuple(wall)], scalars=1)
        wave = lambda at: jnp.cos(across * at[0]) * jnp.sin(np.pi * at[1])  # noqa: B023, E731
        x, y = model.domain.coordinates((0.0, 0.5))
        size, square = 1e-6, across**2 + np.pi**2
        u = -size * np.pi / across * jnp.sin(across * x) * jnp.cos(np.pi * y)
        center = model.domain.coordinates((0.5, 0.5))
        start = {
            "velocity": (u, size * wave(model.domain.coordinates((0.5, 0.0)))),
            "temperature": (center[1] - size / (rate + square) * wave(center),),
            "scalars": (center[1] - size / (rate + 0.1 * square) * wave(center),),
        }

        def speed(t, state, params):
            return {"size": jnp.sqrt(model.domain.sum(state.velocity[1] ** 2))}  # noqa: B023

        state = jax.jit(model.constrain)(0.0, 0.0, model.state_from(start, params), params)
        found = advance(model, params, state, Schedule(0.02, dt=0.001), frames=4, integrator="heun", observe=speed)
        sizes = np.asarray(found.observed["size"])
        errors.append(np.log(sizes[-1] / sizes[-2]) / 0.02 / rate - 1)
    # Second order; 16 cells, sixteen to a wave across and 32 to one upwards, leave 1 %.
    assert abs(errors[1]) < 1e-2 and 1.8 < np.log2(errors[0] / errors[1]) < 2.2, (errors, rate)


WALLS = [(NoSlipWall(), NoSlipWall()), (SlipWall(Dirichlet(1.0), (1.0, 1.0)), NoSlipWall())]


def moved(temperature, scalars, params, walls=WALLS, scheme="van_leer"):
    """The state after ten steps from a fluid at rest in a box of 12 x 12 cells, warm below, with these fields."""
    model = Boussinesq(Domain(Grid((12, 12))), walls, scheme, scalars=len(scalars))
    fields = {"velocity": (jnp.zeros((12, 12)),) * 2, "temperature": (temperature,), "scalars": tuple(scalars)}
    start = model.state_from(fields, params)
    return advance(model, params, start, Schedule(0.1, dt=0.01), integrator="kutta3").state


def warm():
    """A smooth field that sets the fluid in motion."""
    x, y = Domain(Grid((12, 12))).coordinates((0.5, 0.5))
    return jnp.sin(2 * x + y) + 0.0 * y


@pytest.mark.slow
def test_scalars_whose_expansions_cancel_leave_the_flow_at_rest():
    nothing, s = jnp.zeros((12, 12)), warm()
    at_rest = moved(nothing, (s, s), numbers([0.01, 0.01], [-3.0, 3.0], 0.02, 0.01), walls=[PERIODIC, PERIODIC])
    # Roundings of a buoyancy of order one, over 0.1; the least difference of diffusivity is seen.
    assert max(float(jnp.abs(u).max()) for u in at_rest.velocity) < 1e-15
    stirred = moved(nothing, (s, s), numbers([0.01, 0.02], [-3.0, 3.0], 0.02, 0.01), walls=[PERIODIC, PERIODIC])
    assert max(float(jnp.abs(u).max()) for u in stirred.velocity) > 1e-4


@pytest.mark.slow
def test_a_scalar_in_the_place_of_heat_drives_the_same_flow():
    nothing, s = jnp.zeros((12, 12)), warm()
    params = numbers([0.02, 0.3], [1.0, 0.0], viscosity=0.02, heat=0.02, gravity=30.0)
    by_heat = moved(s, (nothing, s), numbers([0.02, 0.02], [0.0, 0.0], viscosity=0.02, heat=0.02, gravity=30.0))
    by_scalar = moved(nothing, (s, s), params, [WALLS[0], (SlipWall(Dirichlet(0.0), (1.0, 1.0)), NoSlipWall())])
    # Thirty steps' roundings of values of order one.
    same = {"rtol": 0, "atol": 1e-13}
    for one, other in zip(by_heat.velocity, by_scalar.velocity, strict=True):
        assert float(jnp.abs(one).max()) > 0.1
        np.testing.assert_allclose(other, one, **same)
    np.testing.assert_allclose(by_scalar.scalars[0], by_heat.temperature, **same)
    np.testing.assert_allclose(by_heat.scalars[1], by_heat.temperature, **same)  # a passive one beside it
    assert float(jnp.abs(by_scalar.scalars[1] - by_heat.temperature).max()) > 0.1  # at its own diffusivity


@pytest.mark.slow
def test_a_passive_scalar_is_that_of_the_model_of_its_name():
    domain, walls = Domain(Grid((12, 16))), [PERIODIC, (SlipWall(), SlipWall())]
    x, y = domain.coordinates((0.0, 0.5))
    velocity = (jnp.cos(np.pi * y) + 0.0 * x, jnp.zeros((12, 16)))
    x, y = domain.coordinates((0.5, 0.5))
    s = jnp.sin(2 * np.pi * x) * y
    carried = PassiveScalar(domain, walls, "mc", turbulence="smagorinsky")
    own = carried.Params(*map(jnp.asarray, (0.01, 0.0, 0.003)))
    start = carried.state_from({"velocity": velocity, "concentration": (s,)}, own)
    wanted = advance(carried, own, start, Schedule(0.2, dt=0.02)).state
    model = Boussinesq(domain, walls, "mc", turbulence="smagorinsky", scalars=1)
    params = numbers([0.003], [0.0], viscosity=0.01)
    fields = {"velocity": velocity, "temperature": (jnp.zeros((12, 16)),), "scalars": (s,)}
    found = advance(model, params, model.state_from(fields, params), Schedule(0.2, dt=0.02)).state
    # The same operations but for the order in which a compiler forms them: roundings of ten steps.
    np.testing.assert_allclose(found.scalars[0], wanted.concentration, rtol=0, atol=1e-14)
    assert float(jnp.abs(found.scalars[0] - s).max()) > 0.05


@pytest.mark.slow
def test_totals_and_bounds_stay_and_what_passes_is_accounted_for(tmp_path):
    changes = {
        "physics.scheme": "van_leer",
        "output.root": str(tmp_path),
        "output.folder": str(tmp_path / "run"),
        "boundaries.y": {"lower": {"kind": "slip", "scalars": [0.5, 1]}, "upper": "no_slip"},
        "forcing": {"scalars": ["x*cos(t)", "0"]},
    }
    closed = sj.Simulation(validate(changed(BOX, {"physics.scheme": "van_leer"}))).run().ds
    # Roundings of the sums over 256 cells; the limited scheme keeps the second one, a step, within its bounds.
    for name in ("total_scalar_0", "total_scalar_1"):
        assert abs(float(closed[name][-1] - closed[name][0])) < 1e-14
    assert float(closed.maximum_scalar_1.max()) <= 1 + 1e-14 and float(closed.minimum_scalar_1.min()) >= -1e-14
    assert float(closed.kinetic_energy[-1]) > 1e-4
    balance = {"outputs": [{"balance": ["scalar_0", "scalar_1", "momentum_y"]}]}
    sj.Simulation(validate(changed(BOX, {**changes, **balance}))).run()
    with sj.open_output(tmp_path / "run", "balance") as dataset:
        last = dataset.load().isel(time=-1)
    for name in ("scalar_0", "scalar_1", "momentum_y"):
        assert abs(float(last[f"{name}_residual"])) < 1e-14, name
    assert float(last.scalar_0_made) > 0.1 and abs(float(last.scalar_1_in_y_lower)) > 0.01


def test_the_step_knows_the_largest_diffusivity():
    model = Boussinesq(Domain(Grid((12, 12))), WALLS, scalars=2)
    fields = {"velocity": (jnp.zeros((12, 12)),) * 2, "temperature": (warm(),), "scalars": (warm(), warm())}
    state = model.state_from(fields, None)
    by_scalar = model.stable_dt(state, numbers([0.1, 3.0], [1.0, 0.0], viscosity=0.1, heat=0.1))
    by_heat = model.stable_dt(state, numbers([0.1, 0.1], [1.0, 0.0], viscosity=0.1, heat=3.0))
    assert float(by_scalar) == float(by_heat) < 1 / 12**2 / 3


@pytest.mark.slow
def test_members_have_expansions_of_their_own():
    vary = {"ensemble.size": 2, "ensemble.vary": {"physics.scalar_expansion_0": {"values": [-1.0, -2.0]}}}
    both = sj.Simulation(validate(changed(BOX, vary))).run().ds
    alone = sj.Simulation(validate(changed(BOX, {"physics.scalar_expansion": [-2, 0.5]}))).run().ds
    # The same operations on two members at once.
    np.testing.assert_allclose(both.scalars_0.isel(member=1), alone.scalars_0, rtol=0, atol=1e-13)
    assert float(np.abs(both.scalars_0.isel(member=0) - alone.scalars_0).max()) > 1e-3


@pytest.mark.slow
def test_gradients_with_respect_to_diffusivity_and_expansion_of_a_scalar():
    s = warm()

    def loss(diffusivity, expansion):
        params = numbers(diffusivity, expansion, viscosity=0.02, heat=0.02, gravity=30.0)
        model = Boussinesq(Domain(Grid((12, 12))), WALLS, scalars=2)
        fields = {"velocity": (jnp.zeros((12, 12)),) * 2, "temperature": (jnp.zeros((12, 12)),), "scalars": (s, s)}
        start = model.state_from(fields, params)
        end = sj.integrate(model, sj.INTEGRATORS["heun"], params, start, dt=0.01, steps=5)
        return jnp.sum(end.scalars[1] ** 2) + jnp.sum(end.velocity[1] ** 2)

    here, along = (jnp.asarray([0.02, 0.05]), jnp.asarray([1.0, -0.3])), (jnp.asarray([0.3, 1.0]), jnp.ones(2))
    slope = sum(map(jnp.vdot, jax.jit(jax.grad(loss, (0, 1)))(*here), along))
    compiled = jax.jit(loss)
    steps = [compiled(*(a + h * d for a, d in zip(here, along, strict=True))) for h in (1e-5, -1e-5)]
    # Central differences of a smooth function: an error of 1e-10 of it, and roundings over the step.
    assert float(slope) == pytest.approx(float((steps[0] - steps[1]) / 2e-5), rel=1e-7)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"physics.scalar_diffusivity": [0.1]}, r"scalar_diffusivity = \[0.1\]: expected 2 number\(s\)"),
        ({"initial.scalars": None}, r"scalar_expansion = \[-1.0, 0.5\]: expected 0 number\(s\)"),
        ({"physics.scalar_diffusivity": [0.1, -1]}, r"scalar_diffusivity\[1\] = -1"),
        ({"boundaries.x": {"kind": "no_slip", "scalars": [1]}}, r"x.scalars = \[1\]: expected a list of 2"),
        ({"coefficients": {"solid": "x - 0.5"}}, "initial.scalars: expected a flow without bodies"),
        ({"forcing.scalars": ["1"]}, r"forcing.scalars = \['1'\]: expected a list of 2"),
    ],
)
def test_what_does_not_fit_is_told(changes, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        validate(changed(BOX, changes))


def test_a_side_of_a_constructed_model_gives_one_value_per_scalar():
    with pytest.raises(ConfigurationError, match=r"boundaries.y: scalars of 2 value\(s\) where 1 were expected"):
        Boussinesq(Domain(Grid((12, 12))), WALLS, scalars=1)
