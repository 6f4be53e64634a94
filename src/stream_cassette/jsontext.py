"""JSON text to a value: strict, fast, and without losing what the fast parser refuses."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NoReturn

import jiter


def parse(text: str | bytes) -> Any:
    """The value of a JSON text (RFC 8259: no NaN, no raw control characters in strings). `ValueError` says what is wrong and at which character.

    A lone surrogate escape (`"\\ud83c"`) is JSON and is kept: some servers cut a character between its two escapes.
    """
    try:
        return jiter.from_json(text.encode() if isinstance(text, str) else text, allow_inf_nan=False)
    except ValueError:
        pass  # also UnicodeEncodeError: a str that holds lone surrogates itself
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_escaped = json.JSONEncoder(separators=(",", ":")).encode


def dump(value: Any) -> str:
    """Compact JSON, characters as themselves; all escaped where a lone surrogate leaves no other way."""
    text = _compact(value)
    return text if is_unicode(text) else _escaped(value)


def join(pieces: Iterable[str]) -> str:
    """The pieces as one text. A character that the wire cut between its two surrogate escapes becomes one again."""
    text = "".join(pieces)
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def is_unicode(text: str) -> bool:
    """Has `text` no lone surrogate, so that UTF-8 can carry it?"""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
