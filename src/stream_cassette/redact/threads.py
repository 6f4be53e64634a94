"""Texts that run through a stream, a piece in every frame, and what of a secret in them stands in which frame."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..lanes import Lane, Lanes
from ..model import Arguments, ArgumentsAt, Delta, Reasoning, Refusal, Text
from .glance import suspects
from .names import SEALED, STRUCTURE
from .pages import Page, View
from .patterns import Hit
from .search import Secrets

_SEWN_AT_ONCE = 1000  # pieces, which are words or less and cost ten times as much memory one by one


class _Thread:
    """A text in pieces. Of each piece the frame, where it begins, and which string of the frame's page it is; -1 where that is to be found."""

    def __init__(self, lead: str = "") -> None:
        self.numbers, self.starts, self.strings = array("q"), array("q"), array("q")
        self._size = len(lead)
        self._texts = [lead]
        self._fresh: list[str] = []

    def add(self, number: int, text: str, string: int = -1) -> None:
        self.numbers.append(number)
        self.starts.append(self._size)
        self.strings.append(string)
        self._size += len(text)
        self._fresh.append(text)
        if len(self._fresh) == _SEWN_AT_ONCE:
            self._texts.append("".join(self._fresh))
            self._fresh.clear()

    def taken(self, secrets: Secrets) -> str:
        """The whole text, once; empty where no secret may stand in it."""
        texts, self._texts, self._fresh = [*self._texts, *self._fresh], [], []
        return "" if suspects(texts, secrets) is None else "".join(texts)


@dataclass(frozen=True, slots=True)
class Stitch:
    """What of a secret stands in one piece of a text. `secret` counts the secrets that go over pieces; `hit` is it in the whole text, in which
    the piece begins at `start`."""

    secret: int
    hit: Hit
    text: str
    start: int
    string: int
    line_ends: set[int]

    def cover(self, page: Page) -> Iterator[int]:
        """Covers it on the page of its frame; the places there."""
        for place, view in self._views(page):
            before = self.start + place
            first, last = max(self.hit.start - before, 0), min(self.hit.end - before, len(view.text))
            if first < last:
                page.keep(view, (at for at in range(first, last) if at + before in self.line_ends))
                if page.mark(view, replace(self.hit, start=first, end=last)):
                    yield view.at[first]

    def _views(self, page: Page) -> Iterable[tuple[int, View]]:
        """The strings that say the piece, and at which place of it each begins."""
        return _spelled(page, self.text) if self.string < 0 else ((0, page.strings[self.string]),)


class Threads:
    """The texts of a stream whose frames are added one after the other."""

    def __init__(self) -> None:
        self._lanes = Lanes()
        self._by_lane: dict[tuple[Lane, str, str], _Thread] = {}
        self._by_field: dict[str, _Thread] = {}

    def add(self, number: int, page: Page, deltas: Iterable[Delta]) -> None:
        """The frame `number`: what it adds to each part of the reply, as the dialect reads it, and what equal fields of the frames say."""
        for delta in deltas:
            lane = self._lanes.of(delta)
            if lane is not None and (text := _said(delta)):
                place = delta.path if isinstance(delta, ArgumentsAt) else ""
                key = lane, type(delta).__name__, place
                if key not in self._by_lane:
                    # What such an argument says does not tell the name of its field.
                    name = re.split(r"[^\w-]+", place.rstrip("'\"]"))[-1]
                    self._by_lane[key] = _Thread(f'"{name}":"' if name else "")
                self._by_lane[key].add(number, text)
        for at, view in enumerate(page.strings):
            if view.key and _may_be_said(page, view):
                if view.key not in self._by_field:
                    self._by_field[view.key] = _Thread()
                self._by_field[view.key].add(number, view.text, at)

    def stitches(self, secrets: Secrets) -> dict[int, list[Stitch]]:
        """By frame, and in the order in which they are to be covered, what stands there of secrets in the texts."""
        found: dict[int, list[Stitch]] = {}
        secret = 0
        for thread in (*self._by_lane.values(), *self._by_field.values()):
            page = Page(thread.taken(secrets))
            page.search(secrets)
            for start, end, hit in page.marks:
                secret += 1
                whole = replace(hit, start=start, end=end)
                for number, stitch in _sewn(secret, whole, thread, page):
                    found.setdefault(number, []).append(stitch)
        return found


def _sewn(secret: int, hit: Hit, thread: _Thread, page: Page) -> Iterator[tuple[int, Stitch]]:
    starts = thread.starts
    first = max(bisect_right(starts, hit.start) - 1, 0)
    for at in range(first, len(starts)):
        if starts[at] >= hit.end:
            return
        end = starts[at + 1] if at + 1 < len(starts) else len(page.text)
        text = page.text[starts[at] : end]
        yield thread.numbers[at], Stitch(secret, hit, text, starts[at], thread.strings[at], page.line_ends)


def _may_be_said(page: Page, view: View) -> bool:
    if view.is_key or view.key in STRUCTURE or view.key in SEALED:
        return False
    return (view.at[0], view.at[-1]) not in page.sealed


def _said(delta: Delta) -> str:
    match delta:
        case Text(_, text) | Reasoning(_, text) | Refusal(_, text) | Arguments(_, text):
            return text
        case ArgumentsAt(_, _, str(text)):
            return text
        case _:
            return ""


def _spelled(page: Page, text: str) -> Iterator[tuple[int, View]]:
    """The strings of the page that say `text`; where none does, those that say parts of it, one after the other."""
    strings = [view for view in page.strings if view.text and _may_be_said(page, view)]
    whole = [view for view in strings if view.text == text]
    yield from ((0, view) for view in whole)
    done = 0
    for view in () if whole else strings:
        place = text.find(view.text, done)
        if place >= 0:
            yield place, view
            done = place + len(view.text)
