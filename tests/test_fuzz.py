"""Fuzzing: broken assemblers are found and shrunk, a correct one holds, and a failure can be pasted back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broken import BROKEN, Loop
from stream_cassette import Stream, assemble, fuzz
from stream_cassette import mutate as mutate_module
from stream_cassette.cassette import load, update
from stream_cassette.errors import LawBroken, NotApplicable, TapeError
from stream_cassette.model import Cassette, Exchange, Interaction
from stream_cassette.mutate import (
    LEVELS,
    CorruptFrame,
    CumulativeUsage,
    CutBeforeFinish,
    DropUsage,
    InterleaveToolCalls,
    LineEndings,
    MoveUsage,
    Mutator,
    OneByteReads,
    Ping,
    Quirk,
    Rechunk,
    Refragment,
    Truncate,
)
from streams import CALLS, EVERY, PLAIN_USAGE

# The search is a search: the same examples every time, and none remembered from before.
settings.register_profile(
    "search", max_examples=200, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture
def searching() -> Iterable[None]:
    before = settings.get_current_profile_name()
    settings.load_profile("search")
    yield
    settings.load_profile(before)


def found_by(assembler: Callable[[Iterable[bytes]], Any], stream: Stream = CALLS) -> list[Mutator]:
    """The mutators of the shrunk failure, as its text has them."""
    with pytest.raises(LawBroken) as caught:
        fuzz.check(assembler, stream, levels=PLAIN_LEVELS)
    code = re.search(r"again:   fuzz.check\(assembler, stream, (\[.*\]), feed=", str(caught.value))
    assert code, str(caught.value)
    mutators = eval(code[1], {**vars(mutate_module)})
    with pytest.raises(LawBroken):
        fuzz.check(assembler, stream, mutators)
    return mutators


# A simple loop bears no odd spellings, whatever else is right with it.
PLAIN_LEVELS = [level for level in LEVELS if level != "quirk"]

# The one mutator, of the kinds given, that shows each fault.
SHOWS: dict[str, tuple[str, ...]] = {
    "ReplacesText": ("MergeDeltas", "Refragment"),
    "ParsesFragmentsAlone": (
        "Refragment",
        "MergeDeltas",
        "InterleaveToolCalls",
        "CutInsideArguments",
        "DuplicateFragment",
    ),
    "OneBuffer": ("InterleaveToolCalls",),
    "FirstChoiceAlways": ("MoveUsage", "UnknownEvents"),
    "DoneWhenBytesEnd": ("CutBeforeFinish", "CutAfterFrame"),
    "SumsUsage": ("CumulativeUsage",),
    "SplitsLines": ("MultiLineData",),
    "DecodesPerRead": ("Rechunk", "OneByteReads", "CutInsideCharacter"),
    "ReleasesAtBrace": (
        "Refragment",
        "CutInsideArguments",
        "CutBeforeFinish",
        "CutAfterFrame",
        "CorruptFrame",
        "Truncate",
        "Disconnect",
        "ErrorEvent",
        "CutInsideFrame",
        "InterleaveToolCalls",
    ),
    "OrdersByLastFragment": ("InterleaveToolCalls",),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_assembler_is_found_and_shrunk_to_one_mutator(name: str, searching: None) -> None:
    healthy = {"FirstChoiceAlways": MoveUsage("finish").apply(CALLS), "ParsesFragmentsAlone": PLAIN_USAGE}
    stream = healthy.get(name, CALLS)  # one on which the fault does not show
    (mutator,) = found_by(BROKEN[name], stream)
    assert type(mutator).__name__ in SHOWS[name]


def test_a_correct_assembler_holds(searching: None) -> None:
    fuzz.check(assemble, CALLS)
    fuzz.check(Loop(), CALLS, levels=PLAIN_LEVELS)
    with pytest.raises(LawBroken, match="Quirk"):
        fuzz.check(Loop(), CALLS)


def test_a_spelling_that_is_there_already_is_not_written_again() -> None:
    fuzz.check(assemble, CALLS, [Quirk("x-groq-usage"), CumulativeUsage()])
    with pytest.raises(NotApplicable):
        fuzz.check(assemble, CALLS, [Quirk("x-groq-usage"), CumulativeUsage(), Quirk("x-groq-usage")])


@pytest.mark.parametrize("feed", ["frames", "payloads"])
def test_every_feed(feed: Any, searching: None) -> None:
    fuzz.check(lambda events: assemble(events, dialect="openai-chat"), CALLS, feed=feed)
    with pytest.raises(NotApplicable, match=f"fed as {feed}"):
        fuzz.check(assemble, CALLS, levels=["wire"], feed=feed)


def test_a_list_where_a_tuple_is_meant() -> None:
    fuzz.check(assemble, CALLS, [Rechunk([3, 5]), OneByteReads()])


def test_a_level_is_each_of_its_mutators() -> None:
    fuzz.check(assemble, CALLS, levels=["deltas"])
    with pytest.raises(LawBroken, match=r"OneByteReads|Rechunk"):
        fuzz.check(BROKEN["DecodesPerRead"], CALLS, levels=["wire"])


def test_a_failure_tells_everything() -> None:
    with pytest.raises(LawBroken) as caught:
        fuzz.check(BROKEN["ReplacesText"], CALLS, [Rechunk((99999,)), Refragment(0, (17,))])
    text = str(caught.value)
    assert f"Rechunk(cuts=({99999 % len(CALLS.body)},)) then Refragment(lane=0, cuts=(17,))" in text
    for words in (
        "law:     everything the same",
        "broken:  expected",
        "bytes in",
        "| data: {",
        "with:    from stream_cassette import fuzz; from stream_cassette.mutate import Rechunk, Refragment",
        "again:   fuzz.check(",
        "keep it: fuzz.save(",
    ):
        assert words in text


def test_a_stream_on_which_the_assembler_fails_anyway() -> None:
    def fails(reads: Any) -> None:
        raise KeyError("choices")

    with pytest.raises(LawBroken, match="as it was recorded: KeyError"):
        fuzz.check(fails, CALLS)


def test_a_mutator_below_what_is_fed_could_not_fail() -> None:
    with pytest.raises(NotApplicable, match="could not fail"):
        fuzz.check(assemble, CALLS, [OneByteReads()], feed="payloads")
    with pytest.raises(NotApplicable, match="could not fail"):
        fuzz.check(assemble, CALLS, [LineEndings("\r\n")], feed="frames")
    with pytest.raises(TapeError, match="no feed 'smoke'"):
        fuzz.check(assemble, CALLS, feed="smoke")


def test_a_view_names_the_fields() -> None:
    def mine(reads: Any) -> tuple[str, bool]:
        reply = assemble(reads)
        return reply.text, reply.complete

    fuzz.check(mine, CALLS, [CutBeforeFinish()], view=lambda value: {"text": value[0], "complete": value[1]})
    with pytest.raises(LawBroken, match="a clean success"):
        fuzz.check(
            lambda reads: (mine(reads)[0], True), CALLS, [CutBeforeFinish()], view=lambda value: {"complete": value[1]}
        )


def test_a_failure_that_does_not_come_again_is_told_as_it_came() -> None:
    class FailsOnce(Loop):
        done = False

        def __call__(self, reads: Iterable[bytes]) -> Any:
            whole = list(reads)
            if len(whole) == 1 and not self.done:
                self.done = True
                return "once"
            return super().__call__(whole)

    with pytest.raises(LawBroken, match="got 'once'"):
        fuzz.check(FailsOnce(), CALLS, levels=["wire"])


def test_hypothesis_shows_what_was_done_not_every_byte() -> None:
    from hypothesis.vendor import pretty

    case = fuzz.Case(CALLS, (Ping(1),))
    assert pretty.pretty(case) == repr(case)


def test_long_streams_are_shown_in_part() -> None:
    with pytest.raises(LawBroken, match=r"characters\)"):
        fuzz.check(BROKEN["SumsUsage"], CALLS, [CumulativeUsage()])


# ----------------------------------------------------------------------------------------------------------------- strategies


@given(data=st.data())
def test_chunkings(data: st.DataObject) -> None:
    assert b"".join(data.draw(fuzz.chunkings(CALLS.body))) == CALLS.body


@given(case=fuzz.mutated(CALLS))
def test_a_case_is_checked_by_its_result(case: fuzz.Case) -> None:
    case.check(assemble(case.reads, dialect="openai-chat"))
    case.check(assemble(case.frames, dialect="openai-chat"))
    assert case.payloads == case.stream.payloads


@given(case=fuzz.mutated(CALLS, levels=("wire", "deltas"), most=1))
def test_a_case_of_some_levels(case: fuzz.Case) -> None:
    assert case.law.all_the_same
    assert len(case.mutators) == 1
    case.check(Loop()(case.reads))


def test_a_case_that_breaks_its_law() -> None:
    case = fuzz.Case(CALLS, (Refragment(0, (2,)),))
    with pytest.raises(LawBroken, match="text: expected"):
        case.check({"text": "x"})
    with pytest.raises(LawBroken, match="nothing could be checked"):
        case.check(7)
    case.check("One", view=lambda value: {"finish_reason": "tool_calls"})
    assert repr(case).startswith("<case of ")


def test_mutations_of_a_stream_that_says_nothing() -> None:
    empty = Stream(Exchange(CALLS.exchange.request, 200, (), ()))
    with pytest.raises(NotApplicable, match="no mutator"):
        fuzz.mutations(empty).validate()


@pytest.mark.parametrize("name", EVERY)
def test_streams_and_replies_of_a_dialect(name: str, searching: None) -> None:
    @settings(max_examples=10)
    @given(reply=fuzz.replies(name), stream=fuzz.streams(name))
    def holds(reply: Any, stream: Stream) -> None:
        assert assemble(stream) == stream.reply
        assert stream.spoken == name
        assert fuzz.synthesize(reply, name).reply == reply

    holds()


# ------------------------------------------------------------------------------------------------------------------ cassettes


def test_a_failure_is_kept_as_a_cassette(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cassettes" / "regressions" / "ping.yaml"
    fuzz.save(path, CALLS, [Ping(1)])
    fuzz.save(path, CALLS)
    first, second = load(path).interactions
    assert (first.test, first.dialect) == (None, "openai-chat")
    assert first.exchange.body == Ping(1).apply(CALLS).body
    assert second.exchange == CALLS.exchange
    monkeypatch.chdir(tmp_path)
    for source in (path, str(path), "regressions/ping"):
        assert fuzz.stream_of(source).exchange == CALLS.exchange
    fuzz.check(assemble, "regressions/ping", [Ping(2)])


def test_a_regression_that_was_kept_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "limit.yaml"
    fuzz.save(path, CALLS, [Truncate(60)])
    fuzz.check(assemble, path, [])
    with pytest.raises(LawBroken, match="the stream as it was recorded") as caught:
        fuzz.check(BROKEN["ReleasesAtBrace"], CutBeforeFinish().apply(CALLS), [])
    assert "keep it" not in str(caught.value)
    with pytest.raises(NotApplicable, match="int has none of the fields"):
        fuzz.check(lambda reads: 7, path, [])


def test_what_is_no_mutator_says_so() -> None:
    fuzz.check(assemble, CALLS, [Truncate])
    with pytest.raises(TapeError, match="level names go into levels="):
        fuzz.check(assemble, CALLS, ["wire"])


def test_a_cassette_without_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    update(path, lambda _: Cassette((Interaction(CALLS.exchange),)))
    with pytest.raises(TapeError, match="has no stream"):
        fuzz.stream_of(path)


def test_every_law_that_is_not_the_same_lets_an_assembler_refuse() -> None:
    def strict(reads: Any) -> Any:
        reply = assemble(reads)
        if not reply.complete:
            raise ValueError("incomplete")
        return reply

    for mutator in (CutBeforeFinish(), CorruptFrame(0), DropUsage()):
        fuzz.check(strict, CALLS, [mutator])
    with pytest.raises(LawBroken, match="raised ValueError"):
        fuzz.check(
            lambda reads: strict(list(reads)[:-3]) if len(list(reads)) != 12 else 1,
            CALLS,
            [InterleaveToolCalls((0, 1)), MoveUsage("finish")],
        )
