"""Wire shapes on which an earlier reading was wrong, each a row: what came, and the calls that may run, those that may not, and the text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stream_cassette import assemble, jsontext, synthesize
from stream_cassette.dialects import dialect
from stream_cassette.framing import jsonlines, sse
from stream_cassette.model import (
    Arguments,
    Delta,
    Key,
    OpaquePart,
    PartStart,
    Reasoning,
    ReasoningPart,
    Reply,
    Signature,
    Start,
    Text,
    TextPart,
    ToolCall,
    ToolCallStart,
)


def events(*payloads: Any) -> bytes:
    return b"".join(
        b"data: " + (each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n\n" for each in payloads
    )


def chunk(*entries: Any, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "choices": [
            {
                "index": 0,
                "delta": {**delta, **({"tool_calls": list(entries)} if entries else {})},
                "finish_reason": finish,
            }
        ]
    }


def call(index: Any = None, id: Any = None, name: str = "", arguments: str = "") -> dict[str, Any]:
    entry: dict[str, Any] = {
        "function": {key: value for key, value in (("name", name), ("arguments", arguments)) if value}
    }
    return entry | ({} if index is None else {"index": index}) | ({} if id is None else {"id": id})


START = {"type": "message_start", "message": {"role": "assistant"}}
STOP = {"type": "content_block_stop", "index": 0}
TOOL_USE = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
END = {"type": "message_stop"}


def block(index: Any, id: str | None, name: str) -> dict[str, Any]:
    return {
        "type": "content_block_start",
        "index": index,
        "content_block": {"type": "tool_use", "id": id, "name": name, "input": {}},
    }


def piece(index: Any, text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": text}}


DAMAGED = b'{"type":"content_block_delta","index":0,"delta":{"partial_json":"ne, In}'

ROWS: dict[str, tuple[bytes, list[tuple[str, Any]], list[tuple[str, str]]]] = {
    "a piece lost inside a block that ends": (
        events(START, block(0, "a", "w"), piece(0, '{"city":"Pu'), DAMAGED, piece(0, 'dia"}'), STOP, TOOL_USE, END),
        [],
        [("w", "the stream broke: wire:bad_json")],
    ),
    "the only piece lost": (events(START, block(0, "a", "w"), DAMAGED, STOP, TOOL_USE, END), [], [("w", "the stream broke: wire:bad_json")]),
    "a filter cut before the arguments": (events(chunk(call(0, "a", "f")), chunk(finish="content_filter")), [], [("f", "cut: the reply ended with 'content_filter'")]),
    "Mistral's word for the length limit": (events(chunk(call(0, "a", "f")), chunk(finish="model_length")), [], [("f", "cut by the length limit")]),
    "a word nobody knows": (events(chunk(call(0, "a", "f")), chunk(finish="abort")), [], [("f", "cut: the reply ended with 'abort'")]),
    "a whole object is whole whatever the word": (events(chunk(call(0, "a", "f", '{"a":1}')), chunk(finish="abort")), [("f", {"a": 1})], []),
    "a call after the finish reason": (events(chunk(content="a", finish="stop"), chunk(call(0, "a", "f"))), [], [("f", "no finish reason")]),
    "a finish reason on every chunk": (
        events(chunk(call(0, "a", "f"), finish="stop"), chunk(call(0, None, "", '{"a":1}'), finish="stop")),
        [("f", {"a": 1})],
        [],
    ),
    "numbers as texts": (
        events(chunk(call("0", "a", "f")), chunk(call("1", "b", "g")), chunk(call("0", None, "", '{"a":1}'), finish="tool_calls")),
        [("f", {"a": 1}), ("g", {})],
        [],
    ),
    "numbers as floats": (
        events(START, block(0.0, "a", "f"), block(1.0, "b", "g"), piece(0.0, '{"a":1}'), TOOL_USE, END),
        [("f", {"a": 1}), ("g", {})],
        [],
    ),
    "a number that is none": (events(chunk(call("first", "a", "f")), chunk(call("x", None, "", "{}"), finish="tool_calls")), [("f", {})], []),
    "whole calls without numbers or ids": (
        json.dumps(
            {
                "object": "chat.completion",
                "choices": [{"message": {"tool_calls": [call(None, None, "f", '{"a":1}'), call(None, None, "f", '{"a":2}')]}, "finish_reason": "tool_calls"}],
            }
        ).encode(),
        [("f", {"a": 1}), ("f", {"a": 2})],
        [],
    ),
    "two calls of one chunk without numbers or ids": (
        events(chunk(call(None, None, "f", '{"a":1}'), call(None, None, "f", '{"a":2}'), finish="tool_calls")),
        [("f", {"a": 1}), ("f", {"a": 2})],
        [],
    ),
    "one constant as every id": (events(chunk(call(0, "c", "f")), chunk(call(1, "c", "g"), finish="tool_calls")), [("f", {}), ("g", {})], []),
    "blocks of one number without ids": (events(START, block(0, None, "f"), STOP, block(0, None, "g"), STOP, TOOL_USE), [("f", {}), ("g", {})], []),
    "the id 0": (events(chunk(call(None, 0, "f")), chunk(call(None, 1, "g"), finish="tool_calls")), [("f", {}), ("g", {})], []),
    "a name that grows": (events(chunk(call(0, "a", "get")), chunk(call(0, None, "get_weather"), finish="tool_calls")), [("get_weather", {})], []),
    "an id and no name": (events(chunk(call(0, "a")), chunk(call(0, None, "", "{}"), finish="tool_calls")), [], [("", "no name")]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_calls(name: str) -> None:
    body, runnable, others = ROWS[name]
    reply = assemble(body)
    assert [(each.name, each.arguments) for each in reply.tool_calls] == runnable
    assert [(each.name, each.problem) for each in reply.incomplete_tool_calls] == others


def test_an_error_inside_a_choice() -> None:
    reply = assemble(
        events(
            {
                "choices": [
                    {"delta": {"content": "x"}, "error": {"code": 502, "message": "boom"}, "finish_reason": "error"}
                ]
            }
        )
    )
    assert (reply.complete, [error.message for error in reply.errors]) == (False, ["boom"])


def test_a_message_beside_an_empty_delta() -> None:
    assert (
        assemble(events({"choices": [{"delta": {}, "message": {"content": "hello"}, "finish_reason": "stop"}]})).text
        == "hello"
    )


@pytest.mark.parametrize("word", ["text", "call", "reasoning", "refusal", "audio"])
def test_content_under_one_of_our_own_words_is_carried(word: str) -> None:
    reply = assemble(
        events(
            {
                "choices": [
                    {
                        "delta": {word if word not in ("reasoning", "refusal") else "call": {"a": 1}},
                        "finish_reason": "stop",
                    }
                ]
            }
        )
    )
    (part,) = reply.parts
    assert isinstance(part, OpaquePart)
    assert part.payloads == ({"a": 1},)
    assert synthesize(reply, "openai-chat").reply == reply
    carried = {"type": word, "data": "x"} if word != "text" else {"type": "call"}
    body = events(START, {"type": "content_block_start", "index": 0, "content_block": carried}, STOP, TOOL_USE, END)
    (part,) = assemble(body).parts
    assert isinstance(part, OpaquePart)
    assert part.payloads == (carried,)
    assert synthesize(assemble(body), "anthropic").reply == assemble(body)


def test_calls_of_two_choices_keep_their_kinds() -> None:
    one = Reply((ToolCall(0, "function", "a", "f", "{}", {}),), "tool_calls", ended=True)
    other = Reply((ToolCall(0, "custom", "b", "g", "free"),), "tool_calls", ended=True)
    both = Reply(one.parts, "tool_calls", ended=True, choices=(one, other))
    assert synthesize(both, "openai-chat").reply == both


def test_a_reply_without_counts_can_be_said_to_the_official_client() -> None:
    import anthropic
    import httpx2

    stream = synthesize(Reply((TextPart("Hi"),), "end_turn", ended=True), "anthropic")
    assert stream.reply.usage is None
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream.body)
    with httpx2.Client(transport=httpx2.MockTransport(lambda request: answer)) as http:
        client = anthropic.Anthropic(api_key="none", http_client=http)
        with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}]) as messages:
            assert messages.get_final_text() == "Hi"


def test_a_cut_json_body_of_quotes_is_looked_at_once() -> None:
    decoder = jsonlines.Decoder()
    decoder.feed(b'{"content":"' + b'\\"k\\": \\"v\\", ' * 50_000)
    assert [frame.problem for frame in decoder.close()] != [None]
    assert not jsonlines._is_object(b'{"a": "' + b'\\" ' * 50_000 + b"}\n")


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_reads_of_any_bytes_like_kind(kind: Any) -> None:
    assert assemble([kind(events(chunk(content="Hi")))]).text == "Hi"


@pytest.mark.parametrize(
    ("kind", "block", "said"),
    [
        ("text", {"type": "text", "text": "old"}, [Text(Key(), "new")]),
        ("reasoning", {"type": "thinking", "thinking": "old", "signature": ""}, [Reasoning(Key(), "new")]),
        ("reasoning", {"type": "thinking", "thinking": "", "signature": "s"}, [Signature(Key(), "new")]),
    ],
)
def test_content_that_rides_in_the_start_of_its_block_is_written_there(
    kind: str, block: dict[str, Any], said: list[Delta]
) -> None:
    like = sse.encode(
        json.dumps({"type": "content_block_start", "index": 0, "content_block": block}), "content_block_start"
    )
    (frame,) = dialect("anthropic").write(
        [PartStart(Key(index=0), kind), *(replace(each, key=Key(index=0)) for each in said)], like
    )
    assert dialect("anthropic").read(frame) == [
        PartStart(Key(index=0), kind),
        *(replace(each, key=Key(index=0)) for each in said),
    ]


def test_a_type_that_stands_on_the_event_line_alone_is_in_the_payload() -> None:
    assert dialect("anthropic").payload(sse.encode('{"index":0}', "content_block_stop")) == {
        "type": "content_block_stop",
        "index": 0,
    }


def test_a_whole_message_with_reasoning() -> None:
    message = {"role": "assistant", "reasoning_content": "hm", "content": "yes"}
    body = json.dumps(
        {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    )
    assert assemble([body.encode()]).parts == (ReasoningPart("hm"), TextPart("yes"))


def test_a_role_after_the_text_has_a_chunk_of_its_own() -> None:
    like = sse.encode(
        json.dumps({"candidates": [{"index": 0, "content": {"parts": [{"text": "a"}], "role": "model"}}]})
    )
    frames = dialect("gemini").write([Text(Key(), "a"), Start(Key(), "model")], like)
    text, start = [delta for frame in frames for delta in dialect("gemini").read(frame)]
    assert isinstance(text, Text)
    assert text.text == "a"
    assert isinstance(start, Start)
    assert len(frames) == 2


def test_json_that_is_nested_too_deeply_for_any_parser() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        jsontext.parse("[" * 200_000 + "]" * 200_000)


def test_an_entry_among_the_calls_that_is_none() -> None:
    reply = assemble(events(chunk(7, None, call(0, "a", "tide", "{}")), chunk(finish="tool_calls"), b"[DONE]"))
    assert [(each.id, each.name) for each in reply.tool_calls] == [("a", "tide")]


def test_arguments_that_are_no_object_do_not_ride_on_the_start_of_a_call() -> None:
    speaker = dialect("anthropic")
    key = Key(0, 1)
    (like,) = speaker.write([ToolCallStart(replace(key, id="a"), "function", "tide")])
    for text, events_written in (('{"a":1}', 1), ("[1]", 2), ('{"a": 1}', 2)):
        said = [ToolCallStart(replace(key, id="a"), "function", "tide"), Arguments(key, text)]
        frames = speaker.write(said, like)
        assert len(frames) == events_written
        assert [delta for frame in frames for delta in speaker.read(frame)] == said
