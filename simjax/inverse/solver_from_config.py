"""From the section `inverse.solver` to a solver."""

import jax.numpy as jnp

from simjax.inverse.methods.ensemble_kalman import EnsembleKalman
from simjax.inverse.methods.gauss_newton import GaussNewton
from simjax.inverse.methods.gradient_descent import GradientDescent, MultiStart, optimiser_named
from simjax.inverse.methods.solver import Solver
from simjax.schema.inverse import InverseConfig


def solver_of(inverse: InverseConfig, seed: int) -> Solver:
    """The solver that a configuration names."""
    options = inverse.solver
    match options.name:
        case "gauss_newton":
            return GaussNewton(options.damping, options.cg_iterations)
        case "ensemble_kalman":
            # An array is an argument of the compiled step, a number is a constant in it.
            return EnsembleKalman(options.members, options.spread, jnp.asarray(seed, jnp.uint32))
    optimiser = optimiser_named(options.name, options.learning_rate)
    if options.starts > 1:
        return MultiStart(optimiser, options.starts, options.spread, seed)
    return GradientDescent(optimiser, searches=options.name == "lbfgs")
