"""Hypothesis strategies that several test modules draw from."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from stream_cassette.arguments import parse_arguments
from stream_cassette.dialects import dialect
from stream_cassette.model import (
    Part,
    ReasoningPart,
    RefusalPart,
    Reply,
    ReplyError,
    TextPart,
    ToolCall,
    Usage,
)

# Characters that framings, YAML and careless code stumble over, mixed into whatever Hypothesis likes.
ODD = "\n\r\t\0\x1c\x7f\x85\u2028\u2029\ufeff\ufffe🌊漢é\"\\:{}[] "
texts = st.text(st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=["Cs"])), min_size=1, max_size=20)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
arguments_texts = st.one_of(
    st.just(""),
    st.dictionaries(texts, json_values, max_size=3).map(json.dumps),
    st.dictionaries(texts, json_values, max_size=3).map(lambda value: json.dumps(value, ensure_ascii=False, indent=1)),
)


def splits(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """`data` cut anywhere, empty pieces too."""

    def cut(places: list[int]) -> list[bytes]:
        edges = [0, *sorted(places), len(data)]
        return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]

    return st.lists(st.integers(0, len(data)), max_size=8).map(cut)


@st.composite
def replies(draw: st.DrawFn, name: str) -> Reply:
    """Replies that the dialect `name` can say."""
    speaker = dialect(name)
    reply = draw(_any_reply(separate=speaker.numbers == "parts"))
    for loss in speaker.losses(reply):  # the strategy below knows no dialect; what this one cannot say is dropped
        reply = _without(reply, loss)
    assert not speaker.losses(reply), speaker.losses(reply)
    return reply


def _without(reply: Reply, loss: str) -> Reply:
    from dataclasses import replace

    if loss.startswith("usage."):
        usage = replace(reply.usage, **{loss.removeprefix("usage."): None}) if reply.usage else None
        return replace(reply, usage=usage if usage != Usage() else None)
    if loss.startswith("usage"):
        return replace(reply, usage=None)
    if loss.startswith("the choices"):
        return replace(reply, choices=())
    dropped = {"a refusal": RefusalPart, "a tool call with free": ToolCall, "a closed tool call": ToolCall}
    for start, kind in dropped.items():
        if loss.startswith(start):
            return replace(reply, parts=_renumbered([part for part in reply.parts if not isinstance(part, kind)]))
    raise AssertionError(loss)


def _renumbered(parts: list[Part]) -> tuple[Part, ...]:
    return tuple(parts)


@st.composite
def _any_reply(draw: st.DrawFn, separate: bool) -> Reply:
    finish = draw(st.sampled_from([None, "stop", "length", "tool_calls", "end_turn", "tool_use", "max_tokens", "content_filter"]))
    ended = draw(st.booleans())
    errors = draw(st.lists(st.builds(ReplyError, st.sampled_from(["overloaded_error", "server_error"]), texts), max_size=1))
    shell = Reply(finish_reason=finish, ended=ended, errors=tuple(errors))
    parts: list[Part] = []
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "refusal", "call", "custom"]), max_size=4)):
        if kind in ("call", "custom"):
            parts.append(_call(draw, shell, parts, kind))
        elif separate or kind not in {_kind(part) for part in parts}:
            parts.append(_plain(draw, kind))
    usage = draw(st.none() | st.builds(Usage, *([st.integers(0, 9999)] * 2), *([st.none() | st.integers(0, 9999)] * 3)))
    return Reply(tuple(parts), finish, usage, tuple(errors), ended=ended, role="assistant", model="m-1", id="r-1")


def _kind(part: Part) -> str:
    return {TextPart: "text", ReasoningPart: "reasoning", RefusalPart: "refusal"}.get(type(part), "call")


def _plain(draw: st.DrawFn, kind: str) -> Part:
    text = draw(texts)
    if kind == "text":
        return TextPart(text)
    if kind == "refusal":
        return RefusalPart(text)
    return ReasoningPart(text, draw(st.just("") | st.text("abcXYZ09+/=", min_size=1, max_size=12)))


def _call(draw: st.DrawFn, shell: Reply, parts: list[Part], kind: str) -> ToolCall:
    """A call as the wire would leave it in such a reply: released, or with its problem."""
    index = sum(isinstance(part, ToolCall) for part in parts)
    text = draw(arguments_texts if kind == "call" else texts)
    name, id_ = draw(st.text("abc_", min_size=1, max_size=8)), f"call_{index}"
    value: Any = None
    if not shell.complete:
        problem: str | None = f"the stream broke: {shell.errors[0].type}" if shell.errors else "no finish reason"
    else:
        value, problem = parse_arguments(text) if kind == "call" else (None, None)
        if shell.stop == "length" and (problem or not text or kind == "custom"):
            value, problem = None, "cut by the length limit"
    return ToolCall(index, "function" if kind == "call" else "custom", id_, name, text, value, problem)
