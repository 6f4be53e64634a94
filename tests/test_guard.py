"""The guard: no client reaches the network while a tape only replays, and the error names it."""

from __future__ import annotations

import asyncio
import contextvars
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import boto3
import httpx
import httpx2
import pytest
import trio
import urllib3
import websockets.asyncio.client
import websockets.sync.client

from stream_cassette.cassette import update
from stream_cassette.clients import guard, use
from stream_cassette.errors import CassetteMiss, LiveConnection, TapeError
from stream_cassette.hosts import Hosts, is_link_local, is_loopback
from stream_cassette.model import Cassette, Exchange, Interaction, Read, Request
from stream_cassette.server import Server, serve
from stream_cassette.tape import Tape

SSE = (("content-type", "text/event-stream"),)


def answer(request: Request) -> Exchange:
    return Exchange(request, 200, SSE, (Read(0, b"data: live\n\n"),))


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(answer) as server:
        yield server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A cassette with one interaction of nobody."""
    path = tmp_path / "x.yaml"
    exchange = Exchange(Request("GET", "https://api.example.com/"), 200, SSE, (Read(0, b"data: recorded\n\n"),))
    update(path, lambda _: Cassette((Interaction(exchange),)))
    return path


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


# ----------------------------------------------------------------------------------------------------------------- the clients


def by_socket(url: str) -> None:
    socket.create_connection(address(url), timeout=5).close()


def by_datagram(url: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", address(url))


def by_connect_ex(url: str) -> None:
    with socket.socket() as sock:
        sock.connect_ex(address(url))


async def by_aiohttp(url: str) -> None:
    # What else aiohttp does has a door.
    async with aiohttp.ClientSession() as session, session.ws_connect(url):
        pass


async def by_websockets(url: str) -> None:
    async with websockets.asyncio.client.connect(url.replace("http", "ws")):
        pass


def by_websockets_sync(url: str) -> None:
    websockets.sync.client.connect(url.replace("http", "ws"))


async def by_streams(url: str) -> None:
    await asyncio.open_connection(*address(url))


async def by_trio(url: str) -> None:
    await trio.open_tcp_stream(*address(url))


def in_asyncio(function: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda url: asyncio.run(function(url))


async def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


CLIENTS: dict[str, tuple[Callable[[str], Any], str]] = {
    "raw socket": (by_socket, "a socket"),
    "datagram": (by_datagram, "a socket"),
    "connect_ex": (by_connect_ex, "a socket"),
    # The door stands at its pools.
    "urllib3's connection": (
        lambda url: urllib3.connection.HTTPConnection(*address(url), timeout=5).request("GET", "/"),
        "urllib3",
    ),
    "urllib.request": (lambda url: urllib.request.urlopen(url, timeout=5), "urllib.request"),
    "http.client": (
        lambda url: http.client.HTTPConnection(*address(url), timeout=5).request("GET", "/"),
        "http.client",
    ),
    "aiohttp's WebSocket": (in_asyncio(by_aiohttp), "aiohttp"),
    "websockets": (in_asyncio(by_websockets), "websockets"),
    "websockets sync": (by_websockets_sync, "websockets"),
    "asyncio streams": (in_asyncio(by_streams), "a socket"),
    "trio": (lambda url: trio.run(by_trio, url), "trio"),
}


@pytest.mark.parametrize(("client", "name"), CLIENTS.values(), ids=CLIENTS.keys())
def test_a_live_client_is_an_error_that_names_it(
    path: Path, server: Server, client: Callable[[str], Any], name: str
) -> None:
    began = time.monotonic()
    with pytest.raises(LiveConnection) as caught, use(path) as tape:
        client(server.url)
    assert caught.value is tape.failure
    host, port = address(server.url)
    assert (
        str(caught.value).splitlines()[0]
        == f"{name} goes to the network while the recording is replayed: {host} port {port}"
    )
    assert f"{path}" in caught.value.where
    assert __file__ in caught.value.where
    assert "allow_loopback=True" in caught.value.mend
    assert server.requests == ()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("name", ["raw socket", "connect_ex", "urllib.request"])
def test_the_same_client_where_loopback_is_allowed(path: Path, server: Server, name: str) -> None:
    with use(path, allow_loopback=True):
        CLIENTS[name][0](server.url)


@pytest.mark.parametrize(
    "quietly",
    [
        lambda function: suppress_all(function),
        lambda function: in_a_thread(function),
        lambda function: asyncio.run(elsewhere(suppress_all, function)),
    ],
    ids=["swallowed", "thread", "executor"],
)
def test_it_fails_the_test_whatever_becomes_of_it(path: Path, server: Server, quietly: Callable[..., Any]) -> None:
    with pytest.raises(LiveConnection), use(path):
        quietly(lambda: by_socket(server.url))
    assert server.requests == ()


def suppress_all(function: Callable[[], Any]) -> None:
    with suppress(BaseException):
        function()


def in_a_thread(function: Callable[[], Any], context: contextvars.Context | None = None) -> None:
    run = context.run if context else lambda call: call()
    thread = threading.Thread(target=run, args=(lambda: suppress_all(function),))
    thread.start()
    thread.join()


def test_among_several_tapes_that_all_replay(path: Path, server: Server, tmp_path: Path) -> None:
    def nested() -> None:
        with use(path), use(tmp_path / "other.yaml"):
            in_a_thread(lambda: by_socket(server.url))

    with pytest.raises(LiveConnection) as caught:
        nested()
    assert "x.yaml and " in caught.value.where


def test_among_several_tapes_of_which_one_records(path: Path, server: Server, tmp_path: Path) -> None:
    with use(path), use(tmp_path / "other.yaml", mode="all"):
        by_socket(server.url)
        in_a_thread(lambda: by_socket(server.url))


# ---------------------------------------------------------------------------------------------------------------- who is free


@pytest.mark.parametrize("mode", ["once", "new", "all"])
def test_while_recording_everything_is_live(tmp_path: Path, server: Server, mode: Any) -> None:
    with use(tmp_path / "new.yaml", mode=mode):
        by_socket(server.url)


def test_once_with_recordings_only_replays(path: Path, server: Server) -> None:
    with pytest.raises(LiveConnection), use(path, mode="once"):
        by_socket(server.url)


def test_without_a_tape_everything_is_live(path: Path, server: Server) -> None:
    with use(path):
        pass
    by_socket(server.url)


def test_what_is_on_no_network_is_free(path: Path, tmp_path: Path) -> None:
    async def loop() -> None:
        await asyncio.to_thread(time.sleep, 0)

    with use(path):
        asyncio.run(loop())
        trio.run(trio.sleep, 0)
        for sock in socket.socketpair():
            sock.close()
        with socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX) as unix:
            with suppress(FileNotFoundError):
                unix.connect(str(tmp_path / "none"))
        for host in ("localhost", "127.0.0.1", "::1", "203.0.113.9", None, b"", socket.gethostname()):
            with suppress(OSError):
                socket.getaddrinfo(host, 80)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, suppress(OSError):
            sock.sendmsg([b"x"])


def test_a_server_of_ours_starts_and_stops_during_a_replay(path: Path) -> None:
    with use(path), serve(answer):
        pass


def test_a_socketpair_over_loopback_is_free(path: Path) -> None:
    # What Python has where there are no Unix sockets.
    code = """if True:
        def _fallback_socketpair(family):
            with create_server(("127.0.0.1", 0)) as listener, socket(family) as one:
                one.connect(listener.getsockname())
    """
    names = {**vars(socket)}
    with use(path):
        exec(code, names)
        names["_fallback_socketpair"](socket.AF_INET)


# ------------------------------------------------------------------------------------------------------------------ the names


def test_a_name_is_not_even_looked_up(path: Path) -> None:
    with pytest.raises(LiveConnection, match=r"a socket goes .*: api\.example\.com"), use(path):
        socket.create_connection(("api.example.com", 443))
    with pytest.raises(LiveConnection, match=r"api\.example\.com"), use(path):
        socket.gethostbyname("api.example.com")


@pytest.mark.parametrize(
    ("client", "name"),
    [
        (in_asyncio(by_aiohttp), "aiohttp"),
        (in_asyncio(by_websockets), "websockets"),
        (in_asyncio(lambda url: asyncio.open_connection("api.example.com", 80)), "a socket"),
        (in_asyncio(lambda url: elsewhere(urllib.request.urlopen, url)), "urllib.request"),
    ],
    ids=["aiohttp", "websockets", "streams", "executor"],
)
def test_a_name_looked_up_in_the_thread_of_a_loop(path: Path, client: Callable[[str], Any], name: str) -> None:
    with pytest.raises(LiveConnection) as caught, use(path):
        client("http://api.example.com:80")
    assert str(caught.value).startswith(f"{name} goes to the network")


def test_a_library_that_nobody_knows_is_named_by_its_folder(path: Path, tmp_path: Path) -> None:
    module = tmp_path / "site-packages" / "telemetry" / "sender.py"
    names: dict[str, Any] = {"__name__": "telemetry.sender"}
    exec(compile("import socket\ndef send():\n    socket.socket().connect(('203.0.113.9', 80))", module, "exec"), names)
    with pytest.raises(LiveConnection, match=r"^telemetry goes"), use(path):
        names["send"]()


def test_a_stack_without_any_code_of_ones_own(path: Path) -> None:
    with pytest.raises(LiveConnection) as caught, use(path), ThreadPoolExecutor() as pool:
        with suppress(LiveConnection):
            pool.submit(socket.gethostbyname, "api.example.com").result()
    assert caught.value.where.startswith("the stack shows no code of yours; ")


def test_a_task_that_ends_while_it_is_looked_at() -> None:
    waiting = by_streams("")
    waiting.close()
    assert list(guard._awaiting(waiting)) == []


def test_where_there_is_no_event_loop_at_all(path: Path) -> None:
    code = f"""if True:
        import socket, sys
        from concurrent.futures import ThreadPoolExecutor
        from stream_cassette import use

        with use({str(path)!r}) as tape, ThreadPoolExecutor() as pool:
            pool.submit(socket.gethostbyname, "api.example.com").exception()
            print("asyncio" in sys.modules, tape.failure.what)
            tape.failure = None
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.startswith("False a socket goes to the network")


# ------------------------------------------------------------------------------------------------------------------- allowing


def test_a_server_of_the_tests_own(path: Path, server: Server) -> None:
    port = address(server.url)[1]
    for allowed in (
        {"allow_loopback": True},
        {"allow_hosts": ["127.0.0.1"]},
        {"allow_hosts": [f"127.0.0.1:{port}"]},
        {"allow_hosts": [server.url]},
        {"allow_hosts": [f"localhost:{port}"]},
    ):
        with use(path, **allowed):
            by_socket(server.url)
    for forbidden in ([], ["127.0.0.1:1"], ["localhost:1"], ["127.0.0.2"], ["*.0.0.1:2"]):
        with pytest.raises(LiveConnection), use(path, allow_hosts=forbidden):
            by_socket(server.url)


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_a_server_of_the_tests_own_beside_a_recorded_one(path: Path, server: Server, library: Any) -> None:
    async def asynchronously() -> str:
        async with library.AsyncClient() as client:
            return (await client.get(server.url)).text

    with use(path, allow_loopback=True) as tape:
        assert library.get("https://api.example.com/").text == "data: recorded\n\n"
        assert library.get(server.url).text == "data: live\n\n"
        assert asyncio.run(asynchronously()) == "data: live\n\n"
    assert len(tape._takes) == 1
    other = path.with_name("other.yaml")
    with use(other, mode="all", allow_hosts=["127.0.0.1"]) as tape:
        library.get(server.url)
    assert not other.exists()
    assert not tape.used


def test_an_allowed_name_may_be_looked_up_and_its_address_connected_to(
    path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = address(server.url)[1]
    looked_up: list[str] = []

    def getaddrinfo(host: str, service: Any, *args: Any, **options: Any) -> Any:
        sys.audit("socket.getaddrinfo", host, service, 0, 0, 0)
        looked_up.append(host)
        if host == "gone.internal":
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", service or 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with use(path, allow_hosts=["*.other", "gone.internal", "db.internal"]):
        for _ in range(2):
            socket.create_connection(("db.internal", port)).close()
    assert looked_up == ["db.internal", "gone.internal", "db.internal", "db.internal", "gone.internal"]


HOSTS = {
    ("db.internal", "DB.internal.", 1): True,
    ("db.internal:5432", "db.internal", 5432): True,
    ("db.internal:5432", "db.internal", 80): False,
    ("db.internal:5432", "db.internal", None): False,
    ("*.internal", "db.internal", 1): True,
    ("*.internal", "internal", 1): False,
    ("*.internal", "a.b.internal", 1): True,
    ("https://db.internal:80/path", "db.internal", 80): True,
    ("::1", "::1", 1): True,
    ("[::1]:80", "[0:0:0:0:0:0:0:1]", 80): True,
    ("[::1]:80", "::1", 81): False,
    ("fe80::1", "fe80::1%eth0", 81): True,
    ("127.0.0.1", "::ffff:127.0.0.1", 81): True,
    ("10.0.0.1", "10.0.0.2", 81): False,
}


@pytest.mark.parametrize(("name", "host", "port"), HOSTS)
def test_which_host_is_allowed(name: str, host: str, port: int | None) -> None:
    assert Hosts([name]).allow(host, port) is HOSTS[name, host, port]


LOOPBACK = {
    "localhost": True,
    "a.localhost": True,
    "127.9.9.9": True,
    "::1": True,
    "0.0.0.0": False,
    "example.com": False,
}


@pytest.mark.parametrize("host", LOOPBACK)
def test_what_is_loopback(host: str) -> None:
    assert is_loopback(host) is LOOPBACK[host]
    assert Hosts(loopback=True).allow(host, 80) is LOOPBACK[host]


LINK_LOCAL = {
    "169.254.169.254": True,
    "[fe80::a9fe:a9fe]": True,
    "[fd00:ec2::254]": True,
    "[fd00:ec3::254]": False,
    "10.0.0.1": False,
    "example.com": False,
    "": False,
}


@pytest.mark.parametrize("host", LINK_LOCAL)
def test_what_tells_a_machine_its_credentials_is_in_no_recording(path: Path, host: str) -> None:
    assert is_link_local(host) is LINK_LOCAL[host]
    with use(path, mode="all") as tape:
        assert tape.leaves_alone(f"http://{host}/latest/api/token") is LINK_LOCAL[host]


def test_boto3_that_looks_for_credentials(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(LiveConnection, match=r"^boto3 .*: 169\.254\.169\.254 port 80\n") as caught, use(path):
        boto3.Session(region_name="us-east-1").client("bedrock-runtime")
    assert "AWS_ACCESS_KEY_ID=x" in caught.value.mend


@pytest.mark.parametrize("name", ["", "http://", "a:b", "[zz", ":80"])
def test_what_is_no_host(path: Path, name: str) -> None:
    with pytest.raises(TapeError, match="is no host"):
        Tape(path, allow_hosts=[name])


# -------------------------------------------------------------------------------------------------------------------- the hook


def test_it_is_hung_up_once() -> None:
    assert guard.install() is None
    assert guard.install.cache_info().misses == 1


def test_it_outlives_the_end_of_the_interpreter(path: Path) -> None:
    code = f"""if True:
        import socket
        from stream_cassette import use

        class Late:
            def __del__(self):
                socket.socket().connect_ex(("127.0.0.1", 9))

        late = Late()
        tape = use({str(path)!r})
        tape.__enter__()
        late.itself = late
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert "NameError" not in done.stderr
    assert "NoneType" not in done.stderr
    assert done.returncode == 0


def test_a_miss_is_of_its_kind() -> None:
    assert issubclass(LiveConnection, CassetteMiss)
