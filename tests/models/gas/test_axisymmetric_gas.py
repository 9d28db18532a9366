"""A gas in (r, z): equilibria, conservation, order, positivity beside the axis, round shocks, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from gas_runs import CLOSED, IDEAL, MUSCL, OPEN, PERIODIC, WENO, centers, run, seen, start

import simjax as sj
from simjax.core.boundary import Outflow, SlipWall
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.instruments.histogram import Histogram
from simjax.instruments.operators import BoxAverage, Spectrum
from simjax.instruments.surfaces import SurfaceIntegral, plane
from simjax.instruments.two_points import Correlation
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import GasScheme
from simjax.ops.riemann import Primitive, conserved, exact_flux

AXIS = (SlipWall(), Outflow())


def rings(shape, sides, lower=(0.0, 0.0), upper=(1.0, 1.5), scheme=MUSCL, stretched=False, **options):
    text = "s - 0.5*s*s*(1 - s)"  # four times finer at the lower end
    ends = zip(shape, lower, upper, strict=True)
    stretch = [lines("formula", text, n, a, b) for n, a, b in ends] if stretched else ()
    return Compressible(Domain(Grid(shape, lower, upper, stretch, axisymmetric=True)), sides, scheme, **options)


def tendency(model, params=IDEAL):
    return jax.jit(lambda state: model.rhs(0.0, state, params), compiler_options=QUICK)


def largest(tree):
    return max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize(
    ("inner", "stretched"), [(0.0, False), pytest.param(0.3, True, marks=pytest.mark.slow)], ids=["axis", "tube"]
)
@pytest.mark.slow
def test_rest_and_a_stream_along_z_stay_and_totals_too(inner, stretched):
    model = rings((12, 10), [CLOSED, PERIODIC], (inner, 0.0), stretched=stretched, scalars=1)
    rhs = tendency(model)
    for speed in (0.0, 0.7):
        # Equal fluxes cancel before they are weighed; what is left are roundings of the fluxes over widths of 0.03.
        assert largest(rhs(start(model, 1.3, (0.0, speed), 0.9, (0.4,)))) < 1e-13
    random = np.random.default_rng(0)
    density, pressure, carried = (1 + random.random(model.domain.grid.shape) for _ in range(3))
    velocity = tuple(random.normal(size=(2, *model.domain.grid.shape)))
    rough = start(model, density, velocity, pressure, (carried,))
    change = rhs(rough)
    # Totals are linear in the state, so that those of the tendency are rates of change.
    found, gross = (model.diagnostics(0.0, u, IDEAL) for u in (change, jax.tree.map(jnp.abs, change)))
    for name in ("mass", "momentum_y", "energy", "scalar_0"):
        assert abs(float(found[name])) < 1e-13 * float(gross[name])  # a sum of some hundred terms
    full = np.pi * (1 - inner**2) * 1.5
    rest = model.diagnostics(0.0, start(model, 2.0, (0.0, 0.0), 1.0, (0.0,)), IDEAL)
    np.testing.assert_allclose(float(rest["mass"]), 2 * full, rtol=1e-14)


def flow(r, z):
    """Smooth as a field in space: even in r, but for the radial velocity, which is odd."""
    density = 1 + 0.2 * jnp.cos(3 * r * r) * jnp.cos(2 * jnp.pi * z)
    radial = r * (0.5 + 0.3 * jnp.sin(2 * jnp.pi * z)) * jnp.exp(-2 * r * r)
    axial = 0.4 + 0.3 * jnp.cos(2 * r * r + 2 * jnp.pi * z)
    pressure = 1 + 0.3 * jnp.exp(-2 * r * r) * jnp.sin(2 * jnp.pi * z)
    return Primitive(density, (radial, axial), pressure)


def exact_tendency(r, z):
    def fluxes(r, z):
        w = flow(r, z)
        q = conserved(w, IDEAL.gamma)
        return jax.tree.map(lambda f: r * f, exact_flux(w, q, 0)), exact_flux(w, q, 1)

    across = jax.jacfwd(lambda r: fluxes(r, z)[0])(r)
    along = jax.jacfwd(lambda z: fluxes(r, z)[1])(z)
    slope = jax.tree.map(lambda a, b: -a / r - b, across, along)
    return slope._replace(momentum=(slope.momentum[0] + flow(r, z).pressure / r, slope.momentum[1]))


def tendency_errors(n):
    model = rings((n, n), [AXIS, PERIODIC], upper=(1.0, 1.0))
    r, z = jnp.broadcast_arrays(*centers(model))
    w = flow(r, z)
    found = tendency(model)(start(model, w.density, w.velocity, w.pressure))
    wanted = jax.jit(jax.vmap(jax.vmap(exact_tendency)))(r, z)
    inner = slice(0, n - 3)  # the flow does not end at the outer side
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return np.array([float(jnp.mean((r * jnp.abs(a - b))[inner])) for a, b in pairs])


@pytest.mark.slow
def test_tendencies_are_of_second_order_beside_the_axis_too():
    """By volume: limited at extrema, and of first order in the ring around the axis, which is small."""
    order = np.log2(tendency_errors(48) / tendency_errors(96))
    assert np.all((order > 1.7) & (order < 2.4)), order


@pytest.mark.parametrize("scheme", [MUSCL, GasScheme("first_order", "primitive", "rusanov")], ids=["muscl", "rusanov"])
@pytest.mark.slow
def test_gas_that_leaves_the_axis_stays_positive(scheme):
    """At the longest step that promises it, cold and fast: beside the axis it widens faster than it crosses a cell."""
    model = rings((12, 2), [AXIS, PERIODIC], scheme=scheme)
    params = Params(jnp.asarray(3.0))

    def step(state, _):
        dt = 0.5 * model.stable_dt(state, params)
        state = jax.tree.map(lambda u, s: u + dt * s, state, model.rhs(0.0, state, params))
        seen = model.diagnostics(0.0, state, params)
        return state, (seen["minimum_density"], seen["minimum_pressure"])

    state = start(model, 1.0, (20.0, 0.0), 0.4, params=params)
    for least in jax.jit(lambda state: jax.lax.scan(step, state, None, length=20)[1], compiler_options=QUICK)(state):
        assert np.all(np.asarray(least) > 0)  # also false for what is not a number


@pytest.mark.slow
def test_an_atmosphere_at_rest_stays():
    heat, params = 0.25, Params(jnp.asarray(1.4), gravity=jnp.asarray([0.0, -1.0]))
    model = rings((8, 16), [CLOSED, CLOSED], gravity_axes=(1,))
    drop = 0.5 * 1.5 / 16 / heat  # between centres the pressure falls by the weight of half a cell of each
    pressure = ((1 - drop) / (1 + drop)) ** np.arange(16)
    still = tendency(model, params)(start(model, pressure / heat, (0.0, 0.0), pressure, params=params))
    assert largest(still) < 1e-12  # rounding of pressures of one over widths of 0.1


@pytest.mark.slow
def test_a_point_explosion_is_a_sphere_where_sedov_has_it():
    """The shock at r = (E t^2 / (0.851072 rho))^(1/5), gamma = 1.4: Kamm and Timmes (2007), LA-UR-07-2849."""
    n, energy, end = 48, 0.851072, 0.5
    model = rings((n, 2 * n), [AXIS, OPEN], (0.0, -1.0), (1.0, 1.0), GasScheme("mc", "primitive", "hll"))
    r, z = centers(model)
    ball = jnp.where(r**2 + z**2 < (3.5 / n) ** 2, 1.0, 0.0)
    volume = float(jnp.sum(ball * 2 * jnp.pi * r)) / n**2
    state = run(
        model, start(model, 1.0, (0.0, 0.0), 1e-5 + 0.4 * energy / volume * ball), end, courant=0.5, quick=False
    )
    density = np.asarray(seen(model, state)[0])
    r, z = np.ravel(r), np.ravel(z)
    radius = np.linspace(0.5, 0.95, 2000)
    fronts = []
    for angle in np.deg2rad([0.0, 22.5, 45.0, 67.5, 90.0]):
        i, j = (np.clip(x * n - 0.5, 0.0, None) for x in (radius * np.cos(angle), radius * np.sin(angle) + 1))
        a, b = np.floor(i).astype(int), np.floor(j).astype(int)
        u, v = i - a, j - b
        values = (1 - u) * ((1 - v) * density[a, b] + v * density[a, b + 1])
        values += u * ((1 - v) * density[a + 1, b] + v * density[a + 1, b + 1])
        fronts.append(radius[np.flatnonzero(values > 0.5 * (1 + values.max()))[-1]])
    print(np.array(fronts) * n, end**0.4 * n)
    assert np.ptp(fronts) < 1 / n
    # Half the jump is ahead of the shock by half of the three cells that it is spread over.
    assert abs(np.mean(fronts) - end**0.4) < 1.5 / n


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"physics": {}}, "physics.reconstruction = weno5: .* fluxes would be of second order"),
        ({"physics": {"reconstruction": "mc", "viscosity": 0.1}}, "physics.viscosity and conduction: expected a Cart"),
        ({"physics": {"reconstruction": "mc", "prandtl": 0.7}}, "physics.viscosity and conduction: expected a Cart"),
        ({"physics": {"prandtl": 0.7, "conductivity": 0.1}}, "physics.prandtl: expected no conductivity of its own"),
        ({"physics": {"reconstruction": "mc", "gravity": [1, 0]}}, r"physics.gravity along r: .*write \[0, g\]"),
        ({"boundaries": {"x": "outflow", "y": "outflow"}}, "boundaries.x.lower = outflow: expected slip"),
        ({"boundaries": {"x": "periodic", "y": "outflow"}}, "boundaries.x: r does not wrap"),
        ({"grid": {"shape": [8, 8], "lower": [-1, 0], "axisymmetric": True}}, "grid.lower"),
        ({"grid": {"shape": [8], "axisymmetric": True}}, "grid.shape = .*expected two sizes"),
        ({"statistics": [{"of": "density", "over": "x"}]}, "x is r, along which they grow; leave x out"),
    ],
    ids=["weno", "viscosity", "prandtl", "both", "gravity", "axis", "wraps", "radius", "line", "means"],
)
def test_what_it_does_not_take_is_told(change, message):
    given = {
        "grid": {"shape": [8, 8], "axisymmetric": True},
        "physics": {"reconstruction": "mc"},
        "boundaries": {"x": {"lower": "slip", "upper": "outflow"}, "y": "outflow"},
        "initial": {"density": "1", "velocity": ["0", "0"], "pressure": "1"},
        "time": {"end": 1.0, "output_every": 1.0},
    }
    with pytest.raises(ConfigurationError, match=message):
        sj.configure(sj.Compressible, **(given | change))


@pytest.mark.slow
def test_other_models_and_python_callers_are_told_too():
    domain = Domain(Grid((8, 8), axisymmetric=True))
    with pytest.raises(ConfigurationError, match="model=burgers takes Cartesian grids only"):
        sj.configure(
            sj.Burgers,
            grid={"shape": [8, 8], "axisymmetric": True},
            initial={"concentration": "x"},
            time={"end": 1.0, "output_every": 1.0},
        )
    with pytest.raises(ConfigurationError, match="Burgers takes Cartesian grids only"):
        sj.Burgers(domain, [CLOSED, CLOSED])
    with pytest.raises(ConfigurationError, match="weno5: expected a Cartesian grid, as its fluxes would be"):
        Compressible(domain, [CLOSED, CLOSED], WENO)
    model = Compressible(domain, [CLOSED, CLOSED], MUSCL)
    with pytest.raises(ConfigurationError, match="as the gas is ideal"):
        model.rhs(0.0, start(model, 1.0, (0.0, 0.0), 1.0), Params(jnp.asarray(1.4), jnp.asarray(0.1)))
    with pytest.raises(ConfigurationError, match="BoxAverage of 'density' needs a Cartesian grid"):
        BoxAverage("density", [[0.1, 0.1]], [[0.2, 0.2]]).check(domain.grid)
    for instrument in (
        Histogram("density", 3, 0.0, 1.0),
        Spectrum("density", 2),
        Correlation("density", ("density",), 1, (1,)),
        SurfaceIntegral("density", ("density",), plane(domain.grid, 1, 0.5)),
    ):
        with pytest.raises(ConfigurationError, match=f"{type(instrument).__name__} of 'density' needs a Cartesian"):
            instrument.check(domain.grid)
    with pytest.raises(ConfigurationError, match="two axes, r and z"):
        Grid((8,), axisymmetric=True)
