"""`stream-cassette diff`"""

from __future__ import annotations

import argparse
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from stream_cassette.drift import Drift
    from stream_cassette.model import Interaction, Request

    from .terminal import Terminal

HELP = "compare two recordings of the same requests: did the wire shape change, or only what was said?"
EPILOG = """\
example:
  stream-cassette diff cassettes/test_agent/test_weather.yaml today.yaml

Interactions with equal requests (method, path, query and body; hosts may
differ) are compared, in recorded order; what is left, by position. Shape is
what a client may have to be adapted to: kinds of events, their fields and
types, the order of start, content, finish reason, usage and end mark, status,
content type, dialect, ending, errors. Ids, times, texts and the number of
pieces are none; what was said differently is printed beside it.

--json prints {drifted, pairs: [{recorded, now (interactions, from 1), method,
url, request: [how they differ], shape: [text], assembled: [text]}],
without_partner: {recorded: [interaction], now: [interaction]}}.

exit status: 0 no drift, 1 the shape drifted, 2 an error
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recorded", type=Path, metavar="A", help="the cassette as it was recorded; - is standard input")
    parser.add_argument("now", type=Path, metavar="B", help="the cassette to compare with it")
    parser.add_argument(
        "--interaction", type=int, metavar="N", help="only the Nth interaction of A, from 1, and its partner"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, see below")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two interactions by their places, from 0; how their requests differ, and their answers."""

    recorded: int
    now: int
    requests: tuple[str, ...]
    drift: Drift


def run(options: argparse.Namespace) -> int:
    from stream_cassette.errors import StreamCassetteError

    from .choosing import cassette, name_of, place_of
    from .terminal import print_json, terminal

    files = [(name_of(path), cassette(path)) for path in (options.recorded, options.now)]
    recorded, now = (found.interactions for _, found in files)
    places = partners([each.exchange.request for each in recorded], [each.exchange.request for each in now])
    alone = [_left(range(len(found)), side) for found, side in zip((recorded, now), _sides(places), strict=True)]
    if options.interaction is not None:
        chosen = place_of(files[0][1], options.interaction, files[0][0])
        places, alone = [each for each in places if each[0] == chosen], [[], []]
    if not places:
        raise StreamCassetteError(
            "there is nothing to compare: no interaction has a partner",
            where=" and ".join(name for name, _ in files),
            mend="give two recordings of the same requests; `stream-cassette show` tells what they hold",
        )
    pairs = [_pair(one, other, recorded[one], now[other]) for one, other in places]
    if options.json:
        print_json(_plain(pairs, recorded, alone))
    else:
        out = terminal()
        for pair in pairs:
            _show(pair, recorded[pair.recorded].exchange.request, out)
        for (name, found), missing in zip(files, alone, strict=True):
            for place in missing:
                told = _told(found.interactions[place].exchange.request)
                out.text(f"{name}: interaction {place + 1} has no partner: {told}", "yellow")
    return 1 if any(pair.drift for pair in pairs) else 0


def partners(recorded: Sequence[Request], now: Sequence[Request]) -> list[tuple[int, int]]:
    """The places, from 0, of requests that belong together: equal ones but for their hosts, each with the next; of the others the nth with the nth."""
    waiting: dict[Hashable, list[int]] = {}
    for place, request in enumerate(now):
        waiting.setdefault(_meaning(request), []).append(place)
    equal = [(place, same.pop(0)) for place, request in enumerate(recorded) if (same := waiting.get(_meaning(request)))]
    ones, others = _sides(equal)
    left = zip(_left(range(len(recorded)), ones), _left(range(len(now)), others), strict=False)
    return sorted([*equal, *left])


def _meaning(request: Request) -> Hashable:
    from stream_cassette.matching import fingerprint

    return fingerprint(replace(request, url=urlsplit(request.url)._replace(scheme="", netloc="").geturl()))


def _sides(places: Sequence[tuple[int, int]]) -> tuple[set[int], set[int]]:
    return {one for one, _ in places}, {other for _, other in places}


def _left(places: Iterable[int], taken: set[int]) -> list[int]:
    return [place for place in places if place not in taken]


def _pair(one: int, other: int, recorded: Interaction, now: Interaction) -> Pair:
    from stream_cassette.drift import drift
    from stream_cassette.matching import differences
    from stream_cassette.stream import Stream

    asked, asks = recorded.exchange.request, now.exchange.request
    requests = () if _meaning(asked) == _meaning(asks) else tuple(differences(asked, asks))
    found = drift(Stream(recorded.exchange, recorded.dialect), Stream(now.exchange, now.dialect))
    return Pair(one, other, requests, found)


def _told(request: Request) -> str:
    return f"{request.method} {request.url}"


def _show(pair: Pair, request: Request, out: Terminal) -> None:
    number = pair.recorded + 1
    places = f"interaction {number}" if pair.recorded == pair.now else f"interactions {number} and {pair.now + 1}"
    out.text(f"{places}: {_told(request)}", "bold")
    for line in pair.requests:
        out.text(f"another request: {line}", "yellow", indent="  ")
    for line in pair.drift.shape:
        out.text(f"shape: {line}", "red", indent="  ")
    if not pair.drift:
        out.text("the wire shape is the same", "green", indent="  ")
    for line in pair.drift.assembled or ["the reply is the same"]:
        out.text(line, "dim", indent="  ")


def _plain(pairs: Sequence[Pair], recorded: Sequence[Interaction], alone: Sequence[Sequence[int]]) -> dict[str, Any]:
    told = [
        {
            "recorded": pair.recorded + 1,
            "now": pair.now + 1,
            "method": recorded[pair.recorded].exchange.request.method,
            "url": recorded[pair.recorded].exchange.request.url,
            "request": pair.requests,
            **asdict(pair.drift),
        }
        for pair in pairs
    ]
    missing = {name: [place + 1 for place in places] for name, places in zip(("recorded", "now"), alone, strict=True)}
    return {"drifted": any(pair.drift for pair in pairs), "pairs": told, "without_partner": missing}
