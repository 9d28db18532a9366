"""Checks of a finished run: the rows of the report's first table.

Each bound says what the scheme, its steps and the precision may do to a run that is right; what is wrong with the
equations, or with their sides, does more.
"""

from __future__ import annotations

import numpy as np

from simjax.driver.programs.compiled_run import CompiledRun
from simjax.io.run_numbers import RunNumbers
from simjax.report.check import Check
from simjax.schema.config import Config
from simjax.status import OK, reasons


def check_run(config: Config, programs: CompiledRun, numbers: RunNumbers, statuses: np.ndarray) -> list[Check]:
    """One verdict for each property that this model must keep; `numbers` are those of the finished run."""
    lost = int(np.sum(statuses != OK))
    kept = "yes" if not lost else reasons(int(statuses[0]))
    if len(statuses) > 1:
        kept = f"{len(statuses) - lost} of {len(statuses)} members"
    checks = [Check(f"{programs.content.capitalize()} stayed finite", kept, "all", lost == 0)]
    if numbers.time.size < 1:
        return checks
    return checks + programs.checks(config, numbers)
