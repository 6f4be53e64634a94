"""Which content part a delta belongs to: the one place that knows how servers number, misnumber and do not number their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .model import (
    Arguments,
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
)


@dataclass(frozen=True, slots=True)
class Lane:
    """One content part of one choice. `kind` is `text`, `reasoning`, `refusal`, `call` or an opaque kind; `number` counts lanes by first sight."""

    choice: int
    kind: str
    number: int


@dataclass(slots=True)
class _Call:
    lane: Lane
    id: str | None
    name: str = ""
    has_arguments: bool = False


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

    def of(self, delta: Delta) -> Lane | None:
        """The lane of `delta`; None where it has none, or where the wire puts it into a part of another kind."""
        match delta:
            case Text(key):
                return self._part(key, "text")
            case Arguments(key):
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
                return self._parts.get((key.choice, key.index))
            case Whole(key, "arguments"):
                return self._arguments(key)
            case Whole(key, kind):
                return self._part(key, kind)
            case Opaque(key, kind):
                return self._opaque(key, kind)
            case _:
                return None

    def _new(self, choice: int, kind: str) -> Lane:
        self._count += 1
        return Lane(choice, kind, self._count - 1)

    def _open(self, key: Key, kind: str) -> Lane:
        lane = self._parts[key.choice, key.index] = self._new(key.choice, kind)
        return lane

    def _part(self, key: Key, kind: str) -> Lane | None:
        place = (key.choice, None, kind) if key.index is None else (key.choice, key.index)
        lane = self._parts.get(place)
        if lane is None:
            lane = self._parts[place] = self._new(key.choice, kind)
        return lane if lane.kind == kind else None

    def _opaque(self, key: Key, kind: str) -> Lane:
        # Inside a part of its own kind it belongs to that part; citations and the like inside a text part make a part of their own.
        opened = self._parts.get((key.choice, key.index)) if key.index is not None else None
        if opened is not None and opened.kind not in ("text", "reasoning", "refusal", "call"):
            return opened
        place = (key.choice, key.index, "opaque", kind)
        if place not in self._parts:
            self._parts[place] = self._new(key.choice, kind)
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
        lane = self._call(key, name).lane
        if key.index is not None:
            self._parts[key.choice, key.index] = lane
        return lane

    def _call(self, key: Key, name: str) -> _Call:
        """Identity in order of trust: a non-empty id, then the index, then the call seen last."""
        call = self._known(key, name)
        if call is None:
            call = _Call(self._new(key.choice, "call"), key.id)
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
        return call

    def _known(self, key: Key, name: str) -> _Call | None:
        if key.id is not None and (call := self._calls.get((key.choice, "id", key.id))):
            return call
        if key.index is not None:
            call = self._calls.get((key.choice, "index", key.index))
        elif key.id is not None:
            return None  # an unseen id opens a call
        else:
            call = self._calls.get((key.choice, "last", None))
        if call is None or not name:
            return call
        if key.id is not None:
            # An unseen id with a name opens a call, unless the call at this index only now says its id.
            return call if call.id is None and call.name in ("", name) else None
        # A name without an id is a repeat or a piece of a name; but once arguments came, another name is another call.
        return None if call.has_arguments and name != call.name else call


def join_name(known: str, said: str) -> str:
    """The name of a call after the wire says `said`: a name that repeats is a repeat, any other piece is the next fragment."""
    return known if said == known else known + said


def resolve(deltas: Sequence[Delta]) -> list[Lane | None]:
    """The lane of every delta, in order; None for those that belong to no content part."""
    lanes = Lanes()
    return [lanes.of(delta) for delta in deltas]
