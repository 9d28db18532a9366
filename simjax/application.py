"""The command line as a Hydra application: a run, and the runs of a multirun by Hydra's sweepers and launchers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simjax.config import Composition
from simjax.config.composed import BASIC
from simjax.config.folders import new_run_id
from simjax.errors import ConfigurationError, InputOutputError, SimjaxError, Stopped
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.schema.locate import CONFIG_NAME, config_folders, usable_path

RUNS_NAME = "runs.jsonl"


@dataclass(frozen=True)
class Result:
    """The outcome of a run: exit code, folder, and the value of its objective, if it has one."""

    exit_code: int
    folder: str
    objective: float | None = None


def run(config: Config, launched: float | None = None) -> Result:
    """Run a simulation or search; `launched` is since when limits.wall_clock counts, by default from now on."""
    if config.inverse is not None:
        from simjax.inverse.search import Search

        found = Search(config).run(progress=True, launched=launched, on_stop="return")
        if processes().first:
            print(f"{found.message}\n{found.folder}")
        return Result(found.exit_code, str(found.folder))
    from simjax.driver.programs.kept_executables import executables_of_earlier_processes
    from simjax.driver.simulation import Simulation

    with executables_of_earlier_processes():
        result = Simulation(config).run(resume=config.resume, progress=True, launched=launched, on_stop="return")
    done = config.objective is not None and result.exit_code == 0
    value = float(result.ds[config.objective].isel(time=-1).mean()) if done else None
    return Result(result.exit_code, str(result.folder), value)


def run_one(composed: Composition, config_folder: Path, config_name: str, launched: float) -> int:
    """Run a composed configuration and return the exit code; within Hydra if that has callbacks or other settings."""
    config, command, outcome = composed.config(), sys.argv[1:], []
    if not composed.around:  # Hydra would compose everything twice more, and then only call it
        return run(config, launched).exit_code
    from simjax.config.command_line import arguments, call_hydra

    def task(_: Any) -> float | None:
        try:
            with arguments(command):
                outcome.append(run(config, launched))
        except SimjaxError as error:  # told by the caller, in its one sentence
            outcome.append(error)
            return None
        return outcome[0].objective

    call_hydra(task, composed.spelled(), (config_folder, *composed.folders[1:]), config_name)
    if isinstance(outcome[0], SimjaxError):
        raise outcome[0]
    return outcome[0].exit_code


@dataclass(frozen=True)
class Job:
    """The task that Hydra calls for each run of a multirun, in this process or in another one that its launcher starts.

    total: the number of runs; None where a sweeper searches, which has its own rule for a run without a value.
    command: the arguments with which the multirun was started.
    """

    total: int | None
    config_dir: str | None
    config_name: str
    command: tuple[str, ...]

    def __call__(self, _: Any) -> float | None:
        """Run, add a line to the multirun's table, and return the value of the objective."""
        from simjax.config import compose
        from simjax.config.command_line import arguments, settings_of_job

        settings = settings_of_job()
        number, overrides = int(settings.job.num), [str(text) for text in settings.overrides.task]
        of_all = "" if self.total is None else f"/{self.total}"
        print(f"[{number + 1}{of_all}] {' '.join(overrides)}", flush=True)
        error = None
        with arguments(self.command):
            try:
                result = run(compose(overrides, config_dir=self.config_dir, config_name=self.config_name).config())
            except SimjaxError as failure:
                error, result = failure, Result(failure.exit_code, "")
        line = {"job": number, "overrides": overrides, **vars(result)}
        with (Path(settings.sweep.dir) / RUNS_NAME).open("a", encoding="utf-8") as table:
            table.write(json.dumps(line) + "\n")
        if result.exit_code == Stopped.exit_code and settings.runtime.choices["hydra/launcher"] == BASIC:
            raise SystemExit(Stopped.exit_code)  # the others would be stopped one by one
        if error is None and result.exit_code and self.total is None:
            error = Stopped(
                f"run {number + 1} of the search was stopped; go on with it by resume={result.folder}.",
                Path(result.folder),
            )
        if error is not None and self.total is None:
            raise error
        if error is not None:
            print(f"simjax: {error}", file=sys.stderr)
        return result.objective


def run_all(overrides: Sequence[str], config_dir: str | None, config_name: str = CONFIG_NAME) -> int:
    """Run a multirun, whose runs are composed and validated before the first; return the first failure's code.

    A sweeper that chooses values itself, such as Optuna's, has one run validated before, with the first value of each.
    """
    from simjax.config import compose, expand_sweep, sample_sweep
    from simjax.config.command_line import call_hydra
    from simjax.config.overrides import is_setting_of_hydra, normalise, parse

    folders = config_folders(config_dir)
    settings = [normalise(text, folders) for text in overrides if is_setting_of_hydra(text)]
    keys = [text for text in overrides if not is_setting_of_hydra(text)]
    given = [text for text in settings if text.lstrip("+").startswith("hydra.sweep.dir=")]
    if given:
        folder = str(parse(given)[-1].value())
        keys += [] if any(key.lstrip("+").startswith("output.root=") for key in keys) else [f"output.root={folder}"]
    sample = sample_sweep(keys, config_dir=config_dir)

    def compose_run(job: Sequence[str]) -> Composition:
        return compose([*job, *settings], config_dir=config_dir, config_name=config_name)

    first = compose_run(sample)
    searches = first.sweeper != BASIC
    jobs = [sample] if searches else expand_sweep(keys, config_dir=config_dir)
    composed = [first] if searches else [compose_run(job) for job in jobs]
    configs = [composition.config() for composition in composed]
    _check_folders(configs)
    if searches and configs[0].objective is None:
        raise ConfigurationError(
            f"hydra/sweeper={first.sweeper}: expected objective=NAME, the diagnostic by which it judges a run."
        )
    if not given:
        folder = str(Path(configs[0].output.root).expanduser() / "multirun" / new_run_id())
        settings.append(normalise(f"hydra.sweep.dir={folder}", folders))
    table = usable_path(folder, "hydra.sweep.dir").expanduser() / RUNS_NAME
    begin = table.stat().st_size if table.is_file() else 0
    task = Job(None if searches else len(jobs), config_dir, config_name, tuple(sys.argv[1:]))
    texts = _for_hydra([normalise(text, folders) for text in keys], jobs, composed)
    try:
        call_hydra(task, [*settings, *texts], folders, config_name, ["--multirun"])
    except SystemExit as stopped:
        return int(stopped.code or 0)
    print(table.parent)
    return _first_failure(table, begin, task.total)


def _check_folders(configs: Sequence[Config]) -> None:
    folders = [config.output.folder for config in configs if config.output.folder is not None]
    if len(set(folders)) < len(folders):
        raise ConfigurationError(f"output.folder={folders[0]} is one folder for {len(configs)} runs; leave it out.")
    if len(configs) > 1 and any(config.resume is not None for config in configs):
        raise ConfigurationError("resume goes on with one run: leave out -m, or resume each of the runs by itself.")


def _for_hydra(texts: Sequence[str], jobs: Sequence[Sequence[str]], composed: Sequence[Composition]) -> list[str]:
    """The overrides of all runs at once, as Hydra takes them in each of the runs."""
    adjusted = []
    for position, text in enumerate(texts):
        spellings = {c.for_hydra[job[position]] for job, c in zip(jobs, composed, strict=True)}
        if len({spelling.deletions for spelling in spellings}) > 1:
            raise ConfigurationError(
                f"{text.lstrip('+')}: it takes the place of a list in some of the runs, of a mapping in others; run "
                "these by themselves."
            )
        adjusted += max(spellings, key=lambda spelling: spelling.sign or "").of(text)
    return adjusted


def _first_failure(table: Path, begin: int, total: int | None) -> int:
    """The exit code of the first run that failed, in the lines of the table that were written since `begin`."""
    rows: list[Mapping[str, Any]] = []
    if table.is_file():
        with table.open("rb") as lines:
            lines.seek(begin)
            rows = [json.loads(line) for line in lines]
    if len(rows) < (total or 1):
        raise InputOutputError(
            f"{table}: only {len(rows)} of {total or 'all'} runs have told their end; the others were ended from "
            "outside, and their launcher may have kept a log."
        )
    codes = [row["exit_code"] for row in sorted(rows, key=lambda row: row["job"])]
    return next((code for code in codes if code), 0)
