"""The parts that commands have in common: `python -m simjax.run`, `simjax.certificate` and `simjax.inspect`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from simjax.config import config_folders, list_experiments
from simjax.errors import ConfigurationError, SimjaxError
from simjax.processes import exit_without_shutdown, is_of_another
from simjax.schema.config import Config

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
    try:
        return command()
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


def configured(overrides: Sequence[str], config_dir: str | None, usage: str) -> Config:
    """The configuration of an experiment or model that the overrides name; ConfigurationError where they name none."""
    from simjax.config import compose

    composition = compose(overrides, config_dir=config_dir)
    if composition.experiment is None and not any(text.startswith("model=") for text in overrides):
        names = ", ".join(experiment.name for experiment in list_experiments(config_folders(config_dir)))
        raise ConfigurationError(f"expected experiment=NAME, one of {names}; usage: {usage}")
    return composition.config()
