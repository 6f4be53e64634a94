"""The door of aiohttp: real clients over real sockets, then the same without a server."""

from __future__ import annotations

import asyncio
import functools
import gc
import io
import itertools
import json
import os
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import aiohttp
import aiohttp.payload
import anthropic
import openai
import pytest
from aiohttp import ClientTimeout, web
from google import genai
from google.genai import types as google

from stream_cassette.cassette import load, update
from stream_cassette.clients import DOORS, use
from stream_cassette.clients.doors import opened
from stream_cassette.errors import CassetteMiss, LiveConnection, RecordingTooShort
from stream_cassette.model import COMPLETE, Cassette, Ending, Exchange, Interaction, Read, Request
from stream_cassette.server import serve
from test_clients_httpx import ASK, CLOSED, KEY, PIECES, SSE, TELL, chat_body, cut, ending, exchange, provider
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


class Gated(tuple[Read, ...]):
    """Reads of which the last goes out, and the connection dies, only when the client has met all before: a client is told of a death first."""

    def __new__(cls, reads: Any = ()) -> Self:
        made = super().__new__(cls, reads)
        made.met = threading.Event()
        return made

    met: threading.Event

    def __iter__(self) -> Iterator[Read]:
        *most, last = super().__iter__()
        yield from most
        assert self.met.wait(5), "the client gets nothing before the end"
        yield last
        assert self.met.wait(5)


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


@pytest.mark.parametrize("name", ["iter_any", "iter_chunks", "lines", "read all"])
def test_a_tape_changes_nothing_of_what_comes(path: Path, name: str) -> None:
    async def client(url: str) -> Any:
        return await reads_of(url, WAYS[name])

    slow = exchange(*(Read(20 * place, piece) for place, piece in enumerate(PIECES)))
    with serve(lambda request: slow) as server:
        without = asyncio.run(client(server.url))
    got, error = without
    # aiohttp tells the end of the last chunk a second time if the end of the body comes later.
    told = [each for each in got if each != (b"", True)], error
    assert taken(path, slow, client) == (told, told)


@pytest.mark.parametrize("way", [*WAYS.values()][:10], ids=[*WAYS.keys()][:10])
def test_a_body_without_a_byte(path: Path, way: Any) -> None:
    live, replayed = taken(path, exchange(), functools.partial(reads_of, read=way))
    assert live == replayed
    assert b"".join(each for each in live[0] if isinstance(each, bytes)) == b""
    assert ending(path) == COMPLETE


def test_a_body_whose_length_was_told_before(path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello")
        await asyncio.sleep(0.05)
        writer.write(b" world")
        writer.close()

    async def recording() -> str:
        async with await asyncio.start_server(answer, "127.0.0.1") as server:
            url = "http://{}:{}".format(*server.sockets[0].getsockname())
            with use(path, mode="all"):
                got = await reads_of(url, WAYS["iter_chunks"])
        assert got == ([(b"hello", False), (b" world", False)], "")
        return url

    url = asyncio.run(recording())
    assert [read.data for read in load(path).interactions[0].exchange.reads] == [b"hello", b" world"]
    with use(path):
        assert asyncio.run(reads_of(url)) == ([b"hello", b" world"], "")


def test_every_read_reaches_the_client_while_the_server_still_waits(path: Path) -> None:
    reads = Gated(BODIES["pieces"])

    async def client(url: str) -> list[bytes]:
        got = []
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            async for data in response.content.iter_any():
                got.append(data)
                if len(got) == len(PIECES) - 1:
                    reads.met.set()
        return got

    live, replayed = taken(path, lambda request: Exchange(request, 200, SSE, reads), client)
    assert live == replayed == list(PIECES)


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
    reads = Gated(BODIES["pieces"])

    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            got = [await response.content.readany() for _ in PIECES[:-1]]
            first = asyncio.create_task(response.content.readany())
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="while another coroutine is already waiting"):
                await response.content.readany()
            reads.met.set()
            return [*got, await first, await response.content.readany()]

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
                        asyncio.current_task().cancel()  # type: ignore[union-attr]

        task = asyncio.create_task(read())
        with pytest.raises(asyncio.CancelledError):
            await task
        return got

    live, replayed = taken(path, exchange(*PIECES[:2], ending=Ending("stalled")), client)
    assert live == replayed == list(PIECES[:2])
    assert ending(path) == CLOSED


def test_a_read_that_is_given_up_is_no_ending(path: Path) -> None:
    reads = Gated(BODIES["pieces"])

    async def client(url: str) -> list[bytes]:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            got = [await response.content.readany() for _ in PIECES[:-1]]
            task = asyncio.create_task(response.content.readany())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            reads.met.set()
            return [*got, await response.content.readany(), await response.content.readany()]

    live, replayed = taken(path, lambda request: Exchange(request, 200, SSE, reads), client)
    assert live == replayed == [*PIECES, b""]
    assert ending(path) == COMPLETE


@pytest.mark.parametrize("read", ["protocol", "read"])
def test_a_connection_that_died(path: Path, read: Any) -> None:
    dead = Ending("disconnected", read)

    async def client(url: str, met: Callable[[], None]) -> Any:
        async def each(content: Any) -> AsyncIterator[bytes]:
            async for place, data in enumerated(content.iter_any()):
                yield data
                if place + 2 >= len(PIECES):
                    met()

        return await reads_of(url, each)

    reads = Gated(BODIES["pieces"])
    with serve(lambda request: Exchange(request, 200, SSE, reads, dead)) as server, use(path, mode="all"):
        live = asyncio.run(client(server.url, reads.met.set))
    assert ending(path) == dead
    with use(path):
        assert asyncio.run(client(server.url, lambda: None)) == live
    got, error = live
    assert got == list(PIECES)
    assert error.startswith("ClientPayloadError(")
    assert ("Connection reset by peer" in error) is (read == "read")
    assert error.endswith(
        "from <TransferEncodingError: 400, message='Not enough data to satisfy transfer length header.'>"
    )


async def enumerated(iterator: AsyncIterator[Any]) -> AsyncIterator[tuple[int, Any]]:
    place = 0
    async for each in iterator:
        yield place, each
        place += 1


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
    ticks: list[int] = []

    async def client() -> Any:
        async def tick() -> None:
            while True:
                await asyncio.sleep(0.01)
                ticks.append(len(ticks))

        other = asyncio.create_task(tick())
        got = await reads_of(NOBODY, timeout=ClientTimeout(sock_read=5))
        other.cancel()
        return got

    with use(path, timing="recorded"):
        assert asyncio.run(client()) == (list(PIECES), "")
    assert len(ticks) >= 3


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


# ------------------------------------------------------------------------------------------------------------ what is answered


async def seen_of(response: aiohttp.ClientResponse) -> Any:
    body = await response.read()
    return response.status, response.reason, response.method, body, response.closed, response.url.path


def odd_answers(request: Request) -> Exchange:
    match request.url.rpartition("/")[2]:
        case "old":
            return exchange(b"over there", status=307, headers=(("location", "/new"),))
        case "busy" if not hasattr(odd_answers, "asked"):
            odd_answers.asked = True  # type: ignore[attr-defined]
            return exchange(status=503, headers=(("retry-after", "0"),))
        case "missing":
            return exchange(b"no ", b"such thing", status=404, headers=(("content-type", "text/plain"),))
        case "nothing":
            return exchange(status=204, headers=())
        case "unchanged":
            return exchange(status=304, headers=(("etag", '"1"'),))
        case "unnamed":
            return exchange(b"odd", status=299)
    return exchange(*PIECES)


ODD: dict[str, tuple[str, str, int]] = {
    "a redirect": ("GET", "old", 200),
    "a redirect of a body": ("POST", "old", 200),
    "an error": ("GET", "missing", 404),
    "no content": ("DELETE", "nothing", 204),
    "not modified": ("GET", "unchanged", 304),
    "only the head": ("HEAD", "all", 200),
    "only the head of nothing": ("HEAD", "nothing", 204),
    "a status without a name": ("GET", "unnamed", 299),
}


@pytest.mark.parametrize(("method", "name", "status"), ODD.values(), ids=ODD.keys())
def test_responses_behave_as_the_real_ones(path: Path, method: str, name: str, status: int) -> None:
    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session, session.request(method, f"{url}/{name}") as response:
            assert response.request_info.headers["Accept-Encoding"] != "identity"
            return await seen_of(response), [each.status for each in response.history]

    live, replayed = taken(path, odd_answers, client)
    assert live == replayed
    assert live[0][0] == status
    assert all(each.exchange.ending == COMPLETE for each in load(path).interactions if each.exchange.status == status)


def test_a_response_without_a_body_is_over_at_once(path: Path) -> None:
    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session, session.head(url) as response:
            return response.closed, response.content.at_eof(), response.headers["content-type"]

    with serve(odd_answers) as server, use(path, mode="all") as tape:
        live = asyncio.run(client(server.url))
        assert tape.responses[0].state == "ended"
    with use(path) as tape:
        assert asyncio.run(client(server.url)) == live == (True, True, "text/event-stream")
    assert tape.responses[0].state == "ended"


@pytest.mark.parametrize("where", ["session", "request", "by hand", "after it was left"])
def test_raise_for_status(path: Path, where: str) -> None:
    async def ask(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(f"{url}/missing", raise_for_status=where == "request" or None) as response:
            if where == "by hand":
                response.raise_for_status()
        response.raise_for_status()

    async def client(url: str) -> Any:
        async with aiohttp.ClientSession(raise_for_status=where == "session") as session:
            with pytest.raises(aiohttp.ClientResponseError) as caught:
                await ask(session, url)
            return caught.value.status, caught.value.message, caught.value.headers["content-type"]  # type: ignore[index]

    live, replayed = taken(path, odd_answers, client)
    assert live == replayed == (404, "Not Found", "text/plain")
    assert ending(path) == CLOSED


@pytest.mark.parametrize("wait", [0.0, 0.1])
def test_a_response_that_nobody_reads_or_closes(path: Path, wait: float) -> None:
    """Its connection is free when all has come, or the response is forgotten."""

    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session:
            status = (await session.get(f"{url}/missing")).status
            await asyncio.sleep(wait)
            gc.collect()
            body = await (await session.get(url)).content.read()
            return status, body

    slow = [Read(30 * place, piece) for place, piece in enumerate(PIECES)]
    with serve(lambda request: exchange(*slow)) as server, use(path, mode="all") as tape:
        live = asyncio.run(client(server.url))
    assert tape.remarks == ()
    with use(path) as tape:
        assert asyncio.run(client(server.url)) == live == (200, b"".join(PIECES))
    gc.collect()
    assert "neither read to its end nor closed" in tape.remarks[0]


def test_a_client_that_asks_again_by_hand(path: Path) -> None:
    count = itertools.count()

    def answer(request: Request) -> Exchange:
        return exchange(status=503) if next(count) == 0 else exchange(*PIECES)

    async def client(url: str) -> list[Any]:
        seen: list[Any] = []
        async with aiohttp.ClientSession() as session:
            while seen[-1:] != [200]:
                async with session.get(url) as response:
                    seen += [await response.read(), response.status]
        return seen

    with serve(answer) as server:
        with use(path, mode="all", keep_failures=True):
            live = asyncio.run(client(server.url))
        with use(path):
            assert asyncio.run(client(server.url)) == live == [b"", 503, b"".join(PIECES), 200]


def test_digest_authentication_by_a_middleware(path: Path) -> None:
    def answer(request: Request) -> Exchange:
        if any(name == "authorization" for name, _ in request.headers):
            return exchange(*PIECES)
        challenge = 'Digest realm="r", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", qop="auth"'
        return exchange(status=401, headers=(("www-authenticate", challenge),))

    async def client(url: str) -> Any:
        login = aiohttp.DigestAuthMiddleware("me", "the-secret-word")
        async with aiohttp.ClientSession(middlewares=(login,)) as session, session.get(url) as response:
            assert response.request_info.headers["Accept-Encoding"] != "identity"
            return await seen_of(response)

    live, replayed = taken(path, answer, client)
    assert live == replayed
    assert live[3] == b"".join(PIECES)
    assert "the-secret-word" not in path.read_text()


def test_headers_are_told_as_they_were_recorded(path: Path) -> None:
    pairs = (("content-type", "text/plain"), ("link", "<a>; rel=x"), ("link", "<b>; rel=y"), ("etag", '"grüße"'))
    recorded(path, Exchange(Request("GET", NOBODY), 200, pairs, (Read(0, b"x"),)))

    async def client() -> Any:
        async with aiohttp.ClientSession() as session, session.get(NOBODY) as response:
            return (
                [*response.headers.items()],
                response.raw_headers,
                response.connection.transport.get_extra_info("peername"),
            )  # type: ignore[union-attr]

    with use(path):
        told, raw, peer = asyncio.run(client())
    assert told == [*pairs]
    assert raw == tuple((name.encode(), value.encode()) for name, value in pairs)
    assert peer is None


# ----------------------------------------------------------------------------------------------------------------- compressed


def gzipped(*texts: bytes) -> tuple[bytes, ...]:
    coder = zlib.compressobj(wbits=31)
    pieces = [coder.compress(text) + coder.flush(zlib.Z_SYNC_FLUSH) for text in texts]
    return (*pieces, coder.flush())


GZIP = (*SSE, ("content-encoding", "gzip"))


@pytest.mark.parametrize("auto", [True, False])
def test_a_body_that_is_compressed_all_the_same(path: Path, auto: bool) -> None:
    async def client(url: str) -> Any:
        async with aiohttp.ClientSession(auto_decompress=auto) as session, session.get(url) as response:
            return await response.read(), response.headers.get("content-encoding", "")

    live, replayed = taken(path, exchange(*gzipped(b"hello ", b"world"), headers=GZIP), client)
    assert replayed == (b"hello world", "")
    assert live == ((b"hello world" if auto else b"".join(gzipped(b"hello ", b"world"))), "gzip")
    assert "hello world" in path.read_text()


def test_the_size_of_what_came_and_what_it_holds(path: Path) -> None:
    pieces = gzipped(b"hello " * 1000)

    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            await response.read()
            return response.content.total_raw_bytes, response.content.total_bytes

    with serve(lambda request: exchange(*pieces, headers=GZIP)) as server, use(path, mode="all"):
        assert asyncio.run(client(server.url)) == (len(b"".join(pieces)), 6000)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_recording_that_is_compressed(path: Path, size: int) -> None:
    body = b"".join(gzipped(b"hello ", b"world"))
    recorded(path, Exchange(Request("GET", NOBODY), 200, GZIP, cut(body, size)))
    with use(path):
        got, error = asyncio.run(reads_of(NOBODY))
    assert (b"".join(got), error) == (b"hello world", "")


@pytest.mark.parametrize("body", [gzipped(b"hello ")[0] + b"\xff" * 40, b"no gzip at all"])
def test_a_recording_that_is_compressed_and_damaged(path: Path, body: bytes) -> None:
    recorded(path, Exchange(Request("GET", NOBODY), 200, GZIP, cut(body, 16)))
    with use(path):
        got, error = asyncio.run(reads_of(NOBODY, timeout=ClientTimeout(total=5)))
    assert b"hello ".startswith(b"".join(got))
    assert error.startswith("ClientPayloadError(")


# --------------------------------------------------------------------------------------------------------------- what is asked


async def parts() -> AsyncIterator[bytes]:
    yield b'{"model": "m",'
    yield b' "messages": []}'


def form() -> aiohttp.FormData:
    data = aiohttp.FormData()
    data.add_field("purpose", "batch")
    data.add_field("file", io.BytesIO(b"line\n" * 9), filename="x.jsonl")
    return data


def multipart() -> aiohttp.MultipartWriter:
    writer = aiohttp.MultipartWriter("mixed", boundary="b")
    encoded = writer.append(b"\x00\x01\x02\x03")
    encoded.headers["Content-Transfer-Encoding"] = "base64"
    writer.append(parts())
    return writer


class OneShot(aiohttp.payload.Payload):
    """A payload of somebody's own, which gives its bytes once."""

    def __init__(self) -> None:
        super().__init__(iter([b"one ", b"shot"]))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("it is written only")

    async def write(self, writer: Any) -> None:
        for piece in self._value:
            await writer.write(piece)


BODIES_ASKED: dict[str, Callable[[], dict[str, Any]]] = {
    "none": dict,
    "bytes": lambda: {"data": b"bytes"},
    "bytearray": lambda: {"data": bytearray(b"bytearray")},
    "text": lambda: {"data": "Grüße"},
    "json": lambda: {"json": {"model": "m", "messages": ["Grüße"]}},
    "fields": lambda: {"data": {"a": "1", "b": "two words"}},
    "form with a file": lambda: {"data": form()},
    "multipart": lambda: {"data": multipart()},
    "generator": lambda: {"data": parts()},
    "BytesIO": lambda: {"data": io.BytesIO(b"in memory")},
    "StringIO": lambda: {"data": io.StringIO("in memory")},
    "file": lambda: {"data": io.BufferedReader(io.FileIO(__file__))},
    "payload of one's own": lambda: {"data": OneShot()},
    "compressed on the way": lambda: {"json": {"model": "m"}, "compress": "gzip"},
    "chunked": lambda: {"data": b"bytes", "chunked": True},
    "after 100-continue": lambda: {"data": b"bytes", "expect100": True},
    "large": lambda: {"data": io.BytesIO(b"0123456789abcdef" * 100_000)},
    "a part by its length": lambda: {"data": io.BytesIO(b"0123456789"), "headers": {"Content-Length": "4"}},
}
NEVER_BEFORE = ("content-length", "transfer-encoding", "content-type", "content-encoding")


@pytest.mark.parametrize("options", BODIES_ASKED.values(), ids=BODIES_ASKED.keys())
def test_request_bodies_of_every_kind(path: Path, options: Callable[[], dict[str, Any]]) -> None:
    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session, session.post(url, **options()) as response:
            return await seen_of(response)

    def told(request: Request) -> Any:
        told = {name: value.partition("boundary=")[0] for name, value in request.headers if name in NEVER_BEFORE}
        boundary = next(
            (value.partition("boundary=")[2] for name, value in request.headers if name == "content-type"), ""
        )
        return told, request.body.replace(boundary.encode(), b"BOUNDARY") if boundary else request.body

    with serve(provider) as server:
        asyncio.run(client(server.url))
        with use(path, mode="all"):
            live = asyncio.run(client(server.url))
    with use(path):
        assert asyncio.run(client(server.url)) == live
    without, under_tape = map(told, server.requests)
    assert under_tape == without
    made = load(path).interactions[0].exchange.request
    assert bool(made.body) == bool(server.requests[0].body)


def test_a_body_that_aiohttp_compresses_is_recorded_readable(path: Path) -> None:
    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session:
            async with session.post(url, json={"model": "m"}, compress="gzip") as response:
                return await seen_of(response)

    with serve(provider) as server, use(path, mode="all"):
        live = asyncio.run(client(server.url))
    with use(path):
        assert asyncio.run(client(server.url)) == live
    assert json.loads(zlib.decompress(server.requests[0].body, wbits=31)) == {"model": "m"}
    made = load(path).interactions[0].exchange.request
    assert json.loads(made.body) == {"model": "m"}
    assert "content-encoding" not in dict(made.headers)


def test_a_body_out_of_a_pipe(path: Path) -> None:
    async def client(url: str) -> Any:
        reader, writer = os.pipe()
        os.write(writer, b"through a pipe")
        os.close(writer)
        with os.fdopen(reader, "rb") as data:
            async with aiohttp.ClientSession() as session, session.post(url, data=data) as response:
                return await seen_of(response)

    with serve(provider) as server, use(path, mode="all"):
        live = asyncio.run(client(server.url))
    assert server.requests[0].body == b"through a pipe"
    with use(path):
        assert asyncio.run(client(server.url)) == live


def test_a_redirected_form_is_sent_again(path: Path) -> None:
    async def client(url: str) -> Any:
        async with aiohttp.ClientSession() as session, session.post(f"{url}/old", data=form()) as response:
            return await seen_of(response)

    with serve(odd_answers) as server:
        with use(path, mode="all"):
            live = asyncio.run(client(server.url))
        with use(path):
            assert asyncio.run(client(server.url)) == live
    first, second = server.requests
    assert first.body == second.body != b""
    assert dict(first.headers)["content-type"] == dict(second.headers)["content-type"]


@pytest.mark.parametrize("data", [b"bytes", parts])
def test_an_upload_tracker(path: Path, data: Any) -> None:
    async def client(url: str) -> Any:
        tracker = aiohttp.UploadTracker()

        async def tell(session: Any, context: Any, params: Any) -> None:
            midway.append(tracker.bytes_written)

        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(tell)
        midway: list[int] = []
        body = data() if callable(data) else data
        async with aiohttp.ClientSession(trace_configs=[trace]) as session:
            async with session.post(url, data=body, upload_tracker=tracker) as response:
                await response.read()
                await tracker.upload_complete
        return tracker.bytes_written, tracker.attempts, midway

    live, replayed = taken(path, provider, client)
    assert live == replayed == ((30, 1, [0]) if callable(data) else (5, 1, [0]))


def test_what_the_server_is_asked(path: Path) -> None:
    async def client(url: str) -> Any:
        async with aiohttp.ClientSession(skip_auto_headers=["Accept-Encoding"]) as session:
            async with session.get(f"{url}/a%20b?q=%C3%BC&q=2#fragment") as response:
                return response.request_info.headers.get("Accept-Encoding"), response.url.raw_path_qs

    with serve(provider) as server, use(path, mode="all"):
        live = asyncio.run(client(server.url))
    with use(path, unplayed="error"):
        assert asyncio.run(client(server.url)) == live == (None, "/a%20b?q=%C3%BC&q=2")
    assert dict(server.requests[0].headers)["accept-encoding"] == "identity"
    assert load(path).interactions[0].exchange.request.url == f"{server.url}/a%20b?q=%C3%BC&q=2"


def test_through_a_proxy_the_target_counts(path: Path) -> None:
    async def client(proxy: str | None) -> Any:
        async with aiohttp.ClientSession() as session:
            async with session.get("http://api.example.com/v1/x", proxy=proxy) as response:
                return await seen_of(response)

    with serve(lambda request: exchange(*PIECES)) as server, use(path, mode="all"):
        live = asyncio.run(client(server.url))
    assert [request.url for request in server.requests] == ["http://api.example.com/v1/x"]
    for proxy in (server.url, None):
        with use(path, unplayed="error"):
            assert asyncio.run(client(proxy)) == live


@pytest.mark.filterwarnings("ignore:enable_cleanup_closed ignored:DeprecationWarning")
def test_over_tls(path: Path) -> None:
    url = "https://api.example.com/v1/x"
    recorded(path, Exchange(Request("GET", url), 200, SSE, BODIES["pieces"]))

    async def client() -> Any:
        connector = aiohttp.TCPConnector(enable_cleanup_closed=True, limit_per_host=1)
        return await reads_of(url, connector=connector)

    with use(path):
        assert asyncio.run(client()) == (list(PIECES), "")


def test_secrets_do_not_reach_the_file(path: Path) -> None:
    async def client(url: str) -> Any:
        login = {"Authorization": f"Bearer {KEY}", "X-Api-Key": KEY, "Cookie": f"session={KEY}"}
        async with aiohttp.ClientSession(headers=login) as session:
            async with session.post(f"{url}?api_key={KEY}", json={"api_key": KEY, "say": "hi"}) as response:
                return await seen_of(response)

    live, replayed = taken(path, provider, client)
    assert live == replayed
    assert KEY not in path.read_text()
    assert "hi" in path.read_text()


# ---------------------------------------------------------------------------------------------------- sessions and their tools


def test_fifty_tasks_through_one_session(path: Path) -> None:
    def answer(request: Request) -> Exchange:
        name = request.url.rpartition("/")[2].encode()
        return exchange(*(b"%b:%d " % (name, number) for number in range(5)))

    async def client(url: str) -> list[list[bytes]]:
        async with aiohttp.ClientSession() as session:

            async def one(number: int) -> list[bytes]:
                async with session.get(f"{url}/n{number}") as response:
                    return [data async for data in response.content.iter_any()]

            return await asyncio.gather(*map(one, range(50)))

    live, replayed = taken(path, answer, client)
    assert live == replayed == [[b"n%d:%d " % (task, number) for number in range(5)] for task in range(50)]


def traced(events: list[str]) -> aiohttp.TraceConfig:
    config = aiohttp.TraceConfig()
    for name in vars(config):
        if name.startswith("_on_"):

            async def tell(session: Any, context: Any, params: Any, name: str = name[4:]) -> None:
                events.append(name)

            getattr(config, name[1:]).append(tell)
    return config


def test_traces_tell_the_same_but_for_the_connection(path: Path) -> None:
    async def client(url: str) -> list[str]:
        events: list[str] = []
        async with aiohttp.ClientSession(trace_configs=[traced(events)]) as session:
            for name in ("old", "new"):
                async with session.post(f"{url}/{name}", data=b"x") as response:
                    await response.read()
        return events

    live, replayed = taken(path, odd_answers, client)
    assert [each for each in live if not each.startswith(("connection", "dns"))] == replayed
    assert live.count("connection_create_end") + live.count("connection_reuseconn") == 3
    assert "response_chunk_received" in replayed


def test_a_connection_serves_the_next_request_while_recording(path: Path) -> None:
    events: list[str] = []

    async def client(url: str) -> None:
        async with aiohttp.ClientSession(trace_configs=[traced(events)]) as session:
            for number in range(3):
                async with session.get(f"{url}/{number}") as response:
                    assert await response.read() == b"".join(PIECES)

    with serve(provider) as server, use(path, mode="all"):
        asyncio.run(client(server.url))
    assert events.count("connection_create_start") == 1
    assert events.count("connection_reuseconn") == 2
    assert [len(each.exchange.reads) for each in load(path).interactions] == [len(PIECES)] * 3


def test_a_connection_outlives_the_tape(path: Path) -> None:
    async def client(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            with use(path, mode="all"):
                async with session.get(f"{url}/recorded") as response:
                    await response.read()
            async with session.get(f"{url}/after") as response:
                assert await response.read() == b"".join(PIECES)

    with serve(provider) as server:
        asyncio.run(client(server.url))
    assert [each.exchange.request.url for each in load(path).interactions] == [f"{server.url}/recorded"]


@pytest.mark.parametrize("read_bufsize", [16, 2**20])
def test_a_session_with_a_buffer_of_its_own_size(path: Path, read_bufsize: int) -> None:
    async def client(url: str) -> Any:
        return await reads_of(url, WAYS["lines"], read_bufsize=read_bufsize)

    live, replayed = taken(path, exchange(b"a line\n", b"another", b"\n"), client)
    assert live == replayed == ([b"a line\n", b"another\n"], "")


def test_a_request_without_any_response_is_not_recorded(path: Path) -> None:
    async def client(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.post(url, data=b"x")

    def no_answer(request: Request) -> Exchange:
        return exchange(status=100, ending=Ending("disconnected", "protocol"))

    with use(path, mode="all"):
        asyncio.run(client(NOBODY))
    assert not path.exists()


def test_a_server_that_hangs_up_before_it_answers(path: Path) -> None:
    async def client() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(hang_up, "127.0.0.1") as server, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await session.post("http://{}:{}".format(*server.sockets[0].getsockname()), data=b"x")

    with use(path, mode="all") as tape:
        asyncio.run(client())
    assert not path.exists()
    assert "no response came (ServerDisconnectedError)" in tape.remarks[0]


# ---------------------------------------------------------------------------------------------------------------------- misses


async def by_get(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        await session.post(url, data=parts())


async def by_group(url: str) -> None:
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        group.create_task(session.request("GET", url))  # type: ignore[arg-type]


async def swallowed(url: str) -> None:
    with suppress(BaseException):
        await by_get(url)


async def by_openai(url: str) -> Any:
    http = openai.DefaultAioHttpClient()
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, http_client=http) as client:
        return [chunk.model_dump() async for chunk in await client.chat.completions.create(**ASK, stream=True)]


async def by_anthropic(url: str) -> Any:
    http = anthropic.DefaultAioHttpClient()
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, http_client=http) as client:
        return [event.model_dump() async for event in await client.messages.create(**TELL, stream=True)]


async def by_genai(url: str) -> Any:
    options = google.HttpOptions(base_url=url)
    async with genai.Client(api_key=KEY, http_options=options).aio as client:
        assert client._api_client._use_aiohttp()
        stream = await client.models.generate_content_stream(model="m", contents="hi")
        return [chunk.model_dump(exclude={"sdk_http_response"}) async for chunk in stream]


# It inherits from a class of aiohttp that warns of that.
GENAI = pytest.param(by_genai, marks=pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning"))


@pytest.mark.parametrize("client", [by_get, by_group, swallowed, by_openai, by_anthropic, GENAI])
def test_a_miss_fails_whatever_becomes_of_it(path: Path, client: Client) -> None:
    with pytest.raises(CassetteMiss, match=r"127\.0\.0\.1:9") as caught, use(path) as tape:
        asyncio.run(client(NOBODY))
    assert caught.value is tape.failure
    gc.collect()  # what was left open would complain


# ------------------------------------------------------------------------------------------------------------------------ SDKs


def gemini(request: Request) -> Exchange:
    def chunk(text: str, **more: Any) -> bytes:
        candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **more}
        value = {"candidates": [candidate], "modelVersion": "m", "responseId": "r1"}
        return f"data: {json.dumps(value, ensure_ascii=False)}\r\n\r\n".encode()

    body = b"".join([*(chunk(text) for text in ("Grüße", " aus", " Zürich")), chunk("!", finishReason="STOP")])
    return exchange(*cut(body)) if ":streamGenerateContent" in request.url else provider(request)


@pytest.mark.parametrize("client", [by_openai, by_anthropic, GENAI])
def test_an_sdk_gets_the_same_objects_from_the_recording(path: Path, client: Client) -> None:
    live, replayed = taken(path, gemini, client)
    assert len(live) >= 4
    assert live == replayed
    assert ending(path) == COMPLETE
    text = path.read_text()
    assert KEY not in text
    assert "Grüße aus Zürich" in text


def test_a_dead_connection_through_an_sdk(path: Path) -> None:
    async def client(url: str) -> list[str]:
        seen = []
        http = openai.DefaultAioHttpClient()
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, http_client=http) as client:
            try:
                async for chunk in await client.chat.completions.create(**ASK, stream=True):
                    seen.append(chunk.choices[0].delta.content or "")
            except openai.APIConnectionError as error:
                seen.append(repr(error.__cause__))
        return seen

    half = [Read(20 * place, each.data) for place, each in enumerate(cut(chat_body())[:6])]
    live, replayed = taken(path, exchange(*half, ending=Ending("disconnected", "protocol")), client)
    assert live == replayed
    assert live[-1].startswith("ReadError(")


# ----------------------------------------------------------------------------------------------------------- past the door


@pytest.mark.parametrize("mode", ["all", "none"])
def test_a_websocket_goes_its_own_way(path: Path, mode: Any) -> None:
    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    async def client() -> str:
        app = web.Application()
        app.router.add_get("/", echo)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = "ws://{}:{}".format(*runner.addresses[0])
            async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
                await socket.send_str("hello")
                return str((await socket.receive()).data)
        finally:
            await runner.cleanup()

    if mode == "none":
        with pytest.raises(LiveConnection, match=r"^aiohttp goes to the network"), use(path, mode=mode):
            asyncio.run(client())
    else:
        with use(path, mode=mode):
            assert asyncio.run(client()) == "hello"
    assert not path.exists()


def test_what_is_left_alone_is_not_recorded(path: Path) -> None:
    with serve(provider) as server, use(path, mode="all", allow_loopback=True) as tape:
        assert asyncio.run(reads_of(server.url))[1] == ""
    assert not tape.used
    assert not path.exists()


def test_without_a_tape_a_request_goes_its_way() -> None:
    with serve(provider) as server, opened(DOORS):
        got, error = asyncio.run(reads_of(server.url))
    assert (b"".join(got), error) == (b"".join(PIECES), "")


def test_the_original_comes_back(path: Path) -> None:
    original = vars(aiohttp.BaseConnector)["connect"]
    with use(path, mode="once"):
        assert vars(aiohttp.BaseConnector)["connect"] is not original
    assert vars(aiohttp.BaseConnector)["connect"] is original


def test_a_wrapper_that_stays_over_ours_is_not_taken_for_ours(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connects: list[str] = []

    def tracing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        async def connect(self: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
            connects.append(req.url.path)
            return await original(self, req, *args, **kwargs)

        return connect

    owner = aiohttp.BaseConnector
    monkeypatch.setattr(owner, "connect", vars(owner)["connect"])  # put back at the end
    with serve(provider) as server:
        with use(path, mode="once"):
            asyncio.run(reads_of(f"{server.url}/first"))
            owner.connect = tracing(vars(owner)["connect"])
        with use(path, mode="all"):
            assert asyncio.run(reads_of(f"{server.url}/second"))[1] == ""
    assert connects == ["/second"]
    assert [each.exchange.request.url for each in load(path).interactions] == [f"{server.url}/second"]
    assert len(load(path).interactions[0].exchange.reads) == len(PIECES)
