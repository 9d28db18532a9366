"""Traced programs, replayed operation by operation."""

from collections.abc import Callable

from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal


def replayed(closed: ClosedJaxpr, result: Callable[[JaxprEqn, list], list]) -> Callable[..., list]:
    """Replay a traced program as a function of arguments; `result(equation, inputs)` is what each operation gives.

    Arguments and results are arrays, or whatever else `result` takes and gives.
    """

    def run(*arguments) -> list:
        jaxpr = closed.jaxpr
        environment = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *arguments), strict=True))

        def read(variable):
            return variable.val if isinstance(variable, Literal) else environment[variable]

        for equation in jaxpr.eqns:
            inputs = [read(variable) for variable in equation.invars]
            environment.update(zip(equation.outvars, result(equation, inputs), strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    return run


def computed(equation: JaxprEqn, inputs: list) -> list:
    """Result of the operation, as jax computes it."""
    primitive = equation.primitive
    with equation.ctx.manager:  # marks of the operation, such as `stencil.materialise.held` sets
        found = primitive.bind(*inputs, **primitive.get_bind_params(equation.params))
    return found if primitive.multiple_results else [found]
