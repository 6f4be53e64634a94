"""Typed tool events: calls keyed by id, in whatever spelling; and what is still pending at the end never runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_cassette import assemble, synthesize
from stream_cassette.dialects import dialect
from stream_cassette.dialects.base import Hint
from stream_cassette.framing import frames, sse
from stream_cassette.model import (
    Arguments,
    Delta,
    End,
    Finish,
    Keepalive,
    Key,
    PartEnd,
    PartStart,
    Reasoning,
    ReasoningPart,
    Reply,
    Signature,
    Start,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    ToolCallStart,
    Unknown,
    Usage,
    UsageUpdate,
    Whole,
)

TOOL_EVENTS = dialect("tool-events")
A, B = Key(id="a"), Key(id="b")


def begun(key: Key, name: str) -> ToolCallStart:
    return ToolCallStart(key, "function", name, own_end=True)


EVENTS: dict[str, tuple[dict[str, Any], list[Delta]]] = {
    "start": ({"type": "start", "id": "r", "model": "m"}, [Start(Key(), None, "r", "m")]),
    "text": ({"type": "text_delta", "text": "x"}, [Text(Key(), "x")]),
    "text by another name": ({"type": "text_delta", "delta": "x"}, [Text(Key(), "x")]),
    "text that is null": ({"type": "text_delta", "text": None}, []),
    "text that is a number": ({"type": "text_delta", "text": 3}, []),
    "thinking": ({"type": "thinking_delta", "thinking": "x"}, [Reasoning(Key(), "x")]),
    "a signature": ({"type": "signature_delta", "signature": "x"}, [Signature(Key(), "x")]),
    "a call": ({"type": "tool_use_start", "id": "a", "name": "f"}, [begun(A, "f")]),
    "a call by call_id": ({"type": "tool_use_start", "call_id": "a", "name": "f"}, [begun(A, "f")]),
    "a call with its input": ({"type": "tool_use_start", "id": "a", "name": "f", "input": {"n": 1}}, [begun(A, "f"), Arguments(A, '{"n":1}')]),
    "a piece of arguments": ({"type": "tool_args_delta", "id": "a", "delta": '{"n"'}, [Arguments(A, '{"n"')]),
    "a piece by another name": ({"type": "tool_use_delta", "tool_use_id": "a", "partial_json": '{"n"'}, [Arguments(A, '{"n"')]),
    "a piece of no call": ({"type": "tool_args_delta", "delta": "x"}, [Arguments(Key(), "x")]),
    "the end of a call": ({"type": "tool_use_stop", "id": "a"}, [PartEnd(A)]),
    "the end of a call restates it": ({"type": "tool_use_stop", "toolCallId": "a", "toolInput": {"n": 1}}, [Whole(A, "arguments", '{"n":1}'), PartEnd(A)]),
    "the end of a call restates it as text": ({"type": "tool_use_stop", "id": "a", "input": "{"}, [Whole(A, "arguments", "{"), PartEnd(A)]),
    "usage": ({"type": "usage", "usage": {"input_tokens": 1}}, [UsageUpdate({"input_tokens": 1}, {"input_tokens": 1})]),
    "finish": ({"type": "finish", "finish_reason": "stop"}, [Finish(Key(), "stop")]),
    "finish with usage": ({"type": "message_stop", "stopReason": "x", "usage": {"outputTokens": 1}}, [UsageUpdate({"output_tokens": 1}, {"outputTokens": 1}), Finish(Key(), "x")]),
    "done": ({"type": "done"}, [End()]),
    "ping": ({"type": "ping"}, [Keepalive()]),
    "an error": ({"type": "error", "error": {"type": "t", "message": "m"}}, [StreamError("t", "m", {"type": "t", "message": "m"})]),
    "an error in the event itself": ({"type": "error", "message": "m"}, [StreamError("error", "m", {"message": "m"})]),
    "not known": ({"type": "dream"}, [Unknown("message", {"type": "dream"})]),
}  # fmt: skip


@pytest.mark.parametrize("name", EVENTS)
def test_an_event(name: str) -> None:
    payload, expected = EVENTS[name]
    assert TOOL_EVENTS.deltas(payload) == expected
    for frame in (sse.encode(json.dumps(payload)), sse.encode(json.dumps(payload), payload["type"])):
        written = TOOL_EVENTS.write(TOOL_EVENTS.read(frame), frame)
        assert [each for one in written for each in TOOL_EVENTS.read(one)] == TOOL_EVENTS.read(frame)
        assert {one.event == "message" for one in written} == ({frame.event == "message"} if written else set())


def test_how_mutators_are_to_treat_it() -> None:
    assert TOOL_EVENTS.quirks
    assert (TOOL_EVENTS.words["length"], TOOL_EVENTS.usage_rides) == (("max_tokens",), True)


def test_a_stop_without_a_reason_is_the_end() -> None:
    assert TOOL_EVENTS.deltas({"type": "message_stop"}) == [End()]


def test_the_type_may_stand_on_the_event_line_alone() -> None:
    (frame,) = frames(b'event: tool_use_start\ndata: {"call_id":"a","name":"f"}\n\n')
    assert TOOL_EVENTS.payload(frame) == {"type": "tool_use_start", "call_id": "a", "name": "f"}
    assert TOOL_EVENTS.read(frame) == [begun(A, "f")]


@pytest.mark.parametrize(
    ("payload", "event", "sure"),
    [
        ({"type": "tool_use_start", "id": "a"}, "message", 85),
        ({"id": "a", "delta": ""}, "tool_args_delta", 85),
        ({"type": "text_delta", "text": "a"}, "message", 20),
        ({"type": "start"}, "message", 0),
        (3, "message", 0),
    ],
)
def test_it_is_recognised(payload: Any, event: str, sure: int) -> None:
    assert TOOL_EVENTS.recognise(Hint(payload, event=event)) == sure


def stream(*payloads: dict[str, Any]) -> Reply:
    return assemble(payloads, dialect="tool-events")


START_A, START_B = (
    {"type": "tool_use_start", "id": "a", "name": "f"},
    {"type": "tool_use_start", "id": "b", "name": "f"},
)
FINISH = {"type": "finish", "reason": "tool_use"}


def args(id: str, delta: str) -> dict[str, Any]:
    return {"type": "tool_args_delta", "id": id, "delta": delta}


def stop(id: str) -> dict[str, Any]:
    return {"type": "tool_use_stop", "id": id}


def test_calls_run_side_by_side() -> None:
    reply = stream(
        START_A,
        START_B,
        args("b", '{"n"'),
        args("a", '{"n"'),
        args("b", ":2}"),
        stop("b"),
        args("a", ":1}"),
        stop("a"),
        FINISH,
    )
    assert [(call.id, call.arguments) for call in reply.tool_calls] == [("a", {"n": 1}), ("b", {"n": 2})]


def test_a_pending_call_never_runs() -> None:
    """Its arguments may parse, and the reply may be complete: `{}` of a call that was about to say more is not what it wanted."""
    reply = stream(START_A, START_B, args("a", "{}"), args("b", '{"n":1}'), stop("b"), FINISH, {"type": "done"})
    assert reply.complete
    assert [call.id for call in reply.tool_calls] == ["b"]
    assert [(call.id, call.arguments, call.problem) for call in reply.incomplete_tool_calls] == [
        ("a", None, "no end event of its own")
    ]
    assert synthesize(reply, "tool-events").reply == reply
    broken = stream(START_A, args("a", "{}"), {"type": "error", "message": "gone"})
    assert [call.problem for call in broken.incomplete_tool_calls] == ["the stream broke: error"]
    assert [call.problem for call in stream(START_A).incomplete_tool_calls] == ["no finish reason"]


def test_a_stopped_call_runs_though_the_stream_broke() -> None:
    assert [call.id for call in stream(START_A, args("a", "{}"), stop("a")).tool_calls] == ["a"]
    # One without arguments may be what the length limit left of it.
    (silent,) = stream(START_A, stop("a")).incomplete_tool_calls
    assert silent.problem == "no finish reason"


def test_everything_is_said() -> None:
    reply = Reply(
        (
            ReasoningPart("Hm.", "c2ln"), TextPart("One moment."),
            ToolCall(0, id="a", name="f", arguments_text='{"n": 1}', arguments={"n": 1}), ToolCall(1, id="b", name="g"),
        ),
        "tool_use", Usage(1, 2, 3, 4, 5), ended=True,
    )  # fmt: skip
    assert synthesize(reply, "tool-events").reply == reply


def test_it_writes_in_the_spelling_that_it_is_lent() -> None:
    like = sse.encode('{"type":"tool_use_delta","tool_use_id":"a","partial_json":"{}","at":3}', "tool_use_delta")
    written = TOOL_EVENTS.write([Arguments(A, "{"), Arguments(A, "}"), PartEnd(A), StreamError("t", "m")], like)
    assert [json.loads(frame.data or "") for frame in written] == [
        {"type": "tool_use_delta", "at": 3, "tool_use_id": "a", "partial_json": "{"},
        {"type": "tool_use_delta", "at": 3, "tool_use_id": "a", "partial_json": "}"},
        {"type": "tool_use_stop", "tool_use_id": "a"},
        {"type": "error", "error": {"type": "t", "message": "m"}},
    ]
    assert [frame.event for frame in written] == ["tool_use_delta", "tool_use_delta", "tool_use_stop", "error"]


def test_what_it_has_no_words_for_is_left_out() -> None:
    assert TOOL_EVENTS.write([PartStart(Key(), "text"), PartEnd(Key(index=7))]) == []
