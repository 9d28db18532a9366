"""Objective of an experiment: a short run of it, away from where it has no derivative."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import zlib
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
from simjax.certificate.directions import Unknowns, smooth_waves
from simjax.certificate.meshes import BLOCKS, blocks_of_grid, meshes_to_compare
from simjax.core.domain import Domain
from simjax.driver.compiled import SECTIONS
from simjax.driver.compiled_run import CompiledParticleRun
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER
from simjax.models.particle_model import family_of
from simjax.parallel import distribute
from simjax.particles.cells import at_slots
from simjax.schema.config import Config
from simjax.schema.devices import MeshConfig
from simjax.schema.instruments import Instruments
from simjax.schema.members import EnsembleConfig
from simjax.status import OK
from simjax.stepping.checkpointing.plan import Binomial, Checkpoint

PLANS: tuple[Checkpoint, ...] = ("none", "two_level", Binomial(3))
FRAMES = 2
# Of the step that the start allows: half of the experiment's Courant number, as the start is moved and speeds up.
COURANT_SHARE = 0.5
# How far fields are moved off their start, which may lie on kinks (uniform, symmetric), in units of their size: the
# further, the further are the kinks. Coefficients have fewer, and with them the stable step changes.
FIELD_OFFSET, COEFFICIENT_OFFSET = 0.1, 0.01
# A field that is zero everywhere has no other kinks than those of what it is moved by.
NOTHING_OFFSET = 0.3
DIGITS = 13
# The distance from bodies, where it is a field.
SHAPE = "coefficients.solid"
# How far particles are moved off their start, where a lattice has no forces: of their mean distance. And how much their
# velocities are changed: of their size, or where they are at rest of what leads that distance in the run.
OFFSET, VELOCITY_OFFSET = 0.03, 0.1
# Particles that show the same as more of them, sooner.
MOST = 500
POSITION, VELOCITY = "initial.position", "initial.velocity"


def run_objective(config: Config, *, steps: int, devices: int | None = None) -> Objective:
    """A smooth function of the first `steps` steps of an experiment, by its numbers and by what it begins with.

    The function is the mean over cells, or particles, of w (sqrt(1 + q^2) - 1 + 0.3 sin q), in which no peak drowns the
    rest, summed over two frames and over what is observed: q is that in units of its size, w a weight that differs from
    place to place. Steps have one length; of an ensemble the base values are taken.

    Of fields all variables that have an initial field are observed. Initial fields and coefficients are given as arrays
    and start a tenth of their size away from the configuration's, since a uniform or symmetric field lies on kinks of
    limiters and upwind fluxes. Where a run goes by Courant number, whose steps count as given, a step is half of the
    first one.

    Of particles displacement, velocity and what else the model tells of each are observed. Unknown are all numbers, and
    what is added to positions and velocities at the start ("initial.position", "initial.velocity"), which begins
    pseudo-random, off every lattice. Particles are sorted anew and their partners found at least once in a frame, with
    as much room as every mesh needs.

    Raises:
        ConfigurationError: nothing can be differentiated so.
        NumericalError: a run of particles stops, or needs ever more room.
    """
    if steps < FRAMES or steps % FRAMES:
        raise ConfigurationError(f"steps={steps}: expected an even number of at least {FRAMES}; write --steps 6.")
    short = (ParticleRun if config.schema.of_particles else FieldRun)(config, steps)

    @functools.cache
    def on(items: tuple[tuple[str, int], ...], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        return _function(short, short.rollout(dict(items), plan))

    def function(mesh: Mapping[str, int], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        return on(tuple(mesh.items()), plan)

    # What cannot be cut so is refused before anything is compiled.
    meshes, untested, said = meshes_to_compare(
        config, short.start, function, devices, blocks=short.blocks, most=short.meshes
    )
    return Objective(
        short.start, function, meshes, PLANS, across=short.across(), notes=(*short.notes, *said), untested=untested
    )


def _function(short: ShortRun, rollout: DifferentiableRun) -> Callable[[Unknowns], Array]:
    """The objective's function of one mesh and plan."""

    def loss(values, arrays) -> Array:
        values, fields, state, status = short.begin(rollout, values, arrays)
        trajectory, _ = rollout.advance(values, fields, state, short.measure(rollout, fields))
        # A run that stopped on a fault is that of its last good state.
        good = rollout.domain.max(trajectory.clock.status | status) == OK
        return jnp.where(good, jnp.sum(trajectory.observed), jnp.nan)

    arrays = short.array_specs(rollout)
    run = distribute(loss, rollout.mesh, in_specs=(PartitionSpec(), arrays), out_specs=PartitionSpec())
    return lambda unknowns: run(*_split(unknowns, arrays))


def _split(unknowns: Unknowns, arrays: Mapping[str, Any]) -> tuple[Unknowns, Unknowns]:
    """Numbers by name, and those unknowns that are `arrays`, by path."""
    numbers = {name: value for name, value in unknowns.items() if name not in arrays}
    return numbers, {path: unknowns[path] for path in arrays}


def bounded(q: Array) -> Array:
    """sqrt(1 + q^2) - 1 + 0.3 sin q, of which no peak drowns the rest: smooth, and nowhere symmetric."""
    return jnp.sqrt(1 + q**2) - 1 + 0.3 * jnp.sin(q)


class ShortRun(abc.ABC):
    """The first steps of an experiment, with what is changed of it.

    config: the changed one. start: the unknowns, numbers by name and arrays by path. notes: sentences about the
    changes. blocks: per axis, numbers of blocks into which it can be cut. meshes: how many of one size are compared.
    """

    config: Config
    start: Unknowns
    notes: list[str]
    blocks: list
    meshes = 1

    def across(self) -> dict[str, Unknowns]:
        """Ways on which shapes move by a cell, by name: see `Objective.across`."""
        return {}

    @abc.abstractmethod
    def rollout(self, sizes: Mapping[str, int], plan: Checkpoint) -> DifferentiableRun:
        """The run on a mesh, with what reverse mode keeps."""

    @abc.abstractmethod
    def array_specs(self, rollout: DifferentiableRun) -> dict[str, Any]:
        """The partition of the unknowns that are arrays, by path."""

    @abc.abstractmethod
    def begin(self, rollout: DifferentiableRun, values, arrays) -> tuple[Any, Any, Any, Array]:
        """The values and fields of the run with these unknowns, its first state, and bits of `status`."""

    @abc.abstractmethod
    def measure(self, rollout: DifferentiableRun, fields) -> Callable:
        """The function `(model, t, state, params)` of a frame, summed over frames."""


def _plain(config: Config) -> tuple[Config, list[str]]:
    """The configuration in float64, on one device, without an ensemble and instruments, and what that changes."""
    changed = [f"in place of {config.precision}"] if config.precision != "float64" else []
    if config.ensemble.size > 1 or config.ensemble.vary:
        changed.append("without the ensemble")
    mesh = MeshConfig(overlap=config.mesh.overlap)
    return dataclasses.replace(
        config, precision="float64", ensemble=EnsembleConfig(), mesh=mesh, outputs=Instruments(), resume=None
    ), changed  # fmt: skip


# ---------------------------------------------------------------------- fields


class FieldRun(ShortRun):
    """The first steps of fields, all of them arrays."""

    def __init__(self, config: Config, steps: int):
        self.config, self.notes = self._shortened(config, steps)
        self.blocks = blocks_of_grid(config)
        kept = {f"coefficients.{name}" for name in self.config.schema.functions(self.config)}
        paths = [f"{section}.{name}" for section in SECTIONS for name in getattr(self.config, section)]
        self._given = [path for path in paths if path not in kept]
        # Variables that have an initial field -> the path of that field.
        self._observed = {
            variable: f"initial.{field.name}"
            for field in self.config.fields
            if field.name in self.config.initial
            for variable in field.components(config.ndim, config.counts.get(field.name, 0))
        }
        alone = self.rollout({}, "auto")
        self._sizes, self._grid = self._largest(alone), alone.domain.grid
        fields = jax.device_get(alone.start_fields())
        self.start = {name: np.asarray(value) for name, value in alone.start_values().items()}
        for path in self._given:
            section, name = path.split(".", 1)
            self.start[path] = _moved_off(path, fields[section][name], self._sizes.get(path))

    def _shortened(self, config: Config, steps: int) -> tuple[Config, list[str]]:
        """Two frames with `steps` steps of one length, and what was changed."""
        time, physics = config.time, config.physics
        plain, changed = _plain(config)
        if hasattr(physics, "digits"):
            # Derivatives of implicit solves are those of the exact solution.
            plain = dataclasses.replace(plain, physics=dataclasses.replace(physics, digits=DIGITS))
            if physics.digits < DIGITS:
                changed.append(f"with solves to {DIGITS} digits in place of {physics.digits}")
        once = dataclasses.replace(time, end=time.output_every, dt=time.output_every, courant=None)
        dt = time.dt
        if dt is None:
            assert time.courant is not None
            limit = (
                COURANT_SHARE
                * time.courant
                * DifferentiableRun(dataclasses.replace(plain, time=once), sizes={}).stable_dt()
            )
            dt = limit if math.isfinite(limit) else time.output_every / steps
        every = steps // FRAMES * dt
        short = dataclasses.replace(
            plain, time=dataclasses.replace(once, end=FRAMES * every, output_every=every, dt=dt)
        )
        shape = " x ".join(map(str, config.grid_of_fields().shape))
        return short, [" ".join([f"{steps} steps of {dt:.3g} on a grid of {shape} in float64", *changed])]

    def _largest(self, rollout: DifferentiableRun) -> dict[str, float]:
        """The largest root mean square of every observed field (all components) from the start to the end, by path."""

        def squares(model, t, state, params) -> dict[str, Array]:
            found, domain = model.observe(t, state, params), model.domain
            return {name: domain.mean(found[name] ** 2) for name in self._observed if name in found}

        def history(values, fields):
            trajectory, start = rollout.run(values, fields, squares)
            return trajectory.observed, start

        specs = PartitionSpec(), rollout.field_specs()
        run = distribute(history, rollout.mesh, in_specs=specs, out_specs=PartitionSpec())
        later, start = jax.device_get(run(rollout.start_values(), rollout.start_fields()))
        totals: dict[str, np.ndarray] = {}
        for name, means in later.items():
            path = self._observed[name]
            totals[path] = totals.get(path, 0.0) + np.append(means, start[name])
        return {path: float(np.sqrt(np.max(total))) or 1.0 for path, total in totals.items()}

    def across(self):
        if SHAPE not in self._given:
            return {}
        (distance,), grid = self.start[SHAPE], self._grid
        slopes = [np.gradient(distance, axis=axis) for axis in range(distance.ndim)]
        cell = math.prod(grid.mean_spacing) ** (1 / grid.ndim)
        steepness = np.sqrt(sum((slope / h) ** 2 for slope, h in zip(slopes, grid.mean_spacing, strict=True)))
        ways = {f"along {axis}": -slope for axis, slope in zip(AXES, slopes, strict=False)}
        still = jax.tree.map(np.zeros_like, self.start)
        return {name: still | {SHAPE: (way,)} for name, way in (ways | {"outward": -cell * steepness}).items()}

    def rollout(self, sizes, plan):
        return DifferentiableRun(self.config, sizes=sizes, given=self._given, checkpoint=plan)

    def array_specs(self, rollout):
        return {f"{section}.{name}": s for section, own in rollout.field_specs().items() for name, s in own.items()}

    def begin(self, rollout, values, arrays):
        fields: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        for path, components in arrays.items():
            section, name = path.split(".", 1)
            fields[section][name] = components
        prepared = rollout.prepared(values, fields)
        return values, prepared, *rollout.begin(values, prepared)

    def measure(self, rollout, fields):
        def measure(model, t, state, params) -> Array:
            found, domain = model.observe(t, state, params), model.domain
            total = jnp.zeros((), rollout.dtype)
            for number, name in enumerate(sorted(self._observed.keys() & found.keys())):
                q = found[name] / self._sizes[self._observed[name]]
                total += domain.mean(_weight(domain, number) * bounded(q))
            return total

        return measure


def _moved_off(path: str, components: tuple[np.ndarray, ...], size: float | None) -> tuple[np.ndarray, ...]:
    """A field moved smoothly by a share of its size; what is positive stays so, coefficients that are zero stay it."""
    coefficient = path.startswith("coefficients")
    share = COEFFICIENT_OFFSET if coefficient else FIELD_OFFSET
    if size is None:
        size = float(np.sqrt(np.mean(np.square(components)))) or 1.0
    moved = []
    for number, u in enumerate(components):
        wave = smooth_waves(u.shape, zlib.crc32(f"{path} {number}".encode()))
        keeps_sign = np.all(u >= 0) if coefficient else np.all(u > 0)
        moved.append(u + wave * (share * u if keeps_sign else size * (share if np.any(u) else NOTHING_OFFSET)))
    return tuple(moved)


def _weight(domain: Domain, number: int) -> Array:
    """Waves over the box, others for every number."""
    grid = domain.grid
    positions = domain.coordinates((CENTER,) * grid.ndim, jnp.float64)
    shares = [(x - low) / length for x, low, length in zip(positions, grid.lower, grid.lengths, strict=True)]
    return 1 + 0.3 * sum((jnp.sin((k + 5.1) * share + 1.7 * number) for k, share in enumerate(shares)), jnp.zeros(()))


# ---------------------------------------------------------------------- particles


class ParticleRun(ShortRun):
    """The first steps of fewer particles, moved off their places."""

    meshes = 2

    def __init__(self, config: Config, steps: int):
        fewer = family_of(config).fewer(MOST)
        self.config, self.notes = self._shortened(fewer, steps)
        self.blocks = [BLOCKS] * config.ndim
        alone = DifferentiableRun(self.config, sizes={})
        programs = _particles(alone)
        found = self._at_start(alone)
        self._spacing = float((np.prod(alone.domain.grid.lengths) / programs.size) ** (1 / config.ndim))
        self._sizes = self._sizes_of(found)
        self.start = self._moved(programs, len(found["velocity"]))
        self._roomy: dict[tuple, DifferentiableRun] = {}
        number, told = family_of(config).start().count, f"{programs.size} particles"
        if fewer.box != config.box:
            told += " in a part of the box, as densely filled,"
        elif programs.size != number:
            told += f" in place of {number}"
        # Only those that move are displaced.
        free = programs.family.moving(programs.start_of).size
        told += "" if free == programs.size else f", of which the {free} that move"
        self.notes.append(f"{told} start up to {OFFSET:g} of their mean distance off their places")

    def _shortened(self, config: Config, steps: int) -> tuple[Config, list[str]]:
        """Two frames of `steps` steps, with particles arranged more than once in each; and what was changed."""
        dt, listed, of_frame = config.time.dt, config.neighbor_list, steps // FRAMES
        assert dt is not None
        plain, changed = _plain(config)
        plain, smoothed = family_of(plain).smooth()
        together = max(1, of_frame // 2)
        listed = dataclasses.replace(listed, rebuild_every=min(listed.rebuild_every or together, together))
        time = dataclasses.replace(config.time, end=steps * dt, output_every=of_frame * dt)
        said = [f"{steps} steps of {dt:.3g} in float64", *changed, *([smoothed] if smoothed else [])]
        return dataclasses.replace(plain, time=time, neighbor_list=listed), [" ".join(said)]

    def _at_start(self, rollout: DifferentiableRun) -> dict[str, np.ndarray]:
        """Everything that is observed, as a run begins: `(components, particles)`."""
        programs = _particles(rollout)

        def begin(values, fields):
            state, _ = rollout.begin(values, fields)
            model, params = programs.build(values, fields)
            state = programs.family.seen(model, state, params)
            return state.ids >= 0, _observed(programs, state, params, model, fields["particles"]["position"])

        held, found = jax.device_get(jax.jit(begin)(rollout.start_values(), rollout.start_fields()))
        return {name: np.stack(parts)[:, held] for name, parts in found.items()}

    def _sizes_of(self, found: Mapping[str, np.ndarray]) -> dict[str, float]:
        """The size of a component of what was `found` at the start."""
        sizes = {name: float(np.sqrt(np.mean(u**2))) for name, u in found.items()}
        duration, offset = self.config.time.end, OFFSET * self._spacing
        speed = sizes.get("velocity", 0.0) or offset / duration
        way = float(np.hypot(offset, duration * speed))
        return {name: size or 1.0 for name, size in sizes.items()} | {"position": way, "velocity": speed}

    def _moved(self, programs: CompiledParticleRun, components: int) -> Unknowns:
        """All numbers, and what is added to positions and velocities of what moves, `(components, particles)`."""
        numbers: Unknowns = {
            name: np.asarray(value)
            for name, value in programs.parameters.items()
            if programs.family.differentiable(name, float(value))
        }
        random, count = np.random.default_rng(0), programs.family.moving(programs.start_of).size
        position = OFFSET * self._spacing * random.uniform(-1, 1, (self.config.ndim, count))
        velocity = VELOCITY_OFFSET * self._sizes["velocity"] * random.uniform(-1, 1, (components, count))
        return numbers | {POSITION: position, VELOCITY: velocity}

    def rollout(self, sizes, plan):
        """The run with the room that it needs, found once for each mesh."""
        items = tuple(sizes.items())
        if items not in self._roomy:
            rollout = DifferentiableRun(self.config, sizes=sizes, checkpoint=REFERENCE)
            rollout.enlarge(lambda: self._status(rollout))
            self._roomy[items] = rollout
        return self._roomy[items].with_checkpoint(plan)

    def _status(self, rollout: DifferentiableRun) -> int:
        """The status with which the run from the start ends."""

        def status(values, arrays) -> Array:
            values, fields, state, fault = self.begin(rollout, values, arrays)
            trajectory, _ = rollout.advance(values, fields, state)
            return rollout.domain.max(trajectory.clock.status | fault)

        arrays = self.array_specs(rollout)
        run = distribute(status, rollout.mesh, in_specs=(PartitionSpec(), arrays), out_specs=PartitionSpec())
        given = _split(self.start, arrays)
        return int(run.lower(*given).compile(COMPILED_SOON)(*given))

    def array_specs(self, rollout):
        return {POSITION: PartitionSpec(), VELOCITY: PartitionSpec()}

    def _displaced(self, rollout: DifferentiableRun, fields, position) -> dict[str, Any]:
        particles = fields["particles"]
        return {**fields, "particles": {**particles, "position": particles["position"] + _of_all(rollout, position)}}

    def begin(self, rollout, values, arrays):
        values = {**jax.device_get(rollout.start_values()), **values}
        fields = self._displaced(rollout, jax.tree.map(jnp.asarray, self._fields(rollout)), arrays[POSITION])
        state, status = rollout.begin(values, fields)
        velocity = state.velocity + at_slots(state.ids, _of_all(rollout, arrays[VELOCITY]))
        return values, fields, eqx.tree_at(lambda s: s.velocity, state, velocity), status

    def _fields(self, rollout: DifferentiableRun) -> Any:
        """Positions at the start, on the host: constants of the program."""
        return jax.device_get(rollout.start_fields())

    def measure(self, rollout, fields):
        programs, places = (
            _particles(rollout),
            jax.tree.map(jnp.asarray, self._fields(rollout))["particles"]["position"],
        )

        def measure(model, t, state, params) -> Array:
            state = programs.family.seen(model, state, params)
            found = _observed(programs, state, params, model, places)
            components = [(name, u) for name in sorted(found) for u in found[name]]
            number_of = state.ids.astype(components[0][1].dtype)
            total = jnp.zeros_like(number_of)
            for number, (name, u) in enumerate(components):
                total += (1 + 0.3 * jnp.sin(0.7 * number_of + 1.7 * number)) * bounded(u / self._sizes[name])
            return programs.domain.sum(jnp.where(state.ids >= 0, total, 0)) / programs.size

        return measure


def _particles(rollout: DifferentiableRun) -> CompiledParticleRun:
    assert isinstance(rollout.programs, CompiledParticleRun)
    return rollout.programs


def _of_all(rollout: DifferentiableRun, moved: Array) -> Array:
    """`(components, particles)` from that of moving particles: zero of the others."""
    programs = _particles(rollout)
    moving = programs.family.moving(programs.start_of)
    moved = jnp.asarray(moved)
    return jnp.zeros((moved.shape[0], programs.size), moved.dtype).at[:, moving].set(moved, unique_indices=True)


def _observed(programs: CompiledParticleRun, state: Any, params, model, places: Array) -> dict[str, list[Array]]:
    """Name -> components, one array per slot each: how far particles went from their places, and what the model has."""
    cells = programs.cells
    lengths = jnp.asarray(cells.domain.grid.lengths, state.position.dtype).reshape(-1, *(1,) * state.ids.ndim)
    gone = cells.absolute(state.position) + lengths * state.image.astype(lengths.dtype) - at_slots(state.ids, places)
    found = {"position": gone, **programs.family.arrays(model, state, params)}
    return {
        name: list(u) if u.ndim > state.ids.ndim else [u]
        for name, u in found.items()
        if jnp.issubdtype(u.dtype, jnp.inexact)
    }
