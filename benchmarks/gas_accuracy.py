"""Errors of the compressible gas against exact solutions, and of its integrators against work: tables in Markdown.

Shock tubes by every scheme at 200 and 400 cells; a sound wave and the isentropic vortex by `ssprk3` and `rk4` at
several Courant numbers, with the number of evaluations of the tendency; shocks by the same two, and how many of a
thousand random Riemann problems they lose. By every flux: what becomes of noise at shocks along the grid, and of the
energy of Gresho's vortex at several Mach numbers (tens of minutes, of which most go into the lowest). Derivatives with
respect to the pressure that drives a shock, beside those of the exact solution. A run is lost that ends in what is not
a number or not positive.
`docs/gas.md` holds what it prints.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from simjax.core.boundary import Outflow, PeriodicSide
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import GasScheme
from simjax.ops.riemann import FLUXES

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from exact_riemann import BLAST, SOD, TWO_RAREFACTIONS, RiemannProblem
from gas_speeds import TURN, gresho, kinetic_energy, shock_at_rest, shock_in_a_duct, speed_across

PERIODIC, OPEN = ((side(), side()) for side in (PeriodicSide, Outflow))
SCHEMES = {
    "WENO5-Z, characteristic": GasScheme(),
    "WENO5-Z, primitive": GasScheme("weno5", "primitive"),
    "MC, primitive": GasScheme("mc", "primitive"),
    "van Leer, primitive": GasScheme("van_leer", "primitive"),
    "minmod, primitive": GasScheme("minmod", "primitive"),
    "IGR, Rusanov": GasScheme("igr", "primitive", "rusanov"),
}
TUBES = {"Sod": (SOD, 0.2), "double rarefaction": (TWO_RAREFACTIONS, 0.15), "blast, contact at rest": (BLAST, 0.012)}
EXTREMES = TUBES | {
    "near vacuum": (RiemannProblem((1.0, -3.7, 0.4), (1.0, 3.7, 0.4)), 0.05),
    "blast of ten billion": (RiemannProblem((1.0, 0.0, 1e5), (1.0, 0.0, 1e-5)), 4e-4),
    "cold streams": (RiemannProblem((1.0, 1.0, 1e-4), (1.0, -1.0, 1e-4)), 0.2),
}
STAGES = {"ssprk3": 3, "rk4": 4}
GAMMA = Params(jnp.asarray(1.4))
MOST = 1_000_000


def program(model, integrator: str):
    """(state, end, courant) -> the state at the end and the number of steps."""

    def step(carry, end, courant):
        t, state, count = carry
        dt = jnp.minimum(courant * model.stable_dt(state, GAMMA), end - t)
        return t + dt, INTEGRATORS[integrator].step(model, t, dt, state, GAMMA, None), count + 1

    def run(state, end, courant):
        def goes_on(carry):
            t, state, count = carry
            return (t < end * (1 - 1e-12)) & jnp.isfinite(state.energy).all() & (count < MOST)

        start = jnp.zeros(()), state, jnp.zeros((), int)
        return jax.lax.while_loop(goes_on, lambda carry: step(carry, end, courant), start)

    return jax.jit(run)


def line(cells: int, scheme: GasScheme, sides=OPEN, length: float = 1.0):
    return Compressible(Domain(Grid((cells,), upper=(length,))), [sides], scheme)


def state_of(model, density, velocity, pressure):
    shape = model.domain.grid.shape

    def field(value):
        return jnp.broadcast_to(jnp.asarray(value, float), shape)

    fields = {"density": (field(density),), "velocity": tuple(map(field, velocity)), "pressure": (field(pressure),)}
    return model.state_from(fields, GAMMA)


def centers(model):
    return model.domain.coordinates((0.5,) * model.domain.grid.ndim)


def tube(model, problem):
    below = centers(model)[0] < problem.origin
    density, u, pressure = (jnp.where(below, a, b) for a, b in zip(problem.left, problem.right, strict=True))
    return state_of(model, density, (u,), pressure)


def seen(model, state):
    fields = model.observe(0.0, state, GAMMA)
    return tuple(np.asarray(fields[name]) for name in ("density", "velocity_x", "pressure"))


def row(*cells):
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def head(*cells):
    print()
    row(*cells)
    row(*("---",) * len(cells))


def tubes(sizes):
    head("scheme", "cells", *(f"{name}: density, velocity, pressure" for name in TUBES))
    for label, scheme in SCHEMES.items():
        for cells in sizes:
            model = line(cells, scheme)
            run = program(model, "ssprk3")
            results = []
            for problem, end in TUBES.values():
                last = seen(model, run(tube(model, problem), end, 0.4)[1])
                exact = problem.sample(np.asarray(centers(model)[0]), end)
                results.append(", ".join(f"{abs(a - b).mean():.2e}" for a, b in zip(last, exact, strict=True)))
            row(label, cells, *results)


def sound(model, t):
    """A weak wave to the right in gas at rest with sound speed one, and its density."""
    wave = 1e-7 * jnp.sin(2 * jnp.pi * (centers(model)[0] - t))
    return state_of(model, 1 + wave, (wave,), (1 + 1.4 * wave) / 1.4)


def vortex(model, t):
    """The isentropic vortex, moving along the diagonal of a periodic box of side 16."""
    x, y = ((v - t) - 16 * jnp.round((v - t) / 16) for v in centers(model))
    swirl = 5 / (2 * np.pi) * jnp.exp((1 - x * x - y * y) / 2)
    heat = 1 - 0.4 / 2.8 * swirl**2
    return state_of(model, heat**2.5, (1 - swirl * y, 1 + swirl * x), heat**3.5)


def smooth(numbers):
    head("flow", "integrator", "Courant number", "evaluations", "mean error of density")
    plane = Compressible(Domain(Grid((64, 64), (-8.0, -8.0), (8.0, 8.0))), [PERIODIC] * 2, GasScheme())
    cases = [
        ("sound, 32 cells, one period", line(32, GasScheme(), PERIODIC), sound, 1.0, 1e7),
        ("sound, 64 cells, one period", line(64, GasScheme(), PERIODIC), sound, 1.0, 1e7),
        ("vortex, 64 x 64 cells, t = 2", plane, vortex, 2.0, 1.0),
    ]
    for label, model, solution, end, scale in cases:
        for name, stages in STAGES.items():
            run = program(model, name)
            for courant in numbers:
                _, last, steps = run(solution(model, 0.0), end, courant)
                error = scale * float(jnp.abs(last.density - solution(model, end).density).mean())
                row(label, name, courant, stages * int(steps), f"{error:.2e}" if error < 1 else "lost")


def verdict(model, last, exact):
    """Mean error of the density, and whether density and pressure are positive."""
    density, _, pressure = seen(model, last)
    if not np.isfinite(density).all() or not np.isfinite(pressure).all():
        return "lost"
    least = min(density.min(), pressure.min())
    return f"{abs(density - exact).mean():.3e}" + ("" if least > 0 else f", negative ({least:.1e})")


def waves(model):
    """Shu and Osher (1989): a shock of Mach number 3 that runs into waves of density."""
    x = centers(model)[0]
    behind = x < 1
    density = jnp.where(behind, 27 / 7, 1 + 0.2 * jnp.sin(5 * (x - 5)))
    return state_of(model, density, (jnp.where(behind, 4 * 35**0.5 / 9, 0),), jnp.where(behind, 31 / 3, 1))


def converged_waves(cells: int, finest: int = 1600):
    """The density that WENO5-Z has on many cells, as means over fewer."""
    fine = line(finest, GasScheme(), OPEN, 10.0)
    return seen(fine, program(fine, "ssprk3")(waves(fine), 1.8, 0.4)[1])[0].reshape(cells, -1).mean(1)


def every_scheme(sizes):
    """Shu and Osher's problem, by every scheme."""
    head("scheme", *(f"{cells} cells" for cells in sizes))
    exact = {cells: converged_waves(cells) for cells in sizes}
    for label, scheme in SCHEMES.items():
        found = []
        for cells in sizes:
            model = line(cells, scheme, OPEN, 10.0)
            found.append(verdict(model, program(model, "ssprk3")(waves(model), 1.8, 0.4)[1], exact[cells]))
        row(label, *found)


def shocks(numbers, cells: int = 200):
    head("problem", "integrator", *(f"Courant number {c}" for c in numbers))
    wide = line(cells, GasScheme(), OPEN, 10.0)
    converged = converged_waves(cells, 8 * cells)
    unit = line(cells, GasScheme())
    cases = [("Shu and Osher", wide, waves(wide), 1.8, converged)]
    for name, (problem, end) in EXTREMES.items():
        exact = problem.sample(np.asarray(centers(unit)[0]), end)[0]
        cases.append((name, unit, tube(unit, problem), end, exact))
    programs = {(id(model), name): program(model, name) for model in (wide, unit) for name in STAGES}
    for label, model, state, end, exact in cases:
        for name in STAGES:
            ends = (programs[id(model), name](state, end, courant)[1] for courant in numbers)
            row(label, name, *(verdict(model, last, exact) for last in ends))


def lots(numbers, problems: int = 1024, cells: int = 64, steps: int = 60):
    """Count the random Riemann problems that are lost; states and Mach numbers span orders of magnitude."""
    head("integrator", *(f"lost of {problems} at Courant number {c}" for c in numbers))
    model = line(cells, GasScheme())
    rng = np.random.default_rng(0)
    density, pressure = 10.0 ** rng.uniform(-3, 3, (2, problems, 2))
    velocity = rng.normal(size=(problems, 2)) * np.sqrt(1.4 * pressure / density)
    velocity = velocity * 10.0 ** rng.uniform(-1, 1, (problems, 1))
    below = centers(model)[0] < 0.5

    def start(density, velocity, pressure):
        density, u, pressure = (jnp.where(below, v[0], v[1]) for v in (density, velocity, pressure))
        return state_of(model, density, (u,), pressure)

    for name in STAGES:

        def end(density, velocity, pressure, courant, name=name):
            def step(_, state):
                dt = courant * model.stable_dt(state, GAMMA)
                return INTEGRATORS[name].step(model, 0.0, dt, state, GAMMA, None)

            return jax.lax.fori_loop(0, steps, step, start(density, velocity, pressure))

        go = jax.jit(jax.vmap(end, in_axes=(0, 0, 0, None)))
        counts = []
        for courant in numbers:
            fields = jax.vmap(lambda state: model.observe(0.0, state, GAMMA))(go(density, velocity, pressure, courant))
            kept = np.asarray((fields["density"] > 0) & (fields["pressure"] > 0) & jnp.isfinite(fields["pressure"]))
            counts.append(problems - int(kept.all(1).sum()))
        row(name, *counts)


RECONSTRUCTIONS = {"WENO5-Z, characteristic": ("weno5", "characteristic"), "MC, primitive": ("mc", "primitive")}


def noise(times=(10.0, 20.0, 30.0, 40.0), size: float = 1e-6):
    """The largest velocity across, beside the noise at the start."""
    head("shock", "scheme", "flux", *(f"t = {time:g}" for time in times))
    problems = {
        "Mach 6 in a duct": shock_in_a_duct,
        "Mach 6 in a duct, odd-even": functools.partial(shock_in_a_duct, odd_even=True),
        "Mach 7 at rest": shock_at_rest,
        "Mach 10 at rest": functools.partial(shock_at_rest, mach=10.0, between=0.3),
    }
    for label, problem in problems.items():
        for name, pair in RECONSTRUCTIONS.items():
            for flux in FLUXES:
                model, state = problem(GasScheme(*pair, flux), noise=size)
                run, found, now = program(model, "ssprk3"), [], 0.0
                for time in times:
                    state, now = run(state, time - now, 0.4)[1], time
                    found.append(f"{speed_across(state) / size:.2g}")
                row(label, name, flux, *found)


def vortices(machs=(0.5, 0.1, 0.01, 0.001)):
    """The part of the kinetic energy of Gresho's vortex that is left after a turn, 40 x 40 cells, rk4."""
    head("scheme", "flux", *(f"Mach {mach:g}" for mach in machs))
    for name, pair in RECONSTRUCTIONS.items():
        for flux in FLUXES:
            found = []
            for mach in machs:
                model, state = gresho(GasScheme(*pair, flux), mach)
                last = program(model, "rk4")(state, TURN, 1.0)[1]
                found.append(f"{float(kinetic_energy(last) / kinetic_energy(state)):.4f}")
            row(name, flux, *found)


DRIVEN = np.linspace(0.9, 1.1, 41)
"""Pressures on the left of Sod's tube, while which change the shock passes two to eight cells."""


def exact_readings(pressure):
    """The two readings of `gradients` of the exact solution."""
    x = (np.arange(400_000) + 0.5) / 400_000
    found = RiemannProblem((1.0, 0.0, pressure), SOD.right).sample(x, 0.2)[2]
    return np.array([read(found, x, 1 / x.size) for read in (in_window, at_probe)])


def in_window(pressure, x, h):
    """The integral from between the contact and the shock on: what the place of the shock decides."""
    return (pressure * (x > 0.75)).sum() * h


def at_probe(pressure, x, h):
    """The mean with the weight exp(-d^2 / 2 s^2) of the distance d from 0.85, where the shock is, with s = 0.02."""
    weight = np.exp(-0.5 * ((x - 0.85) / 0.02) ** 2)
    return (pressure * weight).sum() / weight.sum()


def readings(model, smooth: float):
    """Of pressures on the left: the readings at t = 0.2 and their derivatives; a start over so many cells."""
    x, cells = centers(model)[0], model.domain.grid.shape[0]
    steps = 6 * cells // 5
    share = jnp.where(x < 0.5, 1.0, 0.0) if smooth == 0 else 0.5 * (1 - jnp.tanh((x - 0.5) * cells / smooth))
    fixed, h = np.asarray(x), 1 / cells

    def read(pressure):
        state = state_of(model, 0.125 + 0.875 * share, (0 * x,), 0.1 + (pressure - 0.1) * share)

        def step(_, state):
            return INTEGRATORS["ssprk3"].step(model, 0.0, jnp.asarray(0.2 / steps), state, GAMMA, None)

        found = model.observe(0.2, jax.lax.fori_loop(0, steps, step, state), GAMMA)["pressure"]
        return jnp.stack([in_window(found, fixed, h), at_probe(found, fixed, h)])

    both = jax.jit(lambda values: jax.lax.map(lambda p: jax.jvp(read, (p,), (1.0,)), values, batch_size=21))
    return tuple(map(np.asarray, both(jnp.asarray(DRIVEN))))


def gradients(sizes):
    """Derivatives with respect to the pressure on the left in Sod's tube, as parts of the largest exact one.

    Of each reading the mean of the errors, and the largest; and how far the derivative differs at most from a central
    difference over one per cent of the pressure to either side: what a landscape has in kinks.
    """
    head("scheme", "cells", *(f"{name}: mean, largest, kinks" for name in ("window", "probe")))
    small = 1e-3
    exact = np.stack([(exact_readings(p + small) - exact_readings(p - small)) / (2 * small) for p in DRIVEN])
    starts = {"": 0.0, ", start over 2 cells": 2.0}
    for label in ("WENO5-Z, characteristic", "MC, primitive", "IGR, Rusanov"):
        for said, smooth in starts.items():
            for cells in sizes:
                values, slopes = readings(line(cells, SCHEMES[label]), smooth)
                across = (values[4:] - values[:-4]) / (DRIVEN[4:] - DRIVEN[:-4])[:, None]
                found = []
                for k in range(2):
                    scale = np.abs(exact[:, k]).max()
                    error, kink = (slopes - exact)[:, k] / scale, (slopes[2:-2] - across)[:, k] / scale
                    found.append(f"{error.mean():+.4f}, {np.abs(error).max():.4f}, {np.abs(kink).max():.1e}")
                row(label + said, cells, *found)


TABLES = {
    "tubes": tubes,
    "smooth": smooth,
    "shocks": shocks,
    "random": lots,
    "noise": noise,
    "vortices": vortices,
    "waves": every_scheme,
    "gradients": gradients,
}
ARGUMENTS = {"tubes": "cells", "waves": "cells", "gradients": "cells", "noise": None, "vortices": None}
"""What each table is given; others are given Courant numbers."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), help=", ".join(TABLES))
    parser.add_argument("--cells", type=int, nargs="+", default=[200, 400], help="of the tubes")
    parser.add_argument("--courant", type=float, nargs="+", default=[0.2, 0.4, 0.5, 0.8, 1.0, 1.3], help="numbers")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in given.tables:
        choice = ARGUMENTS.get(name, "courant")
        TABLES[name](*([] if choice is None else [getattr(given, choice)]))


if __name__ == "__main__":
    main()
