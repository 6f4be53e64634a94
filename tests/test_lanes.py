"""Which part a delta belongs to, over all the ways in which servers number their tool calls."""

from __future__ import annotations

import pytest

from stream_cassette.lanes import join_name, resolve
from stream_cassette.model import (
    Arguments,
    Delta,
    Keepalive,
    Key,
    Opaque,
    PartEnd,
    PartStart,
    Reasoning,
    Refusal,
    Signature,
    Text,
    ToolCallStart,
    Whole,
)


def start(name: str, index: int | None = None, id: str | None = None, choice: int = 0) -> ToolCallStart:
    return ToolCallStart(Key(choice, index, id), "function", name)


def more(index: int | None = None, id: str | None = None, choice: int = 0) -> Arguments:
    return Arguments(Key(choice, index, id), "x")


A, B = "call_a", "call_b"

CALLS: dict[str, tuple[list[Delta], list[int]]] = {
    "by index": ([start("f", 0, A), start("f", 1, B), more(0), more(1), more(0)], [0, 1, 0, 1, 0]),
    "index starts at 1": ([start("f", 1, A), more(1)], [0, 0]),
    "index negative": ([start("f", -1, A), more(-1)], [0, 0]),
    "no index, ids on the heads": ([start("f", None, A), more(), start("f", None, B), more()], [0, 0, 1, 1]),
    "index on the first call only": ([start("f", 0, A), start("g", None, B), more()], [0, 1, 1]),
    "index 0 for all": ([start("f", 0, A), more(0), start("f", 0, B), more(0)], [0, 0, 1, 1]),
    "head and tail at different indices": ([start("f", 0, A), start("f", 0, B), more(1, B), more(1)], [0, 1, 1, 1]),
    "id repeated on every delta": ([start("f", 0, A), start("f", 0, A), more(0, A)], [0, 0, 0]),
    "another id without a name at a used index": ([start("f", 0, A), more(0, B), more(0)], [0, 0, 0]),
    "the id comes later, the name again": ([start("f", 0), start("f", 0, A), more(0, A)], [0, 0, 0]),
    "the id comes later with another name": ([start("f", 0), start("g", 0, A)], [0, 1]),
    "name in two pieces": ([start("ti", 0, A), start("de", 0), more(0)], [0, 0, 0]),
    "name empty first": ([start("", 0, A), start("f", 0, A), more(0)], [0, 0, 0]),
    "neither index nor id, two names": ([start("f"), more(), start("g"), more()], [0, 0, 1, 1]),
    "neither index nor id, the name repeated": ([start("f"), more(), start("f"), more()], [0, 0, 0, 0]),
    "no id, one index, another name after arguments": ([start("f", 0), more(0), start("g", 0), more(0)], [0, 0, 1, 1]),
    "arguments of a call never opened": ([more(1), more(1), more(2)], [0, 0, 1]),
    "the same numbers in two choices": ([start("f", 0, A), start("f", 0, A, 1), more(0), more(0, choice=1)], [0, 1, 0, 1]),
    "a restatement": ([start("f", 0, A), Whole(Key(0, 0, A), "arguments", "{}")], [0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    deltas, expected = CALLS[name]
    lanes = resolve(deltas)
    assert [lane and (lane.number, lane.kind) for lane in lanes] == [(number, "call") for number in expected]


K0, K1 = Key(0, 0), Key(0, 1)

PARTS: dict[str, tuple[list[Delta], list[tuple[str, int] | None]]] = {
    "one part of a kind where the wire has no index": (
        [Text(Key(), "a"), Reasoning(Key(), "b"), Text(Key(), "c"), Refusal(Key(), "d"), Signature(Key(), "e")],
        [("text", 0), ("reasoning", 1), ("text", 0), ("refusal", 2), ("reasoning", 1)],
    ),
    "a start opens a part, also at a used index": (
        [PartStart(K0, "text"), Text(K0, "a"), PartEnd(K0), PartStart(K0, "reasoning"), Reasoning(K0, "b"), PartEnd(K0)],
        [("text", 0)] * 3 + [("reasoning", 1)] * 3,
    ),
    "content without a start opens its part": ([Text(K1, "a"), Text(K1, "b")], [("text", 0), ("text", 0)]),
    "content of another kind is out of place": ([start("f", 0, A), Text(K0, "a"), PartStart(K1, "text"), more(1)], [("call", 0), None, ("text", 1), None]),
    "an end without a part": ([PartEnd(K0)], [None]),
    "the input of a tool that the provider runs": ([PartStart(K0, "server_tool_use"), Opaque(K0, "server_tool_use", {}), more(0)], [("server_tool_use", 0)] * 3),
    "a citation inside a text is a part of its own": (
        [PartStart(K0, "text"), Opaque(K0, "citations_delta", 1), Opaque(K0, "citations_delta", 2), Text(K0, "a")],
        [("text", 0), ("citations_delta", 1), ("citations_delta", 1), ("text", 0)],
    ),
    "opaque pieces of a kind without an index are one part": ([Opaque(Key(), "audio", 1), Opaque(Key(), "audio", 2)], [("audio", 0)] * 2),
    "a call takes over the index of a part before it": ([PartStart(K0, "text"), start("f", 0, A), more(0)], [("text", 0), ("call", 1), ("call", 1)]),
    "a keep-alive has no lane": ([Keepalive()], [None]),
    "a whole text": ([Text(Key(), "a"), Whole(Key(), "text", "ab")], [("text", 0)] * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str) -> None:
    deltas, expected = PARTS[name]
    assert [lane and (lane.kind, lane.number) for lane in resolve(deltas)] == expected


@pytest.mark.parametrize(
    ("known", "said", "joined"), [("", "f", "f"), ("f", "f", "f"), ("ti", "de", "tide"), ("f", "", "f")]
)
def test_join_name(known: str, said: str, joined: str) -> None:
    assert join_name(known, said) == joined
