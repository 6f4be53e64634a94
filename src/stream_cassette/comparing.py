"""The mode `compare`: the exchanges of now held against what is recorded of them, in lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream_cassette.drift import Drift, drift
from stream_cassette.errors import Drifted
from stream_cassette.keeping import refused
from stream_cassette.recording import CLOSED, Recorder
from stream_cassette.shelf import Slot


@dataclass(frozen=True, slots=True)
class Compared:
    """What was asked now, by its name for a person, and what is recorded of it. `found`: how they differ; None where nothing is recorded, or no response came."""

    name: str
    take: Recorder
    slot: Slot | None
    found: Drift | None

    @property
    def shape(self) -> tuple[str, ...]:
        """What fails the test, a line each."""
        status = self.take.status
        if not status:
            return (self.take.problem.partition(",")[0] or "no response came",)
        hint = "; is the key right?" if refused(status) else ""
        if self.found is None:
            failed = f" (status {status}{hint})" if status >= 400 else ""
            return (f"nothing is recorded to compare it with{failed}",)
        return tuple(line + hint * line.startswith("status: ") for line in self.found.shape)

    @property
    def lines(self) -> tuple[str, ...]:
        """The same, and for information what was said otherwise."""
        if self.found is None:
            return self.shape
        exchange = self.take.exchange
        read = f", as far as it was read ({len(exchange.body)} bytes)" if exchange.ending == CLOSED else ""
        return (*(self.shape or (f"the wire shape is the recorded one{read}",)), *self.found.assembled)


def compared(name: str, take: Recorder, slot: Slot | None) -> Compared:
    """`take`, which has ended, against what is recorded in `slot`."""
    found = drift(slot.recorded.stream, take.stream) if slot and take.finished else None
    return Compared(name, take, slot, found)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that one test `asked`, and all that is recorded for it alone."""

    asked: Sequence[Compared]
    recorded: Sequence[Slot]

    @property
    def remarks(self) -> list[str]:
        """What a person should know, a line each."""
        lines = [f"{each.name}: {line}" for each in self.asked for line in each.lines]
        numbers = {each.slot.number for each in self.asked if each.slot}
        left = [slot for slot in self.recorded if slot.number not in numbers]
        lines += [f"{each.name}: not asked for, so not compared" for each in left]
        return [*dict.fromkeys(lines)]

    def check(self, where: str, again: str) -> None:
        """Raises `Drifted` where the wire has another shape, or nothing was asked. `where` is the cassette, `again` the command that records it."""
        __tracebackhide__ = True
        if not self.asked:
            raise Drifted(
                "the provider was asked nothing, so nothing was compared with what is recorded",
                where=where,
                mend="see that the code under test makes its requests while the tape is open",
            )
        if lines := [f"{each.name}: {line}" for each in self.asked for line in each.shape]:
            raise Drifted(
                "\n  ".join(["what the provider streams now is not what was recorded", *dict.fromkeys(lines)]),
                where=where,
                mend=f"see that your code takes the new shape, then record again:\n{again}"
                if any(each.take.status for each in self.asked)
                else "see that the provider can be reached",
            )
