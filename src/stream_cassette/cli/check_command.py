"""`stream-cassette check`"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stream_cassette.model import Interaction

HELP = "check that cassettes load, mean what they say they mean, and hold no secrets"
EPILOG = """\
example:
  stream-cassette check cassettes

A line for each problem, by its kind:
  file       it cannot be loaded
  reads      its body was edited by hand, and `reads` no longer fits it
  stream     a body is no stream that is known, or not of the dialect it says
  assembled  today's assembler makes something else of the stream
  secret     it holds what looks like a key, as `scan` finds it
Snapshots (*.snap.yaml) are left out.

--json prints a list of {file, line, interaction, kind, problem}; line and
interaction, both from 1, are null where there is none to name.

exit status: 0 no problems, 1 there are some, 2 an error
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="a cassette, or a folder with all that are in it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, see below")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a cassette; `line` and `interaction` count from 1."""

    file: str
    line: int | None
    interaction: int | None
    kind: str
    problem: str

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        interaction = f"interaction {self.interaction}: " if self.interaction else ""
        return f"{self.file}{line}: {interaction}{self.problem}"


def run(options: argparse.Namespace) -> int:
    from .choosing import cassettes_in
    from .terminal import print_json, progress, terminal

    files = cassettes_in(options.paths)
    found = [problem for file in progress(files, "checking", quiet=options.json) for problem in problems(file)]
    if options.json:
        print_json([asdict(problem) for problem in found])
    else:
        out = terminal()
        for problem in found:
            out.text(str(problem), "red")
        wrong = len({problem.file for problem in found})
        told = f"problems: {len(found)}, in files: {wrong}" if found else "no problems"
        out.text(f"cassettes checked: {len(files)}, {told}", "bold red" if found else "bold green")
    return 1 if found else 0


def problems(path: Path) -> Iterator[Problem]:
    """Everything that is wrong with the cassette in the file `path`."""
    from stream_cassette.cassette import load
    from stream_cassette.errors import CassetteError

    from .choosing import contradictions, warned

    name = str(path)
    try:
        cassette, warnings = warned(lambda: load(path))
    except CassetteError as error:
        yield Problem(name, _placed(error.where, name)[0], None, "file", error.what)
    else:
        for text in warnings:
            line, said = _placed(text, name)
            yield Problem(name, line, None, "reads", said)
        for number, interaction in enumerate(cassette.interactions, 1):
            if wrong := _not_as_said(interaction):
                yield Problem(name, None, number, "stream", wrong)
            for difference in contradictions(interaction):
                yield Problem(name, None, number, "assembled", difference)
    yield from _secrets(path)


_STREAMS = ("text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream")


def _placed(text: str, name: str) -> tuple[int | None, str]:
    """The line that an error or warning names behind the file, and what it says after it."""
    rest = text.removeprefix(name)
    found = re.match(r", line (\d+)(?:: )?", rest)
    return (int(found[1]), rest[found.end() :]) if found else (None, rest)


def _not_as_said(interaction: Interaction) -> str:
    """What is wrong with the body as a stream; empty for nothing, and for a body that does not claim to be one."""
    from stream_cassette.model import Keepalive, Unknown
    from stream_cassette.stream import Stream

    from .choosing import dialect_of

    exchange = interaction.exchange
    if not exchange.body:
        return ""
    seen, sent = dialect_of(Stream(exchange)), exchange.header("content-type") or ""
    if interaction.dialect is None:
        streamed = sent.partition(";")[0].strip().lower() in _STREAMS
        return f"it was sent as {sent}, and no dialect knows it" if streamed and seen is None else ""
    if seen not in (None, interaction.dialect):
        return f"the file says {interaction.dialect}, the body looks like {seen}"
    deltas = Stream(exchange, interaction.dialect).deltas
    known = any(not isinstance(delta, Unknown | Keepalive) for delta in deltas)
    return "" if known else f"nothing in it is {interaction.dialect}"


def _secrets(path: Path) -> Iterator[Problem]:
    from stream_cassette.errors import StreamCassetteError
    from stream_cassette.scan import scan

    with suppress(StreamCassetteError):  # that it cannot be read has been told
        if path.is_file():  # a pipe may wait for ever
            for finding in scan(path):
                yield Problem(finding.file, finding.line, None, "secret", f"a secret: {finding.kind}")
