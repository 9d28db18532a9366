"""The command line: `python -m simjax.inspect experiment=fluid grid.shape=[4096,4096] target=v5e:16x16`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from simjax.command import CommandParser, configured, exit_code_of
from simjax.errors import ConfigurationError, ResourceError
from simjax.inspect.inspect_program import inspect_program
from simjax.io.files import write_text
from simjax.io.replacing import INSPECTION, PICTURE, require_replaceable

USAGE = "python -m simjax.inspect experiment=NAME target=TARGET [key=value ...] [--json FILE] [--picture FILE.png]"
HELP = f"""\
usage: {USAGE}

Compiles the steps of an experiment for devices that need not be there, and reads the program: bytes on each device,
collectives and what runs beside them, an estimate of the time of a step, and the weak scaling that follows from one
device to all. Nothing is run.

target:
  v5e:16x16            a slice of TPUs, also v4:2x2x4, v5p:4x4x8, v6e:8x8; needs pip install 'simjax[tpu]'
  h100                 one GPU, h100:8 those of a machine; needs pip install 'simjax[compile-gpu]'
  cpu:8                virtual devices of this machine: collectives and bytes, without times

options:
  key=value            set a value, such as grid.shape=[4096,4096]; mesh.x=16 mesh.y=16 chooses the mesh, which is
                       as square as the target otherwise
  --no-scaling         leave out the smaller slices, each of which is compiled as well
  --json FILE          write everything to a file
  --picture FILE.png   draw it
  --config-dir DIR     a folder with your own experiment/NAME.yaml
  -h, --help           this text

exit codes: 0 compiled, 2 configuration, 5 no room in the devices' memory, or what compiles for them is not installed"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one sentence on stderr."""
    return exit_code_of(lambda: _main(_parse(sys.argv[1:] if argv is None else argv)))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(USAGE)
    parser.add_argument("--no-scaling", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    return parser.parse_intermixed_args(list(argv))


def _main(options: argparse.Namespace) -> int:
    if options.help:
        print(HELP)
        return 0
    targets = [text.partition("=")[2] for text in options.overrides if text.startswith("target=")]
    overrides = [text for text in options.overrides if not text.startswith("target=")]
    if not targets:
        raise ConfigurationError(f"expected target=TARGET, such as target=v5e:16x16; usage: {USAGE}")
    if options.picture is not None and options.picture.suffix != ".png":
        raise ConfigurationError(f"--picture {options.picture}: expected a name that ends in .png.")
    if options.json is not None:
        require_replaceable(options.json, INSPECTION, f"--json {options.json}")
    if options.picture is not None:
        require_replaceable(options.picture, PICTURE, f"--picture {options.picture}")
    config = configured(overrides, options.config_dir, USAGE)
    inspection = inspect_program(config, targets[-1], scaling=not options.no_scaling)
    print(inspection)
    content = inspection.as_dict()
    if options.json is not None:
        write_text(options.json, json.dumps(content, indent=1) + "\n")
    if options.picture is not None:
        from simjax.report.inspection_page import write_inspection

        write_inspection(content, options.picture)
    return ResourceError.exit_code if inspection.memory.refusal else 0


if __name__ == "__main__":
    sys.exit(main())
