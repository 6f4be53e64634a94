"""A stream of one dialect written in another: the same reply, in the words of the other."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import sayable
from stream_cassette import Reply, Stream, ToolCall, synthesize, transcode
from stream_cassette.dialects import DIALECTS, dialect
from stream_cassette.errors import CannotSay
from stream_cassette.model import Arguments, Part, Reasoning, ReasoningPart, Text, TextPart
from stream_cassette.mutate import Refragment
from stream_cassette.strategies import any_reply
from streams import CALLS, EVERY, REQUEST

NAMES = [each.name for each in DIALECTS]


def in_both(reply: Reply, one: str, other: str) -> Reply:
    """`reply` without what either of the two cannot say."""
    while (kept := sayable(sayable(reply, one), other)) != reply:
        reply = kept
    return reply


def sense(reply: Reply) -> dict[str, Any]:
    """What a reply says in any words: a problem is one whatever the finish reason is called."""

    def plain(part: Part) -> Part:
        return replace(part, problem="held back" if part.problem else None) if isinstance(part, ToolCall) else part

    return {
        "parts": [plain(part) for part in reply.parts],
        "usage": reply.usage,
        "errors": reply.errors,
        "complete": reply.complete,
    }


def same_stop(before: Reply, after: Reply, name: str) -> bool:
    """Wires that have one word for several reasons cannot tell them apart, and `completed` beside a call means the call, whatever was meant."""
    words = dialect(name).words
    said = {after.stop, replace(after, parts=()).stop}
    return before.stop in said or (
        before.stop is not None and words.get(before.stop) == words.get(after.stop or "other")
    )


@pytest.mark.parametrize("source", NAMES)
@settings(max_examples=20)
@given(data=st.data())
def test_every_pair_of_dialects(source: str, data: st.DataObject) -> None:
    speaks_parts = dialect(source).numbers != "calls"
    drawn = data.draw(any_reply(one_of_each=not speaks_parts))
    for target in NAMES:
        one_of_each = dialect(target).numbers == "calls"
        kinds: set[type] = set()
        parts = tuple(
            part
            for part in drawn.parts
            if isinstance(part, ToolCall) or not one_of_each or (type(part) not in kinds and not kinds.add(type(part)))
        )
        reply = in_both(replace(drawn, parts=parts), source, target)
        stream = synthesize(reply, source)
        lossy = stream.reply.stop not in (None, *dialect(target).words)
        other = transcode(stream, target, lossy=lossy)
        assert other.spoken == target
        assert sense(other.reply) == sense(stream.reply)
        assert lossy or same_stop(stream.reply, other.reply, target), (
            stream.reply.finish_reason,
            other.reply.finish_reason,
        )
        assert transcode(stream, target, lossy=True).body == other.body


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("target", NAMES)
def test_a_stream_with_everything(source: str, target: str) -> None:
    """Lossy: what is left is what the other dialect says of it, and no call is released that was not."""
    other = transcode(EVERY[source], target, lossy=True)
    assert other.reply.text == EVERY[source].reply.text
    calls = [] if "openai-completions" in (source, target) else EVERY[source].reply.tool_calls
    assert [(call.name, call.arguments) for call in other.reply.tool_calls] == [
        (call.name, call.arguments) for call in calls
    ]
    assert other.reply.complete


@pytest.mark.parametrize(
    ("source", "reason", "target", "word", "detail"),
    [
        ("openai-chat", "stop", "anthropic", "end_turn", None),
        ("openai-chat", "length", "openai-responses", "incomplete", "max_output_tokens"),
        ("openai-chat", "content_filter", "openai-responses", "incomplete", "content_filter"),
        ("openai-chat", "content_filter", "gemini", "SAFETY", None),
        ("anthropic", "tool_use", "openai-chat", "tool_calls", None),
        ("anthropic", "stop_sequence", "cohere", "COMPLETE", None),
        ("anthropic", "stop_sequence", "anthropic", "stop_sequence", None),
        ("gemini", "STOP", "bedrock-converse", "tool_use", None),
        ("gemini", "MAX_TOKENS", "ollama", "length", None),
        ("openai-responses", "completed", "openai-chat", "tool_calls", None),
    ],
)
def test_the_finish_reason_is_translated(source: str, reason: str, target: str, word: str, detail: str | None) -> None:
    call = ToolCall(0, id="a", name="f", arguments_text='{"x":1}')
    stream = synthesize(Reply((call,), reason, ended=True), source, lossy=True)
    reply = transcode(stream, target, lossy=True).reply
    assert (reply.finish_reason, reply.finish_detail) == (word, detail)


@pytest.mark.parametrize(
    ("reason", "target", "word"),
    [
        ("pause_turn", "openai-chat", "pause_turn"),
        ("refusal", "openai-chat", "content_filter"),
        ("fancy", "gemini", "fancy"),
    ],
)
def test_a_finish_reason_without_a_word(reason: str, target: str, word: str) -> None:
    stream = synthesize(Reply((TextPart("x"),), reason, ended=True), "anthropic")
    with pytest.raises(CannotSay, match=f"{target} cannot say the finish reason '{reason}'") as caught:
        transcode(stream, target)
    assert caught.value.mend.startswith("transcode(..., lossy=True)")
    assert transcode(stream, target, lossy=True).reply.finish_reason == word


def test_what_the_other_cannot_say_is_an_error_unless_it_may_be_lost() -> None:
    stream = synthesize(Reply((ReasoningPart("why", "c2ln"), TextPart("x")), "end_turn", ended=True), "anthropic")
    with pytest.raises(CannotSay, match="ollama cannot say the signature of a reasoning part"):
        transcode(stream, "ollama")
    assert transcode(stream, "ollama", lossy=True).reply.reasoning == "why"


def test_texts_and_arguments_keep_their_pieces() -> None:
    cut = Refragment(0, (1, 2)).apply(CALLS)
    said = [delta.text for delta in cut.deltas if isinstance(delta, Text | Arguments)]
    other = transcode(cut, "anthropic", lossy=True)
    assert [delta.text for delta in other.deltas if isinstance(delta, Text | Arguments)] == said
    assert len(other.exchange.reads) == len(other.frames)
    whole = transcode(cut, "ollama", lossy=True)  # which sends arguments as a value
    assert [json.loads(delta.text) for delta in whole.deltas if isinstance(delta, Arguments)] == [
        call.arguments for call in cut.reply.tool_calls
    ]


def test_any_source_and_a_request() -> None:
    stream = synthesize(Reply((ReasoningPart("w"), TextPart("x")), "stop", ended=True), "openai-chat")
    for source in (stream, stream.body, [stream.body[:40], b"", stream.body[40:]], iter([stream.body])):
        other = transcode(source, "anthropic", request=REQUEST)
        assert (other.reply.text, other.exchange.request, other.dialect) == ("x", REQUEST, "anthropic")
        assert [type(delta) for delta in other.deltas if isinstance(delta, Reasoning | Text)] == [Reasoning, Text]


def test_several_choices() -> None:
    one, two = Reply((TextPart("a"),), "stop", ended=True), Reply((TextPart("b"),), "length", ended=True)
    both = Reply(one.parts, "stop", ended=True, choices=(one, two))
    other = transcode(synthesize(both, "openai-chat"), "gemini", lossy=True)
    assert [(choice.text, choice.finish_reason) for choice in other.reply.choices] == [
        ("a", "STOP"),
        ("b", "MAX_TOKENS"),
    ]


def test_a_stream_of_nothing_says_nothing() -> None:
    empty = Stream(replace(CALLS.exchange, reads=()))
    with pytest.raises(CannotSay, match="wire:empty"):
        transcode(empty, "anthropic")
