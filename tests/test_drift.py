"""Wire-shape drift: what a client may have to be adapted to, told in lines; and all that differs every time, which is none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import accumulate, combinations
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_cassette import Stream
from stream_cassette.cassette import load
from stream_cassette.dialects import DIALECTS, dialect
from stream_cassette.dialects.binary import write_event
from stream_cassette.drift import Drift, drift
from stream_cassette.errors import NotApplicable, UnknownDialect
from stream_cassette.model import Arguments, Ending, Exchange, Read, Reasoning, Request, Text
from stream_cassette.mutate import (
    CumulativeUsage,
    CutBeforeFinish,
    Disconnect,
    DropDone,
    DropUsage,
    ErrorEvent,
    FinishWithLastContent,
    MoveUsage,
    Mutator,
    Quirk,
    Stall,
    UnknownEvents,
    instances,
)

REQUEST = Request("POST", "https://api.example.com/v1/x")
SSE, JSON = (("content-type", "text/event-stream"),), (("content-type", "application/json"),)
CASSETTES = sorted((Path(__file__).parent.parent / "cassettes").glob("*/*.yaml"))


def stream(*pieces: bytes, headers: tuple[tuple[str, str], ...] = SSE, status: int = 200, ending: str = "") -> Stream:
    """The answer of these bytes, one read a piece."""
    exchange = Exchange(REQUEST, status, headers, tuple(Read(0, piece) for piece in pieces))
    return Stream(replace(exchange, ending=Ending(ending)) if ending else exchange)


def event(payload: Any, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(payload).encode() + b"\n\n"


def typed(*payloads: dict[str, Any]) -> Stream:
    """Events whose type stands in the payload and on the event line."""
    return stream(*(event(payload, payload["type"]) for payload in payloads))


def whole(value: Any, **more: Any) -> Stream:
    """A response that was not streamed."""
    return stream(json.dumps(value).encode(), headers=JSON, **more)


# ------------------------------------------------------------------------------------------------- streams written by hand, to change

START: dict[str, Any] = {
    "type": "message_start",
    "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 3}},
}
OPEN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
CLOSE = {"type": "content_block_stop", "index": 0}
FINISH: dict[str, Any] = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn"},
    "usage": {"output_tokens": 2},
}
STOP = {"type": "message_stop"}


def text(*pieces: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece, **more}}
        for piece in pieces
    ]


def messages(*content: dict[str, Any], start: dict[str, Any] = START, finish: dict[str, Any] = FINISH) -> Stream:
    return typed(start, *content, finish, STOP)


HELLO = messages(OPEN, *text("Low ", "tide."), CLOSE)
CALL = [
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    },
    *(
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": piece}}
        for piece in ('{"a"', ":1}")
    ),
    {"type": "content_block_stop", "index": 1},
]
THOUGHT = [
    {"type": "content_block_start", "index": 1, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_stop", "index": 1},
]


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "choices": choices, **more}


FIRST = chunk({"role": "assistant", "content": ""})
LAST = chunk({}, "stop")
USED = chunk(usage={"prompt_tokens": 3, "completion_tokens": 2})
DONE = b"data: [DONE]\n\n"


def chat(*chunks: dict[str, Any], done: bytes = DONE) -> Stream:
    return stream(*map(event, chunks), done)


def words(count: int, *without: int, **more: Any) -> list[dict[str, Any]]:
    """So many chunks of text; `more` stands on each delta but those of these numbers."""
    return [chunk({"content": "w", **({} if number in without else more)}) for number in range(count)]


def fragment(function: dict[str, Any], **more: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [{"index": 0, **more, "function": function}]})


CALLED = [
    fragment({"name": "f", "arguments": ""}, id="call_1", type="function"),
    *(fragment({"arguments": piece}) for piece in ('{"a"', ":1}")),
]

DRIFTS: dict[str, tuple[Stream, Stream, list[str]]] = {
    "a field of a kind of events": (
        HELLO,
        messages(OPEN, *text("Low tide.", signature="c2ln"), CLOSE),
        ["event content_block_delta: field delta.signature came (string)"],
    ),
    "a field of one kind of objects among several": (
        messages(OPEN, *text("Low tide."), CLOSE, *THOUGHT),
        messages(OPEN, *text("Low tide.", citations=[]), CLOSE, *THOUGHT),
        ["event content_block_delta: field delta(text_delta).citations came (array)"],
    ),
    "a kind of objects": (
        HELLO,
        messages(OPEN, *text("Low tide."), CLOSE, *THOUGHT),
        [
            "event content_block_start: content_block of type thinking came",
            "event content_block_delta: delta of type thinking_delta came",
        ],
    ),
    "kinds of events": (
        HELLO,
        messages(OPEN, *text("Low tide."), {"type": "content_block_pause"}),
        ["event content_block_stop went", "event content_block_pause came"],
    ),
    "usage keys": (
        HELLO,
        messages(OPEN, *text("Low tide."), CLOSE, finish={**FINISH, "usage": {"completion_tokens": 2}}),
        [
            "event message_delta: field usage.output_tokens went (number)",
            "event message_delta: field usage.completion_tokens came (number)",
        ],
    ),
    "the same in several kinds of events is one line": (
        HELLO,
        typed(*({**json.loads(frame.data or ""), "region": "eu"} for frame in HELLO.frames)),
        [
            "events message_start, content_block_start, content_block_delta, content_block_stop, message_delta, message_stop: field region came (string)"
        ],
    ),
    "the event line": (
        HELLO,
        stream(*(event(payload) for payload in HELLO.payloads)),
        [
            "events message_start, content_block_start, content_block_delta, content_block_stop, message_delta, message_stop: its name on the event line went"
        ],
    ),
    "a field that the first event alone had": (
        chat(FIRST, *words(60), LAST),
        chat(chunk({"content": ""}), *words(60), LAST),
        ["events: field choices[*].delta.role went (string)"],
    ),
    "a field that the event with the usage alone had": (
        chat(FIRST, *words(60), LAST, {**USED, "service": "x"}),
        chat(FIRST, *words(60), LAST, USED),
        ["events: field service went (string)"],
    ),
    "a field that often was there": (
        chat(FIRST, *words(20, *range(0, 20, 2), logprobs=None), LAST),
        chat(FIRST, *words(20), LAST),
        ["events: field choices[*].delta.logprobs went (null)"],
    ),
    "null too": (
        chat(FIRST, *words(3), LAST),
        chat(FIRST, *words(3), chunk({"content": None}), LAST),
        ["events: field choices[*].delta.content is now also null"],
    ),
    "null no more": (
        chat(FIRST, *words(9), LAST),
        chat(*(chunk({"content": "w"}, "") for _ in range(9)), LAST),
        [
            "events: field choices[*].delta.role went (string)",
            "events: field choices[*].finish_reason is no longer null",
        ],
    ),
    "another type": (
        chat(FIRST, *CALLED, LAST),
        chat(FIRST, fragment({"name": "f", "arguments": {"a": 1}}, id="call_1", type="function"), LAST),
        ["events: field choices[*].delta.tool_calls[*].function.arguments is now object, was string"],
    ),
    "a value of the event itself": (
        chat(FIRST, LAST),
        stream(event(FIRST), event(LAST), event(["odd"]), DONE),
        ["events: its value is now also array"],
    ),
    "every chunk had a choice with an index": (
        chat(FIRST, *words(20), LAST),
        chat(
            FIRST,
            *words(10),
            *({**each, "choices": [{"delta": {"content": "w"}, "finish_reason": None}]} for each in words(10)),
            LAST,
        ),
        ["events: field choices[*].index is now sometimes missing (in 10 of 22)"],
    ),
    "every chunk has now what the first alone had": (
        chat(FIRST, *words(20), LAST),
        chat(*words(20, role="assistant"), chunk({"role": "assistant"}, "stop")),
        ["events: field choices[*].delta.role is now always there (was missing in 21 of 22)"],
    ),
    "usage before the finish reason": (
        chat(FIRST, *words(3), LAST, USED),
        chat(FIRST, *words(3), USED, LAST),
        ["order: recorded finish reason, usage; now usage, finish reason"],
    ),
    "usage with the finish reason": (
        chat(FIRST, *words(3), LAST, USED),
        chat(FIRST, *words(3), {**LAST, "usage": USED["usage"]}),
        ["order: the last usage came after the finish reason, now with it"],
    ),
    "kinds of events of the lifecycle": (
        stream(event({"type": "response.created", "response": {}}), event({"type": "response.odd"}), headers=SSE),
        stream(event({"type": "response.odd"}), event({"type": "response.created", "response": {}}), headers=SSE),
        ["order: recorded response.created, response.odd; now response.odd, response.created"],
    ),
    "the end mark": (chat(FIRST, LAST), chat(FIRST, LAST, done=b""), ["event [DONE] went"]),
    "how the end mark is spelt": (
        chat(FIRST, LAST),
        chat(FIRST, LAST, done=b"data: DONE\n\n"),
        ["event [DONE] went", "event DONE came"],
    ),
    "status and content type": (
        HELLO,
        Stream(replace(HELLO.exchange, status=201, headers=(("content-type", "Text/Event-Stream;charset=utf-8"),))),
        [
            "status: recorded 200, now 201",
            "content-type: recorded text/event-stream, now text/event-stream; charset=utf-8",
        ],
    ),
    "the dialect": (
        HELLO,
        chat(FIRST, LAST),
        ["dialect: recorded anthropic, now openai-chat"],
    ),
    "an error in place of a stream": (
        HELLO,
        whole({"detail": "no such model"}, status=404),
        [
            "status: recorded 200, now 404",
            "content-type: recorded text/event-stream, now application/json",
            "dialect: recorded anthropic, now none that is known",
        ],
    ),
    "a plain response": (
        whole({"data": [{"id": "a", "size": 1}], "more": False}),
        whole({"data": [{"id": "b", "size": None}]}),
        ["body: field data[*].size is now null, was number", "body: field more went (boolean)"],
    ),
    "a stream of no known dialect": (
        stream(event({"output": "a"}, "output"), b"data: hm\n\n", b": still here\n\n", event({}, "done")),
        stream(event({"output": "a", "n": 1}, "output"), b"data: hm, well\n\n"),
        ["event done went", "event output: field n came (number)"],
    ),
    "keys that are made up": (
        whole({"files": {"a1b2c3d4": {"size": 1}, "77": {"size": 2}}}),
        whole({"files": {"ffff0000": {"size": 1, "kind": "x"}, "ü": {"size": 2}}}),
        ["body: field files.*.kind came (string)"],
    ),
}


@pytest.mark.parametrize("case", DRIFTS)
def test_what_drifts(case: str) -> None:
    recorded, now, lines = DRIFTS[case]
    assert list(drift(recorded, now).shape) == lines
    assert not drift(recorded, recorded)
    assert not drift(now, now)


def cut(whole: Stream, events: int, **more: str) -> Stream:
    return stream(*(frame.raw for frame in whole.frames[:events]), **more)


def left(whole: Stream, size: int) -> Stream:
    """So many bytes of its body, after which the client left."""
    exchange = whole.exchange
    return Stream(replace(exchange, reads=(Read(0, whole.body[:size]),) if size else (), ending=Ending("closed")))


ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
PING = {"type": "ping"}

STEADY: dict[str, tuple[Stream, Stream]] = {
    "ids, times, words and the number of pieces": (
        chat({**FIRST, "created": 1}, *({**each, "created": 1} for each in words(3)), {**LAST, "created": 1}),
        chat(
            {**FIRST, "created": 2, "id": "d"}, *({**each, "created": 2} for each in words(50)), {**LAST, "created": 3}
        ),
    ),
    "a call that the model did not make": (messages(OPEN, *text("Low tide."), CLOSE, *CALL), HELLO),
    "a call that it made": (chat(FIRST, *words(9), LAST), chat(FIRST, *words(2), *CALLED, LAST)),
    "a text that it did not say": (chat(FIRST, *words(9), *CALLED, LAST), chat(FIRST, *CALLED, LAST)),
    "the arguments of a call": (
        messages({**CALL[0], "content_block": {**CALL[0]["content_block"], "input": {"a": 1}}}, CALL[-1]),
        messages({**CALL[0], "content_block": {**CALL[0]["content_block"], "input": {"b": None}}}, CALL[-1]),
    ),
    "what came once in a while": (
        chat(FIRST, *words(50), *words(1, logprobs=None), LAST),
        chat(FIRST, *words(20), LAST),
    ),
    "what is there now and then, of too few to tell": (
        chat(FIRST, *words(3, seq=1), chunk({"seq": 2}, "stop")),
        chat(FIRST, *words(2), chunk({"content": "w", "seq": 1}), chunk({"seq": 2}, "stop")),
    ),
    "a field in whose stead the model sent a call": (
        chat(*words(9), chunk({"content": ""}, "stop")),
        chat(*words(3), *CALLED, chunk({"content": ""}, "stop")),
    ),
    "another finish reason": (chat(FIRST, *words(2), LAST), chat(FIRST, *words(2), chunk({}, "length"))),
    "the finish reason on the last piece": (
        chat(FIRST, *words(2), LAST),
        chat(FIRST, *words(1), chunk({"content": "w"}, "stop")),
    ),
    "what keeps the connection alive": (HELLO, typed(START, PING, OPEN, *text("Low tide."), CLOSE, FINISH, STOP)),
    "comments and blocks without data": (
        HELLO,
        stream(b": hello\n\n", b"event: idle\n\n", *(frame.raw for frame in HELLO.frames)),
    ),
    "a list that is empty": (whole({"notes": [{"id": 1}]}), whole({"notes": []})),
    "that the client left": (HELLO, cut(HELLO, 4, ending="closed")),
    "that it left before anything came": (HELLO, left(HELLO, 0)),
    "that it left within the first event": (chat(FIRST, *words(3), LAST), left(chat(FIRST), 30)),
    "that it left before the name of the field came": (chat(FIRST, *words(3), LAST), left(chat(FIRST), 5)),
    "that it left within a later event": (HELLO, left(HELLO, HELLO.body.index(b"tide"))),
    "that it left, then and now": (left(HELLO, HELLO.body.index(b"tide")), left(HELLO, 3)),
    "what the connection did after the client had left": (
        cut(HELLO, 4, ending="disconnected"),
        cut(HELLO, 3, ending="closed"),
    ),
    "what the provider did then": (typed(START, OPEN, ERROR), cut(HELLO, 1, ending="closed")),
    "that it left a stream of no known dialect": (
        stream(event({"output": "a"}, "output"), event({"end": True}, "done")),
        left(stream(event({"output": "a"}, "output"), event({"output": "b"}, "output")), 62),
    ),
    "that it left lines of no known dialect": (
        stream(b'{"output":"a"}\n{"output":"b"}\n', headers=JSON),
        left(stream(b'{"output":"a"}\n', headers=JSON), 15),
    ),
    "that it left a plain response": (whole({"a": 1, "b": [1, 2]}), left(whole({"a": 1, "b": [1, 2]}), 9)),
    "that it left a long stream before the finish reason, which a short one has": (
        cut(chat(FIRST, *words(300)), 300, ending="closed"),
        chat(FIRST, *words(5), LAST),
    ),
    "that it left before the last usage": (
        chat(FIRST, {**LAST, "usage": USED["usage"]}, USED),
        cut(chat(FIRST, {**LAST, "usage": USED["usage"]}, USED), 2, ending="closed"),
    ),
    "two bodies that are neither": (
        stream(b"<html>", headers=(("content-type", "text/html"),)),
        stream(b"<body>", headers=(("content-type", "text/html"),)),
    ),
    "nothing at all": (stream(), stream()),
}


@pytest.mark.parametrize("case", STEADY)
def test_what_does_not(case: str) -> None:
    recorded, now = STEADY[case]
    assert drift(recorded, now).shape == ()
    if case.startswith("that it left"):
        assert drift(now, recorded).shape == ()


SILENT = chunk({"role": "assistant", "content": None})
EMPTY_PIECE = {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ""}}
CALL_AS_SENT = [CALL[0], EMPTY_PIECE, *CALL[1:]]
CALL_WITHOUT = [CALL[0], CALL[-1]]
USAGE = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}


def stopped(reason: str, **more: Any) -> dict[str, Any]:
    return {**FINISH, "delta": {"stop_reason": reason, **more}}


def gemini(*pieces: str, since: int = 0, **counts: Any) -> Stream:
    """Each piece with the usage so far, as it is sent; the counts from this piece on."""
    last = len(pieces) - 1
    return stream(
        *(
            event(
                {
                    "candidates": [
                        {
                            "content": {"parts": [{"text": piece}], "role": "model"},
                            "index": 0,
                            **({"finishReason": "STOP"} if at == last else {}),
                        }
                    ],
                    "usageMetadata": {**USAGE, **(counts if at >= since else {})},
                }
            )
            for at, piece in enumerate(pieces)
        )
    )


# Neither way.
OTHERWISE: dict[str, tuple[Stream, Stream]] = {
    "null for the text beside a call": (chat(FIRST, *words(9), LAST), chat(SILENT, *CALLED, chunk({}, "tool_calls"))),
    "null for the text beside a call, with text and a call": (
        chat(FIRST, *words(9), *CALLED, LAST),
        chat(SILENT, *CALLED, LAST),
    ),
    "null or an empty text beside calls alone": (chat(FIRST, *CALLED, LAST), chat(SILENT, *CALLED, LAST)),
    "null or an empty refusal": (
        chat(chunk({"role": "assistant", "content": "", "refusal": ""}), *words(2), LAST),
        chat(chunk({"role": "assistant", "content": "", "refusal": None}), *words(2), LAST),
    ),
    "text alone, or a call too that begins with an empty piece": (
        HELLO,
        messages(OPEN, *text("w"), CLOSE, *CALL_AS_SENT),
    ),
    "text or a call that begins with an empty piece": (HELLO, messages(*CALL_AS_SENT)),
    "text or a call of an empty piece": (HELLO, messages(CALL[0], EMPTY_PIECE, CALL[-1])),
    "a call without arguments": (messages(*CALL), messages(*CALL_WITHOUT)),
    "a call without a piece": (messages(*CALL_AS_SENT), messages(*CALL_WITHOUT)),
    "a call of an empty piece, or without one": (messages(CALL[0], EMPTY_PIECE, CALL[-1]), messages(*CALL_WITHOUT)),
    "two calls, of which one has no arguments": (messages(*CALL_AS_SENT), messages(*CALL_WITHOUT, *CALL_AS_SENT)),
    "the stop sequence": (
        messages(OPEN, *text("w"), CLOSE, finish=stopped("end_turn", stop_sequence=None)),
        messages(OPEN, *text("w"), CLOSE, finish=stopped("stop_sequence", stop_sequence="X")),
    ),
    "the number of the token that stopped it": (
        chat(FIRST, *words(2), {**LAST, "stopped_by": 7}),
        chat(FIRST, *words(2), {**chunk({}, "length"), "stopped_by": None}),
    ),
    "which server it was": (
        chat(*({**each, "system_fingerprint": "fp_1", "service_tier": None} for each in (FIRST, *words(2), LAST))),
        chat(*({**each, "system_fingerprint": None, "service_tier": "default"} for each in (FIRST, *words(2), LAST))),
    ),
    "what came out of the cache": (
        gemini("a", "b"),
        gemini("a", cachedContentTokenCount=4, cacheTokensDetails=[{"modality": "TEXT", "tokenCount": 4}]),
    ),
    "how much it thought unseen, in many pieces": (gemini(*"abcdefgh", thoughtsTokenCount=3), gemini(*"abcdefgh")),
    "since when it thought unseen": (
        gemini(*"abcdefgh", thoughtsTokenCount=3),
        gemini(*"abcdefgh", since=6, thoughtsTokenCount=3),
    ),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_what_the_model_chose_does_not_drift_either_way(case: str) -> None:
    recorded, now = OTHERWISE[case]
    assert drift(recorded, now).shape == ()
    assert drift(now, recorded).shape == ()


# The bounds of the above: what looks like the model's choice and is not.
NOT_CHOSEN: dict[str, tuple[Stream, Stream, list[str]]] = {
    "null for the text where there was never an empty one": (
        chat(chunk({"role": "assistant"}), *words(9), LAST),
        chat(SILENT, *CALLED, LAST),
        ["events: field choices[*].delta.content is now null, was string"],
    ),
    "null for an empty text in front of text": (
        chat(FIRST, *words(9), LAST),
        chat(SILENT, *words(9), LAST),
        ["events: field choices[*].delta.content is now also null"],
    ),
    "null for what is empty and no content": (
        chat(FIRST, *words(2), {**LAST, "note": ""}),
        chat(FIRST, *words(2), {**LAST, "note": None}),
        ["events: field note is now null, was string"],
    ),
    "null for what is empty, in a body of no known dialect": (
        whole({"notes": [1, {"text": ""}]}),
        whole({"notes": [1, {"text": None}]}),
        ["body: field notes[*].text is now null, was string"],
    ),
    "null for what is empty, beside what is no object": (
        chat({**FIRST, "notes": [1, {"text": ""}]}, LAST),
        chat({**FIRST, "notes": [1, {"text": None}]}, LAST),
        ["events: field notes[*].text is now null, was string"],
    ),
    "a list for an empty text": (
        chat(FIRST, *CALLED, LAST),
        chat(chunk({"role": "assistant", "content": []}), *CALLED, LAST),
        ["events: field choices[*].delta.content is now array, was string"],
    ),
    "what stands beside an empty piece": (
        messages(*CALL_AS_SENT),
        messages(CALL[0], {**EMPTY_PIECE, "note": "x"}, *CALL[1:]),
        ["event content_block_delta: field note came (string)"],
    ),
    "what comes after a call and says nothing": (
        chat(FIRST, *words(2), LAST),
        chat(FIRST, *words(2), *CALLED, chunk({}, checks=[{"passed": True}]), chunk({}, "tool_calls")),
        ["events: field checks came (array)"],
    ),
    "the pieces of a call by another name": (
        messages(*CALL),
        messages(CALL[0], {**EMPTY_PIECE, "type": "content_block_piece"}, CALL[-1]),
        ["event content_block_piece came"],
    ),
    "the stop sequence, of replies that ended alike": (
        messages(OPEN, *text("w"), CLOSE, finish=stopped("end_turn", stop_sequence=None)),
        messages(OPEN, *text("w"), CLOSE, finish=stopped("end_turn", stop_sequence="X")),
        ["event message_delta: field delta.stop_sequence is now string, was null"],
    ),
    "the usage beside another finish reason": (
        chat(FIRST, *words(2), {**LAST, "usage": {"prompt_tokens": 3}}),
        chat(FIRST, *words(2), {**chunk({}, "length"), "usage": None}),
        ["events: field usage is now null, was object"],
    ),
    "null beside another finish reason and elsewhere": (
        chat(*({**each, "by": "x"} for each in (FIRST, *words(2), LAST))),
        chat(*({**each, "by": None} for each in (FIRST, *words(2), chunk({}, "length")))),
        ["events: field by is now null, was string"],
    ),
    "null where neither says a finish reason": (
        chat({**FIRST, "by": "x"}, *words(2)),
        chat({**FIRST, "by": None}, *words(2)),
        ["events: field by is now null, was string"],
    ),
    "which server it was, as a number": (
        chat({**FIRST, "system_fingerprint": "fp_1"}, LAST),
        chat({**FIRST, "system_fingerprint": 1}, LAST),
        ["events: field system_fingerprint is now number, was string"],
    ),
    "which server it was, no more": (
        chat(*({**each, "system_fingerprint": None} for each in (FIRST, LAST))),
        chat(FIRST, LAST),
        ["events: field system_fingerprint went (null)"],
    ),
    "a count that is never zero": (
        gemini("a", "b", thoughtsTokenCount=3),
        gemini("a", "b", thoughtsTokenCount=3, costTokenCount=1),
        ["events: field usageMetadata.costTokenCount came (number)"],
    ),
    "what came out of the cache, as a text": (
        gemini("a", "b", cachedContentTokenCount=4),
        gemini("a", "b", cachedContentTokenCount="4"),
        ["events: field usageMetadata.cachedContentTokenCount is now string, was number"],
    ),
}


@pytest.mark.parametrize("case", NOT_CHOSEN)
def test_what_only_looks_like_a_choice_drifts(case: str) -> None:
    recorded, now, lines = NOT_CHOSEN[case]
    assert list(drift(recorded, now).shape) == lines


def test_that_arguments_come_whole_and_no_more_in_pieces_drifts() -> None:
    recorded = RECORDINGS["openai-responses/tools"]
    pieces = "response.function_call_arguments.delta"
    now = stream(*(frame.raw for frame in recorded.frames if frame.event != pieces))
    assert now.reply.tool_calls == recorded.reply.tool_calls
    assert drift(recorded, now).shape == (f"event {pieces} went",)
    assert drift(now, recorded).shape == (f"event {pieces} came",)


# What came before the client left is compared.
CAME: dict[str, tuple[Stream, Stream, list[str]]] = {
    "a field": (
        HELLO,
        left(messages(OPEN, *text("Low tide.", signature="c2ln")), 10_000),
        ["event content_block_delta: field delta.signature came (string)"],
    ),
    "an event that no dialect knows": (
        HELLO,
        left(stream(event({"hello": 1}, "hello")), 40),
        ["event hello came"],
    ),
    "another dialect": (HELLO, left(chat(FIRST, *words(3)), 300), ["dialect: recorded anthropic, now openai-chat"]),
    "damage": (
        HELLO,
        left(stream(*(frame.raw for frame in HELLO.frames[:2]), b"data: {oops\n\n"), 10_000),
        ["error wire:bad_json came"],
    ),
    "an error that no recording has which was left": (
        cut(HELLO, 2, ending="closed"),
        typed(START, OPEN, ERROR),
        ["error overloaded_error came"],
    ),
    "a connection that died": (
        cut(HELLO, 2, ending="closed"),
        cut(HELLO, 3, ending="disconnected"),
        ["ending: recorded complete, now disconnected"],
    ),
}


@pytest.mark.parametrize("case", CAME)
def test_what_came_before_the_client_left_is_compared(case: str) -> None:
    recorded, now, lines = CAME[case]
    assert list(drift(recorded, now).shape) == lines


def test_what_a_stream_lacks_that_was_cut_short_proves_nothing() -> None:
    dead = cut(HELLO, 3, ending="disconnected")
    assert drift(HELLO, dead).shape == ("ending: recorded complete, now disconnected",)
    assert drift(dead, HELLO).shape == ("ending: recorded disconnected, now complete",)
    failed = typed(START, OPEN, ERROR)
    assert drift(HELLO, failed).shape == ("error overloaded_error came", "event error came")
    assert drift(failed, HELLO).shape == ("error overloaded_error went", "event error went")
    # But what every object had of which there are some in it is missed in it too.
    short = cut(messages({**OPEN, "index": None}, *text("Low tide.")), 3, ending="stalled")
    assert drift(HELLO, short).shape == (
        "ending: recorded complete, now stalled",
        "event content_block_start: field index is now null, was number",
    )
    bare = cut(typed(START, {key: value for key, value in OPEN.items() if key != "index"}), 2, ending="stalled")
    assert drift(HELLO, bare).shape[1:] == ("event content_block_start: field index went (number)",)


def test_a_type_that_came_after_the_cut_is_no_news() -> None:
    full, dead = chat(FIRST, *words(3), LAST), cut(chat(FIRST, *words(3), LAST), 3, ending="disconnected")
    assert drift(dead, full).shape == ("ending: recorded disconnected, now complete",)
    assert drift(full, dead).shape == ("ending: recorded complete, now disconnected",)


def test_what_was_said_stands_beside_the_shape() -> None:
    recorded = chat(FIRST, *words(2), *CALLED, LAST, USED)
    other = fragment({"name": "f", "arguments": '{"a":2}'}, id="call_2", type="function")
    now = chat(FIRST, *words(3), other, chunk({}, "length"))
    found = drift(recorded, now)
    assert found.assembled == (
        "reply.text: recorded 'ww', now 'www'",
        "reply.tool_calls[0].arguments.a: recorded 1, now 2",
        "reply.finish_reason: recorded 'stop', now 'length'",
        "reply.usage: recorded {'input_tokens': 3, 'output_tokens': 2}, now nothing",
    )
    assert found.shape == ("events: field usage went (object)",)
    assert (found.drifted, bool(found)) == (True, True)
    assert json.loads(json.dumps(asdict(found)))["shape"] == ["events: field usage went (object)"]
    assert not drift(recorded, recorded).assembled
    assert drift(recorded, whole({"detail": "no"})).assembled[0] == "reply.text: recorded 'ww', now nothing"
    assert drift(whole({}), whole({})) == Drift()


def test_a_plain_response_that_is_nested_too_deeply_to_look_at_is_looked_at_as_far_as_it_goes() -> None:
    deep: Any = 1
    for _ in range(150):
        deep = {"a": [deep]}
    assert not drift(whole(deep), whole(deep))
    assert drift(whole({"x": deep}), whole({"x": 1})).shape == ("body: field x is now number, was object",)


def test_binary_events_are_compared_by_what_is_inside() -> None:
    converse = Stream(replace(BINARY.exchange, reads=_binary(stop={"stopReason": "end_turn", "trace": {}})))
    assert drift(BINARY, converse).shape == ("event messageStop: field trace came (object)",)


def _binary(**fields: Any) -> tuple[Read, ...]:
    events = [
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "w"}}),
        ("messageStop", fields["stop"]),
    ]
    return tuple(Read(0, write_event(*each).raw) for each in events)


BINARY = Stream(
    Exchange(
        REQUEST,
        200,
        (("content-type", "application/vnd.amazon.eventstream"),),
        _binary(stop={"stopReason": "end_turn"}),
    )
)

# ----------------------------------------------------------------------------------------------------------- recordings and mutators

# What only cuts or times anew what was said, or says it at other times.
STEADY_LEVELS = ("wire", "framing", "deltas")
# Of these, those that a client sees: another order, another place of usage, events that it does not know, an end mark that is missing.
SEEN: tuple[type[Mutator], ...] = (MoveUsage, CumulativeUsage, UnknownEvents, DropDone, FinishWithLastContent)


RECORDINGS = {
    f"{file.parent.name}/{file.stem}": Stream(interaction.exchange, interaction.dialect)
    for file in CASSETTES
    for interaction in load(file).interactions
}


@pytest.mark.parametrize("recorded", RECORDINGS.values(), ids=list(RECORDINGS))
def test_recordings_that_are_only_cut_or_timed_anew_do_not_drift(recorded: Stream) -> None:
    assert drift(recorded, recorded) == Drift()
    for mutator in instances(recorded, *STEADY_LEVELS):
        if not isinstance(mutator, SEEN):
            now = mutator.apply(recorded)
            assert drift(recorded, now).shape == (), mutator
            assert drift(now, recorded).shape == (), mutator


@pytest.mark.parametrize("recorded", RECORDINGS.values(), ids=list(RECORDINGS))
def test_recordings_that_the_client_leaves_anywhere_do_not_drift(recorded: Stream) -> None:
    ends = [end for end in accumulate(len(frame.raw) for frame in recorded.frames)]
    sizes = {0, 1, 5, 30, *ends[:2], ends[0] + 40, *ends[:: len(ends) // 3 or 1], *(end - 7 for end in ends[-3:])}
    prefixes = [left(recorded, size) for size in sorted(sizes)]
    for prefix in prefixes:
        assert drift(recorded, prefix).shape == (), len(prefix.body)
        assert drift(prefix, recorded).shape == (), len(prefix.body)
        assert drift(prefix, prefixes[3]).shape == drift(prefixes[3], prefix).shape == (), len(prefix.body)


TOLD: dict[str, tuple[Mutator, str]] = {
    "MoveUsage": (MoveUsage("first"), "order: recorded finish reason, usage; now usage, finish reason"),
    "CumulativeUsage": (CumulativeUsage(), "order: recorded finish reason, usage; now usage, finish reason"),
    "UnknownEvents": (UnknownEvents(1), "event weather_report came"),
    "DropDone": (DropDone(), "event [DONE] went"),
    "DropUsage": (DropUsage(), "events: field usage went (object)"),
    "CutBeforeFinish": (CutBeforeFinish(), "events: field choices[*].finish_reason is no longer string"),
    "ErrorEvent": (ErrorEvent("overloaded"), "events: field error came (object)"),
    "Disconnect": (Disconnect(400), "ending: recorded complete, now disconnected"),
    "Stall": (Stall(400), "ending: recorded complete, now stalled"),
    "Quirk": (Quirk("reasoning-field"), "events: field choices[*].delta.reasoning_content went (string)"),
}


@pytest.mark.parametrize("name", TOLD)
def test_mutators_that_change_the_shape_are_told(name: str) -> None:
    mutator, line = TOLD[name]
    recorded = RECORDINGS["openai-chat/tools"]
    assert line in drift(recorded, mutator.apply(recorded)).shape


# Spellings of real servers that change what a client must know, in any of the recordings.
SPELT = [
    "event-line-missing",
    "type-only-in-event-line",
    "block-before-start",
    "no-message-stop",
    "unknown-block",
    "unknown-delta",
    "stop-sequence-absent",
    "done-sentinel",
    "usage-before-stop",
    "message-start-bare",
    "finish-as-number",
    "safety-ratings",
    "json-array",
    "arguments-text",
    "content-missing",
    "identity-repeated",
    "role-repeated",
    "index-missing",
    "type-missing",
    "arguments-null",
    "arguments-object",
    "usage-null-everywhere",
    "x-groq-usage",
    "finish-key-absent",
    "object-missing",
    "azure-first-chunk",
    "role-null",
    "content-null",
    "content-list",
    "reasoning-field",
    "deltas-without-done",
    "no-item-added",
    "sequence-numbers-missing",
    "other-words",
    "input-key-missing",
    "call-id-field",
    "partial-json-field",
]
# Those of another value of a field, of pieces cut otherwise, of what a parser of the framing does not see, and of lists that are empty.
NOT_SHAPE = [
    "index-from-one",
    "index-all-zero",
    "index-with-gaps",
    "end-turn-beside-calls",
    "stop-beside-calls",
    "ids-change-per-chunk",
    "item-ids-change",
    "ascii-escapes",
    "signature-in-pieces",
    "name-fragmented",
    "surrogate-split",
    "one-part-per-chunk",
    "comment-as-data",
    "event-without-data",
    "blank-lines",
    "empty-data",
    "empty-choices",
    "completed-with-empty-output",
]


def test_spellings_of_real_servers_are_told_as_far_as_they_are_shape() -> None:
    told: dict[str, bool] = {}
    for recorded in (recorded for name, recorded in RECORDINGS.items() if name.endswith("/tools")):
        for name in dialect(recorded.spoken or "").quirks.keys() & {*SPELT, *NOT_SHAPE}:
            with suppress(NotApplicable):
                told[name] = told.get(name, False) or bool(drift(recorded, Quirk(name).apply(recorded)))
    assert [name for name in SPELT if not told[name]] == []
    assert [name for name in NOT_SHAPE if told[name]] == []


@settings(max_examples=40)
@given(data=st.data())
def test_a_stream_against_itself_does_not_drift_whatever_is_in_it(data: st.DataObject) -> None:
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["type", "a", "<b>", "*", "[*]", "input"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
    payloads = data.draw(st.lists(values, max_size=5))
    spoken = data.draw(st.sampled_from([None, *(each.name for each in DIALECTS)]))
    taken = replace(stream(*map(event, payloads)), dialect=spoken)
    again = replace(stream(*map(event, [*payloads, *payloads])), dialect=spoken)
    assert drift(taken, taken) == Drift()
    assert not [line for line in drift(taken, again).shape if "came" in line or "went" in line]


# ----------------------------------------------------------------------------------------------------------------------- the corpus

LINE = re.compile(
    r"(status|content-type|dialect|ending|framing): recorded .+, now .+|error \S+ (came|went)|order: .+"
    r"|(events?( \S+(, \S+)*)?|body)( (came|went)|: .+ (came|went|came \(.+\)|went \(.+\)|is (now|no longer) .+))"
)


def captured(corpus: Path) -> list[tuple[dict[str, Any], Stream]]:
    """Those of known dialects, but for the few that are very long."""
    rows = json.loads((corpus / "index.json").read_text("utf-8"))
    found = []
    for row in (row for row in rows if row["bytes"] < 30_000):
        got = stream((corpus / row["file"]).read_bytes(), headers=())
        try:
            _ = got.reply
        except UnknownDialect:
            continue
        found.append((row, got))
    return found


def likeness(one: dict[str, Any], other: dict[str, Any]) -> float:
    """How many of the features of two captured streams they have in common, 0 to 1."""
    tags = [{tag for tag in row["shape"] if not tag.startswith("wire:")} for row in (one, other)]
    return len(tags[0] & tags[1]) / max(len(tags[0] | tags[1]), 1)


def test_captured_streams_of_one_provider_drift_as_far_as_their_features_differ(corpus: Path) -> None:
    alike, apart = [], []
    for number, ((one, recorded), (other, now)) in enumerate(combinations(captured(corpus), 2)):
        if (one["provider"], one["api"]) != (other["provider"], other["api"]):
            continue
        are_alike = likeness(one, other) > 0.75
        if are_alike or number % 5 == 0:  # of the many others a few will do
            lines = drift(recorded, now).shape
            assert all(LINE.fullmatch(line) for line in lines), lines
            (alike if are_alike else apart).append(len(lines))
    assert len(alike) > 15
    assert median(alike) <= 4 < median(apart)
    assert max(alike) <= 14


def test_captured_streams_do_not_drift_by_the_number_of_their_pieces(corpus: Path) -> None:
    seen = 0
    for row, recorded in captured(corpus):
        kinds = [
            _skeleton(frame.data or "") if _is_piece(said) else ""
            for frame, said in zip(recorded.frames, recorded.deltas_by_frame, strict=True)
        ]
        for copies in (lambda _: 2, lambda nth: int(nth % 5 == 0)):
            now = _with(recorded, kinds, copies)
            assert drift(recorded, now).shape == (), row["file"]
            assert drift(now, recorded).shape == (), row["file"]
            seen += now.body != recorded.body
    assert seen > 100


def _skeleton(data: str) -> str:
    """JSON text without its strings and numbers, but for the names."""
    string = r'"(?:[^"\\]|\\.)*"'
    return re.sub(rf"({string}\s*:)|{string}|\d+", r"\1", data)


def _is_piece(said: Sequence[Any]) -> bool:
    return bool(said) and all(isinstance(delta, Text | Reasoning | Arguments) for delta in said)


def _with(recorded: Stream, kinds: Sequence[str], copies: Callable[[int], int]) -> Stream:
    """Each frame that is a mere piece of content so many times as `copies` says of its number among its kind; the first two of a kind stay."""
    numbers: dict[str, int] = {}
    out = []
    for frame, kind in zip(recorded.frames, kinds, strict=True):
        nth = numbers[kind] = numbers.get(kind, -1) + 1
        out += [frame.raw] * (copies(nth) if kind and nth > 1 else 1)
    return stream(*out, headers=())
