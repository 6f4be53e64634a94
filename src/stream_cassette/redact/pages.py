"""A text as the wire spells it, the readings under its escapes, and the marks that cover secrets in it."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from .. import jsontext
from .names import SEALED
from .patterns import Hit, placeholder
from .search import Secrets

_LINE_ENDS = "\r\n"
# A JSON string, or what the end of the text left of one. None goes over a line end.
_STRING = re.compile(r'"((?:[^"\\\r\n]++|\\[^\r\n])*+)(?:"(\s*+:)?|\\?\Z)')
_BETWEEN_KEY_AND_VALUE = re.compile(r"[\s\[]*")
_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL
)
_SHORT = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_PERCENT = re.compile("%(0[9AaDd]|[2-7][0-9a-fA-F])")
_FORM = re.compile(rf"{_PERCENT.pattern}|[+]")  # in a query a plus is a space, or a plus
_BESIDE_DATA = re.compile("(?:event|id)?:")
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class View:
    """A reading of a part of a page: character `i` of `text` is spelled from `at[i]` to `at[i + 1]` there.

    `key`: of which field it is the value; `is_key`: it is the name of one itself.
    """

    text: str
    at: Sequence[int]
    key: str = ""
    is_key: bool = False

    def respelled(self, escape: re.Pattern[str]) -> View:
        """The reading with every `escape` replaced by what it stands for."""
        text: list[str] = []
        at = array("q")  # a list takes four times as much
        done = 0
        for match in escape.finditer(self.text):
            text += (self.text[done : match.start()], _meant(match))
            at.extend(self.at[done : match.start()])
            at.extend([self.at[match.start()]] * len(text[-1]))
            done = match.end()
        at.extend(self.at[done:])
        return View("".join((*text, self.text[done:])), at, self.key, self.is_key)


def _meant(match: re.Match[str]) -> str:
    if match.re is not _ESCAPE:
        return chr(int(match[1], 16)) if match[1] else " "
    if match[1]:
        return bytes.fromhex(match[1] + match[2]).decode("utf-16-be")
    return chr(int(match[3], 16)) if match[3] else _SHORT.get(match[4], match[4])


@dataclass(slots=True)
class Page:
    """A text to find secrets in. Its JSON strings are looked for from `payload_at` on; where `data`, which is what it says, is JSON, nothing but
    digits may change outside of them.

    `sealed` are places that stay as they are, beside the fields that always do; `line_ends` those within secrets that stars leave alone.
    """

    text: str
    payload_at: int = 0
    data: str | None = None
    sealed: list[tuple[int, int]] = field(default_factory=list)
    marks: list[tuple[int, int, Hit]] = field(default_factory=list)
    line_ends: set[int] = field(default_factory=set)
    _covered: set[int] = field(default_factory=set)
    _strings: list[View] | None = None

    @property
    def strings(self) -> list[View]:
        """The JSON strings, as they are read."""
        if self._strings is None:
            self._strings = list(_strings(View(self.text, range(len(self.text) + 1)), self.payload_at))
        return self._strings

    def parts(self) -> tuple[str, str]:
        """What comes before the payload, and that."""
        return self.text[: self.payload_at], self.text[self.payload_at :]

    def views(self) -> Iterator[View]:
        """The text as it stands, and everything that can be read under its escapes."""
        for start, text in zip((0, self.payload_at), self.parts(), strict=True):
            part = View(text, range(start, start + len(text) + 1))
            yield part
            yield from _decoded(part, 1)
        yield from _under(self.strings, 1)

    def search(self, secrets: Secrets) -> list[Hit]:
        """Marks all secrets; those that no mark covered before, and where each begins on the page."""
        if not (secrets.own or secrets.known):
            return []
        return [
            replace(hit, start=view.at[hit.start], end=view.at[hit.end])
            for view in self.views()
            for hit in secrets.find(view.text)
            if self.mark(view, hit)
        ]

    def mark(self, view: View, hit: Hit) -> bool:
        """Covers `hit`, which was found in `view`. False where it stands covered already, or in what stays as it is."""
        start, end = view.at[hit.start], view.at[hit.end]
        self.keep(view, (place for place in range(hit.start, hit.end) if view.text[place] in _LINE_ENDS))
        if self._covered.issuperset(range(start, end)) or self._is_sealed(start, end):
            return False
        start, end = self._whole(start), self._whole(end, after=True)
        self._covered.update(range(start, end))
        self.marks.append((start, end, hit))
        return True

    def keep(self, view: View, places: Iterable[int]) -> None:
        """Leaves the line ends at these places of `view` alone, so that the lines of a key stay lines."""
        for place in places:
            self.line_ends.update(range(view.at[place], view.at[place + 1]))

    def _is_sealed(self, start: int, end: int) -> bool:
        around = self._string_at(start)
        if around is not None and around.key in SEALED and end <= around.at[-1]:
            return True
        return any(a <= start and end <= b for a, b in self.sealed)

    def _string_at(self, place: int) -> View | None:
        """The JSON string around the place."""
        number = bisect_right(self.strings, place, key=lambda view: view.at[0]) - 1
        found = self.strings[number] if number >= 0 else None
        return found if found is not None and place < found.at[-1] else None

    def _whole(self, place: int, *, after: bool = False) -> int:
        """The place, or if it is inside an escape the start of that, or what comes after it."""
        around = self._string_at(place)
        if around is None:
            return place
        return around.at[bisect_left(around.at, place) if after else bisect_right(around.at, place) - 1]

    def painted(self) -> str:
        """The text with stars over the marks, as many bytes as before. Line ends stay, and where it is JSON everything but its texts."""
        text = list(self.text)
        edges = [edge for view in self.strings for edge in (view.at[0], view.at[-1])]
        is_json = _is_json(self.data)
        for start, end, _ in self.marks:
            for place in set(range(start, end)) - self.line_ends:
                if not is_json or bisect_right(edges, place) % 2 == 1 or self._is_beside_json(place):
                    text[place] = _star(text[place])
                elif text[place].isdigit():
                    text[place] = "9"
        return "".join(text)

    def _is_beside_json(self, place: int) -> bool:
        """Is it before the payload, in a comment of an event stream, or in an event's name or id?"""
        if place < self.payload_at:
            return True
        line = max(self.text.rfind(end, 0, place) for end in _LINE_ENDS) + 1
        return _BESIDE_DATA.match(self.text, line) is not None

    def filled(self) -> str:
        """The text with placeholders in the place of the marks."""
        out: list[str] = []
        done = 0
        for start, end, hit in sorted(self.marks, key=lambda mark: mark[:2]):
            if start >= done:
                out += (self.text[done:start], placeholder(hit))
            done = max(done, end)
        return "".join((*out, self.text[done:]))


def _is_json(text: str | None) -> bool:
    try:
        jsontext.parse(text or "")
    except ValueError:
        return False
    return True


def _star(character: str) -> str:
    return "*" * len(character.encode("utf-8", "surrogateescape"))


def strings_in(text: str) -> Iterator[tuple[int, int]]:
    """Where the JSON strings of a text stand, keys and values, without their quotes."""
    return (match.span(1) for match in _STRING.finditer(text))


def _strings(view: View, start: int = 0) -> Iterator[View]:
    key = ""
    after = -1
    for match in _STRING.finditer(view.text, start):
        if match[2]:
            key, after, own = match[1], match.end(), ""
        else:
            between = _BETWEEN_KEY_AND_VALUE.match(view.text, max(after, 0))
            own = key if between and between.end() == match.start() and after >= 0 else ""
        first, last = match.span(1)
        found = View(match[1], view.at[first : last + 1], own, match[2] is not None)
        yield found.respelled(_ESCAPE) if "\\" in found.text else found


def _decoded(view: View, depth: int) -> Iterator[View]:
    """What a URL in the text says."""
    if depth <= _DEEPEST and _PERCENT.search(view.text):
        for escape in (_PERCENT, _FORM) if "+" in view.text else (_PERCENT,):
            yield from _readings(view.respelled(escape), depth)


def _under(strings: Iterable[View], depth: int) -> Iterator[View]:
    """What stands in those of the strings that read otherwise than they stand there."""
    for view in strings:
        if isinstance(view.at, array):
            yield from _readings(view, depth)


def _readings(view: View, depth: int) -> Iterator[View]:
    yield view
    yield from _decoded(view, depth + 1)
    if depth < _DEEPEST and '"' in view.text:
        yield from _under(_strings(view), depth + 1)
