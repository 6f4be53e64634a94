"""A file with one response: its body, as `curl -N` prints it, or headers before it, as `curl -i` does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import CassetteError
from ..framing import Sniffer
from ..jsontext import parse
from ..model import Headers
from .entries import Entry, Kept, Source, Unfit, request_of, status_of

_STATUS_LINE = re.compile(rb"HTTP/[0-9.]+ ([0-9]{3})[^\r\n]*\r?\n")
_HEADER = re.compile(rb"([^\s:]+):[ \t]*([^\r\n]*)\r?\n")
_BLANK = re.compile(rb"\r?\n")
_SSE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:(?:data|event|id|retry)(?::|\r|\n)|:)")


def recognises(source: Source) -> bool:
    """A JSON value is only a body where the user says whose: it is anything else as well."""
    if source.value is not None:
        return isinstance(source.value, dict | list) and bool(source.facts.url) and source.data.lstrip()[:1] in b"{["
    return bool(_STATUS_LINE.match(source.data) or _SSE.match(source.data)) or _frames_well(source.data)


def _frames_well(data: bytes) -> bool:
    sniffer = Sniffer()
    frames = [*sniffer.feed(data), *sniffer.close()]
    said = [frame for frame in frames if frame.data is not None]
    return sniffer.framing != "sse" and bool(said) and all(frame.problem is None for frame in said)


def read(source: Source) -> Iterator[Entry]:
    """One exchange. Raises `CassetteError` where nobody says what was asked for."""
    facts = source.facts
    if not facts.url:
        raise CassetteError(
            "a response by itself does not say what was asked for",
            where=source.name,
            mend="say it: --url https://... (and --method, --request-body FILE)",
        )
    before, status, headers, body = _opened(source.data)
    if facts.content_type or not any(name == "content-type" for name, _ in headers):
        rest = [pair for pair in headers if pair[0] != "content-type"]
        headers = (*rest, ("content-type", facts.content_type or _content_type(body)))
    asked = (("content-type", "application/json"),) if _is_json(facts.request_body) else ()
    try:
        request = request_of(facts.method, facts.url, asked, facts.request_body)
        status = status_of(facts.status or status)
    except Unfit as error:
        raise CassetteError(str(error), where=facts.url, mend="give it as the client asks for it") from None
    remark = f"what came before the last response is passed over: {', '.join(map(str, before))}" if before else ""
    yield Kept("the response", request, status, headers, body, remark=remark)


def _opened(data: bytes) -> tuple[list[int], int, Headers, bytes]:
    """The statuses before the last response (100 Continue, a proxy's 200, redirects: none has a body here), and that: status, headers, body."""
    statuses: list[int] = []
    headers: Headers = ()
    at = 0
    while line := _STATUS_LINE.match(data, at):
        found, at = [], line.end()
        while header := _HEADER.match(data, at):
            found.append((header[1].decode("latin-1").lower(), header[2].decode("latin-1").strip()))
            at = header.end()
        if blank := _BLANK.match(data, at):
            at = blank.end()
        statuses.append(int(line[1]))
        headers = tuple(found)
    return statuses[:-1], statuses[-1] if statuses else 200, headers, data[at:]


def _content_type(body: bytes) -> str:
    sniffer = Sniffer()
    frames = [*sniffer.feed(body), *sniffer.close()]
    if sniffer.framing == "eventstream":
        return "application/vnd.amazon.eventstream"
    if sniffer.framing == "sse":
        return "text/event-stream"
    return "application/json" if len(frames) < 2 or body.lstrip()[:1] == b"[" else "application/x-ndjson"


def _is_json(body: bytes) -> bool:
    try:
        return bool(body) and parse(body) is not None
    except ValueError:
        return False
