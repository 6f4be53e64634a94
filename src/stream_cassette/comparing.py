"""The mode `compare`: one exchange of now held against what is recorded of it, in lines."""

from __future__ import annotations

from dataclasses import dataclass

from stream_cassette.drift import Drift, drift
from stream_cassette.recording import CLOSED, Recorder, refused
from stream_cassette.shelf import Slot


@dataclass(frozen=True, slots=True)
class Compared:
    """What was asked now, and what is recorded of it. `found`: how they differ; None where nothing is recorded, or no response came."""

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


def compared(take: Recorder, slot: Slot | None) -> Compared:
    """`take`, which has ended, against what is recorded in `slot`."""
    found = drift(slot.recorded.stream, take.stream) if slot and take.finished else None
    return Compared(take, slot, found)
