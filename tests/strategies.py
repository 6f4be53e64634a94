"""Hypothesis strategies that several test modules draw from, beside those that the package offers."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import strategies as st

from stream_cassette import jsontext
from stream_cassette.dialects import dialect
from stream_cassette.model import Part, ReasoningPart, RefusalPart, Reply, ToolCall, Usage
from stream_cassette.strategies import any_reply, json_values, texts
from stream_cassette.strategies import chunkings as splits

__all__ = ["ODD", "json_values", "replies", "sayable", "splits", "texts"]

# Characters that framings, YAML and careless code stumble over.
ODD = '\n\r\t\0\x1c\x7f\x85\u2028\u2029\ufeff\ufffe🌊漢é"\\:{}[] '


def replies(name: str) -> st.SearchStrategy[Reply]:
    """Replies that the dialect `name` can say: any reply without what its `losses` name.

    Unlike `stream_cassette.fuzz.replies` this does not go through the dialect, so that what it loses unsaid is found.
    """
    return any_reply(one_of_each=dialect(name).numbers == "calls").map(lambda reply: sayable(reply, name))


def sayable(reply: Reply, name: str) -> Reply:
    """`reply` without what the dialect `name` cannot say."""
    while losses := dialect(name).losses(reply):
        reply = _without(reply, losses[0])
    return reply


def _without(reply: Reply, loss: str) -> Reply:
    if loss.startswith("usage."):
        usage = replace(reply.usage, **{loss.removeprefix("usage."): None}) if reply.usage else None
        return replace(reply, usage=usage if usage != Usage() else None)
    if loss.startswith("usage"):
        return replace(reply, usage=None)
    if loss.startswith("the choices"):
        return replace(reply, choices=())
    if loss.startswith("an end mark without"):
        return replace(reply, finish_reason="end_turn")
    if loss.startswith("adjacent"):
        kept = [
            part
            for part, before in zip(reply.parts, [None, *reply.parts], strict=False)
            if type(part) is not type(before)
        ]
        return replace(reply, parts=tuple(kept))
    if loss.startswith("the signature"):
        parts = tuple(replace(part, signature="") if isinstance(part, ReasoningPart) else part for part in reply.parts)
        return replace(reply, parts=parts)
    if loss.startswith("the type of the error"):
        parts = tuple(
            replace(part, problem="the stream broke: error")
            if isinstance(part, ToolCall) and str(part.problem).startswith("the stream broke")
            else part
            for part in reply.parts
        )
        return replace(reply, parts=parts, errors=tuple(replace(error, type="error") for error in reply.errors))
    if loss.startswith("the spelling"):
        return replace(reply, parts=tuple(map(_compact, reply.parts)))
    dropped = {
        "a refusal": RefusalPart,
        "a tool call with free": ToolCall,
        "a closed tool call": ToolCall,
        "an open tool call": ToolCall,
        "arguments that are no": ToolCall,
        "a tool call (": ToolCall,
        "a reasoning part (": ReasoningPart,
    }
    for start, kind in dropped.items():
        if loss.startswith(start):
            return replace(reply, parts=_renumbered([part for part in reply.parts if not isinstance(part, kind)]))
    raise AssertionError(loss)


def _compact(part: Part) -> Part:
    if not isinstance(part, ToolCall) or part.kind == "custom":
        return part
    if not part.arguments_text:  # said in words, it is whole even where the length limit struck
        return replace(
            part, arguments_text="{}", problem=None if part.problem == "cut by the length limit" else part.problem
        )
    return replace(part, arguments_text=jsontext.dump(json.loads(part.arguments_text)))


def _renumbered(parts: list[Part]) -> tuple[Part, ...]:
    return tuple(parts)
