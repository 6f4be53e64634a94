"""The two Bedrock dialects: what their wires alone say, and boto3 as a judge."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.eventstream import ChecksumMismatch, InvalidHeadersLength, InvalidPayloadLength
from botocore.exceptions import EventStreamError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from judges import corpus_streams, counts, said
from strategies import replies
from stream_cassette import assemble, synthesize
from stream_cassette.dialects import detect, dialect
from stream_cassette.dialects.base import Hint
from stream_cassette.framing import eventstream, frames
from stream_cassette.model import (
    USAGE_COUNTS,
    ArgumentsAt,
    End,
    Exchange,
    Finish,
    Frame,
    FrameHeader,
    Keepalive,
    Key,
    Opaque,
    OpaquePart,
    PartStart,
    Read,
    ReasoningPart,
    Refusal,
    Reply,
    Request,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    Unknown,
    Usage,
    UsageUpdate,
    Whole,
)
from stream_cassette.server import serve

CONVERSE, INVOKE = dialect("bedrock-converse"), dialect("bedrock-invoke")
TYPE = "application/vnd.amazon.eventstream"


def framed(event: str, payload: Any, kind: str = "event", *more: FrameHeader) -> Frame:
    headers = {f":{kind}-type": event, ":content-type": "application/json", ":message-type": kind}
    return eventstream.encode([*map(FrameHeader, headers, headers.values()), *more], json.dumps(payload).encode())


def chunk(payload: Any, **more: Any) -> dict[str, Any]:
    return {"chunk": {"bytes": base64.b64encode(json.dumps(payload).encode()).decode(), **more}}


def block(index: int, **delta: Any) -> dict[str, Any]:
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}


STOP = {"messageStop": {"stopReason": "end_turn"}}

# ----------------------------------------------------------------------------------------------------------------- converse


def test_blocks_of_every_kind() -> None:
    server_tool = {"toolUse": {"toolUseId": "s", "name": "search", "type": "server_tool_use"}}
    result = {"toolResult": {"toolUseId": "s", "type": "search_result"}}
    reply = assemble(
        [
            {"messageStart": {"role": "assistant"}},
            block(0, reasoningContent={"text": "hm"}),
            block(0, reasoningContent={"signature": "c2ln"}),
            block(1, reasoningContent={"redactedContent": "cmVk"}),
            {"contentBlockStart": {"contentBlockIndex": 2, "start": server_tool}},
            block(2, toolUse={"input": '{"q":1}'}),
            {"contentBlockStart": {"contentBlockIndex": 3, "start": result}},
            block(3, toolResult=[{"text": "r"}]),
            block(4, text="a"),
            block(4, citation={"title": "t"}),
            block(4, text="b"),
            {"contentBlockStart": {"contentBlockIndex": 5, "start": {"toolUse": {"toolUseId": "i", "name": "f"}}}},
            {"contentBlockStart": {"contentBlockIndex": 6, "start": {}}},
            block(6),
            {"contentBlockStop": {"contentBlockIndex": 5}},
            STOP,
            {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3, "cacheReadInputTokens": 0}}},
        ]
    )
    assert reply.parts == (
        ReasoningPart("hm", "c2ln"),
        OpaquePart("redactedContent", ({"reasoningContent": {"redactedContent": "cmVk"}},)),
        OpaquePart("server_tool_use", (server_tool,), '{"q":1}'),
        OpaquePart("toolResult", (result, {"toolResult": [{"text": "r"}]})),
        TextPart("ab"),
        OpaquePart("citation", ({"citation": {"title": "t"}},)),
        ToolCall(0, id="i", name="f"),
    )
    assert (reply.complete, reply.warnings, reply.usage) == (True, (), Usage(1, 2, 3, 0))
    for part in reply.parts:
        assert assemble(synthesize(Reply((part,), "end_turn"), "bedrock-converse")).parts == (part,)


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        (Hint({"role": "assistant"}, event="messageStart"), "bedrock-converse"),
        (Hint({"messageStart": {"role": "assistant"}}), "bedrock-converse"),
        (Hint({"usage": {}}, event="metadata"), "bedrock-converse"),
        (Hint({"run_id": "x"}, event="metadata"), None),
        (Hint({"message": "model not found"}, content_type=TYPE), "bedrock-converse"),
        (Hint({"message": "model not found"}), None),
        (Hint(chunk({"type": "message_start"})["chunk"], event="chunk"), "bedrock-invoke"),
        (Hint({"chunk": {"bytes": b'{"generation": "a"}'}}), "bedrock-invoke"),
        (Hint({"chunk": {"bytes": base64.b64encode(b"Sorry").decode()}}), None),
        (Hint({"chunk": {"bytes": "no base64"}}), None),
    ],
)  # fmt: skip
def test_recognised(hint: Hint, name: str | None) -> None:
    found = detect(hint)
    assert (found.name if found else None) == name


def test_blocks_are_renumbered_by_first_sight() -> None:
    events = [
        (name, {"contentBlockIndex": index})
        for name, index in [
            ("contentBlockDelta", 4),
            ("contentBlockStart", 4),
            ("contentBlockDelta", 4),
            ("contentBlockStop", 4),
            ("contentBlockStop", 7),
        ]
    ]
    numbered = [framed("messageStart", {}), *(framed(*event) for event in events)]
    finished = CONVERSE.finish(numbered)
    assert [CONVERSE.payload(frame)[frame.event].get("contentBlockIndex") for frame in finished] == [
        None,
        0,
        1,
        1,
        1,
        2,
    ]
    assert CONVERSE.finish(finished) == finished


def test_headers_and_fields_of_the_service_are_lent() -> None:
    like = framed(
        "contentBlockDelta",
        {"contentBlockIndex": 0, "delta": {"text": "a"}, "p": "abc"},
        "event",
        FrameHeader("x-trace", 7, "integer"),
    )
    (frame,) = CONVERSE.write([Text(Key(index=0), "b")], like)
    assert CONVERSE.payload(frame) == {
        "contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "b"}, "p": "abc"}
    }
    assert frame.header("x-trace") == 7


def test_what_this_wire_has_no_words_for_is_left_out() -> None:
    key = Key()
    assert (
        CONVERSE.write(
            [
                Refusal(key, "no"),
                Whole(key, "text", "a"),
                ArgumentsAt(key, "$.a", 1),
                Keepalive(),
                End(),
                StreamError("wire:checksum", "x"),
            ]
        )
        == []
    )
    (frame,) = CONVERSE.write([PartStart(key, "audio"), Opaque(key, "audio", {"image": 1})])
    assert frame.event == "contentBlockDelta"


def test_an_error_in_json_where_frames_were_expected() -> None:
    reply = assemble(b'{"message":"model not found"}', content_type=TYPE)
    assert [(error.type, error.message) for error in reply.errors] == [("error", "model not found")]
    assert CONVERSE.deltas({"error": {"type": "t", "message": "m"}}) == [
        StreamError("t", "m", {"type": "t", "message": "m"})
    ]
    assert CONVERSE.deltas({"metadata": 7}) == []


@pytest.mark.parametrize(
    ("frames_", "errors"),
    [
        ([framed("throttlingException", {"message": "slow"}, "exception")], ["throttlingException"]),
        ([framed("x", {}), framed("throttlingException", {}, "exception")], None),
        ([framed("throttlingException", {}, "exception"), framed("b", {}, "exception")], ["throttlingException", "b"]),
    ],
)  # fmt: skip
def test_broken_frames_need_no_dialect(frames_: list[Frame], errors: list[str] | None) -> None:
    body = b"".join(frame.raw for frame in frames_)
    if errors is None:
        with pytest.raises(Exception, match="no known dialect"):
            assemble(body)
    else:
        assert [error.type for error in assemble(body).errors] == errors


# ------------------------------------------------------------------------------------------------------------------- invoke

METRICS = {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 7, "outputTokenCount": 8}}

# What the models of Bedrock send inside: chunks; text, finish reason, and input and output tokens.
MODELS: dict[str, tuple[list[Any], str, str | None, tuple[int | None, int | None]]] = {
    "llama": ([{"generation": "a", "prompt_token_count": 1, "generation_token_count": 1, "stop_reason": None}, {"generation": "b", "prompt_token_count": None, "generation_token_count": 2, "stop_reason": "stop", **METRICS}], "ab", "stop", (1, 2)),
    "titan": ([{"outputText": "a", "index": 0, "completionReason": "FINISH", "inputTextTokenCount": 1.0, "totalOutputTextTokenCount": 2.0, **METRICS}], "a", "FINISH", (1, 2)),
    "titan, guarded": ([{"outputText": "a", "amazon-bedrock-guardrailAction": "INTERVENED"}], "a", "INTERVENED", (None, None)),
    "mistral": ([{"outputs": [{"text": "a", "stop_reason": None}]}, {"outputs": [{"text": "b", "stop_reason": "length"}], **METRICS}], "ab", "length", (7, 8)),
    "cohere": ([{"text": "a", "is_finished": False}, {"finish_reason": "COMPLETE", "is_finished": True, **METRICS}], "a", "COMPLETE", (7, 8)),
    "claude 2": ([{"completion": "a", "stop_reason": None}, {"completion": "", "stop_reason": "stop_sequence", **METRICS}], "a", "stop_sequence", (7, 8)),
    "claude": ([{"type": "message_start", "message": {"id": "i", "model": "m", "role": "assistant", "usage": {"input_tokens": 1}}}, {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}, {"type": "message_stop", **METRICS}], "a", "end_turn", (1, 2)),
    "nova": ([{"messageStart": {"role": "assistant"}}, {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "a"}}}, {"messageStop": {"stopReason": "end_turn"}}, {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2}}, **METRICS}], "a", "end_turn", (1, 2)),
    "jamba": ([{"choices": [{"index": 0, "delta": {"content": "a"}}]}, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}, **METRICS}], "a", "stop", (1, 2)),
    "metrics alone": ([{"outputText": "a"}, METRICS], "a", None, (7, 8)),
}  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_every_model_inside_is_read_and_written(model: str) -> None:
    payloads, text, reason, tokens = MODELS[model]
    stream = [framed("chunk", chunk(payload, p="abc")["chunk"]) for payload in payloads]
    reply = assemble(b"".join(frame.raw for frame in stream))
    assert (reply.text, reply.finish_reason, counts(reply, "input_tokens", "output_tokens")) == (text, reason, tokens)
    assert not reply.warnings
    assert assemble([{"chunk": {"bytes": json.dumps(payload).encode()}} for payload in payloads]) == reply
    for frame in stream:
        read = INVOKE.read(frame)
        written = INVOKE.write(read, frame)
        assert [delta for each in written for delta in INVOKE.read(each)] == read
        assert all(INVOKE.payload(each)["chunk"]["p"] == "abc" for each in written)
    assert INVOKE.finish(stream) == stream


def test_a_text_model_says_one_thing_of_each_kind_a_chunk() -> None:
    like = framed("chunk", chunk({"outputs": [{"text": "a", "stop_reason": None}], "x": 1})["chunk"])
    usage = UsageUpdate({"input_tokens": 1}, {"prompt_token_count": 1})
    deltas: list[Any] = [
        Text(Key(), "a"),
        usage,
        Text(Key(), "b"),
        Finish(Key(), "stop"),
        Refusal(Key(), "no"),
        Finish(Key(), "length"),
    ]
    written = INVOKE.write(deltas, like)
    assert len(written) == 3
    assert [delta for frame in written for delta in INVOKE.read(frame)] == [
        each for each in deltas if not isinstance(each, Refusal)
    ]
    assert INVOKE.write([Refusal(Key(), "no")], like) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("outputText", "completionReason"),
        ("generation", "stop_reason"),
        ("text", "finish_reason"),
        ("x", "finish_reason"),
    ],
)
def test_a_reason_is_called_as_the_model_calls_it(text: str, reason: str) -> None:
    like = framed("chunk", chunk({text: "a"})["chunk"])
    (frame,) = INVOKE.write([Finish(Key(), "stop")], like)
    assert json.loads(base64.b64decode(INVOKE.payload(frame)["chunk"]["bytes"]))[reason] == "stop"


def test_counts_of_the_service_ride_on_the_last_chunk_or_come_alone() -> None:
    metrics = UsageUpdate({"input_tokens": 7}, {"inputTokenCount": 7}, fallback=True)
    written = INVOKE.write([Text(Key(index=0), "a"), metrics, End()])
    assert [INVOKE.read(frame) for frame in written] == [[Text(Key(index=0), "a")], [metrics, End()]]
    assert [INVOKE.read(frame) for frame in INVOKE.write([metrics])] == [[metrics]]


def test_events_inside_are_renumbered_as_their_dialect_does() -> None:
    def stop(index: int) -> list[Frame]:
        start = {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
        return [
            framed("chunk", chunk(each, p="a")["chunk"])
            for each in (start, {"type": "content_block_stop", "index": index})
        ]

    other = framed("throttlingException", {}, "exception")
    finished = INVOKE.finish([*stop(1), other, *stop(0)])
    inside = [
        json.loads(base64.b64decode(INVOKE.payload(frame)["chunk"]["bytes"]))["index"]
        for frame in finished
        if frame != other
    ]
    assert inside == [0, 0, 1, 1]
    assert finished[2] == other
    assert INVOKE.finish([other]) == [other]
    nova = [framed("chunk", chunk({"contentBlockStop": {"contentBlockIndex": 3}, **METRICS})["chunk"])]
    (frame,) = INVOKE.finish(nova)
    assert json.loads(base64.b64decode(INVOKE.payload(frame)["chunk"]["bytes"])) == {
        "contentBlockStop": {"contentBlockIndex": 0},
        **METRICS,
    }


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"chunk": {"bytes": "!"}}, StreamError("wire:bad_json", "the bytes of a chunk are not JSON", {"chunk": {"bytes": "!"}})),
        (chunk(7), Unknown("message", 7)),
        (chunk({"x": 1}), Unknown("message", {"x": 1})),
        (chunk({"type": "error", "error": {"type": "t", "message": "m"}}), StreamError("t", "m", {"type": "t", "message": "m"})),
        ({"throttlingException": {"message": "m"}}, StreamError("throttlingException", "m", {"throttlingException": {"message": "m"}})),
        (7, Unknown("message", 7)),
    ],
)  # fmt: skip
def test_what_is_wrong_or_unknown_inside(payload: Any, expected: Any) -> None:
    assert INVOKE.deltas(payload) == [expected]
    if isinstance(payload, dict):
        frame = framed(*next(iter(payload.items())))
        written = INVOKE.write([expected], frame)
        assert [delta for each in written for delta in INVOKE.read(each)] == INVOKE.read(frame)


def test_errors_and_unknown_events_stand_outside_of_chunks() -> None:
    written = INVOKE.write(
        [
            Text(Key(index=0), "a"),
            StreamError("busy", "m"),
            Unknown("ping", {"ping": 1}),
            StreamError("wire:checksum", "x"),
        ]
    )
    assert [(frame.event, frame.header(":message-type")) for frame in written] == [
        ("chunk", "event"),
        ("busy", "exception"),
        ("ping", "event"),
    ]


# ------------------------------------------------------------------------------------------------------------------- boto3


class Boto3:
    """The official client, against a server that answers with whatever `body` is."""

    def __init__(self, api: Any, answers: list[Exchange]) -> None:
        self._api, self._answers = api, answers

    def events(self, body: bytes, name: str) -> tuple[list[Any], str | None]:
        """The events that it shows, and the error that ends them."""
        self._answers[:] = [Exchange(Request("POST", "http://x/"), 200, (("content-type", TYPE),), (Read(0, body),))]
        events: list[Any] = []
        try:
            with closing(self._stream(name)) as stream:
                events.extend(iter(stream))
        except EventStreamError as error:
            return events, error.response["Error"]["Code"]
        except (ChecksumMismatch, InvalidHeadersLength, InvalidPayloadLength) as error:
            return events, type(error).__name__
        return events, None

    def _stream(self, name: str) -> Any:
        if name == "bedrock-converse":
            return self._api.converse_stream(modelId="m", messages=[{"role": "user", "content": [{"text": "hi"}]}])[
                "stream"
            ]
        return self._api.invoke_model_with_response_stream(modelId="m", body=b"{}")["body"]


@pytest.fixture(scope="module")
def judge() -> Iterator[Boto3]:
    answers: list[Exchange] = []
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="y", region_name="us-east-1")
    with serve(lambda request: answers[0], paced=False) as server:
        config = Config(retries={"max_attempts": 0})
        with closing(session.client("bedrock-runtime", endpoint_url=server.url, config=config)) as api:
            yield Boto3(api, answers)


def in_json(value: Any) -> Any:
    """Bytes as JSON has them."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {name: in_json(each) for name, each in value.items()}
        case _:
            return value


KNOWN_ERROR = "modelStreamErrorException"  # boto3 shows no name of an exception that is not in its model of the service


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@pytest.mark.parametrize("name", ["bedrock-converse", "bedrock-invoke"])
@given(data=st.data())
def test_boto3_reads_what_we_synthesise(judge: Boto3, name: str, data: st.DataObject) -> None:
    reply = data.draw(replies(name))
    reply = replace(reply, errors=tuple(replace(error, type=KNOWN_ERROR) for error in reply.errors))
    stream = synthesize(reply, name)
    if not stream.body:
        return
    events, error = judge.events(stream.body, name)
    healthy = list(takewhile(lambda payload: KNOWN_ERROR not in payload, stream.payloads))
    assert [in_json(event) for event in events] == healthy
    assert error == (KNOWN_ERROR if reply.errors else None)


# Captured streams of which boto3 shows something else than is on the wire, and why.
OTHERWISE: dict[str, str] = {
    "recon-invoke-truncated-mid-frame.bin": "it says nothing of a stream that ends inside a frame",
}


@pytest.mark.parametrize("name", ["bedrock-converse", "bedrock-invoke"])
def test_boto3_reads_captured_streams_as_we_do(judge: Boto3, name: str, corpus: Any) -> None:
    differ = set()
    for file, body, _ in corpus_streams(corpus, name):
        events, error = judge.events(body, name)
        reply, theirs = assemble(body), assemble([in_json(event) for event in events], dialect=name)
        same = said(reply) == said(theirs) and counts(reply, *USAGE_COUNTS) == counts(theirs, *USAGE_COUNTS)
        if not same or reply.parts != theirs.parts or error != (reply.errors[0].type if reply.errors else None):
            differ.add(file)
    assert differ == {file for file in OTHERWISE if file in {each for each, *_ in corpus_streams(corpus, name)}}


def test_the_body_of_a_synthesised_stream_has_its_content_type() -> None:
    stream = synthesize(Reply((TextPart("a"),), "end_turn"), "bedrock-converse")
    assert stream.exchange.header("content-type") == TYPE
    assert [frame.event for frame in frames(stream.body)] == [
        "messageStart",
        "contentBlockDelta",
        "contentBlockStop",
        "messageStop",
    ]
