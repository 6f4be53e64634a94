"""Cassettes of VCR.py and pytest-recording, format 1, of its YAML and its JSON serializer, and of serializers that keep JSON as `parsed_body`.

What their versions wrote is told by https://github.com/kevin1024/vcrpy (serialize.py, serializers/, stubs/).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from ..cassette.writing import json_bytes
from .entries import Entry, Kept, Source, Unfit, entries, grouped, part, request_of, status_of


def recognises(source: Source) -> bool:
    match source.value:
        case {"interactions": [{"response": {"status": int(), "body": {"type": _}} | {"body_type": _}}, *_]}:
            return False  # of cassetter
        case {"interactions": list(), "version": 1} | {"interactions": [{"request": _, "response": _}, *_]}:
            return "format" not in source.value
        case _:
            return False


def read(source: Source) -> Iterator[Entry]:
    yield from entries("interaction", source.value["interactions"], _kept)


def _kept(place: str, item: Any) -> Kept:
    asked, answered = part(item, "request", dict), part(item, "response", dict)
    body = json_bytes(asked["parsed_body"]) if "parsed_body" in asked else _bytes(asked.get("body"))
    request = request_of(part(asked, "method", str), part(asked, "uri", str), grouped(asked.get("headers") or {}), body)
    # `status_code` and `content` are those of httpx responses before VCR.py 6.
    old = "status_code" in answered
    status = answered["status_code"] if old else part(answered, "status", dict).get("code")
    headers = grouped(answered.get("headers") or {})
    return Kept(place, request, status_of(status), headers, _bytes(answered.get("content")) if old else _body(answered))


def _body(answered: Mapping[str, Any]) -> bytes:
    if "parsed_body" in answered:
        return json_bytes(answered["parsed_body"])
    match answered.get("body"):
        case {"base64_string": str(text)}:
            try:
                return base64.b64decode(text)
            except ValueError as error:
                raise Unfit(f"its body is not base64: {error}") from None
        case dict(body):
            return _bytes(body.get("string"))
        case body:
            return _bytes(body)


def _bytes(value: Any) -> bytes:
    """A body: none, text, bytes, or the pieces that an iterator gave."""
    match value:
        case None:
            return b""
        case str():
            return value.encode(errors="surrogatepass")
        case bytes():
            return value
        case list():
            return b"".join(map(_bytes, value))
        case _:
            raise Unfit(f"its body is neither text nor bytes, but {type(value).__name__}")
