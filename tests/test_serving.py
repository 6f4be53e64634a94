"""A tape behind the loopback server: what clients get from it that know nothing of us, and what the tape then knows of them."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpcore2  # noqa: F401 - loaded here, because what a run in this process loads is unloaded after it
import httpx
import httpx2
import pytest

from stream_cassette import Reply, synthesize, use
from stream_cassette.cassette import update
from stream_cassette.errors import CassetteMiss, LiveConnection, RecordingTooShort, TapeError
from stream_cassette.model import COMPLETE, Cassette, Ending, Exchange, Interaction, Read, Request, TextPart
from stream_cassette.mutate import Disconnect, HttpError, ReadPerFrame
from stream_cassette.server import Server, serve
from stream_cassette.serving import Served, answer, serve_tape
from stream_cassette.tape import Tape

ASK = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
OPENAI = "https://api.openai.com/v1/chat/completions"
REPLY = Reply((TextPart("Low tide is at noon."),), "stop", ended=True)
CHAT = synthesize(REPLY, "openai-chat", request=Request("POST", OPENAI, (), ASK)).exchange


def exchange(
    *reads: bytes, url: str = OPENAI, ending: Ending = COMPLETE, every_ms: int = 0, body: bytes = ASK
) -> Exchange:
    timed = tuple(Read(index * every_ms, data) for index, data in enumerate(reads))
    return Exchange(Request("POST", url, (), body), 200, (("content-type", "text/event-stream"),), timed, ending)


def cassette(path: Path, *exchanges: Exchange, test: str | None = None) -> Path:
    update(path, lambda _: Cassette(tuple(Interaction(each, test) for each in exchanges), "2026-11-30T00:00:00Z", "x"))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


def ask(server: Server, path: str = "/v1/chat/completions", body: bytes = ASK) -> httpx.Response:
    return httpx.post(server.url + path, content=body)


def connect(server: Server, path: str = "/v1/chat/completions") -> socket.socket:
    """A raw client that has asked."""
    host, port = server.url.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=5)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(ASK)}\r\n\r\n"
    client.sendall(head.encode() + ASK)
    return client


def until(client: socket.socket, end: bytes) -> bytes:
    got = b""
    while not got.endswith(end):
        got += client.recv(65536)
    return got


# ---------------------------------------------------------------------------------------------------------------- what is played


def test_each_read_is_a_chunk(path: Path) -> None:
    tape = Tape(cassette(path, exchange(b"data: 1\n", b"\n", b"data: [DONE]\n\n")))
    with serve_tape(tape) as server, connect(server) as client:
        got = until(client, b"0\r\n\r\n")
    assert got.endswith(b"\r\n\r\n8\r\ndata: 1\n\r\n1\r\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    assert [(each.status, each.reads, each.state) for each in tape.responses] == [(200, 3, "ended")]
    assert tape.failure is None


@pytest.mark.parametrize(
    "recorded", [OPENAI, "http://127.0.0.1:41234/v1/chat/completions", "http://[::1]:8080/v1/chat/completions"]
)
def test_a_request_is_looked_up_at_the_recorded_host(path: Path, recorded: str) -> None:
    with serve_tape(Tape(cassette(path, exchange(b"a", url=recorded)))) as server:
        assert ask(server).text == "a"


def test_of_several_hosts_the_one_that_has_a_recording_answers(path: Path) -> None:
    one, other = exchange(b"one"), exchange(b"other", url="https://api.groq.com/openai/v1/chat/completions")
    again = exchange(b"again", url="https://eu.api.openai.com/v1/chat/completions")
    tape = Tape(cassette(path, one, other, again))
    with serve_tape(tape) as server:
        assert ask(server, "/openai/v1/chat/completions").text == "other"
        assert [ask(server).text, ask(server).text] == ["one", "again"]
    assert tape.failure is None


def test_of_several_hosts_a_miss_tells_the_one_that_comes_closest(path: Path) -> None:
    other = exchange(b"other", url="https://api.groq.com/openai/v1/chat/completions")
    with serve_tape(Tape(cassette(path, exchange(b"one"), other))) as server:
        assert ask(server, "/openai/v1/chat/completions").text == "other"
        again = ask(server, "/openai/v1/chat/completions").json()["message"]
        differs = ask(server, "/openai/v1/chat/completions", ASK.replace(b"hi", b"ho")).json()["message"]
        elsewhere = ask(server, "/elsewhere").json()["message"]
    assert "answers POST https://api.groq.com/" in again
    assert "was played as often already" in again
    assert "answers POST https://api.groq.com/" in differs
    assert "url:" not in differs
    assert "answers POST https://api.openai.com/elsewhere" in elsewhere


def test_a_query_counts(path: Path) -> None:
    with serve_tape(Tape(cassette(path, exchange(b"a", url=f"{OPENAI}?api-version=1")))) as server:
        assert ask(server, "/v1/chat/completions?api-version=1").text == "a"


def test_pace(path: Path) -> None:
    recorded = cassette(path, exchange(b"a", b"b", b"c", every_ms=40))
    with serve_tape(Tape(recorded, timing="recorded")) as server:
        began = time.monotonic()
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", content=ASK) as response:
            times = [time.monotonic() - began for _ in response.iter_raw()]
    # A busy machine reads late, never early.
    assert [at >= index * 0.04 for index, at in enumerate(times)] == [True, True, True]


def test_a_mutator_and_what_answers_before_it(path: Path) -> None:
    tape = Tape(cassette(path, CHAT), mutate=[HttpError(503, 1), ReadPerFrame()])
    with serve_tape(tape) as server:
        first, second = ask(server), ask(server)
    assert (first.status_code, first.headers["retry-after-ms"]) == (503, "1")
    assert second.content == CHAT.body
    tape.check(tape.reply)


# ------------------------------------------------------------------------------------------------------------------ how it ends


ENDINGS = [COMPLETE, *(Ending("disconnected", error) for error in ("protocol", "chunk", "read"))]


def taken(url: str) -> tuple[bytes, str]:
    """What a client gets and how it ends for it."""
    reads = b""
    try:
        with httpx2.stream("POST", url, content=ASK) as response:
            for data in response.iter_raw():
                reads += data
    except httpx2.HTTPError as error:
        return reads, type(error).__name__
    return reads, ""


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: each.error or each.kind)
def test_over_the_wire_it_ends_as_through_the_door(path: Path, ending: Ending) -> None:
    cassette(path, exchange(b"data: 1\n\n", b"data: 2\n\n", ending=ending))
    with serve_tape(Tape(path)) as server:
        served = taken(f"{server.url}/v1/chat/completions")
    with use(path):
        assert served == taken(OPENAI)
    assert served[0] == b"data: 1\n\ndata: 2\n\n"


def test_a_disconnect_within_a_chunk(path: Path) -> None:
    tape = Tape(cassette(path, CHAT), mutate=[Disconnect(100, mid_chunk=True)])
    with serve_tape(tape) as server:
        got, error = taken(f"{server.url}/v1/chat/completions")
    assert (got, error) == (CHAT.body[:100], "RemoteProtocolError")
    tape.check(tape.reply)


def test_a_stall_lasts_until_the_client_leaves(path: Path) -> None:
    seen: list[Served] = []
    tape = Tape(cassette(path, exchange(b"a", ending=Ending("stalled"))))
    with serve(lambda request: answer(tape, request, seen.append)) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/chat/completions", content=ASK, timeout=httpx.Timeout(5, read=0.2))
        assert server.settle()
    assert [(each.reads, each.ended) for each in seen] == [(1, "stalled")]


@pytest.mark.parametrize("resets", [True, False])
def test_a_client_that_leaves_early_is_seen_on_the_tape(path: Path, resets: bool) -> None:
    seen: list[Served] = []
    tape = Tape(cassette(path, exchange(b"a", b"b", b"c", every_ms=60_000)), timing="recorded")
    with serve(lambda request: answer(tape, request, seen.append)) as server:
        with connect(server) as client:
            until(client, b"\r\na\r\n")
            if resets:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert server.settle()
        assert [(each.reads, each.state) for each in tape.responses] == [(1, "closed")]
    (served,) = seen
    assert (served.request.url, served.request.body) == (f"{server.url}/v1/chat/completions", ASK)
    assert (served.status, served.reads, served.ended, served.miss) == (200, 1, "closed by the client", "")


def test_a_reader_that_reads_on_where_the_recorded_one_left(path: Path) -> None:
    seen: list[Served] = []
    tape = Tape(cassette(path, exchange(b"a", ending=Ending("closed"))))
    with serve(lambda request: answer(tape, request, seen.append)) as server:
        assert taken(f"{server.url}/v1/chat/completions") == (b"a", "RemoteProtocolError")
    assert isinstance(tape.failure, RecordingTooShort)
    assert [each.ended for each in seen] == ["broken off: the recording is too short"]


def unsayable() -> Tape:
    return Tape.answering([Exchange(Request("POST", OPENAI, (), ASK), 1000, (), (Read(0, b"a"),))])


def closed() -> Tape:
    tape = Tape.answering([])
    tape.close()
    return tape


@pytest.mark.parametrize(
    ("make", "what"),
    [(unsayable, "HTTP cannot carry the status 1000"), (closed, "comes after the tape was closed")],
)
def test_what_cannot_be_served_is_no_miss(make: Callable[[], Tape], what: str) -> None:
    seen: list[Served] = []
    tape = make()
    with pytest.raises(TapeError) as caught, serve(lambda request: answer(tape, request, seen.append)) as server:
        response = ask(server)
    assert caught.value.what.endswith(what)
    assert (response.status_code, response.text) == (500, f"TapeError: {caught.value}")
    assert [(each.status, each.reads, each.ended, each.miss) for each in seen] == [(500, 0, caught.value.what, "")]
    assert tape.failure is None


# ----------------------------------------------------------------------------------------------------------------------- misses


def test_a_miss(path: Path) -> None:
    seen: list[Served] = []
    tape = Tape(cassette(path, exchange(b"a")), test="tests/test_a.py::test_b")
    with serve(lambda request: answer(tape, request, seen.append)) as server:
        response = ask(server, body=ASK.replace(b"hi", b"ho"))
    assert (response.status_code, response.headers["x-should-retry"]) == (404, "false")
    error = response.json()["error"]
    assert error["type"] == "cassette_miss"
    assert f"no recorded interaction answers POST {OPENAI}" in error["message"]
    assert "body.messages[0].content: recorded 'hi', now 'ho'" in error["message"]
    assert isinstance(tape.failure, CassetteMiss)
    assert error["message"] == str(tape.failure)
    assert [(each.status, each.ended, each.miss) for each in seen] == [(404, "miss", error["message"])]


def test_what_is_played_is_a_miss_the_second_time(path: Path) -> None:
    with serve_tape(Tape(cassette(path, exchange(b"a")))) as server:
        assert ask(server).text == "a"
        assert "recorded once and was played as often already" in ask(server).text


def openai_error(url: str) -> str:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client, pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="m", messages=[], stream=True)
    assert caught.value.type == "cassette_miss"
    return str(caught.value)


def anthropic_error(url: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key="k") as client, pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="m", max_tokens=1, messages=[], stream=True)
    return str(caught.value)


def google_error(url: str) -> str:
    from google import genai

    client = genai.Client(api_key="k", http_options=genai.types.HttpOptions(base_url=url))
    with pytest.raises(genai.errors.ClientError) as caught:
        next(client.models.generate_content_stream(model="m", contents="hi"))
    assert caught.value.status == "NOT_FOUND"
    client.close()
    return str(caught.value.message)


def cohere_error(url: str) -> str:
    import cohere

    with cohere.ClientV2(api_key="k", base_url=url) as client, pytest.raises(cohere.NotFoundError) as caught:
        next(iter(client.chat_stream(model="m", messages=[])))
    return str(caught.value.body["message"])


def ollama_error(url: str) -> str:
    import ollama

    with ollama.Client(host=url) as client, pytest.raises(ollama.ResponseError) as caught:
        next(iter(client.chat(model="m", messages=[], stream=True)))
    return str(caught.value)


def bedrock_error(url: str) -> str:
    import boto3
    import botocore.exceptions

    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id="k",
        aws_secret_access_key="k",
    )
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        client.converse_stream(modelId="m", messages=[])
    client.close()
    return str(caught.value)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "client", [openai_error, anthropic_error, google_error, cohere_error, ollama_error, bedrock_error]
)
def test_a_client_of_each_provider_tells_the_miss_and_asks_once(path: Path, client: Callable[[str], str]) -> None:
    with serve_tape(Tape(cassette(path, exchange(b"a")))) as server:
        assert "no recorded interaction answers POST https://api.openai.com/" in client(server.url)
    assert len(server.requests) == 1


@pytest.mark.parametrize("mode", ["all", "new", "compare"])
def test_a_tape_that_would_record_says_how_to(path: Path, mode: Any) -> None:
    tape = Tape(path, mode=mode, test="test_a.py::test_b[1 2]")
    with serve_tape(tape) as server:
        response = ask(server)
    assert response.status_code == 404
    assert isinstance(tape.failure, TapeError)
    assert tape.failure.what == "a server on loopback replays; it does not know whom it should ask"
    assert tape.failure.mend == (
        f"stream-cassette record --upstream URL --mode new --to {path} --test 'test_a.py::test_b[1 2]' -- COMMAND"
    )
    assert tape.failure.mend in response.json()["error"]["message"]
    tape.close()
    assert not path.exists()


# ------------------------------------------------------------------------------------------------------------ beside other clients


def test_within_this_process_too_what_is_said_to_the_server_is_answered_once(path: Path) -> None:
    cassette(path, exchange(b"a"), exchange(b"b"))
    with use(path) as tape, serve_tape(tape) as server:
        assert httpx2.post(f"{server.url}/v1/chat/completions", content=ASK).text == "a"
        assert httpx2.post(OPENAI, content=ASK).text == "b"
    assert len(server.requests) == 1
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(LiveConnection):
        with use(path) as tape, serve_tape(tape):
            socket.create_connection(other.getsockname())


TEST = """
import subprocess, sys
import pytest
from stream_cassette.mutate import OneByteReads

AGENT = '''
import sys, urllib.request
request = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", sys.argv[2].encode(), method="POST")
try:
    print(urllib.request.urlopen(request).read().decode())
except OSError as error:
    print(error)
'''

def agent(url, body):
    return subprocess.run([sys.executable, "-c", AGENT, url, body], capture_output=True, text=True, check=True).stdout

@pytest.mark.stream_cassette("x", mutate=[OneByteReads()])
def test_it(stream_server, stream_cassette):
    BODY
"""


@pytest.mark.parametrize(
    ("body", "options", "outcome", "words"),
    [
        (
            "assert 'Low tide' in agent(stream_server.url, ASK); stream_cassette.check(stream_cassette.reply)",
            [],
            "passed",
            [],
        ),
        (
            "assert '404' in agent(stream_server.url, ASK.replace('hi', 'ho'))",
            [],
            "failed",
            ["*CassetteMiss: no recorded interaction answers POST https://api.openai.com/v1/chat/completions*"],
        ),
        (
            "agent(stream_server.url, ASK)",
            ["--stream-record=all"],
            "failed",
            [
                "*TapeError: a server on loopback replays*",
                "*mend:  stream-cassette record --upstream URL --mode new --to *x.yaml*",
            ],
        ),
    ],
    ids=["replayed", "missed", "recording"],
)
def test_the_fixture(pytester: pytest.Pytester, body: str, options: list[str], outcome: str, words: list[str]) -> None:
    (pytester.path / "cassettes").mkdir()
    cassette(pytester.path / "cassettes" / "x.yaml", CHAT)
    lines = body.replace("; ", "\n    ").replace("ASK", repr(ASK.decode()))
    pytester.makepyfile(test_a=TEST.replace("BODY", lines))
    pytester.makeini(
        "[pytest]\naddopts = -p no:cacheprovider -p no:recording -p no:randomly -p no:xdist -p no:hypothesispytest -p no:asyncio -p no:rerunfailures -p no:timeout\n"
    )
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines(words)
