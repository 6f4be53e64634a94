"""The door of httpx and httpx2, which the OpenAI, Anthropic and most other SDKs send their requests through.

Both libraries have the same transports and refuse each other's objects, so everything here takes the library that a transport belongs to.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from stream_cassette.active import active_tape
from stream_cassette.clients.doors import CLOSED, Patch, headers_of
from stream_cassette.model import COMPLETE, Ending, Headers, Request
from stream_cassette.playing import Player
from stream_cassette.recording import Recorder

# In the extensions of a request that is being recorded: a patch further in, below somebody else's, lets it pass.
_TAKEN = "stream_cassette.taken"


def door(library: Any) -> Sequence[Patch]:
    """Where httpx or httpx2, whichever `library` is, hands a request to the network."""
    return (
        Patch(library, library.HTTPTransport, "handle_request", _sync_handler),
        Patch(library, library.AsyncHTTPTransport, "handle_async_request", _async_handler),
    )


def _sync_handler(library: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    recorded, replayed = _stream_types(library.SyncByteStream, _SyncRecorded, _SyncReplayed)

    @functools.wraps(original)
    def handle_request(self: Any, request: Any) -> Any:
        __tracebackhide__ = True
        tape = None if _TAKEN in request.extensions else active_tape()
        if tape is None or tape.leaves_alone(str(request.url)):
            return original(self, request)
        request.read()
        take = tape.open(_request(request))
        if isinstance(take, Player):
            return _response(library, take, replayed(library, take, _patience(request)))
        try:
            response = original(self, _sent(library, request))
        except BaseException as error:
            take.fail(error)
            raise
        take.start(response.status_code, _headers(response))
        response.stream = recorded(library, take, response.stream)
        return response

    return handle_request


def _async_handler(library: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    recorded, replayed = _stream_types(library.AsyncByteStream, _AsyncRecorded, _AsyncReplayed)

    @functools.wraps(original)
    async def handle_async_request(self: Any, request: Any) -> Any:
        __tracebackhide__ = True
        tape = None if _TAKEN in request.extensions else active_tape()
        if tape is None or tape.leaves_alone(str(request.url)):
            return await original(self, request)
        await request.aread()
        take = tape.open(_request(request))
        if isinstance(take, Player):
            try:
                await _wait(0)
            except BaseException:
                take.close()  # nobody got the response
                raise
            return _response(library, take, replayed(library, take, _patience(request)))
        try:
            response = await original(self, _sent(library, request))
        except BaseException as error:
            take.fail(error)
            raise
        take.start(response.status_code, _headers(response))
        response.stream = recorded(library, take, response.stream)
        return response

    return handle_async_request


@functools.cache
def _stream_types(base: type, *mixins: type) -> list[Any]:
    # Responses accept only streams that inherit from their own library's class.
    return [type(mixin.__name__, (mixin, base), {}) for mixin in mixins]


# ------------------------------------------------------------------------------------------------------ there and back again


def _headers(message: Any) -> Headers:
    return tuple((name.lower(), value) for name, value in message.headers.multi_items())


def _request(request: Any) -> Request:
    return Request(request.method, str(request.url), _headers(request), request.content)


def _sent(library: Any, request: Any) -> Any:
    """The request to send while recording: one that asks for a body which a person can read in the cassette."""
    headers = request.headers.copy()
    headers["Accept-Encoding"] = "identity"
    extensions = {**request.extensions, _TAKEN: True}
    return library.Request(request.method, request.url, headers=headers, stream=request.stream, extensions=extensions)


def _response(library: Any, player: Player, stream: Any) -> Any:
    exchange = player.exchange
    headers = [(name.encode(), value.encode(errors="surrogateescape")) for name, value in headers_of(exchange)]
    return library.Response(exchange.status, headers=headers, stream=stream, extensions={"http_version": b"HTTP/1.1"})


def _ending(library: Any, error: BaseException) -> Ending:
    """How a body ended whose reader met `error`: one of the connection, or anything else, such as a cancellation."""
    if isinstance(error, library.TimeoutException):
        return Ending("stalled")
    if isinstance(error, library.ProtocolError):
        return Ending("disconnected", "protocol")
    if isinstance(error, library.NetworkError):
        return Ending("disconnected", "read")
    return CLOSED


def _error(library: Any, ending: Ending) -> Exception:
    """The library's own exception for a body that did not end well."""
    if ending.kind == "stalled":
        error: Exception = library.ReadTimeout("The read operation timed out")
    elif ending.error in ("protocol", "chunk"):
        error = library.RemoteProtocolError(
            "peer closed connection without sending complete message body (incomplete chunked read)"
        )
    else:
        error = library.ReadError("[Errno 104] Connection reset by peer")
    return error


def _patience(request: Any) -> float | None:
    """The client's read timeout in seconds."""
    seconds: float | None = request.extensions.get("timeout", {}).get("read")
    return seconds


async def _wait(seconds: float) -> None:
    """Lets other tasks run, as waiting for the network does; works under asyncio and trio."""
    import anyio

    await anyio.sleep(seconds)


# The streams. A client may begin to iterate a second time where it left off (OpenAI's async client drains the rest after [DONE]), so neither way
# keeps the place in the iterator: a player keeps its own, and the stream from the network goes on by itself.


class _Recorded:
    def __init__(self, library: Any, recorder: Recorder, inner: Any) -> None:
        self._library = library
        self._recorder = recorder
        self._inner = inner


class _SyncRecorded(_Recorded):
    def __iter__(self) -> Iterator[bytes]:
        record = self._recorder.read
        try:
            for data in self._inner:
                record(data)
                yield data
        except BaseException as error:
            self._recorder.end(_ending(self._library, error))
            raise
        self._recorder.end(COMPLETE)

    def close(self) -> None:
        self._recorder.end(CLOSED)
        self._inner.close()


class _AsyncRecorded(_Recorded):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        record, reads = self._recorder.read, aiter(self._inner)
        try:
            async for data in reads:
                record(data)
                yield data
        except BaseException as error:
            self._recorder.end(_ending(self._library, error))
            raise
        finally:
            # An abandoned generator would be closed by the garbage collector, too late for trio.
            if isinstance(reads, AsyncGenerator):
                await reads.aclose()
        self._recorder.end(COMPLETE)

    async def aclose(self) -> None:
        self._recorder.end(CLOSED)
        await self._inner.aclose()


class _Replayed:
    def __init__(self, library: Any, player: Player, patience: float | None) -> None:
        self._library = library
        self._player = player
        self._patience = patience

    def _end(self, ending: Ending) -> None:
        if ending != COMPLETE:
            raise _error(self._library, ending)


class _SyncReplayed(_Replayed):
    def __iter__(self) -> Iterator[bytes]:
        try:
            if not self._player.paced:
                yield from self._player.at_once()
            while True:
                if pause := self._player.pause(self._patience):
                    time.sleep(pause)
                given = self._player.read()
                if isinstance(given, Ending):
                    self._end(given)
                    return
                yield given
        finally:
            self._player.close()  # an iterator that is dropped closes the connection

    def close(self) -> None:
        self._player.close()


class _AsyncReplayed(_Replayed):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while True:
                await _wait(self._player.pause(self._patience))
                given = self._player.read()
                if isinstance(given, Ending):
                    self._end(given)
                    return
                yield given
        finally:
            self._player.close()

    async def aclose(self) -> None:
        self._player.close()
