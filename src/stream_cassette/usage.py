"""Token counts where a provider sent none: a rule of thumb that says that it is one."""

from __future__ import annotations

from typing import Any

from . import jsontext
from .model import Part, ReasoningPart, Reply, Request, ToolCall, Usage

_BYTES_A_TOKEN = 4


def estimate_usage(reply: Reply, request: Request | Any = b"") -> Usage:
    """Counts guessed from sizes, marked `estimated=True`: a token for every four bytes of UTF-8, rounded up.

    Input is the body of the `request` (a `Request`, its bytes or text, or its JSON value) as compact JSON, so an image counts with its base64; output is everything
    that the reply says, in all choices: texts, reasoning, refusals, and names and arguments of tool calls. It is meant for English prose; code, other
    scripts and images are further off. Nothing in this package calls it: a missing usage stays None.
    """
    parts = [part for choice in reply.choices or (reply,) for part in choice.parts]
    thought = [part for part in parts if isinstance(part, ReasoningPart)]
    spent = _tokens(_body(request.body if isinstance(request, Request) else request))
    said = sum(map(_said, parts))
    return Usage(spent, said, spent + said, reasoning_tokens=sum(map(_said, thought)) or None, estimated=True)


def _body(request: Any) -> str:
    if isinstance(request, bytes):
        request = request.decode("utf-8", "replace")
    try:
        return jsontext.dump(jsontext.parse(request) if isinstance(request, str) else request)
    except ValueError:
        return str(request)


def _said(part: Part) -> int:
    match part:
        case ToolCall(name=name, arguments_text=text):
            return _tokens(name) + _tokens(text)
        case _:
            return _tokens(getattr(part, "text", "") or getattr(part, "arguments_text", ""))


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_A_TOKEN)
