"""The fold: rules that hold over dialects, the promise on tool calls, and the two ways in."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stream_cassette import Assembler, aassemble, assemble, synthesize
from stream_cassette.errors import UnknownDialect
from stream_cassette.model import (
    Arguments,
    Delta,
    End,
    Finish,
    Frame,
    Key,
    Opaque,
    OpaquePart,
    PartEnd,
    PartStart,
    Reasoning,
    Reply,
    ReplyError,
    Signature,
    Start,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    ToolCallStart,
    Unknown,
    Usage,
    UsageUpdate,
    Whole,
)

K = Key()
CHUNK = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"}}]}\n\n'
CALL = ToolCallStart(Key(0, 0, "a"), "function", "f")


def call(text: str, *rest: Delta, kind: Any = "function") -> ToolCall:
    start = ToolCallStart(Key(0, 0, "a"), kind, "f")
    (part,) = assemble([start, *([Arguments(Key(0, 0), text)] if text else []), *rest]).parts
    assert isinstance(part, ToolCall)
    return part


STOP, LENGTH, END = Finish(K, "stop"), Finish(K, "length"), PartEnd(Key(0, 0))
BROKEN = StreamError("overloaded_error", "busy")


@pytest.mark.parametrize(
    ("text", "rest", "arguments", "problem"),
    [
        ('{"a":1}', [STOP], {"a": 1}, None),
        ('{"a":1}', [END], {"a": 1}, None),
        ('{"a":1}', [End()], {"a": 1}, None),
        ("", [STOP], {}, None),
        ('{"a":1}', [], None, "no finish reason"),
        ('{"a":1}', [STOP, BROKEN], None, "the stream broke: overloaded_error"),
        ('{"a":1}', [END, BROKEN], {"a": 1}, None),
        ('{"a":1}', [BROKEN], None, "the stream broke: overloaded_error"),
        ('{"a":', [STOP], None, "not JSON: Expecting value at character 5"),
        ('{"a":NaN}', [STOP], None, "not JSON: NaN is not JSON"),
        ('{"a":"x\ny"}', [STOP], None, "not JSON: Invalid control character at at character 7"),
        ('{"a":1}{', [STOP], None, "not JSON: Extra data at character 7"),
        ("[1]", [STOP], None, "not an object"),
        ('{"a":1}', [LENGTH], {"a": 1}, None),
        ('{"a":', [LENGTH], None, "cut by the length limit"),
        ("", [LENGTH], None, "cut by the length limit"),
    ],
)
def test_only_a_closed_and_whole_call_may_run(
    text: str, rest: list[Delta], arguments: Any, problem: str | None
) -> None:
    got = call(text, *rest)
    assert (got.arguments, got.problem, got.arguments_text) == (arguments, problem, text)


def test_a_custom_call_takes_any_text_but_not_a_cut_one() -> None:
    assert call("SELECT", STOP, kind="custom").problem is None
    assert call("SELECT", LENGTH, kind="custom").problem == "cut by the length limit"


def test_a_call_stands_in_exactly_one_of_the_two_lists() -> None:
    good = assemble([CALL, STOP])
    bad = assemble([CALL])
    assert (len(good.tool_calls), len(good.incomplete_tool_calls)) == (1, 0)
    assert (len(bad.tool_calls), len(bad.incomplete_tool_calls)) == (0, 1)


def test_calls_count_from_zero_in_order_of_first_sight() -> None:
    late = [ToolCallStart(Key(0, 7, "b"), "function", "g"), ToolCallStart(Key(0, 3, "a"), "function", "f"), STOP]
    assert [(each.index, each.name) for each in assemble(late).tool_calls] == [(0, "g"), (1, "f")]


def test_arguments_of_a_call_without_a_name_are_a_warning() -> None:
    reply = assemble([CALL, Arguments(Key(0, 1), "{}"), STOP])
    assert [each.name for each in reply.tool_calls] == ["f"]
    assert any("without a tool call that has a name" in warning for warning in reply.warnings)


def test_parts_keep_the_order_of_first_sight() -> None:
    deltas: list[Delta] = [
        Reasoning(K, "r"),
        Signature(K, "s"),
        CALL,
        Text(K, "a"),
        Opaque(K, "audio", 1),
        Text(K, "b"),
        STOP,
    ]
    assert [type(part).__name__ for part in assemble(deltas).parts] == [
        "ReasoningPart",
        "ToolCall",
        "TextPart",
        "OpaquePart",
    ]
    assert assemble(deltas).text == "ab"


def test_usage_is_the_last_value_per_key_and_never_a_sum() -> None:
    first = UsageUpdate({"input_tokens": 9, "output_tokens": 1}, {"in": 9, "out": 1, "cache": 5})
    second = UsageUpdate({"output_tokens": 4}, {"out": 4, "cache": None})
    usage = assemble([first, second, STOP]).usage
    assert usage == Usage(input_tokens=9, output_tokens=4)
    assert usage is not None
    assert usage.raw == {"in": 9, "out": 4, "cache": 5}
    assert assemble([STOP]).usage is None


def test_the_first_finish_reason_wins() -> None:
    assert assemble([CALL, Finish(K, "tool_calls"), STOP]).finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("word", "stop"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "pause"),
        ("fancy", "other"),
    ],
)
def test_stop_is_one_vocabulary(word: str, stop: str) -> None:
    assert assemble([Finish(K, word)]).stop == stop
    assert assemble([Text(K, "a")]).stop is None


def test_a_restatement_replaces_and_may_be_said_twice() -> None:
    deltas: list[Delta] = [Text(K, "Lo"), Whole(K, "text", "Low tide."), Whole(K, "text", "Low tide."), STOP]
    assert assemble(deltas).parts == (TextPart("Low tide."),)


def test_a_character_cut_between_its_surrogate_escapes_is_one_again() -> None:
    assert assemble([Text(K, "sea \ud83c"), Text(K, "\udf0a end"), STOP]).text == "sea 🌊 end"
    assert assemble([Text(K, "\ud83c"), STOP]).text == "\ud83c"


def test_what_comes_after_the_end_is_only_a_warning() -> None:
    reply = assemble([Text(K, "a"), STOP, End(), End(), Text(K, "b"), BROKEN])
    assert (reply.text, reply.complete, len(reply.warnings)) == ("a", True, 2)


def test_a_missing_end_mark_is_a_warning_and_a_missing_finish_reason_is_not_complete() -> None:
    assert assemble([Text(K, "a"), STOP]).warnings == ("the end mark of the stream is missing",)
    assert not assemble([Text(K, "a")]).complete
    assert assemble([Text(K, "a"), End()]).complete


def test_an_unknown_event_is_carried_on() -> None:
    reply = assemble([Text(K, "a"), Unknown("weather", {"x": 1}), STOP, End()])
    assert (reply.text, reply.complete) == ("a", True)
    assert "weather" in reply.warnings[0]


def test_content_in_a_part_of_another_kind_is_a_warning() -> None:
    for delta in (Text(Key(0, 0), "t"), Signature(Key(0, 0), "s"), Whole(Key(0, 0), "text", "w")):
        reply = assemble([CALL, delta, STOP])
        assert (reply.text, len(reply.tool_calls)) == ("", 1)
        assert "out of place" in reply.warnings[0]


def test_the_end_of_a_part_that_never_began_means_nothing() -> None:
    assert assemble([PartEnd(Key(0, 5)), Text(K, "a"), STOP]).text == "a"


def test_the_input_of_a_server_tool_is_carried_not_released() -> None:
    key = Key(0, 0)
    deltas: list[Delta] = [
        PartStart(key, "server_tool_use"),
        Opaque(key, "server_tool_use", {"id": "s"}),
        Arguments(key, '{"q":1}'),
        PartEnd(key),
        STOP,
    ]
    assert assemble(deltas).parts == (OpaquePart("server_tool_use", ({"id": "s"},), '{"q":1}'),)


def test_several_choices_each_have_their_own_finish_and_the_first_shows() -> None:
    one = Key(1)
    deltas: list[Delta] = [
        Start(K, "assistant", "r", "m"),
        Text(one, "b"),
        Text(K, "a"),
        Finish(one, "length"),
        Finish(K, "stop"),
    ]
    reply = assemble(deltas)
    assert [(each.text, each.finish_reason) for each in reply.choices] == [("a", "stop"), ("b", "length")]
    assert (reply.text, reply.finish_reason, reply.id) == ("a", "stop", "r")
    assert assemble([Text(K, "a"), STOP]).choices == ()


def test_equality_is_of_what_was_said() -> None:
    reply = assemble([Start(K, "assistant", "r", "m"), Text(K, "a"), UsageUpdate({"input_tokens": 1}, {"x": 1}), STOP])
    same = dataclasses.replace(
        reply, id="other", model="other", role=None, warnings=("w",), usage=Usage(1, raw={"y": 2}), ended=True
    )
    assert reply == same
    changes: tuple[dict[str, Any], ...] = (
        {"finish_reason": "length"},
        {"usage": None},
        {"usage": Usage(1, 0)},
        {"errors": (ReplyError("e"),)},
        {"parts": ()},
    )
    for change in changes:
        assert reply != dataclasses.replace(reply, **change)
    assert reply != "a"
    with pytest.raises(TypeError, match="unhashable"):
        hash(reply)
    assert ReplyError("e", "one") == ReplyError("e", "two")


def test_repr_is_short_and_can_be_pasted() -> None:
    reply = assemble([Text(K, "a"), CALL, UsageUpdate({"input_tokens": 1}, {"x": 1}), STOP, BROKEN])
    assert "choices" not in repr(reply)
    names = {each.__name__: each for each in (Reply, TextPart, ToolCall, Usage, ReplyError)}
    assert eval(repr(reply), names) == reply


# ----------------------------------------------------------------------------------------------------------- the two ways in


def test_the_reply_so_far_in_the_middle_of_a_stream() -> None:
    assembler = Assembler()
    assert assembler.result() == Reply()
    assembler.feed_bytes(CHUNK + b'data: {"choices":[{"del')
    assert (assembler.result().text, assembler.dialect) == ("Hi", "openai-chat")
    assembler.feed_bytes(b'ta":{"content":"!"},"finish_reason":"stop"}]}')
    assert assembler.result().text == "Hi"
    assembler.close()
    assert (assembler.result().text, assembler.result().complete) == ("Hi!", True)


@pytest.mark.parametrize("body", [b"", b": ping\n\n\n", b"\xef\xbb\xbf"])
def test_a_stream_of_nothing_is_an_error(body: bytes) -> None:
    reply = assemble(body)
    assert (reply.complete, [error.type for error in reply.errors]) == (False, ["wire:empty"])


@pytest.mark.parametrize(
    "body",
    [
        b"<html>\n\n<body>502</body></html>",
        b'data: {"candidates": 1}\n\n',
        b'{"weather": "fine"}',
        b"data: 7\n\n" * 100,
    ],
)
def test_what_is_no_known_stream_is_an_error_that_teaches(body: bytes) -> None:
    with pytest.raises(UnknownDialect) as caught:
        assemble(body, content_type="text/html")
    assert "text/html" in str(caught.value)
    assert "dialect='openai-chat'" in caught.value.mend
    assert assemble(body, dialect="openai-chat").text == ""


def test_events_before_the_one_that_tells_are_not_lost() -> None:
    assert assemble(b'data: {"ping":1}\n\ndata: {"usage":null}\n\n' + CHUNK).text == "Hi"


@pytest.mark.parametrize("source", [bytearray(CHUNK), memoryview(CHUNK), [CHUNK[:9], CHUNK[9:]], iter([CHUNK])])
def test_any_source_of_bytes(source: Any) -> None:
    assert assemble(source).text == "Hi"


def test_frames_payloads_and_sdk_objects() -> None:
    from openai.types.chat import ChatCompletionChunk

    payload = {
        "id": "c",
        "created": 0,
        "model": "m",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": "Hi"}}],
    }
    assert assemble([payload]).text == "Hi"
    assert assemble([ChatCompletionChunk.model_validate(payload)]).text == "Hi"
    assert assemble([Frame(CHUNK, CHUNK[6:-2].decode())]).text == "Hi"


def test_asynchronous_sources() -> None:
    async def source(*events: Any) -> AsyncIterator[Any]:
        for event in events:
            yield event

    assert asyncio.run(aassemble(source(CHUNK[:9], CHUNK[9:]))).text == "Hi"
    assert asyncio.run(aassemble(source(Text(K, "a"), STOP))).complete


def test_a_named_dialect_is_not_guessed() -> None:
    stream = synthesize(assemble([Text(K, "a"), STOP]), "anthropic")
    assert assemble(stream.body, dialect="openai-chat").text == ""
    with pytest.raises(UnknownDialect, match="no dialect 'klingon'"):
        assemble(b"", dialect="klingon")
