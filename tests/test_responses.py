"""How far the code under test took each response, and what is told of one that it left open."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stream_cassette import serve, use
from stream_cassette.model import Ending, Exchange, Read, Request

READS = tuple(Read(0, data) for data in (b"a", b"b", b"c"))
NOTHING_TOLD: tuple[str, ...] = ()


def whole(url: str) -> None:
    httpx2.get(url)


def early(url: str) -> None:
    with httpx2.stream("GET", url) as response:
        next(response.iter_raw())


def unread(url: str) -> None:
    with httpx2.stream("GET", url):
        pass


def leaky(url: str) -> None:
    client = httpx2.Client()
    response = client.send(client.build_request("GET", url), stream=True)
    reads = response.iter_raw()
    assert [next(reads), next(reads)] == [b"a", b"b"]
    KEPT.append((client, response, reads))  # a generator that goes out of scope closes what it reads


def cancelled(url: str) -> None:
    async def read() -> None:
        async with httpx2.AsyncClient() as client, client.stream("GET", url) as response:
            async for _ in response.aiter_raw():
                raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(read())


KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Any:
    yield
    for client, response, _ in KEPT:
        response.close()
        client.close()
    KEPT.clear()


@pytest.mark.parametrize(
    ("client", "state", "reads"),
    [(whole, "ended", 3), (early, "closed", 1), (unread, "closed", 0), (cancelled, "closed", 1), (leaky, "open", 2)],
)
def test_how_far_a_response_was_taken(tmp_path: Path, client: Any, state: str, reads: int) -> None:
    path = tmp_path / "x.yaml"
    with serve(lambda request: Exchange(request, 200, (), READS), paced=False) as server:
        with use(path, mode="all") as recording:
            client(server.url)
            (live,) = recording.responses
    # What is in the file ends where this client left, except for one that only stopped reading.
    with use(path) as replaying:
        client(server.url)
        (replayed,) = replaying.responses
    for response in (live, replayed):
        assert (response.request.method, response.status) == ("GET", 200)
        assert (response.state, response.reads) == (state, reads)
    told = f"{path}: GET {live.request.url}: the response was neither read to its end nor closed (reads taken: 2)"
    for tape in (recording, replaying):
        assert [remark.startswith(told) for remark in tape.remarks] == [True] * (state == "open")


def test_a_dead_connection_is_an_end(tmp_path: Path) -> None:
    dead = Ending("disconnected", "protocol")
    with serve(lambda request: Exchange(request, 200, (), READS, dead), paced=False) as server:
        with use(tmp_path / "x.yaml", mode="all") as tape, pytest.raises(httpx2.RemoteProtocolError):
            httpx2.get(server.url)
    assert [(each.state, each.reads) for each in tape.responses] == [("ended", 3)]


def test_a_request_without_a_response_has_none(tmp_path: Path) -> None:
    with use(tmp_path / "x.yaml", mode="all") as tape, pytest.raises(httpx2.ConnectError):
        httpx2.get("http://127.0.0.1:9/")
    assert tape.responses == ()


def test_a_block_that_failed_is_not_told_of_leaks(tmp_path: Path) -> None:
    with serve(lambda request: Exchange(request, 200, (), READS), paced=False) as server:
        with pytest.raises(AssertionError), use(tmp_path / "x.yaml", mode="all") as tape:
            assert leaky(server.url) is not None, "fails here"
    assert [remark for remark in tape.remarks if "neither" in remark] == []


def test_the_secrets_of_a_leaked_request_are_not_told(tmp_path: Path) -> None:
    def answer(request: Request) -> Exchange:
        return Exchange(request, 200, (), READS)

    with serve(answer, paced=False) as server, use(tmp_path / "x.yaml", mode="all") as tape:
        leaky(f"{server.url}/?api_key=sk-abcdefghijklmnopqrstuvwxyz0123456789")
    assert "neither" in tape.remarks[0]
    assert "sk-abc" not in str(tape.remarks)
