"""How fast a recording plays, and a client's read timeout: with a clock of our own, then through real clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from stream_cassette import Stream, use
from stream_cassette.cassette import update
from stream_cassette.errors import RecordingTooShort, StreamCassetteError, TapeError
from stream_cassette.model import COMPLETE, Cassette, Ending, Exchange, Interaction, Read, Request
from stream_cassette.playing import Player, pace_of

REQUEST = Request("GET", "http://provider.test/")
TIMED = Exchange(REQUEST, 200, (), (Read(100, b"a"), Read(100, b"b"), Read(5000, b"c")))


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def player(pace: float, clock: Clock) -> Player:
    def note(failure: StreamCassetteError) -> None:
        raise failure

    playing = Player(Stream(TIMED), note, "", clock=clock, pace=pace)
    playing.start()
    return playing


@pytest.mark.parametrize(
    ("timing", "pace"), [("instant", 0), ("recorded", 1), ("x0.1", 0.1), ("x1", 1), ("x2.5", 2.5), ("x0", 0)]
)
def test_the_words_for_a_pace(timing: str, pace: float) -> None:
    assert pace_of(timing) == pace


@pytest.mark.parametrize("timing", ["", "fast", "0.1", "x", "x-1", "x1.", "x.5", "xinf", "x1e9", "Recorded", "x1\n"])
def test_a_pace_that_is_none(timing: str, tmp_path: Path) -> None:
    with pytest.raises(TapeError, match=r"timing cannot be .*\n.*instant, recorded, x0\.1"):
        pace_of(timing)
    with pytest.raises(TapeError), use(tmp_path / "x.yaml", timing=timing):
        pass


@pytest.mark.parametrize(("pace", "pauses"), [(0, [0, 0, 0, 0]), (1, [0.1, 0, 4.9, 0]), (0.1, [0.01, 0, 0.49, 0])])
def test_a_read_is_due_at_its_time(pace: float, pauses: list[float]) -> None:
    clock = Clock()
    playing = player(pace, clock)
    found = []
    for _ in pauses:
        found.append(playing.pause(60))
        clock.now += found[-1]
        playing.read()
    assert found == pytest.approx(pauses)


def test_a_slow_client_waits_for_nothing() -> None:
    clock = Clock()
    playing = player(1, clock)
    clock.now += 7
    assert [playing.pause(), playing.pause(0)] == [0, 0]
    assert playing.read() == b"a"


def test_a_read_timeout_strikes_where_it_would() -> None:
    clock = Clock()
    playing = player(1, clock)
    for data in (b"a", b"b"):
        clock.now += playing.pause(1)
        assert playing.read() == data
    assert playing.pause(2) == 2
    assert playing.read() == Ending("stalled")
    assert playing.response.state == "ended"
    assert playing.response.reads == 2


LEFT = Exchange(REQUEST, 200, (), (Read(0, b"a"), Read(40, b"b")), Ending("closed"))


@pytest.mark.parametrize("timing", ["instant", "recorded"])
def test_a_deadline_strikes_again_where_the_recorded_times_play(tmp_path: Path, timing: str) -> None:
    """What it recorded is shorter than it is long."""
    path = tmp_path / "x.yaml"
    update(path, lambda _: Cassette((Interaction(LEFT),)))
    got: list[bytes] = []

    async def read() -> None:
        async with httpx2.AsyncClient() as client, client.stream("GET", REQUEST.url) as response:
            async for data in response.aiter_raw():
                got.append(data)

    async def hurried() -> None:
        await asyncio.wait_for(read(), 0.3)

    expected = TimeoutError if timing == "recorded" else RecordingTooShort
    with pytest.raises(expected) as caught, use(path, timing=timing) as tape:
        asyncio.run(hurried())
    assert got == [b"a", b"b"]
    if expected is RecordingTooShort:
        assert "timing='recorded'" in str(caught.value)
    else:
        assert tape.responses[0].state == "closed"


def test_who_reads_on_without_a_deadline_is_told_after_a_while() -> None:
    clock = Clock()
    notes: list[StreamCassetteError] = []
    playing = Player(Stream(LEFT), notes.append, "here", clock=clock, pace=1)
    playing.start()
    waited = []
    for _ in range(2):
        waited.append(playing.pause())
        clock.now += waited[-1]
        playing.read()
    assert playing.pause() == 5
    assert playing.pause(0.2) == 0.2
    assert playing.read() == Ending("stalled")
    playing.pause(None)
    with pytest.raises(RecordingTooShort):
        playing.read()
    assert len(notes) == 1


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_real_client_meets_its_read_timeout(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "x.yaml"
    slow = Exchange(REQUEST, 200, (), (Read(1, b"a"), Read(60_000, b"b")), COMPLETE)
    update(path, lambda _: Cassette((Interaction(slow),)))
    timeout = httpx2.Timeout(5, read=0.05)
    got: list[bytes] = []

    async def read() -> None:
        async with httpx2.AsyncClient(timeout=timeout) as client, client.stream("GET", REQUEST.url) as response:
            async for data in response.aiter_raw():
                got.append(data)

    def read_sync() -> None:
        with httpx2.stream("GET", REQUEST.url, timeout=timeout) as response:
            got.extend(response.iter_raw())

    with use(path, timing="recorded") as tape, pytest.raises(httpx2.ReadTimeout):
        asyncio.run(read()) if backend == "async" else read_sync()
    assert got[:1] == [b"a"]
    assert tape.responses[0].reads == 1
    with use(path, timing="x0.0001"):
        assert httpx2.get(REQUEST.url, timeout=timeout).content == b"ab"
