"""The loopback server, seen by raw sockets and by a real client."""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from gated import Gated
from stream_cassette.errors import CassetteMiss, MissingExtra, TapeError
from stream_cassette.model import COMPLETE, Ending, Exchange, Read, Request
from stream_cassette.server import Server, Source, serve

CHUNKED = (("content-type", "text/event-stream"), ("content-length", "999"), ("connection", "close"), ("x-a", "ä"))


def exchange(
    *reads: bytes, status: int = 200, ending: Ending = COMPLETE, every_ms: int = 0, headers: Any = CHUNKED
) -> Exchange:
    timed = tuple(Read(index * every_ms, data) for index, data in enumerate(reads))
    return Exchange(Request("GET", "http://x/"), status, headers, timed, ending)


def always(answer: Exchange) -> Callable[[Request], Exchange]:
    return lambda request: answer


def connect(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def everything(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65536), b""))


def test_every_read_is_one_chunk() -> None:
    with serve(always(exchange(b"one", b"tw", b"o\r\n"))) as server, connect(server) as client:
        client.sendall(b"GET /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-B: \xe4\r\n\r\n")
        answer = everything(client)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert "x-a: ä".encode() in head
    assert b"999" not in head
    assert body == b"3\r\none\r\n2\r\ntw\r\n3\r\no\r\n\r\n0\r\n\r\n"
    assert server.requests == (
        Request("GET", f"{server.url}/a?b=c", (("host", "x"), ("connection", "close"), ("x-b", "ä"))),
    )


def test_a_header_that_is_no_utf8_goes_out_byte_for_byte() -> None:
    with serve(always(exchange(headers=(("x-a", "\udce4"), ("x-b", "ä"))))) as server, connect(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"\r\nx-a: \xe4\r\nx-b: \xc3\xa4\r\n" in everything(client)


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    with serve(always(exchange(b"a"))) as server:
        clients = [httpx.Client(), httpx.Client()]
        for client in clients:
            client.get(server.url)
        assert threading.active_count() == before + 3
    assert threading.active_count() == before
    for client in clients:
        client.close()


def test_the_connection_is_used_again_and_bodies_come_in_both_codings() -> None:
    with serve(always(exchange(b"ok"))) as server, httpx.Client(base_url=server.url) as client:
        assert client.post("/", content=b"long" * 50_000).text == "ok"
        assert client.post("/", content=iter([b"a", b"bc"])).text == "ok"
        assert client.get("/").text == "ok"
        conversations = [thread for thread in threading.enumerate() if thread.name.endswith("client")]
    assert [request.body for request in server.requests] == [b"long" * 50_000, b"abc", b""]
    assert len(conversations) == 1


def test_expect_continue() -> None:
    with serve(always(exchange(b"ok"))) as server, connect(server) as client:
        client.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        assert client.recv(65536).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"abc")
        assert everything(client).startswith(b"HTTP/1.1 200 ")
    assert server.requests[0].body == b"abc"


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_without_a_body(method: str, status: int) -> None:
    answer = exchange(b"not sent", status=status, headers=(("content-length", "8"),))
    with serve(always(answer)) as server, httpx.Client() as client:
        response = client.request(method, server.url)
        assert (response.status_code, response.content) == (status, b"")
        assert client.get(server.url).status_code == status


def test_an_absolute_target_is_kept() -> None:
    with serve(always(exchange(b"ok"))) as server, connect(server) as client:
        client.sendall(b"GET http://api.example.com/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        everything(client)
    assert server.requests[0].url == "http://api.example.com/x"


def test_an_old_client_gets_the_body_without_chunks() -> None:
    with serve(always(exchange(b"a", b"b"))) as server, connect(server) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert everything(client).endswith(b"\r\n\r\nab")


def test_pace() -> None:
    with serve(always(exchange(b"a", b"b", b"c", every_ms=40))) as server, httpx.Client() as client:
        began = time.monotonic()
        with client.stream("GET", server.url) as response:
            times = [time.monotonic() - began for _ in response.iter_raw()]
    # A busy machine reads late, never early.
    assert [time >= index * 0.04 for index, time in enumerate(times)] == [True, True, True]
    with serve(always(exchange(b"a", b"b", every_ms=60_000)), paced=False) as server:
        assert httpx.get(server.url).text == "ab"


def test_stopping_does_not_wait_for_the_pace() -> None:
    began = time.monotonic()
    with serve(always(exchange(b"a", b"b", every_ms=60_000))) as server, connect(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(65536)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("error", "raised"),
    [("protocol", httpx.RemoteProtocolError), ("chunk", httpx.RemoteProtocolError), ("read", httpx.ReadError)],
)
def test_a_connection_that_dies(error: Any, raised: type[Exception]) -> None:
    with serve(always(exchange(b"a", b"b", ending=Ending("disconnected", error)))) as server, httpx.Client() as client:
        with client.stream("GET", server.url) as response:
            reads = []
            with pytest.raises(raised):
                reads.extend(response.iter_raw())
            assert response.num_bytes_downloaded == 2


@pytest.mark.parametrize(
    ("reads", "body"), [((b"one", b"two"), b"3\r\none\r\n4\r\ntwo"), ((), b"1\r\n")], ids=["last", "none"]
)
def test_a_connection_that_dies_within_a_chunk(reads: tuple[bytes, ...], body: bytes) -> None:
    answer = exchange(*reads, ending=Ending("disconnected", "chunk"))
    with serve(always(answer)) as server:
        with connect(server) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert everything(client).partition(b"\r\n\r\n")[2] == body
        # An old client has no chunks, and one that asks for the head alone no body.
        with connect(server) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert everything(client).partition(b"\r\n\r\n")[2] == b"".join(reads)
        with connect(server) as client:
            client.sendall(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert everything(client).partition(b"\r\n\r\n")[2] == b""


def late() -> Gated:
    return Gated((("x-late", "1"),))


def test_a_source_is_sent_as_it_comes() -> None:
    source, asked = late(), threading.Event()

    def answer(request: Request) -> Source:
        asked.set()
        return source

    with serve(answer) as server, connect(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.wait(5)
        assert not server.settle(0)
        source.answer()  # the head
        assert client.recv(65536).endswith(b"x-late: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
        for data in (b"a", b"bc"):
            source.give(data)
            assert client.recv(65536) == b"%x\r\n%b\r\n" % (len(data), data)
        source.give(COMPLETE)
        assert client.recv(65536) == b"0\r\n\r\n"
        assert server.settle()
    assert source.closed.is_set()


@pytest.mark.parametrize("when", ["before the head", "between two reads"])
def test_a_client_that_leaves_while_nothing_comes_is_noticed(when: str) -> None:
    source = late()
    with serve(lambda request: source) as server:
        with connect(server) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            if when == "between two reads":
                source.answer()
                assert client.recv(65536)
        assert source.closed.wait(5)
        assert server.settle()


def test_a_client_that_asks_on_meanwhile_is_answered_in_turn() -> None:
    source = late()
    answers: list[Any] = [source, exchange(b"second")]
    with serve(lambda request: answers.pop(0)) as server, connect(server) as client:
        client.sendall(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n")
        source.answer()
        assert client.recv(65536)
        client.sendall(b"GET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        source.give(b"first", COMPLETE)
        assert b"first\r\n0\r\n\r\nHTTP/1.1 200 " in everything(client)
    assert [request.url[-2:] for request in server.requests] == ["/1", "/2"]


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(TapeError, match=f"cannot listen on 127.0.0.1 port {port}: "),
            serve(always(exchange()), port=port),
        ):
            pass


def test_a_port_of_ones_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serve(always(exchange(b"a")), port=port) as server:
        assert server.url == f"http://127.0.0.1:{port}"
        assert httpx.get(server.url).text == "a"


@pytest.mark.parametrize("leaves", [True, False])
def test_a_stall(leaves: bool) -> None:
    with serve(always(exchange(b"a", ending=Ending("stalled")))) as server:
        client = httpx.Client(timeout=httpx.Timeout(5, read=0.3))
        with client.stream("GET", server.url) as response, pytest.raises(httpx.ReadTimeout):
            response.read()
        if leaves:
            client.close()
    client.close()


def test_a_stall_outlasts_what_the_client_sends() -> None:
    with serve(always(exchange(b"a", ending=Ending("stalled")))) as server, connect(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while b"\r\na\r\n" not in client.recv(65536):
            pass
        client.sendall(b"GET / HTTP/1.1\r\n")
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)


def test_closed_ends_like_complete() -> None:
    with serve(always(exchange(b"a", ending=Ending("closed")))) as server:
        assert httpx.get(server.url).text == "a"


def test_a_client_that_leaves_early() -> None:
    gone = threading.Event()

    class Reads(tuple[Read, ...]):
        def __iter__(self) -> Iterator[Read]:
            yield Read(0, b"a")
            assert gone.wait(5)
            while True:
                yield Read(0, b"b" * 65536)

    with serve(always(Exchange(Request("GET", "http://x/"), 200, (), Reads()))) as server:
        with connect(server) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(65536)
        gone.set()


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
def test_a_client_that_leaves_before_it_asked(sent: bytes) -> None:
    with serve(always(exchange(b"a"))) as server:
        with connect(server) as client:
            client.sendall(sent)
        assert httpx.get(server.url).text == "a"
    assert len(server.requests) == 1


def test_what_is_no_http() -> None:
    with serve(always(exchange(b"a"))) as server, connect(server) as client:
        client.sendall(b"\x16\x03\x01 this is TLS\r\n\r\n")
        assert everything(client).startswith(b"HTTP/1.1 400 ")


def test_http_2_is_refused_in_words() -> None:
    def client() -> None:
        with serve(always(exchange(b"a"))) as server, connect(server) as client:
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            assert everything(client).startswith(b"HTTP/1.1 505 HTTP Version Not Supported\r\n")
            assert server.requests == ()

    with pytest.raises(TapeError, match="a client speaks HTTP/2"):
        client()


def test_parallel_connections() -> None:
    both = threading.Barrier(2, timeout=5)

    def answer(request: Request) -> Exchange:
        both.wait()
        return exchange(request.url.encode())

    with serve(answer) as server:
        texts: dict[str, str] = {}
        threads = [
            threading.Thread(target=lambda path=path: texts.update({path: httpx.get(server.url + path).text}))
            for path in ("/a", "/b")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert texts == {"/a": f"{server.url}/a", "/b": f"{server.url}/b"}


@pytest.mark.parametrize("error", [ValueError("no such answer"), CassetteMiss("no such recording")])
def test_an_answer_that_fails(error: BaseException) -> None:
    def answer(request: Request) -> Exchange:
        raise error

    with pytest.raises(type(error)) as caught, serve(answer) as server:
        response = httpx.get(server.url)
    assert caught.value is error
    assert response.status_code == 500
    assert response.text == f"{type(error).__name__}: {error}"


def test_an_answer_that_fails_is_the_cause_of_what_follows() -> None:
    def answer(request: Request) -> Exchange:
        raise ValueError("no such answer")

    with pytest.raises(ValueError, match="no such answer") as caught, serve(answer) as server:
        httpx.get(server.url).raise_for_status()
    assert isinstance(caught.value.__cause__, httpx.HTTPStatusError)


UNSAYABLE = [
    (200, (("x-a", "1"), ("content-type", "text/event-stream\ntext/event-stream")), "the header 'content-type'"),
    (200, (("x-a", "a\r\nset-cookie: b"), ("x-b", "c\nd")), "the header 'x-a'"),
    (200, (("x a", "1"),), "the header 'x a'"),
    (200, (("x-ä", "1"),), "the header 'x-ä'"),
    (200, (("x-a", "\ud800"),), "the header 'x-a'"),
    (304, (("content-length", "5"), ("content-length", "6")), "the header 'content-length'"),
    (100, (), "the status 100"),
    (1000, (("x-a", "a\nb"),), "the status 1000"),
]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(("status", "headers", "what"), UNSAYABLE, ids=ascii)
def test_what_http_cannot_carry_is_named_and_the_server_goes_on(
    status: int, headers: Any, what: str, method: str
) -> None:
    answers = [exchange(b"a", status=status, headers=headers), exchange(b"fine")]
    key = "sk-proj-" + "Ab1" * 16
    responses = []
    with (
        pytest.raises(TapeError) as caught,
        serve(lambda request: answers.pop(0)) as server,
        httpx.Client(base_url=server.url) as client,
    ):
        responses += [client.request(method, f"/v1/{key}"), client.get("/")]
    response, again = responses
    assert (response.status_code, again.text) == (500, "fine")
    assert caught.value.what == f"HTTP cannot carry {what}"
    assert caught.value.where.startswith(f"the answer to {method} {server.url}/v1/")
    assert key not in str(caught.value)
    assert response.text == (f"TapeError: {caught.value}" if method == "GET" else "")


def test_a_source_hears_why_its_head_was_not_sent() -> None:
    heard: list[Exception | None] = []

    class Unsayable(Gated):
        def close(self, failure: Exception | None = None) -> None:
            heard.append(failure)
            super().close(failure)

    source = Unsayable((("x-a", "a\nb"),))
    source.answer()
    with pytest.raises(TapeError) as caught, serve(lambda request: source) as server:
        assert httpx.get(server.url).status_code == 500
    assert heard == [caught.value]


def test_a_client_that_takes_the_server_for_a_proxy() -> None:
    with serve(always(exchange(b"a"))) as server, connect(server) as client:
        client.sendall(b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n")
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            data = client.recv(65536)
            assert data, answer
            answer += data
        assert answer.startswith(b"HTTP/1.1 501 Not Implemented\r\n")
        assert f"give the client {server.url} as its base URL".encode() in answer
        assert server.requests == ()
        # The connection too goes on.
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"\r\n1\r\na\r\n0\r\n\r\n" in everything(client)


def test_the_error_of_the_block_comes_out() -> None:
    with pytest.raises(LookupError), serve(always(exchange(b"a"))):
        raise LookupError


def test_without_h11(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h11", None)
    with (
        pytest.raises(MissingExtra, match=r"pip install 'pytest-stream-cassette\[server\]'"),
        serve(always(exchange(b"a"))),
    ):
        pass


def test_a_client_that_asks_again_before_it_was_answered_waits_its_turn() -> None:
    said = Exchange(Request("GET", "http://x/"), 200, (), (Read(0, b"a"), Read(300, b"b")))
    ask = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    with serve(always(said)) as server, connect(server) as client:
        client.sendall(ask)
        came = client.recv(65536)
        while b"\r\na\r\n" not in came:
            came += client.recv(65536)
        client.sendall(ask)  # while the server waits for the pace
        while came.count(b"0\r\n\r\n") < 2:
            came += client.recv(65536)
    assert came.count(b"\r\nb\r\n") == 2
    assert len(server.requests) == 2
