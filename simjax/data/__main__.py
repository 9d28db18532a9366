"""The command line: `python -m simjax.data RUN format=well`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simjax.command import CommandParser, exit_code_of
from simjax.errors import ConfigurationError

USAGE = "python -m simjax.data RUN [RUN ...] [format=well] [fields=[NAME,...]] [name=NAME] [copy=true] [--file FILE]"
HELP = f"""\
usage: {USAGE}

Writes runs of fields, members of ensembles one by one, as a file in the layout of a collection of data for learning.

options:
  RUN                  the folder of a run; several must have the same grid, sides and output times
  format=well          The Well, which the package the_well reads; or pdebench
  fields=[a,b]         which fields; by default all
  name=NAME            of the data, in a file of The Well; by default the experiment's
  copy=true            copy the values; false: show those at cell centres where they are, for programs that open the
                       file by its name, which the_well does not
  --file FILE          what is written; by default data.hdf5
  -h, --help           this text

exit codes: 0 written, 2 what cannot be written so, 4 files"""
FORMATS = ("well", "pdebench")
OPTIONS = ("format", "fields", "name", "copy")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one sentence on stderr."""
    return exit_code_of(lambda: _main(_parse(sys.argv[1:] if argv is None else argv)))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(USAGE)
    parser.add_argument("--file", type=Path, default=Path("data.hdf5"))
    return parser.parse_intermixed_args(list(argv))


def _main(options: argparse.Namespace) -> int:
    if options.help:
        print(HELP)
        return 0
    given = dict(text.split("=", 1) for text in options.overrides if "=" in text)
    runs = [text for text in options.overrides if "=" not in text]
    unknown = [name for name in given if name not in OPTIONS]
    if unknown or not runs:
        found = f"{unknown[0]}=..." if unknown else "no folder of a run"
        names = ", ".join(OPTIONS)
        raise ConfigurationError(f"expected folders of runs and some of {names}, got {found}; usage: {USAGE}")
    chosen, copy = given.get("format", "well"), given.get("copy", "true")
    if chosen not in FORMATS or copy not in ("true", "false"):
        raise ConfigurationError(f"format={chosen}, copy={copy}: expected well or pdebench, and true or false.")
    if chosen == "pdebench" and (copy == "false" or "name" in given):
        raise ConfigurationError("format=pdebench: expected neither name nor copy=false, as all is copied.")
    names = [name for name in given.get("fields", "").strip("[]").replace(" ", "").split(",") if name] or None

    from simjax.io.pdebench import write_pdebench
    from simjax.io.well import write_well
    from simjax.io.whole_trajectories import described

    if chosen == "well":
        written = write_well(runs, options.file, names, name=given.get("name"), copy=copy == "true")
    else:
        written = write_pdebench(runs, options.file, names)
    print(described(written, options.file))
    return 0


if __name__ == "__main__":
    sys.exit(main())
