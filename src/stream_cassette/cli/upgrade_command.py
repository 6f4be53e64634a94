"""`stream-cassette upgrade`"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stream_cassette.model import Cassette

    from .terminal import Terminal

HELP = "bring cassettes to the newest format, and their `assembled` to what the assembler says today"
EPILOG = """\
examples:
  stream-cassette upgrade cassettes
  stream-cassette upgrade --check cassettes

Where a known stream has no dialect or no `assembled`, they are added. A file
that needs no change stays byte for byte; in one that does, comments are lost.
Snapshots (*.snap.yaml) are left out.

--json prints a list of {file, format, changes: [text], warnings: [text],
error: text or null}.

exit status: 0 done, 1 with --check: something would change, 2 an error in
some file, also if others were changed
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="a cassette, or a folder with all that are in it"
    )
    parser.add_argument("--check", action="store_true", help="write nothing, and say what would change")
    parser.add_argument("--json", action="store_true", help="print JSON, see below")


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What became of a file, or would become. `format` is the one that it is in, None where that cannot be told."""

    file: str
    format: int | None
    changes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    error: str | None = None


def run(options: argparse.Namespace) -> int:
    from .choosing import cassettes_in
    from .terminal import print_json, progress, terminal

    files = cassettes_in(options.paths)
    bar = progress(files, "upgrading", quiet=options.json)
    done = [upgraded(file, write=not options.check) for file in bar]
    if options.json:
        print_json([asdict(each) for each in done])
    else:
        out = terminal()
        for each in done:
            _tell(each, "would change" if options.check else "changed", out)
    if any(each.error is not None for each in done):
        return 2
    return 1 if options.check and any(each.changes for each in done) else 0


def _tell(done: Upgrade, changed: str, out: Terminal) -> None:
    if done.error is not None:
        print(f"stream-cassette upgrade: {done.error}", file=sys.stderr)
        return
    told = f"{changed}:" if done.changes else "nothing to change"
    out.text(f"{done.file}: format {done.format} is the newest; {told}", "bold" if done.changes else "")
    for change in done.changes:
        out.text(change, "yellow", indent="  ")
    for warning in done.warnings:
        out.text(f"warning: {warning}", "red", indent="  ")


def upgraded(path: Path, *, write: bool) -> Upgrade:
    """Brings the cassette in the file `path` up to date, with `write` in the file too."""
    from stream_cassette.cassette import FORMAT, load, update
    from stream_cassette.errors import CassetteError

    from .choosing import warned

    changes: list[str] = []

    def renew(old: Cassette) -> Cassette:
        new, found = _renewed(old)
        changes.extend(found)
        return new

    try:
        _, warnings = warned(lambda: update(path, renew) if write else renew(load(path)))
    except CassetteError as error:
        return Upgrade(str(path), None, error=str(error))
    if changes and warnings:  # what did not fit is written as it was taken
        changes, warnings = [*changes, "reads: one for each event, all at 0 ms, because the body was edited"], []
    return Upgrade(str(path), FORMAT, changes, warnings)


def _renewed(old: Cassette) -> tuple[Cassette, list[str]]:
    """The cassette as it should be today, and what is new in it; itself where nothing is."""
    from dataclasses import replace

    from .choosing import contradictions, renewed

    changes: list[str] = []
    interactions = tuple(renewed(each) for each in old.interactions)
    for number, (before, after) in enumerate(zip(old.interactions, interactions, strict=True), 1):
        if after is before:
            continue
        said = [] if before.dialect == after.dialect else [f"dialect: now {after.dialect}"]
        said += contradictions(before) if before.assembled is not None else ["assembled: added"]
        changes += [f"interaction {number}: {change}" for change in said]
    return (replace(old, interactions=interactions) if changes else old), changes
