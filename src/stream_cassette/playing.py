"""One recorded exchange given back, read by read. Sans-IO; nothing here waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from stream_cassette.errors import RecordingTooShort, StreamCassetteError
from stream_cassette.model import Ending, Exchange
from stream_cassette.stream import Stream


class Player:
    """Gives one recorded exchange back, read by read."""

    def __init__(
        self, exchange: Exchange, dialect: str | None, note: Callable[[StreamCassetteError], None], where: str
    ) -> None:
        self.exchange = exchange
        self.read_to_end = False
        """Whether the code under test met the recorded ending."""
        self.closed_early = False
        """Whether it closed the response before."""
        self._dialect = dialect
        self._left = iter(exchange.reads)
        self._note = note
        self._where = where

    def read(self) -> bytes | Ending:
        """The next read, or how the body ends: `complete`, `disconnected` or `stalled`, the last two for the door to raise as its library does.

        Raises `RecordingTooShort`, noted on the tape, where the reader of the recording had left.
        """
        read = next(self._left, None)
        if read is not None:
            return read.data
        self.read_to_end = True
        if self.exchange.ending.kind == "closed":
            error = RecordingTooShort(
                f"the code under test reads on where the reader of the recording closed the response (reads recorded: {len(self.exchange.reads)})",
                where=self._where,
                mend="record again with code that reads as far as the code under test does, or close the response at the same place",
            )
            self._note(error)
            raise error
        return self.exchange.ending

    def close(self) -> None:
        """The client closed the response."""
        if not self.read_to_end:
            self.closed_early = True

    @cached_property
    def stream(self) -> Stream:
        return Stream(self.exchange, self._dialect)


def hurried(exchange: Exchange) -> Exchange:
    """A failure after which the client asked again, as it is played: telling it to wait no longer than it takes.

    The SDKs of OpenAI, Anthropic and Cohere read `retry-after-ms` first and wait for half a second and more without it, or where it is 0; others
    read `retry-after`.
    """
    kept = tuple(
        (name, "0" if name == "retry-after" else value) for name, value in exchange.headers if name != "retry-after-ms"
    )
    return replace(exchange, headers=(*kept, ("retry-after-ms", "1")))
