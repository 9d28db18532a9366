"""The command line: `python -m simjax.export experiment=fluid what=rollout`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simjax.command import CommandParser, configured_as, exit_code_of, split_words, whole_number

USAGE = "python -m simjax.export RUN|experiment=NAME [what=rollout] [key=value ...] [--folder DIR] [--tesseract]"
HELP = f"""\
usage: {USAGE}

Writes a run as a program in StableHLO, with its gradient, that JAX alone reads and calls: program.jax, arguments.npz
and meta.json.

options:
  RUN                  the folder of a run, whose configuration is taken; or experiment=NAME
  what=rollout         numbers and initial fields in, variables and diagnostics at all output times out; step: one step
                       of a state; loss: of the section inverse
  vjp_order=1          how often it can be differentiated
  platforms=[cpu]      for which of cpu, cuda, rocm, tpu
  batch=b              a leading axis of any length on every argument
  key=value            set a value of the configuration, such as grid.shape=[32,32]
  --folder DIR         where it is written; by default export, or RUN/export
  --tesseract          makes the folder a Tesseract too: tesseract_api.py, tesseract_config.yaml
  --config-dir DIR     a folder with your own experiment/NAME.yaml
  -h, --help           this text

exit codes: 0 written, 2 configuration, 3 the run fails, 5 flatbuffers is not installed, or devices"""
OPTIONS = ("what", "vjp_order", "platforms", "batch")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one sentence on stderr."""
    return exit_code_of(lambda: _main(_parse(sys.argv[1:] if argv is None else argv)))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(USAGE)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--tesseract", action="store_true")
    return parser.parse_intermixed_args(list(argv))


def _main(options: argparse.Namespace) -> int:
    if options.help:
        print(HELP)
        return 0
    run, chosen, overrides = split_words(options.overrides, OPTIONS, USAGE)
    order = whole_number(chosen, "vjp_order", 1, "0, 1 or 2, how often the program is differentiated")
    config = configured_as(run, overrides, options.config_dir, USAGE)
    folder = options.folder or (run / "export" if run else Path("export"))

    from simjax.export.artefact import PROGRAM_NAME, export_run

    meta = export_run(
        config,
        folder,
        what=chosen.get("what", "rollout"),
        vjp_order=order,
        batch=chosen.get("batch"),
        platforms=[name for name in chosen.get("platforms", "cpu").strip("[]").replace(" ", "").split(",") if name],
        tesseract=options.tesseract,
    )
    size = (folder / PROGRAM_NAME).stat().st_size
    print(
        f"{folder / PROGRAM_NAME}: {meta['what']} of {meta['model']}, {size / 1e3:.0f} kB, {len(meta['arguments'])} "
        f"arguments, {len(meta['results'])} results, for {', '.join(meta['platforms'])}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
