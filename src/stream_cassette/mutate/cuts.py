"""Streams that end too early: cut before the finish reason, or by the length limit."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING

from ..errors import NotApplicable
from ..lanes import Lane
from ..model import (
    Arguments,
    Delta,
    Finish,
    PartEnd,
    PartStart,
    ToolCallStart,
    Whole,
)
from ..stream import Stream
from .base import Mutator, Slot, finish_slot, pick, slots, speaker, with_deltas, with_frames
from .deltas import Piece, pieces, said
from .laws import CUT, LIMITED

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


class _Cut(Mutator):
    level = "cut"
    law = CUT


def unfinished(found: Sequence[Slot], finish: int) -> list[list[Delta]]:
    """What the frames say before the finish reason, and nothing from there on."""
    out = said(found)
    kept = list(takewhile(lambda delta: not isinstance(delta, Finish), out[finish]))
    return out[:finish] + [kept] + [[] for _ in out[finish + 1 :]]


@dataclass(frozen=True, slots=True)
class CutBeforeFinish(_Cut):
    """The stream ends cleanly before its finish reason: that, the end mark and all that comes after are missing."""

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        return with_deltas(stream, unfinished(found, finish_slot(found)))


@dataclass(frozen=True, slots=True)
class CutAfterFrame(_Cut):
    """The stream ends cleanly after the `n`th frame, before its finish reason."""

    n: int

    def apply(self, stream: Stream) -> Stream:
        at = self.resolve(stream).n
        return with_frames(stream, [[frame] if place <= at else [] for place, frame in enumerate(stream.frames)])

    def resolve(self, stream: Stream) -> CutAfterFrame:
        return CutAfterFrame(pick(finish_slot(slots(stream)), self.n, "frame before the finish reason"))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[CutAfterFrame]:
        count = finish_slot(slots(stream))
        return tuple(cls(n) for n in dict.fromkeys((0, count // 2, count - 1)) if 0 <= n < count)

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[CutAfterFrame]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, max(0, len(stream.frames) - 1)))


@dataclass(frozen=True, slots=True)
class CutInsideArguments(_Cut):
    """The stream ends cleanly inside the arguments of the `call`th tool call, after `at` characters of them."""

    call: int
    at: int

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        wrapped = self.resolve(stream)
        lane = calls_of(found)[wrapped.call]
        out = said(found)
        places = [(slot, place, piece) for slot, place, its_lane, piece in pieces(found) if its_lane == lane]
        starts = list(accumulate((len(piece.text) for *_, piece in places), initial=0))
        nth = bisect_right(starts, wrapped.at) - 1
        (slot, place, piece), left = places[nth], wrapped.at - starts[nth]
        if any(isinstance(delta, Finish) for deltas in out[:slot] for delta in deltas):
            raise NotApplicable("the stream says before these arguments that it is finished")
        out[slot] = [*out[slot][:place], *([replace(piece, text=piece.text[:left])] if left else [])]
        out[slot + 1 :] = [[] for _ in out[slot + 1 :]]
        return with_deltas(stream, out)

    def resolve(self, stream: Stream) -> CutInsideArguments:
        found = slots(stream)
        calls = calls_of(found)
        call = pick(len(calls), self.call, "tool call with arguments")
        return CutInsideArguments(call, self.at % len(argument_text(found, calls[call])))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[CutInsideArguments]:
        found = slots(stream)
        sizes = [len(argument_text(found, lane)) for lane in calls_of(found)]
        return tuple(cls(call, size // 2) for call, size in enumerate(sizes))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[CutInsideArguments]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, 3), st.integers(0, 200))


def calls_of(found: Sequence[Slot]) -> list[Lane]:
    """The calls that have arguments, in order of first sight."""
    return list(
        dict.fromkeys(
            lane for _, _, lane, piece in pieces(found) if isinstance(piece, Arguments) and lane.kind == "call"
        )
    )


def argument_text(found: Sequence[Slot], lane: Lane) -> str:
    return "".join(piece.text for _, _, its_lane, piece in pieces(found) if its_lane == lane)


@dataclass(frozen=True, slots=True)
class CutInsideFrame(_Cut):
    """The stream ends cleanly inside the `n`th frame, after `at` bytes of it, before the finish reason."""

    n: int
    at: int
    needs = frozenset(("whole_frames",))

    def apply(self, stream: Stream) -> Stream:
        wrapped = self.resolve(stream)
        edit = [[frame] if place < wrapped.n else [] for place, frame in enumerate(stream.frames)]
        cut = stream.frames[wrapped.n]
        edit[wrapped.n] = [cut._replace(raw=cut.raw[: wrapped.at])]
        return with_frames(stream, edit)

    def resolve(self, stream: Stream) -> CutInsideFrame:
        n = pick(finish_slot(slots(stream)), self.n, "frame before the finish reason")
        size = len(stream.frames[n].raw)
        return CutInsideFrame(n, 1 + (self.at - 1) % max(1, size - 1))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[CutInsideFrame]:
        count = finish_slot(slots(stream))
        return tuple(
            cls(n, len(stream.frames[n].raw) // 2).resolve(stream)
            for n in dict.fromkeys((0, count // 2, count - 1))
            if 0 <= n < count
        )

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[CutInsideFrame]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, max(0, len(stream.frames) - 1)), st.integers(1, 400))


@dataclass(frozen=True, slots=True)
class Truncate(Mutator):
    """The length limit strikes after `at` characters of content: the rest of the content is missing, and the finish reason says so."""

    at: int
    level = "limit"
    law = LIMITED

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        finish_slot(found)  # there must be one to say otherwise
        word, *closer = speaker(stream).words["length"]
        left = self.resolve(stream).at
        begun: set[Lane | None] = set()
        out: list[list[Delta]] = []
        for slot in found:
            kept: list[Delta] = []
            for delta, lane in zip(slot.deltas, slot.lanes, strict=True):
                if isinstance(delta, Piece):
                    if left > 0:
                        kept.append(replace(delta, text=delta.text[:left]))
                    left -= len(delta.text)
                elif isinstance(delta, ToolCallStart | PartStart):
                    if left > 0:
                        kept.append(delta)
                        begun.add(lane)
                elif isinstance(delta, Finish):
                    kept.append(replace(delta, reason=word, detail=next(iter(closer), None)))
                elif isinstance(delta, PartEnd):
                    if lane in begun or lane is None:
                        kept.append(delta)
                elif not isinstance(delta, Whole):
                    kept.append(delta)
            out.append(kept)
        return with_deltas(stream, out)

    def resolve(self, stream: Stream) -> Truncate:
        size = sum(len(piece.text) for *_, piece in pieces(slots(stream)))
        if size < 2:
            raise NotApplicable("there is no content to cut")
        return Truncate(1 + (self.at - 1) % (size - 1))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[Truncate]:
        size = sum(len(piece.text) for *_, piece in pieces(slots(stream)))
        return tuple(cls(at) for at in dict.fromkeys((1, size // 2, size - 1)) if 0 < at < size)

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[Truncate]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(1, 400))
