"""The same reply in another spelling of its own dialect: each dialect's table of what real servers send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..dialects import dialects
from ..dialects.base import Spelling, Trait
from ..errors import NotApplicable
from ..stream import Stream
from .base import Mutator, speaker, with_frames
from .laws import Law

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


@dataclass(frozen=True, slots=True)
class Quirk(Mutator):
    """The spelling `name` from the table of the stream's dialect."""

    name: str
    level = "quirk"

    # Other mutators have one law a class; a spelling has its own, so here it is the instance's.

    @property
    def law(self) -> Law:  # type: ignore[override]
        spellings = self._spellings()
        return Law(
            finish="any" if any(spelling.other_finish for spelling in spellings) else "same",
            other="any" if any(spelling.more_parts for spelling in spellings) else "same",
        )

    @property
    def erases(self) -> frozenset[Trait]:  # type: ignore[override]
        return frozenset(trait for spelling in self._spellings() for trait in spelling.erases)

    def _spellings(self) -> list[Spelling]:
        return [dialect.quirks[self.name] for dialect in dialects() if self.name in dialect.quirks]

    def apply(self, stream: Stream) -> Stream:
        edit = self.spelling(stream).rewrite(stream.frames)
        if [frame for frames in edit for frame in frames] == list(stream.frames):
            raise NotApplicable("the stream is spelt like that already, or has nothing to spell so")
        return with_frames(stream, edit)

    def spelling(self, stream: Stream) -> Spelling:
        dialect = speaker(stream)
        if self.name not in dialect.quirks:
            known = ", ".join(dialect.quirks)
            raise NotApplicable(f"{dialect.name} has no quirk {self.name!r}", mend=f"one of {known}")
        return dialect.quirks[self.name]

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[Quirk]:
        return tuple(cls(name) for name in speaker(stream).quirks)

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[Quirk]:
        from hypothesis import strategies as st

        names = tuple(speaker(stream).quirks)
        return st.builds(cls, st.sampled_from(names)) if names else st.nothing()
