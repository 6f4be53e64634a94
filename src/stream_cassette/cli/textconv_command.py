"""`stream-cassette textconv`"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from stream_cassette.errors import CassetteMissing, StreamCassetteError

HELP = "print a cassette as git diff should show it, without what is new in every recording"
EPILOG = """\
example:
  git config diff.cassette.textconv 'stream-cassette textconv'
  echo '*.yaml diff=cassette' >> .gitattributes

exit status: 0 printed, also where the file is broken, 2 there is no file
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the cassette; any other file is printed as it is")


def run(options: argparse.Namespace) -> int:
    """0 for a broken cassette too: git shows no diff at all where this fails, and the diff may be what mends the file."""
    from stream_cassette.cassette import CassetteWarning
    from stream_cassette.textconv import lines

    file: Path = options.file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CassetteWarning)
            text = list(lines(file))
    except CassetteMissing:
        raise
    except StreamCassetteError as error:
        print(f"stream-cassette textconv: {error}", file=sys.stderr)
        text = file.read_text("utf-8", "backslashreplace").splitlines() if file.is_file() else []
    for line in text:
        print(line.encode("utf-8", "backslashreplace").decode())
    return 0
