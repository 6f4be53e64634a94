"""What the tests that ask an official SDK share: a reply in plain values, and a stream behind a loopback server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stream_cassette.model import Exchange, Read, Reply, Request, ToolCall
from stream_cassette.server import serve

CONTENT_TYPES = {
    ".sse": "text/event-stream",
    ".ndjson": "application/x-ndjson",
    ".bin": "application/vnd.amazon.eventstream",
    ".json": "application/json",
}


def value_of(arguments: str) -> Any:
    """The arguments as a value; those that are no JSON as they are."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def said(reply: Reply) -> dict[str, Any]:
    """Of a reply what every SDK shows: the text, the thoughts, the calls and the finish reason."""
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "calls": [(call.id, call.name, value_of(call.arguments_text)) for call in calls],
        "finish": reply.finish_reason,
    }


def counts(reply: Reply, *names: str) -> tuple[int | None, ...]:
    return tuple(getattr(reply.usage, name, None) for name in names)


@contextmanager
def served(body: bytes, content_type: str) -> Iterator[str]:
    """The address of a server that answers everything with `body`."""
    answer = Exchange(
        Request("POST", "http://x/"), 200, (("content-type", content_type),), (Read(0, body),) if body else ()
    )
    with serve(lambda request: answer, paced=False) as server:
        yield server.url


def corpus_streams(corpus: Any, api: str) -> Iterator[tuple[str, bytes, str]]:
    """Name, body and content type of every captured stream of one wire dialect."""
    rows = [row for row in json.loads((corpus / "index.json").read_text()) if row["api"] == api]
    assert rows
    for row in rows:
        path = corpus / row["file"]
        yield path.name, path.read_bytes(), CONTENT_TYPES[path.suffix]
