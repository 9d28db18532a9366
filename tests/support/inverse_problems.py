"""Small inverse problems of configurations, their searches and values."""

import jax
import numpy as np

from simjax.inverse.methods.least_squares import half_square
from simjax.inverse.search import Search

TWO_PI = 2 * np.pi
PLACES = [[1.0, 1.0], [2.0, 4.0], [5.0, 3.0]]
BASE = {
    "experiment_name": "spot",
    "model": "advection_diffusion",
    "precision": "float64",
    "physics": {"diffusivity": 0.05, "velocity": [0.8, -0.5]},
    "parameters": {"depth": 1.5},
    "grid": {"shape": [16, 16], "lower": [0, 0], "upper": [TWO_PI, TWO_PI]},
    "initial": {"concentration": "depth*sin(x)*cos(y + 0.3) + 0.5*sin(2*x + y)"},
    "time": {"end": 0.4, "output_every": 0.1, "dt": 0.05},
    "outputs": [{"probe": {"points": PLACES}, "of": "concentration", "name": "sensors"}],
}
NUMBERS = {
    "physics.diffusivity": {"guess": 0.1, "positive": True},
    "parameters.depth": {"guess": 1.0, "bounds": [0.5, 3.0]},
}
SENSORS = {"output": "sensors", "deviation": 0.002}
FIELD = {"initial.concentration": {"guess": "0.1*sin(x)", "prior": {"matern": {"deviation": 1.0, "length": 2.0}}}}
SNAPSHOT = {"output": "fields", "of": "concentration", "deviation": 0.02}


def evaluated(problem):
    least_squares, latent = problem.least_squares(), problem.start()

    def loss(latent):
        evaluation = least_squares.evaluate(latent)
        return half_square(evaluation.residuals), evaluation.residuals

    (value, residuals), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(latent)
    return value, residuals, gradient


# The depth is one of the initial field's, which has no influence where the field itself is sought.
EVERYTHING = {"physics.diffusivity": NUMBERS["physics.diffusivity"]} | FIELD


def searched(problem, **options):
    with jax.numpy_dtype_promotion("standard"):  # within Optax
        return Search(problem).run(**options)
