"""The stock invariants: what they find, and that a correct assembler or gateway holds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import httpx2
import pytest

from broken import BROKEN, Loop
from stream_cassette import Assembler, assemble, invariants, serve
from stream_cassette.errors import LawBroken, NotApplicable, TapeError
from stream_cassette.model import Arguments, Exchange, Finish, Key, Read, Request, Start, Text, ToolCallStart
from stream_cassette.mutate import CutBeforeFinish, Disconnect, DropUsage, HttpError, OneByteReads, Ping
from streams import CALLS, EVERY, chat

CALL, PIECE = ToolCallStart(Key(0, 0, "a"), "function", "f"), Arguments(Key(0, 0), "{}")
SHORT = chat(
    Start(Key(), "assistant", "r", "m"),
    Text(Key(), "One "),
    Text(Key(), "漢字"),
    CALL,
    PIECE,
    Finish(Key(), "tool_calls"),
)


class Mine(Assembler):
    def feed(self, event: Any) -> Any:
        return self.feed_bytes(event) if isinstance(event, bytes) else super().feed(event)


def test_a_correct_assembler_holds() -> None:
    invariants.split(assemble, CALLS)
    invariants.prefix(assemble, CALLS)
    invariants.arguments(assemble, CALLS)
    invariants.arguments(Loop(), CALLS)
    invariants.progress(Mine, CALLS)


def test_split_finds_per_read_readers() -> None:
    with pytest.raises(LawBroken, match=r"OneByteReads|Rechunk"):
        invariants.split(BROKEN["DecodesPerRead"], CALLS)

    class EndsAtAnEmptyRead(Loop):
        """Takes a read of nothing for the end."""

        def __call__(self, reads: Iterable[bytes]) -> Any:
            return super().__call__(itertools.takewhile(bool, reads))

    with pytest.raises(LawBroken, match="with empty reads"):
        invariants.split(EndsAtAnEmptyRead(), SHORT)


def test_prefix_finds_readers_that_take_any_end_for_the_end() -> None:
    with pytest.raises(LawBroken, match=r"CutAfterFrame\(n=0\)"):
        invariants.prefix(BROKEN["DoneWhenBytesEnd"], CALLS)


def test_arguments_finds_half_calls() -> None:
    class Trusting(Loop):
        @staticmethod
        def is_object(text: str) -> bool:
            return True

    with pytest.raises(LawBroken, match="no JSON object"):
        invariants.arguments(Trusting(), CALLS)
    with pytest.raises(LawBroken, match="as it was recorded"):
        invariants.arguments(lambda reads: {"tool_calls": [("f", "{")]}, CALLS)
    with pytest.raises(KeyError):
        invariants.arguments(lambda reads: {}["x"], CALLS)
    invariants.arguments(
        lambda reads: {
            "tool_calls": [{"kind": "custom", "arguments": "{"}, {"function": {"arguments": {}}}, ("f", "")]
        },
        CALLS,
    )


class Shown:
    """An incremental reader whose `show` can go wrong."""

    def __init__(self) -> None:
        self.reads: list[bytes] = []

    def feed(self, data: bytes) -> None:
        self.reads.append(data)

    def result(self) -> dict[str, Any]:
        reply = assemble(self.reads, dialect="openai-chat")
        return self.show(reply.text, [*reply.tool_calls, *reply.incomplete_tool_calls])

    def show(self, text: str, calls: list[Any]) -> dict[str, Any]:
        return {"text": text, "tool_calls": calls}


class HoldsBack(Shown):
    def show(self, text: str, calls: list[Any]) -> dict[str, Any]:
        return {"text": text[:-1], "tool_calls": calls}


class Shrinks(Shown):
    def show(self, text: str, calls: list[Any]) -> dict[str, Any]:
        return {"text": text if len(self.reads) % 2 else "", "tool_calls": calls if len(self.reads) < 6 else []}


def test_progress_finds_what_is_held_back_or_taken_back() -> None:
    invariants.progress(Shown, SHORT)
    with pytest.raises(LawBroken, match="'One ' had come, 'One' was shown"):
        invariants.progress(HoldsBack, SHORT)
    with pytest.raises(LawBroken, match="shrank or changed"):
        invariants.progress(Shrinks, SHORT)
    with pytest.raises(LawBroken, match="1 became 0"):
        invariants.progress(Shrinks, SHORT, view=lambda value: {**value, "text": ""})


@pytest.mark.parametrize("name", ["openai-chat", "anthropic"])
def test_a_gateway_that_passes_bytes_on_holds(name: str) -> None:
    invariants.relay(lambda reads: b"".join(reads), EVERY[name])
    invariants.relay(lambda reads: reads, EVERY[name], [Ping(1)])


def test_relay_finds_what_a_gateway_loses() -> None:
    def without_usage(reads: Iterable[bytes]) -> bytes:
        return b"".join(
            event + b"\n\n" for event in b"".join(reads).split(b"\n\n") if event and b'"usage"' not in event
        )

    def reparsing(reads: Iterable[bytes]) -> Iterable[bytes]:
        for data in reads:
            text = data.decode().removeprefix("data: ").strip()
            if text.startswith("{"):
                json.loads(text)
            yield data

    def mending(reads: Iterable[bytes]) -> bytes:
        return b"".join(reads) + b'\n\ndata: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'

    with pytest.raises(LawBroken, match="relay: expected"):
        invariants.relay(without_usage, CALLS)
    with pytest.raises(LawBroken, match="JSONDecodeError"):
        invariants.relay(reparsing, CALLS, "wire")
    with pytest.raises(LawBroken, match="a clean success of a stream that broke"):
        invariants.relay(mending, CALLS, [CutBeforeFinish()])
    with pytest.raises(NotApplicable, match="no mutator of 'loss'"):
        invariants.relay(without_usage, DropUsage().apply(CALLS), "loss")


class App:
    """An ASGI gateway: asks its provider, tries again once, and passes the bytes on, changed by `change`."""

    def __init__(self, provider: str = "https://api.example.com", change: Any = lambda data: data) -> None:
        self.provider, self.change = provider, change

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        event = await receive()
        async with httpx2.AsyncClient() as client:
            for _ in range(2):
                async with client.stream("POST", self.provider + scope["path"], content=event["body"]) as response:
                    if response.status_code < 500:
                        await send(
                            {
                                "type": "http.response.start",
                                "status": 200,
                                "headers": [(b"content-type", b"text/event-stream")],
                            }
                        )
                        async for data in response.aiter_raw():
                            await send({"type": "http.response.body", "body": self.change(data), "more_body": True})
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
                        return


def test_an_asgi_application_is_a_gateway() -> None:
    invariants.relay(App(), CALLS, [Ping(1), OneByteReads(), CutBeforeFinish(), Disconnect(700), HttpError(503)])
    with pytest.raises(LawBroken, match="relay: expected"):
        invariants.relay(App(change=lambda data: data.replace(b"Oban", b"Olban")), CALLS, [Ping(1)])


def test_a_running_server_is_a_gateway() -> None:
    with invariants.upstream() as provider:

        def forward(request: Request) -> Exchange:
            response = httpx2.post(provider.url + "/v1/chat/completions", content=request.body)
            return Exchange(request, 200, (("content-type", "text/event-stream"),), (Read(0, response.content),))

        with serve(forward, paced=False) as gateway:
            invariants.relay(gateway.url, CALLS, [Ping(1), CutBeforeFinish()], upstream=provider)
    with pytest.raises(TapeError, match="needs its upstream"):
        invariants.relay("http://127.0.0.1:1", CALLS)
