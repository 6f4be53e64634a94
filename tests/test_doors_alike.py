"""What holds of every door: how it plays an exchange made by hand, and what becomes of a request that is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from stream_cassette import synthesize, use
from stream_cassette.clients import intercepted
from stream_cassette.clients import urllib3 as clients_urllib3
from stream_cassette.errors import TapeError
from stream_cassette.headers import separated, unfit
from stream_cassette.model import COMPLETE, Ending, Exchange, Read, Reply, TextPart
from stream_cassette.mutate.base import Level, Mutator
from stream_cassette.mutate.laws import Law
from stream_cassette.playing import Player
from stream_cassette.stream import Stream
from stream_cassette.tape import Tape
from wires import answered, by_hand

URL = "http://provider.test/"
SAID = synthesize(Reply((TextPart("hi"),), "stop", ended=True), "openai-chat").exchange
CHUNK = Ending("disconnected", "chunk")


async def by_aiohttp(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.read(), response.headers


async def by_httpx_async(url: str) -> Any:
    async with httpx2.AsyncClient() as client:
        response = await client.get(url)
    return response.content, response.headers


def by_httpx(url: str) -> Any:
    response = httpx.get(url)
    return response.content, response.headers


def by_requests(url: str) -> Any:
    response = requests.get(url, timeout=5)
    return response.content, response.headers


def by_urllib3(url: str) -> Any:
    with urllib3.PoolManager() as pool:
        response = pool.request("GET", url, retries=False)
    return response.data, response.headers


CLIENTS: dict[str, Callable[[str], Any]] = {
    "httpx": by_httpx,
    "httpx async": lambda url: asyncio.run(by_httpx_async(url)),
    "requests": by_requests,
    "urllib3": by_urllib3,
    "aiohttp": lambda url: asyncio.run(by_aiohttp(url)),
}
ERRORS = (
    httpx.HTTPError,
    httpx2.HTTPError,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    aiohttp.ClientError,
)
EVERY_CLIENT = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


# ----------------------------------------------------------------------------------------------------------------- headers

UNFIT: list[tuple[str, str, str]] = [
    ("x-request-id", "a\r\nset-cookie: b=1\r\n\r\nevil", r"the header 'x-request-id': there is '\r' in its value"),
    ("content-type", "text/event-stream\ntext/event-stream", r"the header 'content-type': there is '\n' in its value"),
    ("x", "\0", r"the header 'x': there is '\x00' in its value"),
    ("x", "a\ud83d", r"the header 'x': there is '\ud83d' in its value"),
    ("", "a", "'' is no name of a header"),
    ("x y", "a", "'x y' is no name of a header"),
    ("x: a\r\ny", "a", r"'x: a\r\ny' is no name of a header"),
    (":status", "200", "':status' is no name of a header"),
    ("é", "a", "'é' is no name of a header"),
]


@dataclass(frozen=True)
class Headed(Mutator):
    """Gives the response one header more."""

    name: str
    value: str
    level: ClassVar[Level] = "wire"
    law: ClassVar[Law] = Law()

    def apply(self, stream: Stream) -> Stream:
        exchange = stream.exchange
        return Stream(replace(exchange, headers=(*exchange.headers, (self.name, self.value))), stream.spoken)


@EVERY_CLIENT
@pytest.mark.parametrize(("name", "value", "words"), UNFIT)
def test_a_header_that_http_cannot_carry_is_named(
    tmp_path: Path, client: Callable[[str], Any], name: str, value: str, words: str
) -> None:
    """In one client it would end the headers or become others, in another do nothing."""
    by_hand(tmp_path / "x.yaml", answered(URL, *SAID.reads, headers=SAID.headers))
    with pytest.raises(TapeError) as caught, use(tmp_path / "x.yaml", mutate=[Headed(name, value)]) as tape:
        with pytest.raises(TapeError):
            client(URL)
    assert tape.failure is caught.value
    assert tape.responses == ()
    assert words in caught.value.what
    assert "x.yaml, interaction 1" in caught.value.where
    assert "take that out" in caught.value.mend


@pytest.mark.parametrize(("name", "value", "words"), UNFIT)
def test_a_tape_without_a_file_has_no_such_header_either(name: str, value: str, words: str) -> None:
    with pytest.raises(TapeError) as caught:
        Tape.answering([answered(URL, headers=(("a", "b"), (name, value)))])
    assert words in caught.value.what


@EVERY_CLIENT
@pytest.mark.parametrize("status", [101, 200, 600, 999])
def test_a_status_that_ends_a_request(client: Callable[[str], Any], status: int) -> None:
    with intercepted(Tape.answering([answered(URL, Read(0, b"a"), status=status)])):
        assert client(URL)[0] in (b"a", b"")  # after 101 it is no longer HTTP


@pytest.mark.parametrize("status", [0, 100, 102, 199])
def test_a_status_after_which_a_client_waits_for_another(status: int) -> None:
    with pytest.raises(TapeError, match=f"{status} is the status of what comes before a response"):
        Tape.answering([answered(URL, Read(0, b"a"), status=status)])


@pytest.mark.parametrize(
    ("value", "values"),
    [
        ("", [""]),
        ("a", ["a"]),
        (" a\tb ", [" a\tb "]),
        ("a\nb", ["a", "b"]),
        ("a\r\nb\rc", ["a", "b", "c"]),
        ("a\r\n \tb\n c", ["a b c"]),
        ("\n\na\n\n\nb\n", ["a", "b"]),
        ("\0a\0", [" a "]),
        ("\r\n", [""]),
    ],
)
def test_line_ends_within_a_value_are_taken_out(value: str, values: list[str]) -> None:
    found = separated((("x", value), ("y", "z")))
    assert found == (*(("x", each) for each in values), ("y", "z"))
    assert not any(unfit(*each) for each in found)


@EVERY_CLIENT
@pytest.mark.parametrize("value", ["\udce9", "é", "🌊", "\x7f", "a\tb"])
def test_a_value_that_is_no_ascii_reaches_the_client(client: Callable[[str], Any], value: str) -> None:
    """In the words that the client has for it; aiohttp keeps bytes that are no UTF-8 as surrogates."""
    with intercepted(Tape.answering([answered(URL, Read(0, b"a"), headers=(("x", value), ("etag", "b")))])):
        body, headers = client(URL)
    came = str(headers["x"])
    assert (body, headers["etag"]) == (b"a", "b")
    assert value in (came, came.encode("latin-1", "replace").decode(errors="surrogateescape"))


@EVERY_CLIENT
@pytest.mark.parametrize(
    "length", ["9" * 5000, "9" * 18, "9" * 19, "٣٢", "-1", "+32", "32, 32", "0x20", "", "031", "032", "32"]
)
def test_a_content_length_that_cannot_be_true_is_not_told(client: Callable[[str], Any], length: str) -> None:
    with intercepted(Tape.answering([answered(URL, Read(0, b"x" * 32), headers=(("content-length", length),))])):
        body, headers = client(URL)
    assert body == b"x" * 32
    assert headers.get("content-length") == (length if length in ("32", "032") else None)


# ------------------------------------------------------------------------------------------------------------------- reads


@EVERY_CLIENT
@pytest.mark.parametrize("ending", [COMPLETE, CHUNK], ids=["complete", "chunk"])
@pytest.mark.parametrize(
    "reads",
    [(b"", b"a", b"b"), (b"a", b"", b"b"), (b"a", b"b", b"", b""), (b"", b"", b"a", b"", b"", b"b", b""), (b"", b"")],
)
def test_a_read_without_a_byte_ends_nothing(
    client: Callable[[str], Any], reads: tuple[bytes, ...], ending: Ending
) -> None:
    def result(*reads: bytes) -> Any:
        with intercepted(Tape.answering([answered(URL, *(Read(0, data) for data in reads), ending=ending)])) as tape:
            try:
                return client(URL)[0], tape.responses
            except ERRORS as error:
                return type(error), tape.responses

    there = tuple(filter(None, reads))
    found, responses = result(*reads)
    assert (found, responses) == result(*there)
    assert ending == CHUNK or found == b"".join(there)
    assert [(each.reads, each.state) for each in responses] == [(len(there), "ended")]


@pytest.mark.parametrize(
    ("exchange", "end"),
    [
        (answered(URL, Read(0, b"abc")), b"3\r\nabc\r\n0\r\n\r\n"),
        (answered(URL), b"0\r\n\r\n"),
        (answered(URL, Read(0, b"abc"), headers=(("content-length", "3"),)), b"\r\n\r\nabc"),
        (answered(URL, Read(0, b"abc"), ending=CHUNK), b"4\r\nabc"),
    ],
)
def test_a_wire_ends_once(exchange: Exchange, end: bytes) -> None:
    """Whoever reads beyond what the headers promise, as one does who took them for others."""
    player = Player(Stream(exchange), pytest.fail, "")
    player.start()
    wire = clients_urllib3._Socket(player).makefile("rb")
    pieces = [wire.read1(-1) for _ in range(20)]
    assert b"".join(pieces).endswith(end)
    assert pieces[-15:] == [b""] * 15
    assert player.read_to_end


# ------------------------------------------------------------------------------------------------- requests that are given up


async def sent_by_aiohttp(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(url, json={"stream": True}) as response:
        await response.read()


async def given_up(client: Callable[[str], Any], turns: int) -> None:
    task = asyncio.ensure_future(client(URL))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("client", [by_aiohttp, sent_by_aiohttp, by_httpx_async])
def test_a_request_that_is_cancelled_at_any_turn_is_no_leak(client: Callable[[str], Any]) -> None:
    """Before its headers came nobody has anything to close."""
    states = []
    while "ended" not in states:
        with intercepted(Tape.answering([answered(URL, *SAID.reads)])) as tape:
            asyncio.run(given_up(client, len(states)))
        assert tape.remarks == ()
        assert len(states) < 100
        states.append(tape.responses[0].state if tape.responses else "")
    assert sorted(set(states[:-1])) == ["", "closed"]
    assert states.count("closed") > 2


def test_a_request_that_its_client_cannot_send_is_no_leak() -> None:
    with intercepted(Tape.answering([answered(URL)])) as tape, pytest.raises(ValueError, match="Invalid header value"):
        urllib3.request("GET", URL, headers={"x": "a\nb"})
    assert [each.state for each in tape.responses] == ["closed"]
    assert tape.remarks == ()
