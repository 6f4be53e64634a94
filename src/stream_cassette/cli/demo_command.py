"""`stream-cassette demo`"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

HELP = "record, replay, mutate and compare a stream on loopback, without a key or a network"
EPILOG = """\
example:
  stream-cassette demo --keep demo

exit status: 0 all as promised, 1 something was not, 2 an error
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the recorded cassette in this folder")


def run(options: argparse.Namespace) -> int:
    from stream_cassette.demo import run as demo

    if options.keep is not None:
        return demo(options.keep)
    with tempfile.TemporaryDirectory(prefix="stream-cassette-") as directory:
        return demo(Path(directory), kept=False)
