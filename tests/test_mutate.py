"""Mutators: what each does, that its law holds for our own assembler on every stream, and that what is untouched keeps its bytes."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stream_cassette.mutate as mutate_module
from stream_cassette import Reply, Stream, assemble
from stream_cassette.dialects import DIALECTS
from stream_cassette.dialects.openai_chat import OpenAIChat
from stream_cassette.errors import NotApplicable, UnknownDialect
from stream_cassette.fuzz import mutations
from stream_cassette.model import Arguments, Exchange, Finish, Key, Read, Start, Text, ToolCallStart, UsageUpdate
from stream_cassette.mutate import *
from stream_cassette.mutate import LEVELS, MUTATORS, Mutator, answers, instances, law_of, mutate
from stream_cassette.mutate.base import slots, with_frames
from stream_cassette.mutate.items import settled
from stream_cassette.mutate.laws import Law, Outcome, broken
from streams import CALLS, EVERY, K, chat

each_stream = pytest.mark.parametrize("name", EVERY)


def faults(stream: Stream, mutators: list[Mutator]) -> list[str]:
    mutated = mutate(stream, mutators)
    return broken(law_of(mutators), Outcome(assemble(stream)), Outcome(assemble(mutated)), mutated.reply)


@each_stream
def test_every_mutator_obeys_its_law_in_every_dialect(name: str) -> None:
    found = instances(EVERY[name], "all")
    assert {each.level for each in found} >= {"wire", "cut"}
    for each in found:
        assert faults(EVERY[name], [each]) == [], each


DRAWN = {name: mutations(stream) for name, stream in EVERY.items()}


@each_stream
@settings(max_examples=30)
@given(data=st.data())
def test_every_composition_obeys_the_composed_law(name: str, data: st.DataObject) -> None:
    drawn = list(data.draw(DRAWN[name]))
    with contextlib.suppress(NotApplicable):
        assert faults(EVERY[name], drawn) == []


# Its deltas are not what its own `done` events say, so a change that restates them says another reply.
CONTRADICTS_ITSELF = "files/openai/responses-openai-shell-container-1.sse"


def test_every_mutator_obeys_its_law_on_captured_streams(corpus: Path) -> None:
    checked = 0
    for row in json.loads((corpus / "index.json").read_text()):
        if row["file"] == CONTRADICTS_ITSELF:
            continue
        body = (corpus / row["file"]).read_bytes()
        stream = Stream(Exchange(CALLS.exchange.request, 200, (), (Read(0, body),)))
        try:
            if len(body) > 12_000 or not stream.reply.complete or stream.reply.warnings:
                continue
        except UnknownDialect:
            continue
        for each in instances(stream, "all"):
            assert faults(stream, [each]) == [], (row["file"], each)
            checked += 1
    assert checked > 1000


@pytest.mark.parametrize("kind", MUTATORS, ids=lambda kind: kind.__name__)
def test_every_mutator_prints_as_code_and_resolves_to_itself(kind: type[Mutator]) -> None:
    acting = [
        (stream, each)
        for stream in (CALLS, *EVERY.values())
        for each in instances(stream, kind.level)
        if type(each) is kind
    ]
    assert acting, f"{kind.__name__} acts on no stream of the tests"
    for stream, each in acting:
        assert eval(repr(each), {**vars(mutate_module)}) == each
        resolved = each.resolve(stream)
        assert resolved.resolve(stream) == resolved
        assert resolved.apply(stream).exchange == each.apply(stream).exchange


# ------------------------------------------------------------------------------------------------------- what each one does


def reads(stream: Stream) -> list[bytes]:
    return [read.data for read in stream.exchange.reads]


def test_wire_mutators_change_reads_and_no_byte() -> None:
    for each in instances(CALLS, "wire"):
        assert each.apply(CALLS).body == CALLS.body
    assert reads(OneRead().apply(CALLS)) == [CALLS.body]
    assert {len(data) for data in reads(OneByteReads().apply(CALLS))} == {1}
    assert reads(ReadPerFrame().apply(OneRead().apply(CALLS))) == [frame.raw for frame in CALLS.frames]
    assert [len(data) for data in reads(Rechunk((3, 10)).apply(CALLS))] == [3, 7, len(CALLS.body) - 10]
    first, _ = reads(CutInsideCharacter(0).apply(CALLS))
    with pytest.raises(UnicodeDecodeError):
        first.decode()


def test_a_byte_is_never_read_before_it_came() -> None:
    came = {}
    at = 0
    for read in CALLS.exchange.reads:
        for _ in read.data:
            came[at] = read.at_ms
            at += 1
    for each in instances(CALLS, "wire"):
        at = 0
        for read in each.apply(CALLS).exchange.reads:
            at += len(read.data)
            assert read.at_ms >= came[at - 1]


def test_reads_without_a_byte_go() -> None:
    first, second, *_ = (frame.raw for frame in CALLS.frames)
    timed = tuple(Read(*each) for each in [(0, b""), (1, first[:5]), (2, b""), (3, first[5:] + second), (9, b"")])
    stream = Stream(replace(CALLS.exchange, reads=timed), CALLS.spoken)
    a, b = stream.frames
    assert with_frames(stream, [[a], [b]]).exchange.reads == (timed[1], timed[3])
    assert with_frames(stream, [[b], [a]]).exchange.reads == (Read(1, second), Read(3, first))
    assert with_frames(stream, [[a], []]).exchange.reads == (timed[1], Read(3, first[5:]))
    assert with_frames(stream, [[], [b]]).exchange.reads == (Read(3, second),)


def test_the_same_bytes_say_the_same_in_other_reads() -> None:
    stream = Stream(CALLS.exchange)
    assert OneByteReads().apply(stream).dialect == "openai-chat"
    with pytest.raises(UnknownDialect):
        OneByteReads().apply(Stream(replace(CALLS.exchange, reads=(Read(0, b"hello"),))))


def test_reads_keep_their_borders_in_frames_that_stay() -> None:
    mutated = Ping(3).apply(CALLS)
    before = {frame.raw for frame in CALLS.frames}
    assert sum(data in before for data in reads(mutated)) >= len(CALLS.frames) - 4
    assert [read.at_ms for read in mutated.exchange.reads] == [read.at_ms for read in CALLS.exchange.reads]


@pytest.mark.parametrize("each", instances(CALLS, "deltas", "loss", "cut", "fault"), ids=repr)
def test_untouched_frames_keep_their_exact_bytes(each: Mutator) -> None:
    before = [slot for slot in slots(CALLS)]
    after = {slot.frame.raw for slot in slots(each.apply(CALLS))}
    said = [slot.deltas for slot in slots(each.apply(CALLS))]
    for slot in before:
        if slot.deltas in said:
            assert slot.frame.raw in after or isinstance(each, CutInsideFrame | CorruptFrame | EmptyDeltas)


def test_refragmenting_and_merging_undo_each_other() -> None:
    cut = Refragment(0, (1, 2, 3)).apply(CALLS)
    assert len(cut.frames) == len(CALLS.frames) + 3
    merged = MergeDeltas().apply(cut)
    assert merged.deltas == MergeDeltas().apply(CALLS).deltas
    assert merged.reply == CALLS.reply


def test_interleaving_takes_turns() -> None:
    mutated = InterleaveToolCalls((1, 0)).apply(CALLS)
    order = [delta.key.index for delta in mutated.deltas if type(delta).__name__ == "Arguments"]
    assert order == [1, 0, 1, 0]
    assert mutated.reply == CALLS.reply


def test_usage_moves() -> None:
    def places(stream: Stream) -> list[int]:
        return [
            at for at, slot in enumerate(slots(stream)) if any(isinstance(delta, UsageUpdate) for delta in slot.deltas)
        ]

    finish = next(at for at, slot in enumerate(slots(CALLS)) if any(isinstance(delta, Finish) for delta in slot.deltas))
    assert places(MoveUsage("finish").apply(CALLS)) == [finish]
    assert places(MoveUsage("first").apply(CALLS)) == [1]
    assert places(MoveUsage("own").apply(MoveUsage("finish").apply(CALLS))) == [finish + 1]
    assert len(places(CumulativeUsage().apply(CALLS))) == 7
    assert DropUsage().apply(CALLS).reply.usage is None


def test_cuts_end_before_the_finish_reason() -> None:
    for each in instances(CALLS, "cut", "fault"):
        if not isinstance(each, HttpError | CorruptFrame):
            assert each.apply(CALLS).reply.finish_reason is None, each
            assert not each.apply(CALLS).reply.complete
    assert CutInsideArguments(0, 3).apply(CALLS).reply.incomplete_tool_calls[0].arguments_text == '{"h'
    assert CutInsideArguments(1, 0).apply(CALLS).reply.incomplete_tool_calls[1].arguments_text == ""
    assert CutAfterFrame(100).resolve(CALLS) == CutAfterFrame(100 % 9)


def test_truncation_says_so() -> None:
    reply = Truncate(5).apply(CALLS).reply
    assert (reply.text, reply.stop, reply.tool_calls) == ("One m", "length", ())
    assert reply.complete


def test_faults_of_the_connection() -> None:
    assert Disconnect(20).apply(CALLS).exchange.ending.error == "protocol"
    assert Disconnect(20, mid_chunk=True).apply(CALLS).exchange.ending.error == "chunk"
    assert settled(Disconnect, CALLS) == Disconnect(len(CutAfterFrame(-1).apply(CALLS).body) // 2)
    assert Stall(20).apply(CALLS).exchange.ending.kind == "stalled"
    assert len(Stall(20).apply(CALLS).body) == 20
    tries = answers(CALLS, [HttpError(503, 2, 1)])
    assert [(each.status, each.header("retry-after")) for each in tries] == [(503, "1"), (503, "1"), (200, None)]
    assert [error.type for error in ErrorEvent("rate_limit").apply(CALLS).reply.errors] == ["rate_limit_error"]
    assert [error.type for error in CorruptFrame(0).apply(CALLS).reply.errors] == ["wire:bad_json"]


def test_damage_never_leaves_a_call_that_may_run() -> None:
    for each in (ReverseFragments(0), DropFragment(0, 0), DuplicateFragment(1, 1)):
        assert len(each.apply(CALLS).reply.tool_calls) == 1
    assert DropFragment(5, 9).resolve(CALLS) == DropFragment(1, 1)


PLAIN = chat(Start(K, "assistant", "r", "m"), Text(K, "a"), Finish(K, "stop"))
EMPTY = Stream(Exchange(CALLS.exchange.request, 200, (), ()))
NOTHING_TO_DO: list[tuple[Mutator, Stream, str]] = [
    (OneByteReads(), EMPTY, "the body is empty"),
    (CutInsideCharacter(0), PLAIN, "every character takes one byte"),
    (LineEndings("\n"), PLAIN, "written like that already"),
    (LineEndings("\r"), EMPTY, "no text event stream"),
    (ByteOrderMark(), ByteOrderMark().apply(PLAIN), "begins so already"),
    (DropDone(), PLAIN, "no frame says the end"),
    (DropDone(), chat(Start(K, "assistant"), Text(K, "a")), "is all that says that the reply is whole"),
    (Refragment(0, (1,)), PLAIN, "the text has one character"),
    (Refragment(0, (1,)), chat(Finish(K, "stop")), "there is no text"),
    (Refragment(0, (1,)), Refragment(0, (1,)).apply(CALLS), "cut there already"),
    (MergeDeltas(), PLAIN, "no two neighbours"),
    (InterleaveToolCalls((0, 1)), PLAIN, "no tool call"),
    (InterleaveToolCalls((0, 1)), InterleaveToolCalls((0, 1)).apply(CALLS), "take turns like that already"),
    (InterleaveToolCalls((0, 1)), Quirk("index-all-zero").apply(CALLS), "to which call a piece belongs"),
    (MoveUsage("own"), PLAIN, "there is no usage"),
    (MoveUsage("finish"), MoveUsage("finish").apply(CALLS), "stands there already"),
    (CumulativeUsage(), PLAIN, "no output tokens"),
    (CumulativeUsage(), MoveUsage("first").apply(CALLS), "do not come after the content"),
    (Ping(), chat(Finish(K, "stop")), "no content"),
    (FinishWithLastContent(), chat(Finish(K, "stop")), "no content stands before"),
    (DropUsage(), PLAIN, "there is no usage"),
    (CutBeforeFinish(), EMPTY, "says nothing"),
    (CutBeforeFinish(), chat(Text(K, "a")), "no finish reason"),
    (CutInsideArguments(0, 0), PLAIN, "no tool call with arguments"),
    (Truncate(1), PLAIN, "no content to cut"),
    (ErrorEvent(), chat(Finish(K, "stop")), "nothing comes before"),
    (CorruptFrame(0), chat(Finish(K, "stop")), "no frame with content"),
    (DuplicateFragment(0, 0), PLAIN, "no tool call with arguments"),
    (Quirk("klingon"), PLAIN, "has no quirk 'klingon'"),
]


@pytest.mark.parametrize(("each", "stream", "says"), NOTHING_TO_DO, ids=lambda value: repr(value)[:40])
def test_a_mutator_with_nothing_to_act_on_says_why(each: Mutator, stream: Stream, says: str) -> None:
    with pytest.raises(NotApplicable, match=says):
        each.apply(stream)


def test_what_one_mutator_erases_another_may_need() -> None:
    class Erases(Ping):
        erases = frozenset(("call_index",))

    with pytest.raises(NotApplicable, match="needs call_index"):
        mutate(CALLS, [Erases(), InterleaveToolCalls((0, 1))])


@pytest.mark.parametrize("kind", MUTATORS, ids=lambda kind: kind.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_a_strategy_draws_mutators_of_its_class(kind: type[Mutator], data: st.DataObject) -> None:
    drawn = data.draw(kind.strategy(CALLS))
    assert type(drawn) is kind
    with contextlib.suppress(NotApplicable):
        assert drawn.resolve(CALLS).apply(CALLS).exchange == drawn.apply(CALLS).exchange


def test_a_wire_without_words_for_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from stream_cassette.mutate import faults

    class Mute(OpenAIChat):
        def write(self, deltas: Any, like: Any = None) -> Any:
            return []

    monkeypatch.setattr(faults, "speaker", lambda stream: Mute())
    with pytest.raises(NotApplicable, match="no words for an error"):
        ErrorEvent().apply(CALLS)


def test_free_text_is_not_damaged() -> None:
    custom = chat(
        Start(K, "assistant"),
        ToolCallStart(Key(0, 0, "a"), "custom", "sql"),
        Arguments(Key(0, 0), "SELECT"),
        Finish(K, "stop"),
    )
    with pytest.raises(NotApplicable, match="free text"):
        DuplicateFragment(0, 0).apply(custom)


def test_arguments_behind_the_finish_are_not_cut() -> None:
    late = chat(
        Start(K, "assistant"),
        Finish(K, "stop"),
        ToolCallStart(Key(0, 0, "a"), "function", "f"),
        Arguments(Key(0, 0), '{"a":1}'),
    )
    with pytest.raises(NotApplicable, match="before these arguments"):
        CutInsideArguments(0, 2).apply(late)


def test_levels() -> None:
    assert {kind.level for kind in MUTATORS} == set(LEVELS)
    assert {each.level for each in instances(CALLS, "wire", "cut")} == {"wire", "cut"}
    assert instances(CALLS) == instances(CALLS, "all")


# ---------------------------------------------------------------------------------------------------------------------- laws


def law(**claims: Any) -> Law:
    return Law(**claims)


def test_a_composition_makes_the_weaker_claim_of_each_aspect() -> None:
    assert law_of([DropUsage(), CutBeforeFinish()]) == Law("prefix", "prefix", "subset", "any", "any", "not_clean")
    assert law_of([Ping(), Refragment(0, (1,))]) == Law()
    assert str(Law()) == "everything the same"
    assert str(law_of([DropUsage()])) == "usage none"


CALL = {"name": "f", "arguments": '{"a": 1}'}
OTHER = {"name": "f", "arguments": {"a": 2}}


@pytest.mark.parametrize(
    ("claims", "before", "after", "says"),
    [
        ({}, "a", "a", []),
        ({}, "a", "b", ["expected 'a', got 'b'"]),
        ({}, "a", ValueError("no"), ["raised ValueError: no"]),
        ({"complete": "not_clean"}, "a", ValueError("no"), []),
        ({"usage": "none"}, {"text": "a"}, {"text": "b"}, ["text: expected 'a', got 'b'"]),
        ({"usage": "none"}, {"usage": {"input_tokens": 1}}, {"usage": None}, []),
        ({"usage": "none"}, {"usage": {"input_tokens": 1}}, {"usage": {"input_tokens": 0}}, ["usage: none was sent, got {'input_tokens': 0}"]),
        ({"text": "prefix"}, "abc", "ab", []),
        ({"text": "prefix"}, "abc", "b", ["text: 'b' is no prefix of 'abc'"]),
        ({"text": "any"}, "abc", "x", []),
        ({"calls": "subset"}, {"tool_calls": [CALL]}, {"tool_calls": []}, []),
        ({"calls": "subset"}, {"tool_calls": [CALL]}, {"tool_calls": [OTHER]}, [f"tool_calls: {OTHER!r} is not among those of the whole reply"]),
        ({"calls": "no_more_than_reference"}, {"tool_calls": []}, {"tool_calls": [CALL]}, ["may not run"]),
        ({"usage": "any"}, {"tool_calls": [CALL]}, {"tool_calls": [OTHER]}, ["tool_calls: expected"]),
        ({"usage": "any"}, {"tool_calls": [("f", "{}")]}, {"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}, []),
        ({"usage": "any"}, {"tool_calls": [("f", "{")]}, {"tool_calls": [{"name": "f", "arguments": "{"}]}, []),
        ({"finish": "limited"}, {"stop": "stop"}, {"stop": "length"}, []),
        ({"finish": "limited"}, {"stop": "stop"}, {"stop": "stop"}, ["stop: expected 'length', got 'stop'"]),
        ({"usage": "any"}, {"finish_reason": "stop"}, {"finish_reason": None}, ["finish_reason: expected 'stop', got None"]),
        ({"text": "any"}, {"usage": {"prompt_tokens": 1}}, {"usage": {"prompt_tokens": 2}}, ["usage: expected"]),
        ({"text": "any"}, {"complete": True}, {"complete": False}, ["complete: expected True, got False"]),
        ({"complete": "not_clean"}, {"complete": True}, {"complete": True}, ["a clean success of a stream that broke"]),
        ({"complete": "not_clean"}, {"complete": True}, {"complete": True, "errors": ["x"]}, []),
        ({"complete": "any"}, {"complete": True}, {"complete": False}, []),
    ],
)  # fmt: skip
def test_what_is_broken_is_said_precisely(claims: dict[str, Any], before: Any, after: Any, says: list[str]) -> None:
    outcome = Outcome(error=after) if isinstance(after, Exception) else Outcome(after)
    found = broken(law(**claims), Outcome(before), outcome, assemble([Text(Key(), "x")]))
    assert len(found) == len(says)
    assert all(words in fault for words, fault in zip(says, found, strict=True))


def test_usage_of_another_type_is_compared_by_its_counts() -> None:
    reply = CALLS.reply
    seen = {"usage": {"prompt_tokens": 12, "completion_tokens": 30}}
    assert broken(Law(text="any"), Outcome(reply), Outcome(seen), reply) == []
    assert broken(Law(text="any"), Outcome(replace(reply, usage=None)), Outcome(seen), reply) != []


def test_every_dialect_says_what_mutators_ask() -> None:
    for speaker in DIALECTS:
        assert Reply(finish_reason=speaker.words["length"][0]).stop == "length"
        assert isinstance(speaker.usage_rides, bool)
        assert all(isinstance(name, str) for name in speaker.quirks)


def test_every_mutator_has_its_row_in_the_readme() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    for kind in MUTATORS:
        row = next(line for line in readme.splitlines() if line.startswith(f"| `{kind.__name__}("))
        law = "everything the same" if kind is Quirk else str(kind.law)
        assert f"| {law} |" in row, row
