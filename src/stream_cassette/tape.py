"""The tape between a cassette and the doors of the HTTP libraries: it plays, records, and notes what went wrong. Sans-IO but for the file."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from stream_cassette.comparing import Comparison, compared
from stream_cassette.errors import (
    AssembledDiffers,
    CassetteError,
    CassetteMiss,
    CassetteMissing,
    StreamCassetteError,
    TapeError,
    Unplayed,
)
from stream_cassette.headers import unfit
from stream_cassette.hosts import Hosts, is_link_local
from stream_cassette.keeping import CutShort, failures_of, kept
from stream_cassette.matching import ignored
from stream_cassette.model import Exchange, Interaction, Reply, Request, Response
from stream_cassette.mutate import Mutator, answers
from stream_cassette.mutate import mutate as apply
from stream_cassette.mutate.items import Spec
from stream_cassette.mutate.items import settled as settled_for
from stream_cassette.mutate.laws import View
from stream_cassette.mutate.telling import verdict
from stream_cassette.playing import Player, hurried, pace_of
from stream_cassette.recording import CLOSED, Clock, Recorder, is_stream
from stream_cassette.redact import Redaction, Scrubbing, secrets_of
from stream_cassette.saving import Saver, unsaved
from stream_cassette.settling import settled
from stream_cassette.shelf import EMPTY, Recorded, Shelf, Slot, Stock, stock
from stream_cassette.stream import Stream
from stream_cassette.yamltext import RECORD

Mode = Literal["none", "once", "new", "all", "compare"]
"""`none` plays only; `once` records for a test that has nothing to play; `new` records what does not match; `all` records everything anew;
`compare` asks the provider, writes nothing, and holds what comes against the recording."""

_ALL, _ONCE = "--stream-record=all", "--stream-record=once"
_PORTS = {"http": 80, "https": 443}


# ------------------------------------------------------------------------------------------------------------------------ tape


class Tape:
    """One cassette as one test (or one `use(...)`) has it.

    `path` is the file, `test` who asks: it plays its own interactions first, then those without a test, each at most once, equal requests in recorded
    order; what it records is its own. `clock` gives seconds. `record_command` is what an error tells the user to run.

    `ignore` names what does not count in a JSON request body (`messages[*].id`). `keep_failures` records failures too after which the client tried
    again with success, and the answers 401 and 403, which say that the key was wrong. `keep_headers` names response headers that are recorded too, without their
    secrets. What is said to `allow_hosts`, and with `allow_loopback` to this machine, is left alone: not recorded, not replayed, no
    error. `quiet` leaves an interaction as it is where recording it again says the same. `timing` says how fast a recording plays: `instant`,
    `recorded` or, a tenth of the recorded times, `x0.1`; a client's read timeout is honoured. `secrets` are regular expressions of what must not reach
    the file besides the known kinds of secrets, and `scrub` has the last hand on each exchange before the file (see `redact.Scrubbing`). `mutate`:
    mutators, or classes of them, that change the last recorded stream before it is played; `check` then holds a result against their law.

    A tape belongs to the process that made it. In a forked child it plays, but a request that would be recorded is a `TapeError`, and `close`
    saves nothing; a child that records opens a tape of its own.

    Raises `TapeError` for an unknown mode and `CassetteError` for a file that cannot be read; a missing file is an error of the first request.
    """

    def __init__(
        self,
        path: Path,
        *,
        mode: Mode = "none",
        test: str | None = None,
        clock: Clock = time.monotonic,
        record_command: str = "",
        ignore: Sequence[str] = (),
        keep_failures: bool = False,
        keep_headers: Sequence[str] = (),
        allow_hosts: Sequence[str] = (),
        allow_loopback: bool = False,
        quiet: bool = True,
        timing: str = "instant",
        secrets: Sequence[str] = (),
        scrub: Callable[[Exchange], Exchange | None] | None = None,
        mutate: Sequence[Spec] = (),
    ) -> None:
        if mode not in get_args(Mode):
            raise TapeError(
                f"there is no mode {mode!r}", where=str(path), mend=f"use one of {', '.join(get_args(Mode))}"
            )
        self.path, self.mode, self.test = path, mode, test
        self.hosts = Hosts(allow_hosts, loopback=allow_loopback)
        """The hosts that are left alone."""
        self.failure: CassetteMiss | StreamCassetteError | None = None
        """The first failure noted. The test fails with it, whatever became of it in the code under test."""
        self.used = False
        """Whether a request was intercepted or a test read the recording."""
        self.recorded_at = ""
        """When the cassette was recorded, as it says."""
        self.remarks: tuple[str, ...] = ()
        """What a person should know about the recordings that `close` saved and the responses that were left open, a line each."""
        self.redactions: tuple[Redaction, ...] = ()
        """The secrets that were replaced in what `close` saved: kind and place, never the secret."""
        self.saved = 0
        """How many exchanges `close` saved."""
        self.changed = False
        """Whether the file is another one since."""
        self.not_kept = ""
        """What `close` did not save because the test did not come to its end, and why; also among `remarks`."""
        self._clock, self._pace = clock, pace_of(timing)
        used = f"use({str(path)!r}, mode='%s')"
        self._first = record_command.partition("\n")[0].replace(_ALL, _ONCE) or used % "once"
        self._again = record_command or f"{used % 'all'}\n(mode='new' keeps what is recorded and adds what is missing)"
        if strange := [name for name in keep_headers if unfit(name, "")]:
            raise TapeError(
                f"{strange[0]!r} is no name of a header", where=str(path), mend="write keep_headers=['x-request-id']"
            )
        self._scrubbing = Scrubbing(secrets_of(secrets, str(path)), scrub, frozenset(map(str.lower, keep_headers)))
        self._ignore = ignored(ignore)
        self._keep_failures, self._quiet = keep_failures, quiet
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False
        self._cut_short: CutShort | None = None
        self._shown = False
        self._takes: list[Player | Recorder] = []
        self._open: list[Response] = []
        self._missing: CassetteMissing | None = None
        self._saver = Saver(path, test, self._settled, replacing=mode == "all")
        self.original: Stream | None = None
        """The recorded stream that `mutators` act on: the last one this tape may play."""
        self.mutators: tuple[Mutator, ...] = ()
        """What was done to it, one after the other."""
        self._shelf = Shelf(self._loaded(), test, self._ignore, self._scrubbing)
        self._played: list[Slot] = []
        self._answers: deque[Player] | None = None
        self.mutate(mutate)
        self._saver.expects_none = mode == "once" and not self._shelf.slots
        self._records_all = mode in ("all", "compare") or self._saver.expects_none

    def _loaded(self) -> Stock:
        """In every mode, because what cannot be read cannot be added to: better to know before anything is asked of a provider."""
        try:
            found = stock(self.path, self.test, self._ignore, self._scrubbing)
        except CassetteMissing as error:
            if self.mode in ("none", "compare"):
                self._missing = CassetteMissing(error.what, where=error.where, mend=self._first)
            return EMPTY
        except CassetteError as error:
            error.mend = error.mend.replace(RECORD, self._first)
            raise
        if self.mode == "all":
            self._saver.replaces = [each for each in found.cassette.interactions if each.test == self.test]
            return EMPTY
        self.recorded_at = found.cassette.at
        return found

    def _player(self, stream: Stream, where: str) -> Player:
        return Player(stream, self.note, where, clock=self._clock, pace=self._pace)

    def mutate(self, specs: Sequence[Spec]) -> None:
        """Puts what the mutators make of the last stream in its place, with what answers before it. Raises `NotApplicable`."""
        if not specs:
            return
        slots = self._shelf.slots
        place = max((at for at, slot in enumerate(slots) if is_stream(slot.stream)), default=None)
        if place is None:
            return  # nothing is recorded yet, or there is a miss to tell
        slot = slots[place]
        stream = self.original = slot.stream
        for spec in specs:
            self.mutators += (settled_for(spec, stream),)
            stream = apply(stream, [self.mutators[-1]])
        *before, mutated = answers(self.original, self.mutators)
        streams = [*(Stream(hurried(each)) for each in before), Stream(mutated, self.original.spoken)]
        told = Recorded(replace(slot.recorded.interaction, assembled=None))  # that was said of the original
        self._shelf.put(place, [replace(slot, recorded=told, stream=each, mutated=True) for each in streams])

    def check(self, result: Any, *, view: View | None = None) -> None:
        """Holds what the code under test made of the (mutated) stream against the law, field by field as far as `result` has those of a `Reply`.

        An exception as the result is what code makes of a stream that broke if it raises.

        Raises `LawBroken`, with the mutators as code, and `TapeError` where no stream is recorded.
        """
        __tracebackhide__ = True
        original = self.original or self.stream
        mutated = apply(original, self.mutators)
        self.used = True
        verdict(original, mutated, self.mutators, result, view, feed="client" if self._takes else "bytes")

    @classmethod
    def answering(cls, exchanges: Sequence[Exchange], dialect: str | None = None) -> Tape:
        """A tape without a file: the next request, whatever it is, gets the first exchange, and so on; one more is a miss."""
        tape = cls(Path("a tape without a file"))
        last = len(exchanges) - 1
        streams = [Stream(each, dialect) if at == last else Stream(hurried(each)) for at, each in enumerate(exchanges)]
        tape._answers = deque(tape._player(each, str(tape.path)) for each in streams)
        return tape

    # ----------------------------------------------------------------------------------------------------------- for the doors

    @property
    def replays_only(self) -> bool:
        """Whether no request may reach the network."""
        return self.mode == "none" or (self.mode == "once" and not self._records_all)

    def at_recorded_host(self, request: Request) -> Request:
        """A request that a server on loopback was asked, as if made to the host under which it is recorded (else the first host of the cassette)."""
        return self._shelf.at_recorded_host(self._scrubbing.request(request))

    def leaves_alone(self, url: str) -> bool:
        """Whether a request to `url` is none of this tape's business: it is allowed, or asks for the credentials of this machine."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        return is_link_local(host) or self.hosts.allow(host, parts.port or _PORTS.get(parts.scheme))

    def open(self, request: Request) -> Player | Recorder:
        """Reserves what answers `request`, or a place to record it.

        Raises `CassetteMiss`, noted on the tape, if there is neither, and `TapeError` once the tape is closed, or for what a forked child would record.
        """
        __tracebackhide__ = True
        asked = self._scrubbing.request(request)
        with self._lock:
            if self._closed:
                raise TapeError(
                    f"{asked.method} {asked.url} comes after the tape was closed",
                    where=str(self.path),
                    mend="keep it open longer",
                )
            self.used = True
            take = self._reserved(asked, request)
            if take is not None:
                self._takes.append(take)
                if isinstance(take, Player):
                    take.start()
                return take
        miss = self._miss(asked)
        self.note(miss)
        raise miss

    def _reserved(self, asked: Request, request: Request) -> Player | Recorder | None:
        if self._answers is not None:
            return self._answers.popleft() if self._answers else None
        if self.mode != "compare" and (slot := self._shelf.reserve(asked)):
            self._played.append(slot)
            return self._player(slot.stream, f"{self.path}, {slot.name}")
        if not self._records_all and self.mode != "new":
            return None
        if os.getpid() != self._pid:
            error = TapeError(
                f"{asked.method} {asked.url} comes from a forked child process, whose recording would be lost",
                where=str(self.path),
                mend="record it in this process, or open a tape in the child: with use(...) as tape: ...",
            )
            self.note(error)
            raise error
        return Recorder(request, self._clock, self._scrubbing)

    def note(self, failure: CassetteMiss | StreamCassetteError) -> None:
        """Keeps the first failure, so that nothing that catches it in the code under test can hide it."""
        if self.failure is None:
            self.failure = failure

    def _miss(self, asked: Request) -> CassetteMiss:
        lines = [
            f"no recorded interaction answers {asked.method} {asked.url}",
            *(f"  {line}" for line in self._near(asked)),
        ]
        where = f"{self.path}, test {self.test}" if self.test else str(self.path)
        mend = self._first if self._missing is not None else self._again
        if owners := self._shelf.owners(asked):
            number, owner = owners[0]
            mend += f"\nor, to share it with every test, delete the line `test: {owner}` of interaction {number}"
        return CassetteMiss("\n".join(lines), where=where, mend=mend)

    def _near(self, asked: Request) -> list[str]:
        if self._answers is not None:
            return ["every exchange has been given as an answer already"]
        return ["there is no such cassette"] if self._missing is not None else self._shelf.near(asked)

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
            dropped = set().union(*self._failures([take for take in takes if isinstance(take, Recorder)]))
            finished = [
                take.stream for take in takes if isinstance(take, Player) or (take.finished and take not in dropped)
            ]
        else:
            self._shown = True
            finished = [slot.stream for slot in self._shelf.slots]
        streams = tuple(stream for stream in finished if is_stream(stream))
        if not streams:
            raise self._silence(bool(takes))
        return streams

    def _failures(self, takes: Sequence[Recorder]) -> tuple[set[Recorder], set[Recorder]]:
        """Those that do not go into the cassette: what the client mended, and what was refused."""
        return (set(), set()) if self._keep_failures else failures_of(takes, self._ignore)

    def _silence(self, exchanged: bool) -> StreamCassetteError:
        if self._missing is not None and not exchanged:
            return self._missing
        seen = (
            "what was exchanged so far is no known stream, or not read to its end"
            if exchanged
            else "no stream was exchanged, and none is recorded"
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

    @property
    def responses(self) -> tuple[Response, ...]:
        """How far the code under test took each response, in order of request."""
        with self._lock:
            return tuple(take.response for take in self._takes if take.response.status)

    @property
    def unplayed(self) -> tuple[str, ...]:
        """The test's own recorded interactions that nothing asked for, a line each; empty where the test made no request but read them, and in
        the mode `compare`, where nothing is played and `remarks` tell it."""
        if self.mode == "compare":
            return ()
        return tuple(
            f"{self.path}, {slot.name}"
            for slot in self._shelf.slots
            if self._played and slot not in self._played and self._is_own(slot)
        )

    def _is_own(self, slot: Slot) -> bool:
        return slot.recorded.interaction.test == self.test

    def check_unplayed(self) -> None:
        """Raises `Unplayed` if there are `unplayed` interactions."""
        __tracebackhide__ = True
        if lines := self.unplayed:
            raise Unplayed(
                "\n  ".join(["nothing asked for what is recorded for this test", *lines]),
                where=self.test or "",
                mend=f"if the code under test is right, record again:\n{self._again}",
            )

    def age(self, now: datetime) -> timedelta | None:
        """How long ago the cassette was recorded; None where it does not say, or nothing was loaded."""
        try:
            return now - datetime.fromisoformat(self.recorded_at).astimezone(UTC)
        except ValueError:
            return None

    def check_found(self) -> None:
        """Raises `CassetteMissing` if there is no cassette to replay and no request has told so: nothing was tested."""
        __tracebackhide__ = True
        if self._missing is not None and not self.used:
            raise self._missing

    def check_assembled(self) -> None:
        """Raises `AssembledDiffers` if the assembler makes something else of what was played (or read) than the cassette says it once did."""
        __tracebackhide__ = True
        for slot in self._shelf.slots if self._shown else self._played:
            if slot.recorded.disagreement:
                raise AssembledDiffers(
                    "\n  ".join(
                        [
                            "the assembler makes something else of a recording than when it was recorded",
                            *slot.recorded.disagreement,
                        ]
                    ),
                    where=f"{self.path}, {slot.name}",
                    mend="if today's result is the right one, record again or correct `assembled` in the file",
                )

    @cached_property
    def _comparison(self) -> Comparison:
        """Of what was asked in the mode `compare`, but for the failures that the client mended by asking again. A response that nobody closed ends here."""
        takes = self._ended()
        mended, _ = self._failures(takes)
        return Comparison(
            [
                compared(self._named(take), take, self._shelf.reserve(self._scrubbing.request(take.request)))
                for take in takes
                if take not in mended
            ],
            [slot for slot in self._shelf.slots if self._is_own(slot)],
        )

    def check_drift(self) -> None:
        """In the mode `compare`, raises `Drifted` if what the provider streamed has another wire shape than the recording, or could not be compared.

        That is so for each request without a response or without a recording, and where nothing was asked at all and the recording was not read.
        """
        __tracebackhide__ = True
        if self.mode == "compare" and not (self._shown and not self._comparison.asked):
            self._comparison.check(str(self.path), self._again)

    # ------------------------------------------------------------------------------------------------------- opening and closing

    def cut_short(self, why: str, *, ended: bool) -> None:
        """Tells `close` that something went wrong: `the test failed`, `interrupted`; `ended`, whether the code under test may have asked all it wanted.

        A recording in part is not kept, but with `new`, which adds to it; see `keeping.kept`.
        """
        self._cut_short = CutShort(why, ended)

    def close(self) -> None:
        """Saves what was recorded, merged with what the file holds by now. A response that nobody closed ends here. Does nothing the second time,
        and in a forked child.

        Raises `CassetteError`, which names the file, where that fails; the file is then as it was, or lacks only what could not be saved.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if os.getpid() != self._pid:
            return
        takes = self._ended()
        self._remark(self._leaked())
        if self.mode == "compare":
            self._remark(self._comparison.remarks)
        elif takes:
            self._save(takes)

    def _save(self, takes: Sequence[Recorder]) -> None:
        found = kept(
            takes,
            self.test,
            self._failures(takes),
            self._cut_short,
            adds=self.mode == "new",
            failures=self._keep_failures,
            named=self._named,
        )
        self.redactions, self.not_kept = found.redactions, found.not_kept
        self._remark(found.remarks)
        self._saver.save(found.interactions)
        if self._saver.dropped:
            self._remark([f"another process recorded {self.test} meanwhile; that recording is kept"])
        else:
            self.saved, self.changed = len(found.interactions), self._saver.changed
        if found.failure is not None:
            raise unsaved(self.path, "an exchange could not be made fit for a file", found.failure) from found.failure

    def _remark(self, lines: Sequence[str]) -> None:
        self.remarks += tuple(f"{self.path}: {line}" for line in lines)

    def _ended(self) -> list[Recorder]:
        """What was asked of the network; what is open of it ends here."""
        self._open += [each for each in self.responses if each.state == "open"]
        takes = [take for take in self._takes if isinstance(take, Recorder)]
        for take in takes:
            take.end(CLOSED)
        return takes

    def _leaked(self) -> list[str]:
        """What a person should know of responses that hold a connection for ever; a test that failed in between could not help it."""
        left = self._open if self._cut_short is None else []
        return [
            f"{self._named(each)}: the response was neither read to its end nor closed "
            f"(reads taken: {each.reads}); close it, or use a with block"
            for each in left
        ]

    def _named(self, take: Recorder | Response) -> str:
        return f"{take.request.method} {self._scrubbing.request(take.request).url}"

    def _settled(self, old: Sequence[Interaction], new: Sequence[Interaction]) -> Sequence[Interaction]:
        try:
            return settled(old, new, self._ignore, self._scrubbing.stored) if self._quiet else new
        except Exception as error:  # noqa: BLE001 - of the assembler: the recording is worth more than a short difference
            self._remark([f"all of it is recorded anew ({type(error).__name__}: {error})"])
            return new
