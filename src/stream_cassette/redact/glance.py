"""A fast look at a text: which kinds of secrets may stand in it. Most texts have none and need no closer look, not even at pieces put together.

What a stream says is most of all the same fields around ever new pieces of text. So each field, and what stands between fields, is looked at once
as long as it repeats; and what fields of one name say is looked at together. A text comes in pieces and goes as it is looked at: a long body is
not in memory a second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from .names import SEALED, STRUCTURE
from .patterns import Kind
from .search import Secrets

WINDOW = 1 << 20  # characters that are taken apart at once

# What is looked at again with what comes after it: more than any kind needs to be told, name and spelling included. The longest are web tokens
# with a chain of certificates in the header (10,000), sessions of AWS (2,000) and certificates in a form (8,000). Of a PEM block the first line and a
# letter tell; and a value without an end is told by its beginning.
OVERLAP = 1 << 16
_SPELLED = 64  # characters at most that stand for one, as escapes of escapes do

_PAIR = re.compile(r'"([A-Za-z0-9_-]{1,40})"\s*:\s*"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_HALF_A_PAIR = re.compile(
    r'"(?:\Z|[A-Za-z0-9_-]{1,40}(?:\Z|"\s*(?:\Z|:\s*(?:\Z|"(?:[^"\\]++|\\.)*+\\?\Z))))', re.DOTALL
)
_CODE = re.compile(r"\\+u00([2-7][0-9a-fA-F])|%(0[9aAdD]|[2-7][0-9a-fA-F])")
_ANY_QUOTE = re.compile(r'\\+"')
_DEEP_QUOTE = re.compile(r'\\{2,}"')
_CONTROL = re.compile(r"\\+[nrtbf]")
_INDEX = re.compile(r'index"\s*:\s*([0-9]+)')
_APART = (
    "\"'\n"  # between texts that are looked at together: the end of one ends a value in it, and no secret goes over
)


def suspects(pieces: Iterable[str], secrets: Secrets) -> Secrets | None:
    """The kinds that may stand somewhere in the text that `pieces` join to; None where it needs no closer look."""
    if not secrets.own:
        glance = Glance(secrets)
        for piece in pieces:
            glance.feed(piece)
        return glance.close()
    # What a pattern of the user's sees may be of any length.
    text = "".join(pieces)
    glance = Glance(secrets, len(text) + 1, len(text) + 1)
    glance.suspicious = bool(secrets.find_own(text))
    glance.feed(text)
    return glance.close()


class Glance:
    """The look at a text that is fed in pieces."""

    def __init__(self, secrets: Secrets, window: int | None = None, overlap: int | None = None) -> None:
        self.suspicious = False
        self._secrets = secrets
        self._window, self._overlap = window or WINDOW, overlap or OVERLAP
        self._known: set[Kind] = set()
        self._fed: list[str] = []
        self._size = 0
        self._rest = ""  # what comes after the last field
        self._seen: dict[str | tuple[str, str], None] = {}  # what stood in the window before
        self._said: dict[
            str, tuple[str, int]
        ] = {}  # of each name the text that waits, and how much of it was looked at already
        self._cut_place: tuple[str, ...] = ()  # the numbers of parts that stood before `_rest`
        self._place: tuple[str, ...] = ()
        self._places: set[tuple[str, ...]] = set()

    def feed(self, piece: str) -> None:
        self._fed.append(piece)
        self._size += len(piece)
        # A value that is longer than the window is waited for; it would take too long to look for its end again every time.
        if self._size >= max(self._window, len(self._rest)):
            self._take_apart()

    def close(self) -> Secrets | None:
        """What `suspects` gives."""
        self._take_apart()
        self._take_turns([self._rest])
        self._look(_APART.join([self._rest, *(text for text, _ in self._said.values())]) + _APART)
        if not self.suspicious:
            return None
        return replace(self._secrets, known=tuple(kind for kind in self._secrets.known if kind in self._known))

    def _take_apart(self) -> None:
        text = self._rest + "".join(self._fed)
        self._fed, self._size = [], 0
        *parts, self._rest = _PAIR.split(text)
        between, names, values = parts[0::3], parts[1::3], parts[2::3]
        found: dict[str | tuple[str, str], None] = dict.fromkeys(between)
        found |= dict.fromkeys(zip(names, values, strict=True))
        fresh = [each for each in found if each not in self._seen]
        self._seen = found
        spelled = [each if isinstance(each, str) else f'"{each[0]}":"{each[1]}"' for each in fresh]
        self._look(_APART.join(spelled) + _APART)
        self._take_turns(between)
        self._put_together(names, values)
        self._shorten()

    def _put_together(self, names: Sequence[str], values: Sequence[str]) -> None:
        said: dict[str, list[str]] = {}
        for name, value in zip(names, values, strict=True):
            if name not in STRUCTURE and name not in SEALED:
                said.setdefault(name, []).append(value)
        for name, pieces in said.items():
            before, done = self._said.get(name, ("", 0))
            text = before + "".join(pieces)
            if len(text) - done >= self._overlap:
                self._look(text, cut=True)
                text = text[-self._overlap :]
                done = len(text)
            self._said[name] = text, done

    def _shorten(self) -> None:
        """Lets go of a long rest, but for a field that has begun and what may belong together with it."""
        begun = _HALF_A_PAIR.search(self._rest)
        end = begun.start() if begun else len(self._rest)
        kept = end - self._overlap
        if kept >= self._overlap:
            self._look(self._rest[:end], cut=True)
            self._cut_place += tuple(match[1] for match in _INDEX.finditer(self._rest) if match.start() < kept)
            self._rest = self._rest[kept:]

    def _take_turns(self, between: Sequence[str]) -> None:
        """Where parts with different numbers take turns, the pieces of one do not follow each other."""
        numbers = {each: tuple(_INDEX.findall(each)) for each in dict.fromkeys(between) if "index" in each}
        places = [numbers.get(each, ()) for each in between]
        if places:
            places[0], self._cut_place = self._cut_place + places[0], ()
        for place, _ in groupby(filter(None, places)):
            if place != self._place:
                self.suspicious = self.suspicious or place in self._places
                self._places.add(place)
                self._place = place

    def _look(self, spelled: str, *, cut: bool = False) -> None:
        """`cut`: the text goes on, and what goes over its end is seen again with that."""
        read = _read(spelled)
        known = self._secrets.within(read)
        self._known.update(known.known)
        if not self.suspicious:
            looks = (read, *_deeper(spelled, known))
            # What ends at a cut may go on; if it is long it began too early to be seen again.
            most = self._overlap // _SPELLED
            self.suspicious = any(
                not cut or hit.end < len(look) or hit.end - hit.start >= most
                for look in looks
                for hit in known.find(look)
            )


def _deeper(text: str, secrets: Secrets) -> Iterator[str]:
    if '\\"' in text and any(kind.named for kind in secrets.known):
        # A quote that is escaped ends no value, and at which depth the value stands is not known here.
        yield _read(_ANY_QUOTE.sub("'", text))
        yield _read(_DEEP_QUOTE.sub("", text))


def _read(text: str) -> str:
    """The text without its escapes, roughly."""
    is_url = "%" in text
    if is_url or "\\u00" in text:
        text = _CODE.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
    if "\\" in text:
        text = _CONTROL.sub(" ", text).replace("\\", "")
    return text + "\n" + text.replace("+", " ") if is_url else text  # in a query a plus is a space, or a plus
