"""Flow driven by heat against linear theory and a reference solution, and what stands still."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from exact_flows import advance

import simjax as sj
from simjax.core.boundary import Dirichlet, Neumann, NoSlipWall, SlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.flow.boussinesq import Boussinesq, Params
from simjax.stepping.simulate import Schedule

WARM, COLD = Dirichlet(0.5), Dirichlet(-0.5)


def numbers(rayleigh, prandtl=0.71):
    """Parameters in units of the height, the diffusivity and the difference of temperature."""
    values = (prandtl, 0.0, 1.0, 1.0, 0.0)
    return Params(*map(jnp.asarray, values), jnp.asarray([0.0, -1.0]) * (rayleigh * prandtl))


def layer(n, wall):
    """A layer of n cells between a warm lower and a cold upper wall, one wave long of the wavenumber 3.117."""
    grid = Grid((2 * n, n), upper=(2 * np.pi / 3.117, 1.0))
    return Boussinesq(Domain(grid), [PERIODIC, (wall(scalar=WARM), wall(scalar=COLD))])


def rolls(model, across, warm):
    """Rolls: v = across cos(k x) sin(pi y), T = 0.5 - y + warm cos(k x) sin(pi y), without divergence."""
    k, box = 3.117, model.domain
    x, y = box.coordinates((0.0, 0.5))
    u = -across * np.pi / k * jnp.sin(k * x) * jnp.cos(np.pi * y)
    x, y = box.coordinates((0.5, 0.0))
    v = across * jnp.cos(k * x) * jnp.sin(np.pi * y)
    x, y = box.coordinates((0.5, 0.5))
    temperature = 0.5 - y + warm * jnp.cos(k * x) * jnp.sin(np.pi * y)
    return {"velocity": (u, v), "temperature": (temperature,)}


def growth(model, params, start, times, dt):
    """The rate at which the roll's vertical velocity grows between two times, tiny all the while."""

    def size(t, state, params):
        return {"size": jnp.sqrt(model.domain.sum(state.velocity[1] ** 2))}

    every = times[1] - times[0]
    state = jax.jit(model.constrain)(0.0, 0.0, model.state_from(start, params), params)
    schedule = Schedule(every, dt=dt)
    found = advance(model, params, state, schedule, frames=round(times[1] / every), integrator="heun", observe=size)
    sizes = np.asarray(found.observed["size"])
    return float(np.log(sizes[-1] / sizes[-2]) / every)


@pytest.mark.slow
def test_rolls_between_free_walls_grow_as_linear_theory_says():
    """(s + kappa K^2) (s + nu K^2) = beta g dT k^2 / K^2, K^2 = k^2 + pi^2 (Rayleigh 1916, Phil. Mag. 32, 529)."""
    rayleigh, prandtl, k = 2000.0, 0.71, 3.117
    square = k**2 + np.pi**2
    middle, apart = 0.5 * (1 + prandtl) * square, 0.5 * (1 - prandtl) * square
    rate = np.sqrt(apart**2 + rayleigh * prandtl * k**2 / square) - middle
    across = 1e-6
    warm = across / (rate + square)
    rates = []
    for n in (8, 16):
        model = layer(n, SlipWall)
        rates.append(growth(model, numbers(rayleigh), rolls(model, across, warm), (0.01, 0.02), 0.04 / n**2))
    errors = np.abs(np.asarray(rates) / rate - 1)
    # Second order; the rate is a difference of larger ones, so that 16 cells leave half a percent.
    assert 1.8 < np.log2(errors[0] / errors[1]) < 2.2 and errors[1] < 1e-2, (rates, rate)


@pytest.mark.slow
def test_convection_between_rigid_walls_begins_at_the_critical_rayleigh_number():
    """1707.762 at the wavenumber 3.117 (Chandrasekhar 1961, table 3), where the growth rate is zero."""
    found = []
    for n in (12, 24):
        model = layer(n, NoSlipWall)
        rates = []
        for rayleigh in (1650.0, 1800.0):
            start = rolls(model, 1e-6, 1e-7)  # other modes die away as exp(-40 t)
            rates.append(growth(model, numbers(rayleigh), start, (0.3, 0.4), 0.1 / n**2))
        found.append(1650 - rates[0] * 150 / (rates[1] - rates[0]))
    errors = np.asarray(found) / 1707.762 - 1
    # The rate is not quite linear in the Rayleigh number: 1e-4 of it over this range.
    assert abs(errors[1]) < 1e-2 and 1.7 < np.log2(errors[0] / errors[1]) < 2.3, found


@pytest.mark.slow
def test_a_cavity_heated_at_its_side():
    """Rayleigh number 1e4, Prandtl number 0.71: mean Nusselt number 2.243, velocities 16.178 and 19.617 in units of
    kappa / L on the middle lines (de Vahl Davis 1983, Int. J. Numer. Methods Fluids 3, 249: converged to 1e-3)."""
    found = []
    for n in (16, 32):
        walls = [(NoSlipWall(scalar=WARM), NoSlipWall(scalar=COLD)), (NoSlipWall(), NoSlipWall())]
        model, params = Boussinesq(Domain(Grid((n, n))), walls), numbers(1e4)
        start = {"velocity": (jnp.zeros((n, n)),) * 2, "temperature": (jnp.zeros((n, n)),)}
        end = advance(model, params, model.state_from(start, params), Schedule(0.4, dt=0.2 / n**2), integrator="heun")
        temperature, (u, v) = end.state.temperature, end.state.velocity
        nusselt = float(jnp.mean(0.5 - temperature[0]) * 2 * n)
        # Highest speeds by a parabola through the largest sample and its neighbours.
        found.append((nusselt, peak(u[n // 2]), peak(v[:, n // 2])))
    errors = np.asarray(found) / (2.243, 16.178, 19.617) - 1
    # Second order: a factor of four, and 32 cells within 1.5 %; the speeds are within 0.5 % at both.
    assert 3 < errors[0, 0] / errors[1, 0] < 5 and errors[1, 0] < 1.5e-2, (found, errors)
    assert np.all(np.abs(errors[1, 1:]) < 5e-3), (found, errors)


def peak(line):
    """The maximum of the parabola through the largest value and its neighbours."""
    line = np.asarray(line)
    i = int(line.argmax())
    slope, bend = 0.5 * (line[i + 1] - line[i - 1]), line[i + 1] - 2 * line[i] + line[i - 1]
    return float(line[i] - 0.5 * slope**2 / bend)


@pytest.mark.parametrize("stretch", [None, sj.Lines(np.linspace(0, 1, 9) ** 1.4)], ids=["uniform", "stretched"])
@pytest.mark.slow
def test_a_fluid_in_layers_stands_still(stretch):
    """Its pressure balances what warms it, at any strength: cold below warm is stable, and so is rest."""
    grid = Grid((12, 8), stretch={} if stretch is None else {"y": stretch})
    model = Boussinesq(Domain(grid), [PERIODIC, (NoSlipWall(scalar=COLD), SlipWall(scalar=Neumann(1.0)))])
    params = numbers(1e5)
    _, y = model.domain.coordinates((0.5, 0.5))
    fields = {"velocity": (jnp.zeros(grid.shape),) * 2, "temperature": (jnp.broadcast_to(y - 0.5, grid.shape),)}
    end = advance(model, params, model.state_from(fields, params), Schedule(1e-3, dt=1e-4), integrator="heun").state
    # Rounding of a buoyancy of 7e4 over 1e-3.
    assert max(float(jnp.abs(u).max()) for u in end.velocity) < 1e-11
    if stretch is None:  # where the parabola through three cells is the line itself
        np.testing.assert_allclose(end.temperature, fields["temperature"][0], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_warm_fluid_rises_against_gravity_and_sides_mean_what_they_say():
    settings = {
        "grid": {"shape": [8, 8]},
        "initial": {"velocity": ["0", "0"], "temperature": "20 + exp(-20*((x - 0.5)**2 + (y - 0.5)**2))"},
        "physics": {
            "viscosity": 0.01,
            "diffusivity": 0.01,
            "expansion": 0.1,
            "reference_temperature": 20.0,
            "gravity": [0.0, -2.0],
        },
        "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01},
    }
    walls = {
        "x": "no_slip",
        "y": {"lower": {"kind": "no_slip", "temperature": 20}, "upper": {"kind": "slip", "slope": 1}},
    }
    model = sj.configure(Boussinesq, boundaries=walls, **settings).run().ds.isel(time=-1)
    rising = model.velocity_y.sel(x=0.5, y_face=0.5, method="nearest")
    # 0.1 * 2 * 0.02 = 0.004 without pressure, which takes up half of it in a box.
    assert 1e-3 < float(rising) < 4e-3
    with pytest.raises(ConfigurationError, match="both a temperature and a slope"):
        wrong = walls | {"x": {"lower": {"kind": "slip", "temperature": 1, "slope": 2}, "upper": "slip"}}
        sj.configure(Boussinesq, boundaries=wrong, **settings).run()
