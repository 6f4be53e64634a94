"""Which recorded request answers a request: by method, URL and body. Both are given in their scrubbed form.

`ignore` holds paths of a JSON body that say nothing about the answer, as `ignored` makes them of text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from stream_cassette.errors import TapeError
from stream_cassette.model import Request
from stream_cassette.paths import GONE, Steps, changed, parse

_DEFAULT_PORTS = {"http": 80, "https": 443}
_MOST_LINES = 10
_MOST_CHARACTERS = 60
_ABSENT = object()


def ignored(paths: Iterable[str]) -> tuple[Steps, ...]:
    """The steps of `metadata.session`, `messages[*].id`, `**.id`; a leading `$.` or `body.`, as a difference has it, is left out.

    Raises `TapeError` for what is no path.
    """
    return tuple(_steps(path) for path in paths)


def _steps(path: str) -> Steps:
    try:
        steps = parse(re.sub(r"\A(?:\$|body)(?:\.|(?=\[))", "", path))
    except ValueError:
        steps = ()
    if steps:
        return steps
    raise TapeError(
        f"{path!r} is no path into a JSON body",
        where="ignore",
        mend="write it as a miss shows it: ignore=['metadata.session', 'messages[*].id']",
    )


def fingerprint(request: Request, ignore: Sequence[Steps] = ()) -> Hashable:
    """What identifies a request: two requests match exactly if their fingerprints are equal.

    The query counts as a multiset of pairs. A JSON body counts by meaning: neither key order nor white space nor escapes matter, but `1`, `1.0`
    and `true` are three values. A multipart body counts without its boundary, which clients draw at random. Any other body counts byte by byte.
    """
    url = urlsplit(request.url)
    return (request.method, *_place(url), tuple(sorted(_query(url))), _body(request, ignore))


def matches(recorded: Request, wanted: Request, ignore: Sequence[Steps] = ()) -> bool:
    """Whether the answer to `recorded` answers `wanted`."""
    return fingerprint(recorded, ignore) == fingerprint(wanted, ignore)


def differences(recorded: Request, wanted: Request, ignore: Sequence[Steps] = ()) -> list[str]:
    """What keeps two requests from matching, a line each and about ten at most; empty if they match.

    A line reads `body.messages[0].content: recorded 'x', now 'y'`; long values are cut around the place where they part.
    """
    return _limited(_request_differences(recorded, wanted, ignore))


def value_differences(name: str, recorded: Any, now: Any) -> list[str]:
    """Where two plain values (as JSON has them) differ, in lines as those of `differences`; `name` is what they are called."""
    return _limited(_value_differences(name, recorded, now))


def nearest(candidates: Iterable[Request], wanted: Request, ignore: Sequence[Steps] = ()) -> list[tuple[int, int]]:
    """The candidates as a person would compare `wanted` with them, the best first: (place among the candidates, number of differences).

    The same method and place come before the fewest differences, those before the first.
    """

    def distance(recorded: Request) -> tuple[bool, bool, int]:
        elsewhere = _place(urlsplit(recorded.url)) != _place(urlsplit(wanted.url))
        parted = sum(1 for _ in _request_differences(recorded, wanted, ignore))
        return (elsewhere, recorded.method != wanted.method, parted)

    ranked = sorted((distance(each), place) for place, each in enumerate(candidates))
    return [(place, parted) for (_, _, parted), place in ranked]


# ------------------------------------------------------------------------------------------------------------ what is compared


def _place(url: SplitResult) -> tuple[str, str, int | None, str]:
    return (url.scheme, url.hostname or "", url.port or _DEFAULT_PORTS.get(url.scheme), url.path or "/")


def _query(url: SplitResult) -> list[tuple[str, str]]:
    return parse_qsl(url.query, keep_blank_values=True)


def _body(request: Request, ignore: Sequence[Steps]) -> tuple[str, str | bytes]:
    parsed = _json(request.body, ignore)
    if parsed is not _ABSENT:
        # As text, because equality would take 1, 1.0 and True for the same, and NaN for different from itself.
        return ("json", json.dumps(parsed, sort_keys=True))
    return ("bytes", _without_boundary(request))


def _json(body: bytes, ignore: Sequence[Steps]) -> Any:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _ABSENT
    for steps in ignore:
        value = changed(value, steps, lambda _: GONE)
    return value


def _without_boundary(request: Request) -> bytes:
    content_type = next((value for name, value in request.headers if name == "content-type"), "")
    if not content_type.lower().startswith("multipart/"):
        return request.body
    boundary = re.search(r'boundary="?([^";]+)', content_type, re.IGNORECASE)
    return request.body.replace(boundary[1].strip().encode(), b"boundary") if boundary else request.body


# ------------------------------------------------------------------------------------------------------------ how it is told


def _request_differences(recorded: Request, wanted: Request, ignore: Sequence[Steps]) -> Iterator[str]:
    if recorded.method != wanted.method:
        yield _line("method", recorded.method, wanted.method)
    here, there = urlsplit(recorded.url), urlsplit(wanted.url)
    if _place(here) != _place(there):
        yield _line("url", here._replace(query="").geturl(), there._replace(query="").geturl())
    lost, added = Counter(_query(here)) - Counter(_query(there)), Counter(_query(there)) - Counter(_query(here))
    for name in sorted({name for name, _ in lost | added}):
        yield _line(f"query.{name}", _values(lost, name), _values(added, name))
    if _body(recorded, ignore) != _body(wanted, ignore):
        yield from _body_differences(recorded, wanted, ignore)


def _values(pairs: Counter[tuple[str, str]], name: str) -> Any:
    values = [value for key, value in pairs.elements() if key == name]
    return values[0] if len(values) == 1 else values or _ABSENT


def _body_differences(recorded: Request, wanted: Request, ignore: Sequence[Steps]) -> Iterator[str]:
    before, now = _json(recorded.body, ignore), _json(wanted.body, ignore)
    if before is not _ABSENT and now is not _ABSENT:
        yield from _value_differences("body", before, now)
    else:
        yield _line("body", _without_boundary(recorded), _without_boundary(wanted))


def _value_differences(name: str, recorded: Any, now: Any) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(now, dict):
        for key in [*recorded, *(key for key in now if key not in recorded)]:
            yield from _value_differences(f"{name}.{key}", recorded.get(key, _ABSENT), now.get(key, _ABSENT))
    elif isinstance(recorded, list) and isinstance(now, list):
        for index in range(max(len(recorded), len(now))):
            yield from _value_differences(f"{name}[{index}]", _item(recorded, index), _item(now, index))
    # Types too: 1, 1.0 and True are equal in Python. NaN is not equal to itself, but its text is.
    elif type(recorded) is not type(now) or (recorded != now and repr(recorded) != repr(now)):
        yield _line(name, recorded, now)


def _item(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else _ABSENT


def _line(name: str, recorded: Any, now: Any) -> str:
    before, after = _parted(recorded, now)
    return f"{name}: recorded {before}, now {after}"


def _parted(recorded: Any, now: Any) -> tuple[str, str]:
    before, after = (("nothing" if value is _ABSENT else repr(value)) for value in (recorded, now))
    same = next((index for index, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 0)
    # A long common beginning would fill the line and hide what differs.
    start = max(same - 20, 0) if max(len(before), len(after)) > _MOST_CHARACTERS else 0
    return _cut(before, start), _cut(after, start)


def _cut(text: str, start: int) -> str:
    end = start + _MOST_CHARACTERS
    return f"{'...' if start else ''}{text[start:end]}{'...' if len(text) > end else ''}"


def _limited(lines: Iterator[str]) -> list[str]:
    shown = list(islice(lines, _MOST_LINES))
    more = sum(1 for _ in lines)
    return [*shown, f"and {more} more"] if more else shown
