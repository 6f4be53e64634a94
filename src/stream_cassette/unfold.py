"""The way back from the fold: a `Reply` as the deltas that assemble to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, assert_never

from .dialects.base import is_open
from .model import (
    USAGE_COUNTS,
    Arguments,
    Delta,
    End,
    Finish,
    Key,
    Opaque,
    OpaquePart,
    Part,
    PartEnd,
    PartStart,
    Reasoning,
    ReasoningPart,
    Refusal,
    RefusalPart,
    Reply,
    Signature,
    Start,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    ToolCallStart,
    UsageUpdate,
)

Cut = Callable[[int, int], Sequence[str]]
"""From the number of a choice and of a part in it to the pieces that its text (or arguments) is to come in; none for one piece."""


def unfold(
    reply: Reply, numbers: Literal["parts", "calls", "nothing"], cut: Cut = lambda choice, part: ()
) -> list[Delta]:
    """Deltas that assemble to `reply`; `numbers` is what an index counts in the dialect that will say them, `cut` says how the texts are cut."""
    choices = reply.choices or (reply,)
    out: list[Delta] = []
    for number, choice in enumerate(choices):
        out.append(Start(Key(number), reply.role or "assistant", reply.id, reply.model))
        for index, part in enumerate(choice.parts):
            key = Key(number, index if numbers == "parts" else None, serial=numbers == "nothing")
            out += _unfold_part(part, key, cut(number, index))
    out += [
        Finish(Key(number), choice.finish_reason, detail=choice.finish_detail)
        for number, choice in enumerate(choices)
        if choice.finish_reason
    ]
    if reply.usage:
        counts = {name: count for name in USAGE_COUNTS if (count := getattr(reply.usage, name)) is not None}
        out.append(UsageUpdate(counts, {}))
    out += [StreamError(error.type, error.message, error.payload) for error in reply.errors]
    return [*out, End()] if reply.ended else out


def _unfold_part(part: Part, key: Key, cut: Sequence[str]) -> list[Delta]:
    match part:
        case TextPart(text):
            return [PartStart(key, "text"), *_pieces(Text, key, text, cut), PartEnd(key)]
        case ReasoningPart(text, signature):
            return [
                PartStart(key, "reasoning"),
                *_pieces(Reasoning, key, text, cut),
                *_pieces(Signature, key, signature),
                PartEnd(key),
            ]
        case RefusalPart(text):
            return [PartStart(key, "refusal"), *_pieces(Refusal, key, text, cut), PartEnd(key)]
        case ToolCall():
            at = replace(key, index=part.index if key.index is None and not key.serial else key.index)
            start = ToolCallStart(replace(at, id=part.id), part.kind, part.name)
            return [start, *_pieces(Arguments, at, part.arguments_text, cut), *([] if is_open(part) else [PartEnd(at)])]
        case OpaquePart(kind, payloads, arguments_text):
            carried = [Opaque(key, kind, payload) for payload in payloads]
            return [PartStart(key, kind), *carried, *_pieces(Arguments, key, arguments_text, cut), PartEnd(key)]
        case _:
            assert_never(part)


def _pieces(
    kind: type[Text | Reasoning | Signature | Refusal | Arguments], key: Key, text: str, cut: Sequence[str] = ()
) -> list[Delta]:
    return [kind(key, piece) for piece in (cut if "".join(cut) == text else (text,)) if piece]
