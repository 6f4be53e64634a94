"""Streams that fail: errors, dead connections, damaged bytes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from .. import jsontext
from ..errors import NotApplicable
from ..model import (
    Ending,
    Exchange,
    Headers,
    Read,
    StreamError,
)
from ..stream import Stream
from .base import Mutator, finish_slot, pick, slots, speaker, with_deltas, with_frames
from .cuts import unfinished
from .deltas import pieces
from .laws import CUT, SAME, Law

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


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
        cut = with_deltas(stream, unfinished(found, finish))
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

    @property
    @abstractmethod
    def ending(self) -> Ending: ...

    def apply(self, stream: Stream) -> Stream:
        at = self.resolve(stream).after
        reads = _first(stream.exchange.reads, at)
        return Stream(replace(stream.exchange, reads=reads, ending=self.ending), stream.spoken)

    def resolve(self, stream: Stream) -> Self:
        return replace(self, after=pick(_unfinished_size(stream) + 1, self.after, "byte before the finish reason"))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[Self]:
        size = _unfinished_size(stream)
        return tuple(cls(after) for after in dict.fromkeys((0, size // 2, size)))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[Self]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, len(stream.body)))


def _unfinished_size(stream: Stream) -> int:
    """How many bytes come before the finish reason."""
    return sum(len(frame.raw) for frame in stream.frames[: finish_slot(slots(stream))])


def _first(reads: Sequence[Read], size: int) -> tuple[Read, ...]:
    out = []
    for read in reads:
        if size <= 0:
            break
        out.append(read._replace(data=read.data[:size]))
        size -= len(read.data)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Disconnect(_Broken):
    """The connection dies after `after` bytes, before the finish reason; a client sees its library's own exception.

    `mid_chunk`: within a chunk of HTTP/1.1, which was announced longer than it came.
    """

    mid_chunk: bool = False

    @property
    def ending(self) -> Ending:
        return Ending("disconnected", "chunk" if self.mid_chunk else "protocol")

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[Disconnect]:
        size = _unfinished_size(stream)
        # The one in the middle, which stands for them all, is the plain one.
        return tuple(dict.fromkeys((cls(size // 2, True), cls(0), cls(size // 2), cls(size))))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[Disconnect]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, len(stream.body)), st.booleans())


@dataclass(frozen=True, slots=True)
class Stall(_Broken):
    """Nothing more comes after `after` bytes until the client's read timeout strikes; replayed without the wait."""

    @property
    def ending(self) -> Ending:
        return Ending("stalled")


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
        damaged = frame._replace(raw=frame.raw[:brace] + b"!" + frame.raw[brace + 1 :])
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
