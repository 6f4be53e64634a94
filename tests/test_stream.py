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


def timed(*reads: tuple[int, bytes], dialect: str | None = "openai-chat") -> Stream:
    return Stream(Exchange(REQUEST, 200, (), tuple(Read(at_ms, data) for at_ms, data in reads)), dialect)


def delta(fields: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{%s}}]}\n\n' % fields.encode()


def test_when_an_event_was_complete() -> None:
    first, second, third = delta('"role":"assistant"'), delta('"content":"Low"'), delta('"content":" tide"')
    stream = timed((5, first[:9]), (7, first[9:] + second), (20, third[:-1]), (31, third[-1:]))
    assert stream.times == (7, 7, 31)
    assert (stream.first_token_ms, stream.gaps_ms) == (7, (24,))
    whole = timed((3, first + second + third))
    assert (whole.times, whole.first_token_ms, whole.gaps_ms) == ((3, 3, 3), 3, (0,))


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ('"content":"a"', True),
        ('"reasoning_content":"a"', True),
        ('"refusal":"a"', True),
        ('"tool_calls":[{"index":0,"function":{"arguments":"{"}}]', True),
        ('"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]', False),
        ('"role":"assistant"', False),
        ('"content":""', False),
    ],
)
def test_what_is_a_first_token(fields: str, counts: bool) -> None:
    assert timed((0, delta('"role":"assistant"')), (9, delta(fields))).first_token_ms == (9 if counts else None)


def test_a_restatement_is_a_token_only_where_nothing_was_streamed() -> None:
    added = b'data: {"type":"response.output_item.added","output_index":%d,"item":{"type":"message","id":"m%d"}}\n\n'
    piece = (
        b'data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"item_id":"m0","delta":"a"}\n\n'
    )
    done = (
        b'data: {"type":"response.output_text.done","output_index":%d,"content_index":0,"item_id":"m%d","text":"a"}\n\n'
    )
    reads = [(0, added % (0, 0)), (1, piece), (5, done % (0, 0)), (6, added % (1, 1)), (8, done % (1, 1))]
    stream = timed(*reads, dialect="openai-responses")
    assert (stream.first_token_ms, stream.gaps_ms) == (1, (7,))


def test_values_within_arguments_are_tokens() -> None:
    body = b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true,"partialArgs":[{"jsonPath":"$.a","numberValue":4}]}}]}}]}'
    assert timed((4, b"data: " + body + b"\n\n"), dialect="gemini").first_token_ms == 4


def test_times_of_streams_that_say_nothing() -> None:
    assert (timed().times, timed().first_token_ms, timed().gaps_ms) == ((), None, ())
    page = timed((2, b"<html>"), dialect=None)
    assert page.times == (2,)
    with pytest.raises(UnknownDialect):
        _ = page.first_token_ms
