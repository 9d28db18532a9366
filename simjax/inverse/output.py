"""Files that a search leaves in its folder: estimates, measurements and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path

from simjax.config.folders import config_yaml
from simjax.driver.start.environment import command_line, device_name, git_state, versions
from simjax.instruments.everything import Snapshot
from simjax.inverse.estimate import Estimate
from simjax.inverse.methods.gradient_check import GradientCheck
from simjax.inverse.problem import InverseProblem
from simjax.inverse.problem_instruments import Observation
from simjax.io.files import replaced
from simjax.io.inverse_output import (
    Curve,
    FieldResult,
    InstrumentResult,
    InversionResult,
    ModuleResult,
    NumberResult,
    write_inversion,
)
from simjax.models.closure import Closure
from simjax.models.formulas import closure_of
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.schema.numbers import numbers_of

MODULE_SUFFIX = ".eqx"
CURVE_POINTS = 201


def leave(
    folder: Path,
    run_id: str,
    config: Config,
    problem: InverseProblem,
    found: Estimate,
    history: list[dict[str, Any]],
    kept: dict[int, Any],
    gradient_check: GradientCheck,
    notes: list[str],
    message: str,
) -> None:
    """Write inversion.h5, the pictures, the animation and the report, as the section `output` asks."""
    result = _result(run_id, config, problem, found, history, kept, gradient_check, notes, message)
    if not processes().first:
        return
    for name, module in found.modules.items():
        with replaced(folder / f"{name}{MODULE_SUFFIX}") as path:
            eqx.tree_serialise_leaves(path, module)
    write_inversion(folder, result)
    if config.output.report:
        from simjax.report.inverse_figures import write_pictures
        from simjax.report.inverse_report import write_inversion_report

        write_pictures(folder, result)
        write_inversion_report(folder, result)


def _result(
    run_id, config: Config, problem: InverseProblem, found: Estimate, history, kept, gradient_check, notes, message
):
    at_guess, at_estimate = problem.readings(problem.start()), problem.readings(found.latent)
    return InversionResult(
        title=config.title or config.experiment_name,
        command=command_line(),
        grid=problem.domain.grid,
        solver=problem.inverse.solver.name,
        losses=_columns(history, "loss"),
        gradient_norms=_columns(history, "gradient_norm"),
        numbers=tuple(_number(problem, found, path) for path in problem.numbers),
        fields=tuple(_field(problem, found, kept, path) for path in problem.fields),
        instruments=tuple(_instrument(problem, i, at_guess[i.name], at_estimate[i.name]) for i in problem.instruments),
        modules=tuple(_module(problem, found, name, at_estimate) for name in found.modules),
        notes=tuple(notes),
        attributes={
            "simjax_version": versions()["simjax"],
            "simjax_config_yaml": config_yaml(config),
            "simjax_overrides": json.dumps(list(config.overrides)),
            "simjax_seed": config.seed,
            "simjax_versions_json": json.dumps(versions()),
            "simjax_device": device_name(),
            "simjax_run_id": run_id,
            **git_state(),
        },
        time_units=config.schema.time_units,
        length_units=config.schema.length_units,
        particles=problem.rollout.programs.particles,
        gradient_check={"window_norms": gradient_check.norms, "cosine": gradient_check.cosine},
        exit_message=message,
    )


def _columns(history: list[dict[str, Any]], name: str) -> np.ndarray:
    """`(iterations,)`, or `(iterations, members)` where there are several."""
    table = np.asarray([line[name] for line in history])
    return table[:, 0] if table.ndim == 2 and table.shape[1] == 1 else table


def _number(problem: InverseProblem, found: Estimate, path: str) -> NumberResult:
    low, high = found.intervals[path]
    return NumberResult(
        path=path,
        units=_units(problem.config, path),
        guess=float(found.guess[path]),
        estimate=float(found.estimate[path]),
        truth=None if found.truth is None else float(found.truth[path]),
        lower=low,
        upper=high,
    )


def _units(config: Config, path: str) -> str:
    """Units of a number: those of a key of the physics; a parameter has none."""
    section, name = path.split(".", 1)
    units = {number.path: number.units for number in numbers_of(config.physics)}
    return units.get(name, "1") if section == "physics" else "1"


def _field(problem: InverseProblem, found: Estimate, kept: dict[int, Any], path: str) -> FieldResult:
    estimate = found.estimate[path]
    names, units, offsets = problem.rollout.programs.components_of(path, len(estimate))
    return FieldResult(
        path=path,
        units=units,
        names=names,
        offsets=offsets,
        guess=found.guess[path],
        estimate=estimate,
        truth=None if found.truth is None else found.truth[path],
        deviation=found.deviations.get(path),
        iterates=tuple(kept[number][path] for number in sorted(kept)),
        iterate_numbers=tuple(sorted(kept)),
    )


def _module(problem: InverseProblem, found: Estimate, name: str, at_estimate: Mapping[str, np.ndarray]) -> ModuleResult:
    path = f"modules.{name}"
    versions = {"estimate": found.modules[name], "guess": problem.modules.given[name]}
    values = {key: jnp.asarray(value) for key, value in problem.rollout.start_values().items()}
    true = problem.modules.true.get(name) or closure_of(problem.config, values)
    if problem.is_twin and true is not None:
        versions["truth"] = true
    guess, estimate = (_named(weights[path]) for weights in (found.guess, found.estimate))
    return ModuleResult(path, f"{name}{MODULE_SUFFIX}", guess, estimate, _curve(problem, versions, at_estimate))


def _named(weights: Any) -> dict[str, np.ndarray]:
    return {keystr(path, simple=True, separator="."): leaf for path, leaf in tree_leaves_with_path(weights)}


def _curve(problem: InverseProblem, versions: Mapping[str, Closure], at_estimate) -> Curve | None:
    """A module of one variable at each cell, over what instruments read of that variable."""
    layouts = problem.rollout.model.component_layouts()
    if any(v.width or v.coordinates or v.fields not in ((), tuple(layouts)) for v in versions.values()):
        return None
    outputs = {output.name: output for output in problem.rollout.model.outputs()}
    (name, components), *others = layouts.items()
    seen = [at_estimate[i.name].ravel() for i in problem.instruments if i.operator.variable == name]
    if others or len(components) > 1 or not seen:
        return None
    every = np.concatenate(seen)
    values = np.linspace(every.min(), every.max(), CURVE_POINTS)
    along = jnp.asarray(values.reshape(-1, *(1,) * (problem.domain.grid.ndim - 1)), problem.dtype)
    parts = {kind: np.ravel(jax.tree.leaves(version.module(along))[0]) for kind, version in versions.items()}
    return Curve(name, outputs[name].units, values, **parts)


def _instrument(problem: InverseProblem, instrument: Observation, at_guess, at_estimate) -> InstrumentResult:
    positions = getattr(instrument.operator, "positions", None)
    at_cells = isinstance(instrument.operator, Snapshot)
    return InstrumentResult(
        name=instrument.name,
        kind=instrument.source.instrument.kind if instrument.source.target is None else "target",
        variable=instrument.operator.variable,
        units=instrument.output.units,
        times=instrument.times,
        measured=np.asarray(instrument.measured),
        at_guess=at_guess,
        at_estimate=at_estimate,
        present=instrument.present,
        deviation=instrument.standard_deviation(),
        experiment=instrument.experiment,
        positions=None if positions is None else np.asarray(positions),
        offset=instrument.output.offset if at_cells else None,
    )
