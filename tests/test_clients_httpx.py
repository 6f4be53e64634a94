"""The door of httpx and httpx2: real clients over real sockets, then the same without a server."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import itertools
import json
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import anyio
import httpx
import httpx2
import openai
import pytest

from stream_cassette.active import active_tape
from stream_cassette.cassette import load, update
from stream_cassette.clients import DOORS, use
from stream_cassette.clients.doors import opened
from stream_cassette.errors import AssembledDiffers, CassetteMiss, RecordingTooShort, TapeError
from stream_cassette.model import COMPLETE, Cassette, Ending, Exchange, Interaction, Read, Request
from stream_cassette.server import serve

SSE = (("content-type", "text/event-stream"),)
CLOSED = Ending("closed")
KEY = "sk-this-is-the-secret-key"
LIBRARIES = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
# Under trio both libraries leave generators to the garbage collector when a reader leaves early, with and without a tape.
UNTIDY = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
BACKENDS = pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])


# ----------------------------------------------------------------------------------------------------------------- what is sent


def chat_body() -> bytes:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        value = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"

    texts = ["Grüße", " aus", " Zürich", " 🎿", "!", " Und", " tschüß."]
    words = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": text}) for text in texts)]
    return "".join([*words, chunk({}, "stop"), "data: [DONE]\n\n"]).encode()


def messages_body() -> bytes:
    def event(kind: str, **more: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more}, ensure_ascii=False)}\n\n"

    usage = {"input_tokens": 3, "output_tokens": 1}
    head = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    texts = ["Grüße", " aus", " Zürich", " 🎿"]
    deltas = [event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in texts]
    ending = [
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 9}),
        event("message_stop"),
    ]
    opening = [
        event("message_start", message={**head, "usage": usage}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ]
    return "".join([*opening, event("ping"), *deltas, *ending]).encode()


def cut(body: bytes, size: int = 37) -> tuple[Read, ...]:
    """Reads that end in the middle of events, and some in the middle of a character."""
    return tuple(Read(0, body[start : start + size]) for start in range(0, len(body), size))


def exchange(*reads: bytes | Read, status: int = 200, headers: Any = SSE, ending: Ending = COMPLETE) -> Exchange:
    timed = tuple(read if isinstance(read, Read) else Read(0, read) for read in reads)
    return Exchange(Request("GET", "http://x/"), status, headers, timed, ending)


PIECES = (b"data: one\n", b"\nda", b"ta: tw\xc3", b"\xb6\n\n")


def provider(request: Request) -> Exchange:
    """Answers as each of the providers does, by the path."""
    if request.url.endswith("/chat/completions"):
        return exchange(*cut(chat_body()))
    if request.url.endswith("/messages"):
        return exchange(*cut(messages_body()))
    return exchange(*PIECES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


def taken(
    path: Path, answer: Exchange | Callable[[Request], Exchange], client: Callable[[str], Any]
) -> tuple[Any, Any]:
    """What `client` gets from a live server while it is recorded, and then from the recording alone."""
    with serve(answer if callable(answer) else lambda request: answer) as server:
        with use(path, mode="all"):
            live = client(server.url)
    with use(path):
        return live, client(server.url)


def ending(path: Path) -> Ending:
    return load(path).interactions[-1].exchange.ending


# ------------------------------------------------------------------------------------------------------------------ what reads


def get(library: Any, backend: str, url: str, *, most: int = 1000, **options: Any) -> tuple[list[bytes], str]:
    """The raw reads, at most so many, and the name of the error that ended them."""
    reads: list[bytes] = []

    def read_sync() -> None:
        with library.Client(**options) as client, client.stream("GET", url) as response:
            for data in response.iter_raw():
                reads.append(data)
                if len(reads) == most:
                    break

    async def read_async() -> None:
        async with library.AsyncClient(**options) as client, client.stream("GET", url) as response:
            async with aclosing(response.aiter_raw()) as raw:
                async for data in raw:
                    reads.append(data)
                    if len(reads) == most:
                        break

    try:
        read_sync() if backend == "sync" else anyio.run(read_async, backend=backend)
    except library.TransportError as error:
        return reads, f"{type(error).__module__}.{type(error).__name__}"
    return reads, ""


ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TELL: dict[str, Any] = {**ASK, "max_tokens": 9}


def openai_sync(url: str) -> list[Any]:
    with openai.OpenAI(base_url=url, api_key=KEY) as client:
        return list(client.chat.completions.create(**ASK, stream=True))


async def openai_async(url: str) -> list[Any]:
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY) as client:
        return [chunk async for chunk in await client.chat.completions.create(**ASK, stream=True)]


def openai_helper(url: str) -> list[Any]:
    with openai.OpenAI(base_url=url, api_key=KEY) as client, client.chat.completions.stream(**ASK) as stream:
        return [*stream, stream.get_final_completion()]


async def openai_async_helper(url: str) -> list[Any]:
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY) as client:
        async with client.chat.completions.stream(**ASK) as stream:
            return [*[event async for event in stream], await stream.get_final_completion()]


def openai_over_httpx(url: str) -> list[Any]:
    with httpx.Client() as http, openai.OpenAI(base_url=url, api_key=KEY, http_client=http) as client:
        return list(client.chat.completions.create(**ASK, stream=True))


def anthropic_sync(url: str) -> list[Any]:
    with anthropic.Anthropic(base_url=url, api_key=KEY) as client:
        return list(client.messages.create(**TELL, stream=True))


async def anthropic_async(url: str) -> list[Any]:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY) as client:
        return [event async for event in await client.messages.create(**TELL, stream=True)]


def anthropic_helper(url: str) -> list[Any]:
    with anthropic.Anthropic(base_url=url, api_key=KEY) as client, client.messages.stream(**TELL) as stream:
        return [*stream, stream.get_final_message()]


async def anthropic_async_helper(url: str) -> list[Any]:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY) as client, client.messages.stream(**TELL) as stream:
        return [*[event async for event in stream], await stream.get_final_message()]


def awaited(function: Callable[[str], Awaitable[Any]], backend: str = "asyncio") -> Callable[[str], Any]:
    return lambda url: anyio.run(function, url, backend=backend)


SDKS = {
    "openai": openai_sync,
    "openai helper": openai_helper,
    "openai over httpx": openai_over_httpx,
    "openai asyncio": awaited(openai_async),
    "openai trio": awaited(openai_async, "trio"),
    "openai asyncio helper": awaited(openai_async_helper),
    "anthropic": anthropic_sync,
    "anthropic helper": anthropic_helper,
    "anthropic asyncio": awaited(anthropic_async),
    "anthropic trio": awaited(anthropic_async, "trio"),
    "anthropic asyncio helper": awaited(anthropic_async_helper),
}


# ------------------------------------------------------------------------------------------------------------------- the tests


@UNTIDY
@pytest.mark.parametrize("client", SDKS.values(), ids=SDKS.keys())
def test_an_sdk_gets_the_same_objects_from_the_recording(path: Path, client: Callable[[str], Any]) -> None:
    live, replayed = taken(path, provider, client)
    assert len(live) > 5
    assert [each.model_dump() for each in live] == [each.model_dump() for each in replayed]
    # OpenAI's client leaves at [DONE], before the end of the body.
    assert ending(path) == COMPLETE
    text = path.read_text()
    assert KEY not in text
    assert "Grüße aus Zürich" in text


@LIBRARIES
@BACKENDS
def test_the_reads_are_cut_where_they_were(path: Path, library: Any, backend: str) -> None:
    live, replayed = taken(path, exchange(*PIECES), functools.partial(get, library, backend))
    assert live == replayed == (list(PIECES), "")


def every_way(library: Any, backend: str, url: str) -> dict[str, list[Any]]:
    """What each way to read a response gives, piece by piece; each of a response of its own."""
    ways = ("iter_raw", "iter_bytes", "iter_text", "iter_lines", "read")

    def sync_way(way: str) -> list[Any]:
        with library.Client() as client, client.stream("GET", url) as response:
            return [response.read()] if way == "read" else list(getattr(response, way)())

    async def async_way(way: str) -> list[Any]:
        async with library.AsyncClient() as client, client.stream("GET", url) as response:
            if way == "read":
                return [await response.aread()]
            return [piece async for piece in getattr(response, f"a{way}")()]

    return {way: sync_way(way) if backend == "sync" else anyio.run(async_way, way, backend=backend) for way in ways}


@LIBRARIES
@BACKENDS
def test_every_way_to_read_gives_the_same_from_the_recording(path: Path, library: Any, backend: str) -> None:
    live, replayed = taken(path, exchange(*PIECES), functools.partial(every_way, library, backend))
    assert live == replayed
    assert live["iter_raw"] == live["iter_bytes"] == list(PIECES)
    assert live["iter_lines"] == ["data: one", "", "data: twö", ""]
    assert "".join(live["iter_text"]).encode() == b"".join(live["read"]) == b"".join(PIECES)


class Gated(tuple[Read, ...]):
    """Reads of which the last is sent only when the client has met the first text."""

    met = threading.Event()

    def __iter__(self) -> Iterator[Read]:
        *most, last = super().__iter__()
        yield from most
        assert self.met.wait(5), "the client gets nothing before the end"
        yield last


@pytest.mark.parametrize("backend", ["sync", "asyncio"])
def test_every_read_reaches_the_client_while_the_server_still_waits(path: Path, backend: str) -> None:
    Gated.met.clear()
    texts: list[str] = []

    def meet(chunk: Any) -> None:
        texts.extend(choice.delta.content for choice in chunk.choices if choice.delta.content)
        if texts:
            Gated.met.set()

    def read_sync(url: str) -> None:
        with openai.OpenAI(base_url=url, api_key=KEY) as client:
            for chunk in client.chat.completions.create(**ASK, stream=True):
                meet(chunk)

    async def read_async(url: str) -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY) as client:
            async for chunk in await client.chat.completions.create(**ASK, stream=True):
                meet(chunk)

    reads = Gated(cut(chat_body()))
    with serve(lambda request: Exchange(request, 200, SSE, reads)) as server, use(path, mode="all"):
        read_sync(server.url) if backend == "sync" else asyncio.run(read_async(server.url))
    assert "".join(texts) == "Grüße aus Zürich 🎿! Und tschüß."


def test_an_sdk_that_breaks_off_and_then_reads_on(path: Path) -> None:
    def some(url: str, most: int = 5) -> list[Any]:
        events = []
        with openai.OpenAI(base_url=url, api_key=KEY) as client:
            with client.chat.completions.create(**ASK, stream=True) as stream:
                for event in stream:
                    events.append(event)
                    if len(events) == most:
                        break
        return events

    # One event a read, so that what follows the fifth is on its way and not read.
    reads = [event + b"\n\n" for event in chat_body().split(b"\n\n")[:-1]]
    live, replayed = taken(path, exchange(*reads), some)
    assert len(live) == 5
    assert live == replayed
    assert ending(path) == CLOSED
    url = load(path).interactions[0].exchange.request.url.removesuffix("/chat/completions")
    with pytest.raises(RecordingTooShort), use(path):
        some(url, 6)


@UNTIDY
@LIBRARIES
@BACKENDS
def test_leaving_early(path: Path, library: Any, backend: str) -> None:
    live, replayed = taken(path, exchange(*PIECES), functools.partial(get, library, backend, most=2))
    assert live == replayed == (list(PIECES[:2]), "")
    assert ending(path) == CLOSED


@LIBRARIES
@BACKENDS
@pytest.mark.parametrize(("error", "name"), [("protocol", "RemoteProtocolError"), ("read", "ReadError")])
def test_a_connection_that_died(path: Path, library: Any, backend: str, error: Any, name: str) -> None:
    dead = Ending("disconnected", error)
    live, replayed = taken(path, exchange(*PIECES, ending=dead), functools.partial(get, library, backend))
    assert live == replayed == (list(PIECES), f"{library.__name__}.{name}")
    assert ending(path) == dead


@LIBRARIES
@BACKENDS
def test_a_stall_is_replayed_without_the_wait(path: Path, library: Any, backend: str) -> None:
    stalled = exchange(*PIECES, ending=Ending("stalled"))
    with serve(lambda request: stalled) as server, use(path, mode="all"):
        live = get(library, backend, server.url, timeout=library.Timeout(5, read=0.3))
    assert ending(path) == Ending("stalled")
    began = time.monotonic()
    with use(path):
        replayed = get(library, backend, server.url, timeout=30)
    assert live == replayed == (list(PIECES), f"{library.__name__}.ReadTimeout")
    assert time.monotonic() - began < 5


def test_a_dead_connection_through_an_sdk(path: Path) -> None:
    def client(url: str) -> list[str]:
        seen = []
        with openai.OpenAI(base_url=url, api_key=KEY) as client:
            try:
                for chunk in client.chat.completions.create(**ASK, stream=True):
                    seen.append(chunk.choices[0].delta.content or "")
            except openai.APIConnectionError as error:
                seen.append(type(error.__cause__).__name__)
        return seen

    live, replayed = taken(path, exchange(*cut(chat_body())[:-9], ending=Ending("disconnected", "protocol")), client)
    assert live == replayed
    assert live[-1] == "RemoteProtocolError"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_reader_has_left_early(path: Path, backend: str) -> None:
    async def client(url: str) -> None:
        async with httpx2.AsyncClient() as client:
            with anyio.CancelScope() as scope:
                async with client.stream("GET", url) as response:
                    async for _ in response.aiter_raw():
                        scope.cancel()

    with serve(lambda request: exchange(b"a", ending=Ending("stalled"))) as server, use(path, mode="all"):
        anyio.run(client, server.url, backend=backend)
    assert ending(path) == CLOSED
    with use(path):
        anyio.run(client, server.url, backend=backend)


@UNTIDY
@LIBRARIES
@pytest.mark.parametrize("backend", ["sync", "asyncio"])
def test_an_iterator_that_is_dropped_closes_the_response(path: Path, library: Any, backend: str) -> None:
    def drop_sync(url: str) -> None:
        with library.Client() as client:
            reads = client.send(client.build_request("GET", url), stream=True).iter_raw()
            assert next(reads) == PIECES[0]

    async def drop_async(url: str) -> None:
        async with library.AsyncClient() as client:
            reads = (await client.send(client.build_request("GET", url), stream=True)).aiter_raw()
            assert await anext(reads) == PIECES[0]

    def drop(url: str) -> None:
        drop_sync(url) if backend == "sync" else asyncio.run(drop_async(url))

    with serve(lambda request: exchange(*PIECES, ending=Ending("stalled"))) as server:
        with use(path, mode="all") as tape:
            drop(server.url)
            assert tape.responses[0].state == "closed"
    with use(path) as tape:
        drop(server.url)
        assert tape.responses[0].state == "closed"


def test_a_replay_lets_other_tasks_run_at_every_read(path: Path) -> None:
    taken(path, exchange(*PIECES), functools.partial(get, httpx2, "sync"))
    url = load(path).interactions[0].exchange.request.url
    steps: list[str] = []

    async def replay() -> None:
        async with httpx2.AsyncClient() as client, client.stream("GET", url) as response:
            async for _ in response.aiter_raw():
                steps.append("read")

    async def other() -> None:
        while steps.count("read") < len(PIECES):
            steps.append("other")
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(replay(), other())

    with use(path):
        asyncio.run(both())
    assert "read read" not in " ".join(steps)


# ---------------------------------------------------------------------------------------------------------------------- misses


def retrying(url: str) -> None:
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=5) as client:
        with suppress(Exception):
            client.messages.create(**TELL)


async def retrying_async(url: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=5) as client:
        await client.messages.create(**TELL)


@pytest.mark.parametrize(
    "client", [retrying, awaited(retrying_async), awaited(retrying_async, "trio")], ids=["sync", "asyncio", "trio"]
)
def test_a_miss_gets_through_wrapping_and_retries_at_once(path: Path, client: Callable[[str], Any]) -> None:
    began = time.monotonic()
    with pytest.raises(CassetteMiss), use(path):
        client("http://127.0.0.1:9")
    assert time.monotonic() - began < 2


def swallow_a_miss(then: BaseException | None = None) -> None:
    with suppress(BaseException):
        httpx.get("http://127.0.0.1:9/")
    if then:
        raise then


def test_a_swallowed_miss_fails_at_the_end(path: Path) -> None:
    with pytest.raises(CassetteMiss) as caught, use(path) as tape:
        swallow_a_miss()
    assert caught.value is tape.failure


def test_a_miss_is_told_instead_of_what_it_led_to(path: Path) -> None:
    with pytest.raises(CassetteMiss) as caught, use(path):
        swallow_a_miss(LookupError())
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_miss_in_a_task_group(path: Path) -> None:
    async def main() -> None:
        async with httpx2.AsyncClient() as client, asyncio.TaskGroup() as group:
            group.create_task(client.get("http://127.0.0.1:9/"))

    with pytest.raises(CassetteMiss) as caught, use(path):
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, BaseExceptionGroup)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes(path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), use(path):
        swallow_a_miss(error())


def test_an_error_of_the_block_passes_where_nothing_was_noted(path: Path) -> None:
    with pytest.raises(LookupError), use(path):
        raise LookupError


def test_use_checks_what_the_assembler_says(path: Path) -> None:
    taken(path, provider, openai_sync)

    spoilt = replace(load(path).interactions[0], assembled={"text": "no"})
    update(path, lambda cassette: replace(cassette, interactions=(spoilt,)))
    with pytest.raises(AssembledDiffers), use(path) as tape:
        tape.reply  # noqa: B018


# --------------------------------------------------------------------------------------------------------- tapes and contexts


def originals() -> list[Any]:
    return [
        vars(getattr(library, owner))[name]
        for library in (httpx, httpx2)
        for owner, name in [("HTTPTransport", "handle_request"), ("AsyncHTTPTransport", "handle_async_request")]
    ]


def test_the_originals_come_back(path: Path) -> None:
    before = originals()
    for error in (None, LookupError()):
        with ExitStack() as stack:
            if error:
                stack.enter_context(pytest.raises(LookupError))
            stack.enter_context(use(path, mode="once"))
            assert all(one is not other for one, other in zip(before, originals(), strict=True))
            if error:
                raise error
        assert all(one is other for one, other in zip(before, originals(), strict=True))


def test_overlapping_doors_do_not_undo_each_other() -> None:
    before = originals()
    first, second = opened(DOORS), opened(DOORS)
    first.__enter__()
    patched = originals()
    second.__enter__()
    first.__exit__(None, None, None)
    assert originals() == patched
    second.__exit__(None, None, None)
    assert originals() == before


def test_somebody_elses_patch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    original = httpx.HTTPTransport.handle_request
    with monkeypatch.context() as patches:
        with opened(DOORS):
            patches.setattr(httpx.HTTPTransport, "handle_request", lambda self, request: httpx.Response(418))
        assert httpx.get("http://127.0.0.1:9/").status_code == 418
    assert httpx.HTTPTransport.handle_request is not original  # ours again, without a door
    with opened(DOORS):
        pass
    assert httpx.HTTPTransport.handle_request is original


def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    """What a tracing library makes of a method; `functools.wraps` copies its attributes too."""

    @functools.wraps(original)
    def wrapper(self: Any, request: Any) -> Any:
        response = original(self, request)
        return trace(response) if inspect.isawaitable(response) else seen(response)

    async def trace(awaitable: Any) -> Any:
        return seen(await awaitable)

    def seen(response: Any) -> Any:
        response.headers["traced"] = "yes"
        return response

    return wrapper


@LIBRARIES
@pytest.mark.parametrize("backend", ["sync", "asyncio"])
def test_a_wrapper_that_stays_over_ours_is_not_taken_for_ours(
    path: Path, monkeypatch: pytest.MonkeyPatch, library: Any, backend: str
) -> None:
    owner, name = (
        (library.HTTPTransport, "handle_request")
        if backend == "sync"
        else (library.AsyncHTTPTransport, "handle_async_request")
    )

    def ask(url: str) -> Any:
        if backend == "sync":
            return library.get(url)

        async def main() -> Any:
            async with library.AsyncClient() as client:
                return await client.get(url)

        return asyncio.run(main())

    monkeypatch.setattr(owner, name, vars(owner)[name])  # put back at the end
    with serve(provider) as server:
        with use(path, mode="once"):
            ask(f"{server.url}/first")
            setattr(owner, name, wrapped(vars(owner)[name]))
        wrapper = vars(owner)[name]
        with use(path, mode="all"):
            assert ask(f"{server.url}/second").headers["traced"] == "yes"
        assert vars(owner)[name] is wrapper
        assert [each.exchange.request.url for each in load(path).interactions] == [f"{server.url}/second"]
        url = f"{server.url}/second"
    with use(path, unplayed="error"):
        assert ask(url).content == b"".join(PIECES)
    assert vars(owner)[name] is wrapper


@LIBRARIES
def test_digest_authentication(path: Path, library: Any) -> None:
    def answer(request: Request) -> Exchange:
        if any(name == "authorization" for name, _ in request.headers):
            return exchange(*PIECES)
        challenge = 'Digest realm="r", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", qop="auth"'
        return exchange(status=401, headers=(("www-authenticate", challenge),))

    def ask(url: str) -> tuple[Any, list[int]]:
        response = library.get(url, auth=library.DigestAuth("me", "secret"))
        return response.content, [each.status_code for each in (*response.history, response)]

    live, replayed = taken(path, answer, ask)
    assert live == replayed == (b"".join(PIECES), [401, 200])
    assert "secret" not in path.read_text()


@BACKENDS
def test_without_a_tape_a_request_goes_its_way(backend: str) -> None:
    with serve(provider) as server, opened(DOORS):
        assert get(httpx2, backend, server.url) == (list(PIECES), "")


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    before = originals()
    monkeypatch.setitem(sys.modules, "httpx", None)
    with use(path, mode="once"):
        assert [one is other for one, other in zip(before, originals(), strict=True)] == [True, True, False, False]


def test_both_names_may_be_one_library() -> None:
    code = """if True:
        import httpx2
        httpx2.alias_httpx()
        import httpx
        from stream_cassette.clients import DOORS
        from stream_cassette.clients.doors import opened
        original = vars(httpx.HTTPTransport)["handle_request"]
        with opened(DOORS), opened(DOORS):
            assert vars(httpx.HTTPTransport)["handle_request"].__wrapped__ is original
        assert vars(httpx.HTTPTransport)["handle_request"] is original
    """
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=30)


def test_nested_tapes(tmp_path: Path) -> None:
    with serve(provider) as server:
        with use(tmp_path / "outer.yaml", mode="all"):
            httpx.get(f"{server.url}/1")
            with use(tmp_path / "inner.yaml", mode="all"):
                httpx.get(f"{server.url}/2")
            httpx.get(f"{server.url}/3")
    assert active_tape() is None
    paths = [
        [each.exchange.request.url[-1] for each in load(tmp_path / name).interactions]
        for name in ("outer.yaml", "inner.yaml")
    ]
    assert paths == [["1", "3"], ["2"]]


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """What each returns or raises in a thread of its own that has no context of ours."""
    got: list[Any] = [None] * len(functions)

    def run(index: int, function: Callable[[], Any]) -> None:
        try:
            got[index] = function()
        except BaseException as error:  # noqa: BLE001 - it is what the test asks for
            got[index] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def test_two_tapes_and_a_thread_of_neither(tmp_path: Path) -> None:
    with pytest.raises(TapeError) as outer, use(tmp_path / "one.yaml"):
        with pytest.raises(TapeError) as inner, use(tmp_path / "two.yaml"):
            (error,) = in_threads(lambda: httpx.get("http://127.0.0.1:9/"))
    assert isinstance(error, TapeError)
    assert outer.value is inner.value is error
    assert "one.yaml" in str(error)
    assert "two.yaml" in str(error)


def test_two_tapes_and_a_thread_in_a_copy_of_the_context(tmp_path: Path) -> None:
    with serve(provider) as server, use(tmp_path / "one.yaml", mode="all"), use(tmp_path / "two.yaml", mode="all"):
        context = contextvars.copy_context()
        in_threads(lambda: context.run(httpx.get, server.url))
    assert not (tmp_path / "one.yaml").exists()
    assert len(load(tmp_path / "two.yaml").interactions) == 1


def test_streams_of_many_threads_are_never_swapped(path: Path) -> None:
    def answer(request: Request) -> Exchange:
        return exchange(*([f"{request.url[-1]}".encode()] * 20))

    clients = [lambda url=f"/{n}": get(httpx2, "sync", server.url + url) for n in range(8)]
    expected = [([f"{n}".encode()] * 20, "") for n in range(8)]
    with serve(answer) as server, use(path, mode="all"):
        assert in_threads(*clients) == expected
    with use(path):
        assert in_threads(*reversed(clients)) == expected[::-1]


def test_streams_of_many_tasks_are_never_swapped(path: Path) -> None:
    async def all_at_once(url: str) -> list[bytes]:
        async with httpx2.AsyncClient() as client:
            return [each.content for each in await asyncio.gather(*(client.get(f"{url}/{n}") for n in range(8)))]

    live, replayed = taken(
        path, lambda request: exchange(request.url[-1:].encode() * 3), lambda url: asyncio.run(all_at_once(url))
    )
    assert live == replayed == [f"{n}".encode() * 3 for n in range(8)]


@pytest.mark.parametrize("mode", ["once", "new", "all"])
def test_two_tests_in_one_file(path: Path, mode: Any) -> None:
    def ask(test: str, mode: Any) -> str:
        with use(path, mode=mode, test=test):
            return httpx.get(url).text

    count = itertools.count()
    with serve(lambda request: exchange(f"answer {next(count)}".encode())) as server:
        url = server.url
        assert [ask("a", mode), ask("b", mode)] == ["answer 0", "answer 1"]
        again = [ask("b", mode), ask("a", mode)]
    assert again == (["answer 2", "answer 3"] if mode == "all" else ["answer 1", "answer 0"])
    assert [ask("a", "none"), ask("b", "none")] == again[::-1]


# ------------------------------------------------------------------------------------------------------------------ fidelity


def test_what_the_server_is_asked(path: Path) -> None:
    with serve(provider) as server, use(path, mode="all"), httpx.Client() as client:
        first = client.post(server.url, content=iter([b"a", b"b"]))
        second = client.get(server.url, headers={"Accept-Encoding": "identity"})
    assert [dict(request.headers)["accept-encoding"] for request in server.requests] == ["identity", "identity"]
    assert server.requests[0].body == b"ab"
    assert first.request.headers["accept-encoding"] != "identity"
    assert "network_stream" in first.extensions
    assert second.text == first.text


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_transport_may_give_any_kind_of_stream(path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    class Countdown(httpx2.AsyncByteStream):
        left = 3

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> bytes:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return str(self.left).encode()

    async def elsewhere(self: Any, request: Any) -> httpx2.Response:
        return httpx2.Response(200, stream=Countdown())

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", elsewhere)
    with use(path, mode="all"):
        live = get(httpx2, backend, "http://127.0.0.1:9/")
    with use(path):
        assert get(httpx2, backend, "http://127.0.0.1:9/") == live == ([b"2", b"1", b"0"], "")


async def parts() -> Any:
    yield b"a"
    yield b"b"


def test_an_asynchronous_request_body(path: Path) -> None:
    async def client(url: str) -> str:
        async with httpx2.AsyncClient() as client:
            return (await client.post(url, content=parts())).text

    live, replayed = taken(path, provider, awaited(client))
    assert live == replayed
    assert load(path).interactions[0].exchange.request.body == b"ab"


def test_responses_behave_as_the_real_ones(path: Path) -> None:
    def answer(request: Request) -> Exchange:
        if request.url.endswith("/old"):
            return exchange(status=307, headers=(("location", "/new"),))
        return exchange(
            b"no ",
            b"such thing",
            status=404,
            headers=(("content-type", "text/plain; charset=utf-8"), ("x-request-id", "1")),
        )

    def client(url: str) -> list[Any]:
        seen: list[Any] = []
        hooks = {
            "request": [lambda request: seen.append(request.method)],
            "response": [lambda response: seen.append(response.status_code)],
        }
        with httpx.Client(follow_redirects=True, event_hooks=hooks) as client:
            response = client.get(f"{url}/old")
            assert response.elapsed.total_seconds() < 5
            seen += [
                str(response.request.url),
                [each.status_code for each in response.history],
                response.text,
                response.http_version,
            ]
            with pytest.raises(httpx.HTTPStatusError) as caught:
                response.raise_for_status()
            return [*seen, str(caught.value)]

    live, replayed = taken(path, answer, client)
    assert live == replayed
    assert live[2:4] == ["GET", 404]


LENGTHS = {
    "right": ("3", "GET", 200, COMPLETE, True),
    "wrong": ("4", "GET", 200, COMPLETE, False),
    "no number": ("x", "GET", 200, COMPLETE, False),
    "of a body that was cut": ("4", "GET", 200, Ending("stalled"), True),
    "less than there is": ("2", "GET", 200, Ending("stalled"), False),
    "of what HEAD leaves out": ("9", "HEAD", 200, COMPLETE, True),
    "of what was not modified": ("9", "GET", 304, COMPLETE, True),
}


@pytest.mark.parametrize(("length", "method", "status", "how", "kept"), LENGTHS.values(), ids=LENGTHS.keys())
def test_a_content_length_is_replayed_where_it_can_be_true(
    path: Path, length: str, method: str, status: int, how: Ending, kept: bool
) -> None:
    asked = Request(method, "http://127.0.0.1:9/")
    reads = () if method == "HEAD" or status == 304 else (Read(0, b"abc"),)
    recorded = Exchange(asked, status, (("content-length", length),), reads, how)

    update(path, lambda cassette: Cassette((Interaction(recorded),), "2026-11-30T00:00:00Z", "hand"))
    with use(path), httpx.Client() as client, client.stream(method, asked.url) as response:
        assert ("content-length" in response.headers) is kept


def test_a_body_that_is_compressed_all_the_same(path: Path) -> None:
    coder = zlib.compressobj(wbits=31)
    pieces = (coder.compress(b"hello ") + coder.flush(zlib.Z_SYNC_FLUSH), coder.compress(b"world") + coder.flush())
    live, replayed = taken(
        path, exchange(*pieces, headers=(*SSE, ("content-encoding", "gzip"))), lambda url: httpx.get(url).text
    )
    assert live == replayed == "hello world"
    assert "hello world" in path.read_text()


@BACKENDS
def test_a_request_without_any_response_is_not_recorded(path: Path, backend: str) -> None:
    with use(path, mode="all"):
        assert get(httpx2, backend, "http://127.0.0.1:9/")[1] == "httpx2.ConnectError"
    assert not path.exists()


def test_a_response_that_outlives_the_tape(path: Path) -> None:
    with serve(provider) as server, httpx.Client() as client:
        with use(path, mode="all"):
            response = client.send(client.build_request("GET", server.url), stream=True)
        assert response.read() == b"".join(PIECES)
    assert load(path).interactions[0].exchange.reads == ()
    assert ending(path) == CLOSED
