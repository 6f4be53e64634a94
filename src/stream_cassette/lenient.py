"""Values made of JSON that is not whole: for display, or as a last resort that says what it did. Nothing here is ever used silently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jiter

from . import jsontext
from .errors import MissingExtra


def partial(text: str) -> Any:
    """The value of JSON text as far as it has come, for progressive display only; None where nothing can be shown yet.

    A cut string or list is shown as far as it goes, so that `{"amount": 1` of `{"amount": 100}` reads as 1: never store it and never act on it.
    """
    try:
        return jiter.from_json(text.encode("utf-8", "replace"), partial_mode="trailing-strings")
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Repaired:
    """`value`: what was made of the text. `changes`: in words, what was wrong and what was done; empty for text that was JSON already."""

    value: Any
    changes: tuple[str, ...] = ()


def repair(text: str) -> Repaired:
    """The most plausible JSON value of a broken text, and what was done to get it. `ValueError` where there is nothing to repair.

    The assembler never calls this. Raises `MissingExtra` without json-repair.
    """
    try:
        return Repaired(jsontext.parse(text))
    except ValueError as error:
        wrong = f"not JSON: {error}"
    try:
        from json_repair import repair_json
    except ImportError as error:
        raise MissingExtra(
            "repairing arguments needs json-repair", mend="pip install 'pytest-stream-cassette[arguments]'"
        ) from error
    value, log = repair_json(text, return_objects=True, logging=True)
    if value == "":
        raise ValueError(f"there is no JSON in {text[:80]!r}")
    steps = [f"{entry['text']} (near {entry['context']!r})" for entry in log]
    return Repaired(value, (wrong, *steps, f"read as {jsontext.dump(value)}"))
