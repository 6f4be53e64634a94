"""Places inside a plain value (as JSON has them), written as a person would: `usage.total_tokens`, `tool_calls[0].id`, `**.created`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

Steps = tuple[str, ...]

GONE = object()
"""What a change gives for a value that is to be left out."""

_STEP = re.compile(r"\[(?:'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<index>\d+|\*))\]|(?P<name>[^.\[\]]+)")


def parse(path: str) -> Steps:
    """The steps of a path: keys and indices; `*` is any one of them, `**` any number of them, also none.

    Names stand between dots, anything in `['...']`; a leading `$` or `root`, as deepdiff writes it, says nothing. Raises `ValueError` for what is no path.
    """
    text = re.sub(r"\A(?:root(?=\[)|\$\.?)", "", path)
    steps: list[str] = []
    at = 0
    while at < len(text) or not steps:
        dot = bool(steps) and text.startswith(".", at)
        match = _STEP.match(text, at + dot)
        if match is None or (match["name"] and steps and not dot):
            raise ValueError(f"{path!r} is no path")
        steps.append(next(group for group in match.groups() if group is not None))
        at = match.end()
    return tuple(steps)


def written(steps: Sequence[str | int]) -> str:
    """The path that `parse` takes apart again; `the value` for the whole."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[^.\[\]*'\"]+", step):
            text += f".{step}" if text else step
        else:
            text += f"[{step!r}]"
    return text or "the value"


def changed(value: Any, steps: Steps, change: Callable[[Any], Any]) -> Any:
    """A copy of `value` with `change` made to every place that `steps` reach; `GONE` leaves a key out, and in a list None in its place."""
    if not steps:
        return change(value)
    if steps[0] == "**":
        value = changed(value, steps[1:], change)
        rest, wanted = steps, "*"
    else:
        rest, wanted = steps[1:], steps[0]

    def inner(key: str, old: Any) -> Any:
        return changed(old, rest, change) if wanted in ("*", key) else old

    if isinstance(value, dict):
        return {key: new for key, old in value.items() if (new := inner(key, old)) is not GONE}
    if isinstance(value, list):
        # The others keep their places, so that the same change once more changes nothing.
        return [None if (new := inner(str(index), old)) is GONE else new for index, old in enumerate(value)]
    return value
