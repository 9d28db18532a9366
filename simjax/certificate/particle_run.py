"""The first steps of particles, a little off their places."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.certificate.certificate import REFERENCE
from simjax.certificate.derivative_programs import COMPILED_SOON
from simjax.certificate.directions import Unknowns
from simjax.certificate.meshes import BLOCKS
from simjax.certificate.short_run import FRAMES, ShortRun, bounded, numbers_and_arrays, simplified
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.programs.particle_run import CompiledParticleRun
from simjax.models.particle_model import family_of
from simjax.parallel import distribute
from simjax.particles.cells import at_slots
from simjax.schema.config import Config

# How far particles are moved off their start, where a lattice has no forces: of their mean distance. And how much their
# velocities are changed: of their size, or where they are at rest of what leads that distance in the run.
OFFSET, VELOCITY_OFFSET = 0.03, 0.1
# Particles that show the same as more of them, sooner.
MOST = 500
POSITION, VELOCITY = "initial.position", "initial.velocity"


class ParticleRun(ShortRun):
    """The first steps of fewer particles, moved off their places."""

    meshes = 2

    def __init__(self, config: Config, steps: int):
        fewer = family_of(config).fewer(MOST)
        self.config, self.notes = self._shortened(fewer, steps)
        self.blocks = self.blocks_of(config)
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

    @staticmethod
    def blocks_of(config):
        return [BLOCKS] * config.ndim

    @staticmethod
    def size_in_words(rollout):
        return f"of {rollout.programs.size} particles"

    def _shortened(self, config: Config, steps: int) -> tuple[Config, list[str]]:
        """Two frames of `steps` steps, with particles arranged more than once in each; and what was changed."""
        dt, listed, of_frame = config.time.dt, config.neighbor_list, steps // FRAMES
        assert dt is not None
        plain, changed = simplified(config)
        plain, smoothed = family_of(plain).smooth()
        together = max(1, of_frame // 2)
        listed = dataclasses.replace(listed, rebuild_every=min(listed.rebuild_every or together, together))
        time = dataclasses.replace(config.time, end=steps * dt, output_every=of_frame * dt)
        said = [f"{steps} steps of {dt:.3g} in float64", *changed, *([smoothed] if smoothed else [])]
        return dataclasses.replace(plain, time=time, neighbor_list=listed), [" ".join(said)]

    def _at_start(self, rollout: DifferentiableRun) -> dict[str, np.ndarray]:
        """The observed quantities as a run begins: `(components, particles)`."""
        programs = _particles(rollout)

        def begin(values, fields):
            state, _ = rollout.begin(values, fields)
            model, params = programs.build(values, fields)
            state = programs.family.seen(model, state, params)
            return state.ids >= 0, _observed(programs, state, params, model, fields["particles"]["position"])

        held, found = jax.device_get(jax.jit(begin)(rollout.start_values(), rollout.start_fields()))
        return {name: np.stack(parts)[:, held] for name, parts in found.items()}

    def _sizes_of(self, found: Mapping[str, np.ndarray]) -> dict[str, float]:
        """The size of a component of an array `found` at the start."""
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
        """The run with enough capacity for its particles and pairs, measured once for each mesh."""
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
        given = numbers_and_arrays(self.start, arrays)
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

        def measure(model, t, state, params, _) -> Array:
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
    """Extend an array `(components, moving particles)` to all particles, with zero for those at rest."""
    programs = _particles(rollout)
    moving = programs.family.moving(programs.start_of)
    moved = jnp.asarray(moved)
    return jnp.zeros((moved.shape[0], programs.size), moved.dtype).at[:, moving].set(moved, unique_indices=True)


def _observed(programs: CompiledParticleRun, state: Any, params, model, places: Array) -> dict[str, list[Array]]:
    """Observed quantities by name, each a list of components with a value per slot: how far particles went from their
    places, and what the model has."""
    cells = programs.cells
    lengths = jnp.asarray(cells.domain.grid.lengths, state.position.dtype).reshape(-1, *(1,) * state.ids.ndim)
    gone = cells.absolute(state.position) + lengths * state.image.astype(lengths.dtype) - at_slots(state.ids, places)
    found = {"position": gone, **programs.family.arrays(model, state, params)}
    return {
        name: list(u) if u.ndim > state.ids.ndim else [u]
        for name, u in found.items()
        if jnp.issubdtype(u.dtype, jnp.inexact)
    }
