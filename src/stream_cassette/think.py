"""`<think>` tags, in which many open models put their reasoning into the text: split out only when asked."""

from __future__ import annotations

import re
from dataclasses import replace

from .model import Part, ReasoningPart, Reply, TextPart

_OPEN, _CLOSE = "<think>", "</think>"
_TAGGED = re.compile(f"{_OPEN}(.*?)(?:{_CLOSE}|$)", re.DOTALL)


def split_think(reply: Reply) -> Reply:
    """The reply with the text between `<think>` and `</think>` as reasoning parts before the text that held it.

    Works on the assembled text, so it does not matter where fragments cut the tags. A closing tag that nobody opened (the opening one stood in the
    prompt) makes everything before it reasoning; an opening tag that nobody closed everything after it. Reasoning that the provider
    also sent in a field of its own is not said twice.
    """
    known = reply.reasoning.strip()
    parts: list[Part] = []
    for part in reply.parts:
        parts += _split(part, known) if isinstance(part, TextPart) else [part]
    return replace(reply, parts=tuple(parts), choices=tuple(split_think(choice) for choice in reply.choices))


def _split(part: TextPart, known: str) -> list[Part]:
    text = part.text
    if _OPEN not in text and _CLOSE not in text:
        return [part]
    if _OPEN not in text.partition(_CLOSE)[0]:
        text = _OPEN + text
    thought = "".join(_TAGGED.findall(text))
    said: list[Part] = [] if not thought.strip() or thought.strip() == known else [ReasoningPart(thought)]
    rest = _TAGGED.sub("", text)
    return [*said, TextPart(rest)] if rest else said
