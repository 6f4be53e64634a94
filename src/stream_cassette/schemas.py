"""The tools that a request declares, in every provider's shape, and whether arguments fit their JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from .errors import MissingExtra

Schemas = Mapping[str, Mapping[str, Any]]
"""Tool name → JSON Schema of its arguments."""


def declared(tools: Any) -> Schemas:
    """The JSON Schema of each tool by its name.

    `tools`: a request body as its JSON value, the list of tools in it, or a ready mapping of names to schemas. Read are the shapes of OpenAI chat
    (`function.parameters`), Responses (`parameters`), Anthropic (`input_schema`), Gemini (`functionDeclarations`, whose types are spelt in upper
    case), Bedrock (`toolConfig.tools[].toolSpec.inputSchema.json`), Cohere v2, Ollama and OpenAI's legacy `functions`. A tool without a schema, or of a shape
    not known (tools that the provider runs itself), is left out.
    """
    return dict(_each(tools))


def _each(tools: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(tools, Mapping):
        config = tools.get("toolConfig")
        lists = [
            tools.get("tools"),
            tools.get("functions"),
            config.get("tools") if isinstance(config, Mapping) else None,
        ]
        if any(isinstance(each, list) for each in lists):
            for each in lists:
                yield from _each(each)
        else:
            yield from (
                (str(name), schema)
                for name, schema in tools.items()
                if isinstance(schema, Mapping) and "tools" not in tools
            )
    elif isinstance(tools, Iterable) and not isinstance(tools, str | bytes):
        for tool in tools:
            yield from _tool(tool)


def _tool(tool: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    match tool:
        case {"functionDeclarations": list(inner)} | {"function_declarations": list(inner)}:
            for each in inner:
                yield from _tool(each)
        case {"function": {"name": _} as inner} | {"toolSpec": {"name": _} as inner}:
            yield from _tool(inner)
        case {"name": str(name), "inputSchema": {"json": dict(schema)}}:
            yield name, schema
        case (
            {"name": str(name), "parametersJsonSchema": dict(schema)}
            | {"name": str(name), "input_schema": dict(schema)}
            | {"name": str(name), "parameters": dict(schema)}
        ):
            yield name, _json_schema(schema)


def _json_schema(schema: Any) -> Any:
    """Gemini's types are spelt as protocol buffer enums (`OBJECT`); JSON Schema's are lower case."""
    match schema:
        case dict():
            spelt = {key: _json_schema(value) for key, value in schema.items()}
            kind = schema.get("type")
            return spelt | ({"type": kind.lower()} if isinstance(kind, str) else {})
        case list():
            return [_json_schema(each) for each in schema]
        case _:
            return schema


def violation(schema: Mapping[str, Any], value: Any) -> str | None:
    """What of `value` does not fit, in words and with its place, or None. Raises `MissingExtra` without jsonschema.

    A schema that is itself broken is a violation in words, too: nothing can be said to fit it.
    """
    return checker(schema)(value)


def checker(schema: Mapping[str, Any]) -> Callable[[Any], str | None]:
    """`violation` for many values of one schema, which is looked at once, when the first value comes."""
    first = misfit(schema)

    def check(value: Any) -> str | None:
        found = first(value)
        return " at ".join(filter(None, found)) if found else None

    return check


def misfit(schema: Mapping[str, Any]) -> Callable[[Any], tuple[str, str] | None]:
    """As `checker`, with the JSON path of the misfit apart; the path is empty for the value as a whole."""
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError, best_match
        from jsonschema.validators import validator_for
    except ImportError as error:
        raise MissingExtra(
            "checking a value against a JSON Schema needs jsonschema",
            mend="pip install 'pytest-stream-cassette[arguments]'",
        ) from error

    @cache
    def validator() -> Any:
        kind = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(dict(schema))
        return kind(schema)

    def first(value: Any) -> tuple[str, str] | None:
        try:
            found = best_match(validator().iter_errors(value))
        except SchemaError as error:
            return f"the schema itself is broken: {error.message}", ""
        return (str(found.message), found.json_path if found.absolute_path else "") if found else None

    return first
