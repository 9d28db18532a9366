"""From a configuration to what runs: domain, model, parameters, initial state, schedules."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.config import Config, FileSource, parameter_values, sample_members
from simjax.config.models import MODELS, declare
from simjax.config.schema import Wall
from simjax.core.boundary import (
    Dirichlet,
    Inflow,
    Neumann,
    NoSlipWall,
    Outflow,
    PeriodicSide,
    ScalarSide,
    Side,
    SlipWall,
)
from simjax.core.domain import Domain
from simjax.core.grid import AXES, Grid
from simjax.core.model import Model
from simjax.formula import Formula
from simjax.models import advection_diffusion, incompressible
from simjax.models.centered import CenteredModel
from simjax.noise import random_modes
from simjax.stepping import Schedule

Values = Mapping[str, Array]
"""Every number that formulas and physics know by name: scalars, traced, so they can vary and be differentiated."""


class FormulaValue(eqx.Module):
    """A formula of time, position and named values, as a function `(t, *coordinates)`."""

    formula: Formula = eqx.field(static=True)
    values: dict[str, Array]

    def __call__(self, t, *coordinates: Array, noise: Callable | None = None) -> Array:
        namespace = dict(self.values) | dict(zip(AXES, coordinates, strict=False)) | {"t": t}
        if noise is not None:
            namespace["noise"] = noise
        return self.formula(namespace, jnp)


class FormulaForce(eqx.Module):
    """A body-force component given by a formula."""

    value: FormulaValue

    def __call__(self, t, coordinates, params) -> Array:
        return self.value(t, *coordinates)


def named_values(config: Config) -> dict[str, np.ndarray]:
    """Physics numbers and user parameters by name, float64: scalars, or `(members,)` for an ensemble."""
    values = {**parameter_values(config.physics), **config.parameters}
    size = config.ensemble.size
    if size == 1 and not config.ensemble.vary:
        return {name: np.asarray(value, np.float64) for name, value in values.items()}
    varied = {path.split(".", 1)[1]: sample for path, sample in sample_members(config).items()}
    chosen = {**values, **varied}
    return {name: np.broadcast_to(np.asarray(value, np.float64), (size,)) for name, value in chosen.items()}


def _values(formulas: tuple[Formula, ...], values: Values) -> tuple[float | FormulaValue, ...]:
    """Constants stay numbers, so that a wall at rest costs nothing."""
    return tuple(f.constant if f.constant is not None else FormulaValue(f, dict(values)) for f in formulas)


def _side(wall: Wall, values: Values) -> Side:
    numbers = _values(wall.values, values)
    match wall.kind:
        case "periodic":
            return PeriodicSide()
        case "no_slip":
            return NoSlipWall(numbers or None)
        case "slip":
            return SlipWall()
        case "inflow":
            return Inflow(velocity=numbers, scalar=numbers[0])
        case "outflow":
            return Outflow()
        case "dirichlet":
            return ScalarSide(Dirichlet(numbers[0]))
        case "neumann":
            return ScalarSide(Neumann(numbers[0]))
    raise AssertionError(f"The configuration let through a wall of kind {wall.kind!r}.")


def build_model(config: Config, domain: Domain, values: Values) -> tuple[Model, Any]:
    """The model and its parameters, with `values` (perhaps traced) in its walls, forces and physics."""
    sides = [(_side(axis.lower, values), _side(axis.upper, values)) for axis in config.boundaries]
    return BUILDERS[config.model](config, domain, sides, values)


def _advection_diffusion(config: Config, domain: Domain, sides, values: Values):
    velocity = jnp.stack([values[f"velocity_{axis}"] for axis in AXES[: domain.grid.ndim]])
    params = advection_diffusion.Params(values["diffusivity"], velocity)
    return advection_diffusion.AdvectionDiffusion(domain, sides, config.physics.scheme), params


def _incompressible(config: Config, domain: Domain, sides, values: Values):
    formulas = config.forcing.get("velocity")
    forces = formulas and [None if f.constant == 0 else FormulaForce(FormulaValue(f, dict(values))) for f in formulas]
    params = incompressible.Params(values["viscosity"], values["drag"])
    return incompressible.Incompressible(domain, sides, forces), params


BUILDERS: dict[str, Callable] = {
    "advection_diffusion": _advection_diffusion,
    "incompressible": _incompressible,
}
"""Model name -> `(config, domain, sides, values)` -> (model, params)."""


def register(model: type[CenteredModel]) -> type[CenteredModel]:
    """Make a user's model known by its class name to configurations: YAML files, `sj.configure`, ensembles.

    Its `parameters` become the keys of `physics`, its `fields` those of `initial`. Also a class decorator.
    """

    def build(config: Config, domain: Domain, sides, values: Values):
        return model(domain, sides), {name: values[name] for name in model.parameters}

    declare(model.__name__, model.parameters, model.fields)
    BUILDERS[model.__name__] = build
    return model


def read_initial_files(config: Config, grid: Grid) -> tuple[dict[str, tuple[np.ndarray, ...]], list[str]]:
    """Fields that come from files, `(*grid.shape)` per component, and sentences about what was done to them."""
    from simjax.io.initial import read_field

    model, _ = build_model(config, Domain(grid), {n: jnp.asarray(v) for n, v in _plain_values(config).items()})
    periodic = [axis.periodic for axis in config.boundaries]
    fields, notes = {}, []
    for name, source in config.initial.items():
        if not isinstance(source, FileSource):
            continue
        units = MODELS[config.model].field(name).units
        components = []
        for variable, layout in zip(source.variables, model.component_layouts()[name], strict=True):
            values, done = read_field(
                source.file, variable, grid, layout.offset, periodic=periodic,
                units=None if units == "1" else units, time=source.time, member=source.member, order=source.order,
            )  # fmt: skip
            components.append(values)
            notes += [note for note in done if note not in notes]
        fields[name] = tuple(components)
    return fields, notes


def _plain_values(config: Config) -> dict[str, float]:
    return {**parameter_values(config.physics), **config.parameters}


def initial_state(
    config: Config,
    model: Model,
    params,
    values: Values,
    member,
    files: Mapping[str, tuple[Array, ...]],
    dtype,
):
    """This block's initial state, walls imposed and constraints satisfied.

    Args:
        values: named numbers; member: this ensemble member's index (its noise differs from the others').
        files: this block's part of the fields that came from files.
    """
    domain = model.domain
    fields = {}
    for name, layouts in model.component_layouts().items():
        if name in files:
            fields[name] = tuple(component.astype(dtype) for component in files[name])
            continue
        components = []
        formulas = config.initial[name]
        assert isinstance(formulas, tuple)
        for number, (formula, layout) in enumerate(zip(formulas, layouts, strict=True)):
            x = domain.coordinates(layout.offset, dtype)
            noise = _noise(config, domain, x, member, number)
            u = FormulaValue(formula, dict(values))(jnp.zeros((), dtype), *x, noise=noise)
            components.append(jnp.broadcast_to(jnp.asarray(u, dtype), domain.block_shape))
        fields[name] = tuple(components)
    start = jnp.zeros((), dtype)
    # Twice: the first projection's rounding is that of a large correction, the second one's of a small one.
    once = model.constrain(start, start, model.state_from(fields), params)
    return model.constrain(start, start, once, params)


def _noise(config: Config, domain: Domain, coordinates: tuple[Array, ...], member, component: int) -> Callable:
    def noise(wavenumber: float, index: int) -> Array:
        key = jax.random.key(config.seed)
        if config.ensemble.noise == "per_member":
            key = jax.random.fold_in(key, member)
        key = jax.random.fold_in(jax.random.fold_in(key, index), component)
        return random_modes(key, domain.grid, coordinates, wavenumber)

    return noise


def exact_errors(config: Config, model: Model, fields: Mapping[str, Array], values: Values, t) -> dict[str, Array]:
    """Relative root-mean-square errors against the `exact` formulas, by `error_<variable>`."""
    errors = {}
    offsets = {output.name: output.offset for output in model.outputs()}
    for name, formula in config.exact.items():
        u = fields[name]
        exact = FormulaValue(formula, dict(values))(t, *model.domain.coordinates(offsets[name], u.dtype))
        exact = jnp.broadcast_to(jnp.asarray(exact, u.dtype), u.shape)
        square = model.domain.sum((u - exact) ** 2) / jnp.maximum(model.domain.sum(exact**2), jnp.finfo(u.dtype).tiny)
        errors[f"error_{name}"] = jnp.sqrt(square)
    return errors


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where the output times are counted from: frame number `frame` is complete at `time`."""

    time: float = 0.0
    frame: int = 0


@dataclasses.dataclass(frozen=True)
class Plan:
    """The run's frames: whole ones under `schedule` up to number `whole`, then one shorter under `tail`, if any."""

    origin: Origin
    schedule: Schedule
    whole: int
    tail: Schedule | None

    @property
    def total(self) -> int:
        """Number of the last frame."""
        return self.whole + (self.tail is not None)

    def schedule_of(self, frame: int) -> Schedule:
        """The schedule of the frame that begins when `frame` frames are complete."""
        if frame < self.whole:
            return self.schedule
        assert self.tail is not None
        return self.tail

    def time_after(self, frames: int) -> float:
        """Time when `frames` frames are complete, float64."""
        time = self.origin.time + (min(frames, self.whole) - self.origin.frame) * self.schedule.interval
        return time + self.tail.interval if self.tail is not None and frames > self.whole else time


def plan_frames(config: Config, max_steps: int, halvings: int = 0, origin: Origin | None = None) -> Plan:
    """Frames that end every time.output_every after `origin`, and at time.end; steps halved `halvings` times."""
    origin = Origin() if origin is None else origin
    time = config.time
    left = max(0.0, time.end - origin.time)
    every = min(time.output_every, left) if left > 0 else time.output_every
    frames = math.floor(left / every * (1 + 1e-12))
    rest = left - frames * every
    dt = None if time.dt is None else min(time.dt, every) / 2**halvings
    courant = None if time.courant is None else time.courant / 2**halvings
    # Times are start + frame * interval, with the frames of the whole run counted.
    start, whole = origin.time - origin.frame * every, origin.frame + frames
    schedule = Schedule(every, start, dt, courant, max_steps)
    if rest <= 1e-9 * every:
        return Plan(origin, schedule, whole, None)
    tail_start = origin.time + frames * every - whole * rest
    tail_dt = None if dt is None else min(dt, rest)
    return Plan(origin, schedule, whole, Schedule(rest, tail_start, tail_dt, courant, max_steps))
