"""`stream-cassette show`"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stream_cassette.model import Interaction
    from stream_cassette.stream import Stream

    from .terminal import Terminal

HELP = "show what came when: a cassette's streams read by read, each content part in a column of its own"
EPILOG = """\
example:
  stream-cassette show cassettes/test_agent/test_weather.yaml --interaction 1

A line has the time of its read, in ms after the response headers, and the
bytes of that; `~`: the read ends inside an event, `!`: inside a character. `-`
stands before the first thing that an event says. Everything that one part of
the reply says (a text, a tool call) begins in the same column.

--json prints a list of interactions, each {interaction (from 1), test,
method, url, status, content_type, dialect (null: no known stream), ending,
error, bytes, reads, events, duration_ms, first_token_ms, gaps_ms, assembled
(agrees, differs or null), differences: [text], lanes: [{lane, choice, kind,
name}], timeline: [{at_ms, reads, bytes, inside (event, character or null),
events: [{event, data, problem, says: [{type, lane, key, ...}]}]}]}.

exit status: 0 shown, 2 an error
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="CASSETTE", help="the cassette; - is standard input")
    parser.add_argument("--interaction", type=int, metavar="N", help="only the Nth interaction, from 1 (default: all)")
    parser.add_argument(
        "--width", type=int, metavar="COLUMNS", help="cut lines to this width (default: the terminal's)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, see below")


def run(options: argparse.Namespace) -> int:
    from .choosing import cassette, name_of, place_of
    from .terminal import print_json, terminal

    found = cassette(options.file)
    first, chosen = 0, found.interactions
    if options.interaction is not None:
        first = place_of(found, options.interaction, name_of(options.file))
        chosen = chosen[first : first + 1]
    if options.json:
        print_json([_plain(number, each) for number, each in enumerate(chosen, first + 1)])
        return 0
    out = terminal(options.width)
    for number, each in enumerate(chosen, first + 1):
        if number > first + 1:
            out.line()
        _show(number, each, out)
    if not chosen:
        out.line("the cassette has no interactions")
    return 0


def _show(number: int, interaction: Interaction, out: Terminal) -> None:
    from stream_cassette.stream import Stream
    from stream_cassette.timeline import LEGEND, events, lines, names

    from .choosing import contradictions

    exchange = interaction.exchange
    stream = Stream(exchange, interaction.dialect)
    out.line((f"interaction {number}: {interaction.test or 'of no test'}", "bold"))
    out.line(f"  {exchange.request.method} {exchange.request.url}")
    for fact in _facts(stream):
        out.line(f"  {fact}")
    if interaction.assembled is not None:
        differences = contradictions(interaction)
        out.line(("  assembled differs from today's:", "bold red") if differences else ("  assembled agrees", "green"))
        for difference in differences:
            out.line((f"    {difference}", "red"))
    called = names(events(stream))
    if len(called) > 1:
        legend = ", ".join(f"{lane.number} {name}" for lane, name in islice(called.items(), _MOST_LANES))
        more = f", and {len(called) - _MOST_LANES} more" if len(called) > _MOST_LANES else ""
        for piece in wrap(f"lanes: {legend}{more}", max(out.width - 2, 1)):
            out.line(f"  {piece}")
    out.line((LEGEND, "dim"))
    for line in lines(stream, out.width):
        out.line(*line)
    if exchange.ending.kind in _ENDINGS:
        out.line((f"{'':20}{_ENDINGS[exchange.ending.kind]}", "yellow"))


_MOST_LANES = 40
_ENDINGS = {
    "closed": "the reader left before the end",
    "disconnected": "the connection died",
    "stalled": "nothing more came until the read timeout struck",
}


def _facts(stream: Stream) -> Iterator[str]:
    from .choosing import dialect_of

    exchange = stream.exchange
    dialect = dialect_of(stream)
    kind = dialect or f"no known stream ({exchange.header('content-type') or 'no content type'})"
    ending = " ".join(filter(None, (exchange.ending.kind, exchange.ending.error)))
    yield f"{exchange.status} {kind}, {ending}{f', was {exchange.was}' if exchange.was else ''}"
    reads = "1 read" if len(exchange.reads) == 1 else f"{len(exchange.reads)} reads"
    first = stream.first_token_ms if dialect else None
    token = f"; first content at {first} ms" if first is not None else "; no content" if dialect else ""
    yield f"{len(stream.body)} bytes in {reads}, {_duration(stream)} ms{token}"


def _duration(stream: Stream) -> int:
    reads = stream.exchange.reads
    return reads[-1].at_ms if reads else 0


def _plain(number: int, interaction: Interaction) -> dict[str, Any]:
    from stream_cassette.stream import Stream
    from stream_cassette.timeline import arrivals, events, names, plain

    from .choosing import contradictions, dialect_of

    exchange = interaction.exchange
    stream = Stream(exchange, interaction.dialect)
    dialect = dialect_of(stream)
    differences = contradictions(interaction)
    found = events(stream)
    timeline = [
        {
            "at_ms": arrival.at_ms,
            "reads": arrival.reads,
            "bytes": arrival.size,
            "inside": arrival.inside or None,
            "events": [
                {
                    "event": event.frame.event,
                    "data": event.frame.data,
                    "problem": event.frame.problem,
                    "says": [plain(*said) for said in zip(event.deltas, event.lanes, strict=True)],
                }
                for event in arrival.events
            ],
        }
        for arrival in arrivals(stream)
    ]
    return {
        "interaction": number,
        "test": interaction.test,
        "method": exchange.request.method,
        "url": exchange.request.url,
        "status": exchange.status,
        "content_type": exchange.header("content-type"),
        "dialect": dialect,
        "ending": exchange.ending.kind,
        "error": exchange.ending.error or None,
        "bytes": len(stream.body),
        "reads": len(exchange.reads),
        "events": len(found),
        "duration_ms": _duration(stream),
        "first_token_ms": stream.first_token_ms if dialect else None,
        "gaps_ms": list(stream.gaps_ms) if dialect else [],
        "assembled": None if interaction.assembled is None else "differs" if differences else "agrees",
        "differences": differences,
        "lanes": [
            {"lane": lane.number, "choice": lane.choice, "kind": lane.kind, "name": name}
            for lane, name in names(found).items()
        ],
        "timeline": timeline,
    }
