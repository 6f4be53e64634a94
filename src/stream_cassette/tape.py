"""The tape between a cassette and the doors of the HTTP libraries: it plays, records, and notes what went wrong. Sans-IO but for the file."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Hashable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, Literal, get_args

from stream_cassette.cassette import load, update
from stream_cassette.errors import (
    AssembledDiffers,
    CassetteMiss,
    CassetteMissing,
    RecordingTooShort,
    StreamCassetteError,
    TapeError,
    UnknownDialect,
)
from stream_cassette.matching import closest, differences, fingerprint, value_differences
from stream_cassette.model import COMPLETE, Cassette, Ending, Exchange, Headers, Interaction, Read, Reply, Request
from stream_cassette.redact import scrub, scrub_request
from stream_cassette.stream import Stream, assembled

Mode = Literal["none", "once", "new", "all"]
"""`none` plays only; `once` records for a test that has nothing to play; `new` records what does not match; `all` records everything anew."""

Clock = Callable[[], float]

_CLOSED = Ending("closed")


def _is_stream(stream: Stream) -> bool:
    try:
        return stream.spoken is not None  # a body without a word, such as that of a redirect, speaks none
    except UnknownDialect:
        return False


# ------------------------------------------------------------------------------------------------------------------- recording


class Recorder:
    """Takes down one exchange while the client has it. A door calls `start`, then `read` for every read, then `end`; nothing here waits."""

    def __init__(self, request: Request, clock: Clock) -> None:
        self.request = request
        self._clock = clock
        self._status = 0
        self._headers: Headers = ()
        self._started_at: float | None = None
        self._reads: list[tuple[float, bytes]] = []
        self._ending: Ending | None = None

    def start(self, status: int, headers: Headers) -> None:
        """The response headers came. An exchange that never comes this far is not recorded."""
        self._status, self._headers, self._started_at = status, headers, self._clock()

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

    @cached_property
    def exchange(self) -> Exchange:
        """The exchange as it goes to the file: scrubbed, not compressed, and `complete` where the reader left after everything had come."""
        assert self._started_at is not None
        assert self._ending is not None
        headers, reads = _decompressed(self._headers, self._reads)
        timed = tuple(Read(max(0, round((at - self._started_at) * 1000)), data) for at, data in reads)
        exchange = scrub(Exchange(self.request, self._status, headers, timed, self._ending))
        return replace(exchange, ending=COMPLETE) if self._ending == _CLOSED and self._all_read(exchange) else exchange

    def _all_read(self, exchange: Exchange) -> bool:
        if self.request.method == "HEAD" or self._status in (204, 304):
            return True
        promised = next((value for name, value in self._headers if name == "content-length"), None)
        if promised is not None and promised == str(sum(len(data) for _, data in self._reads)):
            return True
        # An SDK closes the response as soon as it has read [DONE], before the end of the body proper.
        stream = Stream(exchange)
        return _is_stream(stream) and stream.reply.ended

    @cached_property
    def stream(self) -> Stream:
        return Stream(self.exchange)

    def interaction(self, test: str | None) -> Interaction:
        """What goes into the cassette for `test`."""
        if not _is_stream(self.stream):
            return Interaction(self.exchange, test)
        return Interaction(self.exchange, test, self.stream.spoken, assembled(self.stream.reply))


def _decompressed(headers: Headers, reads: list[tuple[float, bytes]]) -> tuple[Headers, list[tuple[float, bytes]]]:
    """A server may compress although it was asked not to. Secrets could not be found in that, nor could a person read it."""
    if not any(
        name == "content-encoding" and value.strip().lower() in ("gzip", "x-gzip", "deflate") for name, value in headers
    ):
        return headers, reads
    decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # 32: gzip or zlib, as its header says
    try:
        decoded = [(at, decoder.decompress(data)) for at, data in reads]
    except zlib.error:
        return headers, reads
    kept = tuple(pair for pair in headers if pair[0] not in ("content-encoding", "content-length"))
    return kept, [(at, data) for at, data in decoded if data]


# --------------------------------------------------------------------------------------------------------------------- playing


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
                f"The code under test reads on where the reader of the recording closed the response (reads recorded: {len(self.exchange.reads)})",
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


@dataclass(slots=True)
class _Slot:
    """A recorded interaction that this tape may play, `number` as counted from 1 in the file."""

    number: int
    interaction: Interaction
    request: Request
    fingerprint: Hashable
    player: Player


# ------------------------------------------------------------------------------------------------------------------------ tape


class Tape:
    """One cassette as one test (or one `use(...)`) has it.

    `path` is the file, `test` who asks: it plays its own interactions first, then those without a test, each at most once, equal requests in recorded
    order; what it records is its own. `clock` gives seconds. `record_command` is what an error tells the user to run.
    Raises `TapeError` for an unknown mode and `CassetteError` for a file that cannot be read; a missing file is an error of the first request.
    """

    # Of the whole process, because a thread that the code under test starts has no context of ours.
    _active: ClassVar[list[Tape]] = []

    def __init__(
        self,
        path: Path,
        *,
        mode: Mode = "none",
        test: str | None = None,
        clock: Clock = time.monotonic,
        record_command: str = "",
    ) -> None:
        if mode not in get_args(Mode):
            raise TapeError(
                f"There is no mode {mode!r}", where=str(path), mend=f"use one of {', '.join(get_args(Mode))}"
            )
        self.path, self.mode, self.test = path, mode, test
        self.failure: CassetteMiss | StreamCassetteError | None = None
        """The first failure noted. The test fails with it, whatever became of it in the code under test."""
        self.used = False
        """Whether a request was intercepted or a test read the recording."""
        self._clock = clock
        self._mend = record_command or f"record it: use({str(path)!r}, mode='new')"
        self._lock = threading.Lock()
        self._closed = False
        self._shown = False
        self._takes: list[Player | Recorder] = []
        self._outer: Tape | None = None
        self._missing: CassetteMissing | None = None
        self._slots, self._others = self._loaded()
        self._free = list(self._slots)
        self._records_all = mode == "all" or (mode == "once" and not self._slots)

    def _loaded(self) -> tuple[list[_Slot], list[Interaction]]:
        if self.mode == "all":
            return [], []
        try:
            numbered = list(enumerate(load(self.path).interactions, 1))
        except CassetteMissing as error:
            if self.mode == "none":
                self._missing = CassetteMissing(error.what, where=error.where, mend=self._mend)
            return [], []
        mine = [(number, each) for number, each in numbered if each.test == self.test]
        if self.test is not None:
            mine += [(number, each) for number, each in numbered if each.test is None]
        others = [each for _, each in numbered if each.test not in (None, self.test)]
        return [self._slot(number, each) for number, each in mine], others

    def _slot(self, number: int, interaction: Interaction) -> _Slot:
        exchange = interaction.exchange
        request = scrub_request(exchange.request)
        player = Player(
            exchange,
            interaction.dialect,
            self.note,
            f"{self.path}, interaction {number} ({request.method} {request.url})",
        )
        return _Slot(number, interaction, request, fingerprint(request), player)

    # ----------------------------------------------------------------------------------------------------------- for the doors

    def open(self, request: Request) -> Player | Recorder:
        """Reserves what answers `request`, or a place to record it.

        Raises `CassetteMiss`, noted on the tape, if there is neither, and `TapeError` once the tape is closed.
        """
        asked = scrub_request(request)
        with self._lock:
            if self._closed:
                raise TapeError(
                    f"{request.method} {asked.url} comes after the tape was closed",
                    where=str(self.path),
                    mend="keep it open longer",
                )
            self.used = True
            take = self._reserved(asked, request)
            if take is not None:
                self._takes.append(take)
                return take
        miss = self._miss(asked)
        self.note(miss)
        raise miss

    def _reserved(self, asked: Request, request: Request) -> Player | Recorder | None:
        wanted = fingerprint(asked)
        slot = next((slot for slot in self._free if slot.fingerprint == wanted), None)
        if slot is not None:
            self._free.remove(slot)
            return slot.player
        return Recorder(request, self._clock) if self._records_all or self.mode == "new" else None

    def note(self, failure: CassetteMiss | StreamCassetteError) -> None:
        """Keeps the first failure, so that nothing that catches it in the code under test can hide it."""
        if self.failure is None:
            self.failure = failure

    def _miss(self, asked: Request) -> CassetteMiss:
        lines = [
            f"No recorded interaction answers {asked.method} {asked.url}",
            *(f"  {line}" for line in self._near(asked)),
        ]
        where = f"{self.path}, test {self.test}" if self.test else str(self.path)
        return CassetteMiss("\n".join(lines), where=where, mend=self._mend)

    def _near(self, asked: Request) -> list[str]:
        if self._missing is not None:
            return ["there is no such cassette"]
        wanted = fingerprint(asked)
        played = sum(1 for slot in self._slots if slot.fingerprint == wanted)
        if played:
            return [
                f"an equal request is recorded {'once' if played == 1 else f'{played} times'} and was played as often already"
            ]
        owners = [each.test for each in self._others if fingerprint(scrub_request(each.exchange.request)) == wanted]
        if owners:
            return [f"an equal request was recorded, but by another test: {owners[0]}"]
        best = closest([slot.request for slot in self._slots], asked)
        if best is None:
            return ["nothing is recorded for this test" if self.test else "nothing is recorded that belongs to no test"]
        return [
            f"closest recorded request: {best.method} {best.url}",
            *(f"  {line}" for line in differences(best, asked)),
        ]

    # ------------------------------------------------------------------------------------------------------------ for the test

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams exchanged so far, in order of request; where nothing was exchanged, those recorded. What is no known stream is left out.

        Raises `CassetteMissing` or `TapeError` where there is none.
        """
        self.used = True
        with self._lock:
            takes = tuple(self._takes)
        if takes:
            finished = [take.stream for take in takes if isinstance(take, Player) or take.finished]
        else:
            self._shown = True
            finished = [slot.player.stream for slot in self._slots]
        streams = tuple(stream for stream in finished if _is_stream(stream))
        if not streams:
            raise self._silence(bool(takes))
        return streams

    def _silence(self, exchanged: bool) -> StreamCassetteError:
        if self._missing is not None and not exchanged:
            return self._missing
        seen = (
            "What was exchanged so far is no known stream, or not read to its end"
            if exchanged
            else "No stream was exchanged, and none is recorded"
        )
        return TapeError(
            seen, where=str(self.path), mend="read after the code under test has made its streaming request"
        )

    @property
    def stream(self) -> Stream:
        """The last of `streams`."""
        return self.streams[-1]

    @property
    def replies(self) -> tuple[Reply, ...]:
        """The assembled reply of each of `streams`."""
        return tuple(stream.reply for stream in self.streams)

    @property
    def reply(self) -> Reply:
        """The assembled reply of the last stream."""
        return self.stream.reply

    @property
    def reads(self) -> tuple[bytes, ...]:
        """The body of the last stream, read by read."""
        return tuple(read.data for read in self.stream.exchange.reads)

    def check_assembled(self) -> None:
        """Raises `AssembledDiffers` if the assembler makes something else of what was played (or read) than the cassette says it once did."""
        played = {id(take) for take in self._takes}
        for slot in self._slots:
            recorded = slot.interaction.assembled
            if recorded is None or not (self._shown or id(slot.player) in played):
                continue
            lines = value_differences("assembled", dict(recorded), assembled(slot.player.stream.reply))
            if lines:
                raise AssembledDiffers(
                    "\n  ".join(
                        ["The assembler makes something else of a recording than when it was recorded", *lines]
                    ),
                    where=f"{self.path}, interaction {slot.number} ({slot.request.method} {slot.request.url})",
                    mend="if today's result is the right one, record again or correct `assembled` in the file",
                )

    # ------------------------------------------------------------------------------------------------------- opening and closing

    def activate(self) -> None:
        """Requests of this context, and of threads that have no tape of their own, come to this tape from now on."""
        self._outer = _context.get()
        Tape._active.append(self)
        _context.set(self)

    def deactivate(self) -> None:
        """Undoes `activate`, also from another context and out of turn."""
        Tape._active.remove(self)
        if _context.get() is self:
            _context.set(self._outer)

    def close(self) -> None:
        """Saves what was recorded, merged with what the file holds by now. A response that nobody closed ends here. Does nothing the second time."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        recorded = []
        for take in self._takes:
            if isinstance(take, Recorder):
                take.end(_CLOSED)
                if take.finished:
                    recorded.append(take.interaction(self.test))
        if recorded:
            update(self.path, lambda cassette: self._merged(cassette, recorded))

    def _merged(self, cassette: Cassette, recorded: Iterable[Interaction]) -> Cassette:
        kept = list(cassette.interactions)
        place = len(kept)
        if self.mode == "all":
            place = next((index for index, each in enumerate(kept) if each.test == self.test), place)
            kept = [each for each in kept if each.test != self.test]
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Cassette(
            (*kept[:place], *recorded, *kept[place:]), at=at, by=f"stream-cassette {version('pytest-stream-cassette')}"
        )


_context: ContextVar[Tape | None] = ContextVar("stream_cassette_tape", default=None)


def active_tape() -> Tape | None:
    """The tape of this context, else the only active one, else None.

    Raises `TapeError`, noted on every active tape, if there are several and none in this context: guessing could swap two tests' streams.
    """
    active = tuple(Tape._active)
    tape = _context.get()
    # A context copied while a tape was active still names it after its end.
    while tape is not None and tape not in active:
        tape = tape._outer
    if tape is not None:
        return tape
    if len(active) > 1:
        error = TapeError(
            f"{len(active)} tapes are active, and the request comes from a thread or task that belongs to none of them",
            where=" and ".join(str(each.path) for each in active),
            mend="run it in a copy of the context: threading.Thread(target=contextvars.copy_context().run, args=(function,))",
        )
        for each in active:
            each.note(error)
        raise error
    return active[0] if active else None
