"""What happens to a recording when something goes wrong: it is saved all the same, or the error names the file and the rest is intact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stream_cassette.cassette import load, update
from stream_cassette.errors import CassetteError
from stream_cassette.model import Cassette, Exchange
from stream_cassette.tape import Tape
from test_tape import COMPLETE, SSE, record, request, talk


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
    monkeypatch.setattr("stream_cassette.tape.update", update)
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


def test_a_record_of_headers_alone(path: Path) -> None:
    tape = Tape(path, mode="all")
    record(tape, request(), (), COMPLETE, headers=SSE)
    tape.close()
    assert load(path).interactions[0].exchange.reads == ()
