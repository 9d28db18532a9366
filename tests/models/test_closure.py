"""Closures: learned terms inside a model, the same on any mesh, and found from what a run shows of them."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from case import QUICK
from configurations import refusal
from inverse_problems import BASE, SENSORS, SNAPSHOT, evaluated, searched

import simjax as sj
from simjax.config import validate
from simjax.driver.start.build import build_model, initial_fields_and_state, named_values
from simjax.errors import ConfigurationError
from simjax.integrators.table import INTEGRATORS
from simjax.inverse.problem import InverseProblem
from simjax.models.registry import MODELS
from simjax.stepping.simulate import Schedule, simulate

KEY = jax.random.key(0)
compiled = functools.partial(jax.jit, compiler_options=QUICK)


class Linear(eqx.Module):
    """f(u) = rate u at each cell."""

    rate: jax.Array

    def __call__(self, u):
        return self.rate * u


class Spread(eqx.Module):
    """A Laplacian with a coefficient of its own: a stencil of width 1 that ignores the spacing."""

    strength: jax.Array

    def __call__(self, u):
        return self.strength * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])


def linear(rate):
    return sj.Closure(Linear(jnp.asarray(rate)))


def network(width=1, hidden=(4,), last=0.1):
    """One that does something: its last layer is not zero."""
    made = sj.LocalNetwork(1, 2, hidden, width=width, key=KEY)
    made = eqx.tree_at(lambda m: m.weights[-1], made, last * jax.random.normal(KEY, made.weights[-1].shape))
    return sj.Closure(made, width=width)


def posed(unknowns=None, observations=(SENSORS,), base=BASE, **sections):
    unknowns = {"modules.closure": {}} if unknowns is None else unknowns
    solver = sections.pop("solver", {"name": "gauss_newton", "iterations": 12})
    section = {"unknowns": unknowns, "observations": list(observations), "solver": solver}
    return validate({**base, "inverse": section, **sections})


# ---------------------------------------------------------------------- in a model

SMALL = {"grid": {"shape": [8, 8]}, "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01}}
WAVE = "1 + 0.1*sin(2*pi*x)*cos(2*pi*y)"
CASES = {
    "advection_diffusion": {"physics": {"diffusivity": 0.01, "velocity": [1, 0]}, "initial": {"concentration": WAVE}},
    "transport": {
        "coefficients": {"velocity": [1, 0], "diffusivity": 0.01},
        "initial": {"concentration": WAVE},
        "time": {**SMALL["time"], "integrator": "ars222"},
    },
    "incompressible": {"physics": {"viscosity": 0.01}, "initial": {"velocity": ["sin(2*pi*y)", "sin(2*pi*x)"]}},
    "compressible": {"initial": {"density": WAVE, "pressure": "1", "velocity": ["0.1*sin(2*pi*y)", "0.2"]}},
    "gray_scott": {"initial": {"u": WAVE, "v": "0.3*cos(2*pi*x)"}},
    "vorticity": {"physics": {"viscosity": 0.01}, "initial": {"vorticity": "sin(2*pi*x)*sin(2*pi*y)"}},
}


def built(name, closure=None):
    config = validate({"model": name, "precision": "float64", **SMALL, **CASES[name]})
    domain = sj.Domain(sj.Grid((8, 8), (0.0, 0.0), (1.0, 1.0)))
    values = {key: jnp.asarray(value) for key, value in named_values(config).items()}
    model, params = build_model(config, domain, values, {"modules": {"closure": closure}})
    state = initial_fields_and_state(config, model, params, values, 0, {}, jnp.dtype("float64"))[1]
    return config, model, params, state


def run(name, closure=None):
    config, model, params, state = built(name, closure)
    schedule = Schedule(0.02, 0.0, 0.01)
    program = compiled(
        lambda params, state: (
            simulate(
                model,
                INTEGRATORS[config.time.integrator],
                params,
                state,
                schedule,
                frames=1,
                observe=lambda t, state, params: model.observe(t, state, params),
            ).observed
        )
    )
    return program(params, state)


def difference(closed, plain, state, params, own):
    """What a closure adds to a tendency."""
    return compiled(lambda state: jax.tree.map(jnp.subtract, closed(0.0, state, params), plain(0.0, state, own)))(state)


class Nothing(eqx.Module):
    """No tendency at all, of as many fields as there are."""

    def __call__(self, *fields):
        return tuple(jnp.zeros_like(u) for u in fields)


@pytest.mark.parametrize(
    "name",
    [
        "advection_diffusion",
        pytest.param("transport", marks=pytest.mark.slow),
        pytest.param("incompressible", marks=pytest.mark.slow),
        pytest.param("compressible", marks=pytest.mark.slow),
        "gray_scott",
        pytest.param("vorticity", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_closure_of_zeros_leaves_the_run_as_it_is(name):
    plain, closed = run(name), run(name, sj.Closure(Nothing()))
    for variable, expected in plain.items():
        # Adding zero changes no bit; the compiler may contract products otherwise around it.
        np.testing.assert_allclose(closed[variable], expected, rtol=0, atol=1e-14 * float(np.abs(expected).max() + 1))


@pytest.mark.slow
def test_primitive_tendencies_of_a_gas_become_those_of_its_conserved_state():
    """rho' = 0, p' = 0 and u' = a is a body force: d(rho u)/dt = rho a and d(E)/dt = rho u . a."""

    class Force(eqx.Module):
        def __call__(self, u, v):
            return jnp.full_like(u, 2.0), jnp.zeros_like(v)

    _, model, params, state = built("compressible", sj.Closure(Force(), fields=("velocity",)))
    _, plain, own, _ = built("compressible")
    added = difference(model.rhs, plain.rhs, state, params, own)
    # Differences of tendencies of order one, in float64.
    for found, expected in (
        (added.density, 0.0),
        (added.momentum[0], 2 * state.density),
        (added.momentum[1], 0.0),
        (added.energy, 2 * state.momentum[0]),
    ):
        np.testing.assert_allclose(found, jnp.broadcast_to(jnp.asarray(expected), found.shape), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["gray_scott", "transport"])
@pytest.mark.slow
def test_a_closure_is_the_explicit_part(name):
    """A decay -3 u given as a closure is added to the tendency and to its explicit part, whatever the state's basis."""
    _, model, params, state = built(name, sj.Closure(lambda *fields: tuple(-3.0 * u for u in fields)))
    _, plain, own, _ = built(name)
    for part in ("rhs", "explicit_rhs"):
        added = difference(getattr(model, part), getattr(plain, part), state, params, own)
        for found, u in zip(jax.tree.leaves(added), jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(found, -3 * u, rtol=0, atol=1e-11)


def test_a_model_without_a_tendency_takes_none():
    """The section is refused wherever a model advances in two halves, or steps by itself."""
    for name, model in sorted({each: MODELS[each] for each in MODELS if not MODELS[each].modules}.items()):
        if not model.of_particles:
            said = refusal({"model": name, **SMALL, "closure": {"u": "1"}})
            assert f"closure: model={name} has no tendency" in said
    domain = sj.Domain(sj.Grid((8, 8), (0.0, 0.0), (1.0, 1.0)))
    config = validate({"model": "acoustic", **SMALL})
    with pytest.raises(ConfigurationError, match="a model with a tendency to add to; Acoustic advances in two"):
        build_model(
            config,
            domain,
            {k: jnp.asarray(v, jnp.float32) for k, v in named_values(config).items()},
            {"modules": {"closure": linear(1.0)}},
        )


def test_what_a_module_must_return_is_told():
    for module, words in (
        (lambda u: (u, u), "returned 2 arrays"),
        (lambda u: u[1:], r"shapes \[\(7, 8\)\]"),
    ):
        _, model, params, state = built("advection_diffusion", sj.Closure(module))
        with pytest.raises(ConfigurationError, match=words):
            model.rhs(0.0, state, params)
    _, model, params, state = built("advection_diffusion", sj.Closure(lambda u: u, fields=("velocity",)))
    with pytest.raises(ConfigurationError, match=r"Closure.fields=\['velocity'\].*write some of concentration"):
        model.rhs(0.0, state, params)


# ---------------------------------------------------------------------- as an unknown


@pytest.mark.slow
def test_gradients_through_a_network_do_not_depend_on_the_decomposition():
    """A network that reads its neighbours, and a number beside it."""
    config = posed({"modules.closure": {}, "physics.diffusivity": {"guess": 0.1}}, [SNAPSHOT])
    guess = {"closure": network()}
    alone, cut = (evaluated(InverseProblem(config, sizes=sizes, modules=guess)) for sizes in ({}, {"x": 2, "y": 4}))
    for path, expected in jax.tree.leaves_with_path(alone):
        found = dict(jax.tree.leaves_with_path(cut))[path]
        # Residuals are in standard deviations, up to some hundred; sums over cells in another order.
        scale = float(np.abs(expected).max())
        assert scale > 0
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * max(scale, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("closure", ["pointwise", "stencil"])
def test_a_linear_closure_is_found(closure, tmp_path):
    """One coefficient, from snapshots with little noise: exact but for that noise and where the solver stops."""
    of = linear if closure == "pointwise" else lambda c: sj.Closure(Spread(jnp.asarray(c)), width=1)
    truth = -0.7 if closure == "pointwise" else 0.3
    problem = InverseProblem(
        posed(observations=[{**SNAPSHOT, "deviation": 1e-9}], output={"root": str(tmp_path), "report": False}),
        modules={"closure": of(0.1)},
        true_modules={"closure": of(truth)},
    )
    found = searched(problem)
    (coefficient,) = jax.tree.leaves(found.answer.modules["closure"])
    # Noise of 1e-9 in values of order one.
    assert float(coefficient) == pytest.approx(truth, abs=1e-8)
    again = eqx.tree_deserialise_leaves(found.folder / "closure.eqx", of(0.0))
    assert eqx.tree_equal(again, found.answer.modules["closure"])
    with xr.open_dataset(found.folder / "inversion.h5", engine="h5netcdf") as file:
        name = "rate" if closure == "pointwise" else "strength"
        assert float(file[f"modules.closure.module.{name}"]) == float(coefficient)


def test_a_closure_of_a_configuration_is_a_term_of_the_equation():
    """dc/dt = -rate c of a uniform field decays exactly as the scheme does: kutta3 to third order in rate dt."""
    sections = {
        "model": "advection_diffusion",
        "precision": "float64",
        **SMALL,
        "parameters": {"rate": 3.0},
        "physics": {"diffusivity": 0.01, "velocity": [1, 0]},
        "initial": {"concentration": 2},
        "closure": {"concentration": "-rate*concentration"},
    }
    config = validate(sections)
    assert validate(config.write()) == config
    values = {key: jnp.asarray(value) for key, value in named_values(config).items()}
    model, params = build_model(config, sj.Domain(sj.Grid((8, 8), (0.0, 0.0), (1.0, 1.0))), values, {})
    state = initial_fields_and_state(config, model, params, values, 0, {}, jnp.dtype("float64"))[1]
    z = -3.0 * 0.01
    state = INTEGRATORS["kutta3"].step(model, 0.0, jnp.asarray(0.01), state, params, None)
    np.testing.assert_allclose(state.concentration, 2 * (1 + z + z**2 / 2 + z**3 / 6), rtol=1e-14)


def test_fields_of_a_closure_see_each_other():
    """Only u changes, by what v is."""
    config = validate(
        {"model": "gray_scott", "precision": "float64", **SMALL, **CASES["gray_scott"], "closure": {"u": "v**2"}}
    )
    values = {key: jnp.asarray(value) for key, value in named_values(config).items()}
    model, params = build_model(config, sj.Domain(sj.Grid((8, 8), (0.0, 0.0), (1.0, 1.0))), values, {})
    _, plain, own, state = built("gray_scott")
    added = difference(model.rhs, plain.rhs, state, params, own)
    assert float(jnp.abs(added["v"]).max()) == 0.0
    v = plain.to_grid(state["v"])
    np.testing.assert_allclose(added["u"], plain.to_spectrum(v * v), rtol=0, atol=1e-14)


@pytest.mark.slow
def test_a_network_of_the_configuration_begins_as_nothing():
    config = posed({"modules.closure": {"network": {"hidden": [4, 3], "width": 1}}}, [SNAPSHOT])
    assert validate(config.write()) == config
    problem = InverseProblem(config, sizes={})
    plain = InverseProblem(posed({"physics.diffusivity": {}}, [SNAPSHOT]), sizes={})
    # The same run and the same noise; the compiler may contract products otherwise around the added zeros.
    for name, read in problem.readings(problem.start()).items():
        np.testing.assert_allclose(read, plain.readings(plain.start())[name], rtol=0, atol=1e-13)
    (latent,) = problem.start().values()
    assert [leaf.shape for leaf in jax.tree.leaves(latent)] == [(4, 9), (3, 4), (1, 3), (4,), (3,), (1,)]


@pytest.mark.long
def test_a_search_for_weights_goes_on_exactly_and_on_another_mesh(tmp_path):
    def config(iterations, **changes):
        solver = {"name": "adam", "iterations": iterations, "tolerance": 0.0}
        unknowns = {"modules.closure": {"network": {"hidden": [3]}, "prior": {"gaussian": {"mean": 0, "deviation": 1}}}}
        output = {"root": str(tmp_path), "report": False}
        return posed(unknowns, [SNAPSHOT], solver=solver, output=output, **changes)

    whole, part = searched(config(4)), searched(config(2))
    resumed = searched(config(4, mesh={"x": 2, "y": 2}), resume=str(part.folder))
    for a, b in zip(
        *(jax.tree.leaves(eqx.filter(f.answer.modules, eqx.is_array)) for f in (whole, resumed)), strict=True
    ):
        # Sums in another order on the mesh.
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_a_network_that_does_not_begin_as_nothing_has_an_effect():
    """What the test before would not see: with other last weights the readings are others."""
    config = posed(observations=[SNAPSHOT])
    zero, some = (InverseProblem(config, sizes={}, modules={"closure": network(last=last)}) for last in (0.0, 0.1))
    (a,), (b,) = (p.readings(p.start()).values() for p in (zero, some))
    assert float(np.abs(a - b).max()) > 1e-3


def test_mistakes_are_told():
    base = {**BASE, "closure": {"concentration": "-concentration"}}
    assert "closure.concentratio: unknown key" in refusal({**base, "closure": {"concentratio": "1"}})
    assert "unknown name 'z'" in refusal({**base, "closure": {"concentration": "z"}})
    assert "parameters.concentration: 'concentration' names a field" in refusal(
        {**base, "parameters": {"concentration": 1.0, "depth": 1.5}}
    )
    assert "closure: model=acoustic has no tendency" in refusal({"model": "acoustic", **SMALL, "closure": {"p": "1"}})
    with pytest.raises(ConfigurationError, match=r"closure: expected a module to start from; write network"):
        InverseProblem(posed())
    with pytest.raises(ConfigurationError, match=r"modules\['closure'\]: expected a simjax.Closure, got Linear"):
        InverseProblem(posed(), modules={"closure": Linear(jnp.asarray(1.0))})
    with pytest.raises(ConfigurationError, match="modules: model=advection_diffusion has no module 'closur'"):
        InverseProblem(posed(), modules={"closur": linear(1.0)})
    number = {"physics.diffusivity": {"network": {"hidden": [3]}}}
    assert "diffusivity.network: expected at a module" in refusal(
        {**BASE, "inverse": {"unknowns": number, "observations": [SENSORS]}}
    )
