"""Recording again what did not change: the file stays as it is, and where something changed, all the rest does."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stream_cassette.cassette import load, update
from stream_cassette.clients import use
from stream_cassette.model import Ending, Exchange, Headers, Interaction, Read, Request
from stream_cassette.server import serve
from stream_cassette.settling import settled

SSE: Headers = (("content-type", "text/event-stream"),)
JSON: Headers = (("content-type", "application/json"),)
URL = "https://api.example.com/v1/chat/completions"
_numbers = itertools.count(1)


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


class Provider:
    """Says the same every time, under other ids, at other times, with other keep-alives. `text` and `city` are what may change."""

    def __init__(self) -> None:
        self.text, self.city, self.pings, self.status, self.ending = "Sunny.", "Pune", True, 200, Ending("complete")
        self.made: list[Request] = []

    def __call__(self, request: Request) -> Exchange:
        self.made.append(request)
        number = next(_numbers)
        headers = (*SSE, ("x-request-id", uuid.uuid4().hex), ("retry-after-ms", str(number)))
        if request.url.endswith("/models"):
            body = json.dumps({"id": f"req_{number}", "created": number, "data": [{"id": "gpt-5"}]}).encode()
            return Exchange(request, 200, JSON, (Read(0, body),))
        wire = self.anthropic(number) if request.url.endswith("/messages") else self.openai(number)
        at = itertools.accumulate(itertools.repeat(number % 7), initial=number)
        return Exchange(request, self.status, headers, tuple(map(Read, at, wire)), self.ending)

    def openai(self, number: int) -> list[bytes]:
        head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": 1764512345 + number,
            "system_fingerprint": f"fp_{number:06}",
        }

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            padding = "x" * (number % 5 + 1)
            return event({**head, "object": "chat.completion.chunk", "choices": [choice], "obfuscation": padding})

        arguments = json.dumps({"city": self.city})
        call = {
            "index": 0,
            "id": f"call_{number:08}",
            "type": "function",
            "function": {"name": "w", "arguments": arguments},
        }
        ping = [b": keep-alive\n\n"] * (number % 3) if self.pings else []
        return [
            chunk({"content": self.text}),
            *ping,
            chunk({"tool_calls": [call]}),
            chunk({}, "tool_calls"),
            b"data: [DONE]\n\n",
        ]

    def anthropic(self, number: int) -> list[bytes]:
        events: list[dict[str, Any]] = [
            {
                "type": "message_start",
                "message": {
                    "id": f"msg_{number:010}",
                    "role": "assistant",
                    "model": "m",
                    "usage": {"input_tokens": 3, "output_tokens": 1},
                },
            },
            *[{"type": "ping"}] * (number % 3),
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": self.text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]
        return [f"event: {each['type']}\n".encode() + event(each) for each in events]


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


def ask(url: str, *messages: Any, place: str = "/v1/chat/completions") -> bytes:
    return httpx2.post(url + place, json={"model": "m", "stream": True, "messages": messages}, verify=False).content


def call_id(body: bytes) -> str:
    return next(part.split(b'"')[0] for part in body.split(b'"id":"') if part.startswith(b"call_")).decode()


def agent(url: str) -> None:
    """Two rounds: the second request sends back the id that the first answer gave."""
    first = ask(url, "hi")
    ask(url, "hi", {"role": "tool", "tool_call_id": call_id(first), "content": "27 C"})
    ask(url, "hi", place="/v1/messages")
    httpx2.get(url + "/v1/models", verify=False)


def twice(
    path: Path, provider: Provider, client: Callable[[str], Any], between: Callable[[], Any] = lambda: None
) -> tuple[str, str]:
    """The file after recording, and after recording again."""
    with serve(provider, paced=False) as server:
        with use(path, mode="all"):
            client(server.url)
        before = path.read_text()
        made = list(provider.made)
        between()
        with use(path, mode="all"):
            client(server.url)
        assert len(provider.made) > len(made)
    with use(path):
        client(server.url)
    return before, path.read_text()


def changed_lines(before: str, after: str) -> list[str]:
    return [line for line in after.splitlines() if line not in before.splitlines()]


# ----------------------------------------------------------------------------------------------------------- nothing changed


def test_recording_again_leaves_the_file_as_it_is(path: Path, provider: Provider) -> None:
    stamps: list[float] = []

    def wait() -> None:
        stamps.append(path.stat().st_mtime_ns)
        text = path.read_text()
        assert "recorded: {at: 20" in text
        path.write_text(text.replace("recorded: {at: 20", "recorded: {at: 19"))  # another time, whatever the clock says

    before, after = twice(path, provider, agent, wait)
    assert after == before.replace("recorded: {at: 20", "recorded: {at: 19")


def test_what_a_person_wrote_into_it_stays_too(path: Path, provider: Provider) -> None:
    def comment() -> None:
        path.write_text("# reviewed\n" + path.read_text())

    before, after = twice(path, provider, agent, comment)
    assert after == "# reviewed\n" + before


def test_concurrent_requests_keep_their_places(path: Path, provider: Provider) -> None:
    names = [str(number) for number in range(12)]
    order = itertools.cycle([names, names[::-1]])

    def client(url: str) -> None:
        with ThreadPoolExecutor(1) as pool:
            list(pool.map(lambda name: ask(url, name), next(order)))

    before, after = twice(path, provider, client)
    assert before == after


@pytest.mark.parametrize("stream", [True, False])
def test_other_tests_in_the_file_are_not_touched(path: Path, provider: Provider, stream: bool) -> None:
    with serve(provider, paced=False) as server:
        for test in ("a", "b", "a", "b", "c"):
            with use(path, mode="all", test=test):
                agent(server.url) if stream else httpx2.get(server.url + "/models", verify=False)
    assert [each.test for each in load(path).interactions] == sorted("abc" * (4 if stream else 1))


# --------------------------------------------------------------------------------------------------------- something changed


def test_another_word_changes_its_line_and_what_depends_on_it(path: Path, provider: Provider) -> None:
    provider.pings = False

    with serve(provider, paced=False) as server:
        with use(path, mode="all"):
            ask(server.url, "hi")
        before = path.read_text()
        provider.text = "Rainy."
        for _ in range(4):  # padding and ids of the same length
            next(_numbers)
        with use(path, mode="all"):
            ask(server.url, "hi")
    changed = changed_lines(before, path.read_text())
    assert any("Rainy." in line for line in changed)
    assert all("Rainy." in line or "recorded:" in line for line in changed), changed
    old_ids = [part.split('"')[0] for part in before.split('"id":"')[1:]]
    assert set(old_ids) == {part.split('"')[0] for part in path.read_text().split('"id":"')[1:]}


def test_a_changed_argument_is_never_taken_for_noise(path: Path, provider: Provider) -> None:
    def move() -> None:
        provider.city = "Pali"

    before, after = twice(path, provider, lambda url: ask(url, "hi"), move)
    assert "Pali" not in before
    assert "Pune" not in after


def test_an_id_among_the_arguments_is_no_noise() -> None:
    def gemini(id: str, response: str) -> bytes:
        call = {"functionCall": {"name": "f", "args": {"id": id}}}
        value = {
            "candidates": [{"content": {"parts": [call], "role": "model"}, "finishReason": "STOP"}],
            "responseId": response,
        }
        return event(value)

    old, new = (interaction(gemini(*each), dialect="gemini") for each in [("a1", "r1"), ("b2", "r2")])
    assert settled([old], [new]) == (new,)
    again = interaction(gemini("a1", "r3"), dialect="gemini")
    assert settled([old], [again]) == (old,)


# ------------------------------------------------------------------------------------------------------------------- by hand


def chunk(text: str, id: str = "chatcmpl-1", **more: Any) -> bytes:
    return event({"id": id, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}], **more})


def interaction(
    *reads: bytes | Read,
    body: str = "{}",
    dialect: str | None = "openai-chat",
    headers: Headers = SSE,
    asked: Headers = (),
    **more: Any,
) -> Interaction:
    from stream_cassette.stream import Stream, assembled

    timed = tuple(read if isinstance(read, Read) else Read(0, read) for read in reads)
    exchange = Exchange(Request("POST", URL, asked, body.encode()), 200, headers, timed, **more)
    return Interaction(exchange, "t", dialect, assembled(Stream(exchange, dialect).reply) if dialect else None)


SAME: dict[str, tuple[Interaction, Interaction]] = {
    "ids": (interaction(chunk("a", "chatcmpl-1")), interaction(chunk("a", "chatcmpl-22"))),
    "times": (interaction(Read(5, chunk("a", created=1))), interaction(Read(9, chunk("a", created=2)))),
    "reads": (interaction(chunk("a")), interaction(chunk("a")[:9], chunk("a")[9:])),
    "headers": (
        interaction(chunk("a"), headers=(*SSE, ("retry-after", "1"))),
        interaction(chunk("a"), headers=(("retry-after", "2"), *SSE)),
    ),
    "JSON": (
        interaction(b'{"id":"resp_1","x":[1.0,null]}', dialect=None),
        interaction(b'{"id":"resp_2","x":[1.0,null]}', dialect=None),
    ),
    "bytes": (interaction(b"\xff", dialect=None), interaction(b"\xff", dialect=None)),
}


@pytest.mark.parametrize(("old", "new"), SAME.values(), ids=SAME.keys())
def test_the_same(old: Interaction, new: Interaction) -> None:
    assert settled([old], [new]) == (old,)


OTHER: dict[str, tuple[Interaction, Interaction]] = {
    "text": (interaction(chunk("a")), interaction(chunk("bb"))),
    "a key more": (interaction(chunk("a")), interaction(chunk("a", x=1))),
    "kind of a value": (interaction(chunk("a", x=1)), interaction(chunk("a", x=1.0))),
    "length of a list": (interaction(chunk("a", x=[1])), interaction(chunk("a", x=[1, 2]))),
    "an id that is none any more": (interaction(chunk("a", item_id="i")), interaction(chunk("a", item_id=None))),
    "an id that was empty": (interaction(chunk("a", item_id="")), interaction(chunk("a", item_id="ii"))),
    "one id for two": (
        interaction(chunk("a", "chatcmpl-1"), chunk("b", "chatcmpl-1")),
        interaction(chunk("a", "chatcmpl-22"), chunk("b", "chatcmpl-33")),
    ),
    "two ids for one": (
        interaction(chunk("a", "chatcmpl-1"), chunk("b", "chatcmpl-2")),
        interaction(chunk("a", "chatcmpl-33"), chunk("b", "chatcmpl-33")),
    ),
    "ending": (interaction(chunk("a")), interaction(chunk("a"), ending=Ending("stalled"))),
    "compression": (interaction(chunk("a")), interaction(chunk("a"), was="gzip")),
    "header": (interaction(chunk("a")), interaction(chunk("a"), headers=(*SSE, ("x-should-retry", "true")))),
    "dialect": (interaction(chunk("a")), interaction(chunk("a"), dialect=None)),
    "the name of a model": (
        interaction(b'{"id":"gpt-5"}', dialect=None),
        interaction(b'{"id":"gpt-6"}', dialect=None),
    ),
    "not JSON any more": (interaction(b'{"id":"gpt-5"}', dialect=None), interaction(b"<html>", dialect=None)),
}


@pytest.mark.parametrize(("old", "new"), OTHER.values(), ids=OTHER.keys())
def test_not_the_same(old: Interaction, new: Interaction) -> None:
    (got,) = settled([old], [new])
    assert got.exchange.status == new.exchange.status
    assert got.exchange.ending == new.exchange.ending
    assert got.assembled == new.assembled
    assert len(got.exchange.body) == len(new.exchange.body)
    assert got != old


def test_the_old_request_stays_unless_its_headers_changed() -> None:
    old = interaction(chunk("a"), body='{"a":1,"session":"s1"}')
    new = interaction(chunk("a", "chatcmpl-2"), body='{"a":1,"session":"s2"}')
    ignore = (("session",),)
    assert settled([old], [new], ignore) == (old,)
    assert settled([old], [new]) == (new,)
    upgraded = replace(
        new, exchange=replace(new.exchange, request=replace(new.exchange.request, headers=(("a", "b"),)))
    )
    (got,) = settled([old], [upgraded], ignore)
    assert got.exchange.request == upgraded.exchange.request
    assert got.exchange.reads == old.exchange.reads


def test_what_the_assembler_says_is_brought_up_to_date() -> None:
    old = interaction(chunk("a"))
    outdated = replace(old, assembled={"text": "A"})
    assert settled([outdated], [interaction(chunk("a", "chatcmpl-2"))]) == (old,)


def test_ids_and_times_are_put_back_where_they_fit() -> None:
    old = interaction(
        Read(5, chunk("same", "chatcmpl-1", created=100)),
        Read(9, chunk("old", "chatcmpl-1", created=100)),
        Read(11, b": x\n\n"),
    )
    new = interaction(
        Read(1, chunk("same", "chatcmpl-2", created=200)),
        Read(2, chunk("newer", "chatcmpl-2", created=200)),
        Read(4, b": x\n\n"),
    )
    (got,) = settled([old], [new])
    assert got == interaction(
        Read(5, chunk("same", "chatcmpl-1", created=100)),
        Read(6, chunk("newer", "chatcmpl-1", created=100)),
        Read(8, b": x\n\n"),
    )


def test_ids_that_do_not_fit_stay_new() -> None:
    old = interaction(chunk("a", "chatcmpl-1", x={"y": 1}, z=[1]))
    new = interaction(chunk("bb", "chatcmpl-22", x=[1], z={"y": 1}))
    assert settled([old], [new]) == (new,)


def test_nothing_that_the_model_says_is_put_back() -> None:
    old = interaction(event({"type": "message_start", "message": {"id": "msg_1"}}), dialect="anthropic")
    assert settled([old], [replace(old, dialect=None, assembled=None)])[0].dialect is None


RENAMED = {
    "in JSON": (
        '{"a":["call_2",{"b":"call_2"}],"c":"call_22","d":1}',
        '{"a":["call_1",{"b":"call_1"}],"c":"call_22","d":1}',
    ),
    "in JSON that is not ours": ('{"a": "call_2"}', '{"a": "call_2"}'),
    "in text": ("call_2", "call_2"),
}


@pytest.mark.parametrize(("body", "expected"), RENAMED.values(), ids=RENAMED.keys())
def test_an_id_that_is_sent_back(body: str, expected: str) -> None:
    first = [interaction(b'{"id":"call_1"}', dialect=None), interaction(b'{"id":"call_2"}', dialect=None)]
    later = interaction(b"x", body=body, dialect=None)
    asked = replace(later.exchange, request=replace(later.exchange.request, url=URL + "/call_2/messages"))
    _, got = settled([first[0]], [first[1], replace(later, exchange=asked)])
    assert got.exchange.request.body.decode() == expected
    assert got.exchange.request.url == URL + "/call_1/messages"


def test_more_and_fewer_requests(path: Path, provider: Provider) -> None:
    one, two = (interaction(chunk(text), body=f'{{"a":"{text}"}}') for text in ("one", "two"))
    assert settled([one], [two, one]) == (two, one)
    assert settled([one, two], [two]) == (two,)
    assert settled([one, two], [two, one]) == (one, two)


# ------------------------------------------------------------------------------------------------------------- when it fails


def test_an_assembler_that_fails_costs_nothing(path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(provider, paced=False) as server:
        with use(path, mode="all"):
            ask(server.url, "hi")
        before = path.read_text()

        def fail(*_: Any) -> None:
            raise LookupError("no such thing")

        monkeypatch.setattr("stream_cassette.settling.assembled", fail)
        with use(path, mode="all") as tape:
            ask(server.url, "hi")
    assert path.read_text() != before
    assert tape.remarks == (f"{path}: all of it is recorded anew (LookupError: no such thing)",)


def test_it_is_quick(path: Path) -> None:
    """A long stream of a thousand events, recorded a second time."""
    old = interaction(*[chunk(f"word {place} ", "chatcmpl-1") for place in range(1000)])
    new = interaction(*[chunk(f"word {place} ", "chatcmpl-2") for place in range(1000)])
    began = time.monotonic()
    assert settled([old], [new]) == (old,)
    assert time.monotonic() - began < 2


def test_it_can_be_left_out(path: Path) -> None:
    from stream_cassette.recording import Recorder
    from stream_cassette.tape import Tape

    def record(id: str, quiet: bool) -> bytes:
        tape = Tape(path, mode="all", quiet=quiet)
        take = tape.open(Request("POST", URL))
        assert isinstance(take, Recorder)
        take.start(200, SSE)
        take.read(chunk("a", id))
        take.end(Ending("complete"))
        tape.close()
        return load(path).interactions[0].exchange.body

    assert record("chatcmpl-1", True) == record("chatcmpl-2", True) == chunk("a", "chatcmpl-1")
    assert record("chatcmpl-3", False) == chunk("a", "chatcmpl-3")
    update(path, lambda cassette: cassette)
