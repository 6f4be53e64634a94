"""Exchanges on and off a tape, and servers of which every byte is told: what the tests of urllib3's door share."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from stream_cassette.cassette import load, update
from stream_cassette.clients import use
from stream_cassette.model import COMPLETE, Cassette, Ending, Exchange, Interaction, Read, Request
from stream_cassette.server import serve

SSE = (("content-type", "text/event-stream"),)
CLOSED = Ending("closed")
PIECES = (b"data: one\n", b"\nda", b"ta: tw\xc3", b"\xb6\n\n")
BODY = b"".join(PIECES)
NOWHERE = "http://127.0.0.1:9"


def exchange(*reads: bytes, status: int = 200, headers: Any = SSE, ending: Ending = COMPLETE) -> Exchange:
    return answered("http://x/", *(Read(0, read) for read in reads), status=status, headers=headers, ending=ending)


def answered(url: str, *reads: Read, status: int = 200, headers: Any = SSE, ending: Ending = COMPLETE) -> Exchange:
    return Exchange(Request("GET", url), status, headers, reads, ending)


# ---------------------------------------------------------------------------------------------------------------------- tapes


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
    with use(path):
        return live, client(url)


def by_hand(path: Path, *exchanges: Exchange) -> None:
    interactions = tuple(Interaction(each) for each in exchanges)
    update(path, lambda cassette: Cassette(interactions, "2026-11-30T00:00:00Z", "hand"))


def recorded(path: Path) -> Exchange:
    """The last one."""
    return load(path).interactions[-1].exchange


def reads(path: Path) -> list[bytes]:
    return [read.data for read in recorded(path).reads]


# -------------------------------------------------------------------------------------------------------------------- servers


@contextmanager
def listening(converse: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """Has `converse` talk to every client, each in a thread, until the event is set; gives host and port."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopping = threading.Event()
    threads: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):  # the end
            while True:
                client, _ = listener.accept()
                threads.append(threading.Thread(target=converse, args=(client, stopping)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield "{}:{}".format(*listener.getsockname())
    finally:
        stopping.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()


def head_of(client: socket.socket) -> bytes:
    """What the client asks, up to the body."""
    asked = b""
    while b"\r\n\r\n" not in asked:
        asked += client.recv(65536)
    return asked


def scripted(*sends: bytes, then: str = "close", secure: ssl.SSLContext | None = None, gap: float = 0) -> Any:
    """A server that says `sends` to every request, `gap` seconds apart, and then closes, resets or holds the connection."""

    def converse(client: socket.socket, stopping: threading.Event) -> None:
        with suppress(OSError), closing(secure.wrap_socket(client, server_side=True) if secure else client) as wire:
            head_of(wire)
            for send in sends:
                wire.sendall(send)
                stopping.wait(gap)
            if then == "reset":
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif then == "hold":
                stopping.wait(30)

    return listening(converse)


def head(*headers: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", "content-type: text/event-stream", *headers, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNKED = head("transfer-encoding: chunked")
