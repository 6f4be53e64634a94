"""Streams whose argument pieces are lost, doubled or out of order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ..arguments import parse_arguments
from ..errors import NotApplicable
from ..model import (
    Arguments,
    Delta,
    ToolCallStart,
    Whole,
)
from ..stream import Stream
from .base import Mutator, pick, slots, with_deltas
from .cuts import calls_of
from .deltas import pieces, said
from .laws import DAMAGED

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


class _Damage(Mutator):
    level = "damage"
    law = DAMAGED

    @abstractmethod
    def damaged(self, fragments: list[Delta]) -> list[Delta]:
        """The argument pieces of one call, wrongly."""
        ...

    def _apply(self, stream: Stream, call: int) -> Stream:
        found = slots(stream)
        calls = calls_of(found)
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
        return ReverseFragments(pick(len(calls_of(slots(stream))), self.call, "tool call with arguments"))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[ReverseFragments]:
        return tuple(cls(call) for call in range(len(calls_of(slots(stream)))))

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

    def resolve(self, stream: Stream) -> Self:
        found = slots(stream)
        calls = calls_of(found)
        call = pick(len(calls), self.call, "tool call with arguments")
        count = sum(lane == calls[call] for _, _, lane, _ in pieces(found))
        return type(self)(call, self.nth % count)

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[Self]:
        return tuple(cls(call, 0) for call in range(len(calls_of(slots(stream)))))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[Self]:
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
