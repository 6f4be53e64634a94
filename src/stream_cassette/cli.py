"""The face to the terminal: `stream-cassette`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .errors import StreamCassetteError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status: 0 done, 1 a check failed, 2 an error, told on standard error."""
    parser = argparse.ArgumentParser(
        prog="stream-cassette", description="Record streamed LLM replies once, replay them ever after."
    )
    parser.add_argument("--version", action="version", version=f"stream-cassette {__version__}")
    commands = parser.add_subparsers(dest="command")
    demo = commands.add_parser(
        "demo", help="record, replay, mutate and compare a stream on loopback, without a key or a network"
    )
    demo.add_argument("--keep", type=Path, metavar="DIR", help="leave the recorded cassette in this folder")
    demo.set_defaults(run=lambda options: _demo(options.keep))
    textconv = commands.add_parser(
        "textconv",
        help="print a cassette as a diff should show it: git config diff.cassette.textconv 'stream-cassette textconv'",
    )
    textconv.add_argument("file", type=Path, metavar="FILE", help="the cassette; any other file is printed as it is")
    textconv.set_defaults(run=lambda options: _textconv(options.file))
    scan = commands.add_parser(
        "scan", help="look for secrets in cassettes, also VCR's, and in any other file; exit status 1 if there are any"
    )
    scan.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="a file, or a folder with all that is in it")
    scan.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="REGEX",
        help="also look for this; may be given as `name: regex`, and several times",
    )
    scan.add_argument("--json", action="store_true", help="print a list of {file, line, kind}")
    scan.set_defaults(run=lambda options: _scan(options.paths, options.secret, options.json))
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # who reads has seen enough, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except StreamCassetteError as error:
        print(f"stream-cassette {options.command}: {error}", file=sys.stderr)
        return 2


def _textconv(file: Path) -> int:
    """0 for a broken cassette too: git shows no diff at all where this fails, and the diff may be what mends the file."""
    from .cassette import CassetteWarning
    from .errors import CassetteMissing
    from .textconv import lines

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


def _scan(paths: Sequence[Path], patterns: Sequence[str], as_json: bool) -> int:
    import json
    from dataclasses import asdict

    from .redact import secrets_of
    from .scan import files_of, scan

    secrets = secrets_of(patterns, "--secret")
    files = list(dict.fromkeys(files_of(paths)))
    found = [finding for file in files for finding in scan(file, secrets)]
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        for finding in found:
            print(finding)
        holding = len({finding.file for finding in found})
        print(
            f"files scanned: {len(files)}, "
            + (f"secrets: {len(found)}, in files: {holding}" if found else "no secrets")
        )
    return 1 if found else 0


def _demo(keep: Path | None) -> int:
    from .demo import run

    if keep is not None:
        return run(keep)
    with tempfile.TemporaryDirectory(prefix="stream-cassette-") as directory:
        return run(Path(directory), kept=False)
