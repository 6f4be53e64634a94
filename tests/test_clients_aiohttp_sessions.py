"""aiohttp's sessions under a tape: many tasks, traces, connections; a miss; the SDKs that ride on aiohttp; and what passes the door."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.payload
import anthropic
import openai
import pytest
from aiohttp import web
from google import genai
from google.genai import types as google

from stream_cassette.cassette import load
from stream_cassette.clients import DOORS, use
from stream_cassette.clients.aiohttp import door
from stream_cassette.clients.doors import opened
from stream_cassette.errors import CassetteMiss, LiveConnection
from stream_cassette.model import COMPLETE, Ending, Exchange, Read, Request
from stream_cassette.server import serve
from test_clients_aiohttp import NOBODY, WAYS, Client, reads_of, taken
from test_clients_aiohttp_requests import odd_answers, parts
from test_clients_httpx import ASK, KEY, PIECES, TELL, chat_body, cut, ending, exchange, provider


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


# ---------------------------------------------------------------------------------------------------- sessions and their tools


def test_fifty_tasks_through_one_session(path: Path) -> None:
    def answer(request: Request) -> Exchange:
        name = request.url.rpartition("/")[2].encode()
        return exchange(*(b"%b:%d " % (name, number) for number in range(5)))

    async def client(url: str) -> list[list[bytes]]:
        async with aiohttp.ClientSession() as session:

            async def one(number: int) -> list[bytes]:
                async with session.get(f"{url}/n{number}") as response:
                    return [data async for data in response.content.iter_any()]

            return await asyncio.gather(*map(one, range(50)))

    live, replayed = taken(path, answer, client)
    assert live == replayed == [[b"n%d:%d " % (task, number) for number in range(5)] for task in range(50)]


def traced(events: list[str]) -> aiohttp.TraceConfig:
    config = aiohttp.TraceConfig()
    for name in vars(config):
        if name.startswith("_on_"):

            async def tell(session: Any, context: Any, params: Any, name: str = name[4:]) -> None:
                events.append(name)

            getattr(config, name[1:]).append(tell)
    return config


def test_traces_tell_the_same_but_for_the_connection(path: Path) -> None:
    async def client(url: str) -> list[str]:
        events: list[str] = []
        async with aiohttp.ClientSession(trace_configs=[traced(events)]) as session:
            for name in ("old", "new"):
                async with session.post(f"{url}/{name}", data=b"x") as response:
                    await response.read()
        return events

    live, replayed = taken(path, odd_answers, client)
    assert [each for each in live if not each.startswith(("connection", "dns"))] == replayed
    assert live.count("connection_create_end") + live.count("connection_reuseconn") == 3
    assert "response_chunk_received" in replayed


def test_a_connection_serves_the_next_request_while_recording(path: Path) -> None:
    events: list[str] = []

    async def client(url: str) -> None:
        async with aiohttp.ClientSession(trace_configs=[traced(events)]) as session:
            for number in range(3):
                async with session.get(f"{url}/{number}") as response:
                    assert await response.read() == b"".join(PIECES)

    with serve(provider) as server, use(path, mode="all"):
        asyncio.run(client(server.url))
    assert events.count("connection_create_start") == 1
    assert events.count("connection_reuseconn") == 2
    assert [len(each.exchange.reads) for each in load(path).interactions] == [len(PIECES)] * 3


def test_a_connection_outlives_the_tape(path: Path) -> None:
    async def client(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            with use(path, mode="all"):
                async with session.get(f"{url}/recorded") as response:
                    await response.read()
            async with session.get(f"{url}/after") as response:
                assert await response.read() == b"".join(PIECES)

    with serve(provider) as server:
        asyncio.run(client(server.url))
    assert [each.exchange.request.url for each in load(path).interactions] == [f"{server.url}/recorded"]


@pytest.mark.parametrize("read_bufsize", [16, 2**20])
def test_a_session_with_a_buffer_of_its_own_size(path: Path, read_bufsize: int) -> None:
    async def client(url: str) -> Any:
        return await reads_of(url, WAYS["lines"], read_bufsize=read_bufsize)

    live, replayed = taken(path, exchange(b"a line\n", b"another", b"\n"), client)
    assert live == replayed == ([b"a line\n", b"another\n"], "")


def test_a_request_without_any_response_is_not_recorded(path: Path) -> None:
    async def client(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.post(url, data=b"x")

    with use(path, mode="all"):
        asyncio.run(client(NOBODY))
    assert not path.exists()


def test_a_server_that_hangs_up_before_it_answers(path: Path) -> None:
    async def client() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(hang_up, "127.0.0.1") as server, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await session.post("http://{}:{}".format(*server.sockets[0].getsockname()), data=b"x")

    with use(path, mode="all") as tape:
        asyncio.run(client())
    assert not path.exists()
    assert "no response came (ServerDisconnectedError)" in tape.remarks[0]


# ---------------------------------------------------------------------------------------------------------------------- misses


async def by_get(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        await session.post(url, data=parts())


async def by_group(url: str) -> None:
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        group.create_task(session.request("GET", url))


async def swallowed(url: str) -> None:
    with suppress(BaseException):
        await by_get(url)


async def by_openai(url: str) -> Any:
    http = openai.DefaultAioHttpClient()
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, http_client=http) as client:
        return [chunk.model_dump() async for chunk in await client.chat.completions.create(**ASK, stream=True)]


async def by_anthropic(url: str) -> Any:
    http = anthropic.DefaultAioHttpClient()
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, http_client=http) as client:
        return [event.model_dump() async for event in await client.messages.create(**TELL, stream=True)]


async def by_genai(url: str) -> Any:
    options = google.HttpOptions(base_url=url)
    async with genai.Client(api_key=KEY, http_options=options).aio as client:
        assert client._api_client._use_aiohttp()
        stream = await client.models.generate_content_stream(model="m", contents="hi")
        return [chunk.model_dump(exclude={"sdk_http_response"}) async for chunk in stream]


# It inherits from a class of aiohttp that warns of that.
GENAI = pytest.param(by_genai, marks=pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning"))


@pytest.mark.parametrize("client", [by_get, by_group, swallowed, by_openai, by_anthropic, GENAI])
def test_a_miss_fails_whatever_becomes_of_it(path: Path, client: Client) -> None:
    with pytest.raises(CassetteMiss, match=r"127\.0\.0\.1:9") as caught, use(path) as tape:
        asyncio.run(client(NOBODY))
    assert caught.value is tape.failure
    gc.collect()  # what was left open would complain


# ------------------------------------------------------------------------------------------------------------------------ SDKs


def gemini(request: Request) -> Exchange:
    def chunk(text: str, **more: Any) -> bytes:
        candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **more}
        value = {"candidates": [candidate], "modelVersion": "m", "responseId": "r1"}
        return f"data: {json.dumps(value, ensure_ascii=False)}\r\n\r\n".encode()

    body = b"".join([*(chunk(text) for text in ("Grüße", " aus", " Zürich")), chunk("!", finishReason="STOP")])
    return exchange(*cut(body)) if ":streamGenerateContent" in request.url else provider(request)


@pytest.mark.parametrize("client", [by_openai, by_anthropic, GENAI])
def test_an_sdk_gets_the_same_objects_from_the_recording(path: Path, client: Client) -> None:
    live, replayed = taken(path, gemini, client)
    assert len(live) >= 4
    assert live == replayed
    assert ending(path) == COMPLETE
    text = path.read_text()
    assert KEY not in text
    assert "Grüße aus Zürich" in text


def test_a_dead_connection_through_an_sdk(path: Path) -> None:
    async def client(url: str) -> list[str]:
        seen = []
        http = openai.DefaultAioHttpClient()
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, http_client=http) as client:
            try:
                async for chunk in await client.chat.completions.create(**ASK, stream=True):
                    seen.append(chunk.choices[0].delta.content or "")
            except openai.APIConnectionError as error:
                seen.append(repr(error.__cause__))
        return seen

    half = [Read(20 * place, each.data) for place, each in enumerate(cut(chat_body())[:6])]
    live, replayed = taken(path, exchange(*half, ending=Ending("disconnected", "protocol")), client)
    assert live == replayed
    assert live[-1].startswith("ReadError(")


# ----------------------------------------------------------------------------------------------------------- past the door


@pytest.mark.parametrize("mode", ["all", "none"])
def test_a_websocket_goes_its_own_way(path: Path, mode: Any) -> None:
    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    async def client() -> str:
        app = web.Application()
        app.router.add_get("/", echo)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = "ws://{}:{}".format(*runner.addresses[0])
            async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
                await socket.send_str("hello")
                return str((await socket.receive()).data)
        finally:
            await runner.cleanup()

    if mode == "none":
        with pytest.raises(LiveConnection, match=r"^aiohttp goes to the network"), use(path, mode=mode):
            asyncio.run(client())
    else:
        with use(path, mode=mode):
            assert asyncio.run(client()) == "hello"
    assert not path.exists()


def test_what_is_left_alone_is_not_recorded(path: Path) -> None:
    with serve(provider) as server, use(path, mode="all", allow_loopback=True) as tape:
        assert asyncio.run(reads_of(server.url))[1] == ""
    assert not tape.used
    assert not path.exists()


def test_without_a_tape_a_request_goes_its_way() -> None:
    with serve(provider) as server, opened(DOORS):
        got, error = asyncio.run(reads_of(server.url))
    assert (b"".join(got), error) == (b"".join(PIECES), "")


def test_the_original_comes_back(path: Path) -> None:
    original = vars(aiohttp.BaseConnector)["connect"]
    with use(path, mode="once"):
        assert vars(aiohttp.BaseConnector)["connect"] is not original
    assert vars(aiohttp.BaseConnector)["connect"] is original


def test_an_aiohttp_that_is_too_old_is_let_be() -> None:
    old = types.SimpleNamespace(__version__="3.12.15", BaseConnector=aiohttp.BaseConnector)
    assert door(old) == ()
    assert len(door(aiohttp)) == 1


def test_a_wrapper_that_stays_over_ours_is_not_taken_for_ours(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connects: list[str] = []

    def tracing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        async def connect(self: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
            connects.append(req.url.path)
            return await original(self, req, *args, **kwargs)

        return connect

    owner = aiohttp.BaseConnector
    monkeypatch.setattr(owner, "connect", vars(owner)["connect"])  # put back at the end
    with serve(provider) as server:
        with use(path, mode="once"):
            asyncio.run(reads_of(f"{server.url}/first"))
            owner.connect = tracing(vars(owner)["connect"])
        with use(path, mode="all"):
            assert asyncio.run(reads_of(f"{server.url}/second"))[1] == ""
    assert connects == ["/second"]
    assert [each.exchange.request.url for each in load(path).interactions] == [f"{server.url}/second"]
    assert len(load(path).interactions[0].exchange.reads) == len(PIECES)
