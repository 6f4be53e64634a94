"""HTTP archives, HAR 1.2 (http://www.softwareishard.com/blog/har-12-spec/), as browsers and proxies export them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from ..model import Headers
from .entries import Entry, Kept, Source, Unfit, entries, moment, part, request_of, status_of

_BODILESS = (204, 304)
_LONGEST = 1e9  # milliseconds
_BOM = 3  # bytes, which are part of the body and not of its text


def recognises(source: Source) -> bool:
    match source.value:
        case {"log": {"entries": list()}}:
            return True
        case _:
            return False


def read(source: Source) -> Iterator[Entry]:
    yield from entries("entry", source.value["log"]["entries"], _kept)


def _kept(place: str, item: Any) -> Kept:
    asked, answered = part(item, "request", dict), part(item, "response", dict)
    if item.get("_resourceType") == "websocket" or "_webSocketMessages" in item:
        raise Unfit("a WebSocket is no HTTP exchange")
    request = request_of(part(asked, "method", str), part(asked, "url", str), _headers(asked), _asked(asked))
    if error := item.get("_error") or answered.get("_error"):
        raise Unfit(f"the response did not come, or not whole: {error}")
    status = status_of(answered.get("status"))
    bodiless = request.method == "HEAD" or status in _BODILESS
    body = b"" if bodiless else _answered(part(answered, "content", dict))
    at, lasted = moment(item.get("startedDateTime")), _lasted(item.get("timings"))
    return Kept(place, request, status, _headers(answered), body, at, lasted)


def _lasted(timings: Any) -> int:
    match timings:
        case {"receive": int(time) | float(time)} if 0 < time < _LONGEST:
            return round(time)
        case _:
            return 0  # -1 says that it does not apply


def _headers(of: Mapping[str, Any]) -> Headers:
    return tuple((part(each, "name", str).lower(), part(each, "value", str)) for each in part(of, "headers", list))


def _asked(asked: Mapping[str, Any]) -> bytes:
    match asked.get("postData"):
        case dict(data) if "text" in data:
            return _text(data)
        case {"params": [*fields], "mimeType": str(kind)} if fields and "urlencoded" in kind:
            return urlencode([(part(each, "name", str), each.get("value", "")) for each in fields]).encode()
        case data:
            if data or (isinstance(asked.get("bodySize"), int) and asked["bodySize"] > 0):
                raise Unfit("the archive leaves the body of the request out")
            return b""


def _answered(content: Mapping[str, Any]) -> bytes:
    size = content.get("size")
    if content.get("text") is None:
        if size == 0:
            return b""
        raise Unfit("the archive leaves the body of the response out (export it with content)")
    body = _text(content)
    missing = size - len(body) if isinstance(size, int) else 0
    if missing > 0 and missing != _BOM and "utf-16" not in str(content.get("mimeType")).lower():
        raise Unfit(f"the archive has {len(body)} of the {size} bytes of the body")
    return body


def _text(of: Mapping[str, Any]) -> bytes:
    """Text, which the archive has without compression; with an encoding it is any bytes."""
    text = part(of, "text", str)
    match of.get("encoding"):
        case None | "":
            return text.encode(errors="surrogatepass")
        case "base64":
            try:
                return base64.b64decode(text)
            except ValueError as error:
                raise Unfit(f"its body is not base64: {error}") from None
        case encoding:
            raise Unfit(f"its body has the encoding {encoding!r}")
