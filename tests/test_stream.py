"""A stream and what derives from it; synthesis; what a cassette keeps of a reply."""

from __future__ import annotations

import pytest

from stream_cassette import Stream, assemble, synthesize
from stream_cassette.errors import UnknownDialect
from stream_cassette.model import Exchange, Read, Reply, Request, TextPart, ToolCall, Usage
from stream_cassette.stream import assembled

REQUEST = Request("POST", "https://api.openai.com/v1/chat/completions")
REPLY = Reply((TextPart("Low tide."),), "stop", Usage(12, 3, 15), ended=True)


def test_everything_derives_from_the_exchange() -> None:
    stream = synthesize(REPLY, "openai-chat", request=REQUEST)
    assert stream.exchange.request is REQUEST
    assert stream.exchange.header("content-type") == "text/event-stream"
    assert stream.exchange.header("x-none") is None
    assert b"".join(frame.raw for frame in stream.frames) == stream.body
    assert [read.data for read in stream.exchange.reads] == [frame.raw for frame in stream.frames]
    assert [payload["choices"][0]["delta"].get("content") for payload in stream.payloads if payload["choices"]] == [
        None,
        "Low tide.",
        None,
    ]
    assert assemble(stream.deltas) == stream.reply == REPLY
    assert stream.frames is stream.frames


def test_a_stream_that_is_none() -> None:
    stream = Stream(Exchange(REQUEST, 502, (("content-type", "text/html"),), (Read(0, b"<html>"),)))
    with pytest.raises(UnknownDialect, match="text/html"):
        _ = stream.reply
    with pytest.raises(UnknownDialect):
        _ = stream.deltas


def test_a_stream_that_says_nothing_has_no_dialect() -> None:
    empty = Stream(Exchange(REQUEST, 200, (), ()))
    assert (empty.spoken, empty.payloads, empty.deltas) == (None, (), ())
    assert not empty.reply.complete


def test_what_a_cassette_keeps_of_a_reply() -> None:
    calls = (
        ToolCall(0, id="a", name="f", arguments_text='{"b":1}', arguments={"b": 1}),
        ToolCall(1, name="g", arguments_text="{", problem="not JSON"),
    )
    assert assembled(REPLY) == {
        "text": "Low tide.",
        "finish_reason": "stop",
        "usage": {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15},
    }
    assert assembled(Reply(calls, "stop")) == {
        "tool_calls": [{"id": "a", "name": "f", "arguments": {"b": 1}}],
        "incomplete_tool_calls": [{"name": "g", "arguments_text": "{", "problem": "not JSON"}],
        "finish_reason": "stop",
    }
    assert assembled(Reply()) == {"complete": False}
