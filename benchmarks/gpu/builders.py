"""What the rows of one GPU time: programs of simjax, and those of others, built as `benchmarks.contest` has them."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import starts
from benchmarks.contest import Arrays, Program
from benchmarks.starts import FLOW_DT, FORCE, VISCOSITY, WAVENUMBER


class NotHere(Exception):
    """What a row needs and this machine has not, in a sentence."""


@dataclass(frozen=True)
class Size:
    """How much a row does: cells along an axis, or members; steps of one call; trial: on a processor."""

    cells: int
    steps: int
    trial: bool


Problem = Callable[[Size], tuple[dict[str, Any], Arrays]]
"""Numbers and fields that contestants are given, by size."""

# ------------------------------------------------------------------ the card itself


def copy(size: Size) -> Program:
    """A copy of `cells` MiB, `steps` times."""
    from benchmarks.measure import copy_call

    call, gigabytes = copy_call(size.cells, size.steps)
    return Program(call, dict, figures={"gigabytes": gigabytes / size.steps})


def heat_by_hand(axes: int) -> Callable[[Size], Program]:
    """Heat conduction as written in CUDA, checked against numpy on a small grid."""

    def build(size: Size) -> Program:
        from benchmarks.gpu.cuda import Card

        card, shape = Card(), (size.cells,) * axes
        launch, coefficients = card.kernel(f"heat{axes}"), [0.1] * axes
        field = starts.smooth_scalar(shape).astype(np.float32)
        places = [card.array(field), card.array(field)]

        def advance() -> None:
            for _ in range(size.steps):
                launch(places, shape, coefficients)
                places.reverse()
            card.wait()

        launch(places, shape, coefficients)
        expected = field + sum(0.1 * (np.roll(field, 1, a) - 2 * field + np.roll(field, -1, a)) for a in range(axes))
        _require_close(card.values(places[1], shape), expected)
        return Program(advance, dict)

    return build


def sound_by_hand(size: Size) -> Program:
    """Acoustic waves in the box as written in CUDA: a kernel for the velocity and one for the pressure."""
    from benchmarks.gpu.cuda import Card

    card, shape, coefficients = Card(), (size.cells,) * 3, [0.1] * 3
    kick, drift = card.kernel("kick3"), card.kernel("drift3")
    field = starts.pulse(shape).astype(np.float32)
    places = [card.array(field), *(card.array(0 * field) for _ in range(3))]

    def step() -> None:
        kick(places, shape, coefficients)
        drift(places, shape, coefficients)

    def advance() -> None:
        for _ in range(size.steps):
            step()
        card.wait()

    step()
    lap = sum(np.roll(field, 1, axis) - 2 * field + np.roll(field, -1, axis) for axis in range(3))
    _require_close(card.values(places[0], shape), field + 0.01 * lap)
    return Program(advance, dict)


def _require_close(found: np.ndarray, expected: np.ndarray) -> None:
    # Some roundings of float32.
    if not np.allclose(found, expected, rtol=1e-5, atol=1e-5 * float(np.abs(expected).max())):
        raise FloatingPointError("the kernel's step is not that of numpy")


# ------------------------------------------------------------------ simjax


def case(
    build: str,
    integrator: str,
    axes: int,
    implementation: str = "xla",
    several: int = 0,
    trial: str | None = None,
    **options: Any,
) -> Callable[[Size], Program]:
    """Steps of a case of `benchmarks`.

    several: steps in one kernel, 0 for a kernel for each stencil. trial: the integrator of a trial, where all stages
    would take a processor minutes to compile.
    """

    def built(size: Size) -> Program:
        from benchmarks.contestants.simjax_loop import in_a_run
        from simjax.integrators.table import INTEGRATORS

        made = _on_cells(build, size, axes, implementation, several, options)
        steps = several * max(1, size.steps // several) if several else size.steps
        scheme = INTEGRATORS[trial if size.trial and trial else integrator]
        return in_a_run(made, scheme, steps, lambda state: {})

    return built


def _on_cells(build: str, size: Size, axes: int, implementation: str, several: int, options: Mapping[str, Any]):
    """A case of `benchmarks` on its cells."""
    from simjax.core.domain import Domain
    from simjax.grid import Grid

    module, name = build.rsplit(".", 1)
    shape = [size.cells] * axes
    if size.trial and implementation != "xla":
        shape[-1] = 128  # of which a tile has no fewer
    domain = Domain(Grid(tuple(shape)), implementation=implementation, steps_per_exchange=several)
    make = getattr(importlib.import_module(module), name)
    if "scheme" in options:
        from benchmarks.gas import SCHEMES

        return make(domain, SCHEMES[options["scheme"]])
    return make(domain=domain, **options)


def configured(experiment: str, overrides: Callable[[int], Sequence[str]]) -> Callable[[Size], Program]:
    """Steps of an experiment as a run takes them; overrides: of so many cells or particles along an axis."""

    def built(size: Size) -> Program:
        import jax

        import simjax as sj
        from benchmarks.contest import compiled
        from simjax.driver.programs.programs_of_run import compiled_run
        from simjax.driver.start.build import plan_frames
        from simjax.status import OK, reasons

        config = sj.load(experiment, list(overrides(size.cells))).config
        run = compiled_run(config)
        steps = run.steps_together * math.ceil(size.steps / run.steps_together)
        values, files, until = run.values, run.files, np.int32(2**30)
        held = [*run.start()]
        program, seconds = compiled(
            run.advance(plan_frames(config, steps).schedule_of(0), steps), values, files, *held, until
        )

        def advance() -> None:
            held[:] = jax.block_until_ready(program(values, files, *held, until))

        def result() -> Arrays:
            status = int(held[1].status)
            if status != OK:
                raise FloatingPointError(reasons(status))
            return {}

        return Program(advance, result, seconds, {"steps": steps}, program.as_text)

    return built


def members(at_once: bool) -> Callable[[Size], Program]:
    """Steps of many flows on 64 x 64 cells, in one program or by a Python loop over the program of one."""

    def built(size: Size) -> Program:
        from benchmarks.ensembles import ensemble_program, loop_over_members, sweep

        count = size.cells
        config = sweep(8 if size.trial else 64, count, f"ensemble.batch={count}", "time.integrator=rk4")
        own = ensemble_program(config, size.steps) if at_once else loop_over_members(config, count, size.steps)
        return Program(own, dict)

    return built


def gradient(build: str, integrator: str, axes: int, implementation: str = "xla", **options: Any) -> Callable:
    """Value and gradient by a model's first parameter of the mean square of its first field after some steps."""

    def built(size: Size) -> Program:
        import equinox as eqx
        import jax
        import jax.numpy as jnp

        from benchmarks.contest import compiled
        from simjax.integrators.table import INTEGRATORS
        from simjax.stepping.simulate import Schedule, simulate

        made = _on_cells(build, size, axes, implementation, 0, options)
        schedule = Schedule(size.steps * made.dt, dt=made.dt)

        def loss(first):
            params = eqx.tree_at(lambda p: jax.tree.leaves(p)[0], made.params, first)
            end = simulate(
                made.model, INTEGRATORS[integrator], params, made.state, schedule, frames=1, checkpoint="auto"
            )
            return jnp.mean(jax.tree.leaves(end.state)[0] ** 2)

        first = jax.tree.leaves(made.params)[0]
        program, seconds = compiled(jax.jit(jax.value_and_grad(loss)), first)
        return Program(
            lambda: jax.block_until_ready(program(first)) and None, dict, seconds, text=lambda: program.as_text() or ""
        )

    return built


# ------------------------------------------------------------------ what all contestants are given


def contestant(module: str, problem: Problem, needs: str | None = None, **told):
    """A program of `benchmarks.contestants`, by simjax or by a package that has to be importable here."""

    def built(size: Size) -> Program:
        if needs is not None and importlib.util.find_spec(needs) is None:
            raise NotHere(f"{needs} is not installed here")
        physics, start = problem(size)
        own = importlib.import_module(f"benchmarks.contestants.{module}")
        return own.build({"devices": 1, **physics, **told}, start)

    return built


def kolmogorov(integrator: str) -> Problem:
    def problem(size: Size) -> tuple[dict[str, Any], Arrays]:
        fields = starts.solenoidal_velocity((size.cells,) * 2)
        physics = {
            "viscosity": VISCOSITY,
            "dt": min(FLOW_DT, 0.4 / size.cells),
            "integrator": integrator,
            "steps": size.steps,
            "force": FORCE,
            "wavenumber": WAVENUMBER,
        }
        return physics, dict(zip(("velocity_x", "velocity_y"), fields, strict=True))

    return problem


def taylor_green(size: Size) -> tuple[dict[str, Any], Arrays]:
    physics = {
        "viscosity": 0.01,
        "dt": 0.1 / size.cells,
        "integrator": "midpoint",
        "steps": size.steps,
        "force": 0.0,
        "wavenumber": WAVENUMBER,
    }
    names = ("velocity_x", "velocity_y", "velocity_z")
    return physics, dict(zip(names, starts.taylor_green(size.cells), strict=True))


def vorticity(size: Size) -> tuple[dict[str, Any], Arrays]:
    physics = {
        "equation": "vorticity",
        "axes": 2,
        "length": 2 * np.pi,
        "viscosity": VISCOSITY,
        "dt": 0.2 / size.cells,
        "integrator": "etdrk4",
        "steps": size.steps,
    }
    return physics, {"vorticity": starts.random_vorticity(size.cells)}


def flames(size: Size) -> tuple[dict[str, Any], Arrays]:
    length, cells = 64 * np.pi, 512
    physics = {
        "equation": "kuramoto_sivashinsky",
        "axes": 1,
        "length": length,
        "dt": 0.05,
        "integrator": "etdrk4",
        "steps": size.steps,
        "parameters": {"instability": 1.0, "damping": 1.0},
    }
    return physics, {"u": starts.flames(size.cells, cells, length)}


def spots(size: Size) -> tuple[dict[str, Any], Arrays]:
    cells = 32 if size.trial else 128
    fuel, catalyst = starts.spots(size.cells, cells, 2.0)
    physics = {
        "equation": "gray_scott",
        "axes": 2,
        "length": 2.0,
        "dt": 0.25,
        "integrator": "etdrk2",
        "steps": size.steps,
        "parameters": {"diffusivity_u": 2e-5, "diffusivity_v": 1e-5, "feed": 0.03, "kill": 0.062},
    }
    return physics, {"u": fuel, "v": catalyst}


def liquid(size: Size) -> tuple[dict[str, Any], Arrays]:
    """A crystal of 4 x cells^3 particles that melts."""
    position, velocity, box = starts.melting_crystal(size.cells, 0.8442, 1.44)
    physics = {
        "density": 0.8442,
        "temperature": 1.44,
        "cutoff": 2.5,
        "dt": 0.005,
        "steps": size.steps,
        "box": box,
        "cells": size.cells,
    }
    return physics, {"position": position, "velocity": velocity}


def flow_gradient(size: Size) -> tuple[dict[str, Any], Arrays]:
    physics, start = kolmogorov("midpoint")(size)
    return {**physics, "flow": "finite_volume", "convection": "linear"}, start


def sound(gradient: bool) -> Problem:
    """Sound in the unit square as `benchmarks.waves` has it, for deepwave, which lays its layers beside the square."""

    def problem(size: Size) -> tuple[dict[str, Any], Arrays]:
        spacing = 1 / size.cells
        x = spacing * (np.arange(size.cells) + 0.5)
        speed = 1 + 0.3 * np.sin(2 * np.pi * (x[:, None] + x))
        physics = {
            "order": 4,
            "spacing": spacing,
            "dt": 0.25 * spacing,
            "fastest": 1.3,
            "steps": size.steps,
            "gradient": gradient,
        }
        return physics, {"speed": speed, "field": starts.pulse((size.cells,) * 2)}

    return problem
