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
from typing import Any

from stream_cassette.errors import MissingExtra
from stream_cassette.model import Exchange, Request

Answer = Callable[[Request], Exchange]

# What the server says itself, about its own connection and chunks.
_OWN_HEADERS = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})

_RECEIVE = 65536


class Server:
    """A running server: `url` (`http://127.0.0.1:port`, no slash at the end) and, as they come, the `requests` it has seen."""

    def __init__(self, answer: Answer, paced: bool, host: str) -> None:
        self.failure: BaseException | None = None
        """The first exception of `answer`, or of sending what it gave."""
        self._answer = answer
        self._paced = paced
        self._requests: list[Request] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._listener = socket.create_server((host, 0))
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

    def answer(self, request: Request) -> Exchange | str:
        """What to answer, or what went wrong in words."""
        self._requests.append(request)
        try:
            return self._answer(request)
        except BaseException as error:  # noqa: BLE001 - not lost, see `fail`
            self.fail(error)
            return f"{type(error).__name__}: {error}"

    def fail(self, error: BaseException) -> None:
        """Keeps the first failure; it is raised where the server ends, because a thread has nobody to raise it to."""
        self.failure = self.failure or error

    def wait_until(self, moment: float) -> None:
        """Returns at `moment` (as of `time.monotonic`), at once if unpaced. Raises `ConnectionAbortedError` when the server stops."""
        if self._stopping.wait(max(0.0, moment - time.monotonic()) if self._paced else 0):
            raise ConnectionAbortedError("the server stops")

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


class _Connection:
    """One client: requests in, exchanges out, until either side has had enough."""

    def __init__(self, server: Server, client: socket.socket) -> None:
        self._server = server
        self._client = client
        self._h11, self._wire = _new_wire()

    def run(self) -> None:
        h11 = self._h11
        while True:
            try:
                request = self._request()
            except h11.RemoteProtocolError as error:
                self._say(f"Bad request: {error}", 400)
                return
            if request is None:
                return
            match self._server.answer(request):
                case Exchange() as exchange:
                    if not self._play(exchange, bodiless=request.method == "HEAD" or exchange.status in (204, 304)):
                        return
                case problem:
                    self._say(problem, 500)
            if self._wire.our_state is not h11.DONE:
                return
            self._wire.start_next_cycle()

    def _request(self) -> Request | None:
        head, body = None, []
        while True:
            event = self._event()
            if isinstance(event, self._h11.Request):
                head = event
            elif isinstance(event, self._h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, self._h11.ConnectionClosed):
                return None
            else:
                assert head is not None  # the end of a message, which h11 gives after a request only
                return self._as_request(head, b"".join(body))

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

    def _play(self, exchange: Exchange, *, bodiless: bool) -> bool:
        """Sends the exchange as it was recorded; whether the connection can be used on."""
        own = _OWN_HEADERS - {"content-length"} if bodiless else _OWN_HEADERS
        headers = [(name, value.encode()) for name, value in exchange.headers if name not in own]
        self._head(exchange.status, headers)
        began = time.monotonic()
        for read in () if bodiless else exchange.reads:
            self._server.wait_until(began + read.at_ms / 1000)
            self._send(self._h11.Data(data=read.data))
        if exchange.ending.kind in ("complete", "closed"):
            self._send(self._h11.EndOfMessage())
            return True
        if exchange.ending.error == "read":
            # Closing without lingering resets the connection.
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # A stall lasts until the client leaves, or `stop` shuts the socket down.
        while exchange.ending.kind == "stalled" and self._client.recv(_RECEIVE):
            pass
        return False

    def _say(self, text: str, status: int) -> None:
        self._head(status, [("content-type", b"text/plain; charset=utf-8")])
        self._send(self._h11.Data(data=text.encode()))
        self._send(self._h11.EndOfMessage())

    def _head(self, status: int, headers: list[tuple[str, bytes]]) -> None:
        self._send(self._h11.Response(status_code=status, headers=headers, reason=responses.get(status, "").encode()))

    def _send(self, event: Any) -> None:
        self._client.sendall(self._wire.send(event))


def _new_wire() -> tuple[Any, Any]:
    import h11

    return h11, h11.Connection(h11.SERVER)


@contextmanager
def serve(answer: Answer, *, paced: bool = True, host: str = "127.0.0.1") -> Iterator[Server]:
    """Answers HTTP/1.1 requests on a free port of `host` with the exchanges that `answer` gives for them.

    Every read goes out as one chunk, when `paced` at its `at_ms` after the headers, else as fast as the client takes it; `reads` is iterated while it
    is sent. `disconnected` breaks the connection off (`read`: reset, `protocol`: closed in the middle of the body), `stalled` sends nothing more and
    keeps it open, `closed` ends like `complete`. `answer` runs in a thread for each connection; if it raises, the client gets status 500 with the
    text, and the first such exception is raised again at the end of the block. Raises `MissingExtra` without h11.
    """
    try:
        _new_wire()
    except ImportError as error:
        raise MissingExtra(
            "the loopback server needs h11", mend="pip install 'pytest-stream-cassette[server]'"
        ) from error
    server = Server(answer, paced, host)
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
