"""The comparisons by name: what is computed, by whom, and how far results may be apart.

Every function gives the tables of one comparison, of sizes that two cores do in minutes, or in seconds (`quick`).
"""

from __future__ import annotations

import compileall
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import starts
from benchmarks.comparison import Contestant, Row
from benchmarks.environments import cache_folder
from benchmarks.report import by
from benchmarks.starts import FLOW_DT, FORCE, VELOCITY, VISCOSITY, WAVENUMBER

STAGES = {"euler": 1, "midpoint": 2, "rk4": 4, "etdrk2": 2, "etdrk4": 4}
RIGHT_HAND_SIDES, STEPS, RUNS = "cell right-hand sides per second", "cell steps per second", "runs per second"
ROUNDING = "rounding in single precision over the steps compared"
SAME_SCHEME = f"the same scheme: {ROUNDING}"


def _steps(unknowns: float, stages: int, right_hand_sides: float = 2e7) -> int:
    """An even number of steps that takes a few tenths of a second, or less where fewer numbers are asked for."""
    return max(4, int(right_hand_sides / (unknowns * stages)) // 2 * 2)


def _two_devices(program: str, quick: bool, bound: float = 1e-5) -> list[Contestant]:
    """simjax once more, cut over two devices, which are two cores of the processor; not among the `quick` ones."""
    if quick:
        return []
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    return [Contestant("simjax, two devices", program, bound, ROUNDING, None, {"devices": 2}, environment)]


def _flow(
    what: str,
    start,
    viscosity: float,
    dt: float,
    integrator: str,
    force: float,
    peers,
    quick: bool,
    bound: float = 1e-5,
    steps: int | None = None,
) -> Row:
    cells, stages = start["velocity_x"].size, STAGES[integrator]
    steps = steps or _steps(cells * start["velocity_x"].ndim / 2, stages, 6e6 if quick else 2e7)
    physics = {
        "viscosity": viscosity,
        "dt": dt,
        "integrator": integrator,
        "steps": steps,
        "force": force,
        "wavenumber": WAVENUMBER,
    }
    equations = f"{what}, {by(start['velocity_x'].shape)}, staggered central differences, {integrator}, real FFT solve"
    ours = [Contestant("simjax", "simjax_flow"), *_two_devices("simjax_flow", quick, bound)]
    return Row(equations, RIGHT_HAND_SIDES, "float32", float(cells * stages * steps), physics, start, [*ours, *peers])


def _jax_cfd(convection: str, bound: float, why: str) -> Contestant:
    name = {"linear": "jax-cfd 0.2.1, this scheme", "van_leer": "jax-cfd 0.2.1, its default scheme"}[convection]
    return Contestant(name, "jax_cfd_flow", bound, why, "jax-cfd", {"convection": convection})


def _velocity(fields) -> dict[str, np.ndarray]:
    return {f"velocity_{axis}": u for axis, u in zip("xyz", fields, strict=False)}


def kolmogorov(quick: bool) -> list[Row]:
    """Kolmogorov flow in the plane by finite volumes, beside jax-cfd and PhiFlow."""
    cells, integrators = (128, ["midpoint"]) if quick else (512, ["euler", "midpoint", "rk4"])
    start = _velocity(starts.solenoidal_velocity((cells, cells)))
    peers = [_jax_cfd("linear", 1e-5, SAME_SCHEME)]
    if not quick:
        # 0.009 on 128 x 128 cells, a sixteenth of it on 512 x 512.
        why = "another convection: the difference of two schemes of second order"
        peers.append(_jax_cfd("van_leer", 2e-2, why))
    rows = [
        _flow("Kolmogorov flow", start, VISCOSITY, FLOW_DT, integrator, FORCE, peers, quick)
        for integrator in integrators
    ]
    return rows if quick else [*rows, _beside_phiflow()]


def _beside_phiflow() -> Row:
    """Few steps on a small grid: one of PhiFlow's takes as long as hundreds of the others'."""
    why = "the same differences of convection that is not in conservation form, and of viscosity after it"
    peers = [Contestant("PhiFlow 3.4.0, conjugate gradients", "phiflow_flow", 1e-4, why, "phiflow")]
    start = _velocity(starts.solenoidal_velocity((128, 128)))
    return _flow("Kolmogorov flow", start, VISCOSITY, FLOW_DT, "euler", FORCE, peers, True, steps=20)


def taylor_green(quick: bool) -> list[Row]:
    """Taylor-Green vortices in the box by finite volumes, beside jax-cfd."""
    cells = 32 if quick else 64
    # The velocity along z begins at zero: its rounding is that of the others, which are a hundred times as large.
    bound = 1e-4
    start, peers = _velocity(starts.taylor_green(cells)), [_jax_cfd("linear", bound, SAME_SCHEME)]
    return [_flow("Taylor-Green vortices", start, 0.01, 0.1 / cells, "midpoint", 0.0, peers, quick, bound)]


def vorticity(quick: bool) -> list[Row]:
    """The vorticity equation in a Fourier basis, beside Exponax and jax-cfd."""
    cells = 256 if quick else 512
    start = {"vorticity": starts.random_vorticity(cells)}
    rows = []
    for integrator in ["etdrk4"] if quick else ["etdrk2", "etdrk4"]:
        stages = STAGES[integrator]
        # So few that no wave has reached the grid's shortest ones, which each package cuts off in its own way.
        steps = min(40, _steps(cells**2, stages))
        physics = {
            "equation": "vorticity",
            "axes": 2,
            "length": 2 * np.pi,
            "viscosity": VISCOSITY,
            "dt": 1e-3,
            "integrator": integrator,
            "steps": steps,
        }
        peers = [Contestant("Exponax 0.2.0", "exponax_spectral", 1e-4, SAME_SCHEME, "exponax")]
        if integrator == "etdrk4" and not quick:
            why = "Crank-Nicolson with a Runge-Kutta method, both of whose errors are below rounding here"
            peers.append(Contestant("jax-cfd 0.2.1", "jax_cfd_spectral", 1e-4, why, "jax-cfd"))
        what = f"vorticity equation, {by((cells, cells))}, Fourier basis, {integrator}"
        work = float(cells**2 * stages * steps)
        ours = [Contestant("simjax", "simjax_spectral"), *_two_devices("simjax_spectral", quick)]
        rows.append(Row(what, RIGHT_HAND_SIDES, "float32", work, physics, start, [*ours, *peers]))
    return rows


def diffusion(quick: bool) -> list[Row]:
    """Advection-diffusion, one field: beside loops in C, and a copy."""
    return [_loops("diffusion", shape, quick) for shape in _plane_and_box(quick)]


def waves(quick: bool) -> list[Row]:
    """Acoustic waves in a uniform medium, a field more than there are axes: beside loops in C, and a copy."""
    return [_loops("waves", shape, quick) for shape in _plane_and_box(quick)]


def _plane_and_box(quick: bool) -> list[tuple[int, ...]]:
    return [(512, 512)] if quick else [(512, 512), (1024, 1024), (128, 128, 128)]


def _loops(equation: str, shape: tuple[int, ...], quick: bool) -> Row:
    diffuses = equation == "diffusion"
    cells, fields = math.prod(shape), 1 if diffuses else 1 + len(shape)
    steps = max(4, int((2e7 if quick else 1e8) / cells) // 2 * 2)
    physics = {
        "equation": equation,
        "steps": steps,
        # Half of what leapfrog allows for waves of speed one.
        "dt": starts.advection_diffusion_dt(shape) if diffuses else 0.5 / (shape[0] * math.sqrt(len(shape))),
        "diffusivity": VISCOSITY,
        "velocity": VELOCITY[: len(shape)],
    }
    field = starts.smooth_scalar(shape) if diffuses else starts.pulse(shape)
    contestants = [Contestant("simjax", "simjax_steps")]
    for threads, name in ((1, "one thread"), (2, "two threads")):
        contestants.append(Contestant(f"C, {name}", "c_loops", 3e-5, SAME_SCHEME, options={"threads": threads}))
    contestants.append(
        Contestant(
            "a copy of the fields, two threads",
            "c_loops",
            0.0,
            "what was copied is what was given",
            options={"threads": 2, "copied_fields": fields},
        )
    )
    scheme = "advection-diffusion, forward Euler" if diffuses else "acoustic waves, leapfrog"
    what = f"{scheme}, {by(shape)}, periodic, second order"
    return Row(what, STEPS, "float32", float(cells * steps), physics, {"field": field}, contestants)


def kuramoto_sivashinsky(quick: bool) -> list[Row]:
    """An ensemble of flame fronts along a line in a Fourier basis, beside Exponax."""
    members, cells, length = 16 if quick else 64, 512, 64 * np.pi
    start = {"u": starts.flames(members, cells, length)}
    parameters = {"instability": 1.0, "damping": 1.0}
    return [_ensemble("kuramoto_sivashinsky", start, length, 1, 0.05, "etdrk4", parameters, 1e-3, SAME_SCHEME, quick)]


def gray_scott(quick: bool) -> list[Row]:
    """An ensemble of reacting and spreading spots in the plane in a Fourier basis, beside Exponax."""
    members, cells, length = (4, 64, 1.0) if quick else (16, 128, 2.0)
    fuel, catalyst = starts.spots(members, cells, length)
    parameters = {"diffusivity_u": 2e-5, "diffusivity_v": 1e-5, "feed": 0.03, "kill": 0.062}
    why = "Exponax takes the linear rates with the nonlinear terms, to second order in the time step"
    return [
        _ensemble("gray_scott", {"u": fuel, "v": catalyst}, length, 2, 0.25, "etdrk2", parameters, 1e-3, why, quick)
    ]


def _ensemble(
    equation: str,
    start,
    length: float,
    axes: int,
    dt: float,
    integrator: str,
    parameters,
    bound: float,
    why: str,
    quick: bool,
) -> Row:
    shape = next(iter(start.values())).shape
    members, cells, stages = shape[0], math.prod(shape[1:]), STAGES[integrator]
    # Few enough that chaos and the order of sums leave single precision.
    steps = min(100, _steps(members * cells * len(start), stages))
    physics = {
        "equation": equation,
        "axes": axes,
        "length": length,
        "dt": dt,
        "integrator": integrator,
        "steps": steps,
        "parameters": parameters,
    }
    name = {"kuramoto_sivashinsky": "Kuramoto-Sivashinsky", "gray_scott": "Gray-Scott"}[equation]
    what = f"{name}, {members} members of {by(shape[1:])}, Fourier basis, {integrator}"
    peer = Contestant("Exponax 0.2.0", "exponax_spectral", bound, why, "exponax")
    work = float(members * cells * stages * steps)
    ours = [Contestant("simjax", "simjax_spectral"), *_two_devices("simjax_spectral", quick)]
    return Row(what, RIGHT_HAND_SIDES, "float32", work, physics, start, [*ours, peer])


def lennard_jones(quick: bool) -> list[Row]:
    """A Lennard-Jones crystal that melts, beside JAX-MD and LAMMPS."""
    rows = []
    for side in [10] if quick else [10, 20]:
        # Times seven, the steps that simjax lists pairs for.
        density, temperature, steps = 0.8442, 1.44, 21 if quick else 105
        position, velocity, box = starts.melting_crystal(side, density, temperature)
        physics = {
            "density": density,
            "temperature": temperature,
            "cutoff": 2.5,
            "dt": 0.005,
            "steps": steps,
            "box": box,
            "cells": side,
        }
        # Its cutoff is smooth over a distance of 0.001, where pairs that cross it are thrown by their energy of 0.016.
        # In a plain program in double precision that changes the temperature after 20 steps by 0.0048, as it does here.
        energies = "energy at the start and temperature at the end, in which its smooth cutoff shows"
        at_start = "energy at the start alone, as its velocities are others: digits that it prints"
        contestants = [
            Contestant(
                "simjax, two devices",
                "simjax_liquid",
                options={"devices": 2},
                environment={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
            ),
            Contestant("JAX-MD 0.2.29", "jax_md_liquid", 2e-2, energies, "jax-md"),
            Contestant("LAMMPS, one core, float64", "lammps", 1e-4, at_start, options={"cores": 1}),
        ]
        if not quick:
            contestants.append(Contestant("LAMMPS, two cores, float64", "lammps", 1e-4, at_start, options={"cores": 2}))
        start = {"position": position, "velocity": velocity}
        what = f"Lennard-Jones crystal that melts, {len(position)} particles, cutoff 2.5, velocity Verlet"
        work = float(len(position) * steps)
        rows.append(Row(what, "particle steps per second", "float32", work, physics, start, contestants))
    return rows


FLOWS: dict[str, dict[str, Any]] = {
    "finite_volume": {
        "flow": "finite_volume",
        "viscosity": VISCOSITY,
        "dt": FLOW_DT,
        "integrator": "midpoint",
        "force": FORCE,
        "wavenumber": WAVENUMBER,
        "convection": "linear",
    },
    "spectral": {
        "flow": "spectral",
        "viscosity": VISCOSITY,
        "dt": 1e-3,
        "integrator": "etdrk2",
        "equation": "vorticity",
        "length": 2 * np.pi,
    },
}


def gradients(quick: bool) -> list[Row]:
    """Value and gradient of a flow's run by its start and by viscosity: time, memory, compilation."""
    cells, steps = (128, 20) if quick else (512, 100)
    plans = [] if quick else ["none", "two_level", "binomial_19"]
    what = f"value and gradient over {steps} steps, {by((cells, cells))}"
    in_fourier = [("exponax", "exponax", 1e-3, SAME_SCHEME)]
    if not quick:
        order = "its step is of order four, the other's of order two"
        in_fourier.append(("jax_cfd", "jax-cfd", 1e-2, order))
    return [
        _gradients(
            f"{what}, Kolmogorov flow by finite volumes, midpoint",
            FLOWS["finite_volume"] | {"steps": steps},
            _velocity(starts.solenoidal_velocity((cells, cells))),
            plans,
            [("jax_cfd", "jax-cfd", 1e-3, SAME_SCHEME)],
        ),
        _gradients(
            f"{what}, vorticity equation in a Fourier basis, etdrk2",
            FLOWS["spectral"] | {"steps": steps},
            {"vorticity": starts.random_vorticity(cells)},
            plans,
            in_fourier,
        ),
    ]


TITLES = {"jax_cfd": "jax-cfd 0.2.1", "exponax": "Exponax 0.2.0"}


def _gradients(what: str, physics: Mapping[str, Any], start, plans: Sequence[str], peers) -> Row:
    def one(name: str, package: str, plan: str, bound: float, why: str, home: str | None) -> Contestant:
        title = f"{name}, {plan.replace('_', ' ')}"
        return Contestant(title, "gradient", bound, why, home, {"package": package, "plan": plan})

    contestants = [one("simjax", "simjax", "auto", 0.0, "", None)]
    contestants += [one("simjax", "simjax", plan, 1e-3, ROUNDING, None) for plan in plans]
    for package, home, bound, why in peers:
        contestants += [one(TITLES[package], package, plan, bound, why, home) for plan in (*plans[:1], "every_step")]
    return Row(what, RUNS, "float32", 1.0, physics, start, contestants)


CACHE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


def first_result(quick: bool) -> list[Row]:
    """A process from its start to its first result, without programs kept from earlier ones and with them."""
    # As pip does with what it installs, the other code too; a checkout has no bytecode, and where
    # PYTHONDONTWRITEBYTECODE is set it gets none.
    compileall.compile_dir(Path(__file__).parents[1] / "simjax", quiet=1)
    rows = []
    flow = kolmogorov(True)[0]
    flow = dataclasses.replace(flow, physics={**flow.physics, "steps": 600})
    for cold in (True,) if quick else (True, False):
        off = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        contestants = [
            dataclasses.replace(one, environment=off if cold else _kept_by(one)) for one in flow.contestants[:2]
        ]
        programs = "nothing compiled before" if cold else "programs kept by jax's cache"
        what = f"first {flow.physics['steps']} steps, {programs}: {flow.what}"
        rows.append(
            dataclasses.replace(
                flow, what=what, unit=RUNS, work=1.0, contestants=contestants, from_start=True, uncounted=int(not cold)
            )
        )
    return rows + _first_frames(quick)


FIRST_FRAMES = {"sod": (0.005, "float64"), "fluid": (0.02, "float32"), "lennard_jones": (0.05, "float32")}
"""Experiments, when their first frame ends, and their precision."""


def _first_frames(quick: bool) -> list[Row]:
    """A command from its start to its first frame, without pictures."""
    rows = []
    off, kept = {"JAX_ENABLE_COMPILATION_CACHE": "false"}, {"XDG_CACHE_HOME": str(cache_folder() / "commands")}
    for name in ("sod",) if quick else FIRST_FRAMES:
        end, precision = FIRST_FRAMES[name]
        for cold in (True,) if quick else (True, False):
            programs = "nothing compiled before" if cold else "programs kept by simjax"
            what = f"the command `experiment={name} time.end={end:g} output=none`, {programs}"
            command = Contestant("simjax", "simjax_command", environment=off if cold else kept)
            given, start = {"experiment": name, "end": end}, {"nothing": np.zeros(1)}
            rows.append(Row(what, RUNS, precision, 1.0, given, start, [command], True, int(not cold)))
    return rows


def _kept_by(one: Contestant) -> dict[str, str]:
    return {**CACHE, "JAX_COMPILATION_CACHE_DIR": str(cache_folder() / "programs" / one.program)}


COMPARISONS: dict[str, Callable[[bool], list[Row]]] = {
    function.__name__: function
    for function in (
        kolmogorov,
        taylor_green,
        vorticity,
        diffusion,
        waves,
        kuramoto_sivashinsky,
        gray_scott,
        lennard_jones,
        gradients,
        first_result,
    )
}
