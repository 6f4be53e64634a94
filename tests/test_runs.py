"""Runs of events of one shape: the reply, what is released and when are what they are if every event is read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judges import corpus_streams
from strategies import ODD, splits
from stream_cassette import Assembler, Reply, Stream, ToolCall, register_dialect, runs
from stream_cassette.cassette import load
from stream_cassette.dialects import DIALECTS
from stream_cassette.dialects import dialect as named
from stream_cassette.dialects.ollama import Ollama
from stream_cassette.errors import UnknownDialect
from stream_cassette.framing import frames, sse
from stream_cassette.model import (
    Arguments,
    Delta,
    End,
    Exchange,
    Frame,
    FrameHeader,
    Key,
    Read,
    Reasoning,
    Refusal,
    Start,
    Text,
    TextPart,
)
from stream_cassette.mutate import instances, mutate
from stream_cassette.runs import Shape, shape_of
from stream_cassette.unfold import unfold
from streams import REQUEST, RICH
from test_cases import CASES, wire
from test_sse import VECTORS, ways

ROOT = Path(__file__).parent.parent
NAMES = [each.name for each in DIALECTS]


@pytest.fixture(autouse=True, scope="module")
def _sought_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_SOUGHT_AFTER", 2)
        yield


class Plain(Assembler):
    """Reads every event."""

    def _feed_frames(self, frames: Sequence[Frame]) -> list[ToolCall]:
        return [call for frame in frames for call in self.feed(frame)]


def everything(value: Any) -> Any:
    """A value with the names of its types and all its fields, those too that `==` leaves out."""
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, {each.name: everything(getattr(value, each.name)) for each in fields(value)}
    return [everything(each) for each in value] if isinstance(value, tuple) else value


def steps(assembler: Assembler, reads: Sequence[bytes]) -> Iterator[Any]:
    """All that can be seen after every read, and in the end."""
    try:
        for number, read in enumerate(reads):
            yield everything(assembler.feed_bytes(read)), assembler.size, assembler.dialect
            if number % 16 == 0 or len(reads) < 16:
                yield everything(assembler.result()), everything(assembler.incomplete())
        yield everything(assembler.close())
    except UnknownDialect as error:
        yield str(error)
    yield everything(assembler.result()), everything(assembler.incomplete()), assembler.size
    yield assembler._fold.fragments()


def agree(reads: Sequence[bytes], **options: Any) -> None:
    assert list(steps(Assembler(**options), reads)) == list(steps(Plain(**options), reads))


def cut(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


def in_pieces(body: bytes) -> None:
    for reads in ([body], cut(body, 300), cut(body, 7 if len(body) > 2000 else 1)):
        agree(reads)


# ------------------------------------------------------------------------------------------------------------- what there is


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vectors_of_the_framing(vector: dict[str, Any]) -> None:
    body = vector.get("body") or base64.b64decode(vector["input_base64"])
    for reads in ways(vector, body).values() if len(body) < 200 else ([body], cut(body, 1400)):
        agree(reads)
        agree(reads, dialect="openai-chat")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_reported_faults(case: dict[str, Any]) -> None:
    in_pieces(wire(case))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "cassettes").rglob("*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_shipped_cassettes(path: Path) -> None:
    (interaction,) = load(path).interactions
    in_pieces(interaction.exchange.body)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "tool-events"])
def test_captured_streams(name: str, corpus: Any) -> None:
    for _, body, content_type in corpus_streams(corpus, name):
        for reads in ([body], cut(body, 64), cut(body, 1500)):
            agree(reads, content_type=content_type)
            agree(reads, dialect=name)


# ------------------------------------------------------------------------------------------------------------- what may come


def streamed(name: str, reply: Reply = RICH, size: int = 2) -> Stream:
    """The reply in deltas of `size` characters, each in an event of its own."""

    def pieces(choice: int, part: int) -> list[str]:
        said = (reply.choices or (reply,))[choice].parts[part]
        text = said.arguments_text if isinstance(said, ToolCall) else said.text
        return [text[at : at + size] for at in range(0, len(text), size)]

    speaker = named(name)
    said = speaker.finish(speaker.write(unfold(reply, speaker.numbers, pieces)))
    return Stream(Exchange(REQUEST, 200, (), tuple(Read(0, frame.raw) for frame in said)), name)


FINE = {name: streamed(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_under_every_mutator(name: str) -> None:
    for each in instances(FINE[name]):
        exchange = mutate(FINE[name], [each]).exchange
        agree([read.data for read in exchange.reads])
        agree([exchange.body])


def chunk(text: Any, **beside: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}}], **beside}, separators=(",", ":"))


def call(arguments: str, index: int = 0) -> str:
    return chunk("").replace(
        '"content":""', f'"tool_calls":[{{"index":{index},"function":{{"arguments":{json.dumps(arguments)}}}}}]'
    )


OPEN = call("").replace('"function"', '"id":"a","function"').replace('"arguments"', '"name":"f","arguments"')
FINISH = '{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}'
ODD_DATA = [
    chunk('a\\b"\n'),
    chunk("\ud83d"),  # half a character, the other half below
    chunk("\ude0a"),
    chunk("é🌊"),
    chunk("\x7f\u2028"),
    chunk(""),
    chunk(None),
    chunk("[DONE]"),
    chunk("x").replace('"x"', '"\\x"'),
    chunk("x").replace("x", "a\tb"),
    chunk("x").replace("x", 'x","refusal":"y'),
    chunk("x").replace("x", "x\\"),
    chunk("x").replace("}]}", "},]}"),
    chunk("x").replace("}]}", '}],"n":NaN}'),
    chunk("x").replace('"content"', '"content":"w","content"'),
    chunk("x").replace('"x"', '"x","content":"y"'),
    chunk("x", usage={"prompt_tokens": 1}),
    chunk("x", usage=None),
    chunk("x", error={"message": "m"}),
    chunk("x", obfuscation="abc", created=5),
    chunk("y", obfuscation="d", created=17),
    chunk("z", obfuscation="", created=0),
    chunk("z", obfuscation="\n", created=-1),
    chunk("z", created=1.5, obfuscation="q"),
    chunk("x").replace(":", ": ").replace("}]", "}   ]"),
    chunk("y").replace(":", ": ").replace("}]", "} ]"),
    chunk("x").replace("delta", "message"),
    OPEN,
    call('{"a":'),
    call("1"),
    call("}"),
    call('"', 1),
    FINISH,
    "[DONE]",
    ": ping",
    "{",
]
DATA = [*map(chunk, "abcdefgh"), *ODD_DATA]
LINES = [
    "id: 7{e}data: {d}",
    "event: x{e}data: {d}",
    ": c{e}data: {d}",
    "retry: 5{e}data: {d}",
    "data:{d}",
    ":{e}{e}data: {d}",
    "\ufeffdata: {d}",
]
ends = st.sampled_from(["\n", "\n", "\r\n", "\r"])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    end = draw(ends)
    out = bytearray(draw(st.sampled_from([b"", b"\xef\xbb\xbf", b": hello\n\n"])))
    for data in draw(st.lists(st.sampled_from(DATA) | st.text(ODD, max_size=4).map(chunk), min_size=3, max_size=25)):
        line = draw(st.sampled_from(["data: {d}"] * 20 + LINES))
        text = line.replace("{d}", data).replace("{e}", end) + end * 2
        out += text.encode("utf-8", "surrogatepass").replace(b"e", draw(st.sampled_from([b"e"] * 30 + [b"\xff"])))
    return bytes(out)


@given(body=bodies(), data=st.data())
def test_odd_chats(body: bytes, data: st.DataObject) -> None:
    agree(data.draw(splits(body)), dialect="openai-chat")
    agree([body])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(data=st.data())
def test_events_of_a_stream_mixed_up(name: str, data: st.DataObject) -> None:
    events = [frame.raw for frame in frames(FINE[name].body)]
    picked = data.draw(st.lists(st.integers(0, len(events) - 1), max_size=8))
    body = b"".join(raw for at in picked for raw in events[at : at + 4])
    agree(data.draw(splits(body)), dialect=name)


# ----------------------------------------------------------------------------------------------------------------- that it runs


def asked(name: str, body: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many frames of `body` the dialect is asked to read."""
    count = 0
    real = type(named(name)).read

    def read(self: Any, frame: Frame) -> list[Delta]:
        nonlocal count
        count += 1
        return real(self, frame)

    with monkeypatch.context() as patch:
        patch.setattr(type(named(name)), "read", read)
        Assembler(name).feed_bytes(body)
    return count


LONG = Reply((TextPart("word " * 200),), "stop", ended=True, role="assistant", model="m", id="r")


@pytest.mark.parametrize("name", NAMES)
def test_every_dialect_is_asked_for_few_of_the_events_of_a_long_text(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = streamed(name, LONG)
    assert stream.reply.text == "word " * 200
    few = asked(name, stream.body, monkeypatch) < 30 < len(stream.frames)
    assert few is (name != "bedrock-invoke")  # there the text is within base64


NOISY = {
    "padding": [chunk(text, obfuscation="x" * (at % 5)) for at, text in enumerate("abcdefgh" * 5)],
    "white space": [chunk(text).replace("}]", "}" + " " * at + "]") for at, text in enumerate("abcdefgh" * 5)],
    "white space at the end": [chunk(text) + " " * (at + 1) for at, text in enumerate("abcdefgh" * 5)],
    "times": [chunk(text, created=at) for at, text in enumerate("abcdefgh" * 5)],
    "escapes": [chunk(text) for text in ['"', "\\", "\n", "é"] * 10],
    "starts": [chunk(text).replace('"content"', '"role":"assistant","content"') for text in "abcdefgh" * 5],
    "calls": [OPEN, *map(call, "{" + '"a":1,' * 8)],
}
NOISY["behind the end"] = [*NOISY["starts"], "[DONE]", *NOISY["starts"]]
READ_ONE_BY_ONE = {
    "other ids": [chunk(text, id=str(at)) for at, text in enumerate("abcdefgh" * 5)],
    "two choices": [chunk(text).replace('"index":0', f'"index":{at % 2}') for at, text in enumerate("abcdefgh" * 5)],
    "usage": [chunk(text, usage={"prompt_tokens": at}) for at, text in enumerate("abcdefgh" * 5)],
    "said twice": [
        chunk(text).replace('"content"', f'"reasoning":"{text}","content"') for text in ("ab", "cd", "ef", "gh") * 10
    ],
}


@pytest.mark.parametrize("case", [*NOISY, *READ_ONE_BY_ONE])
def test_what_runs(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (NOISY | READ_ONE_BY_ONE)[case]
    body = b"".join(sse.encode(each).raw for each in data)
    agree([body])
    assert (asked("openai-chat", body, monkeypatch) < 20) is (case in NOISY)


def test_a_call_that_goes_on_behind_the_finish_reason_is_open_again() -> None:
    data = [OPEN, *map(call, ['{"a"', ":", "[", "1"]), FINISH, *map(call, [",", "2", "]", "}"])]
    body = b"".join(sse.encode(each).raw for each in data)
    agree([body])
    assembler = Assembler("openai-chat")
    assembler.feed_bytes(body)
    (open_again,) = assembler.result().incomplete_tool_calls
    assert open_again.arguments_text == '{"a":[1,2]}'


class Shouting(Ollama):
    """A dialect of somebody else, to whom a text is not only a text."""

    def read(self, frame: Frame) -> list[Delta]:
        return [End() if delta == Text(Key(), "STOP") else delta for delta in super().read(frame)]


def test_of_a_registered_dialect_every_event_is_read() -> None:
    speaker = Shouting("shouting")
    lines = [b'{"message":{"content":"%s"},"done":false}\n' % text for text in (b"a", b"b", b"c", b"d", b"STOP", b"e")]
    with register_dialect(speaker):
        assembler = Assembler("shouting")
        assembler.feed_bytes(b"".join(lines))
    assert (assembler.result().text, assembler.result().ended) == ("abcd", True)


# ---------------------------------------------------------------------------------------------------------------------- shapes

A = Frame(b"", '{"id":"a","choices":[{"index":0,"delta":{"content":"a"}}]}')


SIGNED = A._replace(data=str(A.data).replace('"content"', '"reasoning_details":[{"signature":"s"}],"content"'))


def shape(one: Frame, two: Frame, name: str = "openai-chat") -> Shape | None:
    read = named(name).read
    return shape_of(one, two, read(two), read)


def say(text: str, **fields: Any) -> Frame:
    return A._replace(data=str(A.data).replace('"content":"a"', f'"content":"{text}"'), **fields)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (say("b"), "b"),
        (say("\\ud83c\\udf0a\\n"), "🌊\n"),
        (say("\\ud83c"), "\ud83c"),
        (say("a\u2028"), "a\u2028"),
        (say("b", id="7", retry=5), "b"),
        (say(""), ""),
        (say("b", event="x"), ""),
        (say("b", problem="cut"), ""),
        (say("b", headers=(FrameHeader(":message-type", "exception"),)), ""),
        (say("b")._replace(data=None), ""),
        (say('b"}}]}'), ""),
        (say('b","c":"d'), ""),
        (say("b\\"), ""),
        (say("\\q"), ""),
        (say("a\nb"), ""),
        (say("b")._replace(data=str(say("b").data) + " "), ""),
        (say("b")._replace(data=" " + str(say("b").data)), ""),
        (A._replace(data='{"id":"a","choices":[{"index":0,"delta":{"content":"}}]}'), ""),
    ],
)
def test_the_text_of_a_frame(frame: Frame, text: str) -> None:
    found = shape(A, say("z"))
    assert found is not None
    assert found.between is None
    assert found.text(frame) == text


def test_the_string_that_says_it_is_found_among_equals() -> None:
    found = shape(A, A)
    assert found is not None
    assert found.before.endswith('"content":"')


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (A, A._replace(event="x")),
        (A, A._replace(headers=(FrameHeader(":message-type", "event"),))),
        (A, A._replace(data='{"choices":[{"index":0,"delta":{"content":"a"}}]}')),
        (A, A._replace(data='{"id":"b","choices":[{"index":0,"delta":{"content":"a"}}]}')),
        (A, A._replace(data='{"id":"a","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}')),
        (A, A._replace(data='{"id":"a","choices":[{"index":0,"delta":{"content":["b"],"reasoning":"b"}}]}')),
        (A._replace(problem="cut"), A),
        (A, A._replace(problem="cut")),
        (A, A._replace(data=None, raw=str(A.data).encode())),
        (A, A._replace(data='{"id":"a","choices":[{"index":0,"delta":{"role":"r","content":"a"}}]}')),
        (SIGNED, SIGNED),
    ],
)
def test_frames_without_a_shape_in_common(one: Frame, two: Frame) -> None:
    assert shape(one, two) is None


@pytest.mark.parametrize("kind", [Text, Reasoning, Refusal, Arguments])
def test_each_kind_of_text(kind: Any) -> None:
    """By a reader of the test's own, so that the kinds are all that differs."""

    def read(frame: Frame) -> list[Delta]:
        return [Start(Key(), "r"), kind(Key(index=3), json.loads(frame.data or "")["t"])]

    one, two = (Frame(b"", json.dumps({"t": text, "p": text * 2})) for text in "ab")
    found = shape_of(one, two, read(two), read)
    assert found is not None
    assert (found.kind, found.key, found.starts) == (kind, Key(index=3), (Start(Key(), "r"),))
    assert found.text(Frame(b"", '{"t": "c", "p": "anything"}')) == "c"
    assert found.text(Frame(b"", '{"t": "c", "p": 5}')) == "c"
    assert found.text(Frame(b"", '{"t": "c", "p": 05}')) == ""
    assert found.text(Frame(b"", '{"t": "c", "p": "a\tb"}')) == ""


def test_noise_that_says_something_is_none() -> None:
    def read(frame: Frame) -> list[Delta]:
        payload = json.loads(frame.data or "")
        return [Text(Key(), payload["t"] + str(payload["p"]))]

    one, two = (Frame(b"", json.dumps({"t": text, "p": "" if text == "b" else text})) for text in "ab")
    assert shape_of(one, two, read(two), read) is None
