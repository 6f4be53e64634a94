"""Which content part a delta belongs to: the one place that knows how servers number, misnumber and do not number their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .model import (
    Arguments,
    ArgumentsAt,
    Delta,
    Key,
    Opaque,
    PartEnd,
    PartStart,
    Reasoning,
    Refusal,
    Signature,
    Text,
    ToolCallStart,
    Whole,
    key_of,
)


@dataclass(frozen=True, slots=True)
class Lane:
    """One content part of one choice. `kind` is `text`, `reasoning`, `refusal`, `call` or an opaque kind; `number` counts lanes by first sight.

    `order` is its place in the reply where the wire's numbers are places, else empty.
    """

    choice: int
    kind: str
    number: int
    order: tuple[int, ...] = ()


@dataclass(slots=True)
class _Call:
    lane: Lane
    id: str | None
    index: int | None = None  # the first one it was seen at
    name: str = ""
    has_arguments: bool = False
    ended: bool = False


class Lanes:
    """Gives each delta its lane, one delta after the other."""

    def __init__(self) -> None:
        self._count = 0
        self._parts: dict[
            object, Lane
        ] = {}  # (choice, index), or (choice, index, kind) where the wire sends no index or a part has no own one
        self._calls: dict[
            tuple[int, str, object], _Call
        ] = {}  # (choice, "id" | "index", value), (choice, "last", None)
        self._last: dict[int, Lane] = {}  # the open part of a choice whose wire numbers nothing
        self._places = _Places()

    def of(self, delta: Delta) -> Lane | None:
        """The lane of `delta`; None where it has none, or where the wire puts it into a part of another kind."""
        if (key := key_of(delta)) and key.within is not None and key.index is not None:
            if key.listed:
                kind = _kind(delta) or "call"  # the end of a part, which only calls have there
                # mypy does not know that a delta with a key is of the kinds that have one.
                delta = replace(delta, key=self._places.streamed(key, kind))  # type: ignore[arg-type]
            elif kind := _kind(delta):
                self._places.saw(key, kind)
        match delta:
            case Text(key):
                return self._part(key, "text")
            case Arguments(key) | ArgumentsAt(key):
                return self._arguments(key)
            case Reasoning(key) | Signature(key):
                return self._part(key, "reasoning")
            case Refusal(key):
                return self._part(key, "refusal")
            case ToolCallStart(key, _, name):
                return self._start_call(key, name)
            case PartStart(key, kind):
                return self._open(key, kind)
            case PartEnd(key):
                return self._end(key)
            case Whole(key, "arguments"):
                return self._arguments(key)
            case Whole(key, "signature"):
                return self._part(key, "reasoning")
            case Whole(key, kind):
                return self._part(key, kind)
            case Opaque(key, kind):
                return self._opaque(key, kind)
            case _:
                return None

    def _new(self, key: Key, kind: str) -> Lane:
        self._count += 1
        order = () if key.index is None or key.within is None else (key.index, *key.within)
        return Lane(key.choice, kind, self._count - 1, order if kind != "reasoning" else order[:1])

    def _open(self, key: Key, kind: str) -> Lane:
        place = _place(key, kind)
        if key.within is not None and (known := self._parts.get(place)) and known.kind == kind:
            return known  # a place is taken once and for all; elsewhere a number that starts again is a new part
        lane = self._parts[place] = self._new(key, kind)
        if key.serial:
            self._last[key.choice] = lane
        return lane

    def _end(self, key: Key) -> Lane | None:
        if key.id is not None and (call := self._calls.get((key.choice, "id", key.id))):
            return call.lane
        if key.index is not None:
            lane = self._parts.get((key.choice, key.index))
            call = self._calls.get((key.choice, "index", key.index))
            if call is not None and call.lane == lane:
                call.ended = True
            return lane
        last = self._calls.get((key.choice, "last", None))
        call_lane = last.lane if last is not None else None
        lane = self._last.pop(key.choice, None) if key.serial else call_lane
        if lane is not None and lane == call_lane:
            del self._calls[key.choice, "last", None]  # so that an equal name after it is another call
        return lane

    def _serial(self, key: Key, kind: str) -> Lane:
        lane = self._last.get(key.choice)
        if lane is None or lane.kind != kind:
            lane = self._last[key.choice] = self._new(key, kind)
        return lane

    def _part(self, key: Key, kind: str) -> Lane | None:
        if key.serial:
            return self._serial(key, kind)
        place = (key.choice, None, kind) if key.index is None else _place(key, kind)
        lane = self._parts.get(place)
        if lane is None:
            lane = self._parts[place] = self._new(key, kind)
        return lane if lane.kind == kind else None

    def _opaque(self, key: Key, kind: str) -> Lane:
        if key.serial:
            last = self._last.get(key.choice)  # inside a call it makes a part of its own, and the call stays open
            return self._new(key, kind) if last and last.kind == "call" else self._serial(key, kind)
        # Inside a part of its own kind it belongs to that part; citations and the like inside a text part make a part of their own.
        opened = self._parts.get((key.choice, key.index)) if key.index is not None else None
        if opened is not None and opened.kind not in ("text", "reasoning", "refusal", "call"):
            return opened
        place = (key.choice, key.index, key.within, "opaque", kind)
        if place not in self._parts:
            self._parts[place] = self._new(key, kind)
        return self._parts[place]

    def _arguments(self, key: Key) -> Lane | None:
        opened = self._parts.get((key.choice, key.index)) if key.index is not None and key.id is None else None
        if opened is not None and opened.kind != "call":
            # The input of a tool that the provider runs itself; in a text or reasoning part it is out of place.
            return opened if opened.kind not in ("text", "reasoning", "refusal") else None
        call = self._call(key, "")
        call.has_arguments = True
        return call.lane

    def _start_call(self, key: Key, name: str) -> Lane:
        if key.serial and name:
            self._calls.pop((key.choice, "last", None), None)
        lane = self._call(key, name).lane
        if key.index is not None:
            self._parts[key.choice, key.index] = lane
        return lane

    def _call(self, key: Key, name: str) -> _Call:
        """Identity in order of trust: a non-empty id, then the index, then the call seen last."""
        call = self._known(key, name)
        if call is None:
            call = _Call(self._new(key, "call"), key.id, key.index)
        call.id = call.id or key.id
        call.name = join_name(call.name, name)
        if call.id is not None:
            self._calls[key.choice, "id", call.id] = call
        if key.id is not None:
            self._calls[key.choice, "id", key.id] = call
        if key.index is not None:
            self._calls[key.choice, "index", key.index] = call
            self._parts.setdefault((key.choice, key.index), call.lane)
        self._calls[key.choice, "last", None] = call
        if key.serial:
            self._last[key.choice] = call.lane
        return call

    def _known(self, key: Key, name: str) -> _Call | None:
        numbered = key.within is None and key.index is not None  # as opposed to an index that is a place
        if key.id is not None and (call := self._calls.get((key.choice, "id", key.id))):
            # Some adapters send one constant as every id; a name at another number is another call.
            other = numbered and bool(name) and call.index not in (None, key.index)
            return None if other and (key.choice, "index", key.index) not in self._calls else call
        if key.index is not None:
            call = self._calls.get((key.choice, "index", key.index))
        elif key.id is not None:
            return None  # an unseen id opens a call
        else:
            call = self._calls.get((key.choice, "last", None))
        if call is None or not name:
            return call
        if numbered and call.ended:
            return None  # its end stands between
        if key.id is not None:
            # An unseen id with a name opens a call, unless the call at this index only now says its id.
            return call if call.id is None and call.name in ("", name) else None
        # A name without an id is a repeat or a piece of a name; but once arguments came, another name is another call.
        return None if call.has_arguments and name != call.name else call


# ---------------------------------------------------------------------------------------------------- numbers that are places

_CONTENT = ("text", "refusal")  # kinds of which one item holds several, each at a number of its own


def _place(key: Key, kind: str) -> object:
    if key.within is None or kind not in _CONTENT:
        return (key.choice, key.index)
    return (key.choice, key.index, key.within, kind)


def _kind(delta: Delta) -> str:
    match delta:
        case Text():
            return "text"
        case Refusal():
            return "refusal"
        case Reasoning() | Signature() | Whole(_, "reasoning" | "signature"):
            return "reasoning"
        case ToolCallStart() | Arguments() | Whole(_, "arguments"):
            return "call"
        case PartStart(_, kind) | Opaque(_, kind) | Whole(_, kind):
            return kind
        case _:
            return ""


@dataclass(slots=True)
class _Item:
    form: str
    ids: list[str] = field(default_factory=list)


class _Places:
    """Under which numbers the wire streamed what a list restates.

    The list counts from 0. The stream may have left numbers out (an item that was announced and never came), begun in the middle (a resumed
    stream), gone on counting from one item into the next, or changed an id. So an item of the list is, in this order: the streamed one with its id; the one
    streamed under its position; if it has no id, the first of its form that is not yet restated; else one that was not streamed.
    """

    def __init__(self) -> None:
        self._items: dict[tuple[int, int], _Item] = {}
        self._contents: dict[tuple[int, int, str], set[int]] = {}
        self._item_at: dict[tuple[int, int], int] = {}  # position in the list of items → number streamed
        self._content_at: dict[tuple[int, int, str], dict[int, int]] = {}

    def saw(self, key: Key, kind: str) -> None:
        assert key.index is not None
        item = self._items.setdefault((key.choice, key.index), _Item(_form(key, kind)))
        if key.id is not None and key.id not in item.ids:
            item.ids.append(key.id)
        if kind in _CONTENT and key.within:
            self._contents.setdefault((key.choice, key.index, kind), set()).add(key.within[0])

    def streamed(self, key: Key, kind: str) -> Key:
        """The key under which the part that `key` lists was streamed."""
        assert key.index is not None
        form = _form(key, kind)
        index = self._item(key, form) if key.listed == "output" else key.index
        known = self._items.get((key.choice, index))
        its_id = known.ids[0] if known and known.ids and known.form == form else key.id
        found = Key(key.choice, index, its_id, within=self._content(key, index, kind))
        self.saw(found, kind)
        return found

    def _item(self, key: Key, form: str) -> int:
        position = key.index or 0
        if (key.choice, position) not in self._item_at:
            items = {index: item for (choice, index), item in self._items.items() if choice == key.choice}
            taken = {index for (choice, _), index in self._item_at.items() if choice == key.choice}
            free = [index for index in sorted(items) if items[index].form == form and index not in taken]
            found = next((index for index in free if key.id in items[index].ids), None)
            if found is None and position in free:
                found = position
            elif found is None and key.id is None and free:
                found = free[0]
            elif found is None:
                found = position if position not in items else max(items) + 1
            self._item_at[key.choice, position] = found
        return self._item_at[key.choice, position]

    def _content(self, key: Key, index: int, kind: str) -> tuple[int, ...]:
        if not key.within or kind == "reasoning":
            return key.within or ()
        position = key.within[0]
        if kind not in _CONTENT:  # what hangs on a text goes with it
            return (self._content_at.get((key.choice, index, "text"), {}).get(position, position),)
        found = self._content_at.setdefault((key.choice, index, kind), {})
        if position not in found:
            free = sorted(self._contents.get((key.choice, index, kind), set()).difference(found.values()))
            unseen = position if position not in found.values() else max(found.values()) + 1
            found[position] = position if position in free else free[0] if free else unseen
        return (found[position],)


def _form(key: Key, kind: str) -> str:
    return "message" if kind in _CONTENT or (key.within and kind != "reasoning") else kind


def join_name(known: str, said: str) -> str:
    """The name of a call after the wire says `said`: a name that repeats, or goes on from its start, is a repeat; any other piece is a fragment."""
    return said if said.startswith(known) else known + said


def resolve(deltas: Sequence[Delta]) -> list[Lane | None]:
    """The lane of every delta, in order; None for those that belong to no content part."""
    lanes = Lanes()
    return [lanes.of(delta) for delta in deltas]
