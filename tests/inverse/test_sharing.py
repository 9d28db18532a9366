"""One compiled program for many inverse problems: data sets, noises, starts and numbers are its arguments."""

import contextlib
import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest
from configurations import models, shipped

import simjax as sj
from simjax.config import validate
from simjax.config.structure import structure_of
from simjax.core.domain import Domain
from simjax.driver import shared_programs
from simjax.driver.start.build import describe_model
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.inverse.search import Search
from simjax.models.registry import MODELS
from simjax.schema.numbers import number_values

BASE = {
    "experiment_name": "line",
    "model": "advection_diffusion",
    "precision": "float64",
    "grid": {"shape": [16], "upper": [1.0]},
    "initial": {"concentration": "depth*sin(2*pi*x)"},
    "time": {"end": 0.02, "output_every": 0.01, "dt": 0.005},
    "outputs": [{"probe": {"points": [[0.2], [0.7]]}, "of": "concentration"}],
}


def config(diffusivity=0.05, depth=1.5, guess=0.1, deviation=0.002, seed=0, **changes):
    observed = {"output": "probe", "deviation": deviation}
    inverse = {
        "unknowns": {"physics.diffusivity": {"guess": guess, "positive": True}, "initial.concentration": {}},
        "observations": [
            observed,
            {"output": "fields", "of": "concentration", "fraction": 10 * deviation, "noise": {"huber": 1.3}},
        ],
        "solver": {"name": "adam", "iterations": 2},
    }
    physics = {"diffusivity": diffusivity, "velocity": [0.3]}
    plain = {**BASE, "seed": seed, "physics": physics, "parameters": {"depth": depth}, "inverse": inverse, **changes}
    return validate(plain)


@contextlib.contextmanager
def compilations():
    """A list that holds one entry for every program compiled inside."""
    counted, counting = [], True

    def listen(event, duration, **_):
        if counting and event.endswith("backend_compile_duration"):
            counted.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield counted
    counting = False  # a listener cannot be taken back through the public interface


def losses(problem):
    least_squares = problem.least_squares()
    return [np.asarray(u) for u in jax.tree.leaves(eqx.filter_jit(value_and_gradient)(least_squares, problem.start()))]


def value_and_gradient(least_squares, latent):
    return jax.value_and_grad(least_squares.loss, has_aux=True)(latent)


@pytest.mark.slow
def test_a_second_problem_of_the_same_structure_compiles_nothing():
    """Another truth, guess, noise and draw of it: the same program, and the numbers of a program of its own."""
    with compilations() as first:
        losses(sj.InverseProblem(config()))
    assert first  # else the count proves nothing
    changed = {"diffusivity": 0.02, "depth": 0.7, "guess": 0.3, "deviation": 0.01, "seed": 4}
    with compilations() as second:
        shared = losses(sj.InverseProblem(config(**changed)))
    assert not second
    shared_programs.forget_programs()
    alone = losses(sj.InverseProblem(config(**changed)))
    for a, b in zip(shared, alone, strict=True):
        np.testing.assert_array_equal(a, b)  # the same instructions on the same numbers


@pytest.mark.slow
def test_measurements_given_in_python_compile_nothing():
    problem = sj.InverseProblem(config())
    before = losses(problem)
    name, other = (instrument.name for instrument in problem.instruments)
    twice = {name: 2 * problem.instruments[0].measured}
    with compilations() as second:
        after = losses(problem.with_measurements(twice, deviation={name: 0.1}, start={"physics.diffusivity": 0.2}))
    assert not second and after[0] != before[0]
    again = problem.with_measurements({}, start={"physics.diffusivity": 0.2})
    assert float(again.physical(again.start())["physics.diffusivity"]) == pytest.approx(0.2, rel=1e-14)
    np.testing.assert_array_equal(again.instruments[1].measured, problem.instruments[1].measured)
    assert problem.is_twin and not problem.with_measurements(twice).is_twin
    with pytest.raises(ConfigurationError, match="expected shape"):
        problem.with_measurements({other: np.zeros(3)})
    with pytest.raises(ConfigurationError, match="expected the name of an instrument"):
        problem.with_measurements({"none": np.zeros(3)})
    with pytest.raises(ConfigurationError, match=r"start\['physics.velocity'\]"):
        problem.with_measurements({}, start={"physics.velocity": 1.0})
    with pytest.raises(ConfigurationError, match="shape"):
        problem.with_measurements({}, start={"initial.concentration": np.zeros(3)})


@pytest.mark.slow
def test_a_second_search_compiles_nothing(tmp_path):
    """From the first step to the intervals and the report's numbers."""
    output = {"root": str(tmp_path), "report": False, "animation": False}
    with jax.numpy_dtype_promotion("standard"):  # within Optax
        Search(config(output=output)).run()
        with compilations() as second:
            found = Search(config(diffusivity=0.02, guess=0.3, deviation=0.01, seed=4, output=output)).run()
    assert not second and found.exit_code == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"grid": {"shape": [32], "upper": [1.0]}},
        {"time": {"end": 0.02, "output_every": 0.01, "dt": 0.0025}},
        {"boundaries": {"x": {"lower": {"kind": "dirichlet", "value": 1}, "upper": "outflow"}}},
        {"physics": {"diffusivity": 0.05, "velocity": [0.3], "scheme": "upwind"}},
        {"initial": {"concentration": "depth*cos(2*pi*x)"}},
        {"diffusivity": 0.0},
        {"closure": {"concentration": "-concentration"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_in_a_program_is_in_its_key(changes):
    physics = changes.pop("physics", None)
    before, after = config(inverse=None), config(**changes, inverse=None, **({"physics": physics} if physics else {}))
    assert structure_of(before) != structure_of(after)


def test_the_seed_is_in_the_key_where_a_formula_calls_noise():
    noisy = {"initial": {"concentration": "noise(3)"}, "inverse": None}
    assert structure_of(config(seed=1, **noisy)) != structure_of(config(seed=2, **noisy))
    assert structure_of(config(seed=1)) == structure_of(config(seed=2))


# One experiment for each model; programs of particles are not shared.
SHIPPED = {model: name for name, model in models().items() if not MODELS[model].of_particles}


@pytest.mark.parametrize("name", SHIPPED.values(), ids=SHIPPED)
def test_models_depend_on_numbers_as_arguments_alone(name):
    """Shared programs take for granted that numbers reach the model as arguments and in no other way."""
    before = shipped(name)
    numbers = number_values(before.physics)
    scaled = {
        f.name: value * 1.25 if f.name in numbers else tuple(1.25 * v for v in value)
        for f in dataclasses.fields(before.physics)
        if (value := getattr(before.physics, f.name)) is not None
        and (f.name in numbers or any(n.startswith(f"{f.name}_") for n in numbers) and isinstance(value, tuple))
    }
    parameters = {name: 1.25 * value for name, value in before.parameters.items()}
    after = dataclasses.replace(before, physics=dataclasses.replace(before.physics, **scaled), parameters=parameters)
    assert structure_of(before) == structure_of(after)
    grid = before.grid_of_fields()
    described = [describe_model(c, Domain(Grid(grid.shape, grid.lower, grid.upper))) for c in (before, after)]
    assert eqx.tree_equal(*described)
