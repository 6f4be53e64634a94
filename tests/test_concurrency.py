"""Many requests at once through one tape, and tapes that overlap: nothing is swapped, nothing stays patched."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import trio

from stream_cassette.active import ACTIVE, active_tape
from stream_cassette.cassette import update
from stream_cassette.clients import use
from stream_cassette.errors import CassetteMiss
from stream_cassette.model import Cassette, Exchange, Interaction, Read, Request
from test_clients_httpx import SSE, originals

URL = "http://127.0.0.1:9"
READS = 5


def words(name: str) -> list[bytes]:
    return [f"{name}:{place} ".encode() for place in range(READS)]


def cassette(path: Path, *names: str, same: bool = False) -> Path:
    """One stream for each name; with `same`, all for one equal request, in this order."""
    made = tuple(
        Interaction(
            Exchange(
                Request("GET", f"{URL}/same" if same else f"{URL}/{name}"),
                200,
                SSE,
                tuple(Read(0, word) for word in words(name)),
            )
        )
        for name in names
    )
    update(path, lambda _: Cassette(made))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


NAMES = [f"n{number}" for number in range(200)]


def in_line(client: httpx2.Client, name: str) -> list[bytes]:
    with client.stream("GET", f"{URL}/{name}") as response:
        return list(response.iter_raw())


async def awaited(client: httpx2.AsyncClient, name: str) -> list[bytes]:
    async with client.stream("GET", f"{URL}/{name}") as response:
        return [data async for data in response.aiter_raw()]


async def by_gather(client: httpx2.AsyncClient) -> list[list[bytes]]:
    return list(await asyncio.gather(*(awaited(client, name) for name in NAMES)))


async def by_task_group(client: httpx2.AsyncClient) -> list[list[bytes]]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(awaited(client, name)) for name in NAMES]
    return [task.result() for task in tasks]


async def by_executor(client: httpx2.AsyncClient) -> list[list[bytes]]:
    loop = asyncio.get_running_loop()
    with httpx2.Client(verify=False) as shared, ThreadPoolExecutor(8) as pool:
        return list(await asyncio.gather(*(loop.run_in_executor(pool, in_line, shared, name) for name in NAMES)))


async def by_nursery(client: httpx2.AsyncClient) -> list[list[bytes]]:
    got: dict[str, list[bytes]] = {}

    async def one(name: str) -> None:
        got[name] = await awaited(client, name)

    async with trio.open_nursery() as nursery:
        for name in NAMES:
            nursery.start_soon(one, name)
    return [got[name] for name in NAMES]


def run(function: Callable[[httpx2.AsyncClient], Awaitable[Any]], backend: str) -> Any:
    async def main() -> Any:
        async with httpx2.AsyncClient(verify=False) as client:
            return await function(client)

    return anyio.run(main, backend=backend)


@pytest.mark.parametrize(
    ("function", "backend"),
    [(by_gather, "asyncio"), (by_task_group, "asyncio"), (by_executor, "asyncio"), (by_nursery, "trio")],
)
def test_two_hundred_streams_at_once(path: Path, function: Any, backend: str) -> None:
    cassette(path, *reversed(NAMES))
    with use(path, unplayed="error"):
        assert run(function, backend) == [words(name) for name in NAMES]


def test_two_hundred_streams_in_threads(path: Path) -> None:
    cassette(path, *NAMES)
    with use(path, unplayed="error"), httpx2.Client(verify=False) as client, ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda name: in_line(client, name), NAMES)) == [words(name) for name in NAMES]


def test_equal_requests_are_reserved_when_made_and_read_in_any_order(path: Path) -> None:
    cassette(path, *NAMES, same=True)
    with use(path, unplayed="error"), httpx2.Client(verify=False) as client, ExitStack() as stack:
        opened = [stack.enter_context(client.stream("GET", f"{URL}/same")) for _ in NAMES]
        streams = [response.iter_raw() for response in opened]
        rounds = [[next(stream) for stream in reversed(streams)] for _ in range(READS)]
    assert rounds == [[words(name)[place] for name in reversed(NAMES)] for place in range(READS)]


def test_equal_requests_from_many_threads_are_played_once_each(path: Path) -> None:
    cassette(path, *NAMES, same=True)
    start = threading.Barrier(16)

    def some(number: int) -> list[list[bytes]]:
        start.wait(5)
        return [in_line(client, "same") for _ in range(len(NAMES) // 16)]

    with use(path), httpx2.Client(verify=False) as client, ThreadPoolExecutor(16) as pool:
        got = [stream for streams in pool.map(some, range(16)) for stream in streams]
    first = len(NAMES) // 16 * 16
    assert sorted(got) == sorted(words(name) for name in NAMES[:first])


def test_one_request_too_many_is_one_miss(path: Path) -> None:
    cassette(path, "a", "b", same=True)

    async def main(client: httpx2.AsyncClient) -> Any:
        return await asyncio.gather(*(awaited(client, "same") for _ in range(3)), return_exceptions=True)

    got: list[Any] = []
    with pytest.raises(CassetteMiss, match="recorded 2 times and was played as often already"), use(path):
        got += run(main, "asyncio")
    assert got[:2] == [words("a"), words("b")]
    assert isinstance(got[2], CassetteMiss)


# ------------------------------------------------------------------------------------------------------------ what is patched


@contextmanager
def nothing_stays() -> Any:
    before = originals()
    yield
    assert all(one is other for one, other in zip(before, originals(), strict=True))
    assert ACTIVE == []
    assert active_tape() is None


def test_overlapping_tapes_in_threads(tmp_path: Path) -> None:
    paths = [cassette(tmp_path / f"{name}.yaml", name) for name in "abcd"]
    both = threading.Barrier(4)

    def one(path: Path) -> list[bytes]:
        with use(path), httpx2.Client(verify=False) as client:
            both.wait(5)
            got = in_line(client, path.stem)
            both.wait(5)
        return got

    with nothing_stays(), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, paths)) == [words(name) for name in "abcd"]


def test_overlapping_tapes_in_tasks(tmp_path: Path) -> None:
    async def one(client: httpx2.AsyncClient, name: str) -> list[bytes]:
        with use(cassette(tmp_path / f"{name}.yaml", name)):
            await asyncio.sleep(0)
            return await awaited(client, name)

    async def main(client: httpx2.AsyncClient) -> Any:
        return await asyncio.gather(*(one(client, name) for name in "abcd"))

    with nothing_stays():
        assert run(main, "asyncio") == [words(name) for name in "abcd"]


@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_nested_tapes_after_an_exception(tmp_path: Path, error: type[BaseException]) -> None:
    def nested() -> None:
        with use(tmp_path / "one.yaml"), use(tmp_path / "two.yaml"):
            raise error

    with nothing_stays(), pytest.raises(error):
        nested()


def test_a_tape_that_cannot_be_saved_leaves_nothing_patched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr("stream_cassette.saving.update", fail)
    monkeypatch.setattr(
        httpx2.HTTPTransport, "handle_request", lambda self, request: httpx2.Response(200, stream=Empty())
    )
    with nothing_stays(), suppress(Exception), use(tmp_path / "x.yaml", mode="all"):
        httpx2.get(URL)


class Empty(httpx2.SyncByteStream):
    def __iter__(self) -> Any:
        return iter(())
