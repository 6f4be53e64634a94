"""A response that comes when the test lets it: its head, then read by read."""

from __future__ import annotations

import socket
import threading

from stream_cassette.model import Ending, Headers


class Gated:
    """A source (see `stream_cassette.server`) with the response headers `headers`."""

    torn = False

    def __init__(self, headers: Headers) -> None:
        self.ready, self._bell = socket.socketpair()
        self._headers = headers
        self._given: list[bytes | Ending] = []
        self.closed = threading.Event()

    def answer(self) -> None:
        """Lets the head come."""
        self._bell.send(b"x")

    def give(self, *given: bytes | Ending) -> None:
        """Lets these reads come, or the end."""
        self._given += given
        self._bell.send(b"x" * len(given))

    def head(self) -> tuple[int, Headers]:
        self.ready.recv(1)
        return 200, self._headers

    def pause(self) -> float:
        return 0

    def read(self) -> bytes | Ending:
        self.ready.recv(1)
        return self._given.pop(0)

    def close(self, failure: Exception | None = None) -> None:
        self.ready.close()
        self._bell.close()
        self.closed.set()
