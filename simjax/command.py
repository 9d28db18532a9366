"""The parts that commands have in common: `python -m simjax.run`, `simjax.certificate` and `simjax.inspect`."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from simjax.config import config_folders, list_experiments
from simjax.errors import ConfigurationError, SimjaxError
from simjax.processes import exit_without_shutdown, is_of_another
from simjax.schema.config import Config
from simjax.schema.locate import usable_path

INTERRUPTED = 130


class CommandParser(argparse.ArgumentParser):
    """A parser of `-h`, `--config-dir` and overrides, whose errors are sentences."""

    def __init__(self, usage: str):
        super().__init__(usage=usage, add_help=False, allow_abbrev=False)
        self.add_argument("-h", "--help", action="store_true")
        self.add_argument("-cd", "--config-dir")
        self.add_argument("overrides", nargs="*")

    def error(self, message: str):
        raise ConfigurationError(f"{message}; usage: {self.usage}")


def exit_code_of(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; a user's mistake is one sentence on stderr."""
    silence_kept_programs()
    try:
        code = command()
        sys.stdout.flush()  # now, while a reader that has gone is no error; at the end of the interpreter it is one
        return code
    except SimjaxError as error:
        if not is_of_another(error):
            print(f"simjax: {error}", file=sys.stderr)
        exit_without_shutdown(error.exit_code)
        return error.exit_code
    except KeyboardInterrupt:
        print("simjax: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has gone, as in `... --help | head -3`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def silence_kept_programs() -> None:
    """Keep XLA from calling each kept program of a CPU unfit for it, as jax before 0.12 does (jax#38445).

    The feature that it misses is a preference of LLVM. The variable hides other errors of XLA too, so it stays as it is
    where a package for accelerators is installed; jax reads it when it is imported.
    """
    from importlib.metadata import PackageNotFoundError, version

    with contextlib.suppress(PackageNotFoundError):
        told_wrongly = tuple(map(int, version("jax").split(".")[:2])) < (0, 12)
        if told_wrongly and "jax" not in sys.modules and importlib.util.find_spec("jax_plugins") is None:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def configured(overrides: Sequence[str], config_dir: str | None, usage: str) -> Config:
    """The configuration of an experiment or model that the overrides name; ConfigurationError where they name none."""
    from simjax.config import compose

    composition = compose(overrides, config_dir=config_dir)
    if composition.experiment is None and not any(text.startswith("model=") for text in overrides):
        names = ", ".join(experiment.name for experiment in list_experiments(config_folders(config_dir)))
        raise ConfigurationError(f"expected experiment=NAME, one of {names}; usage: {usage}")
    return composition.config()


def split_words(
    words: Sequence[str], names: Collection[str], usage: str
) -> tuple[Path | None, dict[str, str], list[str]]:
    """Split the words of a command into the folder of a run, options NAME=VALUE with one of `names`, and overrides."""
    chosen, runs, overrides = {}, [], []
    for text in words:
        name, given, value = text.partition("=")
        if given and name in names:
            chosen[name] = value
        elif given:
            overrides.append(text)
        else:
            runs.append(Path(text))
    if len(runs) > 1:
        raise ConfigurationError(f"expected one run, got {len(runs)}: {', '.join(map(str, runs))}; usage: {usage}")
    return runs[0] if runs else None, chosen, overrides


def configured_as(run: Path | None, overrides: Sequence[str], config_dir: str | None, usage: str) -> Config:
    """The configuration of the run in a folder, or as of `configured` without one, with overrides."""
    if run is None:
        return configured(overrides, config_dir, usage)
    from simjax.config.composition import compose_from_run

    file = usable_path(run, "RUN") / ".hydra" / "config.yaml"
    if not file.is_file():
        raise ConfigurationError(
            f"{run}: expected the folder of a run, with {file.relative_to(run)}; or write experiment=NAME."
        )
    return compose_from_run(file, overrides).config()


def whole_number(chosen: dict[str, str], name: str, default: int, meaning: str) -> int:
    """The option NAME=VALUE of a command as a number; `meaning` says what is expected."""
    text = chosen.get(name, str(default))
    if not text.isdigit():
        raise ConfigurationError(f"{name}={text}: expected {meaning}.")
    return int(text)
