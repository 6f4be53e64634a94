"""Secrets in response bodies: found wherever they stand or are cut into pieces, and covered by as many bytes, so that reads and frames stay."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from zlib import crc32

from ..dialects import detect
from ..dialects.base import Dialect, Hint, payload_of
from ..framing import eventstream, framed
from ..model import Delta, Frame, Signature, Whole
from .glance import WINDOW, suspects
from .pages import Page
from .search import Secrets
from .threads import Threads

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


# ----------------------------------------------------------------------------------------------------------------- the whole


@dataclass(frozen=True, slots=True, order=True)
class _Mark:
    """A secret that was covered, from place `at` of frame `first` to frame `last`; `line` lines come before it."""

    first: int
    at: int
    last: int
    kind: str
    line: int


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
    if not binary and not _is_stream(reads):
        text = _text(b"".join(reads))
        page = Page(text, data=text)
        hits = page.search(suspected)
        _cover_log_probabilities(page)
        found = [Found(hit.kind, "", text.count("\n", 0, hit.start)) for hit in hits]
        return list(_cut([_bytes(page.painted())], reads)), found
    cover = _Cover(reads, binary, _dialect(framed(reads), url, content_type), secrets, suspected)
    return list(_cut(cover.frames(), reads)), [
        Found(mark.kind, _place(mark), mark.line) for mark in sorted(cover.marks)
    ]


def _is_stream(reads: Iterable[bytes]) -> bool:
    events = (frame for frame in framed(reads) if frame.data is not None)
    return len(list(islice(events, 2))) == 2


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


def _cut(pieces: Iterable[bytes], like: Iterable[bytes]) -> Iterator[bytes]:
    """What the pieces join to, in reads of the sizes that `like` has; of those that are the same, the very ones."""
    waiting = bytearray()
    due = iter(like)
    old = next(due, None)
    for piece in pieces:
        waiting += piece
        while old is not None and len(old) <= len(waiting):
            yield old if waiting.startswith(old) else bytes(waiting[: len(old)])
            del waiting[: len(old)]
            old = next(due, None)


class _Cover:
    """Covers the secrets in a stream. Its frames are gone through twice, and few of them are ever held at a time.

    `suspected` may stand in one frame; in pieces put together there may be any of `secrets`.
    """

    def __init__(
        self, reads: Sequence[bytes], binary: bool, dialect: Dialect | None, secrets: Secrets, suspected: Secrets
    ) -> None:
        self._reads, self._binary, self._suspected = reads, binary, suspected
        self._sealed: dict[int, list[tuple[int, int]]] = {}  # by frame, of those that are to be opened again
        self._covered: dict[int, _Mark] = {}  # secrets in pieces
        self._others: list[_Mark] = []
        threads = Threads()
        for number, frame in enumerate(framed(reads)):
            page = _open(frame, binary).page
            deltas = dialect.read(frame) if dialect else []
            _seal(page, deltas)
            threads.add(number, page, deltas)
            if page.sealed or page.search(suspected):
                self._sealed[number] = page.sealed
        self._stitches = threads.stitches(secrets)

    @property
    def marks(self) -> list[_Mark]:
        """What was covered, once all `frames` are out."""
        return [*self._covered.values(), *self._others]

    def frames(self) -> Iterator[bytes]:
        line = 0
        for number, frame in enumerate(framed(self._reads)):
            if number in self._sealed or number in self._stitches:
                yield self._written(number, line, _open(frame, self._binary))
            else:
                yield frame.raw
            line += frame.raw.count(b"\n")

    def _written(self, number: int, line: int, sheet: _Sheet) -> bytes:
        page = sheet.page
        page.sealed += self._sealed.get(number, ())
        for stitch in self._stitches.get(number, ()):
            for at in stitch.cover(page):
                mark = _Mark(number, at, number, stitch.hit.kind, line + page.text.count("\n", 0, at))
                self._covered[stitch.secret] = replace(self._covered.get(stitch.secret, mark), last=number)
        for hit in page.search(self._suspected):
            self._others.append(_Mark(number, hit.start, number, hit.kind, line + page.text.count("\n", 0, hit.start)))
        _cover_log_probabilities(page)
        return sheet.written()


def _place(mark: _Mark) -> str:
    if mark.first == mark.last:
        return f", frame {mark.first + 1}"
    return f", frames {mark.first + 1} to {mark.last + 1}"


def _dialect(found: Iterable[Frame], url: str, content_type: str) -> Dialect | None:
    payloads = ((payload, frame.event) for frame in found if (payload := payload_of(frame)) is not None)
    known = (detect(Hint(payload, url, content_type, event)) for payload, event in payloads)
    return next((dialect for dialect in known if dialect), None)


_TOKEN = re.compile(r'"token"\s*:\s*"((?:[^"\\]++|\\.)*+)"|"bytes"\s*:\s*\[([\s0-9,]*)\]')


def _cover_log_probabilities(page: Page) -> None:
    """Log probabilities say every token again, as text and as bytes."""
    if page.marks and '"logprobs"' in page.text:
        hit = page.marks[0][2]
        page.marks += [(*match.span(match.lastindex or 0), hit) for match in _TOKEN.finditer(page.text)]
