"""Functions of a configuration that can be exported: arrays by name in, arrays by name out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.driver.differentiable import RunFunction
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.programs.programs_of_run import run_class
from simjax.driver.programs.used_names import used_names
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.integrators.integrator import Integrator
from simjax.inverse.problem import InverseProblem
from simjax.parallel import distribute
from simjax.schema.config import Config
from simjax.schema.kinds import Real
from simjax.schema.numbers import number_attributes, number_kinds, numbers_of
from simjax.stepping.simulate import integrate

Arrays = Mapping[str, Any]
TIME, STEP = "time", "dt"
"""Arguments of a step: when it begins, and how long it is."""


@dataclass(frozen=True)
class Exportable:
    """A pure function of arrays by name, and arrays with which it can be called.

    described: units and meaning of arguments and results, by name, where they are known. extra: more that is told of
    it, for JSON. kinds: of the arguments that are numbers of the configuration, by name. kept: arguments that stay
    where nothing depends on them. failed: what results are where an argument is none that its kind allows.
    """

    function: Callable[[Arrays], dict[str, Array]]
    arguments: dict[str, Any]
    described: dict[str, dict[str, str]]
    extra: dict[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, Real] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    failed: float = math.nan

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of the arguments, and how they are cut over several devices."""
        return {
            name: jax.ShapeDtypeStruct(np.shape(u), u.dtype, sharding=sharding_of(u))
            for name, u in self.arguments.items()
        }

    def describe(self, arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Shapes, types and what else is known of arguments or results, by name, for JSON."""
        found = {}
        for name, u in arrays.items():
            cut = sharding_of(u)
            found[name] = {
                "shape": [size if isinstance(size, int) else str(size) for size in u.shape],
                "dtype": str(u.dtype),
                **self.described.get(name, {}),
                **({} if cut is None else {"partition": list(cut.spec)}),
                **(_range(self.kinds[name]) if name in self.kinds else {}),
            }
        return found

    def used(self) -> Exportable:
        """Drop the arguments on which no result depends; return the new function and the names dropped.

        Initial fields are arguments, so a number that the configuration has for their formulas alone does nothing.
        """
        names = used_names(jax.jit(self.function), self.shapes()) | self.kept
        idle = {name: u for name, u in self.arguments.items() if name not in names}
        function = self.function

        def of_used(arguments: Arrays) -> dict[str, Array]:
            return function({**idle, **arguments})

        return dataclasses.replace(
            self,
            function=of_used,
            arguments={name: u for name, u in self.arguments.items() if name in names},
            extra={**self.extra, "without_effect": sorted(idle)},
        )

    def guarded(self) -> Exportable:
        """The same with results that fail where an argument is none that the configuration could have."""
        function, failed = self.function, self.failed
        kinds = {name: kind for name, kind in self.kinds.items() if name in self.arguments and _range(kind)}

        def of_allowed(arguments: Arrays) -> dict[str, Array]:
            good = jnp.asarray(True)
            for name, kind in kinds.items():
                value = arguments[name]
                above = value > -jnp.inf if kind.above is None else value > kind.above
                good &= (value >= kind.low) & (value <= kind.high) & above
            return {
                name: jnp.where(good, u, failed).astype(u.dtype) if jnp.issubdtype(u.dtype, jnp.inexact) else u
                for name, u in function(arguments).items()
            }

        return dataclasses.replace(self, function=of_allowed)


def _range(kind: Real) -> dict[str, Any]:
    """The range of a number, for JSON: its ends, and a sentence; empty where any will do."""
    ends = {"low": kind.low, "above": kind.above, "high": kind.high}
    known = {name: end for name, end in ends.items() if end is not None and math.isfinite(end)}
    return {**known, "allowed": kind.allowed} if known else {}


def with_leading_axis(shapes: Mapping[str, jax.ShapeDtypeStruct], size: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of a batch of `size`, a number or a symbol."""
    return {name: jax.ShapeDtypeStruct((size, *one.shape), one.dtype) for name, one in shapes.items()}


def sharding_of(u: Any) -> jax.sharding.NamedSharding | None:
    """Placement of an argument that is cut over several devices."""
    sharding = getattr(u, "sharding", None)
    return sharding if isinstance(sharding, jax.sharding.NamedSharding) else None


def rollout(config: Config) -> Exportable:
    """The run: from numbers and initial fields to variables and diagnostics at all output times.

    Arguments are the numbers of the configuration by name, and components of fields by their path, such as
    `initial.velocity_x`; of particles, where they can be given, `initial.position_x`, .... A run that fails gives NaN.
    """
    run = RunFunction(config, fields=config.schema.array_paths(config))
    names = {path: _component_names(path, len(parts)) for path, parts in run.fields.items()}
    fields = {name: part for path, parts in run.fields.items() for name, part in zip(names[path], parts, strict=True)}

    def function(arguments: Arrays) -> dict[str, Array]:
        fields = {path: tuple(arguments[name] for name in own) for path, own in names.items()}
        observed = run({name: arguments[name] for name in run.values}, fields).observed
        return dict(observed)

    described = _numbers(config) | _fields(config, names) | run_class(config).described(config)
    times = {"times": [float(t) for t in run.times]}
    return Exportable(function, {**run.values, **fields}, described, times, number_kinds(config))


def step(config: Config) -> Exportable:
    """Take a time step by the configuration's scheme: from numbers, a state, its time and the length of the step to a
    state.

    The parts of the state are called as in messages and checkpoints, `velocity_x` or `concentration`.

    Raises:
        ConfigurationError: particles, whose steps need an arrangement that is formed once for several of them.
    """
    if refusal := config.schema.refusal("single steps"):
        raise ConfigurationError(f"what=step: {refusal}")
    run = DifferentiableRun(config)
    programs, known, bare = run.programs, run.start_fields(), run.bare().programs
    specs, (_, state_specs), scheme = run.field_specs(), run.state_specs(), programs.integrator
    assert isinstance(scheme, Integrator)
    start, _ = programs.start()
    leaves, structure = jax.tree.flatten(start)
    names = [_leaf_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(start)]

    def advance(values, fields, state, time, dt):
        model, params = bare.build(values, bare.prepared(values, fields))
        return integrate(model, scheme, params, state, dt=dt, steps=1, t0=time, on_fault="keep")

    everywhere = PartitionSpec()
    in_specs = everywhere, specs, state_specs, everywhere, everywhere
    program = distribute(advance, run.mesh, in_specs=in_specs, out_specs=state_specs)
    values = run.start_values()
    length = config.time.dt if config.time.dt is not None else 0.5 * programs.stable_dt(start)
    if not np.isfinite(length):  # nothing limits the step
        length = config.time.output_every

    def function(arguments: Arrays) -> dict[str, Array]:
        state = jax.tree.unflatten(structure, [arguments[name] for name in names])
        numbers = {name: arguments[name] for name in values}
        after = program(numbers, known, state, arguments[TIME], arguments[STEP])
        return dict(zip(names, jax.tree.leaves(after), strict=True))

    clock = {TIME: np.zeros((), run.dtype), STEP: np.asarray(length, run.dtype)}
    described = _numbers(config) | run_class(config).described(config)
    arguments = {**values, **dict(zip(names, leaves, strict=True)), **clock}
    kinds = {**number_kinds(config), STEP: Real(above=0.0)}
    return Exportable(function, arguments, described, kinds=kinds, kept=frozenset((*names, TIME, STEP)))


def loss(config: Config) -> Exportable:
    """The loss of the section `inverse`: from its unknowns, in units of the simulation, to `loss`.

    What was measured is part of the program. A run that fails has the loss infinity.

    Raises:
        ConfigurationError: there is no section `inverse`, or it seeks the weights of a module.
    """
    if config.inverse is None:
        raise ConfigurationError(
            "what=loss: expected an experiment with a section inverse, such as experiment=inverse_source; or write "
            "what=rollout."
        )
    if config.inverse.shooting.windows > 1:
        raise ConfigurationError("what=loss: expected a run in one piece; leave out inverse.shooting.")
    problem = InverseProblem(config)
    if problem.modules.weights:
        raise ConfigurationError(
            f"what=loss: expected unknowns that are numbers and fields; {', '.join(problem.modules.weights)} are "
            "weights of a module. Export what=rollout with the module as it is."
        )
    squares, guess = problem.least_squares(), problem.physical(problem.start())
    names = {
        path: _component_names(path, len(parts) if isinstance(parts, tuple) else 1) for path, parts in guess.items()
    }
    arguments = {
        name: part
        for path, parts in guess.items()
        for name, part in zip(names[path], parts if isinstance(parts, tuple) else (parts,), strict=True)
    }

    def function(given: Arrays) -> dict[str, Array]:
        physical = {
            path: tuple(given[name] for name in own) if isinstance(guess[path], tuple) else given[own[0]]
            for path, own in names.items()
        }
        return {"loss": squares.loss(problem.latent(physical))[0]}

    described = {"loss": {"long_name": "half the sum of squared residuals", "units": "1"}}
    by_path = {f"physics.{n.path}": n.kind for n in numbers_of(config.physics)}
    kinds = {own[0]: by_path[path] for path, own in names.items() if path in by_path}
    return Exportable(function, arguments, described, kinds=kinds, failed=math.inf)


FUNCTIONS: dict[str, Callable[[Config], Exportable]] = {"rollout": rollout, "step": step, "loss": loss}


def exportable(what: str, config: Config) -> Exportable:
    """A function of a configuration by its name, with the arguments that do something, in the ranges of its keys."""
    return FUNCTIONS[what](config).used().guarded()


def require_function(what: str) -> None:
    """Raise ConfigurationError for the name of a function that is none."""
    if what not in FUNCTIONS:
        raise ConfigurationError(f"what={what}: expected one of {', '.join(FUNCTIONS)}.")


def _component_names(path: str, count: int) -> list[str]:
    return [path] if count == 1 else [f"{path}_{axis}" for axis in AXES[:count]]


def _leaf_name(path) -> str:
    """The path of a part of the state: `velocity_x` of `.velocity[0]`, else its keys with points between."""
    *names, last = jax.tree_util.keystr(path, simple=True, separator="/").split("/")
    if names and last.isdigit() and int(last) < len(AXES):
        return f"{'.'.join(names)}_{AXES[int(last)]}"
    return ".".join((*names, last))


def _numbers(config: Config) -> dict[str, dict[str, str]]:
    return number_attributes(config.physics, config.ndim)


def _fields(config: Config, names: Mapping[str, list[str]]) -> dict[str, dict[str, str]]:
    units = {f"initial.{one.name}": one.units for one in config.fields}
    units |= {f"coefficients.{one.name}": one.units for one in config.schema.coefficients}
    return {name: {"units": units[path]} for path, own in names.items() if path in units for name in own}
