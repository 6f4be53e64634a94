"""Connections of aiohttp that a tape listens to, and such as have nothing but a recording behind them. Loaded by the door only, once aiohttp is."""

from __future__ import annotations

import asyncio
import errno
import io
from collections.abc import Awaitable, Callable
from functools import partial
from http.client import responses
from typing import Any

from aiohttp import BaseConnector, BytesIOPayload, BytesPayload, ClientRequest, SocketTimeoutError, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import _EXC_SENTINEL, BaseTimerContext, TimerNoop, set_result
from aiohttp.http import RawResponseMessage, StreamWriter
from multidict import CIMultiDict, CIMultiDictProxy

from stream_cassette.clients.doors import CLOSED, headers_of
from stream_cassette.errors import RecordingTooShort
from stream_cassette.model import COMPLETE, Ending, EndingError, Exchange, Headers
from stream_cassette.playing import Player
from stream_cassette.recording import Recorder

_Answer = tuple[RawResponseMessage, StreamReader]
_Piece = tuple[bytes, bool]
_ENCODING = "Accept-Encoding"


# ---------------------------------------------------------------------------------------------------------------- the request


async def body_of(req: ClientRequest) -> bytes:
    """The body as it is sent, before compression; what gives its bytes only once is replaced by them in `req`."""
    payload = req._body
    if payload is None:
        return b""
    loop = asyncio.get_running_loop()
    nowhere = _Nowhere(ResponseHandler(loop))
    await payload.write(StreamWriter(nowhere.connected(), loop))
    length = req.headers.get("Content-Length")
    body = bytes(nowhere.written if length is None else nowhere.written[: int(length)])
    if not isinstance(payload, BytesPayload):
        await payload.close()
        req._body = BytesIOPayload(io.BytesIO(body), headers=payload.headers)
    return body


class _Nowhere(asyncio.Transport):
    """A connection that leads nowhere; it keeps what is `written`."""

    def __init__(self, protocol: ResponseHandler) -> None:
        super().__init__()
        self.written = bytearray()
        self._protocol = protocol
        self._closing = False

    def connected(self) -> ResponseHandler:
        """The protocol, which speaks over this connection from now on."""
        self._protocol.connection_made(self)
        return self._protocol

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._protocol._loop.call_soon(self._protocol.connection_lost, None)

    abort = close


# --------------------------------------------------------------------------------------------------------------- the response


class _Reader(StreamReader):
    """A body that is fetched from the reader `behind` it, a piece whenever the client waits for more, and no sooner.

    `fetch` gives what `behind.readchunk` gives: a piece and whether it ends a chunk of HTTP/1.1, the end being an empty piece that ends none.
    `left` is told when the client can read no more.
    """

    def __init__(
        self, behind: StreamReader, fetch: Callable[[], Awaitable[_Piece]], left: Callable[[], None], *, chunked: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(_Unhurried(loop), behind.get_read_buffer_limits()[0], loop=loop)
        self._behind = behind
        self._fetch = fetch
        self._left = left
        self._whole_until = 0
        if chunked:
            self.begin_http_chunk_receiving()

    async def _wait(self, func_name: str) -> None:
        try:
            data, ends_chunk = await self._fetch()
        except BaseException:
            if (failure := self._behind.exception()) is not None:
                super().set_exception(failure)
            raise
        self.feed_data(data)
        if not data and not ends_chunk:
            self.feed_eof()
        # Where the chunk that ends the body comes by itself, aiohttp tells the end of the one before it again.
        elif ends_chunk and self.total_bytes > self._whole_until:
            self._whole_until = self.total_bytes
            self.end_http_chunk_receiving()

    async def wait_eof(self) -> None:
        while not self.is_eof():
            await self._wait("wait_eof")

    def set_exception(self, exc: BaseException, exc_cause: BaseException = _EXC_SENTINEL) -> None:
        """The response was closed or released."""
        self._left()
        super().set_exception(exc, exc_cause)
        # Who is waiting waits there.
        self._behind.set_exception(exc, exc_cause)

    def on_eof(self, callback: Callable[[], None]) -> None:
        """The connection is free again as soon as all has come, whether or not the client has read it."""
        self._behind.on_eof(callback)

    def __del__(self) -> None:
        self._left()

    @property
    def total_raw_bytes(self) -> int:
        return self._behind.total_raw_bytes


class _Unhurried(BaseProtocol):
    """Has nothing to hold back: the reader behind does that."""

    def pause_reading(self) -> None:
        pass

    def resume_reading(self, resume_parser: bool = True) -> None:
        pass


# ------------------------------------------------------------------------------------------------------------------ recording


def recorded(connection: Connection, req: ClientRequest, recorder: Recorder) -> Connection:
    """The live connection, of which the next response is taken down."""
    protocol = connection.protocol
    assert protocol is not None
    read, accepted = protocol.read, req.headers.get(_ENCODING)

    async def heard() -> _Answer:
        # The request is on its way.
        req.headers.popall(_ENCODING, None)
        if accepted is not None:
            req.headers[_ENCODING] = accepted
        try:
            message, body = await read()
        except BaseException as error:
            recorder.fail(error)
            raise
        if message.code < 200:
            return message, body  # the answer is still to come
        # The connection may serve others after this.
        del vars(protocol)["read"]
        return message, _Hearing(protocol, message, body, recorder).reader()

    # The request is to bring a body that a person can read in the cassette; the client is not to know.
    req.headers[_ENCODING] = "identity"
    vars(protocol)["read"] = heard
    return connection


class _Hearing:
    """Takes down a body while the client reads it."""

    def __init__(
        self, protocol: ResponseHandler, message: RawResponseMessage, body: StreamReader, recorder: Recorder
    ) -> None:
        self._protocol = protocol
        self._message = message
        self._body = body
        self._recorder = recorder
        self._within = False

    def reader(self) -> StreamReader:
        empty = self._body.at_eof()
        # The connection decompresses, unless it is told not to.
        decoded = not empty and self._body.total_compressed_bytes is not None
        self._recorder.start(self._message.code, _headers(self._message, decoded=decoded))
        if empty:
            self._recorder.end(COMPLETE)
            return self._body
        left = partial(self._recorder.end, CLOSED)
        return _Reader(self._body, self._fetch, left, chunked=self._message.chunked)

    async def _fetch(self) -> _Piece:
        try:
            data, ends_chunk = await self._body.readchunk()
        except TimeoutError:
            self._recorder.end(Ending("stalled"))
            raise
        except Exception:
            if self._body.exception() is not None:
                self._recorder.end(Ending("disconnected", self._death()))
            raise
        self._recorder.read(data)
        self._within = self._message.chunked and not ends_chunk
        if not data and not ends_chunk:
            self._recorder.end(COMPLETE)
        return data, ends_chunk

    def _death(self) -> EndingError:
        if isinstance(self._protocol.exception(), OSError):
            return "read"
        return "chunk" if self._within else "protocol"


def _headers(message: RawResponseMessage, *, decoded: bool) -> Headers:
    gone = ("content-encoding", "content-length") if decoded else ()
    return tuple((name.lower(), value) for name, value in message.headers.items() if name.lower() not in gone)


# -------------------------------------------------------------------------------------------------------------------- playing


async def played(connector: BaseConnector, req: ClientRequest, player: Player) -> Connection:
    """A connection whose other end is the recording. It is never pooled."""
    try:
        await asyncio.sleep(0)  # as waiting for the network does, it lets other tasks run
    except BaseException:
        player.close()  # nobody got the response
        raise
    loop = asyncio.get_running_loop()
    protocol = _Playing(loop, req, player)
    # A session that is closed closes it, too.
    connector._acquired.add(protocol)
    if req._continue is not None:
        set_result(req._continue, True)
    return _Played(connector, req.connection_key, protocol, loop)


class _Played(Connection):
    def __del__(self, _warnings: Any = None) -> None:
        # Where nobody reads a body, a real connection is free when all of it has come, and this one when nobody knows it any more.
        if not self._loop.is_closed():
            self.release()


class _Playing(ResponseHandler):
    """Hears the recorded response as if it came from a network, a read of it whenever the client waits for more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, req: ClientRequest, player: Player) -> None:
        super().__init__(loop)
        self._req = req
        self._player = player
        self._patience: float | None = None
        self._timed = False
        self._answered = False
        self.force_close()
        _Nowhere(self).connected()

    def set_response_params(
        self, *, timer: BaseTimerContext | None = None, read_timeout: float | None = None, **params: Any
    ) -> None:
        """The read timeout is not for the clock of the loop: here nothing comes while the client does not ask."""
        self._patience = read_timeout or None
        self._timed = timer is not None and not isinstance(timer, TimerNoop)
        super().set_response_params(timer=timer, **params)

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self._answered:
            self._player.close()  # nobody got the response
        super().connection_lost(exc)

    async def read(self) -> _Answer:
        if (writer := self._req._writer) is not None:
            await asyncio.wait([writer])  # a server answers when it has heard the question
        exchange = self._player.exchange
        self._answered = True
        self.data_received(_head(exchange))
        message, body = await super().read()
        told = _told(message, headers_of(exchange))
        if not body.at_eof() and not exchange.reads and exchange.ending == COMPLETE:
            self.data_received(b"0\r\n\r\n")  # nobody need ask for what is not there
        if body.at_eof():
            self._player.read()
            return told, body
        return told, _Reader(body, partial(self._fetch, body), self._player.close, chunked=message.chunked)

    async def _fetch(self, body: StreamReader) -> _Piece:
        await asyncio.sleep(0)  # a reader that is cancelled takes no more
        due = self._loop.call_later(self._player.pause(self._patience), self._deliver, body)
        try:
            return await body.readchunk()
        finally:
            due.cancel()

    def _deliver(self, body: StreamReader) -> None:
        before = body.total_bytes
        try:
            # What is compressed may need several reads before it shows.
            while body.total_bytes == before:
                given = self._player.read()
                if isinstance(given, Ending):
                    self._end(body, given)
                    break
                self.data_received(self._chunk(given))
        except RecordingTooShort as error:
            body.set_exception(error)

    def _chunk(self, data: bytes) -> bytes:
        exchange = self._player.exchange
        if exchange.ending.error == "chunk" and self._player.response.reads == len(exchange.reads):
            return b"%x\r\n%b" % (len(data) + 1, data)  # a byte is promised that never comes
        return b"%x\r\n%b\r\n" % (len(data), data)

    def _end(self, body: StreamReader, ending: Ending) -> None:
        if ending == COMPLETE:
            self.data_received(b"0\r\n\r\n")
        elif ending.kind == "stalled":
            body.set_exception(self._timeout())
        else:
            self.connection_lost(_reset() if ending.error == "read" else None)

    def _timeout(self) -> TimeoutError:
        """Which of the client's timeouts strikes: where it has only one for the whole request, that."""
        if self._timed and self._patience is None:
            return TimeoutError()
        return SocketTimeoutError("Timeout on reading data from socket")


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def _head(exchange: Exchange) -> bytes:
    """As much of the head as says how the body comes: always in chunks, because then it is not over before its end is asked for."""
    coding = exchange.header("content-encoding")
    lines = [f"HTTP/1.1 {exchange.status} {responses.get(exchange.status, '')}", "Transfer-Encoding: chunked"]
    lines += [f"Content-Encoding: {coding}"] if coding else []
    return "\r\n".join([*lines, "", ""]).encode()


def _told(message: RawResponseMessage, pairs: list[tuple[str, str]]) -> RawResponseMessage:
    """The same with the headers that were recorded."""
    raw = tuple((name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in pairs)
    return RawResponseMessage(
        message.version,
        message.code,
        message.reason,
        CIMultiDictProxy(CIMultiDict(pairs)),
        raw,
        message.should_close,
        message.compression,
        message.upgrade,
        message.chunked,
    )
