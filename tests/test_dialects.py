"""What holds for every dialect: recognised, read, written and read again, whatever stands in a payload."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_cassette import Stream, assemble, synthesize
from stream_cassette.dialects import DIALECTS, detect, dialect
from stream_cassette.dialects.base import Dialect, Hint, payload_of
from stream_cassette.errors import CannotSay, UnknownDialect
from stream_cassette.framing import frames, sse
from stream_cassette.model import (
    Delta,
    Frame,
    Keepalive,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    Reply,
    ReplyError,
    StreamError,
    TextPart,
    ToolCall,
    Unknown,
    Usage,
    UsageUpdate,
)
from strategies import json_values, replies, splits

each_dialect = pytest.mark.parametrize("speaker", DIALECTS, ids=lambda speaker: speaker.name)

RICH = Reply(
    parts=(
        ReasoningPart("Look it up.", "c2ln"),
        TextPart("One moment. "),
        ToolCall(0, id="call_a", name="tide_times", arguments_text='{"harbour":"Oban"}', arguments={"harbour": "Oban"}),
        ToolCall(1, id="call_b", name="moon_phase", arguments_text=""),
    ),
    finish_reason="tool_calls",
    usage=Usage(input_tokens=12, output_tokens=30, cached_tokens=4),
    ended=True,
    role="assistant",
    model="m-1",
    id="r-1",
)


@each_dialect
@given(data=st.data())
def test_a_synthesised_reply_assembles_to_the_same(speaker: Dialect, data: st.DataObject) -> None:
    reply = data.draw(replies(speaker.name))
    stream = synthesize(reply, speaker.name)
    got = assemble(stream)
    assert got == reply
    assert assemble(data.draw(splits(stream.body)), content_type="text/event-stream", dialect=speaker.name) == reply
    assert (got.ended, got.role, got.model, got.id) == (reply.ended, reply.role, reply.model, reply.id)


@each_dialect
def test_a_synthesised_stream_is_recognised(speaker: Dialect) -> None:
    stream = synthesize(RICH, speaker.name)
    assert Stream(stream.exchange).spoken == speaker.name
    assert assemble(stream.body) == RICH
    assert [assemble(stream.frames), assemble(stream.payloads, dialect=speaker.name), assemble(stream.deltas)] == [RICH] * 3


@each_dialect
@given(data=st.data())
def test_writing_what_was_read_reads_to_the_same(speaker: Dialect, data: st.DataObject) -> None:
    for frame in synthesize(data.draw(replies(speaker.name)), speaker.name).frames:
        assert reread(speaker, frame) == speaker.read(frame)


def reread(speaker: Dialect, frame: Frame) -> list[Delta]:
    return [delta for written in speaker.write(speaker.read(frame), frame) for delta in speaker.read(written)]


@each_dialect
def test_an_unchanged_stream_is_finished_as_it_is(speaker: Dialect) -> None:
    stream = synthesize(RICH, speaker.name)
    assert speaker.finish(stream.frames) == list(stream.frames)


def mutilated(payload: Any) -> st.SearchStrategy[Any]:
    """`payload` with any JSON value in one or more of its places."""
    match payload:
        case dict():
            inner: Any = st.fixed_dictionaries({key: mutilated(value) for key, value in payload.items()})
        case list():
            inner = st.tuples(*map(mutilated, payload)).map(list)
        case _:
            inner = st.just(payload)
    return st.one_of(inner, inner, inner, json_values)


@each_dialect
@settings(max_examples=300)
@given(data=st.data())
def test_reading_never_raises(speaker: Dialect, data: st.DataObject) -> None:
    payload = data.draw(st.sampled_from(SAMPLES[speaker.name]).flatmap(mutilated))
    deltas = speaker.deltas(payload, data.draw(st.sampled_from(["message", "error", "ping", "content_block_start"])))
    assert all(isinstance(delta, Delta) for delta in deltas)
    speaker.recognise(Hint(payload))
    assert isinstance(assemble([payload], dialect=speaker.name), Reply)
    written = speaker.write(deltas, sse.encode(json.dumps(payload)))
    speaker.finish(written)


SAMPLES: dict[str, list[Any]] = {speaker.name: list(synthesize(RICH, speaker.name).payloads) for speaker in DIALECTS}
SAMPLES["openai-chat"] += [
    {
        "id": "c",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "delta": {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}, "c"],
                    "reasoning": "r",
                    "reasoning_details": [{"type": "reasoning.text", "text": "r", "signature": "s"}, {"type": "reasoning.encrypted", "data": "d"}],
                    "refusal": "no",
                    "audio": {"data": "x"},
                    "tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "n", "input": "i"}}],
                    "function_call": {"name": "f", "arguments": {"a": 1}},
                },
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}},
        "error": {"message": "m", "type": "t", "code": 1},
    },
    {"choices": [{"message": {"role": "assistant", "content": "a", "refusal": "b", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}}]},
    {"x_groq": {"usage": {"prompt_tokens": 1}}, "choices": []},
    {"object": "error", "message": "m"},
]  # fmt: skip
SAMPLES["anthropic"] += [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {"a": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use", "id": "a", "name": "f", "input": {}}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}},
    {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn", "usage": {"input_tokens": 1}},
    {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
]  # fmt: skip


@each_dialect
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b": ping\n", Keepalive()),
        (b"\n", Keepalive()),
        (b"data:\n\n", Keepalive()),
        (b"data: : keepalive\n\n", Keepalive()),
        (b"data: {oops\n\n", StreamError("wire:bad_json", "", "{oops")),
        (b"data: {oops", StreamError("wire:truncated", "", "{oops")),
        (b"event: message_st", StreamError("wire:truncated", "", "event: message_st")),
        (b"event: keepalive\n\n", Unknown("keepalive", "event: keepalive")),
        (b"data: 7\n\n", Unknown("message", 7)),
        (b"data: {}\n\n", Unknown("message", {})),
        (b"{oops\n\n", StreamError("wire:bad_json", "", None)),
        (b'{"error": "overloaded"}\n\n', StreamError("error", "overloaded", "overloaded")),
        (b"event: error\ndata: {\"message\": \"m\"}\n\n", StreamError("error", "m", {"message": "m"})),
    ],
    ids=lambda value: repr(value) if isinstance(value, bytes) else None,
)  # fmt: skip
def test_frames_that_say_nothing_of_a_dialect_are_read_alike(speaker: Dialect, raw: bytes, expected: Delta) -> None:
    decoder = sse.Decoder()
    (frame,) = decoder.feed(raw) + decoder.close()
    (delta,) = speaker.read(frame)
    if isinstance(expected, StreamError) and not expected.message:
        assert isinstance(delta, StreamError)
        assert (delta.type, delta.payload) == (expected.type, expected.payload)
    else:
        assert delta == expected


@each_dialect
def test_damage_keeps_its_bytes_when_written(speaker: Dialect) -> None:
    (frame,) = frames(b"data: {oops\n\n")
    assert [written.raw for written in speaker.write(speaker.read(frame), frame)] == [frame.raw]


LOSSES: dict[str, list[tuple[Reply, str]]] = {
    "openai-chat": [
        (Reply((TextPart("a"), TextPart("b"))), "2 separate TextParts"),
        (Reply((TextPart(""),)), "an empty TextPart"),
        (Reply((ReasoningPart(""),)), "an empty reasoning part"),
        (Reply((OpaquePart("content", ("a",)),)), "the part 'content'"),
        (Reply((ToolCall(0, problem="not an object"),)), "a tool call without id and name"),
        (Reply((ToolCall(0, name="f"),)), "a closed tool call in an incomplete reply"),
        (Reply(errors=(ReplyError("wire:truncated"),)), "the error 'wire:truncated'"),
        (Reply(usage=Usage(raw={"odd": 1})), "usage without any count"),
    ],
    "anthropic": [
        (Reply((RefusalPart("no"),)), "a refusal in words"),
        (Reply((ToolCall(0, kind="custom", name="f"),)), "a tool call with free text"),
        (Reply((ToolCall(0),)), "a tool call without id and name"),
        (Reply((OpaquePart("audio", ("a",)),)), "the part 'audio'"),
        (Reply(usage=Usage(input_tokens=1, total_tokens=2)), "usage.total_tokens"),
        (Reply(choices=(Reply(), Reply())), "the choices but the first"),
    ],
}


@pytest.mark.parametrize(("name", "reply", "loss"), [(name, *row) for name, rows in LOSSES.items() for row in rows])
def test_what_a_dialect_cannot_say_is_an_error_unless_it_may_be_lost(name: str, reply: Reply, loss: str) -> None:
    with pytest.raises(CannotSay) as caught:
        synthesize(reply, name)
    assert loss in caught.value.what
    assert "lossy=True" in caught.value.mend
    assert synthesize(reply, name, lossy=True).body


def test_no_dialect_knows_a_strange_payload() -> None:
    assert detect(Hint({"candidates": "?"})) is None
    with pytest.raises(UnknownDialect, match="openai-chat"):
        dialect("klingon")


@each_dialect
def test_every_corpus_frame_is_written_as_it_reads(speaker: Dialect, corpus: Any) -> None:
    rows = [row for row in json.loads((corpus / "index.json").read_text()) if row["api"] == speaker.name]
    assert rows
    for row in rows:
        for frame in frames((corpus / row["file"]).read_bytes()):
            if frame.problem is None:
                assert normal(reread(speaker, frame)) == normal(speaker.read(frame)), (row["file"], frame.raw)


def normal(deltas: list[Delta]) -> list[Delta]:
    return [UsageUpdate(delta.counts, {}) if isinstance(delta, UsageUpdate) else delta for delta in deltas]


def test_a_payload_is_none_where_a_frame_has_none() -> None:
    assert [payload_of(frame) for frame in frames(b": c\n\ndata: [DONE]\n\ndata: {}\n\n")] == [None, None, None, {}]
