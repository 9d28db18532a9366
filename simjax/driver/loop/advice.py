"""Sentences on what a user may try where a run failed, and on an objective that is none."""

from __future__ import annotations

from simjax.driver.programs.compiled_run import CompiledRun
from simjax.errors import ConfigurationError
from simjax.schema.config_errors import closest
from simjax.status import OK, UNBALANCED


def advice_for(programs: CompiledRun, status: int = OK) -> str:
    """Advice to a user whose run failed with this status."""
    return "Write velocities that balance at all times." if status & UNBALANCED else programs.advice


def refuse_objective(programs: CompiledRun) -> None:
    """Raise ConfigurationError where the objective is no diagnostic of this run."""
    objective, known = programs.config.objective, sorted(programs.observed_shapes()[1])
    if objective is not None and objective not in known:
        close = closest(objective, known)
        hint = f"did you mean objective={close}?" if close else f"known are {', '.join(known)}."
        raise ConfigurationError(f"objective={objective}: no diagnostic of model={programs.config.model}; {hint}")
