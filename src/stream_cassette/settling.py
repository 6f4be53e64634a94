"""Recording again what did not change: an old interaction stays where the new one says the same, so that a person reviews only what is new."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stream_cassette.matching import fingerprint
from stream_cassette.model import Exchange, Headers, Interaction, Read, Request
from stream_cassette.paths import Steps
from stream_cassette.redact import scrub_request
from stream_cassette.stream import Stream, assembled

# What differs from one answer to the next although they say the same: times, and what is drawn at random.
_NOISE = frozenset(
    {
        "completed_at",
        "completion_time",
        "created",
        "createdAt",
        "createTime",
        "created_at",
        "encrypted_content",
        "eval_duration",
        "expires_at",
        "latencyMs",
        "load_duration",
        "obfuscation",
        "p",  # Bedrock's padding
        "prompt_eval_duration",
        "prompt_time",
        "queue_time",
        "signature",
        "system_fingerprint",
        "thoughtSignature",
        "thought_signature",
        "timestamp",
        "total_duration",
        "total_time",
    }
)
_ID_KEY = re.compile(r"id|.+_id|.+Id")
# Outside of a stream, where nothing else tells an id from the name of a model: the providers' prefixes, UUIDs and long random words.
_ID = re.compile(
    r"(?:asst|batch|call|chat|chatcmpl|cmpl|evt|fc|file|gen|item|msg|req|resp|rs|run|thread|toolu?|srvtoolu|ws)[-_].+"
    r"|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|(?=.*[0-9])[0-9A-Za-z]{16,}"
)
_NOISE_HEADERS = frozenset({"retry-after", "retry-after-ms"})
_MEMBER = re.compile(rb'"(\w+)"(\s*:\s*)(?:"([^"\\]*)"|([0-9]+))')

Names = dict[str, str]
"""New ids and the old ones that stand for them."""


def settled(
    old: Sequence[Interaction],
    new: Sequence[Interaction],
    ignore: Sequence[Steps] = (),
    stored: Callable[[Request], Request] = scrub_request,
) -> tuple[Interaction, ...]:
    """The interactions `new` as they are to take the place of `old`, with as much of `old` as says the same.

    `stored` gives a request of `old` as it would be stored today. An id that stays the old one does so in the requests that follow, too: the code under test will be given the old one and send it back.
    """
    left = [(place, fingerprint(stored(each.exchange.request), ignore)) for place, each in enumerate(old)]
    names: Names = {}
    found: list[tuple[int | None, Interaction]] = []
    for each in new:
        each = _renamed(each, names)
        wanted = fingerprint(each.exchange.request, ignore)
        match = next((pair for pair in left if pair[1] == wanted), None)
        if match is None:
            found.append((None, each))
            continue
        left.remove(match)
        found.append((match[0], _settled(old[match[0]], each, names)))
    places = [place for place, _ in found if place is not None]
    if len(places) == len(found) == len(old):
        # Concurrent requests come in any order.
        return tuple(
            each for _, each in sorted(zip(places, (each for _, each in found), strict=True), key=lambda pair: pair[0])
        )
    return tuple(each for _, each in found)


def _settled(old: Interaction, new: Interaction, names: Names) -> Interaction:
    """One of two interactions with the same request; `names` learns which ids stay."""
    before, after = old.exchange, new.exchange
    request = before.request if before.request.headers == after.request.headers else after.request
    if _headers(before.headers) == _headers(after.headers):
        after = replace(after, headers=before.headers)
    facts = [(each.status, each.ending, each.was, each.headers) for each in (before, after)]
    learned: Names = {}
    if facts[0] == facts[1] and old.dialect == new.dialect and _same_body(old, new, learned):
        names.update(learned)
        return replace(old, exchange=replace(before, request=request), assembled=_assembled(old))
    return _in_part(old, replace(new, exchange=replace(after, request=request)), names)


def _headers(headers: Headers) -> list[tuple[str, str]]:
    return sorted(pair for pair in headers if pair[0] not in _NOISE_HEADERS)


def _assembled(interaction: Interaction) -> dict[str, Any] | None:
    if interaction.dialect is None:
        return None
    return assembled(Stream(interaction.exchange, interaction.dialect).reply)


# ---------------------------------------------------------------------------------------------------------- what is the same


def _same_body(old: Interaction, new: Interaction, names: Names) -> bool:
    if old.exchange.body == new.exchange.body:
        return True
    before, after = _payloads(old), _payloads(new)
    if before is None or after is None or not _same(before, after, "", names, streamed=old.dialect is not None):
        return False
    if len(set(names.values())) < len(names):
        return False
    # Guards what looks like noise and is said by the model: an `id` among the arguments of a call.
    return bool(_without_ids(_assembled(old)) == _without_ids(_assembled(new)))


def _payloads(interaction: Interaction) -> list[Any] | None:
    """What is said, event by event; keep-alives come as time goes by. None where it is not JSON."""
    if interaction.dialect is None:
        try:
            return [json.loads(interaction.exchange.body)]
        except (ValueError, RecursionError):
            return None
    payloads = Stream(interaction.exchange, interaction.dialect).payloads
    return [each for each in payloads if not (isinstance(each, dict) and each.get("type") == "ping")]


def _same(old: Any, new: Any, key: str, names: Names, *, streamed: bool) -> bool:
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(
            _same(old[each], new[each], each, names, streamed=streamed) for each in old
        )
    if isinstance(old, list):
        pairs = zip(old, new, strict=False)
        return len(old) == len(new) and all(_same(one, other, key, names, streamed=streamed) for one, other in pairs)
    if old == new or repr(old) == repr(new):
        return True
    if _is_id(key, old, new, streamed):
        # One id for another all the way, or two that were different would become the same.
        return names.setdefault(str(new), str(old)) == str(old)
    return key in _NOISE


def _is_id(key: str, old: Any, new: Any, streamed: bool) -> bool:
    if not (isinstance(old, str) and old and new and _ID_KEY.fullmatch(key)):
        return False
    return streamed or bool(_ID.fullmatch(old) and _ID.fullmatch(new))


def _without_ids(value: Mapping[str, Any] | None) -> Any:
    """What was assembled, without the ids of the tool calls."""
    kinds = ("tool_calls", "incomplete_tool_calls")
    return value and {
        name: [{key: each[key] for key in each if key != "id"} for each in said] if name in kinds else said
        for name, said in value.items()
    }


# ------------------------------------------------------------------------------------------------------------ what can be kept


def _renamed(interaction: Interaction, names: Names) -> Interaction:
    """With the old ids in the request, where it sends back what earlier responses gave it."""
    request = interaction.exchange.request
    url = "/".join(names.get(part, part) for part in request.url.split("/"))
    renamed = replace(request, url=url, body=_renamed_body(request.body, names))
    return replace(interaction, exchange=replace(interaction.exchange, request=renamed))


def _renamed_body(body: bytes, names: Names) -> bytes:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if _compact(value) != body:
        return body
    return _compact(_with_names(value, names))


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _with_names(value: Any, names: Names) -> Any:
    if isinstance(value, dict):
        return {key: _with_names(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_names(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value


def _in_part(old: Interaction, new: Interaction, names: Names) -> Interaction:
    """The new interaction with the old ids and times where those fit exactly, byte for byte."""
    learned: Names = {}
    times: dict[tuple[str, str], str] = {}
    if old.dialect is not None and old.dialect == new.dialect:
        for one, other in zip(_payloads(old) or (), _payloads(new) or (), strict=False):
            _learn(one, other, "", learned, times)
    exchange = _with_old_times(old.exchange, _with_old_words(new.exchange, learned, times))
    kept = replace(new, exchange=exchange)
    kept = replace(kept, assembled=_assembled(kept))
    if _without_ids(kept.assembled) != _without_ids(new.assembled):
        return new
    names.update(learned)
    return kept


def _learn(old: Any, new: Any, key: str, names: Names, times: dict[tuple[str, str], str]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        for each in old.keys() & new.keys():
            _learn(old[each], new[each], each, names, times)
    elif isinstance(old, list) and isinstance(new, list):
        for one, other in zip(old, new, strict=False):
            _learn(one, other, key, names, times)
    elif type(old) is type(new) and old != new and len(str(old).encode()) == len(str(new).encode()):
        if key in _NOISE:
            times.setdefault((key, str(new)), str(old))
        elif isinstance(old, str) and _ID_KEY.fullmatch(key) and old not in names.values():
            names.setdefault(new, old)


def _with_old_words(exchange: Exchange, names: Names, times: Mapping[tuple[str, str], str]) -> Exchange:
    """Every id and time that is learned, by one of the same length; so the reads are cut where they were."""

    def put_back(match: re.Match[bytes]) -> bytes:
        key, value = match[1].decode(), (match[3] or match[4] or b"").decode(errors="replace")
        old = names.get(value, value) if _ID_KEY.fullmatch(key) else times.get((key, value), value)
        start, end = match.span(3) if match[3] is not None else match.span(4)
        return (
            match[0][: start - match.start()] + old.encode() + match[0][end - match.start() :]
            if old != value
            else match[0]
        )

    body = _MEMBER.sub(put_back, exchange.body)
    ends = itertools.accumulate(len(read.data) for read in exchange.reads)
    cut = [Read(read.at_ms, body[end - len(read.data) : end]) for read, end in zip(exchange.reads, ends, strict=True)]
    return replace(exchange, reads=tuple(cut))


def _with_old_times(old: Exchange, new: Exchange) -> Exchange:
    """As long as the reads are as long as they were, they come when they came; the rest follows as it did."""
    shared = sum(
        1
        for _ in itertools.takewhile(
            lambda pair: len(pair[0].data) == len(pair[1].data), zip(old.reads, new.reads, strict=False)
        )
    )
    if not shared:
        return new
    shift = old.reads[shared - 1].at_ms - new.reads[shared - 1].at_ms
    return replace(new, reads=tuple(_timed(old.reads[:shared], new.reads, shift)))


def _timed(old: Sequence[Read], new: Sequence[Read], shift: int) -> Iterator[Read]:
    for place, read in enumerate(new):
        yield read._replace(at_ms=old[place].at_ms if place < len(old) else read.at_ms + shift)
