"""What the readers of others' files give: exchanges as they were kept, their bodies whole; and what is none, told by its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..model import Headers, Request

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a file with nothing but a response does not say: `status` and `content_type` only where they differ from what it says, or it does not."""

    url: str = ""
    method: str = "POST"
    request_body: bytes = b""
    status: int | None = None
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """A file: `name` for errors, its bytes, the plain value it holds where it is YAML, TOML or JSON (else None), and what the user says of it."""

    name: str
    data: bytes
    value: Any
    facts: Facts


@dataclass(frozen=True, slots=True)
class Kept:
    """An exchange as the file has it. `place` as one counts in that file, `at` when it was recorded, if it says so.

    `lasted_ms`: the body ended so many milliseconds after the headers; 0 where nobody knows. `remark`: what a person should know about it.
    """

    place: str
    request: Request
    status: int
    headers: Headers
    body: bytes
    at: datetime | None = None
    lasted_ms: int = 0
    remark: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What cannot be a recorded exchange, and why."""

    place: str
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


Entry = Kept | LeftOut


class Unfit(Exception):
    """The entry is no exchange that a cassette can hold; the text says why."""


def entries(what: str, items: Iterable[Any], build: Callable[[str, Any], Kept]) -> Iterator[Entry]:
    """What `build` makes of each item; `what` and a number from 1 are its place."""
    for number, item in enumerate(items, 1):
        place = f"{what} {number}"
        try:
            yield build(place, item)
        except Unfit as error:
            yield LeftOut(place, str(error))


def part(of: Any, name: str, kind: type[T]) -> T:
    """The value of the key `name`, which must be a `kind`. Raises `Unfit`."""
    value = of.get(name) if isinstance(of, Mapping) else None
    if not isinstance(value, kind):
        raise Unfit(f"it has no {name}" if value is None else f"its {name} is no {kind.__name__}")
    return value


def request_of(method: str, url: str, headers: Headers, body: bytes) -> Request:
    """Raises `Unfit` for what is no HTTP URL."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - it is looked at whenever the request is matched
    except ValueError as error:
        raise Unfit(f"its URL is none: {error}") from None
    if parts.scheme in ("ws", "wss"):
        raise Unfit("a WebSocket is no HTTP exchange")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unfit(f"{parts.scheme or 'no scheme'}: is no HTTP URL" if parts.scheme else "it has no absolute HTTP URL")
    return Request(method.upper(), url, headers, body)


def status_of(value: Any) -> int:
    """Raises `Unfit` for what is no HTTP status."""
    if isinstance(value, bool) or not isinstance(value, int) or not 100 <= value <= 999:
        raise Unfit("no response came" if value == 0 else f"its status is no HTTP status: {value!r}")
    return value


def grouped(headers: Any) -> Headers:
    """Headers by name, each with a value or a list of them. Raises `Unfit`."""
    if not isinstance(headers, Mapping):
        raise Unfit("its headers are no mapping")
    return tuple(
        (str(name).lower(), _header(value))
        for name, values in headers.items()
        for value in (values if isinstance(values, list) else [values])
    )


def _header(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else "" if value is None else str(value)


def moment(text: Any) -> datetime | None:
    """An ISO 8601 time, in UTC; None for anything else."""
    try:
        return in_utc(datetime.fromisoformat(text))
    except (TypeError, ValueError, OverflowError):
        return None


def in_utc(when: datetime) -> datetime:
    """A time without a zone is taken for one in UTC."""
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
