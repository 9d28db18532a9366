"""The command line: `python -m simjax.run experiment=fluid time.end=5`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from simjax.config import config_folders, list_experiments
from simjax.errors import ConfigurationError, SimjaxError, Stopped
from simjax.schema.config import Config

USAGE = "python -m simjax.run experiment=NAME [key=value ...] [-m] [--cfg job] [--config-dir DIR]"
OPTIONS = """\
options:
  key=value            set a value, such as time.end=2.0, grid.shape=[128,128], output=none; any order
  -m, --multirun       every combination of values such as seed=1,2,3, one run after the other
  --cfg job            print the composed configuration and stop
  --config-dir DIR     a folder with your own experiment/NAME.yaml
  experiment=none      the defaults alone
  ~key                 drop a key; '~initial initial={...}' replaces a mapping, 'initial={...}' merges into it
  resume=DIR           go on with a run; resume=auto with the newest of the experiment
  -h, --help           this text; with experiment=NAME or model=NAME the keys of its model: meaning, units, default
  --version            the version

exit codes: 0 done, 2 configuration, 3 numerical, 4 files, 5 memory or devices, 6 checkpoint,
            75 stopped on a signal or at the wall-clock limit, resumable
"""
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one sentence on stderr."""
    try:
        return _main(_parse(sys.argv[1:] if argv is None else argv))
    except SimjaxError as error:
        print(f"simjax: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("simjax: interrupted before the run began.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has gone, as in `... --help | head -3`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class _ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str):
        raise ConfigurationError(f"{message}; usage: {USAGE}")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-c", "--cfg", choices=["job"])
    parser.add_argument("-cd", "--config-dir")
    parser.add_argument("overrides", nargs="*")
    return parser.parse_intermixed_args(list(argv))


def _main(options: argparse.Namespace) -> int:
    if options.help or options.version:
        print(_help(options) if options.help else f"simjax {_version()}")
        return 0
    keys = [override.lstrip("+").partition("=")[0].strip() for override in options.overrides]
    if options.cfg:
        return _print_configuration(options)
    if not {"experiment", "model"} & {*keys} and not (options.overrides and _earlier_configuration(options.overrides)):
        for override in options.overrides:
            _check_override(override, options.config_dir)
        print(f"{_experiments(options.config_dir)}\n\nusage: {USAGE}")
        return ConfigurationError.exit_code
    if options.multirun:
        return _run_all(_sweep(options))
    from simjax.driver.environment import process_start

    return _run(_compose(options.overrides, options.config_dir), launched=process_start())


def _check_override(override: str, config_dir: str | None) -> None:
    """Refuse `simjax.run fluid` and `expriment=fluid` with the words that were meant."""
    from simjax.config.composition import known_keys, normalise
    from simjax.schema.errors import closest

    if "=" not in override:
        normalise(override, config_folders(config_dir))
    key, _, value = override.lstrip("+~").partition("=")
    if closest(key.strip(), [*known_keys(), "experiment"]) == "experiment":
        raise ConfigurationError(f"{override}: '{key.strip()}' is no key; did you mean experiment={value.strip()}?")


def _compose(overrides: Sequence[str], config_dir: str | None) -> Config:
    from simjax.config import compose, compose_from_run

    earlier = _earlier_configuration(overrides)
    if earlier is not None:
        return compose_from_run(earlier, overrides).config()
    return compose(overrides, config_dir=config_dir).config()


def _earlier_configuration(overrides: Sequence[str]) -> Path | None:
    """`resume=DIR` without an experiment goes on with the configuration that the run has kept."""
    pairs = [override.lstrip("+").partition("=") for override in overrides]
    if any(key.strip() == "experiment" for key, _, _ in pairs):
        return None
    for key, _, value in pairs:
        if key.strip() == "resume" and value.strip("'\" ") not in ("", "auto", "null"):
            file = Path(value.strip("'\" ")).expanduser() / ".hydra" / "config.yaml"
            if not file.is_file():
                raise ConfigurationError(f"resume={value}: expected the folder of a run, with {file} inside.")
            return file
    return None


def _sweep(options: argparse.Namespace) -> list[Config]:
    """All configurations of a multirun, composed and validated before the first one runs."""
    from simjax.config import compose, expand_sweep

    jobs = expand_sweep(options.overrides, config_dir=options.config_dir)
    configs = [compose(job, config_dir=options.config_dir).config() for job in jobs]
    folders = [config.output.folder for config in configs if config.output.folder is not None]
    if len(set(folders)) < len(folders):
        raise ConfigurationError(f"output.folder={folders[0]} is one folder for {len(configs)} runs; leave it out.")
    if len(configs) > 1 and any(config.resume is not None for config in configs):
        raise ConfigurationError("resume goes on with one run: leave out -m, or resume each of the runs by itself.")
    return configs


def _run_all(configs: Sequence[Config]) -> int:
    """Run one after the other; a run that fails does not keep the others from running."""
    first_failure = 0
    for number, config in enumerate(configs):
        print(f"[{number + 1}/{len(configs)}] {' '.join(config.overrides)}", flush=True)
        try:
            code = _run(config)
        except SimjaxError as error:
            print(f"simjax: {error}", file=sys.stderr)
            code = error.exit_code
        if code == Stopped.exit_code:
            return code
        first_failure = first_failure or code
    return first_failure


def _run(config: Config, launched: float | None = None) -> int:
    """Run one; `launched` is since when limits.wall_clock counts, by default from now on."""
    if config.inverse is not None:
        from simjax.inverse.search import Search

        found = Search(config).run(progress=True, launched=launched, on_stop="return")
        print(f"{found.message}\n{found.folder}")
        return found.exit_code
    from simjax.driver.simulation import Simulation

    result = Simulation(config).run(resume=config.resume, progress=True, launched=launched, on_stop="return")
    return result.exit_code


def _print_configuration(options: argparse.Namespace) -> int:
    from omegaconf import OmegaConf

    from simjax.config import compose

    composed = compose(options.overrides, config_dir=options.config_dir)
    print(OmegaConf.to_yaml(OmegaConf.create(dict(composed.mapping))), end="")
    return 0


def _experiments(config_dir: str | None) -> str:
    known = list_experiments(config_folders(config_dir))
    width = max((len(experiment.name) for experiment in known), default=0)
    lines = [f"  {experiment.name:<{width}}  {experiment.description}".rstrip() for experiment in known]
    return "\n".join(["experiments:", *lines])


def _help(options: argparse.Namespace) -> str:
    if not options.overrides:
        return f"usage: {USAGE}\n\n{_experiments(options.config_dir)}\n\n{OPTIONS}".rstrip()
    from simjax.config import compose
    from simjax.config.listing import keys_of_model
    from simjax.config.own_models import find_model
    from simjax.models.registry import MODELS
    from simjax.schema.errors import closest
    from simjax.schema.locate import input_folders

    composed = compose(options.overrides, config_dir=options.config_dir)
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
