"""Tool calls given out while the stream runs: each once, in the moment when it is sure, and never against what the reply says in the end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judges import corpus_streams
from strategies import replies
from stream_cassette import Assembler, Reply, Stream, ToolCall, assemble, synthesize
from stream_cassette.dialects import DIALECTS
from stream_cassette.errors import NotApplicable
from stream_cassette.fuzz import mutations
from stream_cassette.model import (
    Arguments,
    Delta,
    End,
    Finish,
    Key,
    PartEnd,
    Start,
    StreamError,
    Text,
    ToolCallStart,
    Whole,
)
from stream_cassette.mutate import instances, law_of, mutate
from streams import EVERY

K, A, B = Key(), Key(0, 0), Key(0, 1)
CALL_A, CALL_B = ToolCallStart(Key(0, 0, "a"), "function", "f"), ToolCallStart(Key(0, 1, "b"), "function", "g")
FULL, MORE, STOP = Arguments(A, '{"x":1}'), Arguments(B, '{"y":2}'), Finish(K, "tool_calls")
BROKEN = StreamError("overloaded_error", "busy")


def released(*events: Any, **options: Any) -> list[list[str | None]]:
    """The ids released with each event, and in the end with the close."""
    assembler = Assembler(**options)
    return [[call.id for call in assembler.feed(event)] for event in events] + [[call.id for call in assembler.close()]]


ROWS: dict[str, tuple[list[Delta], list[list[str]]]] = {
    "by its own end": ([CALL_A, FULL, PartEnd(A), STOP], [[], [], ["a"], [], []]),
    "by the finish reason": ([CALL_A, FULL, STOP, End()], [[], [], ["a"], [], []]),
    "by the end mark": ([CALL_A, FULL, End()], [[], [], ["a"], []]),
    "interleaved": ([CALL_A, CALL_B, MORE, FULL, PartEnd(B), PartEnd(A), STOP], [[], [], [], [], ["b"], ["a"], [], []]),
    "together, by first sight": ([CALL_A, CALL_B, MORE, FULL, STOP], [[], [], [], [], ["a", "b"], []]),
    "without arguments it waits": ([CALL_A, PartEnd(A), CALL_B, MORE, PartEnd(B), STOP], [[], [], [], [], ["b"], ["a"], []]),
    "and may be what the limit cut": ([CALL_A, PartEnd(A), Finish(K, "length")], [[], [], [], []]),
    "the limit spares what was closed": ([CALL_A, FULL, PartEnd(A), Finish(K, "length")], [[], [], ["a"], [], []]),
    "free text waits": ([ToolCallStart(Key(0, 0, "a"), "custom", "f"), Arguments(A, "x"), PartEnd(A), STOP], [[], [], [], ["a"], []]),
    "a reason that may be revised": ([CALL_A, PartEnd(A), Finish(K, "STOP", revises=True), Finish(K, "STOP", revises=True)], [[], [], [], [], ["a"]]),
    "and was": ([CALL_A, PartEnd(A), Finish(K, "STOP", revises=True), Finish(K, "MAX_TOKENS", revises=True)], [[], [], [], [], []]),
    "after the finish reason": ([STOP, CALL_A, FULL, End()], [[], [], [], ["a"], []]),
    "cut": ([CALL_A, FULL], [[], [], []]),
    "cut after its end": ([CALL_A, PartEnd(A)], [[], [], []]),
    "no JSON": ([CALL_A, Arguments(A, "{"), PartEnd(A), STOP], [[], [], [], [], []]),
    "restated": ([CALL_A, Arguments(A, "{"), PartEnd(A), Whole(A, "arguments", '{"x":1}'), PartEnd(A), STOP], [[], [], [], ["a"], [], [], []]),
    "named late": ([ToolCallStart(Key(0, 0, "a"), "function", ""), FULL, PartEnd(A), CALL_A, STOP], [[], [], [], ["a"], [], []]),
    "nothing after an error": ([CALL_A, FULL, CALL_B, MORE, PartEnd(A), BROKEN, PartEnd(B), STOP], [[], [], [], [], ["a"], [], [], [], []]),
    "another choice is not run": ([Start(Key(1)), ToolCallStart(Key(1, 0, "b"), "function", "f"), Finish(Key(1), "stop"), CALL_A, STOP], [[], [], [], [], ["a"], []]),
    "unless it is the first": ([ToolCallStart(Key(1, 0, "b"), "function", "f"), Finish(Key(1), "stop")], [[], [], ["b"]]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_when_a_call_is_released(name: str) -> None:
    events, expected = ROWS[name]
    assert released(*events) == expected


def test_a_late_error_takes_back_only_what_the_finish_reason_had_closed() -> None:
    closed = assemble([CALL_A, FULL, PartEnd(A), BROKEN])
    assert [call.id for call in closed.tool_calls] == ["a"]
    assert released(CALL_A, FULL, STOP, BROKEN) == [[], [], ["a"], [], []]
    assert (
        assemble([CALL_A, FULL, STOP, BROKEN]).incomplete_tool_calls[0].problem == "the stream broke: overloaded_error"
    )


def test_what_is_pending() -> None:
    assembler = Assembler()
    problems: list[list[str | None]] = []
    for event in (CALL_A, PartEnd(A), CALL_B, MORE, Text(K, "x")):
        assembler.feed(event)
        problems.append([call.problem for call in assembler.incomplete()])
    assert problems == [["no finish reason"], ["no finish reason"], *[["no finish reason"] * 2] * 3]
    assembler.feed(STOP)
    assert assembler.incomplete() == ()
    assembler.feed(ToolCallStart(Key(0, 2, "c"), "function", "h"))
    assembler.feed(BROKEN)
    assert [(call.id, call.index, call.problem) for call in assembler.incomplete()] == [
        ("c", 2, "the stream broke: overloaded_error")
    ]


def test_a_call_ended_after_an_error_is_pending_for_good() -> None:
    assembler = Assembler()
    for event in (BROKEN, CALL_A, FULL, PartEnd(A)):
        assert assembler.feed(event) == ()
    assert assembler.result().tool_calls
    (held,) = assembler.incomplete()
    assert (held.arguments, held.problem) == (None, "the stream broke: overloaded_error")


def test_a_call_waits_for_the_dialect() -> None:
    stream = synthesize(
        Reply((ToolCall(0, id="a", name="f", arguments_text="{}"),), "tool_calls", ended=True), "openai-chat"
    )
    payloads: list[Any] = [{"odd": 1}, *stream.payloads]
    assert [len(each) for each in released(*payloads)][-2:] == [1, 0]
    unknown = Assembler()
    assert unknown.feed({"odd": 1}) == ()


# ------------------------------------------------------------------------------------------------------ against the whole reply


def run(stream: Stream, reads: list[bytes] | None = None) -> tuple[list[ToolCall], Reply]:
    assembler = Assembler(stream.spoken)
    out: list[ToolCall] = []
    for data in reads or [read.data for read in stream.exchange.reads]:
        new = assembler.feed_bytes(data)
        assert [call.index for call in new] == sorted(call.index for call in new)
        out += new
        assert all(call.problem for call in assembler.incomplete())
    out += assembler.close()
    return out, assembler.result()


def agree(stream: Stream) -> None:
    calls, reply = run(stream)
    assert len({call.index for call in calls}) == len(calls), "one was released twice"
    final = {call.index: call for call in reply.tool_calls}
    if reply.errors:  # then nothing more is released, and what the finish reason had closed is taken back
        said = {part.index: part for part in reply.parts if isinstance(part, ToolCall)}
        assert all(
            (said[call.index].name, said[call.index].arguments_text) == (call.name, call.arguments_text)
            for call in calls
        )
        assert not stream.reply.complete
    else:
        assert {call.index: call for call in calls} == final
        assert all(call.arguments == final[call.index].arguments for call in calls)
    assert run(stream, [stream.body[at : at + 7] for at in range(0, len(stream.body), 7)])[0] == calls, (
        "the reads make a difference"
    )


each_dialect = pytest.mark.parametrize("name", [each.name for each in DIALECTS])


@each_dialect
@given(data=st.data())
def test_what_is_released_is_what_the_reply_says(name: str, data: st.DataObject) -> None:
    agree(synthesize(data.draw(replies(name)), name))


@each_dialect
def test_under_every_mutator(name: str) -> None:
    for each in instances(EVERY[name], "all"):
        agree(mutate(EVERY[name], [each]))


DRAWN = {name: mutations(stream) for name, stream in EVERY.items()}


@each_dialect
@settings(max_examples=30)
@given(data=st.data())
def test_under_every_composition(name: str, data: st.DataObject) -> None:
    drawn = list(data.draw(DRAWN[name]))
    try:
        stream = mutate(EVERY[name], drawn)
    except NotApplicable:
        return
    agree(stream)
    if law_of(drawn).calls == "same":
        assert [(call.name, call.arguments) for call in run(stream)[0]] == [
            (call.name, call.arguments) for call in EVERY[name].reply.tool_calls
        ]


def test_on_captured_streams(corpus: Any) -> None:
    for each in DIALECTS:
        if each.name != "tool-events":
            for _, body, _ in corpus_streams(corpus, each.name):
                assembler = Assembler(each.name)
                calls = [*assembler.feed_bytes(body), *assembler.close()]
                if not assembler.result().errors:
                    assert sorted(calls, key=lambda call: call.index) == sorted(
                        assembler.result().tool_calls, key=lambda call: call.index
                    )
