"""Does a provider still stream the wire shape that was recorded? Two streams compared: their shape, and beside it what was said.

Two recordings of one request differ always: in ids, times, words, and in how many pieces they come. None of that is shape. Shape is the kinds of
events, the fields of each and their JSON types, the order of the lifecycle (start, content, finish reason, usage, end mark), and the envelope: status,
content type, dialect, ending, kinds of errors. Absence is judged with care, for a sample may be too small to tell; see `_missed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from . import jsontext
from .dialects.base import payload_of
from .dialects.bedrock_invoke import inside
from .dialects.binary import event_of
from .errors import UnknownDialect
from .framing import Sniffer
from .lanes import resolve
from .matching import value_differences
from .model import Delta, End, Finish, Frame, Keepalive, Reply, Start, StreamError, ToolCallStart, UsageUpdate
from .stream import Stream, assembled


@dataclass(frozen=True, slots=True)
class Drift:
    """How a stream differs from its recording; true if its wire shape does.

    `shape`: a line for each change that a client may have to be adapted to, such as `event content_block_delta: field delta.signature came (string)`.
    `assembled`: where the assembled replies differ (texts, calls, finish reason, usage; not the ids of calls), for information: a model says it
    otherwise every time. `dataclasses.asdict` makes plain values of it.
    """

    shape: tuple[str, ...] = ()
    assembled: tuple[str, ...] = ()

    @property
    def drifted(self) -> bool:
        return bool(self.shape)

    def __bool__(self) -> bool:
        return self.drifted


def drift(recorded: Stream, now: Stream) -> Drift:
    """How `now` differs from `recorded`, both answers to one request.

    A body that is no stream of a known dialect is compared as one event if it is JSON. Where the dialects differ, that is the shape line, and events
    are not compared. Events without a type (OpenAI's chunks, Gemini, Ollama) count as one kind, so that a field which came is one line and not a
    kind of events that went and another that came.

    No drift: pieces cut otherwise, calls taking turns, keep-alives, comments and line ends; the finish reason's word; that the finish reason rides on
    the last piece of content, which many servers do now and then; and that one reply has text, a refusal or calls and the other has not, with the
    fields and events that only these bring: the model chose. Reasoning is shape, and so are parts that are carried, not interpreted. Where a stream was
    cut short or failed, what it lacks proves nothing. That the client left (`closed`) is no ending of the provider's: such a body is a mere prefix,
    and that it says nothing yet, breaks off within an event, or is too short to tell its dialect is none of its faults.
    """
    before, after = _takes(_understood(recorded, now), _understood(now, recorded))
    shape = [*_envelope(before, after)]
    if before.spoken == after.spoken:
        shape += [*_grouped(_places(before, after)), *(_order(before, after) or _event_order(before, after))]
    return Drift(tuple(shape), tuple(value_differences("reply", _content(before.reply), _content(after.reply))))


def _content(reply: Reply | None) -> dict[str, Any]:
    said = assembled(reply) if reply else {}
    for call in [*said.get("tool_calls", ()), *said.get("incomplete_tool_calls", ())]:
        call.pop("id", None)
    return said


# ------------------------------------------------------------------------------------------------------------- what is compared

_HEAD = 1 << 16  # bytes; the first that is not blank tells the framing
_UNTYPED, _BODY = "events", "body"  # labels beside those of `event NAME`
_OF_LEAVING = ("wire:empty", "wire:truncated")  # errors of ours that any body has which is left too early

Place = tuple[str, ...]
"""Where a JSON value stands: the label of its event, then keys, `[*]` for the items of a list, `<type>` for an object of a type, `*` for a key made
up by who sent it. The value itself does not count, only its JSON type."""


@dataclass(frozen=True, slots=True)
class _Event:
    """`content`: of which of the `_CHOSEN` kinds of parts it says something. `part`: does it of any part? `line`: the name on its event line."""

    label: str
    value: Any
    said: tuple[Delta, ...] = ()
    content: frozenset[str] = frozenset()
    part: bool = False
    line: str = ""


@dataclass(frozen=True)
class _Take:
    """`seen`: for each place and JSON type the numbers of the events in which it stood, once each time."""

    stream: Stream
    spoken: str | None
    reply: Reply | None
    events: tuple[_Event, ...]
    seen: Mapping[Place, Mapping[str, Sequence[int]]]

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

    @cached_property
    def content(self) -> frozenset[str]:
        return frozenset().union(*(event.content for event in self.events))

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


def _framing(stream: Stream) -> str | None:
    """Its name; None for an empty body."""
    sniffer = Sniffer()
    sniffer.feed(stream.body[:_HEAD])
    return sniffer.framing


def _spoken(stream: Stream) -> str | None:
    try:
        return stream.spoken
    except UnknownDialect:
        return None


def _understood(stream: Stream, other: Stream) -> Stream:
    """What the client left too early to tell its dialect is read in that of the other."""
    if _left(stream) and _spoken(stream) is None and _spoken(other) is not None:
        return Stream(stream.exchange, _spoken(other))
    return stream


def _takes(*streams: Stream) -> list[_Take]:
    said = [_said(stream) for stream in streams]
    untyped = frozenset(
        place for *_, events in said for event in events for place in _untyped(event.value, (event.label,))
    )
    return [_Take(stream, *rest, _seen(rest[-1], untyped)) for stream, rest in zip(streams, said, strict=True)]


def _said(stream: Stream) -> tuple[str | None, Reply | None, tuple[_Event, ...]]:
    try:
        return stream.spoken, stream.reply, tuple(_events(stream))
    except UnknownDialect:
        return None, None, tuple(_unknown(stream))


def _seen(events: Sequence[_Event], untyped: frozenset[Place]) -> dict[Place, dict[str, list[int]]]:
    seen: dict[Place, dict[str, list[int]]] = {}
    for number, event in enumerate(events):
        places = [*_walk(event.value, (event.label,), untyped)]
        for place, type_ in [*places, ((event.label, _EVENT_LINE), "string")] if event.line else places:
            seen.setdefault(place, {}).setdefault(type_, []).append(number)
    return seen


# What a reply is made of is up to the model: where one has calls and the other text alone, the wire need not have changed.
_CHOSEN = frozenset(("text", "refusal", "call"))


def _events(stream: Stream) -> Iterator[_Event]:
    lanes = iter(resolve(stream.deltas))
    for frame, said in zip(stream.frames, stream.deltas_by_frame, strict=True):
        kinds = frozenset(lane.kind for _, lane in zip(said, lanes, strict=False) if lane)
        if any(map(_is_aside, said)) or (frame.data is None and payload_of(frame) is None):
            continue
        line = "" if frame.headers or frame.event == "message" else frame.event
        name, value = _opened(frame)
        yield _Event(_label(line or name), value, said, kinds & _CHOSEN, bool(kinds), line)


def _is_aside(delta: Delta) -> bool:
    """What keeps the connection alive has no shape, nor has what is damaged, which is an error."""
    return isinstance(delta, Keepalive) or (isinstance(delta, StreamError) and delta.type.startswith("wire:"))


def _unknown(stream: Stream) -> Iterator[_Event]:
    if _left(stream) and _framing(stream) == "jsonlines":
        return  # the first line of many, or part of one value: nobody can tell
    try:
        yield _Event(_BODY, jsontext.parse(stream.body))
    except ValueError:
        for frame in stream.frames:
            if frame.data is not None and not (_left(stream) and frame.problem):
                line = "" if frame.event == "message" else frame.event
                name, value = _opened(frame)
                yield _Event(_label(line or name), value, line=line)


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
_EVENT_LINE = "<event line>"

# What stands under these names is made by the model or by who asked: only that it is there, and its type, is shape.
_MADE = frozenset(
    ("args", "arguments", "input", "parameters", "partialArgs", "metadata", "schema", "input_schema", "json_schema")
)
_NAME = re.compile(r"[A-Za-z_$@:][\w$@:./-]*", re.ASCII)
_DIGITS = 4  # as many are no part of a name
_DEEPEST = 100  # levels; no wire has a tenth of them, but Python's stack has an end


def _walk(value: Any, place: Place, untyped: frozenset[Place]) -> Iterator[tuple[Place, str]]:
    """Every place inside with its JSON type. Where all objects say their type, each stands in two places, of which the second holds its fields."""
    yield place, _type(value)
    if place[-1] in _MADE or len(place) > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from _walk(item, (*place, "[*]"), untyped)
    elif isinstance(value, dict):
        if len(place) > 1 and _bare(place) not in untyped:
            place = (*place, f"<{value['type']}>")
            yield place, "object"
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


def _bare(place: Place) -> Place:
    return tuple(step for step in place if not step.startswith("<"))


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


# ----------------------------------------------------------------------------------------------------------------- the envelope


def _envelope(before: _Take, after: _Take) -> Iterator[str]:
    for name, recorded, now in zip(
        ("status", "content-type", "dialect", "ending"), _outside(before), _outside(after), strict=True
    ):
        if recorded != now and not (name == "ending" and after.left):
            yield f"{name}: recorded {recorded}, now {now}"
    had, has = _framing(before.stream), _framing(after.stream)
    if before.spoken == after.spoken and len({had, has} - {None}) > 1:
        yield f"framing: recorded {had}, now {has}"
    yield from (f"error {kind} went" for kind in before.errors if kind not in after.errors and not after.left)
    yield from (f"error {kind} came" for kind in after.errors if kind not in before.errors)


def _outside(take: _Take) -> tuple[str, ...]:
    exchange = take.stream.exchange
    content_type = re.sub(r"\s*;\s*", "; ", (exchange.header("content-type") or "none").strip().lower())
    ending = "complete" if exchange.ending.kind == "closed" else exchange.ending.kind
    return str(exchange.status), content_type, take.spoken or "none that is known", ending


# ------------------------------------------------------------------------------------------------------------ events and fields

_RARE = 0.01  # as likely as this is not by chance
_ENOUGH = 5  # objects that all have a field, to say that all have it


def _places(before: _Take, after: _Take) -> Iterator[tuple[str, str]]:
    """What came, went or changed: the label of the event, and the rest of the line."""
    shown = _Shown(frozenset((*before.seen, *after.seen)))
    for place in dict.fromkeys((*before.seen, *after.seen)):
        if place not in after.seen:
            if _missed(before, after, place):
                yield place[0], shown.line(place, "went", before)
        elif place not in before.seen:
            if _missed(after, before, place, new=True):
                yield place[0], shown.line(place, "came", after)
        else:
            for said in (*_types(before, after, place), *_presence(before, after, place)):
                yield place[0], f": {shown.field(place)} {said}"


def _missed(has: _Take, lacks: _Take, place: Place, *, new: bool = False) -> bool:
    """Is it news that `place`, which stood in `has`, never stands in `lacks`?

    It is if it stood in every object of its kind (or is a kind of events or objects itself), or in an event that comes once in a stream, or so often
    that it would hardly be missing by chance; and always if it is `new`, for no client has seen it. It is none where the model chose what came with
    it, where `lacks` has no such object at all, be it for a list that is empty, and where `lacks` was cut short before it could come.
    """
    numbers, parent = has.numbers(place), place[:-1]
    if _chosen(has, numbers, lacks):
        return False
    if not parent:
        return not lacks.cut
    objects, others = has.count(parent, "object"), lacks.count(parent, "object")
    if not others or place[-1] == "[*]":
        return False
    if len(numbers) == objects and place[-1] != "*" and not _is_kind(place):
        return True
    return not lacks.cut and (new or _is_kind(place) or _reliable(has, numbers, objects, others))


def _chosen(has: _Take, numbers: Iterable[int], lacks: _Take) -> bool:
    """Does all that stood in these events come with content of a kind that the other reply has not?"""
    return all(has.events[number].content - lacks.content for number in numbers)


def _is_kind(place: Place) -> bool:
    return place[-1].startswith("<") and place[-1] != _EVENT_LINE


def _reliable(has: _Take, numbers: Sequence[int], among: int, others: int) -> bool:
    return not has.marks.isdisjoint(numbers) or max(0.0, 1 - len(numbers) / among) ** others < _RARE


def _types(before: _Take, after: _Take, place: Place) -> Iterator[str]:
    had, has = before.seen[place], after.seen[place]
    came = [type_ for type_ in has if type_ not in had and not _chosen(after, has[type_], before)]
    gone = [type_ for type_ in had if type_ not in has and not _chosen(before, had[type_], after)]
    if came and not had.keys() & has.keys():
        yield f"is now {' or '.join(has)}, was {' or '.join(had)}"
        return
    if not before.cut:
        yield from (f"is now also {type_}" for type_ in came)
    for type_ in gone:
        if not after.cut and _reliable(before, had[type_], before.count(place), after.count(place)):
            yield f"is no longer {type_}"


def _presence(before: _Take, after: _Take, place: Place) -> Iterator[str]:
    if missing := _lacked(before, after, place):
        yield f"is now sometimes missing (in {missing} of {after.count(place[:-1], 'object')})"
    if missing := _lacked(after, before, place):
        yield f"is now always there (was missing in {missing} of {before.count(place[:-1], 'object')})"


def _lacked(has: _Take, lacks: _Take, place: Place) -> int:
    """In how many objects of `lacks` a field is missing that all the objects of `has` have; 0 where that says nothing.

    It says something if these are too many for chance, and nothing if another field stands in its stead, or what the model chose, or where they are of
    the lifecycle that `has` did not come to.
    """
    parent = place[:-1]
    objects, others = has.count(parent, "object"), lacks.count(parent, "object")
    missing = others - lacks.count(place)
    if objects < _ENOUGH or has.count(place) != objects or missing <= 0 or _is_kind(place) or place[-1] == "[*]":
        return 0
    without = set(lacks.seen[parent]["object"]) - set(lacks.numbers(place))
    beside = (other for other in lacks.seen if other[:-1] == parent and other not in has.seen)
    instead = {number for other in beside for number in lacks.numbers(other)}
    unreached = tuple(kind for kind in _LIFECYCLE.values() if not has.where(kind)) if has.cut else ()
    counted = {number for number in without if not lacks.says(number, unreached)}
    if without and (counted <= instead or _chosen(lacks, counted, has)):
        return 0
    return missing if (1 - missing / others) ** objects < _RARE else 0


@dataclass(frozen=True, slots=True)
class _Shown:
    """How a place is written: the type of an object only where there are several."""

    places: frozenset[Place]

    def line(self, place: Place, what: str, has: _Take) -> str:
        if len(place) == 1:
            return f" {what}"
        if place[-1] == _EVENT_LINE:
            return f": its name on the event line {what}"
        if _is_kind(place):
            return f": {self.path(place[:-1])} of type {place[-1][1:-1]} {what}"
        return f": {self.field(place)} {what} ({' or '.join(has.seen[place])})"

    def field(self, place: Place) -> str:
        return f"field {self.path(place)}" if len(place) > 1 else "its value"

    def path(self, place: Place) -> str:
        text = ""
        for end, step in enumerate(place[1:], 2):
            if not _is_kind(place[:end]):
                text += step if step == "[*]" else f".{step}"
            elif sum(len(each) == end and each[:-1] == place[: end - 1] and _is_kind(each) for each in self.places) > 1:
                text += f"({step[1:-1]})"
        return text.removeprefix(".")


def _grouped(lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    """What several kinds of events have in common stands in one line."""
    labels: dict[str, list[str]] = {}
    for label, rest in lines:
        labels.setdefault(rest, []).append(label)
    for rest, found in labels.items():
        typed = [label for label in found if label.startswith("event ")]
        yield from (f"{label}{rest}" for label in found if not label.startswith("event "))
        if typed:
            yield f"event{'s' if len(typed) > 1 else ''} {_listed(typed)}{rest}"


# ------------------------------------------------------------------------------------------------------------------------ order


_LIFECYCLE: Mapping[str, type[Delta]] = {
    "start": Start,
    "finish reason": Finish,
    "usage": UsageUpdate,
    "end mark": End,
}


def _order(before: _Take, after: _Take) -> list[str]:
    had, has = _lifecycle(before), _lifecycle(after)
    return _turned(combinations(had, 2), had, has) or _usage_moved(before, after)


def _lifecycle(take: _Take) -> dict[str, int]:
    places = {name: take.where(kind) for name, kind in _LIFECYCLE.items()}
    places["content"] = [at for at, event in enumerate(take.events) if event.part]
    return {name: found[0] for name, found in places.items() if found}


def _usage_moved(before: _Take, after: _Take) -> list[str]:
    """The last usage against the finish reason: a client that stops reading there, or looks there, misses it. Which is the last, the end alone tells."""
    had, has = _usage_came(before), _usage_came(after)
    moved = had and has and had != has and not (before.cut or after.cut)
    return [f"order: the last usage came {had} the finish reason, now {has} it"] if moved else []


def _usage_came(take: _Take) -> str:
    usage, finish = take.where(UsageUpdate)[-1:], take.where(Finish)[-1:]
    if not usage or not finish:
        return ""
    return "with" if usage == finish else "before" if usage < finish else "after"


def _event_order(before: _Take, after: _Take) -> list[str]:
    """Kinds of events of the lifecycle against all others; these among each other follow what the model says first."""
    firsts: list[dict[str, int]] = []
    lifecycle: set[str] = set()
    for take in (before, after):
        found: dict[str, int] = {}
        for at, event in enumerate(take.events):
            found.setdefault(event.label, at)
            if not event.part and any(isinstance(said, tuple(_LIFECYCLE.values())) for said in event.said):
                lifecycle.add(event.label)
        firsts.append(found)
    return _turned([pair for pair in combinations(firsts[0], 2) if lifecycle & {*pair}], *firsts)


def _reversed(pair: tuple[str, str], before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    one, other = pair
    if not {one, other} <= before.keys() & after.keys():
        return False
    return (before[one] - before[other]) * (after[one] - after[other]) < 0


def _turned(pairs: Iterable[tuple[str, str]], before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    moved = {name for pair in pairs if _reversed(pair, before, after) for name in pair}
    if not moved:
        return []
    had, has = (sorted(moved, key=places.__getitem__) for places in (before, after))
    return [f"order: recorded {_listed(had)}; now {_listed(has)}"]


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(label.removeprefix("event ") for label in labels)
