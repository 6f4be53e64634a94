"""What aiohttp is answered and what it is asked, over its door: statuses, redirects, compression, and bodies of every kind."""

from __future__ import annotations

import asyncio
import gc
import io
import itertools
import json
import os
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.payload
import pytest
from aiohttp import ClientTimeout

from stream_cassette.cassette import load
from stream_cassette.clients import use
from stream_cassette.model import COMPLETE, Exchange, Read, Request
from stream_cassette.server import serve
from test_clients_aiohttp import BODIES, NOBODY, reads_of, recorded, taken
from test_clients_httpx import CLOSED, KEY, PIECES, SSE, cut, ending, exchange, provider


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


# ------------------------------------------------------------------------------------------------------------ what is answered


async def seen_of(response: aiohttp.ClientResponse) -> Any:
    body = await response.read()
    return response.status, response.reason, response.method, body, response.closed, response.url.path


def odd_answers(request: Request) -> Exchange:
    match request.url.rpartition("/")[2]:
        case "old":
            return exchange(b"over there", status=307, headers=(("location", "/new"),))
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
            return caught.value.status, caught.value.message, caught.value.headers["content-type"]

    live, replayed = taken(path, odd_answers, client)
    assert live == replayed == (404, "Not Found", "text/plain")
    assert ending(path) == CLOSED


def test_a_response_that_nobody_reads_or_closes(path: Path) -> None:
    """Its connection is free when all has come."""

    async def client(url: str) -> Any:
        # The second request waits for the connection of the first.
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
            status = (await session.get(f"{url}/missing")).status
            return status, await (await session.get(url)).content.read()

    with serve(odd_answers) as server, use(path, mode="all") as tape:
        live = asyncio.run(client(server.url))
    assert tape.remarks == ()
    with use(path) as tape:
        assert asyncio.run(client(server.url)) == live == (404, b"".join(PIECES))
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
        # The middleware forgets the first response; the second request waits until its connection is free.
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(middlewares=(login,), connector=connector) as session:
            async with session.get(url) as response:
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
            )

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
