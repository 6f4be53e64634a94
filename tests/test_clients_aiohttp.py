"""The door of aiohttp: real clients over real sockets, then the same without a server."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import aiohttp
import aiohttp.payload
import pytest
from aiohttp import ClientTimeout

from stream_cassette.cassette import load, update
from stream_cassette.clients import use
from stream_cassette.errors import RecordingTooShort
from stream_cassette.model import COMPLETE, Cassette, Ending, Exchange, Interaction, Read, Request
from stream_cassette.server import serve
from test_clients_httpx import CLOSED, PIECES, SSE, ending, exchange, provider
from test_clients_httpx import taken as taken_by

NOBODY = "http://127.0.0.1:9"
Client = Callable[[str], Awaitable[Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


def taken(path: Path, answer: Exchange | Callable[[Request], Exchange], client: Client) -> tuple[Any, Any]:
    """What `client` gets from a live server while it is recorded, and then from the recording alone."""
    return taken_by(path, answer, lambda url: asyncio.run(client(url)))


def recorded(path: Path, *exchanges: Exchange) -> None:
    """A cassette made by hand."""
    made = tuple(Interaction(each) for each in exchanges)
    update(path, lambda _: Cassette(made, "2026-11-30T00:00:00Z", "hand"))


class Stepped(tuple[Read, ...]):
    """Reads that go out one by one, each but the first, and the end, when the client has `met` the one before: nothing comes together."""

    steps: threading.Semaphore

    def __new__(cls, *pieces: bytes) -> Self:
        made = super().__new__(cls, (Read(0, piece) for piece in pieces))
        made.steps = threading.Semaphore(0)
        return made

    def met(self) -> None:
        self.steps.release()

    def __iter__(self) -> Iterator[Read]:
        for read in super().__iter__():
            yield read
            assert self.steps.acquire(timeout=5), "the client does not get what was sent"


async def reads_of(url: str, read: Callable[[Any], Any] = lambda content: content.iter_any(), **options: Any) -> Any:
    """What comes out of a response, and the error that ended it, in words."""
    got: list[Any] = []
    try:
        async with aiohttp.ClientSession(**options) as session, session.get(url) as response:
            async for each in read(response.content):
                got.append(each)
    except (aiohttp.ClientError, TimeoutError) as error:
        return got, f"{error!r} from {error.__cause__!r}"
    return got, ""


async def step(content: aiohttp.StreamReader, reads: Stepped) -> bytes:
    data = await content.readany()
    reads.met()
    return data


# ---------------------------------------------------------------------------------------------------------- the ways to read


async def repeated(read: Callable[[], Awaitable[Any]], end: Any = b"") -> AsyncIterator[Any]:
    while (data := await read()) != end:
        yield data


async def once(read: Awaitable[Any]) -> AsyncIterator[Any]:
    yield await read


async def by_peeking(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    yield content.read_nowait()
    while not content.at_eof():
        yield await content.read(3) + content.read_nowait()


async def exactly(content: aiohttp.StreamReader) -> AsyncIterator[Any]:
    yield await content.readexactly(9)
    with pytest.raises(asyncio.IncompleteReadError) as caught:
        await content.readexactly(10_000_000)
    yield caught.value.partial
    yield content.total_bytes, content.total_raw_bytes, content.is_eof(), content.at_eof()


async def after_the_end(content: aiohttp.StreamReader) -> AsyncIterator[Any]:
    await content.wait_eof()
    await content.wait_eof()
    yield content.is_eof(), content.at_eof()
    yield content.read_nowait(7)
    yield content.read_nowait()


WAYS: dict[str, Callable[[aiohttp.StreamReader], AsyncIterator[Any]]] = {
    "lines": lambda content: aiter(content),
    "iter_any": lambda content: content.iter_any(),
    "iter_chunks": lambda content: content.iter_chunks(),
    "iter_chunked": lambda content: content.iter_chunked(5),
    "readany": lambda content: repeated(content.readany),
    "readchunk": lambda content: repeated(content.readchunk, (b"", False)),
    "readline": lambda content: repeated(content.readline),
    "readuntil": lambda content: repeated(functools.partial(content.readuntil, b"ta:")),
    "read some": lambda content: repeated(functools.partial(content.read, 7)),
    "read all": lambda content: once(content.read()),
    "read_nowait": by_peeking,
    "readexactly": exactly,
    "wait_eof": after_the_end,
}
BODIES: dict[str, tuple[Read, ...]] = {
    "pieces": tuple(Read(0, piece) for piece in PIECES),
    "one read": (Read(0, b"data: all at once\n\n"),),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_every_way_to_read(path: Path, way: Any, body: tuple[Read, ...]) -> None:
    live, replayed = taken(path, exchange(*body), functools.partial(reads_of, read=way))
    assert live == replayed
    got, error = live
    assert error == ""
    pieces = [each[0] if isinstance(each, tuple) else each for each in got]
    assert b"".join(each for each in pieces if isinstance(each, bytes)) == b"".join(read.data for read in body)
    assert ending(path) == COMPLETE


LARGE = tuple(Read(0, b"%d" % size * size) for size in (100_000, 3, 200_000))


@pytest.mark.parametrize("name", ["iter_any", "read all"])
def test_a_body_larger_than_every_buffer(path: Path, name: str) -> None:
    live, replayed = taken(path, exchange(*LARGE), functools.partial(reads_of, read=WAYS[name]))
    assert live == replayed
    assert b"".join(live[0]) == b"".join(read.data for read in LARGE)
    recorded(path, Exchange(Request("GET", NOBODY), 200, SSE, LARGE))
    with use(path):
        got, _ = asyncio.run(reads_of(NOBODY, WAYS["iter_any"]))
    assert got == [read.data for read in LARGE]


@pytest.mark.parametrize("name", ["iter_any", "iter_chunks"])
def test_the_reads_are_cut_where_they_were(path: Path, name: str) -> None:
    live, replayed = taken(path, exchange(*PIECES), functools.partial(reads_of, read=WAYS[name]))
    assert live == replayed
    got = live[0] if name == "iter_any" else [data for data, ends_chunk in live[0] if data and ends_chunk]
    assert got == list(PIECES)


@pytest.mark.parametrize("name", ["lines", "read all"])
def test_a_tape_changes_nothing_of_what_comes(path: Path, name: str) -> None:
    with serve(lambda request: exchange(*PIECES)) as server:
        without = asyncio.run(reads_of(server.url, WAYS[name]))
    assert taken(path, exchange(*PIECES), functools.partial(reads_of, read=WAYS[name])) == (without, without)


@pytest.mark.parametrize("way", [*WAYS.values()][:10], ids=[*WAYS.keys()][:10])
def test_a_body_without_a_byte(path: Path, way: Any) -> None:
    live, replayed = taken(path, exchange(), functools.partial(reads_of, read=way))
    assert live == replayed
    assert b"".join(each for each in live[0] if isinstance(each, bytes)) == b""
    assert ending(path) == COMPLETE


def test_a_body_whose_length_was_told_before(path: Path) -> None:
    async def recording() -> str:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello")
            await met.wait()
            writer.write(b" world")
            writer.close()

        async def stepwise(content: aiohttp.StreamReader) -> AsyncIterator[Any]:
            async for piece in content.iter_chunks():
                yield piece
                met.set()

        met = asyncio.Event()
        async with await asyncio.start_server(answer, "127.0.0.1") as server:
            url = "http://{}:{}".format(*server.sockets[0].getsockname())
            with use(path, mode="all"):
                got = await reads_of(url, stepwise)
        assert got == ([(b"hello", False), (b" world", False)], "")
        return url

    url = asyncio.run(recording())
    assert [read.data for read in load(path).interactions[0].exchange.reads] == [b"hello", b" world"]
    with use(path):
        assert asyncio.run(reads_of(url)) == ([b"hello", b" world"], "")


@pytest.mark.parametrize("name", ["iter_any", "iter_chunks"])
def test_every_read_reaches_the_client_while_the_server_still_waits(path: Path, name: str) -> None:
    """And a tape changes nothing of it."""
    made: list[Stepped] = []

    def answer(request: Request) -> Exchange:
        made.append(Stepped(*PIECES))
        return Exchange(request, 200, SSE, made[-1])

    async def stepwise(content: aiohttp.StreamReader) -> AsyncIterator[Any]:
        async for piece in WAYS[name](content):
            # aiohttp tells the end of the last chunk a second time if the end of the body comes later.
            if piece != (b"", True):
                yield piece
                made[-1].met()

    async def client(url: str) -> Any:
        return await reads_of(url, stepwise)

    with serve(answer) as server:
        without = asyncio.run(client(server.url))
        with use(path, mode="all"):
            live = asyncio.run(client(server.url))
    with use(path):
        assert asyncio.run(client(server.url)) == live == without
    assert live == ([piece if name == "iter_any" else (piece, True) for piece in PIECES], "")


def test_a_replay_lets_other_tasks_run_at_every_read(path: Path) -> None:
    recorded(path, Exchange(Request("GET", NOBODY), 200, SSE, BODIES["pieces"]))
    steps: list[str] = []

    async def replay() -> None:
        async with aiohttp.ClientSession() as session, session.get(NOBODY) as response:
            async for _ in response.content.iter_any():
                steps.append("read")

    async def other() -> None:
        while steps.count("read") < len(PIECES):
            steps.append("other")
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(replay(), other())

    with use(path):
        asyncio.run(both())
    assert steps.count("read") == len(PIECES)
    assert "read read" not in " ".join(steps)


def test_two_readers_of_one_body(path: Path) -> None:
    reads = Stepped(*PIECES)

    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            got = [await step(response.content, reads) for _ in PIECES[:-2]]
            got.append(await response.content.readany())
            first = asyncio.create_task(response.content.readany())
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="while another coroutine is already waiting"):
                await response.content.readany()
            reads.met()
            got.append(await first)
            reads.met()
            return [*got, await response.content.readany()]

    live, replayed = taken(path, lambda request: Exchange(request, 200, SSE, reads), client)
    assert live == replayed == [*PIECES, b""]
    assert ending(path) == COMPLETE


# -------------------------------------------------------------------------------------------------------------------- endings


LEAVING: dict[str, Callable[[aiohttp.ClientSession, aiohttp.ClientResponse], Awaitable[Any]]] = {
    "release": lambda _, response: asyncio.sleep(0, response.release()),
    "close": lambda _, response: asyncio.sleep(0, response.close()),
    "leave the block": lambda _, response: response.__aexit__(None, None, None),
    "close the session": lambda session, _: session.close(),
}


@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING.keys())
def test_leaving_early(path: Path, leave: Any) -> None:
    async def client(url: str, most: int = 2) -> Any:
        async with aiohttp.ClientSession() as session:
            response = await session.get(url)
            content = response.content
            got = [await content.readany() for _ in range(most)]
            await leave(session, response)
            with pytest.raises((aiohttp.ClientError, RuntimeError), match="Connection closed") as caught:
                await content.readany()
            response.release()
        return got, repr(caught.value)

    live, replayed = taken(path, exchange(*PIECES[:2], ending=Ending("stalled")), client)
    assert live == replayed
    assert live[0] == list(PIECES[:2])
    assert ending(path) == CLOSED


def test_reading_on_where_the_recording_left(path: Path) -> None:
    async def client(url: str, most: int) -> list[bytes]:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return [await response.content.readany() for _ in range(most)]

    with serve(lambda request: exchange(*PIECES)) as server, use(path, mode="all"):
        asyncio.run(client(server.url, 2))
    with pytest.raises(RecordingTooShort), use(path):
        asyncio.run(client(server.url, 3))


def test_how_far_a_response_was_taken(path: Path) -> None:
    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}/all") as response:
                await response.read()
            async with session.get(f"{url}/some") as response:
                await response.content.readany()
            async with session.get(f"{url}/none"):
                pass

    expected = [(4, "ended"), (1, "closed"), (0, "closed")]
    with serve(provider) as server, use(path, mode="all") as tape:
        asyncio.run(client(server.url))
        assert [(each.reads, each.state) for each in tape.responses] == expected
    with use(path) as tape:
        asyncio.run(client(server.url))
        assert [(each.reads, each.state) for each in tape.responses] == expected


def test_a_cancelled_reader_has_left_early(path: Path) -> None:
    async def client(url: str) -> list[bytes]:
        got: list[bytes] = []

        async def read() -> None:
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                async for data in response.content.iter_any():
                    got.append(data)
                    if len(got) == 2:
                        asyncio.current_task().cancel()

        task = asyncio.create_task(read())
        with pytest.raises(asyncio.CancelledError):
            await task
        return got

    live, replayed = taken(path, exchange(*PIECES[:2], ending=Ending("stalled")), client)
    assert live == replayed == list(PIECES[:2])
    assert ending(path) == CLOSED


def test_a_read_that_is_given_up_is_no_ending(path: Path) -> None:
    reads = Stepped(*PIECES)

    async def client(url: str) -> list[bytes]:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            got = [await step(response.content, reads) for _ in PIECES[:-2]]
            got.append(await response.content.readany())
            task = asyncio.create_task(response.content.readany())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            reads.met()
            return [*got, await step(response.content, reads), await response.content.readany()]

    live, replayed = taken(path, lambda request: Exchange(request, 200, SSE, reads), client)
    assert live == replayed == [*PIECES, b""]
    assert ending(path) == COMPLETE


@pytest.mark.parametrize("read", ["protocol", "read"])
def test_a_connection_that_died(path: Path, read: Any) -> None:
    dead = Ending("disconnected", read)

    reads = Stepped(*PIECES)

    async def stepwise(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
        while True:
            yield await step(content, reads)

    client = functools.partial(reads_of, read=stepwise)
    live, replayed = taken(path, lambda request: Exchange(request, 200, SSE, reads, dead), client)
    assert live == replayed
    assert ending(path) == dead
    got, error = live
    assert got == list(PIECES)
    assert error.startswith("ClientPayloadError(")
    assert ("Connection reset by peer" in error) is (read == "read")
    assert error.endswith(
        "from <TransferEncodingError: 400, message='Not enough data to satisfy transfer length header.'>"
    )


def test_a_connection_that_died_within_a_chunk(path: Path) -> None:
    async def recording() -> tuple[str, Any]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n9\r\nhalf")
            await met.wait()
            writer.close()

        async def each(content: Any) -> AsyncIterator[Any]:
            async for piece in content.iter_chunks():
                yield piece
                if piece[0] == b"half":
                    met.set()

        met = asyncio.Event()
        async with await asyncio.start_server(answer, "127.0.0.1") as server:
            url = "http://{}:{}".format(*server.sockets[0].getsockname())
            with use(path, mode="all"):
                return url, await reads_of(url, each)

    url, live = asyncio.run(recording())
    assert ending(path) == Ending("disconnected", "chunk")
    assert live[0] == [(b"whole", True), (b"half", False)]
    with use(path):
        assert asyncio.run(reads_of(url, WAYS["iter_chunks"])) == live


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(ClientTimeout(sock_read=0.3), "SocketTimeoutError("), (ClientTimeout(total=0.3), "TimeoutError(")],
    ids=["sock_read", "total"],
)
def test_a_stall_is_replayed_without_the_wait(path: Path, timeout: ClientTimeout, error: str) -> None:
    with serve(lambda request: exchange(*PIECES, ending=Ending("stalled"))) as server, use(path, mode="all"):
        live = asyncio.run(reads_of(server.url, timeout=timeout))
    assert ending(path) == Ending("stalled")
    patient = ClientTimeout(total=timeout.total and 300, sock_read=timeout.sock_read and 300)
    with use(path):
        replayed = asyncio.run(reads_of(server.url, timeout=patient))
    assert live[0] == replayed[0] == list(PIECES)
    assert live[1].startswith(error)
    assert replayed[1].startswith(error)


def test_a_stall_where_no_timeout_is_set(path: Path) -> None:
    recorded(path, Exchange(Request("GET", NOBODY), 200, SSE, BODIES["pieces"], Ending("stalled")))
    with use(path):
        got, error = asyncio.run(reads_of(NOBODY, timeout=ClientTimeout(total=None)))
    assert got == list(PIECES)
    assert error.startswith("SocketTimeoutError(")


def test_a_recorded_error_is_raised_again_by_every_read(path: Path) -> None:
    dead = Ending("disconnected", "protocol")
    recorded(path, Exchange(Request("GET", NOBODY), 200, SSE, BODIES["one read"], dead))

    async def client() -> Any:
        async with aiohttp.ClientSession() as session, session.get(NOBODY) as response:
            await response.content.readany()
            errors = []
            for _ in range(2):
                with pytest.raises(aiohttp.ClientPayloadError) as caught:
                    await response.content.readany()
                errors.append(caught.value)
            assert response.content.exception() is errors[0] is errors[1]

    with use(path):
        asyncio.run(client())


# ----------------------------------------------------------------------------------------------------------------------- pace


PACED = tuple(Read(60 * place, piece) for place, piece in enumerate(PIECES))


def test_a_replay_at_the_recorded_pace(path: Path) -> None:
    recorded(path, Exchange(Request("GET", NOBODY), 200, SSE, PACED))
    began = time.monotonic()
    with use(path, timing="recorded"):
        assert asyncio.run(reads_of(NOBODY, timeout=ClientTimeout(sock_read=5))) == (list(PIECES), "")
    assert time.monotonic() - began >= PACED[-1].at_ms / 1000


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(ClientTimeout(sock_read=0.01), "SocketTimeoutError("), (ClientTimeout(total=0.01), "TimeoutError(")],
    ids=["sock_read", "total"],
)
def test_a_timeout_that_strikes_in_a_paced_replay(path: Path, timeout: ClientTimeout, error: str) -> None:
    first, *others = PIECES
    late = [Read(60_000, each) for each in others]
    recorded(path, Exchange(Request("GET", NOBODY), 200, SSE, (Read(0, first), *late)))
    with use(path, timing="recorded") as tape:
        got, raised = asyncio.run(reads_of(NOBODY, timeout=timeout))
    assert got == [first]
    assert raised.startswith(error)
    assert tape.responses[0].reads == 1


def test_a_client_that_dawdles_meets_no_timeout(path: Path) -> None:
    recorded(path, Exchange(Request("GET", NOBODY), 200, SSE, BODIES["pieces"]))

    async def client() -> Any:
        session = aiohttp.ClientSession(timeout=ClientTimeout(sock_read=0.02))
        async with session, session.post(NOBODY, data=b"x") as response:
            got = []
            async for data in response.content.iter_any():
                got.append(data)
                await asyncio.sleep(0.04)
            return got

    recorded(path, Exchange(Request("POST", NOBODY, (), b"x"), 200, SSE, BODIES["pieces"]))
    with use(path):
        assert asyncio.run(client()) == list(PIECES)


def test_one_task_closes_what_another_waits_for(path: Path) -> None:
    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            await response.content.readany()
            waiting = asyncio.create_task(response.content.readany())
            await asyncio.sleep(0)
            response.close()
            with pytest.raises(aiohttp.ClientConnectionError, match="Connection closed") as caught:
                await waiting
            return repr(caught.value)

    with serve(lambda request: exchange(PIECES[0], ending=Ending("stalled"))) as server, use(path, mode="all"):
        live = asyncio.run(client(server.url))
    assert ending(path) == CLOSED
    recorded(path, Exchange(Request("GET", NOBODY), 200, SSE, (Read(0, PIECES[0]), Read(60_000, PIECES[1]))))
    with use(path, timing="recorded"):
        assert asyncio.run(client(NOBODY)) == live
