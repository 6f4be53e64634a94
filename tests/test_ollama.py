"""Ollama's dialect: what its wire alone says, and the official client as a judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ollama
import pytest
from hypothesis import given, settings

from judges import corpus_streams, counts, said, served
from strategies import replies
from stream_cassette import Assembler, assemble, synthesize
from stream_cassette.dialects import detect, dialect
from stream_cassette.dialects.base import Hint
from stream_cassette.framing import frames, jsonlines
from stream_cassette.model import (
    Arguments,
    ArgumentsAt,
    End,
    Finish,
    Keepalive,
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
    Start,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    ToolCallStart,
    Usage,
    UsageUpdate,
    Whole,
)
from stream_cassette.mutate import Refragment

OLLAMA = dialect("ollama")
KEY = Key()


def line(**message: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": "", **message}, "done": False}


def call(name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, **({} if arguments is None else {"arguments": arguments})}}


DONE = {**line(), "done": True, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 2}


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ([line(content="a", thinking="t"), line(content="b")], (ReasoningPart("t"), TextPart("ab"))),
        ([{"response": "a", "thinking": "t", "done": False}, {"response": "b", "done": False}], (ReasoningPart("t"), TextPart("ab"))),
        ([line(tool_calls=[call("f", {"a": 1}), call("f", {"a": 2})]), line(tool_calls=[call("f")])], (ToolCall(0, name="f", arguments_text='{"a":1}'), ToolCall(1, name="f", arguments_text='{"a":2}'), ToolCall(2, name="f"))),
        ([line(tool_calls=[call("f", {}, id="i"), call("g", '{"a": 1}', id="j")])], (ToolCall(0, id="i", name="f", arguments_text="{}"), ToolCall(1, id="j", name="g", arguments_text='{"a": 1}'))),
        ([line(images=["d"]), line(images=["e"])], (OpaquePart("images", (["d"], ["e"])),)),
        ([line(tool_calls=[{}, 7]), {"message": 7, "done": False}], ()),
    ],
)  # fmt: skip
def test_parts(lines: list[Any], parts: tuple[Any, ...]) -> None:
    reply = assemble([*lines, DONE])
    assert reply.parts == parts
    assert (reply.finish_reason, reply.ended, reply.usage) == ("stop", True, Usage(1, 2))


def test_what_is_carried_can_be_written() -> None:
    reply = Reply((TextPart("a"), OpaquePart("images", (["d"], ["e"]))), "stop", ended=True)
    assert assemble(synthesize(reply, "ollama")) == reply


def test_a_call_is_whole_at_once() -> None:
    reading = Assembler("ollama")
    reading.feed(line(tool_calls=[call("f", {"a": 1})]))
    assert [each.arguments for each in reading.result().tool_calls] == [{"a": 1}]


def test_the_last_line_may_lack_its_reason() -> None:
    reply = assemble([line(content="a"), {"done": True, "message": {}}])
    assert (reply.finish_reason, reply.complete, reply.warnings) == (None, True, ())


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        (Hint({"error": "busy"}, content_type="application/x-ndjson"), "ollama"),
        (Hint({"response": "a", "done": False}), "ollama"),
        (Hint({"status": "pulling manifest"}, content_type="application/x-ndjson"), None),
    ],
)
def test_recognised(hint: Hint, name: str | None) -> None:
    found = detect(hint)
    assert (found.name if found else None) == name


def test_deltas_share_a_line_in_the_order_in_which_it_is_read() -> None:
    like = jsonlines.encode('{"model":"m","created_at":"t","message":{"role":"assistant","content":""},"done":false}')
    deltas: list[Any] = [
        Start(KEY, "assistant", None, "m"), Reasoning(KEY, "t"), Text(KEY, "a"), Opaque(KEY, "images", ["d"]), ToolCallStart(KEY, "function", "f"), PartEnd(KEY),
        ToolCallStart(KEY, "function", "g"), Arguments(KEY, '{"a":1}'), PartEnd(KEY), Finish(KEY, "stop"), UsageUpdate({"output_tokens": 1}, {"eval_count": 1}),
        StreamError("error", "m", "m"), End(),
    ]  # fmt: skip
    (frame,) = OLLAMA.write(deltas, like)
    assert OLLAMA.read(frame) == deltas
    assert OLLAMA.payload(frame)["created_at"] == "t"
    late: list[Any] = [
        Opaque(KEY, "images", ["d"]),
        Opaque(KEY, "images", ["e"]),
        Text(KEY, "a"),
        Text(KEY, "b"),
        Reasoning(KEY, "t"),
    ]
    assert len(OLLAMA.write(late, like)) == 5


def test_a_generate_line_lends_its_shape() -> None:
    like = jsonlines.encode('{"model":"m","response":"x","done":false}')
    written = OLLAMA.write(
        [Text(KEY, "a"), Start(KEY, "assistant"), ToolCallStart(KEY, "function", "f"), PartEnd(KEY)], like
    )
    assert [OLLAMA.payload(frame) for frame in written] == [
        {"model": "m", "done": False, "response": "a"},
        {"model": "m", "done": False, "message": {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}},
    ]


def test_what_this_wire_has_no_words_for_is_left_out() -> None:
    out: list[Any] = [
        Refusal(KEY, "no"),
        Whole(KEY, "text", "a"),
        ArgumentsAt(KEY, "$.a", 1),
        Signature(KEY, "s"),
        PartStart(KEY, "text"),
        PartEnd(KEY),
    ]
    assert OLLAMA.write(out) == []
    (frame,) = OLLAMA.write([ToolCallStart(KEY, "function", "f"), Arguments(KEY, "["), PartEnd(KEY)])
    assert OLLAMA.payload(frame)["message"]["tool_calls"] == [{"function": {"name": "f", "arguments": {}}}]
    assert OLLAMA.write([Keepalive()])[0].raw == b"\n"


def test_every_line_of_a_text_that_is_cut_says_whose_it_is() -> None:
    stream = synthesize(Reply((TextPart("abc"),), "stop", ended=True), "ollama")
    cut = Refragment(0, (1, 2)).apply(stream)
    said = [line["message"] for line in cut.payloads if line["message"]["content"]]
    assert said == [{"role": "assistant", "content": text} for text in "abc"]
    assert cut.reply == stream.reply


def test_synthesis_has_the_content_type_of_lines() -> None:
    stream = synthesize(Reply((TextPart("a\u2028b"),), "stop", ended=True), "ollama")
    assert stream.exchange.header("content-type") == "application/x-ndjson"
    assert [frame.raw.count(b"\n") for frame in frames(stream.body)] == [1, 1, 1]


# ---------------------------------------------------------------------------------------------------- the official client


def chat(api: ollama.Client) -> Any:
    return api.chat(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)


def generate(api: ollama.Client) -> Any:
    return api.generate(model="m", prompt="hi", stream=True)


def judged(body: bytes, ask: Callable[[ollama.Client], Any]) -> dict[str, Any]:
    """What the official client makes of a stream."""
    out: dict[str, Any] = {
        "text": "",
        "reasoning": "",
        "calls": [],
        "finish": None,
        "usage": (None, None),
        "error": None,
    }
    with served(body, "application/x-ndjson") as url, ollama.Client(host=url) as api:
        try:
            for each in ask(api):
                message = each.message if ask is chat else each
                out["text"] += (message.content if ask is chat else message.response) or ""
                out["reasoning"] += message.thinking or ""
                for call_ in (message.tool_calls or []) if ask is chat else []:
                    out["calls"].append((call_.function.name, dict(call_.function.arguments)))
                out["finish"] = each.done_reason or out["finish"]
                out["usage"] = (each.prompt_eval_count, each.eval_count)
        except ollama.ResponseError as error:
            out["error"] = error.error
    return out


def ours(reply: Reply) -> dict[str, Any]:
    shown = said(reply)
    calls = [(name, arguments) for _, name, arguments in shown["calls"]]
    error = reply.errors[0].message if reply.errors else None
    return {**shown, "calls": calls, "usage": counts(reply, "input_tokens", "output_tokens"), "error": error}


@settings(max_examples=25, deadline=None)
@given(reply=replies("ollama"))
def test_the_official_client_reads_what_we_synthesise(reply: Reply) -> None:
    # It takes an error text that is JSON for an object, whatever it is.
    reply = replace(reply, errors=tuple(replace(error, message=f"busy {error.message}") for error in reply.errors))
    got, want = judged(synthesize(reply, "ollama").body, chat), ours(reply)
    if want["error"] is not None or not reply.ended:
        got, want = {**got, "usage": None}, {**want, "usage": None}  # it shows the counts of the last line it sees
    assert got == want


def test_the_official_client_reads_captured_streams_as_we_do(corpus: Any) -> None:
    for name, body, _ in corpus_streams(corpus, "ollama"):
        if "pullmodel" not in name:
            ask = generate if "generatestream" in name else chat
            assert {**judged(body, ask), "usage": None} == {**ours(assemble(body)), "usage": None}, name
