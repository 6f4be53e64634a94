"""The recorded interactions that a tape may play: which of them answers a request, and what to say where none does."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from stream_cassette.cassette import load
from stream_cassette.keeping import retryable
from stream_cassette.matching import differences, fingerprint, nearest, value_differences
from stream_cassette.model import Cassette, Interaction, Request
from stream_cassette.paths import Steps
from stream_cassette.playing import hurried
from stream_cassette.redact import Scrubbing
from stream_cassette.stream import Stream, assembled

_MOST_NEAR = 3


@dataclass(frozen=True, eq=False)
class Recorded:
    """An interaction as the file has it."""

    interaction: Interaction

    @property
    def stream(self) -> Stream:
        return Stream(self.interaction.exchange, self.interaction.dialect)

    @cached_property
    def disagreement(self) -> tuple[str, ...]:
        """What today's assembler makes of it otherwise than the cassette says, in lines."""
        said = self.interaction.assembled
        if said is None:
            return ()
        return tuple(value_differences("assembled", dict(said), assembled(self.stream.reply)))


@dataclass(frozen=True, eq=False)
class Slot:
    """A recorded interaction that may be played, `number` as counted from 1 in the file.

    `request` is as it would be stored today, and `stream` as it is played, `mutated` or not.
    """

    number: int
    recorded: Recorded
    request: Request
    fingerprint: Hashable
    stream: Stream
    mutated: bool = False

    @property
    def name(self) -> str:
        return f"interaction {self.number} ({self.request.method} {self.request.url}){', mutated' * self.mutated}"

    def fresh(self) -> Slot:
        """The same with a stream of its own: what a test does to a reply, another must not meet."""
        return replace(self, stream=Stream(self.stream.exchange, self.stream.dialect))


@dataclass(frozen=True, slots=True)
class Stock:
    """What a file holds for a test: its own interactions first, then those of no test. `others` belong to other tests, each with its number in the file."""

    cassette: Cassette
    slots: tuple[Slot, ...]
    others: tuple[tuple[int, Interaction], ...]


EMPTY = Stock(Cassette(), (), ())

# A file that was not touched for so many seconds and is no longer than so many bytes is read once for all tapes: a test with forty mutators opens as many.
# A younger one may change again within one tick of the file system's clock.
_STILL, _SMALL = 2.0, 2 << 20


def stock(path: Path, test: str | None, ignore: tuple[Steps, ...], scrubbing: Scrubbing) -> Stock:
    """What the file `path` holds for `test`. `ignore` names what does not count in a request. Raises what `load` raises."""
    try:
        found = path.stat()
    except OSError:  # `load` says it in words
        return _read(path, None, test, ignore, scrubbing)
    signature = (found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)
    still = time.time() - found.st_mtime > _STILL and found.st_size <= _SMALL
    # What the last hand does to a request may differ from one tape to the next; it is not in what is kept.
    return (_kept if still else _read)(path, signature, test, ignore, Scrubbing(scrubbing.secrets))


def _read(path: Path, signature: object, test: str | None, ignore: tuple[Steps, ...], scrubbing: Scrubbing) -> Stock:
    cassette = load(path)
    numbered = list(enumerate(cassette.interactions, 1))
    mine = [(number, each) for number, each in numbered if each.test == test]
    if test is not None:
        mine += [(number, each) for number, each in numbered if each.test is None]
    slots: tuple[Slot, ...] = ()
    for number, each in reversed(mine):
        slots = (_slot(number, each, slots, ignore, scrubbing), *slots)
    return Stock(cassette, slots, tuple((number, each) for number, each in numbered if each.test not in (None, test)))


_kept = lru_cache(maxsize=8)(_read)


def _slot(
    number: int, interaction: Interaction, later: Sequence[Slot], ignore: Sequence[Steps], scrubbing: Scrubbing
) -> Slot:
    exchange = interaction.exchange
    request = scrubbing.stored(exchange.request)
    wanted = fingerprint(request, ignore)
    if retryable(exchange.status) and any(slot.fingerprint == wanted for slot in later):
        exchange = hurried(exchange)
    return Slot(number, Recorded(interaction), request, wanted, Stream(exchange, interaction.dialect))


class Shelf:
    """The interactions of a stock that are still to be played, each once, equal requests in recorded order."""

    def __init__(self, stock: Stock, test: str | None, ignore: Sequence[Steps], scrubbing: Scrubbing) -> None:
        self.slots = tuple(slot.fresh() for slot in stock.slots)
        self._others, self._test, self._ignore, self._scrubbing = stock.others, test, ignore, scrubbing
        self._free = _queues(self.slots)

    def put(self, place: int, slots: Sequence[Slot]) -> None:
        """Puts `slots` in the place of the one at `place`; nothing has been reserved so far."""
        self.slots = (*self.slots[:place], *slots, *self.slots[place + 1 :])
        self._free = _queues(self.slots)

    def reserve(self, asked: Request) -> Slot | None:
        """The next one that answers `asked`, which nobody else gets from now on."""
        free = self._free.get(fingerprint(asked, self._ignore))
        return free.popleft() if free else None

    def at_recorded_host(self, asked: Request) -> Request:
        """`asked` as if made to the host under which it is recorded; where it is under none, to the one that comes closest, for the miss to tell."""
        origins = dict.fromkeys(_origin(slot.request.url) for slot in self.slots)
        parts = urlsplit(asked.url)
        moved = [
            Request(asked.method, parts._replace(scheme=scheme, netloc=netloc).geturl(), asked.headers, asked.body)
            for scheme, netloc in origins
        ]
        recorded = {slot.fingerprint for slot in self.slots}
        places = {urlsplit(slot.request.url)[:3] for slot in self.slots}

        def closeness(each: Request) -> tuple[bool, bool, bool]:
            wanted = fingerprint(each, self._ignore)
            return bool(self._free.get(wanted)), wanted in recorded, urlsplit(each.url)[:3] in places

        return max(moved, key=closeness, default=asked)

    def near(self, asked: Request) -> list[str]:
        """What comes closest to `asked`, which none answers, in lines."""
        wanted = fingerprint(asked, self._ignore)
        if played := sum(1 for slot in self.slots if slot.fingerprint == wanted):
            times = "once" if played == 1 else f"{played} times"
            return [f"an equal request is recorded {times} and was played as often already"]
        if owners := self.owners(asked):
            return [f"an equal request was recorded, but by another test: {owners[0][1]}"]
        if not self.slots:
            return [
                "nothing is recorded for this test" if self._test else "nothing is recorded that belongs to no test"
            ]
        return self._nearest(asked)

    def owners(self, asked: Request) -> list[tuple[int, str | None]]:
        """Whose an equal request is, by number of the interaction, where it is another test's alone."""
        wanted = fingerprint(asked, self._ignore)
        if any(slot.fingerprint == wanted for slot in self.slots):
            return []
        stored = [(number, each.test, self._scrubbing.stored(each.exchange.request)) for number, each in self._others]
        return [(number, test) for number, test, request in stored if fingerprint(request, self._ignore) == wanted]

    def _nearest(self, asked: Request) -> list[str]:
        """The closest recorded request with all that differs, and the next ones by number."""
        ranked = nearest([slot.request for slot in self.slots], asked, self._ignore)
        (place, _), *others = ranked[:_MOST_NEAR]
        best = self.slots[place]
        lines = [f"closest recorded request: {best.request.method} {best.request.url} (interaction {best.number})"]
        lines += [f"  {line}" for line in differences(best.request, asked, self._ignore)]
        for place, parted in others:
            slot = self.slots[place]
            lines.append(
                f"next: {slot.request.method} {slot.request.url} (interaction {slot.number}, differences: {parted})"
            )
        return lines


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _queues(slots: Sequence[Slot]) -> dict[Hashable, deque[Slot]]:
    """What may be played for each request, in recorded order."""
    free: dict[Hashable, deque[Slot]] = {}
    for slot in slots:
        free.setdefault(slot.fingerprint, deque()).append(slot)
    return free
