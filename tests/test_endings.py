"""How an exchange ends, recorded and replayed alike: early exits, dead connections, timeouts and retries, through every client."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import anyio
import httpx
import httpx2
import openai
import pytest

from stream_cassette.cassette import load
from stream_cassette.clients import use
from stream_cassette.errors import CassetteMiss
from stream_cassette.keeping import failures_of
from stream_cassette.model import COMPLETE, Ending, Exchange, Headers, Read, Request
from stream_cassette.playing import hurried
from stream_cassette.recording import Recorder
from stream_cassette.server import Server, serve
from stream_cassette.tape import Tape
from test_clients_httpx import SSE, chat_body, cut, messages_body

JSON: Headers = (("content-type", "application/json"),)
# Under trio both libraries leave generators to the garbage collector when a reader leaves early, with and without a tape.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
BODIES = {"openai": chat_body(), "anthropic": messages_body()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


# ------------------------------------------------------------------------------------------------------------- the SDKs' ways


def client_of(sdk: str, url: str, asynchronous: bool, old: bool = False, retries: int = 0) -> Any:
    names = {"openai": ("OpenAI", "AsyncOpenAI"), "anthropic": ("Anthropic", "AsyncAnthropic")}[sdk]
    library = httpx if old else httpx2
    made = (library.AsyncClient if asynchronous else library.Client)(
        timeout=library.Timeout(5, read=0.3),
        verify=False,  # loading certificates takes longer than all the rest
    )
    client = getattr(openai if sdk == "openai" else anthropic, names[asynchronous])
    return client(base_url=url, api_key="k", max_retries=retries, http_client=made)


def asked(sdk: str, client: Any) -> Any:
    if sdk == "openai":
        return client.chat.completions.create(**ASK, stream=True)
    return client.messages.create(**ASK, max_tokens=9, stream=True)


def error_of(sdk: str) -> type[Exception]:
    return openai.OpenAIError if sdk == "openai" else anthropic.AnthropicError


def told(error: BaseException) -> str:
    """The error, and what it came of: the SDKs wrap what the transport raises."""
    root = error.__cause__ or error
    return f"{type(error).__name__} of {type(root).__name__}"


def read_by(sdk: str, backend: str, old: bool, most: int = 1000, retries: int = 0) -> Callable[[str], list[Any]]:
    """A client that gives the events, at most so many, and the error that ended them."""

    def in_line(url: str) -> list[Any]:
        events: list[Any] = []
        with client_of(sdk, url, False, old, retries) as client:
            try:
                with asked(sdk, client) as stream:
                    for event in itertools.islice(stream, most):
                        events.append(event.model_dump())
            except (error_of(sdk), httpx.HTTPError, httpx2.HTTPError) as error:
                events.append(told(error))
        return events

    async def awaited(url: str) -> list[Any]:
        events: list[Any] = []
        async with client_of(sdk, url, True, old, retries) as client:
            try:
                async with await asked(sdk, client) as stream:
                    async for event in stream:
                        events.append(event.model_dump())
                        if len(events) == most:
                            break
            except (error_of(sdk), httpx.HTTPError, httpx2.HTTPError) as error:
                events.append(told(error))
        return events

    return in_line if backend == "sync" else lambda url: anyio.run(awaited, url, backend=backend)


ENDINGS: dict[str, tuple[int, Ending, int, Ending]] = {
    # how many bytes of the body are left out, how the server ends, how many events the reader takes, how it is recorded
    "whole": (0, COMPLETE, 1000, COMPLETE),
    "left early": (9, Ending("stalled"), 3, Ending("closed")),
    "closed by the peer": (9, Ending("disconnected", "protocol"), 1000, Ending("disconnected", "protocol")),
    "reset": (9, Ending("disconnected", "read"), 1000, Ending("disconnected", "read")),
    "read timeout": (9, Ending("stalled"), 1000, Ending("stalled")),
}


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
@pytest.mark.parametrize(
    ("sdk", "old"),
    [("openai", True), ("openai", False), ("anthropic", False)],  # Anthropic's refuses httpx
    ids=["openai-httpx", "openai", "anthropic"],
)
@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_through_an_sdk(path: Path, name: str, sdk: str, backend: str, old: bool) -> None:
    short, how, most, expected = ENDINGS[name]
    body = BODIES[sdk]
    exchange = Exchange(Request("GET", "http://x/"), 200, SSE, cut(body[: len(body) - short], 200), how)
    client = read_by(sdk, backend, old, most)
    with serve(lambda request: exchange) as server:
        with use(path, mode="all"):
            live = client(server.url)
    (interaction,) = load(path).interactions
    assert interaction.exchange.ending == expected
    began = time.monotonic()
    with use(path):
        replayed = client(server.url)
    assert replayed == live
    assert (
        time.monotonic() - began < 0.3 or name != "read timeout" or len(live) > 1
    )  # loading the SDK's models takes longer
    if expected.kind in ("disconnected", "stalled"):
        assert isinstance(live[-1], str)


# ----------------------------------------------------------------------------------------------- without any response at all


UNANSWERED = {
    "refused": ("http://127.0.0.1:9", "ConnectError"),
    "no such name": ("http://nowhere.invalid", "ConnectError"),
}


@pytest.mark.parametrize("backend", ["sync", "asyncio"])
@pytest.mark.parametrize(("url", "error"), UNANSWERED.values(), ids=UNANSWERED.keys())
def test_what_never_got_a_response_is_told_and_not_recorded(path: Path, backend: str, url: str, error: str) -> None:
    client = read_by("openai", backend, False)
    with use(path, mode="all") as tape:
        assert client(url) == [f"APIConnectionError of {error}"]
    assert not path.exists()
    remark = f"{path}: POST {url}/chat/completions: no response came ({error}), so nothing is recorded of it"
    assert tape.remarks == (remark,)
    with pytest.raises(CassetteMiss), use(path):
        client(url)


@pytest.mark.parametrize("backend", ["sync", "asyncio"])
def test_a_timeout_before_the_headers_is_left_to_the_retry(path: Path, backend: str) -> None:
    """What the client did again with success is what is recorded; the attempt before it is not."""
    first = [True]

    def answer(request: Request) -> Exchange:
        if first:
            first.clear()
            time.sleep(0.6)
        return Exchange(request, 200, SSE, cut(BODIES["openai"], 200))

    client = read_by("openai", backend, False, retries=1)
    with serve(answer) as server, use(path, mode="all") as tape:
        live = client(server.url)
    assert len(live) > 5
    assert len(load(path).interactions) == 1
    assert "no response came (ReadTimeout)" in tape.remarks[0]
    with use(path):
        assert client(server.url) == live


# -------------------------------------------------------------------------------------------------------------------- retries


class Flaky:
    """Fails with `statuses`, one after the other, and then answers."""

    def __init__(self, sdk: str, *statuses: int, after: str = "0.3") -> None:
        self.sdk, self.left, self.after = sdk, list(statuses), after

    def __call__(self, request: Request) -> Exchange:
        if not self.left:
            return Exchange(request, 200, SSE, cut(BODIES[self.sdk], 200))
        headers = (*JSON, ("retry-after", self.after))
        return Exchange(request, self.left.pop(0), headers, (Read(0, b'{"error":{"message":"later"}}'),))


def statuses(path: Path) -> list[int]:
    return [each.exchange.status for each in load(path).interactions]


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return function(), time.monotonic() - began


RETRYING = pytest.mark.parametrize(
    ("sdk", "backend"), [("openai", "sync"), ("openai", "trio"), ("anthropic", "sync"), ("anthropic", "asyncio")]
)


@RETRYING
@pytest.mark.parametrize("keep", [True, False])
def test_failures_that_were_retried_with_success(path: Path, sdk: str, backend: str, keep: bool) -> None:
    client = read_by(sdk, backend, False, retries=4)
    failures = [429, 503, 500, 529] if sdk == "anthropic" else [408, 409, 429, 503]
    with serve(Flaky(sdk, *failures, after="0.05")) as server:
        with use(path, mode="all", keep_failures=keep):
            live = client(server.url)
    assert len(live) > 5
    assert statuses(path) == [*failures * keep, 200]
    with use(path, unplayed="error"):
        assert client(server.url) == live


@RETRYING
def test_a_replayed_failure_costs_no_waiting(path: Path, sdk: str, backend: str) -> None:
    client = read_by(sdk, backend, False, retries=2)
    with serve(Flaky(sdk, 429, 503, after="0.4")) as server:
        with use(path, mode="all", keep_failures=True):
            live, before = timed(lambda: client(server.url))
    assert "retry-after: '0.4'" in path.read_text()
    with use(path):
        replayed, after = timed(lambda: client(server.url))
    assert replayed == live
    assert before > 0.8
    assert after < 0.5


@RETRYING
def test_failures_without_a_success_are_recorded(path: Path, sdk: str, backend: str) -> None:
    client = read_by(sdk, backend, False, retries=1)
    with serve(Flaky(sdk, 429, 429, after="0.01")) as server:
        with use(path, mode="all"):
            live = client(server.url)
    assert live[-1].startswith("RateLimitError")
    assert statuses(path) == [429, 429]
    with use(path, unplayed="error"):
        replayed, seconds = timed(lambda: client(server.url))
    assert replayed == live
    assert seconds < 0.5


def test_a_failure_that_the_client_did_not_retry_keeps_its_header(path: Path) -> None:
    """OpenAI's client gives up where it is told to wait for very long; told otherwise it would go on."""
    client = read_by("openai", "sync", False, retries=2)
    with serve(Flaky("openai", 429, after="600")) as server:
        with use(path, mode="all"):
            live = client(server.url)
    assert statuses(path) == [429]
    with use(path):
        assert client(server.url) == live
        assert Tape(path)._shelf.slots[0].stream.exchange.header("retry-after") == "600"


def test_what_is_told_of_the_wait() -> None:
    headers = (("retry-after", "Mon, 30 Nov 2026 17:00:00 GMT"), ("x", "y"), ("retry-after-ms", "5000"))
    exchange = Exchange(Request("GET", "http://x/"), 429, headers, ())
    assert hurried(exchange).headers == (("retry-after", "0"), ("x", "y"), ("retry-after-ms", "1"))


def took(status: int, word: str = "a", tried: str | None = None) -> Recorder:
    headers = () if tried is None else (("X-Stainless-Retry-Count", tried),)
    take = Recorder(Request("POST", "http://x/", headers, f'{{"word":"{word}"}}'.encode()), lambda: 0.0)
    take.start(status, ())
    take.end(COMPLETE)
    return take


def unanswered() -> Recorder:
    return Recorder(Request("POST", "http://x/", (), b'{"word":"a"}'), lambda: 0.0)


CHAINS: dict[str, tuple[list[Recorder], list[int]]] = {
    "retried": ([took(429), took(500), took(200)], [2]),
    "no retry, as the client says": ([took(429, tried="0"), took(200, tried="0")], [0, 1]),
    "as often as the client says": (
        [took(429, tried="0"), took(429, tried="0"), took(200, tried="1"), took(200, tried="0")],
        [1, 2, 3],
    ),
    "another request": ([took(429), took(200, "b")], [0, 1]),
    "a success before": ([took(200), took(429)], [0, 1]),
    "never well": ([took(429), took(503)], [0, 1]),
    "well, but not a success": ([took(429), took(404)], [0, 1]),
    "a failure that nobody retries": ([took(400), took(200)], [0, 1]),
    "no response, and then one": ([unanswered(), took(200)], [1]),
    "refused": ([took(401), took(200, "b"), took(403, "c")], [1]),
    "refused, and then not": ([took(401), took(200)], [0, 1]),
    "not refused, and then refused": ([took(200), took(401)], [0]),
    "several at once": ([took(429, "a"), took(429, "b"), took(200, "b"), took(200, "a")], [2, 3]),
}


@pytest.mark.parametrize(("takes", "kept"), CHAINS.values(), ids=CHAINS.keys())
def test_which_failures_are_left_out(takes: list[Recorder], kept: list[int]) -> None:
    mended, refused = failures_of(takes)
    assert [place for place, take in enumerate(takes) if take not in mended | refused] == kept


def test_the_recording_test_sees_what_the_replay_will_see(path: Path) -> None:
    def client(server: Server) -> int:
        for _ in range(2):
            with suppress(httpx2.HTTPError):
                httpx2.get(server.url).raise_for_status()
        return len(tape.streams)

    flaky = Flaky("openai", 500)
    flaky_headers = (*SSE, ("x", "y"))

    def answer(request: Request) -> Exchange:
        exchange = flaky(request)
        return Exchange(request, exchange.status, flaky_headers, cut(BODIES["openai"], 200))

    with serve(answer) as server:
        with use(path, mode="all") as tape:
            assert client(server) == 1
    with use(path) as tape:
        httpx2.get(server.url)
        assert len(tape.streams) == 1
