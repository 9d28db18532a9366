"""The command line: `python -m simjax.certificate experiment=fluid grid.shape=[32,32]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from simjax.certificate.certify import STEPS, certify
from simjax.command import CommandParser, configured, exit_code_of
from simjax.errors import NumericalError

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one sentence on stderr."""
    return exit_code_of(lambda: _main(_parse(sys.argv[1:] if argv is None else argv)))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(USAGE)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--devices", type=int)
    return parser.parse_intermixed_args(list(argv))


def _main(options: argparse.Namespace) -> int:
    if options.help:
        print(HELP)
        return 0
    from simjax.driver.start.environment import join_processes

    config = configured(options.overrides, options.config_dir, USAGE)
    group = join_processes(config)
    with group.ending_together():
        certificate = certify(config, steps=options.steps, devices=options.devices)
    if group.first:
        print(certificate)
    return 0 if certificate.passed else NumericalError.exit_code


if __name__ == "__main__":
    sys.exit(main())
