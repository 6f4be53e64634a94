"""Secrets in response bodies: found wherever they stand or are cut into pieces, and covered by as many bytes, so that reads and frames stay."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from zlib import crc32

from ..dialects import detect
from ..dialects.base import Dialect, Hint, payload_of
from ..framing import eventstream, framed, frames
from ..lanes import Lane, Lanes
from ..model import Arguments, ArgumentsAt, Delta, Frame, Reasoning, Refusal, Signature, Text, Whole
from .glance import WINDOW, suspects
from .names import SEALED, STRUCTURE
from .pages import Page, View
from .patterns import Hit
from .search import Secrets

_CHUNK = re.compile(r'"bytes"\s*:\s*"([A-Za-z0-9+/]+=*)"')

# ---------------------------------------------------------------------------------------------------------- frames as pages


@dataclass(slots=True)
class _Sheet:
    """A frame, its page, and the way back to its bytes."""

    frame: Frame
    page: Page
    close: Callable[[str], bytes]

    def written(self) -> bytes:
        return self.close(self.page.painted()) if self.page.marks else self.frame.raw


def _open(frame: Frame, framing_is_binary: bool) -> _Sheet:
    if not framing_is_binary:
        return _Sheet(frame, Page(_text(frame.raw), data=frame.data), _bytes)
    lengths, checked = frame.raw[:12], frame.raw[12:-4]
    if _sealed(frame.raw[:-4]) != frame.raw:  # cut short or damaged, and it stays so
        payload_at = 12 + int.from_bytes(lengths[4:8], "big")
        return _Sheet(frame, Page(_text(frame.raw), len(_text(frame.raw[:payload_at]))), _bytes)
    payload = eventstream.payload(frame)
    headers = checked[: len(checked) - len(payload)]
    chunk = _chunk_of(frame.data)
    if chunk is None:
        page = Page(_text(headers) + _text(payload), len(_text(headers)), frame.data)
        return _Sheet(frame, page, lambda text: _sealed(lengths + _bytes(text)))
    before, after = payload.split(base64.b64encode(chunk), 1)
    beside = headers + before + after
    first, last = len(headers + before), len(beside)

    def rewrapped(text: str) -> bytes:
        data = _bytes(text)
        return _sealed(lengths + data[:first] + base64.b64encode(data[last:]) + data[first:last])

    return _Sheet(frame, Page(_text(beside) + _text(chunk), len(_text(beside)), _text(chunk)), rewrapped)


def _sealed(message: bytes) -> bytes:
    return message + crc32(message).to_bytes(4, "big")


def _chunk_of(data: str | None) -> bytes | None:
    """The event that InvokeModelWithResponseStream wraps into base64, where it can be wrapped again as it was."""
    match = _CHUNK.search(data or "")
    chunk = _decoded(match[1]) if match else None
    return chunk if match and chunk and base64.b64encode(chunk).decode() == match[1] else None


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# ----------------------------------------------------------------------------------------------------- secrets cut into pieces


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a longer text, as the deltas or the fields of frame `number` have it."""

    number: int
    text: str
    views: Callable[[], Iterable[tuple[int, View]]]
    """Where it stands in the page: readings, and at which place of the piece each begins."""


def _by_field(pages: Sequence[Page]) -> Iterator[list[_Piece]]:
    """What equal fields of the frames say one after the other."""
    said: dict[str, list[_Piece]] = {}
    for number, page in enumerate(pages):
        for view in page.strings:
            if view.key and _may_be_said(page, view):
                said.setdefault(view.key, []).append(_Piece(number, view.text, partial(_itself, view)))
    yield from said.values()


def _may_be_said(page: Page, view: View) -> bool:
    if view.is_key or view.key in STRUCTURE or view.key in SEALED:
        return False
    return (view.at[0], view.at[-1]) not in page.sealed


def _seal(page: Page, deltas: Iterable[Delta]) -> None:
    """Marks what must stay: signatures go back to the provider as they came, whatever the dialect calls the field."""
    for delta in deltas:
        text = _sealed_text(delta)
        page.sealed += [(view.at[0], view.at[-1]) for view in page.strings if text and view.text == text]


def _sealed_text(delta: Delta) -> str:
    match delta:
        case Signature(_, text) | Whole(_, "signature", text):
            return text
        case _:
            return ""


def _by_lane(pages: Sequence[Page], deltas: Sequence[Sequence[Delta]]) -> Iterator[list[_Piece]]:
    """What each part of the reply says, as the dialect reads it."""
    lanes = Lanes()
    said: dict[tuple[Lane, str, str], list[_Piece]] = {}
    for number, (page, its) in enumerate(zip(pages, deltas, strict=True)):
        for delta in its:
            lane = lanes.of(delta)
            if lane is not None and (text := _said(delta)):
                place = delta.path if isinstance(delta, ArgumentsAt) else ""
                piece = _Piece(number, text, partial(_spelled, page, text))
                said.setdefault((lane, type(delta).__name__, place), []).append(piece)
    for (_, _, place), pieces in said.items():
        # What such an argument says does not tell the name of its field.
        name = re.split(r"[^\w-]+", place.rstrip("'\"]"))[-1]
        yield [_Piece(-1, f'"{name}":"', tuple), *pieces] if name else pieces


def _said(delta: Delta) -> str:
    match delta:
        case Text(_, text) | Reasoning(_, text) | Refusal(_, text) | Arguments(_, text):
            return text
        case ArgumentsAt(_, _, str(text)):
            return text
        case _:
            return ""


def _itself(view: View) -> Iterator[tuple[int, View]]:
    yield 0, view


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


def _join(pages: Sequence[Page], pieces: Sequence[_Piece], secrets: Secrets) -> Iterator[_Mark]:
    """Marks what is a secret only in the pieces together."""
    joined = Page("".join(piece.text for piece in pieces))
    if not joined.search(secrets):
        return
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + len(piece.text))
    for first, last, hit in joined.marks:
        touched = [
            (piece.number, at)
            for piece, (start, end) in zip(pieces, pairwise(starts), strict=True)
            if start < last and first < end
            for at in _mark(pages[piece.number], piece, Hit(first, last, hit.kind, hit.named), start, joined.line_ends)
        ]
        if touched:
            yield _Mark(*touched[0], touched[-1][0], hit.kind)


def _mark(page: Page, piece: _Piece, hit: Hit, start: int, line_ends: set[int]) -> Iterator[int]:
    """Covers what of `hit` stands in the piece, which begins at `start`; the places on the page."""
    for place, view in piece.views():
        before = start + place
        first, last = max(hit.start - before, 0), min(hit.end - before, len(view.text))
        if first < last:
            page.keep(view, (at for at in range(first, last) if at + before in line_ends))
            if page.mark(view, Hit(first, last, hit.kind, hit.named)):
                yield view.at[first]


# ----------------------------------------------------------------------------------------------------------------- the whole


@dataclass(frozen=True, slots=True, order=True)
class _Mark:
    """A secret that was covered, from place `at` of frame `first` to frame `last`."""

    first: int
    at: int
    last: int
    kind: str


@dataclass(frozen=True, slots=True)
class Found:
    """A secret in a body: its kind, the frames it stands in (`, frame 3`; empty for a body that is no stream), and how many lines come before it."""

    kind: str
    frames: str
    line: int


def scrub_body(body: bytes, secrets: Secrets, url: str = "", content_type: str = "") -> tuple[bytes, list[Found]]:
    """`scrub_reads` of a body in one piece."""
    (clean,), found = scrub_reads((body,), secrets, url, content_type)
    return clean, found


def scrub_reads(
    reads: Sequence[bytes], secrets: Secrets, url: str = "", content_type: str = ""
) -> tuple[Sequence[bytes], list[Found]]:
    """The body that `reads` join to with every secret covered, in reads of the same sizes, and what was found; `reads` itself where nothing was.

    A body without secrets is in memory once, however long it is.
    """
    binary = next(filter(None, reads), b"")[:1] in (b"\0", b"\1")
    suspected = suspects(_parts(reads) if binary else _decoded_text(reads), secrets)
    if suspected is None:
        return reads, []
    found = frames(reads)
    if not binary and sum(frame.data is not None for frame in found) < 2:
        text = _text(b"".join(reads))
        page = Page(text, data=text)
        hits = page.search(suspected)
        _cover_log_probabilities(page)
        clean = _bytes(page.painted())
        return _cut(clean, reads), [Found(hit.kind, "", text.count("\n", 0, hit.start)) for hit in hits]
    sheets = [_open(frame, binary) for frame in found]
    clean, marks = _scrub_frames(sheets, secrets, suspected, _dialect(found, url, content_type))
    return _cut(clean, reads), marks


def _decoded_text(reads: Iterable[bytes]) -> Iterator[str]:
    """What `_text` makes of the whole body, piece by piece."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    for data in reads:
        for at in range(0, len(data), WINDOW):
            yield decoder.decode(data[at : at + WINDOW])
    yield decoder.decode(b"", final=True)


def _parts(reads: Iterable[bytes]) -> Iterator[str]:
    """What the frames of a binary body say, in lines of their own."""
    for frame in framed(reads):
        yield from (f"{part}\n" for part in _open(frame, True).page.parts())


def _cut(body: bytes, like: Sequence[bytes]) -> list[bytes]:
    """The body in pieces of the sizes that `like` has."""
    ends = accumulate(map(len, like), initial=0)
    return [body[start:end] for start, end in pairwise(ends)]


def _scrub_frames(
    sheets: Sequence[_Sheet], secrets: Secrets, suspected: Secrets, dialect: Dialect | None
) -> tuple[bytes, list[Found]]:
    """`suspected` may stand in one frame; in pieces put together there may be any of `secrets`."""
    pages = [sheet.page for sheet in sheets]
    deltas = [dialect.read(sheet.frame) if dialect else [] for sheet in sheets]
    for page, its in zip(pages, deltas, strict=True):
        _seal(page, its)
    together = (*_by_lane(pages, deltas), *_by_field(pages))
    marks = [mark for pieces in together for mark in _join(pages, pieces, secrets)]
    for number, page in enumerate(pages):
        marks += [_Mark(number, hit.start, number, hit.kind) for hit in page.search(suspected)]
        _cover_log_probabilities(page)
    lines = [0, *accumulate(sheet.frame.raw.count(b"\n") for sheet in sheets)]
    return b"".join(sheet.written() for sheet in sheets), [
        Found(mark.kind, _place(mark), lines[mark.first] + pages[mark.first].text.count("\n", 0, mark.at))
        for mark in sorted(marks)
    ]


def _place(mark: _Mark) -> str:
    if mark.first == mark.last:
        return f", frame {mark.first + 1}"
    return f", frames {mark.first + 1} to {mark.last + 1}"


def _dialect(found: Sequence[Frame], url: str, content_type: str) -> Dialect | None:
    payloads = ((payload, frame.event) for frame in found if (payload := payload_of(frame)) is not None)
    known = (detect(Hint(payload, url, content_type, event)) for payload, event in payloads)
    return next((dialect for dialect in known if dialect), None)


_TOKEN = re.compile(r'"token"\s*:\s*"((?:[^"\\]++|\\.)*+)"|"bytes"\s*:\s*\[([\s0-9,]*)\]')


def _cover_log_probabilities(page: Page) -> None:
    """Log probabilities say every token again, as text and as bytes."""
    if page.marks and '"logprobs"' in page.text:
        hit = page.marks[0][2]
        page.marks += [(*match.span(match.lastindex or 0), hit) for match in _TOKEN.finditer(page.text)]
