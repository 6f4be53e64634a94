"""Tools as every provider declares them, and arguments against their schema."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from stream_cassette.errors import MissingExtra
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
