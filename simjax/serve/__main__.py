"""The command line: `python -m simjax.serve experiment=fluid what=rollout`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from simjax.command import CommandParser, configured_as, exit_code_of, split_words, whole_number
from simjax.serve.limits import DEFAULT, Limits

USAGE = "python -m simjax.serve RUN|experiment=NAME [what=rollout] [batch=8] [key=value ...] [--port 8080]"
HELP = f"""\
usage: {USAGE}

Answers requests over HTTP with results and gradients of a run: those that arrive together are computed together. Ends
at SIGTERM or SIGINT.

options:
  RUN                  the folder of a run, whose configuration is taken; or experiment=NAME
  what=rollout         numbers and initial fields in, variables and diagnostics at output times out; step: one step of a
                       state; loss: of the section inverse
  batch=8              most requests in one call, a power of two
  vjp_order=1          1: gradients too; 0: results alone, which compiles sooner
  key=value            set a value of the configuration, such as grid.shape=[32,32]
  --host 127.0.0.1     where it listens; other machines reach it at 0.0.0.0, without password and encryption
  --names NAME,NAME    names by which it is asked, beside addresses, localhost and that of the machine
  --port 8080          0: any that is free, which is told
  --requests 64        most requests at once; more are refused
  --seconds 60         in which a request is answered or given up
  --window 0.002       seconds for which a request waits for others
  --config-dir DIR     a folder with your own experiment/NAME.yaml
  -h, --help           this text

exit codes: 0 ended by a signal, 2 configuration, 3 the run fails, 5 starlette and uvicorn are not installed, the
            address is taken, or devices"""
OPTIONS = ("what", "vjp_order", "batch")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one sentence on stderr."""
    return exit_code_of(lambda: _main(_parse(sys.argv[1:] if argv is None else argv)))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(USAGE)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--names", default="")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--requests", type=int, default=DEFAULT.requests)
    parser.add_argument("--seconds", type=float, default=DEFAULT.seconds)
    parser.add_argument("--window", type=float, default=DEFAULT.window)
    return parser.parse_intermixed_args(list(argv))


def _main(options: argparse.Namespace) -> int:
    if options.help:
        print(HELP)
        return 0
    limits = Limits(options.requests, options.seconds, options.window)
    run, chosen, overrides = split_words(options.overrides, OPTIONS, USAGE)
    order = whole_number(chosen, "vjp_order", 1, "0 or 1, whether gradients are served")
    batch = whole_number(chosen, "batch", 8, "a power of two, such as 8")
    config = configured_as(run, overrides, options.config_dir, USAGE)

    from simjax.serve.hosts import is_of_this_machine_alone
    from simjax.serve.server import bound, serve
    from simjax.serve.service import Service

    with bound(options.host, options.port) as at:  # before minutes of compiling
        if not is_of_this_machine_alone(at.getsockname()[0]):
            print(
                f"simjax: warning: --host {options.host} answers every machine that reaches this one, without password "
                "and encryption; write --host 127.0.0.1, behind a proxy that has both.",
                file=sys.stderr,
            )
        service = Service(config, what=chosen.get("what", "rollout"), vjp_order=order, batch=batch)
        serve(service, at, limits, [name for name in options.names.replace(" ", "").split(",") if name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
