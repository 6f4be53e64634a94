"""Publicly reported faults and captured streams: what a correct reader makes of each, whole and cut anywhere.

A case that is new in the data files is a new test without code. Compared is what `expected` gives; fields on which careful readers differ are listed
in `ambiguous`, further right values in `accept`.
"""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stream_cassette import assemble
from stream_cassette.dialects import DIALECTS
from stream_cassette.errors import UnknownDialect
from stream_cassette.model import Reply, ToolCall

CASES: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "cases.jsonl").read_text("utf-8").splitlines()
]
APIS = {speaker.name for speaker in DIALECTS}
# What a case calls a dialect, where we call it otherwise. "sse" and "http" carry chat chunks.
ALIASES = {"anthropic-messages": "anthropic", "sse": "openai-chat", "http": "openai-chat", "ollama-ndjson": "ollama"}
# Codes that must show as an error or as an incomplete reply; the others are remarks.
MUST_SHOW = {
    "provider_error",
    "provider_block",
    "truncated",
    "bad_event",
    "checksum",
    "empty_stream",
    "missing_finish_reason",
}


def wire(case: dict[str, Any]) -> bytes:
    return (
        base64.b64decode(case["wire"])
        if case.get("wire_encoding") == "base64"
        else case["wire"].encode("utf-8", "surrogatepass")
    )


def reads(case: dict[str, Any]) -> list[bytes]:
    body, cuts = wire(case), case.get("splits") or []
    edges = [0, *(range(1, len(body)) if cuts == "every" else cuts), len(body)]
    return [body[a:b] for a, b in pairwise(edges)]


def same_arguments(expected: str, got: str) -> bool:
    if expected == got or {expected or "{}", got or "{}"} == {"{}"}:
        return True
    try:
        return bool(json.loads(expected) == json.loads(got))
    except ValueError:
        return False


def check_calls(expected: list[dict[str, Any]], reply: Reply, *, arguments: bool = True) -> None:
    got = [part for part in reply.parts if isinstance(part, ToolCall)]
    assert [(call["id"], call["name"], call["index"]) for call in expected] == [
        (call.id, call.name, call.index) for call in got
    ]
    for want, call in zip(expected, got, strict=True):
        text = want.get("raw_arguments", want["arguments"])
        assert not arguments or same_arguments(text, call.arguments_text)
        if call.problem is None and call.kind == "function":
            assert isinstance(json.loads(call.arguments_text or "{}"), dict), (
                "a call that is no JSON object may not run"
            )


def check(entry: dict[str, Any], reply: Reply) -> None:
    expected, accept, ambiguous = entry["expected"], entry.get("accept", {}), entry.get("ambiguous", [])
    for name, default in (
        ("text", ""),
        ("reasoning", ""),
        ("refusal", None),
        ("finish_reason", None),
        ("complete", None),
    ):
        if name in expected and name not in ambiguous:
            want = expected[name] if expected[name] != "" else default
            assert getattr(reply, name) in [want, *accept.get(name, [])], name
    if "tool_calls" not in ambiguous:
        check_calls(expected.get("tool_calls", []), reply, arguments="tool_calls[].arguments" not in ambiguous)
    if len(expected.get("choices", [])) > 1:
        want_choices = [(choice["text"], choice["finish_reason"]) for choice in expected["choices"]]
        assert [(choice.text, choice.finish_reason) for choice in reply.choices] == want_choices


@pytest.mark.parametrize(
    "case", [case for case in CASES if ALIASES.get(case["api"], case["api"]) in APIS], ids=lambda case: case["id"]
)
def test_case(case: dict[str, Any]) -> None:
    content_type = (case.get("headers") or {}).get("content-type", "text/event-stream")
    reply = assemble(reads(case), content_type=content_type)
    check(case, reply)
    errors = case["expected"]["errors"]
    if any(error.get("code") in MUST_SHOW and not error.get("recoverable") for error in errors):
        assert reply.errors or not reply.complete
    if "usage" in case["expected"]:
        want = case["expected"]["usage"] or {}
        got = {name: getattr(reply.usage, name, None) or 0 for name in ("input_tokens", "output_tokens")}
        assert got == {name: want.get(name, 0) for name in got}
    body = wire(case)
    assert assemble([body], content_type=content_type) == reply
    assert assemble([body[at : at + 1] for at in range(len(body))], content_type=content_type) == reply


# A stream that says nothing of its dialect: one event, `{"this": [{"is": {"not": [{"a": "valid"}]}, "response": {}}]}`.
UNKNOWABLE = {"files/vertex/gemini-vertexai-streaming-failure-invalid-json.sse"}


def test_corpus(corpus: Path) -> None:
    """Every captured stream of a dialect that is in the table; anything else is declined in words of ours."""
    expected = json.loads((corpus / "expected.json").read_text())
    checked = 0
    for name, entry in expected.items():
        body, known = (corpus / name).read_bytes(), entry["expected"]["dialect"] in APIS
        try:
            reply = assemble(body)
        except UnknownDialect:
            assert not known or name in UNKNOWABLE, name
            continue
        if known:
            checked += 1
            check(entry, reply)
            raw = dict(reply.usage.raw) if reply.usage else None
            assert raw == (entry["expected"].get("usage") or None), name
            assert bool(reply.errors) == bool(entry["expected"]["errors"]) or "errors" in {
                *entry.get("accept", {}),
                *entry.get("ambiguous", []),
            }, name
            half = len(body) // 2
            assert assemble([body[:half], body[half:]]) == reply, name
    assert checked == sum(entry["expected"]["dialect"] in APIS for entry in expected.values()) - len(UNKNOWABLE)
