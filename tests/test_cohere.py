"""Cohere's dialect: what its wire alone says, and the official client as a judge."""

from __future__ import annotations

import logging
from typing import Any

import cohere
import pytest
from hypothesis import given, settings

from judges import corpus_streams, counts, said, served, value_of
from strategies import replies
from stream_cassette import assemble, synthesize
from stream_cassette.dialects import dialect
from stream_cassette.model import (
    ArgumentsAt,
    End,
    Finish,
    Key,
    Opaque,
    OpaquePart,
    PartEnd,
    PartStart,
    Reasoning,
    ReasoningPart,
    Refusal,
    Reply,
    Signature,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    ToolCallStart,
    UsageUpdate,
    Whole,
)

COHERE = dialect("cohere")


def event(type_: str, index: int | None = None, **message: Any) -> dict[str, Any]:
    return {"type": type_, **({} if index is None else {"index": index}), "delta": {"message": message}}


def content(type_: str, index: int, **said: Any) -> dict[str, Any]:
    return event(f"content-{type_}", index, content=said)


def call(type_: str, index: int, **function: Any) -> dict[str, Any]:
    id_ = {"id": function.pop("id")} if "id" in function else {}
    return event(f"tool-call-{type_}", index, tool_calls={**id_, "function": function})


END = {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}}


@pytest.mark.parametrize(
    ("events", "parts"),
    [
        ([content("start", 0, type="text", text="a"), content("delta", 0, text="b"), content("end", 0)], (TextPart("ab"),)),
        ([content("start", 0, type="thinking", thinking="a"), content("delta", 1, text="b")], (ReasoningPart("a"), TextPart("b"))),
        ([content("start", 0, type="image", data="d")], (OpaquePart("image", ({"type": "image", "data": "d"},)),)),
        ([content("delta", 0, image="d"), content("delta", 0)], (OpaquePart("content", ({"image": "d"},)),)),
        ([event("tool-plan-delta", tool_plan="I "), event("tool-plan-delta", tool_plan="will"), event("tool-plan-delta")], (ReasoningPart("I will"),)),
        # contents and calls have the same numbers
        (
            [content("start", 0, type="text"), call("start", 0, id="a", name="f"), content("delta", 0, text="x"), call("delta", 0, arguments='{"a":1}'), call("end", 0)],
            (TextPart("x"), ToolCall(0, id="a", name="f", arguments_text='{"a":1}')),
        ),
        ([call("start", 0, id="a", name="f", arguments="{"), call("start", 1, id="b", name="f"), call("delta", 0, arguments="}")], (ToolCall(0, id="a", name="f", arguments_text="{}"), ToolCall(1, id="b", name="f"))),
        ([{"type": "citation-start", "index": 0}, {"type": "citation-end", "index": 0}, {"type": "debug", "prompt": "p"}], (OpaquePart("citation-start", ({"type": "citation-start", "index": 0},)),)),
    ],
)  # fmt: skip
def test_parts(events: list[Any], parts: tuple[Any, ...]) -> None:
    reply = assemble([event("message-start", role="assistant"), *events, END])
    assert reply.parts == parts
    assert COHERE.losses(reply) or assemble(synthesize(reply, "cohere")).parts == parts


def test_an_error_at_the_end() -> None:
    end = {
        "type": "message-end",
        "delta": {"finish_reason": "ERROR", "error": "out of memory", "usage": {"billed_units": {"input_tokens": 3}}},
    }
    reply = assemble([event("message-start", role="assistant"), end])
    assert (reply.stop, reply.complete, reply.errors[0].message, counts(reply, "input_tokens")) == (
        "error",
        False,
        "out of memory",
        (3,),
    )


def test_contents_and_calls_are_renumbered_apart() -> None:
    parts = (TextPart("a"), ToolCall(0, id="x", name="f"), TextPart("b"), ToolCall(1, id="y", name="g"))
    stream = synthesize(Reply(parts, "COMPLETE", ended=True), "cohere")
    numbers = [(payload["type"], payload.get("index")) for payload in stream.payloads]
    assert [index for type_, index in numbers if type_.endswith("-start") and index is not None] == [0, 0, 1, 1]
    assert assemble(stream).parts == parts
    moved = [stream.frames[0], *stream.frames[6:9], *stream.frames[1:6], *stream.frames[9:]]
    assert assemble(COHERE.finish(moved)).text == "ba"


def test_the_end_of_the_message_says_its_things_in_one_order() -> None:
    usage = UsageUpdate({"cached_tokens": 1}, {"cached_tokens": 1})
    deltas: list[Any] = [
        Finish(Key(), "ERROR"),
        usage,
        StreamError("error", "m", "m"),
        usage,
        Finish(Key(), "COMPLETE"),
        StreamError("t", "m", {"type": "t", "message": "m"}),
        End(),
    ]
    written = COHERE.write(deltas)
    assert len(written) == 5
    assert [delta for frame in written for delta in COHERE.read(frame)] == deltas


def test_what_this_wire_has_no_words_for_is_left_out() -> None:
    key = Key()
    assert (
        COHERE.write(
            [
                Refusal(key, "no"),
                Whole(key, "text", "a"),
                ArgumentsAt(key, "$.a", 1),
                Signature(key, "s"),
                PartEnd(Key(index=3)),
                PartStart(key, "audio"),
            ]
        )
        == []
    )


def test_the_envelope_of_an_event_is_lent() -> None:
    (like,) = COHERE.write([ToolCallStart(Key(index=-2, id="a"), "function", "f")])
    assert COHERE.payload(like)["index"] == 1
    (frame,) = COHERE.write([PartEnd(Key(index=-2))], like)
    assert COHERE.payload(frame) == {"type": "tool-call-end", "index": 1}
    written = COHERE.write(
        [Text(Key(index=1), "a"), Reasoning(Key(), "b"), Opaque(Key(index=1), "content", {"image": "d"})]
    )
    assert [COHERE.payload(frame)["delta"]["message"] for frame in written] == [
        {"content": {"text": "a"}},
        {"tool_plan": "b"},
        {"content": {"image": "d"}},
    ]


# ---------------------------------------------------------------------------------------------------- the official client


def judged(body: bytes) -> dict[str, Any]:
    """What the official client makes of a stream."""
    out: dict[str, Any] = {"text": "", "reasoning": "", "finish": None}
    calls: dict[int, list[Any]] = {}
    with served(body, "text/event-stream") as url, cohere.ClientV2(api_key="x", base_url=url) as api:
        for each in api.chat_stream(model="m", messages=[{"role": "user", "content": "hi"}]):
            match each.type:
                case "content-delta":
                    out["text"] += each.delta.message.content.text or ""
                    out["reasoning"] += each.delta.message.content.thinking or ""
                case "tool-plan-delta":
                    out["reasoning"] += each.delta.message.tool_plan
                case "tool-call-start":
                    calls[each.index] = [
                        each.delta.message.tool_calls.id,
                        each.delta.message.tool_calls.function.name,
                        "",
                    ]
                case "tool-call-delta":
                    calls[each.index][2] += each.delta.message.tool_calls.function.arguments
                case "message-end":
                    out["finish"] = each.delta.finish_reason or out["finish"]
    return {**out, "calls": [(id_, name, value_of(text)) for id_, name, text in calls.values()]}


@settings(max_examples=25, deadline=None)
@given(reply=replies("cohere"))
def test_the_official_client_reads_what_we_synthesise(reply: Reply) -> None:
    logging.getLogger("cohere").setLevel(logging.ERROR)
    assert judged(synthesize(reply, "cohere").body) == said(reply)


def test_the_official_client_reads_captured_streams_as_we_do(corpus: Any) -> None:
    for name, body, _ in corpus_streams(corpus, "cohere"):
        assert judged(body) == said(assemble(body)), name
