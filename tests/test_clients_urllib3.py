"""The door of urllib3: urllib3 itself and requests over real sockets, then the same without a server."""

from __future__ import annotations

import functools
import io
import itertools
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3

from stream_cassette.cassette import load
from stream_cassette.clients import urllib3 as clients_urllib3
from stream_cassette.clients import use
from stream_cassette.errors import CassetteMiss, RecordingTooShort
from stream_cassette.model import COMPLETE, Ending, Exchange, Read, Request
from stream_cassette.server import serve
from wires import (
    BODY,
    CHUNKED,
    CLOSED,
    NOWHERE,
    PIECES,
    SSE,
    answered,
    by_hand,
    chunk,
    exchange,
    head,
    reads,
    recorded,
    scripted,
    taken,
    twice,
)

Reader = Callable[[Any], Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


# ------------------------------------------------------------------------------------------------------------- ways to read


def readinto(response: Any) -> Iterator[bytes]:
    buffer = bytearray(4)
    while size := response.readinto(buffer):
        yield bytes(buffer[:size])


def lines_of_text(response: Any) -> Any:
    response.auto_close = False  # as urllib3's reference has it
    return io.TextIOWrapper(response, "utf-8")


def until_empty(read: Callable[[], bytes]) -> Iterator[bytes]:
    return iter(read, b"")


READERS: dict[str, Reader] = {
    "stream": lambda response: response.stream(),
    "stream whole chunks": lambda response: response.stream(None),
    "stream small": lambda response: response.stream(4),
    "read_chunked": lambda response: response.read_chunked(),
    "read_chunked small": lambda response: response.read_chunked(4),
    "read": lambda response: [response.read()],
    "read small": lambda response: until_empty(lambda: response.read(4)),
    "read1": lambda response: until_empty(response.read1),
    "read1 small": lambda response: until_empty(lambda: response.read1(4)),
    "readinto": readinto,
    "lines": iter,
    "lines of text": lines_of_text,
    "data": lambda response: [response.data],
}
REQUESTS_READERS: dict[str, Reader] = {
    "iter_content whole": lambda response: response.iter_content(None),
    "iter_content": lambda response: response.iter_content(4),
    "iter_content one": lambda response: response.iter_content(),
    "iter_lines": lambda response: response.iter_lines(),
    "iter_lines small": lambda response: response.iter_lines(chunk_size=1),
    "iteration": iter,
    "content": lambda response: [response.content],
    "text": lambda response: [response.text],
    "raw.stream": lambda response: response.raw.stream(),
    "raw.read1": lambda response: until_empty(response.raw.read1),
}
ERRORS = (urllib3.exceptions.HTTPError, requests.RequestException)


def urllib3_reads(url: str, reader: Reader = READERS["stream"], most: int | None = None, **options: Any) -> Any:
    """What `reader` gives, and the name of the error that ended it."""
    found: list[Any] = []
    with urllib3.PoolManager() as pool:
        response = pool.request("GET", url, preload_content=False, retries=False, **options)
        try:
            found.extend(itertools.islice(reader(response), most))
        except ERRORS as error:
            return found, type(error).__name__
        finally:
            response.close()
    return found, ""


def requests_reads(url: str, reader: Reader, most: int | None = None, **options: Any) -> Any:
    found: list[Any] = []
    with requests.get(url, stream=True, **options) as response:
        try:
            found.extend(itertools.islice(reader(response), most))
        except ERRORS as error:
            return found, type(error).__name__
    return found, ""


WAYS = {
    **{f"urllib3 {name}": functools.partial(urllib3_reads, reader=each) for name, each in READERS.items()},
    **{f"requests {name}": functools.partial(requests_reads, reader=each) for name, each in REQUESTS_READERS.items()},
}
AT_THE_READS = (
    "urllib3 stream",
    "urllib3 stream whole chunks",
    "urllib3 read_chunked",
    "urllib3 read1",
    "requests iter_content whole",
    "requests raw.stream",
    "requests raw.read1",
)


def joined(found: Sequence[Any]) -> bytes:
    return b"".join(each.encode() if isinstance(each, str) else each for each in found)


def by_every_way(url: str) -> dict[str, Any]:
    return {name: way(url) for name, way in WAYS.items()}


def test_every_way_to_read_gives_the_same_from_the_recording(path: Path) -> None:
    live, replayed = taken(path, exchange(*PIECES), by_every_way)
    assert live == replayed
    assert {error for _, error in live.values()} == {""}
    assert {name: live[name][0] for name in AT_THE_READS} == {name: list(PIECES) for name in AT_THE_READS}
    # Which leave out the line ends, or take it for Latin-1.
    others = live.keys() - {"requests iter_lines", "requests iter_lines small", "requests text"}
    assert {name: joined(live[name][0]) for name in others} == dict.fromkeys(others, BODY)
    recordings = [each.exchange for each in load(path).interactions]
    assert [(each.ending, [read.data for read in each.reads]) for each in recordings] == [
        (COMPLETE, list(PIECES))
    ] * len(WAYS)


FRAMINGS = {
    "content length": (head(f"content-length: {len(BODY)}"), *PIECES),
    "until it closes": (head(), *PIECES),
    "all at once": (CHUNKED + b"".join(map(chunk, PIECES)) + b"0\r\n\r\n",),
    "one byte at a time": tuple(bytes([each]) for each in CHUNKED + b"".join(map(chunk, PIECES)) + b"0\r\n\r\n"),
    "extensions and trailers": (CHUNKED, b"A;a=b\r\n", PIECES[0], b"\r\n0d ;c\r\n", BODY[10:], b"\r\n0\r\nx: y\r\n", b"z: y\r\n\r\n"),
    "a chunk of many segments": (CHUNKED, b"17\r\n", *PIECES, b"\r\n0\r\n\r\n"),
    "without the last line end": (CHUNKED, *map(chunk, PIECES), b"0\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("framing", FRAMINGS)
def test_every_way_to_read_every_framing(path: Path, framing: str) -> None:
    def client(url: str) -> dict[str, Any]:
        in_chunks = framing not in ("content length", "until it closes")
        ways = {name: way for name, way in WAYS.items() if in_chunks or "chunked" not in name}
        return {name: (joined(found), error) for name, way in ways.items() for found, error in [way(url)]}

    with scripted(*FRAMINGS[framing]) as server:
        live, replayed = twice(path, f"http://{server}/", client)
    assert live == replayed
    assert {error for _, error in live.values()} == {""}
    assert all(found for found, _ in live.values())
    recordings = [each.exchange for each in load(path).interactions]
    assert {(each.body, each.ending) for each in recordings} == {(BODY, COMPLETE)}


def test_large_reads_come_back_whole(path: Path) -> None:
    large = [bytes([each]) * 100_000 for each in b"abc"]
    _, replayed = taken(path, exchange(*large), functools.partial(urllib3_reads, reader=READERS["read1"]))
    assert replayed == (reads(path), "")
    assert b"".join(reads(path)) == b"".join(large)
    mutated = answered("http://x/", *(Read(0, data) for data in large))
    by_hand(path, mutated)
    with use(path):
        assert urllib3_reads("http://x/", READERS["read1"])[0] == large


def test_every_read_reaches_the_client_while_the_server_still_waits(path: Path) -> None:
    met = threading.Event()

    class Gated(tuple[Read, ...]):
        def __iter__(self) -> Iterator[Read]:
            *most, last = super().__iter__()
            yield from most
            assert met.wait(5), "the client gets nothing before the end"
            yield last

    gated = Gated(Read(0, piece) for piece in PIECES)
    with serve(lambda request: Exchange(request, 200, SSE, gated)) as server, use(path, mode="all"):
        with requests.get(server.url, stream=True) as response:
            lines = response.iter_lines(chunk_size=1)
            assert next(lines) == b"data: one"
            met.set()
            assert b"".join(lines) == "data: twö".encode()


Framing = clients_urllib3._Plain | clients_urllib3._Chunked
CUTS: list[tuple[Callable[[], Framing], list[tuple[bytes, bytes]], Ending | None]] = [
    (lambda: clients_urllib3._Plain(2), [(b"abc", b"ab")], COMPLETE),
    (lambda: clients_urllib3._Plain(None), [(b"abc", b"abc")], None),
    (clients_urllib3._Chunked, [(b"1\r\na\r\n", b"a"), (b"2;x\r\nbc\r\n", b"bc"), (b"0\r\n\r\nmore", b"")], COMPLETE),
    (clients_urllib3._Chunked, [(b"1\na\n", b"a"), (b"0\nx: y\n\n", b"")], COMPLETE),
    (clients_urllib3._Chunked, [(b"1\r\na\r\n", b"a"), (b"-1\r\nb", b"")], Ending("disconnected", "protocol")),
    (clients_urllib3._Chunked, [(b"1\r\na\r\n", b"a"), (b"5\r\nb", b"b")], None),
]


@pytest.mark.parametrize(("framing", "pieces", "how"), CUTS)
def test_the_wire_is_cut_where_a_reader_may_stop(
    framing: Callable[[], Framing], pieces: list[tuple[bytes, bytes]], how: Ending | None
) -> None:
    """And what comes after the end of a body is none of it."""
    wire = b"".join(piece for piece, _ in pieces)
    whole = framing()
    assert whole.cut(wire) == pieces
    assert whole.ending == how
    slow = framing()
    cuts = [cut for each in wire for cut in slow.cut(bytes([each]))]
    assert b"".join(piece for piece, _ in cuts) == wire
    assert b"".join(data for _, data in cuts) == b"".join(data for _, data in pieces)
    assert (slow.ending, slow.broken_off) == (how, whole.broken_off)


# ------------------------------------------------------------------------------------------------------------------ endings

LEAVERS = {name: WAYS[name] for name in ("urllib3 stream", "urllib3 read1", "requests iter_content whole")}


@pytest.mark.parametrize("way", LEAVERS)
def test_leaving_early(path: Path, way: str) -> None:
    client = functools.partial(LEAVERS[way], most=2)
    with serve(lambda request: exchange(*PIECES)) as server, use(path, mode="all") as tape:
        live = client(server.url)
        assert [(each.reads, each.state) for each in tape.responses] == [(2, "closed")]
    assert recorded(path).ending == CLOSED
    assert reads(path) == list(PIECES[:2])
    with use(path) as tape:
        assert client(server.url) == live == (list(PIECES[:2]), "")
        assert [(each.reads, each.state) for each in tape.responses] == [(2, "closed")]
    with pytest.raises(RecordingTooShort), use(path):
        LEAVERS[way](server.url, most=3)


LAZY = ("urllib3 read1", "urllib3 stream", "requests iter_content whole")
DEATHS = {
    "between two chunks": ((CHUNKED, *map(chunk, PIECES)), "close", Ending("disconnected", "protocol")),
    "within a chunk": ((CHUNKED, *map(chunk, PIECES[:3]), b"FF\r\n", PIECES[3]), "close", Ending("disconnected", "chunk")),
    "before a chunk": ((CHUNKED, *map(chunk, PIECES[:3]), b"FF\r\n"), "close", Ending("disconnected", "protocol")),
    "with a size that is none": ((CHUNKED, *map(chunk, PIECES), b"zz\r\nx\r\n"), "close", Ending("disconnected", "protocol")),
    "reset": ((CHUNKED, *map(chunk, PIECES)), "reset", Ending("disconnected", "read")),
    "stalled": ((CHUNKED, *map(chunk, PIECES)), "hold", Ending("stalled")),
}  # fmt: skip


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("way", LAZY)
def test_a_body_that_does_not_end_well(path: Path, death: str, way: str) -> None:
    sends, then, expected = DEATHS[death]
    with scripted(*sends, then=then, gap=0.01) as server, use(path, mode="all"):
        live = WAYS[way](f"http://{server}", timeout=0.5 if then == "hold" else 60)
    assert recorded(path).ending == expected
    with use(path):
        replayed = WAYS[way](f"http://{server}", timeout=60)
    assert replayed == live
    assert live[1] != ""


def test_a_body_that_ends_before_its_length(path: Path) -> None:
    with scripted(head("content-length: 99"), *PIECES) as server:
        live, replayed = twice(path, f"http://{server}/", urllib3_reads)
    assert live[1] == replayed[1] == "ProtocolError"
    assert reads(path)[-1].endswith(PIECES[-1])
    assert recorded(path).ending == Ending("disconnected", "protocol")


@pytest.mark.parametrize("error", ["protocol", "chunk", "read"])
def test_a_connection_that_died_before_the_first_read(path: Path, error: Any) -> None:
    by_hand(path, answered("http://x/", ending=Ending("disconnected", error)))
    with use(path):
        assert urllib3_reads("http://x/") == ([], "ProtocolError")


def test_a_length_that_is_kept_is_the_end(path: Path) -> None:
    headers = (("content-length", "3"), ("transfer-encoding", "chunked"))
    for how, state in ((COMPLETE, "ended"), (Ending("disconnected", "protocol"), "closed")):
        by_hand(path, answered("http://x/", Read(0, b"a"), Read(0, b"bc"), headers=headers, ending=how))
        with use(path) as tape:
            assert urllib3_reads("http://x/", READERS["read small"]) == ([b"abc"], "")
            assert tape.responses[0].state == state
    by_hand(path, answered("http://x/", Read(0, b"ab"), headers=headers, ending=how))
    with use(path):
        assert urllib3_reads("http://x/", READERS["read"]) == ([], "ProtocolError")


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
@pytest.mark.parametrize("preload_content", [True, False])
def test_a_response_without_a_body(path: Path, method: str, status: int, preload_content: bool) -> None:
    def client(url: str) -> Any:
        with urllib3.PoolManager() as pool:
            response = pool.request(method, url, preload_content=preload_content)
            seen = response.status, response.data, requests.request(method, url).content
            response.close()
            return seen

    with serve(lambda request: exchange(status=status)) as server, use(path, mode="all") as tape:
        live = client(server.url)
        assert {(each.reads, each.state) for each in tape.responses} == {(0, "ended")}
    with use(path) as tape:
        assert client(server.url) == live == (status, b"", b"")
        assert {(each.reads, each.state) for each in tape.responses} == {(0, "ended")}


def test_a_body_that_is_loaded_at_once(path: Path) -> None:
    def client(url: str) -> list[Any]:
        seen: list[Any] = []
        with urllib3.PoolManager() as pool:
            first = pool.request("GET", url)
            seen += [first.data, first.data, first.read(), first.connection, first.headers["content-type"]]
            held = pool.request("GET", url, release_conn=False)
            seen += [held.data, held.connection is not None]
            held.release_conn()
            return [*seen, held.connection]

    live, replayed = taken(path, exchange(*PIECES), client)
    assert live == replayed == [BODY, BODY, b"", None, "text/event-stream", BODY, True, None]


@pytest.mark.parametrize(("sends", "then", "name"), [
    ((CHUNKED, chunk(b"a")), "close", "ProtocolError"),
    ((CHUNKED, chunk(b"a")), "hold", "ReadTimeoutError"),
])  # fmt: skip
def test_a_body_that_is_loaded_at_once_and_breaks(path: Path, sends: tuple[bytes, ...], then: str, name: str) -> None:
    def client(url: str) -> Any:
        with urllib3.PoolManager(retries=urllib3.Retry(1, backoff_factor=0)) as pool:
            with pytest.raises(urllib3.exceptions.MaxRetryError) as caught:
                pool.request("GET", url, timeout=0.3 if then == "hold" else 60)
            return type(caught.value.reason).__name__

    with scripted(*sends, then=then) as server:
        assert twice(path, f"http://{server}/", client) == (name, name)
    assert len(load(path).interactions) == 2


def test_a_response_that_outlives_the_tape(path: Path) -> None:
    with serve(lambda request: exchange(*PIECES)) as server:
        with use(path, mode="all"):
            response = requests.get(server.url, stream=True)
        assert response.content == BODY
    assert recorded(path).ending == CLOSED
    assert reads(path) == []


def test_a_response_that_is_let_go_of(path: Path) -> None:
    def client(url: str) -> list[bool]:
        with urllib3.PoolManager() as pool:
            first = pool.request("GET", url, preload_content=False)
            first.drain_conn()
            second = pool.request("GET", url, preload_content=False)
            second.release_conn()
            second.close()
            with pool.request("GET", url, preload_content=False) as third:
                next(third.stream())
            return [each.closed for each in (first, second, third)]

    with serve(lambda request: exchange(*PIECES)) as server, use(path, mode="all") as tape:
        assert client(server.url) == [True] * 3
        states = [each.state for each in tape.responses]
    with use(path) as tape:
        assert client(server.url) == [True] * 3
        assert [each.state for each in tape.responses] == states == ["ended", "closed", "closed"]


def test_the_file_of_a_live_response_is_still_there(path: Path) -> None:
    with serve(lambda request: exchange(*PIECES)) as server, use(path, mode="all"):
        with urllib3.PoolManager() as pool, pool.request("GET", server.url, preload_content=False) as response:
            assert response.fileno() >= 0


# --------------------------------------------------------------------------------------------------- what the library decides


def test_an_error_status(path: Path) -> None:
    def client(url: str) -> list[Any]:
        response = requests.get(url)
        with pytest.raises(requests.HTTPError) as caught:
            response.raise_for_status()
        return [response.status_code, response.reason, response.text, str(caught.value)]

    live, replayed = taken(path, exchange(b"no such thing", status=404), client)
    assert live == replayed
    assert live[:3] == [404, "Not Found", "no such thing"]


@pytest.mark.parametrize("keep_failures", [True, False])
def test_retries_are_the_librarys_own(path: Path, keep_failures: bool) -> None:
    counts = {"": itertools.count(), "requests": itertools.count()}

    def answer(request: Request) -> Exchange:
        again = next(counts[request.url.rpartition("/")[2]]) % 2 == 0
        return exchange(b"later", status=503, headers=(("retry-after", "0"),)) if again else exchange(*PIECES)

    def client(url: str) -> list[Any]:
        retry = urllib3.Retry(3, status_forcelist=[503], backoff_factor=0)
        with urllib3.PoolManager(retries=retry) as pool, requests.Session() as session:
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
            responses = [pool.request("GET", url), session.get(f"{url}/requests").raw]
            return [(each.status, [tried.status for tried in each.retries.history]) for each in responses]

    live, replayed = taken(path, answer, client, keep_failures=keep_failures)
    assert live == [(200, [503])] * 2
    assert replayed == (live if keep_failures else [(200, [])] * 2)
    assert len(load(path).interactions) == (4 if keep_failures else 2)


def test_redirects_are_the_librarys_own(path: Path) -> None:
    def answer(request: Request) -> Exchange:
        if request.url.endswith("/old"):
            return exchange(b"moved", status=303, headers=(("location", "/new"),))
        return exchange(f"{request.method} {request.body!r}".encode())

    def client(url: str) -> list[Any]:
        with urllib3.PoolManager() as pool:
            first = pool.request("POST", f"{url}/old", body=b"x")
        second = requests.post(f"{url}/old", data=b"y")
        return [first.geturl(), first.data, second.url, second.content, [each.status_code for each in second.history]]

    live, replayed = taken(path, answer, client)
    assert live == replayed
    assert live[1] == live[3] == b"GET b''"
    assert len(load(path).interactions) == 4


def test_a_body_that_is_compressed_all_the_same(path: Path) -> None:
    coder = zlib.compressobj(wbits=31)
    pieces = (coder.compress(b"hello ") + coder.flush(zlib.Z_SYNC_FLUSH), coder.compress(b"world") + coder.flush())
    headers = (*SSE, ("content-encoding", "gzip"))

    def client(url: str) -> list[str]:
        with requests.get(url, stream=True) as response:
            return [requests.get(url).text, b"".join(response.iter_content(None)).decode()]

    live, replayed = taken(path, exchange(*pieces, headers=headers), client)
    assert live == replayed == ["hello world"] * 2
    assert "hello world" in path.read_text()


def test_a_cookie_and_its_session(path: Path) -> None:
    def client(url: str) -> Any:
        with requests.Session() as session:
            session.get(url)
            return session.get(url).request.headers.get("cookie")

    with serve(lambda request: exchange(b"a", headers=(("set-cookie", "id=very-secret"),))) as server:
        with use(path, mode="all"):
            assert client(server.url) == "id=very-secret"
    assert "very-secret" not in path.read_text()


def test_headers_that_a_cassette_cannot_hold_as_they_came(path: Path) -> None:
    """A folded one in the request, and NUL in the response, which http.client lets pass: to a recipient each is a space."""

    def client(url: str) -> bytes:
        return urllib3.request("GET", url, headers={"Content-Type": "a/b;\r\n c=d"}, timeout=5).data

    with scripted(head("etag: a\0b", "content-length: 2"), b"hi") as server:
        assert twice(path, f"http://{server}/", client) == (b"hi", b"hi")
    assert recorded(path).header("etag") == "a b"
    assert recorded(path).request.headers == (("content-type", "a/b; c=d"),)


def test_a_secret_does_not_reach_the_file(path: Path) -> None:
    key = "sk-this-is-the-secret-key"

    def client(url: str) -> bytes:
        return requests.post(
            f"{url}?api_key={key}", json={"a": 1}, headers={"Authorization": f"Bearer {key}", "X-Api-Key": key}
        ).content

    live, replayed = taken(path, exchange(*PIECES), client)
    assert live == replayed == BODY
    assert key not in path.read_text()


# ---------------------------------------------------------------------------------------------------------------- the request


def a_file(data: bytes) -> Any:
    return io.BytesIO(data)


BODIES: dict[str, tuple[Callable[[], Any], bytes]] = {
    "nothing": (lambda: None, b""),
    "bytes": (lambda: b"ab\xff", b"ab\xff"),
    "text": (lambda: "aü", "aü".encode()),
    "a buffer": (lambda: memoryview(b"ab"), b"ab"),
    "a file": (lambda: io.BytesIO(b"ab"), b"ab"),
    "a file of text": (lambda: io.StringIO("aü"), "aü".encode()),
    "a list": (lambda: [b"a", b"b"], b"ab"),
    "a generator": (lambda: iter([b"a", "ü"]), "aü".encode()),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_request_body_is_known_and_sent_as_it_would_have_been(path: Path, kind: str) -> None:
    make, content = BODIES[kind]

    def client(url: str) -> bytes:
        with urllib3.PoolManager() as pool:
            return pool.urlopen("POST", url, body=make(), headers={"x-a": "1"}).data

    with serve(lambda request: exchange(*PIECES)) as server:
        client(server.url)
        with use(path, mode="all"):
            live = client(server.url)
        bare, recorded = server.requests
        assert recorded == bare
        assert recorded.body == load(path).interactions[0].exchange.request.body == content
    with use(path):
        assert client(server.url) == live


def test_a_request_body_of_requests(path: Path) -> None:
    def client(url: str) -> list[bytes]:
        bodies: list[Any] = [b"a", {"b": "c"}, iter([b"d", b"e"]), io.BytesIO(b"f")]
        answers = [requests.post(url, data=body).content for body in bodies]
        return [*answers, requests.put(url, json={"g": 1}).content, requests.post(url, files={"h": b"i"}).content]

    live, replayed = taken(path, lambda request: exchange(request.body[:9]), client)
    assert live == replayed
    assert live[:5] == [b"a", b"b=c", b"de", b"f", b'{"g": 1}']


SIGNATURES = {
    "none": ({}, "", "identity"),
    "a key": ({"Authorization": "Bearer x"}, "", "identity"),
    "over others": ({"Authorization": "AWS4-HMAC-SHA256 Credential=x, SignedHeaders=host;x-a, Signature=y"}, "", "identity"),
    "over it": ({"Authorization": "AWS4-HMAC-SHA256 Credential=x, SignedHeaders=accept-encoding;host, Signature=y"}, "", "gzip"),
    "over it, in the query": ({}, "?X-Amz-SignedHeaders=accept-encoding%3Bhost&X-Amz-Signature=y", "gzip"),
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_readable_body_is_asked_for_where_that_breaks_no_signature(path: Path, name: str) -> None:
    headers, query, sent = SIGNATURES[name]
    mine = {"Accept-Encoding": "gzip", **headers}
    with serve(lambda request: exchange(*PIECES)) as server, use(path, mode="all"):
        response = requests.get(f"{server.url}/{query}", headers=mine)
        with urllib3.HTTPConnectionPool(*server.url[7:].split(":"), headers=mine) as pool:
            pool.request("GET", f"/{query}")
    assert [dict(request.headers)["accept-encoding"] for request in server.requests] == [sent] * 2
    assert mine["Accept-Encoding"] == response.request.headers["accept-encoding"] == "gzip"


URLS = {
    "http://example.com": "http://example.com/",
    "http://Example.com:80/a?b=%20c#d": "http://example.com/a?b=%20c",
    "https://example.com:443/a": "https://example.com/a",
    "https://example.com:8443/a": "https://example.com:8443/a",
    "http://[::1]:81/a": "http://[::1]:81/a",
    "http://bücher.example/ü": "http://xn--bcher-kva.example/%C3%BC",
}


@pytest.mark.parametrize("url", URLS)
def test_the_url_of_a_request(path: Path, url: str) -> None:
    with pytest.raises(CassetteMiss) as caught, use(path), urllib3.PoolManager() as pool:
        pool.request("GET", url)
    assert f"answers GET {URLS[url]}\n" in str(caught.value)


def test_a_miss_gets_through_retries_at_once_and_the_pool_has_its_connection_back(path: Path) -> None:
    retry = urllib3.Retry(5, backoff_factor=60)
    with urllib3.HTTPConnectionPool("127.0.0.1", 9, maxsize=1, block=True, retries=retry) as pool:
        for _ in range(2):
            with pytest.raises(CassetteMiss), use(path):
                pool.request("GET", "/", pool_timeout=1)
    with pytest.raises(CassetteMiss), use(path), suppress(Exception):
        requests.get(NOWHERE)


# ---------------------------------------------------------------------------------------------------------------------- pace

SOON, LATE = Read(40, b"a"), Read(3_600_000, b"b")


def test_a_paced_replay_waits_no_longer_than_the_client(path: Path) -> None:
    by_hand(path, answered("http://x/", SOON, LATE), answered("http://x/", SOON, LATE), answered("http://x/", LATE))
    with use(path, timing="recorded"):
        assert urllib3_reads("http://x/", timeout=0.3) == ([b"a"], "ReadTimeoutError")
        reader = REQUESTS_READERS["iter_content"]
        assert requests_reads("http://x/", reader, timeout=0.3) == ([b"a"], "ConnectionError")
        assert requests_reads("http://x/", reader, timeout=0.001) == ([], "ConnectionError")
    with use(path):
        assert urllib3_reads("http://x/", timeout=0.001) == ([b"a", b"b"], "")


def test_a_client_that_waits_can_be_woken(path: Path) -> None:
    by_hand(path, answered("http://x/", SOON, LATE))
    with use(path, timing="recorded"), urllib3.PoolManager() as pool:
        response = pool.request("GET", "http://x/", preload_content=False)
        stream = response.stream()
        assert next(stream) == b"a"
        waker = threading.Timer(0.05, response.shutdown)
        waker.start()
        with pytest.raises(urllib3.exceptions.ProtocolError):
            next(stream)
        waker.join()
