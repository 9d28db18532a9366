"""Runs of flows in a Fourier basis."""

import functools
from collections import Counter

import jax
from case import QUICK

from simjax.integrators.table import INTEGRATORS
from simjax.stepping.simulate import Schedule, simulate

compiled = functools.partial(jax.jit, compiler_options=QUICK)


def started(model, fields):
    return compiled(lambda fields: model.state_from(fields, None))(fields)


def run(model, p, state, end, dt, integrator="etdrk4", frames=1, observe=None, options=QUICK):
    schedule, scheme = Schedule(end, dt=dt), INTEGRATORS[integrator]
    go = jax.jit(
        lambda p, s: simulate(model, scheme, p, s, schedule, frames=frames, observe=observe, checkpoint="none"),
        compiler_options=options,
    )
    return go(p, state)


def seen_in(model, t, state, p=None):
    """What is observed of a state, compiled."""
    return compiled(lambda state, p: model.observe(t, state, p))(state, p)


def diagnosed(model, t, state, p):
    return compiled(lambda state, p: model.diagnostics(t, state, p))(state, p)


def transforms(jaxpr):
    """How many FFTs of each type a program calls, those of functions it calls included."""
    found = Counter()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "fft":
            found[equation.params["fft_type"].name] += 1
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                found += transforms(inner)
    return found
