"""Totals in single precision: what steps conserve changes by random roundings alone, whatever scheme and model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.integrators.table import INTEGRATORS

CELLS = 32
PERIODIC = sj.PeriodicSide(), sj.PeriodicSide()
LINE = sj.Domain(sj.Grid((CELLS,)))


def single(values):
    return jnp.asarray(np.broadcast_to(values, (CELLS,)), np.float32)


def uneven():
    """Values between 1.1 and 1.9 without a symmetry: a mirrored wave would round each of its halves the other way.

    Between one and two all numbers are equally close: where a wave has almost decayed to a power of two, cells below it
    still change while those above it stand still.
    """
    x = (np.arange(CELLS) + 0.5) / CELLS
    return single(1.5 + 0.25 * np.sin(2 * np.pi * x) + 0.15 * np.sin(4 * np.pi * x + 0.7))


def compressible():
    model = sj.Compressible(LINE, [PERIODIC])
    params = model.Params(jnp.float32(1.4))
    fields = {"density": (uneven(),), "velocity": (single(0.3),), "pressure": (single(1.0),)}
    return model, params, model.state_from(fields, params), lambda s: (s.density, s.energy)


def transport():
    model = sj.Transport(LINE, [PERIODIC])
    params = model.Params((single(1.0),), single(1e-3))
    return model, params, model.State(uneven()), lambda s: (s.concentration,)


def burgers():
    model = sj.Burgers(LINE, [PERIODIC])
    return model, model.Params(jnp.float32(1e-3)), model.State(uneven()), lambda s: (s.concentration,)


def advection_diffusion():
    model = sj.AdvectionDiffusion(LINE, [PERIODIC])
    params = model.Params(jnp.float32(1e-3), jnp.ones(1, np.float32))
    return model, params, model.State(uneven()), lambda s: (s.concentration,)


def passive_scalar():
    model = sj.PassiveScalar(sj.Domain(sj.Grid((8, 8))), [PERIODIC] * 2)
    params = model.Params(jnp.float32(1e-3), jnp.float32(0), jnp.float32(1e-3))
    rng = np.random.default_rng(0)
    fields = {
        "concentration": (jnp.asarray(rng.uniform(1.1, 1.9, (8, 8)), np.float32),),
        "velocity": tuple(jnp.asarray(rng.normal(size=(8, 8)), np.float32) for _ in range(2)),
    }
    return model, params, model.state_from(fields, params), lambda s: (s.concentration,)


MODELS = {
    compressible: sj.Compressible,
    transport: sj.Transport,
    burgers: sj.Burgers,
    advection_diffusion: sj.AdvectionDiffusion,
    passive_scalar: sj.PassiveScalar,
}


def schemes_of(problem):
    return next(iter(MODELS[problem].declarations.values())).integrators


def drifts(problem, name, steps):
    """Changes of the totals over their size, and what as many random roundings make of them."""
    model, params, state, totals = problem()
    scheme = INTEGRATORS[name]
    # Euler's steps of fluxes that are not upwind grow, of a wave too, unless they are short.
    dt = 0.2 * jnp.min(model.stable_dt(state, params)) * (0.1 if name == "euler" else 1.0)
    prepared = jax.jit(lambda: scheme.prepare(model, params, dt))()

    def step(state, _):
        return scheme.step(model, jnp.float32(0), dt, state, params, prepared), None

    last = jax.jit(lambda state: jax.lax.scan(step, state, None, length=steps)[0])(state)
    changes, bounds = [], []
    for before, after in zip(totals(state), totals(last), strict=True):
        before, after = (np.asarray(u, np.float64) for u in (before, after))
        assert np.abs(after - before).max() > 1e-3  # it has moved
        # Each stage rounds the state of each cell twice, by a number whose standard deviation is a root of 1/12 of
        # their spacing: six standard deviations of the sum. Roundings of a slow wave are alike from step to step and
        # do not quite add up to nothing: a two-hundredth of one in each step, a fiftieth of what the weights lost.
        spacing = float(np.spacing(np.float32(max(before.max(), after.max()))))
        random = 6 * spacing * (2 * scheme.stages * steps * before.size / 12) ** 0.5
        changes.append(abs(after.sum() - before.sum()))
        bounds.append(random + steps * before.size * spacing / 200)
    return changes, bounds


@pytest.mark.parametrize("problem", MODELS, ids=lambda problem: problem.__name__)
def test_totals_of_the_default_scheme_stay_in_single_precision(problem):
    """Weights 1/3 and 1 - 1/3, rounded, lose 3.3e-8 in each step: 3.3e-5 of these, the bound is 3e-6."""
    changes, bounds = drifts(problem, "ssprk3", 1000)
    assert np.all(np.less(changes, bounds)), (changes, bounds)


@pytest.mark.parametrize(
    "problem, name",
    [
        pytest.param(problem, name, id=f"{problem.__name__}-{name}")
        for problem in MODELS
        for name in schemes_of(problem)
    ],
)
@pytest.mark.slow
def test_drifts_of_totals_do_not_grow_with_the_steps(problem, name):
    """They stay near that of a random walk, 1e-5 of the total after 100 000 steps; lost in each step it was 3e-3."""
    changes, bounds = drifts(problem, name, 100_000)
    assert np.all(np.less(changes, bounds)), (changes, bounds)
