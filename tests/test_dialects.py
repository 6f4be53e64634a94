"""What holds for every dialect: recognised, read, written and read again, whatever stands in a payload."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import json_values, replies, sayable, splits
from stream_cassette import Stream, assemble, synthesize
from stream_cassette.dialects import DIALECTS, detect, dialect
from stream_cassette.dialects.base import Dialect, Hint, payload_of
from stream_cassette.errors import CannotSay, UnknownDialect
from stream_cassette.framing import eventstream, frames, jsonlines, sse
from stream_cassette.model import (
    Delta,
    Frame,
    FrameHeader,
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


def rich(speaker: Dialect) -> Reply:
    """A reply with everything that this wire can say."""
    return sayable(RICH, speaker.name)


@each_dialect
@given(data=st.data())
def test_a_synthesised_reply_assembles_to_the_same(speaker: Dialect, data: st.DataObject) -> None:
    reply = data.draw(replies(speaker.name))
    stream = synthesize(reply, speaker.name)
    got = assemble(stream)
    assert got == reply
    assert assemble(data.draw(splits(stream.body)), content_type="text/event-stream", dialect=speaker.name) == reply
    said = ENVELOPES.get(speaker.name, ("ended", "role", "model", "id"))
    assert {name: getattr(got, name) for name in said} == {name: getattr(reply, name) for name in said}
    assert got.warnings == (
        ("the end mark of the stream is missing",) if speaker.end_mark and got.finish_reason and not got.ended else ()
    )


# What these wires say of a reply beside its content, where they do not say all of it.
ENVELOPES: dict[str, tuple[str, ...]] = {
    "gemini": ("model", "id"),  # the role there is "model"
    "gemini-interactions": ("ended", "model", "id"),
    "bedrock-converse": ("role",),
    "cohere": ("ended", "role", "id"),
    "ollama": ("ended", "role", "model"),
    "openai-responses": ("role", "model", "id"),  # the event that says the finish reason is the end mark
}


@each_dialect
def test_a_synthesised_stream_is_recognised(speaker: Dialect) -> None:
    reply = rich(speaker)
    stream = synthesize(reply, speaker.name)
    assert Stream(stream.exchange).spoken == speaker.name
    assert assemble(stream.body) == reply
    assert [assemble(stream.frames), assemble(stream.payloads, dialect=speaker.name), assemble(stream.deltas)] == [
        reply
    ] * 3


@each_dialect
@given(data=st.data())
def test_writing_what_was_read_reads_to_the_same(speaker: Dialect, data: st.DataObject) -> None:
    for frame in synthesize(data.draw(replies(speaker.name)), speaker.name).frames:
        assert reread(speaker, frame) == speaker.read(frame)


def reread(speaker: Dialect, frame: Frame) -> list[Delta]:
    return [delta for written in speaker.write(speaker.read(frame), frame) for delta in speaker.read(written)]


@each_dialect
def test_an_unchanged_stream_is_finished_as_it_is(speaker: Dialect) -> None:
    stream = synthesize(rich(speaker), speaker.name)
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
@settings(max_examples=100)
@given(data=st.data())
def test_reading_never_raises(speaker: Dialect, data: st.DataObject) -> None:
    payload = data.draw(st.sampled_from(SAMPLES[speaker.name]).flatmap(mutilated))
    deltas = speaker.deltas(payload, data.draw(st.sampled_from(["message", "error", "ping", "content_block_start"])))
    assert all(isinstance(delta, Delta) for delta in deltas)
    speaker.recognise(Hint(payload))
    assert isinstance(assemble([payload], dialect=speaker.name), Reply)
    written = speaker.write(deltas, framed(speaker, payload))
    speaker.finish(written)


@pytest.mark.parametrize(
    "name", ["gemini", "gemini-interactions", "bedrock-converse", "bedrock-invoke", "cohere", "ollama"]
)
def test_every_sample_is_written_as_it_reads(name: str) -> None:
    speaker = dialect(name)
    for payload in SAMPLES[name]:
        frame = framed(speaker, payload)
        assert normal(reread(speaker, frame)) == normal(speaker.read(frame)), payload


def framed(speaker: Dialect, payload: Any) -> Frame:
    """A payload in a frame, as the wire of the dialect has it."""
    match speaker.framing:
        case "sse":
            return sse.encode(json.dumps(payload))
        case "jsonlines":
            return jsonlines.encode(json.dumps(payload))
        case "eventstream":
            name, said = next(iter(payload.items())) if isinstance(payload, dict) and payload else ("chunk", payload)
            headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
            return eventstream.encode(map(FrameHeader, headers, headers.values()), json.dumps(said).encode())


SAMPLES: dict[str, list[Any]] = {
    speaker.name: list(synthesize(rich(speaker), speaker.name).payloads) for speaker in DIALECTS
}
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
SAMPLES["gemini"] += [
    {
        "candidates": [
            {
                "index": 1,
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "a", "thought": True, "thoughtSignature": "s"},
                        {"text": "", "thoughtSignature": "s"},
                        {"functionCall": {"name": "f", "willContinue": True}, "thoughtSignature": "s"},
                        {"functionCall": {"partialArgs": [{"jsonPath": "$.a[0]", "stringValue": "x", "willContinue": True}], "willContinue": True}},
                        {"functionCall": {}},
                        {"executableCode": {"code": "1"}, "thoughtSignature": "s"},
                        {"functionCall": {"id": "i", "name": "f", "args": {"a": 1}}},
                    ],
                },
                "groundingMetadata": {"a": 1},
                "finishReason": 1,
            }
        ],
        "promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "m"},
        "usageMetadata": {"promptTokenCount": 1, "cachedContentTokenCount": 1},
        "error": {"code": 1, "message": "m", "status": "UNAVAILABLE"},
        "modelVersion": "m",
        "responseId": "r",
    },
]  # fmt: skip
SAMPLES["gemini-interactions"] += [
    {"event_type": "step.start", "index": 0, "step": {"type": "model_output", "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "d"}]}},
    {"event_type": "step.start", "index": 0, "step": {"type": "thought", "signature": "s", "summary": [{"type": "text", "text": "t"}]}},
    {"event_type": "step.start", "index": 0, "step": {"type": "function_call", "id": "i", "name": "f", "arguments": {"a": 1}, "signature": "s"}},
    {"event_type": "step.start", "index": 0, "step": {"type": "google_search_call", "id": "i"}},
    {"event_type": "step.delta", "index": 0, "delta": {"type": "image", "data": "d"}},
    {"event_type": "interaction.status_update", "status": "in_progress"},
    {"event_type": "interaction.completed", "interaction": {"status": "failed", "usage": {"total_tokens": 1}, "error": {"code": "c", "message": "m"}}},
    {"event_type": "error", "error": {"code": "c", "message": "m"}},
]  # fmt: skip
SAMPLES["bedrock-converse"] += [
    {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "a", "name": "f", "type": "server_tool_use"}}, "p": "ab"}},
    {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolResult": {"toolUseId": "a"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"redactedContent": "cg=="}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"citation": {"title": "t"}}}},
    {"metadata": {"usage": {"inputTokens": 1, "cacheReadInputTokens": 1}, "metrics": {"latencyMs": 1}}},
    {"throttlingException": {"message": "m"}},
]  # fmt: skip
SAMPLES["cohere"] += [
    {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "thinking", "thinking": "t", "text": "a"}}}},
    {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "image", "data": "d"}}}},
    {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"image": "d"}}}},
    {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "p"}}},
    {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": {"id": "i", "function": {"name": "f", "arguments": "{"}}}}},
    {"type": "citation-start", "index": 0, "delta": {"message": {"citations": {"start": 0}}}},
    {"type": "citation-end", "index": 0},
    {"type": "message-end", "delta": {"finish_reason": "ERROR", "usage": {"tokens": {"input_tokens": 1}, "cached_tokens": 1}, "error": "m"}},
    {"error": {"type": "t", "message": "m"}},
]  # fmt: skip
SAMPLES["ollama"] += [
    {
        "model": "m",
        "message": {
            "role": "assistant",
            "content": "a",
            "thinking": "t",
            "images": ["d"],
            "tool_calls": [{"id": "i", "function": {"name": "f", "arguments": {"a": 1}}}, {"function": {"name": "g", "arguments": '{"a":1}'}}],
        },
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 1,
    },
    {"model": "m", "response": "a", "thinking": "t", "done": False},
    {"error": "m"},
]  # fmt: skip
SAMPLES["openai-responses"] += [
    {
        "type": "response.incomplete",
        "response": {
            "id": "r",
            "object": "response",
            "model": "m",
            "status": "incomplete",
            "output": [
                {"type": "reasoning", "id": "a", "summary": [{"type": "summary_text", "text": "s"}], "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "e"},
                {"type": "message", "id": "b", "content": [{"type": "output_text", "text": "x", "annotations": [{"a": 1}]}, {"type": "refusal", "refusal": "n"}, {"type": "output_audio", "data": "d"}]},
                {"type": "function_call", "id": "c", "call_id": "k", "name": "f", "arguments": {"a": 1}, "status": "incomplete"},
                {"type": "custom_tool_call", "call_id": "k", "name": "f", "input": "i"},
                {"type": "web_search_call", "id": "d"},
            ],
            "usage": {"input_tokens": 1, "output_tokens_details": {"reasoning_tokens": 1}},
            "incomplete_details": {"reason": "max_output_tokens"},
            "error": {"code": "c", "message": "m"},
        },
        "sequence_number": 3,
    },
    {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "id": "b", "content": [{"type": "output_text", "text": "x"}]}},
    {"type": "response.output_item.done", "output_index": 1, "item": {"type": "message", "id": "b", "content": [{"type": "refusal", "refusal": "n"}]}},
    {"type": "response.content_part.added", "output_index": 1, "content_index": 1, "item_id": "b", "part": {"type": "output_text", "text": "x", "annotations": [1]}},
    {"type": "response.content_part.done", "output_index": 1, "content_index": 1, "part": {"type": "reasoning_text", "text": "x"}},
    {"type": "response.reasoning_text.delta", "output_index": 1, "content_index": 1, "delta": "x"},
    {"type": "response.mcp_call_arguments.delta", "output_index": 1, "item_id": "b", "delta": {"a": 1}},
    {"type": "response.custom_tool_call_input.done", "output_index": 1, "input": "i"},
    {"type": "response.refusal.done", "output_index": 1, "refusal": "n"},
    {"type": "response.output_text.annotation.added", "output_index": 1, "content_index": 0, "annotation": {"type": "url_citation"}},
    {"type": "response.web_search_call.searching", "output_index": 1, "item_id": "b"},
    {"type": "error", "code": None, "message": "m", "sequence_number": 1},
    {"type": "error", "error": {"type": "server_error", "code": None, "message": "m"}},
    {"type": "response.failed", "response": {"status": "failed"}},
    {"type": "keepalive", "sequence_number": 2},
    {"object": "response", "status": "completed", "output": [{"type": "function_call", "call_id": "k", "name": "f", "arguments": "{}"}]},
]  # fmt: skip
SAMPLES["openai-completions"] += [
    {"id": "c", "object": "text_completion", "model": "m", "choices": [{"text": "a", "index": 1, "logprobs": None, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}, "error": {"message": "m"}},
    {"object": "error", "message": "m"},
]  # fmt: skip
SAMPLES["tool-events"] += [
    {"type": "message_start", "usage": {"inputTokens": 1}},
    {"type": "tool_use_start", "tool_use_id": "a", "name": "f", "input": {"a": 1}},
    {"type": "tool_use_delta", "call_id": "a", "partial_json": "{"},
    {"type": "tool_use_stop", "toolCallId": "a", "toolInput": {"a": 1}},
    {"type": "message_stop", "stopReason": "end_turn", "usage": {"input_tokens": 1}},
    {"type": "error", "message": "m"},
    {"type": "ping"},
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
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\n", Keepalive()),
        (b"{oops}\n", StreamError("wire:bad_json", "", "{oops}")),
        (b'{"a": [1\n', StreamError("wire:truncated", "", '{"a": [1')),
        (b"{}\n", Unknown("message", {})),
        (b'[{}, {}\n]\n', Unknown("message", {})),
        (b'{"error": "overloaded"}\n', StreamError("error", "overloaded", "overloaded")),
    ],
    ids=lambda value: repr(value) if isinstance(value, bytes) else None,
)  # fmt: skip
def test_json_lines_that_say_nothing_of_a_dialect_are_read_alike(speaker: Dialect, raw: bytes, expected: Delta) -> None:
    decoder = jsonlines.Decoder()
    first, *rest = [delta for frame in decoder.feed(raw) + decoder.close() for delta in speaker.read(frame)]
    assert set(map(type, rest)) <= {Unknown, Keepalive}
    if isinstance(expected, StreamError) and not expected.message:
        assert isinstance(first, StreamError)
        assert (first.type, first.payload) == (expected.type, expected.payload)
    else:
        assert first == expected


def binary(event: str, payload: bytes, kind: str = "event", **more: str) -> bytes:
    headers = {
        f":{kind}-type": event,
        ":message-type": kind,
        **{f":{name.replace('_', '-')}": value for name, value in more.items()},
    }
    return eventstream.encode(map(FrameHeader, headers, headers.values()), payload).raw


@pytest.mark.parametrize(
    "speaker", [each for each in DIALECTS if each.framing == "eventstream"], ids=lambda speaker: speaker.name
)
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (binary("ping", b"{}"), Unknown("ping", {"ping": {}})),
        (binary("ping", b"7"), Unknown("ping", {"ping": 7})),
        (binary("ping", b"{oops"), StreamError("wire:bad_json", "the payload of 'ping' is not JSON", "{oops")),
        (binary("ping", b"\xff"), StreamError("wire:bad_json", "the payload of 'ping' is not JSON", None)),
        (binary("x", b'{"message":"m"}', "exception"), StreamError("x", "m", {"x": {"message": "m"}})),
        (binary("x", b"[]", "exception"), StreamError("x", "x", {"x": []})),
        (binary("", b"", "error", error_code="c", error_message="m"), StreamError("c", "m", {":error-code": "c", ":error-message": "m"})),
        (binary("", b"", "error"), StreamError("error", "", {":error-code": "", ":error-message": ""})),
        (binary("ping", b"{}")[:-1], StreamError("wire:truncated", "the body ends inside this frame, 1 bytes before its end")),
        (binary("ping", b"{}")[:-1] + b"?", StreamError("wire:checksum", "the checksum of the frame is wrong")),
    ],
)  # fmt: skip
def test_binary_frames_that_say_nothing_of_a_dialect_are_read_alike(
    speaker: Dialect, raw: bytes, expected: Delta
) -> None:
    (frame,) = frames(raw)
    assert speaker.read(frame) == [expected]
    assert [delta for written in speaker.write([expected], frame) for delta in speaker.read(written)] == [expected]
    if isinstance(expected, StreamError):
        assert assemble(raw).errors == (ReplyError(expected.type),)  # an error needs no dialect


DAMAGED = {"sse": b"data: {oops\n\n", "jsonlines": b"{oops}\n", "eventstream": binary("ping", b"{}")[:-1] + b"?"}


@pytest.mark.parametrize(
    ("speaker", "framing"), [(each, framing) for each in DIALECTS for framing in {"sse": 1, each.framing: 1}]
)
def test_damage_keeps_its_bytes_when_written(speaker: Dialect, framing: str) -> None:
    (frame,) = frames(DAMAGED[framing])
    read = speaker.read(frame)
    assert [written.raw for written in speaker.write(read, frame)] == [frame.raw]
    again = [delta for written in speaker.write(read) for delta in speaker.read(written)]
    assert again == (
        [] if speaker.framing == "eventstream" else read
    )  # without the bytes, text can be written; binary damage not


@each_dialect
def test_a_keepalive_is_written_as_one_or_not_at_all(speaker: Dialect) -> None:
    assert [delta for frame in speaker.write([Keepalive()]) for delta in speaker.read(frame)] in ([Keepalive()], [])


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
    "gemini": [
        (Reply((RefusalPart("no"),)), "a refusal in words"),
        (Reply((TextPart(""),)), "an empty text part"),
        (Reply((ReasoningPart(""),)), "an empty reasoning part"),
        (Reply((TextPart("a"), TextPart("b"))), "adjacent TextParts"),
        (Reply((OpaquePart("inlineData", ("a",)),)), "the part 'inlineData'"),
        (Reply((OpaquePart("groundingMetadata", ({"a": 1},)),) * 2), "2 parts 'groundingMetadata'"),
        (Reply((ToolCall(0, name="f", arguments_text='{"a": 1}'),)), "the spelling of the arguments"),
        (Reply((ToolCall(0, name="f", arguments_text="[]"),)), "arguments that are no JSON object"),
        (Reply((ToolCall(0, name="f", arguments_text="{"),)), "arguments that are no JSON object"),
        (Reply((ToolCall(0, kind="custom", name="f"),)), "a tool call with free text"),
        (Reply((ToolCall(0),)), "a tool call without a name"),
        (Reply(ended=True), "an end mark without a finish reason"),
    ],
    "gemini-interactions": [
        (Reply((RefusalPart("no"),)), "a refusal in words"),
        (Reply((ToolCall(0, kind="custom", name="f"),)), "a tool call with free text"),
        (Reply((ToolCall(0),)), "a tool call without id and name"),
        (Reply((OpaquePart("image", ({"type": "image"},) * 2),)), "the part 'image'"),
        (Reply(choices=(Reply(), Reply())), "the choices but the first"),
    ],
    "bedrock-converse": [
        (Reply((RefusalPart("no"),)), "a refusal in words"),
        (Reply((TextPart(""), ReasoningPart("", ""))), "an empty TextPart, an empty ReasoningPart"),
        (Reply((ToolCall(0, kind="custom", name="f"),)), "a tool call with free text"),
        (Reply((ToolCall(0),)), "a tool call without id and name"),
        (Reply((OpaquePart("audio", ("a",)),)), "the part 'audio'"),
        (Reply((OpaquePart("audio", (), "{"),)), "the part 'audio'"),
        (Reply(ended=True), "an end mark without a finish reason"),
        (Reply(choices=(Reply(), Reply())), "the choices but the first"),
    ],
    "bedrock-invoke": [
        (Reply((RefusalPart("no"),)), "a refusal in words"),
    ],
    "cohere": [
        (Reply((RefusalPart("no"),)), "a refusal in words"),
        (Reply((ReasoningPart("a", "s"),)), "the signature of a reasoning part"),
        (Reply((ToolCall(0, kind="custom", name="f"),)), "a tool call with free text"),
        (Reply((ToolCall(0),)), "a tool call without id and name"),
        (Reply((OpaquePart("audio", ("a",)),)), "the part 'audio'"),
        (Reply((OpaquePart("audio", ({"type": "audio"},) * 2),)), "the part 'audio'"),
        (Reply(errors=(ReplyError("busy", "m"),)), "the type of the error 'busy'"),
        (Reply(choices=(Reply(), Reply())), "the choices but the first"),
    ],
    "ollama": [
        (Reply((TextPart("a"), TextPart("b"))), "2 separate TextParts"),
        (Reply((TextPart(""), ReasoningPart(""))), "an empty TextPart, an empty ReasoningPart"),
        (Reply((ReasoningPart("a", "s"),)), "the signature of a reasoning part"),
        (Reply((RefusalPart("no"),)), "a refusal in words"),
        (Reply((ToolCall(0, name="f", problem="no finish reason"),)), "an open tool call"),
        (Reply((ToolCall(0, name="f", arguments_text="[]"),)), "arguments that are no JSON object"),
        (Reply((ToolCall(0, name="f"),), "stop"), "the spelling of the arguments ''"),
        (Reply((OpaquePart("role", ("a",)),)), "the part 'role'"),
        (Reply(errors=(ReplyError("busy", "m"),)), "the type of the error 'busy'"),
        (Reply(choices=(Reply(), Reply())), "the choices but the first"),
    ],
    "openai-responses": [
        (Reply((OpaquePart("web_search_call", ({"type": "other"},)),)), "the part 'web_search_call'"),
        (Reply((OpaquePart("message", ({"type": "message"},)),)), "the part 'message'"),
        (Reply((OpaquePart("web_search_call", ({"type": "web_search_call"},), "{"),)), "the part 'web_search_call'"),
        (Reply((ToolCall(0, id="a"),)), "a tool call without a name"),
        (Reply(choices=(Reply(), Reply())), "the choices but the first"),
    ],
    "openai-completions": [
        (Reply((TextPart("a"), TextPart("b"))), "2 separate TextParts"),
        (Reply((TextPart(""),)), "an empty TextPart"),
        (Reply((ReasoningPart("a"),)), "a reasoning part (this wire has text alone)"),
        (Reply((RefusalPart("no"),)), "a refusal in words"),
        (Reply((ToolCall(0, name="f"),)), "a tool call (this wire has text alone)"),
        (Reply((OpaquePart("audio", ("a",)),)), "the part 'audio'"),
        (Reply(finish_reason="incomplete", finish_detail="max_output_tokens"), "the finish detail 'max_output_tokens'"),
    ],
    "tool-events": [
        (Reply((TextPart("a"), TextPart("b"))), "2 separate TextParts"),
        (Reply((TextPart(""),)), "an empty TextPart"),
        (Reply((ReasoningPart(""),)), "an empty reasoning part"),
        (Reply((RefusalPart("no"),)), "a refusal in words"),
        (Reply((ToolCall(0, kind="custom", name="f"),)), "a tool call with free text"),
        (Reply((ToolCall(0, name="f"),)), "a tool call without id or name"),
        (Reply((OpaquePart("audio", ("a",)),)), "the part 'audio'"),
        (Reply(choices=(Reply(), Reply())), "the choices but the first"),
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
    assert rows or speaker.name == "tool-events"  # of which nobody publishes captures
    for row in rows:
        for frame in frames((corpus / row["file"]).read_bytes()):
            if frame.problem is None:
                assert normal(reread(speaker, frame)) == normal(speaker.read(frame)), (row["file"], frame.raw)


def normal(deltas: list[Delta]) -> list[Delta]:
    return [UsageUpdate(delta.counts, {}) if isinstance(delta, UsageUpdate) else delta for delta in deltas]


def test_a_payload_is_none_where_a_frame_has_none() -> None:
    assert [payload_of(frame) for frame in frames(b": c\n\ndata: [DONE]\n\ndata: {}\n\n")] == [None, None, None, {}]
