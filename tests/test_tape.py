"""The tape without any HTTP library: who plays what, what is recorded, what is noted."""

from __future__ import annotations

import contextvars
import gc
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_cassette.active import ACTIVE, active, active_tape
from stream_cassette.cassette import load, update
from stream_cassette.clients import use
from stream_cassette.errors import (
    AssembledDiffers,
    CassetteError,
    CassetteMiss,
    CassetteMissing,
    RecordingTooShort,
    TapeError,
    Unplayed,
)
from stream_cassette.model import COMPLETE, Cassette, Ending, Exchange, Headers, Interaction, Read, Request
from stream_cassette.playing import Player
from stream_cassette.recording import Recorder
from stream_cassette.tape import Tape

CLOSED = Ending("closed")
SSE: Headers = (("content-type", "text/event-stream"),)
JSON: Headers = (("content-type", "application/json"),)


def request(word: str = "hi") -> Request:
    return Request(
        "POST",
        "https://api.example.com/v1/chat/completions",
        JSON,
        json.dumps({"word": word}, separators=(",", ":")).encode(),
    )


def chunk(text: str | None, finish: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    value = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def talk(text: str) -> tuple[bytes, ...]:
    return (chunk(text), chunk(None, "stop"), b"data: [DONE]\n\n")


class Clock:
    """Goes on by a quarter of a second with every look at it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.25
        return self.now


def record(
    tape: Tape,
    asked: Request,
    reads: tuple[bytes, ...],
    ending: Ending = CLOSED,
    status: int = 200,
    headers: Headers = SSE,
) -> Recorder:
    take = tape.open(asked)
    assert isinstance(take, Recorder)
    take.start(status, headers)
    for data in reads:
        take.read(data)
    take.end(ending)
    return take


def play(tape: Tape, asked: Request) -> list[bytes]:
    take = tape.open(asked)
    assert isinstance(take, Player)
    reads = []
    while isinstance(data := take.read(), bytes):
        reads.append(data)
    return reads


def said(tape: Tape) -> list[str]:
    return [reply.text for reply in tape.replies]


def owners(path: Path) -> list[tuple[str | None, str | None]]:
    return [(each.test, each.assembled and each.assembled["text"]) for each in load(path).interactions]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "x.yaml"


@pytest.fixture
def recorded(path: Path) -> Path:
    """Two tests and nobody, all with the same request."""
    for test, text in [("a", "of a"), (None, "of nobody"), ("b", "of b")]:
        tape = Tape(path, mode="all", test=test)
        record(tape, request(), talk(text))
        tape.close()
    return path


# ------------------------------------------------------------------------------------------------------------------- recording


def test_what_is_recorded(path: Path) -> None:
    tape = Tape(path, mode="once", test="a", clock=Clock())
    secret = (("authorization", "Bearer sk-secret"), *JSON)
    record(tape, replace(request(), headers=secret), talk("hello"), headers=(*SSE, ("set-cookie", "sk-secret")))
    assert not path.exists()
    tape.close()
    tape.close()
    cassette = load(path)
    (interaction,) = cassette.interactions
    assert interaction == Interaction(
        Exchange(
            request(),
            200,
            SSE,
            tuple(Read((index + 1) * 250, data) for index, data in enumerate(talk("hello"))),
            COMPLETE,
        ),
        test="a",
        dialect="openai-chat",
        assembled={"text": "hello", "finish_reason": "stop"},
    )
    assert cassette.by.startswith("stream-cassette ")
    assert cassette.at.endswith("Z")
    assert "sk-secret" not in path.read_text()


def test_nothing_recorded_is_nothing_saved(path: Path) -> None:
    for mode in ("once", "new", "all"):
        tape = Tape(path, mode=mode)
        unanswered = tape.open(request())
        assert isinstance(unanswered, Recorder)
        unanswered.end(CLOSED)
        tape.close()
    assert not path.exists()


def test_what_is_no_stream_is_recorded_without_a_reply(path: Path) -> None:
    tape = Tape(path, mode="all")
    record(tape, request(), (b'{"models": []}',), COMPLETE, headers=JSON)
    tape.close()
    (interaction,) = load(path).interactions
    assert (interaction.dialect, interaction.assembled) == (None, None)
    assert interaction.exchange.body == b'{"models": []}'


ENDINGS = {
    "left early": (talk("x")[:2], CLOSED, 200, SSE, "POST", CLOSED),
    "left after the end mark": (talk("x"), CLOSED, 200, SSE, "POST", COMPLETE),
    "left after the promised length": ((b"ab", b"c"), CLOSED, 200, (("content-length", "3"),), "POST", COMPLETE),
    "left before the promised length": ((b"ab",), CLOSED, 200, (("content-length", "3"),), "POST", CLOSED),
    "an answer to HEAD": ((), CLOSED, 200, (("content-length", "3"),), "HEAD", COMPLETE),
    "no content": ((), CLOSED, 204, (), "POST", COMPLETE),
    "not modified": ((), CLOSED, 304, (), "POST", COMPLETE),
    "nothing read": ((), CLOSED, 200, SSE, "POST", CLOSED),
    "died after the end mark": (
        talk("x"),
        Ending("disconnected", "read"),
        200,
        SSE,
        "POST",
        Ending("disconnected", "read"),
    ),
    "stalled": ((b"a",), Ending("stalled"), 200, SSE, "POST", Ending("stalled")),
}


@pytest.mark.parametrize(
    ("reads", "ending", "status", "headers", "method", "expected"), ENDINGS.values(), ids=ENDINGS.keys()
)
def test_how_it_ended(
    path: Path, reads: tuple[bytes, ...], ending: Ending, status: int, headers: Headers, method: str, expected: Ending
) -> None:
    tape = Tape(path, mode="all")
    asked = replace(request(), method=method)
    assert record(tape, asked, reads, ending, status, headers).exchange.ending == expected


def test_the_first_ending_counts_and_nothing_follows_it(path: Path) -> None:
    take = record(Tape(path, mode="all"), request(), (b"a", b"", b"b"), Ending("stalled"))
    take.end(CLOSED)
    take.read(b"c")
    assert [read.data for read in take.exchange.reads] == [b"a", b"b"]
    assert take.exchange.ending == Ending("stalled")


def test_a_response_that_nobody_closes_ends_with_the_tape(path: Path) -> None:
    tape = Tape(path, mode="all")
    take = tape.open(request())
    assert isinstance(take, Recorder)
    take.start(200, SSE)
    take.read(chunk("a"))
    assert not take.finished
    with pytest.raises(TapeError, match="not read to its end"):
        tape.streams  # noqa: B018
    tape.close()
    assert load(path).interactions[0].exchange.ending == CLOSED


# ----------------------------------------------------------------------------------------------------------- modes and owners


@pytest.mark.parametrize(
    ("test", "texts"),
    [("a", ["of a", "of nobody"]), ("b", ["of b", "of nobody"]), ("c", ["of nobody"]), (None, ["of nobody"])],
)
def test_none_plays_its_own_first_then_nobodys_each_once(recorded: Path, test: str | None, texts: list[str]) -> None:
    tape = Tape(recorded, test=test)
    for text in texts:
        assert play(tape, request()) == list(talk(text))
    assert said(tape) == texts
    with pytest.raises(CassetteMiss):
        tape.open(request())


def test_once_plays_where_there_is_anything_to_play(recorded: Path) -> None:
    before = recorded.read_text()
    tape = Tape(recorded, mode="once", test="a")
    assert play(tape, request()) == list(talk("of a"))
    with pytest.raises(CassetteMiss):
        tape.open(request("another"))
    tape.close()
    assert recorded.read_text() == before


def test_once_records_for_a_test_that_has_nothing(path: Path) -> None:
    for test in ("a", "b"):
        tape = Tape(path, mode="once", test=test)
        record(tape, request(), talk(f"1 of {test}"))
        record(tape, request(), talk(f"2 of {test}"))
        tape.close()
    assert owners(path) == [("a", "1 of a"), ("a", "2 of a"), ("b", "1 of b"), ("b", "2 of b")]


def test_new_plays_what_matches_and_records_the_rest(recorded: Path) -> None:
    tape = Tape(recorded, mode="new", test="a")
    assert play(tape, request()) == list(talk("of a"))
    record(tape, request("another"), talk("new"))
    assert play(tape, request()) == list(talk("of nobody"))
    record(tape, request(), talk("third time"))
    tape.close()
    assert owners(recorded) == [
        ("a", "of a"),
        (None, "of nobody"),
        ("b", "of b"),
        ("a", "new"),
        ("a", "third time"),
    ]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("a", [("a", "new"), ("a", "newer"), (None, "of nobody"), ("b", "of b")]),
        ("b", [("a", "of a"), (None, "of nobody"), ("b", "new"), ("b", "newer")]),
        ("c", [("a", "of a"), (None, "of nobody"), ("b", "of b"), ("c", "new"), ("c", "newer")]),
        (None, [("a", "of a"), (None, "new"), (None, "newer"), ("b", "of b")]),
    ],
)
def test_all_replaces_its_own_in_their_place(
    recorded: Path, test: str | None, expected: list[tuple[str | None, str]]
) -> None:
    tape = Tape(recorded, mode="all", test=test)
    record(tape, request(), talk("new"))
    record(tape, request(), talk("newer"))
    tape.close()
    assert owners(recorded) == expected


def test_what_others_wrote_meanwhile_is_kept(recorded: Path) -> None:
    tape = Tape(recorded, mode="new", test="c")
    record(tape, request("another"), talk("of c"))
    update(recorded, lambda cassette: replace(cassette, interactions=cassette.interactions[1:]))
    tape.close()
    assert owners(recorded) == [(None, "of nobody"), ("b", "of b"), ("c", "of c")]


def test_requests_stand_in_order_of_request_whichever_ends_first(path: Path) -> None:
    tape = Tape(path, mode="all")
    first, second = tape.open(request("1")), tape.open(request("2"))
    for take, text in [(second, "second"), (first, "first")]:
        assert isinstance(take, Recorder)
        take.start(200, SSE)
        for data in talk(text):
            take.read(data)
        take.end(COMPLETE)
    assert said(tape) == ["first", "second"]
    tape.close()
    assert owners(path) == [(None, "first"), (None, "second")]


def test_a_mode_that_is_none(path: Path) -> None:
    with pytest.raises(TapeError, match="use one of none, once, new, all"):
        Tape(path, mode="some")


COMMAND = "pytest a.py::test --stream-record=all\n(--stream-record=new adds)"


@pytest.mark.parametrize("mode", ["none", "once", "new", "all"])
@pytest.mark.parametrize(
    ("command", "told"), [("", "use('{path}', mode='once')"), (COMMAND, "pytest a.py::test --stream-record=once")]
)
@pytest.mark.parametrize(("text", "what"), [("", "the file is empty"), ("format: [", "not YAML")])
def test_a_broken_cassette_is_an_error_before_anything_is_asked(
    path: Path, mode: Any, command: str, told: str, text: str, what: str
) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(CassetteError, match=what) as caught:
        Tape(path, mode=mode, record_command=command)
    assert caught.value.where.startswith(f"{path}, line ")
    assert (
        caught.value.mend
        == "restore the file from version control, or delete it and record it anew:\n" + told.format(path=path)
    )
    assert path.read_text() == text


def test_two_tapes_that_record_one_cassette_anew_keep_what_both_recorded(path: Path) -> None:
    for round_ in range(3):  # the second and third find what the first recorded, and mostly record the same
        outer = Tape(path, mode="all", test="a")
        inner = Tape(path, mode="all", test="a")
        other = Tape(path, mode="new", test="a")
        for tape, word in [(inner, "inner"), (other, f"other {round_}"), (outer, "outer")]:
            record(tape, request(word), talk(word))
            tape.close()
        assert owners(path) == [("a", "inner"), ("a", f"other {round_}"), ("a", "outer")]


def test_recording_anew_replaces_what_it_found_and_nothing_newer(path: Path) -> None:
    first = Tape(path, mode="all", test="a")
    record(first, request("x"), talk("x"))
    first.close()
    slow, quick = (Tape(path, mode="all", test="a") for _ in range(2))
    # The same again, so that nothing in the file tells.
    record(quick, request("x"), talk("x"))
    quick.close()
    assert (quick.saved, quick.changed) == (1, False)
    record(slow, request("y"), talk("y"))
    slow.close()
    assert (slow.saved, slow.changed) == (1, True)
    assert owners(path) == [("a", "x"), ("a", "y")]


def test_what_another_process_recorded_anew_is_kept(path: Path) -> None:
    first = Tape(path, mode="all", test="a")
    for word in ("x", "y"):
        record(first, request(word), talk(word))
    first.close()
    tape = Tape(path, mode="all", test="a")
    update(path, lambda cassette: replace(cassette, interactions=cassette.interactions[:1]))
    record(tape, request("z"), talk("z"))
    tape.close()
    assert owners(path) == [("a", "x"), ("a", "z")]


# --------------------------------------------------------------------------------------------------------------------- playing


def test_an_equal_request_reserves_at_the_request_not_at_the_read(path: Path) -> None:
    tape = Tape(path, mode="all")
    record(tape, request(), talk("one"))
    record(tape, request(), talk("two"))
    tape.close()
    tape = Tape(path)
    first, second = tape.open(request()), tape.open(request())
    assert isinstance(first, Player)
    assert isinstance(second, Player)
    interleaved = [(second.read(), first.read()) for _ in range(4)]
    assert interleaved == [*zip(talk("two"), talk("one"), strict=True), (COMPLETE, COMPLETE)]


def test_a_player_says_how_far_it_was_read(recorded: Path) -> None:
    early, late = (Tape(recorded, test=test).open(request()) for test in ("a", "b"))
    assert isinstance(early, Player)
    assert isinstance(late, Player)
    early.read()
    early.close()
    while isinstance(late.read(), bytes):
        pass
    late.close()
    assert (early.read_to_end, early.closed_early) == (False, True)
    assert (late.read_to_end, late.closed_early) == (True, False)


@pytest.mark.parametrize("ending", [Ending("disconnected", "read"), Ending("stalled")])
def test_an_ending_that_the_door_has_to_raise(path: Path, ending: Ending) -> None:
    tape = Tape(path, mode="all")
    record(tape, request(), (b"a",), ending)
    tape.close()
    take = Tape(path).open(request())
    assert isinstance(take, Player)
    assert [take.read(), take.read(), take.read()] == [b"a", ending, ending]


def test_reading_past_a_recording_that_was_left_early(path: Path) -> None:
    tape = Tape(path, mode="all")
    record(tape, request(), talk("a")[:1])
    tape.close()
    tape = Tape(path)
    take = tape.open(request())
    assert isinstance(take, Player)
    assert take.read() == chunk("a")
    assert tape.failure is None
    with pytest.raises(RecordingTooShort, match="reads recorded: 1") as caught:
        take.read()
    assert tape.failure is caught.value
    assert "x.yaml, interaction 1 (POST https://api.example.com/v1/chat/completions)" in str(caught.value)


# ---------------------------------------------------------------------------------------------------------------------- misses


MISSES: dict[str, tuple[str | None, Request, list[str]]] = {
    "another body": (
        "a",
        request("ho"),
        [
            "closest recorded request: POST https://api.example.com/v1/chat/completions (interaction 1)",
            "  body.word: recorded 'hi', now 'ho'",
            "next: POST https://api.example.com/v1/chat/completions (interaction 2, differences: 1)",
        ],
    ),
    "another test's": (
        "c",
        request("of b alone"),
        ["an equal request was recorded, but by another test: b"],
    ),
}


@pytest.mark.parametrize(("test", "asked", "lines"), MISSES.values(), ids=MISSES.keys())
def test_a_miss_says_what_was_near(recorded: Path, test: str | None, asked: Request, lines: list[str]) -> None:
    tape = Tape(recorded, mode="new", test="b")
    record(tape, request("of b alone"), talk("x"))
    tape.close()
    tape = Tape(recorded, test=test, record_command="pytest --stream-record=all\n(=new adds)")
    with pytest.raises(CassetteMiss) as caught:
        tape.open(asked)
    sharing = (
        ["         or, to share it with every test, delete the line `test: b` of interaction 4"] if test == "c" else []
    )
    assert str(caught.value).splitlines() == [
        "no recorded interaction answers POST https://api.example.com/v1/chat/completions",
        *(f"  {line}" for line in lines),
        f"  where: {recorded}, test {test}",
        "  mend:  pytest --stream-record=all",
        "         (=new adds)",
        *sharing,
    ]
    assert tape.failure is caught.value
    assert tape.used


@pytest.mark.parametrize(
    ("times", "line"),
    [
        (1, "an equal request is recorded once and was played as often already"),
        (2, "an equal request is recorded 2 times and was played as often already"),
    ],
)
def test_a_miss_for_a_request_made_too_often(path: Path, times: int, line: str) -> None:
    tape = Tape(path, mode="all")
    for _ in range(times):
        record(tape, request(), talk("x"))
    tape.close()
    tape = Tape(path)
    for _ in range(times):
        play(tape, request())
    with pytest.raises(CassetteMiss, match=line):
        tape.open(request())


@pytest.mark.parametrize(
    ("test", "line"), [("c", "recorded for this test"), (None, "recorded that belongs to no test")]
)
def test_a_miss_where_nothing_is_recorded(path: Path, test: str | None, line: str) -> None:
    tape = Tape(path, mode="all", test="a")
    record(tape, request(), talk("x"))
    tape.close()
    with pytest.raises(CassetteMiss, match=f"nothing is {line}"):
        Tape(path, test=test).open(request("other"))


def test_a_miss_shows_no_secret(recorded: Path) -> None:
    asked = replace(
        request(), url="https://api.example.com/v1?api_key=sk-secret", headers=(("authorization", "sk-secret"),)
    )
    with pytest.raises(CassetteMiss) as caught:
        Tape(recorded, test="a").open(asked)
    assert "sk-secret" not in str(caught.value)


def test_without_a_cassette_the_first_request_is_the_error(path: Path) -> None:
    tape = Tape(path, record_command="pytest --stream-record=once")
    assert tape.failure is None
    with pytest.raises(CassetteMiss, match="there is no such cassette") as caught:
        tape.open(request())
    assert caught.value.mend == "pytest --stream-record=once"
    first = tape.failure
    with pytest.raises(CassetteMiss):
        tape.open(request())
    assert tape.failure is first


def test_without_a_cassette_reading_is_the_error(path: Path) -> None:
    with pytest.raises(CassetteMissing, match=r"use\(.*x\.yaml', mode='once'\)"):
        Tape(path).reply  # noqa: B018


def test_without_a_cassette_a_block_that_asks_nothing_has_tested_nothing(path: Path) -> None:
    with pytest.raises(CassetteMissing, match=r"use\(.*x\.yaml', mode='once'\)"), use(path):
        pass
    for mode in ("once", "new", "all"):
        with use(path, mode=mode):
            pass
    with pytest.raises(LookupError), use(path):
        raise LookupError


def test_what_is_told_where_a_cassette_exists(recorded: Path) -> None:
    with pytest.raises(CassetteMiss) as caught:
        Tape(recorded, test="a").open(request("other"))
    assert str(caught.value).splitlines()[-2:] == [
        f"  mend:  use('{recorded}', mode='all')",
        "         (mode='new' keeps what is recorded and adds what is missing)",
    ]


# --------------------------------------------------------------------------------------------------------- what a test reads


def test_the_recording_can_be_read_without_any_request(recorded: Path) -> None:
    tape = Tape(recorded, test="a")
    assert not tape.used
    assert said(tape) == ["of a", "of nobody"]
    assert tape.used
    assert tape.reply.text == "of nobody"
    assert tape.reads == talk("of nobody")
    assert tape.stream is tape.streams[-1]
    play(tape, request())
    assert said(tape) == ["of a"]


def test_what_is_no_stream_is_not_read(path: Path) -> None:
    tape = Tape(path, mode="all")
    record(tape, request("models"), (b'{"models": []}',), headers=JSON)
    with pytest.raises(TapeError, match="no known stream"):
        tape.streams  # noqa: B018
    record(tape, request(), talk("x"))
    assert said(tape) == ["x"]
    tape.close()
    assert said(Tape(path)) == ["x"]


def test_a_body_without_a_word_is_no_stream(path: Path) -> None:
    tape = Tape(path, mode="all")
    record(tape, request("old"), (), COMPLETE, status=307, headers=(("location", "/new"),))
    record(tape, request(), talk("x"))
    assert said(tape) == ["x"]
    tape.close()
    assert load(path).interactions[0].assembled is None


@pytest.mark.parametrize(
    "read", [lambda tape: tape.streams, lambda tape: tape.stream, lambda tape: tape.replies, lambda tape: tape.reads]
)
def test_reading_where_there_is_nothing(path: Path, read: Callable[[Tape], Any]) -> None:
    with pytest.raises(TapeError, match="no stream was exchanged, and none is recorded"):
        read(Tape(path, mode="new"))


# ------------------------------------------------------------------------------------------------------------ assembled, again


def spoil(path: Path) -> None:
    """Makes the file say that the assembler once said something else."""

    def change(cassette: Cassette) -> Cassette:
        spoilt = [
            replace(each, assembled={"text": "something else", "finish_reason": "stop"})
            for each in cassette.interactions
        ]
        return replace(cassette, interactions=tuple(spoilt))

    update(path, change)


def read_it(tape: Tape) -> None:
    tape.reply  # noqa: B018


def play_it(tape: Tape) -> None:
    play(tape, request())


@pytest.mark.parametrize("touch", [read_it, play_it])
def test_the_assembler_must_still_say_the_same(recorded: Path, touch: Callable[[Tape], None]) -> None:
    sound = Tape(recorded, test="a")
    touch(sound)
    sound.check_assembled()
    spoil(recorded)
    tape = Tape(recorded, test="a")
    touch(tape)
    with pytest.raises(AssembledDiffers, match=r"assembled\.text: recorded 'something else', now 'of a'") as caught:
        tape.check_assembled()
    assert f"{recorded}, interaction 1 (POST" in caught.value.where


def test_what_was_not_touched_is_not_checked(recorded: Path) -> None:
    spoil(recorded)
    Tape(recorded, test="a").check_assembled()


def test_what_says_nothing_is_not_checked(path: Path) -> None:
    tape = Tape(path, mode="all")
    record(tape, request(), (b"{}",), COMPLETE, headers=JSON)
    tape.close()
    tape = Tape(path)
    play(tape, request())
    tape.check_assembled()


def test_a_dialect_that_is_not_known(recorded: Path) -> None:
    recorded.write_text(recorded.read_text().replace("dialect: openai-chat", "dialect: gone", 1))
    with pytest.raises(CassetteError, match="there is no dialect 'gone'") as caught:
        Tape(recorded, test="a")
    assert caught.value.where == f"{recorded}, line 14"
    assert "openai-chat" in caught.value.mend


# ------------------------------------------------------------------------------------------------------------- the active tape


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Tape, Tape]]:
    yield Tape(tmp_path / "one.yaml", mode="all"), Tape(tmp_path / "two.yaml", mode="all")
    assert active_tape() is None
    assert ACTIVE == []


def in_thread(function: Callable[[], Any]) -> Any:
    """What `function` returns or raises in a thread that knows nothing of this context."""
    got: list[Any] = []

    def run() -> None:
        try:
            got.append(function())
        except TapeError as error:
            got.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return got[0]


def test_the_inner_tape_is_the_active_one(two: tuple[Tape, Tape]) -> None:
    outer, inner = two
    with active(outer):
        assert active_tape() is outer
        with active(inner):
            assert active_tape() is inner
        assert active_tape() is outer


def test_tapes_that_end_out_of_turn(two: tuple[Tape, Tape]) -> None:
    outer, inner = two
    with ExitStack() as ends_first:
        ends_first.enter_context(active(outer))
        with active(inner):
            ends_first.close()
            assert active_tape() is inner


def test_a_tape_that_ends_in_another_context(two: tuple[Tape, Tape]) -> None:
    outer, inner = two
    with active(outer), ExitStack() as ends_elsewhere:
        ends_elsewhere.enter_context(active(inner))
        contextvars.Context().run(ends_elsewhere.close)
        assert active_tape() is outer


def test_a_tape_that_ended_elsewhere_is_not_kept(tmp_path: Path) -> None:
    def ended_elsewhere() -> weakref.ref[Tape]:
        tape, stack = Tape(tmp_path / "x.yaml", mode="all"), ExitStack()
        stack.enter_context(active(tape))
        contextvars.Context().run(stack.close)
        return weakref.ref(tape)

    def several() -> list[bool]:
        ended = [ended_elsewhere() for _ in range(3)]
        gc.collect()
        return [tape() is not None for tape in ended]

    assert contextvars.Context().run(several) == [False, False, True]  # the context names the last one


def test_a_thread_uses_the_only_tape(two: tuple[Tape, Tape]) -> None:
    tape, _ = two
    assert in_thread(active_tape) is None
    with active(tape):
        assert in_thread(active_tape) is tape


def test_a_thread_among_several_tapes(two: tuple[Tape, Tape]) -> None:
    with active(two[0]), active(two[1]):
        context = contextvars.copy_context()
        assert in_thread(lambda: context.run(active_tape)) is two[1]
        error = in_thread(active_tape)
        assert isinstance(error, TapeError)
        assert "one.yaml" in str(error)
        assert "two.yaml" in str(error)
        assert [tape.failure for tape in two] == [error, error]


def test_a_closed_tape_takes_no_request(path: Path) -> None:
    tape = Tape(path, mode="all")
    tape.close()
    with pytest.raises(TapeError, match="after the tape was closed"):
        tape.open(request())


# ---------------------------------------------------------------------------------------- what is ignored, and what is left over


def ask(path: Path, words: list[str], **options: Any) -> Tape:
    tape = Tape(path, test="a", **options)
    for word in words:
        play(tape, request(word))
    return tape


def test_what_is_ignored_does_not_count(recorded: Path) -> None:
    ask(recorded, ["another", "word"], ignore=["word"])
    with pytest.raises(CassetteMiss):
        ask(recorded, ["another"])
    with pytest.raises(TapeError, match="is no path"):
        Tape(recorded, ignore=[""])


def test_a_miss_counts_the_next_ones(path: Path) -> None:
    tape = Tape(path, mode="all", test="a")
    for word in ("one", "two", "three", "four"):
        record(tape, request(word), talk(word))
    tape.close()
    with pytest.raises(CassetteMiss) as caught:
        ask(path, ["five"])
    place = "POST https://api.example.com/v1/chat/completions"
    assert caught.value.what.splitlines() == [
        f"no recorded interaction answers {place}",
        f"  closest recorded request: {place} (interaction 1)",
        "    body.word: recorded 'one', now 'five'",
        f"  next: {place} (interaction 2, differences: 1)",
        f"  next: {place} (interaction 3, differences: 1)",
    ]


def test_what_use_does_about_what_was_not_played(recorded: Path) -> None:
    update(
        recorded, lambda cassette: replace(cassette, interactions=(*cassette.interactions, cassette.interactions[1]))
    )
    for unplayed, error in [("ignore", None), ("error", Unplayed), ("warn", TapeError)]:
        with pytest.raises(error) if error else nullcontext(), use(recorded, unplayed=unplayed) as tape:
            play(tape, request())


def test_what_was_not_played(recorded: Path) -> None:
    tape = Tape(recorded, mode="new", test="a")
    record(tape, request("second"), talk("second"))
    tape.close()
    line = f"{recorded}, interaction 4 (POST https://api.example.com/v1/chat/completions)"
    tape = ask(recorded, ["hi"], record_command="pytest --again")
    assert tape.unplayed == (line,)
    with pytest.raises(Unplayed) as caught:
        tape.check_unplayed()
    assert str(caught.value).splitlines() == [
        "nothing asked for what is recorded for this test",
        f"  {line}",
        "  where: a",
        "  mend:  if the code under test is right, record again:",
        "         pytest --again",
    ]
    # Those of nobody may be meant for another test.
    ask(recorded, ["second", "hi"]).check_unplayed()
    read = ask(recorded, [])
    assert said(read)
    read.check_unplayed()
