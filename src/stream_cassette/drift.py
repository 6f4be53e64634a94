"""Does a provider still stream the wire shape that was recorded? Two streams compared: their shape, and beside it what was said.

Two recordings of one request differ always: in ids, times, words, and in how many pieces they come. None of that is shape. Shape is the kinds of
events, the fields of each and their JSON types, the order of the lifecycle (start, content, finish reason, usage, end mark), and the envelope: status,
content type, dialect, ending, kinds of errors. Absence is judged with care, for a sample may be too small to tell; see `_missed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from .matching import value_differences
from .model import Delta, End, Finish, Reply, Start, UsageUpdate
from .stream import Stream, assembled
from .takes import EVENT_LINE, Place, Take, framing_of, is_kind, takes, understood


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
    the last piece of content, which many servers do now and then; that one reply has text, a refusal, calls or arguments and the other has not, with
    the fields and events that only these bring, and null for content where there is none of it: the model chose; that a field of the finish reason is
    null or not, where that differs; that `system_fingerprint` or `service_tier` is null; and that those of Gemini's counts come or go that are not
    written where they are zero (of the cache, of thoughts, of the provider's tools). Reasoning is shape, and so are parts that are carried, not
    interpreted. Where a stream was cut short or failed, what it lacks proves nothing. That the client left (`closed`) is no ending of the provider's:
    such a body is a mere prefix, and that it says nothing yet, breaks off within an event, or is too short to tell its dialect is none of its faults.
    """
    before, after = takes(understood(recorded, now), understood(now, recorded))
    shape = [*_envelope(before, after)]
    if before.spoken == after.spoken:
        shape += [*_grouped(_places(before, after)), *(_order(before, after) or _event_order(before, after))]
    return Drift(tuple(shape), tuple(value_differences("reply", _content(before.reply), _content(after.reply))))


def _content(reply: Reply | None) -> dict[str, Any]:
    said = assembled(reply) if reply else {}
    for call in [*said.get("tool_calls", ()), *said.get("incomplete_tool_calls", ())]:
        call.pop("id", None)
    return said


# ----------------------------------------------------------------------------------------------------------------- the envelope


def _envelope(before: Take, after: Take) -> Iterator[str]:
    for name, recorded, now in zip(
        ("status", "content-type", "dialect", "ending"), _outside(before), _outside(after), strict=True
    ):
        if recorded != now and not (name == "ending" and after.left):
            yield f"{name}: recorded {recorded}, now {now}"
    had, has = framing_of(before.stream), framing_of(after.stream)
    if before.spoken == after.spoken and len({had, has} - {None}) > 1:
        yield f"framing: recorded {had}, now {has}"
    yield from (f"error {kind} went" for kind in before.errors if kind not in after.errors and not after.left)
    yield from (f"error {kind} came" for kind in after.errors if kind not in before.errors)


def _outside(take: Take) -> tuple[str, ...]:
    exchange = take.stream.exchange
    content_type = re.sub(r"\s*;\s*", "; ", (exchange.header("content-type") or "none").strip().lower())
    ending = "complete" if exchange.ending.kind == "closed" else exchange.ending.kind
    return str(exchange.status), content_type, take.spoken or "none that is known", ending


# ------------------------------------------------------------------------------------------------------------ events and fields

_RARE = 0.01  # as likely as this is not by chance
_ENOUGH = 5  # objects that all have a field, to say that all have it

# Labels of who answered, which OpenAI's wire declares as nullable: the one server has them, the next has not.
_NULLABLE = frozenset(("system_fingerprint", "service_tier"))
# Counts that Gemini does not write where they are zero: of the second asking a part comes out of the cache, and whether it thinks or uses a tool of the
# provider's is up to the model.
_UNLESS_ZERO = frozenset(
    (
        "cachedContentTokenCount",
        "cacheTokensDetails",
        "thoughtsTokenCount",
        "toolUsePromptTokenCount",
        "toolUsePromptTokensDetails",
    )
)
_SCALARS = frozenset(("null", "string", "number"))


def _places(before: Take, after: Take) -> Iterator[tuple[str, str]]:
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


def _missed(has: Take, lacks: Take, place: Place, *, new: bool = False) -> bool:
    """Is it news that `place`, which stood in `has`, never stands in `lacks`?

    It is if it stood in every object of its kind (or is a kind of events or objects itself), or in an event that comes once in a stream, or so often
    that it would hardly be missing by chance; and always if it is `new`, for no client has seen it. It is none where the model chose what came with
    it, where it is a count that may be zero, where `lacks` has no such object at all, be it for a list that is empty, and where `lacks` was cut short
    before it could come.
    """
    numbers, parent = has.numbers(place), place[:-1]
    if place[-1] in _UNLESS_ZERO or _chosen(has, numbers, lacks):
        return False
    if not parent:
        return not lacks.cut
    objects, others = has.count(parent, "object"), lacks.count(parent, "object")
    if not others or place[-1] == "[*]":
        return False
    if len(numbers) == objects and place[-1] != "*" and not is_kind(place):
        return True
    return not lacks.cut and (new or is_kind(place) or _reliable(has, numbers, objects, others))


def _chosen(has: Take, numbers: Iterable[int], lacks: Take) -> bool:
    """Does all that stood in these events come with content of a kind that the other reply has not?"""
    return all(has.events[number].content - lacks.content for number in numbers)


def _excused(has: Take, lacks: Take, place: Place, type_: str) -> bool:
    """Is it no news that a value of this JSON type stood at `place` in `has`, where `lacks` has values of other types alone?

    It is none where the model chose what came with it, where `null` is as good as a string, and where a field of the finish reason is null that may
    be a word or a number, for replies that ended for different reasons.
    """
    types, numbers = {type_, *lacks.seen[place]}, has.seen[place][type_]
    if _chosen(has, numbers, lacks) or (place[-1] in _NULLABLE and types == {"null", "string"}):
        return True
    at_the_finish = all(has.says(number, Finish) for number in numbers)
    if at_the_finish and "null" in types <= _SCALARS and _ended_otherwise(has, lacks):
        return True
    if type_ == "null":
        return _says_nothing(has, lacks, place)
    return type_ == "string" and _says_nothing(lacks, has, place)


def _ended_otherwise(one: Take, other: Take) -> bool:
    reasons = [take.reply.finish_reason for take in (one, other) if take.reply]
    return all(reasons) and len({*reasons}) > 1


def _says_nothing(empty: Take, other: Take, place: Place) -> bool:
    """Is `place` for content of a kind that `empty` has none of, where `other` too has an empty string?

    Null and an empty string say the same there, but which of them a client must bear is shape as soon as it is mixed with text.
    """
    words = other.words.get(place, ())
    if not (empty.is_nothing(place) and other.has_empty(place) and _chosen(other, words, empty)):
        return False
    return bool(words) or other.would_say(place)


def _reliable(has: Take, numbers: Sequence[int], among: int, others: int) -> bool:
    return not has.marks.isdisjoint(numbers) or max(0.0, 1 - len(numbers) / among) ** others < _RARE


def _types(before: Take, after: Take, place: Place) -> Iterator[str]:
    had, has = before.seen[place], after.seen[place]
    came = [type_ for type_ in has if type_ not in had and not _excused(after, before, place, type_)]
    gone = [type_ for type_ in had if type_ not in has and not _excused(before, after, place, type_)]
    if came and not had.keys() & has.keys():
        yield f"is now {' or '.join(has)}, was {' or '.join(had)}"
        return
    if not before.cut:
        yield from (f"is now also {type_}" for type_ in came)
    for type_ in gone:
        if not after.cut and _reliable(before, had[type_], before.count(place), after.count(place)):
            yield f"is no longer {type_}"


def _presence(before: Take, after: Take, place: Place) -> Iterator[str]:
    if missing := _lacked(before, after, place):
        yield f"is now sometimes missing (in {missing} of {after.count(place[:-1], 'object')})"
    if missing := _lacked(after, before, place):
        yield f"is now always there (was missing in {missing} of {before.count(place[:-1], 'object')})"


def _lacked(has: Take, lacks: Take, place: Place) -> int:
    """In how many objects of `lacks` a field is missing that all the objects of `has` have; 0 where that says nothing.

    It says something if these are too many for chance, and nothing if another field stands in its stead, or what the model chose, or where they are of
    the lifecycle that `has` did not come to.
    """
    parent = place[:-1]
    objects, others = has.count(parent, "object"), lacks.count(parent, "object")
    missing = others - lacks.count(place)
    if objects < _ENOUGH or has.count(place) != objects or missing <= 0 or is_kind(place):
        return 0
    if place[-1] in ("[*]", *_UNLESS_ZERO):
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

    def line(self, place: Place, what: str, has: Take) -> str:
        if len(place) == 1:
            return f" {what}"
        if place[-1] == EVENT_LINE:
            return f": its name on the event line {what}"
        if is_kind(place):
            return f": {self.path(place[:-1])} of type {place[-1][1:-1]} {what}"
        return f": {self.field(place)} {what} ({' or '.join(has.seen[place])})"

    def field(self, place: Place) -> str:
        return f"field {self.path(place)}" if len(place) > 1 else "its value"

    def path(self, place: Place) -> str:
        text = ""
        for end, step in enumerate(place[1:], 2):
            if not is_kind(place[:end]):
                text += step if step == "[*]" else f".{step}"
            elif sum(len(each) == end and each[:-1] == place[: end - 1] and is_kind(each) for each in self.places) > 1:
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


def _order(before: Take, after: Take) -> list[str]:
    had, has = _lifecycle(before), _lifecycle(after)
    return _turned(combinations(had, 2), had, has) or _usage_moved(before, after)


def _lifecycle(take: Take) -> dict[str, int]:
    places = {name: take.where(kind) for name, kind in _LIFECYCLE.items()}
    places["content"] = [at for at, event in enumerate(take.events) if event.part]
    return {name: found[0] for name, found in places.items() if found}


def _usage_moved(before: Take, after: Take) -> list[str]:
    """The last usage against the finish reason: a client that stops reading there, or looks there, misses it. Which is the last, the end alone tells."""
    had, has = _usage_came(before), _usage_came(after)
    moved = had and has and had != has and not (before.cut or after.cut)
    return [f"order: the last usage came {had} the finish reason, now {has} it"] if moved else []


def _usage_came(take: Take) -> str:
    usage, finish = take.where(UsageUpdate)[-1:], take.where(Finish)[-1:]
    if not usage or not finish:
        return ""
    return "with" if usage == finish else "before" if usage < finish else "after"


def _event_order(before: Take, after: Take) -> list[str]:
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
