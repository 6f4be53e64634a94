"""Structured replies: what comes back, what is shown on the way, and what is never given out."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import date
from typing import Any, Literal, NewType

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costs import calls_in
from strategies import splits
from stream_cassette import Partial, Reply, Stream, ToolCall, aextract, extract, synthesize
from stream_cassette.dialects import DIALECTS
from stream_cassette.errors import IncompleteReply, InvalidReply
from stream_cassette.model import (
    Arguments,
    Finish,
    Key,
    RefusalPart,
    ReplyError,
    StreamError,
    Text,
    TextPart,
    ToolCallStart,
)
from stream_cassette.mutate import Refragment

K = Key()


class Day(pydantic.BaseModel):
    on: date
    high: float


class Forecast(pydantic.BaseModel):
    city: str
    days: list[Day] = []


@dataclasses.dataclass(frozen=True)
class Tide:
    harbour: str
    metres: float = 0.0


SCHEMA = {"type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]}
TEXT = '{"harbour": "Oban", "metres": 3}'


def text_stream(text: str, finish: str | None = "stop", **more: Any) -> Stream:
    return synthesize(Reply((TextPart(text),), finish, ended=finish is not None, **more), "openai-chat")


def test_a_model_a_dataclass_and_a_schema() -> None:
    forecast = extract(text_stream('{"city":"Pune","days":[{"on":"2031-01-04","high":31}]}'), Forecast)
    assert forecast == Forecast(city="Pune", days=[Day(on=date(2031, 1, 4), high=31.0)])
    assert extract(text_stream(TEXT), Tide) == Tide("Oban", 3.0)
    assert extract(text_stream(TEXT), SCHEMA) == {"harbour": "Oban", "metres": 3}


def test_any_source() -> None:
    stream = text_stream(TEXT)
    sources: list[Any] = [
        stream,
        stream.body,
        bytearray(stream.body),
        [stream.body[:9], stream.body[9:]],
        stream.frames,
        stream.payloads,
        iter(stream.deltas),
    ]
    assert [extract(source, Tide) for source in sources] == [Tide("Oban", 3.0)] * 7
    assert extract(stream.body, Tide, dialect="openai-chat") == Tide("Oban", 3.0)


def test_an_asynchronous_source() -> None:
    async def source() -> AsyncIterator[bytes]:
        for read in text_stream(TEXT).exchange.reads:
            yield read.data

    seen: list[Any] = []
    assert asyncio.run(aextract(source(), Tide, on_partial=seen.append)) == Tide("Oban", 3.0)
    assert seen == [Partial(json.loads(TEXT))]


@pytest.mark.parametrize("name", [each.name for each in DIALECTS if each.name != "openai-completions"])
def test_the_arguments_of_the_one_call(name: str) -> None:
    call = ToolCall(0, id="a", name="tide", arguments_text='{"harbour":"Oban"}', arguments={})
    stream = synthesize(Reply((TextPart(" \n"), call), "tool_calls", ended=True), name, lossy=True)
    assert extract(stream, Tide) == Tide("Oban")


def test_a_call_without_arguments_is_an_empty_object() -> None:
    stream = synthesize(Reply((ToolCall(0, id="a", name="f", arguments={}),), "tool_calls", ended=True), "openai-chat")
    assert extract(stream, {"type": "object"}) == {}


# ---------------------------------------------------------------------------------------------------------- what is shown


def pieces(*texts: str) -> list[Any]:
    return [*(Text(K, text) for text in texts), Finish(K, "stop")]


def test_what_can_be_shown_on_the_way() -> None:
    seen: list[Partial] = []
    extract(pieces('{"har', 'bour": "O', 'ban", ', '"metres": 1', "2}", "\n"), Tide, on_partial=seen.append)
    assert [each.value for each in seen] == [
        {},
        {"harbour": "O"},
        {"harbour": "Oban"},
        {"harbour": "Oban", "metres": 1},
        {"harbour": "Oban", "metres": 12},
    ]


def test_what_a_call_shows_on_the_way() -> None:
    seen: list[Partial] = []
    deltas = [
        ToolCallStart(Key(0, 0, "a"), "function", "f"),
        Arguments(Key(0, 0), '{"harbour":"O'),
        Arguments(Key(0, 0), 'ban"}'),
        Finish(K, "tool_calls"),
    ]
    extract(deltas, Tide, on_partial=seen.append)
    assert [each.value for each in seen] == [{"harbour": "O"}, {"harbour": "Oban"}]


@given(data=st.data())
def test_views_only_grow_into_the_value(data: st.DataObject) -> None:
    body = Refragment(0, tuple(range(1, 30))).apply(text_stream(TEXT)).body
    seen: list[Partial] = []
    extract(data.draw(splits(body)), Tide, on_partial=seen.append)
    names = [each.value.get("harbour", "") for each in seen]
    assert all("Oban".startswith(name) for name in names)
    assert names == sorted(names, key=len)


def test_views_of_a_long_reply_take_calls_in_proportion() -> None:
    def cost(size: int) -> tuple[int, int]:
        seen: list[Partial] = []
        said = list(pieces('{"harbour": "', *["abcd"] * size, '"}'))
        return calls_in(lambda: extract(said, Tide, on_partial=seen.append)), len(seen)

    (short, few), (long, many) = cost(20_000), cost(200_000)
    assert many - few < 64 * 4
    assert long < short * 12


# -------------------------------------------------------------------------------------------------------- what is never given


CALL = ToolCall(0, id="a", name="f", arguments_text='{"harbour":', problem="cut by the length limit")
INCOMPLETE: list[tuple[Any, str, str]] = [
    (text_stream(TEXT[:12], None), TEXT[:12], "ended without a finish reason"),
    (text_stream(TEXT, None), TEXT, "ended without a finish reason"),
    (text_stream(TEXT, "length"), TEXT, "the reply ended with 'length'"),
    (text_stream(TEXT, "content_filter"), TEXT, "ended with 'content_filter'"),
    (text_stream(TEXT, errors=(ReplyError("overloaded_error", "busy"),)), TEXT, "the stream broke with overloaded_error: busy"),
    ([Text(K, "{"), StreamError("server_error", "gone")], "{", "the stream broke with server_error: gone"),
    (synthesize(Reply((RefusalPart("I will not."),), "stop", ended=True), "openai-chat"), "", "the model refused: I will not."),
    (synthesize(Reply((CALL,), "length", ended=True), "openai-chat"), '{"harbour":', "ended with 'length'"),
    ([ToolCallStart(Key(0, 0, "a"), "function", "f", own_end=True), Arguments(Key(0, 0), "{}"), Finish(K, "stop")], "{}", "a tool call has no end event of its own"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "text", "says"), INCOMPLETE)
def test_a_stream_that_is_not_whole(source: Any, text: str, says: str) -> None:
    with pytest.raises(IncompleteReply, match="no whole value came") as caught:
        extract(source, Tide)
    assert says in caught.value.what
    assert caught.value.text == text
    assert isinstance(caught.value.reply, Reply)
    assert caught.value.mend
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.text) == (str(caught.value), text)


TWO = Reply((CALL, CALL), "tool_calls", ended=True)
INVALID: list[tuple[Any, Any, str, str, str]] = [
    (text_stream("Sure! {}"), Tide, "the reply is not JSON", "'Sure! {}'", "structured output"),
    (text_stream('{"metres": NaN}'), Forecast, "not JSON: NaN is not JSON", "NaN", "structured output"),
    (text_stream("{}"), Tide, "'harbour' is missing", "$", "structured output"),
    (text_stream("{}"), Forecast, "Field required", "$.city", "structured output"),
    (text_stream('{"city": 1, "days": [{"on": "x", "high": 1}]}'), Forecast, "a valid string, and 1 more", "$.city", "structured output"),
    (text_stream('{"city": "a", "days": [{"on": "x", "high": 1}]}'), Forecast, "valid date", "$.days[0].on", "structured output"),
    (text_stream('{"harbour": 7}'), SCHEMA, "7 is not of type 'string'", "$.harbour", "structured output"),
    (text_stream("[]"), SCHEMA, "[] is not of type 'object'", "$", "structured output"),
    (text_stream('{"city": "\\ud83c"}'), Forecast, "does not fit", "$", "structured output"),
    ([ToolCallStart(Key(0, 0, "a"), "function", "f"), Arguments(Key(0, 0), "{"), Finish(K, "stop")], Tide, "not JSON", "'{'", "structured output"),
    ([Finish(K, "stop")], Tide, "not JSON", "''", "no text and 0 tool calls"),
    ([ToolCallStart(Key(0, at, str(at)), "function", "f") for at in range(2)] + [Finish(K, "stop")], Tide, "not JSON", "''", "2 tool calls"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "schema", "what", "where", "mend"), INVALID)
def test_a_value_that_does_not_fit(source: Any, schema: Any, what: str, where: str, mend: str) -> None:
    with pytest.raises(InvalidReply) as caught:
        extract(source, schema)
    assert what in caught.value.what
    assert where in caught.value.where if "'" in where or where == "NaN" else where == caught.value.where
    assert mend in caught.value.mend
    assert caught.value.reply.complete


# ---------------------------------------------------------------------------------------------------------------- dataclasses


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


Id = NewType("Id", str)


@dataclasses.dataclass
class Node:
    name: Id
    children: list[Node] = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Everything:
    a: int | None = None
    b: tuple[int, ...] = ()
    c: tuple[int, str] = (0, "")
    d: frozenset[str] = frozenset()
    e: dict[str, float] = dataclasses.field(default_factory=dict)
    f: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    g: Literal["x", 1] = "x"
    h: Colour = Colour.RED
    i: int | str | bool = 0
    j: Sequence[Node] = ()
    k: Node | None = None
    l: list = dataclasses.field(default_factory=list)
    m: object = None
    n: set[Any] = dataclasses.field(default_factory=set)
    o: Any = None
    p: None = None


GOOD: list[tuple[str, Any, dict[str, Any]]] = [
    ("a", 7, {"a": 7}),
    ("a", None, {"a": None}),
    ("b", [1, 2], {"b": (1, 2)}),
    ("c", [1, "x"], {"c": (1, "x")}),
    ("d", ["x", "x"], {"d": frozenset("x")}),
    ("e", {"x": 1}, {"e": {"x": 1.0}}),
    ("f", {"x": [1]}, {"f": {"x": [1]}}),
    ("g", 1, {"g": 1}),
    ("h", "red", {"h": Colour.RED}),
    ("h", 1, {"h": Colour.ONE}),
    ("i", True, {"i": True}),
    ("j", [{"name": "a", "children": [{"name": "b"}]}], {"j": [Node(Id("a"), [Node(Id("b"))])]}),
    ("k", {"name": "a"}, {"k": Node(Id("a"))}),
    ("l", [1, "x", None], {"l": [1, "x", None]}),
    ("m", {"x": 1}, {"m": {"x": 1}}),
    ("o", [1], {"o": [1]}),
    ("p", None, {"p": None}),
]


@pytest.mark.parametrize(("name", "value", "expected"), GOOD)
def test_a_field_of_a_dataclass(name: str, value: Any, expected: dict[str, Any]) -> None:
    got = extract(pieces(json.dumps({name: value})), Everything)
    assert got == Everything(**expected)
    assert type(getattr(got, name)) is type(expected[name])


BAD: list[tuple[str, str, str]] = [
    ('{"a": true}', "expected a whole number, got True", "$.a"),
    ('{"a": 1.0}', "whole number", "$.a"),
    ('{"b": [1, "x"]}', "expected a whole number, got 'x'", "$.b[1]"),
    ('{"b": 1}', "expected an array, got 1", "$.b"),
    ('{"c": [1]}', "expected an array of 2, got [1]", "$.c"),
    ('{"e": {"x": "1"}}', "expected a number, got '1'", "$.e.x"),
    ('{"e": {"x": 1%s}}' % ("0" * 400), "the number is too large", "$.e.x"),
    ('{"e": []}', "expected an object, got []", "$.e"),
    ('{"g": true}', "expected one of 'x', 1, got True", "$.g"),
    ('{"g": 2}', "expected one of 'x', 1", "$.g"),
    ('{"h": "blue"}', "expected one of 'red', 1, got 'blue'", "$.h"),
    ('{"i": null}', "expected a whole number, got None or expected a string", "$.i"),
    ('{"j": [{}]}', "'name' is missing", "$.j[0]"),
    ('{"k": {"name": "a", "hidden": 1}}', "there is no field 'hidden' in Node", "$.k"),
    ('{"k": {"name": "a", "children": [{"name": 1}]}}', "expected a string, got 1", "$.k.children[0].name"),
    ('{"n": [[]]}', "a set cannot hold arrays or objects", "$.n"),
    ('{"p": 0}', "expected null, got 0", "$.p"),
    ("[]", "expected an object, got []", "$"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "what", "where"), BAD)
def test_a_field_that_does_not_fit(text: str, what: str, where: str) -> None:
    with pytest.raises(InvalidReply) as caught:
        extract(pieces(text), Everything)
    assert what in caught.value.what
    assert caught.value.where == where


def test_a_dataclass_of_pydantic_is_pydantic_s() -> None:
    @pydantic.dataclasses.dataclass
    class Day:
        on: date

    assert extract(pieces('{"on": "2031-01-04"}'), Day).on == date(2031, 1, 4)


@dataclasses.dataclass
class Odd:
    on: date


@pytest.mark.parametrize("schema", [int, "x", None, Odd, dict[int, str]])
def test_what_is_no_schema_is_told_before_anything_is_read(schema: Any) -> None:
    source = iter([Text(K, "x")])
    with pytest.raises(TypeError, match=r"is no schema|is no type of a JSON value"):
        extract(source, schema)
    assert next(source)


def test_pydantic_and_jsonschema_are_loaded_by_those_alone_who_need_them() -> None:
    code = """
import dataclasses, sys
from stream_cassette import extract
@dataclasses.dataclass
class Tide:
    harbour: str
body = b'data: {"choices":[{"delta":{"content":"{\\\\"harbour\\\\":\\\\"Oban\\\\"}"},"finish_reason":"stop"}]}\\n\\n'
print(extract(body, Tide).harbour, "pydantic" in sys.modules, "jsonschema" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Oban", "False", "False"]
