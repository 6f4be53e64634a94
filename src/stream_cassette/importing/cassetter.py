"""Cassettes of cassetter, YAML and TOML (https://github.com/Kludex/cassetter, "Cassette format")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..cassette.writing import json_bytes
from ..jsontext import parse
from .entries import Entry, Kept, LeftOut, Source, Unfit, entries, grouped, moment, part, request_of, status_of

_OTHERS = {
    "ws_interactions": ("WebSocket interaction", "a WebSocket is no HTTP exchange"),
    "grpc_interactions": ("gRPC interaction", "gRPC is no HTTP exchange"),
}


def recognises(source: Source) -> bool:
    match source.value:
        case {"interactions": [{"response": {"body": {"type": _}} | {"body_type": _}}, *_]}:
            return True
        case {"version": 1, "ws_interactions": _} | {"version": 1, "grpc_interactions": _}:
            return True
        case _:
            return False


def read(source: Source) -> Iterator[Entry]:
    yield from entries("interaction", _listed(source, "interactions"), _kept)
    for key, (what, why) in _OTHERS.items():
        for number, _ in enumerate(_listed(source, key), 1):
            yield LeftOut(f"{what} {number}", why)


def _listed(source: Source, key: str) -> list[Any]:
    found = source.value.get(key)
    return found if isinstance(found, list) else []


def _kept(place: str, item: Any) -> Kept:
    asked, answered = part(item, "request", dict), part(item, "response", dict)
    headers = grouped(asked.get("headers") or {})
    request = request_of(part(asked, "method", str), part(asked, "uri", str), headers, _body(asked))
    status, headers = status_of(answered.get("status")), grouped(answered.get("headers") or {})
    return Kept(place, request, status, headers, _body(answered), moment(item.get("recorded_at")))


def _body(of: Mapping[str, Any]) -> bytes:
    """TOML has no null, so there the content of a JSON body is JSON text."""
    body = part(of, "body", dict) if of.get("body") else {}
    kind, content = of.get("body_type", body.get("type")), of.get("body_content", body.get("content"))
    try:
        match kind, content:
            case "none" | None, _:
                return b""
            case "text", str():
                return content.encode(errors="surrogatepass")
            case "binary", str():
                return bytes.fromhex(content)
            case "json", _:
                return json_bytes(parse(content) if "body_content" in of else content)
    except ValueError as error:
        raise Unfit(f"its body is no {kind}: {error}") from None
    raise Unfit(f"its body is of the kind {kind!r}")
