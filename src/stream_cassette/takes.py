"""What is compared of a stream, for `drift`: its events, the places at which JSON values stand in them, and what they bring of the reply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from . import jsontext
from .dialects import dialect
from .dialects.base import payload_of
from .dialects.bedrock_invoke import inside
from .dialects.binary import event_of
from .errors import UnknownDialect
from .framing import Sniffer
from .lanes import resolve
from .model import (
    Arguments,
    ArgumentsAt,
    Delta,
    Finish,
    Frame,
    Keepalive,
    Refusal,
    Reply,
    Start,
    StreamError,
    Text,
    ToolCallStart,
    UsageUpdate,
)
from .stream import Stream

_HEAD = 1 << 16  # bytes; the first that is not blank tells the framing
_UNTYPED, _BODY = "events", "body"  # labels beside those of `event NAME`
_OF_LEAVING = ("wire:empty", "wire:truncated")  # errors of ours that any body has which is left too early

Place = tuple[str, ...]
"""Where a JSON value stands: the label of its event, then keys, `[*]` for the items of a list, `<type>` for an object of a type, `*` for a key made
up by who sent it. The value itself does not count, only its JSON type."""


@dataclass(frozen=True, slots=True)
class Event:
    """`content`: what of `_CHOSEN` it brings. `part`: does it say something of any part? `line`: the name on its event line."""

    label: str
    value: Any
    said: tuple[Delta, ...] = ()
    content: frozenset[str] = frozenset()
    part: bool = False
    line: str = ""


@dataclass(frozen=True)
class Take:
    """Of a stream, what is compared.

    `seen`: for each place and JSON type the numbers of the events in which it stood, once each time. `words`: so those where a string stood that is
    not empty.
    """

    stream: Stream
    spoken: str | None
    reply: Reply | None
    events: tuple[Event, ...]
    seen: Mapping[Place, Mapping[str, Sequence[int]]]
    words: Mapping[Place, Sequence[int]]

    @cached_property
    def cut(self) -> bool:
        """Did it not run to its end?"""
        return self.stream.exchange.ending.kind != "complete" or bool(self.reply and self.reply.errors)

    @property
    def left(self) -> bool:
        return _left(self.stream)

    @property
    def errors(self) -> dict[str, None]:
        """The kinds of its errors, but for those that come of leaving."""
        kinds = dict.fromkeys(error.type for error in self.reply.errors) if self.reply else {}
        return {kind: None for kind in kinds if not (self.left and kind in _OF_LEAVING)}

    def count(self, place: Place, type_: str = "") -> int:
        types = self.seen.get(place, {})
        return len(types.get(type_, ())) if type_ else sum(map(len, types.values()))

    def numbers(self, place: Place) -> list[int]:
        return [number for numbers in self.seen.get(place, {}).values() for number in numbers]

    def is_nothing(self, place: Place) -> bool:
        """Does it say nothing wherever it stands: null, or an empty string?"""
        return self.seen[place].keys() <= {"null", "string"} and place not in self.words

    def has_empty(self, place: Place) -> bool:
        """Does an empty string stand there?"""
        return self.count(place, "string") > len(self.words.get(place, ()))

    def would_say(self, place: Place) -> bool:
        """Would a word there, instead of what stands there first, be content of the reply?"""
        event = self.events[self.numbers(place)[0]]
        payload = _filled(event.value, _bare(place)[1:])
        said = dialect(self.spoken).deltas(payload, event.line or "message") if self.spoken else []
        return any(isinstance(each, Text | Refusal) and each.text == _WORD for each in said)

    @cached_property
    def content(self) -> frozenset[str]:
        """What of `_CHOSEN` the reply has; arguments too that came whole and not in pieces."""
        has_arguments = self.reply is not None and any(call.arguments for call in self.reply.tool_calls)
        whole = frozenset({"arguments"} if has_arguments else ())
        return whole.union(*(event.content for event in self.events))

    @cached_property
    def marks(self) -> frozenset[int]:
        """The events that say something of the lifecycle first, and the one with the last usage: what they carry comes once in a stream."""
        once = (self.where(kind) for kind in (Start, ToolCallStart, Finish))
        usage = self.where(UsageUpdate)
        return frozenset({0, *(at for found in once for at in found[:1]), *usage[:1], *usage[-1:]})

    def says(self, number: int, kinds: type[Delta] | tuple[type[Delta], ...]) -> bool:
        """Does the event say something of these kinds?"""
        return any(isinstance(said, kinds) for said in self.events[number].said)

    def where(self, kind: type[Delta]) -> list[int]:
        """The events that say something of this kind."""
        return [number for number in range(len(self.events)) if self.says(number, kind)]


def _left(stream: Stream) -> bool:
    """Did the client leave before the end?"""
    return stream.exchange.ending.kind == "closed"


def framing_of(stream: Stream) -> str | None:
    """Its name; None for an empty body."""
    sniffer = Sniffer()
    sniffer.feed(stream.body[:_HEAD])
    return sniffer.framing


def _spoken(stream: Stream) -> str | None:
    try:
        return stream.spoken
    except UnknownDialect:
        return None


def understood(stream: Stream, other: Stream) -> Stream:
    """What the client left too early to tell its dialect is read in that of the other."""
    if _left(stream) and _spoken(stream) is None and _spoken(other) is not None:
        return Stream(stream.exchange, _spoken(other))
    return stream


def takes(*streams: Stream) -> list[Take]:
    """What is compared of each; objects say their type where those of all streams do."""
    said = [_said(stream) for stream in streams]
    untyped = frozenset(
        place for *_, events in said for event in events for place in _untyped(event.value, (event.label,))
    )
    return [Take(stream, *rest, *_seen(rest[-1], untyped)) for stream, rest in zip(streams, said, strict=True)]


def _said(stream: Stream) -> tuple[str | None, Reply | None, tuple[Event, ...]]:
    try:
        return stream.spoken, stream.reply, tuple(_events(stream))
    except UnknownDialect:
        return None, None, tuple(_unknown(stream))


def _seen(
    events: Sequence[Event], untyped: frozenset[Place]
) -> tuple[dict[Place, dict[str, list[int]]], dict[Place, list[int]]]:
    seen: dict[Place, dict[str, list[int]]] = {}
    words: dict[Place, list[int]] = {}
    for number, event in enumerate(events):
        places = [*_walk(event.value, (event.label,), untyped)]
        for place, value in [*places, ((event.label, EVENT_LINE), event.line)] if event.line else places:
            seen.setdefault(place, {}).setdefault(_type(value), []).append(number)
            if value and isinstance(value, str):
                words.setdefault(place, []).append(number)
    return seen, words


# What a reply is made of is up to the model: where one has calls and the other text alone, the wire need not have changed, nor where a call of the
# one has no arguments.
_CHOSEN = frozenset(("text", "refusal", "call", "arguments"))


def _events(stream: Stream) -> Iterator[Event]:
    lanes = iter(resolve(stream.deltas))
    content: frozenset[str] = frozenset()
    for frame, said in zip(stream.frames, stream.deltas_by_frame, strict=True):
        kinds = frozenset(lane.kind for _, lane in zip(said, lanes, strict=False) if lane)
        if any(map(_is_aside, said)) or (frame.data is None and payload_of(frame) is None):
            continue
        line = "" if frame.headers or frame.event == "message" else frame.event
        name, value = _opened(frame)
        content = _content(said, kinds, content if _has_empty(value) else frozenset())
        yield Event(_label(line or name), value, said, content, bool(kinds), line)


def _content(said: Sequence[Delta], kinds: frozenset[str], last: frozenset[str]) -> frozenset[str]:
    """What an event brings; where it says nothing, a piece of what the event before it brought (`last`), which is of the arguments if that is a call."""
    if not said:
        return last | {"arguments"} if "call" in last else last
    of_arguments = "call" in kinds and any(isinstance(each, Arguments | ArgumentsAt) for each in said)
    return (kinds | {"arguments"} if of_arguments else kinds) & _CHOSEN


def _has_empty(value: Any) -> bool:
    """Is a string inside empty, as in the first piece of much that is streamed?"""
    inner = [value]
    for each in inner:  # which grows: a value may be nested deeper than Python's stack
        inner += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return "" in inner


def _is_aside(delta: Delta) -> bool:
    """What keeps the connection alive has no shape, nor has what is damaged, which is an error."""
    return isinstance(delta, Keepalive) or (isinstance(delta, StreamError) and delta.type.startswith("wire:"))


def _unknown(stream: Stream) -> Iterator[Event]:
    if _left(stream) and framing_of(stream) == "jsonlines":
        return  # the first line of many, or part of one value: nobody can tell
    try:
        yield Event(_BODY, jsontext.parse(stream.body))
    except ValueError:
        for frame in stream.frames:
            if frame.data is not None and not (_left(stream) and frame.problem):
                line = "" if frame.event == "message" else frame.event
                name, value = _opened(frame)
                yield Event(_label(line or name), value, line=line)


def _label(name: str) -> str:
    return f"event {name}" if name else _UNTYPED


def _opened(frame: Frame) -> tuple[str, Any]:
    """The type and the JSON value of an event, out of what its wire wraps it into; the type is empty where there is none."""
    value = event_of(frame) if frame.headers else payload_of(frame)
    if isinstance(value, dict) and "chunk" in value and (inner := inside(value["chunk"])) is not None:
        value = inner
    match value:
        case {"type": str(name)} | {"event_type": str(name)}:
            return name, value
        case dict() if frame.headers and [type(inner) for inner in value.values()] == [dict]:
            return next(iter(value.items()))
        case None:
            text = (frame.data or "").strip()
            return (text, text) if text in _ENDS else ("", text)
    return "", value


_ENDS = ("[DONE]", "DONE")
EVENT_LINE = "<event line>"

# What stands under these names is made by the model or by who asked: only that it is there, and its type, is shape.
_MADE = frozenset(
    ("args", "arguments", "input", "parameters", "partialArgs", "metadata", "schema", "input_schema", "json_schema")
)
_NAME = re.compile(r"[A-Za-z_$@:][\w$@:./-]*", re.ASCII)
_DIGITS = 4  # as many are no part of a name
_DEEPEST = 100  # levels; no wire has a tenth of them, but Python's stack has an end


def _walk(value: Any, place: Place, untyped: frozenset[Place]) -> Iterator[tuple[Place, Any]]:
    """Every place inside with its value. Where all objects say their type, each stands in two places, of which the second holds its fields."""
    yield place, value
    if place[-1] in _MADE or len(place) > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from _walk(item, (*place, "[*]"), untyped)
    elif isinstance(value, dict):
        if len(place) > 1 and _bare(place) not in untyped:
            place = (*place, f"<{value['type']}>")
            yield place, value
        for key, inner in value.items():
            yield from _walk(inner, (*place, _step(key)), untyped)


def _untyped(value: Any, place: Place) -> Iterator[Place]:
    """The places where an object does not say its type. Some say it in the first of their pieces alone."""
    if place[-1] in _MADE or len(place) > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from _untyped(item, (*place, "[*]"))
    elif isinstance(value, dict):
        if not isinstance(value.get("type"), str):
            yield place
        for key, inner in value.items():
            yield from _untyped(inner, (*place, _step(key)))


def _step(key: str) -> str:
    return key if _NAME.fullmatch(key) and sum(map(str.isdigit, key)) < _DIGITS else "*"


_WORD = "word"


def _filled(value: Any, steps: Sequence[str]) -> Any:
    """With a word at the place to which these steps lead."""
    if not steps:
        return _WORD
    if isinstance(value, list):
        return [_filled(item, steps[1:]) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _filled(inner, steps[1:]) if _step(key) == steps[0] else inner for key, inner in value.items()}


def _bare(place: Place) -> Place:
    return tuple(step for step in place if not step.startswith("<"))


def is_kind(place: Place) -> bool:
    """Is it that of the objects of one type?"""
    return place[-1].startswith("<") and place[-1] != EVENT_LINE


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
