"""The scoreboard's grouping and rendering, on the one assembler that needs nothing but openai; the whole is a command of its own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("openai")

from quirk_streams import SEQUENTIAL, STREAMS
from scoreboard import judging, report
from scoreboard.assemblers import PEERS, Peer
from stream_cassette import Stream
from stream_cassette.errors import LawBroken
from stream_cassette.fuzz import check
from stream_cassette.mutate import LEVELS, Quirk

LOOP = PEERS["textbook loop"]
NAME = "STREAMS['openai-chat'][2]"


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> report.Board:
    found = {NAME: SEQUENTIAL, "two choices": STREAMS["openai-chat"][8]}
    monkeypatch.setattr(judging, "streams", lambda dialect: found)
    judged = judging.judge(LOOP, search=False)
    return report.Board((judged,), tuple(map(judging.shrunk, judging.distinct(judged.verdicts))))


def test_the_scoreboard_of_the_textbook_loop(board: report.Board) -> None:
    (judged,) = board.judged
    assert set(judged.skipped) == {"two choices"}
    assert {verdict.outcome for verdict in judged.verdicts} == {"obeyed", "broken", "crashed"}
    faults = {(fault.name, fault.kind): fault for fault in board.fair}
    glued = faults["quirk index-all-zero", "tool_calls"]
    assert (glued.stream, glued.mutator, glued.times) == (NAME, Quirk("index-all-zero"), 1)
    assert ("quirk comment-after-id", "raises") in faults
    assert not {name for name, _ in faults} & {"OneByteReads", "Rechunk", "Refragment", "CutBeforeFinish"}
    for fault in board.fair:
        with pytest.raises(LawBroken):
            eval(fault.again, {"check": check, "PEERS": PEERS, "STREAMS": STREAMS, "Quirk": Quirk})


def test_the_scoreboard_is_rendered(board: report.Board) -> None:
    head, row = report.rows(board)
    assert head == ["assembler", "version", *LEVELS, "faults"]
    assert row[0] == "textbook loop"
    assert row[-1] == str(len(board.fair))
    text, document = report.text(board), report.markdown(board)
    for fault in board.fair:
        assert fault.again in text
        assert fault.again in document
    assert "is not judged by two choices: text: reads" in text
    assert f"## textbook loop {LOOP.version}: {len(board.fair)}\n" in document
    assert len(json.loads(json.dumps(report.plain(board)))["faults"]) == len(board.faults)


def test_what_has_parameters_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that takes each read for an event, unless there are as many as recorded."""

    def fragile(reads: list[bytes]) -> dict[str, object]:
        result = LOOP.assemble(reads)
        return {**result, "text": result["text"] if len(list(reads)) == len(SEQUENTIAL.exchange.reads) else ""}

    peer = Peer("fragile", "openai-chat", "openai", "openai", fragile)
    monkeypatch.setattr(judging, "streams", lambda dialect: {NAME: SEQUENTIAL})
    faults = [
        fault for fault in judging.distinct(judging.judge(peer, search=False).verdicts) if fault.name == "Rechunk"
    ]
    (fault,) = [judging.shrunk(each, {"fragile": peer}) for each in faults]
    assert fault.kind == "text"
    assert repr(fault.mutator) in fault.told
    assert len(fault.mutator.cuts) <= 1


def test_what_is_unfair_is_told_apart(monkeypatch: pytest.MonkeyPatch, board: report.Board) -> None:
    first = board.fair[0]
    monkeypatch.setitem(judging.UNFAIR, (first.peer, first.name, first.kind), "because")
    assert first not in board.fair
    assert f"| {first.name} | {first.kind} | because |" in report.markdown(board)
    assert "unfair: because" in report.text(board)


def test_an_assembler_that_is_not_installed_has_no_version() -> None:
    assert replace(LOOP, distribution="no-such-distribution").version is None


def test_every_dialect_has_streams() -> None:
    for peer in PEERS.values():
        found = judging.streams(peer.dialect)
        assert all(isinstance(stream, Stream) for stream in found.values())
        assert any(name.startswith("cassettes/") for name in found)
