"""The recording reverse proxy: bytes pass through it as they come, and the cassette holds what passed."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from gated import Gated
from stream_cassette import Reply, Tape, synthesize, use
from stream_cassette.cassette import load
from stream_cassette.clients import intercepted
from stream_cassette.errors import CassetteMiss, MissingExtra, RecordingTooShort, TapeError
from stream_cassette.model import COMPLETE, Ending, Exchange, Headers, Interaction, Read, Request, TextPart
from stream_cassette.proxy import Passed, forwarding
from stream_cassette.server import Server, serve

ASK = b'{"model": "m", "stream": true}'
SSE: Headers = (("content-type", "text/event-stream"),)
CHAT = synthesize(Reply((TextPart("Low tide."),), "stop", ended=True), "openai-chat").exchange
CLOSED = Ending("closed")


def exchange(*reads: bytes, status: int = 200, headers: Headers = SSE, ending: Ending = COMPLETE) -> Exchange:
    return Exchange(Request("GET", "http://x/"), status, headers, tuple(Read(0, data) for data in reads), ending)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


@contextmanager
def recording(path: Path, answer: Any, mode: Any = "once", base: str = "") -> Iterator[tuple[str, Server, Tape]]:
    """The proxy's base URL, the server that it stands for, and the tape."""
    with (
        serve(lambda request: answer(request) if callable(answer) else answer) as upstream,
        use(path, mode=mode) as tape,
        forwarding(upstream.url + base) as (_, url),
    ):
        yield url, upstream, tape


def interactions(path: Path) -> tuple[Interaction, ...]:
    return load(path).interactions


# ------------------------------------------------------------------------------------------------------------- what passes


def test_what_passes_is_recorded_as_if_the_client_had_asked_upstream(path: Path) -> None:
    with recording(path, CHAT, base="/v1/") as (url, upstream, _):
        response = httpx.post(
            f"{url}/chat/completions?a=b%2Fc", content=ASK, headers={"content-type": "application/json"}
        )
    assert url.endswith("/v1")
    assert response.content == CHAT.body
    (recorded,) = interactions(path)
    request = recorded.exchange.request
    assert (request.method, request.url) == ("POST", f"{upstream.url}/v1/chat/completions?a=b%2Fc")
    assert dict(request.headers) == {"accept": "*/*", "content-type": "application/json"}
    assert json.loads(request.body) == json.loads(ASK)
    assert [read.data for read in recorded.exchange.reads] == [read.data for read in CHAT.reads]
    assert (recorded.exchange.ending, recorded.dialect) == (COMPLETE, "openai-chat")
    with use(path) as tape:
        assert httpx2.post(f"{upstream.url}/v1/chat/completions?a=b%2Fc", content=ASK).content == CHAT.body
        assert tape.reply.text == "Low tide."


def test_headers_pass_but_those_of_one_connection(path: Path) -> None:
    came: Headers = (("x-a", "1"), ("x-a", "2"), ("keep-alive", "timeout=5"), ("set-cookie", "s=1"))
    with recording(path, exchange(b"a", headers=(*SSE, *came))) as (url, upstream, _):
        client = httpx.Client(headers={"authorization": "Bearer k", "te": "trailers", "x-hop": "1"})
        for _ in range(2):
            response = client.get(url, headers={"connection": "x-hop", "cookie": ""}, timeout=5)
        client.close()
    assert response.headers.get_list("x-a") == ["1", "2"]
    assert "keep-alive" not in response.headers
    for request in upstream.requests:
        sent = dict(request.headers)
        assert sent["host"] == upstream.url.removeprefix("http://")
        assert (sent["authorization"], sent["user-agent"]) == ("Bearer k", f"python-httpx/{httpx.__version__}")
        assert sent["accept-encoding"] == "identity"
        assert not {"te", "x-hop", "connection"} & set(sent) or sent.get("connection") == "keep-alive"
        assert sent["cookie"] == ""


@pytest.mark.parametrize("value", [b"\xe4", "ä🌊".encode(), b"\xe4\xc3\xa4"])
def test_headers_that_are_no_ascii_pass_byte_for_byte(path: Path, value: bytes) -> None:
    answer = exchange(b"a", headers=(*SSE, ("x-a", value.decode(errors="surrogateescape")), ("x-b", "ä")))
    said = b"GET / HTTP/1.1\r\nHost: x\r\nX-Sent: %b\r\n\r\n" % value
    with recording(path, answer) as (url, upstream, _), raw(url, said) as client:
        assert b"\r\nx-a: %b\r\nx-b: \xc3\xa4\r\n" % value in until(client, b"0\r\n\r\n")
    assert dict(upstream.requests[0].headers)["x-sent"] == value.decode("latin-1")


def test_every_read_is_passed_on_at_once(path: Path) -> None:
    gate = Gated(SSE)
    seen: list[Passed] = []
    with (
        serve(lambda request: gate) as upstream,
        use(path, mode="once"),
        forwarding(upstream.url, told=seen.append) as (
            _,
            url,
        ),
    ):
        with raw(url) as client:
            gate.answer()
            assert b"text/event-stream" in until(client, b"\r\n\r\n")
            for data in (b"data: 1\n\n", b"da", b"ta: 2\n\n"):
                gate.give(data)
                assert until(client, data + b"\r\n") == b"%x\r\n%b\r\n" % (len(data), data)
            gate.give(COMPLETE)
            until(client, b"0\r\n\r\n")
    assert [read.data for read in interactions(path)[0].exchange.reads] == [b"data: 1\n\n", b"da", b"ta: 2\n\n"]
    assert [(each.status, each.events, each.size, each.ended) for each in seen] == [
        (200, 0, 0, ""),
        (200, 1, 9, ""),
        (200, 1, 11, ""),
        (200, 2, 18, ""),
        (200, 2, 18, "complete"),
    ]
    assert [each.first_ms is None for each in seen] == [True, False, False, False, False]
    assert seen[-1].request.url == f"{url}/v1/chat/completions"


POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(ASK), ASK)


def raw(url: str, said: bytes = POST) -> socket.socket:
    """A client that has asked, and reads what comes byte by byte."""
    host, port = url.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=5)
    client.sendall(said)
    return client


def until(client: socket.socket, end: bytes) -> bytes:
    got = b""
    while not got.endswith(end):
        data = client.recv(65536)
        assert data, got
        got += data
    return got


def test_requests_at_the_same_time_do_not_wait_for_each_other(path: Path) -> None:
    both = threading.Barrier(2, timeout=5)

    def answer(request: Request) -> Exchange:
        both.wait()
        return exchange(request.url[-2:].encode())

    with recording(path, answer) as (url, _, _):
        texts: list[str] = []
        threads = [
            threading.Thread(target=lambda name=name: texts.append(httpx.get(f"{url}/{name}").text)) for name in "ab"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(texts) == ["/a", "/b"]
    assert len(interactions(path)) == 2


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 302), ("POST", 429)])
def test_any_exchange_passes(path: Path, method: str, status: int) -> None:
    answer = exchange(*([b"why"] if method == "POST" else []), status=status, headers=(("location", "http://y/"),))
    with recording(path, answer) as (url, _, _):
        response = httpx.request(method, url)
        assert (response.status_code, response.headers["location"]) == (status, "http://y/")
        assert response.content == answer.body


# ---------------------------------------------------------------------------------------------------- clients that do not read


def silent(url: str) -> socket.socket:
    """A client that asks for what is big and does not read."""
    host, port = url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(20)
    client.connect((host, int(port)))
    client.sendall(b"GET /silent HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    return client


def body_of(client: socket.socket) -> bytes:
    """The body that comes on a raw connection, out of its chunks."""
    with client.makefile("rb") as file:
        while file.readline() != b"\r\n":
            pass
        chunks = []
        while size := int(file.readline(), 16):
            chunks.append(file.read(size))
            file.readline()
        return b"".join(chunks)


class Flood:
    """Many reads, as fast as they are taken."""

    torn = False
    ready = None

    def __init__(self, count: int, size: int) -> None:
        self.size = size
        self.left = count
        self.given = 0
        self.full = threading.Event()

    def head(self) -> tuple[int, Headers]:
        return 200, SSE

    def pause(self) -> float:
        if self.given >= 300:
            self.full.set()
        return 0

    def read(self) -> bytes | Ending:
        if not self.left:
            return COMPLETE
        self.left -= 1
        self.given += 1
        return b"%08d" % self.given * (self.size // 8)

    def close(self, failure: Exception | None = None) -> None:
        pass

    @property
    def whole(self) -> bytes:
        return b"".join(b"%08d" % number * (self.size // 8) for number in range(1, self.given + 1))


def test_a_client_that_does_not_read_keeps_no_other_waiting(path: Path) -> None:
    flood = Flood(3000, 3000)
    with recording(path, lambda request: flood if "silent" in request.url else CHAT) as (url, _, _):
        with silent(url) as client:
            assert flood.full.wait(20)
            for _ in range(3):
                assert httpx.post(f"{url}/other", content=ASK, timeout=20).content == CHAT.body
            # What waited comes, whole and in order.
            assert body_of(client) == flood.whole
    assert [each.exchange.ending for each in interactions(path)] == [COMPLETE] * 4
    assert interactions(path)[0].exchange.body == flood.whole


def test_what_a_client_does_not_read_is_not_read_from_upstream() -> None:
    megabytes = 50
    floods = {name: Flood(megabytes * 16, 65536) for name in ("silent", "reads")}
    with (
        serve(lambda request: floods[request.url.rpartition("/")[2]]) as upstream,
        forwarding(upstream.url) as (_, url),
    ):
        with silent(url) as client:
            assert len(httpx.get(f"{url}/reads", timeout=20).content) == megabytes << 20
            # Beyond what is let wait, sockets hold some megabytes.
            assert floods["silent"].left > 0
            assert body_of(client) == floods["silent"].whole
    assert [each.given for each in floods.values()] == [megabytes * 16] * 2


def test_a_client_that_leaves_without_having_read(path: Path) -> None:
    flood = Flood(50_000, 4096)
    seen: list[Passed] = []
    with serve(lambda request: flood) as upstream, forwarding(upstream.url, told=seen.append) as (server, url):
        with silent(url):
            assert flood.full.wait(20)
        assert server.settle(20)
    assert seen[-1].ended == "closed by the client"
    assert flood.left > 0


def test_any_number_of_streams_is_under_way_at_once() -> None:
    count = 120
    with socket.create_server(("127.0.0.1", 0), backlog=count) as upstream:
        upstream.settimeout(20)
        with forwarding(f"http://127.0.0.1:{upstream.getsockname()[1]}") as (_, url):
            clients = [raw(url) for _ in range(count)]
            asked = [upstream.accept()[0] for _ in range(count)]
            for each in clients + asked:
                each.close()


# ------------------------------------------------------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("error", "raised", "recorded"),
    [
        ("protocol", httpx.RemoteProtocolError, "protocol"),
        ("chunk", httpx.RemoteProtocolError, "protocol"),
        ("read", httpx.ReadError, "read"),
    ],
)
def test_upstream_that_dies_is_seen_by_the_client(path: Path, error: Any, raised: Any, recorded: Any) -> None:
    dies = exchange(b"data: 1\n\n", b"data: 2\n\n", ending=Ending("disconnected", error))
    with recording(path, dies) as (url, _, _), httpx.stream("POST", url, content=ASK) as response:
        with pytest.raises(raised):
            list(response.iter_raw())
        assert response.num_bytes_downloaded == len(dies.body)
    assert interactions(path)[0].exchange.ending == Ending("disconnected", recorded)


def test_a_client_that_leaves_takes_the_proxy_with_it(path: Path) -> None:
    gate = Gated(SSE)
    seen: list[Passed] = []
    with serve(lambda request: gate) as upstream, use(path, mode="once"):
        with forwarding(upstream.url, told=seen.append) as (server, url):
            with raw(url) as client:
                gate.answer()
                gate.give(b"data: 1\n\n")
                until(client, b"data: 1\n\n\r\n")
            assert gate.closed.wait(5)
            assert server.settle()
    (recorded,) = interactions(path)
    assert recorded.exchange.ending == CLOSED
    assert [read.data for read in recorded.exchange.reads] == [b"data: 1\n\n"]
    assert seen[-1].ended == "closed by the client"


def test_a_client_that_leaves_before_the_answer_leaves_no_recording(path: Path) -> None:
    gate = Gated(SSE)
    with serve(lambda request: gate) as upstream, use(path, mode="once") as tape:
        with forwarding(upstream.url) as (_, url):
            with raw(url):
                while not upstream.requests:
                    assert not gate.closed.wait(0.01)
            assert gate.closed.wait(5)
    assert "no response came" in tape.remarks[0]
    assert not path.exists()


def test_at_the_end_what_is_under_way_is_closed(path: Path) -> None:
    gate = Gated(SSE)
    with serve(lambda request: gate) as upstream, use(path, mode="once"):
        with forwarding(upstream.url) as (server, url):
            client = raw(url)
            gate.answer()
            until(client, b"\r\n\r\n")
            assert not server.settle(0)
        assert client.recv(65536) == b""
        client.close()
    assert interactions(path)[0].exchange.ending == CLOSED


def test_upstream_that_is_not_there(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nobody = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with use(path, mode="once"), forwarding(nobody) as (_, url):
        response = httpx2.get(url)
    assert response.status_code == 502
    assert response.json()["error"]["message"].startswith("no answer from upstream: ConnectError: ")
    assert response.json()["error"]["status"] == "UNAVAILABLE"
    assert "x-should-retry" not in response.headers
    assert not path.exists()


def test_what_is_no_url_is_not_asked_for(path: Path) -> None:
    with recording(path, CHAT) as (url, upstream, _), raw(url, b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n") as client:
        assert until(client, b"0\r\n\r\n").startswith(b"HTTP/1.1 502 ")
    assert upstream.requests == ()


# ------------------------------------------------------------------------------------------------------- where the tape replays


def test_what_is_recorded_is_played_and_upstream_is_not_asked(path: Path) -> None:
    with recording(path, CHAT) as (url, upstream, _):
        httpx.post(url, content=ASK)
    with use(path, mode="once"), forwarding(upstream.url) as (_, url):
        assert httpx.post(url, content=ASK).content == CHAT.body


@pytest.mark.parametrize(
    ("ending", "raised"),
    [(Ending("stalled"), httpx.ReadTimeout), (Ending("disconnected", "read"), httpx.ReadError)],
    ids=["stalled", "reset"],
)
def test_a_recorded_ending_is_played(path: Path, ending: Ending, raised: type[Exception]) -> None:
    patience = httpx.Timeout(5, read=0.2)
    with serve(lambda request: exchange(b"a", ending=ending)) as upstream:
        with use(path, mode="once"), pytest.raises(httpx2.HTTPError):
            httpx2.post(upstream.url, content=ASK, timeout=httpx2.Timeout(5, read=0.2))
    with use(path, mode="once"), forwarding(upstream.url) as (_, url), pytest.raises(raised):
        httpx.post(url, content=ASK, timeout=patience)


def test_a_recording_that_is_too_short(path: Path) -> None:
    with serve(lambda request: exchange(b"a", b"b", ending=Ending("stalled"))) as upstream, use(path, mode="once"):
        with httpx2.stream("POST", upstream.url, content=ASK) as response:
            next(response.iter_raw())
    with pytest.raises(RecordingTooShort), use(path), forwarding(upstream.url) as (_, url):
        httpx.post(url, content=ASK)


def test_a_miss(path: Path) -> None:
    with recording(path, CHAT) as (url, upstream, _):
        httpx.post(url, content=ASK)
    with pytest.raises(CassetteMiss) as caught, use(path), forwarding(upstream.url) as (_, url):
        response = httpx.post(url, content=b"{}")
    assert (response.status_code, response.headers["x-should-retry"]) == (404, "false")
    assert response.json()["error"]["message"] == str(caught.value)


# ------------------------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("upstream", "told"),
    [
        ("api.openai.com", "api.openai.com"),
        ("ftp://api.openai.com", "ftp://api.openai.com"),
        ("https://", "https://"),
        ("/v1", "/v1"),
        ("https://[::1/v1", "https://[::1/v1"),
        ("ftp://u:s3cret@api.openai.com", "ftp://api.openai.com"),
        ("u:s3cret@api.openai.com/v1", "api.openai.com/v1"),
    ],
)
def test_an_upstream_that_is_none(upstream: str, told: str) -> None:
    with pytest.raises(TapeError) as caught, forwarding(upstream):
        pass
    assert caught.value.what == f"{told!r} is no base URL"


def test_without_httpx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with (
        pytest.raises(MissingExtra, match=r"pip install 'pytest-stream-cassette\[server\]'"),
        forwarding("http://127.0.0.1:1"),
    ):
        pass


@pytest.mark.parametrize("when", ["before the head", "in the body"])
def test_an_error_of_ours_comes_out_at_the_end(path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    async def broken(self: Any) -> Any:
        yield b"a"
        raise ValueError("broken")

    async def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("broken")

    if when == "in the body":
        monkeypatch.setattr(httpx2.Response, "aiter_raw", broken)
    else:
        monkeypatch.setattr(httpx2.AsyncClient, "send", send)
    seen: list[Passed] = []
    with (
        pytest.raises(ValueError, match="broken"),
        serve(lambda request: CHAT) as upstream,
        use(path, mode="once"),
        forwarding(upstream.url, told=seen.append) as (_, url),
    ):
        said = asked(url)
    assert said == ("500 ValueError: broken" if when == "before the head" else "RemoteProtocolError")
    assert [each.ended for each in seen] == (["ValueError"] if when == "before the head" else ["", "", "ValueError"])


def asked(url: str) -> str:
    """The status and text of what is answered, or the error of the client."""
    try:
        response = httpx.post(url, content=ASK)
    except httpx.HTTPError as error:
        return type(error).__name__
    return f"{response.status_code} {response.text}"


def test_what_http_cannot_carry_is_an_error_before_the_head() -> None:
    seen: list[Passed] = []
    odd = Exchange(Request("POST", "http://x/"), 1000, SSE, (Read(0, b"a"),))
    with (
        pytest.raises(TapeError, match="HTTP cannot carry the status 1000") as caught,
        intercepted(Tape.answering([odd])),
        forwarding("http://127.0.0.1:1", told=seen.append) as (_, url),
    ):
        said = asked(url)
    assert said == f"500 TapeError: {caught.value}"
    assert (seen[-1].status, seen[-1].size, seen[-1].ended) == (500, 0, caught.value.what)
