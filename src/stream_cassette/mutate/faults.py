"""Streams that break: cut, limited, failed, damaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from .. import jsontext
from ..arguments import parse_arguments
from ..errors import NotApplicable
from ..lanes import Lane
from ..model import (
    Arguments,
    Delta,
    Ending,
    Exchange,
    Finish,
    Headers,
    PartEnd,
    PartStart,
    Read,
    StreamError,
    ToolCallStart,
    Whole,
)
from ..stream import Stream
from .base import Mutator, Slot, finish_slot, pick, slots, speaker, with_deltas, with_frames, with_reads
from .deltas import Piece, pieces, said
from .laws import CUT, DAMAGED, LIMITED, SAME, Law

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


class _Cut(Mutator):
    level = "cut"
    law = CUT


def _unfinished(found: Sequence[Slot], finish: int) -> list[list[Delta]]:
    """What the frames say before the finish reason, and nothing from there on."""
    out = said(found)
    kept: list[Delta] = []
    for delta in out[finish]:
        if isinstance(delta, Finish):
            break
        kept.append(delta)
    return out[:finish] + [kept] + [[] for _ in out[finish + 1 :]]


@dataclass(frozen=True, slots=True)
class CutBeforeFinish(_Cut):
    """The stream ends cleanly before its finish reason: that, the end mark and all that comes after are missing."""

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        return with_deltas(stream, _unfinished(found, finish_slot(found)))


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
        lane = _calls(found)[wrapped.call]
        left, out = wrapped.at, said(found)
        for slot, place, its_lane, piece in pieces(found):
            if its_lane == lane and len(piece.text) > left:
                if any(isinstance(delta, Finish) for deltas in out[:slot] for delta in deltas):
                    raise NotApplicable("the stream says before these arguments that it is finished")
                out[slot] = [*out[slot][:place], *([replace(piece, text=piece.text[:left])] if left else [])]
                out[slot + 1 :] = [[] for _ in out[slot + 1 :]]
                break
            left -= len(piece.text) if its_lane == lane else 0
        return with_deltas(stream, out)

    def resolve(self, stream: Stream) -> CutInsideArguments:
        found = slots(stream)
        calls = _calls(found)
        call = pick(len(calls), self.call, "tool call with arguments")
        return CutInsideArguments(call, self.at % len(_argument_text(found, calls[call])))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[CutInsideArguments]:
        found = slots(stream)
        sizes = [len(_argument_text(found, lane)) for lane in _calls(found)]
        return tuple(cls(call, size // 2) for call, size in enumerate(sizes))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[CutInsideArguments]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, 3), st.integers(0, 200))


def _calls(found: Sequence[Slot]) -> list[Lane]:
    """The calls that have arguments, in order of first sight."""
    return list(
        dict.fromkeys(
            lane for _, _, lane, piece in pieces(found) if isinstance(piece, Arguments) and lane.kind == "call"
        )
    )


def _argument_text(found: Sequence[Slot], lane: Lane) -> str:
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
        edit[wrapped.n] = [replace(cut, raw=cut.raw[: wrapped.at])]
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
        finish = finish_slot(found)
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
        if finish >= len(out):
            raise NotApplicable("the stream has no finish reason")
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


# --------------------------------------------------------------------------------------------------------------------- faults


class _Fault(Mutator):
    level = "fault"
    law = CUT


_ERRORS = {
    "overloaded": StreamError("overloaded_error", "Overloaded"),
    "rate_limit": StreamError("rate_limit_error", "Too many requests"),
    "server": StreamError("server_error", "Internal server error"),
}


@dataclass(frozen=True, slots=True)
class ErrorEvent(_Fault):
    """The provider reports an error inside the stream instead of the finish reason, and closes it."""

    kind: Literal["overloaded", "rate_limit", "server"] = "overloaded"

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        finish = finish_slot(found)
        cut = with_deltas(stream, _unfinished(found, finish))
        dialect = speaker(stream)
        error = dialect.write([_ERRORS[self.kind]], found[finish].frame)
        if not any(isinstance(delta, StreamError) for frame in error for delta in dialect.read(frame)):
            raise NotApplicable(f"{dialect.name} has no words for an error")
        if not cut.frames:
            raise NotApplicable("nothing comes before the finish reason")
        *others, last = cut.frames
        return with_frames(cut, [*([frame] for frame in others), [last, *error]])

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[ErrorEvent]:
        from hypothesis import strategies as st

        return st.sampled_from([cls("overloaded"), cls("rate_limit"), cls("server")])


@dataclass(frozen=True, slots=True)
class _Broken(_Fault):
    after: int

    ending = Ending("complete")

    def apply(self, stream: Stream) -> Stream:
        at = self.resolve(stream).after
        ended = replace(stream.exchange, ending=self.ending)
        return with_reads(Stream(ended, stream.spoken), _first(stream.exchange.reads, at))

    def resolve(self, stream: Stream):  # type: ignore[no-untyped-def]
        size = sum(len(frame.raw) for frame in stream.frames[: finish_slot(slots(stream))])
        return type(self)(pick(size + 1, self.after, "byte before the finish reason"))

    @classmethod
    def instances(cls, stream: Stream):  # type: ignore[no-untyped-def]
        size = sum(len(frame.raw) for frame in stream.frames[: finish_slot(slots(stream))])
        return tuple(cls(after) for after in dict.fromkeys((0, size // 2, size)))

    @classmethod
    def strategy(cls, stream: Stream):  # type: ignore[no-untyped-def]
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, len(stream.body)))


def _first(reads: Sequence[Read], size: int) -> tuple[Read, ...]:
    out = []
    for read in reads:
        if size <= 0:
            break
        out.append(replace(read, data=read.data[:size]))
        size -= len(read.data)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Disconnect(_Broken):
    """The connection dies after `after` bytes, before the finish reason; a client sees its library's own exception."""

    ending = Ending("disconnected", "protocol")


@dataclass(frozen=True, slots=True)
class Stall(_Broken):
    """Nothing more comes after `after` bytes until the client's read timeout strikes; replayed without the wait."""

    ending = Ending("stalled")


@dataclass(frozen=True, slots=True)
class HttpError(_Fault):
    """The first `times` tries get `status`, with `retry_after` seconds in the header if given; then the healthy reply plays."""

    status: int = 503
    times: int = 1
    retry_after: int | None = None
    law = SAME

    def apply(self, stream: Stream) -> Stream:
        return stream

    def before(self, exchange: Exchange) -> tuple[Exchange, ...]:
        headers: Headers = (("content-type", "application/json"),)
        if self.retry_after is not None:
            headers += (("retry-after", str(self.retry_after)),)
        body = jsontext.dump({"error": {"type": "server_error", "message": f"status {self.status}"}}).encode()
        return (Exchange(exchange.request, self.status, headers, (Read(0, body),)),) * self.times

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[HttpError]:
        return (cls(503), cls(429, 1, 0))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[HttpError]:
        from hypothesis import strategies as st

        return st.builds(
            cls, st.sampled_from([408, 429, 500, 503, 529]), st.integers(1, 2), st.none() | st.integers(0, 60)
        )


@dataclass(frozen=True, slots=True)
class CorruptFrame(_Fault):
    """The `n`th frame with content is damaged in one byte, so that its JSON or its checksum is wrong."""

    n: int
    law = Law(
        text="any", reasoning="any", calls="no_more_than_reference", finish="any", usage="any", complete="not_clean"
    )

    def apply(self, stream: Stream) -> Stream:
        at = _content_frames(stream)[self.resolve(stream).n]
        frame = stream.frames[at]
        brace = frame.raw.rindex(b"}")
        damaged = replace(frame, raw=frame.raw[:brace] + b"!" + frame.raw[brace + 1 :])
        return with_frames(stream, [[damaged] if place == at else [each] for place, each in enumerate(stream.frames)])

    def resolve(self, stream: Stream) -> CorruptFrame:
        return CorruptFrame(pick(len(_content_frames(stream)), self.n, "frame with content"))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[CorruptFrame]:
        count = len(_content_frames(stream))
        return tuple(cls(n) for n in dict.fromkeys((0, count // 2)) if n < count)

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[CorruptFrame]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, max(0, len(_content_frames(stream)) - 1)))


def _content_frames(stream: Stream) -> list[int]:
    found = slots(stream)
    return list(dict.fromkeys(at for at, *_ in pieces(found) if b"}" in found[at].frame.raw))


# --------------------------------------------------------------------------------------------------------------------- damage


class _Damage(Mutator):
    level = "damage"
    law = DAMAGED

    def damaged(self, fragments: list[Delta]) -> list[Delta]:
        """The argument pieces of one call, wrongly."""
        raise AssertionError(type(self))

    def _apply(self, stream: Stream, call: int) -> Stream:
        found = slots(stream)
        calls = _calls(found)
        lane = calls[pick(len(calls), call, "tool call with arguments")]
        if any(
            isinstance(delta, ToolCallStart) and delta.kind == "custom" and its == lane
            for slot in found
            for delta, its in zip(slot.deltas, slot.lanes, strict=True)
        ):
            raise NotApplicable("free text cannot be told from damaged text")
        places = [(at, place) for at, place, its_lane, _ in pieces(found) if its_lane == lane]
        fragments = self.damaged([found[at].deltas[place] for at, place in places])
        text = "".join(delta.text for delta in fragments if isinstance(delta, Arguments))
        if parse_arguments(text)[0] is not None:
            raise NotApplicable("the arguments would still be a JSON object")
        out = said(found)
        for number, (at, place) in reversed(list(enumerate(places))):
            out[at][place : place + 1] = (
                fragments[number:] if number == len(places) - 1 else fragments[number : number + 1]
            )
        return with_deltas(stream, [[delta for delta in deltas if not isinstance(delta, Whole)] for deltas in out])


@dataclass(frozen=True, slots=True)
class ReverseFragments(_Damage):
    """The argument pieces of the `call`th tool call come in reverse."""

    call: int

    def apply(self, stream: Stream) -> Stream:
        return self._apply(stream, self.call)

    def damaged(self, fragments: list[Delta]) -> list[Delta]:
        return fragments[::-1]

    def resolve(self, stream: Stream) -> ReverseFragments:
        return ReverseFragments(pick(len(_calls(slots(stream))), self.call, "tool call with arguments"))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[ReverseFragments]:
        return tuple(cls(call) for call in range(len(_calls(slots(stream)))))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[ReverseFragments]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, 3))


@dataclass(frozen=True, slots=True)
class _OneFragment(_Damage):
    call: int
    nth: int

    def apply(self, stream: Stream) -> Stream:
        return self._apply(stream, self.call)

    def resolve(self, stream: Stream):  # type: ignore[no-untyped-def]
        found = slots(stream)
        calls = _calls(found)
        call = pick(len(calls), self.call, "tool call with arguments")
        count = sum(lane == calls[call] for _, _, lane, _ in pieces(found))
        return type(self)(call, self.nth % count)

    @classmethod
    def instances(cls, stream: Stream):  # type: ignore[no-untyped-def]
        return tuple(cls(call, 0) for call in range(len(_calls(slots(stream)))))

    @classmethod
    def strategy(cls, stream: Stream):  # type: ignore[no-untyped-def]
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, 3), st.integers(0, 20))


@dataclass(frozen=True, slots=True)
class DropFragment(_OneFragment):
    """The `nth` argument piece of the `call`th tool call is lost."""

    def damaged(self, fragments: list[Delta]) -> list[Delta]:
        lost = self.nth % len(fragments)
        return [*fragments[:lost], *fragments[lost + 1 :]]


@dataclass(frozen=True, slots=True)
class DuplicateFragment(_OneFragment):
    """The `nth` argument piece of the `call`th tool call comes twice."""

    def damaged(self, fragments: list[Delta]) -> list[Delta]:
        again = self.nth % len(fragments)
        return [*fragments[: again + 1], *fragments[again:]]


__all__ = [
    "CorruptFrame",
    "CutAfterFrame",
    "CutBeforeFinish",
    "CutInsideArguments",
    "CutInsideFrame",
    "Disconnect",
    "DropFragment",
    "DuplicateFragment",
    "ErrorEvent",
    "HttpError",
    "ReverseFragments",
    "Stall",
    "Truncate",
]
