"""The door of urllib3: urllib3 itself, requests and boto3 over real sockets, then the same without a server."""

from __future__ import annotations

import functools
import io
import itertools
import json
import socket
import ssl
import struct
import threading
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import botocore.config
import botocore.exceptions
import pytest
import requests
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stream_cassette import Reply, ToolCall, synthesize
from stream_cassette.cassette import load, update
from stream_cassette.clients import DOORS, use
from stream_cassette.clients import urllib3 as clients_urllib3
from stream_cassette.clients.doors import opened
from stream_cassette.errors import CassetteMiss, RecordingTooShort, TapeError
from stream_cassette.model import COMPLETE, Cassette, Ending, Exchange, Interaction, Read, Request, TextPart
from stream_cassette.server import serve

SSE = (("content-type", "text/event-stream"),)
CLOSED = Ending("closed")
PIECES = (b"data: one\n", b"\nda", b"ta: tw\xc3", b"\xb6\n\n")
BODY = b"".join(PIECES)
NOWHERE = "http://127.0.0.1:9"
Reader = Callable[[Any], Any]


def exchange(*reads: bytes, status: int = 200, headers: Any = SSE, ending: Ending = COMPLETE) -> Exchange:
    return Exchange(Request("GET", "http://x/"), status, headers, tuple(Read(0, read) for read in reads), ending)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


def taken(
    path: Path, answer: Exchange | Callable[[Request], Exchange], client: Callable[[str], Any], **settings: Any
) -> tuple[Any, Any]:
    """What `client` gets from a live server while it is recorded, and then from the recording alone."""
    with serve(answer if callable(answer) else lambda request: answer) as server:
        with use(path, mode="all", **settings):
            live = client(server.url)
    with use(path):
        return live, client(server.url)


def twice(path: Path, url: str, client: Callable[[str], Any]) -> tuple[Any, Any]:
    """What `client` gets from `url` while it is recorded, and then from the recording."""
    with use(path, mode="all"):
        live = client(url)
    with use(path) as tape:
        replayed = client(url)
        assert [response.state for response in tape.responses] != []
    return live, replayed


def by_hand(path: Path, *exchanges: Exchange) -> None:
    interactions = tuple(Interaction(each) for each in exchanges)
    update(path, lambda cassette: Cassette(interactions, "2026-11-30T00:00:00Z", "hand"))


def answered(url: str, *reads: Read, method: str = "GET", status: int = 200, **more: Any) -> Exchange:
    return Exchange(Request(method, url), status, more.pop("headers", SSE), reads, **more)


def ending(path: Path) -> Ending:
    return load(path).interactions[-1].exchange.ending


def reads(path: Path) -> list[bytes]:
    return [read.data for read in load(path).interactions[-1].exchange.reads]


@contextmanager
def scripted(*sends: bytes, then: str = "close", secure: ssl.SSLContext | None = None, gap: float = 0) -> Iterator[str]:
    """A server that says to every request what it is told to, byte by byte; gives host and port, as text."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopping = threading.Event()

    def converse(client: socket.socket) -> None:
        with suppress(OSError), closing(secure.wrap_socket(client, server_side=True) if secure else client) as wire:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += wire.recv(65536)
            for send in sends:
                wire.sendall(send)
                stopping.wait(gap)
            if then == "reset":
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif then == "hold":
                stopping.wait(30)

    with answering(listener, converse):
        yield "{}:{}".format(*listener.getsockname())
        stopping.set()


@contextmanager
def answering(listener: socket.socket, converse: Callable[[socket.socket], None]) -> Iterator[None]:
    """Has `converse` talk to every client of `listener`, each in a thread."""
    threads: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):  # the end
            while True:
                client, _ = listener.accept()
                threads.append(threading.Thread(target=converse, args=(client,)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
    for thread in threads:
        thread.join()


def head(*headers: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", "content-type: text/event-stream", *headers, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNKED = head("transfer-encoding: chunked")


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
BY_CHUNKS = ("urllib3 read_chunked", "urllib3 read_chunked small")
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


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_read_gives_the_same_from_the_recording(path: Path, way: str) -> None:
    live, replayed = taken(path, exchange(*PIECES), WAYS[way])
    assert live == replayed
    assert live[1] == ""
    if way in AT_THE_READS:
        assert live[0] == list(PIECES)
    # Which leave out the line ends, or take it for Latin-1.
    elif way not in ("requests iter_lines", "requests iter_lines small", "requests text"):
        assert joined(live[0]) == BODY
    assert reads(path) == list(PIECES)
    assert ending(path) == COMPLETE


FRAMINGS = {
    "content length": (head(f"content-length: {len(BODY)}"), *PIECES),
    "until it closes": (head(), *PIECES),
    "all at once": (CHUNKED + b"".join(map(chunk, PIECES)) + b"0\r\n\r\n",),
    "one byte at a time": tuple(bytes([each]) for each in CHUNKED + b"".join(map(chunk, PIECES)) + b"0\r\n\r\n"),
    "extensions and trailers": (CHUNKED, b"A;a=b\r\n", PIECES[0], b"\r\n0d ;c\r\n", BODY[10:], b"\r\n0\r\nx: y\r\n", b"z: y\r\n\r\n"),
    "a chunk of many segments": (CHUNKED, b"17\r\n", *PIECES, b"\r\n0\r\n\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("way", [way for way in WAYS if way not in BY_CHUNKS])
def test_every_way_to_read_every_framing(path: Path, framing: str, way: str) -> None:
    with scripted(*FRAMINGS[framing]) as server:
        live, replayed = twice(path, f"http://{server}/", WAYS[way])
    assert joined(live[0]) == joined(replayed[0]) != b""
    assert live[1] == replayed[1] == ""
    assert load(path).interactions[0].exchange.body == BODY
    assert ending(path) == COMPLETE


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


# ------------------------------------------------------------------------------------------------------------------ endings

LEAVERS = {name: WAYS[name] for name in ("urllib3 stream", "urllib3 read1", "requests iter_content whole")}


@pytest.mark.parametrize("way", LEAVERS)
def test_leaving_early(path: Path, way: str) -> None:
    client = functools.partial(LEAVERS[way], most=2)
    with serve(lambda request: exchange(*PIECES)) as server, use(path, mode="all") as tape:
        live = client(server.url)
        assert [(each.reads, each.state) for each in tape.responses] == [(2, "closed")]
    assert ending(path) == CLOSED
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
        live = WAYS[way](f"http://{server}", timeout=0.5)
    assert ending(path) == expected
    with use(path):
        replayed = WAYS[way](f"http://{server}", timeout=60)
    assert replayed == live
    assert live[1] != ""


def test_a_body_that_ends_before_its_length(path: Path) -> None:
    with scripted(head("content-length: 99"), *PIECES) as server:
        live, replayed = twice(path, f"http://{server}/", urllib3_reads)
    assert live[1] == replayed[1] == "ProtocolError"
    assert reads(path)[-1].endswith(PIECES[-1])
    assert ending(path) == Ending("disconnected", "protocol")


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
                pool.request("GET", url, timeout=0.3)
            return type(caught.value.reason).__name__

    with scripted(*sends, then=then) as server:
        assert twice(path, f"http://{server}/", client) == (name, name)
    assert len(load(path).interactions) == 2


def test_a_response_that_outlives_the_tape(path: Path) -> None:
    with serve(lambda request: exchange(*PIECES)) as server:
        with use(path, mode="all"):
            response = requests.get(server.url, stream=True)
        assert response.content == BODY
    assert ending(path) == CLOSED
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


# ----------------------------------------------------------------------------------------------------------- proxies and TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of localhost, signed by itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, how = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    path.write_bytes(key.private_bytes(pem, how, serialization.NoEncryption()) + built.public_bytes(pem))
    return path


@pytest.fixture
def secure_server(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with scripted(head(f"content-length: {len(BODY)}"), *PIECES, secure=context) as server:
        yield server.replace("127.0.0.1", "localhost")


@contextmanager
def tunnel(answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> Iterator[tuple[str, list[str]]]:
    """A proxy that says `answer` to CONNECT, and then passes on what it gets; gives its URL and whom it was asked for."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[str] = []
    stopping = threading.Event()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def converse(client: socket.socket) -> None:
        with client:
            request = b""
            while b"\r\n\r\n" not in request:
                request += client.recv(65536)
            asked.append(request.split()[1].decode())
            if not answer:
                stopping.wait(30)
            client.sendall(answer)
            if b" 200 " in answer:
                with socket.create_connection(asked[-1].split(":")) as server:
                    back = threading.Thread(target=pump, args=(server, client))
                    back.start()
                    pump(client, server)
                    back.join()

    with answering(listener, converse):
        yield "http://{}:{}".format(*listener.getsockname()), asked
        stopping.set()


def test_a_connection_with_tls(path: Path, secure_server: str, certificate: Path) -> None:
    def client(url: str) -> list[bytes]:
        with urllib3.PoolManager(ca_certs=str(certificate)) as pool:
            response = requests.get(url, verify=str(certificate), stream=True)
            return [pool.request("GET", url).data, *response.iter_content(7)]

    live, replayed = twice(path, f"https://{secure_server}/", client)
    assert b"".join(live) == b"".join(replayed) == BODY * 2


def test_whoever_is_not_verified_is_warned_of_when_it_is_live(path: Path, secure_server: str) -> None:
    with pytest.warns(urllib3.exceptions.InsecureRequestWarning), use(path, mode="all"):
        requests.get(f"https://{secure_server}/", verify=False)
    with use(path):
        assert requests.get(f"https://{secure_server}/", verify=False).content == BODY


def test_a_proxy_that_is_asked_for_a_whole_url(path: Path) -> None:
    def client(proxy: str) -> list[bytes]:
        with urllib3.ProxyManager(proxy) as pool:
            through = pool.request("GET", "http://api.example.com/a").data
        return [through, requests.get("http://api.example.com:80/b", proxies={"http": proxy}).content]

    live, replayed = taken(path, lambda request: exchange(request.url[-1:].encode()), client)
    assert live == replayed == [b"a", b"b"]
    urls = [each.exchange.request.url for each in load(path).interactions]
    assert urls == ["http://api.example.com/a", "http://api.example.com/b"]


def test_a_tunnel_is_dug_for_what_is_recorded_only(path: Path, secure_server: str, certificate: Path) -> None:
    def get(proxy: str, place: str) -> bytes:
        with urllib3.ProxyManager(proxy, ca_certs=str(certificate)) as pool:
            return pool.request("GET", f"https://{secure_server}/{place}").data

    with tunnel() as (proxy, asked):
        with use(path, mode="new"):
            assert get(proxy, "1") == BODY
        with use(path, mode="new"):
            assert [get(proxy, "1"), get(proxy, "2")] == [BODY, BODY]
        assert asked == [secure_server] * 2
        with use(path):
            assert get(proxy, "1") == BODY
        with use(path, allow_loopback=True):
            assert get(proxy, "1") == BODY
        assert get(proxy, "1") == BODY
        assert asked == [secure_server] * 4
    with use(path):
        assert get(proxy, "2") == BODY
        for url in (f"https://{secure_server}/1",):
            assert requests.get(url, proxies={"https": proxy}).content == BODY


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 Forbidden\r\n\r\n", b""], ids=["refused", "no answer"])
def test_a_tunnel_that_cannot_be_dug(path: Path, answer: bytes) -> None:
    def why(proxy: str) -> str:
        with urllib3.ProxyManager(proxy) as pool, pytest.raises(urllib3.exceptions.MaxRetryError) as caught:
            pool.request("GET", "https://localhost:9/", timeout=0.2, retries=0)
        return repr(caught.value.reason).replace(hex(id(pool)), "")

    with tunnel(answer) as (proxy, _):
        bare = why(proxy)
        with use(path, mode="all"):
            assert why(proxy).partition("(")[0] == bare.partition("(")[0]
    assert not path.exists()


# ----------------------------------------------------------------------------------------------------------- pools and threads


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """What each returns or raises in a thread of its own that has no context of ours."""
    got: list[Any] = [None] * len(functions)

    def run(index: int, function: Callable[[], Any]) -> None:
        try:
            got[index] = function()
        except BaseException as error:  # noqa: BLE001 - it is what the test asks for
            got[index] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return got


def pools_of(url: str) -> list[tuple[Any, Callable[[str], bytes]]]:
    """A session, and a pool that has one connection and makes others wait for it."""
    session = requests.Session()
    one = urllib3.PoolManager(maxsize=1, block=True)
    return [
        (session, lambda place: session.get(url + place).content),
        (one, lambda place: b"".join(one.request("GET", url + place, preload_content=False, pool_timeout=20).stream())),
    ]


def test_streams_of_many_threads_are_never_swapped(path: Path) -> None:
    def client(url: str) -> list[Any]:
        found = []
        for pool, get in pools_of(url):
            # The session's pool has room for ten and says so when more come back.
            found += in_threads(*(functools.partial(get, f"/{number}") for number in range(20)))
            pool.close() if isinstance(pool, requests.Session) else pool.clear()
        return found

    live, replayed = taken(path, lambda request: exchange(*[request.url.rpartition("/")[2].encode()] * 9), client)
    assert live == replayed == [str(number).encode() * 9 for number in range(20)] * 2


def test_a_pool_gets_the_connection_back_that_it_gave(path: Path) -> None:
    with serve(lambda request: exchange(*PIECES)) as server:
        with urllib3.HTTPConnectionPool(*server.url[7:].split(":"), maxsize=1, block=True) as pool:
            with use(path, mode="all"):
                pool.request("GET", "/")
                (held,) = pool.pool.queue
                pool.request("GET", "/")
            with use(path):
                assert pool.request("GET", "/").data == BODY
                response = pool.request("GET", "/", preload_content=False)
                assert response.connection is held
                assert not pool.pool.queue
                assert response.read() == BODY
            assert list(pool.pool.queue) == [held]
            assert pool.request("GET", "/").data == BODY
            assert list(pool.pool.queue) == [held]
            assert pool.num_connections == 1


def test_without_a_tape_or_for_another_host_a_request_goes_its_way(path: Path) -> None:
    with serve(lambda request: exchange(*PIECES)) as server:
        with opened(DOORS):
            assert urllib3_reads(server.url) == (list(PIECES), "")
        with use(path, mode="all", allow_loopback=True) as tape:
            assert urllib3_reads(server.url) == (list(PIECES), "")
            assert not tape.used
    assert not path.exists()


def test_a_request_without_any_response_is_not_recorded(path: Path) -> None:
    with use(path, mode="all"):
        with pytest.raises(urllib3.exceptions.NewConnectionError):
            urllib3_reads(NOWHERE)
    assert not path.exists()


def originals() -> list[Any]:
    pools = urllib3.connectionpool
    return [
        vars(pools.HTTPConnectionPool)["_make_request"],
        vars(pools.HTTPSConnectionPool)["_prepare_proxy"],
    ]


def test_the_originals_come_back(path: Path) -> None:
    before = originals()
    with use(path, mode="once"):
        assert all(one is not other for one, other in zip(before, originals(), strict=True))
    assert originals() == before


def test_a_wrapper_that_stays_over_ours_is_not_taken_for_ours(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name = urllib3.HTTPConnectionPool, "_make_request"

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **options: Any) -> Any:
            response = original(*args, **options)
            response.headers["traced"] = "yes"
            return response

        return wrapper

    monkeypatch.setattr(owner, name, vars(owner)[name])  # put back at the end
    with serve(lambda request: exchange(*PIECES)) as server:
        with use(path, mode="once"):
            requests.get(f"{server.url}/first")
            setattr(owner, name, wrapped(vars(owner)[name]))
        with use(path, mode="all"):
            assert requests.get(f"{server.url}/second").headers["traced"] == "yes"
    assert [each.exchange.request.url for each in load(path).interactions] == [f"{server.url}/second"]
    with use(path, unplayed="error"):
        assert requests.get(f"{server.url}/second").content == BODY


def test_urllib3_1_is_let_be() -> None:
    with clients_urllib3.door(types.SimpleNamespace(__version__="1.26.20")):
        pass


def test_what_did_not_come_over_http_1_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(urllib3.connection.HTTPConnection):
        """As HTTP/2 has it: what it gives has no file."""

        def getresponse(self) -> Any:
            return urllib3.HTTPResponse(io.BytesIO(b"a"), status=200, preload_content=False)

    monkeypatch.setattr(urllib3.HTTPConnectionPool, "ConnectionCls", Other)
    with serve(lambda request: exchange()) as server, pytest.raises(TapeError, match=r"HTTP/1\.1"):
        with use(path, mode="all"), suppress(TapeError):
            urllib3_reads(server.url)


def test_a_header_that_only_another_library_could_read(path: Path) -> None:
    texts = {"etag": "“ü”", "link": "ü"}
    by_hand(path, answered("http://x/", status=299, headers=tuple(texts.items())))
    with use(path):
        response = requests.get("http://x/")
        assert (response.status_code, response.reason) == (299, "")
        assert response.headers["link"] == "ü"
        assert response.headers["etag"].encode("latin-1").decode() == "“ü”"


# ---------------------------------------------------------------------------------------------------------------------- pace

SOON, LATE = Read(40, b"a"), Read(3_600_000, b"b")


def test_a_paced_replay_waits_no_longer_than_the_client(path: Path) -> None:
    by_hand(path, answered("http://x/", SOON, LATE), answered("http://x/", SOON, LATE), answered("http://x/", SOON))
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


# ---------------------------------------------------------------------------------------------------------------------- boto3

REPLY = Reply(
    (TextPart("Grüße aus Zürich"), ToolCall(0, id="t1", name="f", arguments_text='{"a": 1}', arguments={"a": 1})),
    "tool_use",
)
SECRET = "c2VjcmV0IGtleSBvZiBBV1M"


@contextmanager
def bedrock(url: str, **config: Any) -> Iterator[Any]:
    session = boto3.Session(
        aws_access_key_id="AKIAIOSFODNN7EXAMPLE", aws_secret_access_key=SECRET, region_name="us-east-1"
    )
    settings = botocore.config.Config(retries={"total_max_attempts": 1}, **config)
    with closing(session.client("bedrock-runtime", endpoint_url=url, config=settings)) as client:
        yield client


def converse(url: str, most: int | None = None, **config: Any) -> Any:
    said = [{"role": "user", "content": [{"text": "hi"}]}]
    with bedrock(url, **config) as client:
        with closing(client.converse_stream(modelId="m", messages=said)["stream"]) as stream:
            return list(itertools.islice(stream, most))


def invoke(url: str, most: int | None = None, **config: Any) -> Any:
    body = json.dumps({"messages": [], "max_tokens": 9})
    with bedrock(url, **config) as client:
        with closing(client.invoke_model_with_response_stream(modelId="m", body=body)["body"]) as stream:
            return list(itertools.islice(stream, most))


BEDROCK = {"bedrock-converse": converse, "bedrock-invoke": invoke}


@pytest.mark.parametrize("dialect", BEDROCK)
def test_boto3_gets_the_same_events_from_the_recording(path: Path, dialect: str) -> None:
    def answer(request: Request) -> Exchange:
        return synthesize(REPLY, dialect, request=request, lossy=True).exchange

    client = BEDROCK[dialect]
    live, replayed = taken(path, answer, client)
    assert live == replayed
    assert len(live) > 5
    assert ending(path) == COMPLETE
    text = path.read_text()
    assert "AKIA" not in text
    assert "Signature" not in text
    url = load(path).interactions[0].exchange.request.url.partition("/model")[0]
    with use(path) as tape:
        assert client(url, most=2) == live[:2]
        assert tape.reply.text == REPLY.text
        assert [each.state for each in tape.responses] == ["closed"]


@pytest.mark.parametrize("how", [Ending("disconnected", "protocol"), Ending("disconnected", "read"), Ending("stalled")])
def test_boto3_meets_a_body_that_does_not_end_well(path: Path, how: Ending) -> None:
    whole = synthesize(REPLY, "bedrock-converse", lossy=True).exchange

    def client(url: str) -> str:
        try:
            return str(converse(url, read_timeout=0.5))
        except (urllib3.exceptions.HTTPError, botocore.exceptions.BotoCoreError) as error:
            return type(error).__name__

    broken = exchange(*(read.data for read in whole.reads[:3]), headers=whole.headers, ending=how)
    live, replayed = taken(path, broken, client)
    assert live == replayed
    assert live.endswith("Error")
    assert ending(path) == how


def test_boto3_meets_an_error_status(path: Path) -> None:
    said = (("content-type", "application/json"), ("x-amzn-errortype", "ThrottlingException"))

    def client(url: str) -> str:
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            converse(url)
        return str(caught.value)

    live, replayed = taken(path, exchange(b'{"message": "slow down"}', status=429, headers=said), client)
    assert live == replayed
    assert "ThrottlingException" in live


def test_boto3_gets_a_miss(path: Path) -> None:
    with pytest.raises(CassetteMiss, match=r"POST http://127\.0\.0\.1:9/model/m/converse-stream"), use(path):
        converse(NOWHERE)


def test_boto3_waits_for_leave_to_send_the_body_when_it_is_live_only(path: Path) -> None:
    """`Expect: 100-continue`, which S3's clients send."""

    def client(url: str) -> Any:
        with bedrock(url) as runtime:
            headers = lambda request, **_: request.headers.add_header("Expect", "100-continue")
            runtime.meta.events.register("before-sign.bedrock-runtime.InvokeModel", headers)
            return runtime.invoke_model(modelId="m", body=b"{}")["body"].read()

    live, replayed = taken(path, lambda request: exchange(request.body), client)
    assert live == replayed == b"{}"


def test_the_framings_know_only_their_own() -> None:
    """What comes after the end of a body is none of it."""
    cuts: Sequence[tuple[Any, list[tuple[bytes, bytes]]]] = [
        (clients_urllib3._Plain(2), [(b"abc", b"ab")]),
        (clients_urllib3._Chunked(), [(b"1\r\na\r\n", b"a"), (b"0\r\n\r\nmore", b"")]),
    ]
    for framing, expected in cuts:
        wire = b"".join(piece for piece, _ in expected)
        assert framing.cut(wire) == expected
        assert framing.ending == COMPLETE
