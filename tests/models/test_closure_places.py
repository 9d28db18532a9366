"""Closures by the names of their fields, at the places of these, beside every side, and with place and time."""

import functools
import itertools
import re

import cases_closures
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from case import PERIODIC, QUICK
from configurations import refusal
from paths import ROOT

import simjax as sj
from simjax.config import validate
from simjax.core.boundary import NoSlipWall
from simjax.core.domain import Domain
from simjax.driver.start.build import build_model, initial_fields_and_state, named_values
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.closure import with_closure
from simjax.models.flow import passive_scalar
from simjax.models.registry import MODELS
from simjax.schema.side_declarations import sides_of
from simjax.stepping.simulate import Schedule, simulate
from simjax.stepping.temporal_blocking import blocked

SMALL = {"grid": {"shape": [8, 8]}, "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01}, "precision": "float64"}
WAVE, OTHER = "1 + 0.1*sin(2*pi*x)*cos(2*pi*y)", "0.4*cos(2*pi*x + 1)"
SCALAR, FLOW = {"concentration": WAVE}, {"velocity": ["sin(2*pi*y)", "sin(2*pi*x)"]}
GAS = {"density": WAVE, "pressure": f"2 + {OTHER}", "scalars": [OTHER, WAVE], **FLOW}
SECTIONS = {
    "advection_diffusion": {"physics": {"diffusivity": 0.01, "velocity": [1, 0]}, "initial": SCALAR},
    "transport": {"coefficients": {"velocity": [1, 0], "diffusivity": 0.01}, "initial": SCALAR},
    "burgers": {"physics": {"viscosity": 0.01}, "initial": SCALAR},
    "incompressible": {"physics": {"viscosity": 0.01}, "initial": FLOW},
    "passive_scalar": {"physics": {"viscosity": 0.01}, "initial": {**FLOW, **SCALAR}},
    "boussinesq": {
        "physics": {
            "viscosity": 0.01,
            "gravity": [0, -1],
            "scalar_diffusivity": [0.01, 0],
            "scalar_expansion": [-1, 0],
        },
        "initial": {**FLOW, "temperature": WAVE, "scalars": [OTHER, WAVE]},
    },
    "compressible": {"initial": GAS},
    "vorticity": {"physics": {"viscosity": 0.01}, "initial": {"vorticity": "sin(2*pi*x)*sin(2*pi*y)", **FLOW}},
    "gray_scott": {"initial": {"u": WAVE, "v": OTHER}},
    "schroedinger": {"initial": {"real_part": WAVE, "imaginary_part": OTHER}},
}
INFLOWS = {
    "incompressible": {"velocity": [0.3, 0]},
    "passive_scalar": {"velocity": [0.3, 0], "value": 0.5},
    "boussinesq": {"velocity": [0.3, 0], "temperature": 0.5},
    "compressible": {"density": 1, "velocity": [0.1, 0], "pressure": 1, "scalars": [0, 0]},
}
VALUES = {
    "dirichlet": {"value": 0.5},
    "neumann": {"slope": 0.3},
    "no_slip": {},
    "slip": {},
    "outflow": {},
    "inflow": {"value": 0.5},
    "robin": {"transfer": 2, "outside": 0.5},
    "open": {"pressure": 0.1, "backflow": 0.7},
    "characteristic_outflow": {"pressure": 1},
    "characteristic_inflow": {"density": 1, "velocity": [0, 0], "pressure": 1, "scalars": [0, 0]},
    "wall_model": {},
    "turbulent_inflow": {"velocity": [0, 0], "fluctuation": 0, "eddy_size": 0.3, "eddy_time": 0.5},
}


def built(name, module=None, boundaries=None, **sections):
    """The model with a closure, of Python or of the configuration, its parameters and its first state."""
    config = validate({"model": name, **SMALL, **SECTIONS[name], "boundaries": boundaries or {}, **sections})
    values = {key: jnp.asarray(value) for key, value in named_values(config).items()}
    model, params = build_model(config, Domain(Grid(config.grid.shape)), values, {"modules": {"closure": module}})
    return model, params, initial_fields_and_state(config, model, params, values, 0, {}, jnp.dtype("float64"))[1]


def added(model, params, state, t=0.0):
    """The tendency that the closure adds to that of the state."""
    nothing = jax.tree.map(jnp.zeros_like, state)
    return jax.jit(lambda state: model.added(nothing, t, state, params), compiler_options=QUICK)(state)


class Mixture(eqx.Module):
    """A tendency of each component, by its name, of all of them: another one for each."""

    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, *fields):
        by_name = dict(zip(self.names, fields, strict=True))
        number = {name: 1 + k for k, name in enumerate(sorted(by_name))}
        total = sum(number[name] ** 2 * u for name, u in by_name.items())
        return tuple(number[name] * u * u + total for name, u in by_name.items())


# ---------------------------------------------------------------------- names


SEVERAL = [name for name, schema in MODELS.items() if schema.modules and len(schema.fields) > 1]


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.slow
def test_the_order_in_which_fields_are_named_does_not_matter(name):
    config = validate({"model": name, **SMALL, **SECTIONS[name]})
    components = {field.name: field.components(2, config.counts.get(field.name, 0)) for field in config.fields}
    orders = list(itertools.permutations(components))
    found = []
    for order in (orders[0], orders[len(orders) // 2]):  # two fields swapped; of four, three moved round
        module = Mixture(tuple(component for field in order for component in components[field]))
        found.append(added(*built(name, sj.Closure(module, fields=order))))
    for one, two in zip(*map(jax.tree.leaves, found), strict=True):
        # The same sums of values up to a hundred, which the compiler may contract in another way.
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-12)
    assert all(float(jnp.abs(leaf).max()) > 0.1 for leaf in jax.tree.leaves(found[0]))


def test_a_term_of_the_configuration_goes_where_it_is_written():
    """Fields of a model are declared in another order than its state has them: velocity follows the concentration."""
    model, params, state = built("passive_scalar", closure={"velocity": ["0", "concentration"]})
    slope = added(model, params, state)
    c = np.asarray(state.concentration)
    assert not np.any(slope.concentration) and not np.any(slope.velocity[0])
    np.testing.assert_allclose(slope.velocity[1], 0.5 * (c + np.roll(c, 1, axis=1)), rtol=0, atol=1e-15)


# ---------------------------------------------------------------------- sides

SIDES = [(name, kind) for name, schema in MODELS.items() if schema.modules for kind in sides_of(schema.sides)]


def beside(name, kind):
    """A side of some kind at both ends of x."""
    values = INFLOWS.get(name, VALUES[kind]) if kind == "inflow" else VALUES[kind]
    return {"x": {"kind": kind, **values}}


@pytest.mark.parametrize("name, kind", SIDES)
@pytest.mark.slow
def test_a_closure_of_single_cells_needs_no_side(name, kind):
    """-3 u of every field, whatever the side prescribes."""
    closure = sj.Closure(lambda *fields: tuple(-3.0 * u for u in fields))
    model, params, state = built(name, closure, beside(name, kind))
    slope = added(model, params, state)
    if name == "compressible":  # energy is not linear in the fields that the closure is of
        slope, state = slope.scalars, tuple(2 * u for u in state.scalars)
    for found, u in zip(jax.tree.leaves(slope), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(found, -3 * u, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_a_term_on_a_cavity_is_one():
    model, params, state = built(
        "incompressible",
        boundaries={"x": "no_slip", "y": {"lower": "no_slip", "upper": "slip"}},
        closure={"velocity": ["-velocity_x", "-velocity_y"]},
    )
    for found, u in zip(added(model, params, state).velocity, state.velocity, strict=True):
        np.testing.assert_array_equal(found, -u)


# ---------------------------------------------------------------------- places


class Stirred(eqx.Module):
    """Products of what lives at different places."""

    def __call__(self, c, u, v):
        return u * v, c * v, c * c


class Curved(eqx.Module):
    """Second differences of the product of all fields, each divided by h^2: a stencil."""

    spacing: float = eqx.field(static=True)

    def __call__(self, c, u, v):
        product = c * u * v
        second = product[2:, 1:-1] + product[:-2, 1:-1] + product[1:-1, 2:] + product[1:-1, :-2]
        slope = (second - 4 * product[1:-1, 1:-1]) / self.spacing**2
        return slope, slope, slope


def shaped(walls):
    """A smooth concentration and velocity that obey the sides: no flux and no slip at walls, or periodic."""
    k = np.pi if walls else 2 * np.pi

    def c(x, y):
        return 1.5 + jnp.cos(k * x) * jnp.cos(k * y) + (0 if walls else jnp.sin(k * x))

    def u(x, y):
        return jnp.sin(k * x) * jnp.sin(k * y) * (1 if walls else 2 + jnp.cos(k * y))

    def v(x, y):
        return jnp.sin(k * x) * jnp.sin(k * y) * (2 if walls else 1 + jnp.sin(k * x))

    return c, u, v


def misread(n, walls, stencil):
    """The largest error of each tendency on n x n cells against the term of the exact fields at its own place."""
    sides = [(NoSlipWall(), NoSlipWall())] * 2 if walls else [PERIODIC] * 2
    model = passive_scalar.PassiveScalar(Domain(Grid((n, n))), sides)
    closure = sj.Closure(Curved(1 / n) if stencil else Stirred(), ("concentration", "velocity"), int(stencil))
    params = passive_scalar.Params(*map(jnp.asarray, (0.01, 0.0, 0.01)))
    model, params = with_closure(model, params, closure)
    functions, places = shaped(walls), (model.model.layout, *model.model.flow.layouts)
    points = [model.domain.coordinates(kind.offset) for kind in places]
    fields = [jnp.broadcast_to(f(*x), (n, n)) for f, x in zip(functions, points, strict=True)]
    slope = added(model, params, passive_scalar.State(tuple(fields[1:]), fields[0]))
    errors = []
    for k, (found, x) in enumerate(zip((slope.concentration, *slope.velocity), points, strict=True)):
        exact = [f(*x) for f in functions]
        wanted = Stirred()(*exact)[k]
        if stencil:
            x, y = (jnp.broadcast_to(p, (n, n)) for p in x)

            def product(x, y):
                return functions[0](x, y) * functions[1](x, y) * functions[2](x, y)

            second = [jax.grad(jax.grad(product, axis), axis) for axis in (0, 1)]
            wanted = sum(jax.vmap(d)(x.ravel(), y.ravel()) for d in second).reshape(n, n)
        error = np.abs(np.asarray(found) - np.asarray(wanted))
        # The stored face in a wall is imposed, whatever its tendency is.
        errors.append(error[1 if walls and k == 1 else 0 :, 1 if walls and k == 2 else 0 :].max())
    return np.asarray(errors)


# Not a stencil beside walls: second differences of ghost values, which are of second order, are no derivative.
@pytest.mark.parametrize(
    "walls, stencil", [(False, False), (True, False), (False, True)], ids=["periodic", "walls", "stencil"]
)
@pytest.mark.slow
def test_fields_are_read_at_the_place_of_the_term_to_second_order(walls, stencil):
    coarse, fine = misread(32, walls, stencil), misread(64, walls, stencil)
    order = np.log2(coarse / fine)
    # Truncation of h^2 with the next term, of relative size h^2.
    assert (order > 1.9).all() and (order < 2.1).all(), (order, fine)


def buoyant(n, closure):
    """Error of an oblique wave of concentration that drives a flow by its weight, against the exact solution.

    c = cos(k . x) exp(-D k^2 t) and u = A(t) e cos(k . x) with e . k = 0: neither carries anything, and the pressure
    takes what of the weight is not along e, so dA/dt = (g . e) exp(-D k^2 t) - nu k^2 A.
    """
    nu, diffusivity, end = 0.02, 0.01, 0.2
    k = 2 * np.pi * np.asarray([1.0, 2.0])
    e, square = np.asarray([-k[1], k[0]]) / np.hypot(*k), float(k @ k)
    model = passive_scalar.PassiveScalar(Domain(Grid((n, n))), [PERIODIC] * 2, "central4")
    model, params = with_closure(model, passive_scalar.Params(*map(jnp.asarray, (nu, 0.0, diffusivity))), closure)
    flow = model.model

    def wave(kind):
        x, y = model.domain.coordinates(kind.offset)
        return jnp.cos(k[0] * x + k[1] * y)

    start = passive_scalar.State((jnp.zeros((n, n)),) * 2, wave(flow.layout))
    run = jax.jit(
        lambda params, state: (
            simulate(
                model, INTEGRATORS["ssprk3"], params, state, Schedule(end, dt=end / 20), frames=1, checkpoint="none"
            ).state
        ),
        compiler_options=QUICK,
    )
    final = run(params, start)
    decay = (np.exp(-diffusivity * square * end) - np.exp(-nu * square * end)) / ((nu - diffusivity) * square)
    exact = [e[1] * decay * e[i] * wave(kind) for i, kind in enumerate(flow.flow.layouts)]
    return max(float(jnp.abs(u - w).max()) for u, w in zip(final.velocity, exact, strict=True))


@pytest.mark.slow
def test_buoyancy_by_a_closure_is_of_second_order():
    class Buoyancy(eqx.Module):
        def __call__(self, u, v, c):
            return jnp.zeros_like(u), c, jnp.zeros_like(c)

    closure = sj.Closure(Buoyancy(), ("velocity", "concentration"))
    coarse, fine = buoyant(16, closure), buoyant(32, closure)
    # Twenty steps of third order: 1e-6 beside 1e-3.
    assert 1.85 < np.log2(coarse / fine) < 2.15, (coarse, fine)


# ---------------------------------------------------------------------- place and time


@pytest.mark.slow
def test_formulas_know_place_and_time_at_their_own_place():
    model, params, state = built(
        "incompressible",
        boundaries={"x": "no_slip"},
        parameters={"rate": 2.0},
        closure={"velocity": ["rate*x*cos(t) + y", "x*y*t"]},
    )
    slope = added(model, params, state, t=0.3).velocity
    centers, faces = (np.arange(8) + 0.5) / 8, np.arange(8) / 8
    # A rounding or two of values of order one.
    np.testing.assert_allclose(slope[0], 2 * faces[:, None] * np.cos(0.3) + centers, rtol=0, atol=1e-15)
    np.testing.assert_allclose(slope[1], 0.3 * centers[:, None] * faces, rtol=0, atol=1e-15)


def test_modules_are_given_padded_places():
    """Beyond a wall positions go on; beyond a periodic side they are those of the same place."""

    class Neighbours(eqx.Module):
        def __call__(self, c, *, x, y, t):
            assert x.shape == y.shape == c.shape and t.shape == ()
            return x[:-2, 1:-1] + 10 * x[2:, 1:-1] + 100 * y[1:-1, :-2] + 1000 * y[1:-1, 2:] + t

    closure = sj.Closure(Neighbours(), width=1, coordinates=("y", "x", "t"))
    slope = added(*built("advection_diffusion", closure, {"x": "outflow"}), t=0.5).concentration
    x = (np.arange(-1, 9) + 0.5) / 8
    y = np.mod(x, 1.0)
    wanted = x[:-2, None] + 10 * x[2:, None] + 100 * y[:-2] + 1000 * y[2:] + 0.5
    np.testing.assert_allclose(slope, wanted, rtol=0, atol=1e-12)  # a rounding of a thousand


@pytest.mark.slow
def test_a_term_of_place_and_time_is_a_forcing():
    force = {"velocity": ["sin(2*pi*y)*cos(t)", "x"]}
    runs = []
    for sections in ({"forcing": force}, {"closure": force}):
        model, params, state = built("incompressible", boundaries={"x": "slip"}, **sections)
        step = functools.partial(INTEGRATORS["rk4"].step, model, 0.3, jnp.asarray(0.01))
        runs.append(jax.jit(step, compiler_options=QUICK)(state, params))
    for one, two in zip(jax.tree.leaves(runs[0]), jax.tree.leaves(runs[1]), strict=True):
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-14)  # sums in another order


def test_steps_between_exchanges_take_a_closure_without_places():
    euler = INTEGRATORS["euler"]
    for name, width in itertools.product(("advection-2d-periodic", "advection-2d-walls"), (0, 1)):
        for coordinates in ((), ("x",)):
            case = cases_closures.closed(cases_closures.KNOWN[name], width, coordinates)
            model = case.build(Domain(case.grid))
            taken = functools.partial(blocked, model, euler, case.params(), None, case.initial_state(), 2, jnp.float64)
            if not coordinates:
                assert taken()
                continue
            with pytest.raises(ConfigurationError, match="is not made of stencils alone"):
                taken()


# ---------------------------------------------------------------------- documentation

PAGE = (ROOT / "docs" / "closures.md").read_text()


def test_configurations_of_the_page_are_valid():
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        sections = yaml.safe_load(text)
        merged = {**SMALL, **SECTIONS[sections["model"]], **sections}
        merged["physics"] = {**SECTIONS[sections["model"]]["physics"], **sections.get("physics", {})}
        assert validate(merged).closure


def test_the_module_of_the_page_diffuses():
    model, params, state = built("advection_diffusion", grid={"shape": [64, 64]})
    names = {"model": model, "params": params}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], names)
    slope = added(names["model"], names["params"], state).concentration
    x, y = model.domain.coordinates((0.5, 0.5))
    wave = 0.1 * np.sin(2 * np.pi * x) * np.cos(2 * np.pi * y)
    # Of second order, (2 pi / 64)^2 / 12 of the term.
    np.testing.assert_allclose(slope, -0.1 * x * 8 * np.pi**2 * wave, rtol=0, atol=1e-3 * 0.8)


# ---------------------------------------------------------------------- refusals


def test_what_a_closure_cannot_be_is_told():
    for given, words in (
        ({"fields": "velocity"}, "Closure.fields='velocity': expected a tuple of different names"),
        ({"fields": ("u", "u")}, "expected a tuple of different names"),
        ({"coordinates": ("x", "r")}, "expected some of x, y, z and t"),
        ({"width": -1}, "Closure.width=-1: expected a number of ghost cells"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            sj.Closure(lambda u: u, **given)
    model, params, state = built("advection_diffusion", sj.Closure(lambda u, z: u, coordinates=("z",)))
    with pytest.raises(ConfigurationError, match="a grid of 2 axes has no z; write some of x, y and t"):
        model.rhs(0.0, state, params)
    sections = {"model": "gray_scott", **SMALL, **SECTIONS["gray_scott"]}
    assert "unknown name 'z'" in refusal({**sections, "closure": {"u": "z"}})
