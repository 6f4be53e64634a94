"""Fuzzing an assembler: mutations drawn by Hypothesis, the law checked, a failure shrunk and told so that it can be pasted back."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from hypothesis import assume, given, note, reject, seed, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase

from .cassette import load, locate, of_now, update
from .clients import intercepted
from .dialects import dialect as named
from .errors import CassetteMiss, LawBroken, NotApplicable, TapeError
from .model import End, Exchange, Frame, Interaction, StreamError
from .mutate import LEVELS, MUTATORS, Mutator, instances, law_of, mutate, one_more, tries
from .mutate.items import Spec, settled
from .mutate.laws import Law, Outcome, View, broken, comparable
from .mutate.telling import told, verdict
from .strategies import chunkings, replies, streams
from .stream import Stream, assembled, synthesize
from .tape import Tape

Feed = Literal["bytes", "frames", "payloads", "client"]
Assembler = Callable[..., Any]

_MOST = 3  # mutators, one after the other

# Mutations that others may begin with are kept while there are no more, and their bodies no longer in all.
_BEGUN, _BEGUN_BYTES = 64, 4 << 20


# ----------------------------------------------------------------------------------------------------------------- the check


def check(
    assembler: Assembler,
    source: Stream | str | Path,
    mutators: Sequence[Spec] | None = None,
    *,
    levels: Sequence[str] = (),
    feed: Feed = "bytes",
    view: View | None = None,
) -> None:
    """Holds `assembler` against the laws of mutated streams; no expected value is needed. Raises `LawBroken` with everything to reproduce it.

    `source`: a `Stream`, or the cassette (path, or name in `cassettes/`) whose last stream is meant. `mutators`: what to apply, one
    after the other; without it every mutator of `levels` (by default of all) is tried as it stands and then as Hypothesis draws them (with its current
    profile), and what is found is shrunk. With an empty list the stream is taken as it was recorded, and the result is held against the reference
    assembler's: so a regression that was kept is replayed.
    `feed`: what the assembler takes: `bytes` (an iterable of reads), `frames`, or `payloads` (the JSON value of each event). With `client` it takes
    nothing and makes its request, with a real client, while the mutated stream is on the tape; it may be a coroutine function. `view` makes of
    its result something with (some of) the fields of a `Reply`; without it they are looked for in the result itself, a mapping or an object.
    Where everything must stay the same, any type of result will do.

    Raises `NotApplicable` where the mutators have nothing to act on, or act below what is fed.
    """
    trial = _Trial(assembler, stream_of(source), feed, view)
    before = trial.before
    if mutators is None:
        _search(trial, levels)
    elif chosen := [settled(each, trial.stream) for each in mutators]:
        trial.hold(chosen)
    elif comparable(before.value, view):
        verdict(trial.stream, trial.stream, (), before.value, view)
    else:
        raise NotApplicable(
            f"{type(before.value).__name__} has none of the fields of a Reply to compare", mend="give view="
        )


@dataclass(frozen=True)
class _Trial:
    """One assembler on one stream, with what is the same whatever is done to the stream."""

    assembler: Assembler
    stream: Stream
    feed: Feed
    view: View | None

    @cached_property
    def before(self) -> Outcome:
        """What the assembler makes of the stream as it was recorded."""
        before = (
            self._asked(tries(self.stream, ()))
            if self.feed == "client"
            else _outcome(self.assembler, fed(self.stream, self.feed))
        )
        if before.error is not None:
            raise LawBroken(f"the assembler fails on the stream as it was recorded: {before}") from before.error
        return before

    @cached_property
    def _shown_before(self) -> Any:
        return _shown(fed(self.stream, self.feed))

    def hold(self, mutators: Sequence[Mutator]) -> None:
        """Raises `LawBroken` where the law does not hold, and `NotApplicable` where it says nothing because the assembler is fed the same."""
        mutated = self._mutated(tuple(mutators))
        if self.feed == "client":
            after = self._asked(tries(mutated, mutators))
        else:
            events = fed(mutated, self.feed)
            if _shown(events) == self._shown_before:
                raise NotApplicable(
                    f"{list(mutators)!r} changes nothing that is fed as {self.feed}: a test with it could not fail"
                )
            after = _outcome(self.assembler, events)
        law = law_of(mutators)
        reference = mutated.reply if law.asks_reference else None
        if faults := broken(law, self.before, after, reference, self.view):
            raise LawBroken(told(self.stream, mutated, mutators, faults, self.feed)) from after.error

    def _mutated(self, mutators: tuple[Mutator, ...]) -> Stream:
        if not mutators:
            return self.stream
        *before, last = mutators
        try:
            hash(tuple(before))
        except TypeError:  # somebody gave a list where a tuple is meant
            return mutate(self.stream, mutators)
        return one_more(self._begun(tuple(before)), before, last)

    @cached_property
    def _begun(self) -> Callable[[tuple[Mutator, ...]], Stream]:
        """`_mutated`, which keeps what it made: many of the mutations that are drawn begin alike."""
        return lru_cache(min(_BEGUN, _BEGUN_BYTES // max(1, len(self.stream.body))))(self._mutated)

    def _asked(self, answers: Sequence[Exchange]) -> Outcome:
        tape = Tape.answering(answers, self.stream.spoken)
        with intercepted(tape), suppress(CassetteMiss):  # a miss is noted on the tape
            outcome = _outcome(_awaited(self.assembler))
        return Outcome(error=tape.failure) if tape.failure is not None else outcome


def _search(trial: _Trial, levels: Sequence[str]) -> None:
    """First each mutator's own instances, which no luck can miss; then what Hypothesis draws. Either way the failure told is a shrunk one."""
    for each in instances(trial.stream, *levels):
        try:
            with suppress(NotApplicable):
                trial.hold([each])
        except LawBroken:
            _draw(trial, levels, kinds=[type(each)])
            raise
    _draw(trial, levels)


def search(
    assembler: Assembler,
    source: Stream | str | Path,
    *,
    levels: Sequence[str] = (),
    feed: Feed = "bytes",
    view: View | None = None,
    shard: int = 0,
) -> None:
    """The part of `check` in which Hypothesis draws, for several processes at once: each draws others, and what one finds all replay.

    They share it over the example database of the current profile: by default a folder, `RedisExampleDatabase` over many machines. Where the
    profile is derandomized, as it is on CI, there is none, and each `shard` still draws its own. Raises as `check` does.
    """
    _draw(_Trial(assembler, stream_of(source), feed, view), levels, shard=shard)


def _draw(trial: _Trial, levels: Sequence[str], *, kinds: Sequence[type[Mutator]] = MUTATORS, shard: int = 0) -> None:
    _ = trial.before  # where that fails already, nothing is drawn

    @given(drawn=_mutations(trial.stream, levels, kinds, trial.feed, most=_MOST))
    def holds(drawn: tuple[Mutator, ...]) -> None:
        try:
            trial.hold(drawn)
        except NotApplicable:
            reject()

    shared = settings.default.database if settings.default is not None else None
    if shared is None:
        seed(shard)(holds)()
    else:
        of = getattr(trial.assembler, "__qualname__", "")
        what = (of, trial.stream.body, trial.feed, levels, [kind.__name__ for kind in kinds])
        settings(database=_Keyed(shared, sha256(repr(what).encode()).digest()))(holds)()


class _Keyed(ExampleDatabase):
    """The part of a database that belongs to one assembler on one stream; for Hypothesis all of them are one test, ours."""

    def __init__(self, shared: ExampleDatabase, key: bytes) -> None:
        super().__init__()
        self._shared, self._key = shared, key

    def fetch(self, key: bytes) -> Iterable[bytes]:
        return self._shared.fetch(self._key + key)

    def save(self, key: bytes, value: bytes) -> None:
        self._shared.save(self._key + key, value)

    def delete(self, key: bytes, value: bytes) -> None:
        self._shared.delete(self._key + key, value)


def _awaited(client: Assembler) -> Assembler:
    def run() -> Any:
        result = client()
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    return run


def _outcome(assembler: Assembler, *events: Any) -> Outcome:
    try:
        return Outcome(assembler(*events))
    except Exception as error:  # noqa: BLE001 - whatever the code under test raises is its outcome
        return Outcome(error=error)


def fed(stream: Stream, feed: Feed) -> Any:
    """What an assembler gets of the stream."""
    match feed:
        case "bytes":
            return list(map(attrgetter("data"), stream.exchange.reads))
        case "frames":
            return list(stream.frames)
        case "payloads":
            return list(_payloads(stream))
        case _:
            raise TapeError(f"there is no feed {feed!r}", mend="one of bytes, frames, payloads, client")


def _payloads(stream: Stream) -> Iterator[Any]:
    """What the user of an SDK sees: nothing after the end mark."""
    dialect = named(stream.spoken or "openai-chat")
    for frame, deltas in zip(stream.frames, stream.deltas_by_frame, strict=True):
        if any(isinstance(delta, StreamError) and delta.type.startswith("wire:") for delta in deltas):
            raise NotApplicable("damaged bytes give no payload: feed bytes or frames")
        if (payload := dialect.payload(frame)) is not None:
            yield payload
        if End() in deltas:
            return


def _shown(events: Sequence[Any]) -> Any:
    """What of the events an assembler can see; a frame's bytes are below it."""
    if not (events and isinstance(events[0], Frame)):
        return events
    return [(each.event, each.data, each.id, each.headers) for each in events]


def visible(stream: Stream, mutator: Mutator, feed: Feed) -> bool:
    """Does the mutator change anything that is fed?"""
    if feed == "client":
        return True
    try:
        return bool(_shown(fed(mutator.apply(stream), feed)) != _shown(fed(stream, feed)))
    except NotApplicable:
        return False


def save(path: str | Path, source: Stream | str | Path, mutators: Sequence[Mutator] = ()) -> None:
    """Writes the mutated stream into the cassette at `path`, ownerless, so that any test replays it from now on."""
    stream = mutate(stream_of(source), mutators)
    kept = Interaction(stream.exchange, None, stream.spoken, assembled(stream.reply))
    update(Path(path), lambda cassette: of_now((*cassette.interactions, kept)))


def stream_of(source: Stream | str | Path) -> Stream:
    """The stream that is meant: itself, or the last one of a cassette given by path or by its name below `cassettes/`."""
    if isinstance(source, Stream):
        return source
    path = Path(source) if Path(source).exists() else locate(Path("cassettes"), str(source))
    streams = [Stream(each.exchange, each.dialect) for each in load(path).interactions if each.dialect is not None]
    if not streams:
        raise TapeError("the cassette has no stream", where=str(path), mend="record one, or name another cassette")
    return streams[-1]


# ---------------------------------------------------------------------------------------------------------------- strategies


def mutations(
    source: Stream | str | Path,
    *,
    levels: Sequence[str] = (),
    kinds: Sequence[type[Mutator]] = MUTATORS,
    feed: Feed = "bytes",
    most: int = _MOST,
) -> st.SearchStrategy[tuple[Mutator, ...]]:
    """One to `most` mutators of the given levels and classes (by default of all) that act on this stream; shrinks to one with small parameters."""

    return st.deferred(lambda: _mutations(stream_of(source), levels, kinds, feed, most))


def _mutations(
    stream: Stream, levels: Sequence[str], kinds: Sequence[type[Mutator]], feed: Feed, most: int
) -> st.SearchStrategy[tuple[Mutator, ...]]:
    wanted = [kind for kind in kinds if kind.level in (levels or LEVELS) and _acts(kind, stream, feed)]
    if not wanted:
        raise NotApplicable(f"no mutator changes anything of this stream that is fed as {feed}")
    return st.lists(st.one_of([kind.strategy(stream) for kind in wanted]), min_size=1, max_size=most).map(tuple)


def _acts(kind: type[Mutator], stream: Stream, feed: Feed) -> bool:
    with suppress(NotApplicable):
        return any(visible(stream, each, feed) for each in kind.instances(stream))
    return False


@dataclass(frozen=True)
class Case:
    """A recorded stream and what was done to it. Give `reads`, `frames` or `payloads` to the code under test and its result to `check`."""

    original: Stream
    mutators: tuple[Mutator, ...]

    @cached_property
    def stream(self) -> Stream:
        """The mutated stream."""
        return mutate(self.original, self.mutators)

    @property
    def reads(self) -> tuple[bytes, ...]:
        return tuple(read.data for read in self.stream.exchange.reads)

    @property
    def frames(self) -> tuple[Any, ...]:
        return self.stream.frames

    @property
    def payloads(self) -> tuple[Any, ...]:
        return self.stream.payloads

    @property
    def law(self) -> Law:
        return law_of(self.mutators)

    def check(self, result: Any, *, view: View | None = None) -> None:
        """Raises `LawBroken` where `result` breaks the law against the reference reply of the original, field by field as far as it has them.

        A result without any field of a `Reply` cannot be compared, which is an error too: give a `view`, or use `fuzz.check`.
        """
        verdict(self.original, self.stream, self.mutators, result, view)

    def __repr__(self) -> str:
        return f"<case of {len(self.original.body)} bytes: {list(self.mutators)!r}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis shows a failing case: what was done, not every byte."""
        printer.text(repr(self))


def mutated(source: Stream | str | Path, *, levels: Sequence[str] = (), most: int = _MOST) -> st.SearchStrategy[Case]:
    """Cases of a stream or cassette, which is looked up when the test runs, not when it is imported."""

    drawn = mutations(source, levels=levels, most=most)

    @st.composite
    def case(draw: st.DrawFn) -> Case:
        made = Case(stream_of(source), draw(drawn))
        try:
            _ = made.stream
        except NotApplicable:
            assume(False)
        note(f"law: {made.law}")
        return made

    return case()


__all__ = [
    "Case",
    "LawBroken",
    "NotApplicable",
    "check",
    "chunkings",
    "mutated",
    "mutations",
    "replies",
    "save",
    "search",
    "stream_of",
    "streams",
    "synthesize",
]
