"""The door of urllib3: connections, proxies, pools and threads, and who else patches what the door patches."""

from __future__ import annotations

import functools
import io
import socket
import ssl
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stream_cassette.cassette import load
from stream_cassette.clients import DOORS, use
from stream_cassette.clients import urllib3 as clients_urllib3
from stream_cassette.clients.doors import opened
from stream_cassette.errors import TapeError
from stream_cassette.server import serve
from wires import BODY, NOWHERE, PIECES, answered, by_hand, exchange, head, head_of, listening, scripted, taken, twice


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


def loaded(url: str) -> bytes:
    with urllib3.PoolManager(retries=False) as pool:
        data: bytes = pool.request("GET", url).data
        return data


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
    asked: list[str] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def converse(client: socket.socket, stopping: threading.Event) -> None:
        with client:
            asked.append(head_of(client).split()[1].decode())
            if not answer:
                stopping.wait(30)
            client.sendall(answer)
            if b" 200 " in answer:
                with socket.create_connection(asked[-1].split(":")) as server:
                    back = threading.Thread(target=pump, args=(server, client))
                    back.start()
                    pump(client, server)
                    back.join()

    with listening(converse) as proxy:
        yield f"http://{proxy}", asked


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
        assert requests.get(f"https://{secure_server}/1", proxies={"https": proxy}).content == BODY


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 Forbidden\r\n\r\n", b""], ids=["refused", "no answer"])
def test_a_tunnel_that_cannot_be_dug(path: Path, answer: bytes) -> None:
    def why(proxy: str) -> str:
        with urllib3.ProxyManager(proxy) as pool, pytest.raises(urllib3.exceptions.MaxRetryError) as caught:
            pool.request("GET", "https://localhost:9/", timeout=60 if answer else 0.2, retries=0)
        return type(caught.value.reason).__name__

    with tunnel(answer) as (proxy, _):
        bare = why(proxy)
        with use(path, mode="all"):
            assert why(proxy) == bare
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
            assert loaded(server.url) == BODY
        with use(path, mode="all", allow_loopback=True) as tape:
            assert loaded(server.url) == BODY
            assert not tape.used
    assert not path.exists()


def test_a_request_without_any_response_is_not_recorded(path: Path) -> None:
    with use(path, mode="all"):
        with pytest.raises(urllib3.exceptions.NewConnectionError):
            loaded(NOWHERE)
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
    assert clients_urllib3.door(types.SimpleNamespace(__version__="1.26.20")) == ()


def test_what_did_not_come_over_http_1_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(urllib3.connection.HTTPConnection):
        """As HTTP/2 has it: what it gives has no file."""

        def getresponse(self) -> Any:
            return urllib3.HTTPResponse(io.BytesIO(b"a"), status=200, preload_content=False)

    monkeypatch.setattr(urllib3.HTTPConnectionPool, "ConnectionCls", Other)
    with serve(lambda request: exchange()) as server, pytest.raises(TapeError, match=r"HTTP/1\.1"):
        with use(path, mode="all"), suppress(TapeError):
            loaded(server.url)


def test_a_header_that_only_another_library_could_read(path: Path) -> None:
    texts = {"etag": "“ü”", "link": "ü"}
    by_hand(path, answered("http://x/", status=299, headers=tuple(texts.items())))
    with use(path):
        response = requests.get("http://x/")
        assert (response.status_code, response.reason) == (299, "")
        assert response.headers["link"] == "ü"
        assert response.headers["etag"].encode("latin-1").decode() == "“ü”"
