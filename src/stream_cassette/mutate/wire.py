"""The same bytes in other reads: what a network does to every stream."""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from ..errors import NotApplicable
from ..model import Read
from ..stream import Stream
from .base import Mutator
from .laws import SAME

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


_LAST_OF_SEVERAL = re.compile(rb"[\x80-\xbf](?![\x80-\xbf])")


class _Wire(Mutator):
    level = "wire"
    law = SAME

    @abstractmethod
    def reads(self, stream: Stream) -> tuple[Read, ...]:
        """The body in other reads, each with the time of the read that brought its last byte, for a byte cannot be read before it came."""
        ...

    def apply(self, stream: Stream) -> Stream:
        if not stream.body:
            raise NotApplicable("the body is empty")
        return stream.in_reads(self.reads(stream))


class _Cuts(_Wire):
    @abstractmethod
    def ends(self, stream: Stream) -> Sequence[int]:
        """Where the reads end, in ascending order."""
        ...

    def reads(self, stream: Stream) -> tuple[Read, ...]:
        body, reads, ends = stream.body, stream.exchange.reads, self.ends(stream)
        borders = list(accumulate(map(len, map(attrgetter("data"), reads))))
        return tuple(
            Read(reads[bisect_left(borders, end)].at_ms, body[start:end])
            for start, end in pairwise((0, *ends))
            if start < end
        )


@dataclass(frozen=True, slots=True)
class Rechunk(_Cuts):
    """Reads that end at the byte offsets `cuts`."""

    cuts: tuple[int, ...]

    def ends(self, stream: Stream) -> Sequence[int]:
        return sorted({cut % len(stream.body) for cut in self.cuts} | {len(stream.body)})

    def resolve(self, stream: Stream) -> Rechunk:
        return Rechunk(tuple(self.ends(stream)[:-1])) if stream.body else self

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[Rechunk]:
        size = len(stream.body)
        return (cls(tuple(range(64, size, 64))), cls((size // 2,))) if size > 1 else ()

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[Rechunk]:
        from hypothesis import strategies as st

        cuts = st.lists(st.integers(1, max(1, len(stream.body) - 1)), min_size=1, max_size=8, unique=True)
        return cuts.map(lambda drawn: cls(tuple(sorted(drawn))))


@dataclass(frozen=True, slots=True)
class OneByteReads(_Wire):
    """Every byte a read of its own."""

    def reads(self, stream: Stream) -> tuple[Read, ...]:
        found: list[Read] = []
        for at_ms, reads in groupby(stream.exchange.reads, attrgetter("at_ms")):
            found += map(_one_byte(at_ms).__getitem__, b"".join(map(attrgetter("data"), reads)))
        return tuple(found)


@lru_cache(maxsize=256)
def _one_byte(at_ms: int) -> Sequence[Read]:
    """The read of each byte there is: a body needs thousands, and a fuzzer a thousand times as many."""
    return tuple(Read(at_ms, bytes((byte,))) for byte in range(256))


@dataclass(frozen=True, slots=True)
class OneRead(_Cuts):
    """The whole body in one read."""

    def ends(self, stream: Stream) -> Sequence[int]:
        return (len(stream.body),)


@dataclass(frozen=True, slots=True)
class ReadPerFrame(_Cuts):
    """Every frame a read of its own."""

    def ends(self, stream: Stream) -> Sequence[int]:
        return list(accumulate(len(frame.raw) for frame in stream.frames))


@dataclass(frozen=True, slots=True)
class CutInsideCharacter(_Cuts):
    """A read that ends in the middle of the `nth` character that takes more than one byte."""

    nth: int

    def ends(self, stream: Stream) -> Sequence[int]:
        places = _inside_characters(stream.body)
        if not places:
            raise NotApplicable("every character takes one byte")
        return (places[self.nth % len(places)], len(stream.body))

    def resolve(self, stream: Stream) -> CutInsideCharacter:
        places = _inside_characters(stream.body)
        return CutInsideCharacter(self.nth % len(places)) if places else self

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[CutInsideCharacter]:
        return (cls(0),) if _inside_characters(stream.body) else ()

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[CutInsideCharacter]:
        from hypothesis import strategies as st

        return st.builds(cls, st.integers(0, max(0, len(_inside_characters(stream.body)) - 1)))


def _inside_characters(body: bytes) -> list[int]:
    """The place before the last byte of each UTF-8 character of several bytes."""
    return [match.start() for match in _LAST_OF_SEVERAL.finditer(body, 1)]
