"""One exchange taken down while the client has it. Sans-IO; the clock is passed in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, islice

from stream_cassette.decoding import Undecodable, codings, decoded
from stream_cassette.errors import UnknownDialect
from stream_cassette.model import (
    COMPLETE,
    Ending,
    Exchange,
    Headers,
    Interaction,
    Read,
    Request,
    Response,
    ResponseState,
)
from stream_cassette.redact import Redaction, Scrubbing
from stream_cassette.stream import Stream, assembled

Clock = Callable[[], float]
"""Gives seconds; only differences count."""

CLOSED = Ending("closed")


class Recorder:
    """Takes down one exchange while the client has it. A door calls `start`, then `read` for every read, then `end`; nothing here waits.

    `problem` says in words what a person should know about the recording; empty for nothing. `redactions` are the secrets that `exchange` replaced.
    """

    def __init__(self, request: Request, clock: Clock, scrubbing: Scrubbing = Scrubbing()) -> None:  # noqa: B008 - frozen
        self.request = request
        self.status = 0
        self.problem = ""
        self.redactions: tuple[Redaction, ...] = ()
        self._scrubbing = scrubbing
        self._clock = clock
        self._headers: Headers = ()
        self._started_at: float | None = None
        self._reads: list[tuple[float, bytes]] = []
        self._count = 0  # of the reads, once they are given up
        self._ending: Ending | None = None
        self._exchange: Exchange | None = None
        self._making = threading.Lock()

    def fail(self, error: BaseException) -> None:
        """No response came, but `error`. There is nothing to record."""
        self.problem = f"no response came ({type(error).__name__}), so nothing is recorded of it"

    def start(self, status: int, headers: Headers) -> None:
        """The response headers came. An exchange that never comes this far is not recorded."""
        self.status, self._headers, self._started_at = status, headers, self._clock()

    def read(self, data: bytes) -> None:
        """`data` came from the network, just now."""
        if data and self._ending is None:
            self._reads.append((self._clock(), data))

    def end(self, ending: Ending) -> None:
        """The body ended. The first ending counts: a client closes what it has read to the end, too."""
        if self._ending is None:
            self._ending = ending

    @property
    def finished(self) -> bool:
        """Whether there is a whole exchange to show."""
        return self._started_at is not None and self._ending is not None

    @property
    def response(self) -> Response:
        """How the client took it so far."""
        state: ResponseState = "open" if self._ending is None else "closed" if self._ending == CLOSED else "ended"
        return Response(self.request, self.status, self._count or len(self._reads), state)

    @property
    def exchange(self) -> Exchange:
        """The exchange as it goes to the file: scrubbed, not compressed, and `complete` where the reader left after everything had come."""
        with self._making:
            if self._exchange is None:
                self._exchange = self._made()
                self._count = len(self._reads)
                self._reads = []  # secrets and all: a long body is not kept in two forms
            return self._exchange

    def _made(self) -> Exchange:
        assert self._started_at is not None
        assert self._ending is not None
        headers, reads, was = self._decoded(self._ending)
        # Of a clock that steps back only the latest time counts: the reads keep their order.
        times = accumulate((at - self._started_at for at, _ in reads), max, initial=0.0)
        timed = tuple(Read(round(at * 1000), data) for at, (_, data) in zip(islice(times, 1, None), reads, strict=True))
        taken = Exchange(self.request, self.status, headers, timed, self._ending, was)
        exchange, self.redactions = self._scrubbing.exchange(taken)
        return replace(exchange, ending=COMPLETE) if self._ending == CLOSED and self._all_read(exchange) else exchange

    def _decoded(self, ending: Ending) -> tuple[Headers, list[tuple[float, bytes]], str]:
        """A server may compress although it was asked not to. Secrets could not be found in that, nor could a person read it."""
        named = ", ".join(value for name, value in self._headers if name == "content-encoding")
        names = codings(named)
        if not names or not self._reads:
            return self._headers, self._reads, ""
        try:
            reads = decoded(names, self._reads, whole=ending == COMPLETE)
        except Undecodable as error:
            self.problem = (
                f"{error}; the body is stored as it came, where neither a person nor the search for secrets can read it"
            )
            return self._headers, self._reads, ""
        kept = tuple(pair for pair in self._headers if pair[0] not in ("content-encoding", "content-length"))
        return kept, reads, ", ".join(names)

    def _all_read(self, exchange: Exchange) -> bool:
        if self.request.method == "HEAD" or self.status in (204, 304):
            return True
        promised = next((value for name, value in self._headers if name == "content-length"), None)
        if promised is not None and promised == str(sum(len(data) for _, data in self._reads)):
            return True
        # An SDK closes the response as soon as it has read [DONE], before the end of the body proper.
        stream = Stream(exchange)
        with suppress(Exception):  # of the assembler; `interaction` tells of it
            return is_stream(stream) and stream.reply.ended
        return False

    @cached_property
    def stream(self) -> Stream:
        return Stream(self.exchange)

    def interaction(self, test: str | None) -> Interaction:
        """What goes into the cassette for `test`. Where the assembler fails, the exchange by itself: it cannot be had again."""
        exchange = self.exchange
        try:
            if is_stream(self.stream):
                return Interaction(exchange, test, self.stream.spoken, assembled(self.stream.reply))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not cost the recording
            self.problem = (
                f"the assembler failed on it ({type(error).__name__}: {error}), so it is recorded without `assembled`"
            )
        return Interaction(exchange, test)


def is_stream(stream: Stream) -> bool:
    """Whether it is a stream of a known dialect. Raises what a failing assembler raises."""
    try:
        return stream.spoken is not None  # a body without a word, such as that of a redirect, speaks none
    except UnknownDialect:
        return False
