"""Legacy text completions: their chunks, and the official client as judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given

from strategies import replies
from stream_cassette import assemble, synthesize
from stream_cassette.dialects import detect, dialect
from stream_cassette.dialects.base import Hint
from stream_cassette.framing import frames, sse
from stream_cassette.model import (
    Delta,
    End,
    Finish,
    Frame,
    Keepalive,
    Key,
    PartEnd,
    Reply,
    Start,
    StreamError,
    Text,
    TextPart,
    Unknown,
    Usage,
    UsageUpdate,
)

COMPLETIONS = dialect("openai-completions")
BEGUN = Start(Key(), "assistant", "c", "m")


def chunk(*choices: Any, **more: Any) -> dict[str, Any]:
    return {"id": "c", "object": "text_completion", "model": "m", "choices": list(choices), **more}


CHUNKS: dict[str, tuple[dict[str, Any], list[Delta]]] = {
    "text": (chunk({"text": "a", "index": 0, "logprobs": None, "finish_reason": None}), [BEGUN, Text(Key(), "a")]),
    "the end, with text": (chunk({"text": "a", "index": 0, "finish_reason": "length"}), [BEGUN, Text(Key(), "a"), Finish(Key(), "length")]),
    "nothing": (chunk({"text": "", "finish_reason": ""}), [BEGUN]),
    "two choices": (
        chunk({"text": "a", "index": 0}, {"text": "b", "index": 1}),
        [BEGUN, Text(Key(), "a"), Start(Key(1), "assistant", "c", "m"), Text(Key(1), "b")],
    ),
    "usage alone": (chunk(usage={"prompt_tokens": 3}), [UsageUpdate({"input_tokens": 3}, {"prompt_tokens": 3})]),
    "usage that is null": (chunk(usage=None), []),
    "an error": ({"error": {"type": "t", "message": "m"}}, [StreamError("t", "m", {"type": "t", "message": "m"})]),
    "an error object": ({"object": "error", "message": "m"}, [StreamError("error", "m", {"object": "error", "message": "m"})]),
    "choices that are none": (chunk(3, None), []),
}  # fmt: skip


@pytest.mark.parametrize("name", CHUNKS)
def test_a_chunk(name: str) -> None:
    payload, expected = CHUNKS[name]
    assert COMPLETIONS.deltas(payload) == expected
    frame = sse.encode(json.dumps(payload))
    assert [each for written in COMPLETIONS.write(expected, frame) for each in COMPLETIONS.read(written)] == expected


@pytest.mark.parametrize(
    ("payload", "sure"),
    [
        (chunk(), 95),
        ({"choices": [{"text": "a"}]}, 70),
        ({"choices": [{"text": "a", "delta": {}}]}, 0),
        ({"choices": [{"text": "a", "message": {}}]}, 0),
        ({"choices": [3]}, 0),
        ("a", 0),
    ],
)
def test_it_is_recognised(payload: Any, sure: int) -> None:
    assert COMPLETIONS.recognise(Hint(payload)) == sure
    assert sure == 0 or detect(Hint(payload)) == COMPLETIONS


def test_how_mutators_are_to_treat_it() -> None:
    assert COMPLETIONS.quirks
    assert (COMPLETIONS.words["length"], COMPLETIONS.usage_rides) == (("length",), True)


def test_deltas_that_share_no_chunk_have_their_own() -> None:
    (like,) = frames(
        b'data: {"id":"x","system_fingerprint":"f","choices":[{"index":0,"text":"ab","logprobs":{"a":1}}]}\n\n'
    )
    written = COMPLETIONS.write(
        [
            Text(Key(), "a"),
            Text(Key(), "b"),
            UsageUpdate({"input_tokens": 1}, {}),
            StreamError("t", "m"),
            PartEnd(Key()),
        ],
        like,
    )
    chunks = [json.loads(frame.data or "") for frame in written]
    assert [each["choices"][0]["text"] for each in chunks] == ["a", "b"]
    assert [each["choices"][0]["logprobs"] for each in chunks] == [{"a": 1}, {"a": 1}]
    assert {each["system_fingerprint"] for each in chunks} == {"f"}
    assert (chunks[1]["usage"], chunks[1]["error"]) == ({"prompt_tokens": 1}, {"message": "m", "type": "t"})
    assert [frame.raw for frame in COMPLETIONS.write([Text(Key(), "a"), End(), Keepalive(), Unknown("x", 1)], like)][1:] == [
        b"data: [DONE]\n\n", b": keepalive\n\n", b"event: x\ndata: 1\n\n",
    ]  # fmt: skip


def test_several_choices() -> None:
    reply = Reply(
        (TextPart("a"),), "stop", ended=True,
        choices=(Reply((TextPart("a"),), "stop", ended=True), Reply((TextPart("b"),), "length", ended=True)),
    )  # fmt: skip
    assert synthesize(reply, "openai-completions").reply == reply


# ------------------------------------------------------------------------------------------------------- the official client


def judged(body: bytes) -> tuple[str, str | None, Any]:
    """Text, finish reason and usage as the official client's chunks give them."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    client = openai.OpenAI(
        api_key="none", max_retries=0, http_client=httpx2.Client(transport=httpx2.MockTransport(answer))
    )
    text, reason, usage = "", None, None
    for each in client.completions.create(model="m", prompt="x", stream=True):
        usage = each.usage or usage
        for choice in each.choices:
            text, reason = text + choice.text, reason or choice.finish_reason
    return text, reason, usage


def test_the_client_reads_a_synthesised_stream() -> None:
    reply = Reply(
        (TextPart("Rain today."),), "stop", Usage(3, 4, 7), ended=True, role="assistant", model="m-1", id="r-1"
    )
    text, reason, usage = judged(synthesize(reply, "openai-completions").body)
    assert (text, reason, usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (
        "Rain today.",
        "stop",
        3,
        4,
        7,
    )


@given(reply=replies("openai-completions").filter(lambda reply: not reply.errors))
def test_the_client_agrees_on_every_reply(reply: Reply) -> None:
    text, reason, usage = judged(synthesize(reply, "openai-completions").body)
    assert (text, reason) == (reply.text, reply.finish_reason)
    assert (usage and usage.prompt_tokens) == (reply.usage and reply.usage.input_tokens)


def test_the_client_agrees_on_captured_streams(corpus: Path) -> None:
    bodies = [path.read_bytes() for path in (corpus / "files" / "openai").glob("completions-*.sse")]
    assert bodies
    for body in bodies:
        reply = assemble(body)
        text, reason, usage = judged(body)
        assert (text, reason) == (reply.text, reply.finish_reason)
        assert (usage and usage.total_tokens) == (reply.usage and reply.usage.total_tokens)


def test_an_error_ends_the_stream_for_the_client() -> None:
    with pytest.raises(openai.APIError, match="gone"):
        judged(b'data: {"error":{"message":"gone"}}\n\n')


def test_damage_keeps_its_bytes() -> None:
    frame = Frame(b"data: {oops\n\n", "{oops")
    assert COMPLETIONS.write(COMPLETIONS.read(frame), frame) == [frame]
