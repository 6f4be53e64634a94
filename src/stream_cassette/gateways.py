"""Ways to a gateway under test: a function over reads, an ASGI application in this process, or a server that runs elsewhere."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .clients import intercepted
from .errors import TapeError
from .model import Exchange, Request
from .server import serve
from .tape import Tape

Gateway = Callable[..., Any] | str
"""A function from the reads of the upstream reply to the bytes or reads of its own; an ASGI application; or the base URL of a running server."""

PROMPT = Request(
    "POST",
    "/v1/chat/completions",
    (("content-type", "application/json"),),
    b'{"model":"m","stream":true,"messages":[{"role":"user","content":"?"}]}',
)


class Upstream:
    """A provider on loopback that answers with what it is told to `play`; `url` is what the gateway under test is started with."""

    def __init__(self) -> None:
        self.url = ""
        self._exchanges: list[Exchange] = []

    def play(self, exchanges: Sequence[Exchange]) -> None:
        """From now on the first request gets the first exchange, and so on; the last one answers every further request too."""
        self._exchanges = list(exchanges)

    def answer(self, request: Request) -> Exchange:
        """The next exchange."""
        return self._exchanges.pop(0) if len(self._exchanges) > 1 else self._exchanges[0]


@contextmanager
def upstream() -> Iterator[Upstream]:
    """The provider for a gateway that runs elsewhere: start that with `.url`, then `relay(its_url, stream, upstream=...)`."""
    provider = Upstream()
    with serve(provider.answer, paced=False) as server:
        provider.url = server.url
        yield provider


def through(
    gateway: Gateway, request: Request, provider: Upstream | None
) -> Callable[[Sequence[Exchange]], list[bytes]]:
    """From the exchanges that its provider answers with to what the gateway passes on.

    An application or a server is asked with `request`, whose `url` is the path. An application's own requests, over a client that has a door, get the
    exchanges; a server needs its `provider`, or it is a `TapeError`.
    """
    if isinstance(gateway, str):
        if provider is None:
            raise TapeError(
                "a gateway that runs elsewhere needs its upstream",
                mend="with upstream() as provider: start the gateway with provider.url, then relay(url, stream, upstream=provider)",
            )
        return lambda exchanges: _over_http(gateway, request, provider, exchanges)
    if _is_asgi(gateway):
        return lambda exchanges: asyncio.run(_through_app(gateway, request, exchanges))
    return lambda exchanges: _reads(gateway([read.data for read in exchanges[-1].reads]))


def _reads(out: bytes | Iterable[bytes]) -> list[bytes]:
    return [out] if isinstance(out, bytes) else list(out)


def _is_asgi(gateway: Any) -> bool:
    return inspect.iscoroutinefunction(gateway) or inspect.iscoroutinefunction(getattr(gateway, "__call__", None))  # noqa: B004


async def _through_app(app: Any, request: Request, exchanges: Sequence[Exchange]) -> list[bytes]:
    import httpx2

    with intercepted(Tape.answering(exchanges)):
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://gateway") as client:
            response = await client.request(
                request.method, request.url, headers=list(request.headers), content=request.body
            )
    return [response.content]


def _over_http(base_url: str, request: Request, provider: Upstream, exchanges: Sequence[Exchange]) -> list[bytes]:
    import httpx2

    provider.play(exchanges)
    url = base_url.rstrip("/") + request.url
    with httpx2.stream(request.method, url, headers=list(request.headers), content=request.body) as response:
        return list(response.iter_raw())
