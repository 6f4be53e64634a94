"""Every client that people stream with, and everything that must hold of it on a tape: each cell of the README's table of clients is one test here."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import math
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, get_args

import pytest

from clients_under_test import CLIENTS, KEY, Client
from stream_cassette import Reply, Stream, ToolCall, Usage, assemble, serve, synthesize, use
from stream_cassette.cassette import load
from stream_cassette.dialects import dialect
from stream_cassette.model import COMPLETE, Ending, EndingError, Exchange, Read, Request, TextPart
from stream_cassette.mutate import Mutator, Rechunk, Refragment, mutate
from stream_cassette.recording import Clock
from stream_cassette.server import Server
from stream_cassette.tape import Tape

PATIENCE = 30.0  # seconds; whoever waits so long hangs
WORDS = (5, 10, 15, 20, 25)  # where the text of a reply is cut into deltas


# ------------------------------------------------------------------------------------------------------------------ the provider


def reply_about(place: str, client: Client) -> Reply:
    """A text and two parallel calls with usage, in the provider's words."""
    speaker = dialect(client.dialect)
    (word, *_) = speaker.words.get("tool_calls") or speaker.words["stop"]
    names = {"tide_times": {"harbour": place}, "moon_phase": {"over": place, "é": True}}
    calls = [
        ToolCall(
            number,
            id=None if client.dialect == "ollama" else f"call_{number}",  # its client shows none
            name=name,
            arguments_text=json.dumps(arguments, ensure_ascii=False, separators=(",", ":")),
            arguments=arguments,
        )
        for number, (name, arguments) in enumerate(names.items())
    ]
    return Reply((TextPart(f"At {place} the tide is high. 🌊"), *calls), word, Usage(12, 30), ended=speaker.end_mark)


@functools.cache
def body_about(place: str, client: Client) -> Stream:
    stream = synthesize(reply_about(place, client), client.dialect)
    return mutate(stream, [Refragment(0, WORDS), *client.spelling])


def cut(body: bytes, size: int = 37) -> tuple[Read, ...]:
    """Reads that end in the middle of events, and some in the middle of a character."""
    return tuple(Read(0, body[start : start + size]) for start in range(0, len(body), size))


PLACES = ("Oban", "Ullapool", "Stornoway")


def healthy(client: Client, request: Request) -> Exchange:
    place = next(place for place in PLACES if place.encode() in request.body)
    stream = body_about(place, client)
    return replace(stream.exchange, request=request, reads=cut(stream.body))


def broken(exchange: Exchange, ending: Ending, gate: threading.Event | None = None) -> Exchange:
    """Two thirds of it, then `ending`; the last read waits for `gate`."""
    reads = exchange.reads[: 2 * len(exchange.reads) // 3]
    return replace(exchange, reads=Gated(reads, gate) if gate else reads, ending=ending)


class Gated(tuple[Read, ...]):
    """Reads of which the last is sent only when the client has met an event."""

    gate: threading.Event

    def __new__(cls, reads: tuple[Read, ...], gate: threading.Event) -> Self:
        self = super().__new__(cls, reads)
        self.gate = gate
        return self

    def __iter__(self) -> Iterator[Read]:
        *most, last = super().__iter__()
        yield from most
        assert self.gate.wait(PATIENCE), "the client gets nothing before the end"
        yield last


PROBLEM = "there is no such model: m"
PROBLEMS: Mapping[str, Any] = {
    "openai-chat": {"error": {"message": PROBLEM, "type": "invalid_request_error", "param": "model", "code": None}},
    "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": PROBLEM}},
    "gemini": {"error": {"code": 400, "message": PROBLEM, "status": "INVALID_ARGUMENT"}},
    "cohere": {"id": "1", "message": PROBLEM},
    "ollama": {"error": PROBLEM},
    "bedrock-converse": {"message": PROBLEM},
    "bedrock-invoke": {"message": PROBLEM},
}


def problem(client: Client, request: Request, status: int, *headers: tuple[str, str]) -> Exchange:
    body = json.dumps(PROBLEMS[client.dialect]).encode()
    return Exchange(request, status, (("content-type", "application/json"), *headers), (Read(0, body),))


# ------------------------------------------------------------------------------------------------------- the code under test


# What an HTTP library stands on, which is not there in a replay.
BELOW = ("httpcore", "h11", "anyio", "asyncio", "builtins")


@dataclass(frozen=True, slots=True)
class Got:
    """What the code under test got: the events as they came, and the error that ended them.

    Equal are two with equal events and errors of the same types, of the error and of what led to it.
    """

    raw: tuple[Any, ...] = field(repr=False, compare=False)
    error: BaseException | None = field(compare=False)
    events: tuple[Any, ...] = field(init=False)
    types: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(map(plain, self.raw)))
        object.__setattr__(self, "types", tuple(names(self.error)))

    @property
    def reply(self) -> Reply:
        assert self.error is None
        return assemble(self.raw)

    @property
    def said(self) -> str:
        """The text of the error. Cohere's has the response headers in it, also that of the connection, which a recording has not."""
        text = "\n".join([str(self.error), *getattr(self.error, "__notes__", ())])
        return text.replace(", 'transfer-encoding': 'chunked'", "")


def plain(event: Any) -> Any:
    """An event as a value to compare. Google's client adds the response headers, of which a cassette keeps some."""
    return event.model_dump(mode="json", exclude={"sdk_http_response"}) if hasattr(event, "model_dump") else event


def names(error: BaseException | None) -> list[str]:
    """The types of the error and of what led to it, down to the HTTP library."""
    chain = []
    while error is not None:
        chain.append(f"{type(error).__module__}.{type(error).__qualname__}")
        error = error.__cause__
    return [*chain[:1], *(name for name in chain[1:] if not name.startswith(BELOW))]


@dataclass(frozen=True, slots=True)
class Code:
    """Code under test: it reads at most so many events, and calls `met` for each; `patience` is its client's read timeout in seconds."""

    client: Client
    most: float = math.inf
    met: Callable[[], Any] = bool
    patience: float = PATIENCE

    def run(self, url: str, *places: str) -> list[Got]:
        """Asks about each place: at once, in threads or tasks, with one client."""
        if self.client.asynchronous:
            return asyncio.run(self._tasks(url, places))
        with self.client.connect(url, self.patience) as api:
            if len(places) == 1:
                return [self._read(api, places[0])]
            with ThreadPoolExecutor(len(places)) as pool:
                return list(pool.map(lambda place: self._read(api, place), places))

    async def _tasks(self, url: str, places: tuple[str, ...]) -> list[Got]:
        async with self.client.connect(url, self.patience) as api:
            return await asyncio.gather(*(self._read_async(api, place) for place in places))

    def _read(self, api: Any, place: str) -> Got:
        events: list[Any] = []
        try:
            with self.client.ask(api, f"When is high tide in {place}?") as stream:
                for event in stream:
                    events.append(event)
                    self.met()
                    if len(events) == self.most:
                        break
        except self.client.errors as error:
            return Got(tuple(events), error)
        return Got(tuple(events), None)

    async def _read_async(self, api: Any, place: str) -> Got:
        events: list[Any] = []
        try:
            async with self.client.ask(api, f"When is high tide in {place}?") as stream:
                async for event in stream:
                    events.append(event)
                    self.met()
                    if len(events) == self.most:
                        break
        except (*self.client.errors, asyncio.CancelledError) as error:
            return Got(tuple(events), error)
        return Got(tuple(events), None)


@contextmanager
def recorded(
    path: Path, answer: Callable[[Request], Exchange], clock: Clock = time.monotonic
) -> Iterator[tuple[Server, Tape]]:
    with serve(answer) as server, use(path, mode="all", keep_failures=True, clock=clock) as tape:
        yield server, tape


def states(tape: Tape) -> list[str]:
    return [response.state for response in tape.responses]


def taken(path: Path, answer: Callable[[Request], Exchange], code: Code, state: str) -> tuple[Got, Got]:
    """What the code gets from a live server while it is recorded, and then from the recording alone."""
    with recorded(path, answer) as (server, tape):
        (live,) = code.run(server.url, PLACES[0])
        assert states(tape) == [state]
    with use(path) as tape:
        (replayed,) = code.run(server.url, PLACES[0])
        assert states(tape) == [state]
    return live, replayed


# ------------------------------------------------------------------------------------------------------------------ the features


def record(client: Client, path: Path) -> None:
    """Every read reaches the client while the server still waits, and the file."""
    gate = threading.Event()

    def answer(request: Request) -> Exchange:
        exchange = healthy(client, request)
        return replace(exchange, reads=Gated(exchange.reads, gate))

    with recorded(path, answer) as (server, _):
        (live,) = Code(client, met=gate.set).run(server.url, "Oban")
    assert live.reply == reply_about("Oban", client)
    (kept,) = load(path).interactions
    assert kept.exchange.body == body_about("Oban", client).body
    assert kept.exchange.ending == COMPLETE
    assert kept.dialect == client.dialect
    assert KEY not in path.read_text()


def replay(client: Client, path: Path) -> None:
    """Without the server the same events come from the recording, cut as they were."""
    with recorded(path, lambda request: healthy(client, request)) as (server, tape):
        (live,) = Code(client).run(server.url, "Oban")
        assert states(tape)[0] in ("ended", "closed")
    with use(path, unplayed="error") as tape:
        (replayed,) = Code(client).run(server.url, "Oban")
        assert states(tape)[0] in ("ended", "closed")
    assert live == replayed
    assert replayed.reply == reply_about("Oban", client)
    if client.boundaries:
        assert replayed.events == tuple(read.data for read in cut(body_about("Oban", client).body))


def early_exit(client: Client, path: Path) -> None:
    """Leaving after two events closes the response."""
    code = Code(client, most=2)
    live, replayed = taken(path, lambda request: broken(healthy(client, request), Ending("stalled")), code, "closed")
    assert len(live.events) == 2
    assert live == replayed
    assert load(path).interactions[0].exchange.ending == Ending("closed")


def disconnect(client: Client, path: Path) -> None:
    """A connection that dies is the client's own error, after the same events."""
    for error in get_args(EndingError)[1:]:
        kept = died(client, path, error)
        assert kept.kind == "disconnected"
        assert (kept.error == "read") == (error == "read")  # few clients can tell the others apart


def died(client: Client, path: Path, error: EndingError) -> Ending:
    """How the recording of a connection ends that died in this way."""
    gate = threading.Event()
    dead = Ending("disconnected", error)
    live, replayed = taken(
        path, lambda request: broken(healthy(client, request), dead, gate), Code(client, met=gate.set), "ended"
    )
    assert live.types
    assert len(live.events) > 1
    assert live == replayed
    return load(path).interactions[0].exchange.ending


def stall(client: Client, path: Path) -> None:
    """The client's read timeout, without the wait."""
    stalled = Ending("stalled")
    for patience in (0.1, 1, 5):  # a busy machine may need more to the first event
        with recorded(path, lambda request: broken(healthy(client, request), stalled)) as (server, tape):
            (live,) = Code(client, patience=patience).run(server.url, "Oban")
        if len(live.events) > 1:
            break
    assert live.types
    assert len(live.events) > 1
    assert states(tape)[-1] == "ended"
    assert load(path).interactions[-1].exchange.ending == stalled
    began = time.monotonic()
    with use(path) as tape:
        (replayed,) = Code(client).run(server.url, "Oban")
    assert time.monotonic() - began < PATIENCE
    assert states(tape) == ["ended"]
    assert live == replayed


def error_status(client: Client, path: Path) -> None:
    """The client's own error, with what the provider said."""
    live, replayed = taken(path, lambda request: problem(client, request, 400), Code(client), "ended")
    assert PROBLEM in live.said
    assert live == replayed
    assert live.said == replayed.said


def retry(client: Client, path: Path) -> None:
    """A 503, and then the answer to the same request."""
    answers = iter([False, True])
    soon = (("retry-after", "0"), ("retry-after-ms", "1"))

    def answer(request: Request) -> Exchange:
        return healthy(client, request) if next(answers) else problem(client, request, 503, *soon)

    def ask(url: str) -> Got:
        (first,) = Code(client).run(url, "Oban")
        if client.retries:
            return first
        assert PROBLEM in first.said
        return Code(client).run(url, "Oban")[0]

    with recorded(path, answer) as (server, tape):
        live = ask(server.url)
        assert [response.status for response in tape.responses] == [503, 200]
    with use(path, unplayed="error") as tape:
        replayed = ask(server.url)
        assert [response.status for response in tape.responses] == [503, 200]
    assert live == replayed
    assert replayed.reply == reply_about("Oban", client)


def concurrent(client: Client, path: Path) -> None:
    """Several requests at once: each gets its own stream."""
    together = threading.Barrier(len(PLACES))

    def answer(request: Request) -> Exchange:
        together.wait(PATIENCE)
        return healthy(client, request)

    with recorded(path, answer) as (server, _):
        live = Code(client).run(server.url, *PLACES)
    with use(path, unplayed="error"):
        replayed = Code(client).run(server.url, *PLACES)
    assert live == replayed
    assert [each.reply for each in replayed] == [reply_about(place, client) for place in PLACES]


def cancellation(client: Client, path: Path) -> None:
    """A task that is cancelled in the middle closes the response."""
    code = Code(client, met=lambda: asyncio.current_task().cancel())
    live, replayed = taken(path, lambda request: broken(healthy(client, request), Ending("stalled")), code, "closed")
    assert live.types == replayed.types == ("asyncio.exceptions.CancelledError",)
    # Live, what is in a buffer already comes before the cancellation.
    assert live.events[: len(replayed.events)] == replayed.events


def mutated_replay(client: Client, path: Path) -> None:
    """What a mutator does to the recording reaches the client, and its value is the same."""
    with recorded(path, lambda request: healthy(client, request)) as (server, _):
        (live,) = Code(client).run(server.url, "Oban")
    body = body_about("Oban", client).body

    def mutated(mutator: Mutator) -> Tape:
        with use(path, mutate=[mutator]) as tape:
            (replayed,) = Code(client).run(server.url, "Oban")
        assert replayed.reply == live.reply
        return tape

    finer = mutated(Rechunk(tuple(range(7, len(body), 11))))
    assert finer.responses[0].reads > len(cut(body))
    cut_up = mutated(Refragment(0, (1, 2, 3, 12)))
    assert cut_up.stream.body != body


def pace(client: Client, path: Path) -> None:
    """A recording that plays in its own time."""
    ticking = functools.partial(next, itertools.count(0, 0.001))
    with recorded(path, lambda request: healthy(client, request), ticking) as (server, _):
        (live,) = Code(client).run(server.url, "Oban")
    last = load(path).interactions[0].exchange.reads[-1].at_ms / 1000
    assert last > 0.01
    began = time.monotonic()
    with use(path, timing="x0.5"):
        (replayed,) = Code(client).run(server.url, "Oban")
    assert time.monotonic() - began > 0.4 * last
    assert live == replayed
    assert replayed.reply == reply_about("Oban", client)


FEATURES: Mapping[str, Callable[[Client, Path], None]] = {
    "record": record,
    "replay": replay,
    "early exit": early_exit,
    "disconnect": disconnect,
    "stall": stall,
    "error status": error_status,
    "retry": retry,
    "concurrent": concurrent,
    "cancellation": cancellation,
    "mutated": mutated_replay,
    "pace": pace,
}

NOT_APPLICABLE: Mapping[tuple[str, str], str] = {
    (client.name, "cancellation"): "nothing to cancel: it is synchronous"
    for client in CLIENTS
    if not client.asynchronous
}
"""The cells without a test, by client and feature, and why: a fact about the client."""

CELLS = [
    pytest.param(client, feature, id=f"{client.name}-{feature}")
    for client in CLIENTS
    for feature in FEATURES
    if (client.name, feature) not in NOT_APPLICABLE
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are made as their users make them, but for what costs time and is not asked here: TLS, a file that is safe from a power cut, and boto3's
    wait of a random part of a second."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
    monkeypatch.setattr(random, "random", lambda: 0.001)


# Google's client makes a class of its own of aiohttp's session.
@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize(("client", "feature"), CELLS)
def test_a_cell(client: Client, feature: str, tmp_path: Path) -> None:
    FEATURES[feature](client, tmp_path / "x.yaml")
