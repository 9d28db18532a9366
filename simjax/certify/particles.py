"""What is differentiated to certify an experiment of particles: a short run of it, in which they are sorted anew."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.adjoint.certificate import REFERENCE, Objective
from simjax.adjoint.compiled import COMPILED_SOON
from simjax.adjoint.directions import Unknowns
from simjax.adjoint.plan import Checkpoint
from simjax.builders.particles import skin_length
from simjax.certify.experiment import FRAMES, PLANS, bounded, check_steps
from simjax.certify.meshes import BLOCKS, meshes_to_compare
from simjax.config import Config
from simjax.config.schema import EnsembleConfig, MeshConfig
from simjax.core.errors import NumericalError
from simjax.core.status import CELL_FULL, OK, reasons
from simjax.core.varying import vary_like
from simjax.parallel import distribute
from simjax.particles.arrangement import Particles
from simjax.particles.cells import Cells
from simjax.programs.particles import ParticlePrograms
from simjax.stepping import Schedule, simulate

# How far particles are moved off their start, where a lattice has forces of none: of their mean distance. And how much
# their velocities are changed, of these; of particles at rest, so that they go that way in the run.
OFFSET, VELOCITY_OFFSET = 0.03, 0.1
MESHES = 2
MOVES = ("position", "velocity")


def particle_objective(config: Config, *, steps: int, devices: int | None = None) -> Objective:
    """A smooth function of the first `steps` steps of a run of particles, by its numbers and where particles start.

    The function is the mean over particles of w (sqrt(1 + q^2) - 1 + 0.3 sin q), summed over two frames and over the
    components q of displacement and velocity in units of their size; w differs from particle to particle. Beside all
    numbers, what is added to positions and velocities at the start ("initial.position", "initial.velocity") is
    unknown: it begins pseudo-random, off every lattice. Particles are sorted anew and their partners found in each
    frame, with as much room as every mesh needs. Of an ensemble the base values are taken.

    Raises:
        ConfigurationError: nothing can be differentiated so.
        NumericalError: a run stops, or needs ever more room.
    """
    check_steps(steps)
    short, notes = _shortened(config, steps)
    schedule = Schedule(short.time.output_every, dt=short.time.dt)
    alone = ParticlePrograms(short)
    moves, sizes = _moves_and_sizes(alone, schedule)
    start: Unknowns = {
        name: np.asarray(value)
        for name, value in alone.parameters.items()
        # At rest the speed of particles, a root of the temperature, has no derivative.
        if name != "start_temperature" or value > 0
    }
    start |= {f"initial.{name}": move for name, move in moves.items()}

    def run_of(programs: ParticlePrograms, plan: Checkpoint) -> Callable[[Unknowns], tuple[Array, Array]]:
        return _run(programs, schedule, plan, sizes)

    @functools.cache
    def programs(items: tuple[tuple[str, int], ...]) -> ParticlePrograms:
        mesh = dataclasses.replace(short.mesh, **dict(items))
        return _with_room(ParticlePrograms(dataclasses.replace(short, mesh=mesh), moves), run_of, start)

    @functools.cache
    def on(items: tuple[tuple[str, int], ...], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        run = run_of(programs(items), plan)
        return lambda unknowns: run(unknowns)[0]

    def function(mesh: Mapping[str, int], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        return on(tuple(mesh.items()), plan)

    blocks = _blocks(short)
    meshes, untested, said = meshes_to_compare(config, start, function, devices, blocks=blocks, most=MESHES)
    notes += [f"{alone.size} particles start {OFFSET:g} of their mean distance off their places"]
    return Objective(start, function, meshes, PLANS, notes=(*notes, *said), untested=untested)


# ---------------------------------------------------------------------- the short run


def _shortened(config: Config, steps: int) -> tuple[Config, list[str]]:
    """Two frames of `steps` steps in float64, with particles arranged more than once in each; and what was changed."""
    dt, physics, arrangement = config.time.dt, config.physics, config.arrangement
    assert dt is not None
    of_frame = steps // FRAMES
    changed = [f"{steps} steps of {dt:.3g} in float64"]
    if config.precision != "float64":
        changed.append(f"in place of {config.precision}")
    if config.ensemble.size > 1 or config.ensemble.vary:
        changed.append("without the ensemble")
    if getattr(physics, "mode", "force_shifted") != "force_shifted":
        changed.append(f"with mode=force_shifted in place of {physics.mode}, whose force has a step at the cutoff")
        physics = dataclasses.replace(physics, mode="force_shifted")
    together = max(1, of_frame // 2)
    arrangement = dataclasses.replace(arrangement, steps=min(arrangement.steps or together, together))
    time = dataclasses.replace(config.time, end=steps * dt, output_every=of_frame * dt)
    short = dataclasses.replace(
        config, precision="float64", ensemble=EnsembleConfig(), mesh=MeshConfig(overlap=config.mesh.overlap),
        resume=None, time=time, physics=physics, arrangement=arrangement,
    )  # fmt: skip
    return short, [" ".join(changed)]


def _moves_and_sizes(
    programs: ParticlePrograms, schedule: Schedule
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """What is added to positions and velocities `(ndim, particles)` at the start; and the size of a component of
    displacement and velocity in the run."""
    spacing = (np.prod(programs.domain.grid.lengths) / programs.size) ** (1 / programs.cells.ndim)
    duration = FRAMES * schedule.interval
    speed = _speed(programs)
    amounts = {"position": OFFSET * spacing, "velocity": VELOCITY_OFFSET * (speed or spacing / duration)}
    moves = {
        name: amount * np.random.default_rng(number).uniform(-1, 1, programs.start_of.position.shape)
        for number, (name, amount) in enumerate(amounts.items())
    }
    velocity = np.hypot(speed, np.std(moves["velocity"]))
    way = np.hypot(np.std(moves["position"]), duration * velocity)
    return moves, {"position": float(way), "velocity": float(velocity)}


def _speed(programs: ParticlePrograms) -> float:
    """Root mean square of a component of the velocity at the start."""
    state, _ = jax.jit(programs.initial_state)(programs.values, programs.files, 0)
    return float(np.sqrt(np.sum(np.asarray(state.velocity) ** 2) / (programs.size * programs.cells.ndim)))


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


def _blocks(config: Config) -> list[list[int]]:
    """Numbers of blocks into which each axis of the box can be cut."""
    box = config.box
    assert box is not None and box.lower is not None
    reach = config.physics.cutoff + skin_length(config)
    return [[n for n in BLOCKS if n * reach <= b - a] for a, b in zip(box.lower, box.upper, strict=True)]


# ---------------------------------------------------------------------- the function


def _run(
    programs: ParticlePrograms, schedule: Schedule, plan: Checkpoint, sizes: Mapping[str, float]
) -> Callable[[Unknowns], tuple[Array, Array]]:
    """The objective's function of one mesh and plan, and the status with which its run ends."""
    fixed, files = jax.device_get((programs.values, programs.files))

    def loss(values, moves) -> tuple[Array, Array]:
        values = {**fixed, **values}
        given = {**jax.tree.map(jnp.asarray, files), "moves": moves}
        state, lost = programs.initial_state(values, given, 0)
        model, params = programs.build(vary_like(values, state), given)

        def measure(t, state, params) -> Array:
            return _measured(programs.cells, state, given["position"], sizes)

        trajectory = simulate(
            model, programs.integrator, params, state, schedule, frames=FRAMES, observe=measure, checkpoint=plan
        )
        status = programs.domain.max(trajectory.clock.status) | jnp.where(lost > 0, CELL_FULL, OK)
        # A run that stopped on a fault is that of its last good state.
        return jnp.where(status == OK, jnp.sum(trajectory.observed), jnp.nan), status

    run = distribute(loss, programs.mesh, in_specs=(PartitionSpec(), PartitionSpec()), out_specs=PartitionSpec())

    def function(unknowns: Unknowns) -> tuple[Array, Array]:
        values = {name: value for name, value in unknowns.items() if "." not in name}
        return run(values, {name: unknowns[f"initial.{name}"] for name in MOVES})

    return function


def _measured(cells: Cells, state: Particles, places: Array, sizes: Mapping[str, float]) -> Array:
    """The mean over particles; places: `(ndim, particles)`, from where displacements count."""
    held = state.ids >= 0
    number = jnp.where(held, state.ids, 0)
    lengths = jnp.asarray(cells.domain.grid.lengths, state.position.dtype).reshape(-1, *(1,) * number.ndim)
    gone = cells.absolute(state.position) + lengths * state.image - places[:, number]
    found = {"position": gone, "velocity": state.velocity}
    total = jnp.zeros(number.shape, state.position.dtype)
    for k, name in enumerate(MOVES):
        for axis in range(cells.ndim):
            weight = 1 + 0.3 * jnp.sin(0.7 * number + 1.7 * (cells.ndim * k + axis))
            total += weight * bounded(found[name][axis] / sizes[name])
    return cells.domain.sum(jnp.where(held, total, 0)) / places.shape[1]
