"""The command line: `python -m simjax.certificate experiment=fluid grid.shape=[32,32]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from simjax.certificate.certify import STEPS, certify
from simjax.config import config_folders, list_experiments
from simjax.errors import ConfigurationError, NumericalError, SimjaxError
from simjax.processes import exit_without_shutdown, is_of_another

USAGE = "python -m simjax.certificate experiment=NAME [key=value ...] [--steps N] [--devices N] [--config-dir DIR]"
HELP = f"""\
usage: {USAGE}

Checks the gradient of an experiment's first steps, in float64, with respect to all its numbers, initial fields and
coefficients, or initial places and velocities of particles: Taylor remainders, forward against reverse mode, central
differences, one device against many, with and without checkpoints. A small grid shows the same as a large one, sooner;
of more than 500 particles fewer are taken.

options:
  key=value            set a value, such as grid.shape=[32,32]; mesh.x=2 mesh.y=2 chooses the mesh to compare
  --steps N            steps to differentiate, even; {STEPS} by default
  --devices N          the most devices to compare one with, virtual ones on a CPU; 8 by default, 1 leaves it out
  --config-dir DIR     a folder with your own experiment/NAME.yaml
  -h, --help           this text

exit codes: 0 passed, 2 configuration, 3 failed or not certified, 5 devices"""


class _ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str):
        raise ConfigurationError(f"{message}; usage: {USAGE}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one sentence on stderr."""
    try:
        return _main(_parse(sys.argv[1:] if argv is None else argv))
    except SimjaxError as error:
        if not is_of_another(error):
            print(f"simjax: {error}", file=sys.stderr)
        exit_without_shutdown(error.exit_code)
        return error.exit_code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--devices", type=int)
    parser.add_argument("-cd", "--config-dir")
    parser.add_argument("overrides", nargs="*")
    return parser.parse_intermixed_args(list(argv))


def _main(options: argparse.Namespace) -> int:
    if options.help:
        print(HELP)
        return 0
    from simjax.config import compose
    from simjax.driver.environment import join_processes

    composition = compose(options.overrides, config_dir=options.config_dir)
    if composition.experiment is None and not any(text.startswith("model=") for text in options.overrides):
        names = ", ".join(experiment.name for experiment in list_experiments(config_folders(options.config_dir)))
        raise ConfigurationError(f"expected experiment=NAME, one of {names}; usage: {USAGE}")
    config = composition.config()
    group = join_processes(config)
    with group.ending_together():
        certificate = certify(config, steps=options.steps, devices=options.devices)
    if group.first:
        print(certificate)
    return 0 if certificate.passed else NumericalError.exit_code


if __name__ == "__main__":
    sys.exit(main())
