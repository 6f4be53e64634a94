"""What never reaches a file: headers outside the allow-lists, and whatever looks like a secret, in requests and responses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ..errors import TapeError
from ..model import Exchange, Headers, Read, Request
from . import requests
from .bodies import scrub_body, scrub_reads
from .names import RESPONSE_HEADERS, is_secret_field, is_secret_header
from .pages import Page, strings_in
from .patterns import KINDS, PLACEHOLDER, Kind, is_harmless
from .search import NO_MORE, Secrets, is_replaced, secrets_of

__all__ = [
    "KINDS",
    "NO_MORE",
    "PLACEHOLDER",
    "Kind",
    "Redaction",
    "Scrubbing",
    "Secrets",
    "is_harmless",
    "is_replaced",
    "is_secret_field",
    "is_secret_header",
    "scrub",
    "scrub_body",
    "scrub_request",
    "scrub_value",
    "scrubbed",
    "secrets_of",
    "strings_in",
    "summary",
]

_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Redaction:
    """A secret that was replaced: what it was and where it stood, never itself."""

    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.place}"


def scrub(exchange: Exchange, secrets: Secrets = NO_MORE) -> Exchange:
    """The exchange as a file may hold it. Scrubbing twice changes nothing more; status, times and the sizes of reads are never touched."""
    return scrubbed(exchange, secrets)[0]


def scrubbed(
    exchange: Exchange, secrets: Secrets = NO_MORE, keep: frozenset[str] = frozenset()
) -> tuple[Exchange, tuple[Redaction, ...]]:
    """The exchange as a file may hold it, and what was replaced. Headers outside the allow-lists are left out and not reported; `keep` names, in
    lower case, those of the response that stay too."""
    request, found = requests.scrub_request(exchange.request, secrets)
    headers = _headers(exchange.headers, secrets, found, RESPONSE_HEADERS | keep)
    sent = [read.data for read in exchange.reads]
    kept, hidden = scrub_reads(sent, secrets, exchange.request.url, exchange.header("content-type") or "")
    found += [(each.kind, f"response body{each.frames}") for each in hidden]
    reads = exchange.reads if kept is sent else _with(kept, exchange.reads)
    return replace(exchange, request=request, headers=headers, reads=reads), tuple(Redaction(*each) for each in found)


def scrub_request(request: Request, secrets: Secrets = NO_MORE) -> Request:
    """The request as a file may hold it, which is also the form in which requests are matched.

    Headers outside the allow-list go. A secret parameter or field becomes `REDACTED`, any other secret `REDACTED-` and its kind. A JSON body is
    written compactly, as httpx sends it.
    """
    return requests.scrub_request(request, secrets)[0]


# Equal requests come again and again: of a test and its recording, and of every item of a test with mutators.
_SMALL = 1 << 16
_kept = lru_cache(maxsize=256)(scrub_request)


@dataclass(frozen=True, slots=True)
class Scrubbing:
    """How one tape scrubs: the kinds it looks for, `keep` (the response headers that stay besides those of the allow-list, in lower case), and `last`,
    the user's function that has the last hand on an exchange before the file.

    `last` gives the exchange back, changed or not, or None to leave it as it is. It is shown every request before that is matched as well, as an
    exchange with the status 0 and nothing else in it, so that what it changes in requests is changed on both sides.
    """

    secrets: Secrets = NO_MORE
    last: Callable[[Exchange], Exchange | None] | None = None
    keep: frozenset[str] = frozenset()

    def exchange(self, exchange: Exchange) -> tuple[Exchange, tuple[Redaction, ...]]:
        """As `scrubbed`; then the last hand. Raises `TapeError` where that gives something else back."""
        clean, found = scrubbed(exchange, self.secrets, self.keep)
        return self._finished(clean), found

    def request(self, request: Request) -> Request:
        """A request as it would be stored."""
        return self._finished(Exchange(self.stored(request), 0, (), ())).request

    def stored(self, request: Request) -> Request:
        """A request that a file holds: the last hand was on it already."""
        return (_kept if len(request.body) <= _SMALL else scrub_request)(request, self.secrets)

    def _finished(self, exchange: Exchange) -> Exchange:
        changed = self.last(exchange) if self.last else None
        if changed is not None and not isinstance(changed, Exchange):
            raise TapeError(
                f"scrubbing gave back {type(changed).__name__}, not an Exchange",
                where=getattr(self.last, "__qualname__", "scrub"),
                mend="return the exchange, changed with dataclasses.replace, or None",
            )
        return changed or exchange


def summary(found: Iterable[Redaction]) -> str:
    """What was replaced, in a few words; empty for nothing."""
    counts = Counter(map(str, found))
    if not counts:
        return ""
    shown = [f"{said} ({count} times)" if count > 1 else said for said, count in counts.items()]
    more = [f"and {len(shown) - _MOST_SHOWN} more"] if len(shown) > _MOST_SHOWN else []
    number = counts.total()
    return f"{number} secret{'s' * (number > 1)} replaced: {', '.join([*shown[:_MOST_SHOWN], *more])}"


def scrub_value(value: Any, secrets: Secrets = NO_MORE) -> Any:
    """A plain value, made of a reply, as the replay of the scrubbed recording would make it: stars over secrets."""
    match value:
        case str():
            page = Page(value)
            return page.painted() if page.search(secrets) else value
        case list():
            return [scrub_value(inner, secrets) for inner in value]
        case Mapping():
            return {scrub_value(key, secrets): _field(key, inner, secrets) for key, inner in value.items()}
        case _:
            return value


def _field(name: Any, value: Any, secrets: Secrets) -> Any:
    if not isinstance(value, str) or not is_secret_field(str(name)):
        return scrub_value(value, secrets)
    # Judged as the body was, where the name stood before the value.
    lead = f'"{name}":'
    return "*" * len(value) if any(hit.end > len(lead) for hit in secrets.find(f'{lead}"{value}"')) else value


def _headers(headers: Headers, secrets: Secrets, found: list[tuple[str, str]], allowed: frozenset[str]) -> Headers:
    scrubber = requests.Scrubber(secrets, found)
    out: list[tuple[str, str]] = []
    for name, value in headers:
        if name.lower() in allowed:
            scrubber.place = f"response header {name}"
            out.append((name, _header(name.lower(), value, scrubber)))
    return tuple(out)


def _header(name: str, value: str, scrubber: requests.Scrubber) -> str:
    match name:
        case _ if is_secret_header(name):
            return scrubber.named(value, f"header {name}")
        case "location":
            return scrubber.url(value)
        case "link":  # <https://example.org/?page=2>; rel="next", <...>
            return re.sub(r"<([^>]*)>", lambda link: f"<{scrubber.url(link[1])}>", value)
        case _:
            return scrubber.text(value)


def _with(data: Sequence[bytes], reads: Sequence[Read]) -> tuple[Read, ...]:
    """The reads with this data."""
    pairs = zip(reads, data, strict=True)
    return tuple(read if read.data is each else read._replace(data=each) for read, each in pairs)
