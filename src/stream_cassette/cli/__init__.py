"""The face to the terminal: `stream-cassette`. One file a command; this one has the table of them and what they share: errors and exit statuses."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

COMMANDS = (
    "demo",
    "record",
    "serve",
    "show",
    "assemble",
    "mutate",
    "check",
    "diff",
    "upgrade",
    "import",
    "scan",
    "textconv",
)
"""The commands in the order of the help. The module of each has `HELP`, one line; `EPILOG`, which ends its help: an example, what `--json` prints and
what the exit status says; `add(parser)`, which declares its arguments; and `run(options)`, which returns the exit status: 0 done, 1 a check failed.
Whatever is heavy it imports within `run`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status: 0 done, 1 a check failed, 2 an error, told on standard error, 130 interrupted."""
    # Whatever has to be loaded is loaded in here, where Ctrl-C is no traceback.
    try:
        parser = _parser()
        options = parser.parse_args(arguments)
        if options.command is None:
            parser.print_help(sys.stderr)
            return 2
        return _status(options)
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    import argparse
    from importlib import import_module

    from stream_cassette import __version__

    parser = argparse.ArgumentParser(
        prog="stream-cassette",
        description="Record streamed LLM replies once, replay them ever after.",
        epilog="COMMAND --help has examples. Exit status: 0 done, 1 a check failed, 2 an error, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"stream-cassette {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        module = import_module(f"{__name__}.{name}_command")
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=f"{module.HELP[0].upper()}{module.HELP[1:]}{'' if module.HELP.endswith('?') else '.'}",
            epilog=module.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add(command)
        command.set_defaults(run=module.run)
    return parser


def _status(options: argparse.Namespace) -> int:
    from stream_cassette.errors import StreamCassetteError

    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # who reads has seen enough, as in `| head`
        _say_no_more()
        return 1
    except RecursionError:
        print(f"stream-cassette {options.command}: a JSON value is nested too deeply", file=sys.stderr)
        return 2
    except StreamCassetteError as error:
        print(f"stream-cassette {options.command}: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # such as a disk that is full, behind standard output
        _say_no_more()
        print(f"stream-cassette {options.command}: {error.strerror or error}", file=sys.stderr)
        return 2


def _say_no_more() -> None:
    """What is still to be written would be tried once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
