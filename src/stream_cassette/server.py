"""Exchanges behind a loopback HTTP/1.1 server, for any client in any language: every recorded read is one chunk of the body, sent by itself."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import responses
from typing import Any, Protocol

from stream_cassette.errors import MissingExtra, TapeError
from stream_cassette.model import COMPLETE, Ending, Exchange, Headers, Read, Request
from stream_cassette.redact import scrub_request


class Source(Protocol):
    """A response while it is sent. The server asks for the `head`, then in turn for `pause` and `read`, and at the end, however that came, calls `close`."""

    @property
    def ready(self) -> socket.socket | None:
        """Readable as soon as `head` and `read` need not wait; None where they never do."""

    @property
    def torn(self) -> bool:
        """Whether the connection dies within the chunk that carries the last `read`."""

    def head(self) -> tuple[int, Headers]:
        """Status and headers."""

    def pause(self) -> float:
        """How many seconds to wait before `read`."""

    def read(self) -> bytes | Ending:
        """What to send next as one chunk (never empty), or how the body ends."""

    def close(self, failure: Exception | None = None) -> None:
        """Everything is sent, or the client has left, or there was no head to send because of `failure`."""


Answer = Callable[[Request], Exchange | Source]

# What the server says itself, about its own connection and chunks.
_OWN_HEADERS = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})

_RECEIVE = 65536


def shown(url: str) -> str:
    """A URL as a person may read it on a terminal or in a log: without what a cassette may not hold."""
    return scrub_request(Request("GET", url)).url


class Server:
    """A running server: `url` (`http://127.0.0.1:port`, no slash at the end) and, as they come, the `requests` it has seen."""

    def __init__(self, answer: Answer, paced: bool, listener: socket.socket) -> None:
        self.failure: BaseException | None = None
        """The first exception of `answer`, or of sending what it gave."""
        self._answer = answer
        self.paced = paced
        self._requests: list[Request] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._busy = 0
        self._over = threading.Condition()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._listener = listener
        # Closing a socket does not wake a thread that waits in accept; and a connection is what a tape that replays may forbid.
        self._waker, self._wakes = socket.socketpair()
        self.url = "http://{}:{}".format(*self._listener.getsockname()[:2])
        self._acceptor = threading.Thread(target=self._accept, name=f"stream-cassette {self.url}", daemon=True)
        self._acceptor.start()

    @property
    def requests(self) -> tuple[Request, ...]:
        return tuple(self._requests)

    def _accept(self) -> None:
        waiting = selectors.DefaultSelector()
        waiting.register(self._listener, selectors.EVENT_READ)
        waiting.register(self._wakes, selectors.EVENT_READ)
        while True:
            waiting.select()
            if self._stopping.is_set():
                waiting.close()
                return
            client, _ = self._listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(
                target=self._converse, args=(client,), name=f"{self._acceptor.name} client", daemon=True
            )
            with self._lock:
                self._open[client] = thread
            thread.start()

    def _converse(self, client: socket.socket) -> None:
        try:
            _Connection(self, client).run()
        # The client left, or `stop` ended the conversation.
        except OSError:
            pass
        except Exception as error:  # noqa: BLE001 - not lost, see `fail`
            self.fail(error)
        finally:
            with self._lock:
                del self._open[client]
                client.close()

    def answer(self, request: Request) -> Exchange | Source | str:
        """What to answer, or what went wrong in words."""
        self._requests.append(request)
        try:
            return self._answer(request)
        except BaseException as error:  # noqa: BLE001 - not lost, see `fail`
            return self.failed(error)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While a request is answered."""
        with self._over:
            self._busy += 1
        try:
            yield
        finally:
            with self._over:
                self._busy -= 1
                self._over.notify_all()

    def settle(self, seconds: float = 5.0) -> bool:
        """Returns when no request is being answered, at the latest after `seconds`; whether that is so. A client that left is noticed a moment later."""
        with self._over:
            return self._over.wait_for(lambda: not self._busy, seconds)

    def failed(self, error: BaseException) -> str:
        """Keeps the failure (see `fail`), and what the client is told of it."""
        self.fail(error)
        return f"{type(error).__name__}: {error}"

    def fail(self, error: BaseException) -> None:
        """Keeps the first failure; it is raised where the server ends, because a thread has nobody to raise it to."""
        self.failure = self.failure or error

    def stop(self) -> None:
        """Ends every conversation and returns when all threads have ended."""
        self._stopping.set()
        self._waker.send(b"x")
        self._acceptor.join()
        for each in (self._listener, self._waker, self._wakes):
            each.close()
        with self._lock:
            threads = list(self._open.values())
            for client in self._open:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


class _Exchanged:
    """An exchange as a source. Its reads are iterated while they are sent."""

    ready = None

    def __init__(self, exchange: Exchange, paced: bool) -> None:
        self._exchange = exchange
        self._paced = paced
        self._reads = iter(exchange.reads)
        self._given = 0
        self._next: Read | None = None
        self._began = 0.0

    def head(self) -> tuple[int, Headers]:
        self._began = time.monotonic()
        return self._exchange.status, self._exchange.headers

    def pause(self) -> float:
        self._next = next(self._reads, None)
        if self._next is None or not self._paced:
            return 0.0
        return self._began + self._next.at_ms / 1000 - time.monotonic()

    def read(self) -> bytes | Ending:
        if self._next is None:
            return COMPLETE if self._exchange.ending.kind == "closed" else self._exchange.ending
        self._given += 1
        return self._next.data

    @property
    def torn(self) -> bool:
        return self._exchange.ending.error == "chunk" and self._given == len(self._exchange.reads)

    def close(self, failure: Exception | None = None) -> None:
        pass


class _Connection:
    """One client: requests in, responses out, until either side has had enough."""

    def __init__(self, server: Server, client: socket.socket) -> None:
        self._server = server
        self._client = client
        self._h11, self._wire = _new_wire()
        self._chunked = False

    def run(self) -> None:
        h11 = self._h11
        while True:
            try:
                request = self._request()
            except h11.RemoteProtocolError as error:
                self._say(f"Bad request: {error}", error.error_status_hint)
                return
            if request is None:
                return
            with self._server.answering():
                if not self._answered(request) or self._wire.our_state is not h11.DONE:
                    return
            self._wire.start_next_cycle()

    def _answered(self, request: Request) -> bool:
        """Answers `request`; whether the connection can be used on."""
        if request.method == "CONNECT":
            self._say(f"this is a server and no proxy: give the client {self._server.url} as its base URL", 501)
            return True
        answer = self._server.answer(request)
        if isinstance(answer, str):
            self._say(answer, 500, request.method)
            return True
        source = _Exchanged(answer, self._server.paced) if isinstance(answer, Exchange) else answer
        failure: Exception | None = None
        try:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._client, selectors.EVENT_READ)
                if source.ready is not None:
                    waiting.register(source.ready, selectors.EVENT_READ)
                self._until(waiting, source.ready, 0)
                try:
                    head = self._head(source, request)
                except Exception as error:  # noqa: BLE001 - not lost, see `Server.fail`
                    failure = error
                    self._say(self._server.failed(error), 500, request.method)
                    return True
                self._send(head)
                ending = self._play(waiting, source, bodiless=_is_bodiless(request.method, head.status_code))
        finally:
            source.close(failure)
        return self._ended(ending)

    def _request(self) -> Request | None:
        head, body = None, []
        while True:
            event = self._event()
            if isinstance(event, self._h11.Request):
                if event.http_version > b"1.1":
                    raise self._too_new()
                head = event
            elif isinstance(event, self._h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, self._h11.ConnectionClosed):
                return None
            else:
                assert head is not None  # the end of a message, which h11 gives after a request only
                return self._as_request(head, b"".join(body))

    def _too_new(self) -> Exception:
        """A client that begins with HTTP/2 says what h11 takes for a request of that version (https://www.rfc-editor.org/rfc/rfc9113#section-3.4)."""
        what = "a client speaks HTTP/2, and the server on loopback only HTTP/1.1"
        mend = "have it speak HTTP/1.1; the AWS SDK for JavaScript does with requestHandler: new NodeHttpHandler()"
        self._server.fail(TapeError(what, mend=mend))
        refusal: Exception = self._h11.RemoteProtocolError(what, 505)
        return refusal

    def _event(self) -> Any:
        while (event := self._wire.next_event()) is self._h11.NEED_DATA:
            if self._wire.they_are_waiting_for_100_continue:
                self._send(self._h11.InformationalResponse(status_code=100, headers=[]))
            self._wire.receive_data(self._client.recv(_RECEIVE))
        return event

    def _as_request(self, head: Any, body: bytes) -> Request:
        target = head.target.decode("latin-1")
        url = self._server.url + target if target.startswith("/") else target
        return Request(
            head.method.decode(),
            url,
            tuple((name.decode(), value.decode("latin-1")) for name, value in head.headers),
            body,
        )

    def _head(self, source: Source, request: Request) -> Any:
        """The head of the response as h11 has it. Raises `TapeError` for one that HTTP cannot carry."""
        status, headers = source.head()
        own = _OWN_HEADERS - {"content-length"} if _is_bodiless(request.method, status) else _OWN_HEADERS
        kept = [(name, value) for name, value in headers if name not in own]
        try:
            return self._response(status, kept)
        except (self._h11.LocalProtocolError, UnicodeEncodeError) as error:
            raise TapeError(
                f"HTTP cannot carry {self._culprit(status, kept)}",
                where=f"the answer to {request.method} {shown(request.url)}",
                mend="a final status is 200 to 999, the name of a header a word in ASCII, its value one line without space around it; put that "
                "right where the answer comes from",
            ) from error

    def _response(self, status: int, headers: list[tuple[str, str]]) -> Any:
        said = [(name, value.encode(errors="surrogateescape")) for name, value in headers]
        return self._h11.Response(status_code=status, headers=said, reason=responses.get(status, "").encode())

    def _culprit(self, status: int, headers: list[tuple[str, str]]) -> str:
        """What it is in this head that h11 does not take: of the headers the first with which it no longer does."""
        count = next(count for count in range(len(headers) + 1) if not self._fits(status, headers[:count]))
        return f"the header {headers[count - 1][0]!r}" if count else f"the status {status}"

    def _fits(self, status: int, headers: list[tuple[str, str]]) -> bool:
        try:
            self._response(status, headers)
        except (self._h11.LocalProtocolError, UnicodeEncodeError):
            return False
        return True

    def _play(self, waiting: selectors.BaseSelector, source: Source, *, bodiless: bool) -> Ending:
        """Sends the body that `source` gives, and returns how it ends."""
        self._chunked = not bodiless and self._wire.their_http_version != b"1.0"
        while True:
            self._until(waiting, source.ready, source.pause())
            match source.read():
                case Ending() as ending:
                    return ending
                case data if self._chunked and source.torn:
                    self._client.sendall(b"%x\r\n%b" % (len(data) + 1, data))
                    self._chunked = False
                case data if not bodiless:
                    self._send(self._h11.Data(data=data))

    def _until(self, waiting: selectors.BaseSelector, ready: socket.socket | None, seconds: float) -> None:
        """Returns when `ready` is, without it after `seconds`. Raises `ConnectionAbortedError` as soon as the client leaves."""
        moment = time.monotonic() + seconds
        while True:
            left = None if ready else max(0.0, moment - time.monotonic())
            came = [key.fileobj for key, _ in waiting.select(left)]
            if self._client in came:
                self._hear()
            if ready in came or not came:
                return

    def _hear(self) -> None:
        """Takes in what the client says meanwhile: its next request, or that it has left."""
        data = self._client.recv(_RECEIVE)
        if not data:
            raise ConnectionAbortedError("the client left")
        self._wire.receive_data(data)

    def _ended(self, ending: Ending) -> bool:
        """Ends the response; whether the connection can be used on."""
        if ending == COMPLETE:
            self._send(self._h11.EndOfMessage())
            return True
        if ending.error == "chunk" and self._chunked:
            self._client.sendall(b"1\r\n")
        if ending.error == "read":
            # Closing without lingering resets the connection.
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # A stall lasts until the client leaves, or `stop` shuts the socket down.
        while ending.kind == "stalled":
            self._hear()
        return False

    def _say(self, text: str, status: int, method: str = "GET") -> None:
        self._send(self._response(status, [("content-type", "text/plain; charset=utf-8")]))
        if not _is_bodiless(method, status):
            self._send(self._h11.Data(data=text.encode()))
        self._send(self._h11.EndOfMessage())

    def _send(self, event: Any) -> None:
        self._client.sendall(self._wire.send(event))


def _is_bodiless(method: str, status: int) -> bool:
    return method == "HEAD" or status in (204, 304)


def _new_wire() -> tuple[Any, Any]:
    import h11

    return h11, h11.Connection(h11.SERVER)


@contextmanager
def serve(answer: Answer, *, paced: bool = True, host: str = "127.0.0.1", port: int = 0) -> Iterator[Server]:
    """Answers HTTP/1.1 requests on `port` (0: a free one) of `host` with the exchanges that `answer` gives for them, or with a `Source`.

    Every read goes out as one chunk, when `paced` at its `at_ms` after the headers, else as fast as the client takes it; `reads` is iterated while it
    is sent. A client that does not read keeps its own answer waiting, and no other. `disconnected` breaks the connection off (`read`: reset, `protocol`: closed in the middle of the body, `chunk`: within its last chunk,
    which is announced longer), `stalled` sends nothing more and keeps it open, `closed` ends like `complete`. A client that leaves is noticed before
    the next read is sent. `answer` runs in a thread for each connection; if it raises, or gives a status or a header that HTTP cannot carry, the
    client gets status 500 with the text, and the first such exception is raised again at the end of the block. Raises `MissingExtra` without h11, and `TapeError` where it cannot listen.
    """
    try:
        _new_wire()
    except ImportError as error:
        raise MissingExtra(
            "the loopback server needs h11", mend="pip install 'pytest-stream-cassette[server]'"
        ) from error
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise TapeError(f"cannot listen on {host} port {port}: {error}", mend="name another host or port") from error
    server = Server(answer, paced, listener)
    try:
        try:
            yield server
        finally:
            server.stop()
    except Exception as original:
        if server.failure is None:
            raise
        raise server.failure from original
    if server.failure is not None:
        raise server.failure
