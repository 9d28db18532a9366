"""A stretching whose strength is a formula of parameters: runs, derivatives, a search for it, what is refused."""

import jax
import numpy as np
import pytest
from inverse_problems import evaluated

import simjax as sj
from simjax.config.structure import structure_of
from simjax.errors import ConfigurationError
from simjax.inverse.problem import InverseProblem

FINE = {"tanh": {"strength": "1 + named/2", "fine": "lower"}}
PLANE = {"shape": [12, 4], "stretch": {"x": FINE}}
COOLING = {
    "grid": {"shape": [12], "stretch": {"x": FINE}},
    "parameters": {"named": 1.0},
    "precision": "float64",
    "physics": {"diffusivity": 0.1, "velocity": [0.3]},
    "boundaries": {"x": "slip"},
    "initial": {"concentration": "exp(-8*x)"},
    "time": {"end": 0.1, "output_every": 0.05, "dt": 0.0005},
    "outputs": [
        {"probe": {"points": [[0.005], [0.11], [0.63], [1.0]]}, "of": "concentration", "name": "places"},
    ],
    "output": {"report": False},
}


def cooling(**changes):
    return sj.configure("advection_diffusion", **(COOLING | changes))


@pytest.mark.slow
def test_a_run_is_that_of_the_number_and_its_file_keeps_the_formula():
    simulation = cooling()
    assert simulation.config.write()["grid"]["stretch"]["x"]["tanh"]["strength"] == "1 + named/2"
    other = cooling(parameters={"named": 2.0})
    assert structure_of(other.config) != structure_of(simulation.config)  # programs of one do not serve the other
    plain = cooling(grid={"shape": [12], "stretch": {"x": {"tanh": {"strength": 2.0, "fine": "lower"}}}})
    found, right = (one.run().ds for one in (other, plain))
    assert np.array_equal(found.x, right.x) and np.array_equal(found.concentration, right.concentration)


@pytest.mark.slow
def test_a_run_has_a_derivative_with_respect_to_it():
    run = cooling().differentiable(variables=["concentration"])

    def seen(named):
        return run({"named": named}).observed["concentration"][-1]

    # Rounding of places that are computed on the host and in a program, over widths of 0.02.
    other = cooling(parameters={"named": 1.4}).run().ds.concentration.values[-1]
    np.testing.assert_allclose(seen(1.4), other, rtol=0, atol=1e-12)
    step = 1e-5
    slope = (seen(1.0 + step) - seen(1.0 - step)) / (2 * step)
    found = jax.jit(jax.jacrev(seen))(1.0)
    assert float(np.abs(slope).max()) > 1e-3
    np.testing.assert_allclose(found, slope, rtol=0, atol=1e-8)  # the step's square, and roundings over it


SEARCH = {
    "unknowns": {"parameters.named": {"guess": 0.4, "bounds": [0.1, 3.0]}},
    "observations": [{"output": "diagnostics", "of": "variance_concentration", "deviation": 1e-7}],
    "solver": {"name": "gauss_newton", "iterations": 8},
}


# A place in each of three cells, and an end.
PLACES = [{"output": "places", "deviation": 1e-7}]


def at_places(**changes):
    return InverseProblem(cooling(inverse=SEARCH | {"observations": PLACES} | changes).config, sizes={})


@pytest.mark.slow
def test_the_gradient_of_what_is_seen_at_points_is_that_of_differences():
    problem = at_places()
    least_squares, (path,) = problem.least_squares(), problem.start()
    start, step = problem.start()[path], 1e-5

    @jax.jit
    def seen(latent):
        return least_squares.evaluate({path: latent}).residuals["measured"]["0_concentration"]

    slope = (seen(start + step) - seen(start - step)) / (2 * step)
    assert float(np.abs(slope).min(axis=0).max()) > 1e2  # in deviations of 1e-7
    # Readings of order one have roundings of 1e-15, over a step and a deviation: 1e-3.
    np.testing.assert_allclose(jax.jit(jax.jacfwd(seen))(start), slope, rtol=1e-6, atol=1e-2)


@pytest.mark.slow
def test_what_is_seen_at_points_does_not_depend_on_the_decomposition():
    alone, cut = (evaluated(InverseProblem(at_places().config, sizes=sizes)) for sizes in ({}, {"x": 2}))
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9)  # rounding of 1e-15 of readings, over deviations of 1e-7


@pytest.mark.slow
def test_a_search_finds_the_strength_of_a_run_by_a_diagnostic_and_points():
    found = sj.Search(cooling(inverse=SEARCH | {"observations": SEARCH["observations"] + PLACES})).run().answer
    assert abs(float(found.estimate["parameters.named"]) - 1.0) < 0.01  # errors of 1e-7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": {"named": -3.0}}, r"grid.stretch.x.tanh.strength = '1 \+ named/2' is -0.5: expected a finite"),
        ({"parameters": {"other": 1.0}}, "grid.stretch.x.tanh.strength: at column 5 .* unknown name 'named'"),
        (
            {"ensemble": {"size": 2, "vary": {"parameters.named": {"linspace": [1, 2]}}}},
            "ensemble.vary.parameters.named: grid.stretch.x.tanh.strength is made of it, and all members have one grid",
        ),
        (
            {"inverse": SEARCH | {"observations": [{"output": "fields", "of": "concentration", "deviation": 0.1}]}},
            r"cells move with it, while inverse.observations\[0\] \(fields\) is of given cells; expected an output",
        ),
        (
            {
                "grid": PLANE,
                "boundaries": {"x": "slip", "y": "periodic"},
                "physics": {"diffusivity": 0.1, "velocity": [0.3, 0.0]},
                "outputs": [{"slice": {"y": 0.5}, "of": ["concentration"], "every": "frame", "name": "cut"}],
                "inverse": SEARCH | {"observations": [{"output": "cut", "of": "concentration", "deviation": 0.1}]},
            },
            r"inverse.observations\[0\] \(cut\) is of given cells; .* a slice across the axis whose cells move",
        ),
        (
            {"inverse": SEARCH | {"unknowns": SEARCH["unknowns"] | {"initial.concentration": {}}}},
            "cells move with it, while initial.concentration is given cell by cell; expected formulas",
        ),
    ],
    ids=["range", "name", "members", "snapshot", "slice along it", "field"],
)
def test_what_it_cannot_be_is_told(changes, message):
    with pytest.raises(ConfigurationError, match=message):
        cooling(**changes)
