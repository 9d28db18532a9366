"""The command line: `python -m simjax.run experiment=fluid time.end=5`."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import io
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simjax.command import CommandParser, exit_code_of
from simjax.config import config_folders, list_experiments
from simjax.errors import ConfigurationError, without_credentials
from simjax.schema.locate import CONFIG_NAME, is_url, usable_path

if TYPE_CHECKING:
    from simjax.config import Composition

USAGE = "python -m simjax.run experiment=NAME|FILE.yaml [key=value ...] [-m] [--cfg job] [--config-dir DIR]"
COLLECTIONS = (50_000, 20, 20)
"""Thresholds of Python's search for garbage."""
BUFFERED = {io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom}
"""Files that hold back what is written to them."""
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
OPTIONS = """\
options:
  FILE.yaml            a file of your own to begin with, as first argument; the run has its name
  key=value            set a value, such as time.end=2.0, grid.shape=[128,128], output=none; any order
  -m, --multirun       every combination of values such as seed=1,2,3, range(1,4) or glob(*), one run after the other
  hydra/launcher=NAME  with -m: joblib or submitit_local run several at once; hydra/sweeper=optuna searches
  --cfg job|hydra|all  print the composed configuration and stop; -p KEY prints a part of it
  --info               print how Hydra composes: plugins, search path, defaults, configuration
  --config-dir DIR     a folder with your own experiment/NAME.yaml
  --config-name NAME   a file NAME.yaml of it to begin with, instead of config.yaml
  -sc install=bash     completion by the tab key: eval "$(simjax -sc install=bash)"
  experiment=none      the defaults alone
  ~key                 drop a key; '~initial initial={...}' replaces a mapping, 'initial={...}' merges into it
  resume=DIR           go on with a run, also by its URL in a store; resume=auto with the newest of the experiment
  -h, --help           this text; with experiment=NAME or model=NAME the keys of its model: meaning, units, default
  --version            the version

exit codes: 0 done, 2 configuration, 3 numerical, 4 files, 5 memory or devices, 6 checkpoint,
            75 stopped on a signal or at the wall-clock limit, resumable
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one sentence on stderr."""
    if argv is None:  # the process is this command's own
        atexit.register(_end_quickly)
    with _few_collections():
        return exit_code_of(lambda: _main(_parse(sys.argv[1:] if argv is None else argv)))


def _end_quickly() -> None:
    """Keep Python from taking apart at its end all that jax has made, which is half a second of a processor.

    Files that nothing else would have closed are flushed here.
    """
    for one in gc.get_objects():
        if type(one) in BUFFERED:
            with contextlib.suppress(Exception):  # closed, detached, or read only
                one.flush()
    gc.freeze()


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """Look for garbage rarely: what is imported and traced stays, and looking took a tenth of a start."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(USAGE)
    parser.add_argument("--version", action="store_true")
    parser.add_argument("-r", "--run", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-c", "--cfg", choices=["job", "hydra", "all"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("-p", "--package")
    parser.add_argument("-i", "--info", nargs="?", const="all", choices=INFO)
    parser.add_argument("-sc", "--shell-completion", action="store_true")
    parser.add_argument("--hydra-help", action="store_true")
    parser.add_argument("-cn", "--config-name", default=CONFIG_NAME)
    options = parser.parse_intermixed_args(list(argv))
    if options.overrides and "=" not in options.overrides[0] and options.overrides[0].endswith((".yaml", ".yml")):
        _begin_with_file(options)
    return options


def _begin_with_file(options: argparse.Namespace) -> None:
    """Take the first argument, a YAML file of one's own, as what the configuration begins with."""
    file = usable_path(options.overrides.pop(0), "the file to run")
    if options.config_dir is not None or options.config_name != CONFIG_NAME:
        raise ConfigurationError(f"{file}: expected a file, or --config-dir and --config-name; leave one of them out.")
    if not file.is_file() or file.suffix != ".yaml":
        raise ConfigurationError(f"{file}: expected a file NAME.yaml, and there is none of this name.")
    options.config_dir, options.config_name = str(file.parent), file.stem


def _main(options: argparse.Namespace) -> int:
    if options.help or options.version:
        print(_help(options) if options.help else f"simjax {_version()}")
        return 0
    if options.cfg or options.info or options.shell_completion or options.hydra_help:
        return _show(options)
    keys = [override.lstrip("+").partition("=")[0].strip() for override in options.overrides]
    named = {"experiment", "model"} & {*keys} or options.config_name != CONFIG_NAME
    earlier = _earlier_run(options.overrides)
    if not named and earlier is None:
        for override in options.overrides:
            _check_override(override, options.config_dir)
        print(f"{_experiments(options.config_dir)}\n\nusage: {USAGE}")
        return ConfigurationError.exit_code
    from simjax.application import run_all, run_one

    if options.multirun:
        return run_all(options.overrides, options.config_dir, options.config_name)
    from simjax.driver.start.environment import process_start

    launched = process_start()
    if earlier is None:
        from simjax.driver.start.kept_compositions import composed

        composition = composed(options.overrides, config_dir=options.config_dir, config_name=options.config_name)
        return run_one(composition, composition.folders[0], options.config_name, launched)
    with _configuration_of(earlier) as file:
        return run_one(_compose(options, file), file.parent, file.stem, launched)


def _check_override(override: str, config_dir: str | None) -> None:
    """Refuse `simjax.run fluid` and `expriment=fluid` with the words that were meant."""
    from simjax.config.composition import known_keys
    from simjax.config.overrides import normalise
    from simjax.schema.config_errors import closest

    if "=" not in override:
        normalise(override, config_folders(config_dir))
    key, _, value = override.lstrip("+~").partition("=")
    if closest(key.strip(), [*known_keys(), "experiment"]) == "experiment":
        raise ConfigurationError(f"{override}: '{key.strip()}' is no key; did you mean experiment={value.strip()}?")


def _compose(options: argparse.Namespace, earlier: Path | None = None) -> Composition:
    from simjax.config import compose, compose_from_run

    if earlier is not None:
        return compose_from_run(earlier, options.overrides)
    return compose(options.overrides, config_dir=options.config_dir, config_name=options.config_name)


def _earlier_run(overrides: Sequence[str]) -> str | None:
    """The run that `resume=DIR` or `resume=URL` names without an experiment: its own configuration is taken."""
    pairs = [override.lstrip("+").partition("=") for override in overrides]
    if any(key.strip() == "experiment" for key, _, _ in pairs):
        return None
    named = [value.strip("'\" ") for key, _, value in pairs if key.strip() == "resume"]
    return next((place for place in named if place not in ("", "auto", "null")), None)


@contextlib.contextmanager
def _configuration_of(run: str) -> Iterator[Path]:
    """The file with the configuration that a run has kept; of one in a store it is there within the context."""
    if is_url(run):
        from simjax.io.files import write_text
        from simjax.io.folder_copy import text_in_copy

        with tempfile.TemporaryDirectory(prefix="simjax-") as folder:
            file = Path(folder) / "config.yaml"
            write_text(file, text_in_copy(run, ".hydra/config.yaml"))
            yield file
        return
    file = usable_path(run, "resume").expanduser() / ".hydra" / "config.yaml"
    if not file.is_file():
        raise ConfigurationError(f"resume={run}: expected the folder of a run, with {file} inside.")
    yield file


def _show(options: argparse.Namespace) -> int:
    """Print the configuration, or what Hydra tells of itself; nothing runs."""
    from omegaconf import OmegaConf

    if options.cfg == "job" and options.package is None:
        composed = _compose(options)
        print(without_credentials(OmegaConf.to_yaml(OmegaConf.create(dict(composed.mapping)))), end="")
        return 0
    from simjax.config.command_line import call_hydra
    from simjax.config.overrides import normalise

    folders = config_folders(options.config_dir)
    flags = [flag for flag in ("resolve", "shell_completion", "hydra_help") if getattr(options, flag)]
    flags = [f"--{flag.replace('_', '-')}" for flag in flags]
    flags += [f"--{flag}={value}" for flag in ("cfg", "package", "info") if (value := getattr(options, flag))]
    overrides = list(options.overrides)
    if options.cfg:
        overrides = _compose(options).spelled()
    elif not options.shell_completion:
        overrides = [normalise(text, folders) for text in overrides]
    if options.info:
        logging.raiseExceptions = False  # Hydra tells it by its log, also where the reader of stdout has gone
    call_hydra(lambda _: None, overrides, folders, options.config_name, flags)
    return 0


def _experiments(config_dir: str | None) -> str:
    known = list_experiments(config_folders(config_dir))
    width = max((len(experiment.name) for experiment in known), default=0)
    lines = [f"  {experiment.name:<{width}}  {experiment.description}".rstrip() for experiment in known]
    return "\n".join(["experiments:", *lines])


def _help(options: argparse.Namespace) -> str:
    if not options.overrides:
        return f"usage: {USAGE}\n\n{_experiments(options.config_dir)}\n\n{OPTIONS}".rstrip()
    from simjax.config.listing import keys_of_model
    from simjax.config.own_models import find_model
    from simjax.models.registry import MODELS
    from simjax.schema.config_errors import closest
    from simjax.schema.locate import input_folders

    composed = _compose(options)
    mapping, model = composed.mapping, str(composed.mapping.get("model"))
    find_model(model, input_folders(composed.folders[1:]))
    if model not in MODELS:
        close = closest(model, MODELS)
        hint = f"did you mean model={close}?" if close else f"known are {', '.join(MODELS)}."
        raise ConfigurationError(f"model={model}: no such model; {hint}")
    return keys_of_model(MODELS[model], mapping)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("simjax")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
