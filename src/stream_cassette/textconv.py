"""A cassette as a diff should show it: what is new with every recording (times, ids, fingerprints) stands still, and an event is a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .cassette import load
from .model import Interaction
from .stream import Stream
from .yamltext import dump

# What providers make up anew for every reply.
_TIMES = frozenset(
    {
        "created",
        "created_at",
        "completed_at",
        "createTime",
        "total_duration",
        "load_duration",
        "eval_duration",
        "prompt_eval_duration",
    }
)
_FINGERPRINTS = frozenset(
    {
        "system_fingerprint",
        "obfuscation",
        "p",
        "signature",
        "encrypted_content",
        "thoughtSignature",
        "thought_signature",
    }
)
_ID = re.compile(r"id|.*[a-z]_id|.*[a-z]Id")


def lines(path: Path) -> Iterator[str]:
    """The lines, without their ends. The errors are those of `load`."""
    still = _Still()
    for number, interaction in enumerate(load(path).interactions, 1):
        yield f"interaction {number}: {interaction.test or 'of no test'}"
        yield from (f"  {line}" for line in _interaction(interaction, still))


def _interaction(interaction: Interaction, still: _Still) -> Iterator[str]:
    exchange = interaction.exchange
    yield f"request: {exchange.request.method} {exchange.request.url}"
    yield from (f"  {name}: {value}" for name, value in exchange.request.headers)
    yield from (f"  {line}" for line in _request_body(exchange.request.body, still))
    ending = " ".join(filter(None, (exchange.ending.kind, exchange.ending.error)))
    yield f"response: {exchange.status}, {interaction.dialect or 'no known stream'}, {ending}"
    yield from (f"  {name}: {value}" for name, value in exchange.headers)
    for frame in Stream(exchange, interaction.dialect).frames:
        if frame.data is not None or frame.problem:
            event = "" if frame.event == "message" else f" {frame.event}"
            yield f"  event{event}: {still.text(frame.data or '')}{f' ({frame.problem})' if frame.problem else ''}"
    if interaction.assembled is not None:
        yield from dump({"assembled": still.value(dict(interaction.assembled))}, "").splitlines()


def _request_body(body: bytes, still: _Still) -> list[str]:
    try:
        value = still.value(json.loads(body))
        return dump({"body": value}, "").splitlines()
    except (ValueError, RecursionError):
        return [f"body: {body!r}"] if body else []


class _Still:
    """Gives every id a name by its order of first sight, the same in the request that sends it back."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def text(self, data: str) -> str:
        """JSON with its volatile values replaced, on one line; any other text as JSON would quote it, if it has lines."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return json.dumps(data, ensure_ascii=False) if "\n" in data or "\r" in data else data
        return json.dumps(self.value(value), ensure_ascii=False, separators=(", ", ": "))

    def value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.value(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, key) for inner in value]
        if value in (None, "", 0) or isinstance(value, bool):
            return value
        if key in _TIMES:
            return "<time>"
        if key in _FINGERPRINTS:
            return "<fingerprint>"
        if isinstance(value, str) and _ID.fullmatch(key):
            return self._ids.setdefault(value, f"<id {len(self._ids) + 1}>")
        return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
