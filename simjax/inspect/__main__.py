"""The command line: `python -m simjax.inspect experiment=fluid grid.shape=[4096,4096] target=v5e:16x16`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from simjax.config import config_folders, list_experiments
from simjax.errors import ConfigurationError, ResourceError, SimjaxError
from simjax.inspect.inspect_program import inspect_program
from simjax.io.files import write_text

USAGE = "python -m simjax.inspect experiment=NAME target=TARGET [key=value ...] [--json FILE] [--picture FILE.png]"
HELP = f"""\
usage: {USAGE}

Compiles the steps of an experiment for devices that need not be there, and reads the program: bytes on each device,
collectives and what runs beside them, an estimate of the time of a step, and the weak scaling that follows from one
device to all. Nothing is run.

target:
  v5e:16x16            a slice of TPUs, also v4:2x2x4, v5p:4x4x8, v6e:8x8; needs pip install 'simjax[tpu]'
  h100:8               GPUs of one machine; needs pip install 'simjax[compile-gpu]'
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


class _ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str):
        raise ConfigurationError(f"{message}; usage: {USAGE}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one sentence on stderr."""
    try:
        return _main(_parse(sys.argv[1:] if argv is None else argv))
    except SimjaxError as error:
        print(f"simjax: {error}", file=sys.stderr)
        return error.exit_code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--no-scaling", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("-cd", "--config-dir")
    parser.add_argument("overrides", nargs="*")
    return parser.parse_intermixed_args(list(argv))


def _main(options: argparse.Namespace) -> int:
    if options.help:
        print(HELP)
        return 0
    from simjax.config import compose

    targets = [text.partition("=")[2] for text in options.overrides if text.startswith("target=")]
    overrides = [text for text in options.overrides if not text.startswith("target=")]
    if not targets:
        raise ConfigurationError(f"expected target=TARGET, such as target=v5e:16x16; usage: {USAGE}")
    if options.picture is not None and options.picture.suffix != ".png":
        raise ConfigurationError(f"--picture {options.picture}: expected a name that ends in .png.")
    composition = compose(overrides, config_dir=options.config_dir)
    if composition.experiment is None and not any(text.startswith("model=") for text in overrides):
        names = ", ".join(experiment.name for experiment in list_experiments(config_folders(options.config_dir)))
        raise ConfigurationError(f"expected experiment=NAME, one of {names}; usage: {USAGE}")
    inspection = inspect_program(composition.config(), targets[-1], scaling=not options.no_scaling)
    print(inspection)
    content = inspection.as_dict()
    if options.json is not None:
        write_text(options.json, json.dumps(content, indent=1) + "\n")
    if options.picture is not None:
        from simjax.report.inspection import write_inspection

        write_inspection(content, options.picture)
    return ResourceError.exit_code if inspection.memory.refusal else 0


if __name__ == "__main__":
    sys.exit(main())
