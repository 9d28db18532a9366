"""A stretching whose strength is a formula of parameters: runs, derivatives, a search for it, what is refused."""

import jax
import numpy as np
import pytest

import simjax as sj
from simjax.config.structure import structure_of
from simjax.errors import ConfigurationError

FINE = {"tanh": {"strength": "1 + named/2", "fine": "lower"}}
COOLING = {
    "grid": {"shape": [12], "stretch": {"x": FINE}}, "parameters": {"named": 1.0}, "precision": "float64",
    "physics": {"diffusivity": 0.1, "velocity": [0.3]}, "boundaries": {"x": "slip"},
    "initial": {"concentration": "exp(-8*x)"}, "time": {"end": 0.1, "output_every": 0.05, "dt": 0.0005},
    "output": {"report": False},
}  # fmt: skip


def cooling(**changes):
    return sj.configure("advection_diffusion", **(COOLING | changes))


def test_a_run_is_that_of_the_number_and_its_file_keeps_the_formula():
    simulation = cooling()
    assert simulation.config.write()["grid"]["stretch"]["x"]["tanh"]["strength"] == "1 + named/2"
    other = cooling(parameters={"named": 2.0})
    assert structure_of(other.config) != structure_of(simulation.config)  # programs of one do not serve the other
    plain = cooling(grid={"shape": [12], "stretch": {"x": {"tanh": {"strength": 2.0, "fine": "lower"}}}})
    found, right = (one.run().ds for one in (other, plain))
    assert np.array_equal(found.x, right.x) and np.array_equal(found.concentration, right.concentration)


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
    "observations": [{"diagnostic": "variance_concentration", "deviation": 1e-7}],
    "solver": {"name": "gauss_newton", "iterations": 8},
}  # fmt: skip


@pytest.mark.slow
def test_a_search_finds_the_strength_of_a_run_by_its_diagnostics():
    found = sj.Search(cooling(inverse=SEARCH)).run().answer
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
            {"inverse": SEARCH | {"observations": [{"snapshot": "concentration", "deviation": 0.1}]}},
            r"cells move with it, while inverse.observations\[0\] \(snapshot\) is of given cells; expected a diagn",
        ),
        (
            {"inverse": SEARCH | {"unknowns": SEARCH["unknowns"] | {"initial.concentration": {}}}},
            "cells move with it, while initial.concentration is given cell by cell; expected formulas",
        ),
    ],
    ids=["range", "name", "members", "snapshot", "field"],
)  # fmt: skip
def test_what_it_cannot_be_is_told(changes, message):
    with pytest.raises(ConfigurationError, match=message):
        cooling(**changes)
