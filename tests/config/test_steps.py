"""What decides on the length of steps, `time.dt`, `time.courant` or `time.tolerance`, and what is refused beside it."""

import pytest
from configurations import changed, refusal

from simjax.config import validate
from simjax.integrators.adaptive import SCHEMES
from simjax.schema import model_schema

LINE = {
    "model": "advection_diffusion",
    "grid": {"shape": [8]},
    "precision": "float64",
    "physics": {"diffusivity": 0.1, "velocity": [0.0]},
    "initial": {"concentration": "x"},
    "time": {"end": 1.0, "output_every": 0.5, "tolerance": 1e-6},
}
SPOTS = {
    "model": "gray_scott",
    "grid": {"shape": [8, 8]},
    "initial": {"u": 1, "v": 0},
    "time": {"end": 1.0, "output_every": 0.5, "tolerance": 1e-4},
}
SOUND = {
    "model": "acoustic",
    "grid": {"shape": [8]},
    "coefficients": {"speed": 1.0, "density": 1.0},
    "initial": {"pressure": 0},
    "time": {"end": 1.0, "output_every": 0.5, "tolerance": 1e-4},
}


def test_names_are_those_of_the_schemes():
    assert tuple(SCHEMES) == model_schema.ERROR_CONTROLLED


def test_defaults():
    time = validate(LINE).time
    assert (time.integrator, time.dt, time.courant, time.absolute_tolerance) == ("tsit5", None, None, None)
    # A stiff linear part that the model solves for itself is taken implicitly.
    assert validate(SPOTS).time.integrator == "kencarp4"
    assert validate(changed(LINE, {"time.integrator": "kvaerno5"})).time.integrator == "kvaerno5"


@pytest.mark.parametrize(
    "base, changes, sentence",
    [
        (
            LINE,
            {"time.courant": 0.5},
            "time.courant = 0.5 and time.tolerance = 1e-06: expected one of them; write time.tolerance=null for a "
            "limited one or time.courant=null for one by its error.",
        ),
        (
            LINE,
            {"time.integrator": "rk4"},
            "time.integrator = 'rk4': expected one of tsit5, bosh3, dopri8, kvaerno5 with time.tolerance, as they "
            "estimate their errors; write time.integrator=tsit5, or time.tolerance=null.",
        ),
        (
            LINE,
            {"time.tolerance": None, "time.integrator": "tsit5"},
            "time.integrator = 'tsit5': expected one of kutta3, euler, midpoint, heun, ssprk2, ssprk3, williamson3, "
            "rk4 for steps by dt or courant; write time.tolerance=1e-6 for steps that its estimate of errors chooses.",
        ),
        (
            LINE,
            {"time.tolerance": None, "time.absolute_tolerance": 1e-6},
            "time.absolute_tolerance = 1e-06 without time.tolerance; write both or none.",
        ),
        (
            LINE,
            {"precision": "float32"},
            "time.tolerance = 1e-06: expected at least 1.2e-06, ten roundings of the precision; or precision=float64.",
        ),
        (
            LINE,
            {"precision": "float32", "time.tolerance": 1e-4, "storage": {"dtype": "bfloat16"}},
            "storage: expected none with time.tolerance, which rounding to 16 bits would miss.",
        ),
        (
            LINE,
            {"steps_per_exchange": 2},
            "steps_per_exchange = 2: expected 0 with time.tolerance, as the errors of all devices decide on every "
            "step.",
        ),
        (
            LINE,
            {"outputs": [{"balance": "concentration"}]},
            "time.tolerance = 1e-06: expected no balances, as they add up what schemes of fixed weights take; write "
            "time.tolerance=null, or leave the balances out.",
        ),
        (
            SOUND,
            {},
            "time.tolerance = 0.0001: model=acoustic advances its fields in turns, without a tendency, so that no "
            "error can be estimated; write time.tolerance=null and time.courant=0.5.",
        ),
        (
            SPOTS,
            {"time.tolerance": None},
            "time.dt is missing: expected a number > 0 or time.tolerance, model=gray_scott has no Courant limit.",
        ),
    ],
)
def test_refusals(base, changes, sentence):
    assert refusal(changed(base, changes)) == sentence
