"""From a configuration to what runs: domain, model, parameters, initial state, schedules."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.config.own_models import declare_own
from simjax.core.boundary import PeriodicSide, Side
from simjax.core.domain import Domain
from simjax.core.model import GridModel
from simjax.driver.start.random_fields import random_modes
from simjax.driver.start.taken_start import cell_volumes, taken_state
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.integrator import Integrator
from simjax.integrators.storage import Stored
from simjax.integrators.table import INTEGRATORS
from simjax.io.body_files import BodyField, body_field
from simjax.io.initial import FieldFile, field_file
from simjax.io.memory import require_memory
from simjax.models.balances import BalancedScheme, with_balances
from simjax.models.closure import Closure, with_closure
from simjax.models.declaration import Setup
from simjax.models.formulas import FormulaValue, Values, closure_of
from simjax.models.sponge import sponge_of
from simjax.ops.spacing import scaled
from simjax.schema.config import BodyFile, Config, FileSource, SideSpec
from simjax.schema.ensemble import sample_members
from simjax.schema.formula import Formula
from simjax.schema.model_schema import ERROR_CONTROLLED, EXPONENTIAL, STOCHASTIC
from simjax.schema.numbers import named_numbers
from simjax.schema.side_declarations import SideSchema, sides_of
from simjax.stepping.simulate import Schedule

SIDE_SEED = "side_seed"
"""Number from which random sides draw, a whole one."""
NOISE_SEED, NOISE_MEMBER = "noise_seed", "noise_member"
"""Numbers from which the noise of a model is drawn, whole ones: that of the run, and that of the member."""
SEEDS = 2**23  # whole numbers that float32 holds
BYTES_PER_MEMBER = 100  # of a number that varies: those of a list of floats, its array, and the program's


def named_values(config: Config) -> dict[str, np.ndarray]:
    """Physics numbers and user parameters by name, float64: scalars, or `(members,)` for an ensemble.

    Where sides are random also their `SIDE_SEED`, a number for each seed of a run and member; of models with noise
    `NOISE_SEED` and `NOISE_MEMBER`.
    """
    values = _named_numbers(config)
    size = config.ensemble.size
    require_memory(
        size * BYTES_PER_MEMBER * (1 + len(config.ensemble.vary)),
        f"ensemble.size={size}",
        "write a smaller ensemble.size",
    )
    if not config.ensemble.several:
        return {name: np.asarray(value, np.float64) for name, value in values.items()}
    names = {variation.path: variation.value_name for variation in config.ensemble.vary}
    varied = {names[path]: sample for path, sample in sample_members(config).items()}
    chosen = {**values, **varied}
    if SIDE_SEED in values and config.ensemble.noise == "per_member":
        chosen[SIDE_SEED] = np.array([_side_seed(config.seed, member) for member in config.ensemble.members])
    if NOISE_MEMBER in values and config.ensemble.noise == "per_member":
        chosen[NOISE_MEMBER] = np.asarray(config.ensemble.members)
    return {name: np.broadcast_to(np.asarray(value, np.float64), (size,)) for name, value in chosen.items()}


def _named_numbers(config: Config) -> dict[str, float]:
    """`named_numbers`, and the seeds of random sides and of noise of a run, or of its first member."""
    kinds = sides_of(config.schema.sides) if config.boundaries else {}
    walls = [wall for axis in config.boundaries for wall in (axis.lower, axis.upper)]
    random = any(wall.kind != "periodic" and kinds[wall.kind].random for wall in walls)
    seeds = {SIDE_SEED: _side_seed(config.seed, 0)} if random else {}
    if config.schema.noisy:  # a number of float32 for each: members never share one
        seeds |= {NOISE_SEED: _side_seed(config.seed, 0), NOISE_MEMBER: 0.0}
    return {**named_numbers(config), **seeds}


def _side_seed(seed: int, member: int) -> float:
    return float(np.random.default_rng([seed, member]).integers(SEEDS))


def _values(formulas: tuple[Formula, ...], values: Values) -> tuple[float | FormulaValue, ...]:
    """Constants stay numbers, so that a wall at rest costs nothing."""
    return tuple(f.constant if f.constant is not None else FormulaValue(f, dict(values)) for f in formulas)


def _side(wall: SideSpec, kinds: Mapping[str, SideSchema], values: Values) -> Side:
    if wall.kind == "periodic":
        return PeriodicSide()
    prescribed = {name: _values(formulas, values) for name, formulas in wall.fields.items()}
    return kinds[wall.kind].built(prescribed, values.get(SIDE_SEED))


Files = Mapping[str, Mapping[str, tuple[Array, ...]]]
"""Section ("initial", "coefficients") -> field -> components read from files: whole, or this block's part."""
PARTS = "parts"
"""The section of a run's arrays with what its model forms of them once; see `driver.programs.constant_parts`."""
FIRST_PARTS = "first_parts"
"""The section that takes the place of `PARTS` where a run that is differentiated begins."""


def build_model(config: Config, domain: Domain, values: Values, files: Mapping[str, Any]) -> tuple[GridModel, Any]:
    """The model and its parameters, with `values` (perhaps traced) in its walls, forces and physics.

    files: `Files`, and perhaps a section "modules" with a closure in the place of the configuration's, and `PARTS`.
    """
    model, params = bare_model(config, domain, values, files)
    if files.get(PARTS) is not None:
        model = model.with_parts(files[PARTS].tree)
    return _completed(config, values, model, params, files.get("modules", {}).get("closure"))


def bare_model(config: Config, domain: Domain, values: Values, files: Mapping[str, Any]) -> tuple[Any, Any]:
    """`build_model` without a sponge, a closure and balances."""
    coefficients = coefficient_fields(config, domain, values, files.get("coefficients", {}))
    return _configured(config, domain, values, coefficients)


def describe_model(config: Config, domain: Domain) -> tuple[GridModel, Any]:
    """`build_model` with shapes and dtypes in place of arrays: what it writes and how it is cut, without computing."""
    dtype = jnp.dtype(config.precision)

    def describe():
        varied = (variation.value_name for variation in config.ensemble.vary)
        values = {name: jnp.zeros((), dtype) for name in (*_named_numbers(config), *varied)}
        whole = jnp.zeros(domain.grid.shape, dtype)
        coefficients = {
            field.name: (whole,) * len(field.components(domain.grid.ndim)) for field in config.schema.coefficients
        }
        return _completed(config, values, *_configured(config, domain, values, coefficients))

    return eqx.filter_eval_shape(describe)


def _configured(config: Config, domain: Domain, values: Values, coefficients) -> tuple[GridModel, Any]:
    kinds = sides_of(config.schema.sides)
    sides = [(_side(axis.lower, kinds, values), _side(axis.upper, kinds, values)) for axis in config.boundaries]
    assert config.schema.configured is not None
    model, params = config.schema.configured(Setup(config, domain, sides, values, coefficients))
    if config.schema.noisy:
        model = eqx.tree_at(lambda m: m.seed, model, (values[NOISE_SEED], values[NOISE_MEMBER]))
    return model, params


def _completed(
    config: Config, values: Values, model: GridModel, params, closure: Closure | None = None
) -> tuple[GridModel, Any]:
    """Add the parts that a configuration may add to any model: balances, or a sponge and a closure."""
    closure, sponge = closure_of(config, values) if closure is None else closure, None
    if config.sponge is not None:
        sponge = sponge_of(config, model.domain.grid, values)
    if config.outputs.balanced:  # refused beside both
        return with_balances(model, config.outputs.balanced), params
    if sponge is not None:
        model, params = with_closure(model, params, sponge)
    return (model, params) if closure is None else with_closure(model, params, closure)


def check_sides(config: Config, domain: Domain) -> None:
    """Build the model with the numbers of every member, so that it refuses sides and bodies that cannot be.

    Raises:
        ConfigurationError: what the model's constructor refuses.
    """
    given = [source for source in config.coefficients.values() if isinstance(source, tuple)]
    media = any(not field.optional for field in config.schema.coefficients)
    if media or len(given) < len(config.coefficients) or (config.walls_at_rest and not given):
        return
    walls = [wall for axis in config.boundaries for wall in (axis.lower, axis.upper)]
    sources = [formulas for wall in walls for formulas in wall.fields.values()] + given
    used = {name for formulas in sources for value in formulas for name in value.names}
    members = {name: np.atleast_1d(value) for name, value in named_values(config).items()}
    rows = np.stack([np.zeros(config.ensemble.size), *(members[name] for name in sorted(used & {*members}))], axis=1)
    for member in np.unique(rows, axis=0, return_index=True)[1]:
        values = {name: jnp.asarray(value[member], config.precision) for name, value in members.items()}
        build_model(config, domain.unsplit(), values, {})


def coefficient_fields(config: Config, domain: Domain, values: Values, files) -> dict[str, tuple[Array, ...]]:
    """This block's coefficients, components by field; `files` are those read from files."""
    dtype, ndim = jnp.dtype(config.precision), domain.grid.ndim
    result = {}
    for field in config.schema.coefficients:
        source = config.coefficients.get(field.name)
        if isinstance(source, tuple):
            offsets = [field.offset(ndim, component) for component in range(len(source))]
            result[field.name] = _evaluate(config, domain, source, offsets, values, dtype, member=0)
        elif source is not None:
            result[field.name] = tuple(component.astype(dtype) for component in files[field.name])
    return result


def _evaluate(config: Config, domain: Domain, formulas, offsets, values: Values, dtype, member) -> tuple[Array, ...]:
    """Formulas at their places in this block's cells, at the start."""
    components = []
    for number, (formula, offset) in enumerate(zip(formulas, offsets, strict=True)):
        x = domain.coordinates(offset, dtype)
        noise = _noise(config, domain, x, member, number)
        u = FormulaValue(formula, dict(values))(jnp.zeros((), dtype), *x, noise=noise)
        components.append(jnp.broadcast_to(jnp.asarray(u, dtype), domain.block_shape))
    return tuple(components)


OwnModel = TypeVar("OwnModel", bound=GridModel)


def register(model: type[OwnModel]) -> type[OwnModel]:
    """Make a user's model known by its class name to configurations: YAML files, `sj.configure`, ensembles.

    A class declared with `sj.model` brings its keys, fields and sides. Of a `CenteredModel` or a `SpectralModel`
    without a declaration, `parameters` become the keys of `physics`, `fields` those of `initial`; those of a
    `SpectralModel` also of `forcing`. Also a class decorator.

    Examples:
        >>> @sj.register
        ... class Decay(sj.CenteredModel):
        ...     "Decay: du/dt = -rate u."
        ...
        ...     fields, parameters = ("u",), {"rate": 1.0}
        ...
        ...     def rhs(self, t, state, params):
        ...         return {"u": -params["rate"] * state["u"]}
        ...
        ...     def stable_dt(self, state, params):
        ...         return 1 / params["rate"]
        >>> few = ["grid.shape=[8]", "initial={u: 1}", "time={end: 1, output_every: 1, dt: 0.1}"]
        >>> sj.load(None, ["model=Decay", *few]).frames
        1
    """
    declare_own(model, getattr(model, "__name__", repr(model)))
    return model


def find_files(config: Config, grid: Grid) -> tuple[dict[str, dict[str, tuple[FieldFile | BodyField, ...]]], list[str]]:
    """Fields that come from files, of which nothing is read yet, and sentences about what is done to them."""
    model, _ = describe_model(config, Domain(grid))
    files: dict[str, dict[str, tuple[FieldFile | BodyField, ...]]] = {"initial": {}, "coefficients": {}}
    notes: list[str] = []
    for field in config.fields:
        source = config.initial.get(field.name)
        if isinstance(source, FileSource):
            offsets = [layout.offset for layout in model.component_layouts()[field.name]]
            files["initial"][field.name] = _find_file(config, grid, field, source, offsets, notes)
    for field in config.schema.coefficients:
        source = config.coefficients.get(field.name)
        if isinstance(source, FileSource):
            offsets = [field.offset(grid.ndim, component) for component in range(len(source.variables))]
            files["coefficients"][field.name] = _find_file(config, grid, field, source, offsets, notes)
    return files, notes


def not_a_field(path: str, known: Sequence[str]) -> ConfigurationError:
    """The error of a path that is no field of the run."""
    return ConfigurationError(f"{path}: expected a field of the run; there are {', '.join(known) or 'none'}.")


def _find_file(config: Config, grid: Grid, field, source: FileSource, offsets, notes: list[str]):
    periodic = [axis.periodic for axis in config.boundaries]
    if isinstance(source, BodyFile):
        body = body_field(source, grid, periodic)
        notes += body.notes
        return (body,)
    components = []
    for variable, offset in zip(source.variables, offsets, strict=True):
        found = field_file(
            source.file,
            variable,
            grid,
            offset,
            periodic=periodic,
            units=_told(field.units),
            length_units=_told(config.schema.length_units),
            time=source.time,
            member=source.member,
            order=source.order,
        )
        components.append(found)
        notes += [note for note in found.notes if note not in notes]
    return tuple(components)


def _told(units: str) -> str | None:
    """Units that a file has to have; None where numbers are plain, whatever a file calls them."""
    return None if units == "1" else units


def integrator_of(config: Config) -> Integrator | None:
    """The scheme, with what is done in each step beside it; None where the model takes its own steps."""
    if config.time.integrator is None:
        return None
    if config.time.integrator in ERROR_CONTROLLED:
        # diffrax is imported where its tables are asked for.
        from simjax.integrators.adaptive import error_controlled

        return error_controlled(config.time.integrator)
    if config.time.integrator in STOCHASTIC:
        # The same.
        from simjax.integrators.stochastic import stochastic

        return stochastic(config.time.integrator)
    scheme = INTEGRATORS[config.time.integrator]
    if config.outputs.balanced:
        scheme = BalancedScheme(scheme)
    return scheme if config.storage is None else Stored(scheme, config.storage.dtype, config.storage.rest)


def initial_fields_and_state(
    config: Config,
    model: GridModel,
    params,
    values: Values,
    member,
    files: Mapping[str, tuple[Array, ...]],
    dtype,
) -> tuple[dict[str, tuple[Array, ...]], Any]:
    """This block's initial fields as they are given, and the state that the model makes of them.

    Arguments as of `initial_fields`.
    """
    first = model.parts_at_start(params)
    model = model if first is None else model.with_parts(first)
    fields = initial_fields(config, model, values, member, files, dtype)
    return fields, taken_state(model, fields, params, dtype)


def initial_fields(
    config: Config, model: GridModel, values: Values, member, files: Mapping[str, tuple[Array, ...]], dtype
) -> dict[str, tuple[Array, ...]]:
    """This block's initial fields as they are given, components by field.

    Args:
        values: named numbers; member: this ensemble member's index (its noise differs from the others').
        files: this block's part of the initial fields read from files.
    """
    fields = {}
    for name, layouts in model.component_layouts().items():
        if name not in config.initial:  # optional
            continue
        formulas = config.initial[name]
        if isinstance(formulas, tuple):
            offsets = [layout.offset for layout in layouts]
            fields[name] = _evaluate(config, model.domain, formulas, offsets, values, dtype, member)
        else:
            fields[name] = tuple(component.astype(dtype) for component in files[name])
    return fields


def _noise(config: Config, domain: Domain, coordinates: tuple[Array, ...], member, component: int) -> Callable:
    def noise(wavenumber: float, index: int) -> Array:
        key = jax.random.key(config.seed)
        if config.ensemble.noise == "per_member":
            key = jax.random.fold_in(key, member)
        key = jax.random.fold_in(jax.random.fold_in(key, index), component)
        return random_modes(key, domain.grid, coordinates, wavenumber)

    return noise


def exact_solution(config: Config, model: GridModel, values: Values) -> dict[str, Callable[..., Array]]:
    """The `exact` formulas on this block, as functions of time, by the variable that each is of."""
    offsets = {output.name: output.offset for output in model.outputs()}
    dtype = jnp.dtype(config.precision)

    def known(name: str, formula: Formula) -> Callable[..., Array]:
        def at(t) -> Array:
            u = FormulaValue(formula, dict(values))(t, *model.domain.coordinates(offsets[name], dtype))
            return jnp.broadcast_to(jnp.asarray(u, dtype), model.domain.block_shape)

        return at

    return {name: known(name, formula) for name, formula in config.exact.items()}


def exact_errors(config: Config, model: GridModel, fields: Mapping[str, Array], values: Values, t) -> dict[str, Array]:
    """Relative root-mean-square errors against the `exact` formulas, by `error_<variable>`."""
    errors = {}
    for name, known in exact_solution(config, model, values).items():
        u, exact, sizes = fields[name], known(t), cell_volumes(model, fields[name].dtype)
        square = model.domain.sum(scaled((u - exact) ** 2, sizes)) / jnp.maximum(
            model.domain.sum(scaled(exact**2, sizes)), jnp.finfo(u.dtype).tiny
        )
        errors[f"error_{name}"] = jnp.sqrt(square)
    return errors


@dataclasses.dataclass(frozen=True)
class Origin:
    """Origin of the output times: frame number `frame` is complete at `time`."""

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
    if dt is not None and time.integrator in EXPONENTIAL:
        # Their coefficients belong to one step length: it is reduced to divide the frame, not shortened at its end.
        dt = every / math.ceil(every / dt * (1 - 1e-12))
    courant = None if time.courant is None else time.courant / 2**halvings
    # Times are start + frame * interval, with the frames of the whole run counted.
    start, whole = origin.time - origin.frame * every, origin.frame + frames
    tolerance = None if time.tolerance is None else time.tolerance / 2**halvings
    bound = config.limits.step_shrink or 0.0

    def scheduled(interval: float, start: float, dt: float | None) -> Schedule:
        return Schedule(
            interval,
            start,
            dt,
            courant,
            max_steps,
            bound,
            tolerance=tolerance,
            absolute_tolerance=time.absolute_tolerance,
        )

    schedule = scheduled(every, start, dt)
    if rest <= 1e-9 * every:
        return Plan(origin, schedule, whole, None)
    tail_start = origin.time + frames * every - whole * rest
    return Plan(origin, schedule, whole, scheduled(rest, tail_start, None if dt is None else min(dt, rest)))
