"""The two Gemini dialects: what their wires alone say, and the official client as a judge."""

from __future__ import annotations

import json
import warnings
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import errors, types
from hypothesis import HealthCheck, given, settings

from judges import corpus_streams, counts, said, served, value_of
from strategies import replies
from stream_cassette import Assembler, assemble, synthesize
from stream_cassette.arguments import place
from stream_cassette.dialects import dialect
from stream_cassette.framing import frames, sse
from stream_cassette.model import (
    Arguments,
    ArgumentsAt,
    Finish,
    Key,
    Opaque,
    OpaquePart,
    Part,
    PartEnd,
    ReasoningPart,
    Refusal,
    Reply,
    Signature,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    ToolCallStart,
    Usage,
    UsageUpdate,
    Whole,
)

GEMINI, INTERACTIONS = dialect("gemini"), dialect("gemini-interactions")
SERIAL = Key(serial=True)


def chunk(*parts: Any, index: int = 0, **more: Any) -> dict[str, Any]:
    beside = {
        name: more.pop(name) for name in ("finishReason", "groundingMetadata", "citationMetadata") if name in more
    }
    return {"candidates": [{"index": index, "content": {"parts": list(parts)}, **beside}], **more}


def call(**said: Any) -> dict[str, Any]:
    return {"functionCall": said}


def at(path: str, more: bool = False, **value: Any) -> dict[str, Any]:
    return {"jsonPath": path, **value, **({"willContinue": True} if more else {})}


STOP = chunk(finishReason="STOP")


@pytest.mark.parametrize(
    ("chunks", "parts"),
    [
        ([chunk({"text": "a"}), chunk({"text": "b"})], (TextPart("ab"),)),
        ([chunk({"text": "a", "thought": True}), chunk({"text": "b"}), chunk({"text": "c", "thought": True})], (ReasoningPart("a"), TextPart("b"), ReasoningPart("c"))),
        ([chunk({"text": "a", "thought": True}), chunk({"text": "", "thought": True, "thoughtSignature": "s"})], (ReasoningPart("a", "s"),)),
        ([chunk({"text": "a", "thoughtSignature": "s"}), chunk({"text": "b"})], (TextPart("a"), OpaquePart("thoughtSignature", ({"thoughtSignature": "s"},)), TextPart("b"))),
        ([chunk({"text": "a"}, groundingMetadata={"g": 1}), chunk({"text": "b"}, groundingMetadata={"g": 2})], (TextPart("ab"), OpaquePart("groundingMetadata", ({"g": 1}, {"g": 2})))),
        ([chunk({"executableCode": {"code": "1"}}, {"executableCode": {"code": "2"}})], (OpaquePart("executableCode", ({"executableCode": {"code": "1"}},)), OpaquePart("executableCode", ({"executableCode": {"code": "2"}},)))),
        ([chunk({}, {"text": 5}, {"thoughtSignature": 5}, 7)], ()),
        ([chunk(call(name="f", args={"a": 1})), chunk(call(name="f", args={"a": 2}))], (ToolCall(0, name="f", arguments_text='{"a":1}'), ToolCall(1, name="f", arguments_text='{"a":2}'))),
        ([chunk(call(name="f"), call(id="i", name="g", args={}))], (ToolCall(0, name="f"), ToolCall(1, id="i", name="g", arguments_text="{}"))),
        ([chunk(call(name="f", args='{"a": 1}'))], (ToolCall(0, name="f", arguments_text='{"a": 1}'),)),
        ([chunk({**call(name="f"), "thoughtSignature": "s"}), chunk(call(name="f"))], (ToolCall(0, name="f"), OpaquePart("thoughtSignature", ({"thoughtSignature": "s"},)), ToolCall(1, name="f"))),
        (
            [chunk({**call(name="f", willContinue=True), "thoughtSignature": "s"}), chunk(call(partialArgs=[at("$.a", stringValue="x")], willContinue=True)), chunk(call())],
            (ToolCall(0, name="f", arguments_text='{"a":"x"}'), OpaquePart("thoughtSignature", ({"thoughtSignature": "s"},))),
        ),
        # a name opens a call even where the one before was left open; an id finds its own
        ([chunk(call(name="f", willContinue=True)), chunk(call(name="g"))], (ToolCall(0, name="f"), ToolCall(1, name="g"))),
        ([chunk(call(id="i", name="f", willContinue=True)), chunk(call(name="g")), chunk(call(id="i", args={"a": 1}))], (ToolCall(0, id="i", name="f", arguments_text='{"a":1}'), ToolCall(1, name="g"))),
        ([chunk(call(args={"a": 1}))], ()),  # whose it is, nobody knows
        ([chunk(call(name="f", willContinue=True, partialArgs=[at("$.a[0]", stringValue="x"), 7, {"stringValue": "no path"}])), chunk(call())], (ToolCall(0, name="f", arguments_text='{"a":["x"]}', problem="no place"),)),
    ],
)  # fmt: skip
def test_parts_follow_one_another(chunks: list[Any], parts: tuple[Any, ...]) -> None:
    got = assemble([*chunks, STOP], dialect="gemini").parts
    assert [part for part in got if not isinstance(part, ToolCall)] == [
        part for part in parts if not isinstance(part, ToolCall)
    ]
    assert [(part.id, part.name, part.arguments_text) for part in got if isinstance(part, ToolCall)] == [
        (part.id, part.name, part.arguments_text) for part in parts if isinstance(part, ToolCall)
    ]
    assert [type(part) for part in got] == [type(part) for part in parts]


@pytest.mark.parametrize(
    ("text", "values", "expected", "problem"),
    [
        ("", [("$.a", "x", False)], '{"a":"x"}', None),
        ("", [("$.a", "x", True), ("$.a", "y", False)], '{"a":"xy"}', None),
        ("", [("$.a", "x", True), ("$.b", 1, False), ("$.a", "y", True), ("$.a", "", False)], '{"a":"xy","b":1}', None),
        ("", [("$.a", "x", False), ("$.a", "y", False)], '{"a":"y"}', None),
        ("", [("$.a", "x", False), ("$.a", None, False)], '{"a":null}', None),
        ("", [("$.a.b[0].c", True, False), ("$.a.b[1]", 2.5, False)], '{"a":{"b":[{"c":true},2.5]}}', None),
        ("", [("$.a[0]", 1, False), ("$.a[0]", 2, False)], '{"a":[2]}', None),
        ("", [("$.a[0].b", 1, False), ("$.a[0].c", 2, False)], '{"a":[{"b":1,"c":2}]}', None),
        ("", [("""$['a b']["c'd"]""", 1, False)], '{"a b":{"c\'d":1}}', None),
        ("", [(r"""$['it\'s "x"\u0021']""", 1, False)], '{"it\'s \\"x\\"!":1}', None),
        ("", [(r"""$['\q']""", 1, False)], '{"\\\\q":1}', None),
        ('{"a":1}', [("$.b", 2, False)], '{"a":1,"b":2}', None),
        ("", [("$.a", "x", True)], '{"a":"x"}', "unfinished: $.a"),
        ("[]", [("$.a", 1, False)], "[]", "not an object"),
        ("", [("$", 1, False)], "{}", "no path to a place in the arguments: '$'"),
        ("", [("a", 1, False), ("$.b", 1, True)], '{"b":1}', "no path to a place in the arguments: 'a'"),
        ("", [("$[0]", 1, False)], "{}", "no path to a place in the arguments: '$[0]'"),
        ("", [("$.a..b", 1, False)], "{}", "no path to a place in the arguments: '$.a..b'"),
        ("", [("$" + ".a" * 101, 1, False)], "{}", f"no path to a place in the arguments: {'$' + '.a' * 101!r}"),
        ("", [("$.a[1]", 1, False)], '{"a":[]}', "no place for '$.a[1]' in what came before it"),
        ("", [("$.a", 1, False), ("$.a.b", 1, False), ("$.a[0]", 1, False)], '{"a":1}', "no place for '$.a.b' in what came before it"),
    ],
)  # fmt: skip
def test_arguments_that_come_by_json_path(
    text: str, values: list[tuple[str, Any, bool]], expected: str, problem: str | None
) -> None:
    assert place(text, [ArgumentsAt(Key(), *value) for value in values]) == (expected, problem)


@pytest.mark.parametrize(
    ("partial", "value"),
    [
        ({"stringValue": "x"}, "x"),
        ({"numberValue": 1.5}, 1.5),
        ({"boolValue": False}, False),
        ({"nullValue": "NULL_VALUE"}, None),
        ({"structValue": {"a": 1}}, {"a": 1}),
        ({}, ""),
    ],
)
def test_a_partial_argument_is_written_as_it_reads(partial: Any, value: Any) -> None:
    frame = sse.encode(json.dumps(chunk(call(partialArgs=[at("$.a", True, **partial)], willContinue=True))))
    read = GEMINI.read(frame)
    assert read == [ArgumentsAt(SERIAL, "$.a", value, True)]
    assert [delta for written in GEMINI.write(read, frame) for delta in GEMINI.read(written)] == read


def test_a_call_is_released_only_when_its_last_piece_has_come() -> None:
    reading = Assembler("gemini")
    for piece in (
        call(name="f", willContinue=True),
        call(partialArgs=[at("$.a", True, stringValue="x")], willContinue=True),
    ):
        reading.feed(chunk(piece))
        assert not reading.result().tool_calls
    reading.feed(chunk(call(partialArgs=[at("$.a", stringValue="y")])))
    assert [each.arguments for each in reading.result().tool_calls] == [{"a": "xy"}]
    reading.feed(chunk({"text": "!"}))
    assert [type(part).__name__ for part in reading.result().parts] == ["ToolCall", "TextPart"]


@pytest.mark.parametrize(
    ("reasons", "reason", "stop"),
    [
        (["STOP", "STOP", "RECITATION"], "RECITATION", "content_filter"),
        (["FINISH_REASON_UNSPECIFIED", "", 0, None], None, None),
        ([1], "STOP", "stop"),
        ([2], "MAX_TOKENS", "length"),
        ([99], "99", "other"),
        (["MALFORMED_FUNCTION_CALL"], "MALFORMED_FUNCTION_CALL", "error"),
    ],
)  # fmt: skip
def test_the_last_reason_counts(reasons: list[Any], reason: str | None, stop: str | None) -> None:
    reply = assemble([chunk(finishReason=each) for each in reasons], dialect="gemini")
    assert (reply.finish_reason, reply.stop) == (reason, stop)
    assert not reply.warnings


def test_a_call_beside_stop_is_what_a_tool_loop_acts_on() -> None:
    assert assemble([chunk(call(name="f")), STOP], dialect="gemini").stop == "tool_calls"


def test_a_blocked_prompt_is_an_error_and_is_written_as_one() -> None:
    said = {
        "promptFeedback": {"blockReason": "SAFETY", "safetyRatings": [1]},
        "usageMetadata": {"promptTokenCount": 2},
        "modelVersion": "m",
    }
    reply = assemble([said])
    assert (reply.complete, reply.errors[0].type, reply.errors[0].message) == (
        False,
        "SAFETY",
        "the prompt was blocked: SAFETY",
    )
    assert (reply.model, counts(reply, "input_tokens")) == ("m", (2,))
    (frame,) = GEMINI.write(GEMINI.deltas(said), sse.encode(json.dumps(said)))
    assert GEMINI.payload(frame)["promptFeedback"] == said["promptFeedback"]
    (frame,) = GEMINI.write([StreamError("SAFETY", "no", {"blockReason": "SAFETY"})])
    assert GEMINI.payload(frame) == {"promptFeedback": {"blockReason": "SAFETY"}}


def test_feedback_that_blocks_nothing_stays_in_the_envelope() -> None:
    said = chunk({"text": "a"}, promptFeedback={"safetyRatings": [1]}, createTime="t")
    (frame,) = GEMINI.write([Text(SERIAL, "b")], sse.encode(json.dumps(said)))
    assert GEMINI.payload(frame) == {
        **chunk({"text": "b"}),
        "promptFeedback": {"safetyRatings": [1]},
        "createTime": "t",
    }


def test_what_is_read_later_than_what_was_said_opens_the_next_chunk() -> None:
    like = sse.encode(json.dumps(chunk({"text": "x"}, index=1)))
    one, two = Key(1, serial=True), SERIAL
    deltas: list[Any] = [
        Text(one, "a"), Opaque(Key(1), "groundingMetadata", 1), Opaque(Key(1), "groundingMetadata", 2), Text(one, "b"), Finish(Key(1), "X", True),
        Finish(Key(1), "STOP", True), Text(two, "c"), UsageUpdate({}, {"a": 1}), UsageUpdate({}, {"a": 2}), Text(two, "d"), ToolCallStart(two, "function", "f"),
        Arguments(two, "{}"), Arguments(two, '{"a":1}'), PartEnd(two), Signature(two, "s"), Opaque(two, "thoughtSignature", {"thoughtSignature": "s"}),
        Opaque(two, "blob", 7), Opaque(two, "thoughtSignature", {"thoughtSignature": "t"}), StreamError("e", "m"), StreamError("f", "m", {"status": "f"}),
    ]  # fmt: skip
    written = GEMINI.write(deltas, like)
    assert len(written) < len(deltas) / 2
    read = [delta for frame in written for delta in GEMINI.read(frame)]
    again = [delta for frame in GEMINI.write(read, like) for delta in GEMINI.read(frame)]
    assert again == read
    reply = assemble(read)
    assert [choice.text for choice in reply.choices] == ["cd", "ab"]
    assert [error.type for error in reply.errors] == ["e", "f"]


def test_what_this_wire_has_no_words_for_is_left_out() -> None:
    assert GEMINI.write([Refusal(SERIAL, "no"), Whole(SERIAL, "text", "a")]) == []
    assert INTERACTIONS.write([Refusal(Key(), "no"), Whole(Key(), "text", "a"), ArgumentsAt(Key(), "$.a", 1)]) == []
    (frame,) = GEMINI.write([ToolCallStart(SERIAL, "function", "f"), Arguments(SERIAL, "[")])
    assert GEMINI.payload(frame)["candidates"][0]["content"]["parts"] == [call(willContinue=True, name="f")]


def test_an_end_mark_of_a_gateway_is_kept() -> None:
    (frame,) = frames(b"data: [DONE]\r\n\r\n")
    assert [written.raw for written in GEMINI.write(GEMINI.read(frame), frame)] == [frame.raw]
    assert GEMINI.write(GEMINI.read(frame)) == []


def test_elements_of_an_array_stay_elements_of_one() -> None:
    body = b'[{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}\n,\r\n{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}\n]'
    first, second, *rest = frames(body)
    changed = [
        *GEMINI.write([Text(SERIAL, "1"), UsageUpdate({}, {"promptTokenCount": 1}), Text(SERIAL, "2")], first),
        second,
        *rest,
    ]
    raw = b"".join(frame.raw for frame in GEMINI.finish(changed))
    assert [each.get("usageMetadata") for each in json.loads(raw)] == [{"promptTokenCount": 1}, None, None]
    assert (assemble(raw).text, assemble(raw).finish_reason) == ("12b", "STOP")
    assert GEMINI.finish([first, second, *rest]) == [first, second, *rest]


@pytest.mark.parametrize("url", ["https://x/v1beta/models/m:streamGenerateContent", ""])
def test_the_address_tells_where_the_first_payload_does_not(url: str) -> None:
    reading = Assembler(url=url)
    reading.feed({"modelVersion": "m"})
    assert reading.dialect == ("gemini" if url else None)


def test_an_error_of_any_google_api_is_known() -> None:
    reply = assemble(
        b'{"error": {"code": 404, "message": "no model", "status": "NOT_FOUND"}}', content_type="application/json"
    )
    assert [(error.type, error.message) for error in reply.errors] == [("NOT_FOUND", "no model")]


def test_arguments_in_a_part_of_another_kind_are_left_out() -> None:
    reply = assemble([Text(Key(index=0), "a"), ArgumentsAt(Key(index=0), "$.a", 1)])
    assert (reply.parts, len(reply.warnings)) == ((TextPart("a"),), 1)


# ------------------------------------------------------------------------------------------------------------- interactions


def event(type_: str, **fields: Any) -> dict[str, Any]:
    return {"event_type": type_, **fields}


def test_what_stands_in_the_start_of_a_step_is_read() -> None:
    steps = [
        {"type": "thought", "summary": [{"type": "text", "text": "hm"}], "signature": "s"},
        {"type": "model_output", "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "d"}]},
        {"type": "function_call", "id": "i", "name": "f", "arguments": {"a": 1}, "signature": "t"},
        {"type": "function_call", "id": "j", "name": "g", "arguments": '{"b": 1}'},
        {"type": "google_search_call", "id": "k"},
    ]
    ends = [event("step.stop", index=2), event("interaction.completed", interaction={"status": "requires_action"})]
    reply = assemble([*(event("step.start", index=index, step=step) for index, step in enumerate(steps)), *ends])
    assert reply.parts == (
        ReasoningPart("hm", "s"),
        TextPart("a"),
        OpaquePart("image", ({"type": "image", "data": "d"},)),
        ToolCall(0, id="i", name="f", arguments_text='{"a":1}'),
        OpaquePart("signature", ("t",)),
        ToolCall(1, id="j", name="g", arguments_text='{"b": 1}'),
        OpaquePart("google_search_call", ({"type": "google_search_call", "id": "k"},)),
    )
    assert reply.stop == "tool_calls"
    searched = Reply(reply.parts[-1:], "completed", ended=True)
    assert assemble(synthesize(searched, "gemini-interactions")) == searched


def test_steps_are_renumbered_in_the_order_of_their_starts() -> None:
    stream = synthesize(Reply((TextPart("a"), TextPart("b")), "completed", ended=True), "gemini-interactions")
    moved = [*stream.frames[:1], *stream.frames[4:7], *stream.frames[1:4], *stream.frames[7:]]
    finished = INTERACTIONS.finish(moved)
    assert [INTERACTIONS.payload(frame)["index"] for frame in finished[1:7]] == [0, 0, 0, 1, 1, 1]
    assert assemble(finished).text == "ba"


def test_the_status_and_usage_share_an_event_only_in_this_order() -> None:
    usage = UsageUpdate({"total_tokens": 1}, {"total_tokens": 1})
    deltas: list[Any] = [usage, Finish(Key(), "completed"), Finish(Key(), "failed"), usage]
    assert len(INTERACTIONS.write(deltas)) == 3
    assert [delta for frame in INTERACTIONS.write(deltas) for delta in INTERACTIONS.read(frame)] == deltas


def test_an_opaque_thing_within_a_step_is_a_delta_of_it() -> None:
    (frame,) = INTERACTIONS.write([Opaque(Key(index=1), "image", {"type": "image"})])
    assert INTERACTIONS.payload(frame)["delta"] == {"type": "image"}


# ---------------------------------------------------------------------------------------------------- the official client


@contextmanager
def client(body: bytes) -> Iterator[genai.Client]:
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    http = httpx2.Client(transport=httpx2.MockTransport(lambda request: answer))
    with closing(http), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".* is not a valid", category=UserWarning
        )  # words of no enum of theirs
        yield genai.Client(api_key="x", vertexai=False, http_options=types.HttpOptions(httpx_client=http))


USAGE_NAMES = {
    "input_tokens": "prompt_token_count",
    "output_tokens": "candidates_token_count",
    "total_tokens": "total_token_count",
    "cached_tokens": "cached_content_token_count",
    "reasoning_tokens": "thoughts_token_count",
}


def judged(body: bytes) -> dict[str, Any]:
    """What the official client makes of a stream."""
    out: dict[str, Any] = {"text": "", "reasoning": "", "calls": [], "finish": None, "usage": {}, "failed": False}
    with client(body) as api:
        try:
            for answer in api.models.generate_content_stream(model="m", contents="hi"):
                candidate = (answer.candidates or [types.Candidate()])[0]
                for part in (candidate.content and candidate.content.parts) or []:
                    out["reasoning" if part.thought else "text"] += part.text or ""
                    if part.function_call:
                        out["calls"].append(
                            (part.function_call.id, part.function_call.name, part.function_call.args or {})
                        )
                if candidate.finish_reason:
                    out["finish"] = candidate.finish_reason.value
                for ours, theirs in USAGE_NAMES.items():
                    count = getattr(answer.usage_metadata, theirs, None)
                    out["usage"] |= {} if count is None else {ours: count}
        except (errors.APIError, errors.UnknownApiResponseError):
            out["failed"] = True
    return out


def ours(reply: Reply) -> dict[str, Any]:
    usage = {name: count for name in USAGE_NAMES if (count := getattr(reply.usage, name, None)) is not None}
    return {**said(reply), "usage": usage, "failed": bool(reply.errors)}


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(reply=replies("gemini"))
def test_the_official_client_reads_what_we_synthesise(reply: Reply) -> None:
    reply = replace(reply, parts=tuple(map(in_base64, reply.parts)))
    got, want = judged(synthesize(reply, "gemini").body), ours(reply)
    assert {**got, "finish": str(got["finish"]).upper()} == {
        **want,
        "finish": str(want["finish"]).upper(),
    }  # its enum ignores case


def in_base64(part: Part) -> Part:
    """The client insists on signatures in base64."""
    return (
        replace(part, signature=b64encode(part.signature.encode()).decode())
        if isinstance(part, ReasoningPart)
        else part
    )


# Streams that the official client reads otherwise, and why we do not.
OTHERWISE = {
    "gemini-gemini-token-counts-streaming.json": "a JSON array: it asks for an event stream and reads nothing else",
    "gemini-sk-chat-stream-finish-reason-other-response.json": "a JSON array after a byte order mark",
    "gemini-google-stream-tool-call-arguments.sse": "it shows each piece of a call as a call",
    "gemini-googleai-streaming-failure-prompt-blocked-safety.sse": "it leaves a blocked prompt to the caller, we call it an error",
    "gemini-vertexai-streaming-failure-prompt-blocked-safety-with-message.sse": "the same",
}


def test_the_official_client_reads_captured_streams_as_we_do(corpus: Any) -> None:
    differ = set()
    for name, body, _ in corpus_streams(corpus, "gemini"):
        if judged(body) != ours(assemble(body, dialect="gemini")):
            differ.add(name)
    assert differ == set(OTHERWISE)


def judged_interaction(body: bytes) -> dict[str, Any]:
    out: dict[str, Any] = {"text": "", "reasoning": "", "finish": None}
    calls: dict[int, list[Any]] = {}
    with (
        served(body, "text/event-stream") as url,
        closing(genai.Client(api_key="x", http_options=types.HttpOptions(base_url=url))) as api,
    ):
        with api.interactions.create(model="m", input="hi", stream=True) as events:
            for each in events:
                match each.event_type:
                    case "step.start" if each.step.type == "function_call":
                        calls[each.index] = [each.step.id, each.step.name, ""]
                    case "step.delta" if each.delta.type == "text":
                        out["text"] += each.delta.text
                    case "step.delta" if each.delta.type == "thought_summary":
                        out["reasoning"] += each.delta.content.text
                    case "step.delta" if each.delta.type == "arguments_delta":
                        calls[each.index][2] += each.delta.arguments
                    case "interaction.completed":
                        out["finish"] = each.interaction.status
    return {**out, "calls": [(id_, name, value_of(text)) for id_, name, text in calls.values()]}


def test_the_official_client_reads_interactions_as_we_do(corpus: Any) -> None:
    for name, body, _ in corpus_streams(corpus, "gemini-interactions"):
        assert judged_interaction(body) == said(assemble(body)), name


def test_the_official_client_reads_interactions_that_we_synthesise() -> None:
    parts = (
        ReasoningPart("hm", "c2ln"),
        TextPart("a"),
        ToolCall(0, id="i", name="f", arguments_text='{"a":1}'),
        ToolCall(1, id="j", name="g"),
    )
    reply = Reply(parts, "requires_action", Usage(1, 2, 3), ended=True, id="r", model="m")
    assert judged_interaction(synthesize(reply, "gemini-interactions").body) == said(reply)
