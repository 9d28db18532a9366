"""The end of a run: the checks of what it must have kept, the report, the summary and the animation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simjax.config.folders import config_yaml, default_yaml
from simjax.driver.output.run_checks import check_run
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.start.environment import command_line, device_name, versions
from simjax.io.run_numbers import read_numbers
from simjax.report.scene import Scene
from simjax.schema.config import Config


def write_reports(
    folder: Path,
    config: Config,
    programs: CompiledRun,
    scene: Scene,
    statuses: np.ndarray,
    tell: Callable[[str], None],
    outcome: str,
    **about: Any,
) -> tuple[str, ...]:
    """Check conserved quantities and other invariants, log violations, write the report and the animation.

    outcome: how the run ended. about: what the report says beside that, as `RunReport` names it. Returns a sentence for
    each failed check.
    """
    title = config.title or config.experiment_name
    checks = check_run(config, programs, read_numbers(folder), statuses)
    failed = tuple(f"{one.name}: {one.value}; expected: {one.expected}." for one in checks if not one.passed)
    for sentence in failed:
        tell(f"check failed: {sentence}")
    if not (config.output.animation or config.output.report):
        return failed
    # xarray is loaded where something is drawn.
    from simjax.io.read import open_run

    with open_run(folder) as dataset:
        scene = scene.following(dataset)
        if config.output.animation:
            from simjax.report.animation import write_animation

            write_animation(dataset, folder / "animation.webp", title=title, scene=scene)
        if config.output.report:
            from simjax.report.run_report import RunReport, write_report
            from simjax.report.summary import write_summary

            formats = ("png", *(form for form in config.output.pictures if form != "png"))
            write_summary(dataset, folder / "summary.png", title=title, scene=scene, formats=formats)
            report = RunReport(
                title=title,
                description=config.description,
                checks=checks,
                config_yaml=config_yaml(config),
                defaults_yaml=default_yaml(),
                command=command_line(),
                versions=versions(),
                device=device_name(),
                units=programs.units,
                outcome=judged(outcome, failed),
                **about,
            )
            write_report(folder, dataset, report)
    return failed


def judged(outcome: str, failed: Sequence[str]) -> str:
    """The outcome of a run with the names of the checks that it failed: nobody reads that it completed without them.

    failed: a sentence for each, which begins with its name.
    """
    if not failed:
        return outcome
    names = ", ".join(sentence.partition(":")[0] for sentence in failed)
    return f"{outcome}, but {len(failed)} check{'s' if len(failed) > 1 else ''} failed ({names})"
