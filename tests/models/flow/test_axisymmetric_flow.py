"""Incompressible flow in (r, z): what is kept, budgets, order, pipes, volumes through sides, and what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from exact_flows import SLIP, STILL, TAU, advance, difference, largest, parameters, random_flow, sampled
from scipy.special import j0, j1, jn_zeros

import simjax as sj
from simjax.core.boundary import Dirichlet, Inflow, Neumann, NoSlipWall, Outflow, Periodic, SlipWall, center_layout
from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import LOWER, UPPER, Grid
from simjax.models.axisymmetric_grid import tapers
from simjax.models.flow.boussinesq import Boussinesq
from simjax.models.flow.incompressible import Incompressible, State
from simjax.models.flow.passive_scalar import PassiveScalar
from simjax.models.flow.sides.openings import OpenSide
from simjax.models.scalar.advection_diffusion import AdvectionDiffusion
from simjax.ops import staggered
from simjax.solvers.poisson import solve_poisson
from simjax.stepping.simulate import Schedule

PIPE = (SlipWall(), NoSlipWall())


def rings(shape, lower=(0.0, 0.0), upper=(1.0, 1.5), stretched=False):
    text = "s - 0.3*s*s*(1 - s)"  # widths differ by a factor of two
    ends = zip(shape, lower, upper, strict=True)
    stretch = [lines("formula", text, n, a, b) for n, a, b in ends] if stretched else ()
    return Domain(Grid(shape, lower, upper, stretch, axisymmetric=True))


def volumes(domain, component, periodic):
    """Per radian: of cells around the faces of a component, in numbers of their own."""
    r, z = (np.append(domain.grid.coordinates(axis, 0.0), domain.grid.upper[axis]) for axis in range(2))
    widths, before = [np.diff(r), np.diff(z)], [np.diff(r)[0], np.diff(z)[-1 if periodic else 0]]
    radius = r[:-1] if component == 0 else 0.5 * (r[1:] + r[:-1])
    own = widths[component]
    widths[component] = 0.5 * (own + np.append(before[component], own[:-1]))
    return (radius * widths[0])[:, None] * widths[1]


@pytest.mark.parametrize(
    ("inner", "stretched", "along", "solver"),
    [
        (0.0, True, PERIODIC, "auto"),
        pytest.param(0.3, False, SLIP, "auto", marks=pytest.mark.slow),
        pytest.param(0.0, True, SLIP, "multigrid", marks=pytest.mark.slow),
    ],
    ids=["axis", "tube", "multigrid"],
)
@pytest.mark.slow
def test_energy_and_a_stream_are_kept_no_divergence_is_left_and_viscosity_takes_the_enstrophy(
    inner, stretched, along, solver
):
    shape, viscosity = (18, 8), 0.3
    model = Incompressible(rings(shape, (inner, 0.0), stretched=stretched), [SLIP, along], pressure_solver=solver)
    state, stream = random_flow(model), State((jnp.zeros(shape), jnp.ones(shape)))

    @jax.jit
    def look(state):
        slopes = [
            model.rhs(0.0, s, parameters(nu)).velocity for s, nu in ((state, 0.0), (state, viscosity), (stream, 1.0))
        ]
        return slopes, model.diagnostics(0.0, state, parameters()), model.constrain(0.0, 0.0, state, parameters())

    (still, viscous, streaming), diagnostics, again = look(state)
    rounding = 1e-14 if solver == "auto" else 1e-12  # multigrid stops at a hundred roundings
    narrowest = min(model.domain.grid.widths(axis).min() for axis in range(2))
    # A few roundings of the velocity over the least width; beside the axis it counts twice.
    assert diagnostics["max_divergence"] < 2 * rounding * largest(*state.velocity) / narrowest
    assert difference(state, again) < 10 * rounding
    weighed = [volumes(model.domain, k, along is PERIODIC) * u for k, u in enumerate(state.velocity)]
    whole = 0.5 * (1 - inner**2) * 1.5
    energy = 0.5 * sum(float(jnp.vdot(v, u)) for v, u in zip(weighed, state.velocity, strict=True)) / whole
    assert float(diagnostics["kinetic_energy"]) == pytest.approx(energy, rel=1e-14)
    powers = [v * k for v, k in zip(weighed, still, strict=True)]
    # A sum of some hundred terms, each to rounding; what is left of the divergence counts with it.
    assert abs(sum(np.sum(p) for p in powers)) < rounding * sum(np.sum(np.abs(p)) for p in powers)
    assert largest(*still) > 0.1
    # The friction is grad div - curl curl exactly, and a wall without friction has no vorticity on it.
    loss = sum(float(np.sum(v * (a - b))) for v, a, b in zip(weighed, viscous, still, strict=True)) / whole
    assert loss == pytest.approx(-2 * viscosity * float(diagnostics["enstrophy"]), rel=1e-10)
    if along is PERIODIC:
        assert largest(*streaming) == 0
        momentum = volumes(model.domain, 1, True) * still[1]
        assert abs(np.sum(momentum)) < rounding * np.sum(np.abs(momentum))


@pytest.mark.slow
def test_momentum_along_z_and_energy_have_budgets():
    """In a stretched tube with a wall that moves: the change by the tendency, and by what passes sides and is made."""
    lid = NoSlipWall((0.0, lambda t, r, z: 1 + 0.3 * jnp.cos(z)))
    force = lambda t, x, params: x[0] * jnp.cos(x[1])  # noqa: E731
    model = Incompressible(rings((10, 8), (0.3, 0.0), stretched=True), [(NoSlipWall(), lid), STILL], (None, force))
    params, state = parameters(0.2, 0.5), random_flow(model)

    @jax.jit
    def look(state):
        change = model.rhs(0.0, state, params)
        inner = model.domain.impose(change.velocity, model.projection.still_walls())
        accounts = [
            model.passing(0.0, state, params, FacePlane.of_side(model.domain, axis, side))
            for axis in range(2)
            for side in (LOWER, UPPER)
        ]
        return inner, model.amounts(change, params), accounts, model.made(0.0, state, params)

    inner, amounts, accounts, made = look(state)
    terms = (
        2 * np.pi * volumes(model.domain, k, True) * u * s
        for k, (u, s) in enumerate(zip(state.velocity, inner, strict=True))
    )
    power = sum(float(np.sum(term)) for term in terms)
    for name, change in {"momentum_y": float(amounts["momentum_y"]), "kinetic_energy": power}.items():
        told = sum(sign * float(one[name]) for sign, one in zip((1, -1, 1, -1), accounts, strict=True))
        told += sum(float(rates.get(name, 0.0)) for rates in made.values())
        assert told == pytest.approx(change, rel=1e-12), name  # sums of a hundred terms
        assert abs(float(accounts[1][name])) > 0.1  # the wall drags


def stream(t, r, z):
    """Beside a wall that moves with 0.4 + sin(3 t): (u, w) of psi = r^2 (1 - r^2)^2 sin(2 pi z) / 2, and a shear."""
    growth = 1 + 0.5 * jnp.sin(3 * t)
    u = -0.5 * r * (1 - r * r) ** 2 * TAU * jnp.cos(TAU * z) * growth
    return u, (1 - r * r) * (1 - 3 * r * r) * jnp.sin(TAU * z) * growth + r * r * (0.4 + jnp.sin(3 * t))


def pushing(component):
    """The force that keeps `stream` going, with the gradient of the pressure cos(2 r^2) sin(2 pi z)."""

    def force(t, position, params):
        t, r, z = jnp.broadcast_arrays(jnp.asarray(t, position[0].dtype), *position)
        r = jnp.where(r > 0, r, 1.0)  # on the axis nothing is asked

        def slope(function, axis):
            ones = [jnp.full_like(r, k == axis) for k in range(3)]
            return lambda *x: jax.jvp(function, x, tuple(ones))[1]

        def own(*x):
            return stream(*x)[component]

        def pressure(t, r, z):
            return jnp.cos(2 * r * r) * jnp.sin(TAU * z)

        across, along = slope(own, 1), slope(own, 2)
        carried = sum(u * k(t, r, z) for u, k in zip(stream(t, r, z), (across, along), strict=True))
        spread = slope(across, 1)(t, r, z) + across(t, r, z) / r + slope(along, 2)(t, r, z)
        spread = spread - (own(t, r, z) / r**2 if component == 0 else 0)
        return slope(own, 0)(t, r, z) + carried + slope(pressure, component + 1)(t, r, z) - params.viscosity * spread

    return force


@pytest.mark.slow
def test_a_manufactured_flow_is_of_second_order():
    """In the mean square over the volume: beside the axis of first order, in a share of the volume of that order."""
    wall = NoSlipWall((0.0, lambda t, r, z: 0.4 + jnp.sin(3 * t)))
    functions = [lambda t, r, z, k=k: stream(t, r, z)[k] for k in range(2)]

    def errors(n):
        domain = rings((n, n), upper=(1.0, 1.0), stretched=False)
        model = Incompressible(domain, [(SlipWall(), wall), PERIODIC], (pushing(0), pushing(1)))
        final = advance(model, parameters(0.05), sampled(model, functions), Schedule(0.3, dt=0.3 / 40)).state
        exact = sampled(model, functions, 0.3)
        squares = (
            np.mean(volumes(domain, k, True) * (np.asarray(a) - np.asarray(b)) ** 2)
            for k, (a, b) in enumerate(zip(final.velocity, exact.velocity, strict=True))
        )
        return n * np.sqrt(np.array(list(squares)))

    coarse, fine = errors(12), errors(24)
    assert np.all(np.log2(coarse / fine) > 1.8)


@pytest.mark.slow
def test_a_pipe_starts_up_as_bessel_series_say():
    """w = G (1 - r^2) / (4 nu) - 2 G / nu sum J0(k r) exp(-nu k^2 t) / (k^3 J1(k)), J0(k) = 0 (Szymanski 1932)."""
    push, viscosity, end = 1.3, 0.2, 0.4
    zeros = jn_zeros(0, 40)[:, None]

    def error(n):
        model = Incompressible(rings((n, 2)), [PIPE, PERIODIC], (None, lambda t, x, params: push))
        still = State((jnp.zeros((n, 2)), jnp.zeros((n, 2))))
        final = advance(model, parameters(viscosity), still, Schedule(end, dt=0.256 / n**2), integrator="euler").state
        r = model.domain.grid.coordinates(0, 0.5)
        series = np.sum(j0(zeros * r) * np.exp(-viscosity * zeros**2 * end) / (zeros**3 * j1(zeros)), axis=0)
        exact = push / viscosity * ((1 - r * r) / 4 - 2 * series)
        return np.abs(np.asarray(final.velocity[1])[:, 0] - exact).max() / exact.max()

    coarse, fine = error(8), error(16)
    assert fine < 5e-3 and 1.8 < np.log2(coarse / fine) < 2.3


@pytest.mark.slow
def test_what_comes_in_through_rings_goes_out_and_a_wrong_volume_is_told():
    domain = rings((6, 8), upper=(1.0, 2.0), stretched=True)
    blown, bottom = Inflow((-0.5, 0.0)), Inflow((0.0, lambda t, r, z: 2 * r * r))
    model = Incompressible(domain, [(SlipWall(), blown), (bottom, Outflow())])
    random = np.random.default_rng(0)
    noise = model.state_from({"velocity": tuple(jnp.asarray(random.normal(size=(6, 8))) for _ in range(2))}, None)
    state = jax.jit(model.constrain)(0.0, 0.0, noise, parameters())
    # Roundings of a velocity of one over the least width.
    assert jax.jit(model.diagnostics)(0.0, state, parameters())["max_divergence"] < 1e-12
    faces = np.append(domain.grid.coordinates(0, 0.0), 1.0)
    areas, r = np.pi * np.diff(faces**2), domain.grid.coordinates(0, 0.5)
    # Half the area 4 pi of the wall, and the profile at the bottom.
    assert areas @ np.asarray(state.outlets[1])[:, 0] == pytest.approx(2 * np.pi + areas @ (2 * r * r), rel=1e-13)
    with pytest.raises(ConfigurationError, match=r"6\.28319 m3 s-1 flows in at boundaries\.x\.upper and nothing"):
        Incompressible(domain, [(SlipWall(), blown), STILL])
    Incompressible(domain, [(SlipWall(), blown), (Inflow((0.0, -1.0)), Inflow((0.0, 1.0)))])  # pi out at either end


@pytest.mark.parametrize("scheme", ["central", pytest.param("van_leer", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_scalar_keeps_its_constant_and_its_total_and_spreads_as_one_without_a_flow(scheme):
    model = PassiveScalar(rings((8, 6), stretched=True), [SLIP, PERIODIC], scheme)
    alone = AdvectionDiffusion(model.domain, [SLIP, PERIODIC])
    flow, still = random_flow(model.flow), State((jnp.zeros((8, 6)),) * 2)
    params = model.Params(jnp.asarray(0.1), jnp.asarray(0.0), jnp.asarray(0.3))
    c = jnp.asarray(np.random.default_rng(1).normal(size=(8, 6)))

    @jax.jit
    def look(c):
        cases = (flow, jnp.ones_like(c)), (flow, c), (still, c)
        slopes = [model.scalar_tendency(0.0, model.with_flow(*case), params) for case in cases]
        known = alone.rhs(0.0, alone.State(c), alone.Params(jnp.asarray(0.3), jnp.zeros(2)))
        return slopes, known.concentration, model.amounts(model.with_flow(flow, slopes[1]), params)

    (constant, slope, spread), known, amounts = look(c)
    assert largest(constant) < 1e-12  # the divergence that is left
    assert abs(float(amounts["concentration"])) < 1e-13 * largest(slope)  # a sum of 48 terms
    np.testing.assert_allclose(spread, known, rtol=1e-11, atol=1e-11)  # second differences over widths of 0.1


@pytest.mark.slow
def test_a_stratified_fluid_is_pushed_along_z_alone():
    model = Boussinesq(rings((6, 8)), [SLIP, STILL])
    z = model.domain.coordinates((0.5, 0.5))[1]
    state = model.state_from(
        {"velocity": (jnp.zeros((6, 8)),) * 2, "temperature": (jnp.broadcast_to(z * z, (6, 8)),)}, None
    )
    numbers = {"viscosity": 0.1, "drag": 0.0, "diffusivity": 0.1, "expansion": 2.0, "reference": 0.0}
    params = model.Params(**{k: jnp.asarray(v) for k, v in numbers.items()}, gravity=jnp.asarray([0.0, -1.0]))
    # A temperature of z alone is held by the pressure.
    after = jax.jit(lambda s: model.constrain(0.0, 0.0, model.rhs(0.0, s, params), params))(state)
    assert largest(*after.velocity) < 1e-13
    tilted = dataclasses.replace(params, gravity=jnp.asarray([0.1, -1.0]))
    found = [bool(jnp.any(model.unphysical(state, p)["gravity along r"])) for p in (params, tilted)]
    assert found == [False, True]


@pytest.mark.slow
def test_a_potential_that_is_given_on_the_outer_side_has_the_source():
    domain = rings((12, 16), (0.3, 0.0), stretched=True)
    layout = center_layout([(Neumann(), Dirichlet(0.0)), (Periodic(), Periodic())])
    source = jnp.asarray(np.random.default_rng(0).normal(size=(12, 16)))

    @jax.jit
    def look(source):
        found = [solve_poisson(domain, layout, source, method) for method in ("spectral", "multigrid")]
        fields, layouts = (found[0], tapers(domain, layout, source)), (layout, layout)
        back = domain.apply_spaced(lambda p, rings, h: staggered.laplacian(p, h, None, rings), fields, layouts, 1)
        return found, back

    found, back = look(source)
    # Roundings of a potential below one, times second differences over widths of 0.03.
    np.testing.assert_allclose(back, source, atol=1e-11)
    np.testing.assert_allclose(*found, atol=1e-11)  # a residual of a hundred roundings


RUN = {
    "grid": {"shape": [8, 8], "axisymmetric": True},
    "physics": {"viscosity": 0.1},
    "boundaries": {"x": {"lower": "slip", "upper": "no_slip"}, "y": "periodic"},
    "initial": {"velocity": ["0", "0"]},
    "time": {"end": 1.0, "output_every": 1.0},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"boundaries": {"x": "no_slip", "y": "periodic"}}, r"boundaries\.x\.lower = no_slip: expected slip"),
        (
            {"boundaries": {"x": {"lower": "slip", "upper": "outflow"}, "y": "periodic"}},
            r"boundaries\.x\.upper = outflow: expected a Cartesian grid, as flows around an axis are open along z only",
        ),
        ({"physics": {"viscosity": 0.1, "turbulence": "wale"}}, r"physics\.turbulence = wale: expected a Cart"),
        ({"physics": {"viscosity": 0.1, "rotation": [1.0]}}, r"physics\.rotation: expected a Cart"),
        ({"coefficients": {"eddy_viscosity": "x"}}, r"coefficients\.eddy_viscosity: expected a Cart"),
        ({"initial": {"velocity": ["0", "0", "x"]}}, r"initial\.velocity"),
    ],
    ids=["axis", "opening", "turbulence", "rotation", "eddies", "swirl"],
)
def test_what_it_does_not_take_is_told(change, message):
    with pytest.raises(ConfigurationError, match=message):
        sj.configure(sj.Incompressible, **(RUN | change))


def test_what_scalars_heat_and_python_callers_do_not_take_is_told_too():
    heat = {"viscosity": 0.1, "gravity": [1.0, 0.0]}
    with pytest.raises(ConfigurationError, match=r"physics\.gravity along r: expected a Cart.*write \[0, g\]"):
        sj.configure(sj.Boussinesq, **(RUN | {"physics": heat, "initial": RUN["initial"] | {"temperature": "0"}}))
    dye = {"viscosity": 0.1, "scheme": "weno5"}
    with pytest.raises(
        ConfigurationError,
        match=r"physics\.scheme = weno5: expected a Cartesian grid",
    ):
        sj.configure(sj.PassiveScalar, **(RUN | {"physics": dye, "initial": RUN["initial"] | {"concentration": "0"}}))
    cold = {"boundaries": {"x": {"lower": {"kind": "slip", "value": 1.0}, "upper": "slip"}, "y": "periodic"}}
    given = RUN | {"initial": RUN["initial"] | {"concentration": "0"}} | cold
    with pytest.raises(ConfigurationError, match=r"boundaries\.x\.lower: expected slip alone"):
        sj.configure(sj.PassiveScalar, **given)
    domain = rings((8, 8))
    with pytest.raises(ConfigurationError, match=r"boundaries\.x\.lower: expected slip alone"):
        PassiveScalar(domain, [(SlipWall(Dirichlet(1.0)), NoSlipWall()), PERIODIC])
    with pytest.raises(ConfigurationError, match=r"physics\.scheme = weno5"):
        PassiveScalar(domain, [PIPE, PERIODIC], "weno5")
    with pytest.raises(ConfigurationError, match=r"boundaries\.x\.upper = open: .*; write a wall or an inflow"):
        Incompressible(domain, [(SlipWall(), OpenSide()), PERIODIC])
    with pytest.raises(ConfigurationError, match=r"physics\.turbulence = wale: expected a Cart"):
        Incompressible(domain, [PIPE, PERIODIC], turbulence="wale")
    with pytest.raises(ConfigurationError, match="tridiagonal: expected a Cartesian grid"):
        Incompressible(domain, [PIPE, PERIODIC], pressure_solver="tridiagonal")
    model = Incompressible(domain, [PIPE, PERIODIC])
    turning = model.Params(jnp.asarray(0.1), jnp.asarray(0.0), rotation=jnp.asarray([1.0]))
    with pytest.raises(ConfigurationError, match=r"physics\.rotation: expected a Cart"):
        model.rhs(0.0, random_flow(model), turning)
    with pytest.raises(ConfigurationError, match="sides of rings"):
        raise ConfigurationError(model.unbalanced(("momentum_x",)))
