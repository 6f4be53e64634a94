"""Hypothesis strategies for what goes over the wire: replies that a dialect can say, their streams, and bodies cut into reads."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from .arguments import parse_arguments
from .dialects import dialect as named
from .fold import cut_short
from .model import Part, ReasoningPart, RefusalPart, Reply, ReplyError, TextPart, ToolCall, Usage
from .stream import Stream, synthesize

# Characters that framings, YAML and careless code stumble over, mixed into whatever Hypothesis likes.
_ODD = '\n\r\t\0\x1c\x7f\x85\u2028\u2029\ufeff\ufffe🌊漢é"\\:{}[] '

texts = st.text(st.sampled_from(_ODD) | st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
"""Short texts, not empty, rich in characters that break framings and naive readers."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
"""JSON values."""

arguments_texts = st.just("") | st.dictionaries(texts, json_values, max_size=3).flatmap(
    lambda value: st.sampled_from([json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)])
)
"""Argument texts of a tool call: none, or a JSON object in one spelling or another."""


def chunkings(body: bytes) -> st.SearchStrategy[list[bytes]]:
    """`body` cut into reads, anywhere; empty reads too."""

    def cut(places: list[int]) -> list[bytes]:
        return [body[a:b] for a, b in pairwise([0, *sorted(places), len(body)])]

    return st.lists(st.integers(0, len(body)), max_size=8).map(cut)


def replies(name: str) -> st.SearchStrategy[Reply]:
    """Replies that the dialect `name` can say without loss: whatever it makes of any reply."""
    speaker = named(name)
    said = any_reply().map(lambda reply: synthesize(reply, name, lossy=True).reply)
    return said.filter(lambda reply: not speaker.losses(reply))


def streams(name: str) -> st.SearchStrategy[Stream]:
    """Synthesised streams of the dialect `name`, one event a read."""
    return replies(name).map(lambda reply: synthesize(reply, name))


@st.composite
def any_reply(draw: st.DrawFn, *, one_of_each: bool = False) -> Reply:
    """Any reply; `one_of_each`: at most one text, one reasoning and one refusal part."""
    shell = Reply(
        finish_reason=draw(
            st.sampled_from([None, "stop", "length", "tool_calls", "end_turn", "tool_use", "max_tokens"])
        ),
        ended=draw(st.booleans()),
        errors=tuple(
            draw(
                st.lists(
                    st.builds(ReplyError, st.sampled_from(["overloaded_error", "server_error"]), texts), max_size=1
                )
            )
        ),
    )
    parts: list[Part] = []
    kinds = draw(st.lists(st.sampled_from(["text", "reasoning", "refusal", "function", "custom"]), max_size=4))
    for place, kind in enumerate(kinds):
        if kind in ("function", "custom"):
            parts.append(_call(draw, shell, sum(isinstance(part, ToolCall) for part in parts), kind))
        elif not one_of_each or kind not in kinds[:place]:
            parts.append(_plain(draw, kind))
    counts = st.integers(0, 9999)
    usage = draw(st.none() | st.builds(Usage, counts, counts, *[st.none() | counts] * 3))
    return Reply(
        tuple(parts),
        shell.finish_reason,
        usage,
        shell.errors,
        ended=shell.ended,
        role="assistant",
        model="m-1",
        id="r-1",
    )


def _plain(draw: st.DrawFn, kind: str) -> Part:
    text = draw(texts)
    match kind:
        case "text":
            return TextPart(text)
        case "refusal":
            return RefusalPart(text)
        case _:
            return ReasoningPart(text, draw(st.text("abcXYZ09+/=", max_size=12)))


def _call(draw: st.DrawFn, shell: Reply, index: int, kind: Any) -> ToolCall:
    """A call as the wire would leave it in such a reply: released, or with its problem."""
    text = draw(arguments_texts if kind == "function" else texts)
    name = draw(st.text("abc_", min_size=1, max_size=8))
    value, problem = parse_arguments(text) if kind == "function" else (None, None)
    if not shell.complete:
        value, problem = None, f"the stream broke: {shell.errors[0].type}" if shell.errors else "no finish reason"
    elif (cut := cut_short(shell)) and (problem or not text or kind == "custom"):
        value, problem = None, cut
    return ToolCall(index, kind, f"call_{index}", name, text, value, problem)
