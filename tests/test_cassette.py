"""Cassette format 1: every value comes back, every damage is named with its line, no save loses anything."""

from __future__ import annotations

import contextlib
import errno
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stream_cassette
from stream_cassette import cassette as module
from stream_cassette import files, yamltext
from stream_cassette.cassette import CassetteWarning, dumps, load, loads, locate, reading, update, writing
from stream_cassette.dialects import DIALECTS
from stream_cassette.errors import CassetteError, CassetteMissing
from stream_cassette.headers import unfit
from stream_cassette.model import Cassette, Ending, Exchange, Interaction, Read, Request

GOLDEN = Path(__file__).parent / "data" / "cassette_format_1.yaml"
GET = Request("GET", "https://example.org/")


class Word(str):
    pass


@pytest.fixture(scope="module", autouse=True)
def _locks_of_this_module(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("locks"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        yield


def exchange(body: bytes = b"", *, request: Request = GET, headers=(), at: int = 0) -> Exchange:
    return Exchange(request, 200, headers, (Read(at, body),) if body else ())


def taped(body: bytes = b"", **more) -> Cassette:
    return Cassette((Interaction(exchange(body, **more)),))


def asked(body: bytes) -> Cassette:
    return taped(request=replace(GET, body=body))


def text_of(cassette: Cassette, start: str) -> str:
    """The file's lines from the first that begins with `start` on, without their common indentation."""
    lines = dumps(cassette).splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.strip().startswith(start))
    return textwrap.dedent("".join(lines[first:]))


def round_trip(cassette: Cassette) -> None:
    assert loads(dumps(cassette), name="x.yaml") == cassette


# --------------------------------------------------------------------------------------------------------- anything round-trips

HOSTILE = (
    "|", "|2+", ">", "---", "...", "- a", "a: b", "#c", " #c", "\t", "  ", " a", "a ", "\n", "\n\n", "\n a", "a\n", "a\n\n", "a\n \nb", "a\n  ", "\r",
    "\r\n", "\x00", "\x07", "\x1b", "\x7f", "\x85", "\xa0", "\u2028", "\u2029", "\ufeff", "\ufffe", "\uffff", "🙂", "é", "'", '"', "\\", "%", "@",
    "`", "!!str", "!x", "&a", "*a", "<<", "=", "~", "null", "true", "no", "1", "1e5", "1_000", "0x1", "010", "1:30", "2026-11-30",
    "2026-11-30T14:05:11Z", ".inf", ".5", "[", "]", "{", "}", ",", "?", "? ", ": ", "data: {}\n\n", "data: x\r\n\r\n", "event: y\n", ": ping\n\n",
    "x" * 130, "word " * 40,
)  # fmt: skip
hostile_text = st.lists(st.sampled_from(HOSTILE), max_size=6).map("".join)
texts = hostile_text | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
surrogates = st.text(st.sampled_from("ab\ud83d\ude00\n"), max_size=5)
bodies = st.one_of(
    texts.map(str.encode),
    texts.map(lambda text: text.replace("\n", "\r\n").encode()),
    st.binary(max_size=60),
    st.lists(st.one_of(texts.map(str.encode), st.binary(max_size=8)), max_size=6).map(b"\n\n".join),
    st.lists(st.one_of(texts.map(str.encode), st.binary(max_size=8)), max_size=6).map(b"\r\n\r\n".join),
)


def json_values(strings: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    numbers = st.integers() | st.floats(allow_nan=False) | st.sampled_from([1e22, 1e-7, -0.0, 10**400])
    scalars = st.none() | st.booleans() | numbers | strings
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3), max_leaves=8
    )


json_bodies = st.one_of(
    json_values(texts).map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()),
    json_values(texts | surrogates).map(lambda value: json.dumps(value).encode()),
    json_values(texts | surrogates).map(
        lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    ),
)


@st.composite
def reads(draw: st.DrawFn) -> tuple[Read, ...]:
    body = draw(bodies)
    cuts = sorted(draw(st.sets(st.integers(1, len(body) - 1), max_size=8))) if len(body) > 1 else []
    edges = [0, *cuts, len(body)]
    times = st.integers(0, 10**10 - 1) | st.integers(0, 99)
    return tuple(Read(draw(times), body[a:b]) for a, b in itertools.pairwise(edges) if a < b)


headers = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "content-type", "retry-after", "null", "~", "1", "&a", "*a", "!x"]),
        st.text(st.characters(max_codepoint=255), max_size=12) | texts,
    ).filter(lambda pair: not unfit(*pair)),
    max_size=5,
).map(tuple)
endings = st.sampled_from(
    [
        *map(Ending, ("complete", "closed", "stalled")),
        *(Ending("disconnected", error) for error in ("protocol", "chunk", "read")),
    ]
)


def is_url(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return urlsplit(text).port is not ...
    return False


requests = st.builds(Request, texts, texts.filter(is_url), headers, bodies | json_bodies)
exchanges = st.builds(Exchange, requests, st.integers(100, 999), headers, reads(), endings)
interactions = st.builds(
    Interaction,
    exchanges,
    st.none() | texts,
    st.none() | st.sampled_from([each.name for each in DIALECTS]),
    st.none() | st.dictionaries(texts | surrogates, json_values(texts | surrogates), max_size=3),
)
cassettes = st.builds(Cassette, st.lists(interactions, max_size=2).map(tuple), texts, texts)


@settings(max_examples=250, deadline=None)
@given(cassettes)
def test_any_cassette_comes_back(cassette):
    round_trip(cassette)


@settings(max_examples=200, deadline=None)
@given(bodies)
@example(b"a\r\nb\xff\r\n\r\n")  # `newline: crlf` is for text pieces only
@example(b"\x85\xff\r\r\n")
def test_any_body_comes_back(body):
    round_trip(taped(body))
    round_trip(asked(body))


@settings(max_examples=60, deadline=None)
@given(cassettes)
def test_any_cassette_comes_back_from_a_file(tmp_path_factory, cassette):
    path = tmp_path_factory.mktemp("any") / "x.yaml"
    assert update(path, lambda old: cassette) == cassette
    assert load(path) == cassette


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_comes_back_wherever_it_stands(text):
    fields = tuple(pair for pair in (("x", text), ("a", "1"), ("x", text)) if not unfit(*pair))
    request = Request(text, text, fields, text.encode())
    assembled = {text: text, "list": [text, [text], {text: text}], "deep": {"a": {text: [text, text]}}}
    once = Interaction(exchange(text.encode(), request=request, headers=fields), text, "openai-chat", assembled)
    round_trip(Cassette((once, once), at=text, by=text))


def test_what_is_equal_in_two_places_is_written_out_twice():
    shared = {"a": [1, 2, 3]}
    round_trip(Cassette((Interaction(exchange(), assembled={"one": shared, "two": shared}),)))


def test_a_read_only_mapping_can_be_assembled():
    round_trip(Cassette((Interaction(exchange(), assembled=MappingProxyType({"text": "x"})),)))


def test_a_string_of_another_class_comes_back_equal():
    assert 'json_text: \'{"finish_reason": "stop"}\'' in dumps(
        Cassette((Interaction(exchange(), assembled={"finish_reason": Word("stop")}),))
    )
    round_trip(Cassette((Interaction(exchange(), assembled={"finish_reason": Word("stop")}),)))


def test_an_assembled_value_that_looks_like_our_own_escape_comes_back():
    for value in (
        {"json_text": "{}"},
        {"json_text": "no JSON"},
        {"json_text": 1},
        {"base64": "e30="},
        {"base64": None},
    ):
        round_trip(Cassette((Interaction(exchange(), assembled=value),)))


@pytest.mark.parametrize("depth", [10, 63, 64, 65, 200, 5000])
def test_deep_json_comes_back(depth):
    round_trip(asked(b'{"a":' + b"[" * depth + b"]" * depth + b"}"))
    if depth < 500:
        deep: list[object] = []
        for _ in range(depth):
            deep = [deep]
        round_trip(Cassette((Interaction(exchange(), assembled={"a": deep}),)))


@pytest.mark.parametrize("value", [{"a": {1}}, {"a": b""}, {1: 2}, {"a": (1, 2)}, {"a": float("nan")}, {"a": 10**5000}])
def test_what_is_not_json_cannot_be_assembled(value):
    with pytest.raises(CassetteError, match="not JSON, so no cassette can hold it"):
        dumps(Cassette((Interaction(exchange(), assembled=value),)))


def test_a_name_with_lone_surrogates_is_refused():
    with pytest.raises(CassetteError, match="lone surrogates"):
        dumps(Cassette((Interaction(exchange(), test="\ud83d"),)))


# ------------------------------------------------------------------------------------------------------------- what it looks like


def test_a_usual_recording_reads_as_it_should():
    body = (
        b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
        b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"Sunny \xf0\x9f\x8c\x9e"}}]}\n\n'
        b"data: [DONE]\n\n"
    )
    request = Request(
        "POST",
        "https://api.openai.com/v1/chat/completions",
        (("content-type", "application/json"),),
        b'{"model":"gpt-5-mini","stream":true,"messages":[{"role":"user","content":"Weather in Pune?"}]}',
    )
    response = Exchange(
        request, 200, (("content-type", "text/event-stream"),), (Read(0, body[:60]), Read(41, body[60:]))
    )
    assembled = {"text": "Sunny 🌞", "finish_reason": None, "usage": {"input_tokens": 12, "output_tokens": 3}}
    one = Interaction(response, "tests/test_agent.py::test_weather", "openai-chat", assembled)
    cassette = Cassette((one,), "2026-11-30T14:05:11Z", "stream-cassette 0.1.0")
    text = dumps(cassette)
    assert text == textwrap.dedent(
        """\
        format: 1
        recorded: {at: 2026-11-30T14:05:11Z, by: stream-cassette 0.1.0}
        interactions:
        - test: tests/test_agent.py::test_weather
          request:
            method: POST
            url: https://api.openai.com/v1/chat/completions
            headers: {content-type: application/json}
            json:
              model: gpt-5-mini
              stream: true
              messages:
              - {role: user, content: 'Weather in Pune?'}
          response:
            status: 200
            headers: {content-type: text/event-stream}
            dialect: openai-chat
            ending: complete
            reads: 0:60 41:118
            body: |2+
              data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant"}}]}

              data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"Sunny 🌞"}}]}

              data: [DONE]

          assembled:
            text: Sunny 🌞
            finish_reason: null
            usage: {input_tokens: 12, output_tokens: 3}
        """
    )
    assert loads(text, name="x") == cassette


def test_other_tools_read_our_strings_as_strings():
    words = {word: word for word in HOSTILE if not word.startswith("2026")}
    written = dumps(Cassette((Interaction(exchange(), assembled=words),)))
    assert yaml.safe_load(written)["interactions"][0]["assembled"] == words


def test_an_empty_cassette():
    assert dumps(Cassette()) == "format: 1\nrecorded: {at: '', by: ''}\ninteractions: []\n"
    assert loads(dumps(Cassette()), name="x") == Cassette()


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (b"", "body: ''\n"),
        (b"a", "body: |2-\n  a\n"),
        (b"a\n", "body: |2+\n  a\n"),
        (b"\n\n", "body: |2+\n\n\n"),
        (b"  a\n\n b ", "body: |2-\n    a\n\n   b \n"),
        (b"a\r\n\r\nb\r\n", "newline: crlf\nbody: |2+\n  a\n\n  b\n"),
        (
            b"data: a\n\ndata: b\x00\n\ndata: c\n\n",
            'body:\n- text: |2+\n    data: a\n\n- text: "data: b\\0\\n\\n"\n- text: |2+\n    data: c\n\n',
        ),
        (
            b"data: a\n\ndata: b\n\ndata: \xff\n\n",
            "body:\n- text: |2+\n    data: a\n\n    data: b\n\n- base64: 'ZGF0YTog/woK'\n",
        ),
        (
            "data: a\r\n\r\ndata: \u2028\r\n\r\ndata: c\r\n\r\n".encode(),
            'newline: crlf\nbody:\n- text: |2+\n    data: a\n\n- text: "data: \\L\\n\\n"\n- text: |2+\n    data: c\n\n',
        ),
    ],
)
def test_how_a_response_body_is_written(body, written):
    assert text_of(taped(body), "newline:" if "newline" in written else "body:") == written
    round_trip(taped(body))


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (b'{"a":1,"b":[]}', "json:\n  a: 1\n  b: []\n"),
        (b"[1,2]", "json: [1, 2]\n"),
        (b'{"a":"x\\ny"}', "json:\n  a: |-\n    x\n    y\n"),
        (b'{"a": 1}', 'text: |2-\n  {"a": 1}\n'),
        (b"12", "text: |2-\n  12\n"),
        (b'{"a":NaN}', 'text: |2-\n  {"a":NaN}\n'),
        (b'{"a":"\\ud83d"}', 'text: |2-\n  {"a":"\\ud83d"}\n'),
        (b'{"a":"\xed\xa0\xbd"}', 'json_text: \'{"a": "\\ud83d"}\'\n'),
        (b"a\r\nb", 'text: "a\\r\\nb"\n'),
        (b"\xff\xfe", "base64: '//4='\n"),
    ],
)
def test_how_a_request_body_is_written(body, written):
    _, _, rest = dumps(asked(body)).partition("    headers: {}\n")
    assert textwrap.dedent(rest.partition("  response:\n")[0]) == written
    assert loads(dumps(asked(body)), name="x") == asked(body)


@pytest.mark.parametrize(
    ("fields", "written"),
    [
        ((), "headers: {}\n"),
        ((("a", "1"), ("b", "x")), "headers: {a: '1', b: x}\n"),
        ((("a", "1"), ("a", "2"), ("b", "x")), "headers:\n  a: ['1', '2']\n  b: x\n"),
        ((("a", "1"), ("b", "x"), ("a", "2")), "headers:\n- [a, '1']\n- [b, x]\n- [a, '2']\n"),
    ],
)
def test_how_headers_are_written(fields, written):
    assert text_of(taped(headers=fields), "status:").partition("\n")[2].partition("ending:")[0] == written


def test_long_reads_and_base64_are_wrapped():
    noise = bytes(range(256)) * 3
    many = Exchange(GET, 200, (), tuple(Read(1000 + at, noise[at : at + 1]) for at in range(len(noise))))
    written = dumps(Cassette((Interaction(many),)))
    assert max(map(len, written.splitlines())) <= 100
    round_trip(Cassette((Interaction(many),)))


# ------------------------------------------------------------------------------------------------------------------- golden file

_SSE = (("content-type", "text/event-stream"),)
_HI = b'data: {"text":"hi"}\n\n'
_CRLF = b'data: {"a":1}\r\n\r\ndata: {"b":"\xe2\x80\xa8"}\r\n\r\ndata: {"c":3}\r\n\r\n'


def golden() -> Cassette:
    post = Request(
        "POST",
        "https://api.example.org/v1/chat?key=REDACTED&beta=true",
        (("content-type", "application/json"), ("accept", "*/*")),
    )
    first = Exchange(
        replace(
            post,
            body='{"model":"m","note":"a\\nb\\n","stop":null,"n":1.5,"messages":[{"role":"user","content":"Wie geht\'s? 🙂"}]}'.encode(),
        ),
        200,
        _SSE,
        (
            Read(0, _HI[:5]),
            *(Read(30 + at, _HI[5 + at : 6 + at]) for at in range(12)),
            Read(88, _HI[17:] + b"data: [DONE]\n\n"),
        ),
    )
    gone = Exchange(
        replace(post, body=b'{"a":"\xed\xa0\xbd"}'),
        200,
        (("content-type", "text/event-stream"), ("retry-after", "2"), ("retry-after", "3")),
        (Read(7, b"data: a\n\n"), Read(9, b"data: \xff\xfe\n\n: still\x00here\n\ndata: b")),
        Ending("disconnected", "protocol"),
    )
    crlf = Exchange(replace(post, body=b'{ "spaced": true }'), 200, _SSE, (Read(1, _CRLF),), Ending("closed"), "gzip")
    plain = Exchange(
        replace(post, method="PUT", body=b"\x00\xffbinary"),
        429,
        (("x", "1"), ("y", "2"), ("x", "3")),
        (Read(3, b"  two\r\n\r\n lines"),),
        Ending("stalled"),
    )
    return Cassette(
        (
            Interaction(
                first,
                "tests/test_chat.py::test_hi[a-1]",
                "openai-chat",
                {"text": "hi", "usage": {"input_tokens": 2, "raw": [1, None]}},
            ),
            Interaction(gone, assembled={"text": "\ud83d"}),
            Interaction(crlf, dialect="gemini", assembled={"text": "\ud83d\ude00 in halves"}),
            Interaction(plain, test="2026-11-30"),
            Interaction(Exchange(GET, 204, (), (), Ending("disconnected", "read")), assembled={}),
        ),
        "2026-11-30T14:05:11Z",
        "stream-cassette 0.1.0",
    )


def test_the_golden_file_loads_to_its_value_and_is_written_the_same():
    assert load(GOLDEN) == golden()
    assert dumps(golden()) == GOLDEN.read_text(encoding="utf-8")


def test_a_checkout_with_crlf_line_ends_says_the_same():
    assert loads(GOLDEN.read_bytes().replace(b"\n", b"\r\n"), name="x") == golden()


# ------------------------------------------------------------------------------------------------------------------ broken files

SOUND = """\
format: 1
recorded: {at: 2026-11-30T14:05:11Z, by: stream-cassette 0.1.0}
interactions:
- test: tests/test_a.py::test_b
  request:
    method: POST
    url: https://example.org/
    headers: {accept: '*/*'}
    json: {a: 1}
  response:
    status: 200
    headers: {content-type: text/event-stream}
    dialect: openai-chat
    ending: complete
    reads: 0:5 7:6
    body: |2+
      data: a

      :
  assembled:
    text: a
"""
DEEP = "[" * 150 + "]" * 150

BROKEN = [  # what to replace in SOUND, by what, words of the error, its line
    (SOUND, "", "the file is empty", 1),
    (SOUND, "# nothing\n", "the file is empty", 1),
    (SOUND, "just text", "not a cassette", 1),
    (SOUND, "- 1\n", "not a cassette", 1),
    ("format: 1\n", "", "not a cassette", 1),
    ("format: 1", "format: 2", "format 2, this version reads up to 1", 1),
    ("format: 1", "x: 1\nformat: 99", "upgrade the package", 2),
    ("format: 1", "format: one", "format must be a whole number from 1, not 'one'", 1),
    ("format: 1", "format: 0", "format must be a whole number from 1, not 0", 1),
    ("format: 1", "format: true", "format must be a whole number from 1, not true", 1),
    ("format: 1", "format: [1]", "format must be a whole number from 1, not a list", 1),
    ("format: 1", "format: 1\nformat: 1", "'format' stands twice", 2),
    ("format: 1", "format: 1\nmore: 1", "the cassette has no key 'more'", 2),
    ("recorded: {at: 2026-11-30T14:05:11Z, by: stream-cassette 0.1.0}\n", "", "the cassette lacks recorded", 1),
    ("by: stream-cassette 0.1.0", "by: 1", "by must be a string, not 1", 2),
    (", by: stream-cassette 0.1.0", "", "recorded lacks by", 2),
    (SOUND[SOUND.index("interactions") :], "interactions: {}", "interactions must be a list, not a mapping", 3),
    (SOUND[SOUND.index("- test") :], "- 1\n", "an interaction must be a mapping, not 1", 4),
    (SOUND[SOUND.index("- test") :], "-\n", "an interaction must be a mapping, not nothing", 4),
    ("test: tests/test_a.py::test_b", "test: 12", "put it in quotes", 4),
    ("test: tests", "tset: tests", "an interaction has no key 'tset'", 4),
    ("    method: POST\n", "", "a request lacks method", 6),
    ("method: POST", "method: null", "method must be a string, not null", 6),
    ("url: https://example.org/", "url: http://h:abc/", "'http://h:abc/' is no URL", 7),
    ("url: https://example.org/", "url: http://h:99999/", "Port out of range", 7),
    ("url: https://example.org/", "url: 'http://[::1/'", "Invalid IPv6 URL", 7),
    ("headers: {accept: '*/*'}", "headers: x", "headers must be a mapping or a list of pairs, not 'x'", 8),
    ("headers: {accept: '*/*'}", "headers: {accept: 2}", "the header 'accept' must be a string, not 2", 8),
    ("headers: {accept: '*/*'}", "headers: {accept: [a, 2]}", "the header 'accept' must be a string, not 2", 8),
    ("headers: {accept: '*/*'}", "headers: {1: a}", "a key must be a string, not 1", 8),
    ("headers: {accept: '*/*'}", "headers: {[a]: a}", "a key must be a string, not a list", 8),
    ("headers: {accept: '*/*'}", "headers:\n    - [a]", "a header in a list is [name, value]", 9),
    ("headers: {accept: '*/*'}", "headers:\n    - a", "a header must be a list, not 'a'", 9),
    ("headers: {accept: '*/*'}", "headers:\n    - [a, 1]", "the header 'a' must be a string, not 1", 9),
    ("headers: {accept: '*/*'}", 'headers:\n    - [a, "b\\nc"]', r"the header 'a': there is '\n' in its value", 9),
    ("headers: {accept: '*/*'}", 'headers: {a: [b, "\\0"]}', r"the header 'a': there is '\x00' in its value", 8),
    ("headers: {accept: '*/*'}", "headers: {'a: b': c}", "'a: b' is no name of a header in HTTP", 8),
    ("{content-type: text/event-stream}", '{a: "b\\r\\nc: d"}', r"the header 'a': there is '\r' in its value", 12),
    ("json: {a: 1}", "json: {a: 1, a: 2}", "'a' stands twice", 9),
    ("json: {a: 1}", "json: {a: 1}\n    text: a", "one body, not json and text", 10),
    ("json: {a: 1}", "json_text: '{'", "not JSON", 9),
    ("json: {a: 1}", f"json_text: '{'[' * 100_000}'", "not JSON", 9),
    ("json: {a: 1}", "json: {a: 1" + "0" * 5000 + "}", "too many digits", 9),
    ("json: {a: 1}", "base64: 'AA'", "not base64", 9),
    ("json: {a: 1}", "base64: 'é'", "not base64", 9),
    ("json: {a: 1}", "base64: 1234", "base64 must be a string", 9),
    ("json: {a: 1}", "text: 1", "text must be a string", 9),
    (
        "json: {a: 1}",
        "json: !!python/object:os.system {a: 1}",
        "tag:yaml.org,2002:python/object:os.system is not allowed",
        9,
    ),
    ("json: {a: 1}", "json: !!str 1", "tag:yaml.org,2002:str is not allowed", 9),
    ("json: {a: 1}", "json: !mine [1]", "the tag !mine is not allowed", 9),
    ("json: {a: 1}", "json: {a: &x [1], b: *x}", "an alias (*)", 9),
    ("json: {a: 1}", "json: &x [*x]", "an alias (*)", 9),
    ("json: {a: 1}", "json: {a: *x}", "undefined alias", 9),
    ("json: {a: 1}", "json: {<<: {a: 1}}", "merge keys", 9),
    ("json: {a: 1}", f"json: {DEEP}", "nested deeper than 100", 9),
    ("json: {a: 1}", f"json: {DEEP * 10}", "not YAML", 9),
    ("json: {a: 1}", "json:\n\t  a: 1", "indent with spaces, not tabs", 10),
    ("json: {a: 1}", "json: {a: \x01}", "not YAML", 9),
    ("json: {a: 1}", "json: [\r\r\r\t", "not YAML", 14),
    ("json: {a: 1}", "json: {a: 1", "not YAML", 10),
    ("    json: {a: 1}", "<<<<<<< HEAD\n    json: {a: 1}\n=======\n>>>>>>> other", "merge conflict", 9),
    ("status: 200", "status: ok", "status must be a whole number from 100 to 999, not 'ok'", 11),
    ("status: 200", "status: 99", "from 100 to 999, not 99", 11),
    ("status: 200", "status: 1000", "from 100 to 999, not 1000", 11),
    ("status: 200", "status: 2_00", "from 100 to 999, not '2_00'", 11),
    ("dialect: openai-chat", "dialect: {a: b}", "dialect must be a string, not a mapping", 13),
    ("dialect: openai-chat", "dialect: opena-chat", "there is no dialect 'opena-chat'", 13),
    (
        "ending: complete",
        "ending: gone",
        "ending must be complete or closed or disconnected or stalled, not 'gone'",
        14,
    ),
    ("ending: complete", "ending: [gone]", "not a list", 14),
    ("ending: complete", "ending: disconnected", "write `error: protocol`, `error: chunk` or `error: read`", 14),
    ("ending: complete", "ending: complete\n    error: read", "`error` stands beside", 14),
    ("ending: complete", "ending: disconnected\n    error: x", "error must be protocol or chunk or read, not 'x'", 15),
    ("reads: 0:5 7:6", "reads: 0:5 7", "'7' is no read", 15),
    ("reads: 0:5 7:6", "reads: 0:5,7:4", "is no read", 15),
    ("reads: 0:5 7:6", "reads: 0:0 7:9", "'0:0' is no read", 15),
    ("reads: 0:5 7:6", "reads: -1:5 7:4", "'-1:5' is no read", 15),
    ("reads: 0:5 7:6", "reads: 0:99999999999", "'0:99999999999' is no read", 15),
    ("reads: 0:5 7:6", "reads: ٣:5 7:4", "is no read", 15),
    ("reads: 0:5 7:6", "reads: [0, 5]", "reads must be a string", 15),
    ("reads: 0:5 7:6", "reads: 0:5 7:6\n    newline: lf", "newline must be crlf", 16),
    (SOUND[SOUND.index("|2+") :], "12", "body must be a string, not 12", 16),
    (SOUND[SOUND.index("|2+") :], "{}", "either text or base64", 16),
    (SOUND[SOUND.index("|2+") :], "\n    - {text: a, base64: AA==}", "either text or base64", 17),
    (SOUND[SOUND.index("|2+") :], "\n    - {json: a}", "a piece of a body has no key 'json'", 17),
    (SOUND[SOUND.index("|2+") :], "\n    - base64: '*'", "not base64", 17),
    (SOUND[SOUND.index("|2+") :], '"\\ud800"', ("not YAML", "lone surrogates"), 16),
    ("assembled:\n    text: a", "assembled: a", "assembled must be a mapping, not 'a'", 20),
    ("assembled:\n    text: a", "assembled: {json_text: '[]'}", "assembled must be a JSON object", 20),
    ("assembled:\n    text: a", "assembled: {json_text: 1}", "json_text must be a string", 20),
    ("assembled:\n    text: a", "assembled: {base64: '/w=='}", "not JSON", 20),
    ("    text: a\n", "    text: a\n---\na: 1\n", "not YAML", 22),
]


def test_the_sound_file_is_sound():
    (found,) = loads(SOUND, name="x").interactions
    assert found.exchange.reads == (Read(0, b"data:"), Read(7, b" a\n\n:\n"))


@pytest.mark.parametrize(("old", "new", "words", "line"), BROKEN)
def test_a_broken_file_is_named_with_its_line(old, new, words, line):
    assert SOUND.count(old) == 1
    with pytest.raises(CassetteError) as caught:
        loads(SOUND.replace(old, new), name="some/x.yaml")
    assert any(each in str(caught.value) for each in ([words] if isinstance(words, str) else words)), str(caught.value)
    assert caught.value.where == f"some/x.yaml, line {line}"
    assert caught.value.mend


def test_a_file_that_is_not_utf8_is_named_with_its_line():
    with pytest.raises(CassetteError, match=r"not YAML: .*\n.*x, line 4"):
        loads(SOUND.encode().replace(b"tests/test_a", b"\xff"), name="x")
    with pytest.raises(CassetteError, match="not YAML"):
        loads("format: 1\n# \ud83d\n", name="x")


def test_a_file_beyond_the_bound_is_refused(monkeypatch):
    monkeypatch.setattr(yamltext, "LARGEST", len(SOUND) - 1)
    with pytest.raises(CassetteError, match="at most"):
        loads(SOUND, name="x")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_file_loads_or_is_a_cassette_error(data):
    text = GOLDEN.read_bytes()
    at, size = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 40))
    put = data.draw(st.sampled_from(HOSTILE).map(str.encode) | st.binary(max_size=4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CassetteWarning)
        with contextlib.suppress(CassetteError):  # and nothing else
            round_trip(loads(text[:at] + put + text[at + size :], name="x"))


def test_a_hand_written_file_may_say_it_in_its_own_way():
    text = SOUND.replace("    headers: {accept: '*/*'}\n", "    # by hand\n    headers: [[accept, '*/*']]\n")
    text = text.replace(
        "json: {a: 1}", "json: {a: 1.5e3, b: -.inf, c: yes, d: 1:30, e: 0o7, f: ~, g: =, h: 2026-11-30, i: }"
    )
    request = loads(text, name="x").interactions[0].exchange.request
    assert json.loads(request.body) == {
        "a": 1500.0, "b": float("-inf"), "c": "yes", "d": "1:30", "e": "0o7", "f": None, "g": "=", "h": "2026-11-30", "i": None
    }  # fmt: skip
    assert request.headers == (("accept", "*/*"),)


def test_a_lone_read_is_no_sexagesimal_number():
    assert text_of(taped(b"x" * 25, at=41), "reads:").startswith("reads: 41:25\n")
    round_trip(taped(b"x" * 25, at=41))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("|2+\n      data: a\n\n      : ping\n\n      data: bcd\n", (b"data: a\n\n", b": ping\n\ndata: bcd\n\n")),
        ("|2+\n      data: abc\n\n      : tail\n", (b"data: abc\n\n", b": tail\n\n")),
        ("''", ()),
    ],
)
def test_a_body_edited_by_hand_loads_with_one_read_per_event(tmp_path, body, expected):
    path = tmp_path / "x.yaml"
    path.write_text(SOUND[: SOUND.index("|2+")] + body + "\n", encoding="utf-8")
    with pytest.warns(CassetteWarning, match=r"x\.yaml, line 15: .*`reads` has 11.*--stream-record=all"):
        found = load(path)
    assert found.interactions[0].exchange.reads == tuple(Read(0, data) for data in expected)


# ------------------------------------------------------------------------------------------------------------------------- files


def test_a_missing_cassette_says_how_to_record_it(tmp_path):
    with pytest.raises(CassetteMissing, match="--stream-record=once") as caught:
        load(tmp_path / "x.yaml")
    assert caught.value.where == str(tmp_path / "x.yaml")


def test_a_directory_is_no_cassette(tmp_path):
    with pytest.raises(CassetteError, match="cannot read the cassette"):
        load(tmp_path)


def test_change_sees_what_the_file_holds(tmp_path):
    path = tmp_path / "deep" / "er" / "x.yaml"
    seen = []

    def add(body: bytes):
        def change(old: Cassette) -> Cassette:
            seen.append(old)
            return Cassette((*old.interactions, *taped(body).interactions), "2026-11-30T14:05:11Z", "me")

        return change

    first = update(path, add(b"one"))
    both = update(path, add(b"two"))
    assert seen == [Cassette(), first]
    assert load(path) == both
    assert [each.exchange.body for each in both.interactions] == [b"one", b"two"]
    assert os.listdir(path.parent) == ["x.yaml"]


def test_what_change_raises_comes_through_and_leaves_the_file(tmp_path):
    path = tmp_path / "x.yaml"
    update(path, lambda old: taped(b"one"))
    before = path.read_bytes()
    with pytest.raises(FileNotFoundError, match="mine"):
        update(path, lambda old: (_ for _ in ()).throw(FileNotFoundError("mine")))
    assert path.read_bytes() == before


def test_a_broken_file_is_not_overwritten(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("format: 2\n", encoding="utf-8")
    with pytest.raises(CassetteError, match="upgrade"):
        update(path, lambda old: Cassette())
    assert path.read_text(encoding="utf-8") == "format: 2\n"


@pytest.mark.parametrize("where", ["replace", "fsync", "open", "write"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_save_that_fails_leaves_everything_as_it_was(tmp_path, monkeypatch, where, fresh):
    path = tmp_path / "x.yaml"
    if not fresh:
        update(path, lambda old: taped(b"one"))
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}

    def full(*args: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    real_open = Path.open

    class FullFile:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def write(self, data):
            self.file.write(data[:10])
            full()

    with monkeypatch.context() as patch:
        if where == "open":
            patch.setattr(Path, "open", lambda self, mode: full() if mode == "xb" else real_open(self, mode))
        elif where == "write":
            patch.setattr(
                Path,
                "open",
                lambda self, mode: FullFile(real_open(self, mode)) if mode == "xb" else real_open(self, mode),
            )
        else:
            patch.setattr(os, where, full)
        with pytest.raises(CassetteError, match="No space left") as caught:
            update(path, lambda old: taped(b"two"))
    assert caught.value.where == str(path)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_an_interrupted_save_leaves_no_stray_file(tmp_path, monkeypatch):
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            update(tmp_path / "x.yaml", lambda old: taped(b"two"))
    assert list(tmp_path.iterdir()) == []
    update(tmp_path / "x.yaml", lambda old: taped(b"three"))  # the lock is free again


def test_a_directory_that_cannot_be_synced_is_no_failure(tmp_path, monkeypatch):
    real, calls = os.fsync, []

    def only_files(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 1:
            raise OSError(errno.EINVAL, "Invalid argument")
        real(handle)

    monkeypatch.setattr(os, "fsync", only_files)
    update(tmp_path / "x.yaml", lambda old: taped(b"two"))
    assert len(calls) == 2
    assert load(tmp_path / "x.yaml") == taped(b"two")


@pytest.mark.skipif(os.name == "nt", reason="permissions and symbolic links as POSIX has them")
def test_mode_and_symbolic_link_survive_a_save(tmp_path):
    path, link = tmp_path / "x.yaml", tmp_path / "link.yaml"
    link.symlink_to(path)
    update(path, lambda old: taped(b"one"))
    path.chmod(0o640)
    update(link, lambda old: taped(b"two"))
    assert link.is_symlink()
    assert load(path) == taped(b"two")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_would_not_read_back_is_not_written(tmp_path, monkeypatch):
    path = tmp_path / "x.yaml"
    wrong_kind = Exchange(GET, 200, (), (), Ending("disconnected"))  # lacks its error
    with pytest.raises(CassetteError, match="would not read back") as caught:
        update(path, lambda old: Cassette((Interaction(wrong_kind),)))
    assert caught.value.where == str(path)
    monkeypatch.setattr(module, "chunks", lambda cassette: [dumps(taped(b"other")).encode()])
    with pytest.raises(CassetteError, match="would not read back"):
        update(path, lambda old: taped(b"mine"))
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_waited_for_and_then_given_up(tmp_path, monkeypatch):
    path = tmp_path / "x.yaml"
    inside, leave = threading.Event(), threading.Event()

    def slow(old: Cassette) -> Cassette:
        inside.set()
        assert leave.wait(20)
        return taped(b"slow")

    thread = threading.Thread(target=update, args=(path, slow))
    thread.start()
    assert inside.wait(20)
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    try:
        with pytest.raises(CassetteError, match="cannot lock") as caught:
            update(path, lambda old: taped(b"fast"))
    finally:
        leave.set()
        thread.join()
    assert caught.value.where == str(path)
    assert load(path) == taped(b"slow")


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have owners on Unix")
@pytest.mark.parametrize("foreign", ["a link", "a file", "open to others", "another owner"])
def test_the_folder_of_the_locks_must_be_our_own(tmp_path, monkeypatch, foreign):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"stream-cassette-{os.getuid()}"
    if foreign == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    elif foreign == "a file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777 if foreign == "open to others" else 0o700)
    if foreign == "another owner":
        found = os.stat_result((*folder.lstat()[:4], os.getuid() + 1, *folder.lstat()[5:]))
        monkeypatch.setattr(Path, "lstat", lambda self: found)
    with pytest.raises(CassetteError, match="cannot lock the cassette") as caught:
        update(tmp_path / "x.yaml", lambda old: taped())
    assert caught.value.where == str(tmp_path / "x.yaml")
    assert caught.value.mend
    assert not (tmp_path / "x.yaml").exists()
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    for name in range(3):
        update(tmp_path / f"{name}.yaml", lambda old: taped())
    (made,) = (tmp_path / "own").iterdir()
    assert made.stat().st_mode & 0o777 == 0o700
    assert all(re.fullmatch(r"[0-9a-f]{2}\.lock", each.name) for each in made.iterdir())


WORKER = """
import sys
from pathlib import Path
from stream_cassette.cassette import update
from stream_cassette.model import Cassette, Exchange, Interaction, Read, Request

path, me = Path(sys.argv[1]), sys.argv[2]
for number in range(5):
    mine = Interaction(Exchange(Request("GET", f"https://example.org/{me}/{number}"), 200, (), (Read(0, b"x"),)))
    update(path, lambda old: Cassette((*old.interactions, mine), old.at, old.by))
"""


def test_processes_that_save_at_the_same_time_lose_nothing(tmp_path):
    path = tmp_path / "x.yaml"
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, str(path), str(number)]) for number in range(4)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0, 0]
    urls = [each.exchange.request.url for each in load(path).interactions]
    assert sorted(urls) == [f"https://example.org/{me}/{number}" for me in range(4) for number in range(5)]
    assert os.listdir(tmp_path) == ["x.yaml"]


@pytest.mark.parametrize("name", ["a", "a.yaml", "openai/parallel_tools", "x/y.snap", "test_a[b:c]", "..a/b..", "ü"])
def test_locate_finds_names_inside(tmp_path, name):
    expected = tmp_path / (name if name.endswith(".yaml") else name + ".yaml")
    assert locate(tmp_path, name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/..",
        "../a",
        "a/../b",
        "a\\..\\b",
        "/a",
        "\\a",
        "C:\\a",
        "C:a",
        "//host/share/a",
        "a/",
        "a\\",
        "a\0b",
        "out/a",
        "out.yaml",
    ],
)
def test_locate_refuses_names_that_escape(tmp_path, name):
    inside = tmp_path / "cassettes"
    inside.mkdir()
    (inside / "out").symlink_to(tmp_path)
    (inside / "out.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(CassetteError, match="no cassette inside") as caught:
        locate(inside, name)
    assert caught.value.where == str(inside)


# --------------------------------------------------------------------------------------------------------------- without libyaml


@pytest.fixture
def pure(monkeypatch):
    """The modules as they are where PyYAML was built without libyaml."""
    for name in ("CSafeLoader", "CSafeDumper"):
        monkeypatch.delattr(yaml, name)
    kept = {each.__name__: sys.modules[each.__name__] for each in (yamltext, writing, reading)}
    try:
        for each in kept:
            del sys.modules[each]
        yield importlib.import_module(writing.__name__), importlib.import_module(reading.__name__)
    finally:
        sys.modules.update(kept)
        # The import system set them on their packages.
        module.writing, module.reading, stream_cassette.yamltext = writing, reading, yamltext


def test_without_libyaml_files_are_the_same(pure):
    slow_writing, slow_reading = pure
    assert sys.modules[yamltext.__name__]._YamlDumper is yaml.SafeDumper
    assert sys.modules[yamltext.__name__]._YamlLoader is yaml.SafeLoader
    text = GOLDEN.read_text(encoding="utf-8")
    assert slow_writing.dumps(golden()) == text
    assert slow_reading.loads(text, name="x") == golden()
    for hostile in HOSTILE:
        cassette = Cassette(
            (Interaction(exchange(hostile.encode()), hostile, assembled={hostile: [hostile]}),), hostile
        )
        assert slow_reading.loads(slow_writing.dumps(cassette), name="x") == cassette
        assert loads(slow_writing.dumps(cassette), name="x") == cassette
        assert slow_reading.loads(dumps(cassette), name="x") == cassette


def test_without_libyaml_lone_surrogates_and_depth_are_errors_too(pure):
    _, slow_reading = pure
    for old, new, words, line in BROKEN:
        with pytest.raises(CassetteError) as caught:
            slow_reading.loads(SOUND.replace(old, new), name="x")
        if isinstance(words, str) and "not YAML" not in words and "tabs" not in words:
            assert words in str(caught.value)
            assert caught.value.where == f"x, line {line}"
