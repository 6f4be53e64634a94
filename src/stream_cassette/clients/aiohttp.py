"""The door of aiohttp, which google-genai's async client and the `DefaultAioHttpClient` of OpenAI and Anthropic send their requests through."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from stream_cassette.active import active_tape
from stream_cassette.clients.doors import Patch
from stream_cassette.model import Request
from stream_cassette.playing import Player

# The attribute of a request that is being recorded: a patch further in, below somebody else's, lets it pass.
_TAKEN = "_stream_cassette_taken"


def door(library: Any) -> Sequence[Patch]:
    """Where a session asks its connector for a connection, so that redirects, cookies, middlewares, traces and `raise_for_status` are aiohttp's own.

    A WebSocket passes. aiohttp before 3.13 is let be; the guard sees it.
    """
    major, minor, *_ = library.__version__.split(".")
    if (int(major), int(minor)) < (3, 13):
        return ()
    return (Patch(library, library.BaseConnector, "connect", _connect),)


def _connect(_: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    # It inherits from aiohttp's classes, and so is loaded when aiohttp is.
    from stream_cassette.clients import aiohttp_wire as wire

    @functools.wraps(original)
    async def connect(self: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        tape = None if _passes(req) else active_tape()
        if tape is None or tape.leaves_alone(str(req.url)):
            return await original(self, req, *args, **kwargs)
        take = tape.open(_request(req, await wire.body_of(req)))
        if isinstance(take, Player):
            return await wire.played(self, req, take)
        vars(req)[_TAKEN] = True
        try:
            connection = await original(self, req, *args, **kwargs)
        except BaseException as error:
            take.fail(error)
            raise
        finally:
            del vars(req)[_TAKEN]
        return wire.recorded(connection, req, take)

    return connect


def _passes(req: Any) -> bool:
    return _TAKEN in vars(req) or "Upgrade" in req.headers or req.method == "CONNECT"


def _request(req: Any, body: bytes) -> Request:
    # Where aiohttp is asked to compress, it does so on the way.
    own = {"content-encoding"} if req.compress else set()
    headers = tuple((name.lower(), value) for name, value in req.headers.items() if name.lower() not in own)
    return Request(req.method, str(req.url), headers, body)
