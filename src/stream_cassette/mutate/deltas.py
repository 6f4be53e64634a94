"""The same reply in other deltas: fragments, order, usage, and events that say nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from ..errors import NotApplicable
from ..lanes import Lane, resolve
from ..model import (
    Arguments,
    Delta,
    Finish,
    Keepalive,
    Reasoning,
    Refusal,
    Text,
    ToolCallStart,
    Unknown,
    UsageUpdate,
)
from ..stream import Stream
from .base import Mutator, Slot, finish_slot, pick, slots, speaker, with_deltas, with_numbers, written
from .laws import SAME, Law

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Piece = Text | Reasoning | Refusal | Arguments


class _Deltas(Mutator):
    level = "deltas"
    law = SAME


def pieces(found: Sequence[Slot]) -> list[tuple[int, int, Lane, Piece]]:
    """Every piece of text with its slot, its place in the slot and its lane, in order."""
    return [
        (at, place, lane, delta)
        for at, slot in enumerate(found)
        for place, (delta, lane) in enumerate(zip(slot.deltas, slot.lanes, strict=True))
        if isinstance(delta, Piece) and lane is not None
    ]


def text_lanes(found: Sequence[Slot]) -> list[Lane]:
    """The lanes that have text, in order of first sight."""
    return _lanes(pieces(found))


def _lanes(texts: Sequence[tuple[int, int, Lane, Piece]]) -> list[Lane]:
    return list(dict.fromkeys(lane for _, _, lane, _ in texts))


def said(found: Sequence[Slot]) -> list[list[Delta]]:
    return [list(slot.deltas) for slot in found]


@dataclass(frozen=True, slots=True)
class Refragment(_Deltas):
    """The text of the `lane`th lane cut at the character offsets `cuts` too."""

    lane: int
    cuts: tuple[int, ...]

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        texts = pieces(found)
        at = self._resolved(texts)
        lane = _lanes(texts)[at.lane]
        out, start = said(found), 0
        for slot, _, its_lane, piece in texts:
            if its_lane != lane:
                continue
            edges = [0, *(cut - start for cut in at.cuts if 0 < cut - start < len(piece.text)), len(piece.text)]
            parts: list[Delta] = [replace(piece, text=piece.text[a:b]) for a, b in pairwise(edges)]
            if len(parts) > 1:
                place = out[slot].index(piece)
                out[slot][place : place + 1] = parts
            start += len(piece.text)
        if out == said(found):
            raise NotApplicable("the text is cut there already")
        return with_deltas(stream, out)

    def resolve(self, stream: Stream) -> Refragment:
        return self._resolved(pieces(slots(stream)))

    def _resolved(self, texts: Sequence[tuple[int, int, Lane, Piece]]) -> Refragment:
        lanes = _lanes(texts)
        lane = pick(len(lanes), self.lane, "text")
        size = sum(len(piece.text) for _, _, its_lane, piece in texts if its_lane == lanes[lane])
        if size < 2:
            raise NotApplicable("the text has one character")
        return Refragment(lane, tuple(sorted({1 + (cut - 1) % (size - 1) for cut in self.cuts})))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[Refragment]:
        return tuple(cls(lane, tuple(range(1, 40))) for lane in range(len(text_lanes(slots(stream)))))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[Refragment]:
        from hypothesis import strategies as st

        lanes = max(1, len(text_lanes(slots(stream))))
        cuts = st.lists(st.integers(1, 400), min_size=1, max_size=6, unique=True).map(
            lambda drawn: tuple(sorted(drawn))
        )
        return st.builds(cls, st.integers(0, lanes - 1), cuts)


@dataclass(frozen=True, slots=True)
class MergeDeltas(_Deltas):
    """Neighbouring pieces of one lane, with nothing said between them, in one delta."""

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        out = said(found)
        last: tuple[int, Lane, Piece] | None = None
        for at, slot in enumerate(found):
            for delta, lane in zip(slot.deltas, slot.lanes, strict=True):
                if (
                    last
                    and isinstance(delta, Piece)
                    and lane == last[1]
                    and type(delta) is type(last[2])
                    and _fits(out[last[0]], last[2])
                ):
                    merged = replace(last[2], text=last[2].text + delta.text)
                    out[last[0]][out[last[0]].index(last[2])] = merged
                    out[at].remove(delta)
                    last = last[0], last[1], merged
                elif not isinstance(delta, Keepalive):
                    last = (at, lane, delta) if isinstance(delta, Piece) and lane else None
        if out == said(found):
            raise NotApplicable("no two neighbours belong together")
        return with_deltas(stream, out)


def _fits(deltas: Sequence[Delta], piece: Piece) -> bool:
    return piece in deltas


@dataclass(frozen=True, slots=True)
class InterleaveToolCalls(_Deltas):
    """The argument pieces of parallel calls take turns as `order` says (numbers of calls, over and over); starts keep their order and come first."""

    order: tuple[int, ...]
    needs = frozenset(("call_index",))

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        places = _call_deltas(found)
        calls = list(dict.fromkeys(lane for _, _, lane, _ in places))
        queues = {
            lane: [delta for _, _, its, delta in places if its == lane and isinstance(delta, Arguments)]
            for lane in calls
        }
        if len([queue for queue in queues.values() if queue]) < 2:
            raise NotApplicable("there are no two calls with arguments")
        starts = [delta for *_, delta in places if isinstance(delta, ToolCallStart) and not delta.key.listed]
        moved = {id(delta) for delta in [*starts, *(delta for queue in queues.values() for delta in queue)]}
        ends = [delta for *_, delta in places if id(delta) not in moved]
        sequence = [*starts, *_turns([queues[lane] for lane in calls], self.order), *ends]
        out = said(found)
        for (at, place, _, _), delta in zip(places, sequence, strict=True):
            out[at][place] = delta
        if out == said(found):
            raise NotApplicable("the calls take turns like that already")
        owners = {id(delta): lane for _, _, lane, delta in places}
        if not _still_told_apart([delta for deltas in out for delta in deltas], owners):
            raise NotApplicable("this stream does not say to which call a piece belongs")
        return with_deltas(stream, out)

    def resolve(self, stream: Stream) -> InterleaveToolCalls:
        count = len({lane for _, _, lane, _ in _call_deltas(slots(stream))})
        return InterleaveToolCalls(tuple(number % count for number in self.order)) if count else self

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[InterleaveToolCalls]:
        return (cls((0, 1)), cls((1, 0)))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[InterleaveToolCalls]:
        from hypothesis import strategies as st

        turns = st.sampled_from([(0, 1), (1, 0)]) | st.lists(st.integers(0, 2), min_size=2, max_size=6).map(tuple)
        return st.builds(cls, turns)


def _still_told_apart(deltas: Sequence[Delta], owners: Mapping[int, Lane]) -> bool:
    """Does every piece still belong to the call it belonged to? Where all calls have one number, only their order told them apart."""
    now: dict[Lane, Lane | None] = {}
    for delta, lane in zip(deltas, resolve(deltas), strict=True):
        owner = owners.get(id(delta))
        if owner is not None and now.setdefault(owner, lane) != lane:
            return False
    return len(set(now.values())) == len(now)


def _call_deltas(found: Sequence[Slot]) -> list[tuple[int, int, Lane, Delta]]:
    """Everything that belongs to the calls of the first choice that has any; nothing else may begin between them."""
    places = [
        (at, place, lane, delta)
        for at, slot in enumerate(found)
        for place, (delta, lane) in enumerate(zip(slot.deltas, slot.lanes, strict=True))
        if lane is not None and lane.kind == "call"
    ]
    if not places:
        raise NotApplicable("there is no tool call")
    choice = places[0][2].choice
    places = [each for each in places if each[2].choice == choice]
    first, last = places[0][0], places[-1][0]
    between = [
        lane for slot in found[first : last + 1] for lane in slot.lanes if lane is not None and lane.kind != "call"
    ]
    if between:
        raise NotApplicable("other content stands between the calls")
    return places


def _turns(queues: Sequence[Sequence[Delta]], order: Sequence[int]) -> Iterator[Delta]:
    left = [list(queue) for queue in queues]
    turn = 0
    while any(left):
        wanted = order[turn % len(order)] % len(left) if order else 0
        queue = next(queue for queue in (*left[wanted:], *left[:wanted]) if queue)
        yield queue.pop(0)
        turn += 1


@dataclass(frozen=True, slots=True)
class MoveUsage(_Deltas):
    """All token counts on one event: the `finish` chunk, the `first` with content, or one of its `own` after the finish."""

    to: Literal["finish", "first", "own"]

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        updates = [delta for slot in found for delta in slot.deltas if isinstance(delta, UsageUpdate)]
        if not updates:
            raise NotApplicable("there is no usage")
        if not speaker(stream).usage_rides:
            raise NotApplicable("this wire has usage in a place of its own")
        out: list[list[Delta]] = [
            [delta for delta in slot.deltas if not isinstance(delta, UsageUpdate)] for slot in found
        ]
        finish = finish_slot(found)
        target = finish if self.to != "first" else next((at for at, *_ in pieces(found)), finish)
        if self.to == "own":
            return _with_own_event(stream, out, finish, updates[-1])
        out[target].append(updates[-1])
        if out == said(found):
            raise NotApplicable("the usage stands there already")
        return with_deltas(stream, out)

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[MoveUsage]:
        return (cls("finish"), cls("first"), cls("own"))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[MoveUsage]:
        from hypothesis import strategies as st

        return st.sampled_from([cls("finish"), cls("first"), cls("own")])


def _with_own_event(stream: Stream, out: list[list[Delta]], finish: int, usage: UsageUpdate) -> Stream:
    found = slots(stream)
    own = written(speaker(stream), [usage], found[finish].frame._replace(raw=found[finish].frame.raw))
    changed = with_deltas(stream, out)
    places = iter(changed.frames)
    edit = []
    for at, deltas in enumerate(out):
        kept = [next(places)] if deltas or not found[at].deltas else []
        edit.append([*kept, *(own if at == finish else [])])
    return with_numbers(stream, edit)


@dataclass(frozen=True, slots=True)
class CumulativeUsage(_Deltas):
    """Running token counts on every event with content, the true ones last."""

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        updates = [delta for slot in found for delta in slot.deltas if isinstance(delta, UsageUpdate)]
        if not updates or not updates[-1].counts.get("output_tokens"):
            raise NotApplicable("there are no output tokens to count")
        if not speaker(stream).usage_rides:
            raise NotApplicable("this wire has usage in a place of its own")
        last = updates[-1].counts
        out = said(found)
        true = max(at for at, slot in enumerate(found) if updates[-1] in slot.deltas)
        texts = pieces(found)
        places = [at for at in dict.fromkeys(at for at, *_ in texts) if at < true]
        if not places or places[-1] != texts[-1][0]:
            raise NotApplicable("the true counts do not come after the content")
        for number, at in enumerate(places, 1):
            if not any(isinstance(delta, UsageUpdate) for delta in out[at]):
                out[at].append(UsageUpdate({**last, "output_tokens": min(number, last["output_tokens"])}, {}))
        return with_deltas(stream, out)


class _Insert(_Deltas):
    """Something that says nothing before every `every`th event before the finish."""

    every: int

    @abstractmethod
    def inserted(self, slot: Slot) -> list[Delta]:
        """What comes before the frame of `slot`."""
        ...

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        dialect = speaker(stream)
        edit = [[slot.frame] for slot in found]
        for place, at in enumerate(dict.fromkeys(at for at, *_ in pieces(found))):
            if place % max(1, self.every) == 0 and (deltas := self.inserted(found[at])):
                edit[at][:0] = dialect.write(deltas, found[at].frame)
        if all(len(frames) == 1 for frames in edit):
            raise NotApplicable("there is no content, or this wire has nothing that says nothing")
        return with_numbers(stream, edit)


@dataclass(frozen=True, slots=True)
class EmptyDeltas(_Insert):
    """An empty piece before every `every`th piece of content."""

    every: int = 1

    def inserted(self, slot: Slot) -> list[Delta]:
        # Before the start of its call a piece would have nobody to belong to.
        started = any(isinstance(delta, ToolCallStart) for delta in slot.deltas)
        found = [delta for delta in slot.deltas if isinstance(delta, Piece)]
        empty: list[Delta] = [replace(each, text="") for each in found if not (started and isinstance(each, Arguments))]
        return empty[:1]

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[EmptyDeltas]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(1, 5))


@dataclass(frozen=True, slots=True)
class Ping(_Insert):
    """A keep-alive before every `every`th piece of content."""

    every: int = 1

    def inserted(self, slot: Slot) -> list[Delta]:
        return [Keepalive()]

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[Ping]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(1, 5))


@dataclass(frozen=True, slots=True)
class UnknownEvents(_Insert):
    """An event of a kind that nobody knows before every `every`th piece of content."""

    every: int = 1

    def inserted(self, slot: Slot) -> list[Delta]:
        return [Unknown("weather_report", {"type": "weather_report", "outlook": "fine"})]

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[UnknownEvents]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(1, 5))


@dataclass(frozen=True, slots=True)
class FinishWithLastContent(_Deltas):
    """The finish reason rides on the event with the last piece of content."""

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        finish = finish_slot(found)
        before = [at for at, *_ in pieces(found)]
        if not before or before[-1] >= finish:
            raise NotApplicable("no content stands before the finish, or the finish rides on it already")
        moved = [delta for delta in found[finish].deltas if isinstance(delta, Finish)]
        out = said(found)
        out[finish] = [delta for delta in out[finish] if not isinstance(delta, Finish)]
        out[before[-1]] += moved
        if len(written(speaker(stream), out[before[-1]], found[before[-1]].frame)) > 1:
            raise NotApplicable("one event of this wire cannot say both")
        return with_deltas(stream, out)


@dataclass(frozen=True, slots=True)
class DropUsage(Mutator):
    """No token counts at all."""

    level = "loss"
    law = Law(usage="none")

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        out: list[list[Delta]] = [
            [delta for delta in slot.deltas if not isinstance(delta, UsageUpdate)] for slot in found
        ]
        if out == said(found):
            raise NotApplicable("there is no usage")
        return with_deltas(stream, out)
