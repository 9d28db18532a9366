"""Scalars around bodies: order of conduction, conservation, the time step, and derivatives by heat and by shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK

import simjax as sj
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.balances import with_balances
from simjax.models.flow.bodies.solid_scalars import CutCells, SolidSurface
from simjax.models.flow.bodies.solids import Reach, Solid
from simjax.models.flow.boussinesq import Boussinesq
from simjax.models.flow.passive_scalar import Params, PassiveScalar, State

INNER, OUTER, MIDDLE = 0.2, 0.43, (0.513, 0.488)
STRETCHED = (lines("formula", "s + 0.05*sin(2*pi*s)", 24, 0.0, 1.0), None)


def radius(x, y):
    return jnp.sqrt((x - MIDDLE[0]) ** 2 + (y - MIDDLE[1]) ** 2)


def annulus(t, x, y):
    return jnp.minimum(radius(x, y) - INNER, OUTER - radius(x, y))


def inside(x, y):
    return radius(x, y) < 0.5 * (INNER + OUTER)


def grains(t, x, y):
    """Overlapping discs at random, with gaps of all widths between them."""
    rng = np.random.default_rng(1)
    apart = [
        jnp.hypot(jnp.mod(x - a + 0.5, 1) - 0.5, jnp.mod(y - b + 0.5, 1) - 0.5) - r
        for a, b, r in zip(*rng.uniform(size=(2, 9)), rng.uniform(0.05, 0.14, 9), strict=True)
    ]
    return jnp.stack(apart).min(0)


def conducting(grid, surface):
    """The tendency of a scalar by conduction alone, as a matrix and as a function, and the places of cells."""
    model = PassiveScalar(Domain(grid), [PERIODIC, PERIODIC], surface=surface)
    params, domain = Params(*map(jnp.asarray, (0.1, 0.0, 1.0))), model.domain
    x, y = domain.coordinates((0.5, 0.5))
    cells = jax.jit(lambda: surface.cells(domain, model.layout, jnp.zeros(()), x.dtype), compiler_options=QUICK)()
    nothing, still = jnp.zeros(grid.shape), Reach(jnp.zeros(()), jnp.zeros(()))

    def tendency(c):
        joined = cells.joined(domain, c, model.layout, 0.0, surface, still)
        fluxes = model.conducted(0.0, State((nothing, nothing), joined), params, cells)
        slope = cells.gained(domain, model.layout, fluxes, 0.0, 0.0, surface)
        given = cells.from_bodies(domain, model.layout, fluxes, joined, params.diffusivity, 0.0, surface)
        given = jnp.mean(jnp.where(inside(x, y), given, 0.0))
        # Of cells that the fluid does not change: what is wrong with them, of those that mean nothing: themselves.
        if isinstance(cells, CutCells):
            return jnp.where(cells.fluid, slope, -c), (joined, given)
        value = surface.given_value(domain, model.layout, 0.0, c.dtype)
        slope = slope + params.diffusivity * (
            cells.exchanged(domain, model.layout, joined, 0.0, surface, still) + cells.rate * (value - joined)
        )
        return jnp.where(cells.fluid, slope, joined - c), (joined, given)

    n = grid.shape[0] * grid.shape[1]
    units = jnp.eye(n).reshape(n, *grid.shape)
    right, _ = tendency(nothing)
    matrix = jax.jit(jax.vmap(lambda c: tendency(c)[0] - right, 0, -1), compiler_options=QUICK)(units)
    return np.asarray(matrix).reshape(n, n), tendency, cells, (x, y)


def steady_error(cells, kind):
    """The largest error of steady conduction between circles, and the relative one of what the inner one gives."""
    q = 1 / (INNER * np.log(OUTER / INNER))
    surface = {
        "value": SolidSurface(Solid(annulus), value=lambda t, x, y: jnp.where(inside(x, y), 1.0, 0.0)),
        "flux": SolidSurface(Solid(annulus), flux=lambda t, x, y: jnp.where(inside(x, y), q, -q * INNER / OUTER)),
    }[kind]
    grid = Grid((cells, cells))
    matrix, tendency, around, (x, y) = conducting(grid, surface)
    right, _ = tendency(jnp.zeros(grid.shape))
    fluid, part = np.asarray(annulus(0.0, x, y) > 0), np.asarray(around.part)
    if kind == "flux":  # up to a constant, and to a rest of the fluxes of order h^2, which grows everywhere alike
        matrix = matrix - np.outer(np.ones(cells**2), part.ravel())
    c = jnp.asarray(np.linalg.solve(matrix, -np.asarray(right).ravel()).reshape(cells, cells))
    _, (joined, given) = tendency(c)
    error = np.asarray(joined - jnp.log(OUTER / radius(x, y)) / np.log(OUTER / INNER))
    if kind == "flux":
        error = error - np.average(error[fluid], weights=part[fluid])
    return np.sqrt(np.mean(error[fluid] ** 2)), float(given) * np.log(OUTER / INNER) / (2 * np.pi) - 1


@pytest.mark.parametrize("kind", ["value", pytest.param("flux", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_conduction_between_circles_is_of_second_order(kind):
    (coarse, _), (fine, lost) = (steady_error(cells, kind) for cells in (16, 32))
    # Cells lie otherwise to the circles on either grid, which scatters the order by some tenths.
    assert np.log2(coarse / fine) > 1.8
    # Of one between the circles, with 7 cells between them: h^2 over their distance squared is 2 %, and its curvature
    # an eighth of that.
    assert fine < 2e-3
    assert abs(lost) < {"value": 2e-3, "flux": np.inf}[kind]  # by that in the value; a given one is what is given


@pytest.mark.parametrize("stretch", [pytest.param((None, None), marks=pytest.mark.slow), STRETCHED])
@pytest.mark.slow
def test_cut_cells_conserve_and_do_not_limit_the_time_step(stretch):
    grid = Grid((24, 24), stretch=stretch)
    matrix, _, cells, _ = conducting(grid, SolidSurface(Solid(grains)))
    part, widths = np.asarray(cells.part), np.outer(grid.widths(0), grid.widths(1))
    rows = np.asarray(cells.fluid).ravel()
    matrix = matrix[np.ix_(rows, rows)]
    # Sums of 576 entries of the size of 4 / h^2, each right to a rounding or two.
    scale = np.abs(matrix).max()
    assert np.abs((part * widths).ravel()[rows] @ matrix).max() < 1e-13 * scale * widths.max()
    assert np.abs(matrix @ np.ones(rows.sum())).max() < 1e-12 * scale
    # The fastest decay of an uncut grid is 4 / h^2 for each axis, of the least spacing.
    rates = np.linalg.eigvals(matrix)
    fastest = sum(4 / np.min(grid.widths(axis)) ** 2 for axis in range(2))
    assert np.abs(rates.imag).max() < 1e-6 * fastest and rates.real.max() < 1e-6 * fastest
    assert 0.5 * fastest < -rates.real.min() < 1.02 * fastest
    assert float(1 / cells.merged.max()) < 0.3 and part[part > 0].min() < 0.01  # there are small cells, and they share


def advanced(model, params, fields, steps, dt, integrator="midpoint"):
    scheme, dt = INTEGRATORS[integrator], jnp.asarray(dt)
    parts = scheme.prepare(model, params, dt)
    formed = model if parts is None else model.with_parts(parts)
    start = formed.constrain(0.0, dt, model.state_from(fields, params), params)
    end = jax.lax.fori_loop(0, steps, lambda k, u: scheme.step(model, k * dt, dt, u, params, parts), start)
    return start, end, formed


def disc(t, x, y):
    return jnp.sqrt((x - 0.5) ** 2 + (y - 0.47) ** 2) - 0.17


@pytest.mark.slow
def test_an_insulated_body_keeps_what_flows_around_it():
    grid = Grid((24, 32), upper=(1.0, 1.0))
    forces = (lambda t, x, params: jnp.ones(()), None)
    model = PassiveScalar(Domain(grid), [PERIODIC, PERIODIC], forces=forces, surface=SolidSurface(Solid(disc)))
    params = Params(*map(jnp.asarray, (0.02, 0.0, 0.0)))
    x, y = model.domain.coordinates((0.5, 0.5))

    def totals(dye, steps, dt):
        start, end, formed = advanced(
            model, params, {"velocity": (jnp.zeros(grid.shape),) * 2, "concentration": (dye,)}, steps, dt
        )
        return [formed.diagnostics(0.0, state, params) for state in (start, end)]

    totals, dye, dt = jax.jit(totals, static_argnums=(1, 2)), jnp.where(x + 0 * y < 0.4, 1.0, 0.0), 5e-3
    before, after = totals(dye, 40, dt)
    change = float(after["total_concentration"] - before["total_concentration"])
    assert abs(change) < 1e-13  # 768 cells and 80 stages of rounding at random
    # Van Leer's limiter adds no extremes but by the divergence of cut cells, of the change of the pressure in a step:
    # the slope of one that the push builds up in the first one moves fluid for a quarter of it, through cells of 1/24.
    # So it is of second order in the step: 3.7 times less at half of it.
    beyond = []
    for found in (after, totals(dye, 80, dt / 2)[1]):
        beyond.append(max(-float(found["minimum_concentration"]), float(found["maximum_concentration"]) - 1))
    assert beyond[0] < 0.25 * dt**2 * 24 and beyond[1] < 0.3 * beyond[0]
    assert float(before["variance_concentration"] - after["variance_concentration"]) > 0.01


@pytest.mark.slow
def test_a_warm_body_that_drifts_with_a_stream_as_warm_leaves_it_alone():
    drift = (0.7, 0.3)
    velocity = tuple(lambda t, x, y, v=v: v + 0 * x for v in drift)
    solid = Solid(lambda t, x, y: disc(t, x - drift[0] * t, y - drift[1] * t), velocity, moving=True)
    surface = SolidSurface(solid, value=lambda t, x, y: 1.0 + 0 * x)
    model = PassiveScalar(Domain(Grid((16, 16))), [PERIODIC, PERIODIC], surface=surface)
    params = Params(*map(jnp.asarray, (0.02, 0.0, 0.02)))
    fields = {"velocity": tuple(jnp.full((16, 16), v) for v in drift), "concentration": (jnp.ones((16, 16)),)}
    _, end, _ = jax.jit(lambda: (None, advanced(model, params, fields, 4, 0.02)[1], None))()
    np.testing.assert_allclose(end.concentration, 1.0, rtol=0, atol=1e-13)  # roundings of one


@pytest.mark.slow
@pytest.mark.parametrize("given", ["value", "flux"])
def test_derivatives_with_respect_to_what_is_given_and_to_the_radius(given):
    def heat(numbers):
        warmth, size = numbers
        solid = Solid(lambda t, x, y: jnp.sqrt((x - 0.5) ** 2 + (y - 0.47) ** 2) - size)
        surface = SolidSurface(solid, **{given: lambda t, x, y: warmth + 0 * x})
        forces = (lambda t, x, params: jnp.ones(()), None)
        model = PassiveScalar(Domain(Grid((16, 16))), [PERIODIC, PERIODIC], forces=forces, surface=surface)
        params = Params(*map(jnp.asarray, (0.02, 0.0, 0.05)))
        fields = {"velocity": (jnp.zeros((16, 16)),) * 2, "concentration": (jnp.zeros((16, 16)),)}
        _, end, formed = advanced(model, params, fields, 3, 5e-3)
        return jnp.sum(formed.around_bodies(jnp.zeros(())).part * end.concentration**2)

    value, at = jax.jit(jax.value_and_grad(heat)), jnp.asarray([1.3, 0.171])
    _, slope = value(at)
    # Central differences of step 1e-6: 1e-9 relative of third derivatives, as what the surface takes in a few short
    # steps changes over a hundredth of a cell, and 1e-15 / 1e-6 of rounding.
    for k, change in enumerate(1e-6 * np.eye(2)):
        measured = float(value(at + change)[0] - value(at - change)[0]) / 2e-6
        assert abs(measured - float(slope[k])) < 1e-6 * float(jnp.max(jnp.abs(slope)))
    assert float(jnp.abs(slope).min()) > 1e-2  # both matter


SECTIONS = {
    "grid": {"shape": [16, 16]},
    "physics": {"viscosity": 0.05, "diffusivity": 0.05, "gravity": [0, -1]},
    "precision": "float64",
    "coefficients": {"solid": "sqrt((x - 0.5)**2 + (y - 0.5)**2) - 0.2", "solid_temperature": "1 + 0.1*sin(t)"},
    "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01},
}


def refused(**changed):
    with pytest.raises(ConfigurationError) as caught:
        sj.configure(Boussinesq, **{**SECTIONS, **changed})
    return str(caught.value)


def test_what_a_scalar_cannot_do_around_bodies_is_refused():
    solid = SECTIONS["coefficients"]["solid"]
    both = {"solid": solid, "solid_temperature": 1, "solid_flux": 1}
    assert "leave out either this or coefficients.solid_temperature" in refused(coefficients=both)
    assert "expected beside coefficients.solid, the distance" in refused(coefficients={"solid_temperature": 1})
    moving = {"solid": solid.replace("0.5)", "0.5 - 0.1*t)"), "solid_velocity": ["0.1", "0.1"]}
    assert "expected beside bodies that move" in refused(coefficients=moving)
    weno = {**SECTIONS["physics"], "scheme": "weno5"}
    assert "scheme = weno5: expected a flow without bodies, as its fluxes are sums" in refused(physics=weno)
    model = PassiveScalar(Domain(Grid((8, 8))), [PERIODIC, PERIODIC], surface=SolidSurface(Solid(disc)))
    with pytest.raises(ConfigurationError, match="balance of concentration: expected a flow without bodies"):
        with_balances(model, ["concentration"])


@pytest.mark.slow
def test_a_hot_disc_warms_the_fluid_and_makes_it_rise():
    dataset = sj.configure(Boussinesq, **SECTIONS).run().ds.isel(time=-1)
    assert float(dataset.temperature_flux) > 0 and float(dataset.velocity_y.max()) > 0
    # Inside it has what is given, to rounding: a whole number of steps of 0.01 from the start.
    np.testing.assert_allclose(dataset.temperature.values[7:9, 7:9], 1 + 0.1 * np.sin(0.02), rtol=1e-14)


RISING = {
    "grid": {"shape": [24, 24]},
    "physics": {"viscosity": 1.0, "diffusivity": 1.0, "gravity": [0, -100.0]},
    "precision": "float64",
    "boundaries": {"x": "no_slip", "y": "no_slip"},
    "initial": {"velocity": ["0", "0"]},
    "coefficients": {"solid": "sqrt((x - 0.5)**2 + (y - 0.5)**2) - 0.2"},
}


@pytest.mark.parametrize(
    ("temperature", "stretch"), [("1", None), ("y", None), ("1", {"y": {"tanh": {"strength": 1.5}}})]
)
@pytest.mark.slow
def test_fluid_at_rest_bears_a_body_with_the_weight_of_what_it_displaces(temperature, stretch):
    """Archimedes; nothing passes the surface. With T = y it diffuses around the body by 1e-3 in this time."""
    grid = {"shape": [24, 24]} | ({} if stretch is None else {"stretch": stretch})
    changed = {"grid": grid, "initial": {"velocity": ["0", "0"], "temperature": temperature}}
    end = 1e-3 if temperature == "y" else 0.05
    dataset = (
        sj.configure(Boussinesq, **(RISING | changed), time={"end": end, "output_every": end}).run().ds.isel(time=-1)
    )
    mean = 0.5 if temperature == "y" else 1.0
    # Of second order: a disc ten cells across has its area to 0.1 %, to 0.7 % where cells differ by a factor of four.
    assert abs(float(dataset.force_y) / (-100 * mean * np.pi * 0.2**2) - 1) < 0.01
    # The fluid has no turning part: x-forces and torques are what a disc that is not in the middle of cells leaves.
    assert abs(float(dataset.force_x)) < 0.01 and abs(float(dataset.torque_z)) < 0.01


@pytest.mark.slow
def test_force_on_a_warm_cylinder_is_what_the_box_leaves_of_the_weight_of_the_fluid():
    """At Ra = 1e5: buoyancy of the fluid, and what the sides of the box take, read off the fields by themselves."""
    cells, nu, kappa, g = 48, (0.7 / 1e5) ** 0.5, (1 / 0.7 / 1e5) ** 0.5, 1.0
    changed = {
        "grid": {"shape": [cells, cells]},
        "physics": {"viscosity": nu, "diffusivity": kappa, "gravity": [0, -g]},
        "initial": {"velocity": ["0", "0"], "temperature": "0"},
        "boundaries": {"x": {"kind": "no_slip", "temperature": 0.0}, "y": {"kind": "no_slip", "temperature": 0.0}},
        "coefficients": {**RISING["coefficients"], "solid_temperature": 1.0},
    }
    run = sj.configure(Boussinesq, **(RISING | changed), time={"end": 20.0, "output_every": 0.5}).run()
    ds, h = run.ds, 1 / cells
    before, after = ds.isel(time=-2), ds.isel(time=-1)
    # The part of each cell in the fluid, by 20 x 20 points; temperatures there are those of the cells.
    fine = (np.arange(20 * cells) + 0.5) * h / 20
    fluid = np.hypot(fine[None] - 0.5, fine[:, None] - 0.5) > 0.2
    part = fluid.reshape(cells, 20, cells, 20).mean((1, 3))
    lifted = g * float((part * after.temperature.values).sum()) * h**2
    p, v = after.pressure.values, after.velocity_y.values
    sides = float((1.5 * p[0] - 0.5 * p[1] - 1.5 * p[-1] + 0.5 * p[-2]).sum()) * h
    friction = -nu * float((v[:, 0] + v[:, -1]).sum()) * h / (0.5 * h)
    changing = (float(after.velocity_y.sum()) - float(before.velocity_y.sum())) * h**2 / 0.5
    expected = lifted + sides + friction - changing
    # Second order: 2 % of the weight of the fluid that the body displaces would be a layer of a tenth of a cell.
    assert abs(float(after.force_y) - expected) < 0.02 * g * np.pi * 0.2**2
