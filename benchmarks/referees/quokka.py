"""The gas before the bars of quokka's tests: contacts, shock tubes, a near vacuum, waves, and Quirk's odd-even noise.

    python benchmarks/referees/quokka.py

Nothing of quokka is needed: its tests state problems and bars (quokka-astro/quokka, src/problems/Hydro*/test_*.cpp;
grids in tests/*.in). Two schemes of simjax stand before each bar: the default, WENO5-Z of characteristic variables, and
MC of primitive ones; quokka takes PPM, and PLM for Quirk's problem. Some minutes of one core.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from verdicts import keep_groups, verdict

jax.config.update("jax_enable_x64", True)

from exact_riemann import TWO_RAREFACTIONS, RiemannProblem  # noqa: E402
from gas_runs import OPEN, PERIODIC, centers, gas, seen, start, trajectory, tube  # noqa: E402

from simjax.integrators.table import INTEGRATORS  # noqa: E402
from simjax.models.gas.boundaries import GasInflow  # noqa: E402
from simjax.models.gas.compressible import Params  # noqa: E402
from simjax.ops.gas import GasScheme  # noqa: E402
from simjax.stepping.simulate import Schedule, simulate  # noqa: E402

SCHEMES = {
    "WENO5": GasScheme("weno5", "characteristic", "hllc_all_speed"),
    "MC": GasScheme("mc", "primitive", "hllc_all_speed"),
}
MONATOMIC = 5 / 3
SHOCK_TUBE = RiemannProblem((10.0, 0.0, 100.0), (1.0, 0.0, 1.0), origin=2.0)
LEBLANC = RiemannProblem((1.0, 0.0, 2 / 3 * 1e-1), (1e-3, 0.0, 2 / 3 * 1e-10), gamma=MONATOMIC, origin=3.0)
# Behind and before a shock that hardly moves; the digits are the test's, as is the speed of the shock.
SLOW_SHOCK, SLOW_SPEED = RiemannProblem((3.86, -0.81, 10.3334), (1.0, -3.44, 1.0)), 0.1096


def with_gamma(gamma):
    return Params(jnp.asarray(gamma))


def conserved(primitives, gamma):
    """Density, momentum, total and internal energy of density, velocity and pressure."""
    density, velocity, pressure = (np.asarray(u) for u in primitives)
    inner = pressure / (gamma - 1)
    return [density, density * velocity, inner + 0.5 * density * velocity**2, inner]


def relative_error(found, exact, gamma):
    """The root of the sum over components of squared mean errors, over that of squared mean sizes."""
    errors, sizes = [], []
    for a, b in zip(conserved(found, gamma), conserved(exact, gamma), strict=True):
        errors.append(np.sum(np.abs(a - b)))
        sizes.append(np.sum(np.abs(b)))
    return np.linalg.norm(errors) / np.linalg.norm(sizes)


def line(scheme, cells, length, sides=OPEN, lower=0.0):
    return gas((cells,), [sides], scheme, lower=(lower,), upper=(lower + length,))


def primitives_at_end(model, state, end, courant, gamma):
    params = with_gamma(gamma)
    state = trajectory(model, state, end, courant=courant, most=200_000, params=params, quick=False).state
    density, (velocity,), pressure = seen(model, state, params)
    return density, velocity, pressure


def held(left, right, ndim=1):
    """Sides that hold two states (density, velocity, pressure), as quokka's."""
    across = (0.0,) * (ndim - 1)
    return tuple(GasInflow(density, pressure, (u, *across)) for density, u, pressure in (left, right))


def tube_error(scheme, problem, cells, length, end, courant, exact=None):
    """The error of a Riemann problem; exact: density, velocity and pressure of (x), if not the exact solution."""
    model, gamma = line(scheme, cells, length, held(problem.left, problem.right)), problem.gamma
    begin = tube(model, problem, params=with_gamma(gamma))
    found, x = primitives_at_end(model, begin, end, courant, gamma), np.asarray(centers(model)[0])
    return relative_error(found, problem.sample(x, end) if exact is None else exact(x), gamma)


def slow_shock(x):
    behind = x < SLOW_SHOCK.origin + SLOW_SPEED
    return tuple(np.where(behind, a, b) for a, b in zip(SLOW_SHOCK.left, SLOW_SHOCK.right, strict=True))


def contact_error(scheme):
    model = line(scheme, 100, 1.0)
    density = jnp.where(centers(model)[0] < 0.5, 1.4, 1.0)
    found = primitives_at_end(model, start(model, density, (0.0,), 1.0), 2.0, 0.8, 1.4)
    return relative_error(found, (density, 0 * density, 0 * density + 1), 1.4)


def shu_osher(scheme, cells):
    model = line(scheme, cells, 10.0)
    x = centers(model)[0]
    behind = x < 1.0
    velocity = (jnp.where(behind, 2.629369, 0.0),)
    density = jnp.where(behind, 3.857143, 1 + 0.2 * jnp.sin(5 * x))
    begin = start(model, density, velocity, jnp.where(behind, 10.33333, 1.0))
    return primitives_at_end(model, begin, 1.8, 0.2, 1.4)


def high_mach(scheme, cells, courant):
    """A sine of velocity in a gas without pressure, far beyond the time at which it piles up."""
    model = line(scheme, cells, 1.0, PERIODIC)
    velocity = (jnp.sin(2 * np.pi * centers(model)[0]) / (2 * np.pi),)
    begin = start(model, 1.0, velocity, 1e-10, params=with_gamma(MONATOMIC))
    return primitives_at_end(model, begin, 3.0, courant, MONATOMIC)


def wave_error(scheme):
    """A sound wave of amplitude 1e-6 that crosses the box once, in quokka's norm, without internal energy."""
    model, amplitude = line(scheme, 100, 1.0, PERIODIC), 1e-6
    change = amplitude * jnp.sin(2 * np.pi * centers(model)[0])
    density, momentum, energy = 1 + change, -change, 1 / (MONATOMIC * (MONATOMIC - 1)) + 1.5 * change
    pressure = (MONATOMIC - 1) * (energy - 0.5 * momentum**2 / density)
    begin = start(model, density, (momentum / density,), pressure, params=with_gamma(MONATOMIC))
    found = conserved(primitives_at_end(model, begin, 1.0, 0.1, MONATOMIC), MONATOMIC)[:3]
    return np.linalg.norm([np.mean(np.abs(a - b)) for a, b in zip(found, (density, momentum, energy), strict=True)])


def odd_even(scheme):
    """The largest difference of p / rho^gamma between neighbouring rows in the column where a shock along the grid
    starts, pushed in every second row (Quirk 1994), at 40 times; and the largest anywhere behind the shock at the end.

    quokka says that column and reads the first one of the grid, after each step."""
    sides = held((3.692, -0.625, 26.85), (1.0, -5.0, 0.6), ndim=2)
    model = gas((128, 16), [sides, PERIODIC], scheme, lower=(0.0, 0.0), upper=(1.0, 0.125))
    params = with_gamma(MONATOMIC)
    column, row = jnp.meshgrid(jnp.arange(128), jnp.arange(16), indexing="ij")
    last = int(np.sum((np.arange(128) + 0.5) / 128 < 0.4)) - 1
    behind, pushed = column <= last, (column == last) & (row % 2 == 0)
    density, velocity, pressure = (
        jnp.where(pushed, a + d, jnp.where(behind, a, b))
        for a, b, d in ((3.692, 1.0, -0.135), (-0.625, -5.0, 0.219), (26.85, 0.6, -1.31))
    )
    schedule, ssprk3 = Schedule(0.01, courant=0.4, max_steps=2000), INTEGRATORS["ssprk3"]
    advance = jax.jit(lambda state: simulate(model, ssprk3, params, state, schedule, frames=1, checkpoint="none").state)
    state, worst = start(model, density, (velocity, 0.0), pressure, params=params), 0.0
    for _ in range(40):
        state = advance(state)
        density, _, pressure = seen(model, state, params)
        entropy = pressure / density**MONATOMIC
        between = jnp.max(jnp.abs(entropy - jnp.roll(entropy, 1, 1)), axis=1)
        worst = max(worst, float(between[last]))
    front = int(np.max(np.flatnonzero(np.min(np.asarray(density), axis=1) > 2)))
    return worst, float(jnp.max(between[: front - 4]))


def tubes():
    for name, scheme in SCHEMES.items():
        yield verdict(f"contact at rest, 100 cells, {name}", contact_error(scheme), 0.0)
        yield verdict(f"shock tube, 1024 cells, {name}", tube_error(scheme, SHOCK_TUBE, 1024, 5.0, 0.4, 0.6), 0.002)
        yield verdict(f"Leblanc's tube, 2000 cells, {name}", tube_error(scheme, LEBLANC, 2000, 9.0, 6.0, 0.1), 0.002)
        error = tube_error(scheme, SLOW_SHOCK, 100, 1.0, 1.0, 0.2, slow_shock)
        yield verdict(f"slow shock, 100 cells, {name}", error, 0.005)
        error = tube_error(scheme, TWO_RAREFACTIONS, 100, 1.0, 0.15, 0.4)
        yield verdict(f"near vacuum, 100 cells, {name}", error, 0.015)


def waves():
    # Its own solution on many more cells stands for the exact one, as quokka takes another code's or its own.
    fine = shu_osher(SCHEMES["WENO5"], 6400)
    means = [np.asarray(u).reshape(400, 16).mean(axis=1) for u in fine]
    steep = [np.asarray(u) for u in high_mach(SCHEMES["WENO5"], 2048, 0.2)]
    steep = [u.reshape(128, 16).mean(axis=1) for u in steep]
    for name, scheme in SCHEMES.items():
        yield verdict(f"Shu and Osher, 400 cells, {name}", relative_error(shu_osher(scheme, 400), means, 1.4), 0.01)
        error = relative_error(high_mach(scheme, 128, 0.4), steep, MONATOMIC)
        yield verdict(f"no pressure, 128 cells, {name}", error, 0.26)
        yield verdict(f"sound wave, 100 cells, {name}", wave_error(scheme), 1e-8)


def pushed_shocks():
    for name, scheme in SCHEMES.items():
        at_start, at_end = odd_even(scheme)
        yield verdict(f"pushed shock along the grid, where it starts, {name}", at_start, 0.06)
        yield verdict(f"pushed shock along the grid, behind it at the end, {name}", at_end, 0.06)


GROUPS = {"Riemann problems": tubes, "waves": waves, "pushed shocks": pushed_shocks}


if __name__ == "__main__":
    keep_groups("quokka", __doc__, GROUPS)
