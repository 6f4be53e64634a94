"""The recorded interactions that a tape may play: which of them answers a request, and what to say where none does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from stream_cassette.matching import differences, fingerprint, nearest
from stream_cassette.model import Exchange, Interaction, Request
from stream_cassette.paths import Steps
from stream_cassette.playing import Player, hurried
from stream_cassette.recording import retryable

_MOST_NEAR = 3


@dataclass(frozen=True, slots=True)
class Slot:
    """A recorded interaction, `number` as counted from 1 in the file, with its `request` as it would be stored today."""

    number: int
    interaction: Interaction
    request: Request
    fingerprint: Hashable
    player: Player


class Shelf:
    """What `interactions` of a file the test `test` may play: its own first, then those of no test, each once, equal requests in recorded order.

    `ignore` names what does not count in a request, `stored` gives a recorded request as it would be stored today, and `player` (of an exchange, its
    dialect and the number of its interaction) plays it.
    """

    def __init__(
        self,
        interactions: Sequence[Interaction],
        test: str | None,
        ignore: Sequence[Steps],
        stored: Callable[[Request], Request],
        player: Callable[[Exchange, str | None, int], Player],
    ) -> None:
        self._ignore, self._stored, self._test = ignore, stored, test
        numbered = list(enumerate(interactions, 1))
        mine = [(number, each) for number, each in numbered if each.test == test]
        if test is not None:
            mine += [(number, each) for number, each in numbered if each.test is None]
        self._others = [(number, each) for number, each in numbered if each.test not in (None, test)]
        self.slots: tuple[Slot, ...] = ()
        for number, each in reversed(mine):
            self.slots = (self._slot(number, each, player), *self.slots)
        self._free = _queues(self.slots)

    def _slot(
        self, number: int, interaction: Interaction, player: Callable[[Exchange, str | None, int], Player]
    ) -> Slot:
        exchange = interaction.exchange
        request = self._stored(exchange.request)
        wanted = fingerprint(request, self._ignore)
        if retryable(exchange.status) and any(slot.fingerprint == wanted for slot in self.slots):
            exchange = hurried(exchange)
        return Slot(number, interaction, request, wanted, player(exchange, interaction.dialect, number))

    def put(self, place: int, slots: Sequence[Slot]) -> None:
        """Puts `slots` in the place of the one at `place`; nothing has been reserved so far."""
        self.slots = (*self.slots[:place], *slots, *self.slots[place + 1 :])
        self._free = _queues(self.slots)

    def reserve(self, asked: Request) -> Slot | None:
        """The next one that answers `asked`, which nobody else gets from now on."""
        free = self._free.get(fingerprint(asked, self._ignore))
        return free.popleft() if free else None

    def at_recorded_host(self, asked: Request) -> Request:
        """`asked` as if made to the host under which it is recorded; where it is under none, to the first host of all."""
        origins = dict.fromkeys(_origin(slot.request.url) for slot in self.slots)
        parts = urlsplit(asked.url)
        moved = [
            Request(asked.method, parts._replace(scheme=scheme, netloc=netloc).geturl(), asked.headers, asked.body)
            for scheme, netloc in origins
        ]
        found = (each for each in moved if self._free.get(fingerprint(each, self._ignore)))
        return next(found, moved[0] if moved else asked)

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
        stored = [(number, each.test, self._stored(each.exchange.request)) for number, each in self._others]
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
