"""Tool-call arguments: what may run, and in words why something may not."""

from __future__ import annotations

from typing import Any

from . import jsontext


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """`(arguments, None)` where `text` is a JSON object by strict JSON (empty text means `{}`), else `(None, what is wrong with it)`."""
    if not text:
        return {}, None
    try:
        value = jsontext.parse(text)
    except ValueError as error:
        return None, f"not JSON: {error}"
    return (value, None) if isinstance(value, dict) else (None, "not an object")
