"""A reverse proxy on loopback: what any client asks of it, it asks of one upstream, through the door of the active tape, which records it."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from stream_cassette import framing
from stream_cassette.active import tapes_here
from stream_cassette.errors import CassetteMiss, MissingExtra, RecordingTooShort, TapeError
from stream_cassette.model import COMPLETE, Ending, Exchange, Headers, Request
from stream_cassette.server import Server, serve, shown
from stream_cassette.serving import in_words, refusal

if TYPE_CHECKING:
    import httpx2
    from anyio import Event
    from anyio.from_thread import BlockingPortal

# https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1, and what is about the message as this client framed it.
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
_OF_THE_REQUEST = frozenset({"host", "content-length", "expect"})

_ROOM = 65536  # bytes of a response that may wait for its client before upstream has to


@dataclass(frozen=True, slots=True)
class Passed:
    """How far a request has passed through the proxy.

    `events` and bytes (`size`) are those of the response body, `first_ms` is when its first byte came, in milliseconds since the request came.
    `ended` says in words how it ended; it is empty while it lasts.
    """

    request: Request
    status: int = 0
    events: int = 0
    size: int = 0
    first_ms: int | None = None
    ended: str = ""


Told = Callable[[Passed], None]


def _nobody(passed: Passed) -> None:
    pass


@contextmanager
def forwarding(
    upstream: str, *, told: Told = _nobody, host: str = "127.0.0.1", port: int = 0
) -> Iterator[tuple[Server, str]]:
    """The server, and its base URL with the path of `upstream`: `https://api.openai.com/v1` gives `http://127.0.0.1:PORT/v1`.

        with use("x.yaml", mode="once"), forwarding("https://api.openai.com/v1") as (server, url): ...

    Every read from upstream goes to the client at once, as a chunk of its own; headers pass both ways, but for those of one connection. What a client
    does not read is not read from upstream either, but for some 64 KiB and what the sockets hold; no other client waits for it. If the client leaves, so does the proxy (the recording has `closed`); if upstream dies, the client sees that; where upstream cannot be reached it gets status
    502. Nothing times out here: the client's patience counts. Where the tape replays, it answers in the place of upstream, and a miss has
    status 404. What this process itself says to the proxy the tape leaves alone, so that it is recorded once. `told` hears, from several threads, of
    all that happens to a request, the last time when it is over.

    Raises `TapeError` for an upstream that is no http or https URL, and `MissingExtra` without httpx2.
    """
    parts = _parts(upstream)
    try:
        import httpx2
        from anyio.from_thread import start_blocking_portal
    except ImportError as error:
        raise MissingExtra(
            f"the recording proxy needs {error.name}", mend="pip install 'pytest-stream-cassette[server]'"
        ) from error
    # However many streams are under way, one more must not wait for them.
    client = httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(client):
        there = _Upstream(portal, client, f"{parts.scheme}://{parts.netloc}")
        with serve(lambda request: _Forwarded(there, request, told), host=host, port=port) as server:
            for tape in tapes_here():
                tape.hosts = tape.hosts.also(server.url)
            yield server, server.url + parts.path.rstrip("/")


def _parts(upstream: str) -> SplitResult:
    try:
        parts = urlsplit(upstream)
    except ValueError:  # brackets that are no IPv6 address
        parts = urlsplit("")
    if parts.scheme in ("http", "https") and parts.hostname:
        return parts
    # A password can stand in it without the scheme too.
    said = shown(upstream) if "//" in upstream else shown(f"//{upstream}").removeprefix("//")
    raise TapeError(f"{said!r} is no base URL", where="--upstream", mend="write it as https://api.openai.com/v1")


@dataclass(frozen=True, slots=True)
class _Upstream:
    portal: BlockingPortal
    client: httpx2.AsyncClient
    origin: str

    def request(self, request: Request) -> httpx2.Request:
        """`request` as it is sent upstream. Not built by the client, which would add headers and cookies of its own."""
        import httpx2

        parts = urlsplit(request.url)
        url = self.origin + parts._replace(scheme="", netloc="").geturl()
        kept = _passed_on(request.headers, _OF_THE_REQUEST)
        # As bytes, because httpx2 takes text for ASCII; the server has each byte as a character.
        headers = [(name.encode(), value.encode("latin-1")) for name, value in kept]
        return httpx2.Request(request.method, url, headers=headers, content=request.body)


def _passed_on(headers: Headers, own: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    named = {name.strip().lower() for key, value in headers if key == "connection" for name in value.split(",")}
    return [(name, value) for name, value in headers if name not in _HOP_BY_HOP | own | named]


class _Queue:
    """A response on its way from the event loop to the conversation; `ready` is readable while there is something to `get`.

    Nothing here waits but `room`: all responses share the loop.
    """

    def __init__(self, portal: BlockingPortal) -> None:
        self.ready, self._bell = socket.socketpair()
        self._portal = portal
        self._lock = threading.Lock()
        self._came: deque[Any] = deque()
        self._held = 0
        self._room: Event | None = None

    def put(self, *came: Any) -> None:
        with self._lock:
            if not self._came:
                self._bell.send(b"x")
            self._came.extend(came)
            self._held += _size(came)

    async def room(self) -> None:
        """Returns when less than `_ROOM` waits to be taken."""
        import anyio

        with self._lock:
            if self._held < _ROOM:
                return
            room = self._room = anyio.Event()
        await room.wait()

    def get(self) -> Any:
        with self._lock:
            came = self._came.popleft()
            if not self._came:
                self.ready.recv(1)
            self._held -= _size((came,))
            room = self._room if self._held < _ROOM else None
            if room is not None:
                self._room = None
        if room is not None:
            self._portal.start_task_soon(room.set)
        return came

    def close(self) -> None:
        self.ready.close()
        self._bell.close()


def _size(came: tuple[Any, ...]) -> int:
    return sum(len(each) for each in came if isinstance(each, bytes))


class _Forwarded:
    """A response from upstream as a source: a task in the event loop takes it from there."""

    torn = False

    def __init__(self, upstream: _Upstream, request: Request, told: Told) -> None:
        self._queue = _Queue(upstream.portal)
        self.ready = self._queue.ready
        self._told = told
        self._passed = Passed(request)
        self._began = time.monotonic()
        self._frames = framing.Sniffer()
        self._over = threading.Event()
        self._task = upstream.portal.start_task_soon(self._take, upstream)

    # ---------------------------------------------------------------------------------------------------- in the event loop

    async def _take(self, upstream: _Upstream) -> None:
        try:
            response = await upstream.client.send(upstream.request(self._passed.request), stream=True)
            try:
                # Byte for byte: httpx2 guesses one encoding for all of them.
                headers = tuple(
                    (name.decode().lower(), value.decode(errors="surrogateescape"))
                    for name, value in response.headers.raw
                )
                self._queue.put((response.status_code, tuple(_passed_on(headers))))
                async for data in response.aiter_raw():
                    self._queue.put(data)
                    await self._queue.room()
                self._queue.put(COMPLETE)
            finally:
                await response.aclose()
        except (Exception, CassetteMiss) as error:  # noqa: BLE001 - for the conversation to tell
            self._queue.put(error)
        finally:
            self._over.set()

    # -------------------------------------------------------------------------------------------------- in the conversation

    def head(self) -> tuple[int, Headers]:
        came = self._queue.get()
        if isinstance(came, BaseException):
            said = self._excuse(came)
            self._queue.put(said.body, COMPLETE)
            came = said.status, said.headers
        status, headers = came
        self._tell(status=status)
        return status, headers

    def _excuse(self, error: BaseException) -> Exchange:
        """What is answered where upstream does not answer."""
        import httpx2

        request = self._passed.request
        if isinstance(error, CassetteMiss):
            return refusal(request, 404, "cassette_miss", str(error))
        if isinstance(error, httpx2.TransportError | httpx2.InvalidURL):
            return refusal(request, 502, "upstream_error", f"no answer from upstream: {type(error).__name__}: {error}")
        raise error

    def pause(self) -> float:
        return 0

    def read(self) -> bytes | Ending:
        match self._queue.get():
            case bytes() as data:
                self._count(data)
                return data
            case Ending() as ending:
                self._tell(ended=ending.kind)
                return ending
            case error:
                ended = _ending(error)
                self._tell(ended=f"{ended.kind}: {type(error).__name__}" if ended else type(error).__name__)
                if ended is None:
                    raise error
                return ended

    def _count(self, data: bytes) -> None:
        events = sum(frame.data is not None for frame in self._frames.feed(data))
        passed = self._passed
        first = round((time.monotonic() - self._began) * 1000) if passed.first_ms is None else passed.first_ms
        self._tell(events=passed.events + events, size=passed.size + len(data), first_ms=first)

    def _tell(self, **changes: Any) -> None:
        self._passed = replace(self._passed, **changes)
        self._told(self._passed)

    def close(self, failure: Exception | None = None) -> None:
        self._task.cancel()
        self._over.wait()
        self._queue.close()
        if failure is not None:
            self._tell(status=500, ended=in_words(failure))
        elif not self._passed.ended:
            self._tell(ended="closed by the client")


def _ending(error: BaseException) -> Ending | None:
    """How the body ends for the client where that from upstream, or the recording that plays in its place, ends with `error`; None for a fault."""
    import httpx2

    if isinstance(error, httpx2.TimeoutException):
        return Ending("stalled")
    if isinstance(error, httpx2.ProtocolError | RecordingTooShort):
        return Ending("disconnected", "protocol")
    if isinstance(error, httpx2.NetworkError):
        return Ending("disconnected", "read")
    return None
