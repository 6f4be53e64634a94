"""What a mutator is, and how one changes a stream: by its reads, by its frames, or by what its frames say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from ..dialects import dialect as named
from ..dialects.base import Dialect, Trait
from ..errors import NotApplicable
from ..lanes import Lane, Lanes
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
    lanes = Lanes()
    dialect = speaker(stream)
    out = []
    for frame in stream.frames:
        deltas = tuple(dialect.read(frame))
        out.append(Slot(frame, deltas, tuple(map(lanes.of, deltas))))
    return out


def with_frames(stream: Stream, edit: Sequence[Sequence[Frame]]) -> Stream:
    """The stream with each frame replaced by those in the same place of `edit`.

    Reads keep their borders and times: inside a frame that is unchanged at the same byte, else at the end of what replaced it.
    """
    borders = list(
        zip(accumulate(len(read.data) for read in stream.exchange.reads), stream.exchange.reads, strict=True)
    )
    pieces: list[bytes] = []
    cuts: list[tuple[int, int]] = []
    start = written = at = 0
    for frame, new in zip(stream.frames, edit, strict=True):
        end = start + len(frame.raw)
        inside = []
        while at < len(borders) and borders[at][0] <= end:
            inside.append(borders[at])
            at += 1
        raw = b"".join(each.raw for each in new)
        if raw == frame.raw:
            cuts += [(written + border - start, read.at_ms) for border, read in inside]
        elif inside:
            cuts.append((written + len(raw), inside[-1][1].at_ms))
        pieces.append(raw)
        start, written = end, written + len(raw)
    return with_reads(stream, cut_at(b"".join(pieces), cuts))


def cut_at(body: bytes, cuts: Iterable[tuple[int, int]]) -> tuple[Read, ...]:
    """The reads of `body` that end at the given `(byte, milliseconds)`, the last at its end."""
    reads, start = [], 0
    for end, at_ms in cuts:
        if end > start:
            reads.append(Read(at_ms, body[start:end]))
            start = end
    return tuple(reads)


def with_reads(stream: Stream, reads: tuple[Read, ...]) -> Stream:
    return Stream(replace(stream.exchange, reads=reads), stream.spoken)


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
