"""What a mutator is, and how one changes a stream: by its reads, by its frames, or by what its frames say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from ..dialects import dialect as named
from ..dialects.base import Dialect, Trait
from ..errors import NotApplicable
from ..lanes import Lane
from ..model import Delta, Exchange, Finish, Frame, Read, Start, UsageUpdate
from ..stream import Stream
from .laws import Law

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Level = Literal["wire", "framing", "deltas", "quirk", "loss", "cut", "limit", "fault", "damage"]


class Mutator(ABC):
    """A change of a stream with concrete parameters and no randomness, and the law that then holds.

    A frozen dataclass: it prints as the code that makes it. Integers wrap modulo what there is to choose from.
    """

    level: ClassVar[Level]
    law: ClassVar[Law]
    erases: ClassVar[frozenset[Trait]] = frozenset()
    needs: ClassVar[frozenset[Trait]] = frozenset()

    @abstractmethod
    def apply(self, stream: Stream) -> Stream:
        """The mutated stream. Raises `NotApplicable`, with the reason, where there is nothing to act on."""
        ...

    def before(self, exchange: Exchange) -> tuple[Exchange, ...]:
        """What answers the request before the mutated stream does, one exchange a try."""
        return ()

    def resolve(self, stream: Stream) -> Self:
        """The same mutation with its parameters as they act on `stream`: integers wrapped, names looked up."""
        return self

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[Self]:
        """The few that stand for all on this stream: what a level name or `"all"` expands to. Empty where there is nothing to act on."""
        return (cls(),)

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[Self]:
        """Draws mutators of this class for `stream`, shrinking to few and small parameters."""
        from hypothesis import strategies as st

        return st.builds(cls)


# ------------------------------------------------------------------------------------------------------------------ the frames


@dataclass(frozen=True, slots=True)
class Slot:
    """A frame with what it says and, for each delta, the lane that it belongs to."""

    frame: Frame
    deltas: tuple[Delta, ...]
    lanes: tuple[Lane | None, ...]


def speaker(stream: Stream) -> Dialect:
    """The dialect of the stream. Raises `NotApplicable` for a stream that says nothing."""
    if stream.spoken is None:
        raise NotApplicable("the stream says nothing")
    return named(stream.spoken)


def slots(stream: Stream) -> list[Slot]:
    """Every frame of the stream with what it says."""
    speaker(stream)  # there must be one
    return list(map(Slot, stream.frames, stream.deltas_by_frame, stream.lanes_by_frame))


def with_frames(stream: Stream, edit: Sequence[Sequence[Frame]]) -> Stream:
    """The stream with each frame replaced by those in the same place of `edit`.

    Reads keep their borders and times: inside a frame that is unchanged at the same byte, else at the end of what replaced it.
    """
    raws = [b"".join([each.raw for each in new]) for new in edit]
    return Stream(replace(stream.exchange, reads=tuple(_bordered(stream, raws))), stream.spoken)


def _bordered(stream: Stream, raws: Sequence[bytes]) -> list[Read]:
    """The reads once `raws` stand in the places of the frames."""
    body, reads = stream.body, [read for read in stream.exchange.reads if read.data]
    borders = list(accumulate(map(len, map(attrgetter("data"), reads))))
    found: list[Read] = []
    waiting: list[bytes] = []
    start = done = 0
    for frame, raw in zip(stream.frames, raws, strict=True):
        end = start + len(frame.raw)
        before, done = done, bisect_right(borders, end, done)
        if before == done:
            waiting.append(raw)
        elif raw == frame.raw:
            found += _whole(reads[before].at_ms, [*waiting, body[start : borders[before]]])
            found += reads[before + 1 : done]
            waiting = [body[borders[done - 1] : end]]
        else:
            found += _whole(reads[done - 1].at_ms, [*waiting, raw])
            waiting = []
        start = end
    return found


def _whole(at_ms: int, pieces: Sequence[bytes]) -> list[Read]:
    """One read, or none where it would be empty."""
    data = b"".join(pieces)
    return [Read(at_ms, data)] if data else []


# ------------------------------------------------------------------------------------------------------------------ the deltas


def with_deltas(stream: Stream, said: Sequence[Sequence[Delta]]) -> Stream:
    """The stream in which each frame says the deltas in the same place of `said`.

    Only frames that say something else than before are written anew or, where they say nothing any more, left out. Raises `NotApplicable` where
    the dialect cannot say it so.
    """
    dialect = speaker(stream)
    edit: list[list[Frame]] = []
    for slot, deltas in zip(slots(stream), said, strict=True):
        if tuple(deltas) == slot.deltas:
            edit.append([slot.frame])
        else:
            edit.append(written(dialect, deltas, slot.frame))
    return with_numbers(stream, edit)


def with_numbers(stream: Stream, edit: Sequence[Sequence[Frame]]) -> Stream:
    """`with_frames`, after the dialect has put in order what a change put out of it."""
    flat = iter(speaker(stream).finish([frame for frames in edit for frame in frames]))
    return with_frames(stream, [[next(flat) for _ in frames] for frames in edit])


def written(dialect: Dialect, deltas: Sequence[Delta], like: Frame) -> list[Frame]:
    """Frames that say just `deltas`, or `NotApplicable`."""
    frames = dialect.write(deltas, like)
    back = [delta for frame in frames for delta in dialect.read(frame)]
    if _meaning(back) != _meaning(deltas):
        raise NotApplicable(f"{dialect.name} cannot say this: {list(deltas)!r}"[:300])
    return frames


def _meaning(deltas: Sequence[Delta]) -> list[Delta]:
    """What is said, whatever the spelling of counts, and however often an envelope names the same reply."""
    said: list[Delta] = []
    for delta in deltas:
        meant = UsageUpdate(delta.counts, {}) if isinstance(delta, UsageUpdate) else delta
        if not (isinstance(meant, Start) and meant in said):
            said.append(meant)
    return said


def finish_slot(found: Sequence[Slot]) -> int:
    """The place of the frame with the finish reason, else of the end: what comes before it is the unfinished reply."""
    for place, slot in enumerate(found):
        if any(isinstance(delta, Finish) for delta in slot.deltas):
            return place
    raise NotApplicable("the stream has no finish reason")


def pick(count: int, number: int, what: str) -> int:
    """`number` wrapped into `range(count)`; `NotApplicable` where there is none of `what`."""
    if count <= 0:
        raise NotApplicable(f"there is no {what}")
    return number % count
