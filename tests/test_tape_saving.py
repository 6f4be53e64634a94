"""What happens to a recording when something goes wrong: it is saved all the same, or the error names the file and the rest is intact."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stream_cassette.cassette import load, update
from stream_cassette.clients import use
from stream_cassette.errors import CassetteError, TapeError
from stream_cassette.model import Cassette, Exchange
from stream_cassette.playing import Player
from stream_cassette.recording import Recorder
from stream_cassette.tape import Tape
from test_tape import COMPLETE, JSON, SSE, record, request, talk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


def fail(*_: Any) -> None:
    raise LookupError("no such thing")


@pytest.mark.parametrize("what", ["stream_cassette.recording.assembled", "stream_cassette.recording.is_stream"])
def test_an_assembler_that_fails_costs_no_recording(path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    tape = Tape(path, mode="all", test="a")
    record(tape, request("1"), talk("one"))
    record(tape, request("2"), talk("two"), COMPLETE)
    monkeypatch.setattr(what, fail)
    tape.close()
    cassette = load(path)
    assert [each.exchange.body for each in cassette.interactions] == [b"".join(talk("one")), b"".join(talk("two"))]
    assert [each.assembled for each in cassette.interactions] == [None, None]
    assert len(tape.remarks) == 2
    assert tape.remarks[0] == (
        f"{path}: POST https://api.example.com/v1/chat/completions: the assembler failed on it (LookupError: no such thing), "
        "so it is recorded without `assembled`"
    )


def test_an_exchange_that_cannot_be_scrubbed_costs_itself_alone(path: Path) -> None:
    def sometimes(exchange: Exchange) -> None:
        if exchange.status and b"2" in exchange.request.body:
            fail()

    tape = Tape(path, mode="all", test="a", scrub=sometimes)
    for word in "123":
        record(tape, request(word), talk(word))
    with pytest.raises(CassetteError, match="an exchange could not be made fit for a file: LookupError") as caught:
        tape.close()
    assert caught.value.where == str(path)
    assert [each.assembled and each.assembled["text"] for each in load(path).interactions] == ["1", "3"]
    assert tape.remarks == ()
    tape.close()


ERRORS: dict[str, tuple[Exception, str, str]] = {
    "a cassette error": (CassetteError("why", where="x.yaml, line 3", mend="so"), "x.yaml, line 3", "so"),
    "one that names no file": (CassetteError("why"), "", "mend that and record again"),
    "of the system": (OSError(28, "why"), "", "mend that and record again"),
    "of any kind": (RecursionError("why"), "", "mend that and record again"),
}


@pytest.mark.parametrize(("error", "where", "mend"), ERRORS.values(), ids=ERRORS.keys())
def test_a_save_that_fails_names_the_file_and_leaves_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, where: str, mend: str
) -> None:
    other = Tape(path, mode="all", test="b")
    record(other, request(), talk("of b"))
    other.close()
    before = path.read_text()

    def update(*_: Any) -> None:
        raise error

    tape = Tape(path, mode="all", test="a")
    record(tape, request(), talk("of a"))
    monkeypatch.setattr("stream_cassette.saving.update", update)
    with pytest.raises(CassetteError, match="why") as caught:
        tape.close()
    assert caught.value.where == (where or str(path))
    assert caught.value.mend == mend
    assert path.read_text() == before


def test_what_no_file_can_hold(path: Path) -> None:
    tape = Tape(path, mode="all", test="a\ud800")
    record(tape, request(), talk("x"))
    with pytest.raises(CassetteError, match="lone surrogates") as caught:
        tape.close()
    assert caught.value.where == str(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("at", "days"),
    [("2026-11-01T00:00:00Z", 29), ("2026-11-01T00:00:00", 29), ("", None), ("long ago", None)],
)
def test_how_old_a_cassette_is(path: Path, at: str, days: int | None) -> None:
    update(path, lambda _: Cassette((), at=at, by="hand"))
    age = Tape(path).age(datetime(2026, 11, 30, tzinfo=UTC))
    assert age is None if days is None else age is not None and abs(age - timedelta(days=days)) < timedelta(days=1)
    assert Tape(path, mode="all").age(datetime.now(UTC)) is None


# -------------------------------------------------------------------------------------------------- refused, or cut short


def refuse(tape: Tape, word: str = "x", status: int = 401) -> None:
    record(tape, request(word), (b'{"error": "no such key"}',), COMPLETE, status, JSON)


@pytest.mark.parametrize("mode", ["once", "new", "all"])
def test_what_was_refused_is_not_recorded(path: Path, mode: Any) -> None:
    tape = Tape(path, mode=mode)
    for word, status in [("a", 401), ("b", 403)]:
        refuse(tape, word, status)
    tape.close()
    assert not path.exists()
    assert tape.remarks == tuple(
        f"{path}: POST https://api.example.com/v1/chat/completions: not recorded: {status}; is the key right? (keep_failures=True records it)"
        for status in (401, 403)
    )
    tape = Tape(path, mode=mode, keep_failures=True)
    refuse(tape)
    tape.close()
    assert tape.remarks == ()
    assert statuses(path) == [401]


def test_a_challenge_before_a_success_is_recorded(path: Path) -> None:
    tape = Tape(path, mode="once")
    refuse(tape)
    record(tape, request("x"), talk("x"))
    tape.close()
    assert statuses(path) == [401, 200]


def statuses(path: Path) -> list[int]:
    return [each.exchange.status for each in load(path).interactions] if path.exists() else []


def leave(tape: Tape) -> None:
    record(tape, request("early"), talk("early")[:1])


def fail_to_connect(tape: Tape) -> None:
    take = tape.open(request("unanswered"))
    assert isinstance(take, Recorder)
    take.fail(OSError())


def retry(tape: Tape) -> None:
    fail_to_connect(tape)
    record(tape, request("unanswered"), talk("at last"), COMPLETE)


# What happened after one whole exchange: what `once` keeps where the test failed, where it was interrupted, and `new` in either case.
CUT_SHORT: dict[str, tuple[Callable[[Tape], object], list[int], list[int], list[int]]] = {
    "nothing": (lambda tape: None, [200], [], [200]),
    "another whole one": (lambda tape: record(tape, request("2"), talk("2"), COMPLETE), [200, 200], [], [200, 200]),
    "one left early": (leave, [], [], [200]),
    "one refused": (refuse, [], [], [200]),
    "an error": (lambda tape: refuse(tape, status=400), [], [], [200]),
    "one without an answer": (fail_to_connect, [], [], [200]),
    "one answered at the second try": (retry, [200, 200], [], [200, 200]),
}


@pytest.mark.parametrize(("then", "failed", "interrupted", "new"), CUT_SHORT.values(), ids=CUT_SHORT.keys())
def test_a_recording_that_is_cut_short(
    path: Path, then: Callable[[Tape], object], failed: list[int], interrupted: list[int], new: list[int]
) -> None:
    for mode, why, expected in [
        ("once", "the test failed", failed),
        ("all", "the test failed", failed),
        ("once", "interrupted", interrupted),
        ("new", "the test failed", new),
        ("new", "interrupted", new),
    ]:
        path.unlink(missing_ok=True)
        tape = Tape(path, mode=mode)
        record(tape, request("1"), talk("1"), COMPLETE)
        then(tape)
        tape.cut_short(why, ended=why != "interrupted")
        tape.close()
        assert statuses(path) == expected, (mode, why)
        assert tape.saved == len(expected)
        assert (tape.not_kept in {remark.removeprefix(f"{path}: ") for remark in tape.remarks}) == bool(tape.not_kept)


def test_what_is_not_kept_is_counted(path: Path) -> None:
    for mode, told in [
        ("once", "2 exchanges not kept: the test failed; a recording in part would miss the rest"),
        ("new", "1 of 2 exchanges not kept: the test failed"),
    ]:
        tape = Tape(path, mode=mode)
        record(tape, request("1"), talk("1"), COMPLETE)
        leave(tape)
        tape.cut_short("the test failed", ended=True)
        tape.close()
        assert tape.not_kept == told


def test_a_block_that_fails_is_told_what_is_not_kept(path: Path) -> None:
    def block(reads: tuple[bytes, ...], error: BaseException) -> None:
        with use(path, mode="once") as tape:
            record(tape, request("1"), reads)
            raise error

    for error, why in [(LookupError(), "the block failed with LookupError"), (KeyboardInterrupt(), "interrupted")]:
        with pytest.raises(type(error)) as caught:
            block(talk("1")[:1], error)
        assert caught.value.__notes__ == [
            f"{path}: 1 exchange not kept: {why}; a recording in part would miss the rest"
        ]
        assert not path.exists()
    with pytest.raises(LookupError) as caught:
        block(talk("1"), LookupError())
    assert not hasattr(caught.value, "__notes__")
    assert statuses(path) == [200]


# --------------------------------------------------------------------------------------------------------------------- forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_saves_nothing_of_its_parents(path: Path) -> None:
    def child(status: Callable[[], int]) -> int:
        pid = os.fork()
        if not pid:
            code = 99
            with suppress(BaseException):
                code = status()
            os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def record_too() -> int:
        try:
            tape.open(request("2"))
        except TapeError as error:
            return 1 if "a forked child process" in str(error) and tape.failure is error else 2
        return 3

    def leave_the_block() -> int:
        tape.close()
        return 4 if not path.exists() else 5

    def record_by_itself() -> int:
        own = Tape(path.with_name("child.yaml"), mode="once")
        record(own, request("3"), talk("3"), COMPLETE)
        own.close()
        return 6

    tape = Tape(path, mode="once")
    record(tape, request("1"), talk("1"), COMPLETE)
    assert [child(each) for each in (record_too, leave_the_block, record_by_itself)] == [1, 4, 6]
    tape.close()
    assert statuses(path) == [200]
    assert statuses(path.with_name("child.yaml")) == [200]
    tape = Tape(path)
    assert child(lambda: 7 if isinstance(tape.open(request("1")), Player) else 8) == 7


def test_a_request_of_a_forked_child_is_not_recorded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = Tape(path, mode="once")
    record(tape, request("1"), talk("1"), COMPLETE)
    with monkeypatch.context() as patch:
        patch.setattr("stream_cassette.tape.os.getpid", lambda: -1)
        with pytest.raises(TapeError, match="comes from a forked child process") as caught:
            tape.open(request("2"))
        assert "open a tape in the child" in caught.value.mend
        tape.close()
    assert not path.exists()


def test_a_record_of_headers_alone(path: Path) -> None:
    tape = Tape(path, mode="all")
    record(tape, request(), (), COMPLETE, headers=SSE)
    tape.close()
    assert load(path).interactions[0].exchange.reads == ()


def test_two_processes_record_one_test_and_one_recording_stays(path: Path) -> None:
    """Workers that share the items of a test find nothing recorded, and both ask."""
    first, second, other = (Tape(path, mode="once", test=test) for test in ("a", "a", "b"))
    for tape, word in ((first, "one"), (second, "two"), (other, "three")):
        record(tape, request("1"), talk(word))
        tape.close()
    assert [each.exchange.body for each in load(path).interactions] == [
        b"".join(talk(each)) for each in ("one", "three")
    ]
    assert (first.saved, second.saved, other.saved) == (1, 0, 1)
    assert (first.remarks, other.remarks) == ((), ())
    assert second.remarks == (f"{path}: another process recorded a meanwhile; that recording is kept",)


def test_what_belongs_to_no_test_is_added_by_each(path: Path) -> None:
    tapes = [Tape(path, mode="once") for _ in range(2)]
    for tape in tapes:
        record(tape, request("1"), talk("x"))
        tape.close()
    assert len(load(path).interactions) == 2
