"""`stream-cassette scan`"""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "look for secrets in cassettes, also those of VCR, and in any other file"
EPILOG = """\
examples:
  stream-cassette scan cassettes tests/fixtures
  stream-cassette scan cassettes --secret 'customer: customer-\\d+'

--json prints a list of {file, line, kind}; the secret itself is never told.

exit status: 0 no secrets, 1 there are some, 2 an error
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="a file, or a folder with all that is in it"
    )
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="REGEX",
        help="also look for this; may be given as `name: regex`, and several times",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, see below")


def run(options: argparse.Namespace) -> int:
    import json
    from dataclasses import asdict

    from stream_cassette.redact import secrets_of
    from stream_cassette.scan import files_of, scan

    secrets = secrets_of(options.secret, "--secret")
    # A pipe that lies in a folder would make us wait for ever; one that is named is meant.
    files = [file for file in dict.fromkeys(files_of(options.paths)) if file.is_file() or file in options.paths]
    found = [finding for file in files for finding in scan(file, secrets)]
    if options.json:
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
