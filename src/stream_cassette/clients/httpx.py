"""The door of httpx and httpx2, which the OpenAI, Anthropic and most other SDKs send their requests through.

Both libraries have the same transports and refuse each other's objects, so everything here takes the library that a transport belongs to.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from stream_cassette.model import COMPLETE, Ending, Exchange, Headers, Request
from stream_cassette.playing import Player
from stream_cassette.recording import Recorder
from stream_cassette.tape import active_tape

_LIBRARIES = ("httpx", "httpx2")
_LOCK = threading.Lock()

# The attribute of a patching function that holds its `_Patch`; whoever wraps the function with functools.wraps copies it.
_MARK = "_stream_cassette_patch"
# In the extensions of a request that is being recorded: a patch further in, below somebody else's, lets it pass.
_TAKEN = "stream_cassette.taken"

_CLOSED = Ending("closed")


@contextmanager
def door() -> Iterator[None]:
    """While it is open, the active tape answers the requests of the installed ones of httpx and httpx2; without a tape they go their usual way."""
    with ExitStack() as stack:
        # By class: `httpx2.alias_httpx()` makes both names one library.
        for library in {id(each.HTTPTransport): each for each in _installed()}.values():
            stack.enter_context(
                _patched(library.HTTPTransport, "handle_request", functools.partial(_sync_handler, library))
            )
            stack.enter_context(
                _patched(library.AsyncHTTPTransport, "handle_async_request", functools.partial(_async_handler, library))
            )
        yield


def _installed() -> Iterator[Any]:
    for name in _LIBRARIES:
        try:
            yield importlib.import_module(name)
        except ImportError:
            continue


# ---------------------------------------------------------------------------------------------------------------- the patch


@dataclass(slots=True)
class _Patch:
    """What it takes to undo a patch: what stood there, and how many open doors still need it."""

    original: Callable[..., Any]
    function: Callable[..., Any]
    doors: int = 0


@contextmanager
def _patched(owner: type, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    with _LOCK:
        function = vars(owner)[name]
        patch: _Patch | None = getattr(function, _MARK, None)
        if patch is None or patch.function is not function:
            original, function = function, wrap(function)
            patch = _Patch(original, function)
            setattr(function, _MARK, patch)
            setattr(owner, name, function)
        patch.doors += 1
    try:
        yield
    finally:
        with _LOCK:
            patch.doors -= 1
            # Somebody else may have patched over ours meanwhile. They will put ours back, which then does nothing, and the next door takes it up.
            if patch.doors == 0 and vars(owner)[name] is function:
                setattr(owner, name, patch.original)


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
            return _response(library, take, replayed(library, take))
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
            await _checkpoint()
            return _response(library, take, replayed(library, take))
        try:
            response = await original(self, _sent(library, request))
        except BaseException as error:
            take.fail(error)
            raise
        take.start(response.status_code, _headers(response))
        response.stream = recorded(library, take, response.stream)
        return response

    return handle_async_request


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
    headers = [
        (name.encode(), value.encode())
        for name, value in exchange.headers
        if name != "content-length" or _fits(exchange, value)
    ]
    return library.Response(exchange.status, headers=headers, stream=stream, extensions={"http_version": b"HTTP/1.1"})


def _fits(exchange: Exchange, length: str) -> bool:
    """Whether a content length can be true: a scrubbed or decompressed body has another one, an interrupted body is shorter."""
    if exchange.request.method == "HEAD" or exchange.status == 304:
        return True
    promised, got = int(length) if length.isdecimal() else -1, len(exchange.body)
    return promised == got if exchange.ending == COMPLETE else promised >= got


def _ending(library: Any, error: BaseException) -> Ending:
    """How a body ended whose reader met `error`: one of the connection, or anything else, such as a cancellation."""
    if isinstance(error, library.TimeoutException):
        return Ending("stalled")
    if isinstance(error, library.ProtocolError):
        return Ending("disconnected", "protocol")
    if isinstance(error, library.NetworkError):
        return Ending("disconnected", "read")
    return _CLOSED


def _error(library: Any, ending: Ending) -> Exception:
    """The library's own exception for a body that did not end well."""
    if ending.kind == "stalled":
        error: Exception = library.ReadTimeout("The read operation timed out")
    elif ending.error == "protocol":
        error = library.RemoteProtocolError(
            "peer closed connection without sending complete message body (incomplete chunked read)"
        )
    else:
        error = library.ReadError("[Errno 104] Connection reset by peer")
    return error


async def _checkpoint() -> None:
    """Lets other tasks run, as waiting for the network does; works under asyncio and trio."""
    import anyio.lowlevel

    await anyio.lowlevel.checkpoint()


# The streams. A client may begin to iterate a second time where it left off (OpenAI's async client drains the rest after [DONE]), so neither way
# keeps the place in the iterator: a player keeps its own, and the stream from the network goes on by itself.


class _Recorded:
    def __init__(self, library: Any, recorder: Recorder, inner: Any) -> None:
        self._library = library
        self._recorder = recorder
        self._inner = inner


class _SyncRecorded(_Recorded):
    def __iter__(self) -> Iterator[bytes]:
        try:
            for data in self._inner:
                self._recorder.read(data)
                yield data
        except BaseException as error:
            self._recorder.end(_ending(self._library, error))
            raise
        self._recorder.end(COMPLETE)

    def close(self) -> None:
        self._recorder.end(_CLOSED)
        self._inner.close()


class _AsyncRecorded(_Recorded):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        reads = aiter(self._inner)
        try:
            async for data in reads:
                self._recorder.read(data)
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
        self._recorder.end(_CLOSED)
        await self._inner.aclose()


class _Replayed:
    def __init__(self, library: Any, player: Player) -> None:
        self._library = library
        self._player = player

    def _read(self) -> bytes | None:
        match self._player.read():
            case Ending() as ending if ending == COMPLETE:
                return None
            case Ending() as ending:
                raise _error(self._library, ending)
            case data:
                return data


class _SyncReplayed(_Replayed):
    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        data = self._read()
        if data is None:
            raise StopIteration
        return data

    def close(self) -> None:
        self._player.close()


class _AsyncReplayed(_Replayed):
    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await _checkpoint()
        data = self._read()
        if data is None:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        self._player.close()
