"""The door of urllib3 2, which requests and, through botocore, boto3 send their requests through.

It stands where one request is made over one connection, so the pool, retries and redirects stay urllib3's own. Its own parser reads what is recorded and
what is replayed alike, so every way to read a response behaves as it does live: a recording taps the file of the socket, a replay stands in for it.
"""

from __future__ import annotations

import errno
import functools
import io
import re
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from stream_cassette.active import active_tape
from stream_cassette.clients.doors import CLOSED, Patch, headers_of
from stream_cassette.errors import TapeError
from stream_cassette.headers import separated
from stream_cassette.model import COMPLETE, Ending, Exchange, Headers, Request
from stream_cassette.playing import Player
from stream_cassette.recording import Recorder
from stream_cassette.tape import Tape

# What is being sent has been taken already: a patch further in, below somebody else's, lets it pass.
_taken: ContextVar[bool] = ContextVar("stream_cassette_urllib3_taken", default=False)

# More than the network gives at once.
_MOST = 65536


def door(library: Any) -> Sequence[Patch]:
    """Where urllib3 makes one request over one connection.

    urllib3 1, which makes its requests in another way, is let be; the guard sees it.
    """
    if library.__version__.startswith("1."):
        return ()
    pools = library.connectionpool
    return (
        Patch(library, pools.HTTPConnectionPool, "_make_request", _maker),
        Patch(library, pools.HTTPSConnectionPool, "_prepare_proxy", _tunneller),
    )


def _maker(library: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _make_request(
        self: Any, conn: Any, method: str, url: str, body: Any = None, headers: Any = None, **options: Any
    ) -> Any:
        __tracebackhide__ = True
        tape = _tape(library, self, url)
        if tape is None:
            return original(self, conn, method, url, body=body, headers=headers, **options)
        body, content = _body(library, conn, method, body)
        headers = {} if headers is None else headers
        take = tape.open(Request(method.upper(), _address(library, self, url), _headers(headers), content))
        if isinstance(take, Player):
            conn = _connection(library, self, take)
            try:
                with _taking():
                    return original(self, conn, method, url, body=body, headers=headers, **options)
            except BaseException:
                take.close()  # nobody got the response
                raise

        def live(**more: Any) -> Any:
            with _taking():
                _tunnel(library, self, conn)
                return original(self, conn, method, url, body=body, headers=_sent(headers, url), **more)

        return _recorded(tape, take, live, **options)

    return _make_request


def _tunneller(library: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _prepare_proxy(self: Any, conn: Any) -> None:
        """urllib3 asks for it before it makes a request; `_make_request` does, too, once it is known that it goes to the network."""
        __tracebackhide__ = True
        if _tape(library, self, "/") is None:
            original(self, conn)

    return _prepare_proxy


def _tape(library: Any, pool: Any, url: str) -> Tape | None:
    """The tape whose business a request is, if it is any."""
    __tracebackhide__ = True
    tape = None if _taken.get() else active_tape()
    return None if tape is None or tape.leaves_alone(_address(library, pool, url)) else tape


@contextmanager
def _taking() -> Iterator[None]:
    token = _taken.set(True)
    try:
        yield
    finally:
        _taken.reset(token)


# ----------------------------------------------------------------------------------------------------------------- the request


def _address(library: Any, pool: Any, url: str) -> str:
    """The absolute URL; what a proxy is asked to forward has it already."""
    scheme, host, port, target = pool.scheme, pool.host, pool.port, url
    if not url.startswith("/"):
        parts = library.util.parse_url(url)
        scheme, host, port, target = parts.scheme, parts.host, parts.port, parts.request_uri
    name = f"[{host}]" if ":" in host and not host.startswith("[") else host
    usual = port in (None, library.connection.port_by_scheme.get(scheme))
    return f"{scheme}://{name}{'' if usual else f':{port}'}{target}"


def _headers(headers: Mapping[Any, Any]) -> Headers:
    return separated(tuple((_text(name).lower(), _text(value)) for name, value in headers.items()))


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _body(library: Any, conn: Any, method: str, body: Any) -> tuple[Any, bytes]:
    """The body to send, framed as it would have been, and what is in it: files and iterables can be read only once."""
    chunks, length = library.util.request.body_to_chunks(body, method=method, blocksize=conn.blocksize)
    if chunks is None:
        return body, b""
    pieces = tuple(piece.encode() if isinstance(piece, str) else piece for piece in chunks)
    return body if length is not None else pieces, b"".join(pieces)


def _sent(headers: Any, url: str) -> Any:
    """The headers to send while recording: they ask for a body which a person can read in the cassette, unless that would break a signature."""
    asking = [name for name in headers if _text(name).lower() == "accept-encoding"]
    if not asking or "accept-encoding" in _signed(headers, url):
        return headers
    plain = headers.copy()
    for name in asking:
        plain[name] = "identity"
    return plain


def _signed(headers: Mapping[Any, Any], url: str) -> list[str]:
    """The headers that AWS's signature (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html) covers, in a header or in the query."""
    said = [value for name, value in _headers(headers) if name == "authorization"]
    found = re.search(r"SignedHeaders=([^,\s&]*)", unquote(" ".join([*said, url])))
    return found[1].split(";") if found else []


# --------------------------------------------------------------------------------------------------------------------- bytes


class _Wire(io.RawIOBase):
    """The file of a socket, of which one read gives one piece of the wire and never more, so that nobody reads on without wanting to."""

    def __init__(self) -> None:
        self._rest = b""

    @abstractmethod
    def piece(self) -> bytes:
        """The next piece; empty at the end."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = self.piece()
        given, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)


# ----------------------------------------------------------------------------------------------------------------- recording


def _recorded(
    tape: Tape,
    take: Recorder,
    live: Callable[..., Any],
    *,
    response_conn: Any = None,
    preload_content: bool = True,
    decode_content: bool = True,
    **options: Any,
) -> Any:
    """What `live` gives. As in urllib3, a response that is loaded at once gets to know its connection only after that."""
    __tracebackhide__ = True
    try:
        response = live(preload_content=False, decode_content=decode_content, **options)
    except BaseException as error:
        take.fail(error)
        raise
    http: Any = getattr(response, "_fp", None)
    if not hasattr(http, "fp"):
        unreadable = TapeError(
            f"what urllib3 got from {take.request.url} cannot be recorded read by read: it did not come over HTTP/1.1 (a {type(response).__name__})",
            where=str(tape.path),
            mend="record without urllib3.http2.inject_into_urllib3()",
        )
        tape.note(unreadable)
        raise unreadable
    take.start(response.status, _headers(response.headers))
    # http.client says 0 of what has no body, whatever its headers say.
    framing = _Chunked() if response.chunked and http.length != 0 else _Plain(http.length)
    http.fp = io.BufferedReader(_Tap(http.fp, framing, take), _MOST)
    if preload_content:
        response._body = response.read(decode_content=decode_content)
    response._connection = response_conn
    return response


def _tunnel(library: Any, pool: Any, conn: Any) -> None:
    """What urllib3 does before it makes a request through a proxy, as it does it."""
    required = library.util.proxy.connection_requires_http_tunnel(pool.proxy, pool.proxy_config, pool.scheme)
    if required and conn.is_closed:
        try:
            pool._prepare_proxy(conn)
        except OSError as error:
            pool._raise_timeout(err=error, url=pool.proxy.url, timeout_value=conn.timeout)
            raise


# A framing cuts what comes from the network where a reader may stop: into pieces of the wire, each with what of the body is in it. `ending` is how
# the body ended, as far as that is known by now; `broken_off` what it means if nothing more comes.


@dataclass(slots=True)
class _Plain:
    """A body of which `left` bytes are to come, or (None) one that lasts until the server closes the connection."""

    left: int | None

    @property
    def ending(self) -> Ending | None:
        return COMPLETE if self.left == 0 else None

    @property
    def broken_off(self) -> Ending:
        return COMPLETE if self.left is None else Ending("disconnected", "protocol")

    def cut(self, wire: bytes) -> list[tuple[bytes, bytes]]:
        data = wire[: self.left]
        if self.left is not None:
            self.left -= len(data)
        return [(wire, data)]


@dataclass(slots=True)
class _Chunked:
    """A body in chunks. A piece is what came of one of them: the line with its size, its data, and the line end after that.

    `left` bytes of the data of a chunk of `size` are to come, then a line as `expected`, of which `line` came already.
    """

    size: int = 0
    left: int = 0
    expected: Literal["size", "end", "trailer"] = "size"
    line: bytes = b""
    ending: Ending | None = None

    @property
    def broken_off(self) -> Ending:
        if self.expected == "trailer":
            return COMPLETE  # urllib3 does without the last line end
        within = self.expected == "end" and self.left < self.size
        return Ending("disconnected", "chunk" if within else "protocol")

    def cut(self, wire: bytes) -> list[tuple[bytes, bytes]]:
        pieces = []
        begin, at, data = 0, 0, b""
        while at < len(wire) and self.ending is None:
            if self.left:
                data = wire[at : at + self.left]
                at += len(data)
                self.left -= len(data)
                continue
            if data and self.expected == "size":
                pieces.append((wire[begin:at], data))
                begin, data = at, b""
            end = wire.find(b"\n", at) + 1 or len(wire)
            self.line += wire[at:end]
            at = end
            if self.line.endswith(b"\n"):
                self._take_line()
        return [*pieces, (wire[begin:], data)]

    def _take_line(self) -> None:
        line, self.line = self.line.strip(), b""
        if self.expected == "end":
            self.expected = "size"
        elif self.expected == "trailer":
            self.ending = self.ending if line else COMPLETE
        else:
            self._take_size(line.partition(b";")[0])

    def _take_size(self, size: bytes) -> None:
        if not re.fullmatch(rb"[0-9a-fA-F]+", size.strip()):
            # The reader will find out itself when it comes to it.
            self.ending = Ending("disconnected", "protocol")
            return
        self.size = self.left = int(size, 16)
        self.expected = "end" if self.size else "trailer"


class _Tap(_Wire):
    """The file of a live socket, whose reads go to `recorder` when the reader takes them."""

    def __init__(self, inner: Any, framing: _Plain | _Chunked, recorder: Recorder) -> None:
        super().__init__()
        self._inner = inner
        self._framing = framing
        self._recorder = recorder
        self._pieces: deque[tuple[bytes, bytes]] = deque()
        self._look_for_end()

    def fileno(self) -> int:
        number: int = self._inner.fileno()
        return number

    def piece(self) -> bytes:
        if not self._pieces:
            wire = self._network()
            if not wire:
                self._recorder.end(self._framing.broken_off)
                return wire
            self._pieces.extend(self._framing.cut(wire))
        wire, data = self._pieces.popleft()
        self._recorder.read(data)
        self._look_for_end()
        return wire

    def _network(self) -> bytes:
        try:
            wire: bytes = self._inner.read1(_MOST)
        except TimeoutError:
            self._recorder.end(Ending("stalled"))
            raise
        except OSError:
            self._recorder.end(Ending("disconnected", "read"))
            raise
        return wire

    def _look_for_end(self) -> None:
        if self._framing.ending is not None and not self._pieces:
            self._recorder.end(self._framing.ending)

    def close(self) -> None:
        self._recorder.end(CLOSED)
        self._inner.close()
        super().close()


# ------------------------------------------------------------------------------------------------------------------- replaying


def _connection(library: Any, pool: Any, player: Player) -> Any:
    """A connection for this one response. The pool does not get to know it, and gets back the one that it gave."""
    connection = library.connection.HTTPConnection(pool.host, pool.port)
    connection.sock = _Socket(player)
    connection.is_verified = True  # there is nobody to warn of
    return connection


class _Socket:
    """As much of a socket as http.client asks for: it swallows the request, and its file has the recorded response."""

    def __init__(self, player: Player) -> None:
        self.patience: float | None = None
        """The client's read timeout in seconds."""
        self.shut = threading.Event()
        self._player = player

    def settimeout(self, seconds: float | None) -> None:
        self.patience = seconds

    def sendall(self, data: Any) -> None:
        pass

    def makefile(self, mode: str) -> io.BufferedReader:
        # Large enough for every piece, so that it is got in one go.
        longest = max((len(read.data) for read in self._player.exchange.reads), default=0)
        return io.BufferedReader(_Played(self._player, self), _MOST + longest)

    def shutdown(self, how: int) -> None:
        self.shut.set()

    def close(self) -> None:
        """The file lives on, as that of any socket does."""


class _Played(_Wire):
    """A recorded response as a server sends it: every read as a chunk, or as it is where there is a content length."""

    def __init__(self, player: Player, socket: _Socket) -> None:
        super().__init__()
        self._player = player
        self._socket = socket
        self._exchange = player.exchange
        self._reads_left = len(self._exchange.reads)
        headers = {name: value for name, value in headers_of(self._exchange) if name == "content-length"}
        bodiless = self._exchange.request.method == "HEAD" or self._exchange.status in (204, 304)
        self._left = 0 if bodiless else int(headers["content-length"]) if headers else None
        self._rest = _head(self._exchange, chunked=self._left is None)
        self._look_for_end()

    def piece(self) -> bytes:
        if self._socket.shut.wait(self._player.pause(self._socket.patience)):
            return b""
        match self._player.read():
            case Ending() as ending:
                return self._end(ending)
            case data:
                self._reads_left -= 1
                return self._chunk(data) if self._left is None else self._part(data, self._left)

    def _chunk(self, data: bytes) -> bytes:
        if self._exchange.ending.error == "chunk" and not self._reads_left:
            return b"%x\r\n%b" % (len(data) + 1, data)
        return b"%x\r\n%b\r\n" % (len(data), data)

    def _part(self, data: bytes, left: int) -> bytes:
        self._left = left - len(data)
        self._look_for_end()
        return data

    def _look_for_end(self) -> None:
        """With a content length the client reads no further, and yet it came to the end."""
        if self._left == 0 and self._exchange.ending == COMPLETE:
            self._player.read()

    def _end(self, ending: Ending) -> bytes:
        if ending.kind == "stalled":
            raise TimeoutError("timed out")
        if ending.error == "read":
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        if ending != COMPLETE or self._left is not None:
            return b""
        self._left = 0  # who reads on after the last chunk is at the end
        return b"0\r\n\r\n"

    def close(self) -> None:
        self._player.close()
        super().close()


def _head(exchange: Exchange, *, chunked: bool) -> bytes:
    from http.client import responses

    headers = [(name, value) for name, value in headers_of(exchange) if name != "transfer-encoding"]
    if chunked:
        headers.append(("transfer-encoding", "chunked"))
    lines = [f"HTTP/1.1 {exchange.status} {responses.get(exchange.status, '')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return b"\r\n".join([*map(_encoded, lines), b"", b""])


def _encoded(line: str) -> bytes:
    """As http.client decodes it, and so recorded it; another library may have known better."""
    try:
        return line.encode("latin-1")
    except UnicodeEncodeError:
        return line.encode(errors="surrogateescape")
