"""The face to the terminal: `stream-cassette`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .errors import StreamCassetteError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status: 0 done, 1 a check failed, 2 an error, told on standard error."""
    parser = argparse.ArgumentParser(prog="stream-cassette", description="Record streamed LLM replies once, replay them ever after.")
    parser.add_argument("--version", action="version", version=f"stream-cassette {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="record, replay, mutate and compare a stream on loopback, without a key or a network")
    demo.add_argument("--keep", type=Path, metavar="DIR", help="leave the recorded cassette in this folder")
    options = parser.parse_args(arguments)
    try:
        return _demo(options.keep)
    except StreamCassetteError as error:
        print(f"stream-cassette {options.command}: {error}", file=sys.stderr)
        return 2


def _demo(keep: Path | None) -> int:
    from .demo import run

    if keep is not None:
        return run(keep)
    with tempfile.TemporaryDirectory(prefix="stream-cassette-") as directory:
        return run(Path(directory))
