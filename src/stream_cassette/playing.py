"""One recorded exchange given back, read by read. Sans-IO; nothing here waits: a door asks how long it has to."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter

from stream_cassette.errors import RecordingTooShort, StreamCassetteError, TapeError
from stream_cassette.headers import MEND, unfit
from stream_cassette.model import Ending, Exchange, Response, ResponseState
from stream_cassette.recording import Clock
from stream_cassette.stream import Stream

_LINGER = 5.0
"""Seconds that a recording whose reader left waits for that of today to leave, where it does not play at once."""


class Player:
    """Gives one recorded exchange back, read by read: a door calls `start`, then `pause` and `read` in turn, and `close`.

    `pace` is what the recorded times are multiplied by; with 0 nothing waits. Reads without a byte, which only an exchange made by hand has, are passed
    over. Raises `TapeError`, noted on the tape, for a header or a status that no response of HTTP can have: it would break the wire of one client and not that of another.
    """

    def __init__(
        self,
        stream: Stream,
        note: Callable[[StreamCassetteError], None],
        where: str,
        *,
        clock: Clock = time.monotonic,
        pace: float = 0,
    ) -> None:
        self.stream, self.exchange = stream, _sound(stream.exchange)
        self.read_to_end = False
        """Whether the code under test met the recorded ending."""
        self.closed_early = False
        """Whether it closed the response before."""
        self._note = note
        self._where = where
        self._clock = clock
        self.paced = bool(pace)
        """Whether there is anything to wait for: else nobody need ask `pause`."""
        self._pace = pace
        self._started_at = 0.0
        self._given, self._reads = 0, self.exchange.reads
        self._overdue = False
        if error := _unfit(self.exchange, where):
            note(error)
            raise error

    def start(self) -> None:
        """The client has the response headers; the times of the reads count from now."""
        self._started_at = self._clock()

    def pause(self, timeout: float | None = None) -> float:
        """How many seconds to wait before `read`.

        Where the next read is further off than the client's read `timeout` in seconds, that is the pause, and `read` gives `stalled`.
        """
        if not self.paced:
            return 0.0
        if self._given < len(self._reads):
            due = self._started_at + self._reads[self._given].at_ms / 1000 * self._pace
            wait = max(0.0, due - self._clock())
        else:
            # Who left may have left by the clock, and will again.
            wait = _LINGER if self.exchange.ending.kind == "closed" else 0.0
        self._overdue = timeout is not None and wait > timeout
        return timeout if self._overdue and timeout is not None else wait

    def at_once(self) -> Iterator[bytes]:
        """The reads that are left, where nobody has to wait for them; `read` tells how the body ends."""
        while (given := self._given) < len(self._reads):
            self._given = given + 1
            yield self._reads[given].data

    def read(self) -> bytes | Ending:
        """The next read, or how the body ends: `complete`, `disconnected` or `stalled`, the last two for the door to raise as its library does.

        Raises `RecordingTooShort`, noted on the tape, where the reader of the recording had left.
        """
        if self._overdue:
            self.read_to_end = True
            return Ending("stalled")
        given = self._given
        if given < len(self._reads):
            self._given = given + 1
            return self._reads[given].data
        self.read_to_end = True
        if self.exchange.ending.kind == "closed":
            error = RecordingTooShort(
                f"the code under test reads on where the reader of the recording closed the response (reads recorded: {len(self.exchange.reads)})",
                where=self._where,
                mend="record again with code that reads as far as the code under test does, or close the response at the same place; where a "
                "deadline closes it, play the recorded times too: timing='recorded'",
            )
            self._note(error)
            raise error
        return self.exchange.ending

    def close(self) -> None:
        """The client closed the response."""
        if not self.read_to_end:
            self.closed_early = True

    @property
    def response(self) -> Response:
        """How the client took it so far."""
        state: ResponseState = "ended" if self.read_to_end else "closed" if self.closed_early else "open"
        return Response(self.exchange.request, self.exchange.status, self._given, state)


def _sound(exchange: Exchange) -> Exchange:
    """The exchange without empty reads: to HTTP/1.1 an empty chunk is the end."""
    if all(map(attrgetter("data"), exchange.reads)):
        return exchange
    return replace(exchange, reads=tuple(read for read in exchange.reads if read.data))


def _unfit(exchange: Exchange, where: str) -> TapeError | None:
    if problem := next(filter(None, (unfit(*each) for each in exchange.headers)), ""):
        return TapeError(problem, where=where, mend=MEND)
    if exchange.status < 200 and exchange.status != 101:
        return TapeError(
            f"{exchange.status} is the status of what comes before a response, so a client would wait for that",
            where=where,
            mend="make it the status of the response: 200 or above",
        )
    return None


def hurried(exchange: Exchange) -> Exchange:
    """A failure after which the client asked again, as it is played: telling it to wait no longer than it takes.

    The SDKs of OpenAI, Anthropic and Cohere read `retry-after-ms` first and wait for half a second and more without it, or where it is 0; others
    read `retry-after`.
    """
    kept = tuple(
        (name, "0" if name == "retry-after" else value) for name, value in exchange.headers if name != "retry-after-ms"
    )
    return replace(exchange, headers=(*kept, ("retry-after-ms", "1")))


def pace_of(timing: str) -> float:
    """What recorded times are multiplied by: `instant` is 0, `recorded` 1, and `x0.1` a tenth. Raises `TapeError` for another text."""
    named = {"instant": 0.0, "recorded": 1.0}
    if timing in named:
        return named[timing]
    if re.fullmatch(r"x[0-9]+(\.[0-9]+)?", timing):
        return float(timing[1:])
    raise TapeError(
        f"timing cannot be {timing!r}", mend="use one of instant, recorded, x0.1 (a tenth of the recorded times)"
    )
