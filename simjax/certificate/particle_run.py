"""What is differentiated to certify an experiment of particles: a short run of it, in which they are sorted anew."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.certificate.certificate import REFERENCE, Objective
from simjax.certificate.compiled import COMPILED_SOON
from simjax.certificate.directions import Unknowns
from simjax.certificate.field_run import FRAMES, PLANS, bounded, check_steps
from simjax.certificate.meshes import BLOCKS, meshes_to_compare
from simjax.driver.compiled_particles import ParticlePrograms
from simjax.errors import NumericalError
from simjax.jaxpr.varying import vary_like
from simjax.models.particle_model import family_of
from simjax.parallel import distribute
from simjax.schema.config import Config, EnsembleConfig, MeshConfig
from simjax.status import CELL_FULL, OK, reasons
from simjax.stepping.checkpointing.plan import Checkpoint
from simjax.stepping.simulate import Schedule, simulate

# How far particles are moved off their start, where a lattice has no forces: of their mean distance. And how much their
# velocities are changed: of their size, or where they are at rest of what leads that distance in the run.
OFFSET, VELOCITY_OFFSET = 0.03, 0.1
# Particles that show the same as more of them, sooner.
MOST = 500
MESHES = 2
POSITION, VELOCITY = "initial.position", "initial.velocity"


def particle_objective(config: Config, *, steps: int, devices: int | None = None) -> Objective:
    """A smooth function of the first `steps` steps of a run of particles, by its numbers and where particles start.

    The function is the mean over particles of w (sqrt(1 + q^2) - 1 + 0.3 sin q), summed over two frames and over all
    components q of displacement, velocity and what else the model tells of a particle, in units of their size; w
    differs from particle to particle. Unknown are all numbers, and what is added to positions and velocities at the
    start ("initial.position", "initial.velocity"), which begins pseudo-random, off every lattice. Particles are sorted
    anew and their partners found at least once in a frame, with as much room as every mesh needs. Of an ensemble the
    base values are taken.

    Raises:
        ConfigurationError: nothing can be differentiated so.
        NumericalError: a run stops, or needs ever more room.
    """
    check_steps(steps)
    short, notes = _shortened(family_of(config).fewer(MOST), steps)
    schedule = Schedule(short.time.output_every, dt=short.time.dt)
    alone = ParticlePrograms(short)
    found = _at_start(alone)
    sizes = _sizes(alone, schedule, found)
    start = _start(alone, sizes, len(found["velocity"]))

    def run_of(programs: ParticlePrograms, plan: Checkpoint) -> Callable[[Unknowns], tuple[Array, Array]]:
        return _run(programs, schedule, plan, sizes)

    @functools.cache
    def programs(items: tuple[tuple[str, int], ...]) -> ParticlePrograms:
        mesh = dataclasses.replace(short.mesh, **dict(items))
        return _with_room(ParticlePrograms(dataclasses.replace(short, mesh=mesh)), run_of, start)

    @functools.cache
    def on(items: tuple[tuple[str, int], ...], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        run = run_of(programs(items), plan)
        return lambda unknowns: run(unknowns)[0]

    def function(mesh: Mapping[str, int], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        return on(tuple(mesh.items()), plan)

    # What cannot be cut so is refused before anything is compiled.
    blocks = [BLOCKS] * config.ndim
    meshes, untested, said = meshes_to_compare(config, start, function, devices, blocks=blocks, most=MESHES)
    notes += [f"{_told(config, alone)} start up to {OFFSET:g} of their mean distance off their places"]
    return Objective(start, function, meshes, PLANS, notes=(*notes, *said), untested=untested)


# ---------------------------------------------------------------------- the short run


def _told(config: Config, alone: ParticlePrograms) -> str:
    """How many particles, and what was changed in their place; only those that move are displaced."""
    told, number = f"{alone.size} particles", family_of(config).start().count
    if alone.config.box != config.box:
        told += " in a part of the box, as densely filled,"
    elif alone.size != number:
        told += f" in place of {number}"
    free = alone.family.moving(alone.start_of).size
    return told if free == alone.size else f"{told}, of which the {free} that move"


def _shortened(config: Config, steps: int) -> tuple[Config, list[str]]:
    """Two frames of `steps` steps in float64, with particles arranged more than once in each; and what was changed."""
    dt, arrangement = config.time.dt, config.arrangement
    assert dt is not None
    of_frame = steps // FRAMES
    changed = [f"{steps} steps of {dt:.3g} in float64"]
    if config.precision != "float64":
        changed.append(f"in place of {config.precision}")
    if config.ensemble.size > 1 or config.ensemble.vary:
        changed.append("without the ensemble")
    config, smoothed = family_of(config).smooth()
    if smoothed:
        changed.append(smoothed)
    together = max(1, of_frame // 2)
    arrangement = dataclasses.replace(arrangement, steps=min(arrangement.steps or together, together))
    time = dataclasses.replace(config.time, end=steps * dt, output_every=of_frame * dt)
    short = dataclasses.replace(
        config, precision="float64", ensemble=EnsembleConfig(), mesh=MeshConfig(overlap=config.mesh.overlap),
        resume=None, time=time, arrangement=arrangement,
    )  # fmt: skip
    return short, [" ".join(changed)]


def _spacing(programs: ParticlePrograms) -> float:
    """Mean distance of particles."""
    return float((np.prod(programs.domain.grid.lengths) / programs.size) ** (1 / programs.cells.ndim))


def _at_start(programs: ParticlePrograms) -> dict[str, np.ndarray]:
    """Everything that is observed, as a run begins: `(components, particles)`."""

    def begin(values, files):
        state = programs.initial_state(values, files, 0)[0]
        model, params = programs.build(values, files)
        state = programs.family.seen(model, state, params)
        return state.ids >= 0, _observed(programs, state, params, model, files)

    held, found = jax.device_get(jax.jit(begin)(programs.values, programs.files))
    return {name: np.stack(parts)[:, held] for name, parts in found.items()}


def _sizes(programs: ParticlePrograms, schedule: Schedule, found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The size of a component of what was `found` at the start."""
    sizes = {name: float(np.sqrt(np.mean(u**2))) for name, u in found.items()}
    duration = FRAMES * schedule.interval
    speed = sizes.get("velocity", 0.0) or OFFSET * _spacing(programs) / duration
    way = float(np.hypot(OFFSET * _spacing(programs), duration * speed))
    return {name: size or 1.0 for name, size in sizes.items()} | {"position": way, "velocity": speed}


def _start(programs: ParticlePrograms, sizes: Mapping[str, float], components: int) -> Unknowns:
    """All numbers, and what is added to positions and velocities of what moves, `(components, particles)`."""
    numbers: Unknowns = {
        name: np.asarray(value)
        for name, value in programs.parameters.items()
        if programs.family.differentiable(name, float(value))
    }
    random, count = np.random.default_rng(0), programs.family.moving(programs.start_of).size
    position = OFFSET * _spacing(programs) * random.uniform(-1, 1, (programs.cells.ndim, count))
    velocity = VELOCITY_OFFSET * sizes["velocity"] * random.uniform(-1, 1, (components, count))
    return numbers | {POSITION: position, VELOCITY: velocity}


def _with_room(programs: ParticlePrograms, run_of: Callable, start: Unknowns) -> ParticlePrograms:
    """The programs with the room that the run needs, found as a run finds it."""
    while True:
        run = jax.jit(run_of(programs, REFERENCE)).lower(start).compile(COMPILED_SOON)
        status = int(run(start)[1])
        bits = programs.missing_room(np.asarray(status))
        if not bits:
            break
        programs.grow(bits)
    if status != OK:
        raise NumericalError(
            f"the run that is to be differentiated stopped, as {reasons(status)}: expected one without a fault. "
            f"{programs.advice}"
        )
    return programs


# ---------------------------------------------------------------------- the function


def _run(
    programs: ParticlePrograms, schedule: Schedule, plan: Checkpoint, sizes: Mapping[str, float]
) -> Callable[[Unknowns], tuple[Array, Array]]:
    """The objective's function of one mesh and plan, and the status with which its run ends."""
    fixed, places = jax.device_get((programs.values, programs.files))
    moving = programs.family.moving(programs.start_of)

    def of_all(moved: Array) -> Array:
        """Of `(components, moving particles)`, that of all particles: zero of the others."""
        return jnp.zeros((moved.shape[0], programs.size), moved.dtype).at[:, moving].set(moved, unique_indices=True)

    def loss(values, position, velocity) -> tuple[Array, Array]:
        values, files = {**fixed, **values}, jax.tree.map(jnp.asarray, places)
        moved = {**files, "position": files["position"] + of_all(position)}
        state, lost, fault = programs.initial_state(values, moved, 0)
        state = eqx.tree_at(lambda s: s.velocity, state, state.velocity + _of_slots(state.ids, of_all(velocity)))
        model, params = programs.build(vary_like(values, state), moved)

        def measure(t, state, params) -> Array:
            state = programs.family.seen(model, state, params)
            return _measured(programs, _observed(programs, state, params, model, files), state.ids, sizes)

        trajectory = simulate(
            model, programs.integrator, params, state, schedule, frames=FRAMES, observe=measure, checkpoint=plan,
            on_fault="keep",
        )  # fmt: skip
        status = programs.domain.max(trajectory.clock.status | fault) | jnp.where(lost > 0, CELL_FULL, OK)
        # A run that stopped on a fault is that of its last good state.
        return jnp.where(status == OK, jnp.sum(trajectory.observed), jnp.nan), status

    run = distribute(loss, programs.mesh, in_specs=(PartitionSpec(),) * 3, out_specs=PartitionSpec())

    def function(unknowns: Unknowns) -> tuple[Array, Array]:
        values = {name: value for name, value in unknowns.items() if name not in (POSITION, VELOCITY)}
        return run(values, unknowns[POSITION], unknowns[VELOCITY])

    return function


def _of_slots(ids: Array, values: Array) -> Array:
    """Of `(..., particles)`, what belongs to every slot; zero at empty ones."""
    return jnp.where(ids >= 0, values[..., jnp.where(ids >= 0, ids, 0)], 0)


def _observed(programs: ParticlePrograms, state: Any, params, model, files) -> dict[str, list[Array]]:
    """Name -> components, one array per slot each: how far particles went from their places, and what the model has."""
    cells = programs.cells
    lengths = jnp.asarray(cells.domain.grid.lengths, state.position.dtype).reshape(-1, *(1,) * state.ids.ndim)
    gone = (
        cells.absolute(state.position)
        + lengths * state.image.astype(lengths.dtype)
        - _of_slots(state.ids, files["position"])
    )
    found = {"position": gone, **programs.family.arrays(model, state, params)}
    return {
        name: list(u) if u.ndim > state.ids.ndim else [u]
        for name, u in found.items()
        if jnp.issubdtype(u.dtype, jnp.inexact)
    }


def _measured(programs: ParticlePrograms, found: Mapping[str, list[Array]], ids: Array, sizes) -> Array:
    """The mean over all particles of the bounded function of what was found, in units of its size."""
    components = [(name, u) for name in sorted(found) for u in found[name]]
    number_of = ids.astype(components[0][1].dtype)
    total = jnp.zeros_like(number_of)
    for number, (name, u) in enumerate(components):
        total += (1 + 0.3 * jnp.sin(0.7 * number_of + 1.7 * number)) * bounded(u / sizes[name])
    return programs.domain.sum(jnp.where(ids >= 0, total, 0)) / programs.size
