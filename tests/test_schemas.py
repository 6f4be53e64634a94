"""Tools as every provider declares them, and arguments against their schema."""

from __future__ import annotations

import asyncio
import builtins
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stream_cassette import Assembler, aassemble, assemble
from stream_cassette.errors import MissingExtra
from stream_cassette.model import Arguments, Finish, Key, PartEnd, ToolCallStart
from stream_cassette.schemas import declared, violation

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
UPPER = {
    "type": "OBJECT",
    "properties": {"city": {"type": "STRING"}},
    "required": ["city"],
    "additionalProperties": False,
}

SHAPES: dict[str, Any] = {
    "openai chat": {"tools": [{"type": "function", "function": {"name": "f", "parameters": CITY}}]},
    "openai legacy": {"functions": [{"name": "f", "parameters": CITY}]},
    "responses": {"tools": [{"type": "function", "name": "f", "parameters": CITY}, {"type": "web_search"}]},
    "anthropic": {
        "tools": [{"name": "f", "input_schema": CITY}, {"type": "web_search_20250305", "name": "web_search"}]
    },
    "gemini": {"tools": [{"functionDeclarations": [{"name": "f", "parameters": UPPER}]}]},
    "gemini, JSON Schema": {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": CITY}]}]},
    "vertex": {"tools": [{"function_declarations": [{"name": "f", "parameters": UPPER}]}]},
    "bedrock": {"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": CITY}}}]}},
    "a list": [{"name": "f", "input_schema": CITY}],
    "a mapping": {"f": CITY},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_declared(shape: str) -> None:
    assert declared(SHAPES[shape]) == {"f": CITY}


@pytest.mark.parametrize(
    "tools", [None, 7, "tools", [], {}, {"tools": None}, {"tools": [None, 3, {}, {"name": "f"}]}, {"model": "m"}]
)
def test_nothing_is_declared(tools: Any) -> None:
    assert declared(tools) == {}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"city": "Pune"}, None),
        ({}, "'city' is a required property"),
        ({"city": 7}, "7 is not of type 'string' at $.city"),
        ({"city": "a", "x": 1}, "Additional properties are not allowed ('x' was unexpected)"),
    ],
)
def test_violation(value: Any, says: str | None) -> None:
    assert violation(CITY, value) == says


def test_a_broken_schema_fits_nothing() -> None:
    assert (
        violation({"type": "objekt"}, {})
        == "the schema itself is broken: 'objekt' is not valid under any of the given schemas"
    )


def test_without_jsonschema_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("jsonschema"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r"pytest-stream-cassette\[arguments\]"):
        violation(CITY, {})


# ---------------------------------------------------------------------------------------------- held back when a call is released


def call_of(name: str, arguments: str, kind: Any = "function") -> list[Any]:
    key = Key(0, 0)
    return [
        ToolCallStart(Key(0, 0, "a"), kind, name),
        Arguments(key, arguments),
        PartEnd(key),
        Finish(Key(), "tool_calls"),
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("f", '{"city":"Pune"}', None),
        ("f", '{"city":7}', "schema: 7 is not of type 'string' at $.city"),
        ("f", "{}", "schema: 'city' is a required property"),
        ("f", "{", "not JSON: Expecting property name enclosed in double quotes at character 1"),
        ("g", '{"city":7}', None),  # was not declared: left as it is
    ],
)
def test_a_call_that_does_not_fit_its_schema_is_not_released(
    shape: str, name: str, arguments: str, problem: str | None
) -> None:
    (call,) = assemble(call_of(name, arguments), tools=SHAPES[shape]).parts
    assert (call.problem, call.arguments is None) == (problem, problem is not None)
    assembler = Assembler(tools=SHAPES[shape])
    given = tuple(each for event in call_of(name, arguments) for each in assembler.feed(event))
    assert (given, assembler.incomplete()) == (((), (call,)) if problem else ((call,), ()))


def test_free_text_has_no_schema() -> None:
    assert assemble(call_of("f", "SELECT", "custom"), tools=SHAPES["a list"]).tool_calls


def test_asynchronously_too() -> None:
    async def source() -> AsyncIterator[Any]:
        for event in call_of("f", "{}"):
            yield event

    assert asyncio.run(aassemble(source(), tools=SHAPES["a list"])).incomplete_tool_calls


def test_jsonschema_is_loaded_for_tools_alone() -> None:
    code = "import sys; from stream_cassette import assemble; assemble([{'choices': []}]); print('jsonschema' in sys.modules); assemble([{'choices': []}], tools={'f': {}}); print('jsonschema' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
