"""The first steps of fields, a little off where they have no derivative."""

from __future__ import annotations

import dataclasses
import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.certificate.directions import smooth_waves
from simjax.certificate.meshes import blocks_of_grid
from simjax.certificate.moved_shapes import (
    SHAPE,
    SHAPE_OFFSET,
    keeps_formula,
    ways_of_distance,
    ways_of_formula,
    with_places,
)
from simjax.certificate.short_run import FRAMES, ShortRun, bounded, simplified
from simjax.config.read_stretched_grid import grid_of
from simjax.core.domain import Domain
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.programs.compiled_run import SECTIONS
from simjax.driver.start.build import NOISE_MEMBER, NOISE_SEED
from simjax.grid import CENTER
from simjax.parallel import distribute
from simjax.schema.config import DEFAULT_COURANT, Config

# Of the step that the start allows: half of the experiment's Courant number, as the start is moved and speeds up.
COURANT_SHARE = 0.5
# How far fields are moved off their start, which may lie on kinks (uniform, symmetric), in units of their size: the
# further, the further are the kinks. Coefficients have fewer, and with them the stable step changes.
FIELD_OFFSET, COEFFICIENT_OFFSET = 0.1, 0.01
# A field that is zero everywhere has no other kinks than those of what it is moved by.
NOTHING_OFFSET = 0.3
DIGITS = 13


class FieldRun(ShortRun):
    """The first steps of fields, all of them arrays."""

    def __init__(self, config: Config, steps: int):
        self.config, self.notes = self._shortened(config, steps)
        self.blocks = self.blocks_of(config)
        kept = {f"coefficients.{name}" for name in functions_of(self.config)}
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
        numbers = {name: np.asarray(value) for name, value in alone.start_values().items()}
        # A seed that is moved draws other numbers.
        self._seeds = {name: value for name, value in numbers.items() if name in (NOISE_SEED, NOISE_MEMBER)}
        self.start = {name: value for name, value in numbers.items() if name not in self._seeds}
        for path in self._given:
            section, name = path.split(".", 1)
            self.start[path] = _moved_off(path, fields[section][name], self._sizes.get(path))

    @staticmethod
    def blocks_of(config):
        return blocks_of_grid(config)

    @staticmethod
    def size_in_words(rollout):
        return f"on a grid of {' x '.join(map(str, rollout.config.grid_of_fields().shape))}"

    def _shortened(self, config: Config, steps: int) -> tuple[Config, list[str]]:
        """Shorten the configuration to two frames with `steps` steps of one length; return notes on it too."""
        time, physics = config.time, config.physics
        plain, changed = simplified(config)
        if keeps_formula(config):
            plain = with_places(plain)
            changed.append(f"with bodies {SHAPE_OFFSET:g} cells off their place")
        if hasattr(physics, "digits"):
            # Derivatives of implicit solves are those of the exact solution.
            plain = dataclasses.replace(plain, physics=dataclasses.replace(physics, digits=DIGITS))
            if physics.digits < DIGITS:
                changed.append(f"with solves to {DIGITS} digits in place of {physics.digits}")
        once = dataclasses.replace(time, end=time.output_every, dt=time.output_every, courant=None, tolerance=None)
        dt = time.dt
        if dt is None:
            if time.tolerance is not None:
                changed.append("in place of steps by their errors")
            limit = (
                COURANT_SHARE
                * (time.courant or DEFAULT_COURANT)
                * DifferentiableRun(dataclasses.replace(plain, time=once), sizes={}).stable_dt()
            )
            dt = min(limit, longest_falling(plain, steps))
            dt = dt if math.isfinite(dt) else time.output_every / steps
        every = steps // FRAMES * dt
        short = dataclasses.replace(
            plain, time=dataclasses.replace(once, end=FRAMES * every, output_every=every, dt=dt)
        )
        shape = " x ".join(map(str, config.grid_of_fields().shape))
        return short, [" ".join([f"{steps} steps of {dt:.3g} on a grid of {shape} in float64", *changed])]

    def _largest(self, rollout: DifferentiableRun) -> dict[str, float]:
        """The largest root mean square of every observed field (all components) from the start to the end, by path."""

        def squares(model, t, state, params, _) -> dict[str, Array]:
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
        if keeps_formula(self.config):
            return ways_of_formula(self._grid, self.start)
        return ways_of_distance(self._grid, self.start) if SHAPE in self._given else {}

    def rollout(self, sizes, plan):
        return DifferentiableRun(self.config, sizes=sizes, given=self._given, checkpoint=plan)

    def array_specs(self, rollout):
        return {f"{section}.{name}": s for section, own in rollout.field_specs().items() for name, s in own.items()}

    def begin(self, rollout, values, arrays):
        fields: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        for path, components in arrays.items():
            section, name = path.split(".", 1)
            fields[section][name] = components
        values = values | {name: jnp.asarray(seed) for name, seed in self._seeds.items()}
        prepared = rollout.prepared(values, fields)
        return values, prepared, *rollout.begin(values, prepared)

    def measure(self, rollout, fields):
        def measure(model, t, state, params, _) -> Array:
            found, domain = model.observe(t, state, params), model.domain
            total = jnp.zeros((), rollout.dtype)
            for number, name in enumerate(sorted(self._observed.keys() & found.keys())):
                q = found[name] / self._sizes[self._observed[name]]
                total += domain.mean(_weight(domain, number) * bounded(q))
            return total

        return measure


def longest_falling(config: Config, steps: int) -> float:
    """The step in the last of which a body that the fluid moves falls by as much of a cell as a flow may go."""
    body = getattr(config.physics, "body", None)
    fall = 0.0 if body is None else math.hypot(*body.gravity)
    if fall == 0.0 or config.time.courant is None:
        return math.inf
    h = min(grid_of(config.grid_of_fields()).mean_spacing)
    return math.sqrt(COURANT_SHARE * config.time.courant * h / (steps * fall))


def functions_of(config: Config) -> set[str]:
    """Coefficients that are functions, of time or of the place at any time, and would be others as arrays."""
    of_time = {
        name
        for name, source in config.coefficients.items()
        if isinstance(source, tuple) and any("t" in formula.names for formula in source)
    }
    return of_time.union(config.schema.functions(config))


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
    """Weights of a field in the loss: waves over the box, with a phase for each `number`."""
    grid = domain.grid
    positions = domain.coordinates((CENTER,) * grid.ndim, jnp.float64)
    shares = [(x - low) / length for x, low, length in zip(positions, grid.lower, grid.lengths, strict=True)]
    return 1 + 0.3 * sum((jnp.sin((k + 5.1) * share + 1.7 * number) for k, share in enumerate(shares)), jnp.zeros(()))
