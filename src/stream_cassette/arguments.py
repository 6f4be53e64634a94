"""Tool-call arguments: what may run, and in words why something may not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from . import jsontext
from .model import ArgumentsAt


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """`(arguments, None)` where `text` is a JSON object by strict JSON (empty text means `{}`), else `(None, what is wrong with it)`."""
    if not text:
        return {}, None
    try:
        value = jsontext.parse(text)
    except ValueError as error:
        return None, f"not JSON: {error}"
    return (value, None) if isinstance(value, dict) else (None, "not an object")


# ------------------------------------------------------------------------------------------------------ values at JSON paths

_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_DEEPEST = 100

Steps = tuple[str | int, ...]


def place(text: str, values: Sequence[ArgumentsAt]) -> tuple[str, str | None]:
    """`(argument text, problem)`: the object in `text` (empty means `{}`) with each value put at its path, and in words why it must not be run."""
    root, problem = parse_arguments(text)
    if root is None:
        return text, problem
    said: dict[Steps, list[str]] = {}  # strings by their path, in pieces
    unfinished: dict[Steps, str] = {}
    for each in values:
        steps = _steps(each.path)
        if steps is None:
            problem = problem or f"no path to a place in the arguments: {each.path!r}"
            continue
        piece = each.value if isinstance(each.value, str) else None
        if piece is not None:
            said.setdefault(steps, []).append(piece) if steps in unfinished else said.update({steps: [piece]})
        else:
            said.pop(steps, None)
        if not _put(root, steps, each.value):
            problem = problem or f"no place for {each.path!r} in what came before it"
        unfinished.pop(steps, None)
        if each.more:
            unfinished[steps] = each.path
    for steps, pieces in said.items():
        _put(root, steps, "".join(pieces))
    if unfinished and not problem:
        problem = f"unfinished: {', '.join(unfinished.values())}"
    return jsontext.dump(root), problem


def _steps(path: str) -> Steps | None:
    steps: list[str | int] = []
    at = 1 if path.startswith("$") else len(path)
    while at < len(path) and len(steps) < _DEEPEST and (match := _STEP.match(path, at)):
        name, number, single, double = match.groups()
        if number is not None:
            steps.append(int(number))
        else:
            steps.append(name if name is not None else _unquoted(single, double))
        at = match.end()
    return tuple(steps) if steps and at == len(path) and isinstance(steps[0], str) else None


def _unquoted(single: str | None, double: str | None) -> str:
    """A quoted name; RFC 9535 escapes as JSON does, and the quote in use."""
    text = double if single is None else re.sub(r"""\\.|\"""", _as_json, single)
    try:
        return str(jsontext.parse(f'"{text}"'))
    except ValueError:
        return str(single or double)


def _as_json(match: re.Match[str]) -> str:
    return {"\\'": "'", '"': '\\"'}.get(match[0], match[0])


def _put(root: dict[str, Any], steps: Steps, value: Any) -> bool:
    """Put `value` there; False where a name leads into no object, or a number into no list or past its end."""
    here: Any = root
    for step, following in pairwise((*steps, None)):
        empty: Any = value if following is None else [] if isinstance(following, int) else {}
        match here, step:
            case dict(), str():
                here[step] = value if following is None else here.get(step, empty)
            case list(), int() if step < len(here):
                here[step] = value if following is None else here[step]
            case list(), int() if step == len(here):
                here.append(empty)
            case _:
                return False
        here = here[step]
    return True
